//! The changes: set, delete and arithmetic.

use latchd_core::Owner;
use latchd_protocol::command::{
    Arithmetic, Delete, Direction, Guard, NewCas, OnMissing, Removal, Set, SetMode,
};
use latchd_protocol::item::LEASE_ITEM;
use latchd_protocol::reply::Refusal;
use latchd_protocol::time::Exptime;

use super::{Item, Oracle, OwnedReply};

impl Oracle {
    pub(super) fn set(&mut self, conn: Owner, set: &Set<'_>) -> OwnedReply {
        self.counters.cmd_set += 1;
        let key = set.key.as_bytes();
        let in_force = self.lock_of(key).map(|lock| lock.fence);
        let old = self.items.get(key).cloned();
        let missing = (set.mode == SetMode::Replace).then_some(OwnedReply::NotFound);
        if let Some(forbidden) = self.forbids(conn, key, (set.fence, set.lock), missing) {
            return forbidden;
        }

        let joined = |old: &Item| match set.mode {
            SetMode::Append { .. } => [&old.value, set.value.as_bytes()].concat(),
            SetMode::Prepend { .. } => [set.value.as_bytes(), &old.value].concat(),
            SetMode::Set | SetMode::Add | SetMode::Replace => set.value.to_vec(),
        };
        let whole = matches!(set.mode, SetMode::Set | SetMode::Add | SetMode::Replace);
        // A comparison makes a set or replace a `cas`, which misses in its own way.
        let compares = set.guard != Guard::None;
        let mut stays_stale = false;
        match (&old, set.mode) {
            (None, SetMode::Set | SetMode::Replace) if compares => {
                self.counters.cas_misses += 1;
                return OwnedReply::NotFound;
            }
            (Some(_), SetMode::Add) => {
                // A store that was refused for it has used it.
                let item = self.items.get_mut(key).expect("it is there");
                item.used = true;
                return OwnedReply::NotStored;
            }
            (
                None,
                SetMode::Replace
                | SetMode::Append {
                    missing: OnMissing::Refuse,
                }
                | SetMode::Prepend {
                    missing: OnMissing::Refuse,
                },
            ) => return OwnedReply::NotStored,
            (None, _) => {}
            (Some(old), _) => match set.guard {
                Guard::None => {}
                Guard::Match(cas) if cas.number() == old.cas => {}
                Guard::MatchElseStale(cas) if cas.number() == old.cas => {}
                Guard::MatchElseStale(cas) if cas.number() < old.cas && whole => stays_stale = true,
                Guard::Match(_) | Guard::MatchElseStale(_) | Guard::Never => {
                    self.counters.cas_badval += u64::from(whole);
                    return OwnedReply::Exists;
                }
            },
        }
        // `append` and `prepend` compare versions, too, but are not counted for that.
        self.counters.cas_hits += u64::from(compares && whole && old.is_some());
        let value = old.as_ref().map_or(set.value.to_vec(), joined);
        if value.len() > self.limits.value_bytes_max {
            return OwnedReply::NotStored;
        }
        // The item of a lease is a lock.
        if old.is_none() && set.client_flags == LEASE_ITEM && self.is_withheld() {
            return OwnedReply::Refused(Refusal::Locked);
        }
        if !self.has_room_for(key, value.len()) {
            return OwnedReply::Refused(Refusal::OutOfMemory);
        }

        let cas = self.version(set.new_cas);
        let mut item = self.fresh(&value, set.client_flags, set.exptime, set.key_form, cas);
        if let Some(old) = old {
            item.used = old.used;
            if stays_stale {
                item.stale = true;
                (item.won, item.bound, item.open) = (old.won, old.bound, old.open);
                item.gone_at_ms = old.gone_at_ms;
            }
            if !whole {
                item.client_flags = old.client_flags;
                item.gone_at_ms = old.gone_at_ms;
                item.key_form = old.key_form;
                item.flush_pending = old.flush_pending;
            }
        }
        self.items.insert(key.to_vec(), item);
        self.changed(key, in_force, set.lock);
        OwnedReply::Stored {
            cas,
            size: value.len(),
        }
    }

