//! Changes of an item: set in all its modes, delete in all its forms, arithmetic.

use latchd_core::command::{Arithmetic, Delete, Guard, LockAfter, OnMissing, Set, SetMode};

use super::super::super::answer::Answer;
use super::super::change::leading_number;
use super::super::{Breach, Ledger, breach};
use super::{Said, unfit};

impl Ledger {
    pub(super) fn store(
        &mut self,
        said: &Said<'_>,
        set: &Set<'_>,
        answer: &Answer<'_>,
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
            (SetMode::Set, Answer::Stored(cas)) => {
                if is_swap {
                    self.found(key)?;
                }
                self.guarded(key, set.guard, true)?;
                self.stored(key, set, *cas)
            }
            (SetMode::Set, Answer::Exists) if is_swap => {
                self.found(key)?;
                self.guarded(key, set.guard, false)
            }
            (SetMode::Set, Answer::Missing) if is_swap => self.missed(key),
            (SetMode::Add, Answer::Stored(cas)) => {
                self.missed(key)?;
                self.stored(key, set, *cas)
            }
            (SetMode::Add, Answer::NotStored) => self.found(key),
            (SetMode::Replace, Answer::Stored(cas)) => {
                self.found(key)?;
                self.stored(key, set, *cas)
            }
            (SetMode::Replace, Answer::NotStored) => self.missed(key),
            _ => unfit(said, answer),
        }
    }

    /// Append and prepend; one that may make an item may have found one all the same.
    fn extend(
        &mut self,
        said: &Said<'_>,
        set: &Set<'_>,
        missing: OnMissing,
        answer: &Answer<'_>,
    ) -> Result<(), Breach> {
        let key = said.key;
        match answer {
            Answer::Stored(cas) => {
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
            Answer::Exists if set.guard != Guard::None => {
                self.found(key)?;
                self.guarded(key, set.guard, false)
            }
            Answer::NotStored => {
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
        answer: &Answer<'_>,
    ) -> Result<(), Breach> {
        let Said { conn, key, .. } = *said;
        let is_own = self.holder(key) == Some(conn);
        match answer {
            Answer::Stored(cas) if is_own => {
                self.guarded(key, set.guard, true)?;
                self.stored(key, set, *cas)?;
                self.beliefs[key].release();
                Ok(())
            }
            Answer::Stored(_) => breach!(
                "B2",
                "{conn} replaced and unlocked key {key}, which it does not hold"
            ),
            Answer::Exists if is_own => self.guarded(key, set.guard, false),
            Answer::NotLocked if is_own => {
                breach!(
                    "B1",
                    "key {key} is held by {conn}, and it was told that it is not"
                );
            }
            Answer::NotLocked => self.found(key),
            Answer::Missing => self.missed(key),
            _ => unfit(said, answer),
        }
    }

    pub(super) fn remove(
        &mut self,
        said: &Said<'_>,
        delete: &Delete<'_>,
        answer: &Answer<'_>,
    ) -> Result<(), Breach> {
        if self.refused(said, answer)? {
            return Ok(());
        }
        let key = said.key;
        match answer {
            // The silence of a quiet `md` is that of a deletion: a miss is told.
            Answer::Deleted => {
                self.found(key)?;
                self.guarded(key, delete.guard, true)?;
                self.deleted(key, delete)
            }
            Answer::Exists if delete.guard != Guard::None => {
                self.found(key)?;
                self.guarded(key, delete.guard, false)
            }
            Answer::Missing => self.missed(key),
            _ => unfit(said, answer),
        }
    }

    pub(super) fn count(
        &mut self,
        said: &Said<'_>,
        count: &Arithmetic<'_>,
        answer: &Answer<'_>,
    ) -> Result<(), Breach> {
        if self.refused(said, answer)? {
            return Ok(());
        }
        let key = said.key;
        match answer {
            Answer::Counted(counted) => self.counted(key, count, counted, said.ask.ttl_after),
            Answer::Missing if count.steps.vivifies() => unfit(said, answer),
            Answer::Missing => self.missed(key),
            Answer::Exists if count.guard != Guard::None => {
                self.found(key)?;
                self.guarded(key, count.guard, false)?;
                let belief = &self.beliefs[key];
                if belief.is_known && belief.value.is_empty() {
                    breach!("B3", "key {key} is empty, and its version was looked at");
                }
                Ok(())
            }
            Answer::NonNumeric => {
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
