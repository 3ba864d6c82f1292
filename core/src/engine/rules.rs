//! One step: the rules of a command or an event, over a shard of items and the lock manager.
//!
//! This is the only place in which items and locks meet. A rule reaches the manager through [`Access`], so a transport can
//! share one manager among several shards, and a step that needs no manager does not touch it.

use core::ops::DerefMut;

use latchd_protocol::Owner;
use latchd_protocol::command::{Command, ItemCommand};
use latchd_protocol::item::ItemHeader;
use latchd_protocol::key::Key;
use latchd_protocol::reply::Reply;
use latchd_protocol::time::Instant;

use super::context::Context;
use super::event::Event;
use super::items::Items;
use super::locks::Locks;
use super::manager::LockManager;
use super::wins::Wins;
use crate::store::Store;

/// A way to the lock manager.
pub(super) trait Access: DerefMut<Target = LockManager> {}

impl<M: DerefMut<Target = LockManager>> Access for M {}

/// The result of a lookup: the item, or the place for a new one.
pub(super) type Found<S> = Result<(<S as Store>::Slot, ItemHeader), <S as Store>::Vacancy>;

/// A step over these items.
#[derive(Debug)]
pub(super) struct Rules<'a, S, M> {
    pub(super) items: &'a mut Items<S>,
    pub(super) manager: M,
}

