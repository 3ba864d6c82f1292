//! The items, divided over several shards, so that several threads can work on them, and one lock manager.
//!
//! The folder holds the steps in one shard or several. It uses `clients`, `os`, `stats` and `sync`. The rules are the core's
//! ([`latchd_core::engine::shards`]).
//!
//! A key belongs to one shard, by a keyed hash. A command about one key locks that shard, and the lock manager only if the
//! item is marked or the key is noted, or if the command asks for a lock. A `flush_all` locks every shard. So no command sees
//! half of another. The order of the locks is in `lazy.rs` (D4).
//!
//! - D1: A connection is open in the manager from its first request for a lock until it attaches to a session or closes:
//!   [`Shards::close`] consumes its [`ShardSession`]. A session is open until it ends.
//! - D2: CAS numbers are unique over all shards: each shard counts in strides of its own.
//! - D3: The first thread that finds a delayed `flush_all` due in a shard, by whichever clock, flushes all shards before
//!   anything else.
//!
//! With one thread there is one shard and nothing is hashed.

#[cfg(feature = "verify")]
mod check;
mod guard;
mod lazy;
mod look;
mod saved;
mod session;
mod sessions;

use std::cell::Cell;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Arc, PoisonError};

use bytes::Bytes;
use foldhash::quality;
use latchd_core::engine::shards::{self, Shards as _};
use latchd_core::engine::{Config, DueKey, Items, LockManager, OwnerUsage, Rules};
use latchd_core::store::{Block, HashSeed, LogStore, SipHash, Store};
use latchd_core::{Instant, Limits};
use latchd_protocol::command::ScanCursor;
use latchd_protocol::command::{Command, GlobalCommand, ItemCommand, Set};
use latchd_protocol::key::Key;
use latchd_protocol::reply::{MemoryRefused, Refusal, Reply};
use latchd_protocol::stats::{Report, Stats, StatsLine, StatsTopic, Unstored};
use latchd_protocol::value::Value;

use self::guard::ShardGuard;
use self::lazy::{Lazy, News, Reach};
use crate::clients::waiters::Waiters;
use crate::os::pages::{Pages, part_of};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::clock;

pub(crate) use self::session::ShardSession;

/// The most shards: a thread keeps a bit for each that it has locked.
const SHARDS_MAX: usize = 64;

/// The shards per thread: so many that two threads seldom want the same one.
const SHARDS_PER_THREAD: usize = 4;

/// The values of the largest size that must fit into a shard. With fewer, large values would evict each other.
const LARGEST_VALUES_PER_SHARD: usize = 8;

/// The keys updated for each cause with one command, at most.
const DUE_PER_COMMAND: usize = 16;

/// The same for each turn of the clock.
const DUE_PER_TURN: usize = 1_000;

/// Lines of `stats`, and the start of the next page.
pub(crate) type StatsPage = (Vec<StatsLine>, Option<ScanCursor>);

/// Items in pages of the system.
type PageStore = LogStore<SipHash, Pages>;

/// The items of a shard.
type ShardItems = Items<PageStore>;

/// A step about one key.
type Step<'a, 'b, 'm> = Rules<'a, PageStore, Reach<'b, 'm>>;

/// Every item of the server, and every lock.
#[derive(Debug)]
pub(crate) struct Shards {
    items: Box<[Mutex<ShardItems>]>,
    manager: Mutex<LockManager>,
    /// Fast rather than cryptographic: keys that a client has chosen to be in one shard have its time and its memory, and no
    /// more. In a shard, the store's own hash spreads them.
    hasher: quality::RandomState,
    /// Dead values are zeroed.
    erases: bool,
    /// A longer value has memory of its own, in bytes.
    value_bytes_in_log_max: usize,
    /// The moment at which a key is due, in milliseconds, as the thread knew that has unlocked the manager last.
    due_ms: AtomicU64,
    /// The bounds of all shards together.
    limits: Mutex<Limits>,
    waiters: Arc<Waiters>,
    /// The shards remember their evictions.
    watches_evictions: AtomicBool,
    /// How often the manager was locked.
    #[cfg(test)]
    manager_locks: AtomicU64,
}

/// The number of shards for `threads` threads within these limits: a power of two.
pub(crate) fn shard_count(threads: usize, limits: &Limits) -> usize {
    if threads <= 1 {
        return 1;
    }
    let wanted = (threads * SHARDS_PER_THREAD)
        .next_power_of_two()
        .min(SHARDS_MAX);
    let fit = limits.memory_bytes_max / (LARGEST_VALUES_PER_SHARD * limits.value_bytes_max.max(1));
    if fit == 0 {
        1
    } else {
        wanted.min(1 << fit.ilog2())
    }
}

