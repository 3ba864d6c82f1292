//! Crowds of sharers: many connections that hold the same keys.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::super::client::{Client, PATIENCE};
use super::super::outcome::FREE_MAX;
use super::super::target::{Start, Target};
use super::super::{Attack, Outcome, Stage};

/// How many connections share a key: nearly the limit.
const SHARERS: usize = 1_000;

/// How many keys have leases that end together: few, since renewing them at once is honest work.
const KEYS_EXPIRING: usize = 20;

/// How many clients request shared keys.
const ASKERS: usize = 50;

/// The number of keys that each holder of a requested key waits for.
const KEYS_BEHIND: usize = 64;

/// The leases of a crowd of sharers end together.
pub(super) const SHARERS_EXPIRE: Attack = Attack {
    name: "sharers-expire",
    about: "1,000 sharers of 100 keys renew their leases of 20, which end within a moment",
    has_peer: false,
    play: |stage| {
        let (target, mut sharers) = crowd(stage, " T60")?;
        let (seen, worst) = stage.watch(target.address, || {
            // Renewed at once, they also end at once.
            share(&mut sharers, KEYS_EXPIRING, " T1")?;
            thread::sleep(Duration::from_millis(1_050));
            take_each(&target, KEYS_EXPIRING)
        })?;
        let mut outcome = Outcome::seen(seen);
        outcome.span("free", worst, FREE_MAX);
        stage.note_memory(&target, &mut outcome)?;
        Ok(outcome)
    },
};

/// A crowd of sharers dies.
pub(super) const SHARERS_DIE: Attack = Attack {
    name: "sharers-die",
    about: "1,000 sharers of 100 keys close their connections",
    has_peer: false,
    play: |stage| {
        let (target, sharers) = crowd(stage, "")?;
        let keys = keys_of(stage);
        let mut waiter = Client::connect(target.address)?;
        waiter.ask("mn")?;
        let (seen, took) = stage.watch(target.address, || {
            // The waiting client gets the key, and later requesters find the others free.
            waiter.send(format!("ml k{keys} w60000\r\n"))?;
            await_waiters(&target, 1)?;
            drop(sharers);
            let closed = Instant::now();
            waiter.line()?;
            let handed_over = closed.elapsed();
            take_each(&target, keys - 1)?;
            Ok(handed_over)
        })?;
        let mut outcome = Outcome::seen(seen);
        // A thousand ends are a thousand turns.
        outcome.span("free", took, 10 * FREE_MAX);
        stage.note_memory(&target, &mut outcome)?;
        Ok(outcome)
    },
};

/// Many clients wait for keys that a crowd shares by leases.
pub(super) const SHARERS_ASKED: Attack = Attack {
    name: "sharers-asked",
    about: "50 clients wait 1 ms for each of 100 keys with 1,000 leased sharers",
    has_peer: false,
    play: |stage| {
        let (target, _sharers) = crowd(stage, " T600")?;
        let keys = keys_of(stage);
        let (seen, ()) = stage.watch(target.address, || {
            let mut askers = Client::connect_many(target.address, ASKERS)?;
            for (number, asker) in askers.iter_mut().enumerate() {
                let request = |key| format!("ml k{} w1\r\n", (key + number) % keys + 1);
                asker.send((0..keys).map(request).collect::<Vec<_>>().concat())?;
            }
            for asker in &mut askers {
                for _ in 0..keys {
                    asker.line()?;
                }
            }
            Ok(())
        })?;
        let mut outcome = Outcome::seen(seen);
        stage.note_memory(&target, &mut outcome)?;
        Ok(outcome)
    },
};

/// Each search for a deadlock has the most to look at.
pub(super) const DEADLOCK_SEARCH: Attack = Attack {
    name: "deadlock-search",
    about: "4 clients request a key; its 1,000 sharers wait for 64 keys of 1,000 others",
    has_peer: false,
    play: deadlock_search,
};

