//! The rules of items, locks and wins: each command with its effects and its reply.
//!
//! A core has two entry points once it is made and filled ([`Core::restore`]). [`Core::execute`] takes a command of an
//! owner and returns the reply; [`Core::handle`] takes any other event. Both take the time. [`Core::poll`] returns
//! later results: notices of waits that are over, and reports. Nothing else changes a core; all other functions are questions.
//! No clock, socket, thread, randomness or log reaches a reply, so the same calls always give the same
//! replies.
//!
//! - E1: a refused command has changed nothing, but for
//!   [`SetTooLarge`](latchd_protocol::command::ItemCommand::SetTooLarge).
//! - E2: An item that another owner has locked is not changed, evicted or expired. Its TTL and its win are not
//!   protected.
//! - E3: a CAS is given to one change only, and each is larger than those given before.
//!
//! Source: memcached 1.6.45 (`memcached.c:do_store_item`, `proto_parser.c`), and yrmcds
//! `docs/locking.md`. Where we differ from them: docs/PROTOCOL.md.

#[cfg(any(test, feature = "verify"))]
mod check;
mod config;
mod context;
mod event;
mod global;
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
pub use event::{Event, Notification};
pub use items::saved::{Numbers, Restored, SavedItem};
pub(crate) use limit::limit_memory;
pub use lock_memory::TABLES_GROWTH_MAX;
pub use locks::queue::{WaitTable, Waiter};
pub use locks::table::{EndCause, Held, Holding, LOCK_ENDS_MAX, LockEnd, LockScope, LockTable};
#[cfg(feature = "verify")]
pub use locks::withheld::Withheld;
pub use queues::{Queues, Waits};
pub use stats::detail::{PREFIXES_MAX, Prefixes};
#[cfg(feature = "verify")]
pub use view::View;
pub use wins::bound::{BoundWin, BoundWins};
pub use wins::queue::{WinWaiter, WinWaits};

use alloc::vec::Vec;

use self::context::Context;
use self::locks::Locks;
use self::notices::Notices;
use self::stats::detail::Detail;
use self::wins::Wins;
use crate::limits::Limits;
use crate::store::{LogStore, MapStore, Store};
use crate::work::Meter;
use latchd_protocol::Owner;
use latchd_protocol::command::{Command, ItemCommand, NewCas};
use latchd_protocol::item::{Cas, ItemHeader};
use latchd_protocol::key::Key;
use latchd_protocol::reply::Reply;
use latchd_protocol::stats::Stats;
use latchd_protocol::time::{Clock, Instant};
use latchd_protocol::watch::Evicted;

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
    /// It could not free its part of the memory of all tables when it was last asked to.
    lacks_room_for_tables: bool,
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
            lacks_room_for_tables: false,
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
    /// later ([`Reply::Waits`], [`latchd_protocol::wait`]).
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
    pub fn handle(&mut self, now: Instant, event: Event<'_>) {
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
            Event::TablesElsewhere(bytes) => self.tables_elsewhere = bytes,
            Event::TablesSpread(bytes) => {
                self.tables_elsewhere = bytes;
                self.lacks_room_for_tables = self.set_tables_aside(0, None).is_err();
            }
            Event::Resumed(numbers) => self.resume(numbers),
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
            Event::WithholdGrants(until) => {
                self.come_to(now);
                self.locks.queue.withhold(until);
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
            self.serve_withheld(self.limits.locks_settled_max);
            self.sweep_gets(self.limits.locks_settled_max);
        }
    }

    /// The work before a question about the lock of a key.
    fn come_to_key(&mut self, now: Instant, key: Key<'_>) {
        if self.advance(now) || self.locks.table.has_ended() {
            self.catch_up(Some(key));
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

    /// The work that was done so far, besides one unit a command ([`crate::work`]): for a transport that shares its time
    /// among clients. The difference of two readings is the work between them.
    #[inline]
    #[must_use]
    pub fn work(&self) -> u64 {
        self.work.units().saturating_add(self.store.work())
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
        let next = self.locks.queue.next();
        let is_due = next.is_some_and(|at| at <= self.clock.now);
        if is_due {
            self.locks.queue.pass_withheld(self.clock.now);
        }
        leases_passed || is_due || self.wins.queue.is_due(self.clock.now)
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
}

/// The result of a lookup: the item, or the place for a new one.
type Found<S> = Result<(<S as Store>::Slot, ItemHeader), <S as Store>::Vacancy>;
