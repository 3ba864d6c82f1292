//! Whether an answer is one that the beliefs allow, and what is believed after it.

use super::super::answer::{Answer, Hit, Marks};
use super::super::ask::{Ask, What, Wire};
use super::change::leading_number;
use super::{Breach, Gone, Ledger, There, breach};

impl Ledger {
    /// Enters the answer of the server to the request `ask` of `conn`.
    ///
    /// # Errors
    /// The promise that it breaks.
    pub(in super::super) fn enter(
        &mut self,
        conn: u64,
        ask: &Ask,
        answer: &Answer<'_>,
    ) -> Result<(), Breach> {
        match answer {
            Answer::Unanswered => return self.unanswered(conn, ask),
            Answer::Malformed => {
                return match ask.what {
                    What::Unknown | What::BadBody | What::Nonsense => Ok(()),
                    _ => breach!("B7", "a request without a fault was refused as malformed"),
                };
            }
            Answer::TooManyLocks => return self.too_many_locks(conn, ask),
            Answer::OutOfMemory => return self.out_of_memory(conn, ask),
            Answer::TooLarge => return self.too_large(conn, ask),
            _ => {}
        }
        if self.is_too_large(ask) {
            breach!("B7", "a value over the limit was answered {answer:?}");
        }
        match ask.what {
            What::Get | What::Touch => self.read(ask, answer),
            What::Set | What::Add | What::Replace | What::Append | What::Prepend => {
                self.store(conn, ask, answer)
            }
            What::ReplaceAndUnlock => self.replace_and_unlock(conn, ask, answer),
            What::Delete | What::MarkStale | What::Clear | What::ClearAndMarkStale => {
                self.remove(conn, ask, answer)
            }
            What::Increment | What::Decrement => self.count(conn, ask, answer),
            What::Lock | What::LockAndGet => self.lock(conn, ask, answer),
            What::Unlock => self.unlock(conn, ask, answer),
            What::UnlockAll if *answer == Answer::Ok => {
                self.release_all(conn);
                Ok(())
            }
            What::Flush if *answer == Answer::Ok => {
                self.flush_in(ask.exptime);
                Ok(())
            }
            What::Keys => match answer {
                Answer::Key(key) => self.listed(*key),
                Answer::End => Ok(()),
                _ => unfit(ask, answer),
            },
            What::Debug => match answer {
                Answer::Missing => self.missed(ask.key()),
                Answer::Debug { cas, lock } => {
                    self.found(ask.key())?;
                    self.showed_cas(ask.key(), Some(*cas))?;
                    let holder = self.holder(ask.key());
                    if *lock != holder {
                        breach!(
                            "B1",
                            "key {} is held by {holder:?}, and shown as held by {lock:?}",
                            ask.key()
                        );
                    }
                    Ok(())
                }
                _ => unfit(ask, answer),
            },
            What::Stats if matches!(answer, Answer::Stat | Answer::End) => Ok(()),
            What::Version | What::Noop if *answer == Answer::Greeting => Ok(()),
            What::Quit if *answer == Answer::End => Ok(()),
            What::UnlockAll
            | What::Flush
            | What::Stats
            | What::Version
            | What::Noop
            | What::Quit
            | What::Unknown
            | What::BadBody
            | What::Nonsense => unfit(ask, answer),
        }
    }

    fn is_too_large(&self, ask: &Ask) -> bool {
        let stores = matches!(
            ask.what,
            What::Set
                | What::Add
                | What::Replace
                | What::Append
                | What::Prepend
                | What::ReplaceAndUnlock
        );
        stores && ask.text.bytes() > self.room.value_bytes_max
    }

    /// One key of a get is not among its answers.
    pub(in super::super) fn unseen(&mut self, key: usize) -> Result<(), Breach> {
        self.missed(key)
    }

    fn unanswered(&mut self, conn: u64, ask: &Ask) -> Result<(), Breach> {
        let key = ask.key();
        if ask.what == What::Flush {
            self.flush_in(ask.exptime);
            return Ok(());
        }
        if ask.what == What::Touch {
            let (now_ms, gone) = (self.now_ms, self.gone(ask.exptime));
            let belief = &mut self.beliefs[key];
            if belief.holder.is_none() && belief.is_surely_expired(now_ms) {
                belief.there = There::No;
            }
            if belief.there != There::No {
                // It may have come too late.
                if belief.holder.is_none() && belief.may_be_expired(now_ms) {
                    belief.there = There::Maybe;
                }
                belief.gone = gone;
            }
            return Ok(());
        }
        if self.is_held_by_another(key, conn) {
            return Ok(());
        }
        match ask.what {
            What::Set if self.is_too_large(ask) => self.removed(key),
            What::Set if self.room.is_ample => return self.stored(ask, None),
            What::Delete => self.removed(key),
            What::Set | What::Increment | What::Decrement => self.doubt(ask),
            _ => breach!("B7", "a request that wants an answer got none"),
        }
        Ok(())
    }

