//! A client for locks and plain cache calls, on latchd and on memcached.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use latchd_client::{Client, LockOptions, Retry};
//!
//! # async fn nightly() {}
//! # fn main() -> Result<(), latchd_client::Error> {
//! smol::block_on(async {
//!     let client = Client::connect("127.0.0.1:11211").await?;
//!     let options = LockOptions::new()
//!         .retry(Retry::exponential(Duration::from_millis(16), Duration::from_secs(1)).with_jitter())
//!         .deadline(Duration::from_secs(20));
//!     let lock = client.obtain("jobs/nightly", Duration::from_secs(30), &options).await?;
//!     smol::future::or(nightly(), async {
//!         eprintln!("stopping: {}", lock.lost().await);
//!     })
//!     .await;
//!     lock.release().await
//! })
//! # }
//! ```
//!
//! # Two kinds of lock
//!
//! - [`Client::obtain`] and [`Client::obtain_many`]: **leased**. The server ends the lock by time. It
//!   survives a broken connection. A dead holder blocks others until the ttl is over. A watchdog renews it.
//!   It works on memcached too.
//! - [`Client::lock`]: **bound to a connection**. latchd ends the lock with the connection, so a dead holder
//!   blocks no other client. Waiting clients are served in order. It needs latchd (or yrmcds, where the
//!   client polls). A lock of less than a second is of this kind, too. In a [session](BoundOptions::session), the lock
//!   survives a broken connection, and a dead holder blocks others for the session's time.
//!
//! Both report a loss: [`Lock::lost`] and [`BoundLock::lost`] end when the lock is no longer certain, and
//! `is_held` tests it. No lock over a network can guarantee that its holder acts in time. So let the
//! protected resource compare numbers: [`Lock::number`] is higher for each later holder. On latchd, let the
//! server compare them:
//!
//! ```no_run
//! # async fn pay(client: &latchd_client::Client) -> Result<(), latchd_client::Error> {
//! use latchd_client::BoundOptions;
//!
//! let lock = client.lock("account", &BoundOptions::new()).await?;
//! if let Some(fence) = lock.fence() {
//!     client.in_grant(fence).decr("account", 5).await?; // an error, and no change, if the lock is over
//! }
//! lock.release().await
//! # }
//! ```
//!
//! # Values
//!
//! [`Client::get`], [`Client::get_many`], [`Client::store`] and the other plain calls are the cache's own; [`Cluster`] places
//! keys on several servers. [`Client::get_or_compute`] reads a value that one client at a time computes. The others read the
//! old value meanwhile, or wait:
//!
//! ```no_run
//! # use std::{convert::Infallible, time::Duration};
//! # use latchd_client::{Client, ComputeError, ComputeOptions};
//! # async fn read(client: &Client) -> Result<(), ComputeError<Infallible>> {
//! let (ttl, early) = (Duration::from_secs(60), Duration::from_secs(10));
//! let make = async |_old: Option<Vec<u8>>| Ok(b"<h1>hello</h1>".to_vec());
//! let page = client.get_or_compute("page", ttl, early, &ComputeOptions::new(), make).await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Servers, errors, limits
//!
//! [`ClientOptions`] hold the time for connecting, the number of shared connections, [TLS](TlsOptions) (feature `tls`) and
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

mod background;
pub mod blocking;
mod bound;
mod cache;
mod calls;
mod clock;
mod cluster;
mod compute;
mod connection;
mod connector;
mod discovery;
mod drive;
mod driver;
mod endpoint;
mod error;
mod event_loop;
mod fenced;
mod hub;
mod link;
mod lock;
mod options;
mod pending_release;
mod pool;
mod queue;
mod race;
mod resolve;
mod server;
mod short;
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

pub use bound::BoundLock;
pub use cache::{CacheItem, GetOptions, Outcome, StoreMode, StoreOptions};
pub use cluster::Cluster;
pub use compute::Value;
pub use error::{ComputeError, Error, ErrorKind};
pub use fenced::InGrant;
pub use latchd_client_core::{
    CREDENTIALS_BYTES_MAX, Credentials, CredentialsError, Feature, KeyError, Losers, Loss, Mark,
    MissingItem, NotObtained, OnDisconnect, Retry, TermsError, Token, TokenError,
};
pub use latchd_protocol::fence::Fence;
pub use latchd_protocol::time::Exptime;
pub use lock::Lock;
pub use options::{BoundOptions, ClientOptions, ComputeOptions, LockOptions};
pub use server::Client;
pub use tls_options::TlsOptions;

/// A unique token, as an obtain draws one. Keep it, and pass it to [`LockOptions::token`] again.
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
