//! When a log must have room: N7 and N8 of the stores, for a core.
//!
//! The content of a log depends on how records lie in segments. A log always keeps some memory
//! free. Its lists and its index may grow. The largest item, and one request's growth of the tables
//! of locks and waits, need room. While more than all that of the limit is unallocated, the log
//! evicts nothing and refuses nothing except locks that would pin too much. Here they may pin
//! all keys that they can hold. The oracle accepts how far the search for deadlocks goes, if the
//! setting allows a shorter one than a server ships with.

use latchd_core::Limits;
use latchd_core::store::Store;
use latchd_protocol::command::{Command, ItemCommand};

use super::{Lockstep, Room};
use crate::alphabet::{Input, KEYS};
use crate::stores::SEGMENTS_IDLE_MAX;

/// The bytes that must be idle for the tables of locks, waits and wins besides the segments. A wait
/// adds the most to them, 1,350 and more; but the segments are more than a log needs.
const TABLES_IDLE_MAX: usize = 1024;

impl<S: Store> Lockstep<S> {
    /// Whether items stand in segments, and there is room for any next request.
    pub(super) fn has_idle(&self) -> bool {
        let Room::BySegment { segment_bytes } = self.room else {
            return false;
        };
        let (store, limits) = (self.core.store(), self.core.limits());
        let item_bytes = KEYS
            .iter()
            .map(|key| store.bytes_for(key.len(), limits.value_bytes_max))
            .max()
            .unwrap_or(0);
        let idle = limits
            .memory_bytes_max
            .saturating_sub(store.usage().held_bytes);
        self.bytes_max <= limits.memory_bytes_max
            && KEYS.len() * item_bytes <= limits.locked_bytes_max
            && idle >= SEGMENTS_IDLE_MAX * segment_bytes + item_bytes + TABLES_IDLE_MAX
    }

    /// Whether a refusal may be for a search that goes too far: a wait for a lock with holders that
    /// wait themselves, if the setting allows a shorter search than a server ships with. That is
    /// far enough for the few clients here.
    pub(super) fn may_be_too_long(&self, input: &Input<'_>) -> bool {
        let is_short = self.core.limits().wait_chain_max < Limits::default().wait_chain_max;
        match input.command() {
            Some(Command::Item(ItemCommand::Acquire(acquire))) => {
                is_short && self.oracle.leads_on(acquire.key.as_bytes())
            }
            _ => false,
        }
    }
}

/// Whether a request may be refused for want of room: it stores, makes a lock pin an item, or needs a place in the tables.
pub(super) fn needs_room(input: &Input<'_>) -> bool {
    match input {
        Input::Command(_, command) => match command {
            Command::Item(ItemCommand::Get(get)) => {
                let may_win = get.recaches && (get.bound_to_owner || get.wait_ms > 0);
                get.lock || may_win || get.steps.vivifies()
            }
            Command::Item(
                ItemCommand::Set(_)
                | ItemCommand::Delete(_)
                | ItemCommand::Arithmetic(_)
                | ItemCommand::Acquire(_)
                | ItemCommand::Lock { .. },
            ) => true,
            Command::Item(
                ItemCommand::SetTooLarge { .. }
                | ItemCommand::Release(_)
                | ItemCommand::Unlock { .. },
            )
            | Command::Global(_) => false,
        },
        Input::Event(_) | Input::Memory { .. } => false,
    }
}
