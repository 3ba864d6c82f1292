//! The rules of wins that are bound to a connection, and of gets that wait for a value.
//!
//! - Z7: a bound win never rests with a connection that has ended: it is open again from that moment on, unless it was
//!   closed, or opened, before. A later win is untouched by the end of an earlier winner.
//! - Z8: never is a win open, or a value there, while a get waits for it: whatever brings that about gives the win to the
//!   first in line in the same step, and lets all go who have what they wait for; or, where many wins end with one
//!   connection, before anybody else sees the key.
//! - Z9: nobody is told that he has the win before those who waited for it.
//! - Z10: a get that waits is told of a win at most once each time that it is opened; a win that was given to
//!   one who has ended meanwhile is passed on.
//! - Z11: every wait ends with one notice.
//!
//! How: before a command about a key, and after one that may have changed its item, [`Core::tend`] compares what
//! is noted of the key with its item; nothing else has to think of it. An item that goes unseen (evicted, flushed, expired) is
//! noticed when its time has come, by the round that each tick begins, or by whoever asks for its key.
//!
//! When a connection ends that has many wins, the first few are reopened in the same step, a few more with every command and
//! many with every tick; the win of a key that a command is about, before it. Until then the mark of such an item is out of
//! date, and [`Core::win_of`] says what it is.
//!
//! Where nobody waits and nothing is bound, a command looks at two numbers for this.

pub(in crate::engine) mod bound;
pub(in crate::engine) mod queue;
pub(in crate::engine) mod recache;

use self::recache::Origin;
use crate::command::Get;
use crate::engine::Core;
use crate::engine::locks::table::Held;
use crate::engine::owned_key::as_key;
use crate::engine::wins::bound::{BoundWin, BoundWins};
use crate::engine::wins::queue::{WinWaiter, WinWaits};
use crate::item::{ItemHeader, WinMark};
use crate::key::Key;
use crate::owner::Owner;
use crate::reply::{Refusal, Reply, Win};
use crate::store::Store;
use crate::time::{Deadline, Instant};
use crate::wait::Outcome;

/// How many items a step makes for those who wait that are gone at once, or that there is no room for. The rest of the
/// queue is let go, and each makes its own when it asks again.
const MADE_MAX: usize = 64;

/// An item that was looked up.
type Item<S> = (<S as Store>::Slot, ItemHeader);

impl<S: Store> Core<S> {
    /// The wins that end with their winners.
    #[must_use]
    pub const fn bound_wins(&self) -> &BoundWins {
        &self.bound_wins
    }

    /// The gets that wait.
    #[must_use]
    pub const fn win_waits(&self) -> &WinWaits {
        &self.win_waits
    }

    /// Whether there is anything that [`Self::tend`] would look after.
    #[inline]
    pub(in crate::engine) fn has_wins(&self) -> bool {
        !self.bound_wins.is_empty() || !self.win_waits.is_empty()
    }

    /// Sees to it that what is noted of a key agrees with its item, as it is now (Z7, Z8).
    #[cold]
    pub(in crate::engine) fn tend(&mut self, key: Key<'_>) {
        let is_waited = self.win_waits.waiting(key) > 0;
        if !is_waited && self.bound_wins.noted(key).is_none() {
            return;
        }
        let mut item = self.look_up(key);
        match &mut item {
            Some((slot, header)) if header.win == WinMark::Sent => {
                let mark = self.win_of(key, header);
                if mark != header.win {
                    self.stats.counters.win_reopened += 1;
                    self.bound_wins.release(key);
                    header.win = mark;
                    self.store.set_header(*slot, *header);
                }
            }
            Some(_) | None => self.bound_wins.release(key),
        }
        if is_waited {
            self.serve(key, item);
        }
    }

