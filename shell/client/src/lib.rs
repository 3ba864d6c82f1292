//! A client for locks and cache calls, on latchd and on memcached.
//!
//! ```no_run
//! use latchd_client::{Client, LockOptions};
//!
//! # async fn work(_: Option<latchd_client::Fence>) {}
//! # fn main() -> Result<(), latchd_client::Error> {
//! smol::block_on(async {
//!     let client = Client::connect("127.0.0.1:11211").await?;
//!     let lock = client.lock("account/17", &LockOptions::new()).await?; // waits for its turn
//!     let lost = lock.lost(); // stop working when it ends
//!     smol::future::or(work(lock.fence()), async { eprintln!("stop: {:?}", lost.await) }).await;
//!     lock.release().await
//! })
//! # }
//! ```
//!
//! # Locks
//!
//! [`Client::lock`] waits, [`Client::try_lock`] does not, [`Client::lock_many`] locks several keys, and
//! [`Client::lock_state`] shows a holder. All give the same [`Lock`], with [`LockOptions`]. By default it is exclusive,
//! renewed in the background, and outlasts a broken connection or a dead client by 10 s, on latchd and on memcached.
//!
//! [`Lock::lost`] ends when the lock is no longer certain, and [`Lock::is_held`] tests it. No lock over a network can
//! guarantee that its holder acts in time. So let the protected resource compare numbers: [`Lock::fence`] is higher for each
//! later holder, on latchd always. For its own items, latchd compares them:
//!
//! ```no_run
//! # async fn pay(client: &latchd_client::Client) -> Result<(), latchd_client::Error> {
//! use latchd_client::LockOptions;
//!
//! let lock = client.lock("account", &LockOptions::new()).await?;
//! if let Some(fence) = lock.fence() {
//!     client.in_grant(fence).decr("account", 5).await?; // an error, and no change, if the lock is over
//! }
//! lock.release().await
//! # }
//! ```
//!
//! # Values
//!
//! [`Client::get`], [`Client::get_many`], [`Client::store`] and the other plain calls are the cache's own.
//! [`Client::compute`] reads a value that one client at a time computes. The others read the old value meanwhile, or wait:
//!
//! ```no_run
//! # use std::{convert::Infallible, time::Duration};
//! # use latchd_client::{Client, ComputeError, ComputeOptions};
//! # async fn read(client: &Client) -> Result<(), ComputeError<Infallible>> {
//! let options = ComputeOptions::new(Duration::from_secs(60)).early(Duration::from_secs(10));
//! let make = async |_old: Option<Vec<u8>>| Ok(b"<h1>hello</h1>".to_vec());
//! let page = client.compute("page", &options, make).await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Servers, errors, limits
//!
//! [`Client::connect`] is for one server, [`Client::ring`] for several, [`Client::discover`] for a cluster. [`ClientOptions`]
//! hold the times for connecting and for replies, the numbers of connections, [TLS](TlsOptions) (feature `tls`) and
//! [credentials](Credentials). A deadline bounds each whole call. Every [`Error`] names the server and tells a lock that
//! another client holds ([`Error::is_not_obtained`]) from a server that cannot be reached ([`Error::is_unreachable`]).
//!
//! # Executors
//!
//! Any executor will do, or none: sockets and timers are async-io's, which has a thread of its own. Another thread, one for
//! the process, does what must go on while a lock is held (see [`Lock`], "In the background"). The requests of a call are sent
//! and their replies read by the caller that waits for them. [`blocking`] has the same calls as functions that return when they are done.
//!
//! The rules are [`latchd_client_core`]'s, a set of state machines without I/O; here are sockets, a clock and random numbers.
//! Connections and losses are events of `tracing`.

mod background;
pub mod blocking;
mod cache;
mod client;
mod clock;
mod compute;
mod connection;
mod connector;
mod detached;
mod discovery;
mod driver;
mod endpoint;
mod error;
mod event_loop;
mod fenced;
mod keeper;
mod lock;
mod lock_state;
mod mutex;
mod obtain;
mod options;
mod pending_release;
mod pool;
mod race;
mod resolve;
mod setters;
mod shared_connection;
mod shared_values;
mod socket;
mod task;
#[cfg(test)]
mod tests;
#[cfg(feature = "tls")]
mod tls;
#[cfg(not(feature = "tls"))]
#[path = "without_tls.rs"]
mod tls;
mod tls_options;
mod turns;

pub use cache::{CacheItem, GetOptions, Outcome, StoreMode, StoreOptions};
pub use client::Client;
pub use compute::Value;
pub use detached::Detached;
pub use error::{ComputeError, Error, ErrorKind};
pub use fenced::InGrant;
pub use latchd_client_core::{
    Credentials, Feature, LockState, Losers, Loss, METADATA_BYTES_MAX, NotObtained, Retry,
    TermsError, Token,
};
pub use latchd_protocol::fence::Fence;
pub use latchd_protocol::time::Exptime;
pub use lock::{Lock, Lost};
pub use options::{ClientOptions, ComputeOptions, LockOptions};
pub use tls_options::TlsOptions;

/// A unique token, as a lock draws one. Keep it, and pass it to [`LockOptions::token`] again.
#[must_use]
pub fn random_token() -> Token {
    Token::from_random(clock::random())
}

/// The readmes and the client's documentation: their code compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
#[doc = include_str!("../../../README.md")]
#[doc = include_str!("../../../docs/CLIENT.md")]
struct Page;
