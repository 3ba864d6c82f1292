//! A log that cannot be written must not disturb any client.

use std::io;
use std::thread;
use std::time::Duration;

use super::super::client::Client;
use super::super::target::{Log, Start, Target};
use super::super::{Attack, Outcome, Stage};

/// The reader of the log has closed it.
pub(super) const CLOSED: Attack = Attack {
    name: "log-closed",
    about: "the reader of the log has gone (-vv), 200 connections",
    has_peer: true,
    play: |stage| {
        let mut target = start(stage, Log::Piped)?;
        drop(target.take_log());
        talk(stage, &mut target)
    },
};

/// The log was closed from the beginning.
pub(super) const NONE: Attack = Attack {
    name: "log-none",
    about: "standard error is closed from the start (-vv)",
    has_peer: true,
    play: |stage| talk(stage, &mut start(stage, Log::None)?),
};

/// The log is a pipe that no process reads.
pub(super) const FULL_PIPE: Attack = Attack {
    name: "log-unread",
    about: "the log pipe (-vv) has no reader, 200 connections",
    has_peer: true,
    play: |stage| {
        let mut target = start(stage, Log::Piped)?;
        let unread = target.take_log();
        let outcome = talk(stage, &mut target);
        drop(unread);
        outcome
    },
};

/// The log's disk is full.
pub(super) const FULL_DISK: Attack = Attack {
    name: "log-disk-full",
    about: "the log goes to a full disk (-vv), 200 connections",
    has_peer: true,
    play: |stage| talk(stage, &mut start(stage, Log::Full)?),
};

fn start(stage: &Stage<'_>, log: Log) -> io::Result<Target> {
    stage.start(&Start {
        log,
        ..Start::new(&["-t", "4", "-vv"])
    })
}

/// Logs much while the innocent clients work; then the server must end as usual.
fn talk(stage: &Stage<'_>, target: &mut Target) -> io::Result<Outcome> {
    let address = target.address;
    let (seen, ()) = stage.watch(address, || {
        for _ in 0..200 {
            let mut client = Client::connect(address)?;
            client.pipeline(20, "HD", |_, bytes| {
                bytes.extend_from_slice(b"mg innocent\r\n");
            })?;
        }
        thread::sleep(Duration::from_millis(100));
        Ok(())
    })?;
    let mut outcome = Outcome::seen(seen);
    if let Some(status) = target.ended()? {
        outcome.wrongs.push(format!("it has ended: {status}"));
        return Ok(outcome);
    }
    match target.terminate(Duration::from_secs(5))? {
        Some((status, _)) => outcome.must(status.code() == Some(0), format!("SIGTERM: {status}")),
        None => outcome.wrongs.push("SIGTERM is not heard".into()),
    }
    Ok(outcome)
}
