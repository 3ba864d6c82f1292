//! What every event may do, stated once more and from outside: one function an invariant.
//!
//! A rule looks at what was there before an event, at the request, at the answer, and at what is
//! there afterwards. It never asks the core what it means. Before each event, what time has done by
//! itself is taken off ([`World::event`](crate::world::World)): an item whose TTL has passed is not
//! there for anybody, whether or not the core has noticed.

use latchd_core::command::{Command, Get, Guard, LockAfter, NewCas, Set, TtlStep};
use latchd_core::reply::{Refusal, Win};
use latchd_core::time::{Exptime, Tick};
use latchd_core::{ConnId, Instant};

use crate::answer::Answer;
use crate::expected::{self, Expected};
use crate::invariants::{Invariant, Witness, Witnesses};
use crate::setup::{Room, Setup};
use crate::snapshot::{Seen, Snapshot, described};
use crate::world::{Fault, Ghost};

/// Why something has changed.
#[derive(Clone, Debug)]
pub(crate) enum Cause<'a> {
    /// A connection asked for something about one key.
    Asked {
        conn: ConnId,
        key: usize,
        command: Command<'a>,
    },
    /// A connection asked for something about all items, or all its locks, in this shard.
    AskedAll { conn: ConnId, command: Command<'a> },
    /// A connection has ended, as far as this shard is concerned.
    Closed { conn: ConnId },
    /// Time has passed.
    Time,
}

/// One event, and what has come of it.
pub(crate) struct Change<'a> {
    pub(crate) setup: &'a Setup,
    pub(crate) cause: &'a Cause<'a>,
    pub(crate) answer: Option<Answer>,
    pub(crate) shard: usize,
    pub(crate) now_ms: u64,
    pub(crate) before: &'a Snapshot,
    pub(crate) after: &'a Snapshot,
    /// As they were before, and after [`Self::judge`] as they are now.
    pub(crate) ghosts: [Ghost; crate::action::KEYS.len()],
    pub(crate) flush_due_ms: Option<u64>,
    pub(crate) given: u64,
    pub(crate) witnessed: Witnesses,
}

type Verdict = Result<(), Fault>;

/// An offence, unless `holds`.
pub(crate) fn demand(invariant: Invariant, holds: bool, what: impl FnOnce() -> String) -> Verdict {
    if holds {
        Ok(())
    } else {
        Err(Fault {
            invariant,
            what: what(),
        })
    }
}

