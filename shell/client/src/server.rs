//! The client of one server.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_io::Timer;
use latchd_client_core::{
    Bound, Leases, NotObtained, Retry, TTL_MIN, TermsError, Token, TokenValue, wire_key,
};

use super::bound::BoundLock;
use super::connector::Connector;
use super::discovery::Route;
use super::endpoint::Endpoint;
use super::error::{ComputeError, Error, ErrorKind};
use super::lock::Lock;
use super::options::{BoundOptions, ClientOptions, ComputeOptions, LockOptions};
use super::pool::Pool;
use super::{clock, compute, event_loop};
use crate::compute::Value;

/// The client of one server. Cloning it is cheap, and clones share their idle connections.
#[derive(Clone)]
pub struct Client {
    pub(super) pool: Pool,
}

impl fmt::Debug for Client {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Client")
            .field("endpoint", self.pool.endpoint())
            .finish_non_exhaustive()
    }
}

impl Client {
    /// A client of the server at `address`: `HOST`, `HOST:PORT`, `[V6]:PORT`, or the path of a Unix socket,
    /// which begins with `/` or `.`. The default port is 11211.
    ///
    /// # Errors
    /// [`ErrorKind::Address`] if the address is invalid; [`ErrorKind::Unreachable`] if no server can be
    /// reached there.
    pub async fn connect(address: &str) -> Result<Self, Error> {
        let client = Self::new(address, ClientOptions::new())?;
        let connected = client.pool.link(0).connect().await;
        connected.map_err(|error| client.pool.error(ErrorKind::of_socket(error)))?;
        Ok(client)
    }

    /// As [`connect`](Self::connect), but the first connection is opened by the first call.
    ///
    /// # Errors
    /// [`ErrorKind::Address`] if the address is invalid; [`ErrorKind::Tls`] if TLS cannot be set up with
    /// these options; [`ErrorKind::Unreachable`] if no file descriptor is left for an event loop.
    pub fn new(address: &str, options: ClientOptions) -> Result<Self, Error> {
        Self::routed(address, None, options)
    }

    /// A client of the server with this address, or with this name in a cluster.
    pub(super) fn routed(
        address: &str,
        route: Option<Route>,
        options: ClientOptions,
    ) -> Result<Self, Error> {
        event_loop::check().map_err(ErrorKind::Unreachable)?;
        let endpoint = Endpoint::parse(address)
            .map_err(|problem| ErrorKind::Address(format!("{address}: {problem}").into()))?;
        let name = Arc::clone(endpoint.name());
        let connector = Connector::new(endpoint, route, &options)
            .map_err(|problem| Error::at(name, ErrorKind::Tls(problem.into())))?;
        Ok(Self {
            pool: Pool::new(connector, options),
        })
    }

    /// The server's address, as errors show it: `HOST:PORT`, or a path.
    #[must_use]
    pub fn address(&self) -> &str {
        self.pool.endpoint().name()
    }

    /// Obtains a leased lock for `ttl`.
    ///
    /// A `ttl` under a second, 10 ms at least, is for one key and needs latchd, which counts in milliseconds.
    /// Such a lock is bound to a connection: it ends by time, or when the connection breaks.
    ///
    /// If the future is dropped before it ends, a lock that it may have obtained is released.
    ///
    /// # Errors
    /// [`ErrorKind::NotObtained`] if another client holds it for too long; [`ErrorKind::Unsupported`] if the
    /// server does not count in milliseconds; another kind if the server's answer is unknown, or the request
    /// is invalid.
    pub async fn obtain(
        &self,
        key: impl AsRef<[u8]>,
        ttl: Duration,
        options: &LockOptions,
    ) -> Result<Lock, Error> {
        self.obtain_many([key], ttl, options).await
    }

