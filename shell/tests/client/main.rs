//! The client's library, `latchd lock`, `cli` and `bench`, against servers: latchd in this process, memcached in its own.

#![allow(clippy::unwrap_used)]

#[allow(dead_code)] // The tests of the server use the rest.
#[path = "../common/certificates.rs"]
mod certificates;
#[path = "../common/port.rs"]
mod port;
mod support;

mod access;
mod believers;
mod bench;
mod blocking;
mod cache;
mod cli;
mod client_win_waits;
mod clusters;
mod faults;
mod fenced;
mod lock_faults;
mod lock_items;
mod lock_jobs;
mod lock_program;
mod locks;
mod restart;
mod reuse;
mod sessions;
mod shared_locks;
mod tokio;
mod unlock;
mod waits;
