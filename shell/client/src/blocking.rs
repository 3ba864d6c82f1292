//! The client without futures: each call returns when it is done.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use latchd_client::{LockOptions, blocking};
//!
//! # fn main() -> Result<(), latchd_client::Error> {
//! let client = blocking::Client::connect("127.0.0.1:11211")?;
//! let lock = client.obtain("jobs/nightly", Duration::from_secs(30), &LockOptions::new())?;
//! // … renewed as long as this takes …
//! lock.release()
//! # }
//! ```
//!
//! The background thread renews leases, as in the asynchronous client. Do not call these functions in a task
//! of an executor: they would block it.

mod cluster;
mod fenced;
mod locks;

use std::time::Duration;

use async_io::block_on;

use super::Exptime;
use super::cache::{CacheItem, GetOptions, Outcome, StoreOptions};
use super::compute::Value;
use super::error::{ComputeError, Error};
use super::options::{BoundOptions, ClientOptions, ComputeOptions, LockOptions};

pub use super::connection::Connection;
pub use cluster::Cluster;
pub use fenced::InGrant;
pub use locks::{BoundLock, Lock};

/// A client of one server; see [`client::Client`](super::Client).
#[derive(Clone, Debug)]
pub struct Client(super::Client);

impl Client {
    /// See [`connect`](super::Client::connect).
    ///
    /// # Errors
    /// As there.
    pub fn connect(address: &str) -> Result<Self, Error> {
        block_on(super::Client::connect(address)).map(Self)
    }

    /// See [`new`](super::Client::new).
    ///
    /// # Errors
    /// As there.
    pub fn new(address: &str, options: ClientOptions) -> Result<Self, Error> {
        super::Client::new(address, options).map(Self)
    }

    /// See [`address`](super::Client::address).
    #[must_use]
    pub fn address(&self) -> &str {
        self.0.address()
    }

    /// Opens a connection for a program that speaks the protocol itself.
    ///
    /// # Errors
    /// As those of [`connect`](Self::connect).
    pub fn open(&self) -> Result<Connection, Error> {
        Connection::open(&self.0.pool)
    }

    /// See [`obtain`](super::Client::obtain).
    ///
    /// # Errors
    /// As there.
    pub fn obtain(
        &self,
        key: impl AsRef<[u8]>,
        ttl: Duration,
        options: &LockOptions,
    ) -> Result<Lock, Error> {
        block_on(self.0.obtain(key, ttl, options)).map(Lock)
    }

    /// See [`obtain_many`](super::Client::obtain_many).
    ///
    /// # Errors
    /// As there.
    pub fn obtain_many<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
        ttl: Duration,
        options: &LockOptions,
    ) -> Result<Lock, Error> {
        block_on(self.0.obtain_many(keys, ttl, options)).map(Lock)
    }

    /// See [`obtain_with`](super::Client::obtain_with).
    ///
    /// # Errors
    /// As there.
    pub fn obtain_with<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
        ttl: Duration,
        options: &LockOptions,
        waits: impl IntoIterator<Item = Duration>,
    ) -> Result<Lock, Error> {
        block_on(self.0.obtain_with(keys, ttl, options, waits)).map(Lock)
    }

    /// See [`lock`](super::Client::lock).
    ///
    /// # Errors
    /// As there.
    pub fn lock(&self, key: impl AsRef<[u8]>, options: &BoundOptions) -> Result<BoundLock, Error> {
        block_on(self.0.lock(key, options)).map(BoundLock)
    }

    /// See [`lock_and_get`](super::Client::lock_and_get).
    ///
    /// # Errors
    /// As there.
    pub fn lock_and_get(
        &self,
        key: impl AsRef<[u8]>,
        options: &BoundOptions,
    ) -> Result<(BoundLock, Vec<u8>), Error> {
        let (lock, value) = block_on(self.0.lock_and_get(key, options))?;
        Ok((BoundLock(lock), value))
    }

    /// See [`get_or_compute`](super::Client::get_or_compute).
    ///
    /// # Errors
    /// As there.
    pub fn get_or_compute<E>(
        &self,
        key: impl AsRef<[u8]>,
        ttl: Duration,
        early: Duration,
        options: &ComputeOptions,
        compute: impl FnOnce(Option<Vec<u8>>) -> Result<Vec<u8>, E>,
    ) -> Result<Value, ComputeError<E>> {
        let compute = async |old| compute(old);
        block_on(self.0.get_or_compute(key, ttl, early, options, compute))
    }

    /// See [`get`](super::Client::get).
    ///
    /// # Errors
    /// As there.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<CacheItem>, Error> {
        block_on(self.0.get(key))
    }

    /// See [`get_with`](super::Client::get_with).
    ///
    /// # Errors
    /// As there.
    pub fn get_with(
        &self,
        key: impl AsRef<[u8]>,
        options: &GetOptions,
    ) -> Result<Option<CacheItem>, Error> {
        block_on(self.0.get_with(key, options))
    }

    /// See [`get_many`](super::Client::get_many).
    ///
    /// # Errors
    /// As there.
    pub fn get_many<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<CacheItem>>, Error> {
        block_on(self.0.get_many(keys))
    }

    /// See [`set`](super::Client::set).
    ///
    /// # Errors
    /// As there.
    pub fn set(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        exptime: Exptime,
    ) -> Result<Outcome, Error> {
        block_on(self.0.set(key, value, exptime))
    }

    /// See [`store`](super::Client::store).
    ///
    /// # Errors
    /// As there.
    pub fn store(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        options: &StoreOptions,
    ) -> Result<Outcome, Error> {
        block_on(self.0.store(key, value, options))
    }

    /// See [`delete`](super::Client::delete).
    ///
    /// # Errors
    /// As there.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<Outcome, Error> {
        block_on(self.0.delete(key))
    }

    /// See [`touch`](super::Client::touch).
    ///
    /// # Errors
    /// As there.
    pub fn touch(&self, key: impl AsRef<[u8]>, exptime: Exptime) -> Result<Outcome, Error> {
        block_on(self.0.touch(key, exptime))
    }

    /// See [`incr`](super::Client::incr).
    ///
    /// # Errors
    /// As there.
    pub fn incr(&self, key: impl AsRef<[u8]>, delta: u64) -> Result<Option<u64>, Error> {
        block_on(self.0.incr(key, delta))
    }

    /// See [`decr`](super::Client::decr).
    ///
    /// # Errors
    /// As there.
    pub fn decr(&self, key: impl AsRef<[u8]>, delta: u64) -> Result<Option<u64>, Error> {
        block_on(self.0.decr(key, delta))
    }

    /// See [`flush_all`](super::Client::flush_all).
    ///
    /// # Errors
    /// As there.
    pub fn flush_all(&self) -> Result<(), Error> {
        block_on(self.0.flush_all())
    }

    /// See [`ping`](super::Client::ping).
    ///
    /// # Errors
    /// As there.
    pub fn ping(&self) -> Result<(), Error> {
        block_on(self.0.ping())
    }

    /// See [`stats`](super::Client::stats).
    ///
    /// # Errors
    /// As there.
    pub fn stats(&self) -> Result<Vec<(String, String)>, Error> {
        block_on(self.0.stats())
    }
}

#[cfg(test)]
mod tests;
