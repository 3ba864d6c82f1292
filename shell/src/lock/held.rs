//! The locks of a command: one lease of all keys, or one bound lock per key, with or without a session.

use std::num::NonZeroU32;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::pin::Pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use latchd_client::{
    BoundLock, BoundOptions, Client, Error, Exptime, Fence, Lock, LockOptions, Loss, Mark, Retry,
};
use smol::future;

use super::LockArgs;

/// The longest wait for a server's reply with `-n`.
const NONBLOCK: Duration = Duration::from_secs(1);

/// The exptime of an item that is created for a lock, in seconds. The item need only exist until it is locked.
const ITEM_TTL_S: u32 = 5;

/// Held locks.
pub(super) enum Held {
    /// One lease, and the ttl of each renewal.
    Leased(Lock, Duration),
    /// Bound locks, or each in a session of its own, in the order of their keys.
    Bound(Vec<BoundLock>),
}

/// Waits for the loss of a lock, and tells its reason.
pub(super) struct Losses(Vec<Pin<Box<dyn Future<Output = Option<Loss>>>>>);

impl Held {
    /// Acquires all locks or none, within `wait`. The keys must be in byte order.
    ///
    /// # Errors
    /// The client's, for the first key whose lock is not acquired.
    pub(super) async fn obtain(
        args: &LockArgs,
        keys: &[Vec<u8>],
        client: &Client,
        wait: Option<Duration>,
    ) -> Result<Self, Error> {
        let retry = if args.nonblock {
            Retry::none()
        } else {
            Retry::exponential(Duration::from_millis(10), Duration::from_millis(500)).with_jitter()
        };
        let deadline = if args.nonblock { Some(NONBLOCK) } else { wait };
        let note = args.metadata.as_deref().map(OsStrExt::as_bytes);
        if let Some(ttl) = args.ttl {
            let options = LockOptions::new()
                .retry(retry)
                .deadline(deadline.unwrap_or(Duration::MAX))
                .metadata(note.unwrap_or_default());
            let lock = client.obtain_many(keys, ttl, &options).await?;
            return Ok(Self::Leased(lock, ttl));
        }
        let mut options = BoundOptions::new().retry(retry);
        if args.shared {
            options = options.shared();
        }
        if let Some(permits) = args.permits.and_then(NonZeroU32::new) {
            options = options.permits(permits);
        }
        if let Some(seconds) = args.session {
            options = options.session(Duration::from_secs(seconds.into()));
        }
        Self::obtain_bound(client, keys, note, options, deadline).await
    }

    /// Acquires the locks one after the other in byte order, so two commands with the same keys cannot deadlock.
    async fn obtain_bound(
        client: &Client,
        keys: &[Vec<u8>],
        note: Option<&[u8]>,
        options: BoundOptions,
        deadline: Option<Duration>,
    ) -> Result<Self, Error> {
        let exptime = Exptime::In {
            seconds: ITEM_TTL_S,
        };
        let mark = match note {
            Some(note) => Mark::Note(note.into(), exptime),
            None => Mark::Number,
        };
        let options = options.create(exptime).mark(mark);
        let begun = Instant::now();
        let mut locks = Vec::new();
        for key in keys {
            let mut options = options.clone();
            if let Some(deadline) = deadline {
                options = options.deadline(deadline.saturating_sub(begun.elapsed()));
            }
            match client.lock(key, &options).await {
                Ok(lock) => locks.push(lock),
                Err(error) => {
                    // All or none. Releasing a lock also removes an item created for it.
                    let _ = Self::Bound(locks).release().await;
                    return Err(error);
                }
            }
        }
        Ok(Self::Bound(locks))
    }

    /// The keys, in byte order.
    pub(super) fn keys(&self) -> Vec<&[u8]> {
        match self {
            Self::Leased(lock, _) => lock.keys().collect(),
            Self::Bound(locks) => locks.iter().map(BoundLock::key).collect(),
        }
    }

    /// The fencing tokens, in the same order. `None` if a later holder may have a lower number: that of a longer lease
    /// is the version of its item, and other servers number no grants.
    pub(super) fn fences(&self) -> Option<Vec<Fence>> {
        match self {
            Self::Leased(lock, _) => Some(vec![lock.fence()?]),
            Self::Bound(locks) => locks.iter().map(BoundLock::fence).collect(),
        }
    }

    /// Copies of the connections for the command to inherit, if `is_wanted`.
    ///
    /// # Errors
    /// The client's.
    pub(super) async fn inheritable(&self, is_wanted: bool) -> Result<Vec<OwnedFd>, Error> {
        let mut copies = Vec::new();
        match self {
            Self::Bound(locks) if is_wanted => {
                for lock in locks {
                    copies.push(lock.inheritable().await?);
                }
            }
            Self::Bound(_) | Self::Leased(..) => {}
        }
        Ok(copies)
    }

    /// Asks the server whether all locks are still held. This renews a lease.
    ///
    /// # Errors
    /// The client's. [`losses`](Self::losses) reports a lost lock as well.
    pub(super) async fn check(&self) -> Result<(), Error> {
        match self {
            Self::Leased(lock, ttl) => lock.refresh(*ttl).await,
            Self::Bound(locks) => {
                for lock in locks {
                    lock.check().await?;
                }
                Ok(())
            }
        }
    }

    /// For how long all locks are believed without a renewal; `None` if nothing but a broken connection ends them.
    pub(super) fn remaining(&self) -> Option<Duration> {
        match self {
            Self::Leased(lock, _) => Some(lock.remaining()),
            Self::Bound(locks) => locks.iter().filter_map(BoundLock::remaining).min(),
        }
    }

    /// Watches for the loss of a lock.
    pub(super) fn losses(&self) -> Losses {
        Losses(match self {
            Self::Leased(lock, _) => vec![Box::pin(lock.watch())],
            Self::Bound(locks) => locks
                .iter()
                .map(|lock| Box::pin(lock.watch()) as Pin<Box<dyn Future<Output = Option<Loss>>>>)
                .collect(),
        })
    }

    /// Releases all locks.
    ///
    /// # Errors
    /// The client's, for the first lock that was lost before its release.
    pub(super) async fn release(self) -> Result<(), Error> {
        match self {
            Self::Leased(lock, _) => lock.release().await,
            Self::Bound(locks) => {
                let mut result = Ok(());
                for lock in locks.into_iter().rev() {
                    let released = lock.release().await;
                    result = result.and(released);
                }
                result
            }
        }
    }
}

impl Losses {
    /// The first loss. Must not be called again afterwards.
    pub(super) async fn first(&mut self) -> Loss {
        future::poll_fn(|context| {
            for loss in &mut self.0 {
                if let Poll::Ready(loss) = loss.as_mut().poll(context) {
                    return Poll::Ready(loss.unwrap_or(Loss::Expired));
                }
            }
            Poll::Pending
        })
        .await
    }
}
