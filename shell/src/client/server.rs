//! A server to ask.

use std::fmt;
use std::time::Duration;

use latchd_core::client::{Bound, Leases, Token, TokenValue, bound_key, leased_key};

use super::bound::BoundLock;
use super::endpoint::Endpoint;
use super::error::{ComputeError, Error, ErrorKind};
use super::lock::Lock;
use super::options::{BoundOptions, ClientOptions, ComputeOptions, LockOptions};
use super::pool::Pool;
use super::{clock, compute};
use crate::client::compute::Value;

/// A server to ask. Cloning it is cheap, and clones share their idle connections.
#[derive(Clone)]
pub struct Client {
    pool: Pool,
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
    /// A client of the server at `address`: `HOST`, `HOST:PORT`, `[V6]:PORT`, or the path of a Unix
    /// socket, which begins with `/` or `.`. The port is 11211 if none is said.
    ///
    /// # Errors
    /// [`ErrorKind::Address`] if the address makes no sense; [`ErrorKind::Unreachable`] if there is
    /// nobody.
    pub async fn connect(address: &str) -> Result<Self, Error> {
        let client = Self::new(address, ClientOptions::new())?;
        let connected = client.pool.link(0).connect().await;
        connected.map_err(|error| client.pool.error(ErrorKind::Unreachable(error)))?;
        Ok(client)
    }

    /// As [`connect`](Self::connect), but the first connection is opened by the first call.
    ///
    /// # Errors
    /// [`ErrorKind::Address`] if the address makes no sense.
    pub fn new(address: &str, options: ClientOptions) -> Result<Self, Error> {
        let endpoint = Endpoint::parse(address)
            .map_err(|problem| ErrorKind::Address(format!("{address}: {problem}").into()))?;
        Ok(Self {
            pool: Pool::new(endpoint, options),
        })
    }

    /// Obtains a leased lock for `ttl`.
    ///
    /// If the future is dropped before it ends, what it may have got is given back.
    ///
    /// # Errors
    /// [`ErrorKind::NotObtained`] if it is somebody else's for too long; any other if that is not known,
    /// or cannot be asked.
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
    /// Keys are obtained in the order of their bytes, so two callers never wait for each other in a
    /// ring. The deadline is one for all.
    ///
    /// # Errors
    /// As [`obtain`](Self::obtain); [`ErrorKind::Terms`] also if there are no keys, or one twice.
    pub async fn obtain_many<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
        ttl: Duration,
        options: &LockOptions,
    ) -> Result<Lock, Error> {
        let token = match &options.token {
            Some(token) => token.clone(),
            None => Token::from_random(clock::random()),
        };
        let value = TokenValue::new(token, &options.metadata)?;
        let keys: Vec<K> = keys.into_iter().collect();
        let keys = keys
            .iter()
            .map(|key| leased_key(key.as_ref()))
            .collect::<Result<Vec<_>, _>>()?;
        let leases = Leases::new(&keys, &value, &options.terms(ttl, self.pool.options())?)?;
        Lock::obtain(&self.pool, leases, value).await
    }

    /// Takes a lock that is bound to a connection. Only latchd has them.
    ///
    /// If the future is dropped before it ends, the connection is closed, and the lock is free.
    ///
    /// # Errors
    /// [`ErrorKind::NotObtained`] if it is somebody else's for too long, or if there is no item; any
    /// other if it is not had for another reason.
    pub async fn lock(
        &self,
        key: impl AsRef<[u8]>,
        options: &BoundOptions,
    ) -> Result<BoundLock, Error> {
        let bound = Bound::new(bound_key(key.as_ref())?, options.terms(self.pool.options()));
        BoundLock::obtain(&self.pool, bound).await
    }

    /// Takes a lock that is bound to a connection, and reads the item under it.
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
    /// `early` before its end, one client is told to compute it anew while the others go on reading
    /// it; 0 is not to. `compute` is given the old value if there is one. If it fails, or the future
    /// is dropped while it runs, the next reader computes.
    ///
    /// # Errors
    /// [`ComputeError::Compute`] if `compute` failed; [`ErrorKind::TimedOut`] if somebody else took too
    /// long.
    pub async fn get_or_compute<E>(
        &self,
        key: impl AsRef<[u8]>,
        ttl: Duration,
        early: Duration,
        options: &ComputeOptions,
        compute: impl AsyncFnOnce(Option<Vec<u8>>) -> Result<Vec<u8>, E>,
    ) -> Result<Value, ComputeError<E>> {
        let key = leased_key(key.as_ref()).map_err(Error::from)?;
        let terms = options
            .terms(ttl, early, self.pool.options())
            .map_err(Error::from)?;
        compute::get_or_compute(&self.pool, key, terms, compute).await
    }
}