fn deadlock_search(stage: &Stage<'_>) -> io::Result<Outcome> {
    let (target, mut others) = start(stage)?;
    share(&mut others, KEYS_BEHIND, "")?;
    let mut sharers = Client::connect_many(target.address, SHARERS)?;
    for (number, sharer) in sharers.iter_mut().enumerate() {
        sharer.ask("ml K0 S")?;
        sharer.send(format!("ml k{} w600000\r\n", number % KEYS_BEHIND + 1))?;
    }
    await_waiters(&target, SHARERS)?;
    let is_over = AtomicBool::new(false);
    let (seen, answers) = stage.watch(target.address, || {
        thread::scope(|scope| {
            let askers: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| ask_on(&target, &is_over)))
                .collect();
            thread::sleep(stage.setting.span);
            is_over.store(true, Ordering::Relaxed);
            let asked = askers.into_iter();
            asked
                .map(|asker| asker.join().expect("it does not panic"))
                .sum::<io::Result<usize>>()
        })
    })?;
    let mut outcome = Outcome::seen(seen);
    outcome.must(answers > 0, "nothing was answered");
    outcome.notes.push(format!("{answers} answers"));
    stage.note_memory(&target, &mut outcome)?;
    Ok(outcome)
}

fn ask_on(target: &Target, is_over: &AtomicBool) -> io::Result<usize> {
    let mut asker = Client::connect(target.address)?;
    let mut answers = 0;
    while !is_over.load(Ordering::Relaxed) {
        answers += 50;
        asker.send("ml K0 w1\r\n".repeat(50))?;
        for _ in 0..50 {
            asker.line()?;
        }
    }
    Ok(answers)
}

/// Returns once `waiters` clients wait for locks.
fn await_waiters(target: &Target, waiters: usize) -> io::Result<()> {
    let begun = Instant::now();
    let mut looker = Client::connect(target.address)?;
    while looker.stat("lock_waiting")? < Some(waiters as u64) {
        if begun.elapsed() > PATIENCE {
            return Err(io::Error::other("too few wait"));
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// How many keys a crowd shares: `k1` and so on.
fn keys_of(stage: &Stage<'_>) -> usize {
    (stage.setting.locks / SHARERS).clamp(20, 100)
}

/// A server with a crowd of sharers; their shares have leases or not.
fn crowd(stage: &Stage<'_>, lease: &str) -> io::Result<(Target, Vec<Client>)> {
    let (target, mut sharers) = start(stage)?;
    share(&mut sharers, keys_of(stage), lease)?;
    Ok((target, sharers))
}

/// A server, and connections without shares.
fn start(stage: &Stage<'_>) -> io::Result<(Target, Vec<Client>)> {
    let target = stage.start(&Start::new(&["-m", "1024", "-t", "4", "-c", "4096"]))?;
    let sharers = Client::connect_many(target.address, SHARERS)?;
    Ok((target, sharers))
}

/// Each of them acquires a share of each key, or renews it, all before any answer is read.
fn share(sharers: &mut [Client], keys: usize, lease: &str) -> io::Result<()> {
    let requests = (1..=keys).map(|key| format!("ml k{key} S{lease}\r\n"));
    let requests = requests.collect::<Vec<_>>().concat();
    for sharer in &mut *sharers {
        sharer.send(&requests)?;
    }
    for sharer in sharers {
        for key in 1..=keys {
            let answer = sharer.line()?;
            if !answer.starts_with("HD") {
                return Err(io::Error::other(format!("a share of k{key}: {answer}")));
            }
        }
    }
    Ok(())
}

/// Acquires each key exclusively. Returns how long the slowest of them took.
fn take_each(target: &Target, keys: usize) -> io::Result<Duration> {
    let mut taker = Client::connect(target.address)?;
    let mut worst = Duration::ZERO;
    for key in 1..=keys {
        let begun = Instant::now();
        let answer = taker.ask(&format!("ml k{key} w60000"))?;
        if !answer.starts_with("HD") {
            return Err(io::Error::other(format!("k{key} alone: {answer}")));
        }
        worst = worst.max(begun.elapsed());
    }
    Ok(worst)
}
