//! The core of latchd, a cache server with locks: everything but sockets, threads and clocks.
//!
//! A transport brings the bytes and the time. A [`Server`] takes the bytes of each connection and tells the
//! transport its next action:
//!
//! ```no_run
#![doc = include_str!("../examples/embed.rs")]
//! ```
//!
//! A [`Core`](engine::Core) executes commands. A [`Connection`](latchd_protocol::connection::Connection) turns bytes
//! into commands and replies into bytes. To spread items over several threads, lock [`Items`](engine::Items) and one
//! [`LockManager`](engine::LockManager) by yourself ([`engine::shards`]), and implement
//! [`Execute`](latchd_protocol::execute::Execute) for the connections. To keep items elsewhere, implement [`Store`](store::Store).
//!
//! The protocols, command by command, with every deviation: docs/PROTOCOL.md. Where each rule is:
//! docs/ARCHITECTURE.md.
#![no_std]

extern crate alloc;

mod deadlock;
pub mod engine;
mod erased;
pub mod limits;
pub mod server;
pub mod sessions;
pub mod store;
pub mod times;
pub mod work;

pub use engine::Config;
pub use latchd_protocol::connection::Progress;
pub use latchd_protocol::{ConnId, Instant, Output, Owner};
pub use limits::Limits;
pub use server::{Action, Server};

#[cfg(test)]
mod tests {
    //! Conversations of connections with a core.

    mod connection;
}