impl<'a, S: Store, M: Access> Rules<'a, S, M> {
    /// Executes a command of `owner` at `now`.
    #[inline]
    pub(super) fn execute(
        mut self,
        now: Instant,
        owner: Owner,
        command: &Command<'a>,
    ) -> Reply<'a> {
        match command {
            Command::Item(command) => self.execute_item(now, owner, command),
            Command::Global(command) => {
                self.take_in(now, owner, None);
                self.execute_global(owner, *command)
            }
        }
    }

    pub(super) fn execute_item(
        mut self,
        now: Instant,
        owner: Owner,
        command: &ItemCommand<'a>,
    ) -> Reply<'a> {
        self.take_in(now, owner, Some(command));
        let reply = match command {
            // These two update the win themselves, since their reply borrows the item.
            ItemCommand::Get(get) => return self.get(owner, get),
            ItemCommand::Acquire(acquire) => return self.acquire(owner, *acquire),
            ItemCommand::Set(set) => self.set(owner, set),
            ItemCommand::SetTooLarge { key } => self.set_too_large(owner, *key),
            ItemCommand::Delete(delete) => self.delete(owner, delete),
            ItemCommand::Arithmetic(arithmetic) => self.arithmetic(owner, arithmetic),
            ItemCommand::Release(release) => self.release_key(owner, release),
            ItemCommand::Lock { key } => self.lock(owner, *key),
            ItemCommand::Unlock { key } => self.unlock(owner, *key),
        };
        if !self.manager.wins.is_empty() {
            self.update_win(command.key());
        }
        reply
    }

    /// The work before every command, with or without an item.
    #[inline]
    fn take_in(&mut self, now: Instant, owner: Owner, command: Option<&ItemCommand<'_>>) {
        if self.advance(now) || self.manager.locks.table.has_ended() {
            self.catch_up(command.map(ItemCommand::key));
        }
        if !self.manager.wins.is_empty() {
            self.reopen_wins(self.items.limits.locks_settled_max);
            if let Some(command) = command {
                self.note_expired(command.key());
                if let ItemCommand::Get(get) = command {
                    self.free_win(owner, get);
                }
                self.update_win(command.key());
            }
        }
        if self.items.detail.is_on()
            && let Some(command) = command
        {
            self.items.detail.note(command);
        }
    }

    /// Handles an event at `now`.
    pub(super) fn handle(&mut self, now: Instant, event: Event<'_>) {
        match event {
            Event::Opened(owner) => {
                self.come_to(now);
                self.manager.locks.table.open(owner);
            }
            Event::HoldsElsewhere(owner, held) => {
                self.come_to(now);
                self.manager.locks.table.note_elsewhere(owner, held);
            }
            Event::Closed(owner) => {
                self.come_to(now);
                self.close(owner);
            }
            Event::WaitsElsewhere(owner) => {
                self.come_to(now);
                self.leave_all(owner);
            }
            Event::Tick => {
                self.come_to(now);
                self.tick();
            }
            Event::Due => self.pass(now),
            Event::DueFew => {
                if self.advance(now) {
                    self.catch_up(None);
                }
            }
            Event::DueAt(key) => self.come_to_key(now, key),
            Event::WinElsewhere {
                owner,
                key,
                wins_max,
            } => {
                self.advance(now);
                self.update_wins_of(owner, key, wins_max);
            }
            Event::TablesElsewhere(bytes) => self.manager.tables_elsewhere = bytes,
            Event::TablesSpread(bytes) => {
                self.manager.tables_elsewhere = bytes;
                self.manager.lacks_room_for_tables = self.set_tables_aside(0, None).is_err();
            }
            Event::Resumed(numbers) => self.resume(numbers),
            Event::FlushedElsewhere => {
                self.advance(now);
                if self.items.flush_at.is_some() {
                    self.flush();
                }
            }
            Event::Limits(limits) => self.set_limits(now, &limits),
            Event::Unstored(why) => {
                self.come_to(now);
                self.items.note_unstored(why);
            }
            Event::ReadEvictions { is_watched } => {
                self.items.evicted = Some(self.items.store.take_evicted());
                self.items.store.watch_evictions(is_watched);
            }
            Event::WithholdGrants(until) => {
                self.come_to(now);
                self.manager.locks.queue.withhold(until);
            }
            Event::ReportLockEnds(is_on) => self.manager.locks.table.keep_ends(is_on),
            Event::WallClock { unix_s_at_start } => {
                self.come_to(now);
                self.items.clock.unix_s_at_start = unix_s_at_start;
            }
        }
    }

    /// The work before an event: some of the waits, leases and wins that are due end.
    pub(super) fn come_to(&mut self, now: Instant) {
        if self.advance(now) {
            let each_max = self.items.limits.locks_settled_max;
            self.expire_waits(each_max);
            self.expire_locks(each_max);
            self.serve_withheld(each_max);
            self.sweep_gets(each_max);
        }
    }

    /// The work before a question about the lock of a key.
    pub(super) fn come_to_key(&mut self, now: Instant, key: Key<'_>) {
        if self.advance(now) || self.manager.locks.table.has_ended() {
            self.catch_up(Some(key));
        }
    }

    pub(super) fn tick(&mut self) {
        self.update_some_wins();
        self.sweep(self.items.limits.crawl_items_max);
        // The tables may have become smaller: then this gives memory back, and needs none.
        let _ = self.set_tables_aside(0, None);
        self.items.crawl();
    }

    /// It is `now`, and nothing else happens ([`Event::Due`]).
    pub(super) fn pass(&mut self, now: Instant) {
        if self.advance(now) || self.manager.locks.table.has_handovers() {
            self.sweep(self.items.limits.crawl_items_max);
        }
    }

    /// It is `now`. Says whether a lease, a wait or an item that is waited for is over, and still to be seen to.
    pub(super) fn advance(&mut self, now: Instant) -> bool {
        if self.items.advance(now) {
            self.flush();
        }
        let now = self.items.clock.now;
        let manager = &mut *self.manager;
        let leases_passed = manager.locks.table.pass_leases(now);
        let next = manager.locks.queue.next();
        let is_due = next.is_some_and(|at| at <= now);
        if is_due {
            manager.locks.queue.pass_withheld(now);
        }
        leases_passed || is_due || manager.wins.queue.is_due(now)
    }

    /// Finds an item that a client can see: not one that has expired, unless it is held. The one
    /// look-up of a command.
    pub(super) fn find_live(&mut self, key: Key<'_>) -> Found<S> {
        let (slot, header) = self.items.store.find_item(key)?;
        if header.locked {
            // If its lock has ended (L9), the delayed expiry or flush takes effect before the item is read.
            return match self.manager.locks.table.owner(key) {
                Some(_) => Ok((slot, header)),
                None => self.unlock_item(key, slot).map(|header| (slot, header)),
            };
        }
        if self.items.is_past(&header) {
            self.items.stats.counters.get_expired += 1;
            return Err(self.items.reclaim(slot, &header));
        }
        Ok((slot, header))
    }

    /// The machine of locks, and the surroundings of a step of it.
    pub(super) fn locks_in_context(&mut self) -> (&mut Locks, Context<'_>) {
        let manager = &mut *self.manager;
        let context = self.items.context(&mut manager.notices);
        (&mut manager.locks, context)
    }

    /// The machine of wins, and the surroundings of a step of it.
    pub(super) fn wins_in_context(&mut self) -> (&mut Wins, Context<'_>) {
        let manager = &mut *self.manager;
        let context = self.items.context(&mut manager.notices);
        (&mut manager.wins, context)
    }
}

impl<S: Store> Items<S> {
    /// Whether an item with this header exists for clients: its lock is over and it stays, or it is locked, or it has not
    /// expired.
    pub(super) fn is_there(
        &self,
        manager: &LockManager,
        key: Key<'_>,
        header: &ItemHeader,
    ) -> bool {
        let is_past = self.is_past(header);
        if !header.locked {
            return !is_past;
        }
        let table = &manager.locks.table;
        // In this order: the holder of an ended lock is found by a search of all its shares.
        !table.is_flush_pending(key) && !is_past || table.owner(key).is_some()
    }
}
