//! The core of latchd: items, locks and wins, and the wire, without I/O.
#![no_std]

extern crate alloc;

#[cfg(feature = "arbitrary")]
pub mod arbitrary;
pub mod client;
pub mod command;
pub mod connection;
pub mod engine;
pub mod item;
pub mod key;
pub mod limits;
pub mod reply;
pub mod stats;
pub mod store;
pub mod time;
pub mod wire;

pub use command::Command;
pub use connection::{Connection, Step};
pub use engine::{ConnId, Core, Event};
pub use key::Key;
pub use limits::Limits;
pub use reply::{Refusal, Reply};
pub use store::{MapStore, Store};
pub use time::Instant;
