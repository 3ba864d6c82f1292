//! Sessions: owners that outlive their connections.
//!
//! A connection attaches to a session by its token; from then on the session owns what the connection acquires. The
//! session ends when its client has not been heard for its time, or when the client ends it. The table has no
//! clock: each call has its time.
//!
//! - S1: At most one connection is attached to a session.
//! - S3: A token whose session has ended resumes nothing: its next session has a new owner.
//! - S5: A connection that takes over is attached when the other connection has closed, and not before.
//! - S6: Sessions are bounded in number, in all and for each address; a token takes the same memory whatever its
//!   length.
//! - S7: A session belongs to the user that opened it. The table keeps a keyed hash of each token, never the token.
//! - S8: A session ends when its time has passed since its client was last heard, and not earlier, unless its client
//!   ends it.

use alloc::collections::{BTreeMap, BTreeSet};
use core::hash::Hasher;

use latchd_protocol::session::{Open, SessionRefusal, SessionReply, Token};
use latchd_protocol::time::Instant;
use latchd_protocol::{ConnId, Owner};
use siphasher::sip128::{Hasher128, SipHasher24};

use crate::store::HashSeed;

/// The bounds of a table (S6).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SessionLimits {
    /// The most sessions; 0 turns sessions off.
    pub sessions_max: usize,
    /// The most sessions that connections from one address have opened.
    pub per_address_max: usize,
}

impl Default for SessionLimits {
    /// 65,536 sessions, and 16,384 of one address.
    fn default() -> Self {
        Self {
            sessions_max: 65_536,
            per_address_max: 16_384,
        }
    }
}

/// The origin of a request about a session.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Asker {
    /// The connection.
    pub conn: ConnId,
    /// Its user, as [`Sessions::hash`] of the name; `None` if clients need not authenticate.
    pub user: Option<u128>,
    /// Its address, as a number of the transport's choice; for [`SessionLimits::per_address_max`].
    pub address: u128,
    /// The session that it is attached to.
    pub attached: Option<Owner>,
}

/// The connections of a session.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Attached {
    /// None.
    #[default]
    No,
    /// This one.
    To(ConnId),
    /// One that is to be closed; then `to`, if it is still there (S5).
    Moving {
        /// The connection to be closed.
        from: ConnId,
        /// The connection that waits for that.
        to: Option<ConnId>,
    },
}

impl Attached {
    /// The connection that executes requests of the session.
    #[must_use]
    pub const fn conn(self) -> Option<ConnId> {
        match self {
            Self::No => None,
            Self::To(conn) | Self::Moving { from: conn, .. } => Some(conn),
        }
    }

    /// The connection that waits for the session.
    #[must_use]
    pub const fn taker(self) -> Option<ConnId> {
        match self {
            Self::No | Self::To(_) => None,
            Self::Moving { to, .. } => to,
        }
    }
}

/// A session of a table.
#[derive(Clone, Debug)]
pub struct Session<S> {
    /// The owner that it is.
    pub owner: Owner,
    /// Its time, in milliseconds.
    pub ttl_ms: u64,
    /// The time at which its client was last heard, as far as the table was told.
    pub heard_at: Instant,
    /// The time at which it was opened.
    pub opened_at: Instant,
    /// Its connections.
    pub attached: Attached,
    /// The transport's state of it.
    pub state: S,
    user: Option<u128>,
    address: u128,
    /// Its entry among the deadlines.
    due_at: Instant,
}

impl<S> Session<S> {
    /// The time at which it ends if its client is not heard before.
    #[must_use]
    pub const fn ends_at(&self) -> Instant {
        Instant::from_millis(self.heard_at.as_millis().saturating_add(self.ttl_ms))
    }

    /// The time at which the table asks next whether its client was heard: not after [`Self::ends_at`].
    #[cfg(feature = "verify")]
    #[must_use]
    pub const fn due_at(&self) -> Instant {
        self.due_at
    }
}

/// The result of [`Sessions::open`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Opening {
    /// The reply.
    pub reply: SessionReply,
    /// The session that the connection is attached to, or waits for; `None` if the request was refused.
    pub owner: Option<Owner>,
    /// The connection to be closed, if there is one: it has lost the session, or waits for it in vain.
    pub closes: Option<ConnId>,
}

