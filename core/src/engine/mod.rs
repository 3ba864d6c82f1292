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
mod manager;
mod notices;
mod owned_key;
mod queues;
mod rules;
pub mod shards;
mod stats;
#[cfg(feature = "verify")]
mod view;
mod wins;

#[cfg(test)]
mod tests;

#[cfg(any(test, feature = "verify"))]
pub use check::check;
pub use config::Config;
pub use event::{Event, Notification};
pub use items::Items;
pub use items::dump_format::{Numbers, Restored, SavedItem};
pub use locks::queue::{WaitTable, Waiter};
pub use locks::table::{
    EndCause, Holding, LOCK_ENDS_MAX, LockEnd, LockScope, LockTable, OwnerUsage,
};
#[cfg(feature = "verify")]
pub use locks::withheld::Withheld;
pub use manager::{DueKey, LockManager};
pub use queues::{Queues, Waits};
pub use rules::{Access, Rules};
pub use stats::detail::{PREFIXES_MAX, Prefixes};
#[cfg(feature = "verify")]
pub use view::View;
pub use wins::bound::{BoundWin, BoundWins};
pub use wins::queue::{WinWaiter, WinWaits};

use alloc::vec::Vec;

use self::rules::Direct;
use self::shards::Shards;
use crate::limits::Limits;
use crate::sessions::{Asker, Session, SessionDone};
use crate::store::{LogStore, MapStore, Store};
use latchd_protocol::command::{Command, GlobalCommand, ItemCommand, Keys, ScanCursor};
use latchd_protocol::item::{Cas, ItemHeader};
use latchd_protocol::key::Key;
use latchd_protocol::reply::{KeysPage, MemoryRefused, Reply};
use latchd_protocol::session::{SessionRefusal, SessionRequest, Token};
use latchd_protocol::stats::{Counters, Report, Stats, StatsLine, StatsTopic};
use latchd_protocol::time::{Clock, Instant};
use latchd_protocol::{ConnId, Owner};

