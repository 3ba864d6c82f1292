//! Faults that the operating system causes in the server's process.

use std::io;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use super::super::client::Client;
use super::super::outcome::FREE_MAX;
use super::super::target::Target;
use super::super::{Attack, Outcome, Stage};
use super::locks::obtain;
use super::turns::small;

/// The process is stopped and continued.
pub(super) const STOP_CONT: Attack = Attack {
    name: "stop-cont",
    about: "SIGSTOP for 2 s; a holder and many requests come and go",
    has_peer: false,
    play: stop_cont,
};

fn stop_cont(stage: &Stage<'_>) -> io::Result<Outcome> {
    let target = small(stage, &["-t", "4", "-o", "idle_timeout=30"])?;
    let (mut stays, mut goes) = (holder(&target, "a")?, holder(&target, "b")?);
    let mut waiter = Client::connect(target.address)?;
    waiter.ask("mn")?;
    target.signal(Signal::STOP)?;
    goes.send("mg b\r\n".repeat(1_000))?;
    goes.reset()?;
    waiter.send("lock b\r\n")?;
    thread::sleep(Duration::from_secs(2));
    target.signal(Signal::CONT)?;
    let first = waiter.line()?;
    let mut outcome = Outcome::default();
    outcome.must(
        first == "OK" || first == "LOCKED",
        format!("lock b: {first}"),
    );
    if first == "LOCKED" {
        outcome.span("free", obtain(&mut waiter, "b")?, FREE_MAX);
    }
    let still = waiter.ask("lock a")?;
    outcome.must(still == "LOCKED", format!("lock a: {still}"));
    let kept = stays.ask("lock a")?;
    outcome.must(kept == "LOCKED", format!("its holder: {kept}"));
    outcome.must(stays.ask("unlock a")? == "OK", "its holder is none");
    Ok(outcome)
}

/// The terminal goes away, or a log is to be reopened (SIGHUP).
pub(super) const HANG_UP: Attack = Attack {
    name: "hang-up",
    about: "SIGHUP, 20 times: it goes on, and no lock is lost",
    has_peer: false,
    play: hang_up,
};

fn hang_up(stage: &Stage<'_>) -> io::Result<Outcome> {
    let mut target = small(stage, &["-t", "4"])?;
    let mut holder = holder(&target, "a")?;
    let mut outcome = Outcome::default();
    for _ in 0..20 {
        target.signal(Signal::HUP)?;
        thread::sleep(Duration::from_millis(20));
    }
    if let Some(status) = target.ended()? {
        outcome.wrongs.push(format!("it has ended: {status}"));
        return Ok(outcome);
    }
    outcome.must(holder.ask("unlock a")? == "OK", "a lock is lost");
    match target.terminate(Duration::from_secs(5))? {
        Some((status, _)) => outcome.must(status.code() == Some(0), format!("SIGTERM: {status}")),
        None => outcome.wrongs.push("SIGTERM is not heard".into()),
    }
    Ok(outcome)
}

/// A client that has stored the item of `key`, and holds its lock.
fn holder(target: &Target, key: &str) -> io::Result<Client> {
    let mut holder = Client::connect(target.address)?;
    holder.send(format!("set {key} 0 0 1\r\nx\r\n"))?;
    holder.line()?;
    match holder.ask(&format!("lock {key}"))?.as_str() {
        "OK" => Ok(holder),
        answer => Err(io::Error::other(format!("no lock: {answer}"))),
    }
}
