//! A server to ask.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use latchd_core::Key;
use latchd_core::client::{Bound, Leases, Token, TokenValue};

use super::bound::BoundLock;
use super::driver::Endpoint;
use super::error::{ComputeError, Error};
use super::lock::Lock;
use super::options::{BoundOptions, ComputeOptions, LockOptions};
use super::pool::Pool;
use super::{clock, compute};
use crate::client::compute::Value;
use crate::config::ListenAddress;

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
    /// [`Error::Io`] if the address makes no sense, or nobody listens there.
    pub async fn connect(address: &str) -> Result<Self, Error> {
        let endpoint = if address.starts_with(['/', '.']) {
            Endpoint::Unix(Arc::new(Path::new(address).to_path_buf()))
        } else {
            let address: ListenAddress = address.parse().map_err(|problem: String| {
                std::io::Error::new(std::io::ErrorKind::InvalidInput, problem)
            })?;
            Endpoint::Tcp(address.to_string().into())
        };
        let client = Self {
            pool: Pool::new(endpoint),
        };
        let mut driver = client.pool.driver().await;
        driver.connect().await?;
        client.pool.give_back(driver);
        Ok(client)
    }

    /// Obtains a leased lock for `ttl`.
    ///
    /// If the future is dropped before it ends, what it may have got is given back.
    ///
    /// # Errors
    /// [`Error::NotObtained`] if it is somebody else's for too long; any other if that is not known,
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
    /// As [`obtain`](Self::obtain); [`Error::Terms`] also if there are no keys, or one twice.
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
            .map(|key| Key::new(key.as_ref()).ok_or(Error::Key))
            .collect::<Result<Vec<_>, _>>()?;
        let leases = Leases::new(&keys, &value, &options.terms(ttl)?)?;
        Lock::obtain(&self.pool, leases, value).await
    }

    /// Takes a lock that is bound to a connection. Only latchd has them.
    ///
    /// If the future is dropped before it ends, the connection is closed, and the lock is free.
    ///
    /// # Errors
    /// [`Error::NotObtained`] if it is somebody else's for too long, or if there is no item; any
    /// other if it is not had for another reason.
    pub async fn lock(
        &self,
        key: impl AsRef<[u8]>,
        options: &BoundOptions,
    ) -> Result<BoundLock, Error> {
        let bytes = key.as_ref();
        let odd = |byte: &u8| *byte == b' ' || byte.is_ascii_control();
        let key = Key::new(bytes)
            .filter(|_| !bytes.iter().any(odd))
            .ok_or(Error::Key)?;
        BoundLock::obtain(&self.pool, Bound::new(key, options.terms())).await
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
    /// [`ComputeError::Compute`] if `compute` failed; [`Error::TimedOut`] if somebody else took too
    /// long.
    pub async fn get_or_compute<E>(
        &self,
        key: impl AsRef<[u8]>,
        ttl: Duration,
        early: Duration,
        options: &ComputeOptions,
        compute: impl AsyncFnOnce(Option<Vec<u8>>) -> Result<Vec<u8>, E>,
    ) -> Result<Value, ComputeError<E>> {
        let key = Key::new(key.as_ref()).ok_or(Error::Key)?;
        let terms = options.terms(ttl, early).map_err(Error::from)?;
        compute::get_or_compute(&self.pool, key, terms, compute).await
    }
}
