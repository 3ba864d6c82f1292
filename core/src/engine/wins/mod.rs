//! The machine of wins: which client recomputes the value of a key, and which gets wait for it. It knows no store.
//!
//! A win can be bound to its winner: then it opens again if the winner ends. A get can wait for a win or for a value. The
//! machine decides with the header of the item. The engine applies the decision to the store (`effects.rs`).
//!
//! - Z7: A bound win does not stay with a winner that has ended: it is open from that moment, unless it was closed or opened
//!   before. The end of an earlier winner leaves a later win as it is.
//! - Z8: No get waits while its value or its win is available. Each step that makes one available gives the win to the first
//!   waiting get, and wakes the gets that have their value. If many wins end with one owner, this happens before any request
//!   sees the key.
//! - Z9: No client gets a win before the clients that waited for it.
//! - Z10: A get that waits is notified of a win at most once for each time that the win opens. If its owner has ended, the
//!   win goes to the next get.
//! - Z11: Each wait ends with one notice.
//!
//! If an owner with many wins ends, all of them are open at once. A few of their items are marked in the same step, more with
//! each command and each tick, and the item of a key before a command reads it. Until then the mark of such an item is out of
//! date, and [`Wins::mark`] is right.
//!
//! Models: `stampede-*`, `everything-*`; `gets-*` for waiting.

pub(in crate::engine) mod bound;
mod effects;
pub(in crate::engine) mod queue;
pub(in crate::engine) mod recache;

use alloc::collections::VecDeque;
use alloc::sync::Arc;

use latchd_protocol::Owner;
use latchd_protocol::command::Get;
use latchd_protocol::item::{ItemHeader, WinMark};
use latchd_protocol::key::Key;
use latchd_protocol::reply::{Refusal, Win};
use latchd_protocol::time::{Clock, Deadline, Instant};
use latchd_protocol::wait::Outcome;

use self::bound::{BoundWin, BoundWins};
use self::queue::{WinWaiter, WinWaits};
use self::recache::Origin;
use crate::engine::context::Context;
use crate::engine::owned_key::OwnedKey;
use crate::limits::Limits;

/// The most items that one step makes for waiting gets, if each expires at once or does not fit. The other gets are woken, and
/// each makes its own item when it is executed.
const MADE_MAX: usize = 64;

/// The bound wins of a core, and the queues of the gets that wait.
#[derive(Clone, Debug, Default)]
pub(in crate::engine) struct Wins {
    pub(in crate::engine) bound: BoundWins,
    pub(in crate::engine) queue: WinWaits,
    /// The last key of the bound wins that a tick has checked.
    pub(in crate::engine) checked: Option<Arc<[u8]>>,
    /// The keys that the last tick checks.
    pub(in crate::engine) to_check: VecDeque<OwnedKey>,
}

/// The next effect of a key's win on its item, for the gets that wait.
#[must_use]
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) enum Effect {
    /// None: no get can be served now.
    None,
    /// The win of the item was given to a get: the item is marked as won.
    Win,
    /// There is no item: it is made for this get, which wins it.
    Make(Owner, WinWaiter),
}

/// The owners that may make the item of a key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::engine) enum Makers {
    /// The key is not locked.
    All,
    /// Only the holder of the key.
    Holder(Owner),
    /// The key is shared.
    None,
}

impl Makers {
    fn includes(self, owner: Owner) -> bool {
        match self {
            Self::All => true,
            Self::Holder(holder) => holder == owner,
            Self::None => false,
        }
    }
}

/// The key of a get that waits, as the rest of the core sees it.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct ItemState<'a> {
    pub(in crate::engine) clock: &'a Clock,
    /// The item, if there is one.
    pub(in crate::engine) header: Option<ItemHeader>,
    /// The owners that may make the item, if there is none.
    pub(in crate::engine) makers: Makers,
    /// The last item of the key was flushed.
    pub(in crate::engine) is_flushed: bool,
}

