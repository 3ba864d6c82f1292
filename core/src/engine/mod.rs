//! The rules of items, locks and wins: each command with its effects and its reply.
//!
//! A core has two entry points once it is made and filled ([`Core::restore`]). [`Core::execute`] takes a command of an
//! owner and returns the reply; [`Core::handle`] takes any other event. Both take the time. [`Core::poll`] returns
//! later results: notices of waits that are over, and reports. A transport over several cores also prepares a core for
//! a command ([`Core::would_contend`], [`Core::update_wins`], [`Core::make_room_for_tables`]). [`Core::take_work`]
//! reads the meter. No clock, socket, thread, randomness or log reaches a reply, so the same calls always give the same
//! replies.
//!
//! - E1: a refused command has changed nothing, but for
//!   [`SetTooLarge`](crate::command::ItemCommand::SetTooLarge).
//! - E2: An item that another owner has locked is not changed, evicted or expired. Its TTL and its win are not
//!   protected.
//! - E3: a CAS is given to one change only, and each is larger than those given before.
//!
//! Source: memcached 1.6.45 (`memcached.c:do_store_item`, `proto_parser.c`), and yrmcds
//! `docs/locking.md`. Where we differ from them: docs/PROTOCOL.md.

mod config;
mod context;
mod items;
mod limit;
mod lock_memory;
mod locks;
mod notices;
mod owned_key;
mod queues;
mod stats;
#[cfg(feature = "verify")]
mod view;
mod wins;

#[cfg(test)]
mod tests;

pub use config::Config;
pub use items::saved::{Numbers, Restored, SavedItem};
pub(crate) use limit::limit_memory;
pub use lock_memory::TABLES_GROWTH_MAX;
pub use locks::queue::{WaitTable, Waiter};
pub use locks::table::{EndCause, Held, Holding, LOCK_ENDS_MAX, LockEnd, LockTable, Taken};
pub use queues::{Queues, Waits};
pub use stats::detail::{PREFIXES_MAX, Prefixes};
#[cfg(feature = "verify")]
pub use view::View;
pub use wins::bound::{BoundWin, BoundWins};
pub use wins::queue::{WinWaiter, WinWaits};

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use self::context::Context;
use self::locks::Locks;
use self::notices::Notices;
use self::stats::detail::Detail;
use self::wins::Wins;
use crate::command::{Command, GlobalCommand, ItemCommand, Keys, NewCas};
use crate::item::{Cas, ItemHeader};
use crate::key::Key;
use crate::limits::Limits;
use crate::owner::Owner;
use crate::reply::{KeysPage, Listed, Reply};
use crate::stats::{Gauges, Report, Stats, StatsTopic, Unstored};
use crate::store::{LogStore, MapStore, Store, Visited};
use crate::time::{Clock, Exptime, Instant};
use crate::wait::Notice;
use crate::watch::Evicted;
use crate::work::Meter;

/// An event besides a command. It has no reply.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Event {
    /// An owner is open: from now on it can acquire locks. An owner that acquires none need not be announced.
    Opened(Owner),
    /// The locks and wins of an open owner in other cores, for a transport that spreads items over several: the owner's
    /// share is counted over all of them.
    HoldsElsewhere(Owner, Held),
    /// An owner has ended, for any reason. Its locks end, and its number is not used again.
    Closed(Owner),
    /// Time has passed: look for expired items, a bounded number a tick.
    Tick,
    /// A moment has come ([`Core::next_deadline`]): waits, leases and a `flush_all` that it ends are over. A bounded
    /// number is seen to at once ([`crawl_items_max`](Limits::crawl_items_max) of each kind).
    Due,
    /// As [`Due`](Self::Due), and no more is seen to at once than a command sees to: for a transport that looks at
    /// several cores at once.
    DueFew,
    /// The bytes that the tables of other cores take from now on, for a transport with a budget for all cores
    /// ([`Config::sharing_tables`]). No memory is freed for that yet ([`Core::make_room_for_tables`]).
    TablesElsewhere(usize),
    /// A `flush_all` takes effect in another core. If it is still to take effect in this one, it does so now: for a
    /// transport that spreads items over several cores, so that no client sees a part of it.
    FlushedElsewhere,
    /// The bounds are these from now on. Refused bounds ([`Core::judge_limits`]) change nothing.
    Limits(Limits),
    /// A set was refused before there was a command.
    Unstored(Unstored),
    /// [`Core::poll`] is to hand out the evictions since the last such event. From now on they are remembered if
    /// `is_watched`.
    ReadEvictions {
        /// Whether there is a client that watches them.
        is_watched: bool,
    },
    /// From now on the end of each lock is handed out by [`Core::poll`], or not.
    ReportLockEnds(bool),
    /// The wall clock was looked at.
    WallClock {
        /// Unix seconds at [`Instant`] 0.
        unix_s_at_start: u64,
    },
}

