//! What the server knows of its clients over all threads, and how their threads are reached.
//!
//! Uses `net`, `stats` and `sync`.

pub(crate) mod budget;
pub(crate) mod lock_log;
pub(crate) mod mailbox;
pub(crate) mod passwords;
pub(crate) mod roster;
pub(crate) mod waiters;
pub(crate) mod watch;