impl Wins {
    /// `owner` waits for no value any more, if it did. Returns its key if no get waits for it any more.
    pub(in crate::engine) fn leave(&mut self, owner: Owner) -> Option<OwnedKey> {
        self.queue.leave(owner)
    }

    /// The key, if its win is bound or gets wait for it.
    pub(in crate::engine) fn noted(&self, key: Key<'_>) -> Option<OwnedKey> {
        self.bound.owned(key).or_else(|| self.queue.owned(key))
    }

    /// Whether the win of `key` is bound, or gets wait for it.
    pub(in crate::engine) fn has(&self, key: Key<'_>) -> bool {
        self.is_waited(key) || self.bound.noted(key).is_some()
    }

    pub(in crate::engine) fn is_waited(&self, key: Key<'_>) -> bool {
        self.queue.waiting(key) > 0
    }

    /// The mark of an item with this header, also if its win has ended with the winner and the item is not marked yet (Z7).
    pub(in crate::engine) fn mark(&self, key: Key<'_>, header: &ItemHeader) -> WinMark {
        if header.win != WinMark::Sent || !self.bound.has_some_ended() {
            return header.win;
        }
        let ended = self.bound.noted(key);
        match ended.filter(|win| self.bound.has_ended(win)) {
            Some(win) if win.is_made && !header.stale => WinMark::Open,
            Some(_) => WinMark::None,
            None => WinMark::Sent,
        }
    }

    /// Brings the bound win of `key` into line with its item. Returns the new mark of the item if it changes: the winner has
    /// ended.
    pub(in crate::engine) fn update(
        &mut self,
        key: Key<'_>,
        header: Option<&ItemHeader>,
        context: &mut Context<'_>,
    ) -> Option<WinMark> {
        match header {
            Some(header) if header.win == WinMark::Sent => {
                let mark = self.mark(key, header);
                if mark == header.win {
                    return None;
                }
                context.counters.win_reopened += 1;
                self.bound.release(key);
                Some(mark)
            }
            Some(_) | None => {
                self.bound.release(key);
                None
            }
        }
    }

    /// Serves the gets that wait for `key`, in their order, up to one that gets the win. `made` counts the items that this step
    /// has made for them. To be called until there is no effect.
    pub(in crate::engine) fn serve(
        &mut self,
        key: Key<'_>,
        seen: &ItemState<'_>,
        made: usize,
        context: &mut Context<'_>,
    ) -> Effect {
        if let Some(header) = seen.header
            && header.win == WinMark::Sent
        {
            self.queue.set_end(key, end_of(&header));
            return Effect::None;
        }
        if made > MADE_MAX {
            let count = self.queue.waiting(key);
            self.queue.wake_first(key, count, context.now, true);
            context.notices.push_gets();
            return Effect::None;
        }
        let Some((owner, waiter)) = self.wake_to_winner(key, seen, context) else {
            return Effect::None;
        };
        self.queue.leave(owner);
        match seen.header {
            Some(header) => {
                self.give(key, owner, &waiter, header.win == WinMark::Open);
                context.notices.push(owner, Outcome::Granted);
                Effect::Win
            }
            None => Effect::Make(owner, waiter),
        }
    }

    /// Wakes the gets that wait for `key`, up to the first that gets the win of the item or makes one. Returns that get.
    fn wake_to_winner(
        &mut self,
        key: Key<'_>,
        seen: &ItemState<'_>,
        context: &mut Context<'_>,
    ) -> Option<(Owner, WinWaiter)> {
        let now = context.now;
        let (mut too_late, mut missed, mut count) = (0, 0, 0);
        let mut winner = None;
        for (owner, place) in self.queue.in_turn(key) {
            let waiter = place.waiter;
            let is_late = waiter.until <= now;
            let wins = if let Some(header) = &seen.header {
                would_win(seen.clock, header, &waiter)
            } else {
                waiter.steps.vivifies() && seen.makers.includes(owner)
            };
            if wins && !is_late {
                winner = Some((owner, waiter));
                break;
            }
            count += 1;
            too_late += u64::from(is_late);
            missed += u64::from(!is_late && seen.header.is_none());
        }
        if count > 0 {
            let counters = &mut *context.counters;
            counters.get_wait_timeouts += too_late;
            // Each of these has asked for the win, so it counts as a get, also with a touch.
            counters.cmd_get += missed;
            counters.get_misses += missed;
            counters.get_flushed += if seen.is_flushed { missed } else { 0 };
            self.queue
                .wake_first(key, count, now, seen.header.is_some());
            context.notices.push_gets();
        }
        winner
    }