/// A result besides replies ([`Core::poll`]).
#[derive(Clone, Debug)]
pub enum Notification {
    /// Evictions, for [`Event::ReadEvictions`].
    Evicted {
        /// In their order.
        items: Vec<Evicted>,
        /// How many more there were.
        missed: u64,
    },
    /// Locks that have ended, if [`Event::ReportLockEnds`] asks for them. A lock that has ended with many others is
    /// reported when its item is released.
    LocksEnded {
        /// At most [`LOCK_ENDS_MAX`], in their order.
        ends: VecDeque<LockEnd>,
        /// How many more there were.
        missed: u64,
    },
    /// A wait is over.
    WaitOver(Notice),
}

impl Notification {
    /// The notice of a wait that is over, if it is one.
    #[must_use]
    pub fn wait_over(self) -> Option<Notice> {
        match self {
            Self::WaitOver(notice) => Some(notice),
            Self::Evicted { .. } | Self::LocksEnded { .. } => None,
        }
    }
}

/// Items, locks and wins: the state machine that latchd is.
#[derive(Clone, Debug)]
pub struct Core<S = LogStore> {
    store: S,
    locks: Locks,
    wins: Wins,
    limits: Limits,
    /// The number of cores with one budget for their tables.
    table_cores: usize,
    /// The bytes that the tables of the other cores take.
    tables_elsewhere: usize,
    clock: Clock,
    next_cas: Cas,
    cas_stride: u32,
    flush_at: Option<Instant>,
    /// The notices of waits that are over.
    notices: Notices,
    /// Evictions to be handed out.
    evicted: Option<(Vec<Evicted>, u64)>,
    stats: Stats,
    detail: Detail,
    /// The work of steps besides the commands themselves.
    work: Meter,
}

impl Core {
    /// A core on the store that the program uses.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let store = LogStore::new(&config.limits, config.hash_seed);
        Self::with_store(config, store)
    }
}

impl Core<MapStore> {
    /// A core on the reference store, for models and tests that must know which items fit.
    #[must_use]
    pub fn reference(config: Config) -> Self {
        Self::with_store(config, MapStore::new(&config.limits))
    }
}

impl<S: Store> Core<S> {
    /// Whether its store keeps large values that are shared ([`Store::SHARES_VALUES`]).
    pub const SHARES_VALUES: bool = S::SHARES_VALUES;

    /// A core on `store`, which keeps within the same limits.
    #[must_use]
    pub fn with_store(config: Config, store: S) -> Self {
        let Config {
            limits,
            unix_s_at_start,
            cas_first,
            cas_stride,
            fence_first,
            hash_seed: _,
            prefix_delimiter,
            table_cores,
        } = config;
        Self {
            store,
            locks: Locks::new(fence_first, cas_stride),
            wins: Wins::default(),
            limits,
            table_cores: table_cores.max(1) as usize,
            tables_elsewhere: 0,
            clock: Clock {
                now: Instant::default(),
                unix_s_at_start,
            },
            next_cas: cas_first,
            cas_stride,
            flush_at: None,
            notices: Notices::default(),
            evicted: None,
            stats: Stats::default(),
            detail: Detail::new(prefix_delimiter),
            work: Meter::default(),
        }
    }

