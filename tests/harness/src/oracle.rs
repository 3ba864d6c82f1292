//! The expected answers of latchd, written a second time: slowly, plainly, and without a look at
//! the engine.
//!
//! Items are a map with every property of an item spelled out; a lock is an entry in a second map;
//! time is in milliseconds. It evicts nothing on its own; the comparison tells it which items a
//! core has evicted ([`Oracle::evict`]). If it knows the sizes of items, it decides whether there
//! is room ([`ByItem`]). It shares the types of commands with the core, and no code that decides
//! anything.
//!
//! Source: the protocol page of latchd (docs/PROTOCOL.md), memcached's `doc/protocol.txt`, and the
//! lock specification of yrmcds.

mod answer;
mod counters;
mod crawled;
mod evicted;
mod expired;
mod gone;
mod locks;
mod room;
mod store;
mod tables;
mod wins;

use std::collections::{BTreeMap, BTreeSet};

use latchd_core::engine::Event;
use latchd_core::{Instant, Limits, Owner};
use latchd_protocol::command::{
    Command, Get, GlobalCommand, ItemCommand, Mode, NewCas, ReleaseOf, TtlStep, TtlSteps,
};
use latchd_protocol::item::Cas;
use latchd_protocol::key::KeyForm;
use latchd_protocol::reply::Refusal;
use latchd_protocol::stats::{Counters, Gauges, Stats, Unstored};
use latchd_protocol::time::Exptime;
use latchd_protocol::wait::Notice;

use crate::alphabet::Input;

use evicted::LastEvicted;
use expired::Remains;

pub use answer::{OwnedReply, Seen, SeenLock, Win};
pub use crawled::{Between, Crawled};
pub use evicted::Evicted;
pub use expired::{Expired, There};
pub use gone::Gone;
pub use locks::{Lock, Metadata, Waiting};
pub use room::{ByItem, Judged};
pub use wins::{Getting, Winner};

use tables::{TableEntry, Tables};

/// Times are counted in quarters of a second,
const QUARTER_MS: u64 = 250;

/// and from the 17th year on in whole ones.
const COARSE_FROM_MS: u64 = (1 << 29) * 1000;

/// The naive model of a server.
#[derive(Clone, Debug)]
pub struct Oracle {
    limits: Limits,
    now_ms: u64,
    unix_ms_at_start: u64,
    items: BTreeMap<Vec<u8>, Item>,
    /// The keys of all items that have a winner, and of some that have none any more: there may be seventy thousand items.
    with_winners: BTreeSet<Vec<u8>>,
    locks: BTreeMap<Vec<u8>, Vec<Lock>>,
    /// How many locks each connection has. There may be ten thousand, and each request for one more
    /// needs the count.
    lock_counts: BTreeMap<Owner, usize>,
    /// In the order in which they came.
    waits: Vec<Waiting>,
    /// So do the gets that wait.
    gets: Vec<Getting>,
    notices: Vec<Notice>,
    fence_last: u64,
    /// Until then no lock is granted; 0 if locks are granted.
    withheld_until_ms: u64,
    /// Until then there is no lease to look for: there may be ten thousand locks, and time passes with each request.
    no_lease_ends_before_ms: u64,
    open: BTreeSet<Owner>,
    cas_last: u64,
    flush_due_ms: Option<u64>,
    counters: Counters,
    evicted: Evicted,
    last_evicted: LastEvicted,
    remains: Remains,
    /// `None` if there is room for everything.
    room: Option<ByItem>,
    /// The refusal of a request for room, if there is none now.
    lack: Option<Refusal>,
    /// `None` if the bytes of the tables are not compared.
    tables: Option<Tables>,
    judged: Judged,
}

