//! The core of latchd, a cache server with locks: everything but sockets, threads and clocks.
//!
//! A transport brings the bytes and the time. A [`Server`] takes the bytes of each connection and tells the
//! transport its next action:
//!
//! ```no_run
#![doc = include_str!("../examples/embed.rs")]
//! ```
//!
//! It has two machines. A [`Connection`](connection::Connection) turns bytes into commands and replies into
//! bytes. A [`Core`](engine::Core) executes commands. To spread items over several cores, be the
//! [`StateMachine`](server::StateMachine) of a server, or implement [`Execute`](execute::Execute) and let
//! [`Connection::drive`](connection::Connection::drive) talk to it. To keep items elsewhere, implement
//! [`Store`](store::Store). The client's half, also without I/O, is in [`client`].
//!
//! The protocols, command by command, with every deviation: docs/PROTOCOL.md. Where each rule is:
//! docs/ARCHITECTURE.md.
#![no_std]

extern crate alloc;

pub mod address;
pub mod client;
pub mod command;
mod conn_id;
pub mod connection;
pub mod election;
pub mod engine;
mod erased;
pub mod execute;
pub mod fence;
pub mod item;
pub mod keepalive;
pub mod key;
pub mod limits;
pub mod output;
mod owner;
pub mod reply;
pub mod ring;
pub mod server;
pub mod session;
pub mod sessions;
pub mod stats;
pub mod store;
pub mod time;
pub mod times;
pub mod value;
pub mod wait;
pub mod watch;
pub mod wire;
pub mod work;

pub use conn_id::ConnId;
pub use connection::Progress;
pub use engine::Config;
pub use limits::Limits;
pub use output::Output;
pub use owner::Owner;
pub use server::{Action, Server};
pub use time::Instant;
