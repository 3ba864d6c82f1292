//! Sessions: owners that outlive their connections.
//!
//! A connection attaches to a session by its token; from then on the session owns what the connection acquires. The
//! session ends when its client has not been heard for its time, or when the client ends it. The table has no
//! clock: each call has its time.
//!
//! - S1: At most one connection is attached to a session.
//! - S3: A token whose session has ended resumes nothing: its next session has a new owner.
//! - S5: A connection takes a session over in one step. The other connection executes nothing in it from then on, and is to be
//!   closed.
//! - S6: Sessions are bounded in number, in all and for each address; a token takes the same memory whatever its
//!   length.
//! - S7: A session belongs to the user that opened it. The table keeps a keyed hash of each token, never the token.
//! - S8: A session ends when its time has passed since its client was last heard, and not earlier, unless its client
//!   ends it. A client whose request waits is heard.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use core::hash::Hasher;
use core::sync::atomic::{AtomicU64, Ordering};

use latchd_protocol::session::{Open, SessionRefusal, SessionReply, Token};
use latchd_protocol::time::Instant;
use latchd_protocol::{ConnId, Owner};
use siphasher::sip128::{Hasher128, SipHasher24};

use crate::store::HashSeed;

/// How many sessions there may be at a time, by default.
pub const SESSIONS_MAX: usize = 65_536;

/// The bounds of a table (S6).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SessionLimits {
    /// The most sessions; 0 turns sessions off.
    pub sessions_max: usize,
    /// The most sessions that connections from one address have opened.
    pub per_address_max: usize,
}

impl Default for SessionLimits {
    /// [`SESSIONS_MAX`], and a quarter of that for one address.
    fn default() -> Self {
        Self {
            sessions_max: SESSIONS_MAX,
            per_address_max: SESSIONS_MAX / 4,
        }
    }
}

/// The origin of a request about a session.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Asker {
    /// The connection.
    pub conn: ConnId,
    /// The transport's way to it.
    pub route: Route,
    /// Its user, as [`Sessions::hash`] of the name; `None` if clients need not authenticate.
    pub user: Option<u128>,
    /// Its address, as a number of the transport's choice; for [`SessionLimits::per_address_max`].
    pub address: u128,
    /// The session that it is attached to, as far as it knows.
    pub attached: Option<Owner>,
}

/// A transport's way to a connection: two numbers of its choice.
pub type Route = [u64; 2];

/// A connection that has lost its session, and is to be closed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Lost {
    /// The connection.
    pub conn: ConnId,
    /// The transport's way to it.
    pub route: Route,
}

/// The part of a session that its connections read and write without the table.
///
/// Only the table changes the connection. A transport with several threads has the table behind a mutex. Each of its requests in
/// a session asks [`has`](Self::has) once it has locked all that it uses: so a connection that has lost the session executes
/// nothing in it (S5).
#[derive(Debug)]
pub struct Attachment {
    owner: Owner,
    /// The number of the attached connection; 0 is none.
    conn: AtomicU64,
    /// When the client was last heard, in milliseconds.
    heard_ms: AtomicU64,
}

impl Attachment {
    const fn new(owner: Owner, conn: ConnId, heard_at: Instant) -> Self {
        Self {
            owner,
            conn: AtomicU64::new(conn.number()),
            heard_ms: AtomicU64::new(heard_at.as_millis()),
        }
    }

    /// The session.
    #[must_use]
    pub const fn owner(&self) -> Owner {
        self.owner
    }

    /// Whether this connection is attached.
    #[inline]
    #[must_use]
    pub fn has(&self, conn: ConnId) -> bool {
        self.conn.load(Ordering::SeqCst) == conn.number()
    }

    /// The attached connection.
    #[must_use]
    pub fn conn(&self) -> Option<ConnId> {
        match self.conn.load(Ordering::SeqCst) {
            0 => None,
            number => Some(ConnId::from_number(number)),
        }
    }

    /// The client was heard at this moment, on any connection.
    pub fn note_heard(&self, at: Instant) {
        self.heard_ms.fetch_max(at.as_millis(), Ordering::SeqCst);
    }

