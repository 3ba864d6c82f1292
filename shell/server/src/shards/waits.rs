//! Waiting for a lock or a value, over several shards.
//!
//! - D7: A thread looks for a deadlock, and begins the wait, while it has locked every shard. So of two requests that would
//!   complete a cycle, the second sees the first. Only a request that would wait locks them all.

use latchd_core::Instant;
use latchd_core::deadlock::would_deadlock;
use latchd_core::engine::{Event, Held};
use latchd_protocol::command::{Acquire, Get, ItemCommand, Lease, Wait};
use latchd_protocol::key::Key;
use latchd_protocol::reply::Reply;

use super::hold::Hold;
use super::session::ShardSet;
use super::{ShardCore, ShardSession, Shards};

/// The most wins checked before a get of a connection that has reached its limit of wins, over all other shards.
const WINS_SPARED: usize = 16;

/// Adds a millisecond to lease and wait. The clock shows whole milliseconds that have begun, so a span could otherwise end
/// almost a millisecond early, and a holder relies on the whole lease.
pub(super) fn never_early(acquire: &mut Acquire<'_>) {
    if let Some(Lease::For { ms }) = &mut acquire.lease {
        *ms = ms.saturating_add(1);
    }
    if let Wait::UpTo { ms: ms @ 1.. } = &mut acquire.wait {
        *ms = ms.saturating_add(1);
    }
}

impl Shards {
    /// A request for a lock that may wait for it.
    #[cold]
    pub(super) fn wait_for(
        &self,
        now: Instant,
        session: &mut ShardSession,
        acquire: Acquire<'_>,
        answer: &mut dyn FnMut(&Reply<'_>),
    ) {
        let shard = self.shard_of(acquire.key);
        self.count_again(now, session, shard);
        let mut core = self.core_for(now, session, shard, acquire.key);
        if core.leaves_place(session.owner, &acquire) {
            drop(core);
            self.leave_place(now, session);
            core = self.core_for(now, session, shard, acquire.key);
        }
        let waits = core.would_contend(session.owner, &acquire);
        // A single core finds its own cycles.
        if !waits || self.cores.len() == 1 {
            self.acquire(now, session, shard, &mut core, acquire, answer);
            drop(core);
            return self.spread_lock_memory(now);
        }
        drop(core);
        let mut cores = self.cores_at(now, ShardSet::ALL);
        for core in &mut cores {
            // Ended waits and leases are no part of a cycle.
            let before = core.work();
            core.handle(now, Event::DueFew);
            session.charge_since(before, core);
        }
        let places = self.waiters.places();
        let (chain, looks) = would_deadlock(
            session.owner,
            cores[shard].sought(&acquire),
            self.wait_chain_max,
            |key| cores[self.shard_of(key)].locks().grants_of(key),
            |conn| cores[places.shard_of(conn)?].sought_by(conn),
        );
        drop(places);
        session.work.charge(looks);
        let acquire = Acquire {
            wait: chain.judge(acquire.wait),
            ..acquire
        };
        self.acquire(now, session, shard, &mut cores[shard], acquire, answer);
        drop(cores);
        self.spread_lock_memory(now);
    }

    /// Locks the shard of a key, as it is now for a question about the lock of that key.
    fn core_for(
        &self,
        now: Instant,
        session: &mut ShardSession,
        shard: usize,
        key: Key<'_>,
    ) -> Hold<'_> {
        let mut core = self.core_at(now, shard);
        let before = core.work();
        core.handle(now, Event::DueAt(key));
        session.charge_since(before, &core);
        core
    }

    /// A session leaves the place in a queue that its last connection has left to it, in whichever shard that is. If another
    /// thread answers the request meanwhile, the place is left all the same.
    fn leave_place(&self, now: Instant, session: &mut ShardSession) {
        if let Some((shard, _)) = session.place.take() {
            let mut core = self.core_at(now, shard);
            let before = core.work();
            core.handle(now, Event::WaitsElsewhere(session.owner));
            session.charge_since(before, &core);
            self.waiters.leave(session.owner);
            session.note_held(shard, &core);
            self.lock_memory.publish(shard, &core);
        }
    }

