//! What an acknowledged change makes of a belief.

use latchd_core::command::{
    Arithmetic, Delete, Direction, Guard, NewCas, Removal, Set, SetMode, TtlSteps,
};
use latchd_harness::wording::put_number;

use super::super::observed::Counted;
use super::{Auditor, Breach, Gone, There, breach};

impl Auditor {
    /// The value of `set` is the item now.
    pub(super) fn stored(
        &mut self,
        key: usize,
        set: &Set<'_>,
        cas: Option<u64>,
    ) -> Result<(), Breach> {
        // A stale `ms C I` keeps TTL, staleness and win; whether it was one, the versions tell.
        let outdated = match set.guard {
            Guard::MatchElseStale(wanted) => {
                let known = self.beliefs[key].cas;
                Some(known.map(|known| wanted.number() < known))
            }
            Guard::None | Guard::Match(_) | Guard::Never => None,
        };
        let gone = self.gone(set.exptime);
        self.new_cas(key, set.new_cas, cas)?;
        let belief = &mut self.beliefs[key];
        belief.value.clear();
        belief.value.extend_from_slice(&set.value);
        belief.is_known = true;
        belief.client_flags = Some(set.client_flags);
        belief.there = There::Yes;
        belief.flush_pending = Some(false);
        match outdated {
            None | Some(Some(false)) => {
                belief.gone = gone;
                belief.mark_fresh();
            }
            Some(Some(true)) => belief.stale = Some(true),
            Some(None) => {
                belief.gone = Gone::Unknown;
                belief.stale = None;
                belief.won = None;
            }
        }
        Ok(())
    }

    /// The value of `set` was added to that of the item.
    pub(super) fn extended(
        &mut self,
        key: usize,
        set: &Set<'_>,
        cas: Option<u64>,
    ) -> Result<(), Breach> {
        let bytes_max = self.room.value_bytes_max;
        self.new_cas(key, set.new_cas, cas)?;
        let belief = &mut self.beliefs[key];
        belief.mark_fresh();
        if !belief.is_known {
            return Ok(());
        }
        if belief.value.len() + set.value.len() > bytes_max {
            breach!("B7", "key {key} grew past the limit of {bytes_max} bytes");
        }
        if let SetMode::Append { .. } = set.mode {
            belief.value.extend_from_slice(&set.value);
        } else {
            belief.value.splice(0..0, set.value.iter().copied());
        }
        Ok(())
    }

    /// There is a fresh item now, of which only the version can be known.
    pub(super) fn stored_something(
        &mut self,
        key: usize,
        new_cas: NewCas,
        cas: Option<u64>,
    ) -> Result<(), Breach> {
        self.new_cas(key, new_cas, cas)?;
        let belief = &mut self.beliefs[key];
        belief.is_known = false;
        belief.client_flags = None;
        belief.there = There::Yes;
        belief.gone = Gone::Unknown;
        belief.mark_fresh();
        Ok(())
    }

    /// An unanswered request may have changed the item, or not.
    pub(super) fn doubt(&mut self, key: usize) {
        self.doubt_cas(key);
        let belief = &mut self.beliefs[key];
        belief.is_known = false;
        belief.stale = None;
        belief.won = None;
    }

    /// An unanswered request may have made an item, or not.
    pub(super) fn doubt_all(&mut self, key: usize) {
        self.doubt(key);
        let belief = &mut self.beliefs[key];
        belief.client_flags = None;
        belief.gone = Gone::Unknown;
        belief.flush_pending = belief.flush_pending.filter(|flush_pending| !flush_pending);
        if belief.there == There::No {
            belief.there = There::Maybe;
        }
    }

    /// The item was taken out by request, and its lock with it.
    pub(super) fn removed(&mut self, key: usize) {
        let belief = &mut self.beliefs[key];
        belief.there = There::No;
        belief.holder = None;
        belief.flush_pending = Some(false);
        belief.forget_cas();
    }

    /// The item was removed, marked stale, or emptied, or both of these.
    pub(super) fn deleted(&mut self, key: usize, delete: &Delete<'_>) -> Result<(), Breach> {
        match delete.removal {
            Removal::Remove => self.removed(key),
            Removal::MarkStale { exptime } => {
                self.marked_stale(key, delete.new_cas)?;
                if let Some(exptime) = exptime {
                    self.beliefs[key].gone = self.gone(exptime);
                }
            }
            Removal::Clear {
                exptime,
                client_flags,
            } => {
                // Its version stays, unless the client chose one.
                if let NewCas::Is(_) = delete.new_cas {
                    self.new_cas(key, delete.new_cas, None)?;
                }
                self.beliefs[key].stale = Some(false);
                let gone = self.gone(exptime);
                self.emptied(key, gone, client_flags);
            }
            Removal::ClearAndMarkStale {
                exptime,
                client_flags,
            } => {
                self.marked_stale(key, delete.new_cas)?;
                let gone = self.gone(exptime);
                self.emptied(key, gone, client_flags);
            }
        }
        Ok(())
    }

    fn marked_stale(&mut self, key: usize, new_cas: NewCas) -> Result<(), Breach> {
        self.new_cas(key, new_cas, None)?;
        let belief = &mut self.beliefs[key];
        belief.stale = Some(true);
        belief.won = Some(false);
        Ok(())
    }

    fn emptied(&mut self, key: usize, gone: Gone, client_flags: u32) {
        let belief = &mut self.beliefs[key];
        belief.value.clear();
        belief.is_known = true;
        belief.client_flags = Some(client_flags);
        belief.gone = gone;
    }