    /// When the client was last heard.
    #[must_use]
    pub fn heard_at(&self) -> Instant {
        Instant::from_millis(self.heard_ms.load(Ordering::SeqCst))
    }

    fn set_conn(&self, conn: Option<ConnId>) {
        self.conn
            .store(conn.map_or(0, ConnId::number), Ordering::SeqCst);
    }
}

/// A session of a table.
#[derive(Debug)]
pub struct Session {
    /// Its time, in milliseconds.
    pub ttl_ms: u64,
    /// The time at which it was opened.
    pub opened_at: Instant,
    /// The request of the attached connection waits, so the client is heard.
    pub waits: bool,
    attachment: Arc<Attachment>,
    /// The way to the attached connection.
    route: Route,
    user: Option<u128>,
    address: u128,
    /// Its entry among the deadlines.
    due_at: Instant,
}

/// A copy has an attachment of its own: nothing is shared with the connections of the original.
impl Clone for Session {
    fn clone(&self) -> Self {
        let Self {
            ttl_ms,
            opened_at,
            waits,
            ref attachment,
            route,
            user,
            address,
            due_at,
        } = *self;
        let copy = Attachment::new(
            attachment.owner,
            ConnId::from_number(attachment.conn.load(Ordering::SeqCst)),
            attachment.heard_at(),
        );
        Self {
            ttl_ms,
            opened_at,
            waits,
            attachment: Arc::new(copy),
            route,
            user,
            address,
            due_at,
        }
    }
}

impl Session {
    /// The owner that it is.
    #[must_use]
    pub fn owner(&self) -> Owner {
        self.attachment.owner
    }

    /// The part of it that connections share.
    #[must_use]
    pub const fn attachment(&self) -> &Arc<Attachment> {
        &self.attachment
    }

    /// The time at which it ends if its client is not heard before; never while its client waits.
    #[must_use]
    pub fn ends_at(&self) -> Instant {
        self.attachment.heard_at().end_after(self.ttl_ms)
    }

    /// The time at which the table asks next whether its client was heard: not after [`Self::ends_at`].
    #[cfg(feature = "verify")]
    #[must_use]
    pub const fn due_at(&self) -> Instant {
        self.due_at
    }

    /// A client that waits is heard until `now`.
    fn hear_waiting(&self, now: Instant) {
        if self.waits {
            self.attachment.note_heard(now);
        }
    }

    /// Another connection is attached from now on, or none. Returns the one that was.
    fn move_to(&mut self, now: Instant, to: Option<&Asker>) -> Option<Lost> {
        let from = self.attachment.conn();
        let route = self.route;
        self.hear_waiting(now);
        self.waits = false;
        self.attachment.set_conn(to.map(|asker| asker.conn));
        self.route = to.map_or([0; 2], |asker| asker.route);
        from.map(|conn| Lost { conn, route })
    }
}

/// The result of a request about a session.
#[derive(Clone, Debug)]
pub struct SessionDone {
    /// The reply.
    pub reply: SessionReply,
    /// The session that the connection is attached to now, if it was opened or resumed.
    pub attachment: Option<Arc<Attachment>>,
    /// Another connection, which has lost the session by this.
    pub lost: Option<Lost>,
}

impl From<SessionReply> for SessionDone {
    fn from(reply: SessionReply) -> Self {
        Self {
            reply,
            attachment: None,
            lost: None,
        }
    }
}

/// A session that has ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct EndedSession {
    /// The owner that it was: its locks and wins end now.
    pub owner: Owner,
    /// The connection that was attached.
    pub lost: Option<Lost>,
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

/// The sessions of a server.
#[derive(Clone, Debug)]
pub struct Sessions {
    seed: HashSeed,
    limits: SessionLimits,
    by_token: BTreeMap<u128, Session>,
    by_owner: BTreeMap<Owner, u128>,
    /// The number of sessions of each address; never 0.
    by_address: BTreeMap<u128, usize>,
    /// A moment for each session, not after the moment at which it ends.
    due: BTreeSet<(Instant, Owner)>,
    /// The sessions with a connection.
    attached: usize,
    counters: SessionCounters,
}

