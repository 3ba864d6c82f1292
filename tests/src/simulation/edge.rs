//! Seeds of a third kind: the connections of the server itself, with all their buffered input and
//! pending output.
//!
//! Each client is served by the shipped code (`shell/server/src/worker/connection.rs` and its
//! parts), before a socket made of two queues, and behind it a real core. Clients send text
//! requests that fill buffers: gets of up to 10,000 keys; thousands of `version`s; values that are
//! collected piece by piece; values that are shared with the store; waits for locks with requests
//! behind them. Bytes are cut anywhere on both ways; a socket takes everything, a piece, or nothing
//! for a long time; turns end soon or late; clients read nothing and then everything.
//!
//! N1, N5 and the oracle's word hold as in the other seeds; besides:
//!
//! - E2: pending output is at most the server's bound and one reply; buffered input is at most one
//!   request and one read.
//! - E3: a client with pending output is not read.
//! - E4: no request behind a waiting one is executed before the wait is over, and the client is not
//!   read. After the notice, it continues.
//! - E5: once all clients read, every request is answered; when all have gone, there are no holders
//!   or waiters.
//! - E6: when the last request of a client has been executed, its locks are free, whether or not it
//!   has read.

mod draw;
mod end;
mod met;
mod world;

pub(super) use world::World;

/// Small items, which are requested by the thousand.
const SMALL_KEYS: usize = 48;

/// All items; those behind the small ones are large. The keys behind them are locks.
pub(super) const ITEMS: usize = 64;

/// The item with the largest value.
const LARGEST_KEY: usize = ITEMS - 1;

/// The largest value, in bytes: more than one turn sends, and more than one read brings.
pub(super) const VALUE_BYTES_MAX: usize = 300 << 10;

/// Memory for all of them, with any number of replacements.
pub(super) const MEMORY_BYTES_MAX: usize = 256 << 20;

/// The most locks that are requested in a seed.
pub(super) const LOCKS_MAX: u64 = 6;
