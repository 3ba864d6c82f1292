//! A connection's state in the shards.

use bytes::Bytes;
use latchd_core::engine::Held;
use latchd_core::work::Meter;
use latchd_core::{ConnId, Owner};

use super::ShardCore;
use crate::clients::budget::Holder;

/// One connection's state in the shards. While it exists, the connection may hold locks.
#[derive(Debug)]
pub(crate) struct ShardSession {
    conn: ConnId,
    /// Its owner id in the shards.
    pub(super) owner: Owner,
    /// The address of notices about its ended waits.
    pub(super) address: Holder,
    /// The shards to which it was announced.
    pub(super) opened: ShardSet,
    /// Its locks and wins in each shard at its last command there (D4). Another connection may have released a lock since,
    /// by its fence. Empty until its first request for a lock.
    pub(super) held: Vec<Held>,
    /// A session's place in a queue: the shard of its last wait, and what the session will have if that is granted. Its
    /// client may have gone on to other commands meanwhile. `None` if that wait is known to be over.
    pub(super) place: Option<(usize, Held)>,
    /// During a turn, the buffer of the input, if a value may stay in it.
    pub(super) request: Option<Bytes>,
    /// The work of its commands, beyond one unit each.
    pub(super) work: Meter,
}

/// A set of shards.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct ShardSet(u64);

impl ShardSet {
    /// Every shard. Numbers above the last shard stand for none.
    pub(super) const ALL: Self = Self(u64::MAX);

    pub(super) fn contains(self, shard: usize) -> bool {
        self.0 & (1 << shard) != 0
    }

    pub(super) fn insert(&mut self, shard: usize) {
        self.0 |= 1 << shard;
    }

    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl ShardSession {
    /// The state of a connection without locks. Its id must be new.
    pub(crate) fn new(conn: ConnId, address: Holder) -> Self {
        Self {
            conn,
            owner: conn.into(),
            address,
            opened: ShardSet::default(),
            held: Vec::new(),
            place: None,
            request: None,
            work: Meter::new(),
        }
    }

    /// A session that has no lock yet, with its first connection.
    pub(crate) fn of_session(owner: Owner, conn: ConnId, address: Holder) -> Self {
        Self {
            owner,
            ..Self::new(conn, address)
        }
    }

    /// The session's requests come from this connection from now on.
    pub(crate) fn move_to(&mut self, conn: ConnId, address: Holder) {
        (self.conn, self.address) = (conn, address);
    }

    /// How many locks it holds in all shards, or may hold at any moment.
    #[inline]
    pub(super) fn locks(&self) -> usize {
        self.held_elsewhere(usize::MAX).locks
    }

    /// The number of wins that are bound to it, over all shards, or may be at any moment.
    pub(super) fn wins(&self) -> usize {
        self.held_elsewhere(usize::MAX).wins
    }

    /// Notes what it has in a shard now (D4).
    #[inline]
    pub(super) fn note_held(&mut self, shard: usize, core: &ShardCore) {
        self.held[shard] = core.held_here(self.owner);
        // While there are notices, one may be of its last wait.
        if self.has_place_in(shard) && !core.is_waiting(self.owner) && !core.has_notices() {
            self.place = None;
        }
    }

    /// Whether it may have a place in a queue of this shard.
    pub(super) fn has_place_in(&self, shard: usize) -> bool {
        self.place.is_some_and(|(at, _)| at == shard)
    }

    /// Whether a win is bound to it.
    pub(crate) fn has_wins(&self) -> bool {
        self.wins() > 0
    }

    /// The connection.
    pub(crate) fn conn(&self) -> ConnId {
        self.conn
    }

    /// The owner of its locks.
    pub(crate) const fn owner(&self) -> Owner {
        self.owner
    }

    /// Sets the buffer in which values of its requests may stay, or that they may not stay.
    #[inline]
    pub(crate) fn keep_in(&mut self, request: Option<Bytes>) {
        self.request = request;
    }

    /// Takes the work of its commands since the last call, beyond one unit each.
    #[inline]
    pub(crate) fn take_work(&mut self) -> u32 {
        if self.work.units() == 0 {
            return 0;
        }
        self.work.take()
    }

    /// Charges the work of a shard for it, since the shard's work was `before`.
    #[inline]
    pub(super) fn charge_since(&mut self, before: u64, core: &ShardCore) {
        charge_since(&mut self.work, before, core);
    }

    /// Its locks and wins in all shards except this one. A place there counts as what it is for.
    pub(super) fn held_elsewhere(&self, shard: usize) -> Held {
        let place = self.place.filter(|(at, _)| *at != shard);
        let place = place.map_or_else(Held::default, |(_, held)| held);
        let others = self.held.iter().enumerate();
        let others = others.filter(|(other, _)| *other != shard);
        others.fold(place, |sum, (_, held)| sum.with(*held))
    }

    /// Whether it has ever asked for a lock.
    pub(crate) fn may_hold(&self) -> bool {
        !self.opened.is_empty()
    }
}

/// Charges the work of a shard since it was `before`.
#[inline]
pub(super) fn charge_since(work: &mut Meter, before: u64, core: &ShardCore) {
    let units = core.work() - before;
    if units > 0 {
        work.charge(usize::try_from(units).unwrap_or(usize::MAX));
    }
}
