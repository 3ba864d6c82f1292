//! The items divided over several cores, so that several threads can work on them.
//!
//! A key belongs to one shard, by a keyed hash. A command about one key locks that shard; one about
//! all items, or about all locks of a connection, locks every shard concerned, in order, before it
//! changes the first. So no command ever sees half of another, and no two can wait for each other.
//!
//! - D1: whatever happens to a connection's locks in one step happens in all shards at once: when
//!   it closes, no other connection sees one of its locks gone and another one held.
//! - D2: a connection is open in a shard from its first lock-taking command there until
//!   [`Shards::close`], and never again: its [`ShardSession`] is given away then.
//! - D4: what one connection may hold is counted over all shards.
//! - D6: a `flush_all` that was delayed takes effect in all shards at once: whoever comes first when it
//!   is due, with whichever clock, sees to that before anything else.
//! - D3: CAS numbers are unique over all shards: each counts in strides of its own.
//! - D7: no connections wait for each other in a circle, whichever shards their keys are in: [`waits`].
//!
//! With one thread there is one shard and nothing is hashed.

mod hold;
mod limit;
mod saved;
mod waits;

use std::cell::Cell;
use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use bytes::Bytes;
use latchd_core::command::{Command, GlobalCommand, ItemCommand, Keys, ScanCursor, Set, Wait};
use latchd_core::engine::{Config, Core, Event, Held, Holding, Numbers, Prefixes};
use latchd_core::key::Key;
use latchd_core::reply::{KeysPage, Reply};
use latchd_core::stats::{LOCK_LINES_MAX, Report, Stats, StatsLine, StatsTopic};
use latchd_core::store::{HashSeed, LogStore, SipHash};
use latchd_core::value::{SHARED_VALUE_BYTES_MIN, Value};
use latchd_core::watch::Evicted;
use latchd_core::{ConnId, Instant, Limits};

use self::hold::Hold;
use crate::budget::Holder;
use crate::clock;
use crate::headroom;
use crate::pages::Pages;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::waiters::Waiters;

/// The most shards: a [`ShardSet`] has a bit for each.
const SHARDS_MAX: usize = 64;

/// Shards a thread, so that two threads seldom want the same one.
const SHARDS_PER_THREAD: usize = 4;

/// Values of the largest size that must fit into a shard, so that dividing the memory does not make
/// large values crowd each other out.
const LARGEST_VALUES_PER_SHARD: usize = 8;

/// How many bits of a [`ScanCursor`] are the store's own; the shard stands above them.
const CURSOR_BITS: u32 = 56;

/// Whoever asks and is no client: clients are numbered from 1.
const NOBODY: ConnId = ConnId::from_number(0);

/// A key that is locked, by whom and since when, and by how many.
pub(crate) type LockedKey = (Box<[u8]>, Holding, usize);

/// A shard's core: its items are in pages of the system's.
type ShardCore = Core<LogStore<SipHash, Pages>>;

/// Every item of the server.
#[derive(Debug)]
pub(crate) struct Shards {
    cores: Box<[Mutex<ShardCore>]>,
    hasher: RandomState,
    /// How many who wait for each other are looked at ([`Limits::wait_chain_max`]).
    wait_chain_max: usize,
    /// Values are zeroed when they are dead.
    erases: bool,
    /// The bounds of all shards together.
    limits: Mutex<Limits>,
    waiters: Arc<Waiters>,
    /// The cores remember what they evict.
    watches_evictions: AtomicBool,
}

/// What the shards know of one connection: as long as it is there, it may hold locks.
#[derive(Debug)]
pub(crate) struct ShardSession {
    conn: ConnId,
    /// Where it is told that it waits no more.
    seat: Holder,
    opened: ShardSet,
    /// What it holds in each shard, as it has last seen that (D4): another connection may have given
    /// a lock back there in the right of its grant. Empty as long as it has asked for none.
    held: Vec<Held>,
}

/// Some of the shards.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct ShardSet(u64);

impl ShardSet {
    fn contains(self, shard: usize) -> bool {
        self.0 & (1 << shard) != 0
    }

    fn insert(&mut self, shard: usize) {
        self.0 |= 1 << shard;
    }

    fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl ShardSession {
    /// A connection that has no lock yet. Its id must be new.
    pub(crate) fn new(conn: ConnId, seat: Holder) -> Self {
        Self {
            conn,
            seat,
            opened: ShardSet::default(),
            held: Vec::new(),
        }
    }

    /// Whose it is.
    pub(crate) fn conn(&self) -> ConnId {
        self.conn
    }

    /// What it holds in the shards but this one.
    fn held_elsewhere(&self, shard: usize) -> Held {
        let others = self.held.iter().enumerate();
        let others = others.filter(|(other, _)| *other != shard);
        others.fold(Held::default(), |sum, (_, held)| sum.with(*held))
    }

    /// Whether it has ever asked for a lock.
    pub(crate) fn may_hold(&self) -> bool {
        !self.opened.is_empty()
    }
}

/// How many shards serve `threads` threads within these limits: a power of two.
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

/// Two numbers that no client can guess, from the system's randomness.
fn random_seed() -> HashSeed {
    let random = RandomState::new();
    [random.hash_one(0), random.hash_one(1)]
}

impl Shards {
    /// Divides `limits` over `count` shards, a power of two up to 64. Those who wait for a lock are told by way
    /// of `waiters`. What another run has given is not given again, if this one goes on with what it has saved.
    pub(crate) fn new(
        count: usize,
        limits: Limits,
        unix_s_at_start: u64,
        prefix_delimiter: Option<u8>,
        waiters: Arc<Waiters>,
        resumes: Option<Numbers>,
    ) -> Self {
        assert!(
            count.is_power_of_two() && count <= SHARDS_MAX,
            "a mask chooses the shard"
        );
        let share = limit::share(limits, count);
        let unix_ms = clock::unix_ms();
        let count = u32::try_from(count).expect("at most 64");
        let cores = (0..count)
            .map(|index| {
                let mut config = Config::new(share, unix_s_at_start)
                    .strided(index, count)
                    .started_at(unix_ms);
                config.prefix_delimiter = prefix_delimiter;
                if let Some(numbers) = resumes {
                    config = config.resumed(numbers);
                }
                let store = LogStore::in_blocks(&share, SipHash::new(random_seed()));
                Mutex::new(Core::with_store(config, store))
            })
            .collect();
        Self {
            cores,
            hasher: RandomState::new(),
            wait_chain_max: limits.wait_chain_max,
            erases: limits.erase,
            limits: Mutex::new(limits),
            waiters,
            watches_evictions: AtomicBool::new(false),
        }
    }

