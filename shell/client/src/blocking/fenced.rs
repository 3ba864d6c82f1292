//! Changes under a lock's grant, as calls that return when they are done.

use async_io::block_on;

use super::Client;
use crate::{Error, Exptime, Fence, Outcome, StoreOptions};

/// Changes of an item while a grant of its lock is in force; see [`Client::in_grant`].
#[derive(Clone, Debug)]
pub struct InGrant<'a>(crate::InGrant<'a>);

impl Client {
    /// See [`in_grant`](crate::Client::in_grant).
    #[must_use]
    pub const fn in_grant(&self, fence: Fence) -> InGrant<'_> {
        InGrant(self.0.in_grant(fence))
    }
}

impl InGrant<'_> {
    /// See [`set`](crate::InGrant::set).
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

    /// See [`store`](crate::InGrant::store).
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

    /// See [`delete`](crate::InGrant::delete).
    ///
    /// # Errors
    /// As there.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<Outcome, Error> {
        block_on(self.0.delete(key))
    }

    /// See [`incr`](crate::InGrant::incr).
    ///
    /// # Errors
    /// As there.
    pub fn incr(&self, key: impl AsRef<[u8]>, delta: u64) -> Result<Option<u64>, Error> {
        block_on(self.0.incr(key, delta))
    }

    /// See [`decr`](crate::InGrant::decr).
    ///
    /// # Errors
    /// As there.
    pub fn decr(&self, key: impl AsRef<[u8]>, delta: u64) -> Result<Option<u64>, Error> {
        block_on(self.0.decr(key, delta))
    }
}