/// Items, locks and wins: the state machine that latchd is.
///
/// Its items are in one shard, or in several for models and tests of a server with several threads.
#[derive(Clone, Debug)]
pub struct Core<S = LogStore> {
    shards: Vec<Items<S>>,
    manager: LockManager,
    /// The bounds of all shards together.
    limits: Limits,
    /// The statistics of the last report, which a reply borrows.
    reported: Stats,
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
        Self::with_stores(config, alloc::vec![store])
    }

    /// A core with a shard of items for each of `stores`. Each keeps within its [share](Limits::share) of the limits.
    ///
    /// # Panics
    /// There are no stores, or more than 256.
    #[must_use]
    pub fn with_stores(config: Config, stores: Vec<S>) -> Self {
        let count = stores.len();
        assert!(count > 0, "a core has items");
        let stores = stores.into_iter().enumerate();
        Self {
            shards: stores
                .map(|(shard, store)| Items::new(&config, store, shard, count))
                .collect(),
            manager: LockManager::new(&config, count),
            limits: config.limits,
            reported: Stats::default(),
        }
    }

    /// The shard of a key.
    #[inline]
    #[must_use]
    pub fn shard_of(&self, key: Key<'_>) -> usize {
        if self.shards.len() == 1 {
            return 0;
        }
        let bytes = key.as_bytes().iter();
        bytes.fold(0, |sum, byte| sum + usize::from(*byte)) % self.shards.len()
    }

    /// A step about a key.
    #[inline]
    fn step(&mut self, key: Key<'_>) -> Rules<'_, S, Direct<'_>> {
        let shard = self.shard_of(key);
        Rules::new(&mut self.shards[shard], Direct::new(&mut self.manager))
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
        self.advance(now);
        match command {
            Command::Item(command) => {
                if let ItemCommand::Get(get) = command
                    && (get.bound_to_owner || get.wait_ms > 0)
                {
                    for due in self.manager.wins_to_check(owner, get) {
                        Shards::update(self, &due);
                    }
                }
                if self.manager.may_leave_place(owner)
                    && self.step(command.key()).leave_place(owner, command)
                {
                    shards::run_due(self, self.limits.locks_settled_max);
                }
                self.step(command.key()).execute(owner, command)
            }
            Command::Global(command) => self.execute_global(owner, *command),
        }
    }

    fn execute_global<'a>(&'a mut self, owner: Owner, command: GlobalCommand<'a>) -> Reply<'a> {
        match command {
            GlobalCommand::UnlockAll => {
                shards::unlock_all(self, || Some(owner));
                Reply::Unlocked
            }
            GlobalCommand::FlushAll { at } => {
                shards::flush_all(self, at);
                Reply::Ok
            }
            GlobalCommand::Keys(keys) => Reply::Keys(self.keys(keys)),
            GlobalCommand::Stats(topic) => {
                if let StatsTopic::DetailOn | StatsTopic::DetailOff = topic {
                    shards::turn_detail(self, topic == StatsTopic::DetailOn);
                }
                self.reported = shards::stats(self);
                Reply::Stats(Report::new(&self.reported))
            }
            GlobalCommand::StatsReset => {
                shards::reset_stats(self);
                Reply::Ok
            }
        }
    }

    fn keys(&self, keys: Keys<'_>) -> KeysPage<'_> {
        let (shard, cursor) = shards::shard_at(keys.cursor);
        let Some(items) = self.shards.get(shard) else {
            return KeysPage {
                items: Vec::new(),
                next: None,
            };
        };
        let page = items.keys(&&self.manager, Keys { cursor, ..keys });
        let next = shards::after_page(shard, page.next, self.shards.len());
        KeysPage { next, ..page }
    }

    /// Executes a command and hands its reply to `answer`; a report with the lines that it has, which a
    /// reply can only borrow.
    pub(crate) fn answer(
        &mut self,
        now: Instant,
        owner: Owner,
        command: &Command<'_>,
        answer: &mut dyn FnMut(&Reply<'_>),
    ) {
        let reply = self.execute(now, owner, command);
        let Command::Global(GlobalCommand::Stats(topic)) = command else {
            return answer(&reply);
        };
        drop(reply);
        let lines = match topic {
            StatsTopic::Locks(_) => self.manager.lock_lines(),
            StatsTopic::Detail(_) => self.prefixes().lines(),
            StatsTopic::General
            | StatsTopic::Settings
            | StatsTopic::Items
            | StatsTopic::Slabs
            | StatsTopic::Sizes
            | StatsTopic::Extstore
            | StatsTopic::Cluster
            | StatsTopic::Conns(_)
            | StatsTopic::Sessions(_)
            | StatsTopic::DetailOn
            | StatsTopic::DetailOff => Vec::new(),
        };
        answer(&Reply::Stats(Report {
            stats: &self.reported,
            lines: &lines,
            // A core has few enough of either for one page.
            next: None,
        }));
    }

    /// The work before a command or an event at `now`: a `flush_all` that is due takes effect, and some of the keys that are
    /// due are updated.
    #[inline]
    fn advance(&mut self, now: Instant) {
        self.advance_by(now, self.limits.locks_settled_max);
    }

    /// The same if nothing else happens ([`Event::Due`]).
    fn pass(&mut self, now: Instant) {
        self.advance_by(now, self.limits.crawl_items_max);
    }

    #[inline]
    fn advance_by(&mut self, now: Instant, each_max: usize) {
        self.advance_to(now);
        if self.manager.has_due() {
            shards::run_due(self, each_max);
        }
    }

    /// It is `now`. A `flush_all` that is due takes effect.
    #[inline]
    fn advance_to(&mut self, now: Instant) {
        let mut is_flush_due = false;
        for items in &mut self.shards {
            items.advance(now);
            is_flush_due |= items.is_flush_due(now);
        }
        self.manager.advance(now);
        if is_flush_due {
            shards::flush_due(self);
        }
    }

    /// Handles an event at `now`; time as in [`execute`](Self::execute).
    pub fn handle(&mut self, now: Instant, event: Event) {
        match event {
            Event::Due | Event::Limits(_) => self.pass(now),
            // These update some of the keys that are due.
            Event::Closed(_) | Event::Tick => self.advance_to(now),
            Event::Opened(_)
            | Event::Detached(..)
            | Event::Unstored(_)
            | Event::ReadEvictions { .. }
            | Event::Resumed(_)
            | Event::WithholdGrants(_)
            | Event::ReportLockEnds(_)
            | Event::WallClock { .. } => self.advance(now),
        }
        match event {
            Event::Opened(owner) => self.manager.open(owner),
            Event::Closed(owner) => shards::close(self, owner),
            Event::Detached(owner, conn) => self.manager.leave_session(owner, conn),
            Event::Tick => shards::tick(self),
            Event::Due => {}
            Event::Limits(limits) => {
                // Refused bounds change nothing.
                let _ = self.set_limits(&limits);
            }
            Event::Unstored(why) => self.shards[0].note_unstored(why),
            Event::ReadEvictions { is_watched } => {
                self.each(|items| items.read_evictions(is_watched));
            }
            Event::Resumed(numbers) => shards::resume(self, numbers),
            Event::WithholdGrants(until) => self.manager.withhold_grants(until),
            Event::ReportLockEnds(is_on) => self.manager.report_ends(is_on),
            Event::WallClock { unix_s_at_start } => {
                for items in &mut self.shards {
                    items.set_wall_clock(unix_s_at_start);
                }
            }
        }
    }

    fn set_limits(&mut self, limits: &Limits) -> Result<(), MemoryRefused> {
        shards::set_limits(self, limits)?;
        self.limits = *limits;
        Ok(())
    }

    /// The memory of all items is `bytes` from `now` on, and the shares that locks may have of it follow.
    ///
    /// # Errors
    /// As [`Self::judge_limits`] at `now`; the bounds are the old ones then.
    pub(crate) fn limit_memory(&mut self, now: Instant, bytes: usize) -> Result<(), MemoryRefused> {
        self.pass(now);
        self.set_limits(&self.limits.with_memory(bytes))
    }

    /// Opens, resumes or ends a session for a connection, or takes it over ([`shards::session`]).
    pub fn session(
        &mut self,
        now: Instant,
        asker: Asker,
        request: SessionRequest<'_>,
        number: impl FnOnce() -> u64,
    ) -> SessionDone {
        self.advance_to(now);
        shards::session(self, asker, request, number)
    }

    /// The session with this token, for a request in it, which is heard.
    ///
    /// # Errors
    /// As [`Sessions::find`](crate::sessions::Sessions::find).
    pub fn find_session(
        &mut self,
        now: Instant,
        token: Token<'_>,
        asker: Asker,
    ) -> Result<Owner, SessionRefusal> {
        self.advance(now);
        self.manager.find_session(token, asker).map(Session::owner)
    }

    /// Whether this connection is attached to this session. Then its client is heard.
    pub fn hear(&mut self, now: Instant, owner: Owner, conn: ConnId) -> bool {
        self.advance(now);
        self.manager.hear(owner, conn)
    }

    /// The next result besides replies. To be called after every call until there is none, unless
    /// [`has_news`](Self::has_news) is false.
    pub fn poll(&mut self) -> Option<Notification> {
        let mut all = self.shards.iter_mut();
        if let Some((items, missed)) = all.find_map(|items| items.evicted.take()) {
            return Some(Notification::Evicted { items, missed });
        }
        self.manager.poll()
    }

    /// Whether there may be a [notification](Self::poll) or a [deadline](Self::next_deadline).
    #[inline]
    #[must_use]
    pub fn has_news(&self) -> bool {
        self.manager.has_news() || self.shards.iter().any(|items| items.evicted.is_some())
    }

    /// Whether there is more to do than one [`Event::Tick`] does: then the next may come soon.
    #[must_use]
    pub fn wants_tick(&self) -> bool {
        self.manager.wants_tick() || self.shards.iter().any(Items::wants_tick)
    }

    /// The bounds that it keeps to.
    #[must_use]
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Whether its bounds may be these.
    ///
    /// # Errors
    /// Why not.
    pub fn judge_limits(&self, limits: &Limits) -> Result<(), MemoryRefused> {
        let all: Vec<_> = self.shards.iter().collect();
        limit::judge(&all, &self.manager, limits)
    }

    /// The work that was done so far, besides one unit a command ([`crate::work`]): for a transport that shares its time
    /// among clients. The difference of two readings is the work between them.
    #[inline]
    #[must_use]
    pub fn work(&self) -> u64 {
        let all = self.shards.iter().map(Items::work);
        all.fold(self.manager.work(), u64::saturating_add)
    }

    /// The lock manager.
    #[must_use]
    pub const fn manager(&self) -> &LockManager {
        &self.manager
    }

    /// The table of locks.
    #[must_use]
    pub const fn locks(&self) -> &LockTable {
        &self.manager.locks.table
    }

    /// Where the items of the first shard are.
    #[must_use]
    pub fn store(&self) -> &S {
        &self.shards[0].store
    }

    /// The time as the last event left it.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.shards[0].clock
    }

    /// When a `flush_all` is still to take effect.
    #[must_use]
    pub fn flush_at(&self) -> Option<Instant> {
        self.shards[0].flush_at
    }

    /// The item of a key as a client would find it now. Nothing is changed: for watchers, tests and models.
    #[must_use]
    pub fn peek(&self, key: Key<'_>) -> Option<(ItemHeader, &[u8])> {
        self.shards[self.shard_of(key)].peek(&&self.manager, key)
    }

    /// The queues of the waiters for locks.
    #[must_use]
    pub const fn waits(&self) -> &WaitTable {
        &self.manager.locks.queue
    }

    /// The wins that end with their winners.
    #[must_use]
    pub const fn bound_wins(&self) -> &BoundWins {
        &self.manager.wins.bound
    }

    /// The queues of the gets that wait.
    #[must_use]
    pub const fn win_waits(&self) -> &WinWaits {
        &self.manager.wins.queue
    }

    /// Whether `owner` waits for a lock or a value.
    #[must_use]
    pub fn is_waiting(&self, owner: Owner) -> bool {
        self.manager.is_waiting(owner)
    }

    /// The locks and the bound wins of `owner`.
    #[must_use]
    pub fn held(&self, owner: Owner) -> OwnerUsage {
        self.manager.held(owner)
    }

    /// Whether there may be a notice that no transport has taken.
    #[inline]
    #[must_use]
    pub fn has_notices(&self) -> bool {
        self.manager.has_notices()
    }

    /// Whether any client waits, or has a notice that no transport has taken. If not, there is no deadline either.
    #[inline]
    #[must_use]
    pub fn has_waits(&self) -> bool {
        self.manager.has_waits()
    }

    /// The next moment at which a wait ends by itself, or the lease of a lock with waiters expires. It is in the past if there
    /// is more to do than one call does. To be on time, a transport passes [`Event::Due`] then.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.manager.next_deadline()
    }

    /// The bytes that the tables of locks, waits and wins take of the memory limit.
    #[must_use]
    pub const fn lock_memory_bytes(&self) -> usize {
        self.manager.table_bytes()
    }

    /// The locks in force ([`LockManager::locks_in_force`]).
    pub fn locks_in_force(&self) -> impl Iterator<Item = (Key<'_>, Holding)> {
        self.manager.locks_in_force()
    }

    /// The lines of `stats locks` ([`LockManager::lock_lines`]).
    #[must_use]
    pub fn lock_lines(&self) -> Vec<StatsLine> {
        self.manager.lock_lines()
    }

    /// The counts by prefix since that was turned on, or since the last `stats reset`.
    #[must_use]
    pub fn prefixes(&self) -> Prefixes {
        let mut sum = Prefixes::default();
        for items in &self.shards {
            sum.add_all(items.prefixes());
        }
        sum
    }

    /// The numbers above which the next run must begin.
    #[must_use]
    pub fn numbers(&self) -> Numbers {
        let cas = self.shards.iter().map(|items| items.next_cas).max();
        Numbers {
            cas: cas.unwrap_or(Cas::FIRST),
            fence: self.manager.locks.next_fence,
        }
    }

    /// Shows the items that a client would find among up to `items_max` from `cursor` on. Returns where to go on;
    /// `None` at the end.
    pub fn save(
        &self,
        cursor: ScanCursor,
        items_max: usize,
        visit: &mut dyn FnMut(&SavedItem<'_>),
    ) -> Option<ScanCursor> {
        let (shard, cursor) = shards::shard_at(cursor);
        let next = self.shards.get(shard)?;
        let next = next.save(&&self.manager, cursor, items_max, visit);
        shards::after_page(shard, next, self.shards.len())
    }

    /// Takes an item of an earlier run in at `now`. Others are evicted for it, if they may be.
    pub fn restore(&mut self, now: Instant, item: &SavedItem<'_>) -> Restored {
        self.advance(now);
        let mut rules = self.step(item.key);
        rules.update(item.key);
        rules.items().restore(item)
    }

    /// Its counters since it began, or since they were reset.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let mut sum = self.manager.counters;
        for items in &self.shards {
            sum.add(&items.counters);
        }
        sum
    }
}

impl<S: Store> Shards for Core<S> {
    type Store = S;

    fn manage<R>(&mut self, act: impl FnOnce(&mut LockManager) -> R) -> R {
        act(&mut self.manager)
    }

    fn each(&mut self, act: impl FnMut(&mut Items<S>)) {
        self.shards.iter_mut().for_each(act);
    }

    fn together<R>(&mut self, act: impl FnOnce(&mut [&mut Items<S>], &mut LockManager) -> R) -> R {
        let mut all: Vec<_> = self.shards.iter_mut().collect();
        act(&mut all, &mut self.manager)
    }

    fn update(&mut self, due: &DueKey) {
        self.step(due.key()).update_due(due);
    }

    fn end(&mut self, due: &DueKey) {
        self.step(due.key()).end_due(due);
    }
}