impl From<SessionReply> for Opening {
    fn from(reply: SessionReply) -> Self {
        Self {
            reply,
            owner: None,
            closes: None,
        }
    }
}

/// A session that has ended, by [`Sessions::end`] or [`Sessions::end_due`].
#[derive(Clone, Debug)]
pub struct EndedSession<S> {
    /// The owner that it was: its locks and wins end now.
    pub owner: Owner,
    /// The connection to be closed, if there is one.
    pub attached: Option<ConnId>,
    /// The connection that waits for the session, if there is one: it asks again.
    pub taker: Option<ConnId>,
    /// The transport's state of it.
    pub state: S,
}

/// The counters of a table.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct SessionCounters {
    /// Sessions that were opened.
    pub opened: u64,
    /// Requests that have resumed a session on another connection.
    pub resumed: u64,
    /// Sessions that ended because their clients were not heard.
    pub expired: u64,
    /// Sessions that their clients have ended.
    pub ended: u64,
    /// Requests that found no session to resume.
    pub missed: u64,
    /// Requests that were refused.
    pub refused: u64,
}

/// The sessions of a server. `S` is the state that a transport keeps of each.
#[derive(Clone, Debug)]
pub struct Sessions<S = ()> {
    seed: HashSeed,
    limits: SessionLimits,
    by_token: BTreeMap<u128, Session<S>>,
    by_owner: BTreeMap<Owner, u128>,
    /// The number of sessions of each address; never 0.
    by_address: BTreeMap<u128, usize>,
    /// A moment for each session, not after the moment at which it ends.
    due: BTreeSet<(Instant, Owner)>,
    counters: SessionCounters,
}

impl<S> Sessions<S> {
    /// A table without sessions. Nobody may know `seed` who chooses tokens.
    #[must_use]
    pub const fn new(limits: SessionLimits, seed: HashSeed) -> Self {
        Self {
            seed,
            limits,
            by_token: BTreeMap::new(),
            by_owner: BTreeMap::new(),
            by_address: BTreeMap::new(),
            due: BTreeSet::new(),
            counters: SessionCounters {
                opened: 0,
                resumed: 0,
                expired: 0,
                ended: 0,
                missed: 0,
                refused: 0,
            },
        }
    }

    /// The bounds.
    #[must_use]
    pub const fn limits(&self) -> SessionLimits {
        self.limits
    }

    /// A keyed hash of these bytes: a token or the name of a user.
    #[must_use]
    pub fn hash(&self, bytes: &[u8]) -> u128 {
        let [first, second] = self.seed;
        let mut hasher = SipHasher24::new_with_keys(first, second);
        hasher.write(bytes);
        hasher.finish128().as_u128()
    }

    /// Opens or resumes a session for a connection. `make` gives the owner that a new session is, which must never have
    /// been used, and the transport's state of it.
    ///
    /// A connection that the session is attached to already is heard, and the session has the new time; unless another
    /// connection takes it over, since it is to be closed then.
    pub fn open(
        &mut self,
        now: Instant,
        asker: Asker,
        open: Open<'_>,
        make: impl FnOnce() -> (Owner, S),
    ) -> Opening {
        let Open {
            token,
            ttl_ms,
            only_resumes,
        } = open;
        let hash = self.hash(token.as_bytes());
        if asker.attached.is_some()
            && asker.attached != self.by_token.get(&hash).map(|session| session.owner)
        {
            self.counters.refused += 1;
            return SessionReply::Refused(SessionRefusal::Attached).into();
        }
        let Some(session) = self.by_token.get_mut(&hash) else {
            if only_resumes {
                self.counters.missed += 1;
                return SessionReply::NotFound.into();
            }
            return self.open_new(now, asker, hash, ttl_ms, make);
        };
        if session.user != asker.user {
            self.counters.refused += 1;
            return SessionReply::Refused(SessionRefusal::OtherUser).into();
        }
        let owner = session.owner;
        let conn = asker.conn;
        if let Attached::Moving { from, .. } = session.attached
            && from == conn
        {
            // It has lost the session, and renews nothing: it is closed instead of answered.
            return Opening {
                reply: SessionReply::Waits,
                owner: Some(owner),
                closes: None,
            };
        }
        session.heard_at = session.heard_at.max(now);
        session.ttl_ms = ttl_ms;
        let resumed = SessionReply::Resumed(owner);
        let (attached, reply, closes) = match session.attached {
            Attached::No => {
                self.counters.resumed += 1;
                (Attached::To(conn), resumed, None)
            }
            Attached::To(own) if own == conn => (Attached::To(conn), resumed, None),
            Attached::To(from) => {
                self.counters.resumed += 1;
                let to = Some(conn);
                (
                    Attached::Moving { from, to },
                    SessionReply::Waits,
                    Some(from),
                )
            }
            Attached::Moving { from, to } => {
                let closes = to.filter(|to| *to != conn);
                let to = Some(conn);
                (Attached::Moving { from, to }, SessionReply::Waits, closes)
            }
        };
        session.attached = attached;
        let ends_at = session.ends_at();
        if ends_at < session.due_at {
            self.due.remove(&(session.due_at, owner));
            session.due_at = ends_at;
            self.due.insert((ends_at, owner));
        }
        Opening {
            reply,
            owner: Some(owner),
            closes,
        }
    }

