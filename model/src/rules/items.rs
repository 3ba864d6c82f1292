//! Reading and changing an item: the item found, the check of a guard, the new version, and the
//! state afterwards.

use latchd_harness::alphabet::RequestKind;
use latchd_protocol::command::{Guard, ItemCommand, NewCas, SetMode, TtlStep};
use latchd_protocol::item::Cas;
use latchd_protocol::reply::Refusal;

use super::{Change, Changing, all_keys};
use crate::expected::{self, Expected};
use crate::frame::Judged;
use crate::invariants::Witness;
use crate::reply_seen::ReplySeen;
use crate::setup::VALUE_BYTES;
use crate::snapshot::{Seen, described};

impl Change<'_> {
    /// E7 and T1: a read finds the present item, and none that has expired.
    pub(super) fn reads(&mut self) -> Judged {
        let Some((conn, key, ItemCommand::Get(get), answer)) = self.asked() else {
            return Ok(());
        };
        if get.lock {
            return Ok(());
        }
        let touches = get
            .steps
            .iter()
            .any(|step| matches!(step, TtlStep::Touch(_)));
        let item = self.before.items[key];
        let known = get.known_cas.map(Cas::number);
        let is_right = match (item, answer) {
            (Some(seen), ReplySeen::Hit(hit)) => {
                hit.cas == seen.cas
                    && hit.value_bytes == seen.value.1
                    && hit.stale == seen.stale
                    && hit.unchanged == (known == Some(seen.cas))
            }
            (Some(_), _) => false,
            (None, ReplySeen::Hit(hit)) => {
                let is_others = self.is_held_by_another(conn, key);
                get.steps.vivifies() && !hit.unchanged && !is_others
            }
            (None, ReplySeen::Refused(Refusal::OutOfMemory)) => get.steps.vivifies(),
            // It is the holder's of the key to make.
            (None, answer) => {
                let is_others = self.is_held_by_another(conn, key);
                answer == ReplySeen::Miss && (!get.steps.vivifies() || is_others)
            }
        };
        if item.is_some() && self.is_held_by_another(conn, key) {
            self.witnessed.add(if touches {
                Witness::TouchHeld
            } else {
                Witness::ReadHeld
            });
        }
        demand!(ReadsAreFree, is_right, "{answer:?} of {}", described(item))
    }

    /// E7, for a listing of one shard.
    pub(super) fn lists(&mut self) -> Judged {
        let Some(ReplySeen::Listed { keys, is_last }) = self.answer else {
            return Ok(());
        };
        let there = |key: &usize| self.before.items[*key].is_some();
        let due = all_keys()
            .filter(there)
            .fold(0_u8, |due, key| due | 1 << key);
        let is_held = |key: usize| self.before.items[key].is_some_and(|seen| seen.locked);
        if all_keys().any(is_held) {
            self.witnessed.add(Witness::ListHeld);
        }
        let is_right = if is_last {
            keys == due
        } else {
            keys & !due == 0
        };
        demand!(
            ReadsAreFree,
            is_right,
            "{keys:#b} are listed, and {due:#b} are there"
        )
    }

    /// E8.
    pub(super) fn modes(&mut self) -> Judged {
        let Some((conn, key, command, answer)) = self.asked() else {
            return Ok(());
        };
        let item = self.before.items[key];
        if !self.may_change(conn, key, command) {
            // The holder's lock decides (L6, G1).
            return Ok(());
        }
        let is_there = item.is_some();
        // Whether it may happen, and how it is refused if it may not.
        let (may_be, refusal) = match command {
            ItemCommand::Set(set) => match (set.mode, set.guard) {
                (SetMode::Set, Guard::None) => (true, ReplySeen::NotStored),
                (SetMode::Set, _) => (is_there, ReplySeen::NotFound),
                (SetMode::Replace, guard) if guard != Guard::None => {
                    (is_there, ReplySeen::NotFound)
                }
                (SetMode::Replace, _) => (is_there, ReplySeen::NotStored),
                (SetMode::Add, _) => (!is_there, ReplySeen::NotStored),
                (SetMode::Append { .. } | SetMode::Prepend { .. }, _) => {
                    (is_there || set.mode.creates(), ReplySeen::NotStored)
                }
            },
            ItemCommand::Delete(_) => (is_there, ReplySeen::NotFound),
            ItemCommand::Arithmetic(sum) => (is_there || sum.steps.vivifies(), ReplySeen::NotFound),
            ItemCommand::Get(_)
            | ItemCommand::SetTooLarge { .. }
            | ItemCommand::Acquire(_)
            | ItemCommand::Release(_)
            | ItemCommand::Lock { .. }
            | ItemCommand::Unlock { .. } => return Ok(()),
        };
        // A value that would be too long is refused like a forbidden one.
        let is_too_long = matches!(command, ItemCommand::Set(set) if set.value.len() > VALUE_BYTES);
        let is_refused = answer == refusal;
        let is_right = if may_be {
            !is_refused || is_too_long
        } else {
            is_refused
        };
        let kind = RequestKind::of_item_command(command).name();
        demand!(Modes, is_right, "{answer:?} to {kind}: {}", described(item))?;
        if !may_be {
            self.witnessed.add(if is_there {
                Witness::NotAbsent
            } else {
                Witness::NotPresent
            });
        }
        Ok(())
    }

    /// E5.
    pub(super) fn guards(&mut self) -> Judged {
        let Some((conn, key, command, answer)) = self.asked() else {
            return Ok(());
        };
        let Some(Changing { guard, makes, .. }) = Changing::of(command) else {
            return Ok(());
        };
        if !self.may_change(conn, key, command) {
            // A fence that is over is answered as a version that is (G1).
            return Ok(());
        }
        let is_done = answer.is_change();
        let is_wrong_version = answer == ReplySeen::Exists;
        let Some(seen) = self.before.items[key] else {
            // A new item has no version to compare with (docs/PROTOCOL.md, "ms", "ma").
            let is_right = guard == Guard::None || makes || !is_done;
            return demand!(Guards, is_right, "{answer:?} of a version of nothing");
        };
        let fits = match guard {
            Guard::None => return Ok(()),
            Guard::Match(cas) => cas.number() == seen.cas,
            Guard::MatchElseStale(cas) => cas.number() <= seen.cas,
            Guard::Never => false,
        };
        if is_done && matches!(guard, Guard::Match(_)) {
            self.witnessed.add(Witness::CasMatches);
        }
        if is_wrong_version {
            self.witnessed.add(match guard {
                Guard::MatchElseStale(_) => Witness::StaleRefused,
                Guard::None | Guard::Match(_) | Guard::Never => Witness::CasDiffers,
            });
            if self.owner(key) == Some(conn) {
                self.witnessed.add(Witness::CasKeepsLock);
            }
        }
        demand!(
            Guards,
            if fits { !is_wrong_version } else { !is_done },
            "{answer:?} to {guard:?}: {}",
            described(Some(seen))
        )
    }

    /// E3.
    pub(super) fn versions(&mut self) -> Judged {
        let chosen = self.asked().and_then(|(_, key, command, _)| {
            let changing = Changing::of(command);
            let new_cas = if let ItemCommand::Get(get) = command {
                get.new_cas
            } else {
                changing.map_or(NewCas::Next, |it| it.new_cas)
            };
            match new_cas {
                NewCas::Next => None,
                NewCas::Is(cas) => Some((key, cas.number())),
            }
        });
        for key in all_keys() {
            let Some(item) = self.after.items[key] else {
                continue;
            };
            let old = self.before.items[key].map(|old| old.cas);
            if old == Some(item.cas) {
                continue;
            }
            if chosen == Some((key, item.cas)) {
                self.witnessed.add(Witness::ChosenVersion);
                continue;
            }
            if old.is_some_and(|old| old > item.cas) {
                self.witnessed.add(Witness::VersionAfterChosen);
            }
            if old.is_some() {
                self.witnessed.add(Witness::NewVersion);
            }
            let shard = self.setup.shard_of(key);
            let given = self.given[shard];
            demand!(
                VersionsGrow,
                item.cas > given,
                "{} is given after {given}",
                item.cas
            )?;
            // Each of several shards has numbers of its own.
            let shards = self.setup.shards as u64;
            demand!(
                VersionsGrow,
                (item.cas - 1) % shards == shard as u64,
                "{} is a number of another shard",
                item.cas
            )?;
            self.given[shard] = item.cas;
        }
        for shard in 0..self.setup.shards {
            let (before, after) = (self.before.next_cas[shard], self.after.next_cas[shard]);
            let given = self.given[shard];
            demand!(
                VersionsGrow,
                after > given,
                "{after} comes next, and {given} was given"
            )?;
            demand!(
                VersionsGrow,
                after >= before,
                "{after} comes after {before}"
            )?;
        }
        Ok(())
    }

    /// E6, for the number in the answer.
    pub(super) fn counts(&self) -> Judged {
        let Some((_, key, ItemCommand::Arithmetic(sum), ReplySeen::Number { value, .. })) =
            self.asked()
        else {
            return Ok(());
        };
        let due = expected::counted(sum, self.before.items[key]);
        demand!(
            DoneIsDone,
            due == Some(value),
            "{value} is told, and {due:?} is due"
        )
    }

    /// E6, R3, R4: if the answer says that a change was done, the item has it.
    pub(super) fn done_is_done(&mut self) -> Judged {
        let Some((conn, key, command, answer)) = self.asked() else {
            return Ok(());
        };
        let before = self.before.items[key];
        let request = expected::Answered {
            command,
            answer,
            is_others: self.is_held_by_another(conn, key),
            now_ms: self.now_ms,
            next_cas: self.before.next_cas[self.setup.shard_of(key)],
        };
        let Some(Expected {
            item,
            ghost,
            invariant,
            witness,
        }) = request.outcome(before, self.ghosts[key])
        else {
            return Ok(());
        };
        self.ghosts[key] = ghost;
        if let Some(witness) = witness {
            self.witnessed.add(witness);
        }
        let after = self.after.items[key];
        // Which connection holds it then is a rule of its own (L12).
        let locked = self.after.locks[key].is_some();
        let item = item.map(|item| Seen { locked, ..item });
        demand!(@invariant,
            after.map(Seen::told) == item.map(Seen::told),
            "{answer:?}: {} is due, and {} is there",
            described(item),
            described(after)
        )
    }
}