    /// Obtains leased locks for several keys, all or none, as one lock.
    ///
    /// Keys are obtained in the order of their bytes. While another client holds one of them, this one holds
    /// none: obtained keys are released before the next try. The deadline is one for all.
    ///
    /// # Errors
    /// As [`obtain`](Self::obtain); [`ErrorKind::Terms`] also if there are no keys, or one twice.
    pub async fn obtain_many<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
        ttl: Duration,
        options: &LockOptions,
    ) -> Result<Lock, Error> {
        let keys: Vec<K> = keys.into_iter().collect();
        if keys.len() > 1 {
            let mut waits = options.retry.begin(clock::seed());
            let waits = std::iter::from_fn(|| waits.next_wait());
            return self.obtain_with(keys, ttl, options, waits).await;
        }
        self.obtain_once(&keys, ttl, options).await
    }

    /// As [`obtain_many`](Self::obtain_many), with the caller's own strategy: while another client holds one
    /// of the keys, it tries again after each of `waits`, until the deadline. The options' own strategy is
    /// not used.
    ///
    /// # Errors
    /// As [`obtain_many`](Self::obtain_many).
    pub async fn obtain_with<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
        ttl: Duration,
        options: &LockOptions,
        waits: impl IntoIterator<Item = Duration>,
    ) -> Result<Lock, Error> {
        let keys: Vec<K> = keys.into_iter().collect();
        let mut waits = waits.into_iter();
        let begun = clock::now();
        let patience = options.deadline.unwrap_or(ttl);
        let left = || patience.saturating_sub(clock::since(begun));
        let mut heard_held = false;
        loop {
            let once = options.clone().retry(Retry::none()).deadline(left());
            let error = match self.obtain_once(&keys, ttl, &once).await {
                Err(error) if error.is_not_obtained() => {
                    heard_held = true;
                    error
                }
                // A call that may wait for a lock also waits for a server that restarts.
                Err(error) if heard_held && error.is_unreachable() => error,
                ended => return ended,
            };
            match waits.next() {
                Some(_) if left().is_zero() && error.is_unreachable() => return Err(error),
                Some(_) if left().is_zero() => {
                    return Err(self
                        .pool
                        .error(ErrorKind::NotObtained(NotObtained::Deadline)));
                }
                // The last try is at the deadline.
                Some(wait) => Timer::after(wait.min(left())).await,
                None => return Err(error),
            };
        }
    }

    /// Obtains them with these options; several keys one after the other.
    async fn obtain_once<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        ttl: Duration,
        options: &LockOptions,
    ) -> Result<Lock, Error> {
        let token = match &options.token {
            Some(token) => token.clone(),
            None => Token::from_random(clock::random()),
        };
        let value = TokenValue::new(token, &options.metadata)?;
        if ttl < TTL_MIN {
            let [key] = keys else {
                return Err(TermsError::Short.into());
            };
            let terms = options.short_terms(ttl, self.pool.reply_timeout())?;
            let bound = Bound::new(wire_key(key.as_ref())?, terms);
            return Lock::obtain_short(&self.pool, bound, value).await;
        }
        let keys = keys
            .iter()
            .map(|key| wire_key(key.as_ref()))
            .collect::<Result<Vec<_>, _>>()?;
        let mut terms = options.terms(ttl, self.pool.reply_timeout())?;
        terms.queues &= self.pool.may_queue();
        let leases = Leases::new(&keys, &value, &terms)?;
        Lock::obtain(&self.pool, leases, value).await
    }

    /// Obtains a connection-bound lock. It requires latchd or yrmcds.
    ///
    /// While another client holds the lock, latchd queues this client, and serves waiting clients in order.
    /// On yrmcds, the client tries again by the options' strategy.
    ///
    /// If the future is dropped before it ends, the connection is closed, or the [session](BoundOptions::session) is
    /// ended. That ends its place in the queue, and releases the lock.
    ///
    /// # Errors
    /// [`ErrorKind::NotObtained`] if another client holds it for too long, or if there is no item;
    /// [`ErrorKind::Terms`] if the time of a session is out of range; another kind if it could not be obtained for
    /// another reason.
    pub async fn lock(
        &self,
        key: impl AsRef<[u8]>,
        options: &BoundOptions,
    ) -> Result<BoundLock, Error> {
        let terms = options.terms(self.pool.reply_timeout())?;
        let bound = Bound::new(wire_key(key.as_ref())?, terms);
        BoundLock::obtain(&self.pool, bound).await
    }

    /// Obtains a connection-bound lock, and reads the item under it.
    ///
    /// # Errors
    /// As [`lock`](Self::lock).
    pub async fn lock_and_get(
        &self,
        key: impl AsRef<[u8]>,
        options: &BoundOptions,
    ) -> Result<(BoundLock, Vec<u8>), Error> {
        let lock = self.lock(key, options).await?;
        let value = lock.get().await?;
        Ok((lock, value))
    }

    /// Reads a value, or computes and stores it for `ttl`, in one client at a time.
    ///
    /// If less than `early` of its ttl is left, one client is told to compute it anew, while the others
    /// continue to read it; 0 turns this off. `compute` is given the old value if there is one. If it fails,
    /// or the future is dropped while it runs, the next reader computes.
    ///
    /// # Errors
    /// [`ComputeError::Compute`] if `compute` failed; [`ErrorKind::TimedOut`] if another client took too long
    /// to compute.
    pub async fn get_or_compute<E>(
        &self,
        key: impl AsRef<[u8]>,
        ttl: Duration,
        early: Duration,
        options: &ComputeOptions,
        compute: impl AsyncFnOnce(Option<Vec<u8>>) -> Result<Vec<u8>, E>,
    ) -> Result<Value, ComputeError<E>> {
        let key = wire_key(key.as_ref()).map_err(Error::from)?;
        let terms = options
            .terms(ttl, early, self.pool.reply_timeout())
            .map_err(Error::from)?;
        compute::get_or_compute(&self.pool, key, terms, compute).await
    }
}