    fn too_many_locks(&mut self, conn: u64, ask: &Ask) -> Result<(), Breach> {
        if !matches!(ask.what, What::Lock | What::LockAndGet) {
            return unfit(ask, &Answer::TooManyLocks);
        }
        self.found(ask.key())?;
        if let Some(holder) = self.holder(ask.key()) {
            breach!(
                "B7",
                "key {} is held by {holder}, and that was not the reason",
                ask.key()
            );
        }
        let held = self.locks_of(conn);
        if self.room.is_ample && held < self.room.locks_per_connection_max {
            breach!("B7", "{held} locks were too many for {conn}");
        }
        Ok(())
    }

    /// A refusal for want of room has changed nothing, but for what was evicted to make it.
    fn out_of_memory(&mut self, conn: u64, ask: &Ask) -> Result<(), Breach> {
        let needs_room = match ask.what {
            What::Get => ask.vivify.is_some(),
            What::Set
            | What::Add
            | What::Replace
            | What::Append
            | What::Prepend
            | What::ReplaceAndUnlock
            | What::Increment
            | What::Decrement
            | What::Clear
            | What::ClearAndMarkStale => true,
            _ => false,
        };
        if !needs_room {
            return unfit(ask, &Answer::OutOfMemory);
        }
        if self.room.is_ample {
            breach!("B7", "out of memory, and there is room for all");
        }
        if ask.what != What::Get && self.is_held_by_another(ask.key(), conn) {
            breach!(
                "B7",
                "key {} is held, and that was not the reason",
                ask.key()
            );
        }
        self.tally.out_of_memory += 1;
        Ok(())
    }

    fn too_large(&mut self, conn: u64, ask: &Ask) -> Result<(), Breach> {
        if !self.is_too_large(ask) {
            breach!("B7", "{} bytes were too large", ask.text.bytes());
        }
        self.tally.too_large += 1;
        // Nobody is to read what the writer meant to replace. Meta text has one verb for all, and
        // `cas` another than `set`.
        let takes_out = match ask.wire {
            Wire::Classic => ask.what == What::Set && ask.guard == 0,
            Wire::Meta => true,
            Wire::Binary => ask.what == What::Set,
        };
        if takes_out && !self.is_held_by_another(ask.key(), conn) {
            self.removed(ask.key());
        }
        Ok(())
    }

    fn read(&mut self, ask: &Ask, answer: &Answer<'_>) -> Result<(), Breach> {
        match answer {
            Answer::Hit(hit) => {
                let key = hit.key.unwrap_or(ask.key());
                match hit.marks {
                    Some(marks) => self.read_meta(ask, hit, marks)?,
                    None => self.confirm(key, hit)?,
                }
                self.touched(ask, key);
                Ok(())
            }
            Answer::Missing if ask.vivify.is_some() => unfit(ask, answer),
            Answer::Missing => self.missed(ask.key()),
            Answer::Touched if ask.what == What::Touch => {
                self.found(ask.key())?;
                self.touched(ask, ask.key());
                Ok(())
            }
            _ => unfit(ask, answer),
        }
    }

    fn touched(&mut self, ask: &Ask, key: usize) {
        if let Some(exptime) = ask.exptime {
            self.beliefs[key].gone = self.gone(Some(exptime));
        }
    }

    /// A hit shows what was stored last (B3).
    fn confirm(&mut self, key: usize, hit: &Hit<'_>) -> Result<(), Breach> {
        self.found(key)?;
        self.showed_cas(key, hit.cas)?;
        let Some(value) = hit.value else {
            return Ok(());
        };
        let belief = &mut self.beliefs[key];
        if !belief.is_known {
            belief.is_known = true;
            belief.value.clear();
            belief.value.extend_from_slice(value);
        } else if belief.value != value {
            breach!(
                "B3",
                "key {key}: {} was read, and {} was stored last",
                value.escape_ascii(),
                belief.value.escape_ascii()
            );
        } else {
            self.tally.confirmed += 1;
        }
        Ok(())
    }

