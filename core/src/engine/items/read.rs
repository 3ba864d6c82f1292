//! Reading an item: get, touch, meta get, and lock-and-get.
//!
//! Reads, TTLs and wins do not look at locks (yrmcds `docs/locking.md`: "`get` succeeds even though
//! the object is locked"); only taking the lock in the same step does.
//!
//! Source: memcached 1.6.45 `proto_parser.c`, `process_get_cmd` and `process_mget_cmd`.

use latchd_protocol::Owner;
use latchd_protocol::command::{Get, TtlStep};
use latchd_protocol::item::{ItemHeader, WinMark};
use latchd_protocol::key::Key;
use latchd_protocol::reply::{Hit, LockInfo, Refusal, Reply, TtlTrace, Win};
use latchd_protocol::time::Tick;
use latchd_protocol::value::Value;

use crate::engine::items::Items;
use crate::engine::rules::{Access, Rules};
use crate::engine::wins::recache::{self, Origin, Outcome};
use crate::store::{Shown, Store};

/// The reply to a plain read at `now` of an item that was found with this header.
#[inline]
fn hit<'a>(now: Tick, shown: Shown<'a>, header: &ItemHeader) -> Hit<'a> {
    let ttl = header.deadline.map(|deadline| deadline.remaining_s(now));
    let Shown {
        key,
        value,
        item_bytes,
    } = shown;
    Hit {
        key: key.as_bytes(),
        key_form: header.key_form,
        value,
        cas: header.cas,
        client_flags: header.client_flags,
        ttl: TtlTrace::unchanged(ttl),
        last_access_s: now.seconds_since(header.last_access),
        fetched: header.fetched,
        stale: header.stale,
        win: Win::None,
        unchanged: false,
        lock: None,
        memory_bytes: item_bytes,
    }
}

/// An item that a get has made.
pub(in crate::engine) struct Made<Slot> {
    /// Where it is; `None` if it expired at once.
    pub(in crate::engine) slot: Option<Slot>,
    /// Its header, without its lock.
    pub(in crate::engine) header: ItemHeader,
    /// The result for the get.
    pub(in crate::engine) outcome: Outcome,
}

