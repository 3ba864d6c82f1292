//! Changes under a lock's grant, over any connection.
//!
//! A holder that is stopped, or waits for the network, for longer than its lease does not know that it has
//! lost the lock. These changes name the number of the grant. The server makes them only while that grant is
//! in force, however the lock has ended and whichever client holds it now.
//!
//! Source: docs/PROTOCOL.md, `G`.

use latchd_client_core::{AnyResponse, Feature, Loss, TermsError};
use latchd_protocol::fence::Fence;
use latchd_protocol::time::Exptime;
use latchd_protocol::wire::meta::reply::Code;

use super::cache::{Outcome, StoreOptions};
use super::client::Client;
use super::error::{Error, ErrorKind};

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
        let stored = self.client.store_in(Some(self.fence), key, value, options);
        stored.await
    }

    /// See [`Client::delete`].
    ///
    /// # Errors
    /// As above.
    pub async fn delete(&self, key: impl AsRef<[u8]>) -> Result<Outcome, Error> {
        self.client.delete_in(Some(self.fence), key.as_ref()).await
    }

    /// See [`Client::incr`].
    ///
    /// # Errors
    /// As above.
    pub async fn incr(&self, key: impl AsRef<[u8]>, delta: u64) -> Result<Option<u64>, Error> {
        let counted = self
            .client
            .count(Some(self.fence), key.as_ref(), b'I', delta);
        counted.await
    }

    /// See [`Client::decr`].
    ///
    /// # Errors
    /// As above.
    pub async fn decr(&self, key: impl AsRef<[u8]>, delta: u64) -> Result<Option<u64>, Error> {
        let counted = self
            .client
            .count(Some(self.fence), key.as_ref(), b'D', delta);
        counted.await
    }
}

/// Checks the answer to a change under a grant.
///
/// # Errors
/// [`ErrorKind::NotHeld`] if the grant is over; [`ErrorKind::Unsupported`] if the server does not number grants.
pub(super) fn checked(answer: &AnyResponse<'_>) -> Result<(), ErrorKind> {
    if answer.code() == Some(Code::Exists) {
        return Err(ErrorKind::NotHeld(Some(Loss::Taken)));
    }
    let refusal = answer.refusal();
    if refusal.is_some_and(|words| NOT_UNDERSTOOD.contains(&&*words)) {
        return Err(ErrorKind::Unsupported(Feature::Fences));
    }
    Ok(())
}
