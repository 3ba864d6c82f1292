//! Changes under a lock's grant, over any connection.
//!
//! A holder that is stopped, or waits for the network, for longer than its lease does not know that it has
//! lost the lock. These changes name the number of the grant. The server makes them only while that grant is
//! in force, however the lock has ended and whichever client holds it now.
//!
//! Source: docs/PROTOCOL.md, `G`.

use latchd_client_core::{Feature, Loss, TermsError};
use latchd_protocol::fence::Fence;
use latchd_protocol::time::Exptime;

use super::cache::{CountMode, Outcome, StoreOptions};
use super::client::Client;
use super::error::{Error, ErrorKind};
use super::pool::Pool;

/// The replies of servers that do not know the flag, or no meta commands: yrmcds, and memcached by its
/// versions.
const NOT_UNDERSTOOD: [&str; 3] = [
    "ERROR",
    "CLIENT_ERROR invalid flag",
    "CLIENT_ERROR invalid or duplicate flag",
];

/// Changes of an item while a grant of its lock is in force; see [`Client::in_grant`].
#[derive(Clone, Debug)]
pub struct InGrant<'a> {
    client: &'a Client,
    fence: Fence,
}

impl Client {
    /// Makes changes under a lock, by the [`fence`](super::Lock::fence) of its grant. They use the shared connections, not
    /// the lock's own, and succeed only while the lock is held. This requires latchd. To use a fence in another process,
    /// pass it as a number and rebuild it with [`Fence::new`].
    ///
    /// ```no_run
    /// # async fn pay(client: &latchd_client::Client) -> Result<(), latchd_client::Error> {
    /// use latchd_client::LockOptions;
    ///
    /// let lock = client.lock("account", &LockOptions::new()).await?;
    /// if let Some(fence) = lock.fence() {
    ///     client.in_grant(fence).decr("account", 5).await?; // not held any more: an error, and nothing has changed
    /// }
    /// lock.release().await
    /// # }
    /// ```
    #[must_use]
    pub const fn in_grant(&self, fence: Fence) -> InGrant<'_> {
        InGrant {
            client: self,
            fence,
        }
    }
}

/// Each call fails as [`ErrorKind::NotHeld`] if the lock is lost or is not for this key: nothing has changed
/// then. It fails as [`ErrorKind::Unsupported`] if the server does not number grants, and otherwise as the
/// calls of [`Client`].
impl InGrant<'_> {
    /// See [`Client::set`].
    ///
    /// # Errors
    /// As above.
    pub async fn set(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        exptime: Exptime,
    ) -> Result<Outcome, Error> {
        self.store(key, value, &StoreOptions::new().exptime(exptime))
            .await
    }

    /// See [`Client::store`].
    ///
    /// # Errors
    /// As above; [`ErrorKind::Terms`] if the options compare a version.
    pub async fn store(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        options: &StoreOptions,
    ) -> Result<Outcome, Error> {
        if options.cas.is_some() {
            return Err(TermsError::CasInGrant.into());
        }
        let (key, value) = (key.as_ref(), value.as_ref());
        let fence = Some(self.fence);
        let stored = self.client.store_in(fence, key, value, options).await;
        outcome(self.client.pool(key), stored)
    }

    /// See [`Client::delete`].
    ///
    /// # Errors
    /// As above.
    pub async fn delete(&self, key: impl AsRef<[u8]>) -> Result<Outcome, Error> {
        let (key, fence) = (key.as_ref(), Some(self.fence));
        outcome(
            self.client.pool(key),
            self.client.delete_in(fence, key).await,
        )
    }

    /// See [`Client::incr`].
    ///
    /// # Errors
    /// As above.
    pub async fn incr(&self, key: impl AsRef<[u8]>, delta: u64) -> Result<Option<u64>, Error> {
        self.count(key.as_ref(), CountMode::Up, delta).await
    }

    /// See [`Client::decr`].
    ///
    /// # Errors
    /// As above.
    pub async fn decr(&self, key: impl AsRef<[u8]>, delta: u64) -> Result<Option<u64>, Error> {
        self.count(key.as_ref(), CountMode::Down, delta).await
    }

    async fn count(&self, key: &[u8], mode: CountMode, delta: u64) -> Result<Option<u64>, Error> {
        let fence = Some(self.fence);
        let counted = self.client.count(fence, key, mode, delta).await;
        counted.map_err(|error| explained(self.client.pool(key), error))
    }
}

fn outcome(pool: &Pool, outcome: Result<Outcome, Error>) -> Result<Outcome, Error> {
    match outcome {
        Ok(Outcome::Exists) => Err(pool.error(ErrorKind::NotHeld(Some(Loss::Taken)))),
        Ok(outcome) => Ok(outcome),
        Err(error) => Err(explained(pool, error)),
    }
}

/// The error for a refused change under a grant.
fn explained(pool: &Pool, error: Error) -> Error {
    let is_unknown = matches!(error.kind(), ErrorKind::Refused(words)
        if NOT_UNDERSTOOD.contains(&&**words));
    if is_unknown {
        return pool.error(ErrorKind::Unsupported(Feature::Fences));
    }
    error
}