    /// What an item with this header knows of its win, also if that has ended with its winner and is still to be
    /// reopened (Z7).
    pub(in crate::engine) fn win_of(&self, key: Key<'_>, header: &ItemHeader) -> WinMark {
        if header.win != WinMark::Sent || !self.bound_wins.has_some_ended() {
            return header.win;
        }
        let ended = self.bound_wins.noted(key);
        match ended.filter(|win| self.bound_wins.has_ended(win)) {
            Some(win) if win.is_made && !header.stale => WinMark::Open,
            Some(_) => WinMark::None,
            None => WinMark::Sent,
        }
    }

    /// A request asks for `key`. If its item has expired and had a bound win, the request has found it so, though
    /// whoever looks after the win takes it out first.
    #[cold]
    pub(in crate::engine) fn note_expired(&mut self, key: Key<'_>) {
        if self.bound_wins.noted(key).is_some()
            && self.win_waits.waiting(key) == 0
            && let Ok((_, header)) = self.store.find_item(key)
            && !header.locked
            && self.is_past(&header)
        {
            self.stats.counters.get_expired += 1;
        }
    }

    /// Gives those who wait for `key` what there is, in their order: until one of them has the win, or another has it
    /// already.
    fn serve(&mut self, key: Key<'_>, item: Option<Item<S>>) {
        let mut item = item;
        for made in 0.. {
            if let Some((_, header)) = item
                && header.win == WinMark::Sent
            {
                return self.win_waits.set_end(key, end_of(&header));
            }
            if made > MADE_MAX {
                // Each makes its own when it asks again.
                let count = self.win_waits.waiting(key);
                let now = self.clock.now;
                self.win_waits.leave_together(key, count, now, true);
                return self.notices.push_gets();
            }
            let Some((conn, waiter)) = self.let_go_of_gets(key, item) else {
                return;
            };
            self.win_waits.leave(conn);
            item = match item {
                Some((slot, header)) => Some((slot, self.offer(key, conn, &waiter, slot, header))),
                None => self.make_for(key, conn, waiter),
            };
            self.notices.push(conn, Outcome::Granted);
        }
    }

    /// The gets that wait for `key` and are not given the win of this item, nor make one where there is none, wait no more:
    /// up to the first that does, which is returned.
    fn let_go_of_gets(
        &mut self,
        key: Key<'_>,
        item: Option<Item<S>>,
    ) -> Option<(Owner, WinWaiter)> {
        let now = self.clock.now;
        let holder = if item.is_none() {
            self.locks.bare(key)
        } else {
            None
        };
        let (mut too_late, mut missed, mut count) = (0, 0, 0);
        let mut given = None;
        for (_, conn, waiter) in self.win_waits.in_turn(key) {
            let is_late = waiter.until <= now;
            let is_others = holder.is_some_and(|held| held.owner != conn || held.mode.is_shared());
            let would_be_given = item
                .map_or(waiter.steps.vivifies() && !is_others, |(_, header)| {
                    self.would_win(&header, &waiter)
                });
            if would_be_given && !is_late {
                given = Some((conn, waiter));
                break;
            }
            count += 1;
            too_late += u64::from(is_late);
            missed += u64::from(!is_late && item.is_none());
        }
        if count > 0 {
            self.stats.counters.get_wait_timeouts += too_late;
            self.count_missed(key, missed);
            self.win_waits
                .leave_together(key, count, now, item.is_some());
            self.notices.push_gets();
        }
        given
    }

    /// Counts gets that have waited for an item and are told that there is none.
    fn count_missed(&mut self, key: Key<'_>, gets: u64) {
        if gets == 0 {
            return;
        }
        // Each of them has asked for the win: it counts as a get, whatever else it asked for.
        self.stats.counters.cmd_get += gets;
        self.stats.counters.get_misses += gets;
        let vacancy = self.store.find(key).err();
        if vacancy.is_some_and(|vacancy| self.store.was_flushed(key, vacancy)) {
            self.stats.counters.get_flushed += gets;
        }
    }

    /// Whether a get that waits would be given the win of an item with this header.
    fn would_win(&self, header: &ItemHeader, waiter: &WinWaiter) -> bool {
        let outcome = recache::decide(&self.clock, header, &waiter.steps, Origin::Found);
        outcome.win == Win::Won
    }

