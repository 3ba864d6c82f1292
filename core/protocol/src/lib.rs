//! The protocols of latchd, without I/O: commands, replies, and both as bytes.
//!
//! A [`Command`](command::Command) is one request, a [`Reply`](reply::Reply) its result. [`wire`] turns them into
//! bytes and back, in memcached's three protocols. A server decodes requests and encodes replies; a client does the
//! opposite with the same code.
//!
//! The rules behind the commands are in `latchd-core`, the machines of a client in `latchd-client-core`.
//! docs/PROTOCOL.md has each command, with every deviation.
#![no_std]

extern crate alloc;

pub mod address;
mod base64_text;
pub mod command;
mod conn_id;
pub mod connection;
pub mod execute;
pub mod fence;
pub mod item;
pub mod keepalive;
pub mod key;
pub mod output;
mod owner;
pub mod reply;
pub mod ring;
pub mod session;
pub mod stats;
pub mod time;
pub mod uri;
pub mod value;
pub mod wait;
pub mod watch;
pub mod wire;

pub use conn_id::ConnId;
pub use output::Output;
pub use owner::Owner;
pub use time::Instant;
