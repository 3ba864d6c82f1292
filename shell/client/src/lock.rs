//! A lock that is held.

use std::fmt;
use std::future::Future;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use latchd_client_core::{Feature, Loss, TTL_MAX, TermsError, Token};
use latchd_protocol::fence::Fence;
use latchd_protocol::time::Exptime;

use super::background::within;
use super::client::Client;
use super::detached::Detached;
use super::error::{Error, ErrorKind};
use super::keeper::{Part, Watch};
use super::options::Plan;
use super::pool::{Owner, Pool, Slot};

/// A lock that is held, of one key or several.
///
/// [`release`](Self::release) releases it, and reports whether it was held until then. Dropping it releases it in the
/// background. If the process ends before that is done, the lock ends after the time that it
/// [survives](super::LockOptions::survive).
///
/// # In the background
///
/// One thread of the process keeps all its locks. It gives signs of life, opens a new connection when one breaks, asks for
/// each lock once a [heartbeat](super::ClientOptions::heartbeat), and notices the end of its time, even while the caller's
/// executor is busy. A caller that waits for a reply sends and reads itself. If its executor does not run it, the thread
/// takes over after 20 ms. So a caller that hangs holds its lock for ever, unless
/// [`hold_max`](super::LockOptions::hold_max) is set.
///
/// # Guarantees
///
/// While [`is_held`](Self::is_held) is true, no other client holds the lock. This assumes that clocks drift by less than one
/// percent, that no operator releases the lock, and that a memcached neither evicts the item nor loses it in a restart. A
/// lock that survives 0 s has no such guarantee while its connection is broken on one side. A check can be out of date when
/// the caller acts. So pass the [`fence`](Self::fence) to the protected resource, and let it refuse lower ones.
#[must_use = "a lock that is not kept is released at once"]
pub struct Lock {
    /// In the order of the keys.
    pub(super) parts: Vec<Part>,
    pub(super) pool: Pool,
    pub(super) plan: Plan,
    /// The keeper that has waited for it.
    pub(super) _slot: Option<Slot>,
}

