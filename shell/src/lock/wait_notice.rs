//! Tells a person at a terminal why `latchd lock` waits: the holder and the place in the queue, or the error of a
//! server that is not reached.
//!
//! The server's statistics know the holder (`stats locks`, `stats conns`). Other servers than latchd do not have them.

use std::cell::RefCell;
use std::io::{self, IsTerminal};
use std::thread;
use std::time::Duration;

use latchd_client::blocking::Client;
use smol::Timer;

use crate::cli::connection::Connection;
use crate::cli::readable::shown;
use crate::locks::list;
use crate::output::complain;

/// The wait before the first notice, and between looks at a changed reason.
const NOTICE_AFTER: Duration = Duration::from_secs(2);

/// The limit for a reply.
const REPLY: Duration = Duration::from_secs(5);

/// The notice if the server tells no holder.
const UNKNOWN: &str = "another client holds the lock";

/// The notice if the server does not answer.
const NO_ANSWER: &str = "no answer yet";

/// The reason of a wait, as far as this process knows it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Reason {
    /// The server at this address is asked for the lock.
    Asked(String),
    /// No server serves, for this reason.
    Absent(String),
}

/// Whether a person reads standard error.
pub(super) fn has_reader() -> bool {
    io::stderr().is_terminal()
}

/// Tells each new reason, for ever. `connect` makes a client of an address.
pub(super) async fn tell(
    names: &str,
    keys: &[Vec<u8>],
    reason: &RefCell<Reason>,
    connect: impl Fn(&str) -> Option<Client>,
) {
    // At most a few for each server.
    let (mut reported, mut unanswered) = (Vec::new(), None);
    loop {
        Timer::after(NOTICE_AFTER).await;
        let now = reason.borrow().clone();
        if reported.contains(&now) {
            continue;
        }
        match &now {
            Reason::Absent(why) => complain(&format!("waiting for {names}: {why}; trying again")),
            Reason::Asked(address) => {
                let why = match connect(address) {
                    Some(client) => ask(client, keys.to_vec()).await,
                    None => None,
                };
                // The lock may just be asked for again, and its error say more.
                if why.is_none() && unanswered.replace(now.clone()).as_ref() != Some(&now) {
                    continue;
                }
                let why = why.unwrap_or_else(|| NO_ANSWER.into());
                complain(&format!("waiting for {names} at {address}: {why}"));
            }
        }
        reported.push(now);
    }
}

/// Asks a server for the holder, on a thread of its own: the connection blocks. `None` if the server does not answer.
async fn ask(client: Client, keys: Vec<Vec<u8>>) -> Option<String> {
    let (sender, found) = smol::channel::bounded(1);
    let asking = thread::Builder::new().name("latchd-notice".into());
    let work = move || {
        // The wait may have ended meanwhile.
        let _ = sender.try_send(holder(&client, &keys));
    };
    asking.spawn(work).ok()?;
    found.recv().await.ok()?
}

/// The holder of one of the keys, and the place in its queue; `None` if the server does not answer.
fn holder(client: &Client, keys: &[Vec<u8>]) -> Option<String> {
    let mut connection = Connection::open(client, REPLY).ok()?;
    let mut locks = match list::read(&mut connection) {
        Ok(locks) => locks,
        Err(failure) => return failure.is_usage().then(|| UNKNOWN.into()),
    };
    locks.retain(|lock| keys.contains(&lock.key));
    // Of several keys, the one with a queue.
    let lock = locks.iter().find(|lock| lock.waiting > 0);
    let Some(lock) = lock.or(locks.first()) else {
        return Some(UNKNOWN.into());
    };
    let place = match lock.waiting {
        // It asks again by itself.
        0 => String::new(),
        1 => ", place 1".into(),
        waiting => format!(", place {waiting} or better"),
    };
    let held = lock.held_by();
    Some(match keys {
        [_] => format!("{held}{place}"),
        _ => format!("{} is {held}{place}", shown(&lock.key)),
    })
}