/// Everything there is to know of an item.
#[allow(clippy::struct_excessive_bools)] // Each is a fact of its own.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Item {
    /// The stored value.
    pub value: Vec<u8>,
    /// The client's own number.
    pub client_flags: u32,
    /// The version.
    pub cas: u64,
    /// When it is gone: milliseconds since the start, on a quarter of a second. `None` is never.
    pub gone_at_ms: Option<u64>,
    /// When it was stored or fetched last.
    pub accessed_ms: u64,
    /// A client has fetched it since it was stored.
    pub fetched: bool,
    /// A client has used an item of this key since the key first had one; later stores do not reset
    /// this.
    pub used: bool,
    /// Marked out of date.
    pub stale: bool,
    /// A client was told to recache it.
    pub won: bool,
    /// The winner, if the win ends with its connection.
    pub bound: Option<Winner>,
    /// The winner's connection has ended: the next client wins, with any request.
    pub open: bool,
    /// Its key was written in base64.
    pub key_form: KeyForm,
    /// A `flush_all` passed while it was held: it goes when it is unlocked.
    pub flush_pending: bool,
}

impl Oracle {
    /// An empty server at time 0.
    #[must_use]
    pub fn new(limits: Limits, unix_s_at_start: u64) -> Self {
        Self {
            limits,
            now_ms: 0,
            unix_ms_at_start: unix_s_at_start * 1000,
            items: BTreeMap::new(),
            with_winners: BTreeSet::new(),
            locks: BTreeMap::new(),
            lock_counts: BTreeMap::new(),
            waits: Vec::new(),
            gets: Vec::new(),
            notices: Vec::new(),
            fence_last: 0,
            withheld_until_ms: 0,
            no_lease_ends_before_ms: u64::MAX,
            open: BTreeSet::new(),
            cas_last: 0,
            flush_due_ms: None,
            counters: Counters::default(),
            evicted: Evicted::default(),
            last_evicted: LastEvicted::default(),
            remains: Remains::default(),
            room: None,
            lack: None,
            tables: None,
            judged: Judged::default(),
        }
    }

    /// Applies `input` at `now_ms`; the answer, if it is a command.
    pub fn enter(&mut self, now_ms: u64, input: &Input<'_>) -> Option<OwnedReply> {
        self.advance_to(now_ms);
        self.take(input)
    }

    /// Advances the time to `now_ms`, and does all that was due up to then.
    fn advance_to(&mut self, now_ms: u64) {
        self.now_ms = self.now_ms.max(now_ms);
        self.end_doubt();
        let is_flushed = self.flush_due_ms.is_some_and(|due| due <= self.now_ms);
        if is_flushed {
            self.flush();
        }
        let are_granted = self.end_withheld();
        self.end_waits();
        self.end_leases();
        if are_granted {
            self.serve_all();
        }
        self.end_gets();
    }

    fn take(&mut self, input: &Input<'_>) -> Option<OwnedReply> {
        match input {
            Input::Event(Event::Opened(conn)) => {
                self.open.insert(*conn);
                None
            }
            Input::Event(Event::Closed(conn)) => {
                self.leave(*conn);
                self.gets.retain(|getting| getting.conn != *conn);
                self.end_wins(*conn);
                self.counters.lock_died += self.unlock_every(*conn);
                self.open.remove(conn);
                None
            }
            Input::Event(Event::WithholdGrants(until)) => {
                let until_ms = until.map_or(u64::MAX, Instant::as_millis);
                self.withheld_until_ms = self.withheld_until_ms.max(until_ms);
                None
            }
            Input::Event(
                Event::Tick
                | Event::Due
                | Event::Detached(..)
                | Event::Resumed(_)
                | Event::ReadEvictions { .. }
                | Event::ReportLockEnds(_),
            ) => None,
            Input::Memory { bytes } => {
                self.limit_memory(*bytes);
                None
            }
            Input::Event(Event::Unstored(why)) => {
                match why {
                    Unstored::BadChunk => self.counters.cmd_set += 1,
                    Unstored::TooLarge => self.counters.store_too_large += 1,
                }
                None
            }
            Input::Event(Event::Limits(limits)) => {
                self.limit_memory(limits.memory_bytes_max);
                None
            }
            Input::Event(Event::WallClock { unix_s_at_start }) => {
                self.unix_ms_at_start = unix_s_at_start * 1000;
                None
            }
            Input::Command(conn, command) => Some(self.answer(*conn, command)),
        }
    }

