//! The state of clients that all threads share, and the mailboxes of their workers.
//!
//! Uses `net`, `stats` and `sync`.

pub(crate) mod budget;
pub(crate) mod connection_table;
pub(crate) mod lock_log;
pub(crate) mod mailbox;
pub(crate) mod passwords;
pub(crate) mod waiters;
pub(crate) mod watch;