impl Sessions {
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
            attached: 0,
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

    /// Opens or resumes a session for a connection, or takes it over from another one (S5). `number` gives the number of a new
    /// session, which no owner may have had.
    ///
    /// To be called when no session with this token is over ([`end_over`](Self::end_over)).
    pub fn open(
        &mut self,
        now: Instant,
        asker: Asker,
        open: Open<'_>,
        number: impl FnOnce() -> u64,
    ) -> SessionDone {
        let Open {
            token,
            ttl_ms,
            only_resumes,
        } = open;
        let hash = self.hash(token.as_bytes());
        let session = self.by_token.get_mut(&hash);
        if let Some(own) = asker.attached
            && session
                .as_ref()
                .is_none_or(|session| session.owner() != own)
        {
            return self.refuse(SessionRefusal::Attached).into();
        }
        let Some(session) = session else {
            if only_resumes {
                self.counters.missed += 1;
                return SessionReply::NotFound.into();
            }
            return self.open_new(now, asker, hash, ttl_ms, number);
        };
        if session.user != asker.user {
            return self.refuse(SessionRefusal::OtherUser).into();
        }
        let is_own = session.attachment.has(asker.conn);
        if asker.attached.is_some() && !is_own {
            // It renews nothing: it is about to be closed.
            return self.refuse(SessionRefusal::Lost).into();
        }
        let owner = session.owner();
        let mut lost = None;
        if !is_own {
            lost = session.move_to(now, Some(&asker));
            self.counters.resumed += 1;
            self.attached += usize::from(lost.is_none());
        }
        session.attachment.note_heard(now);
        session.ttl_ms = ttl_ms;
        let ends_at = session.ends_at();
        if ends_at < session.due_at {
            self.due.remove(&(session.due_at, owner));
            session.due_at = ends_at;
            self.due.insert((ends_at, owner));
        }
        SessionDone {
            reply: SessionReply::Resumed(owner),
            attachment: Some(Arc::clone(&session.attachment)),
            lost,
        }
    }

    fn open_new(
        &mut self,
        now: Instant,
        asker: Asker,
        hash: u128,
        ttl_ms: u64,
        number: impl FnOnce() -> u64,
    ) -> SessionDone {
        let of_address = self.by_address.get(&asker.address).copied().unwrap_or(0);
        if self.by_token.len() >= self.limits.sessions_max
            || of_address >= self.limits.per_address_max
        {
            let refusal = if self.limits.sessions_max == 0 {
                SessionRefusal::Off
            } else {
                SessionRefusal::TooMany
            };
            return self.refuse(refusal).into();
        }
        self.counters.opened += 1;
        self.attached += 1;
        let owner = Owner::of_session(number());
        let attachment = Arc::new(Attachment::new(owner, asker.conn, now));
        let session = Session {
            ttl_ms,
            opened_at: now,
            waits: false,
            attachment: Arc::clone(&attachment),
            route: asker.route,
            user: asker.user,
            address: asker.address,
            due_at: now.end_after(ttl_ms),
        };
        self.due.insert((session.due_at, owner));
        self.by_owner.insert(owner, hash);
        self.by_address.insert(asker.address, of_address + 1);
        self.by_token.insert(hash, session);
        SessionDone {
            reply: SessionReply::Opened(owner),
            attachment: Some(attachment),
            lost: None,
        }
    }

    const fn refuse(&mut self, refusal: SessionRefusal) -> SessionReply {
        self.counters.refused += 1;
        SessionReply::Refused(refusal)
    }

    /// The session with this token, for a request in it.
    ///
    /// # Errors
    /// [`SessionRefusal::NoSession`]; [`SessionRefusal::OtherUser`]; [`SessionRefusal::Attached`]; [`SessionRefusal::Lost`].
    pub fn find(&self, token: Token<'_>, asker: Asker) -> Result<&Session, SessionRefusal> {
        let found = self.by_token.get(&self.hash(token.as_bytes()));
        let session = found.ok_or(SessionRefusal::NoSession)?;
        if session.user != asker.user {
            Err(SessionRefusal::OtherUser)
        } else if asker.attached.is_some_and(|own| own != session.owner()) {
            Err(SessionRefusal::Attached)
        } else if asker.attached.is_some() && !session.attachment.has(asker.conn) {
            Err(SessionRefusal::Lost)
        } else {
            Ok(session)
        }
    }

