//! The items, divided over several cores, so that several threads can work on them.
//!
//! The folder holds the steps in one shard or several. It uses `clients`, `os` and `sync`.
//!
//! A key belongs to one shard, by a keyed hash. A command about one key locks that shard. A command about all items, or about
//! all locks of a connection, locks every shard concerned, in order, before it changes the first. So no command sees half of
//! another, and no two threads wait for each other.
//!
//! - D1: A change to all of a connection's locks happens in all shards at once. When the connection closes, no other connection
//!   sees one of its locks free and another one held.
//! - D2: A connection is open in a shard from its first request for a lock there until [`Shards::close`], and never again:
//!   [`Shards::close`] consumes its [`ShardSession`].
//! - D4: The locks and bound wins of a connection are counted over all shards. A session's place in the queue of another shard
//!   counts as the lock or the win that it is for.
//! - D6: A delayed `flush_all` takes effect in all shards at once: the first thread that finds it due, by whichever clock,
//!   flushes all before anything else.
//! - D3: CAS numbers are unique over all shards: each shard counts in strides of its own.
//! - D7: There is no deadlock among waiting connections, whichever shards their keys are in: [`waits`].
//!
//! With one thread there is one shard and nothing is hashed.

#[cfg(feature = "verify")]
mod check;
mod hold;
mod holders;
mod limit;
mod lock_memory;
mod look;
mod saved;
mod session;
mod waits;

use std::cell::Cell;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;

use bytes::Bytes;
use foldhash::quality;
use latchd_core::engine::{Config, Core, Event, Held};
use latchd_core::store::{Block, HashSeed, LogStore, SipHash};
use latchd_core::{Instant, Limits};
use latchd_protocol::command::{Command, GlobalCommand, ItemCommand, ScanCursor, Set, Wait};
use latchd_protocol::key::Key;
use latchd_protocol::reply::Reply;
use latchd_protocol::stats::{Report, Stats, StatsLine, StatsTopic, Unstored};
use latchd_protocol::value::Value;

use self::hold::Hold;
use self::holders::Holders;
use self::lock_memory::LockMemory;
use self::session::{ShardSet, charge_since};
use crate::clients::waiters::Waiters;
use crate::os::pages::{Pages, part_of};
use crate::sync::Mutex;
use crate::sync::atomic::AtomicBool;
use crate::sync::clock;

pub(crate) use self::session::ShardSession;

/// The most shards: a [`ShardSet`] has a bit for each.
const SHARDS_MAX: usize = 64;

/// The shards per thread: so many that two threads seldom want the same one.
const SHARDS_PER_THREAD: usize = 4;

/// The values of the largest size that must fit into a shard. With fewer, large values would evict each other.
const LARGEST_VALUES_PER_SHARD: usize = 8;

/// Lines of `stats`, and the start of the next page.
pub(crate) type StatsPage = (Vec<StatsLine>, Option<ScanCursor>);

/// A shard's core, with its items in pages of the system.
type ShardCore = Core<LogStore<SipHash, Pages>>;