    /// Executes a command of a connection and hands the reply to `answer`. `lines` are what the
    /// transport has to tell about a topic of `stats`.
    #[inline]
    pub(crate) fn execute(
        &self,
        now: Instant,
        session: &mut ShardSession,
        command: &Command<'_>,
        lines: &dyn Fn(StatsTopic) -> Vec<StatsLine>,
        answer: &mut dyn FnMut(&Reply<'_>),
    ) {
        match command {
            Command::Item(command) => self.execute_item(now, session, command, |_| (), answer),
            Command::Global(command) => self.execute_global(now, session, *command, lines, answer),
        }
    }

    /// Executes a command that concerns more than one shard.
    fn execute_global(
        &self,
        now: Instant,
        session: &mut ShardSession,
        command: GlobalCommand<'_>,
        lines: &dyn Fn(StatsTopic) -> Vec<StatsLine>,
        answer: &mut dyn FnMut(&Reply<'_>),
    ) {
        let conn = session.conn;
        match command {
            GlobalCommand::UnlockAll => {
                self.together(now, session.opened, |core| {
                    core.execute(now, conn, command.into());
                });
                session.held.fill(Held::default());
                answer(&Reply::Unlocked);
            }
            GlobalCommand::FlushAll { .. } | GlobalCommand::StatsReset => {
                self.together(now, self.all(), |core| {
                    core.execute(now, conn, command.into());
                });
                answer(&Reply::Ok);
            }
            GlobalCommand::Keys(keys) => self.keys(now, conn, keys, answer),
            GlobalCommand::Stats(topic) => {
                if let StatsTopic::DetailOn | StatsTopic::DetailOff = topic {
                    self.together(now, self.all(), |core| {
                        core.execute(now, conn, command.into());
                    });
                }
                let stats = self.stats(now, conn);
                let lines = match topic {
                    StatsTopic::Locks => self.lock_lines(now),
                    StatsTopic::Detail => self.prefix_lines(),
                    StatsTopic::DetailOn | StatsTopic::DetailOff => Vec::new(),
                    StatsTopic::General
                    | StatsTopic::Settings
                    | StatsTopic::Items
                    | StatsTopic::Slabs
                    | StatsTopic::Sizes
                    | StatsTopic::Conns => lines(topic),
                };
                answer(&Reply::Stats(Report {
                    stats: &stats,
                    lines: &lines,
                }));
            }
        }
    }

    /// As [`execute`](Self::execute), for a command that is watched: `looked` is told how long the value
    /// was that its key had, if there was one, before it is answered.
    pub(crate) fn execute_watched(
        &self,
        now: Instant,
        session: &mut ShardSession,
        command: &ItemCommand<'_>,
        looked: &Cell<Option<usize>>,
        answer: &mut dyn FnMut(&Reply<'_>),
    ) {
        let key = command.key();
        let look = |core: &mut ShardCore| {
            core.pass(now);
            looked.set(core.peek(key).map(|(_, value)| value.len()));
        };
        self.execute_item(now, session, command, look, answer);
    }

    /// A value that is copied if it is large and there is memory for that: else it is the store that
    /// finds out that there is none.
    fn shared<'a>(&self, value: Value<'a>, room: &'a mut Option<Bytes>) -> Value<'a> {
        if !headroom::stays_beside(value.len()) {
            value
        } else if self.erases {
            value.share_to_erase(room)
        } else {
            value.share(room)
        }
    }

    /// Asks the one shard that has the key, and has it looked at before. A connection is announced to a shard when it
    /// first may take a lock there. A large value is copied before the shard is held, where the store can
    /// keep the copy as it is.
    #[inline]
    fn execute_item(
        &self,
        now: Instant,
        session: &mut ShardSession,
        command: &ItemCommand<'_>,
        look: impl FnOnce(&mut ShardCore),
        answer: &mut dyn FnMut(&Reply<'_>),
    ) {
        let mut room = None;
        let changed;
        let command = if let ItemCommand::Set(set) = command
            && ShardCore::SHARES_VALUES
            && !set.mode.extends()
            && set.value.len() >= SHARED_VALUE_BYTES_MIN
        {
            let value = self.shared(set.value, &mut room);
            changed = ItemCommand::Set(Set { value, ..*set });
            &changed
        } else if let ItemCommand::Acquire(mut acquire) = *command {
            waits::never_early(&mut acquire);
            if let Wait::UpTo { .. } = acquire.wait {
                return self.wait_for(now, session, acquire, answer);
            }
            changed = ItemCommand::Acquire(acquire);
            &changed
        } else if let ItemCommand::Get(get) = command
            && get.wait_ms > 0
        {
            return self.wait_for_value(now, session, *get, look, answer);
        } else {
            command
        };
        let shard = self.shard_of(command.key());
        let mut core = self.core_at(now, shard);
        look(&mut core);
        if takes_lock(command) {
            answer(&self.ask_holder(now, session, shard, &mut core, command));
        } else {
            answer(&core.execute_item(now, session.conn, command));
            // Whoever has never been announced here holds nothing here, and will not.
            if !session.opened.contains(shard) {
                return;
            }
        }
        session.held[shard] = core.locks().held_here(session.conn);
    }

    /// Executes a command that may take a lock in a shard. Its connection is announced there first, with what it
    /// holds elsewhere.
    fn ask_holder<'a>(
        &self,
        now: Instant,
        session: &mut ShardSession,
        shard: usize,
        core: &'a mut ShardCore,
        command: &ItemCommand<'a>,
    ) -> Reply<'a> {
        if !session.opened.contains(shard) {
            core.handle(now, Event::Opened(session.conn));
            session.opened.insert(shard);
            session.held.resize(self.cores.len(), Held::default());
        }
        let elsewhere = session.held_elsewhere(shard);
        core.handle(now, Event::HoldsElsewhere(session.conn, elsewhere));
        core.execute_item(now, session.conn, command)
    }

    /// Releases every lock of a connection, for good (D2). When this returns, they are free.
    // By value: nobody can ask anything for this connection any more (D2).
    #[allow(clippy::needless_pass_by_value)]
    pub(crate) fn close(&self, now: Instant, session: ShardSession) {
        if !session.opened.is_empty() {
            self.together(now, session.opened, |core| {
                core.handle(now, Event::Closed(session.conn));
            });
            self.waiters.leave(session.conn);
        }
    }

    /// Tells every shard that time has passed, one after the other: nobody waits for all of them.
    /// Returns whether one of them has more to do than it does in a tick.
    pub(crate) fn tick(&self, now: Instant, unix_s_at_start: u64) -> bool {
        let mut wants_more = false;
        for shard in 0..self.cores.len() {
            let mut core = self.core_at(now, shard);
            core.handle(now, Event::WallClock { unix_s_at_start });
            core.handle(now, Event::Tick);
            wants_more |= core.wants_tick();
        }
        wants_more
    }

    /// What was evicted since the last call, one shard after the other, and how many more there were.
    /// What is evicted from now on is remembered if it `is_watched`.
    pub(crate) fn evicted(&self, is_watched: bool) -> (Vec<Evicted>, u64) {
        if !is_watched && !self.watches_evictions.load(Ordering::Relaxed) {
            return (Vec::new(), 0);
        }
        self.watches_evictions.store(is_watched, Ordering::Relaxed);
        let (mut all, mut missed) = (Vec::new(), 0);
        for shard in 0..self.cores.len() {
            let mut core = self.core(shard);
            let (mut evicted, more) = core.take_evicted();
            core.watch_evictions(is_watched);
            all.append(&mut evicted);
            missed += more;
        }
        (all, missed)
    }

    /// What is counted, and the `locks_max` locks that have been held for longest, as far as
    /// [`Core::locks_in_force`] tells: for whoever watches.
    pub(crate) fn look(&self, now: Instant, locks_max: usize) -> (Stats, Vec<LockedKey>) {
        let mut locks = Vec::new();
        for shard in 0..self.cores.len() {
            let mut core = self.core_at(now, shard);
            core.pass(now);
            let mut held: Vec<_> = core.locks_in_force().collect();
            held.sort_unstable_by_key(|(_, holding)| holding.since);
            let oldest = held.into_iter().take(locks_max);
            locks.extend(oldest.map(|(key, holding)| {
                let holders = core.locks().holders_of(key).count();
                (key.as_bytes().into(), holding, holders)
            }));
            drop(core);
            locks.sort_by_key(|(_, holding, _): &LockedKey| holding.since);
            locks.truncate(locks_max);
        }
        (self.stats(now, NOBODY), locks)
    }

    fn all(&self) -> ShardSet {
        ShardSet(u64::MAX >> (SHARDS_MAX - self.cores.len()))
    }

    /// Which shard a key belongs to.
    #[inline]
    pub(crate) fn shard_of(&self, key: Key<'_>) -> usize {
        if self.cores.len() == 1 {
            0
        } else {
            self.shard_by_hash(key)
        }
    }

    fn shard_by_hash(&self, key: Key<'_>) -> usize {
        // The cast drops bits that the mask would drop.
        #[allow(clippy::cast_possible_truncation)]
        let hash = self.hasher.hash_one(key.as_bytes()) as usize;
        hash & (self.cores.len() - 1)
    }

    #[inline]
    fn core(&self, shard: usize) -> Hold<'_> {
        let core = self.cores[shard]
            .lock()
            .expect("a core that failed an assertion is not used again");
        Hold::new(core, &self.waiters)
    }

    /// A shard at `now`, at which no `flush_all` is due any more (D6).
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

    /// Locks the shards of `set` in order, then changes each.
    fn together(&self, now: Instant, set: ShardSet, mut change: impl FnMut(&mut ShardCore)) {
        for core in &mut self.cores_at(now, set) {
            change(core);
        }
    }

    /// Those of `set`, taken in order, at `now`, at which no `flush_all` is due any more (D6).
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

    /// Those of `set`, taken in order.
    fn cores(&self, set: ShardSet) -> Vec<Hold<'_>> {
        (0..self.cores.len())
            .filter(|shard| set.contains(*shard))
            .map(|shard| self.core(shard))
            .collect()
    }

