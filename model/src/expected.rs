//! The expected state of an item when a command about it is answered as done.
//!
//! Written from docs/PROTOCOL.md and not from the engine: this is the other half of
//! [`rules`](crate::rules).

use latchd_protocol::command::{
    Arithmetic, Delete, Direction, Get, Guard, ItemCommand, LockAfter, NewCas, Removal, Set,
    SetMode, TtlStep, TtlSteps,
};
use latchd_protocol::item::WinMark;
use latchd_protocol::time::{Exptime, TICK_MS, Tick};

use crate::invariants::{Invariant, Witness};
use crate::reply_seen::ReplySeen;
use crate::snapshot::Seen;
use crate::world::Ghost;

/// A command about one key, and how it was answered.
pub(crate) struct Answered<'a> {
    pub(crate) command: &'a ItemCommand<'a>,
    pub(crate) answer: ReplySeen,
    /// Another connection holds the key.
    pub(crate) is_others: bool,
    pub(crate) now_ms: u64,
    /// The number that the next change was to get.
    pub(crate) next_cas: u64,
}

/// The expected item afterwards.
pub(crate) struct Expected {
    pub(crate) item: Option<Seen>,
    pub(crate) ghost: Ghost,
    /// The invariant that is broken otherwise.
    pub(crate) invariant: Invariant,
    pub(crate) witness: Option<Witness>,
}

impl Expected {
    fn new(item: Option<Seen>, ghost: Ghost) -> Self {
        Self {
            item,
            ghost: item.map_or_else(Ghost::default, |_| ghost),
            invariant: Invariant::DoneIsDone,
            witness: None,
        }
    }

    fn shows(self, witness: Witness) -> Self {
        let witness = Some(witness);
        Self { witness, ..self }
    }

    /// The lock goes with the change, if that was asked for.
    fn unlocked(self, lock: LockAfter, now: Tick) -> Self {
        let Some(held) = self.item.filter(|_| lock == LockAfter::Release) else {
            return self;
        };
        let (item, ghost, _) = released(held, self.ghost, now);
        Self {
            item,
            ghost,
            ..self
        }
    }
}

/// The rest of an item after its lock ends, and the witness of that.
pub(crate) fn released(held: Seen, ghost: Ghost, now: Tick) -> (Option<Seen>, Ghost, Witness) {
    if ghost.flush_pending {
        (None, Ghost::default(), Witness::FlushedAtUnlock)
    } else if held.deadline.is_some_and(|deadline| deadline <= now) {
        (None, Ghost::default(), Witness::ExpiredAtUnlock)
    } else {
        let locked = false;
        (Some(Seen { locked, ..held }), ghost, Witness::Unlocked)
    }
}