    /// `mg`: the one read that takes part in wins (B6).
    fn read_meta(&mut self, ask: &Ask, hit: &Hit<'_>, marks: Marks) -> Result<(), Breach> {
        let key = ask.key();
        let Marks { stale, won, sent } = marks;
        // Without an `R`, an item that was there is won only if it is stale.
        let is_made = ask.vivify.is_some() && won && !stale;
        if is_made {
            self.missed(key)?;
            let gone = self.gone(ask.vivify.map(i32::from));
            self.new_cas(key, hit.cas)?;
            let belief = &mut self.beliefs[key];
            belief.there = There::Yes;
            belief.value.clear();
            belief.is_known = true;
            belief.gone = gone;
            belief.stale = Some(false);
            belief.won = Some(false);
        }
        self.confirm(key, hit)?;
        let belief = &mut self.beliefs[key];
        if belief.stale.is_some_and(|known| known != stale) {
            breach!(
                "B6",
                "key {key} is shown with stale {stale}, and that is wrong"
            );
        }
        belief.stale = Some(stale);
        if won && sent {
            breach!("B6", "key {key}: one reader both won and did not");
        }
        let may_run_short = ask.recache.is_some() && belief.gone != Gone::Never;
        match belief.won {
            Some(true) if won => breach!("B6", "key {key} was won twice"),
            Some(true) if !sent => breach!("B6", "key {key} was won, and a reader was not told"),
            Some(false) if sent => {
                breach!("B6", "key {key} is not won, and a reader was sent away")
            }
            Some(false) if stale && !won => breach!("B6", "key {key} is stale, and nobody won it"),
            Some(false) if won && !stale && !is_made && !may_run_short => {
                breach!("B6", "key {key} was won without a reason");
            }
            _ => {}
        }
        belief.won = Some(won || sent);
        self.tally.wins += u64::from(won);
        self.tally.waits += u64::from(sent);
        Ok(())
    }

    /// B2, for a request that changes an item: whether `answer` is the refusal it must be while
    /// another connection holds the key, and only then.
    fn refused(&mut self, conn: u64, ask: &Ask, answer: &Answer<'_>) -> Result<bool, Breach> {
        let key = ask.key();
        let is_held = self.is_held_by_another(key, conn);
        let refused = *answer == Answer::Locked;
        if is_held && !refused {
            let holder = self.holder(key);
            breach!(
                "B2",
                "key {key} is held by {holder:?}, and {conn} was answered {answer:?}"
            );
        }
        if refused && !is_held {
            breach!(
                "B2",
                "key {key} is held by nobody else, and {conn} was refused"
            );
        }
        self.tally.refused += u64::from(refused);
        Ok(refused)
    }

    fn store(&mut self, conn: u64, ask: &Ask, answer: &Answer<'_>) -> Result<(), Breach> {
        if self.refused(conn, ask, answer)? {
            return Ok(());
        }
        let key = ask.key();
        match (ask.what, answer) {
            (What::Set, Answer::Stored(cas)) => {
                if ask.guard != 0 {
                    self.found(key)?;
                }
                self.guarded(ask, true)?;
                self.stored(ask, *cas)
            }
            (What::Set, Answer::Exists) if ask.guard != 0 => {
                self.found(key)?;
                self.guarded(ask, false)
            }
            (What::Set, Answer::Missing) if ask.guard != 0 => self.missed(key),
            (What::Add, Answer::Stored(cas)) => {
                self.missed(key)?;
                self.stored(ask, *cas)
            }
            (What::Add, Answer::NotStored) => self.found(key),
            (What::Replace, Answer::Stored(cas)) => {
                self.found(key)?;
                self.stored(ask, *cas)
            }
            (What::Replace, Answer::NotStored) => self.missed(key),
            (What::Append | What::Prepend, Answer::Stored(cas)) => {
                self.found(key)?;
                self.extended(ask, *cas)
            }
            (What::Append | What::Prepend, Answer::NotStored) => {
                // There is none, or there would be too much of it.
                let belief = &self.beliefs[key];
                let bytes = belief.value.len() + ask.text.bytes();
                if belief.is_known && bytes <= self.room.value_bytes_max {
                    self.missed(key)?;
                }
                Ok(())
            }
            _ => unfit(ask, answer),
        }
    }

