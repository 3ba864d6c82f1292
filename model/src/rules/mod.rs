//! The permitted effects of every event, stated once more and from outside: one function an
//! invariant.
//!
//! A rule looks at the state before an event, at the request, at the answer, and at the state
//! afterwards. It never asks the core for its meaning. Before each event, the effects of time are
//! applied ([`World::enter`](crate::world::World)): an item with a past deadline is invisible,
//! whether or not the core has noticed.

/// An offence, unless this holds.
macro_rules! demand {
    (@$invariant:expr, $holds:expr, $($what:tt)+) => {
        if $holds { Ok(()) } else { Err(format!("{}: {}", $invariant, format_args!($($what)+))) }
    };
    ($invariant:ident, $($what:tt)+) => {
        $crate::rules::demand!(@$crate::invariants::Invariant::$invariant, $($what)+)
    };
}
pub(crate) use demand;

mod grants;
mod items;
mod locks;
mod wins;

use std::ops::Range;

use latchd_core::{Instant, Owner};
use latchd_protocol::command::{GlobalCommand, Guard, ItemCommand, LockAfter, NewCas};
use latchd_protocol::fence::Fence;
use latchd_protocol::reply::Refusal;
use latchd_protocol::time::{Exptime, Tick};

use crate::frame::{Judged, Shown};
use crate::invariants::{Invariant, Witness};
use crate::reply_seen::ReplySeen;
use crate::setup::{Room, Setup};
use crate::snapshot::{SHARDS_MAX, Seen, Snapshot, described};
use crate::world::Ghost;

/// Why something has changed.
#[derive(Clone, Debug)]
pub(crate) enum Cause<'a> {
    /// A connection asked for something about one key.
    Asked {
        conn: Owner,
        key: usize,
        command: ItemCommand<'a>,
    },
    /// A connection asked for something about all items, or all its locks.
    AskedAll {
        conn: Owner,
        command: GlobalCommand<'a>,
    },
    /// A connection has ended.
    Closed { conn: Owner },
    /// Time has passed.
    Time,
}

/// One event, and its effects.
pub(crate) struct Change<'a> {
    pub(crate) setup: &'a Setup,
    pub(crate) cause: &'a Cause<'a>,
    pub(crate) answer: Option<ReplySeen>,
    pub(crate) now_ms: u64,
    pub(crate) before: &'a Snapshot,
    pub(crate) after: &'a Snapshot,
    /// As they were before, and after [`Self::judge`] as they are now.
    pub(crate) ghosts: [Ghost; crate::action::KEYS.len()],
    pub(crate) flush_due_ms: Option<u64>,
    /// The greatest number that each shard has given to a change.
    pub(crate) given: [u64; SHARDS_MAX],
    /// The greatest fence that was given.
    pub(crate) fence_given: u64,
    pub(crate) witnessed: Shown,
}

/// The common parts of requests that change an item.
struct Changing {
    guard: Guard,
    /// The grant in the right of which the request is to be done.
    fence: Option<Fence>,
    /// The lock after the request.
    lock: LockAfter,
    new_cas: NewCas,
    /// It makes the item if there is none.
    makes: bool,
}

impl Changing {
    fn of(command: &ItemCommand<'_>) -> Option<Self> {
        let (guard, fence, lock, new_cas, makes) = match command {
            ItemCommand::Set(it) => (it.guard, it.fence, it.lock, it.new_cas, it.mode.creates()),
            ItemCommand::Delete(it) => (it.guard, it.fence, it.lock, it.new_cas, false),
            ItemCommand::Arithmetic(it) => {
                (it.guard, it.fence, it.lock, it.new_cas, it.steps.vivifies())
            }
            ItemCommand::Get(_)
            | ItemCommand::SetTooLarge { .. }
            | ItemCommand::Acquire(_)
            | ItemCommand::Release(_)
            | ItemCommand::Lock { .. }
            | ItemCommand::Unlock { .. } => return None,
        };
        Some(Self {
            guard,
            fence,
            lock,
            new_cas,
            makes,
        })
    }

    fn unlocks(command: &ItemCommand<'_>) -> bool {
        Self::of(command).is_some_and(|it| it.lock == LockAfter::Release)
    }
}