impl Lock {
    /// The key; of several keys, the first in order.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        self.parts
            .first()
            .map(|part| &*part.key)
            .unwrap_or_default()
    }

    /// All keys, in the order of their bytes.
    pub fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.parts.iter().map(|part| &*part.key)
    }

    /// The fence of the grant, for [`Client::in_grant`](super::Client::in_grant) and for the protected resource: a later
    /// holder of the key has a higher one, also over restarts. On latchd there is always one, on memcached never. With
    /// several keys, that of the first.
    #[must_use]
    pub fn fence(&self) -> Option<Fence> {
        self.parts.first()?.fence
    }

    /// The fences of all keys, in the order of the keys; none on memcached.
    pub fn fences(&self) -> impl Iterator<Item = Fence> {
        self.parts.iter().filter_map(|part| part.fence)
    }

    /// The token, which tells this holder from all others.
    #[must_use]
    pub const fn token(&self) -> &Token {
        &self.plan.token
    }

    /// The text that others can read beside the lock.
    #[must_use]
    pub const fn metadata(&self) -> &[u8] {
        &self.plan.terms.metadata
    }

    /// Whether this client holds the lock now, as far as it can know without a request. From the call of
    /// [`release`](Self::release) on it does not.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.parts.iter().all(|part| part.watch.is_held())
    }

    /// The time until the lock is lost without a sign of life from the server, by the client's clock; 0 if it is not held.
    /// `None` if only the end of its connection ends it.
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        let parts = self.parts.iter();
        parts.filter_map(|part| part.watch.remaining()).min()
    }

    /// The remaining time by the server's clock; of several keys, the least. On latchd, the time that the client counts
    /// after a sign of life. `None` if only the end of its connection ends the lock.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub async fn server_ttl(&self) -> Result<Option<Duration>, Error> {
        let shown = self.confirm(None).await?;
        Ok(shown.or_else(|| self.remaining()))
    }

    /// Ends when the lock is lost, with the reason, or when it is released, with `None`. Clones end together.
    pub fn lost(&self) -> Lost {
        let watches = self.parts.iter().map(|part| Arc::clone(&part.watch));
        Lost {
            watches: watches.collect(),
            wait: None,
        }
    }

    /// Asks the server for the lock now, without waiting for the next heartbeat.
    ///
    /// # Errors
    /// [`ErrorKind::NotHeld`] if the lock is lost. Another kind if the request failed: the lock is still held for
    /// [`remaining`](Self::remaining).
    pub async fn check(&self) -> Result<(), Error> {
        self.confirm(None).await.map(drop)
    }

    /// Requests `ttl` from now on, also with every later renewal. A lock on latchd that is renewed in the background by its
    /// session is only checked.
    ///
    /// # Errors
    /// As [`check`](Self::check); [`ErrorKind::Terms`] if the server cannot measure `ttl`, and then nothing has changed.
    pub async fn refresh(&self, ttl: Duration) -> Result<(), Error> {
        let least = match self.plan.owner {
            Owner::Item => latchd_client_core::TTL_MIN,
            Owner::Session(_) | Owner::Connection => Duration::from_millis(10),
        };
        if ttl < least {
            return Err(TermsError::TtlTooShort.into());
        }
        if ttl > TTL_MAX {
            return Err(TermsError::TtlTooLong.into());
        }
        self.confirm(Some(ttl)).await.map(drop)
    }

    async fn confirm(&self, ttl: Option<Duration>) -> Result<Option<Duration>, Error> {
        self.pool.check_process()?;
        let mut least = None;
        for part in &self.parts {
            let left = part.confirm(ttl).await.map_err(|error| self.why(error))?;
            least = [least, left].into_iter().flatten().min();
        }
        Ok(least)
    }

    /// Reads the item of the key; `None` if there is none.
    ///
    /// # Errors
    /// [`ErrorKind::NotHeld`] if the lock is lost; [`ErrorKind::Unsupported`] if the item is the lock.
    pub async fn get(&self) -> Result<Option<Vec<u8>>, Error> {
        self.check_item()?;
        let found = Client::of(self.pool.clone()).get(self.key()).await?;
        if !self.is_held() {
            return Err(self.not_held());
        }
        Ok(found.map(|item| item.value.into()))
    }

    /// Stores the item of the key, while the lock is held.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub async fn set(&self, value: impl AsRef<[u8]>, exptime: Exptime) -> Result<(), Error> {
        let fence = self.check_item()?;
        let client = Client::of(self.pool.clone());
        let outcome = client
            .in_grant(fence)
            .set(self.key(), value, exptime)
            .await?;
        outcome.done(&self.pool)
    }

    /// Stores the item of the key and releases the lock, in one step.
    ///
    /// # Errors
    /// As [`get`](Self::get). If the value was not stored, the lock is still held.
    pub async fn release_with(
        &self,
        value: impl AsRef<[u8]>,
        exptime: Exptime,
    ) -> Result<(), Error> {
        let fence = self.check_item()?;
        let [part] = &*self.parts else {
            return Err(TermsError::Keys.into());
        };
        let client = Client::of(self.pool.clone());
        let stored = client.set_and_unlock(fence, &part.key, value.as_ref(), exptime);
        stored.await?;
        part.forget().await;
        Ok(())
    }

    /// The fence, if the item of the key is free for the holder.
    fn check_item(&self) -> Result<Fence, Error> {
        self.pool.check_process()?;
        match self.fence() {
            Some(_) if !self.is_held() => Err(self.not_held()),
            Some(fence) if self.plan.terms.item.is_none() => Ok(fence),
            Some(_) | None => Err(self
                .pool
                .error(ErrorKind::Unsupported(Feature::ItemsUnderLocks))),
        }
    }

    /// The same error, with the reason of a loss that came before the call.
    fn why(&self, error: Error) -> Error {
        if error.is_not_held() {
            return self.not_held();
        }
        error
    }

    fn not_held(&self) -> Error {
        let loss = self.parts.iter().find_map(|part| part.watch.loss());
        self.pool.error(ErrorKind::NotHeld(loss))
    }

    /// Releases the lock. If it fails, it can be tried again, and the background goes on trying.
    ///
    /// # Errors
    /// [`ErrorKind::NotHeld`] if it was lost before: another client may have done the protected work as well. Another kind
    /// if the server does not reply in time; the lock ends by itself then.
    pub async fn release(&self) -> Result<(), Error> {
        self.pool.check_process()?;
        let patience = self.pool.options.reply_timeout.saturating_mul(2);
        let mut result = Ok(());
        let released = async {
            for part in self.parts.iter().rev() {
                let released = part.release().await.map_err(|error| self.why(error));
                result = std::mem::replace(&mut result, Ok(())).and(released);
            }
            result
        };
        within(patience, released).await.unwrap_or_else(|| {
            let late = std::io::ErrorKind::TimedOut.into();
            Err(self.pool.error(ErrorKind::Unreachable(late)))
        })
    }

    /// Copies the lock's connection, so that programs started from now on inherit it. The lock lasts until it is released,
    /// or until every copy is closed, for example by the death of the last process that has one.
    ///
    /// # Errors
    /// [`ErrorKind::NotHeld`] if the lock is lost; [`ErrorKind::Unreachable`] if no file descriptor is left;
    /// [`ErrorKind::Terms`] without [`LockOptions::inheritable`](super::LockOptions::inheritable).
    pub async fn inheritable(&self) -> Result<OwnedFd, Error> {
        self.pool.check_process()?;
        if !self.plan.is_inheritable {
            return Err(TermsError::Inherited.into());
        }
        let Some(part) = self.parts.first().filter(|_| self.is_held()) else {
            return Err(self.not_held());
        };
        let copied = part.keeper().inheritable().await;
        copied.map_err(|error| self.pool.error(ErrorKind::Unreachable(error)))
    }

    /// Leaves the lock behind, in this state. It is neither renewed nor released any more, and lasts for the time that it
    /// survives. [`Client::attach`](super::Client::attach) goes on with it, in any process.
    ///
    /// # Errors
    /// [`ErrorKind::NotHeld`] if it was lost before; [`ErrorKind::Terms`] if it ends with its connection, or has no
    /// [token](super::LockOptions::token) of its own on latchd.
    pub async fn detach(self) -> Result<Detached, Error> {
        let can_stay = match self.plan.owner {
            Owner::Session(_) => self.plan.session.is_some(),
            Owner::Item => true,
            Owner::Connection => false,
        };
        if !can_stay {
            return Err(TermsError::Detached.into());
        }
        self.check().await?;
        for part in &self.parts {
            part.forget().await;
        }
        Ok(Detached::of(&self))
    }
}