/// Two random numbers of the system, which no client can guess.
fn random_seed() -> HashSeed {
    let random = RandomState::new();
    [random.hash_one(0), random.hash_one(1)]
}

impl Shards {
    /// Divides the limits over `count` shards, a power of two up to 64. Notices to waiting clients go through `waiters`.
    pub(crate) fn new(count: usize, config: Config, waiters: Arc<Waiters>) -> Self {
        assert!(
            count.is_power_of_two() && count <= SHARDS_MAX,
            "a mask chooses the shard"
        );
        let config = config.started_at(clock::unix_ms()).seeded(random_seed());
        let limits = config.limits;
        let share = limits.share(count);
        // It is the same in all shards.
        let mut value_bytes_in_log_max = 0;
        let items = (0..count).map(|shard| {
            let store = LogStore::in_blocks(&share, SipHash::new(random_seed()));
            value_bytes_in_log_max = store.value_bytes_in_log_max();
            Mutex::new(Items::new(&config, store, shard, count))
        });
        let items = items.collect();
        let mut manager = LockManager::new(&config, count);
        manager.report_ends(waiters.logs_locks());
        Self {
            items,
            manager: Mutex::new(manager),
            hasher: quality::RandomState::default(),
            erases: limits.erase,
            value_bytes_in_log_max,
            due_ms: AtomicU64::new(u64::MAX),
            limits: Mutex::new(limits),
            waiters,
            watches_evictions: AtomicBool::new(false),
            #[cfg(test)]
            manager_locks: AtomicU64::new(0),
        }
    }

    /// Executes a command of a connection and hands the reply to `answer`. `lines` returns the transport's own lines of a topic
    /// of `stats`.
    #[inline]
    pub(crate) fn execute(
        &self,
        now: Instant,
        session: &mut ShardSession,
        command: &Command<'_>,
        lines: &dyn Fn(StatsTopic) -> StatsPage,
        answer: &mut impl FnMut(&Reply<'_>),
    ) {
        match command {
            Command::Item(item) => self.execute_item(now, session, item, |_| (), answer),
            Command::Global(command) => self.execute_global(now, session, *command, lines, answer),
        }
    }

    /// Counts a set that no shard stores. The first shard counts it; only the sum is shown.
    pub(crate) fn note_unstored(&self, now: Instant, why: Unstored) {
        self.shard_at(now, 0).note_unstored(why);
    }

    /// Executes a command that concerns more than one shard.
    fn execute_global(
        &self,
        now: Instant,
        session: &mut ShardSession,
        command: GlobalCommand<'_>,
        lines: &dyn Fn(StatsTopic) -> StatsPage,
        answer: &mut dyn FnMut(&Reply<'_>),
    ) {
        let mut all = self.at(now);
        match command {
            GlobalCommand::UnlockAll => {
                if session.is_open {
                    let owner = || Some(session.owner).filter(|_| !session.has_lost());
                    shards::unlock_all(&mut all, owner);
                    session.charge(0, all.work);
                }
                answer(&Reply::Unlocked);
            }
            GlobalCommand::FlushAll { at } => {
                shards::flush_all(&mut all, at);
                session.charge(0, all.work);
                answer(&Reply::Ok);
            }
            GlobalCommand::StatsReset => {
                shards::reset_stats(&mut all);
                answer(&Reply::Ok);
            }
            GlobalCommand::Keys(keys) => self.keys(now, keys, answer),
            GlobalCommand::Stats(topic) => {
                if let StatsTopic::DetailOn | StatsTopic::DetailOff = topic {
                    shards::turn_detail(&mut all, topic == StatsTopic::DetailOn);
                }
                let (lines, next) = match topic {
                    StatsTopic::Locks(at) => self.lock_lines(now, at),
                    StatsTopic::Detail(at) => self.prefix_lines(at),
                    StatsTopic::DetailOn | StatsTopic::DetailOff => (Vec::new(), None),
                    StatsTopic::General
                    | StatsTopic::Settings
                    | StatsTopic::Items
                    | StatsTopic::Slabs
                    | StatsTopic::Sizes
                    | StatsTopic::Extstore
                    | StatsTopic::Cluster
                    | StatsTopic::Conns(_)
                    | StatsTopic::Sessions(_) => lines(topic),
                };
                // A page of a list shows no counters.
                let is_page = topic.on_page(ScanCursor::default()).is_some();
                let stats = if is_page {
                    Stats::default()
                } else {
                    shards::stats(&mut all)
                };
                answer(&Reply::Stats(Report {
                    stats: &stats,
                    lines: &lines,
                    next,
                }));
            }
        }
    }

    /// As [`execute`](Self::execute), for a command that is watched. Before the reply, `looked` gets the length of the key's
    /// value, if there is one.
    pub(crate) fn execute_watched(
        &self,
        now: Instant,
        session: &mut ShardSession,
        item: &ItemCommand<'_>,
        looked: &Cell<Option<usize>>,
        answer: &mut impl FnMut(&Reply<'_>),
    ) {
        let key = item.key();
        let look = |step: &mut Step<'_, '_, '_>| {
            looked.set(step.peek(key).map(|(_, value)| value.len()));
        };
        self.execute_item(now, session, item, look, answer);
    }

    /// A large value that stays in its input buffer, or a copy of it in memory of its own. Without memory for a copy it is
    /// returned as it is, and the store refuses it.
    fn shared<'a>(
        &self,
        session: &mut ShardSession,
        value: Value<'a>,
        storage: &'a mut Option<Bytes>,
    ) -> Value<'a> {
        let request = session.request.as_ref();
        if let Some(kept) = request.and_then(|request| part_of(request, &value)) {
            return Value::Shared(storage.insert(kept));
        }
        session.work.charge_bytes(value.len());
        match Pages::share(&[value.as_bytes()], self.erases) {
            Some(shared) => Value::Shared(storage.insert(shared)),
            None => value,
        }
    }

