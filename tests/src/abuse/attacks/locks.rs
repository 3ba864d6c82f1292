//! Holders of many locks, and holders that die.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::super::client::{Client, PATIENCE};
use super::super::outcome::FREE_MAX;
use super::super::{Attack, Outcome, Stage, fill, hold};
use super::turns::small;

/// A holder of very many locks dies.
pub(super) const HOLDER_DIES: Attack = Attack {
    name: "holder-dies",
    about: "the holder of very many locks closes its connection",
    has_peer: false,
    play: |stage| {
        let target = stage.start_large()?;
        let holder = hold(&target, stage.setting.locks)?;
        let last = format!("k{}", stage.setting.locks - 1);
        let (seen, took) = stage.watch(target.address, || {
            let mut waiter = Client::connect(target.address)?;
            waiter.ask("mn")?;
            drop(holder);
            obtain(&mut waiter, &last)
        })?;
        let mut outcome = Outcome::seen(seen);
        outcome.span("free", took, FREE_MAX);
        stage.note_memory(&target, &mut outcome)?;
        Ok(outcome)
    },
};

/// A holder of very many locks releases them at once.
pub(super) const UNLOCK_ALL: Attack = Attack {
    name: "unlock-all",
    about: "the holder of very many locks gives them back",
    has_peer: false,
    play: |stage| {
        let target = stage.start_large()?;
        let mut holder = hold(&target, stage.setting.locks)?;
        let (seen, took) = stage.watch(target.address, || {
            let asked = Instant::now();
            holder.ask("unlock_all")?;
            Ok(asked.elapsed())
        })?;
        let mut outcome = Outcome::seen(seen);
        outcome.span("answered", took, FREE_MAX);
        stage.note_memory(&target, &mut outcome)?;
        Ok(outcome)
    },
};

/// A holder is reset while its requests are still much work.
pub(super) const RESET_BEHIND: Attack = Attack {
    name: "reset-behind",
    about: "a holder is reset with 200 `keys` under way",
    has_peer: false,
    play: |stage| {
        let target = stage.start_large()?;
        let mut worst = Duration::ZERO;
        let (seen, ()) = stage.watch(target.address, || {
            let mut waiter = Client::connect(target.address)?;
            waiter.ask("mn")?;
            for _ in 0..4 {
                let mut holder = Client::connect(target.address)?;
                holder.ask("lock k0")?;
                holder.send("keys zz\r\n".repeat(200))?;
                std::thread::sleep(Duration::from_millis(50));
                holder.reset()?;
                worst = worst.max(obtain(&mut waiter, "k0")?);
            }
            Ok(())
        })?;
        let mut outcome = Outcome::seen(seen);
        outcome.span("free", worst, FREE_MAX);
        stage.note_memory(&target, &mut outcome)?;
        Ok(outcome)
    },
};

/// One client acquires every lock that it can get.
pub(super) const HOG: Attack = Attack {
    name: "lock-hog",
    about: "one client takes all the locks it can; another wants one",
    has_peer: false,
    play: hog,
};

fn hog(stage: &Stage<'_>) -> io::Result<Outcome> {
    let target = small(stage, &["-m", "64", "-t", "4"])?;
    let items = (stage.setting.items / 2).min(400_000);
    fill(&target, items)?;
    let mut hog = Client::connect(target.address)?;
    let held = hog.pipeline(items - 1_000, "OK", |index, bytes| {
        bytes.extend_from_slice(format!("lock k{index}\r\n").as_bytes());
    })?;
    let mut other = Client::connect(target.address)?;
    let got = other.pipeline(1_000, "OK", |index, bytes| {
        bytes.extend_from_slice(format!("lock k{}\r\n", items - 1_000 + index).as_bytes());
    })?;
    let mut outcome = Outcome::default();
    outcome
        .notes
        .push(format!("{held} held by one, {got} of 1000 by another"));
    outcome.must(got == 1_000, format!("another got {got} of 1000 locks"));
    stage.note_memory(&target, &mut outcome)?;
    Ok(outcome)
}

/// Locked items keep flushed segments from being emptied: a store may be left without a place for
/// anything.
pub(super) const FLUSHES_BETWEEN: Attack = Attack {
    name: "lock-flush",
    about: "6 clients lock half of the items that they set, with flush_all after every 50 sets",
    has_peer: false,
    play: flushes_between,
};

