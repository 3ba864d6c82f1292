//! The effects of wins on items, and the gets that wait for one.
//!
//! [`Rules::update_win`] compares the note of a key with its item: before a command about the key, and after a command that
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
use super::{Effect, ItemState, Makers};
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
        let is_waited = self.manager.wins.is_waited(key);
        let mut item = self.look_up(key);
        let header = item.map(|(_, header)| header);
        let (wins, mut context) = self.manager.wins_in_context();
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
            let seen = ItemState {
                clock: &clock,
                header: item.map(|(_, header)| header),
                makers,
                is_flushed,
            };
            let (wins, mut context) = self.manager.wins_in_context();
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
        match self.without_item(key) {
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
            self.items.counters.get_expired += 1;
        }
    }

    /// Makes the missing item for a get that has waited, which wins it.
    fn make_for(&mut self, key: Key<'_>, owner: Owner, waiter: WinWaiter) -> Option<Item<S>> {
        let get = waiter.get(key);
        let vacancy = self.items.store.find(key).err();
        let vacancy = vacancy.expect("it was looked up");
        // If it does not fit, or expires at once, the get finds that out when it is executed.
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
        if let Err(refusal) = self.admit_get(owner, get.key, slot) {
            return Reply::Refused(refusal);
        }
        let ms = get.wait_ms.min(self.manager.limits.wait_ms_max);
        let until = self.manager.now.end_after(ms);
        let (wins, mut context) = self.manager.wins_in_context();
        wins.wait(owner, get, until, &header, &mut context);
        self.manager.begin_wait(owner);
        Reply::Waits
    }

    /// Checks that a get of `owner` may wait, and makes free memory for the wait.
    ///
    /// # Errors
    /// [`Refusal::TooManyLocks`]; [`Refusal::ConnectionClosed`].
    fn admit_get(&mut self, owner: Owner, key: Key<'_>, slot: S::Slot) -> Result<(), Refusal> {
        self.manager.may_win(owner)?;
        if self.manager.is_waiting(owner)
            || self.manager.wins.queue.waiting(key) >= self.manager.limits.waits_per_key_max
            || self.manager.waiting_in_all() >= self.manager.limits.waits_max
        {
            return Err(Refusal::TooManyLocks);
        }
        self.admit_to_tables(WinWaits::bytes_for(key), Some(slot))
            .map(|_| ())
    }

    /// Binds the win that a get of `owner` is about to receive. The item may be in another slot then.
    ///
    /// # Errors
    /// [`Refusal::TooManyLocks`]; [`Refusal::ConnectionClosed`].
    #[cold]
    pub(in crate::engine) fn bind(
        &mut self,
        owner: Owner,
        key: Key<'_>,
        slot: S::Slot,
        is_made: bool,
    ) -> Result<S::Slot, Refusal> {
        self.manager.may_win(owner)?;
        let kept = self.admit_to_tables(BoundWins::bytes_for(key), Some(slot))?;
        self.manager.wins.bind(key, owner, is_made);
        Ok(kept.expect("the item that is kept stays"))
    }

    /// The item of a key, if it exists now. If its TTL has ended, that takes effect first.
    fn look_up(&mut self, key: Key<'_>) -> Option<Item<S>> {
        let slot = self.items.store.find(key).ok()?;
        let header = self.items.store.header(slot);
        if !header.locked && self.items.is_past(&header) {
            self.items.reclaim(slot, &header);
            return None;
        }
        Some((slot, header))
    }
}