    /// Executes a command in the shard of its key, after calling `look`. The manager learns of an owner before its first
    /// request for a lock. If the store can keep a copy of a large value, the value is copied before the shard is locked.
    #[inline]
    fn execute_item(
        &self,
        now: Instant,
        session: &mut ShardSession,
        item: &ItemCommand<'_>,
        look: impl FnOnce(&mut Step<'_, '_, '_>),
        answer: &mut impl FnMut(&Reply<'_>),
    ) {
        let takes_lock = takes_lock(item);
        let mut storage = None;
        let changed;
        let item = if let ItemCommand::Set(set) = item
            && PageStore::SHARES_VALUES
            && !set.mode.extends()
            && set.value.len() > self.value_bytes_in_log_max
        {
            let value = self.shared(session, set.value, &mut storage);
            changed = ItemCommand::Set(Set { value, ..*set });
            &changed
        } else {
            if takes_lock {
                self.prepare(now, session, item);
            }
            item
        };
        let shard = self.shard_of(item.key());
        let mut items = self.shard_at(now, shard);
        let work_before = items.work();
        let mut lazy = self.lazy(now);
        let mut step = Rules::new(&mut *items, lazy.reach());
        let reply = if session.attachment.is_some() && is_too_late(&mut step, session, item) {
            Reply::Refused(Refusal::ConnectionClosed)
        } else {
            look(&mut step);
            if takes_lock && !session.is_open {
                step.manager().open(session.owner);
                session.is_open = true;
            }
            step.execute(session.owner, item)
        };
        if let Reply::Waits = reply {
            let is_lock = matches!(item, ItemCommand::Acquire(_));
            let key = is_lock.then(|| item.key());
            self.waiters
                .register(session.owner, session.address, now, key);
        }
        let news = lazy.unlock();
        answer(&reply);
        session.charge(work_before, items.work());
        drop(items);
        if let Some(news) = news {
            self.finish(now, session, news);
        }
    }

    /// The work before a command that may take a lock or a win, or wait for one, and concerns other keys.
    #[cold]
    fn prepare(&self, now: Instant, session: &mut ShardSession, item: &ItemCommand<'_>) {
        let owner = session.owner;
        let mut all = self.at(now);
        // The bounds of an owner do not count its expired locks.
        if self.due_ms.load(Ordering::Relaxed) <= now.as_millis() {
            shards::run_due(&mut all, DUE_PER_COMMAND);
        }
        if let ItemCommand::Get(get) = item
            && (get.bound_to_owner || get.wait_ms > 0)
        {
            for due in all.manage(|manager| manager.wins_to_check(owner, get)) {
                all.update(&due);
            }
        }
        if owner.is_session() && all.manage(|manager| manager.may_leave_place(owner)) {
            let leaves = all.step(item.key(), |step| {
                !is_too_late(step, session, item) && step.leave_place(owner, item)
            });
            if leaves {
                self.waiters.leave(owner);
                shards::run_due(&mut all, DUE_PER_COMMAND);
            }
        }
        session.charge(0, all.work);
    }

    /// The end of a step, after the shard and the manager are unlocked: notifies clients, and updates some keys that are due.
    #[cold]
    fn finish(&self, now: Instant, session: &mut ShardSession, mut news: News) {
        session.charge(0, news.work);
        let wants_spread = news.wants_spread;
        let mut all = self.at(now);
        news.deliver(&self.waiters);
        if news.is_due {
            shards::run_due(&mut all, DUE_PER_COMMAND);
        }
        if wants_spread {
            shards::spread_tables(&mut all);
        }
        session.charge(0, all.work);
    }

    /// Whether an owner holds a lock or a bound win.
    pub(crate) fn has_anything(&self, now: Instant, session: &ShardSession) -> bool {
        self.held(now, session) != OwnerUsage::default()
    }

    /// Whether a connection holds a lock that ends with it.
    pub(crate) fn holds(&self, now: Instant, session: &ShardSession) -> bool {
        session.attachment.is_none() && self.held(now, session).locks > 0
    }

    /// The locks and wins of an owner.
    fn held(&self, now: Instant, session: &ShardSession) -> OwnerUsage {
        if !session.is_open {
            return OwnerUsage::default();
        }
        self.at(now).manage(|manager| manager.held(session.owner))
    }

    /// Releases every lock of a connection, for good (D1). When this returns, they are free. Those of a session stay.
    // By value, so that this connection makes no further request (D1).
    #[allow(clippy::needless_pass_by_value)]
    pub(crate) fn close(&self, now: Instant, session: ShardSession) {
        if session.attachment.is_some() {
            let mut all = self.at(now);
            all.manage(|manager| manager.leave_session(session.owner, session.conn()));
        } else if session.is_open {
            shards::close(&mut self.at(now), session.owner);
            self.waiters.leave(session.owner);
        }
    }

    /// Time has passed. Returns whether there is more to do than fits into a tick.
    pub(crate) fn tick(&self, now: Instant, unix_s_at_start: u64) -> bool {
        let mut all = self.at(now);
        all.each(|items| items.set_wall_clock(unix_s_at_start));
        shards::tick(&mut all);
        let mut wants_more = all.manage(|manager| manager.wants_tick());
        all.each(|items| wants_more |= items.wants_tick());
        wants_more
    }

    /// Whether no command and no deadline has advanced the time of any shard beyond `tick`.
    pub(crate) fn is_idle_since(&self, tick: Instant) -> bool {
        (0..self.items.len()).all(|shard| self.shard(shard).now() <= tick)
    }

    /// Ends the waits and leases that are due. A `flush_all` that is due takes effect.
    pub(crate) fn pass(&self, now: Instant) {
        // It is due in all shards or in none.
        drop(self.shard_at(now, 0));
        shards::run_due(&mut self.at(now), DUE_PER_TURN);
    }

    /// Sets the memory limit of all items together. The number of shards and the largest value do not change.
    ///
    /// # Errors
    /// That of the first shard that refuses. Then no shard has changed.
    pub(crate) fn limit_memory(&self, now: Instant, bytes: usize) -> Result<(), MemoryRefused> {
        let mut limits = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted = limits.with_memory(bytes);
        self.pass(now);
        shards::set_limits(&mut self.at(now), &wanted)?;
        *limits = wanted;
        Ok(())
    }

    /// All shards and the manager at this time.
    const fn at(&self, now: Instant) -> At<'_> {
        At {
            shards: self,
            now,
            work: 0,
        }
    }

    /// The shard of a key.
    #[inline]
    pub(crate) fn shard_of(&self, key: Key<'_>) -> usize {
        if self.items.len() == 1 {
            0
        } else {
            self.shard_by_hash(key)
        }
    }

    fn shard_by_hash(&self, key: Key<'_>) -> usize {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(key.as_bytes());
        // The cast drops bits that the mask would drop.
        #[allow(clippy::cast_possible_truncation)]
        let hash = hasher.finish() as usize;
        hash & (self.items.len() - 1)
    }

    /// The manager at `now`, which is locked at its first use.
    #[inline]
    const fn lazy(&self, now: Instant) -> Lazy<'_> {
        Lazy::new(self, now)
    }

