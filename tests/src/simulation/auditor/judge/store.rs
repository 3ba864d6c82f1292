//! Changes of an item: set in all its modes, delete in all its forms, arithmetic.

use latchd_core::command::{Arithmetic, Delete, Guard, LockAfter, OnMissing, Set, SetMode};

use super::super::super::observed::Observed;
use super::super::change::leading_number;
use super::super::{Auditor, Breach, breach};
use super::{Said, unfit};

impl Auditor {
    pub(super) fn store(
        &mut self,
        said: &Said<'_>,
        set: &Set<'_>,
        answer: &Observed<'_>,
    ) -> Result<(), Breach> {
        if set.lock == LockAfter::Release {
            return self.replace_and_unlock(said, set, answer);
        }
        if self.refused(said, answer)? {
            return Ok(());
        }
        let key = said.key;
        let is_swap = set.guard != Guard::None;
        match (set.mode, answer) {
            (SetMode::Append { missing } | SetMode::Prepend { missing }, _) => {
                self.extend(said, set, missing, answer)
            }
            (SetMode::Set, Observed::Stored(cas)) => {
                if is_swap {
                    self.found(key)?;
                }
                self.guarded(key, set.guard, true)?;
                self.stored(key, set, *cas)
            }
            (SetMode::Set, Observed::Exists) if is_swap => {
                self.found(key)?;
                self.guarded(key, set.guard, false)
            }
            (SetMode::Set, Observed::Missing) if is_swap => self.missed(key),
            (SetMode::Add, Observed::Stored(cas)) => {
                self.missed(key)?;
                self.stored(key, set, *cas)
            }
            (SetMode::Add, Observed::NotStored) => self.found(key),
            (SetMode::Replace, Observed::Stored(cas)) => {
                self.found(key)?;
                self.stored(key, set, *cas)
            }
            (SetMode::Replace, Observed::NotStored) => self.missed(key),
            _ => unfit(said, answer),
        }
    }

    /// Append and prepend; one that may make an item may have found one all the same.
    fn extend(
        &mut self,
        said: &Said<'_>,
        set: &Set<'_>,
        missing: OnMissing,
        answer: &Observed<'_>,
    ) -> Result<(), Breach> {
        let key = said.key;
        match answer {
            Observed::Stored(cas) => {
                let was_there = match missing {
                    OnMissing::Refuse => Some(true),
                    OnMissing::Create if self.must_be_gone(key) => Some(false),
                    OnMissing::Create => self.must_be_there(key).then_some(true),
                };
                match was_there {
                    Some(true) => {
                        self.found(key)?;
                        self.guarded(key, set.guard, true)?;
                        self.extended(key, set, *cas)
                    }
                    Some(false) => {
                        self.missed(key)?;
                        self.stored(key, set, *cas)
                    }
                    None => self.stored_something(key, set.new_cas, *cas),
                }
            }
            Observed::Exists if set.guard != Guard::None => {
                self.found(key)?;
                self.guarded(key, set.guard, false)
            }
            Observed::NotStored => {
                // There is none, or there would be too much of it.
                let belief = &self.beliefs[key];
                let fits = belief.is_known
                    && belief.value.len() + set.value.len() <= self.room.value_bytes_max;
                match missing {
                    OnMissing::Refuse if fits => self.missed(key),
                    OnMissing::Refuse => Ok(()),
                    OnMissing::Create => {
                        self.found(key)?;
                        self.guarded(key, set.guard, true)?;
                        if fits {
                            breach!("B7", "key {key} had room for more, and was not given it");
                        }
                        Ok(())
                    }
                }
            }
            _ => unfit(said, answer),
        }
    }

    fn replace_and_unlock(
        &mut self,
        said: &Said<'_>,
        set: &Set<'_>,
        answer: &Observed<'_>,
    ) -> Result<(), Breach> {
        let Said { conn, key, .. } = *said;
        let is_own = self.holder(key) == Some(conn);
        match answer {
            Observed::Stored(cas) if is_own => {
                self.guarded(key, set.guard, true)?;
                self.stored(key, set, *cas)?;
                self.beliefs[key].release();
                Ok(())
            }
            Observed::Stored(_) => breach!(
                "B2",
                "{conn} replaced and unlocked key {key}, which it does not hold"
            ),
            Observed::Exists if is_own => self.guarded(key, set.guard, false),
            Observed::NotLocked if is_own => {
                breach!(
                    "B1",
                    "key {key} is held by {conn}, and it was told that it is not"
                );
            }
            Observed::NotLocked => self.found(key),
            Observed::Missing => self.missed(key),
            _ => unfit(said, answer),
        }
    }

    pub(super) fn remove(
        &mut self,
        said: &Said<'_>,
        delete: &Delete<'_>,
        answer: &Observed<'_>,
    ) -> Result<(), Breach> {
        if self.refused(said, answer)? {
            return Ok(());
        }
        let key = said.key;
        match answer {
            // The silence of a quiet `md` is that of a deletion: a miss is told.
            Observed::Deleted => {
                self.found(key)?;
                self.guarded(key, delete.guard, true)?;
                self.deleted(key, delete)
            }
            Observed::Exists if delete.guard != Guard::None => {
                self.found(key)?;
                self.guarded(key, delete.guard, false)
            }
            Observed::Missing => self.missed(key),
            _ => unfit(said, answer),
        }
    }

    pub(super) fn count(
        &mut self,
        said: &Said<'_>,
        count: &Arithmetic<'_>,
        answer: &Observed<'_>,
    ) -> Result<(), Breach> {
        if self.refused(said, answer)? {
            return Ok(());
        }
        let key = said.key;
        match answer {
            Observed::Counted(counted) => {
                self.counted(key, count, counted, said.ask.style.ttl_after)
            }
            Observed::Missing if count.steps.vivifies() => unfit(said, answer),
            Observed::Missing => self.missed(key),
            Observed::Exists if count.guard != Guard::None => {
                self.found(key)?;
                self.guarded(key, count.guard, false)?;
                let belief = &self.beliefs[key];
                if belief.is_known && belief.value.is_empty() {
                    breach!("B3", "key {key} is empty, and its version was looked at");
                }
                Ok(())
            }
            Observed::NonNumeric => {
                self.found(key)?;
                let belief = &self.beliefs[key];
                if belief.is_known && leading_number(&belief.value).is_some() {
                    breach!("B3", "key {key} is a number, and was refused as none");
                }
                if belief.is_known && !belief.value.is_empty() {
                    return self.guarded(key, count.guard, true);
                }
                Ok(())
            }
            _ => unfit(said, answer),
        }
    }
}