    /// The item of a key, if a client could see it.
    #[must_use]
    pub fn visible(&self, key: &[u8]) -> Option<&Item> {
        let item = self.items.get(key)?;
        let held = self.locks.contains_key(key);
        (held || !self.is_gone(item)).then_some(item)
    }

    /// Every item that a client could see.
    pub fn items(&self) -> impl Iterator<Item = (&[u8], &Item)> {
        self.items
            .keys()
            .filter_map(|key| Some((key.as_slice(), self.visible(key)?)))
    }

    fn answer(&mut self, conn: Owner, command: &Command<'_>) -> OwnedReply {
        match command {
            Command::Item(command) => {
                let reply = self.answer_item(conn, command);
                self.came_for(command.key().as_bytes());
                // The change of a TTL by a get is noticed with the next event.
                if !matches!(command, ItemCommand::Get(_)) {
                    self.serve_gets(command.key().as_bytes());
                }
                reply
            }
            Command::Global(command) => self.answer_global(conn, command),
        }
    }

    fn answer_item(&mut self, conn: Owner, command: &ItemCommand<'_>) -> OwnedReply {
        let key = command.key().as_bytes();
        // An item that is gone and not held might as well never have been.
        self.come_for(key);
        match command {
            ItemCommand::Get(get) => self.get(conn, get),
            ItemCommand::Set(set) => self.set(conn, set),
            ItemCommand::SetTooLarge { .. } => {
                self.counters.store_too_large += 1;
                if self.items.contains_key(key) && !self.refuses(conn, key) {
                    self.take_out(key);
                }
                OwnedReply::Refused(Refusal::TooLarge)
            }
            ItemCommand::Delete(delete) => self.delete(conn, delete),
            ItemCommand::Arithmetic(arithmetic) => self.arithmetic(conn, arithmetic),
            ItemCommand::Acquire(acquire) => {
                let reply = self.acquire(conn, acquire);
                // A waiter's request counts as made when it is answered.
                self.counters.cmd_lock += u64::from(reply != OwnedReply::Waits);
                self.counters.lock_misses += u64::from(reply == OwnedReply::NotFound);
                reply
            }
            ItemCommand::Release(release) => {
                let mut locks = self.locks_of(key).iter();
                let lock = locks.find(|lock| match release.of {
                    ReleaseOf::Own => lock.owner == conn,
                    ReleaseOf::OwnGrant(fence) => {
                        (lock.owner, lock.fence) == (conn, fence.number())
                    }
                    ReleaseOf::Grant(fence) => lock.fence == fence.number(),
                });
                match (lock.map(|lock| lock.owner), release.of) {
                    (Some(owner), _) => {
                        self.unlock(key, owner);
                        self.counters.lock_released += 1;
                        OwnedReply::Unlocked
                    }
                    (None, ReleaseOf::Grant(_)) => {
                        self.counters.fence_refusals += 1;
                        OwnedReply::Exists
                    }
                    (None, ReleaseOf::Own | ReleaseOf::OwnGrant(_)) => OwnedReply::NotFound,
                }
            }
            ItemCommand::Lock { .. } => {
                self.counters.cmd_lock += 1;
                let is_free = !self.locks.contains_key(key) && !self.is_withheld();
                if is_free && !self.items.contains_key(key) {
                    self.counters.lock_misses += 1;
                    return OwnedReply::NotFound;
                }
                match self.lock(conn, key, false, Mode::Exclusive, 0) {
                    Ok(_) => OwnedReply::Locked,
                    Err(refusal) => OwnedReply::Refused(refusal),
                }
            }
            ItemCommand::Unlock { .. } => {
                if self.own(key, conn).is_none() && !self.items.contains_key(key) {
                    return OwnedReply::Refused(Refusal::NotLockedNotFound);
                }
                if self.own(key, conn).is_none() {
                    return OwnedReply::Refused(Refusal::NotLocked);
                }
                self.unlock(key, conn);
                self.counters.lock_released += 1;
                OwnedReply::Unlocked
            }
        }
    }

