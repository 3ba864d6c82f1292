//! What a reply tells, in a form that outlives the borrow of the core.

use latchd_core::ConnId;
use latchd_core::reply::{Hit, Number, Refusal, Reply, Stored, Win};

use crate::action::KEYS;

/// A [`Reply`], as far as the rules look at it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ReplySeen {
    /// A get found, or made, an item.
    Hit(HitSeen),
    /// A get found none.
    Miss,
    /// A set stored.
    Stored {
        /// The version it got.
        cas: u64,
    },
    /// A set's mode did not allow it.
    NotStored,
    /// The item has another version.
    Exists,
    /// There is no item.
    NotFound,
    /// A delete did what it was to do.
    Deleted,
    /// A number was counted, or made.
    Number {
        /// What it is now.
        value: u64,
        /// The version it got.
        cas: u64,
    },
    /// A lock was taken.
    Locked,
    /// A lock was taken, and the item looked at if there is one.
    Granted {
        /// The number of the grant.
        fence: u64,
        /// The version of the item.
        item: Option<u64>,
    },
    /// Somebody holds the lock.
    Contended {
        /// Who.
        holder: ConnId,
    },
    /// Locks were given back.
    Unlocked,
    /// It was done.
    Ok,
    /// A page of keys.
    Listed {
        /// Which of `KEYS` are on it, a bit each.
        keys: u8,
        /// There is no other page.
        is_last: bool,
    },
    /// It tells about the server.
    Report,
    /// It was refused.
    Refused(Refusal),
}

/// A [`Hit`], as far as the rules look at it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct HitSeen {
    /// Its version.
    pub cas: u64,
    /// The length of its value.
    pub value_bytes: usize,
    /// It is out of date.
    pub stale: bool,
    /// What the get learns of the win.
    pub win: Win,
    /// It is the version that the client said it has.
    pub unchanged: bool,
}

impl From<&Reply<'_>> for ReplySeen {
    fn from(reply: &Reply<'_>) -> Self {
        match reply {
            Reply::Hit(Hit {
                cas,
                value,
                stale,
                win,
                unchanged,
                ..
            }) => Self::Hit(HitSeen {
                cas: cas.number(),
                value_bytes: value.len(),
                stale: *stale,
                win: *win,
                unchanged: *unchanged,
            }),
            Reply::Miss => Self::Miss,
            Reply::Stored(Stored { cas, .. }) => Self::Stored { cas: cas.number() },
            Reply::NotStored => Self::NotStored,
            Reply::Exists => Self::Exists,
            Reply::NotFound => Self::NotFound,
            Reply::Deleted => Self::Deleted,
            Reply::Number(Number { value, cas, .. }) => Self::Number {
                value: *value,
                cas: cas.number(),
            },
            Reply::Locked => Self::Locked,
            Reply::Granted(granted) => Self::Granted {
                fence: granted.fence.number(),
                item: granted.item.map(|hit| hit.cas.number()),
            },
            Reply::Contended(lock) => Self::Contended {
                holder: lock.holder,
            },
            Reply::WouldDeadlock(_) | Reply::Waits => panic!("no request of the alphabet waits"),
            Reply::Unlocked => Self::Unlocked,
            Reply::Ok => Self::Ok,
            Reply::Keys(page) => Self::Listed {
                keys: page
                    .items
                    .iter()
                    .fold(0, |listed, item| listed | bit(item.key)),
                is_last: page.next.is_none(),
            },
            Reply::Stats(_) => Self::Report,
            Reply::Refused(refusal) => Self::Refused(*refusal),
        }
    }
}

impl ReplySeen {
    /// Whether it says that nothing was done. A value that is too large is an exception: what it
    /// was to replace goes.
    #[must_use]
    pub(crate) const fn is_refusal(&self) -> bool {
        match self {
            Self::Miss
            | Self::NotStored
            | Self::Exists
            | Self::NotFound
            | Self::Contended { .. }
            | Self::Refused(
                Refusal::Locked
                | Refusal::NotLocked
                | Refusal::NotLockedNotFound
                | Refusal::TooManyLocks
                | Refusal::ConnectionClosed
                | Refusal::OutOfMemory
                | Refusal::NonNumeric,
            ) => true,
            Self::Hit(_)
            | Self::Granted { .. }
            | Self::Stored { .. }
            | Self::Deleted
            | Self::Number { .. }
            | Self::Locked
            | Self::Unlocked
            | Self::Ok
            | Self::Listed { .. }
            | Self::Report
            | Self::Refused(Refusal::TooLarge) => false,
        }
    }
}

/// The bit of a key; one that nobody has for a key that nobody stores.
fn bit(name: &[u8]) -> u8 {
    let place = KEYS.iter().position(|known| *known == name);
    1 << place.unwrap_or(KEYS.len())
}