    /// The session that this owner is; `None` if it has ended.
    #[must_use]
    pub fn get(&self, owner: Owner) -> Option<&Session> {
        self.by_token.get(self.by_owner.get(&owner)?)
    }

    /// The request of the attached connection waits from now on.
    pub fn begin_wait(&mut self, owner: Owner) {
        if let Some(session) = self.get_mut(owner) {
            session.waits = true;
        }
    }

    /// Its wait is over.
    pub fn end_wait(&mut self, now: Instant, owner: Owner) {
        if let Some(session) = self.get_mut(owner) {
            session.hear_waiting(now);
            session.waits = false;
        }
    }

    /// A connection has closed. Nothing changes if it is not attached.
    pub fn detach(&mut self, now: Instant, owner: Owner, conn: ConnId) {
        if let Some(session) = self.get_mut(owner)
            && session.attachment.has(conn)
        {
            session.move_to(now, None);
            self.attached -= 1;
        }
    }

    /// Ends the session with this token, by its client.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub fn end(&mut self, token: Token<'_>, asker: Asker) -> Result<EndedSession, SessionRefusal> {
        let owner = match self.find(token, asker) {
            Ok(session) => session.owner(),
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
    #[inline]
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Ends the session with this token if its time is over (S8).
    pub fn end_over(&mut self, now: Instant, token: Token<'_>) -> Option<EndedSession> {
        let session = self.by_token.get(&self.hash(token.as_bytes()))?;
        session.hear_waiting(now);
        if session.ends_at() > now {
            return None;
        }
        let owner = session.owner();
        self.counters.expired += 1;
        self.remove(owner)
    }

    /// Ends the next session whose client has not been heard for its time by `now` (S8); `None` if there is none.
    ///
    /// A session that is due is asked once when its client was heard, and not again before its time has passed since then: so
    /// it costs nothing while its client is heard.
    pub fn end_due(&mut self, now: Instant) -> Option<EndedSession> {
        while let Some((at, owner)) = self.due.first().copied()
            && at <= now
        {
            let session = self.get_mut(owner).expect("each deadline is of a session");
            session.hear_waiting(now);
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

    fn remove(&mut self, owner: Owner) -> Option<EndedSession> {
        let mut session = self.by_token.remove(&self.by_owner.remove(&owner)?)?;
        self.due.remove(&(session.due_at, owner));
        if let Some(count) = self.by_address.get_mut(&session.address) {
            *count -= 1;
            if *count == 0 {
                self.by_address.remove(&session.address);
            }
        }
        session.waits = false;
        let lost = session.move_to(Instant::default(), None);
        self.attached -= usize::from(lost.is_some());
        Some(EndedSession { owner, lost })
    }

    fn get_mut(&mut self, owner: Owner) -> Option<&mut Session> {
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

    /// The number of sessions with a connection.
    #[must_use]
    pub const fn attached(&self) -> usize {
        self.attached
    }

    /// The sessions behind this owner, in the order of their owners.
    pub fn behind(&self, owner: Owner) -> impl Iterator<Item = &Session> {
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
            assert_eq!(session.owner(), *owner, "S1: the owner's session");
            assert!(
                session.due_at <= session.ends_at(),
                "S8: a deadline is not too late"
            );
            assert!(self.due.contains(&(session.due_at, *owner)), "S8");
            let conn = session.attachment.conn();
            assert!(conn.is_some() || !session.waits, "S8: a connection waits");
            if let Some(conn) = conn {
                assert!(conns.insert(conn), "S1: a connection has one session");
            }
        }
        assert_eq!(self.attached, conns.len(), "S1: each attachment is counted");
        assert_eq!(
            self.by_address.values().sum::<usize>(),
            self.by_token.len(),
            "S6"
        );
    }
}

#[cfg(test)]
mod tests;