impl Change<'_> {
    /// Applies every rule.
    pub(crate) fn judge(&mut self) -> Verdict {
        self.time()?;
        self.refusal_changes_nothing()?;
        self.held_is_safe()?;
        self.lock_answers()?;
        self.reads()?;
        self.guards()?;
        self.versions()?;
        self.flush()?;
        self.win()?;
        self.done_is_done()?;
        self.others()?;
        self.locks_end()
    }

    /// The keys of this shard.
    fn keys(&self) -> impl Iterator<Item = usize> + use<> {
        let (shard, shards) = (self.shard, self.setup.shards);
        (0..crate::action::KEYS.len()).filter(move |key| key % shards == shard)
    }

    fn asked(&self) -> Option<(ConnId, usize, &Command<'_>, Answer)> {
        match (self.cause, self.answer) {
            (
                Cause::Asked {
                    conn, key, command, ..
                },
                Some(answer),
            ) => Some((*conn, *key, command, answer)),
            (
                Cause::Asked { .. } | Cause::AskedAll { .. } | Cause::Closed { .. } | Cause::Time,
                _,
            ) => None,
        }
    }

    /// Whoever caused it, if it was somebody.
    fn actor(&self) -> Option<ConnId> {
        match self.cause {
            Cause::Asked { conn, .. } | Cause::AskedAll { conn, .. } | Cause::Closed { conn } => {
                Some(*conn)
            }
            Cause::Time => None,
        }
    }

    /// T3.
    fn time(&self) -> Verdict {
        let (before, after) = (
            &self.before.shards[self.shard],
            &self.after.shards[self.shard],
        );
        demand(Invariant::TimeGoesOn, after.now_ms >= before.now_ms, || {
            format!("from {} to {} ms", before.now_ms, after.now_ms)
        })
    }

    /// E1.
    fn refusal_changes_nothing(&mut self) -> Verdict {
        let Some(answer) = self.answer.filter(Answer::is_refusal) else {
            return Ok(());
        };
        for key in self.keys() {
            let (before, after) = (self.before.items[key], self.after.items[key]);
            demand(
                Invariant::RefusedIsNothing,
                before.map(Seen::told) == after.map(Seen::told),
                || {
                    format!(
                        "{answer:?} has made {} into {}",
                        described(before),
                        described(after)
                    )
                },
            )?;
        }
        let (before, after) = (
            &self.before.shards[self.shard],
            &self.after.shards[self.shard],
        );
        demand(
            Invariant::RefusedIsNothing,
            before.next_cas == after.next_cas,
            || format!("{answer:?} has used up a version"),
        )?;
        if answer == Answer::Refused(Refusal::OutOfMemory) {
            self.witnessed.add(Witness::NoRoom);
        }
        if answer == Answer::Refused(Refusal::ConnectionClosed) {
            self.witnessed.add(Witness::LateRefused);
        }
        Ok(())
    }

    /// E2.
    fn held_is_safe(&mut self) -> Verdict {
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
                    described(after.into())
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
    fn lock_answers(&mut self) -> Verdict {
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

    /// E7 and T1: whoever reads finds what is there, and nothing that has expired.
    fn reads(&mut self) -> Verdict {
        let Some((conn, key, Command::Get(get), answer)) = self.asked() else {
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
        let is_right = match (item, answer) {
            (Some(seen), Answer::Hit(hit)) => {
                hit.cas == seen.cas && hit.value_bytes == seen.value.1 && hit.stale == seen.stale
            }
            (Some(_), _) => false,
            (None, Answer::Hit(_) | Answer::Refused(Refusal::OutOfMemory)) => get.steps.vivifies(),
            (None, answer) => answer == Answer::Miss && !get.steps.vivifies(),
        };
        if item
            .and_then(|seen| seen.owner)
            .is_some_and(|owner| owner != conn)
        {
            self.witnessed.add(if touches {
                Witness::TouchHeld
            } else {
                Witness::ReadHeld
            });
        }
        demand(Invariant::ReadsAreFree, is_right, || {
            format!("{answer:?} of {}", described(item))
        })
    }

    /// E5.
    fn guards(&mut self) -> Verdict {
        let Some((conn, key, command, answer)) = self.asked() else {
            return Ok(());
        };
        let guard = match command {
            Command::Set(set) => set.guard,
            Command::Delete(delete) => delete.guard,
            Command::Arithmetic(arithmetic) => arithmetic.guard,
            Command::Get(_)
            | Command::SetTooLarge { .. }
            | Command::Lock { .. }
            | Command::Unlock { .. }
            | Command::UnlockAll
            | Command::FlushAll { .. }
            | Command::Keys(_)
            | Command::Stats(_)
            | Command::StatsReset => return Ok(()),
        };
        let is_done = matches!(
            answer,
            Answer::Stored { .. } | Answer::Deleted | Answer::Number { .. }
        );
        let is_wrong_version = answer == Answer::Exists;
        let Some(seen) = self.before.items[key] else {
            return demand(Invariant::Guards, guard == Guard::None || !is_done, || {
                format!("{answer:?} of a version of nothing")
            });
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
            if seen.owner == Some(conn) {
                self.witnessed.add(Witness::CasKeepsLock);
            }
        }
        demand(
            Invariant::Guards,
            if fits { !is_wrong_version } else { !is_done },
            || format!("{answer:?} to {guard:?}: {}", described(Some(seen))),
        )
    }

    /// E3.
    fn versions(&mut self) -> Verdict {
        let (before, after) = (
            &self.before.shards[self.shard],
            &self.after.shards[self.shard],
        );
        let chosen = self.asked().and_then(|(_, key, command, _)| {
            let new_cas = match command {
                Command::Get(get) => get.new_cas,
                Command::Set(set) => set.new_cas,
                Command::Delete(delete) => delete.new_cas,
                Command::Arithmetic(arithmetic) => arithmetic.new_cas,
                Command::SetTooLarge { .. }
                | Command::Lock { .. }
                | Command::Unlock { .. }
                | Command::UnlockAll
                | Command::FlushAll { .. }
                | Command::Keys(_)
                | Command::Stats(_)
                | Command::StatsReset => NewCas::Next,
            };
            match new_cas {
                NewCas::Next => None,
                NewCas::Is(cas) => Some((key, cas.number())),
            }
        });
        for key in self.keys() {
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
            let given = self.given;
            demand(Invariant::VersionsGrow, item.cas > given, || {
                format!("{} is given after {given}", item.cas)
            })?;
            // Each of several cores has numbers of its own.
            let (shards, shard) = (self.setup.shards as u64, self.shard as u64);
            demand(
                Invariant::VersionsGrow,
                (item.cas - 1) % shards == shard,
                || format!("{} is a number of another shard", item.cas),
            )?;
            self.given = item.cas;
        }
        let given = self.given;
        demand(Invariant::VersionsGrow, after.next_cas > given, || {
            format!("{} comes next, and {given} was given", after.next_cas)
        })?;
        demand(
            Invariant::VersionsGrow,
            after.next_cas >= before.next_cas,
            || format!("{} comes after {}", after.next_cas, before.next_cas),
        )
    }

    /// F1.
    fn flush(&mut self) -> Verdict {
        if let Cause::AskedAll {
            command: Command::FlushAll { at },
            ..
        } = self.cause
        {
            if let Exptime::In { seconds } = at {
                self.flush_due_ms = Some(self.now_ms + u64::from(*seconds) * 1000);
            } else {
                self.flush_due_ms = None;
                for key in self.keys() {
                    let was_there = self.before.items[key].is_some();
                    let was_held = self.before.items[key].is_some_and(|seen| seen.locked);
                    if was_held {
                        self.ghosts[key].doomed = true;
                        continue;
                    }
                    if was_there {
                        self.witnessed.add(Witness::Flushed);
                    }
                    self.ghosts[key] = Ghost::default();
                    let after = self.after.items[key];
                    demand(Invariant::Flush, after.is_none(), || {
                        format!("{} is left", described(after))
                    })?;
                }
            }
        }
        let (due, at) = (self.flush_due_ms, self.after.shards[self.shard].flush_at_ms);
        demand(Invariant::Flush, due == at, || {
            format!("it is due at {due:?}, not at {at:?}")
        })
    }

    /// R1, R2.
    fn win(&mut self) -> Verdict {
        let Some((_, key, Command::Get(get), Answer::Hit(hit))) = self.asked() else {
            return Ok(());
        };
        if !get.recaches {
            return demand(Invariant::WinIsFound, hit.win == Win::None, || {
                format!("{:?} for a plain get", hit.win)
            });
        }
        let item = self.before.items[key];
        let short = |token: Exptime| match (token, item.and_then(|seen| seen.deadline)) {
            (Exptime::In { seconds }, Some(deadline)) => {
                let left = deadline.count().saturating_sub(self.tick().count());
                left < seconds * 4
            }
            _ => false,
        };
        let is_short = get.steps.iter().any(|step| match step {
            TtlStep::Recache(token) => short(token),
            TtlStep::Touch(_) | TtlStep::Vivify(_) => false,
        });
        let is_out = self.ghosts[key].win_out;
        let is_open = !is_out && item.is_none_or(|seen| seen.stale || is_short);
        let expected = match (is_open, is_out) {
            (true, _) => Win::Won,
            (false, true) => Win::Sent,
            (false, false) => Win::None,
        };
        match (hit.win, item) {
            (Win::Won, None) => self.witnessed.add(Witness::WonByMaking),
            (Win::Won, Some(seen)) if seen.stale => self.witnessed.add(Witness::WonStale),
            (Win::Won, Some(_)) => self.witnessed.add(Witness::WonShort),
            (Win::Sent, _) => self.witnessed.add(Witness::AnotherHasWon),
            (Win::None, _) => {}
        }
        demand(Invariant::OneWin, !(hit.win == Win::Won && is_out), || {
            "somebody has the win already".to_owned()
        })?;
        demand(Invariant::WinIsFound, hit.win == expected, || {
            format!(
                "{:?}, and {expected:?} is due: {}",
                hit.win,
                described(item)
            )
        })?;
        self.ghosts[key].win_out |= hit.win == Win::Won;
        Ok(())
    }

    /// E6, R3, R4: what the answer says was done is what has become of the item.
    fn done_is_done(&mut self) -> Verdict {
        let Some((conn, key, command, answer)) = self.asked() else {
            return Ok(());
        };
        let before = self.before.items[key];
        let request = expected::Request {
            conn,
            command,
            answer,
            now_ms: self.now_ms,
            next_cas: self.before.shards[self.shard].next_cas,
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
        demand(
            invariant,
            after.map(Seen::told) == item.map(Seen::told),
            || {
                format!(
                    "{answer:?}: {} is due, and {} is there",
                    described(item),
                    described(after)
                )
            },
        )
    }

    /// E4 and T1: what the event was not about is as it was.
    fn others(&mut self) -> Verdict {
        let own = self.asked().map(|(_, key, ..)| key);
        let stores = matches!(
            self.answer,
            Some(Answer::Stored { .. } | Answer::Number { .. } | Answer::Hit(_) | Answer::Deleted)
        );
        let is_flush = matches!(
            self.cause,
            Cause::AskedAll {
                command: Command::FlushAll { at: Exptime::Never },
                ..
            }
        );
        for key in self.keys().filter(|key| Some(*key) != own) {
            let Some(before) = self.before.items[key] else {
                let after = self.after.items[key];
                demand(Invariant::OthersUntouched, after.is_none(), || {
                    format!("{} out of nothing", described(after))
                })?;
                continue;
            };
            if before.owner.is_some() {
                // E2 and L7 speak of these.
                if stores && self.setup.room != Room::Ample && self.evicts() {
                    self.witnessed.add(Witness::EvictionPassesOver);
                }
                continue;
            }
            let after = self.after.items[key];
            if after.is_none() && stores && self.setup.room != Room::Ample {
                self.witnessed.add(Witness::Evicted);
                self.ghosts[key] = Ghost::default();
                continue;
            }
            if is_flush {
                continue;
            }
            let invariant = match self.cause {
                Cause::Time => Invariant::Expiry,
                Cause::Asked { .. } | Cause::AskedAll { .. } | Cause::Closed { .. } => {
                    Invariant::OthersUntouched
                }
            };
            if own.is_some() {
                self.witnessed.add(Witness::TwoItems);
            }
            demand(
                invariant,
                after.map(Seen::told) == Some(before.told()),
                || {
                    format!(
                        "{} has become {}",
                        described(Some(before)),
                        described(after.into())
                    )
                },
            )?;
        }
        Ok(())
    }

    /// Whether this event has taken an item out for room.
    fn evicts(&self) -> bool {
        let own = self.asked().map(|(_, key, ..)| key);
        self.keys().any(|key| {
            Some(key) != own && self.before.items[key].is_some() && self.after.items[key].is_none()
        })
    }

    /// L7, for locks that end by `unlock_all` and by close, and for those that must not end.
    fn locks_end(&mut self) -> Verdict {
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

    const fn tick(&self) -> Tick {
        Instant::from_millis(self.now_ms).tick()
    }
}

/// Takes out of a snapshot what has expired and is not held.
pub(crate) fn forget_expired(snapshot: &mut Snapshot, now_ms: u64) {
    for item in &mut snapshot.items {
        if item.is_some_and(|seen| !seen.locked && seen.is_past(now_ms)) {
            *item = None;
        }
    }
}
