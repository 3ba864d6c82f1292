//! Crowds that depend on one event: thousands of waiters that one request answers, and winners that
//! vanish together.

use std::io;
use std::time::{Duration, Instant};

use super::super::client::{Client, PATIENCE};
use super::super::target::{Start, Target};
use super::super::{Attack, Outcome, Stage};

/// How long the last of a crowd may wait for its answer, on a quiet machine.
const ANSWERED_MAX: Duration = Duration::from_secs(2);

/// How many winners there are, each with a connection.
const WINNERS: usize = 60;

/// One `set` answers a crowd of waiters for its value.
pub(super) const SET: Attack = Attack {
    name: "waiters-set",
    about: "thousands wait for one value, and one `set` answers all",
    has_peer: false,
    play: |stage| {
        let crowd = Crowd::for_values(stage, |_| "one".into())?;
        crowd.answer(stage, "set one 0 0 1\r\nx", "STORED", "HD")
    },
};

/// One `delete` answers a crowd of waiters for its value.
pub(super) const DELETE: Attack = Attack {
    name: "waiters-delete",
    about: "thousands wait for one value, and one `delete` answers all",
    has_peer: false,
    play: |stage| {
        let crowd = Crowd::for_values(stage, |_| "one".into())?;
        crowd.answer(stage, "delete one", "DELETED", "EN")
    },
};

/// One `flush_all` answers a crowd in which each client waits for another value.
pub(super) const FLUSH: Attack = Attack {
    name: "waiters-flush",
    about: "thousands wait for a value each, and one `flush_all` answers all",
    has_peer: false,
    play: |stage| {
        let crowd = Crowd::for_values(stage, |number| format!("k{number}"))?;
        crowd.answer(stage, "flush_all", "OK", "EN")
    },
};

/// One release answers a crowd of waiters for a lock that none of them can have.
pub(super) const LOCKS: Attack = Attack {
    name: "waiters-lock",
    about: "thousands wait for the lock of an item that is deleted, and its release answers all",
    has_peer: false,
    play: |stage| {
        let mut crowd = Crowd::new(stage)?;
        crowd.actor.ask("set one 0 0 1\r\nx")?;
        crowd.actor.ask("ml one")?;
        for waiter in &mut crowd.waiters {
            waiter.send("ml one x w600000\r\n")?;
        }
        crowd.actor.ask("delete one")?;
        crowd.wait_for("lock_waiting")?;
        crowd.answer(stage, "mu one", "HD", "NF")
    },
};

/// The winners of very many items vanish together.
pub(super) const WINNERS_VANISH: Attack = Attack {
    name: "winners-vanish",
    about: "60 connections with as many bound wins as they can get close together",
    has_peer: false,
    play: winners_vanish,
};

/// Waiting clients, and an actor that answers them.
struct Crowd {
    target: Target,
    actor: Client,
    waiters: Vec<Client>,
}

impl Crowd {
    fn new(stage: &Stage<'_>) -> io::Result<Self> {
        let size = (stage.setting.items / 50).clamp(1, 8_000);
        let connections = (size + 100).to_string();
        let flags = ["-m", "1024", "-t", "4", "-c", &connections];
        let target = stage.start(&Start::new(&flags))?;
        Ok(Self {
            actor: Client::connect(target.address)?,
            waiters: Client::connect_many(target.address, size)?,
            target,
        })
    }

    /// Each waits for the value of the key that `key` names, which the actor is to compute.
    fn for_values(stage: &Stage<'_>, key: impl Fn(usize) -> String) -> io::Result<Self> {
        let mut crowd = Self::new(stage)?;
        for (number, waiter) in crowd.waiters.iter_mut().enumerate() {
            let key = key(number);
            if number == 0 || key != "one" {
                let won = crowd.actor.ask(&format!("mg {key} N600"))?;
                if won != "HD W" {
                    return Err(io::Error::other(format!("mg {key} N600: {won}")));
                }
            }
            // `R` makes it a get that asks for the win; the item has minutes left.
            waiter.send(format!("mg {key} R1 w600000\r\n"))?;
        }
        crowd.wait_for("get_waiting")?;
        Ok(crowd)
    }

    /// Returns when all of them wait.
    fn wait_for(&mut self, gauge: &str) -> io::Result<()> {
        let begun = Instant::now();
        let all = self.waiters.len() as u64;
        while self.actor.stat(gauge)? != Some(all) {
            if begun.elapsed() > PATIENCE {
                return Err(io::Error::other(format!("{gauge} is not {all}")));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// The actor sends the request that answers all of them.
    fn answer(
        mut self,
        stage: &Stage<'_>,
        request: &str,
        response: &str,
        told: &str,
    ) -> io::Result<Outcome> {
        let all = self.waiters.len();
        let (seen, (response_was, asked, answered, right)) =
            stage.watch(self.target.address, || {
                let begun = Instant::now();
                let was = self.actor.ask(request)?;
                let asked = begun.elapsed();
                let mut right = 0;
                for waiter in &mut self.waiters {
                    right += usize::from(waiter.line()? == told);
                }
                Ok((was, asked, begun.elapsed(), right))
            })?;
        let mut outcome = Outcome::seen(seen);
        outcome.must(
            response_was == response,
            format!("{request}: {response_was}"),
        );
        outcome.must(right == all, format!("{right} of {all} were told {told}"));
        outcome.span("asked", asked, super::super::outcome::STALL_MAX);
        outcome.span("all answered", answered, ANSWERED_MAX);
        stage.note_memory(&self.target, &mut outcome)?;
        Ok(outcome)
    }
}

fn winners_vanish(stage: &Stage<'_>) -> io::Result<Outcome> {
    let target = stage.start(&Start::new(&["-m", "2048", "-t", "4", "-c", "4096"]))?;
    let each = stage.setting.items / 70;
    let mut winners = Client::connect_many(target.address, WINNERS)?;
    let mut won = Vec::new();
    for (winner, client) in winners.iter_mut().enumerate() {
        won.push(client.pipeline(each, "HD W", |number, bytes| {
            bytes.extend_from_slice(format!("mg w{winner}_{number} N600 B\r\n").as_bytes());
        })?);
    }
    let all: usize = won.iter().sum();
    let (seen, (took, left)) = stage.watch(target.address, || {
        let begun = Instant::now();
        drop(winners);
        let mut other = Client::connect(target.address)?;
        while other.stat("wins_bound")? != Some(0) && begun.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(1));
        }
        let took = begun.elapsed();
        // Each of their wins is open to the next get; the first and the last show that.
        let mut left = Vec::new();
        for (winner, won) in won.iter().enumerate() {
            for number in [0, won - 1] {
                let told = other.ask(&format!("mg w{winner}_{number} R1"))?;
                if told != "HD W" {
                    left.push(format!("w{winner}_{number}: {told}"));
                }
            }
        }
        Ok((took, left))
    })?;
    let mut outcome = Outcome::seen(seen);
    outcome.notes.push(format!("{all} wins"));
    outcome.must(left.is_empty(), format!("not open: {left:?}"));
    outcome.span("ended", took, super::super::outcome::FREE_MAX);
    stage.note_memory(&target, &mut outcome)?;
    Ok(outcome)
}
