//! A client: its knowledge, and the sources of it.
//!
//! - B1: a client's beliefs follow from its own requests and their replies. It looks into no core.

use latchd_core::Owner;
use latchd_protocol::command::{Acquire, ItemCommand, Lease, LockAfter, Removal};
use latchd_protocol::item::Cas;

use crate::reply_seen::ReplySeen;
use crate::setup::{CLIENT_KEYS_MAX, Setup};

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
                // The rules add a millisecond.
                Some(now_ms + ms + 1)
            } else {
                None
            };
            self.holds_key[key] = matches!(command, ItemCommand::Acquire(_));
        }
        self.holds[key] = takes || (self.holds[key] && !gives);
        self.holds_key[key] &= self.holds[key];
    }
}