impl fmt::Debug for Lock {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys: Vec<_> = self.keys().map(String::from_utf8_lossy).collect();
        formatter
            .debug_struct("Lock")
            .field("keys", &keys)
            .field("fence", &self.fence())
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}

/// The end of a lock; see [`Lock::lost`].
#[must_use = "a future does nothing unless it is awaited"]
pub struct Lost {
    watches: Arc<[Arc<Watch>]>,
    wait: Option<Pin<Box<dyn Future<Output = Option<Loss>> + Send + Sync>>>,
}

impl Future for Lost {
    type Output = Option<Loss>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Loss>> {
        let lost = &mut *self;
        let wait = lost.wait.get_or_insert_with(|| {
            let watches = Arc::clone(&lost.watches);
            Box::pin(async move { first_loss(&watches).await })
        });
        let ended = wait.as_mut().poll(context);
        if ended.is_ready() {
            lost.wait = None;
        }
        ended
    }
}

/// The first loss of any key; `None` if all are released.
async fn first_loss(watches: &[Arc<Watch>]) -> Option<Loss> {
    let mut waits: Vec<_> = watches
        .iter()
        .map(|watch| Box::pin(watch.ended()))
        .collect();
    std::future::poll_fn(|context| {
        let mut loss = None;
        waits.retain_mut(|wait| match wait.as_mut().poll(context) {
            Poll::Ready(found) => {
                loss = loss.or(found);
                false
            }
            Poll::Pending => true,
        });
        if loss.is_none() && !waits.is_empty() {
            return Poll::Pending;
        }
        Poll::Ready(loss)
    })
    .await
}

impl Clone for Lost {
    fn clone(&self) -> Self {
        Self {
            watches: Arc::clone(&self.watches),
            wait: None,
        }
    }
}

impl fmt::Debug for Lost {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Lost").finish_non_exhaustive()
    }
}
