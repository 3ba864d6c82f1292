//! The content of a reply, in a form that outlives the borrow of the core.

use latchd_core::Owner;
use latchd_protocol::reply::{Hit, Number, Refusal, Reply, Stored, Win};

use crate::action::KEYS;

/// A [`Reply`], as far as the rules look at it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ReplySeen {
    Hit(HitSeen),
    Miss,
    Stored {
        cas: u64,
    },
    NotStored,
    Exists,
    NotFound,
    Deleted,
    Number {
        value: u64,
        cas: u64,
    },
    Locked,
    Granted {
        fence: u64,
        /// The version of the item.
        item: Option<u64>,
    },
    Contended {
        holder: Owner,
    },
    Unlocked,
    Ok,
    /// A page of keys.
    Listed {
        /// Which of `KEYS` are on it, a bit each.
        keys: u8,
        is_last: bool,
    },
    /// It tells about the server.
    Report,
    Refused(Refusal),
}

/// A [`Hit`], as far as the rules look at it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct HitSeen {
    pub(crate) cas: u64,
    pub(crate) value_bytes: usize,
    pub(crate) stale: bool,
    pub(crate) win: Win,
    /// It is the version that the client said it has.
    pub(crate) unchanged: bool,
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
            Reply::Withheld { .. } => panic!("the model withholds no grant"),
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
            Reply::KeyOf(_) => panic!("a core has all keys"),
        }
    }
}

impl ReplySeen {
    /// Whether it says that nothing was done. A value that is too large is an exception: the item
    /// that it was to replace is removed.
    pub(crate) const fn is_refusal(&self) -> bool {
        let is_answer = matches!(self, Self::Hit(_) | Self::Granted { .. } | Self::Locked);
        let is_done = matches!(
            self,
            Self::Unlocked | Self::Ok | Self::Listed { .. } | Self::Report
        );
        let is_too_large = matches!(self, Self::Refused(Refusal::TooLarge));
        !(is_answer || is_done || self.is_change() || is_too_large)
    }

    /// Whether it says that an item was changed.
    pub(crate) const fn is_change(&self) -> bool {
        matches!(
            self,
            Self::Stored { .. } | Self::Deleted | Self::Number { .. }
        )
    }
}

/// The bit of a key; an unused one for a key that no client stores.
fn bit(name: &[u8]) -> u8 {
    let place = KEYS.iter().position(|known| *known == name);
    1 << place.unwrap_or(KEYS.len())
}
