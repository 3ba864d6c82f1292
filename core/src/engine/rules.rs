//! One step: the rules of a command, over a shard of items and the lock manager.
//!
//! This is the only place in which items and locks meet. A rule reaches the manager through [`Access`], so several shards can
//! share one manager, and a step that needs no manager does not lock it.

use core::cell::Cell;
use core::ops::{Deref, DerefMut};

use latchd_protocol::Owner;
use latchd_protocol::command::{ItemCommand, Wait};
use latchd_protocol::item::{ItemHeader, WinMark};
use latchd_protocol::key::Key;
use latchd_protocol::reply::Reply;

use super::items::Items;
use super::manager::LockManager;
use crate::store::Store;

/// A way to the lock manager, at the time of the step.
pub trait Access: DerefMut<Target = LockManager> {
    /// Whether the step has reached it.
    fn is_reached(&self) -> bool;
}

/// The way to a manager that nothing shares.
#[derive(Debug)]
pub(super) struct Direct<'a> {
    manager: &'a mut LockManager,
    is_reached: Cell<bool>,
}

impl<'a> Direct<'a> {
    pub(super) const fn new(manager: &'a mut LockManager) -> Self {
        Self {
            manager,
            is_reached: Cell::new(false),
        }
    }
}

impl Deref for Direct<'_> {
    type Target = LockManager;

    #[inline]
    fn deref(&self) -> &LockManager {
        self.is_reached.set(true);
        self.manager
    }
}

impl DerefMut for Direct<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut LockManager {
        self.is_reached.set(true);
        self.manager
    }
}

impl Access for Direct<'_> {
    fn is_reached(&self) -> bool {
        self.is_reached.get()
    }
}

/// The result of a lookup: the item, or the place for a new one.
pub(super) type Found<S> = Result<(<S as Store>::Slot, ItemHeader), <S as Store>::Vacancy>;

/// A step over these items.
#[derive(Debug)]
pub struct Rules<'a, S, M> {
    pub(super) items: &'a mut Items<S>,
    pub(super) manager: M,
}

impl<'a, S: Store, M: Access> Rules<'a, S, M> {
    /// A step over these items and this manager.
    pub const fn new(items: &'a mut Items<S>, manager: M) -> Self {
        Self { items, manager }
    }

    /// The items.
    pub const fn items(&mut self) -> &mut Items<S> {
        self.items
    }

    /// The lock manager, which is reached now.
    pub fn manager(&mut self) -> &mut LockManager {
        &mut self.manager
    }

    /// Before a command of a session: the session leaves the place in a queue that its last connection has left to it, if the
    /// command begins another wait or is refused one. Returns whether it does: then keys may be due. To be asked if the session
    /// [may have one](LockManager::may_leave_place).
    pub fn leave_place(&mut self, owner: Owner, command: &ItemCommand<'_>) -> bool {
        let (key, now) = (command.key(), self.manager.now);
        let leaves = match command {
            ItemCommand::Acquire(acquire) if acquire.wait != Wait::No => {
                self.prepare(key);
                self.manager.locks.leaves_place(owner, acquire, now)
            }
            ItemCommand::Get(get) if get.wait_ms > 0 && get.recaches => {
                self.prepare(key);
                let found = self.items.store.find_item(key);
                let is_sent = found.is_ok_and(|(_, header)| {
                    header.win == WinMark::Sent && (header.locked || !self.items.is_past(&header))
                });
                is_sent && !self.manager.wins.has_won_already(owner, key)
            }
            ItemCommand::Acquire(_)
            | ItemCommand::Get(_)
            | ItemCommand::Set(_)
            | ItemCommand::SetTooLarge { .. }
            | ItemCommand::Delete(_)
            | ItemCommand::Arithmetic(_)
            | ItemCommand::Release(_)
            | ItemCommand::Lock { .. }
            | ItemCommand::Unlock { .. } => false,
        };
        if leaves {
            self.manager.leave_all(owner);
        }
        leaves
    }

    /// The item of a key as a client would find it now.
    pub fn peek(&mut self, key: Key<'_>) -> Option<(ItemHeader, &[u8])> {
        if self.items.is_noted(key) {
            self.update(key);
        }
        self.items.peek(&self.manager, key)
    }

    /// Executes a command of `owner`, whose key is in this shard.
    #[inline]
    pub fn execute(mut self, owner: Owner, command: &ItemCommand<'a>) -> Reply<'a> {
        let key = command.key();
        if self.items.is_noted(key) {
            self.prepare(key);
        }
        if self.items.detail.is_on() {
            self.items.detail.note(command);
        }
        let reply = match command {
            // These two bring the note up to date themselves, since their reply borrows the item.
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
        if self.items.is_noted(key) {
            self.update_win(key);
        }
        self.conclude(key);
        reply
    }

    /// Brings a key up to date that a command is about.
    #[cold]
    fn prepare(&mut self, key: Key<'_>) {
        self.note_expired(key);
        self.update(key);
    }

    /// The end of a step that may have changed the lock or the win of `key`: it is noted from now on, or not (N6).
    #[inline]
    pub(super) fn conclude(&mut self, key: Key<'_>) {
        if self.manager.is_reached() {
            self.note(key);
        }
    }

    #[cold]
    fn note(&mut self, key: Key<'_>) {
        match self.manager.note_of(key) {
            None => {
                self.items.noted.remove(key.as_bytes());
            }
            Some(owned) => {
                self.items.noted.insert(owned);
            }
        }
    }

    /// Finds an item that a client can see: not one that has expired, unless it is held. The one
    /// look-up of a command.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "each command calls it, and a call costs as much as it does"
    )]
    pub(super) fn find_live(&mut self, key: Key<'_>) -> Found<S> {
        let (slot, header) = self.items.store.find_item(key)?;
        if header.locked {
            return self.find_locked(key, (slot, header));
        }
        if self.items.is_past(&header) {
            return Err(self.expire(slot, &header));
        }
        Ok((slot, header))
    }

    /// Removes an item that has expired.
    #[cold]
    fn expire(&mut self, slot: S::Slot, header: &ItemHeader) -> S::Vacancy {
        self.items.counters.get_expired += 1;
        self.items.reclaim(slot, header)
    }

    /// The same for an item that is marked locked. If its lock is over (L9), that takes effect before the item is read.
    #[cold]
    fn find_locked(&mut self, key: Key<'_>, found: (S::Slot, ItemHeader)) -> Found<S> {
        if !self.manager.locks.table.has_over_of(key) {
            return Ok(found);
        }
        self.update(key);
        self.items.store.find_item(key)
    }
}

impl<S: Store> Items<S> {
    /// Whether an item with this header exists for clients: its lock is over and it stays, or it is locked, or it has not
    /// expired.
    pub(super) fn is_there(
        &self,
        manager: &impl Deref<Target = LockManager>,
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