    /// Gives the win of `key` to a get that has waited. The table has the bytes: the wait has taken them
    /// ([`WinWaits::bytes_for`]).
    pub(in crate::engine) fn give(
        &mut self,
        key: Key<'_>,
        owner: Owner,
        waiter: &WinWaiter,
        is_made: bool,
    ) {
        let win = BoundWin {
            winner: owner,
            is_made,
            is_unacknowledged: true,
            stays: waiter.bound_to_owner,
        };
        self.bound.bind(key, win);
    }

    /// Whether a session has the win of `key`: it may not have heard of it, and must not wait for itself.
    #[cold]
    pub(in crate::engine) fn has_won_already(&self, owner: Owner, key: Key<'_>) -> bool {
        let given = self.bound.get(key);
        owner.is_session() && given.is_some_and(|given| given.winner == owner)
    }

    /// The win in the reply to a get that has waited: it has won if the win was given to it and has not ended since.
    #[cold]
    pub(in crate::engine) fn claim(&mut self, owner: Owner, key: Key<'_>, win: Win) -> Win {
        let given = self.bound.get(key);
        let given = given.filter(|given| {
            given.winner == owner && (given.is_unacknowledged || owner.is_session())
        });
        let Some(given) = given.filter(|_| win == Win::Sent) else {
            return win;
        };
        if given.stays {
            self.bound.set_answered(key);
        } else {
            self.bound.release(key);
        }
        Win::Won
    }

    /// Binds the win of `key` to `owner`. The reply to its get shows the win.
    pub(in crate::engine) fn bind(&mut self, key: Key<'_>, owner: Owner, is_made: bool) {
        let win = BoundWin {
            winner: owner,
            is_made,
            is_unacknowledged: false,
            stays: true,
        };
        self.bound.bind(key, win);
    }

    /// Whether `owner` may have one more win.
    ///
    /// # Errors
    /// [`Refusal::TooManyLocks`], as it says.
    pub(in crate::engine) fn may_win(&self, owner: Owner, limits: &Limits) -> Result<(), Refusal> {
        // The win that a get of it waits for may be given to it at any moment.
        let awaited = usize::from(self.queue.is_waiting(owner));
        if self.bound.won_by(owner) + awaited < limits.bound_wins_per_connection_max {
            Ok(())
        } else {
            Err(Refusal::TooManyLocks)
        }
    }

    /// Puts `owner`, which may wait, into the queue of the get's key.
    pub(in crate::engine) fn wait(
        &mut self,
        owner: Owner,
        get: &Get<'_>,
        until: Instant,
        header: &ItemHeader,
        context: &mut Context<'_>,
    ) {
        context.counters.get_waits += 1;
        self.queue.join(get.key, owner, WinWaiter::new(get, until));
        self.queue.set_end(get.key, end_of(header));
    }

    /// The item of `key` has this header now: notes when it ends by itself.
    #[cold]
    pub(in crate::engine) fn note_end(&mut self, key: Key<'_>, header: &ItemHeader) {
        self.queue.set_end(key, end_of(header));
    }
}

/// Whether a get that waits wins an item with this header.
fn would_win(clock: &Clock, header: &ItemHeader, waiter: &WinWaiter) -> bool {
    recache::decide(clock, header, &waiter.steps, Origin::Found).win == Win::Won
}

/// When an item ends by itself; `None` if never, or if it is locked: then it ends with its lock.
fn end_of(header: &ItemHeader) -> Option<Instant> {
    if header.locked {
        return None;
    }
    header.deadline.map(Deadline::begins)
}
