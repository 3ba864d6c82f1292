//! Items: the commands that read, store, count and remove them, and the items that outlive a process.
//!
//! These files change the store. A file about the lock or the win of an item belongs beside its table, in `locks/` or
//! `wins/`.

mod arithmetic;
mod fenced;
mod guard;
mod read;
mod remove;
pub(in crate::engine) mod saved;
mod write;