    #[inline]
    fn shard(&self, shard: usize) -> ShardGuard<'_> {
        ShardGuard::new(shard, || {
            self.items[shard]
                .lock()
                .expect("a shard that failed an assertion is not used again")
        })
    }

    /// Locks a shard at `now`, without a due `flush_all` (D3).
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "each command calls it, and a call costs as much as it does"
    )]
    fn shard_at(&self, now: Instant, shard: usize) -> ShardGuard<'_> {
        let mut items = self.shard(shard);
        if items.is_flush_due(now) {
            items = self.flushed_shard_at(now, items);
        }
        items.advance(now);
        items
    }

    /// The same for a shard that was locked with a due `flush_all`.
    #[cold]
    fn flushed_shard_at<'a>(&'a self, now: Instant, mut items: ShardGuard<'a>) -> ShardGuard<'a> {
        let shard = items.number();
        while items.is_flush_due(now) {
            drop(items);
            shards::flush_due(&mut self.at(now));
            items = self.shard(shard);
        }
        items
    }
}

/// All shards and the manager at one moment.
#[derive(Debug)]
struct At<'a> {
    shards: &'a Shards,
    now: Instant,
    /// The units of work of the steps so far.
    work: u64,
}

impl At<'_> {
    /// A step about a key.
    fn step<R>(&mut self, key: Key<'_>, act: impl FnOnce(&mut Step<'_, '_, '_>) -> R) -> R {
        let Self { shards, now, .. } = *self;
        let mut items = shards.shard_at(now, shards.shard_of(key));
        let before = items.work();
        let mut lazy = shards.lazy(now);
        let done = act(&mut Rules::new(&mut *items, lazy.reach()));
        let news = lazy.unlock();
        self.work += items.work() - before;
        drop(items);
        self.end(news);
        done
    }

    /// The end of a step that has unlocked everything. Keys that are due are left to the caller and to the clock.
    fn end(&mut self, news: Option<News>) {
        if let Some(mut news) = news {
            self.work += news.work;
            news.deliver(&self.shards.waiters);
        }
    }
}