    /// Registers a wait, while its shard is locked (G1).
    fn register(
        &self,
        now: Instant,
        session: &mut ShardSession,
        shard: usize,
        key: Option<Key<'_>>,
    ) {
        if session.owner.is_session() {
            let held = Held {
                locks: key.is_some().into(),
                wins: key.is_none().into(),
                ..Held::default()
            };
            session.place = Some((shard, held));
        }
        self.waiters
            .register(session.owner, session.address, shard, now, key);
    }

    /// Executes the request in the shard of its key, and registers the waiter if it has to wait.
    fn acquire(
        &self,
        now: Instant,
        session: &mut ShardSession,
        shard: usize,
        core: &mut Hold<'_>,
        acquire: Acquire<'_>,
        answer: &mut dyn FnMut(&Reply<'_>),
    ) {
        let command = ItemCommand::Acquire(acquire).into();
        let before = core.work();
        let reply = self.ask_holder(now, session, shard, core, &command);
        if let Reply::Waits = reply {
            self.register(now, session, shard, Some(acquire.key));
        }
        answer(&reply);
        session.charge_since(before, core);
        self.note_asked(session, shard, core);
    }

    /// A get that may wait. Its shard does all of that, except that a session leaves its place in a queue of another shard if
    /// the get waits. Its time limit ends every cycle with such a wait.
    #[cold]
    pub(super) fn wait_for_value(
        &self,
        now: Instant,
        session: &mut ShardSession,
        get: Get<'_>,
        look: impl FnOnce(&mut ShardCore),
        answer: &mut dyn FnMut(&Reply<'_>),
    ) {
        let shard = self.shard_of(get.key);
        self.update_wins(now, session, shard, get.key);
        let place = session.place.map(|(other, _)| other);
        let place = place.filter(|other| *other != shard);
        let mut set = ShardSet::default();
        set.insert(shard);
        if let Some(other) = place {
            set.insert(other);
        }
        let mut cores = self.cores_at(now, set);
        let at = usize::from(place.is_some_and(|other| other < shard));
        let core = &mut cores[at];
        let before = core.work();
        look(core);
        // As for locks, not a millisecond too early.
        let wait_ms = get.wait_ms.saturating_add(1);
        let get = Get { wait_ms, ..get };
        let get = get.into();
        let reply = self.ask_holder(now, session, shard, core, &get);
        let waits = matches!(reply, Reply::Waits);
        answer(&reply);
        session.charge_since(before, core);
        self.note_asked(session, shard, core);
        if waits {
            if let Some(other) = place {
                let core = &mut cores[1 - at];
                let before = core.work();
                core.handle(now, Event::WaitsElsewhere(session.owner));
                session.charge_since(before, core);
                session.note_held(other, core);
                self.lock_memory.publish(other, core);
            }
            self.register(now, session, shard, None);
        }
        drop(cores);
        self.spread_lock_memory(now);
    }

    /// Makes space for a win before a get that may bind one, or wait for one. If its connection has reached its limit of wins,
    /// a few of its wins in the other shards are checked: their items may be gone.
    pub(super) fn update_wins(
        &self,
        now: Instant,
        session: &mut ShardSession,
        shard: usize,
        key: Key<'_>,
    ) {
        if session.wins() < self.wins_max {
            return;
        }
        let wins_max = (WINS_SPARED / self.cores.len()).max(1);
        for other in 0..session.held.len() {
            if other != shard && (session.held[other].wins > 0 || session.has_place_in(other)) {
                let mut core = self.core_at(now, other);
                let before = core.work();
                let owner = session.owner;
                core.handle(
                    now,
                    Event::WinElsewhere {
                        owner,
                        key,
                        wins_max,
                    },
                );
                session.charge_since(before, &core);
                session.note_held(other, &core);
            }
        }
    }

    /// Ends the waits and leases that are due, in one shard after the other.
    pub(crate) fn pass(&self, now: Instant) {
        for shard in 0..self.cores.len() {
            let mut core = self.core_at(now, shard);
            core.handle(now, Event::Due);
            self.lock_memory.publish(shard, &core);
        }
    }
}
