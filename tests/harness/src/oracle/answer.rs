//! An answer as it is compared: the reply of the core without the parts that only its store knows.

use std::collections::BTreeSet;
use std::sync::Arc;

use latchd_protocol::key::KeyForm;
use latchd_protocol::reply::{Hit, LockInfo, Refusal, Reply, TtlTrace};
use latchd_protocol::stats::Stats;

use super::counters::comparable;
use super::locks::Metadata;

/// The answer to a request.
#[derive(Clone, Debug, Eq, PartialEq)]
#[allow(missing_docs)] // As `Reply` has them.
pub enum OwnedReply {
    Hit(Seen),
    Miss,
    Stored {
        cas: u64,
        size: usize,
    },
    NotStored,
    Exists,
    NotFound,
    Deleted,
    Number {
        value: u64,
        cas: u64,
        ttls: Vec<Option<u64>>,
    },
    Locked,
    Granted {
        fence: u64,
        item: Option<Seen>,
    },
    Contended(SeenLock),
    WouldDeadlock(SeenLock),
    Withheld {
        waiting: usize,
    },
    Waits,
    Unlocked,
    Ok,
    Keys(BTreeSet<Vec<u8>>),
    /// Those that are comparable.
    Stats(Box<Stats>),
    Refused(Refusal),
}

/// The parts of an item that a get shows.
#[derive(Clone, Debug, Eq, PartialEq)]
#[allow(missing_docs)] // As `Hit` has them.
pub struct Seen {
    pub key: Vec<u8>,
    pub key_form: KeyForm,
    pub value: Vec<u8>,
    pub cas: u64,
    pub client_flags: u32,
    /// Before the first step, after it, and so on: one more than there are steps.
    pub ttls: Vec<Option<u64>>,
    pub last_access_s: u64,
    pub fetched: bool,
    pub stale: bool,
    pub win: Win,
    pub unchanged: bool,
    pub lock: Option<SeenLock>,
}

/// A lock as other connections see it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SeenLock {
    /// Everything but its metadata.
    pub lock: LockInfo<'static>,
    /// Its metadata, if it is shown and there is some.
    pub metadata: Metadata,
}

impl SeenLock {
    fn of(seen: &LockInfo<'_>) -> Self {
        Self {
            lock: LockInfo {
                metadata: None,
                ..*seen
            },
            metadata: seen.metadata.map(Arc::from),
        }
    }
}

impl Seen {
    fn of(hit: &Hit<'_>, ttls: Vec<Option<u64>>) -> Self {
        Self {
            key: hit.key.to_vec(),
            key_form: hit.key_form,
            value: hit.value.to_vec(),
            cas: hit.cas.number(),
            client_flags: hit.client_flags,
            ttls,
            last_access_s: hit.last_access_s.into(),
            fetched: hit.fetched,
            stale: hit.stale,
            win: hit.win,
            unchanged: hit.unchanged,
            lock: hit.lock.as_ref().map(SeenLock::of),
        }
    }
}

pub use latchd_protocol::reply::Win;

impl OwnedReply {
    /// The answer in a reply of the core to a request with so many
    /// [steps](latchd_protocol::command::TtlSteps). For a page of keys, it is that page.
    #[must_use]
    pub fn of(reply: &Reply<'_>, steps: usize) -> Self {
        let ttls = |trace: &TtlTrace| {
            (0..=steps)
                .map(|taken| trace.after(taken).map(u64::from))
                .collect()
        };
        match reply {
            Reply::Hit(hit) => Self::Hit(Seen::of(hit, ttls(&hit.ttl))),
            Reply::Granted(granted) => Self::Granted {
                fence: granted.fence.number(),
                item: granted.item.map(|hit| Seen::of(&hit, ttls(&hit.ttl))),
            },
            Reply::Contended(lock) => Self::Contended(SeenLock::of(lock)),
            Reply::WouldDeadlock(lock) => Self::WouldDeadlock(SeenLock::of(lock)),
            Reply::Withheld { waiting } => Self::Withheld { waiting: *waiting },
            Reply::Waits => Self::Waits,
            Reply::Miss => Self::Miss,
            Reply::Stored(stored) => Self::Stored {
                cas: stored.cas.number(),
                size: stored.size,
            },
            Reply::NotStored => Self::NotStored,
            Reply::Exists => Self::Exists,
            Reply::NotFound => Self::NotFound,
            Reply::Deleted => Self::Deleted,
            Reply::Number(number) => Self::Number {
                value: number.value,
                cas: number.cas.number(),
                ttls: ttls(&number.ttl),
            },
            Reply::Locked => Self::Locked,
            Reply::Unlocked => Self::Unlocked,
            Reply::Ok => Self::Ok,
            Reply::Keys(page) => {
                Self::Keys(page.items.iter().map(|item| item.key.to_vec()).collect())
            }
            Reply::Stats(report) => Self::Stats(Box::new(comparable(report.stats))),
            Reply::Refused(refusal) => Self::Refused(*refusal),
            Reply::KeyOf(_) => panic!("a core has all keys"),
        }
    }
}