impl<'a, S: Store, M: Access> Rules<'a, S, M> {
    pub(in crate::engine) fn get(mut self, owner: Owner, get: &Get<'a>) -> Reply<'a> {
        let found = self.find_live(get.key);
        if get.wait_ms > 0 {
            if let Ok((slot, header)) = found
                && header.win == WinMark::Sent
                && get.recaches
                && !self.manager.wins.has_won_already(owner, get.key)
            {
                let reply = self.wait_for_value(owner, get, (slot, header));
                self.conclude(get.key);
                return reply;
            }
            if self.items.detail.is_on() {
                self.items.detail.note_get(get.key.as_bytes());
            }
        }
        let (mut slot, header) = match found {
            Ok(found) => found,
            Err(vacancy) => {
                self.count_flushed(get.key, vacancy);
                // Lock-and-get answers a miss as one, and makes nothing.
                if get.steps.vivifies() && !get.lock {
                    let reply = self.vivify(owner, get, vacancy);
                    self.conclude(get.key);
                    return reply;
                }
                self.count_get(get, false);
                if get.lock {
                    self.items.counters.cmd_lock += 1;
                    return self.lock_without_item(owner, get.key, Reply::Miss);
                }
                return Reply::Miss;
            }
        };
        if self.items.detail.is_on() && !get.is_look() {
            self.items.detail.note_hit(get.key.as_bytes());
        }
        self.count_get(get, true);
        if get.lock {
            // The one thing that can be refused, so it comes before anything has changed (E1).
            self.items.counters.cmd_lock += 1;
            slot = match self.lock_item(owner, get.key, slot, &header) {
                Ok(kept) => kept,
                Err(refusal) => return Reply::Refused(refusal),
            };
        }
        let mut outcome = recache::decide(&self.items.clock, &header, &get.steps, Origin::Found);
        if !get.recaches {
            outcome.win = Win::None;
        } else if self.items.is_noted(get.key) {
            outcome.win = self.manager.wins.claim(owner, get.key, outcome.win);
        }
        if get.bound_to_owner && outcome.win == Win::Won && header.win != WinMark::Sent {
            // That can be refused as well.
            let is_made = header.win == WinMark::Open;
            slot = match self.bind(owner, get.key, slot, is_made) {
                Ok(kept) => kept,
                Err(refusal) => return Reply::Refused(refusal),
            };
        }
        self.count_win(outcome.win);
        let win = recache::mark_after(header.win, outcome.win);
        let locked = header.locked || get.lock;
        let mut changed = None;
        if (outcome.deadline, win, locked) != (header.deadline, header.win, header.locked) {
            let after = ItemHeader {
                deadline: outcome.deadline,
                win,
                locked,
                ..header
            };
            if self.items.is_noted(get.key) {
                self.manager.wins.note_end(get.key, &after);
            }
            changed = Some(after);
        }
        let lock = if locked { self.lock_seen(get) } else { None };
        self.conclude(get.key);
        let now = self.items.clock.tick();
        let used_at = get.bump.then_some(now);
        // The reply shows the item as this get found it; the next get sees the changes.
        let items = self.items;
        let shown = items.store.read(slot, changed, used_at);
        Reply::Hit(Hit {
            ttl: outcome.ttl,
            win: outcome.win,
            unchanged: get.known_cas == Some(header.cas),
            lock: lock.map(|lock| LockInfo {
                metadata: items.metadata.get(),
                ..lock
            }),
            ..hit(now, shown, &header)
        })
    }

    /// The lock of the item of a get. If the get is for a person, [`Items::metadata`] has the metadata of the lock then.
    fn lock_seen(&mut self, get: &Get<'_>) -> Option<LockInfo<'static>> {
        let seen = self.manager.locks.info(get.key, self.manager.now)?;
        let metadata = if get.is_look() {
            self.manager.locks.table.metadata(seen.fence)
        } else {
            None
        };
        self.items.metadata.keep(metadata);
        Some(seen)
    }

    /// Makes an empty item in the place of a missing one, and tells this get to fill it.
    ///
    /// If the key is locked, only its holder may make the item, so another get has a miss; if it is shared (L15), every
    /// get has.
    fn vivify(&mut self, owner: Owner, get: &Get<'a>, vacancy: S::Vacancy) -> Reply<'a> {
        let held = self.without_item(get.key);
        if held.is_some_and(|held| held.owner != owner || held.mode.is_shared()) {
            self.count_get(get, false);
            return Reply::Miss;
        }
        let made = match self.make(get, vacancy) {
            Ok(made) => made,
            Err(refusal) => {
                self.count_get(get, false);
                return Reply::Refused(refusal);
            }
        };
        let Made {
            slot,
            header,
            outcome,
        } = made;
        if get.bound_to_owner
            && let Some(slot) = slot
            && let Err(refusal) = self.bind(owner, get.key, slot, true)
        {
            // The search for memory may have moved it, even in vain.
            if let Ok(slot) = self.items.store.find(get.key) {
                self.remove(get.key, slot);
            }
            self.count_get(get, false);
            return Reply::Refused(refusal);
        }
        self.count_get(get, true);
        self.items.commit_cas(get.new_cas);
        self.count_win(outcome.win);
        Reply::Hit(Hit {
            key: get.key.as_bytes(),
            key_form: get.key_form,
            value: Value::default(),
            cas: header.cas,
            client_flags: 0,
            ttl: outcome.ttl,
            last_access_s: 0,
            fetched: false,
            stale: false,
            win: outcome.win,
            unchanged: get.known_cas == Some(header.cas),
            // Its own lock, if the key is locked.
            lock: held.and_then(|_| self.manager.locks.info(get.key, self.manager.now)),
            memory_bytes: self.items.store.bytes_for(get.key.as_bytes().len(), 0),
        })
    }

    /// Makes an empty item for a get to fill, which wins it. Its CAS is to be committed.
    ///
    /// # Errors
    /// [`Refusal::OutOfMemory`]: nothing has changed.
    pub(in crate::engine) fn make(
        &mut self,
        get: &Get<'_>,
        vacancy: S::Vacancy,
    ) -> Result<Made<S::Slot>, Refusal> {
        let now = self.items.clock.tick();
        let mut header = ItemHeader {
            cas: self.items.peek_cas(get.new_cas),
            deadline: None,
            last_access: now,
            client_flags: 0,
            key_form: get.key_form,
            fetched: get.bump,
            stale: false,
            win: WinMark::None,
            locked: false,
        };
        let outcome = recache::decide(&self.items.clock, &header, &get.steps, Origin::Made);
        header.deadline = outcome.deadline;
        // No other get could see it, so `decide` has given the win to this get (R1).
        header.win = WinMark::Sent;
        let mut slot = None;
        // One that would expire at once is shown and not kept, so everybody wins it.
        if !outcome
            .deadline
            .is_some_and(|deadline| deadline.has_passed(now))
        {
            let inserted = self.may_pin_new(get.key, 0).and_then(|()| {
                let counters = &mut self.items.counters;
                self.items
                    .store
                    .insert(now, vacancy, get.key, header, Value::default(), counters)
            });
            let Ok(inserted) = inserted else {
                self.items.counters.store_no_memory += 1;
                return Err(Refusal::OutOfMemory);
            };
            self.lock_made_item(get.key, inserted);
            slot = Some(inserted);
        }
        Ok(Made {
            slot,
            header,
            outcome,
        })
    }

    /// Counts the look-up of an item that a flush has taken.
    pub(in crate::engine) fn count_flushed(&mut self, key: Key<'_>, vacancy: S::Vacancy) {
        if self.items.store.was_flushed(key, vacancy) {
            self.items.counters.get_flushed += 1;
        }
    }

    /// Counts a get that is answered: with an item that it found or made, or with none.
    ///
    /// Source: memcached 1.6.45 `proto_parser.c`: `process_mget_cmd` counts a touch only where there is an item, and one
    /// that it made like one that it found; `process_touch_cmd` and `process_get_cmd` count every touch as one.
    pub(in crate::engine) fn count_get(&mut self, get: &Get<'_>, has_item: bool) {
        if get.is_look() {
            return;
        }
        let counters = &mut self.items.counters;
        let touches = !get.steps.is_empty()
            && (has_item || !get.recaches)
            && get
                .steps
                .iter()
                .any(|step| matches!(step, TtlStep::Touch(_)));
        let (command, hits, misses) = if touches {
            (
                &mut counters.cmd_touch,
                &mut counters.touch_hits,
                &mut counters.touch_misses,
            )
        } else {
            (
                &mut counters.cmd_get,
                &mut counters.get_hits,
                &mut counters.get_misses,
            )
        };
        *command += 1;
        *(if has_item { hits } else { misses }) += 1;
    }

    fn count_win(&mut self, win: Win) {
        match win {
            Win::None => {}
            Win::Won => self.items.counters.win_sent += 1,
            Win::Sent => self.items.counters.win_waits += 1,
        }
    }
}

impl<S: Store> Items<S> {
    /// An item that was found with this header, as a read shows it that asks for nothing else.
    pub(in crate::engine) fn shown(&self, slot: S::Slot, header: &ItemHeader) -> Hit<'_> {
        hit(self.clock.tick(), self.store.show(slot), header)
    }
}