/// Every item of the server.
#[derive(Debug)]
pub(crate) struct Shards {
    cores: Box<[Mutex<ShardCore>]>,
    /// Fast rather than cryptographic: keys that a client has chosen to be in one shard have its time and its memory, and no
    /// more. In a shard, the store's own hash spreads them.
    hasher: quality::RandomState,
    /// The bound of a search for a deadlock ([`Limits::wait_chain_max`]).
    wait_chain_max: usize,
    /// How many locks one connection may hold (D4).
    locks_max: usize,
    /// The most wins bound to one connection (D4).
    wins_max: usize,
    /// Dead values are zeroed.
    erases: bool,
    /// A longer value has memory of its own, in bytes.
    value_bytes_in_log_max: usize,
    /// The bounds of all shards together.
    limits: Mutex<Limits>,
    /// The memory of the lock tables.
    lock_memory: LockMemory,
    waiters: Arc<Waiters>,
    /// The cores remember their evictions.
    watches_evictions: AtomicBool,
    /// The number of connections that hold locks.
    holders: Holders,
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
    /// Divides `limits` over `count` shards, a power of two up to 64. Notices to waiting clients go through `waiters`.
    pub(crate) fn new(
        count: usize,
        limits: Limits,
        unix_s_at_start: u64,
        prefix_delimiter: Option<u8>,
        waiters: Arc<Waiters>,
    ) -> Self {
        assert!(
            count.is_power_of_two() && count <= SHARDS_MAX,
            "a mask chooses the shard"
        );
        let share = limit::share(limits, count);
        let unix_ms = clock::unix_ms();
        let count = u32::try_from(count).expect("at most 64");
        // It is the same in all shards.
        let mut value_bytes_in_log_max = 0;
        let cores: Box<[_]> = (0..count)
            .map(|index| {
                let mut config = Config::new(share, unix_s_at_start)
                    .strided(index, count)
                    .sharing_tables(count)
                    .started_at(unix_ms);
                config.prefix_delimiter = prefix_delimiter;
                let store = LogStore::in_blocks(&share, SipHash::new(random_seed()));
                value_bytes_in_log_max = store.value_bytes_in_log_max();
                let mut core = Core::with_store(config, store);
                let are_logged = waiters.logs_locks();
                core.handle(Instant::default(), Event::ReportLockEnds(are_logged));
                Mutex::new(core)
            })
            .collect();
        Self {
            lock_memory: LockMemory::new(cores.len()),
            cores,
            hasher: quality::RandomState::default(),
            wait_chain_max: limits.wait_chain_max,
            locks_max: limits.locks_per_connection_max,
            wins_max: limits.bound_wins_per_connection_max,
            erases: limits.erase,
            value_bytes_in_log_max,
            limits: Mutex::new(limits),
            waiters,
            watches_evictions: AtomicBool::new(false),
            holders: Holders::default(),
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
        answer: &mut dyn FnMut(&Reply<'_>),
    ) {
        match command {
            Command::Item(item) => {
                self.execute_item(now, session, command, item, |_| (), answer);
            }
            Command::Global(command) => self.execute_global(now, session, *command, lines, answer),
        }
    }

    /// Counts a set that no shard stores. The first shard counts it; only the sum is shown.
    pub(crate) fn note_unstored(&self, now: Instant, why: Unstored) {
        self.core(0).handle(now, Event::Unstored(why));
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
        let conn = session.owner;
        match command {
            GlobalCommand::UnlockAll => {
                let work = &mut session.work;
                self.together(now, session.opened, |core| {
                    let before = core.work();
                    core.execute(now, conn, &command.into());
                    charge_since(work, before, core);
                });
                // Wins stay bound.
                for held in &mut session.held {
                    *held = Held {
                        wins: held.wins,
                        ..Held::default()
                    };
                }
                answer(&Reply::Unlocked);
            }
            GlobalCommand::FlushAll { .. } | GlobalCommand::StatsReset => {
                let work = &mut session.work;
                self.together(now, ShardSet::ALL, |core| {
                    let before = core.work();
                    core.execute(now, conn, &command.into());
                    charge_since(work, before, core);
                });
                answer(&Reply::Ok);
            }
            GlobalCommand::Keys(keys) => self.keys(now, conn, keys, answer),
            GlobalCommand::Stats(topic) => {
                if let StatsTopic::DetailOn | StatsTopic::DetailOff = topic {
                    self.together(now, ShardSet::ALL, |core| {
                        core.execute(now, conn, &command.into());
                    });
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
                    self.stats(now, conn)
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
        command: &Command<'_>,
        item: &ItemCommand<'_>,
        looked: &Cell<Option<usize>>,
        answer: &mut dyn FnMut(&Reply<'_>),
    ) {
        let key = item.key();
        let look = |core: &mut ShardCore| {
            core.handle(now, Event::Due);
            looked.set(core.peek(key).map(|(_, value)| value.len()));
        };
        self.execute_item(now, session, command, item, look, answer);
    }

    /// A large value that stays in its input buffer, or a copy of it in memory of its own. Without memory for a copy it is
    /// returned as it is, and the store refuses it.
    fn shared<'a>(
        &self,
        session: &mut ShardSession,
        value: Value<'a>,
        room: &'a mut Option<Bytes>,
    ) -> Value<'a> {
        let request = session.request.as_ref();
        if let Some(kept) = request.and_then(|request| part_of(request, &value)) {
            return Value::Shared(room.insert(kept));
        }
        session.work.charge_bytes(value.len());
        match Pages::share(&[value.as_bytes()], self.erases) {
            Some(shared) => Value::Shared(room.insert(shared)),
            None => value,
        }
    }

    /// Executes a command in the shard of its key, after calling `look`. A connection is announced to a shard before its first
    /// request for a lock there. If the store can keep a copy of a large value, the value is copied before the
    /// shard is locked.
    #[inline]
    fn execute_item(
        &self,
        now: Instant,
        session: &mut ShardSession,
        command: &Command<'_>,
        item: &ItemCommand<'_>,
        look: impl FnOnce(&mut ShardCore),
        answer: &mut dyn FnMut(&Reply<'_>),
    ) {
        let mut room = None;
        let changed;
        let command = if let ItemCommand::Set(set) = item
            && ShardCore::SHARES_VALUES
            && !set.mode.extends()
            && set.value.len() > self.value_bytes_in_log_max
        {
            let value = self.shared(session, set.value, &mut room);
            changed = Command::from(Set { value, ..*set });
            &changed
        } else if let ItemCommand::Acquire(mut acquire) = *item {
            waits::never_early(&mut acquire);
            if let Wait::UpTo { .. } = acquire.wait {
                return self.wait_for(now, session, acquire, answer);
            }
            changed = ItemCommand::Acquire(acquire).into();
            &changed
        } else if let ItemCommand::Get(get) = item
            && get.wait_ms > 0
        {
            return self.wait_for_value(now, session, *get, look, answer);
        } else {
            command
        };
        let shard = self.shard_of(item.key());
        if let ItemCommand::Get(get) = item
            && get.binds
        {
            self.update_wins(now, session, shard, get.key);
        }
        let takes_lock = takes_lock(item);
        if takes_lock {
            self.count_again(now, session, shard);
        }
        let mut core = self.core_at(now, shard);
        let before = core.work();
        look(&mut core);
        if takes_lock {
            answer(&self.ask_holder(now, session, shard, &mut core, command));
            session.charge_since(before, &core);
            self.note_asked(session, shard, &core);
            drop(core);
            return self.spread_lock_memory(now);
        }
        answer(&core.execute(now, session.owner, command));
        session.charge_since(before, &core);
        // A connection that was never announced here holds nothing here.
        if !session.opened.contains(shard) {
            return;
        }
        session.note_held(shard, &core);
        self.lock_memory.publish(shard, &core);
    }

    /// Notes a connection's locks in a shard after [`Self::ask_holder`], and the memory of the shard's tables.
    fn note_asked(&self, session: &mut ShardSession, shard: usize, core: &ShardCore) {
        session.note_held(shard, core);
        self.lock_memory.end_reservation(shard, core);
    }

    /// Executes a command that may acquire a lock in a shard. Its connection is announced there first, with its locks in other
    /// shards. Call [`Self::note_asked`] afterwards.
    fn ask_holder<'a>(
        &self,
        now: Instant,
        session: &mut ShardSession,
        shard: usize,
        core: &'a mut ShardCore,
        command: &Command<'a>,
    ) -> Reply<'a> {
        if !session.opened.contains(shard) {
            core.handle(now, Event::Opened(session.owner));
            session.opened.insert(shard);
            session.held.resize(self.cores.len(), Held::default());
        }
        let elsewhere = session.held_elsewhere(shard);
        core.handle(now, Event::HoldsElsewhere(session.owner, elsewhere));
        self.lock_memory.reserve(shard, core);
        core.execute(now, session.owner, command)
    }

    /// Whether a connection holds a lock or a bound win in any shard.
    pub(crate) fn has_anything(&self, now: Instant, session: &ShardSession) -> bool {
        let mut has_anything = false;
        if session.may_hold() {
            self.together(now, session.opened, |core| {
                has_anything |= core.held_here(session.owner) != Held::default();
            });
        }
        has_anything
    }

    /// Before a command that may take a lock: if its connection seems to have as many locks as it may, counts those in the
    /// other shards again. Time or another connection may have ended some since (D4).
    #[inline]
    fn count_again(&self, now: Instant, session: &mut ShardSession, shard: usize) {
        if session.locks() >= self.locks_max {
            self.count_others(now, session, shard);
        }
    }

    #[cold]
    fn count_others(&self, now: Instant, session: &mut ShardSession, shard: usize) {
        for other in 0..session.held.len() {
            if other != shard && (session.held[other].locks > 0 || session.has_place_in(other)) {
                let mut core = self.core_at(now, other);
                let before = core.work();
                core.handle(now, Event::Due);
                session.note_held(other, &core);
                self.lock_memory.publish(other, &core);
                session.charge_since(before, &core);
                session.work.charge(1);
            }
        }
    }

    /// Whether a connection holds a lock in any shard.
    pub(crate) fn holds(&self, now: Instant, session: &ShardSession) -> bool {
        let mut holds = false;
        if session.may_hold() {
            self.together(now, session.opened, |core| {
                holds |= core.held_here(session.owner).locks > 0;
            });
        }
        holds
    }

    /// Releases every lock of a connection, for good (D2). When this returns, they are free.
    // By value, so that this connection makes no further request (D2).
    #[allow(clippy::needless_pass_by_value)]
    pub(crate) fn close(&self, now: Instant, session: ShardSession) {
        if !session.opened.is_empty() {
            self.together(now, session.opened, |core| {
                core.handle(now, Event::Closed(session.owner));
            });
            self.waiters.leave(session.owner);
        }
    }

    /// Tells every shard that time has passed, one after the other, so no thread waits for all of them. Returns whether a shard
    /// has more to do than fits into a tick.
    pub(crate) fn tick(&self, now: Instant, unix_s_at_start: u64) -> bool {
        let mut wants_more = false;
        self.make_room_for_tables(now, |core| {
            core.handle(now, Event::WallClock { unix_s_at_start });
            core.handle(now, Event::Tick);
            wants_more |= core.wants_tick();
        });
        wants_more
    }

    /// The shard of a key.
    #[inline]
    pub(crate) fn shard_of(&self, key: Key<'_>) -> usize {
        if self.cores.len() == 1 {
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
        hash & (self.cores.len() - 1)
    }

    #[inline]
    fn core(&self, shard: usize) -> Hold<'_> {
        let core = self.cores[shard]
            .lock()
            .expect("a core that failed an assertion is not used again");
        Hold::new(core, &self.waiters)
    }

    /// Locks a shard at `now`, without a due `flush_all` (D6).
    #[inline]
    fn core_at(&self, now: Instant, shard: usize) -> Hold<'_> {
        let core = self.core(shard);
        if is_flush_due(&core, now) {
            drop(core);
            self.core_after_flush(now, shard)
        } else {
            core
        }
    }

    #[cold]
    fn core_after_flush(&self, now: Instant, shard: usize) -> Hold<'_> {
        loop {
            self.flush_together(now);
            let core = self.core(shard);
            if !is_flush_due(&core, now) {
                return core;
            }
        }
    }

    /// Locks the shards of `set` in order, then calls `change` for each.
    fn together(&self, now: Instant, set: ShardSet, mut change: impl FnMut(&mut ShardCore)) {
        let shards = (0..self.cores.len()).filter(|shard| set.contains(*shard));
        for (shard, core) in shards.zip(&mut self.cores_at(now, set)) {
            change(core);
            self.lock_memory.publish(shard, core);
        }
    }

    /// Locks the shards of `set` in order at `now`, without a due `flush_all` (D6).
    fn cores_at(&self, now: Instant, set: ShardSet) -> Vec<Hold<'_>> {
        loop {
            let cores = self.cores(set);
            if !cores.iter().any(|core| is_flush_due(core, now)) {
                return cores;
            }
            drop(cores);
            self.flush_together(now);
        }
    }

    /// Locks the shards of `set` in order.
    fn cores(&self, set: ShardSet) -> Vec<Hold<'_>> {
        (0..self.cores.len())
            .filter(|shard| set.contains(*shard))
            .map(|shard| self.core(shard))
            .collect()
    }

    /// Lets a delayed `flush_all` that is due in one shard take effect in all of them, unless another thread was faster. All
    /// shards got it at once, so the pending one of the others is the same, whatever their clocks show.
    fn flush_together(&self, now: Instant) {
        let mut cores = self.cores(ShardSet::ALL);
        if cores.iter().any(|core| is_flush_due(core, now)) {
            for core in &mut cores {
                core.handle(now, Event::FlushedElsewhere);
            }
        }
    }
}

fn is_flush_due(core: &ShardCore, now: Instant) -> bool {
    core.flush_at().is_some_and(|at| at <= now)
}

/// Whether the command may give its connection a lock or a win. Commands that may wait go another way ([`waits`]).
fn takes_lock(command: &ItemCommand<'_>) -> bool {
    match command {
        ItemCommand::Lock { .. } | ItemCommand::Acquire(_) => true,
        ItemCommand::Get(get) => get.lock || get.binds,
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