    /// Gives a get that has waited the win of an item. Returns what the item is then.
    fn offer(
        &mut self,
        key: Key<'_>,
        conn: Owner,
        waiter: &WinWaiter,
        slot: S::Slot,
        header: ItemHeader,
    ) -> ItemHeader {
        self.give(key, conn, waiter, header.win == WinMark::Open);
        let after = ItemHeader {
            win: WinMark::Sent,
            ..header
        };
        self.store.set_header(slot, after);
        after
    }

    /// There is no item, and this get has waited for one, and vivifies: the item is made, and the win is its.
    fn make_for(&mut self, key: Key<'_>, conn: Owner, waiter: WinWaiter) -> Option<Item<S>> {
        let get = waiter.get(key);
        let vacancy = self.store.find(key).err();
        let vacancy = vacancy.expect("it was looked up");
        // If there is no room for it, or it is gone at once, that is the answer when it asks again.
        let slot = match self.make(&get, vacancy) {
            Ok(made) => {
                self.commit_cas(get.new_cas);
                made.slot
            }
            Err(_) => None,
        };
        slot.map(|slot| {
            self.give(key, conn, &waiter, true);
            (slot, self.store.header(slot))
        })
    }

    /// There is room for it in the table: what the wait has taken ([`WinWaits::bytes_for`]).
    fn give(&mut self, key: Key<'_>, conn: Owner, waiter: &WinWaiter, is_made: bool) {
        let win = BoundWin {
            winner: conn,
            is_made,
            is_untold: true,
            stays: waiter.binds,
        };
        self.bound_wins.bind(key, win);
    }

    /// What a get is told of a win that it has waited for: that it is its, if it has not ended since.
    #[cold]
    pub(in crate::engine) fn tell_given(&mut self, conn: Owner, key: Key<'_>, win: Win) -> Win {
        let given = self.bound_wins.get(key);
        let given = given.filter(|given| given.winner == conn && given.is_untold);
        let Some(given) = given.filter(|_| win == Win::Sent) else {
            return win;
        };
        if given.stays {
            self.bound_wins.set_told(key);
        } else {
            self.bound_wins.release(key);
        }
        Win::Won
    }

