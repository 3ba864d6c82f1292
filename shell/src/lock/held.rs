//! The lock of a command, of one key or several.

use std::num::NonZeroU32;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use latchd_client::{Client, Error, Lock, LockOptions, Loss, Lost};

use super::LockArgs;

/// The longest wait for a server's reply with `-n`.
const NONBLOCK: Duration = Duration::from_secs(1);

/// The shortest `--ttl` whose lock shows an item: items end by whole seconds.
const ITEM_TTL_MIN: Duration = Duration::from_secs(1);

/// A held lock.
pub(super) struct Held {
    pub(super) lock: Lock,
    /// The ttl of each renewal, of a lock with `--ttl`.
    ttl: Option<Duration>,
}

impl Held {
    /// Acquires all keys or none, within `wait`. The keys must be in byte order.
    ///
    /// # Errors
    /// The client's, for the first key whose lock is not acquired.
    pub(super) async fn obtain(
        args: &LockArgs,
        keys: &[Vec<u8>],
        client: &Client,
        wait: Option<Duration>,
    ) -> Result<Self, Error> {
        let options = options(args);
        let lock = if args.nonblock {
            client
                .try_lock_many(keys, &options.deadline(NONBLOCK))
                .await
        } else if let Some(wait) = wait {
            client.lock_many(keys, &options.deadline(wait)).await
        } else {
            client.lock_many(keys, &options).await
        };
        Ok(Self {
            lock: lock?,
            ttl: args.ttl,
        })
    }

    /// A copy of the connection for the command to inherit, if `is_wanted`.
    ///
    /// # Errors
    /// The client's.
    pub(super) async fn inheritable(&self, is_wanted: bool) -> Result<Option<OwnedFd>, Error> {
        if is_wanted {
            self.lock.inheritable().await.map(Some)
        } else {
            Ok(None)
        }
    }

    /// Asks the server whether the lock is still held. This renews the ttl.
    ///
    /// # Errors
    /// The client's. [`Lock::lost`] reports a lost lock as well.
    pub(super) async fn check(&self) -> Result<(), Error> {
        match self.ttl {
            Some(ttl) => self.lock.refresh(ttl).await,
            None => self.lock.check().await,
        }
    }
}

/// The loss of a lock that is not released while this is called.
pub(super) async fn loss(lost: &mut Lost) -> Loss {
    lost.await.unwrap_or(Loss::Expired)
}

fn options(args: &LockArgs) -> LockOptions {
    let survive = args
        .session
        .map(|seconds| Duration::from_secs(seconds.into()));
    let survive = survive.or(args.ttl).unwrap_or_default();
    let mut options = LockOptions::new().survive(survive);
    if args.ttl.is_some_and(|ttl| ttl >= ITEM_TTL_MIN) {
        options = options.with_item();
    }
    if args.shared {
        options = options.shared();
    }
    if let Some(permits) = args.permits.and_then(NonZeroU32::new) {
        options = options.permits(permits);
    }
    if let Some(text) = &args.metadata {
        options = options.metadata(text.as_bytes());
    }
    if args.inherit {
        options = options.inheritable();
    }
    options
}
