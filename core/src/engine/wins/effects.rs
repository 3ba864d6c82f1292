//! The effects of wins on items, and the gets that wait for one.
//!
//! [`Core::update_win`] compares the note of a key with its item: before a command about the key, and after a command that
//! may have changed the item. No other rule has to remember wins. An item can also vanish unseen (evicted, flushed, expired):
//! the deadline of the item, the round that each tick begins, or the next request for its key finds that.

use latchd_protocol::Owner;
use latchd_protocol::command::Get;
use latchd_protocol::item::{ItemHeader, WinMark};
use latchd_protocol::key::Key;
use latchd_protocol::reply::{Refusal, Reply};
use latchd_protocol::wait::Outcome;

use super::bound::BoundWins;
use super::queue::{WinWaiter, WinWaits};
use super::{Effect, Makers, Seen};
use crate::engine::locks::after;
use crate::engine::owned_key::as_key;
use crate::engine::queues::STALE_MAX;
use crate::engine::rules::{Access, Rules};
use crate::store::Store;

/// An item that was looked up.
type Item<S> = (<S as Store>::Slot, ItemHeader);

impl<S: Store, M: Access> Rules<'_, S, M> {
    /// Brings the win of `key` and its gets into line with the item, as it is now (Z7, Z8).
    #[cold]
    pub(in crate::engine) fn update_win(&mut self, key: Key<'_>) {
        if !self.manager.wins.has(key) {
            return;
        }
        // The lookup may end a lock, and so serve gets.
        let is_waited = self.manager.wins.is_waited(key);
        let mut item = self.look_up(key);
        let header = item.map(|(_, header)| header);
        let (wins, mut context) = self.wins_in_context();
        let mark = wins.update(key, header.as_ref(), &mut context);
        if let Some(mark) = mark {
            item = item.map(|item| self.set_mark(item, mark));
        }
        if is_waited {
            self.serve_gets(key, item);
        }
    }

    fn set_mark(&mut self, (slot, header): Item<S>, win: WinMark) -> Item<S> {
        let header = ItemHeader { win, ..header };
        self.items.store.set_header(slot, header);
        (slot, header)
    }

    /// Serves the gets that wait for `key`, until one of them, or another client, has the win.
    fn serve_gets(&mut self, key: Key<'_>, mut item: Option<Item<S>>) {
        for made in 0.. {
            let (makers, is_flushed) = match item {
                Some(_) => (Makers::All, false),
                None => (self.makers(key), self.was_flushed(key)),
            };
            let clock = self.items.clock;
            let seen = Seen {
                clock: &clock,
                header: item.map(|(_, header)| header),
                makers,
                is_flushed,
            };
            let (wins, mut context) = self.wins_in_context();
            match wins.serve(key, &seen, made, &mut context) {
                Effect::None => return,
                Effect::Win => item = item.map(|item| self.set_mark(item, WinMark::Sent)),
                Effect::Make(owner, waiter) => {
                    item = self.make_for(key, owner, waiter);
                    self.manager.notices.push(owner, Outcome::Granted);
                }
            }
        }
    }

    /// The owners that may make the item of a key that has none.
    fn makers(&self, key: Key<'_>) -> Makers {
        match self.manager.locks.bare(key) {
            None => Makers::All,
            Some(holding) if holding.mode.is_shared() => Makers::None,
            Some(holding) => Makers::Holder(holding.owner),
        }
    }

    fn was_flushed(&self, key: Key<'_>) -> bool {
        let vacancy = self.items.store.find(key).err();
        vacancy.is_some_and(|vacancy| self.items.store.was_flushed(key, vacancy))
    }

    /// A request asks for `key`. If its item has expired and had a bound win, the request counts it, although
    /// [`Self::update_win`] removes it first.
    #[cold]
    pub(in crate::engine) fn note_expired(&mut self, key: Key<'_>) {
        if self.manager.wins.bound.noted(key).is_some()
            && !self.manager.wins.is_waited(key)
            && let Ok((_, header)) = self.items.store.find_item(key)
            && !header.locked
            && self.items.is_past(&header)
        {
            self.items.stats.counters.get_expired += 1;
        }
    }

    /// Makes the missing item for a get that has waited, which wins it.
    fn make_for(&mut self, key: Key<'_>, owner: Owner, waiter: WinWaiter) -> Option<Item<S>> {
        let get = waiter.get(key);
        let vacancy = self.items.store.find(key).err();
        let vacancy = vacancy.expect("it was looked up");
        // If it does not fit, or is gone at once, the get finds that out when it is executed.
        let slot = match self.make(&get, vacancy) {
            Ok(made) => {
                self.items.commit_cas(get.new_cas);
                made.slot
            }
            Err(_) => None,
        };
        slot.map(|slot| {
            self.manager.wins.give(key, owner, &waiter, true);
            (slot, self.items.store.header(slot))
        })
    }

    /// A get finds that another client has the win, and waits.
    #[cold]
    pub(in crate::engine) fn wait_for_value(
        &mut self,
        owner: Owner,
        get: &Get<'_>,
        item: Item<S>,
    ) -> Reply<'static> {
        let (slot, header) = item;
        if owner.is_session() {
            self.leave_all(owner);
        }
        if let Err(refusal) = self.admit_get(owner, get.key, slot) {
            return Reply::Refused(refusal);
        }
        let ms = get.wait_ms.min(self.items.limits.wait_ms_max);
        let until = after(self.items.clock.now, ms);
        let (wins, mut context) = self.wins_in_context();
        wins.wait(owner, get, until, &header, &mut context);
        Reply::Waits
    }

    /// Checks that a get of `owner` may wait, and makes free memory for the wait.
    ///
    /// # Errors
    /// [`Refusal::TooManyLocks`] and [`Refusal::ConnectionClosed`], as they say.
    fn admit_get(&mut self, owner: Owner, key: Key<'_>, slot: S::Slot) -> Result<(), Refusal> {
        self.manager.may_win(owner, &self.items.limits)?;
        if self.manager.is_waiting(owner)
            || self.manager.wins.queue.waiting(key) >= self.items.limits.waits_per_key_max
            || self.manager.waiting_in_all() >= self.items.limits.waits_max
        {
            return Err(Refusal::TooManyLocks);
        }
        self.admit_to_tables(WinWaits::bytes_for(key), Some(slot))
            .map(|_| ())
    }

    /// Binds the win that a get of `owner` is about to be told of. The item may be in another slot then.
    ///
    /// # Errors
    /// [`Refusal::TooManyLocks`] and [`Refusal::ConnectionClosed`], as they say.
    #[cold]
    pub(in crate::engine) fn bind(
        &mut self,
        owner: Owner,
        key: Key<'_>,
        slot: S::Slot,
        is_made: bool,
    ) -> Result<S::Slot, Refusal> {
        self.manager.may_win(owner, &self.items.limits)?;
        let kept = self.admit_to_tables(BoundWins::bytes_for(key), Some(slot))?;
        self.manager.wins.bind(key, owner, is_made);
        Ok(kept.expect("the item that is kept stays"))
    }

    /// Before a get that may bind a win or wait for one: if its owner has as many wins as it may, updates a few of them, since
    /// their items may be gone. That can make items for other gets, which may move or evict any item. So it comes before the
    /// item of the get is looked up.
    pub(in crate::engine) fn free_win(&mut self, owner: Owner, get: &Get<'_>) {
        let binds = get.recaches && (get.binds || get.wait_ms > 0);
        if binds && self.manager.may_win(owner, &self.items.limits) == Err(Refusal::TooManyLocks) {
            self.update_wins_of(owner, get.key, self.items.limits.locks_settled_max);
        }
    }

    /// Updates up to `wins_max` wins of `owner`, first those after `key`, since their items may be gone.
    pub(in crate::engine) fn update_wins_of(
        &mut self,
        owner: Owner,
        key: Key<'_>,
        wins_max: usize,
    ) {
        for key in self.manager.wins.bound.some_of(owner, key, wins_max) {
            self.update_win(as_key(&key));
        }
    }

    /// Reopens up to `wins_max` of the wins that have ended with their winners (Z7).
    pub(in crate::engine) fn reopen_wins(&mut self, wins_max: usize) {
        for _ in 0..wins_max {
            let Some(key) = self.manager.wins.bound.next_ended() else {
                return;
            };
            self.update_win(as_key(&key));
        }
    }

    /// The item of a key, if it exists now. If its TTL or its lock has ended, that takes effect first.
    fn look_up(&mut self, key: Key<'_>) -> Option<Item<S>> {
        let slot = self.items.store.find(key).ok()?;
        let header = self.items.store.header(slot);
        if header.locked && self.manager.locks.table.owner(key).is_none() {
            // Its lock has ended (L9). It is out of the table then, so this happens once.
            let holding = self.manager.locks.table.get(key);
            self.end_if_over(key, holding.expect("L3: the item is marked locked"));
            return self.look_up(key);
        }
        if !header.locked && self.items.is_past(&header) {
            self.items.reclaim(slot, &header);
            return None;
        }
        Some((slot, header))
    }

    /// Ends up to `each_max` waits of gets at their deadlines, and updates as many wins that may have lost their items.
    pub(in crate::engine) fn sweep_gets(&mut self, each_max: usize) {
        let mut stale_max = STALE_MAX;
        for _ in 0..each_max {
            let (wins, mut context) = self.wins_in_context();
            if !wins.expire_wait(&mut context, &mut stale_max) {
                break;
            }
        }
        self.items.work.charge(STALE_MAX - stale_max);
        for _ in 0..each_max {
            let Some(key) = self.manager.wins.queue.next_end(self.items.clock.now) else {
                break;
            };
            self.update_win(as_key(&key));
        }
        for _ in 0..each_max {
            let Some(key) = self.manager.wins.queue.next_of_round() else {
                break;
            };
            self.update_win(as_key(&key));
        }
    }

    /// A tick begins a round over all gets that wait, and updates some of the bound wins.
    #[cold]
    pub(in crate::engine) fn update_some_wins(&mut self) {
        self.manager.wins.queue.go_on_round();
        let keys_max = self.items.limits.crawl_items_max;
        let keys = self
            .manager
            .wins
            .bound
            .after(self.manager.wins.checked.as_deref(), keys_max);
        self.manager.wins.checked = keys.last().cloned();
        for key in keys {
            self.update_win(as_key(&key));
        }
    }
}