impl shards::Shards for At<'_> {
    type Store = PageStore;

    fn manage<R>(&mut self, act: impl FnOnce(&mut LockManager) -> R) -> R {
        let mut lazy = self.shards.lazy(self.now);
        let done = act(&mut lazy.reach());
        let news = lazy.unlock();
        self.end(news);
        done
    }

    fn each(&mut self, mut act: impl FnMut(&mut ShardItems)) {
        for shard in 0..self.shards.items.len() {
            act(&mut self.shards.shard_at(self.now, shard));
        }
    }

    fn together<R>(
        &mut self,
        act: impl FnOnce(&mut [&mut ShardItems], &mut LockManager) -> R,
    ) -> R {
        let count = self.shards.items.len();
        let mut guards: Vec<_> = (0..count).map(|shard| self.shards.shard(shard)).collect();
        let mut all: Vec<_> = guards.iter_mut().map(|items| &mut **items).collect();
        for items in &mut all {
            items.advance(self.now);
        }
        let mut lazy = self.shards.lazy(self.now);
        let done = act(&mut all, &mut lazy.reach());
        let news = lazy.unlock();
        drop(guards);
        self.end(news);
        done
    }

    fn update(&mut self, due: &DueKey) {
        self.step(due.key(), |step| step.update_due(due));
    }

    fn end(&mut self, due: &DueKey) {
        self.step(due.key(), |step| step.end_due(due));
    }
}

/// Whether the connection has lost its session (N1). A request that may acquire something asks with the manager: otherwise its
/// session could release all locks meanwhile.
#[cold]
fn is_too_late(
    step: &mut Step<'_, '_, '_>,
    session: &ShardSession,
    item: &ItemCommand<'_>,
) -> bool {
    if takes_lock(item) {
        step.manager();
    }
    session.has_lost()
}

/// Whether the command may give its owner a lock or a win, or a place in a queue.
fn takes_lock(command: &ItemCommand<'_>) -> bool {
    match command {
        ItemCommand::Lock { .. } | ItemCommand::Acquire(_) => true,
        ItemCommand::Get(get) => get.lock || get.bound_to_owner || get.wait_ms > 0,
        ItemCommand::Set(_)
        | ItemCommand::SetTooLarge { .. }
        | ItemCommand::Delete(_)
        | ItemCommand::Arithmetic(_)
        | ItemCommand::Release(_)
        | ItemCommand::Unlock { .. } => false,
    }
}

#[cfg(test)]
mod tests;