    fn open_new(
        &mut self,
        now: Instant,
        asker: Asker,
        hash: u128,
        ttl_ms: u64,
        make: impl FnOnce() -> (Owner, S),
    ) -> Opening {
        let of_address = self.by_address.get(&asker.address).copied().unwrap_or(0);
        if self.by_token.len() >= self.limits.sessions_max
            || of_address >= self.limits.per_address_max
        {
            self.counters.refused += 1;
            let refusal = if self.limits.sessions_max == 0 {
                SessionRefusal::Off
            } else {
                SessionRefusal::TooMany
            };
            return SessionReply::Refused(refusal).into();
        }
        self.counters.opened += 1;
        let (owner, state) = make();
        let session = Session {
            owner,
            ttl_ms,
            heard_at: now,
            opened_at: now,
            attached: Attached::To(asker.conn),
            state,
            user: asker.user,
            address: asker.address,
            due_at: Instant::from_millis(now.as_millis().saturating_add(ttl_ms)),
        };
        self.due.insert((session.due_at, owner));
        self.by_owner.insert(owner, hash);
        self.by_address.insert(asker.address, of_address + 1);
        self.by_token.insert(hash, session);
        Opening {
            reply: SessionReply::Opened(owner),
            owner: Some(owner),
            closes: None,
        }
    }

    /// The session with this token, for a request in it.
    ///
    /// # Errors
    /// [`SessionRefusal::NoSession`], [`SessionRefusal::OtherUser`] and [`SessionRefusal::Attached`] as they say.
    pub fn find(&self, token: Token<'_>, asker: Asker) -> Result<&Session<S>, SessionRefusal> {
        let found = self.by_token.get(&self.hash(token.as_bytes()));
        let session = found.ok_or(SessionRefusal::NoSession)?;
        if session.user != asker.user {
            Err(SessionRefusal::OtherUser)
        } else if asker.attached.is_some_and(|own| own != session.owner) {
            Err(SessionRefusal::Attached)
        } else {
            Ok(session)
        }
    }

    /// The session that this owner is; `None` if it has ended.
    #[must_use]
    pub fn get(&self, owner: Owner) -> Option<&Session<S>> {
        self.by_token.get(self.by_owner.get(&owner)?)
    }

    /// The client of a session was heard at this moment.
    pub fn heard(&mut self, owner: Owner, at: Instant) {
        if let Some(session) = self.get_mut(owner) {
            session.heard_at = session.heard_at.max(at);
        }
    }

    /// A connection has closed that was attached to a session, or waited for it. Returns the connection that waits
    /// no longer (S5): it asks again, and is attached.
    pub fn detach(&mut self, owner: Owner, conn: ConnId) -> Option<ConnId> {
        let session = self.get_mut(owner)?;
        let (attached, told) = match session.attached {
            Attached::To(own) if own == conn => (Attached::No, None),
            Attached::Moving { from, to } if from == conn => {
                (to.map_or(Attached::No, Attached::To), to)
            }
            Attached::Moving { from, to } if to == Some(conn) => {
                (Attached::Moving { from, to: None }, None)
            }
            other @ (Attached::No | Attached::To(_) | Attached::Moving { .. }) => (other, None),
        };
        session.attached = attached;
        told
    }

