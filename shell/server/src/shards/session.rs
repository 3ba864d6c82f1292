//! What the shards know of a connection.

use bytes::Bytes;
use latchd_core::engine::Held;
use latchd_core::work::Meter;
use latchd_core::{ConnId, Owner};

use crate::clients::budget::Holder;

/// What the shards know of one connection: as long as it is there, it may hold locks.
#[derive(Debug)]
pub(crate) struct ShardSession {
    conn: ConnId,
    /// The owner that the shards know it by.
    pub(super) owner: Owner,
    /// Where it is told that it waits no more.
    pub(super) seat: Holder,
    pub(super) opened: ShardSet,
    /// What it holds in each shard, as it has last seen that (D4): another connection may have given
    /// a lock back there in the right of its grant. Empty as long as it has asked for none.
    pub(super) held: Vec<Held>,
    /// During a turn: what the input is kept in, if a value in it may stay there.
    pub(super) request: Option<Bytes>,
    /// The work that its commands were, besides a unit each.
    pub(super) work: Meter,
}

/// Some of the shards.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct ShardSet(pub(super) u64);

impl ShardSet {
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
    /// A connection that has no lock yet. Its id must be new.
    pub(crate) fn new(conn: ConnId, seat: Holder) -> Self {
        Self {
            conn,
            owner: conn.into(),
            seat,
            opened: ShardSet::default(),
            held: Vec::new(),
            request: None,
            work: Meter::new(),
        }
    }

    /// How many wins are bound to it in all shards.
    pub(super) fn wins(&self) -> usize {
        self.held.iter().map(|held| held.wins).sum()
    }

    /// The connection.
    pub(crate) fn conn(&self) -> ConnId {
        self.conn
    }

    /// The owner of its locks.
    pub(crate) const fn owner(&self) -> Owner {
        self.owner
    }

    /// Values that come in these bytes may stay there from now on; or they may not.
    #[inline]
    pub(crate) fn keep_in(&mut self, request: Option<Bytes>) {
        self.request = request;
    }

    /// The work that its commands were since the last call, besides a unit each.
    #[inline]
    pub(crate) fn take_work(&mut self) -> u32 {
        self.work.take()
    }

    /// Charges the work that was done in a shard for it.
    #[inline]
    pub(super) fn charge(&mut self, units: u32) {
        if units > 0 {
            self.work.charge(units as usize);
        }
    }

    /// What it holds in the shards but this one.
    pub(super) fn held_elsewhere(&self, shard: usize) -> Held {
        let others = self.held.iter().enumerate();
        let others = others.filter(|(other, _)| *other != shard);
        others.fold(Held::default(), |sum, (_, held)| sum.with(*held))
    }

    /// Whether it has ever asked for a lock.
    pub(crate) fn may_hold(&self) -> bool {
        !self.opened.is_empty()
    }
}
