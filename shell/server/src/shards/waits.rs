//! Waiting for a lock or a value, over several shards.
//!
//! - D7: A thread looks for a deadlock, and begins the wait, while it has locked every shard. So of two requests that would
//!   complete a cycle, the second sees the first. Only a request that would wait locks them all.

use latchd_core::Instant;
use latchd_core::command::{Acquire, Get, ItemCommand, Lease, Wait};
use latchd_core::engine::Event;
use latchd_core::key::Key;
use latchd_core::reply::Reply;
use latchd_core::wait::would_deadlock;

use super::hold::Hold;
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
        self.leave_other_queue(now, session, shard);
        self.count_again(now, session, shard);
        let mut core = self.core_at(now, shard);
        let waits = core.would_contend(now, session.owner, &acquire);
        // A single core finds its own cycles.
        if !waits || self.cores.len() == 1 {
            self.acquire(now, session, shard, &mut core, acquire, answer);
            drop(core);
            return self.spread_lock_memory(now);
        }
        drop(core);
        let mut cores = self.cores_at(now, self.all());
        for core in &mut cores {
            // Ended waits and leases are no part of a cycle.
            core.handle(now, Event::DueFew);
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

    /// Before a session may wait in a shard: it leaves the place in a queue of another shard that its last connection has
    /// left to it.
    fn leave_other_queue(&self, now: Instant, session: &ShardSession, shard: usize) {
        if !session.owner.is_session() {
            return;
        }
        let other = self.waiters.places().shard_of(session.owner);
        if let Some(other) = other.filter(|other| *other != shard) {
            let mut core = self.core_at(now, other);
            core.handle(now, Event::WaitsElsewhere(session.owner));
            self.waiters.leave(session.owner);
            self.lock_memory.publish(other, &core);
        }
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
        let reply = self.ask_holder(now, session, shard, core, &command);
        if let Reply::Waits = reply {
            let key = Some(acquire.key);
            self.waiters
                .register(session.owner, session.address, shard, now, key);
        }
        answer(&reply);
        session.charge(core.take_work());
        self.note_asked(session, shard, core);
    }

    /// A get that may wait. Its shard does all of that. Its time limit ends every cycle with such a wait.
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
        self.leave_other_queue(now, session, shard);
        self.update_wins(now, session, shard, get.key);
        let mut core = self.core_at(now, shard);
        look(&mut core);
        // As for locks, not a millisecond too early.
        let wait_ms = get.wait_ms.saturating_add(1);
        let get = Get { wait_ms, ..get };
        let get = get.into();
        let reply = self.ask_holder(now, session, shard, &mut core, &get);
        if let Reply::Waits = reply {
            self.waiters
                .register(session.owner, session.address, shard, now, None);
        }
        answer(&reply);
        session.charge(core.take_work());
        self.note_asked(session, shard, &core);
        drop(core);
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
        for other in 0..self.cores.len() {
            if other != shard && session.held[other].wins > 0 {
                let mut core = self.core_at(now, other);
                core.update_wins(now, session.owner, key, wins_max);
                session.held[other] = core.held_here(session.owner);
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