    /// A delayed `flush_all` is due in one shard: it takes effect in all of them, unless somebody else
    /// was faster. All were told of it at once, so what is pending in the others is the same one, however
    /// their clocks have read it.
    fn flush_together(&self, now: Instant) {
        let mut cores = self.cores(self.all());
        if cores.iter().any(|core| is_flush_due(core, now)) {
            for core in &mut cores {
                core.flush_now(now);
            }
        }
    }

    /// A page of one shard; after its last page comes the next shard.
    fn keys(&self, now: Instant, conn: ConnId, keys: Keys<'_>, answer: &mut dyn FnMut(&Reply<'_>)) {
        let shard = usize::try_from(keys.cursor.0 >> CURSOR_BITS).unwrap_or(usize::MAX);
        if shard >= self.cores.len() {
            return answer(&Reply::Keys(KeysPage {
                items: Vec::new(),
                next: None,
            }));
        }
        let cursor = ScanCursor(keys.cursor.0 & ((1 << CURSOR_BITS) - 1));
        let command = Command::Global(GlobalCommand::Keys(Keys { cursor, ..keys }));
        let mut core = self.core_at(now, shard);
        let mut reply = core.execute(now, conn, command);
        if let Reply::Keys(page) = &mut reply {
            page.next = match page.next {
                Some(next) => Some(cursor_in(shard, next)),
                None if shard + 1 < self.cores.len() => {
                    Some(cursor_in(shard + 1, ScanCursor::default()))
                }
                None => None,
            };
        }
        answer(&reply);
    }

