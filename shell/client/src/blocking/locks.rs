//! Locks whose calls return when they are done.

use std::fmt;
use std::os::fd::OwnedFd;
use std::time::Duration;

use async_io::block_on;

use crate::{Error, Exptime, Loss, Token};

/// A leased lock; see [`client::Lock`](crate::Lock).
#[must_use = "a lock that is not kept is released at once"]
pub struct Lock(pub(super) crate::Lock);

/// A connection-bound lock; see [`client::BoundLock`](crate::BoundLock).
#[must_use = "a lock that is not kept is released at once"]
pub struct BoundLock(pub(super) crate::BoundLock);

impl Lock {
    /// The asynchronous lock, for its keys, token and numbers.
    pub const fn as_async(&self) -> &crate::Lock {
        &self.0
    }

    /// See [`is_held`](crate::Lock::is_held).
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.0.is_held()
    }

    /// See [`refresh`](crate::Lock::refresh).
    ///
    /// # Errors
    /// As there.
    pub fn refresh(&self, ttl: Duration) -> Result<(), Error> {
        block_on(self.0.refresh(ttl))
    }

    /// See [`server_ttl`](crate::Lock::server_ttl).
    ///
    /// # Errors
    /// As there.
    pub fn server_ttl(&self) -> Result<Duration, Error> {
        block_on(self.0.server_ttl())
    }

    /// See [`lost`](crate::Lock::lost).
    #[must_use]
    pub fn lost(&self) -> Loss {
        block_on(self.0.lost())
    }

    /// See [`try_release`](crate::Lock::try_release).
    ///
    /// # Errors
    /// As there.
    pub fn try_release(&self) -> Result<(), Error> {
        block_on(self.0.try_release())
    }

    /// See [`refresh_with`](crate::Lock::refresh_with).
    ///
    /// # Errors
    /// As there.
    pub fn refresh_with(
        &self,
        ttl: Duration,
        waits: impl IntoIterator<Item = Duration>,
    ) -> Result<(), Error> {
        block_on(self.0.refresh_with(ttl, waits))
    }

    /// See [`detach`](crate::Lock::detach).
    ///
    /// # Errors
    /// As there.
    pub fn detach(self) -> Result<Token, Error> {
        block_on(self.0.detach())
    }

    /// See [`release`](crate::Lock::release).
    ///
    /// # Errors
    /// As there.
    pub fn release(self) -> Result<(), Error> {
        block_on(self.0.release())
    }
}

impl BoundLock {
    /// The asynchronous lock, for its key, number and item.
    pub const fn as_async(&self) -> &crate::BoundLock {
        &self.0
    }

    /// See [`is_held`](crate::BoundLock::is_held).
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.0.is_held()
    }

    /// See [`lost`](crate::BoundLock::lost).
    #[must_use]
    pub fn lost(&self) -> Loss {
        block_on(self.0.lost())
    }

    /// See [`check`](crate::BoundLock::check).
    ///
    /// # Errors
    /// As there.
    pub fn check(&self) -> Result<(), Error> {
        block_on(self.0.check())
    }

    /// See [`inheritable`](crate::BoundLock::inheritable).
    ///
    /// # Errors
    /// As there.
    pub fn inheritable(&self) -> Result<OwnedFd, Error> {
        block_on(self.0.inheritable())
    }

    /// See [`get`](crate::BoundLock::get).
    ///
    /// # Errors
    /// As there.
    pub fn get(&self) -> Result<Vec<u8>, Error> {
        block_on(self.0.get())
    }

    /// See [`set`](crate::BoundLock::set).
    ///
    /// # Errors
    /// As there.
    pub fn set(&self, value: impl Into<Vec<u8>>, exptime: Exptime) -> Result<(), Error> {
        block_on(self.0.set(value, exptime))
    }

    /// See [`replace_and_unlock`](crate::BoundLock::replace_and_unlock).
    ///
    /// # Errors
    /// As there.
    pub fn replace_and_unlock(
        self,
        value: impl Into<Vec<u8>>,
        exptime: Exptime,
    ) -> Result<(), Error> {
        block_on(self.0.replace_and_unlock(value, exptime))
    }

    /// See [`release`](crate::BoundLock::release).
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
