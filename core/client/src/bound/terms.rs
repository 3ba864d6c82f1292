//! The terms of a connection-bound lock, and an item as its holder reads it.

use alloc::boxed::Box;
use core::time::Duration;

#[cfg(doc)]
use crate::NotObtained;
use crate::attachment::SessionTerms;
use crate::retry::Retry;
use crate::terms::{Terms, place_ttl};
use latchd_protocol::command::{LEASE_MS_MIN, Mode};
use latchd_protocol::item::Cas;
use latchd_protocol::time::Exptime;

/// The terms of a connection-bound lock: how to request and keep it.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub struct BoundTerms {
    /// When to try again while another client holds it. A server with queues is not asked again: the wait there
    /// is as long as the tries and their pauses could take at most ([`Retry::span`]).
    pub retry: Retry,
    /// How long to go on trying, or to wait; `None` means as long as the strategy does. At the deadline there
    /// is a last try.
    pub deadline: Option<Duration>,
    /// The action for a missing item.
    pub missing: MissingItem,
    /// The mark that the grant leaves in the item.
    pub mark: Mark,
    /// How long the connection may be silent before it is checked; `None` means forever.
    pub heartbeat: Option<Duration>,
    /// How long the server may take to answer before the connection counts as broken.
    pub reply_timeout: Duration,
    /// How long it lasts without a renewal; `None` means as long as its connection. Servers that lock only
    /// items do not support it.
    pub lease: Option<LeaseTerms>,
    /// Whether others may hold it at the same time. A shared lock does not change the item. Servers that lock
    /// only items do not support it.
    pub mode: Mode,
    /// The lock is only the place of a leased lock at the head of the queue. It carries no belief about time,
    /// so after a wait it is not renewed first.
    pub is_place: bool,
    /// The session that has the lock; `None` means its connection. Not together with a [`lease`](Self::lease). The server
    /// needs sessions.
    pub session: Option<SessionTerms>,
    /// The seed of the jitter: any number that differs between clients.
    pub seed: u64,
}

impl BoundTerms {
    /// Waits until `deadline` for the key's lock, which is the place of a lease on these terms.
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
            session: None,
            seed: 0,
        }
    }
}

/// The time of a lock that ends with its connection, or earlier by time.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct LeaseTerms {
    /// The length of the obtain and of each renewal; at least [`SHORT_TTL_MIN`].
    pub ttl: Duration,
    /// Whether it is renewed at a third of its ttl.
    pub watchdog: bool,
    /// The longest time it may be held, however often it is renewed; `None` means no limit.
    pub hold_max: Option<Duration>,
}

/// The shortest ttl of a connection-bound lock that latchd can measure.
pub const SHORT_TTL_MIN: Duration = Duration::from_millis(LEASE_MS_MIN);

/// The action if the item to lock is missing.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum MissingItem {
    /// Nothing: [`NotObtained::NoItem`].
    #[default]
    Refuse,
    /// Lock the key all the same; where only items can be locked, make an empty one with this exptime.
    Create(Exptime),
}

/// The mark that a grant leaves in the item.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub enum Mark {
    /// No mark. It has a number only if the server numbers grants.
    #[default]
    None,
    /// A number: a later grant has a higher one. If the server does not number grants, the item gets a new
    /// version, which is the number; its value stays.
    Number,
    /// As [`Number`](Self::Number), and this value, if the item exists for the lock alone. If it has a value of
    /// its own, the obtain fails: [`NotObtained::HasValue`].
    Note(Box<[u8]>, Exptime),
}

/// The lock commands of the server behind a connection, as known from its answers.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum LockSupport {
    /// Unknown.
    #[default]
    Unknown,
    /// `ml`, with a wait.
    Waits,
    /// `ml`, without one.
    Asks,
    /// `lock`, or none.
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
