//! The core of latchd, a cache server with locks: two machines without I/O.
//!
//! A [`Connection`] turns bytes into commands and replies into bytes; a [`Core`] executes commands.
//! Whoever brings the bytes and the time has a server. This one brings them in memory:
//!
//! ```
#![doc = include_str!("../examples/embed.rs")]
//! ```
//!
//! To spread items over several cores, implement [`Execute`](execute::Execute) yourself and let
//! [`Connection::drive`] talk to it. To keep items elsewhere, implement [`Store`]. A driver that
//! needs more than a loop takes one [`Step`] at a time with [`Connection::next`].
//!
//! The protocols, command by command, with every deviation: docs/PROTOCOL.md. Where each rule is:
//! docs/ARCHITECTURE.md.
#![no_std]

extern crate alloc;

pub mod client;
pub mod command;
mod conn_id;
pub mod connection;
pub mod engine;
pub mod execute;
pub mod item;
pub mod key;
pub mod limits;
pub mod reply;
pub mod stats;
pub mod store;
pub mod time;
pub mod wire;

pub use command::Command;
pub use conn_id::ConnId;
pub use connection::{Connection, Step};
pub use engine::{Core, Event};
pub use key::Key;
pub use limits::Limits;
pub use reply::{Refusal, Reply};
pub use store::{MapStore, Store};
pub use time::Instant;
