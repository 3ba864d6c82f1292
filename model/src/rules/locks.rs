//! Who may take what, what is safe while it is held, and what happens when a lock ends.
//!
//! Source: docs/PROTOCOL.md, "Locks".

use latchd_core::command::{Command, Get, LockAfter, Set};
use latchd_core::reply::Refusal;

use super::{Cause, Change, Verdict, demand};
use crate::answer::Answer;
use crate::expected;
use crate::invariants::{Invariant, Witness};
use crate::snapshot::{Seen, described};
use crate::world::Ghost;

impl Change<'_> {
    /// E2.
    pub(super) fn held_is_safe(&mut self) -> Verdict {
        for key in self.keys() {
            let Some(before) = self.before.items[key].filter(|seen| seen.locked) else {
                continue;
            };
            if self.actor().is_some() && before.owner == self.actor() {
                let is_store = matches!(self.answer, Some(Answer::Stored { .. }));
                if is_store && self.asked().is_some_and(|(_, asked, ..)| asked == key) {
                    self.witnessed.add(Witness::OwnerChanges);
                }
                continue;
            }
            let after = self.after.items[key];
            let Some(after) = after else {
                return demand(Invariant::HeldIsSafe, false, || {
                    format!("{} is gone", described(Some(before)))
                });
            };
            // A lock does not protect the TTL: whoever may read may touch (docs/PROTOCOL.md, "Locks").
            let same = Seen {
                deadline: before.deadline,
                ..after
            };
            demand(Invariant::HeldIsSafe, same.told() == before.told(), || {
                format!(
                    "{} has become {}",
                    described(Some(before)),
                    described(Some(after))
                )
            })?;
            if before.is_past(self.now_ms) {
                self.witnessed.add(Witness::HeldPastTtl);
            }
            if self.ghosts[key].doomed {
                self.witnessed.add(Witness::HeldThroughFlush);
            }
        }
        Ok(())
    }

    /// L6, and the answers that other commands give because of a lock.
    pub(super) fn lock_answers(&mut self) -> Verdict {
        let Some((conn, key, command, answer)) = self.asked() else {
            return Ok(());
        };
        let item = self.before.items[key];
        let owner = item.and_then(|seen| seen.owner);
        let held_by_another = owner.is_some_and(|owner| owner != conn);
        let shard = &self.before.shards[self.shard];
        let is_open = shard.connections.contains(&Some(conn));
        let held = self
            .before
            .items
            .iter()
            .flatten()
            .filter(|seen| seen.owner == Some(conn));
        let has_too_many = held.count() >= self.setup.locks_max;
        // What an attempt to take the lock must come to; `None` if it must succeed.
        let obstacle = match item {
            None => Some(None),
            Some(_) if !is_open => Some(Some(Refusal::ConnectionClosed)),
            Some(seen) if seen.locked => Some(Some(Refusal::Locked)),
            Some(_) if has_too_many => Some(Some(Refusal::TooManyLocks)),
            Some(_) => None,
        };
        let wanted = |holds: bool, words: &str| {
            demand(Invariant::LockAnswers, holds, || {
                format!(
                    "{answer:?} to connection {conn}; {words}: {}",
                    described(item)
                )
            })
        };
        match command {
            Command::Lock { .. } | Command::Get(Get { lock: true, .. }) => {
                let is_granted = matches!(answer, Answer::Locked | Answer::Hit(_));
                let is_right = match obstacle {
                    None => is_granted,
                    Some(None) => matches!(answer, Answer::NotFound | Answer::Miss),
                    Some(Some(refusal)) => answer == Answer::Refused(refusal),
                };
                wanted(
                    is_right,
                    &match obstacle {
                        None => "nothing stands in the way".to_owned(),
                        Some(None) => "there is nothing to lock".to_owned(),
                        Some(Some(refusal)) => format!("{refusal:?} is due"),
                    },
                )?;
                let who = owner.map(|owner| owner == conn);
                match (answer, who) {
                    (Answer::Refused(Refusal::Locked), Some(true)) => {
                        self.witnessed.add(Witness::RelockRefused);
                    }
                    (Answer::Refused(Refusal::Locked), _) => {
                        self.witnessed.add(Witness::LockRefused);
                    }
                    (Answer::Refused(Refusal::TooManyLocks), _) => {
                        self.witnessed.add(Witness::TooManyLocks);
                    }
                    (Answer::Locked, _) => self.witnessed.add(Witness::Granted),
                    (Answer::Hit(_), _) => self.witnessed.add(Witness::LockedAndRead),
                    (Answer::NotFound | Answer::Miss, _) => {
                        self.witnessed.add(Witness::NothingToLock);
                    }
                    _ => {}
                }
                Ok(())
            }
            Command::Unlock { .. } => {
                let expected = match (item, owner == Some(conn)) {
                    (None, _) => Answer::Refused(Refusal::NotLockedNotFound),
                    (Some(_), true) => Answer::Unlocked,
                    (Some(_), false) => Answer::Refused(Refusal::NotLocked),
                };
                if held_by_another {
                    self.witnessed.add(Witness::UnlockRefused);
                }
                wanted(answer == expected, &format!("{expected:?} is due"))
            }
            Command::Set(Set {
                lock: LockAfter::Release,
                ..
            }) => {
                if held_by_another {
                    self.witnessed.add(Witness::NotMine);
                }
                match (item, owner == Some(conn)) {
                    (None, _) => wanted(answer == Answer::NotFound, "there is none"),
                    (Some(_), false) => wanted(
                        answer == Answer::Refused(Refusal::NotLocked),
                        "it does not hold the lock",
                    ),
                    (Some(_), true) => wanted(
                        !matches!(
                            answer,
                            Answer::Refused(Refusal::NotLocked | Refusal::Locked)
                        ),
                        "it holds the lock",
                    ),
                }
            }
            Command::SetTooLarge { .. } => wanted(
                answer == Answer::Refused(Refusal::TooLarge),
                "it is too large",
            ),
            Command::Set(_) | Command::Delete(_) | Command::Arithmetic(_) => {
                if held_by_another {
                    self.witnessed.add(Witness::OwnerOnly);
                }
                let is_refused = answer == Answer::Refused(Refusal::Locked);
                wanted(is_refused == held_by_another, "that is not who holds it")
            }
            Command::Get(_)
            | Command::UnlockAll
            | Command::FlushAll { .. }
            | Command::Keys(_)
            | Command::Stats(_)
            | Command::StatsReset => Ok(()),
        }
    }

    /// L7, for locks that end by `unlock_all` and by close, and for those that must not end.
    pub(super) fn locks_end(&mut self) -> Verdict {
        let ends_all = match self.cause {
            Cause::AskedAll {
                command: Command::UnlockAll,
                ..
            }
            | Cause::Closed { .. } => true,
            Cause::AskedAll { .. } | Cause::Asked { .. } | Cause::Time => false,
        };
        if let Cause::Asked { .. } = self.cause {
            return Ok(());
        }
        for key in self.keys() {
            let Some(before) = self.before.items[key].filter(|seen| seen.owner.is_some()) else {
                continue;
            };
            let is_own = ends_all && before.owner == self.actor();
            let after = self.after.items[key];
            let due = if is_own {
                let (item, witness) = expected::released(before, self.ghosts[key], self.tick());
                self.witnessed.add(witness);
                self.ghosts[key].doomed = false;
                if item.is_none() {
                    self.ghosts[key] = Ghost::default();
                }
                item
            } else {
                Some(before)
            };
            demand(
                Invariant::LockEnds,
                after.map(Seen::told) == due.map(Seen::told),
                || {
                    format!(
                        "{} is due, and {} is there",
                        described(due),
                        described(after)
                    )
                },
            )?;
        }
        Ok(())
    }
}