    fn replace_and_unlock(
        &mut self,
        conn: u64,
        ask: &Ask,
        answer: &Answer<'_>,
    ) -> Result<(), Breach> {
        let key = ask.key();
        let is_own = self.holder(key) == Some(conn);
        match answer {
            Answer::Stored(cas) if is_own => {
                self.guarded(ask, true)?;
                self.stored(ask, *cas)?;
                self.beliefs[key].release();
                Ok(())
            }
            Answer::Stored(_) => breach!(
                "B2",
                "{conn} replaced and unlocked key {key}, which it does not hold"
            ),
            Answer::Exists if is_own => self.guarded(ask, false),
            Answer::NotLocked if is_own => {
                breach!(
                    "B1",
                    "key {key} is held by {conn}, and it was told that it is not"
                );
            }
            Answer::NotLocked => self.found(key),
            Answer::Missing => self.missed(key),
            _ => unfit(ask, answer),
        }
    }

    fn remove(&mut self, conn: u64, ask: &Ask, answer: &Answer<'_>) -> Result<(), Breach> {
        if self.refused(conn, ask, answer)? {
            return Ok(());
        }
        let key = ask.key();
        match answer {
            // The silence of a quiet `md` is that of a deletion: a miss is told.
            Answer::Deleted => {
                self.found(key)?;
                self.guarded(ask, true)?;
                if ask.what == What::Delete {
                    self.removed(key);
                    return Ok(());
                }
                self.marked(ask)
            }
            Answer::Exists if ask.guard != 0 => {
                self.found(key)?;
                self.guarded(ask, false)
            }
            Answer::Missing => self.missed(key),
            _ => unfit(ask, answer),
        }
    }

    fn count(&mut self, conn: u64, ask: &Ask, answer: &Answer<'_>) -> Result<(), Breach> {
        if self.refused(conn, ask, answer)? {
            return Ok(());
        }
        let key = ask.key();
        match answer {
            Answer::Counted { number, cas } => self.counted(ask, *number, *cas),
            Answer::Missing if ask.vivify.is_some() => unfit(ask, answer),
            Answer::Missing => self.missed(key),
            Answer::NonNumeric => {
                self.found(key)?;
                let belief = &self.beliefs[key];
                if belief.is_known && leading_number(&belief.value).is_some() {
                    breach!("B3", "key {key} is a number, and was refused as none");
                }
                Ok(())
            }
            _ => unfit(ask, answer),
        }
    }

    /// B1.
    fn lock(&mut self, conn: u64, ask: &Ask, answer: &Answer<'_>) -> Result<(), Breach> {
        let key = ask.key();
        match answer {
            Answer::Ok | Answer::Hit(_) => {
                if let Some(holder) = self.holder(key) {
                    breach!(
                        "B1",
                        "key {key} is held by {holder}, and {conn} got its lock"
                    );
                }
                match answer {
                    Answer::Hit(hit) if ask.what == What::LockAndGet => {
                        self.confirm(key, hit)?;
                        self.touched(ask, key);
                    }
                    Answer::Ok if ask.what == What::Lock => self.found(key)?,
                    _ => return unfit(ask, answer),
                }
                if self.locks_of(conn) >= self.room.locks_per_connection_max {
                    breach!("B7", "{conn} has more locks than a connection may have");
                }
                self.beliefs[key].holder = Some(conn);
                self.tally.locks += 1;
                Ok(())
            }
            Answer::Locked => {
                if self.holder(key).is_none() {
                    breach!(
                        "B1",
                        "key {key} is held by nobody, and {conn} did not get its lock"
                    );
                }
                self.tally.contended += 1;
                self.found(key)
            }
            Answer::Missing => self.missed(key),
            _ => unfit(ask, answer),
        }
    }

    fn unlock(&mut self, conn: u64, ask: &Ask, answer: &Answer<'_>) -> Result<(), Breach> {
        let key = ask.key();
        let is_own = self.holder(key) == Some(conn);
        match answer {
            Answer::Ok if is_own => {
                self.beliefs[key].release();
                Ok(())
            }
            Answer::Ok => breach!("B1", "{conn} unlocked key {key}, which it does not hold"),
            Answer::NotLocked | Answer::Missing if is_own => {
                breach!(
                    "B1",
                    "key {key} is held by {conn}, and it could not unlock it"
                );
            }
            // Text has one answer for both.
            Answer::NotLocked if ask.wire != Wire::Binary => Ok(()),
            Answer::NotLocked => self.found(key),
            Answer::Missing => self.missed(key),
            _ => unfit(ask, answer),
        }
    }
}

fn unfit(ask: &Ask, answer: &Answer<'_>) -> Result<(), Breach> {
    breach!("shape", "{answer:?} is no answer to {ask:?}");
}