impl Change<'_> {
    /// Applies every rule.
    pub(crate) fn judge(&mut self) -> Judged {
        self.time()?;
        self.refusal_changes_nothing()?;
        self.held_is_safe()?;
        self.lock_answers()?;
        self.grants()?;
        self.reads()?;
        self.lists()?;
        self.modes()?;
        self.guards()?;
        self.versions()?;
        self.flush()?;
        self.win()?;
        self.counts()?;
        self.done_is_done()?;
        self.others()?;
        self.locks_end()
    }

    fn asked(&self) -> Option<(Owner, usize, &ItemCommand<'_>, ReplySeen)> {
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

    /// The connection that caused it, if one did.
    fn actor(&self) -> Option<Owner> {
        match self.cause {
            Cause::Asked { conn, .. } | Cause::AskedAll { conn, .. } | Cause::Closed { conn } => {
                Some(*conn)
            }
            Cause::Time => None,
        }
    }

    /// T3.
    fn time(&self) -> Judged {
        let (before, after) = (self.before, self.after);
        demand!(
            TimeGoesOn,
            after.now_ms >= before.now_ms,
            "from {} to {} ms",
            before.now_ms,
            after.now_ms
        )
    }

    /// E1.
    fn refusal_changes_nothing(&mut self) -> Judged {
        let Some(answer) = self.answer.filter(ReplySeen::is_refusal) else {
            return Ok(());
        };
        for key in all_keys() {
            let (before, after) = (self.before.items[key], self.after.items[key]);
            demand!(
                RefusedIsNothing,
                before.map(Seen::told) == after.map(Seen::told),
                "{answer:?} has made {} into {}",
                described(before),
                described(after)
            )?;
            let is_same = self.before.locks[key] == self.after.locks[key];
            demand!(
                RefusedIsNothing,
                is_same,
                "{answer:?} has changed who holds {}",
                crate::action::name(key)
            )?;
        }
        let (before, after) = (self.before, self.after);
        demand!(
            RefusedIsNothing,
            before.next_cas == after.next_cas,
            "{answer:?} has used up a version"
        )?;
        if answer == ReplySeen::Refused(Refusal::OutOfMemory) {
            self.witnessed.add(Witness::NoRoom);
        }
        if answer == ReplySeen::Refused(Refusal::ConnectionClosed) {
            self.witnessed.add(Witness::LateRefused);
        }
        Ok(())
    }

    /// F1.
    fn flush(&mut self) -> Judged {
        if let Cause::AskedAll {
            command: GlobalCommand::FlushAll { at },
            ..
        } = self.cause
        {
            if let Exptime::In { seconds } = at {
                self.flush_due_ms = Some(self.now_ms + u64::from(*seconds) * 1000);
            } else {
                self.flush_due_ms = None;
                for key in all_keys() {
                    let was_there = self.before.items[key].is_some();
                    let was_held = self.before.items[key].is_some_and(|seen| seen.locked);
                    if was_held {
                        self.ghosts[key].flush_pending = true;
                        continue;
                    }
                    if was_there {
                        self.witnessed.add(Witness::Flushed);
                    }
                    self.ghosts[key] = Ghost::default();
                    let after = self.after.items[key];
                    demand!(Flush, after.is_none(), "{} is left", described(after))?;
                }
            }
        }
        let (due, at) = (self.flush_due_ms, self.after.flush_at_ms);
        demand!(Flush, due == at, "it is due at {due:?}, not at {at:?}")
    }

    /// E4 and T1: everything that the event was not about is unchanged.
    fn others(&mut self) -> Judged {
        let own = self.asked().map(|(_, key, ..)| key);
        let stores = matches!(
            self.answer,
            Some(
                ReplySeen::Stored { .. }
                    | ReplySeen::Number { .. }
                    | ReplySeen::Hit(_)
                    | ReplySeen::Deleted
            )
        );
        let is_flush = matches!(
            self.cause,
            Cause::AskedAll {
                command: GlobalCommand::FlushAll { at: Exptime::Never },
                ..
            }
        );
        for key in all_keys().filter(|key| Some(*key) != own) {
            let Some(before) = self.before.items[key] else {
                let after = self.after.items[key];
                demand!(
                    OthersUntouched,
                    after.is_none(),
                    "{} out of nothing",
                    described(after)
                )?;
                continue;
            };
            if self.owner(key).is_some() {
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
            demand!(@invariant,
                after.map(Seen::told) == Some(before.told()),
                "{} has become {}",
                described(Some(before)),
                described(after)
            )?;
        }
        Ok(())
    }

    /// Whether this event has taken an item out for room.
    fn evicts(&self) -> bool {
        let own = self.asked().map(|(_, key, ..)| key);
        all_keys().any(|key| {
            Some(key) != own && self.before.items[key].is_some() && self.after.items[key].is_none()
        })
    }

    const fn tick(&self) -> Tick {
        Instant::from_millis(self.now_ms).tick()
    }
}

/// All keys.
fn all_keys() -> Range<usize> {
    0..crate::action::KEYS.len()
}

/// Takes expired items that are not held out of a snapshot.
pub(crate) fn forget_expired(snapshot: &mut Snapshot, now_ms: u64) {
    for item in &mut snapshot.items {
        if item.is_some_and(|seen| !seen.locked && seen.is_past(now_ms)) {
            *item = None;
        }
    }
}
