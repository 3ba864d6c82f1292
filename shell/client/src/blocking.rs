//! The client without futures: each call returns when it is done.
//!
//! ```no_run
//! use latchd_client::{LockOptions, blocking};
//!
//! # fn main() -> Result<(), latchd_client::Error> {
//! let client = blocking::Client::connect("127.0.0.1:11211")?;
//! let lock = client.lock("account/17", &LockOptions::new())?;
//! // … kept as long as this takes …
//! lock.release()
//! # }
//! ```
//!
//! The background thread keeps the locks, as in the asynchronous client. Do not call these functions in a task
//! of an executor: they would block it.

use std::fmt;
use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::time::Duration;

use async_io::block_on;

use super::background::within;
use super::cache::{CacheItem, GetOptions, Outcome, StoreOptions};
use super::compute::Value;
use super::error::{ComputeError, Error};
use super::options::{ClientOptions, ComputeOptions, LockOptions};
use super::{Detached, Exptime, Fence, LockState, Loss};

pub use super::connection::Connection;

/// The client of one server, or of several; see [`client::Client`](super::Client).
#[derive(Clone, Debug)]
pub struct Client(super::Client);

/// A lock that is held; see [`client::Lock`](super::Lock), whose other methods it has too.
#[must_use = "a lock that is not kept is released at once"]
pub struct Lock(super::Lock);

/// Changes of an item while a grant of its lock is in force; see [`Client::in_grant`].
#[derive(Clone, Debug)]
pub struct InGrant<'a>(super::InGrant<'a>);

/// Methods that wait for the method of the same name of the asynchronous type.
macro_rules! blocking {
    ($type:ident: $($name:ident($($argument:ident: $kind:ty),*) -> $result:ty $(=> $wrap:expr)?;)*) => {
        $(
            #[doc = concat!("See [`", stringify!($name), "`](crate::", stringify!($type), "::", stringify!($name), ").")]
            ///
            /// # Errors
            /// As there.
            pub fn $name(&self, $($argument: $kind),*) -> Result<$result, Error> {
                block_on(self.0.$name($($argument),*))$(.map($wrap))?
            }
        )*
    };
}

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

    /// See [`ring`](super::Client::ring).
    ///
    /// # Errors
    /// As there.
    pub fn ring<A: AsRef<str>>(
        servers: impl IntoIterator<Item = (A, u32)>,
        options: &ClientOptions,
    ) -> Result<Self, Error> {
        super::Client::ring(servers, options).map(Self)
    }

    /// See [`discover`](super::Client::discover).
    ///
    /// # Errors
    /// As there.
    pub fn discover<A: AsRef<str>>(
        endpoints: impl IntoIterator<Item = A>,
        options: &ClientOptions,
    ) -> Result<Self, Error> {
        block_on(super::Client::discover(endpoints, options)).map(Self)
    }

    /// See [`servers`](super::Client::servers).
    pub fn servers(&self) -> impl Iterator<Item = Self> {
        self.0.servers().map(Self)
    }

    /// See [`server`](super::Client::server).
    #[must_use]
    pub fn server(&self, key: impl AsRef<[u8]>) -> Self {
        Self(self.0.server(key))
    }

    /// See [`address`](super::Client::address).
    #[must_use]
    pub fn address(&self) -> &str {
        self.0.address()
    }

    /// Opens a connection for a program that speaks the protocol itself; of several servers, to the first.
    ///
    /// # Errors
    /// As those of [`connect`](Self::connect).
    pub fn open(&self) -> Result<Connection, Error> {
        Connection::open(self.0.first())
    }

    /// See [`in_grant`](super::Client::in_grant).
    #[must_use]
    pub const fn in_grant(&self, fence: Fence) -> InGrant<'_> {
        InGrant(self.0.in_grant(fence))
    }

    /// See [`compute`](super::Client::compute).
    ///
    /// # Errors
    /// As there.
    pub fn compute<E>(
        &self,
        key: impl AsRef<[u8]>,
        options: &ComputeOptions,
        make: impl FnOnce(Option<Vec<u8>>) -> Result<Vec<u8>, E>,
    ) -> Result<Value, ComputeError<E>> {
        block_on(self.0.compute(key, options, async |old| make(old)))
    }

    blocking! { Client:
        lock(key: impl AsRef<[u8]>, options: &LockOptions) -> Lock => Lock;
        try_lock(key: impl AsRef<[u8]>, options: &LockOptions) -> Lock => Lock;
        lock_many(keys: impl IntoIterator<Item = impl AsRef<[u8]>>, options: &LockOptions) -> Lock => Lock;
        try_lock_many(keys: impl IntoIterator<Item = impl AsRef<[u8]>>, options: &LockOptions) -> Lock => Lock;
        attach(detached: &Detached) -> Lock => Lock;
        lock_state(key: impl AsRef<[u8]>) -> Option<LockState>;
        get(key: impl AsRef<[u8]>) -> Option<CacheItem>;
        get_many(keys: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Vec<Option<CacheItem>>;
        get_with(key: impl AsRef<[u8]>, options: &GetOptions) -> Option<CacheItem>;
        set(key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, exptime: Exptime) -> Outcome;
        store(key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, options: &StoreOptions) -> Outcome;
        delete(key: impl AsRef<[u8]>) -> Outcome;
        touch(key: impl AsRef<[u8]>, exptime: Exptime) -> Outcome;
        incr(key: impl AsRef<[u8]>, delta: u64) -> Option<u64>;
        decr(key: impl AsRef<[u8]>, delta: u64) -> Option<u64>;
        flush_all() -> ();
        ping() -> ();
        stats() -> Vec<(String, String)>;
    }
}

impl InGrant<'_> {
    blocking! { InGrant:
        set(key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, exptime: Exptime) -> Outcome;
        store(key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, options: &StoreOptions) -> Outcome;
        delete(key: impl AsRef<[u8]>) -> Outcome;
        incr(key: impl AsRef<[u8]>, delta: u64) -> Option<u64>;
        decr(key: impl AsRef<[u8]>, delta: u64) -> Option<u64>;
    }
}

impl Lock {
    blocking! { Lock:
        check() -> ();
        refresh(ttl: Duration) -> ();
        server_ttl() -> Option<Duration>;
        get() -> Option<Vec<u8>>;
        set(value: impl AsRef<[u8]>, exptime: Exptime) -> ();
        release() -> ();
        release_with(value: impl AsRef<[u8]>, exptime: Exptime) -> ();
        inheritable() -> OwnedFd;
    }

    /// See [`detach`](super::Lock::detach).
    ///
    /// # Errors
    /// As there.
    pub fn detach(self) -> Result<Detached, Error> {
        block_on(self.0.detach())
    }

    /// Waits at most this long for the end of the lock: its loss, or its release, which is no loss. `None` if it is still
    /// held then.
    #[must_use]
    pub fn wait_lost(&self, timeout: Duration) -> Option<Option<Loss>> {
        block_on(within(timeout, self.0.lost()))
    }
}

impl Deref for Lock {
    type Target = super::Lock;

    fn deref(&self) -> &super::Lock {
        &self.0
    }
}

impl fmt::Debug for Lock {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

#[cfg(test)]
mod tests;
