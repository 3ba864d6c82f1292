//! A client for locks, on latchd and, for the leased ones, on any memcached; and for the cache itself.
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
//! There are two kinds of lock:
//!
//! - [`Client::obtain`] and [`Client::obtain_many`]: **leased**. The server ends it by time, so it
//!   outlives a broken connection, and a holder that is gone keeps others out for the ttl. It works
//!   on memcached too. A watchdog renews it.
//! - [`Client::lock`]: **bound to a connection**. latchd ends it with the connection, so a holder
//!   that dies keeps nobody out, and serves those who wait for it in the order in which they came. It
//!   needs latchd (or yrmcds, where it is asked for again and again).
//!
//! [`Client::get`], [`Client::get_many`], [`Client::store`] and the other plain calls are the cache's own; [`Cluster`] places
//! keys on several servers.
//! [`Client::get_or_compute`] reads a value that one client at a time computes.
//!
//! [`ClientOptions`] say whether a server is spoken to under TLS, and as whom.
//!
//! A deadline bounds the whole call, and every [`Error`] names the server and tells a lock that is
//! somebody else's from a server that cannot be reached.
//!
//! Whatever executor the caller uses, or none, is fine: sockets and timers are async-io's, which has
//! a thread of its own, and what must go on while a lock is held is done by another thread of ours,
//! one for the whole process (see [`Lock`], "In the background"). What a call asks is sent and read by whoever waits for it.
//!
//! Without an executor at all, [`blocking`] has the same calls as functions that return when they are done.
//!
//! The rules are [`latchd_core::client`]'s, which is a set of state machines without I/O; here are
//! sockets, a clock and random numbers.

mod background;
pub mod blocking;
mod bound;
mod cache;
mod calls;
mod clock;
mod cluster;
mod compute;
mod connection;
mod debt;
mod door;
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
mod pool;
mod race;
mod resolve;
mod server;
mod short;
mod socket;
mod task;
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
pub use latchd_core::client::{
    CREDENTIALS_BYTES_MAX, Credentials, CredentialsError, Feature, KeyError, Losers, Loss, Mark,
    MissingItem, NotObtained, OnDisconnect, Retry, TermsError, Token, TokenError,
};
pub use latchd_core::fence::Fence;
pub use latchd_core::time::Exptime;
pub use lock::Lock;
pub use options::{BoundOptions, ClientOptions, ComputeOptions, LockOptions};
pub use server::Client;
pub use tls_options::TlsOptions;

/// A token that nobody else has, as an obtain draws one: to be kept, and shown again by
/// [`LockOptions::token`].
#[must_use]
pub fn random_token() -> Token {
    Token::from_random(clock::random())
}

/// The readme and the page about the client: their code compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
#[doc = include_str!("../../../docs/CLIENT.md")]
struct Page;