    /// Ends the session with this token.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub fn end(
        &mut self,
        token: Token<'_>,
        asker: Asker,
    ) -> Result<EndedSession<S>, SessionRefusal> {
        let owner = match self.find(token, asker) {
            Ok(session) => session.owner,
            Err(refusal) => {
                if refusal == SessionRefusal::NoSession {
                    self.counters.missed += 1;
                } else {
                    self.counters.refused += 1;
                }
                return Err(refusal);
            }
        };
        self.counters.ended += 1;
        self.remove(owner).ok_or(SessionRefusal::NoSession)
    }

    /// The moment at which [`end_due`](Self::end_due) is to be called.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Ends the next session whose client has not been heard for its time by `now` (S8); `None` if there is none.
    ///
    /// `heard` returns the moment at which the client was last heard, if the transport knows of a later one than the
    /// table. It is asked once for each session that is due, and not again before another time of that session has
    /// passed: so a session costs nothing while its client is heard.
    pub fn end_due(
        &mut self,
        now: Instant,
        mut heard: impl FnMut(&Session<S>) -> Option<Instant>,
    ) -> Option<EndedSession<S>> {
        while let Some((at, owner)) = self.due.first().copied()
            && at <= now
        {
            let session = self.get_mut(owner).expect("each deadline is of a session");
            if let Some(at) = heard(session) {
                session.heard_at = session.heard_at.max(at);
            }
            let ends_at = session.ends_at();
            if ends_at <= now {
                self.counters.expired += 1;
                return self.remove(owner);
            }
            session.due_at = ends_at;
            self.due.remove(&(at, owner));
            self.due.insert((ends_at, owner));
        }
        None
    }

    fn remove(&mut self, owner: Owner) -> Option<EndedSession<S>> {
        let session = self.by_token.remove(&self.by_owner.remove(&owner)?)?;
        self.due.remove(&(session.due_at, owner));
        if let Some(count) = self.by_address.get_mut(&session.address) {
            *count -= 1;
            if *count == 0 {
                self.by_address.remove(&session.address);
            }
        }
        Some(EndedSession {
            owner,
            attached: session.attached.conn(),
            taker: session.attached.taker(),
            state: session.state,
        })
    }

    fn get_mut(&mut self, owner: Owner) -> Option<&mut Session<S>> {
        self.by_token.get_mut(self.by_owner.get(&owner)?)
    }

    /// The number of sessions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_owner.len()
    }

    /// Whether there is no session.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_owner.is_empty()
    }

    /// The sessions behind this owner, in the order of their owners.
    pub fn behind(&self, owner: Owner) -> impl Iterator<Item = &Session<S>> {
        let behind = (
            core::ops::Bound::Excluded(owner),
            core::ops::Bound::Unbounded,
        );
        self.by_owner
            .range(behind)
            .filter_map(|(_, hash)| self.by_token.get(hash))
    }

    /// The counters.
    #[must_use]
    pub const fn counters(&self) -> SessionCounters {
        self.counters
    }

    /// Sets the counters to 0.
    pub fn reset_counters(&mut self) {
        self.counters = SessionCounters::default();
    }

    /// S1 and S6: that the lists agree.
    ///
    /// # Panics
    /// If they do not.
    #[cfg(any(test, feature = "verify"))]
    pub fn check(&self) {
        assert_eq!(
            self.by_owner.len(),
            self.by_token.len(),
            "S6: one owner a token"
        );
        assert_eq!(
            self.due.len(),
            self.by_token.len(),
            "S8: one deadline a session"
        );
        assert!(self.by_token.len() <= self.limits.sessions_max, "S6");
        let mut conns = BTreeSet::new();
        for (owner, hash) in &self.by_owner {
            let session = &self.by_token[hash];
            assert_eq!(session.owner, *owner, "S1: the owner's session");
            assert!(
                session.due_at <= session.ends_at(),
                "S8: a deadline is not too late"
            );
            assert!(self.due.contains(&(session.due_at, *owner)), "S8");
            let (conn, taker) = (session.attached.conn(), session.attached.taker());
            for conn in conn.into_iter().chain(taker) {
                assert!(conns.insert(conn), "S1: a connection has one session");
            }
        }
        assert_eq!(
            self.by_address.values().sum::<usize>(),
            self.by_token.len(),
            "S6"
        );
    }
}

#[cfg(test)]
mod tests;