impl Answered<'_> {
    /// The expected state of an item that was `before`; `None` if nothing was done.
    pub(crate) fn outcome(&self, before: Option<Seen>, ghost: Ghost) -> Option<Expected> {
        let now = self.now();
        Some(match (self.command, self.answer, before) {
            (ItemCommand::Get(get), ReplySeen::Hit(_), Some(seen)) => {
                // The reply about the win is a rule of its own (R1, R2).
                Expected::new(Some(self.after_get(get, seen)), ghost)
            }
            // One that is made and gone at once is not among the verbs.
            (ItemCommand::Get(get), ReplySeen::Hit(hit), None) => {
                let item = Seen {
                    deadline: self.vivified(&get.steps),
                    ..made(hit.cas, b"")
                };
                Expected::new(Some(item), ghost)
            }
            (ItemCommand::Set(set), ReplySeen::Stored { cas }, _) => {
                self.after_set(set, cas, before, ghost)
            }
            (ItemCommand::Delete(delete), ReplySeen::Deleted, Some(seen)) => self
                .after_delete(delete, seen, ghost)
                .unlocked(delete.lock, now),
            (ItemCommand::Arithmetic(sum), ReplySeen::Number { cas, .. }, None) => {
                let item = Seen {
                    deadline: self.vivified(&sum.steps),
                    ..made(cas, sum.initial.to_string().as_bytes())
                };
                let fresh = Ghost {
                    win_out: false,
                    ..ghost
                };
                let expected = Expected::new(Some(item), fresh).unlocked(sum.lock, now);
                expected.shows(Witness::NumberMade)
            }
            (ItemCommand::Arithmetic(sum), ReplySeen::Number { cas, .. }, Some(seen)) => {
                let digits = counted(sum, before)?.to_string();
                let width = seen.value.1.max(digits.len());
                let value = bytes(format!("{digits:width$}").as_bytes());
                let item = Seen { cas, value, ..seen };
                let expected = Expected::new(Some(item), ghost).unlocked(sum.lock, now);
                expected.shows(Witness::Counted)
            }
            (ItemCommand::Lock { .. }, ReplySeen::Locked, Some(seen))
            | (ItemCommand::Acquire(_), ReplySeen::Granted { .. }, Some(seen)) => {
                Expected::new(Some(held(seen)), ghost)
            }
            (
                ItemCommand::Unlock { .. } | ItemCommand::Release(_),
                ReplySeen::Unlocked,
                Some(seen),
            ) => {
                let (item, ghost, witness) = released(seen, ghost, now);
                Expected {
                    invariant: Invariant::LockEnds,
                    ..Expected::new(item, ghost).shows(witness)
                }
            }
            // Its value would have been too large: the item that it was to replace is removed.
            (ItemCommand::SetTooLarge { .. }, _, before) => {
                Expected::new(before.filter(|_| self.is_others), ghost)
            }
            _ => return None,
        })
    }

    fn after_get(&self, get: &Get<'_>, seen: Seen) -> Seen {
        let touched = get.steps.iter().fold(seen, |seen, step| match step {
            TtlStep::Touch(exptime) => Seen {
                deadline: self.deadline(exptime),
                ..seen
            },
            TtlStep::Vivify(_) | TtlStep::Recache(_) => seen,
        });
        if get.lock { held(touched) } else { touched }
    }

    fn after_set(&self, set: &Set<'_>, cas: u64, before: Option<Seen>, ghost: Ghost) -> Expected {
        let is_older = match (set.guard, before) {
            (Guard::MatchElseStale(known), Some(seen)) => known.number() < seen.cas,
            (Guard::None | Guard::Match(_) | Guard::MatchElseStale(_) | Guard::Never, _) => false,
        };
        let old = before.unwrap_or(made(cas, b""));
        let stored = match set.mode {
            SetMode::Set | SetMode::Add | SetMode::Replace => Seen {
                cas,
                value: bytes(&set.value),
                deadline: if is_older {
                    old.deadline
                } else {
                    self.deadline(set.exptime)
                },
                stale: is_older,
                ..old
            },
            // The one that stands before or behind is empty.
            SetMode::Append { .. } | SetMode::Prepend { .. } => Seen {
                cas,
                stale: false,
                deadline: before.map_or(self.deadline(set.exptime), |seen| seen.deadline),
                ..old
            },
        };
        let is_whole = match set.mode {
            SetMode::Set | SetMode::Add | SetMode::Replace => true,
            SetMode::Append { .. } | SetMode::Prepend { .. } => before.is_none(),
        };
        let witness = if set.lock == LockAfter::Release {
            Witness::UnlockedByReplace
        } else if is_older {
            Witness::StoredStale
        } else if ghost.flush_pending && is_whole {
            Witness::FlushCleared
        } else {
            Witness::Stored
        };
        let ghost = Ghost {
            win_out: is_older && ghost.win_out,
            flush_pending: ghost.flush_pending && !is_whole,
        };
        let expected = Expected::new(Some(stored), ghost).unlocked(set.lock, self.now());
        Expected {
            invariant: if is_older {
                Invariant::StaleStays
            } else {
                Invariant::DoneIsDone
            },
            ..expected.shows(witness)
        }
    }

    fn after_delete(&self, delete: &Delete<'_>, seen: Seen, ghost: Ghost) -> Expected {
        let cas = match delete.new_cas {
            NewCas::Next => self.next_cas,
            NewCas::Is(cas) => cas.number(),
        };
        let marked = |seen: Seen| Seen {
            cas,
            stale: true,
            ..seen
        };
        let emptied = |seen: Seen, exptime| Seen {
            value: bytes(b""),
            deadline: self.deadline(exptime),
            ..seen
        };
        let opened = |item| Expected {
            invariant: Invariant::MarkOpens,
            witness: ghost.win_out.then_some(Witness::MarkedWhileOut),
            ..Expected::new(
                Some(item),
                Ghost {
                    win_out: false,
                    ..ghost
                },
            )
        };
        match delete.removal {
            Removal::Remove => Expected::new(None, ghost).shows(Witness::Removed),
            Removal::MarkStale { exptime } => {
                let deadline = exptime.map_or(seen.deadline, |at| self.deadline(at));
                opened(Seen {
                    deadline,
                    ..marked(seen)
                })
            }
            Removal::Clear { exptime, .. } => {
                let item = Seen {
                    stale: false,
                    ..emptied(seen, exptime)
                };
                Expected::new(Some(item), ghost).shows(if ghost.win_out {
                    Witness::EmptiedWhileOut
                } else {
                    Witness::Emptied
                })
            }
            Removal::ClearAndMarkStale { exptime, .. } => opened(emptied(marked(seen), exptime)),
        }
    }

    const fn now(&self) -> Tick {
        latchd_core::Instant::from_millis(self.now_ms).tick()
    }

    /// The deadline of an item that these steps have made.
    fn vivified(&self, steps: &TtlSteps) -> Option<Tick> {
        let exptime = steps.iter().find_map(|step| match step {
            TtlStep::Vivify(exptime) => Some(exptime),
            TtlStep::Touch(_) | TtlStep::Recache(_) => None,
        });
        exptime.and_then(|exptime| self.deadline(exptime))
    }

    /// The first tick that begins when the TTL has passed, or later.
    fn deadline(&self, exptime: Exptime) -> Option<Tick> {
        let after = |ms: u64| {
            let ticks = (self.now_ms + ms).div_ceil(TICK_MS);
            Tick::from_count(u32::try_from(ticks).expect("a model's time is short"))
        };
        match exptime {
            Exptime::Never => None,
            Exptime::Past => Some(after(0)),
            Exptime::In { seconds } => Some(after(u64::from(seconds) * 1000)),
            Exptime::At { .. } => unreachable!("no verb has a date"),
        }
    }
}

/// The result of the arithmetic; `None` if it is no number.
pub(crate) fn counted(sum: &Arithmetic<'_>, before: Option<Seen>) -> Option<u64> {
    let Some(Seen { value, .. }) = before else {
        return Some(sum.initial);
    };
    let (start, bytes) = value;
    let digits = std::str::from_utf8(start.get(..bytes)?).ok()?;
    let number: u64 = digits.trim_end().parse().ok()?;
    Some(match sum.direction {
        Direction::Increment => number.wrapping_add(sum.delta),
        Direction::Decrement => number.saturating_sub(sum.delta),
    })
}

fn held(seen: Seen) -> Seen {
    let locked = true;
    Seen { locked, ..seen }
}

/// A new item that never expires.
fn made(cas: u64, value: &[u8]) -> Seen {
    Seen {
        cas,
        value: bytes(value),
        deadline: None,
        stale: false,
        win: WinMark::None,
        locked: false,
        flush_pending: false,
        place: 0,
        hits: 0,
    }
}

/// A value as a snapshot has it.
fn bytes(value: &[u8]) -> ([u8; 8], usize) {
    let mut start = [0; 8];
    for (to, from) in start.iter_mut().zip(value) {
        *to = *from;
    }
    (start, value.len())
}