    pub(super) fn delete(&mut self, conn: Owner, delete: &Delete<'_>) -> OwnedReply {
        let key = delete.key.as_bytes();
        let in_force = self.lock_of(key).map(|lock| lock.fence);
        let missing = Some(OwnedReply::NotFound);
        self.counters.delete_misses += u64::from(!self.items.contains_key(key));
        if let Some(forbidden) = self.forbids(conn, key, (delete.fence, delete.lock), missing) {
            return forbidden;
        }
        let Some(old) = self.items.get(key).cloned() else {
            return OwnedReply::NotFound;
        };
        if !passes(delete.guard, &old) {
            self.counters.delete_misses += 1;
            return OwnedReply::Exists;
        }
        let is_emptied = matches!(
            delete.removal,
            Removal::Clear { .. } | Removal::ClearAndMarkStale { .. }
        );
        if is_emptied && !self.may_be_written_anew() {
            return OwnedReply::Refused(Refusal::OutOfMemory);
        }
        let emptied = |exptime: Exptime, client_flags: u32, oracle: &Self| Item {
            used: old.used,
            // The value was not replaced, so a client that was told to replace it still may.
            won: old.won,
            bound: old.bound,
            open: old.open,
            flush_pending: old.flush_pending,
            ..oracle.fresh(b"", client_flags, exptime, delete.key_form, old.cas)
        };
        let item = match delete.removal {
            Removal::Remove => {
                self.counters.delete_hits += 1;
                self.take_out(key);
                self.changed(key, in_force, delete.lock);
                return OwnedReply::Deleted;
            }
            Removal::MarkStale { exptime } => Item {
                gone_at_ms: exptime.map_or(old.gone_at_ms, |exptime| self.gone_at(exptime)),
                stale: true,
                won: false,
                bound: None,
                open: false,
                cas: self.version(delete.new_cas),
                ..old
            },
            Removal::Clear {
                exptime,
                client_flags,
            } => {
                self.counters.delete_hits += 1;
                self.counters.total_items += 1;
                let item = emptied(exptime, client_flags, self);
                let cas = match delete.new_cas {
                    NewCas::Is(cas) => cas.number(),
                    NewCas::Next => item.cas,
                };
                Item { cas, ..item }
            }
            Removal::ClearAndMarkStale {
                exptime,
                client_flags,
            } => {
                self.counters.total_items += 1;
                Item {
                    stale: true,
                    won: false,
                    bound: None,
                    open: false,
                    cas: self.version(delete.new_cas),
                    ..emptied(exptime, client_flags, self)
                }
            }
        };
        self.counters.stale_marks += u64::from(item.stale);
        self.items.insert(key.to_vec(), item);
        self.changed(key, in_force, delete.lock);
        OwnedReply::Deleted
    }

    pub(super) fn arithmetic(&mut self, conn: Owner, request: &Arithmetic<'_>) -> OwnedReply {
        let key = request.key.as_bytes();
        let in_force = self.lock_of(key).map(|lock| lock.fence);
        let missing = (!request.steps.vivifies()).then_some(OwnedReply::NotFound);
        if let Some(forbidden) = self.forbids(conn, key, (request.fence, request.lock), missing) {
            if forbidden == OwnedReply::NotFound {
                self.count_arithmetic(request.direction, false);
            }
            return forbidden;
        }
        let (number, mut item) = match self.items.get(key).cloned() {
            None if !request.steps.vivifies() => {
                self.count_arithmetic(request.direction, false);
                return OwnedReply::NotFound;
            }
            None => {
                let digits = request.initial.to_string();
                if !self.has_room_for(key, digits.len()) {
                    return OwnedReply::Refused(Refusal::OutOfMemory);
                }
                let item = self.fresh(digits.as_bytes(), 0, Exptime::Never, request.key_form, 0);
                let (gone_at_ms, ttls, _) = self.walk(None, &request.steps, true);
                let cas = self.version(request.new_cas);
                self.items.insert(
                    key.to_vec(),
                    Item {
                        cas,
                        gone_at_ms,
                        ..item
                    },
                );
                self.changed(key, in_force, request.lock);
                return OwnedReply::Number {
                    value: request.initial,
                    cas,
                    ttls,
                };
            }
            Some(old) if old.value.is_empty() => return OwnedReply::Refused(Refusal::NonNumeric),
            Some(old) if !passes(request.guard, &old) => return OwnedReply::Exists,
            Some(old) => match leading_number(&old.value) {
                None => return OwnedReply::Refused(Refusal::NonNumeric),
                Some(number) => (number, old),
            },
        };
        let value = match request.direction {
            Direction::Increment => number.wrapping_add(request.delta),
            Direction::Decrement => number.saturating_sub(request.delta),
        };
        let width = item.value.len();
        item.value = format!("{value:<width$}").into_bytes();
        if !self.has_room_for(key, item.value.len()) {
            return OwnedReply::Refused(Refusal::OutOfMemory);
        }
        self.count_arithmetic(request.direction, true);
        item.cas = self.version(request.new_cas);
        item.accessed_ms = self.now_ms;
        let (gone_at_ms, ttls, _) = self.walk(item.gone_at_ms, &request.steps, false);
        item.gone_at_ms = gone_at_ms;
        let cas = item.cas;
        self.items.insert(key.to_vec(), item);
        self.changed(key, in_force, request.lock);
        OwnedReply::Number { value, cas, ttls }
    }
}

fn passes(guard: Guard, item: &Item) -> bool {
    match guard {
        Guard::None => true,
        Guard::Match(cas) | Guard::MatchElseStale(cas) => cas.number() == item.cas,
        Guard::Never => false,
    }
}

/// The number at the beginning of a value, as C's `strtoull` reads it, without minus signs.
fn leading_number(value: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(value).ok()?;
    let word = text.split_ascii_whitespace().next()?;
    let digits = word.strip_prefix('+').unwrap_or(word);
    // `parse` takes a sign of its own.
    if digits.starts_with('+') {
        None
    } else {
        digits.parse().ok()
    }
}
