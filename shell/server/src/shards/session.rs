//! A connection's state in the shards.

use std::sync::Arc;

use bytes::Bytes;
use latchd_core::sessions::Attachment;
use latchd_core::work::Meter;
use latchd_core::{ConnId, Owner};

use crate::clients::budget::Holder;

/// One connection's state in the shards. While it exists, the connection may hold locks.
#[derive(Debug)]
pub(crate) struct ShardSession {
    conn: ConnId,
    /// The owner of its locks: the connection, or its session.
    pub(super) owner: Owner,
    /// Its session, as long as it knows.
    pub(super) attachment: Option<Arc<Attachment>>,
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
            attachment: None,
            address,
            is_open: false,
            request: None,
            work: Meter::new(),
        }
    }

    /// The state of an owner that is a session without a table, for proofs.
    #[cfg(any(test, feature = "verify"))]
    pub(crate) fn of_session(owner: Owner, conn: ConnId, address: Holder) -> Self {
        Self {
            owner,
            ..Self::new(conn, address)
        }
    }

    /// The connection.
    pub(crate) fn conn(&self) -> ConnId {
        self.conn
    }

    /// The address of its worker's notices.
    pub(crate) const fn address(&self) -> Holder {
        self.address
    }

    /// The owner of its locks.
    pub(crate) const fn owner(&self) -> Owner {
        self.owner
    }

    /// Its session, as long as it knows.
    #[inline]
    pub(crate) const fn attachment(&self) -> Option<&Arc<Attachment>> {
        self.attachment.as_ref()
    }

    /// Whether another connection has its session, or the session has ended. Nothing is executed in it then (S5 of
    /// [`latchd_core::sessions`]).
    #[inline]
    pub(crate) fn has_lost(&self) -> bool {
        let attachment = self.attachment.as_ref();
        attachment.is_some_and(|attachment| !attachment.has(self.conn))
    }

    /// It is attached to this session from now on, or to none. It holds nothing of its own.
    pub(super) fn attach(&mut self, attachment: Option<Arc<Attachment>>) {
        let own = self.conn.into();
        self.owner = attachment.as_ref().map_or(own, |session| session.owner());
        // A new session is open in the manager, and the connection is not.
        self.is_open = attachment.is_some();
        self.attachment = attachment;
    }

    /// Acts as this session for one command, unless it is attached to it. Returns its own part, for
    /// [`act_again_as`](Self::act_again_as).
    pub(crate) fn act_as(&mut self, session: Owner) -> Option<(Owner, bool)> {
        let own = (self.owner, self.is_open);
        if session == self.owner {
            return None;
        }
        (self.owner, self.is_open) = (session, true);
        Some(own)
    }

    /// Acts as itself again.
    pub(crate) const fn act_again_as(&mut self, own: Option<(Owner, bool)>) {
        if let Some(own) = own {
            (self.owner, self.is_open) = own;
        }
    }

    /// Whether it has ever asked for a lock, or has a session.
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
