//! The client without futures: each call returns when it is done.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use latchd::client::{LockOptions, blocking};
//!
//! # fn main() -> Result<(), latchd::client::Error> {
//! let client = blocking::Client::connect("127.0.0.1:11211")?;
//! let lock = client.obtain("jobs/nightly", Duration::from_secs(30), &LockOptions::new())?;
//! // … renewed as long as this takes …
//! lock.release()
//! # }
//! ```
//!
//! What is kept in the background goes on as with the others: a lease is renewed while its holder does
//! something else. Not to be called in a task of an executor, which would stand still meanwhile.

use std::fmt;
use std::time::Duration;

use smol::block_on;

use super::cache::{CacheItem, GetOptions, Outcome, StoreOptions};
use super::compute::Value;
use super::error::{ComputeError, Error};
use super::options::{BoundOptions, ClientOptions, ComputeOptions, LockOptions};
use super::{Exptime, Loss};

pub use super::connection::Connection;

/// A server to ask; see [`client::Client`](super::Client).
#[derive(Clone, Debug)]
pub struct Client(super::Client);

/// A leased lock; see [`client::Lock`](super::Lock).
#[must_use = "a lock that is not kept is released at once"]
pub struct Lock(super::Lock);

/// A connection-bound lock; see [`client::BoundLock`](super::BoundLock).
#[must_use = "a lock that is not kept is released at once"]
pub struct BoundLock(super::BoundLock);

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

    /// Opens a connection for a caller who speaks the protocol itself.
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

    /// See [`lock`](super::Client::lock).
    ///
    /// # Errors
    /// As there.
    pub fn lock(&self, key: impl AsRef<[u8]>, options: &BoundOptions) -> Result<BoundLock, Error> {
        block_on(self.0.lock(key, options)).map(BoundLock)
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

    /// See [`stats`](super::Client::stats).
    ///
    /// # Errors
    /// As there.
    pub fn stats(&self) -> Result<Vec<(String, String)>, Error> {
        block_on(self.0.stats())
    }
}

impl Lock {
    /// The lock as tasks have it: its keys, its numbers, whether it is held.
    pub const fn as_async(&self) -> &super::Lock {
        &self.0
    }

    /// See [`is_held`](super::Lock::is_held).
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.0.is_held()
    }

    /// See [`refresh`](super::Lock::refresh).
    ///
    /// # Errors
    /// As there.
    pub fn refresh(&self, ttl: Duration) -> Result<(), Error> {
        block_on(self.0.refresh(ttl))
    }

    /// See [`ttl`](super::Lock::ttl).
    ///
    /// # Errors
    /// As there.
    pub fn ttl(&self) -> Result<Duration, Error> {
        block_on(self.0.ttl())
    }

    /// See [`lost`](super::Lock::lost).
    #[must_use]
    pub fn lost(&self) -> Loss {
        block_on(self.0.lost())
    }

    /// See [`release`](super::Lock::release).
    ///
    /// # Errors
    /// As there.
    pub fn release(self) -> Result<(), Error> {
        block_on(self.0.release())
    }
}

impl BoundLock {
    /// The lock as tasks have it: its key, its number, its item.
    pub const fn as_async(&self) -> &super::BoundLock {
        &self.0
    }

    /// See [`is_held`](super::BoundLock::is_held).
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.0.is_held()
    }

    /// See [`get`](super::BoundLock::get).
    ///
    /// # Errors
    /// As there.
    pub fn get(&self) -> Result<Vec<u8>, Error> {
        block_on(self.0.get())
    }

    /// See [`set`](super::BoundLock::set).
    ///
    /// # Errors
    /// As there.
    pub fn set(&self, value: impl Into<Vec<u8>>, exptime: Exptime) -> Result<(), Error> {
        block_on(self.0.set(value, exptime))
    }

    /// See [`release`](super::BoundLock::release).
    ///
    /// # Errors
    /// As there.
    pub fn release(self) -> Result<(), Error> {
        block_on(self.0.release())
    }
}

impl fmt::Debug for Lock {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl fmt::Debug for BoundLock {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}
