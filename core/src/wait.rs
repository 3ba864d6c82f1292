//! Requests that wait: what the core tells of them later, and what a transport does with it.
//!
//! A request that waits for a lock ([`Wait::UpTo`](crate::command::Wait)), or for a value that another computes
//! ([`Get::wait_ms`](crate::command::Get::wait_ms)), is answered
//! [`Reply::Waits`](crate::reply::Reply::Waits), and its connection asks for nothing else until its wait is
//! over. What ends it is an event: another connection, or time. The core decides then, and in that moment
//! the lock is given; a [`Notice`] says so.
//!
//! What a transport does:
//!
//! - After every call that can change something it takes the notices ([`Core::next_notice`]), tells
//!   each to the [`Connection`] it is for ([`Connection::settle`]), and drives this with the same input
//!   again: the request stands at its front, and is answered now. A notice for a connection that has ended
//!   is nobody's: what was given to it has been passed on.
//! - It calls the core when [`Core::next_deadline`] has come, with [`Core::pass`] or with anything else.
//! - Over several cores, it asks [`would_deadlock`] before it lets a request wait.
//!
//! [`Core::next_notice`]: crate::engine::Core::next_notice
//! [`Core::next_deadline`]: crate::engine::Core::next_deadline
//! [`Core::pass`]: crate::engine::Core::pass
//! [`Connection`]: crate::connection::Connection
//! [`Connection::settle`]: crate::connection::Connection::settle

use crate::conn_id::ConnId;
use crate::key::Key;

/// A wait is over.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Notice {
    /// Whose.
    pub conn: ConnId,
    /// How it has ended.
    pub outcome: Outcome,
}

/// How a wait has ended.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Outcome {
    /// The connection holds the lock. It learns of it by the same request without its wait, which finds
    /// that; or, if the lock has ended since, is answered as any other. So it is with a get: the value is there, the win
    /// is its, or the item is gone; if none of that is so any more, it is answered as any other that comes then.
    Granted,
    /// It took too long. The same request without its wait tells who holds the lock; if nobody does any
    /// more, it is granted after all. A get is told that another has the win, or what there is by now.
    TimedOut,
    /// The lock was free, and there was no item, which the request has asked for; or the item that a get has waited for is
    /// gone, and the get makes none.
    NotFound,
    /// The lock was free, and would have been more than the connection may have, or all of them.
    TooManyLocks,
}

/// What comes of following a chain of connections, each of which waits for the next.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Chain {
    /// It ends with a connection that does not wait: whoever joins it may wait.
    Ends,
    /// It comes back to whoever wants to join it: a deadlock.
    Closes,
    /// It is longer than one looks.
    TooLong,
}

/// Whether a connection that waited for `key` would wait for itself, by way of others.
///
/// `holder_of` says who holds a key, `waits_for` for which key a connection waits; `links_max` is how many
/// connections are looked at ([`wait_chain_max`](crate::Limits::wait_chain_max)). Over several cores, both are
/// to be asked of all of them at one moment:
/// [`LockTable::owner`](crate::engine::LockTable::owner), [`WaitTable::waits_for`](crate::engine::WaitTable::waits_for).
pub fn would_deadlock<'a>(
    conn: ConnId,
    key: Key<'a>,
    links_max: usize,
    holder_of: impl Fn(Key<'a>) -> Option<ConnId>,
    waits_for: impl Fn(ConnId) -> Option<Key<'a>>,
) -> Chain {
    let mut key = key;
    for _ in 0..links_max {
        let Some(holder) = holder_of(key) else {
            return Chain::Ends;
        };
        if holder == conn {
            return Chain::Closes;
        }
        let Some(next) = waits_for(holder) else {
            return Chain::Ends;
        };
        key = next;
    }
    Chain::TooLong
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Connection `n` holds the key of the number `n`, and waits for that of `n + 1`.
    fn chain(last: u64, links_max: usize, asks: u64) -> Chain {
        const KEYS: [&[u8]; 5] = [b"0", b"1", b"2", b"3", b"4"];
        let key = |number: u64| Key::new(KEYS[usize::try_from(number).unwrap()]).unwrap();
        would_deadlock(
            ConnId::from_number(asks),
            key(0),
            links_max,
            |key| Some(ConnId::from_number(u64::from(key.as_bytes()[0] - b'0'))),
            |conn| (conn.number() < last).then(|| key(conn.number() + 1)),
        )
    }

    #[test]
    fn a_chain_is_followed_to_its_end() {
        assert_eq!(chain(3, 10, 3), Chain::Closes);
        assert_eq!(chain(3, 10, 0), Chain::Closes);
        assert_eq!(chain(3, 10, 4), Chain::Ends);
        assert_eq!(chain(4, 4, 9), Chain::TooLong);
        assert_eq!(chain(3, 4, 9), Chain::Ends);
    }
}
