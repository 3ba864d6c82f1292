//! The right to a lock, the safety of a held item, and the end of a lock.
//!
//! Source: docs/PROTOCOL.md, "Locks".

use latchd_core::Owner;
use latchd_protocol::command::{
    Get, GlobalCommand, ItemCommand, Lease, LockAfter, ReleaseOf, Set, SetMode,
};
use latchd_protocol::reply::Refusal;

use super::{Cause, Change, Changing, all_keys};
use crate::expected;
use crate::frame::Judged;
use crate::invariants::Witness;
use crate::reply_seen::ReplySeen;
use crate::snapshot::{SHARDS_MAX, Seen, described};

impl Change<'_> {
    /// E2.
    pub(super) fn held_is_safe(&mut self) -> Judged {
        for key in all_keys() {
            let Some(before) = self.before.items[key].filter(|seen| seen.locked) else {
                continue;
            };
            let may_change = self.asked().is_some_and(|(conn, asked, command, _)| {
                asked == key && self.may_change(conn, key, command)
            });
            let is_actors = self.actor().is_some() && self.owner(key) == self.actor();
            if is_actors || may_change {
                let is_store = matches!(self.answer, Some(ReplySeen::Stored { .. }));
                if is_store && self.asked().is_some_and(|(_, asked, ..)| asked == key) {
                    self.witnessed.add(Witness::OwnerChanges);
                }
                continue;
            }
            let after = self.after.items[key];
            let Some(after) = after else {
                return demand!(HeldIsSafe, false, "{} is gone", described(Some(before)));
            };
            // A lock does not protect the TTL: a client that may read may touch (docs/PROTOCOL.md,
            // "Locks").
            let same = Seen {
                deadline: before.deadline,
                ..after
            };
            demand!(
                HeldIsSafe,
                same.told() == before.told(),
                "{} has become {}",
                described(Some(before)),
                described(Some(after))
            )?;
            if before.is_past(self.now_ms) {
                self.witnessed.add(Witness::HeldPastTtl);
            }
            if self.ghosts[key].flush_pending {
                self.witnessed.add(Witness::HeldThroughFlush);
            }
        }
        for key in all_keys() {
            let (lock, item) = (self.before.locks[key], self.before.items[key]);
            let made = self.after.items[key];
            let (Some(lock), None, Some(_)) = (lock, item, made) else {
                continue;
            };
            let is_right = self.asked().is_some_and(|(conn, asked, command, _)| {
                let is_own = lock.owner == conn;
                asked == key && (is_own || self.may_change(conn, key, command))
            });
            demand!(
                HeldIsSafe,
                is_right,
                "{} is made, and {} holds the key",
                described(made),
                lock.owner
            )?;
            self.witnessed.add(Witness::MadeWhileHeld);
        }
        Ok(())
    }

    /// L6, and the answers that other commands give because of a lock.
    pub(super) fn lock_answers(&mut self) -> Judged {
        let Some((conn, key, command, answer)) = self.asked() else {
            return Ok(());
        };
        match command {
            ItemCommand::Lock { .. }
            | ItemCommand::Acquire(_)
            | ItemCommand::Get(Get { lock: true, .. }) => {
                let (needs_item, lease) = if let ItemCommand::Acquire(acquire) = command {
                    (acquire.needs_item, acquire.lease)
                } else {
                    (true, None)
                };
                let is_own = self.before.locks[key].is_some_and(|lock| lock.owner == conn);
                if lease.is_some() && is_own || lease == Some(Lease::Off) {
                    return self.renewing(conn, key, needs_item, answer);
                }
                self.taking(conn, key, needs_item, answer)
            }
            ItemCommand::Release(release) => {
                let is_meant = self.before.locks[key].is_some_and(|lock| match release.of {
                    ReleaseOf::Own => lock.owner == conn,
                    ReleaseOf::OwnGrant(fence) => {
                        lock.owner == conn && lock.fence == fence.number()
                    }
                    ReleaseOf::Grant(fence) => lock.fence == fence.number(),
                });
                let due = match release.of {
                    _ if is_meant => ReplySeen::Unlocked,
                    ReleaseOf::Own | ReleaseOf::OwnGrant(_) => ReplySeen::NotFound,
                    ReleaseOf::Grant(_) => ReplySeen::Exists,
                };
                self.wanted(answer == due, key, answer, &format!("{due:?} is due"))
            }
            ItemCommand::Unlock { .. } => self.giving_back(conn, key, answer),
            ItemCommand::Set(Set {
                lock: LockAfter::Release,
                mode: SetMode::Replace,
                ..
            }) => self.replacing_and_unlocking(conn, key, answer),
            ItemCommand::SetTooLarge { .. } => self.wanted(
                answer == ReplySeen::Refused(Refusal::TooLarge),
                key,
                answer,
                "it is too large",
            ),
            ItemCommand::Set(_) | ItemCommand::Delete(_) | ItemCommand::Arithmetic(_) => {
                let unlocks = Changing::unlocks(command);
                if let Some(verdict) = self.fenced() {
                    return verdict;
                }
                if unlocks {
                    return self.changing_and_unlocking(conn, key, answer);
                }
                let is_others = self.is_held_by_another(conn, key);
                let is_refused = answer == ReplySeen::Refused(Refusal::Locked);
                self.wanted(
                    is_refused == is_others,
                    key,
                    answer,
                    "that is not who holds it",
                )?;
                if is_others {
                    self.witnessed.add(if self.before.items[key].is_some() {
                        Witness::OwnerOnly
                    } else {
                        Witness::MakingRefused
                    });
                }
                Ok(())
            }
            ItemCommand::Get(_) => Ok(()),
        }
    }

    pub(super) fn owner(&self, key: usize) -> Option<Owner> {
        self.before.locks[key].map(|lock| lock.owner)
    }

    pub(super) fn is_held_by_another(&self, conn: Owner, key: usize) -> bool {
        self.owner(key).is_some_and(|owner| owner != conn)
    }

    /// L6, unless `holds`.
    fn wanted(&self, holds: bool, key: usize, answer: ReplySeen, words: &str) -> Judged {
        let (item, actor) = (self.before.items[key], self.actor());
        let conn = actor.map_or(0, Owner::number);
        demand!(
            LockAnswers,
            holds,
            "{answer:?} to connection {conn}; {words}: {}",
            described(item)
        )
    }

    /// The holder's wish for another lease.
    fn renewing(&mut self, conn: Owner, key: usize, needs_item: bool, answer: ReplySeen) -> Judged {
        let lock = self.before.locks[key].filter(|lock| lock.owner == conn);
        let item = self.before.items[key];
        let due = match lock {
            Some(lock) if item.is_some() || !needs_item => ReplySeen::Granted {
                fence: lock.fence,
                item: item.map(|seen| seen.cas),
            },
            Some(_) | None => ReplySeen::NotFound,
        };
        if lock.is_some() {
            self.witnessed.add(Witness::LeaseRenewed);
        }
        self.wanted(answer == due, key, answer, &format!("{due:?} is due"))
    }

    /// An attempt to take the lock.
    fn taking(&mut self, conn: Owner, key: usize, needs_item: bool, answer: ReplySeen) -> Judged {
        let lock = self.before.locks[key];
        let item = self.before.items[key];
        let is_open = self.before.connections.contains(&Some(conn));
        let held = self
            .before
            .locks
            .iter()
            .flatten()
            .filter(|lock| lock.owner == conn);
        let has_too_many = held.count() >= self.setup.locks_max;
        let is_granted = if let ReplySeen::Granted { item: told, .. } = answer {
            told == item.map(|seen| seen.cas)
        } else {
            matches!(answer, ReplySeen::Locked | ReplySeen::Hit(_))
        };
        let is_contended = if let ReplySeen::Contended { holder } = answer {
            lock.is_some_and(|lock| lock.owner == holder)
        } else {
            answer == ReplySeen::Refused(Refusal::Locked)
        };
        let is_refused = |refusal| answer == ReplySeen::Refused(refusal);
        let (is_right, words) = match lock.map(drop).or(item.map(drop)) {
            None if needs_item => (
                matches!(answer, ReplySeen::NotFound | ReplySeen::Miss),
                "there is nothing to lock",
            ),
            _ if !is_open => (
                is_refused(Refusal::ConnectionClosed),
                "its connection has ended",
            ),
            _ if lock.is_some() => (is_contended, "it is held"),
            _ if has_too_many => (is_refused(Refusal::TooManyLocks), "it has enough"),
            _ => (is_granted, "nothing stands in the way"),
        };
        self.wanted(is_right, key, answer, words)?;
        let is_own = self.owner(key) == Some(conn);
        let witness = match (answer, is_own) {
            (ReplySeen::Refused(Refusal::Locked) | ReplySeen::Contended { .. }, true) => {
                Witness::RelockRefused
            }
            (ReplySeen::Refused(Refusal::Locked) | ReplySeen::Contended { .. }, false) => {
                Witness::LockRefused
            }
            (ReplySeen::Refused(Refusal::TooManyLocks), _) => Witness::TooManyLocks,
            (ReplySeen::Locked | ReplySeen::Granted { .. }, _) => Witness::Granted,
            (ReplySeen::Hit(_), _) => Witness::LockedAndRead,
            (ReplySeen::NotFound | ReplySeen::Miss, _) => Witness::NothingToLock,
            _ => return Ok(()),
        };
        self.witnessed.add(witness);
        Ok(())
    }

    /// `unlock`.
    fn giving_back(&mut self, conn: Owner, key: usize, answer: ReplySeen) -> Judged {
        let due = match (self.before.items[key], self.owner(key) == Some(conn)) {
            (_, true) => ReplySeen::Unlocked,
            (None, false) => ReplySeen::Refused(Refusal::NotLockedNotFound),
            (Some(_), false) => ReplySeen::Refused(Refusal::NotLocked),
        };
        self.wanted(answer == due, key, answer, &format!("{due:?} is due"))?;
        if self.is_held_by_another(conn, key) {
            self.witnessed.add(Witness::UnlockRefused);
        }
        Ok(())
    }

    /// Another change that gives the lock back, as far as it is about the lock.
    fn changing_and_unlocking(&mut self, conn: Owner, key: usize, answer: ReplySeen) -> Judged {
        let is_own = self.owner(key) == Some(conn);
        let is_refused = answer == ReplySeen::Refused(Refusal::NotLocked);
        let is_nothing = self.before.items[key].is_none() && answer == ReplySeen::NotFound;
        let is_right = if is_own {
            !is_refused
        } else {
            is_refused || is_nothing
        };
        self.wanted(is_right, key, answer, "it is to be the holder's")
    }

    /// Replace-and-unlock, as far as it is about the lock.
    fn replacing_and_unlocking(&mut self, conn: Owner, key: usize, answer: ReplySeen) -> Judged {
        let is_lock_to_blame = matches!(
            answer,
            ReplySeen::Refused(Refusal::NotLocked | Refusal::Locked)
        );
        let (is_right, words) = match (self.before.items[key], self.owner(key) == Some(conn)) {
            (None, false) => (answer == ReplySeen::NotFound, "there is none"),
            (None, true) => (
                matches!(answer, ReplySeen::NotFound | ReplySeen::NotStored),
                "there is none, and it holds the key",
            ),
            (Some(_), false) => (
                answer == ReplySeen::Refused(Refusal::NotLocked),
                "it does not hold the lock",
            ),
            (Some(_), true) => (!is_lock_to_blame, "it holds the lock"),
        };
        self.wanted(is_right, key, answer, words)?;
        if self.is_held_by_another(conn, key) {
            self.witnessed.add(Witness::NotMine);
        }
        Ok(())
    }

    /// L7, for locks that end by `unlock_all` and by close, and for those that must not end.
    pub(super) fn locks_end(&mut self) -> Judged {
        let ends_all = match self.cause {
            Cause::AskedAll {
                command: GlobalCommand::UnlockAll,
                ..
            }
            | Cause::Closed { .. } => true,
            Cause::AskedAll { .. } | Cause::Asked { .. } | Cause::Time => false,
        };
        if let Cause::Asked { .. } = self.cause {
            return Ok(());
        }
        let mut shards = [false; SHARDS_MAX];
        for key in all_keys() {
            let owner = self.owner(key);
            if ends_all && owner.is_some() && owner == self.actor() {
                shards[self.setup.shard_of(key)] = true;
            }
            let Some(before) = self.before.items[key].filter(|_| owner.is_some()) else {
                continue;
            };
            let is_own = ends_all && owner == self.actor();
            let after = self.after.items[key];
            let due = if is_own {
                let (item, ghost, witness) =
                    expected::released(before, self.ghosts[key], self.tick());
                self.witnessed.add(witness);
                self.ghosts[key] = ghost;
                item
            } else {
                Some(before)
            };
            demand!(
                LockEnds,
                after.map(Seen::told) == due.map(Seen::told),
                "{} is due, and {} is there",
                described(due),
                described(after)
            )?;
        }
        if shards.iter().all(|has| *has) {
            self.witnessed.add(Witness::LocksOfTwoShards);
        }
        Ok(())
    }
}
