//! Whether an answer is one that the beliefs allow, and what is believed after it.
//!
//! What is judged is the command that the request means, whichever protocol it came in.

mod locks;
mod read;
mod store;

use latchd_core::command::{Command, GlobalCommand, ItemCommand, Removal};

use super::super::ask::{Ask, What};
use super::super::observed::Observed;
use super::super::workload::intent::Intent;
use super::{Auditor, Breach, There, breach};

/// A request whose answer is audited, or of one of its keys.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Said<'a> {
    /// Whose it is.
    pub(in super::super) conn: u64,
    pub(in super::super) ask: &'a Ask,
    /// Which key.
    pub(in super::super) key: usize,
    pub(in super::super) intended: Intent<'a>,
}

impl Auditor {
    /// Judges an answer of the server, and believes what it tells.
    ///
    /// # Errors
    /// The promise that it breaks.
    pub(in super::super) fn audit(
        &mut self,
        said: &Said<'_>,
        answer: &Observed<'_>,
    ) -> Result<(), Breach> {
        let command = match &said.intended {
            Intent::Command(command) => command,
            // Refused before anybody looked for the item: nothing has changed.
            Intent::Unread if *answer == Observed::TooLarge => {
                self.tally.too_large += 1;
                return Ok(());
            }
            Intent::Unread => breach!("B7", "a value over the limit was answered {answer:?}"),
            Intent::Nothing => return audit_without_core(said, answer),
        };
        match (answer, command) {
            (Observed::Unanswered, _) => return self.unanswered(said, command),
            (Observed::Malformed, _) => {
                breach!("B7", "a request without a fault was refused as malformed");
            }
            (Observed::TooManyLocks, _) => return self.too_many_locks(said, command),
            (Observed::OutOfMemory, _) => return self.out_of_memory(said, command),
            (Observed::TooLarge, Command::Item(ItemCommand::SetTooLarge { .. })) => {
                self.too_large(said);
                return Ok(());
            }
            (Observed::TooLarge, _) => {
                breach!("B7", "{} bytes were too large", said.ask.text.bytes());
            }
            (_, Command::Item(ItemCommand::SetTooLarge { .. })) => {
                breach!("B7", "a value over the limit was answered {answer:?}");
            }
            _ => {}
        }
        match command {
            Command::Item(command) => self.audit_item(said, command, answer),
            Command::Global(command) => self.audit_global(said, command, answer),
        }
    }

    fn audit_item(
        &mut self,
        said: &Said<'_>,
        command: &ItemCommand<'_>,
        answer: &Observed<'_>,
    ) -> Result<(), Breach> {
        match command {
            ItemCommand::Get(get) if get.lock => self.lock_and_get(said, get, answer),
            ItemCommand::Get(get) => self.read(said, get, answer),
            ItemCommand::Set(set) => self.store(said, set, answer),
            ItemCommand::Delete(delete) => self.remove(said, delete, answer),
            ItemCommand::Arithmetic(count) => self.count(said, count, answer),
            ItemCommand::Lock { .. } => self.lock(said, answer),
            ItemCommand::Unlock { .. } => self.unlock(said, answer),
            ItemCommand::SetTooLarge { .. } | ItemCommand::Acquire(_) | ItemCommand::Release(_) => {
                unfit(said, answer)
            }
        }
    }

    fn audit_global(
        &mut self,
        said: &Said<'_>,
        command: &GlobalCommand<'_>,
        answer: &Observed<'_>,
    ) -> Result<(), Breach> {
        match command {
            GlobalCommand::UnlockAll if *answer == Observed::Ok => {
                self.release_all(said.conn);
                Ok(())
            }
            GlobalCommand::FlushAll { at } if *answer == Observed::Ok => {
                self.flush_at(*at);
                Ok(())
            }
            GlobalCommand::Keys(_) => match answer {
                Observed::Key(Some(key)) => self.found(*key),
                Observed::Key(None) | Observed::End => Ok(()),
                _ => unfit(said, answer),
            },
            GlobalCommand::Stats(_) if matches!(answer, Observed::Stat | Observed::End) => Ok(()),
            GlobalCommand::StatsReset if *answer == Observed::Ok => Ok(()),
            GlobalCommand::UnlockAll
            | GlobalCommand::FlushAll { .. }
            | GlobalCommand::Stats(_)
            | GlobalCommand::StatsReset => unfit(said, answer),
        }
    }

    /// One key of a get is not among its answers.
    pub(in super::super) fn unseen(&mut self, key: usize) -> Result<(), Breach> {
        self.missed(key)
    }

