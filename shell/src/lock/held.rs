//! The locks that a command runs under: one lease of all keys, or a bound lock of each.

use std::num::NonZeroU32;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::pin::Pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use latchd_client::{
    BoundLock, BoundOptions, Client, Error, Exptime, Lock, LockOptions, Loss, Mark, Retry,
};
use smol::future;

use super::LockArgs;

/// How long a server may take to say that a lock is not to be had, when it is not waited for.
const NONBLOCK: Duration = Duration::from_secs(1);

/// How long an item that is made for a lock outlives a holder that dies, in seconds. It need only
/// be there until it is locked.
const ITEM_TTL_S: u32 = 5;

/// Locks that are held.
pub(super) enum Held {
    /// One lease, and for how long it is renewed.
    Leased(Lock, Duration),
    /// In the order of their keys.
    Bound(Vec<BoundLock>),
}

/// Ends when a lock is lost, and says why.
pub(super) struct Losses(Vec<Pin<Box<dyn Future<Output = Option<Loss>>>>>);

impl Held {
    /// Obtains all locks, or none, within `wait`. The keys are in the order of their bytes.
    ///
    /// # Errors
    /// The client's, of the first key that is not to be had.
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
        Self::obtain_bound(client, keys, note, options, deadline).await
    }

    /// One after the other, in the order of their bytes, so that two who want the same ones do not
    /// wait for each other in a ring.
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
                    // All or none: an item that was made for a lock goes with its release.
                    let _ = Self::Bound(locks).release().await;
                    return Err(error);
                }
            }
        }
        Ok(Self::Bound(locks))
    }

    /// The keys, in the order of their bytes.
    pub(super) fn keys(&self) -> Vec<&[u8]> {
        match self {
            Self::Leased(lock, _) => lock.keys().collect(),
            Self::Bound(locks) => locks.iter().map(BoundLock::key).collect(),
        }
    }

    /// The numbers of the grants, in the same order.
    pub(super) fn numbers(&self) -> Vec<u64> {
        match self {
            Self::Leased(lock, _) => lock.numbers().to_vec(),
            Self::Bound(locks) => locks
                .iter()
                .map(|lock| lock.number().unwrap_or_default())
                .collect(),
        }
    }

    /// Copies of the connections, for the command to inherit, if it is to.
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

    /// Asks the server whether all are ours; a lease is renewed by that.
    ///
    /// # Errors
    /// The client's. A lock that is lost is told of by [`losses`](Self::losses) as well.
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

    /// What tells of a loss.
    pub(super) fn losses(&self) -> Losses {
        Losses(match self {
            Self::Leased(lock, _) => vec![Box::pin(lock.watch())],
            Self::Bound(locks) => locks
                .iter()
                .map(|lock| Box::pin(lock.watch()) as Pin<Box<dyn Future<Output = Option<Loss>>>>)
                .collect(),
        })
    }

    /// Gives all of them back.
    ///
    /// # Errors
    /// The client's, of the first that was not ours to the end.
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
    /// The first of them. Not to be asked again afterwards.
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
