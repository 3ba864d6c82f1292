//! A connection's state in the shards.

use bytes::Bytes;
use latchd_core::work::Meter;
use latchd_core::{ConnId, Owner};

use crate::clients::budget::Holder;

/// One connection's state in the shards. While it exists, the connection may hold locks.
#[derive(Debug)]
pub(crate) struct ShardSession {
    conn: ConnId,
    /// The owner of its locks.
    pub(super) owner: Owner,
    /// The address of notices about its ended waits.
    pub(super) address: Holder,
    /// The lock manager knows its owner.
    pub(super) is_open: bool,
    /// During a turn, the buffer of the input, if a value may stay in it.
    pub(super) request: Option<Bytes>,
    /// The work of its commands, beyond one unit each.
    pub(super) work: Meter,
}

impl ShardSession {
    /// The state of a connection without locks. Its id must be new.
    pub(crate) fn new(conn: ConnId, address: Holder) -> Self {
        Self {
            conn,
            owner: conn.into(),
            address,
            is_open: false,
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

    /// The connection.
    pub(crate) fn conn(&self) -> ConnId {
        self.conn
    }

    /// The owner of its locks.
    pub(crate) const fn owner(&self) -> Owner {
        self.owner
    }

    /// Whether it has ever asked for a lock.
    pub(crate) const fn may_hold(&self) -> bool {
        self.is_open
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

    /// Charges units of work, as two readings of a counter tell them.
    #[inline]
    pub(super) fn charge(&mut self, before: u64, after: u64) {
        let units = after - before;
        if units > 0 {
            self.work
                .charge(usize::try_from(units).unwrap_or(usize::MAX));
        }
    }
}
