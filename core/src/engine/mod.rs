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
mod stats;
#[cfg(feature = "verify")]
mod view;
mod wins;

#[cfg(test)]
mod tests;

pub use config::Config;
pub use event::{Event, Notification};
pub use items::Items;
pub use items::saved::{Numbers, Restored, SavedItem};
pub(crate) use limit::limit_memory;
pub use lock_memory::TABLES_GROWTH_MAX;
pub use locks::queue::{WaitTable, Waiter};
pub use locks::table::{EndCause, Held, Holding, LOCK_ENDS_MAX, LockEnd, LockScope, LockTable};
#[cfg(feature = "verify")]
pub use locks::withheld::Withheld;
pub use manager::LockManager;
pub use queues::{Queues, Waits};
pub use stats::detail::{PREFIXES_MAX, Prefixes};
#[cfg(feature = "verify")]
pub use view::View;
pub use wins::bound::{BoundWin, BoundWins};
pub use wins::queue::{WinWaiter, WinWaits};

use self::rules::Rules;
use crate::deadlock::Sought;
use crate::limits::Limits;
use crate::store::{LogStore, MapStore, Store};
use latchd_protocol::Owner;
use latchd_protocol::command::{Acquire, Command};
use latchd_protocol::item::ItemHeader;
use latchd_protocol::key::Key;
use latchd_protocol::reply::Reply;
use latchd_protocol::time::{Clock, Instant};

/// Items, locks and wins: the state machine that latchd is.
#[derive(Clone, Debug)]
pub struct Core<S = LogStore> {
    items: Items<S>,
    manager: LockManager,
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
        Self {
            items: Items::new(&config, store),
            manager: LockManager::new(&config),
        }
    }

    /// A step of it.
    #[inline]
    fn rules(&mut self) -> Rules<'_, S, &mut LockManager> {
        Rules {
            items: &mut self.items,
            manager: &mut self.manager,
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
        self.rules().execute(now, owner, command)
    }

    /// Handles an event at `now`; time as in [`execute`](Self::execute).
    pub fn handle(&mut self, now: Instant, event: Event<'_>) {
        self.rules().handle(now, event);
    }

    /// The next result besides replies. To be called after every call until there is none, unless
    /// [`has_news`](Self::has_news) is false.
    pub fn poll(&mut self) -> Option<Notification> {
        if let Some((items, missed)) = self.items.evicted.take() {
            return Some(Notification::Evicted { items, missed });
        }
        if self.manager.locks.table.has_ends() {
            let (ends, missed) = self.manager.locks.table.take_ends();
            return Some(Notification::LocksEnded { ends, missed });
        }
        self.manager.next_notice().map(Notification::WaitOver)
    }

    /// Whether there may be a [notification](Self::poll) or a [deadline](Self::next_deadline).
    #[inline]
    #[must_use]
    pub fn has_news(&self) -> bool {
        self.has_waits() || self.manager.locks.table.has_ends() || self.items.evicted.is_some()
    }

    /// Whether there is more to do than one [`Event::Tick`] does: then the next may come soon.
    #[must_use]
    pub fn wants_tick(&self) -> bool {
        self.manager.locks.table.has_handovers()
            || self.manager.wants_memory(&self.items.limits)
            || self.manager.wins.bound.has_line()
            || self.items.store.wants_crawl(self.items.clock.tick())
    }

    /// The bounds that it keeps to.
    #[must_use]
    pub const fn limits(&self) -> &Limits {
        &self.items.limits
    }

    /// The work that was done so far, besides one unit a command ([`crate::work`]): for a transport that shares its time
    /// among clients. The difference of two readings is the work between them.
    #[inline]
    #[must_use]
    pub fn work(&self) -> u64 {
        self.items
            .work
            .units()
            .saturating_add(self.items.store.work())
    }

    /// The table of locks.
    #[must_use]
    pub const fn locks(&self) -> &LockTable {
        &self.manager.locks.table
    }

    /// Where the items are.
    #[must_use]
    pub const fn store(&self) -> &S {
        &self.items.store
    }

    /// The time as the last event left it.
    #[must_use]
    pub const fn clock(&self) -> &Clock {
        &self.items.clock
    }

    /// When a `flush_all` is still to take effect.
    #[must_use]
    pub const fn flush_at(&self) -> Option<Instant> {
        self.items.flush_at
    }

    /// The item of a key as a client would find it now. Nothing is changed: for watchers, tests and models.
    pub fn peek(&self, key: Key<'_>) -> Option<(ItemHeader, &[u8])> {
        let slot = self.items.store.find(key).ok()?;
        let header = self.items.store.header(slot);
        let is_there = self.items.is_there(&self.manager, key, &header);
        let locked = self.manager.locks.table.owner(key).is_some();
        let win = self.manager.wins.mark(key, &header);
        let header = ItemHeader {
            win,
            locked,
            ..header
        };
        is_there.then(|| (header, self.items.store.value(slot)))
    }

    /// Whether a session leaves the place in a queue that it has, in this core or another, before its request is judged: for a
    /// transport over several cores, which passes [`Event::WaitsElsewhere`] to the core of the place. Ask it after
    /// [`Event::DueAt`].
    #[must_use]
    pub fn leaves_place(&self, owner: Owner, acquire: &Acquire<'_>) -> bool {
        let now = self.items.clock.now;
        self.manager.locks.leaves_place(owner, acquire, now)
    }

    /// Whether a request of `owner` would wait in a new place, or be refused, because of the holders of the lock or its waiters:
    /// for a transport over several cores, which must know it beforehand. Ask it after [`Event::DueAt`].
    #[must_use]
    pub fn would_contend(&self, owner: Owner, acquire: &Acquire<'_>) -> bool {
        let now = self.items.clock.now;
        self.manager.locks.would_contend(owner, acquire, now)
    }

    /// The lock that this request would wait for ([`would_deadlock`](crate::deadlock::would_deadlock)).
    #[must_use]
    pub fn sought<'a>(&self, acquire: &Acquire<'a>) -> Sought<'a> {
        self.manager.locks.sought(acquire, &self.items.limits)
    }

    /// The lock that `owner` waits for, unless its time is over.
    #[must_use]
    pub fn sought_by(&self, owner: Owner) -> Option<Sought<'_>> {
        let now = self.items.clock.now;
        self.manager.locks.queue.sought_by(owner, now)
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

    /// The locks and the bound wins that `owner` has in this core.
    #[must_use]
    pub fn held_here(&self, owner: Owner) -> Held {
        self.manager.held_here(owner)
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
        self.manager.next_deadline(self.items.clock.now)
    }

    /// The bytes that the tables of locks, waits and wins of this core take of the memory limit.
    #[must_use]
    pub const fn lock_memory_bytes(&self) -> usize {
        self.manager.table_bytes()
    }

    /// Whether nothing could be evicted for its part of all tables at the last [`Event::TablesSpread`]. Then the tables of no
    /// core should grow.
    #[must_use]
    pub const fn lacks_room_for_tables(&self) -> bool {
        self.manager.lacks_room_for_tables
    }
}