    /// Executes a command of `owner` at `now`. Every command has exactly one reply; a command that may wait can have it
    /// later ([`Reply::Waits`], [`crate::wait`]).
    ///
    /// A `now` before the last one counts as the last one: a clock that steps back must not revive
    /// an expired item.
    #[inline]
    pub fn execute<'a>(
        &'a mut self,
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

    fn execute_item<'a>(
        &'a mut self,
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
        if !self.wins.is_empty() {
            self.update_win(command.key());
        }
        reply
    }

    /// The work before every command, with or without an item.
    #[inline]
    fn take_in(&mut self, now: Instant, owner: Owner, command: Option<&ItemCommand<'_>>) {
        if self.advance(now) || self.locks.table.has_ended() {
            self.catch_up(command.map(ItemCommand::key));
        }
        if !self.wins.is_empty() {
            self.reopen_wins(self.limits.locks_settled_max);
            if let Some(command) = command {
                self.note_expired(command.key());
                if let ItemCommand::Get(get) = command {
                    self.free_win(owner, get);
                }
                self.update_win(command.key());
            }
        }
        if self.detail.is_on()
            && let Some(command) = command
        {
            self.detail.note(command);
        }
    }

    /// Handles an event at `now`; time as in [`execute`](Self::execute).
    pub fn handle(&mut self, now: Instant, event: Event) {
        match event {
            Event::Opened(owner) => {
                self.come_to(now);
                self.locks.table.open(owner);
            }
            Event::HoldsElsewhere(owner, held) => {
                self.come_to(now);
                self.locks.table.note_elsewhere(owner, held);
            }
            Event::Closed(owner) => {
                self.come_to(now);
                self.close(owner);
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
            Event::TablesElsewhere(bytes) => self.tables_elsewhere = bytes,
            Event::FlushedElsewhere => {
                self.advance(now);
                if self.flush_at.is_some() {
                    self.flush();
                }
            }
            Event::Limits(limits) => self.set_limits(now, &limits),
            Event::Unstored(why) => {
                self.come_to(now);
                self.note_unstored(why);
            }
            Event::ReadEvictions { is_watched } => {
                self.evicted = Some(self.store.take_evicted());
                self.store.watch_evictions(is_watched);
            }
            Event::ReportLockEnds(is_on) => self.locks.table.keep_ends(is_on),
            Event::WallClock { unix_s_at_start } => {
                self.come_to(now);
                self.clock.unix_s_at_start = unix_s_at_start;
            }
        }
    }

    /// The work before an event: some of the waits, leases and wins that are due end.
    fn come_to(&mut self, now: Instant) {
        if self.advance(now) {
            self.expire_waits(self.limits.locks_settled_max);
            self.expire_locks(self.limits.locks_settled_max);
            self.sweep_gets(self.limits.locks_settled_max);
        }
    }

    fn tick(&mut self) {
        self.update_some_wins();
        self.sweep(self.limits.crawl_items_max);
        // The tables may have become smaller: then this gives memory back, and needs none.
        let _ = self.set_tables_aside(0, None);
        let tick = self.clock.tick();
        let counters = &mut self.stats.counters;
        self.store
            .crawl(tick, self.limits.crawl_items_max, counters);
    }

    /// The next result besides replies. To be called after every call until there is none, unless
    /// [`has_news`](Self::has_news) is false.
    pub fn poll(&mut self) -> Option<Notification> {
        if let Some((items, missed)) = self.evicted.take() {
            return Some(Notification::Evicted { items, missed });
        }
        if self.locks.table.has_ends() {
            let (ends, missed) = self.locks.table.take_ends();
            return Some(Notification::LocksEnded { ends, missed });
        }
        self.next_notice().map(Notification::WaitOver)
    }

    /// Whether there may be a [notification](Self::poll) or a [deadline](Self::next_deadline).
    #[inline]
    #[must_use]
    pub fn has_news(&self) -> bool {
        self.has_waits() || self.locks.table.has_ends() || self.evicted.is_some()
    }

    /// Whether there is more to do than one [`Event::Tick`] does: then the next may come soon.
    #[must_use]
    pub fn wants_tick(&self) -> bool {
        self.locks.table.has_handovers()
            || self.wants_lock_memory()
            || self.wins.bound.has_line()
            || self.store.wants_crawl(self.clock.tick())
    }

    /// The bounds that it keeps to.
    #[must_use]
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The work that was done since the last call, besides one unit a command ([`crate::work`]): for a transport that
    /// shares its time among clients.
    #[inline]
    pub fn take_work(&mut self) -> u32 {
        self.work.take().saturating_add(self.store.take_work())
    }

    /// The table of locks.
    #[must_use]
    pub const fn locks(&self) -> &LockTable {
        &self.locks.table
    }

    /// Where the items are.
    #[must_use]
    pub const fn store(&self) -> &S {
        &self.store
    }

    /// The time as the last event left it.
    #[must_use]
    pub const fn clock(&self) -> &Clock {
        &self.clock
    }

    /// When a `flush_all` is still to take effect.
    #[must_use]
    pub const fn flush_at(&self) -> Option<Instant> {
        self.flush_at
    }

    /// It is `now`, and nothing else happens ([`Event::Due`]).
    fn pass(&mut self, now: Instant) {
        if self.advance(now) || self.locks.table.has_handovers() {
            self.sweep(self.limits.crawl_items_max);
        }
    }

    /// The item of a key as a client would find it now. Nothing is changed: for watchers, tests and models.
    pub fn peek(&self, key: Key<'_>) -> Option<(ItemHeader, &[u8])> {
        let slot = self.store.find(key).ok()?;
        let header = self.store.header(slot);
        let is_there = self.is_there(key, &header);
        let locked = self.locks.table.owner(key).is_some();
        let win = self.wins.mark(key, &header);
        let header = ItemHeader {
            win,
            locked,
            ..header
        };
        is_there.then(|| (header, self.store.value(slot)))
    }

    /// Asserts every invariant that can be seen in one state. Looks at every item: for tests, the
    /// model, and fuzzing.
    #[cfg(any(test, feature = "verify"))]
    pub fn check(&self) {
        self.store.check();
        self.locks.table.check(|key| {
            self.store
                .find(key)
                .map_or(0, |slot| self.store.item_bytes(slot))
        });
        let mut locked_bytes = 0;
        for (key, holding) in self.locks.table.iter() {
            let found = self.store.find(key).ok();
            assert_eq!(
                holding.has_item,
                found.is_some(),
                "L3: a lock that knows nothing of its item"
            );
            let Some(slot) = found else {
                continue;
            };
            assert!(
                self.store.header(slot).locked,
                "L3: a lock that its item does not know of"
            );
            locked_bytes += self.store.item_bytes(slot);
        }
        // With the loop above, equal sums mean that no item is marked locked without an owner.
        assert_eq!(
            self.store.usage().locked_bytes,
            locked_bytes,
            "L3: an item locked by nobody"
        );
        assert!(
            self.locks.pinned_bytes() <= self.limits.locked_bytes_max,
            "L11: locks pin too much"
        );
        assert!(
            self.lock_memory_bytes() + self.tables_elsewhere <= self.limits.lock_table_bytes_max,
            "L11: the table of locks is too large"
        );
        for owner in self.locks.table.open_connections() {
            assert!(
                self.locks.table.held_here(owner).bytes
                    <= self.limits.lock_bytes_per_connection_max,
                "L11: {owner} has more than its share"
            );
        }
        self.locks.check_waits(self.clock.now, &self.limits);
        assert!(
            self.locks.queue.places() + self.notices.singles() <= self.limits.waits_max,
            "Q10: too many notices"
        );
        self.check_wins();
        let shares = self.locks.table.shared().flat_map(|(_, shares)| shares);
        for holding in self
            .locks
            .table
            .iter()
            .map(|(_, holding)| holding)
            .chain(shares)
        {
            let has_passed = holding.lease_until.is_some_and(|at| at <= self.clock.now);
            assert!(
                holding.is_over || !has_passed,
                "L13: a lock whose lease has passed"
            );
            assert!(
                holding.fence < self.locks.next_fence,
                "L12: a fence that is still to be given"
            );
        }
    }

    /// The machine of locks, and the surroundings of a step of it.
    fn locks_in_context(&mut self) -> (&mut Locks, Context<'_>) {
        let context = Context {
            now: self.clock.now,
            limits: &self.limits,
            counters: &mut self.stats.counters,
            notices: &mut self.notices,
        };
        (&mut self.locks, context)
    }

    /// It is `now`. Says whether a lease, a wait or an item that is waited for is over, and still to be seen to.
    fn advance(&mut self, now: Instant) -> bool {
        self.clock.now = self.clock.now.max(now);
        if self.flush_at.is_some_and(|at| at <= self.clock.now) {
            self.flush();
        }
        let leases_passed = self.locks.table.pass_leases(self.clock.now);
        leases_passed
            || self
                .locks
                .queue
                .next()
                .is_some_and(|at| at <= self.clock.now)
            || self.wins.queue.is_due(self.clock.now)
    }

    fn execute_global<'a>(&'a mut self, owner: Owner, command: GlobalCommand<'a>) -> Reply<'a> {
        match command {
            GlobalCommand::UnlockAll => self.unlock_all(owner),
            GlobalCommand::FlushAll { at } => self.flush_all(at),
            GlobalCommand::Keys(keys) => self.keys(keys),
            GlobalCommand::Stats(topic) => self.stats(topic),
            GlobalCommand::StatsReset => {
                self.stats = Stats::default();
                self.locks.table.forget_times();
                self.detail.forget();
                Reply::Ok
            }
        }
    }

    /// Finds an item that a client can see: not one that has expired, unless it is held. The one
    /// look-up of a command.
    fn find_live(&mut self, key: Key<'_>) -> Found<S> {
        let (slot, header) = self.store.find_item(key)?;
        if header.locked {
            // If its lock has ended (L9), the delayed expiry or flush takes effect before the item is read.
            return match self.locks.table.owner(key) {
                Some(_) => Ok((slot, header)),
                None => self.unlock_item(key, slot).map(|header| (slot, header)),
            };
        }
        if self.is_past(&header) {
            self.stats.counters.get_expired += 1;
            return Err(self.reclaim(slot, &header));
        }
        Ok((slot, header))
    }

    /// Removes an item after its TTL.
    fn reclaim(&mut self, slot: S::Slot, header: &ItemHeader) -> S::Vacancy {
        let counters = &mut self.stats.counters;
        counters.reclaimed += 1;
        counters.expired_unfetched += u64::from(!header.fetched);
        self.store.remove(slot)
    }

    /// Whether an item with this header exists for clients: its lock is over and it stays, or it is locked, or it has not expired.
    fn is_there(&self, key: Key<'_>, header: &ItemHeader) -> bool {
        let is_past = self.is_past(header);
        if !header.locked {
            return !is_past;
        }
        // In this order: the holder of an ended lock is found by a search of all its shares.
        !self.locks.table.is_flush_pending(key) && !is_past || self.locks.table.owner(key).is_some()
    }

    /// Whether the TTL of an item has passed.
    fn is_past(&self, header: &ItemHeader) -> bool {
        header
            .deadline
            .is_some_and(|deadline| deadline.has_passed(self.clock.tick()))
    }

    /// The CAS of a change that is about to happen. It is used up by [`Self::commit_cas`] only, so
    /// a change that does not happen leaves no trace.
    const fn peek_cas(&self, new_cas: NewCas) -> Cas {
        match new_cas {
            NewCas::Next => self.next_cas,
            NewCas::Is(cas) => cas,
        }
    }

    /// E3: the CAS that [`Self::peek_cas`] showed is given.
    const fn commit_cas(&mut self, new_cas: NewCas) {
        if let NewCas::Next = new_cas {
            self.next_cas = self.next_cas.step(self.cas_stride);
        }
    }

    fn flush_all(&mut self, at: Exptime) -> Reply<'_> {
        self.stats.counters.cmd_flush += 1;
        match self.clock.delay_ms(at) {
            0 => {
                self.flush();
                self.sweep_gets(self.limits.locks_settled_max);
            }
            ms => {
                let now_ms = self.clock.now.as_millis();
                self.flush_at = Some(Instant::from_millis(now_ms.saturating_add(ms)));
            }
        }
        Reply::Ok
    }

    /// Takes out every item that is not held; those that are go when they are unlocked.
    fn flush(&mut self) {
        // Also if this one was asked for at once: the one that was still to come is overtaken.
        self.flush_at = None;
        self.store.clear();
        self.locks.table.postpone_flush();
        self.wins.queue.begin_round();
    }

    fn keys(&mut self, keys: Keys<'_>) -> Reply<'_> {
        let mut page = Vec::new();
        let next = self
            .store
            .scan(keys.cursor, self.limits.scan_items_max, &mut |item| {
                if self.is_there(item.key, &item.header)
                    && item.key.as_bytes().starts_with(keys.prefix)
                {
                    page.push(self.listed(&item));
                }
            });
        Reply::Keys(KeysPage { items: page, next })
    }

    fn listed<'a>(&self, item: &Visited<'a>) -> Listed<'a> {
        let header = &item.header;
        Listed {
            key: item.key.as_bytes(),
            key_form: header.key_form,
            cas: header.cas,
            client_flags: header.client_flags,
            expires_unix_s: header
                .deadline
                .map(|deadline| self.clock.unix_s(deadline.tick())),
            accessed_unix_s: self.clock.unix_s(header.last_access),
            fetched: header.fetched,
            value_bytes: item.value.len(),
            memory_bytes: item.item_bytes,
        }
    }

    fn stats(&mut self, topic: StatsTopic) -> Reply<'_> {
        match topic {
            StatsTopic::DetailOn => self.detail.turn(true),
            StatsTopic::DetailOff => self.detail.turn(false),
            StatsTopic::General
            | StatsTopic::Settings
            | StatsTopic::Items
            | StatsTopic::Slabs
            | StatsTopic::Sizes
            | StatsTopic::Extstore
            | StatsTopic::Conns(_)
            | StatsTopic::Locks(_)
            | StatsTopic::Detail(_) => {}
        }
        let now = self.clock.tick();
        let age_s = |at| u64::from(now.seconds_since(at));
        let usage = self.store.usage();
        let queue = self.store.queue();
        self.stats.gauges = Gauges {
            curr_items: usage.items as u64,
            bytes: usage.bytes as u64,
            limit_maxbytes: self.limits.memory_bytes_max as u64,
            locks_held: self.locks.table.len() as u64,
            lock_holders: self.locks.table.holders() as u64,
            lock_waiting: self.locks.queue.len() as u64,
            wins_bound: self.wins.bound.len() as u64,
            get_waiting: self.wins.queue.len() as u64,
            locked_bytes: usage.locked_bytes as u64,
            hash_bytes: queue.index_bytes as u64,
            oldest_s: queue.oldest.map_or(0, age_s),
            last_eviction: queue.last_eviction,
            counts_prefixes: self.detail.is_on(),
        };
        Reply::Stats(Report::new(&self.stats))
    }
}

/// The result of a lookup: the item, or the place for a new one.
type Found<S> = Result<(<S as Store>::Slot, ItemHeader), <S as Store>::Vacancy>;
