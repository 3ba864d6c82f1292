//! Few bytes that cause much work: turns without an end.

use std::io;
use std::thread;
use std::time::Duration;

use super::super::client::Client;
use super::super::target::{Start, Target};
use super::super::{Attack, Outcome, Stage, hold};

/// How many requests stop a thread for seconds, if a turn has no bound.
const PIPELINED: usize = 200;

/// How long a server may take to notice that it is to end.
const STOP_MAX: Duration = Duration::from_secs(1);

/// `keys` without a match.
pub(super) const KEYS: Attack = Attack {
    name: "keys",
    about: "200 pipelined `keys` without a match",
    has_peer: false,
    play: |stage| {
        let target = stage.start_large()?;
        let requests = "keys zz\r\n".repeat(PIPELINED);
        send_and_leave(stage, &target, requests.as_bytes())
    },
};

/// As above, and the server is to end.
pub(super) const KEYS_STOP: Attack = Attack {
    name: "keys-stop",
    about: "SIGTERM behind 7,000 pipelined `keys`",
    has_peer: false,
    play: keys_stop,
};

fn keys_stop(stage: &Stage<'_>) -> io::Result<Outcome> {
    let mut target = stage.start_large()?;
    let mut attackers = Client::connect_many(target.address, 4)?;
    for attacker in &mut attackers {
        attacker.send("keys zz\r\n".repeat(7_000))?;
    }
    thread::sleep(Duration::from_millis(200));
    let mut outcome = Outcome::default();
    let patience = Duration::from_secs(10);
    match target.terminate(patience)? {
        Some((status, took)) => {
            outcome.must(status.code() == Some(0), format!("{status}"));
            outcome.span("ended", took, STOP_MAX);
        }
        None => outcome.span("ended", patience, STOP_MAX),
    }
    Ok(outcome)
}

/// `stats` while many locks are held.
pub(super) const STATS: Attack = Attack {
    name: "stats",
    about: "1,000 pipelined `stats conns` and `stats`, many locks held",
    has_peer: true,
    play: |stage| {
        let target = stage.start_large()?;
        let holder = match stage.kind {
            super::super::Kind::Latchd => Some(hold(&target, stage.setting.locks)?),
            super::super::Kind::Memcached => None,
        };
        let requests = "stats conns\r\nstats\r\n".repeat(500);
        let outcome = send_and_leave(stage, &target, requests.as_bytes());
        drop(holder);
        outcome
    },
};

/// One line with very many keys.
pub(super) const MULTIGET: Attack = Attack {
    name: "multiget",
    about: "gets of 100,000 missing keys in a line, pipelined",
    has_peer: true,
    play: |stage| {
        let target = stage.start_large()?;
        let line = format!("get{}\r\n", " a".repeat(100_000));
        send_and_leave(stage, &target, line.repeat(20).as_bytes())
    },
};

/// Small requests behind one very long line.
pub(super) const LONG_READS: Attack = Attack {
    name: "long-reads",
    about: "a 4 MiB get, then quiet misses as fast as they go",
    has_peer: true,
    play: |stage| {
        let target = stage.start_large()?;
        let mut bytes = format!("get{}\r\n", " a".repeat((4 << 20) / 2 - 8)).into_bytes();
        bytes.extend("mg a q\r\n".repeat(2_000_000).into_bytes());
        send_and_leave(stage, &target, &bytes)
    },
};

/// Requests without an answer: the output bound does not end the turn.
pub(super) const QUIET_MISSES: Attack = Attack {
    name: "quiet-misses",
    about: "4 clients send quiet misses as fast as they go",
    has_peer: true,
    play: |stage| {
        let target = stage.start_large()?;
        let bytes = "mg a q\r\n".repeat(1_000_000).into_bytes();
        let (seen, ()) = stage.watch(target.address, || {
            thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| attack(&target, &bytes, stage.setting.span));
                }
            });
            Ok(())
        })?;
        let mut outcome = Outcome::seen(seen);
        stage.note_memory(&target, &mut outcome)?;
        Ok(outcome)
    },
};

/// Each request copies a megabyte.
pub(super) const APPENDS: Attack = Attack {
    name: "appends",
    about: "one byte at a time is appended to a value of 0.9 MB",
    has_peer: true,
    play: |stage| {
        let target = stage.start_large()?;
        let mut client = Client::connect(target.address)?;
        let value = "v".repeat(900_000);
        client.send(format!("set big 0 0 900000\r\n{value}\r\n"))?;
        client.line()?;
        let requests = "append big 0 0 1 noreply\r\nx\r\n".repeat(50_000);
        send_and_leave(stage, &target, requests.as_bytes())
    },
};

/// One client sends `bytes`, reads the answers for a while, and goes.
fn send_and_leave(stage: &Stage<'_>, target: &Target, bytes: &[u8]) -> io::Result<Outcome> {
    let (seen, ()) = stage.watch(target.address, || {
        attack(target, bytes, stage.setting.span);
        Ok(())
    })?;
    let mut outcome = Outcome::seen(seen);
    outcome.must(
        Client::connect(target.address)
            .and_then(|mut client| client.ask("mn"))
            .is_ok(),
        "it does not answer any more",
    );
    stage.note_memory(target, &mut outcome)?;
    Ok(outcome)
}

/// Sends and reads at the same time, for `span`.
fn attack(target: &Target, bytes: &[u8], span: Duration) {
    let started = std::time::Instant::now();
    let is_over = || started.elapsed() > span;
    let Ok(mut reader) = Client::connect(target.address) else {
        return;
    };
    let Ok(writer) = reader.try_clone() else {
        return;
    };
    thread::scope(|scope| {
        scope.spawn(|| writer.send_on(bytes, is_over));
        reader.read_on(is_over);
    });
}

/// A server with the default flags, for attacks that need no large store.
pub(super) fn small(stage: &Stage<'_>, flags: &[&str]) -> io::Result<Target> {
    stage.start(&Start::new(flags))
}
