//! A client: its knowledge, and the sources of it.
//!
//! - B1: a client's beliefs follow from its own requests and their replies. It looks into no core.

use latchd_core::Owner;
use latchd_protocol::command::{
    Acquire, GlobalCommand, ItemCommand, Keys, Lease, LockAfter, Removal, ScanCursor,
};
use latchd_protocol::item::Cas;
use latchd_protocol::stats::StatsTopic;
use latchd_protocol::time::Exptime;

use crate::reply_seen::ReplySeen;
use crate::setup::{CLIENT_KEYS_MAX, Setup};
use crate::snapshot::SHARDS_MAX;

/// A listing from its beginning.
const ALL_KEYS: Keys<'static> = Keys {
    prefix: b"",
    cursor: ScanCursor(0),
};

/// A client, as far as it can know.
#[derive(Clone, Debug, Default)]
pub(crate) struct ModelClient {
    pub(crate) conn: Option<Owner>,
    /// The keys of the locks that it believes it holds.
    pub(crate) holds: [bool; CLIENT_KEYS_MAX],
    /// Those of which it took the lock of the key, and not of the item.
    pub(crate) holds_key: [bool; CLIENT_KEYS_MAX],
    /// When those end by themselves, by its own clock.
    pub(crate) lease_until_ms: [Option<u64>; CLIENT_KEYS_MAX],
    /// The versions that it was told last.
    pub(crate) versions: [Option<Cas>; CLIENT_KEYS_MAX],
    /// In which shards its connection has been announced.
    pub(crate) opened: [bool; SHARDS_MAX],
    /// Its operation on all shards, and the next shard.
    pub(crate) fan_out: Option<(FanOut, usize)>,
}

/// An operation on all shards, one after the other, while other clients go on.
///
/// The shell takes all the shards concerned at once, which allows less than this.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum FanOut {
    Close,
    UnlockAll,
    FlushAll { at: Exptime },
    Keys,
    Stats,
    StatsReset,
}

impl FanOut {
    /// The operation that a request starts; `None` for a part of the keys and for another topic,
    /// which no word asks for.
    pub(crate) const fn of(command: &GlobalCommand<'_>) -> Option<Self> {
        match command {
            GlobalCommand::UnlockAll => Some(Self::UnlockAll),
            GlobalCommand::FlushAll { at } => Some(Self::FlushAll { at: *at }),
            GlobalCommand::Keys(ALL_KEYS) => Some(Self::Keys),
            GlobalCommand::Stats(StatsTopic::General) => Some(Self::Stats),
            GlobalCommand::StatsReset => Some(Self::StatsReset),
            GlobalCommand::Keys(_) | GlobalCommand::Stats(_) => None,
        }
    }

    /// The command to each shard; `None` if it gets the end of the connection.
    pub(crate) const fn command(self) -> Option<GlobalCommand<'static>> {
        Some(match self {
            Self::Close => return None,
            Self::UnlockAll => GlobalCommand::UnlockAll,
            Self::FlushAll { at } => GlobalCommand::FlushAll { at },
            Self::Keys => GlobalCommand::Keys(ALL_KEYS),
            Self::Stats => GlobalCommand::Stats(StatsTopic::General),
            Self::StatsReset => GlobalCommand::StatsReset,
        })
    }
}

impl ModelClient {
    /// Believes a reply, and nothing else.
    pub(crate) fn learn(
        &mut self,
        setup: &Setup,
        now_ms: u64,
        key: usize,
        command: &ItemCommand<'_>,
        answer: &ReplySeen,
    ) {
        if let (ItemCommand::Get(_), ReplySeen::Hit(hit)) = (command, answer)
            && setup.has_versions()
        {
            self.versions[key] = Cas::new(hit.cas);
        }
        let takes = match command {
            ItemCommand::Lock { .. } => *answer == ReplySeen::Locked,
            ItemCommand::Acquire(_) => matches!(answer, ReplySeen::Granted { .. }),
            ItemCommand::Get(get) => get.lock && matches!(answer, ReplySeen::Hit(_)),
            ItemCommand::Set(_)
            | ItemCommand::SetTooLarge { .. }
            | ItemCommand::Delete(_)
            | ItemCommand::Arithmetic(_)
            | ItemCommand::Release(_)
            | ItemCommand::Unlock { .. } => false,
        };
        let gives = match command {
            ItemCommand::Unlock { .. } | ItemCommand::Release(_) => *answer == ReplySeen::Unlocked,
            ItemCommand::Set(set) => {
                set.lock == LockAfter::Release && matches!(answer, ReplySeen::Stored { .. })
            }
            ItemCommand::Delete(delete) => {
                let ends = delete.removal == Removal::Remove && !self.holds_key[key];
                (ends || delete.lock == LockAfter::Release) && *answer == ReplySeen::Deleted
            }
            ItemCommand::Arithmetic(sum) => {
                sum.lock == LockAfter::Release && matches!(answer, ReplySeen::Number { .. })
            }
            // The holder of an item's lock knows that the item is gone, and the lock with it.
            ItemCommand::SetTooLarge { .. } => !self.holds_key[key],
            ItemCommand::Get(_) | ItemCommand::Acquire(_) | ItemCommand::Lock { .. } => false,
        };
        if takes {
            self.lease_until_ms[key] = if let ItemCommand::Acquire(Acquire {
                lease: Some(Lease::For { ms }),
                ..
            }) = command
            {
                Some(now_ms + ms)
            } else {
                None
            };
            self.holds_key[key] = matches!(command, ItemCommand::Acquire(_));
        }
        self.holds[key] = takes || (self.holds[key] && !gives);
        self.holds_key[key] &= self.holds[key];
    }
}