    fn unanswered(&mut self, said: &Said<'_>, command: &Command<'_>) -> Result<(), Breach> {
        let key = said.key;
        match command {
            Command::Global(GlobalCommand::FlushAll { at }) => {
                self.flush_at(*at);
                return Ok(());
            }
            Command::Item(ItemCommand::Get(get)) if said.ask.what == What::Touch => {
                let now_ms = self.now_ms;
                let belief = &mut self.beliefs[key];
                if belief.holder.is_none() && belief.is_surely_expired(now_ms) {
                    belief.there = There::No;
                }
                if belief.there != There::No {
                    // It may have come too late.
                    if belief.holder.is_none() && belief.may_be_expired(now_ms) {
                        belief.there = There::Maybe;
                    }
                    self.stepped(key, &get.steps);
                }
                return Ok(());
            }
            _ => {}
        }
        if self.is_held_by_another(key, said.conn) {
            return Ok(());
        }
        match command {
            Command::Item(ItemCommand::SetTooLarge { .. } | ItemCommand::Delete(_)) => {
                self.removed(key);
            }
            Command::Item(ItemCommand::Set(set)) if self.room.is_ample => {
                return self.stored(key, set, None);
            }
            Command::Item(ItemCommand::Set(_)) => self.doubt_all(key),
            Command::Item(ItemCommand::Arithmetic(_)) => self.doubt(key),
            _ => breach!("B7", "a request that wants an answer got none"),
        }
        Ok(())
    }

    fn too_many_locks(&mut self, said: &Said<'_>, command: &Command<'_>) -> Result<(), Breach> {
        let takes_lock = match command {
            Command::Item(ItemCommand::Lock { .. }) => true,
            Command::Item(ItemCommand::Get(get)) => get.lock,
            _ => false,
        };
        if !takes_lock {
            return unfit(said, &Observed::TooManyLocks);
        }
        self.found(said.key)?;
        if let Some(holder) = self.holder(said.key) {
            breach!(
                "B7",
                "key {} is held by {holder}, and that was not the reason",
                said.key
            );
        }
        let held = self.locks_of(said.conn);
        if self.room.is_ample && held < self.room.locks_per_connection_max {
            breach!("B7", "{held} locks were too many for {}", said.conn);
        }
        Ok(())
    }

    /// A refusal for want of room has changed nothing, but for what was evicted to make it.
    fn out_of_memory(&mut self, said: &Said<'_>, command: &Command<'_>) -> Result<(), Breach> {
        let (needs_room, looks_at_lock) = match command {
            Command::Item(ItemCommand::Get(get)) => (get.steps.vivifies(), false),
            // A log may have to write elsewhere what does not grow.
            Command::Item(ItemCommand::Set(_) | ItemCommand::Arithmetic(_)) => (true, true),
            Command::Item(ItemCommand::Delete(delete)) => match delete.removal {
                Removal::Clear { .. } | Removal::ClearAndMarkStale { .. } => (true, true),
                Removal::Remove | Removal::MarkStale { .. } => (false, false),
            },
            _ => (false, false),
        };
        if !needs_room {
            return unfit(said, &Observed::OutOfMemory);
        }
        if self.room.is_ample {
            breach!("B7", "out of memory, and there is room for all");
        }
        if looks_at_lock && self.is_held_by_another(said.key, said.conn) {
            breach!(
                "B7",
                "key {} is held, and that was not the reason",
                said.key
            );
        }
        self.tally.out_of_memory += 1;
        Ok(())
    }

    /// Nobody is to read what the writer of a value over the limit meant to replace.
    fn too_large(&mut self, said: &Said<'_>) {
        self.tally.too_large += 1;
        if !self.is_held_by_another(said.key, said.conn) {
            self.removed(said.key);
        }
    }

    /// B2, for a request that changes an item: whether `answer` is the refusal it must be while
    /// another connection holds the key, and only then.
    fn refused(&mut self, said: &Said<'_>, answer: &Observed<'_>) -> Result<bool, Breach> {
        let Said { conn, key, .. } = *said;
        let is_held = self.is_held_by_another(key, conn);
        let refused = *answer == Observed::Locked;
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
}

/// The answer to what only a wire has.
fn audit_without_core(said: &Said<'_>, answer: &Observed<'_>) -> Result<(), Breach> {
    let fits = match said.ask.what {
        What::Unknown | What::BadBody | What::Nonsense => *answer == Observed::Malformed,
        What::Version | What::Noop => *answer == Observed::Greeting,
        What::Quit => *answer == Observed::End,
        _ => false,
    };
    if fits { Ok(()) } else { unfit(said, answer) }
}

fn unfit(said: &Said<'_>, answer: &Observed<'_>) -> Result<(), Breach> {
    breach!("shape", "{answer:?} is no answer to {}", said.ask);
}