    fn answer_global(&mut self, conn: Owner, command: &GlobalCommand<'_>) -> OwnedReply {
        match command {
            GlobalCommand::UnlockAll => {
                self.counters.lock_released += self.unlock_every(conn);
                OwnedReply::Unlocked
            }
            GlobalCommand::FlushAll { at } => {
                self.counters.cmd_flush += 1;
                match self.moment(*at) {
                    Some(at_ms) if at_ms > self.now_ms => self.flush_due_ms = Some(at_ms),
                    // "Never" and "already past" are both "at once" here.
                    Some(_) | None => {
                        self.flush();
                        self.serve_all_gets();
                    }
                }
                OwnedReply::Ok
            }
            GlobalCommand::Keys(keys) => OwnedReply::Keys(
                self.items
                    .keys()
                    .filter(|key| key.starts_with(keys.prefix) && self.visible(key).is_some())
                    .cloned()
                    .collect(),
            ),
            GlobalCommand::Stats(_) => {
                let locks = self.locks.values().flatten();
                let holders: BTreeSet<_> = locks.clone().map(|lock| lock.owner).collect();
                let gauges = Gauges {
                    locks_held: locks.count() as u64,
                    lock_holders: holders.len() as u64,
                    lock_waiting: self.waits.len() as u64,
                    get_waiting: self.gets.len() as u64,
                    ..Gauges::default()
                };
                let counters = self.counters;
                OwnedReply::Stats(Box::new(Stats { counters, gauges }))
            }
            GlobalCommand::StatsReset => {
                self.counters = Counters::default();
                OwnedReply::Ok
            }
        }
    }