/// The number of clients that set keys and lock them, in turn.
const LOCKERS: usize = 6;

fn flushes_between(stage: &Stage<'_>) -> io::Result<Outcome> {
    let target = small(stage, &["-m", "8", "-t", "1"])?;
    let sets = (stage.setting.items / 2).min(60_000);
    let value = "v".repeat(1_000);
    let (seen, [held, refused, refused_beside]) = stage.watch(target.address, || {
        let mut lockers = Client::connect_many(target.address, LOCKERS)?;
        let mut innocent = Client::connect(target.address)?;
        let [mut held, mut refused, mut refused_beside, mut without_lock] = [0_usize; 4];
        for number in 0..sets {
            let locker = &mut lockers[number % LOCKERS];
            // Neither repeats itself with the number of clients, or with that of flushes.
            let (bytes, wants_lock) = (number * 7_919 % 1_000, number * 389 % 1_000 < 450);
            let set = format!("set k{number} 0 0 {bytes}\r\n{}", &value[..bytes]);
            if locker.ask(&set)? != "STORED" {
                refused += 1;
            } else if wants_lock {
                let is_locked = locker.ask(&format!("lock k{number}"))? == "OK";
                held += usize::from(is_locked);
                without_lock += usize::from(!is_locked);
            }
            if number % 50 == 49 {
                locker.ask("flush_all")?;
            }
            if number % 20 == 19 {
                let stored = innocent.ask(&format!("set i{number} 0 0 1\r\nx"))?;
                refused_beside += usize::from(stored != "STORED");
            }
            if without_lock > sets / 30 {
                // All memory that may be pinned is pinned; then some of it is released.
                without_lock = 0;
                for locker in lockers.iter_mut().take(1 + number % LOCKERS) {
                    locker.ask("unlock_all")?;
                }
            }
        }
        Ok([held, refused, refused_beside])
    })?;
    let mut outcome = Outcome::seen(seen);
    outcome.notes.push(format!("{held} locks in {sets} sets"));
    outcome.must(held > 0, "nothing was locked");
    outcome.must(
        refused + refused_beside == 0,
        format!("{refused} sets refused, and {refused_beside} of an innocent client"),
    );
    stage.note_memory(&target, &mut outcome)?;
    Ok(outcome)
}

/// A holder's process is killed.
pub(super) const KILL_HOLDER: Attack = Attack {
    name: "kill-holder",
    about: "kill -9 of a holder, 30 times",
    has_peer: false,
    play: |stage| {
        let target = small(stage, &["-t", "4"])?;
        fill(&target, 1)?;
        let mut worst = Duration::ZERO;
        let (seen, ()) = stage.watch(target.address, || {
            let mut waiter = Client::connect(target.address)?;
            for _ in 0..30 {
                waiter.ask("unlock_all")?;
                worst = worst.max(kill_holder(target.address, &mut waiter)?);
            }
            Ok(())
        })?;
        let mut outcome = Outcome::seen(seen);
        outcome.span("free", worst, FREE_MAX);
        Ok(outcome)
    },
};

fn kill_holder(address: SocketAddr, waiter: &mut Client) -> io::Result<Duration> {
    let mut holder = Client::connect(address)?;
    let answer = holder.ask("lock k0")?;
    if answer != "OK" {
        return Err(io::Error::other(format!("no lock: {answer}")));
    }
    // The child has the socket as its standard input, and no other process has it open.
    let mut child = Command::new("sleep")
        .arg("60")
        .stdin(Stdio::from(OwnedFd::from(holder.into_socket())))
        .spawn()?;
    child.kill()?;
    let killed = Instant::now();
    child.wait()?;
    obtain(waiter, "k0")?;
    Ok(killed.elapsed())
}

/// Requests a lock until it is granted. Returns how long that took.
pub(super) fn obtain(waiter: &mut Client, key: &str) -> io::Result<Duration> {
    let begun = Instant::now();
    loop {
        let answer = waiter.ask(&format!("lock {key}"))?;
        match answer.as_str() {
            "OK" => {
                let took = begun.elapsed();
                waiter.ask(&format!("unlock {key}"))?;
                return Ok(took);
            }
            "LOCKED" if begun.elapsed() < PATIENCE => {}
            _ => return Err(io::Error::other(format!("lock {key}: {answer}"))),
        }
        std::thread::sleep(Duration::from_micros(500));
    }
}
