//! The counters of both servers after the same requests.
//!
//! - D3: each counter below is the same on both, once the requests of a stream have been answered.
//!
//! docs/OPERATIONS.md, "Monitoring", lists the counters that have another meaning here; they are
//! not compared.

use std::collections::BTreeMap;
use std::io;

use latchd_harness::peer::{Patience, Peer, Received};
use latchd_harness::transcript::End;

use super::session::Protocol;

/// Counters that must be equal after the same requests (memcached 1.6.45 `doc/protocol.txt`,
/// "General-purpose statistics").
const OF_BOTH: [&str; 13] = [
    "cmd_set",
    "cmd_touch",
    "touch_hits",
    "touch_misses",
    "delete_hits",
    "incr_misses",
    "incr_hits",
    "decr_misses",
    "decr_hits",
    "cas_misses",
    "cas_hits",
    "cas_badval",
    "store_no_memory",
];

/// Further counters that must be equal in binary. In text memcached looks up the keys before one
/// that is too long, and items of dates far away are dead there: explained, and counted.
const OF_BINARY: [&str; 3] = ["cmd_get", "get_hits", "get_misses"];

/// The counters that a server shows, by name.
pub type Counters = BTreeMap<String, u64>;

/// Asks a server, on a connection of its own.
///
/// # Errors
/// The connection cannot be opened.
pub fn ask(peer: &mut dyn Peer) -> io::Result<Counters> {
    const CONN: char = 'Y';
    const END: &[u8] = b"END\r\n";
    peer.send(CONN, b"stats\r\n")?;
    let mut bytes = Vec::new();
    while !bytes.ends_with(END) && peer.receive(CONN, &mut bytes, Patience::Due)? == Received::Bytes
    {
    }
    peer.end(CONN, End::Close)?;
    let text = String::from_utf8_lossy(&bytes);
    let lines = text.lines().filter_map(|line| {
        let (name, value) = line.strip_prefix("STAT ")?.split_once(' ')?;
        Some((name.to_owned(), value.parse().ok()?))
    });
    Ok(lines.collect())
}

/// Of the differences that are explained, those that let the peer count more: the counter, and the entry of the list.
const APART: (&str, &str) = ("delete_hits", "delete-extra-words");

/// The counters that should be equal and are not, in words.
#[must_use]
pub fn differing(
    protocol: Protocol,
    theirs: &Counters,
    ours: &Counters,
    explained: &BTreeMap<&'static str, u64>,
) -> Vec<String> {
    let of_protocol = match protocol {
        Protocol::Text => &[][..],
        Protocol::Binary => &OF_BINARY[..],
    };
    let names = OF_BOTH.iter().chain(of_protocol);
    let apart = names.filter_map(|name| {
        let (theirs, ours) = (theirs.get(*name).copied(), ours.get(*name).copied());
        let more = match APART {
            (counter, entry) if counter == *name => explained.get(entry).copied(),
            _ => None,
        };
        let is_same = match (theirs, ours) {
            (Some(theirs), Some(ours)) => (ours..=ours + more.unwrap_or(0)).contains(&theirs),
            _ => false,
        };
        (!is_same).then(|| format!("{name}: the peer has counted {theirs:?}, latchd {ours:?}"))
    });
    apart.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(deletes: u64) -> Counters {
        let names = OF_BOTH.iter().chain(&OF_BINARY);
        let mut counters: Counters = names.map(|name| ((*name).to_owned(), 7)).collect();
        counters.insert("delete_hits".to_owned(), deletes);
        counters
    }

    #[test]
    fn differing_counters_are_reported() {
        let explained = BTreeMap::from([("delete-extra-words", 2)]);
        let told = |theirs, ours: &Counters| {
            differing(Protocol::Binary, &counted(theirs), ours, &explained).len()
        };
        assert_eq!(told(7, &counted(7)), 0);
        assert_eq!(told(9, &counted(7)), 0);
        assert_eq!(told(10, &counted(7)), 1);
        assert_eq!(told(6, &counted(7)), 1);
        // Nor is a counter that neither server shows.
        assert_eq!(told(7, &Counters::new()), OF_BOTH.len() + OF_BINARY.len());
    }
}
