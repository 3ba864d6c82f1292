//! Tells a person at a terminal why `latchd lock` waits: the holder and the place in the queue, or the error of a
//! server that is not reached.
//!
//! The server's statistics know the holder (`stats locks`, `stats conns`). Other servers than latchd do not have them.

use std::cell::RefCell;
use std::io::{self, BufRead, BufReader, IsTerminal, Write};
use std::thread;
use std::time::Duration;

use latchd_client::blocking::{Client, Connection};
use smol::Timer;

use crate::output::complain;

/// The wait before the first notice, and between looks at a changed reason.
const NOTICE_AFTER: Duration = Duration::from_secs(2);

/// The longest reply that is read, in bytes: 1,000 locks with the longest keys.
const REPLY_BYTES_MAX: u64 = 1 << 20;

/// The notice if the server tells no holder.
const UNKNOWN: &str = "another client holds the lock";

/// The reason of a wait, as far as this process knows it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Reason {
    /// The server at this address is asked for the lock.
    Asked(String),
    /// No server serves, for this reason.
    Absent(String),
}

/// The holder of a lock.
#[derive(Debug, Eq, PartialEq)]
struct Holder {
    key: Vec<u8>,
    connection: String,
    held_s: u64,
    waiting: u64,
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
    let mut told = Vec::new();
    loop {
        Timer::after(NOTICE_AFTER).await;
        let now = reason.borrow().clone();
        if told.contains(&now) {
            continue;
        }
        match &now {
            Reason::Absent(why) => complain(&format!("waiting for {names}: {why}; trying again")),
            Reason::Asked(address) => {
                let why = match connect(address) {
                    Some(client) => ask(client, keys.to_vec()).await,
                    None => None,
                };
                let why = why.unwrap_or_else(|| UNKNOWN.into());
                complain(&format!("waiting for {names} at {address}: {why}"));
            }
        }
        told.push(now);
    }
}

/// Asks a server for the holder, on a thread of its own: the connection blocks. `None` without a thread.
async fn ask(client: Client, keys: Vec<Vec<u8>>) -> Option<String> {
    let (tell, told) = smol::channel::bounded(1);
    let asking = thread::Builder::new().name("latchd-notice".into());
    let work = move || {
        // The wait may have ended meanwhile.
        let _ = tell.try_send(match client.open() {
            Ok(connection) => {
                let holder = holder(BufReader::new(connection), &keys);
                holder.unwrap_or_else(|error| {
                    if error.kind() == io::ErrorKind::InvalidData {
                        UNKNOWN.into()
                    } else {
                        format!("the server does not answer ({error})")
                    }
                })
            }
            // The server of the wait does not answer either.
            Err(error) => error.kind().to_string(),
        });
    };
    asking.spawn(work).ok()?;
    told.recv().await.ok()
}

/// The holder of one of the keys.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`] if the server does not tell; the connection's.
fn holder(mut connection: BufReader<Connection>, keys: &[Vec<u8>]) -> io::Result<String> {
    let locks = list(&mut connection, "stats locks\r\n")?;
    let held: Vec<Holder> = locks
        .iter()
        .filter_map(|line| Holder::parse(line))
        .collect();
    let held = || held.iter().filter(|holder| keys.contains(&holder.key));
    // Of several keys, the one with a queue.
    let Some(holder) = held().find(|holder| holder.waiting > 0).or(held().next()) else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    let address = list(&mut connection, "stats conns\r\n")
        .ok()
        .and_then(|lines| {
            let start = format!("{}:addr ", holder.connection);
            lines
                .iter()
                .find_map(|line| Some(line.strip_prefix(&start)?.to_owned()))
        });
    let shown = holder.shown(address.as_deref());
    Ok(match keys {
        [_] => shown,
        _ => format!("{} is {shown}", holder.key.escape_ascii()),
    })
}

/// The entries of a list of statistics.
fn list(connection: &mut BufReader<Connection>, request: &str) -> io::Result<Vec<String>> {
    connection.get_mut().write_all(request.as_bytes())?;
    connection.get_mut().flush()?;
    let mut entries = Vec::new();
    let mut line = String::new();
    let mut reply = io::Read::take(connection, REPLY_BYTES_MAX);
    loop {
        line.clear();
        reply.read_line(&mut line)?;
        match line.trim_end().strip_prefix("STAT ") {
            Some(entry) => entries.push(entry.to_owned()),
            None if line == "END\r\n" => return Ok(entries),
            None => return Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

impl Holder {
    /// Reads an entry of `stats locks`. Source: docs/OPERATIONS.md, "Monitoring".
    fn parse(entry: &str) -> Option<Self> {
        let (key, facts) = entry.split_once(' ')?;
        let fact = |name: &str| {
            facts
                .split(',')
                .find_map(|fact| fact.strip_prefix(name)?.strip_prefix('='))
        };
        Some(Self {
            key: decoded(key)?,
            connection: fact("conn")?.to_owned(),
            held_s: fact("held")?.parse().ok()?,
            waiting: fact("waiting")?.parse().ok()?,
        })
    }

    fn shown(&self, address: Option<&str>) -> String {
        let by = match address {
            Some(address) => address.trim_start_matches("tcp:").to_owned(),
            None => format!("connection {}", self.connection),
        };
        let place = match self.waiting {
            // It asks again by itself.
            0 => String::new(),
            1 => ", place 1".into(),
            waiting => format!(", place {waiting} or better"),
        };
        format!("held by {by} for {} s{place}", self.held_s)
    }
}

/// The bytes of a percent-encoded key.
fn decoded(key: &str) -> Option<Vec<u8>> {
    let mut parts = key.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let (code, rest) = part.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(code, 16).ok()?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holders_are_read_and_shown() {
        let entry = "a%20b mode=x,conn=34,held=7,waiting=2,fence=9,lease=-1,holders=1";
        let holder = Holder::parse(entry).unwrap();
        assert_eq!(holder.key, b"a b");
        let shown = holder.shown(Some("tcp:127.0.0.1:7"));
        assert_eq!(shown, "held by 127.0.0.1:7 for 7 s, place 2 or better");
        assert!(holder.shown(None).starts_with("held by connection 34 for"));
        for entry in [
            "",
            "k",
            "k mode=x",
            "k%2 conn=1,held=1,waiting=1",
            "k conn=1,held=x,waiting=1",
        ] {
            assert_eq!(Holder::parse(entry), None, "{entry}");
        }
    }
}