    fn get(&mut self, conn: Owner, get: &Get<'_>) -> OwnedReply {
        let key = get.key.as_bytes();
        let made = !self.items.contains_key(key);
        // A session that has the win already is told so, since it may not have heard.
        let has_won =
            |item: &Item| item.bound.is_some_and(|it| it.conn == conn) && conn.is_session();
        let is_won = self
            .items
            .get(key)
            .is_some_and(|item| item.won && !has_won(item));
        // One that waits for a value is counted when it is answered.
        if get.wait_ms == 0 || !get.recaches || !is_won {
            // `me` is no get, and whether `N` makes an item is not known yet.
            let is_counted =
                (get.bump || get.recaches) && (!made || get.lock || !get.steps.vivifies());
            if is_counted {
                self.count_get(&get.steps, get.recaches, !made);
            }
            self.counters.cmd_lock += u64::from(get.lock);
            if made {
                self.miss(key);
            }
        }
        if made {
            let holder = self.holder(key);
            if get.lock && (holder.is_some() || self.is_withheld()) {
                return match self.lock(conn, key, false, Mode::Exclusive, 0) {
                    Ok(_) => unreachable!("it is held, or withheld"),
                    Err(refusal) => OwnedReply::Refused(refusal),
                };
            }
            let is_shared = self.lock_of(key).is_some_and(|it| it.mode.is_shared());
            let is_others = is_shared || holder.is_some_and(|holder| holder != conn);
            if get.lock || !get.steps.vivifies() {
                self.counters.lock_misses += u64::from(get.lock);
                return OwnedReply::Miss;
            }
            let (gone_at_ms, _, _) = self.walk(None, &get.steps, true);
            let is_kept = gone_at_ms.is_none_or(|at_ms| at_ms > self.now_ms);
            let refused = if is_others {
                Some(OwnedReply::Miss)
            } else if is_kept && !self.has_room_for(key, 0) {
                Some(OwnedReply::Refused(Refusal::OutOfMemory))
            } else if get.bound_to_owner && is_kept && !self.open.contains(&conn) {
                Some(OwnedReply::Refused(Refusal::ConnectionClosed))
            } else if get.bound_to_owner
                && is_kept
                && !self.may_be_bound(conn, TableEntry::Win, key)
            {
                Some(OwnedReply::Refused(Refusal::TooManyLocks))
            } else {
                None
            };
            self.count_get(&get.steps, get.recaches, refused.is_none());
            if let Some(refused) = refused {
                return refused;
            }
            let cas = self.version(get.new_cas);
            self.items.insert(
                key.to_vec(),
                self.fresh(b"", 0, Exptime::Never, get.key_form, cas),
            );
        }
        if get.lock
            && let Err(refusal) = self.lock(conn, key, false, Mode::Exclusive, 0)
        {
            return OwnedReply::Refused(refusal);
        }
        let before = self.items[key].clone();
        if get.wait_ms > 0 && get.recaches && before.won && !has_won(&before) {
            return self.wait(conn, get);
        }
        let (gone_at_ms, ttls, short) = self.walk(before.gone_at_ms, &get.steps, made);
        let heard = before
            .bound
            .filter(|winner| winner.conn == conn && (winner.is_unheard || conn.is_session()));
        let is_open = made || before.stale || before.open || short;
        let win = match (get.recaches, before.won, is_open) {
            (true, true, _) if heard.is_some() => Win::Won,
            (true, true, _) => Win::Sent,
            (true, false, true) => Win::Won,
            (true, false, false) | (false, _, _) => Win::None,
        };
        let is_bound = get.bound_to_owner && !made && win == Win::Won && !before.won;
        if is_bound && !self.open.contains(&conn) {
            return OwnedReply::Refused(Refusal::ConnectionClosed);
        }
        if is_bound && !self.may_be_bound(conn, TableEntry::Win, key) {
            return OwnedReply::Refused(Refusal::TooManyLocks);
        }
        match win {
            Win::Won => self.counters.win_sent += 1,
            Win::Sent => self.counters.win_waits += 1,
            Win::None => {}
        }
        let now_ms = self.now_ms;
        let item = self.items.get_mut(key).expect("found or made above");
        item.gone_at_ms = gone_at_ms;
        if win == Win::Won {
            (item.won, item.open) = (true, false);
            let own = Winner {
                conn,
                made: made || before.open,
                is_unheard: false,
                stays: true,
            };
            item.bound = match heard {
                Some(winner) if winner.stays => Some(Winner {
                    is_unheard: false,
                    ..winner
                }),
                Some(_) => None,
                None => get.bound_to_owner.then_some(own),
            };
            if item.bound.is_some() {
                self.with_winners.insert(key.to_vec());
            }
        }
        if get.bump {
            (item.fetched, item.used) = (true, true);
            item.accessed_ms = now_ms;
        }
        // An item that is made and gone at once is shown and not kept, even if the key is held.
        if made && self.is_gone(&self.items[key]) {
            self.items.remove(key);
        }
        OwnedReply::Hit(Seen {
            // As it is after the get; the rest is as it was before.
            lock: self.lock_seen(key).map(|lock| SeenLock {
                // Only a look shows it.
                metadata: lock.metadata.filter(|_| get.is_look()),
                ..lock
            }),
            ..self.seen(key, &before, ttls, win, get.known_cas.map(Cas::number))
        })
    }

    /// An item that was like this, as a read shows it.
    fn seen(
        &self,
        key: &[u8],
        before: &Item,
        ttls: Vec<Option<u64>>,
        win: Win,
        known_cas: Option<u64>,
    ) -> Seen {
        Seen {
            key: key.to_vec(),
            key_form: before.key_form,
            value: before.value.clone(),
            cas: before.cas,
            client_flags: before.client_flags,
            ttls,
            last_access_s: (quarter(self.now_ms) - quarter(before.accessed_ms)) / 1000,
            fetched: before.fetched,
            stale: before.stale,
            win,
            unchanged: known_cas == Some(before.cas),
            lock: None,
        }
    }

