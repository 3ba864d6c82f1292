//! The client's library, `latchd lock`, `cli` and `bench`, against servers: latchd in this process, memcached and yrmcds in their own.

#![allow(clippy::unwrap_used)]

#[allow(dead_code)] // The tests of the server use the rest.
#[path = "../common/certificates.rs"]
mod certificates;
#[path = "../common/port.rs"]
mod port;
mod support;

mod bench;
mod cli;
mod lock_jobs;
mod lock_program;
mod locks;
mod unlock;
