//! How a connection-bound lock is asked for, and what an item looks like under it.

use alloc::boxed::Box;
use core::time::Duration;

#[cfg(doc)]
use crate::client::NotObtained;
use crate::client::retry::Retry;
use crate::client::terms::{Terms, place_ttl};
use crate::command::{LEASE_MS_MIN, Mode};
use crate::item::Cas;
use crate::time::Exptime;

/// How a connection-bound lock is asked for, and kept.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub struct BoundTerms {
    /// When to try again while somebody else holds it. A server that lets wait is not asked again: it
    /// is waited for as long as the tries and their pauses would take at most ([`Retry::span`]).
    pub retry: Retry,
    /// How long to go on trying, or to wait; `None` is as long as the strategy does. At the deadline there
    /// is a last try.
    pub deadline: Option<Duration>,
    /// What to do when there is no item.
    pub missing: MissingItem,
    /// What the grant leaves in the item.
    pub mark: Mark,
    /// How long the connection may be silent before it is tried; `None` is for ever.
    pub heartbeat: Option<Duration>,
    /// How long the server may take to answer before the connection counts as broken.
    pub reply_timeout: Duration,
    /// How long it lasts that nobody renews it; `None` is as long as its connection. Where only items can be
    /// locked it is not to be had.
    pub lease: Option<LeaseTerms>,
    /// Who else may hold it at the same time. A shared one leaves nothing in the item and changes nothing of it;
    /// where only items can be locked it is not to be had.
    pub mode: Mode,
    /// The lock is only the place of a leased lock before those who wait. Nothing is believed of its time, so a lock
    /// that was waited for is not renewed first.
    pub is_place: bool,
    /// What jitter is drawn from: any number that differs between clients.
    pub seed: u64,
}

impl BoundTerms {
    /// To wait until `deadline` for the key's lock, of which a lease on these terms makes its place.
    #[must_use]
    pub fn of_place(terms: &Terms, deadline: Duration) -> Self {
        Self {
            retry: terms.retry,
            deadline: Some(deadline),
            missing: MissingItem::Create(Exptime::Never),
            heartbeat: None,
            reply_timeout: terms.reply_timeout,
            lease: Some(LeaseTerms {
                ttl: place_ttl(terms.ttl),
                watchdog: false,
                hold_max: None,
            }),
            is_place: true,
            seed: terms.seed,
            ..Self::default()
        }
    }
}

impl Default for BoundTerms {
    fn default() -> Self {
        Self {
            retry: Retry::none(),
            deadline: None,
            missing: MissingItem::Refuse,
            mark: Mark::None,
            heartbeat: Some(Duration::from_secs(5)),
            reply_timeout: Duration::from_secs(5),
            lease: None,
            mode: Mode::Exclusive,
            is_place: false,
            seed: 0,
        }
    }
}

/// How long a lock lasts that ends with its connection, or by time if that is earlier.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct LeaseTerms {
    /// How long the obtain and each renewal holds; at least [`SHORT_TTL_MIN`].
    pub ttl: Duration,
    /// Whether it is renewed at a third of its ttl.
    pub watchdog: bool,
    /// How long it may be held at all, whoever renews it; `None` is for ever.
    pub hold_max: Option<Duration>,
}

/// The shortest ttl of a lock that ends with its connection: what latchd can measure.
pub const SHORT_TTL_MIN: Duration = Duration::from_millis(LEASE_MS_MIN);

/// What to do when there is no item to lock.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum MissingItem {
    /// Nothing: [`NotObtained::NoItem`].
    #[default]
    Refuse,
    /// Lock the key all the same; where only items can be locked, make an empty one with this exptime.
    Create(Exptime),
}

/// What a grant leaves in the item.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub enum Mark {
    /// Nothing. It has a number only where the server numbers grants.
    #[default]
    None,
    /// It has a number: a later grant's is higher. Where the server does not number grants, that is a new
    /// version, which the item is given; its value stays.
    Number,
    /// As [`Number`](Self::Number), and this value, if the item is there for the lock alone. If it has a
    /// value of its own, the lock is not had: [`NotObtained::HasValue`].
    Note(Box<[u8]>, Exptime),
}

/// In which words the server behind a connection takes locks, as its answers have told.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum LockWords {
    /// It has not been asked.
    #[default]
    Unknown,
    /// `ml`, with a wait.
    Waits,
    /// `ml`, without one.
    Asks,
    /// `lock`, if any.
    Classic,
}

/// An item as its lock's holder reads it.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Item {
    /// Its value.
    pub value: Box<[u8]>,
    /// Its version.
    pub cas: Option<Cas>,
    /// The client's own number.
    pub client_flags: u32,
}