    /// Follows the TTL through the steps of a command: when the item is gone in the end, the TTL
    /// shown before, between and after the steps, and whether an `R` found it short.
    fn walk(
        &self,
        gone_at_ms: Option<u64>,
        steps: &TtlSteps,
        made: bool,
    ) -> (Option<u64>, Vec<Option<u64>>, bool) {
        let mut gone_at_ms = gone_at_ms;
        let mut short = false;
        let mut shown = vec![self.seconds_left(gone_at_ms)];
        for step in steps.iter() {
            match step {
                TtlStep::Touch(exptime) => gone_at_ms = self.gone_at(exptime),
                TtlStep::Vivify(exptime) if made => gone_at_ms = self.gone_at(exptime),
                TtlStep::Vivify(_) => {}
                TtlStep::Recache(exptime) => {
                    short |= match (gone_at_ms, exptime) {
                        (None, _) | (_, Exptime::Never | Exptime::Past) => false,
                        (Some(_), Exptime::In { seconds }) => {
                            self.seconds_left(gone_at_ms) < Some(u64::from(seconds))
                        }
                        (Some(at_ms), Exptime::At { .. }) => {
                            self.gone_at(exptime).is_some_and(|date_ms| at_ms < date_ms)
                        }
                    };
                }
            }
            shown.push(self.seconds_left(gone_at_ms));
        }
        (gone_at_ms, shown, short)
    }

    fn flush(&mut self) {
        self.flush_due_ms = None;
        self.take_unheld();
        for item in self.items.values_mut() {
            item.flush_pending = true;
        }
    }

    fn fresh(
        &self,
        value: &[u8],
        client_flags: u32,
        exptime: Exptime,
        key_form: KeyForm,
        cas: u64,
    ) -> Item {
        Item {
            value: value.to_vec(),
            client_flags,
            cas,
            gone_at_ms: self.gone_at(exptime),
            accessed_ms: self.now_ms,
            fetched: false,
            used: false,
            stale: false,
            won: false,
            bound: None,
            open: false,
            key_form,
            flush_pending: false,
        }
    }

    /// The version of a change that happens.
    fn version(&mut self, new_cas: NewCas) -> u64 {
        match new_cas {
            NewCas::Is(cas) => cas.number(),
            NewCas::Next => {
                self.cas_last += 1;
                self.cas_last
            }
        }
    }

    /// The moment an exptime names, to the millisecond; now for one that has passed, `None` for
    /// never.
    fn moment(&self, exptime: Exptime) -> Option<u64> {
        let at_ms = match exptime {
            Exptime::Never => return None,
            Exptime::Past => 0,
            Exptime::In { seconds } => self.now_ms + u64::from(seconds) * 1000,
            Exptime::At { unix_s } => (unix_s * 1000).saturating_sub(self.unix_ms_at_start),
        };
        Some(at_ms.max(self.now_ms))
    }

    /// When an item with this exptime is gone: with the first quarter that begins no earlier, or
    /// with this one if the moment has passed.
    fn gone_at(&self, exptime: Exptime) -> Option<u64> {
        let at_ms = self.moment(exptime)?;
        Some(if at_ms == self.now_ms {
            quarter(at_ms)
        } else {
            at_ms.next_multiple_of(step_ms(at_ms))
        })
    }

    fn is_gone(&self, item: &Item) -> bool {
        item.gone_at_ms.is_some_and(|at_ms| at_ms <= self.now_ms)
    }

    /// The TTL as a client sees it: to the nearest second, of the quarters that are left.
    fn seconds_left(&self, gone_at_ms: Option<u64>) -> Option<u64> {
        gone_at_ms.map(|at_ms| (at_ms.saturating_sub(quarter(self.now_ms)) + 500) / 1000)
    }
}

/// The beginning of the quarter, or the second, that a moment lies in.
const fn quarter(ms: u64) -> u64 {
    ms - ms % step_ms(ms)
}

/// The resolution of time then.
const fn step_ms(ms: u64) -> u64 {
    if ms < COARSE_FROM_MS {
        QUARTER_MS
    } else {
        1000
    }
}
