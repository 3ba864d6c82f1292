//! Reads the locks of a server, from `stats locks`, `stats sessions` and `stats conns`.
//!
//! The three are read one after the other, so a holder that has just ended has no address.

use std::collections::BTreeMap;

use latchd_protocol::fence::Fence;
use latchd_protocol::item::LEASE_ITEM;
use latchd_protocol::key::Key;
use latchd_protocol::uri;
use latchd_protocol::wire::meta::request::MetaRequest;
use latchd_protocol::wire::meta::{Flag, Verb};

use crate::cli::connection::{Connection, StatsLine};
use crate::cli::readable::shown;
use crate::output::Failure;

/// A lock that a client holds.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct Lock {
    pub(crate) key: Vec<u8>,
    pub(super) is_shared: bool,
    /// The number of holders; 1 unless it is shared.
    pub(super) holders: u64,
    /// The first holder: the number of a connection, or of a session.
    pub(super) holder: u64,
    /// The session of the first holder, if it is one.
    pub(super) session: Option<Session>,
    /// The address of the first holder, if it is connected.
    pub(super) peer: Option<String>,
    /// The metadata of the first holder, if it has some.
    pub(super) metadata: Option<Vec<u8>>,
    pub(super) fence: Fence,
    pub(super) held_s: u64,
    /// The seconds left of the lease; `None` without one.
    pub(super) lease_s: Option<u64>,
    pub(crate) waiting: u64,
}

/// A session that holds a lock.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Session {
    /// Its connection, if it has one.
    connection: Option<u64>,
    /// The seconds until it ends without a sign of its client.
    pub(super) left_s: Option<u64>,
}

/// The item of a lease of the client library. The lease of one key has a lock besides, unless its connection has ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct LeaseItem {
    pub(super) cas: u64,
    /// The seconds left of the lease.
    pub(super) left_s: i64,
}

impl LeaseItem {
    /// The item of a key, if it is one of a lease.
    pub(super) fn read(connection: &mut Connection, key: Key<'_>) -> Result<Option<Self>, Failure> {
        let flags = [
            Flag::ShowClientFlags,
            Flag::ShowCas,
            Flag::ShowTtl,
            Flag::NoBump,
        ];
        let line = ask(connection, Verb::Get, key, &flags)?;
        let number = |letter: u8| {
            let mut words = line.split(|byte| *byte == b' ');
            let word = words.find_map(|word| word.strip_prefix(&[letter]))?;
            std::str::from_utf8(word).ok()
        };
        let is_lease = number(b'f').and_then(|flags| flags.parse().ok()) == Some(LEASE_ITEM);
        let cas = number(b'c').and_then(|cas| cas.parse().ok());
        let left_s = number(b't').and_then(|left| left.parse().ok());
        let item = cas.zip(left_s).filter(|_| is_lease);
        Ok(item.map(|(cas, left_s)| Self { cas, left_s }))
    }
}

/// Sends a meta request; returns the line that answers it.
pub(super) fn ask(
    connection: &mut Connection,
    verb: Verb,
    key: Key<'_>,
    flags: &[Flag<'_>],
) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let value = b"";
    MetaRequest {
        verb,
        key,
        flags,
        value,
    }
    .encode(&mut bytes);
    connection.send(&bytes)?;
    Ok(connection.line(false)?.trim_ascii_end().to_vec())
}

/// The locks that the server lists, in the order of the keys.
pub(crate) fn read(connection: &mut Connection) -> Result<Vec<Lock>, Failure> {
    let lines = connection.stats("stats locks")?.map_err(|line| {
        let line = shown(&line);
        Failure::usage(format!(
            "cannot list the locks: the server replies {line} to `stats locks`; log in with --user, or check that it is a latchd without -X"
        ))
    })?;
    // A server that refuses these has locks all the same.
    let sessions = connection.stats("stats sessions")?.unwrap_or_default();
    let peers = connection.stats("stats conns")?.unwrap_or_default();
    let (sessions, peers) = (sessions_of(&sessions), peers_of(&peers));
    let locks: Option<Vec<_>> = lines
        .iter()
        .map(|(key, value)| lock(key, value, &sessions, &peers))
        .collect();
    let mut locks = locks.ok_or_else(|| {
        Failure::usage("cannot read `stats locks`; use the latchd program of this server's version")
    })?;
    locks.sort_by(|one, other| one.key.cmp(&other.key));
    Ok(locks)
}

fn lock(
    key: &[u8],
    value: &str,
    sessions: &BTreeMap<u64, Session>,
    peers: &BTreeMap<u64, String>,
) -> Option<Lock> {
    let fields = value.split(',').filter_map(|field| field.split_once('='));
    let fields: BTreeMap<_, _> = fields.collect();
    let number = |name| fields.get(name)?.parse::<u64>().ok();
    let holder = number("conn")?;
    let session = sessions.get(&holder).copied();
    let connection = session.map_or(Some(holder), |session| session.connection);
    Some(Lock {
        key: uri::decode(key),
        is_shared: *fields.get("mode")? == "s",
        holders: number("holders")?,
        holder,
        session,
        peer: connection.and_then(|number| peers.get(&number).cloned()),
        metadata: fields
            .get("metadata")
            .map(|text| uri::decode(text.as_bytes())),
        fence: Fence::new(number("fence")?)?,
        held_s: number("held")?,
        // -1 is no lease.
        lease_s: number("lease"),
        waiting: number("waiting")?,
    })
}

/// The sessions by their numbers.
fn sessions_of(lines: &[StatsLine]) -> BTreeMap<u64, Session> {
    let mut sessions: BTreeMap<u64, Session> = BTreeMap::new();
    for (number, field, value) in numbered(lines) {
        let session = sessions.entry(number).or_default();
        match field {
            "conn" => session.connection = value.parse().ok(),
            "secs_left" => session.left_s = value.parse().ok(),
            _ => {}
        }
    }
    sessions
}

/// The addresses of connections by their numbers.
fn peers_of(lines: &[StatsLine]) -> BTreeMap<u64, String> {
    let addresses = numbered(lines).filter(|(_, field, _)| *field == "addr");
    let peer = |(number, _, value): (_, _, &str)| {
        let address = value.strip_prefix("tcp:").unwrap_or(value);
        (number, shown(address.as_bytes()))
    };
    addresses.map(peer).collect()
}

/// The lines with a name of the form `NUMBER:FIELD`.
fn numbered(lines: &[StatsLine]) -> impl Iterator<Item = (u64, &str, &str)> {
    lines.iter().filter_map(|(name, value)| {
        let (number, field) = std::str::from_utf8(name).ok()?.split_once(':')?;
        Some((number.parse().ok()?, field, value.as_str()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_fields_of_locks_are_ignored() {
        let none = (BTreeMap::new(), BTreeMap::new());
        let of = |value: &str| lock(b"k", value, &none.0, &none.1);
        let line = "mode=x,conn=3,held=1,waiting=2,fence=7,lease=-1,holders=1";
        let known = of(line).unwrap();
        assert_eq!(
            (known.holder, known.lease_s, known.peer.as_ref()),
            (3, None, None)
        );
        let longer = format!("{line},more=1");
        assert_eq!(of(&longer), Some(known));
        let held = of(&format!("{line},metadata=job%207%2C%25")).unwrap();
        assert_eq!(held.metadata.as_deref(), Some(&b"job 7,%"[..]));
        for cut in [
            "",
            "mode=x",
            "mode=x,conn=3,held=1,waiting=2,fence=0,lease=-1,holders=1",
        ] {
            assert_eq!(of(cut), None, "{cut}");
        }
    }
}
