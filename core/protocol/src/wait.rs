//! Requests that wait: the core's later notice, and the duties of a transport.
//!
//! A request can wait for a lock ([`Wait::UpTo`](crate::command::Wait)), or for a value that another client
//! computes ([`Get::wait_ms`](crate::command::Get::wait_ms)). Its reply is then
//! [`Reply::Waits`](crate::reply::Reply::Waits), and its connection executes nothing else until the wait is
//! over. An event ends the wait: a request of another connection, or time. The core decides at that event and
//! grants the lock in the same step. A [`Notice`] says so.
//!
//! The duties of a transport:
//!
//! - After every call that can change something, it takes the notices (`Core::poll`). It tells each to its
//!   [`Connection`] ([`Connection::end_wait`]), and drives this with the same input again. The request is at the
//!   front of that input, and is answered now. A notice for a connection that has ended is dropped: its grant
//!   was already handed over.
//! - It calls the core at `Core::next_deadline`, with `Event::Due` or any other event.
//!
//! [`Connection`]: crate::connection::Connection
//! [`Connection::end_wait`]: crate::connection::Connection::end_wait

use crate::Owner;

/// A wait is over.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Notice {
    /// The connection of the request.
    pub owner: Owner,
    /// How the wait ended.
    pub outcome: Outcome,
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Outcome {
    /// The connection holds the lock. The same request, now without its wait, shows that. If the lock has ended
    /// since, that request is answered like any other. The same is true of a get: the value is there, it has
    /// the win, or the item is missing. If that has changed since, the get is answered like any other.
    Granted,
    /// The time was over. The same request without its wait shows the holder. If the lock is free by now, the
    /// request is granted after all. A get learns that another client has the win, or reads the current item.
    TimedOut,
    /// The lock was free, but the item that the request requires does not exist. Or the item that a get has
    /// waited for is missing, and the get does not vivify.
    NotFound,
    /// The lock was free, but a limit on the locks of the connection or of the server was reached.
    TooManyLocks,
}