    /// A get has made an empty item, and shows its version if it shows any.
    pub(super) fn vivified(
        &mut self,
        key: usize,
        new_cas: NewCas,
        cas: Option<u64>,
    ) -> Result<(), Breach> {
        self.missed(key)?;
        self.new_cas(key, new_cas, cas)?;
        self.emptied(key, Gone::Never, 0);
        let belief = &mut self.beliefs[key];
        belief.there = There::Yes;
        belief.mark_fresh();
        Ok(())
    }

    /// The item is a number, and was counted or made.
    pub(super) fn counted(
        &mut self,
        key: usize,
        count: &Arithmetic<'_>,
        counted: &Counted,
        ttl_after: Option<u8>,
    ) -> Result<(), Breach> {
        let Counted { number, cas, ttl } = *counted;
        let expected = self.expected(key, count);
        let is_made = self.is_number_made(key, count, number, expected);
        let walk = match is_made {
            Some(true) => {
                self.missed(key)?;
                if number.is_some_and(|number| number != count.initial) {
                    let initial = count.initial;
                    breach!(
                        "B3",
                        "key {key} was made as {number:?}, and not as {initial}"
                    );
                }
                self.new_cas(key, count.new_cas, cas)?;
                self.becomes_number(key, count.initial, 0);
                self.beliefs[key].mark_fresh();
                self.beliefs[key].client_flags = Some(0);
                self.walk(Gone::Never, &count.steps, is_made, ttl_after)
            }
            Some(false) => {
                self.found(key)?;
                self.guarded(key, count.guard, true)?;
                self.new_cas(key, count.new_cas, cas)?;
                self.was_counted(key, number, expected)?;
                let gone = self.beliefs[key].gone;
                self.walk(gone, &count.steps, is_made, ttl_after)
            }
            None => {
                self.stored_something(key, count.new_cas, cas)?;
                // One that was made is fresh, one that was counted is what it was.
                let belief = &mut self.beliefs[key];
                (belief.stale, belief.won) = (None, None);
                self.walk(Gone::Unknown, &count.steps, is_made, ttl_after)
            }
        };
        self.beliefs[key].gone = walk.gone;
        self.showed_ttl(key, &walk, ttl)
    }

    /// What counting in the item comes to; `None` if it is no number, or nobody knows it.
    fn expected(&self, key: usize, count: &Arithmetic<'_>) -> Option<u64> {
        let belief = &self.beliefs[key];
        if !belief.is_known || belief.there == There::No {
            return None;
        }
        let old = leading_number(&belief.value)?;
        Some(match count.direction {
            Direction::Increment => old.wrapping_add(count.delta),
            Direction::Decrement => old.saturating_sub(count.delta),
        })
    }

    /// Whether the number was made, and not counted; `None` if nobody can tell.
    fn is_number_made(
        &self,
        key: usize,
        count: &Arithmetic<'_>,
        number: Option<u64>,
        expected: Option<u64>,
    ) -> Option<bool> {
        let belief = &self.beliefs[key];
        if !count.steps.vivifies() {
            return Some(false);
        }
        if self.must_be_gone(key) {
            return Some(true);
        }
        if self.must_be_there(key) || number.is_some_and(|number| number != count.initial) {
            return Some(false);
        }
        // It is the number of one that is made: is it that of one that was counted, too?
        let number = number.filter(|_| belief.is_known)?;
        (expected != Some(number)).then_some(true)
    }

    /// B3: the item was counted to `number`, if that is told. Its stale mark and its win stay.
    fn was_counted(
        &mut self,
        key: usize,
        number: Option<u64>,
        expected: Option<u64>,
    ) -> Result<(), Breach> {
        let belief = &mut self.beliefs[key];
        let was_known = belief.is_known;
        if was_known && expected.is_none() {
            breach!("B3", "key {key} was counted, and is no number");
        }
        if let (Some(expected), Some(number)) = (expected, number)
            && expected != number
        {
            breach!(
                "B3",
                "key {key} was counted to {number}, and not to {expected}"
            );
        }
        match number.or(expected) {
            // A number that got shorter keeps its length, padded by blanks.
            Some(number) if was_known => {
                let width = belief.value.len();
                self.becomes_number(key, number, width);
            }
            Some(_) | None => {}
        }
        Ok(())
    }

    fn becomes_number(&mut self, key: usize, number: u64, width: usize) {
        let belief = &mut self.beliefs[key];
        belief.value.clear();
        put_number(&mut belief.value, number);
        let width = width.max(belief.value.len());
        belief.value.resize(width, b' ');
        belief.is_known = true;
        belief.there = There::Yes;
    }

    /// A read has taken `steps` on an item that is there.
    pub(super) fn stepped(&mut self, key: usize, steps: &TtlSteps) {
        let gone = self.beliefs[key].gone;
        self.beliefs[key].gone = self.walk(gone, steps, Some(false), None).gone;
    }
}

impl super::Belief {
    /// It is not stale, and nobody has its win.
    pub(super) const fn mark_fresh(&mut self) {
        self.stale = Some(false);
        self.won = Some(false);
    }
}

/// The number that a value of these tests is, if it is one: digits, and blanks behind them. Values
/// of digits that grew past 64 bits by appending are none.
pub(super) fn leading_number(value: &[u8]) -> Option<u64> {
    let digits = value.split(|byte| *byte == b' ').next()?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}
