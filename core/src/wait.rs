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
//! - After every call that can change something it takes the notices ([`Core::poll`]), tells
//!   each to the [`Connection`] it is for ([`Connection::settle`]), and drives this with the same input
//!   again: the request stands at its front, and is answered now. A notice for a connection that has ended
//!   is nobody's: what was given to it has been passed on.
//! - It calls the core when [`Core::next_deadline`] has come, with [`Event::Due`] or with anything else.
//! - Over several cores, it asks [`would_deadlock`] before it lets a request wait, and tells the core that has the
//!   key what it was told ([`Chain::judge`]).
//!
//! [`Core::poll`]: crate::engine::Core::poll
//! [`Core::next_deadline`]: crate::engine::Core::next_deadline
//! [`Event::Due`]: crate::engine::Event::Due
//! [`Connection`]: crate::connection::Connection
//! [`Connection::settle`]: crate::connection::Connection::settle

mod deadlock;

pub use deadlock::{Chain, Sought, would_deadlock};

use crate::owner::Owner;

/// A wait is over.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Notice {
    /// Whose.
    pub owner: Owner,
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