    /// A get finds that another has the win, and waits.
    #[cold]
    pub(in crate::engine) fn wait_for_value(
        &mut self,
        conn: Owner,
        get: &Get<'_>,
        item: Item<S>,
    ) -> Reply<'static> {
        let (slot, header) = item;
        if let Err(refusal) = self.may_wait_for_value(conn, get.key, slot) {
            return Reply::Refused(refusal);
        }
        self.stats.counters.get_waits += 1;
        let ms = get.wait_ms.min(self.limits.wait_ms_max);
        let until = self.clock.now.as_millis().saturating_add(ms);
        let waiter = WinWaiter::new(get, Instant::from_millis(until));
        self.win_waits.join(get.key, conn, waiter);
        self.win_waits.set_end(get.key, end_of(&header));
        Reply::Waits
    }

    /// A get has changed when the item of `key` is gone.
    #[cold]
    pub(in crate::engine) fn note_end(&mut self, key: Key<'_>, header: &ItemHeader) {
        self.win_waits.set_end(key, end_of(header));
    }

    /// Whether `conn` may wait, and sees to it that there is room for it.
    ///
    /// # Errors
    /// [`Refusal::TooManyLocks`] and [`Refusal::ConnectionClosed`] as they say.
    fn may_wait_for_value(
        &mut self,
        conn: Owner,
        key: Key<'_>,
        slot: S::Slot,
    ) -> Result<(), Refusal> {
        self.locks
            .table
            .held_by(conn)
            .ok_or(Refusal::ConnectionClosed)?;
        if self.is_waiting(conn)
            || self.has_won_enough(conn)
            || self.win_waits.waiting(key) >= self.limits.waits_per_key_max
            || self.waiting_in_all() >= self.limits.waits_max
        {
            return Err(Refusal::TooManyLocks);
        }
        self.make_room(WinWaits::bytes_for(key), slot).map(|_| ())
    }

    /// Whether `conn` waits for anything.
    pub(in crate::engine) fn is_waiting(&self, conn: Owner) -> bool {
        self.locks.queue.waits_for(conn).is_some() || self.win_waits.is_waiting(conn)
    }

    /// How many connections wait, or are to be told of a wait.
    pub(in crate::engine) fn waiting_in_all(&self) -> usize {
        self.locks.queue.places() + self.notices.singles() + self.win_waits.places()
    }

    /// Binds the win that `conn` is about to be told of to it. The item may be in another slot then.
    ///
    /// # Errors
    /// [`Refusal::TooManyLocks`] and [`Refusal::ConnectionClosed`] as they say.
    #[cold]
    pub(in crate::engine) fn bind(
        &mut self,
        conn: Owner,
        key: Key<'_>,
        slot: S::Slot,
        is_made: bool,
    ) -> Result<S::Slot, Refusal> {
        self.locks
            .table
            .held_by(conn)
            .ok_or(Refusal::ConnectionClosed)?;
        if self.has_won_enough(conn) {
            return Err(Refusal::TooManyLocks);
        }
        let slot = self.make_room(BoundWins::bytes_for(key), slot)?;
        let win = BoundWin {
            winner: conn,
            is_made,
            is_untold: false,
            stays: true,
        };
        self.bound_wins.bind(key, win);
        Ok(slot)
    }

    /// Admits `more` bytes to the tables beside the item in `slot`, which may be in another slot then.
    ///
    /// # Errors
    /// [`Refusal::TooManyLocks`], as it says.
    fn make_room(&mut self, more: usize, slot: S::Slot) -> Result<S::Slot, Refusal> {
        let kept = self.admit_to_tables(more, Some(slot))?;
        Ok(kept.expect("the item that is kept stays"))
    }

    /// Whether as many wins are bound to `conn` as may be, over all cores.
    fn has_won_enough(&self, conn: Owner) -> bool {
        let elsewhere = self.locks.table.held_by(conn).map_or(0, |held| held.wins);
        elsewhere + self.bound_wins.won_by(conn) >= self.limits.bound_wins_per_connection_max
    }

    /// What `conn` holds in this core: locks, and wins that are bound to it.
    #[must_use]
    pub fn held_here(&self, conn: Owner) -> Held {
        Held {
            wins: self.bound_wins.won_by(conn),
            ..self.locks.table.held_here(conn)
        }
    }

    /// Before a get that may bind a win or wait for one: if `conn` has as many as it may, looks after a few of them, since their
    /// items may be gone unseen. Items are made anew then for those who wait, which may move any other or take its room: so
    /// this comes before the item of the get is looked for.
    pub(in crate::engine) fn spare_win(&mut self, conn: Owner, get: &Get<'_>) {
        let may_win = get.recaches && (get.binds || get.wait_ms > 0);
        if !may_win || !self.has_won_enough(conn) {
            return;
        }
        self.tend_wins_of(conn, get.key, self.limits.locks_settled_max);
    }

    /// Looks after up to `wins_max` wins of `conn` whose items may be gone unseen, those first that follow `key`: for a
    /// transport over several cores, before another core is asked for a win and `conn` has as many as it may.
    pub fn spare_wins(&mut self, now: Instant, conn: Owner, key: Key<'_>, wins_max: usize) {
        self.advance(now);
        self.tend_wins_of(conn, key, wins_max);
    }

    fn tend_wins_of(&mut self, conn: Owner, key: Key<'_>, wins_max: usize) {
        for key in self.bound_wins.some_of(conn, key, wins_max) {
            self.tend(as_key(&key));
        }
    }

    /// Reopens up to `wins_max` of the wins that have ended with their winners (Z7).
    pub(in crate::engine) fn reopen_wins(&mut self, wins_max: usize) {
        for _ in 0..wins_max {
            let Some(key) = self.bound_wins.next_ended() else {
                return;
            };
            self.tend(as_key(&key));
        }
    }

    /// The item of a key, if it is there now. Whatever time or the end of its lock does to it has been done then.
    fn look_up(&mut self, key: Key<'_>) -> Option<Item<S>> {
        let slot = self.store.find(key).ok()?;
        let header = self.store.header(slot);
        if header.locked && self.locks.table.owner(key).is_none() {
            // Who held it has gone (L9). It cannot come here again: the lock is out of the table then.
            let holding = self.locks.table.get(key);
            self.end_if_over(key, holding.expect("L3: the item says that it is locked"));
            return self.look_up(key);
        }
        if !header.locked && self.is_past(&header) {
            self.reclaim(slot, &header);
            return None;
        }
        Some((slot, header))
    }

    /// Ends up to `each_max` of the waits whose time is over, and looks at up to as many items that may be gone.
    pub(in crate::engine) fn settle_wins(&mut self, each_max: usize) {
        for _ in 0..each_max {
            let Some(conn) = self.win_waits.overdue(self.clock.now) else {
                break;
            };
            self.win_waits.leave(conn);
            self.stats.counters.get_wait_timeouts += 1;
            self.notices.push(conn, Outcome::TimedOut);
        }
        for _ in 0..each_max {
            let Some(key) = self.win_waits.next_end(self.clock.now) else {
                break;
            };
            self.tend(as_key(&key));
        }
        for _ in 0..each_max {
            let Some(key) = self.win_waits.next_of_round() else {
                break;
            };
            self.tend(as_key(&key));
        }
    }

    /// A tick: all items that are waited for are to be looked at, and some of those that were won.
    #[cold]
    pub(in crate::engine) fn tend_some(&mut self) {
        self.win_waits.go_on_round();
        let keys_max = self.limits.crawl_items_max;
        let keys = self.bound_wins.after(self.wins_tended.as_deref(), keys_max);
        self.wins_tended = keys.last().cloned();
        for key in keys {
            self.tend(as_key(&key));
        }
    }

    /// Z7 to Z9, and that the tables say the same as the items.
    #[cfg(any(test, feature = "verify"))]
    pub(in crate::engine) fn check_wins(&self) {
        self.bound_wins.check();
        self.win_waits.check();
        assert!(
            self.waiting_in_all() <= self.limits.waits_max,
            "Z11: too many notices"
        );
        for (key, win) in self.bound_wins.iter() {
            let winner = win.winner;
            assert!(
                self.locks.table.held_by(winner).is_some(),
                "Z7: {winner} has gone"
            );
            assert!(
                self.bound_wins.won_by(winner) <= self.limits.bound_wins_per_connection_max,
                "Z7: {winner} has too many"
            );
            if let Some((header, _)) = self.peek(key) {
                assert_eq!(
                    header.win,
                    WinMark::Sent,
                    "Z7: the win of {key:?} is not out"
                );
            }
        }
        for key in self.win_waits.keys() {
            assert!(
                self.win_waits.waiting(key) <= self.limits.waits_per_key_max,
                "Z8: too many wait for {key:?}"
            );
            let noted = self.bound_wins.noted(key);
            let has_ended = noted.is_some_and(|win| self.bound_wins.has_ended(&win));
            if let Some((header, _)) = self.peek(key) {
                assert!(
                    header.win == WinMark::Sent || has_ended && self.win_waits.is_on_round(),
                    "Z8: {key:?} is to be had"
                );
            }
            for (conn, _) in self.win_waits.queue(key) {
                assert!(
                    self.locks.table.held_by(conn).is_some(),
                    "Z10: {conn} has gone"
                );
                assert!(
                    self.locks.queue.waits_for(conn).is_none(),
                    "Z11: {conn} waits twice"
                );
            }
        }
    }
}

/// When an item is gone by itself; `None` if never, or if it is held: then it goes with its lock.
fn end_of(header: &ItemHeader) -> Option<Instant> {
    if header.locked {
        return None;
    }
    header.deadline.map(Deadline::begins)
}