    /// The locks of one shard after the other, up to the bound.
    fn lock_lines(&self, now: Instant) -> Vec<StatsLine> {
        let mut lines = Vec::new();
        for shard in 0..self.cores.len() {
            let mut core = self.core_at(now, shard);
            core.pass(now);
            lines.append(&mut core.lock_lines());
            if lines.len() >= LOCK_LINES_MAX {
                lines.truncate(LOCK_LINES_MAX);
                break;
            }
        }
        lines
    }

    /// What was counted by prefix, over all shards.
    fn prefix_lines(&self) -> Vec<StatsLine> {
        let mut sum = Prefixes::default();
        for shard in 0..self.cores.len() {
            sum.add(self.core(shard).prefixes());
        }
        sum.lines()
    }

    /// The sum over all shards, one after the other: counters of a busy server never stand still.
    fn stats(&self, now: Instant, conn: ConnId) -> Stats {
        let mut sum = Stats::default();
        let mut holders = BTreeSet::new();
        for shard in 0..self.cores.len() {
            let mut core = self.core_at(now, shard);
            holders.extend(core.locks().holding_connections());
            let command = Command::Global(GlobalCommand::Stats(StatsTopic::General));
            if let Reply::Stats(report) = core.execute(now, conn, command) {
                sum.add(report.stats);
            }
        }
        // What every shard counts of one and the same thing is not to be added up.
        sum.counters.cmd_flush /= self.cores.len() as u64;
        sum.gauges.lock_holders = holders.len() as u64;
        sum
    }
}

fn is_flush_due(core: &ShardCore, now: Instant) -> bool {
    core.flush_at().is_some_and(|at| at <= now)
}

/// Whether it may leave something with its connection, or have it wait: a lock, or a win.
fn takes_lock(command: &ItemCommand<'_>) -> bool {
    match command {
        ItemCommand::Lock { .. } | ItemCommand::Acquire(_) => true,
        ItemCommand::Get(get) => get.lock || get.binds || get.wait_ms > 0,
        ItemCommand::Set(_)
        | ItemCommand::SetTooLarge { .. }
        | ItemCommand::Delete(_)
        | ItemCommand::Arithmetic(_)
        | ItemCommand::Release(_)
        | ItemCommand::Unlock { .. } => false,
    }
}

fn cursor_in(shard: usize, cursor: ScanCursor) -> ScanCursor {
    assert!(cursor.0 < 1 << CURSOR_BITS, "a store counts its slots");
    ScanCursor(((shard as u64) << CURSOR_BITS) | cursor.0)
}

#[cfg(test)]
mod tests;
