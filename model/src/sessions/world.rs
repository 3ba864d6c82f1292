//! One state: the table, the core, the connections as their transport knows them, and the expected state.

use std::mem;

use latchd_core::command::{Acquire, Command, ItemCommand, Release, Wait};
use latchd_core::engine::{Config, Core, Event, Held, Notification};
use latchd_core::execute::Execute as _;
use latchd_core::key::Key;
use latchd_core::reply::Reply;
use latchd_core::server::visit::{self, Membership, Visit};
use latchd_core::sessions::{
    Asker, SessionAction, SessionLimits, SessionRefusal, SessionReply, SessionRequest, Sessions,
    Token,
};
use latchd_core::store::MapStore;
use latchd_core::{ConnId, Instant, Limits, Owner};

use super::{Bounds, CONNS, Happening, MANY, STEP_MS, TTL_S, Witness};
use crate::frame::{Judged, Shown, must};

const KEYS: [&[u8]; MANY] = [b"k", b"l"];

const TOKENS: [&[u8]; MANY] = [b"0123456789abcdef", b"0123456789abcdefg"];

/// A user that has opened no session.
const STRANGER: Option<u128> = Some(1);

/// A connection, as its transport knows it.
#[derive(Clone, Debug, Default)]
struct Conn {
    id: Option<ConnId>,
    membership: Membership,
    parked: Option<Parked>,
    /// It is to be closed, since it has lost its session.
    is_doomed: bool,
}

/// A request that waits.
#[derive(Clone, Copy, Debug)]
enum Parked {
    /// For the lock of this key.
    Lock(usize),
    /// For the session; `is_told`: it asks again.
    Session {
        token: usize,
        only_resumes: bool,
        is_told: bool,
    },
}

/// A session, as replies say.
#[derive(Clone, Copy, Debug)]
struct Known {
    owner: Owner,
    attached: Option<usize>,
    taker: Option<usize>,
    heard_ms: u64,
}

/// An owner of locks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Who {
    Conn(usize),
    Session(usize),
}

/// The lock of a key, as replies say.
#[derive(Clone, Debug, Default)]
struct Lock {
    holder: Option<Who>,
    /// The waiters in order of arrival, and when their waits end.
    line: Vec<(Who, u64)>,
    fence: u64,
    /// It was granted to a session without a connection.
    is_unseen: bool,
}

/// A reply, as far as it says anything here.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Got {
    Granted(u64),
    Contended,
    Deadlock,
    Waits,
    Released,
    NotFound,
    Other,
}

/// A state.
#[derive(Clone, Debug)]
pub struct World {
    core: Core<MapStore>,
    sessions: Sessions,
    numbers: u64,
    conns: [Conn; CONNS],
    known: [Option<Known>; MANY],
    locks: [Lock; MANY],
    now_ms: u64,
    /// Whether a session of each token has ended.
    has_ended: [bool; MANY],
    /// The witnesses of the last step.
    pub(super) seen: Shown,
}

fn key_of(key: usize) -> Key<'static> {
    Key::new(KEYS[key]).expect("it has one byte")
}

fn token_of(token: usize) -> Token<'static> {
    Token::new(TOKENS[token]).expect("it is long enough")
}

fn got(reply: &Reply<'_>) -> Got {
    match reply {
        Reply::Granted(granted) => Got::Granted(granted.fence.number()),
        Reply::Contended(_) => Got::Contended,
        Reply::WouldDeadlock(_) => Got::Deadlock,
        Reply::Waits => Got::Waits,
        Reply::Unlocked => Got::Released,
        Reply::NotFound => Got::NotFound,
        Reply::Hit(_)
        | Reply::Miss
        | Reply::Stored(_)
        | Reply::NotStored
        | Reply::Exists
        | Reply::Deleted
        | Reply::Number(_)
        | Reply::Locked
        | Reply::Ok
        | Reply::Keys(_)
        | Reply::Stats(_)
        | Reply::Refused(_) => Got::Other,
    }
}

fn release(key: usize) -> Command<'static> {
    ItemCommand::Release(Release::new(key_of(key))).into()
}

fn acquire(key: usize, wait: Wait) -> Command<'static> {
    let acquire = Acquire {
        wait,
        ..Acquire::new(key_of(key))
    };
    ItemCommand::Acquire(acquire).into()
}

impl World {
    pub(super) fn new() -> Self {
        Self {
            core: Core::reference(Config::new(Limits::new(1 << 20, 16), 0)),
            sessions: Sessions::new(SessionLimits::default(), [0, 0]),
            numbers: 0,
            conns: Default::default(),
            known: [None; MANY],
            locks: Default::default(),
            now_ms: 0,
            has_ended: [false; MANY],
            seen: Shown::default(),
        }
    }

    pub(super) fn happenings(&self, bounds: &Bounds, all: &mut Vec<Happening>) {
        let mut push = |word, conn, token, key| {
            all.push(Happening {
                word,
                conn,
                token,
                key,
            });
        };
        push("time", 0, 0, 0);
        for token in 0..bounds.tokens {
            if self.known[token].is_some() {
                push("stranger", 0, token, 0);
            }
        }
        for (conn, one) in self.conns.iter().enumerate() {
            if one.id.is_none() {
                push("open", conn, 0, 0);
                continue;
            }
            push("close", conn, 0, 0);
            // One without a session has nothing to execute any more.
            if one.is_doomed && self.attached_to(conn).is_none() {
                continue;
            }
            match one.parked {
                Some(Parked::Session { is_told: true, .. }) => push("again", conn, 0, 0),
                Some(_) => {}
                None => {
                    for word in bounds.words.split(", ") {
                        let (tokens, keys) = match word {
                            "mo" | "mo x" | "mo T0" => (bounds.tokens, 1),
                            "ml j" | "mu j" => (bounds.tokens, bounds.keys),
                            _ => (1, bounds.keys),
                        };
                        for token in 0..tokens {
                            (0..keys).for_each(|key| push(word, conn, token, key));
                        }
                    }
                }
            }
        }
    }

    pub(super) fn happen(&mut self, bounds: &Bounds, happening: Happening) -> Judged {
        let Happening {
            word,
            conn,
            token,
            key,
        } = happening;
        self.seen = Shown::default();
        match word {
            "time" => self.pass(),
            "stranger" => self.stranger(token)?,
            "open" => {
                self.numbers += 1;
                let id = ConnId::from_number(self.numbers);
                self.conns[conn].id = Some(id);
                self.core.handle(self.now(), Event::Opened(id.into()));
            }
            "close" => self.close(conn),
            "again" => {
                if let Some(Parked::Session {
                    token,
                    only_resumes,
                    ..
                }) = self.conns[conn].parked.take()
                {
                    self.open(conn, token, only_resumes)?;
                }
            }
            "mo" => self.open(conn, token, false)?,
            "mo x" => self.open(conn, token, true)?,
            "mo T0" => self.end(conn, token)?,
            "ml" => self.lock(conn, None, key, Wait::No)?,
            "ml w" => self.lock(conn, None, key, Wait::UpTo { ms: bounds.wait_ms })?,
            "mu" => self.unlock(conn, None, key)?,
            "ml j" => self.lock(conn, Some(token), key, Wait::No)?,
            "mu j" => self.unlock(conn, Some(token), key)?,
            word => return Err(format!("M: nobody knows {word}")),
        }
        self.deliver()?;
        self.judge()
    }

    fn now(&self) -> Instant {
        Instant::from_millis(self.now_ms)
    }

    fn id(&self, conn: usize) -> ConnId {
        self.conns[conn].id.expect("it is open")
    }

    fn conn_of(&self, id: ConnId) -> Option<usize> {
        self.conns.iter().position(|conn| conn.id == Some(id))
    }

    /// The session that a connection is attached to, as replies say.
    fn attached_to(&self, conn: usize) -> Option<usize> {
        let is_it = |known: &Option<Known>| known.is_some_and(|it| it.attached == Some(conn));
        self.known.iter().position(is_it)
    }

    fn owner(&self, who: Who) -> Option<Owner> {
        match who {
            Who::Conn(conn) => self.conns[conn].id.map(Owner::from),
            Who::Session(token) => self.known[token].map(|known| known.owner),
        }
    }

    /// The connection whose request the wait of an owner would be.
    fn conn_for(&self, who: Who) -> Option<usize> {
        match who {
            Who::Conn(conn) => Some(conn),
            Who::Session(token) => self.known[token]?.attached,
        }
    }

    /// Executes something for a connection, and does what is to be done then.
    fn visit<R>(
        &mut self,
        conn: usize,
        call: impl FnOnce(&mut Visit<'_, Core<MapStore>>) -> R,
    ) -> R {
        if let Some(known) = self.attached_to(conn) {
            self.hear(known);
        }
        let (now, id) = (self.now(), self.id(conn));
        let mut visit = Visit::new(
            &mut self.core,
            &mut self.sessions,
            &mut self.numbers,
            now,
            (id, None),
            self.conns[conn].membership,
        );
        let result = call(&mut visit);
        let Visit {
            session,
            closes,
            told,
            ..
        } = visit;
        self.conns[conn].membership = session;
        for id in closes {
            self.doom(id);
        }
        for id in told {
            self.tell(id);
        }
        result
    }

    fn hear(&mut self, token: usize) {
        if let Some(known) = &mut self.known[token] {
            known.heard_ms = self.now_ms;
        }
    }

    fn doom(&mut self, id: ConnId) {
        if let Some(conn) = self.conn_of(id) {
            self.conns[conn].is_doomed = true;
        }
    }

    /// A connection that waits for a session asks again.
    fn tell(&mut self, id: ConnId) {
        if let Some(conn) = self.conn_of(id)
            && let Some(Parked::Session { is_told, .. }) = &mut self.conns[conn].parked
        {
            *is_told = true;
        }
    }

    /// Tells connections that their waits for locks are over. They ask again at once.
    fn deliver(&mut self) -> Judged {
        while let Some(notification) = self.core.poll() {
            let Notification::WaitOver(notice) = notification else {
                continue;
            };
            let conn = visit::told(&self.sessions, notice.owner);
            if let Some(conn) = conn.and_then(|id| self.conn_of(id))
                && let Some(Parked::Lock(key)) = self.conns[conn].parked
            {
                self.conns[conn].parked = None;
                self.lock(conn, None, key, Wait::No)?;
            }
        }
        Ok(())
    }

    /// A step of time: what is over ends at its moment.
    fn pass(&mut self) {
        self.now_ms += STEP_MS;
        let (now, now_ms) = (self.now(), self.now_ms);
        let is_over = |known: &Known| known.heard_ms + u64::from(TTL_S) * STEP_MS <= now_ms;
        for lock in &mut self.locks {
            lock.line.retain(|(_, until_ms)| *until_ms > now_ms);
        }
        for token in 0..MANY {
            let Some(known) = self.known[token] else {
                continue;
            };
            let waits = |conn: usize| self.conns[conn].parked.is_some();
            if known.attached.is_some_and(waits) {
                if is_over(&known) {
                    self.seen.add(Witness::WaitIsHeard);
                }
                self.hear(token);
            } else if is_over(&known) {
                let holds = |lock: &Lock| lock.holder == Some(Who::Session(token));
                if self.locks.iter().any(holds) {
                    self.seen.add(Witness::Expires);
                }
                self.forget(token, None);
            } else if known.attached.is_none() && self.has_lost_place(token) {
                self.seen.add(Witness::PlaceEnds);
            }
        }
        let waiting: Vec<ConnId> = self
            .conns
            .iter()
            .filter(|conn| conn.parked.is_some())
            .filter_map(|conn| conn.id)
            .collect();
        let waits = |id| waiting.contains(&id);
        while let Some((attached, taker)) =
            visit::end_due(&mut self.core, &mut self.sessions, now, waits)
        {
            if let Some(id) = attached {
                self.doom(id);
            }
            if let Some(id) = taker {
                self.tell(id);
            }
        }
        self.core.handle(now, Event::Due);
        // A connection whose session has ended has no part in it.
        for conn in 0..CONNS {
            if self.conns[conn].is_doomed && self.attached_to(conn).is_none() {
                self.conns[conn].membership = Membership::No;
            }
        }
    }

    /// Whether the core still knows of a place in a queue that this session has lost just now.
    fn has_lost_place(&self, token: usize) -> bool {
        let Some(owner) = self.owner(Who::Session(token)) else {
            return false;
        };
        let is_expected = self
            .locks
            .iter()
            .any(|lock| lock.line.iter().any(|(who, _)| *who == Who::Session(token)));
        self.core.sought_by(owner).is_some() && !is_expected
    }

    /// A session has ended, as expected; `by` is the connection that has ended it.
    fn forget(&mut self, token: usize, by: Option<usize>) {
        self.has_ended[token] = true;
        self.leave_places(Who::Session(token));
        for key in 0..MANY {
            if self.locks[key].holder == Some(Who::Session(token)) {
                self.hand_over(key);
                if self.locks[key].holder.is_some() {
                    self.seen.add(Witness::HandedOver);
                }
            }
        }
        if let Some(known) = self.known[token].take() {
            if known.taker.is_some() && known.attached.is_some() {
                self.seen.add(Witness::EndsWhileTaken);
            }
            if let Some(conn) = known.attached.filter(|conn| by != Some(*conn)) {
                // What it waits for, it waits for in vain.
                self.conns[conn].parked = self.conns[conn]
                    .parked
                    .filter(|parked| matches!(parked, Parked::Session { .. }));
            }
        }
    }

    fn leave_places(&mut self, who: Who) {
        for lock in &mut self.locks {
            lock.line.retain(|(waiter, _)| *waiter != who);
        }
    }

    /// The next waiter has the lock, if there is one.
    fn hand_over(&mut self, key: usize) {
        let next = (!self.locks[key].line.is_empty()).then(|| self.locks[key].line.remove(0).0);
        let conn = next.and_then(|who| self.conn_for(who));
        let waits = conn.is_some_and(
            |conn| matches!(self.conns[conn].parked, Some(Parked::Lock(it)) if it == key),
        );
        let lock = &mut self.locks[key];
        lock.holder = next;
        lock.is_unseen = next.is_some() && !waits;
    }

    /// A connection closes: by its client, or since it has lost its session.
    fn close(&mut self, conn: usize) {
        let (now, id) = (self.now(), self.id(conn));
        let one = mem::take(&mut self.conns[conn]);
        let taken = one.membership.owner();
        if let Some(Parked::Session { .. }) = one.parked {
            self.seen.add(Witness::TakerGoes);
        }
        for key in 0..MANY {
            if self.locks[key].holder == Some(Who::Conn(conn)) {
                self.hand_over(key);
            }
        }
        self.leave_places(Who::Conn(conn));
        for token in 0..MANY {
            let Some(known) = &mut self.known[token] else {
                continue;
            };
            if Some(known.owner) != taken {
                continue;
            }
            if one.parked.is_some() {
                known.heard_ms = self.now_ms;
            }
            if known.attached == Some(conn) {
                known.attached = known.taker.take();
            } else if known.taker == Some(conn) {
                known.taker = None;
            }
        }
        let (core, sessions) = (&mut self.core, &mut self.sessions);
        let waits = one.parked.is_some();
        if let Some(taker) = visit::leave(core, sessions, now, id, one.membership, waits) {
            self.tell(taker);
        }
    }

    /// `mo`, of a connection that may have asked before.
    fn open(&mut self, conn: usize, token: usize, only_resumes: bool) -> Judged {
        let request = SessionRequest {
            token: token_of(token),
            action: SessionAction::Open {
                seconds: TTL_S,
                only_resumes,
            },
        };
        let reply = self.visit(conn, |visit| visit.session(request));
        let attached = self.attached_to(conn);
        let holds = |lock: &Lock| lock.holder == Some(Who::Conn(conn));
        let due = if attached.is_some_and(|own| own != token) {
            SessionReply::Refused(SessionRefusal::Attached)
        } else if attached.is_none() && self.locks.iter().any(holds) {
            SessionReply::Refused(SessionRefusal::Holds)
        } else if let Some(known) = &mut self.known[token] {
            let had = known.attached;
            let is_doomed = self.conns[conn].is_doomed;
            if had.is_none() || had == Some(conn) && !is_doomed {
                known.attached = Some(conn);
                known.heard_ms = self.now_ms;
                SessionReply::Resumed(known.owner)
            } else {
                if had == Some(conn) {
                    self.seen.add(Witness::LoserAsks);
                } else {
                    let lost = known.taker.replace(conn).or(had);
                    known.heard_ms = self.now_ms;
                    self.seen.add(Witness::TakenOver);
                    let is_doomed = lost.is_some_and(|lost| self.conns[lost].is_doomed);
                    must(is_doomed, "S5: a connection that has lost is not closed")?;
                }
                self.conns[conn].parked = Some(Parked::Session {
                    token,
                    only_resumes,
                    is_told: false,
                });
                SessionReply::Waits
            }
        } else if only_resumes {
            SessionReply::NotFound
        } else {
            let owner = Owner::of_session(self.numbers);
            if self.has_ended[token] {
                self.seen.add(Witness::OpenedAgain);
            }
            let is_empty = self.core.held_here(owner) == Held::default();
            must(is_empty, "S3: a new session holds something")?;
            self.known[token] = Some(Known {
                owner,
                attached: Some(conn),
                taker: None,
                heard_ms: self.now_ms,
            });
            SessionReply::Opened(owner)
        };
        let word = if only_resumes { "mo x" } else { "mo" };
        self.seen.add(Witness::of_pair(word, reply)?);
        same(reply, due, "S3, S5")
    }

    /// `mo … T0`.
    fn end(&mut self, conn: usize, token: usize) -> Judged {
        let request = SessionRequest {
            token: token_of(token),
            action: SessionAction::End,
        };
        let reply = self.visit(conn, |visit| visit.session(request));
        let attached = self.attached_to(conn);
        let due = match self.known[token] {
            None => SessionReply::NotFound,
            Some(_) if attached.is_some_and(|own| own != token) => {
                SessionReply::Refused(SessionRefusal::Attached)
            }
            Some(known) => {
                self.forget(token, Some(conn));
                if let Some(other) = known.attached.filter(|other| *other != conn) {
                    let is_doomed = self.conns[other].is_doomed;
                    must(
                        is_doomed,
                        "S5: a connection without its session is not closed",
                    )?;
                    self.conns[other].membership = Membership::No;
                }
                SessionReply::Ended
            }
        };
        self.seen.add(Witness::of_pair("mo T0", reply)?);
        same(reply, due, "S3")
    }

    /// Another user tries everything.
    fn stranger(&mut self, token: usize) -> Judged {
        let (now, id) = (self.now(), ConnId::from_number(u64::MAX >> 1));
        let mut visit = Visit::new(
            &mut self.core,
            &mut self.sessions,
            &mut self.numbers,
            now,
            (id, STRANGER),
            Membership::No,
        );
        let token = token_of(token);
        let refused = SessionReply::Refused(SessionRefusal::OtherUser);
        for (seconds, only_resumes) in [(TTL_S, false), (TTL_S, true)] {
            let action = SessionAction::Open {
                seconds,
                only_resumes,
            };
            same(
                visit.session(SessionRequest { token, action }),
                refused,
                "S7",
            )?;
        }
        let action = SessionAction::End;
        same(
            visit.session(SessionRequest { token, action }),
            refused,
            "S7",
        )?;
        let done = visit.execute_as(token, &release(0), &mut |_| {});
        must(done == Err(SessionRefusal::OtherUser), "S7: is let in")?;
        self.seen.add(Witness::OtherUser);
        Ok(())
    }

    /// Asks for a key as the connection, as its session, or as the session of this token (`j`). Returns as whom, and the
    /// reply; `None` if it is refused as it must.
    fn ask(
        &mut self,
        conn: usize,
        token: Option<usize>,
        command: &Command<'_>,
    ) -> Result<Option<(Who, Got)>, String> {
        let own = self.attached_to(conn);
        let mut seen = None;
        let mut answer = |reply: &Reply<'_>| seen = Some(got(reply));
        let Some(token) = token else {
            self.visit(conn, |visit| visit.execute(command, &mut answer));
            let who = own.map_or(Who::Conn(conn), Who::Session);
            return Ok(seen.map(|got| (who, got)));
        };
        let done = self.visit(conn, |visit| {
            visit.execute_as(token_of(token), command, &mut answer)
        });
        let due = match self.known[token] {
            None => Err(SessionRefusal::NoSession),
            Some(_) if own.is_some_and(|own| own != token) => Err(SessionRefusal::Attached),
            Some(_) => Ok(()),
        };
        self.seen.add(Witness::of_token(done)?);
        same(done, due, "S3")?;
        if due.is_ok() {
            self.hear(token);
        }
        Ok(seen.map(|got| (Who::Session(token), got)))
    }

    fn lock(&mut self, conn: usize, token: Option<usize>, key: usize, wait: Wait) -> Judged {
        let Some((who, got)) = self.ask(conn, token, &acquire(key, wait))? else {
            return Ok(());
        };
        let until_ms = match wait {
            Wait::UpTo { ms } => Some(self.now_ms + ms),
            Wait::No | Wait::WouldDeadlock | Wait::TooLong => None,
        };
        let is_session = matches!(who, Who::Session(_));
        let holder = self.locks[key].holder;
        let is_vain = self.would_deadlock(who, key);
        let fence = self.core.locks().in_force(key_of(key));
        let fence = fence.map_or(0, |holding| holding.fence.number());
        let due = if holder.is_none() {
            must(fence > self.locks[key].fence, "L12: a fence is not greater")?;
            self.locks[key].holder = Some(who);
            Got::Granted(fence)
        } else if holder == Some(who) && (is_session || got == Got::Granted(fence)) {
            if self.locks[key].is_unseen {
                self.seen.add(Witness::FoundByRetry);
            } else if is_session && token.is_none() {
                self.seen.add(Witness::Survives);
            }
            let is_same = self.locks[key].fence == fence || self.locks[key].is_unseen;
            must(
                is_same || !is_session,
                "S2: a lock has another fence when asked again",
            )
            .or_else(|_| must(until_ms.is_none(), "S2: another fence"))?;
            Got::Granted(fence)
        } else if until_ms.is_none() {
            Got::Contended
        } else if is_vain {
            Got::Deadlock
        } else {
            Got::Waits
        };
        if let Got::Granted(fence) = got {
            self.locks[key].fence = fence;
            self.locks[key].is_unseen = false;
            if self.conns[conn].is_doomed {
                self.seen.add(Witness::LoserHolds);
            }
        }
        if let (Got::Waits, Some(until_ms)) = (got, until_ms) {
            let line = &mut self.locks[key].line;
            let place = line.iter().position(|(waiter, _)| *waiter == who);
            if let Some(place) = place {
                line[place].1 = until_ms;
                if place + 1 < line.len() {
                    self.seen.add(Witness::KeepsPlace);
                }
            } else {
                self.leave_places(who);
                self.locks[key].line.push((who, until_ms));
            }
            self.conns[conn].parked = Some(Parked::Lock(key));
        } else if until_ms.is_some() && is_session && got == Got::Deadlock {
            // A request for another lock, granted or not, says nothing of the place before.
        }
        same(got, due, "S2, Q9")
    }

    /// Whether a chain of waits leads from the holder of a key back to `who`.
    fn would_deadlock(&self, who: Who, key: usize) -> bool {
        let mut key = key;
        for _ in 0..=MANY {
            let Some(holder) = self.locks[key].holder else {
                return false;
            };
            if holder == who {
                return true;
            }
            let waits_in = |lock: &Lock| lock.line.iter().any(|(waiter, _)| *waiter == holder);
            let Some(next) = self.locks.iter().position(waits_in) else {
                return false;
            };
            key = next;
        }
        false
    }

    fn unlock(&mut self, conn: usize, token: Option<usize>, key: usize) -> Judged {
        let Some((who, got)) = self.ask(conn, token, &release(key))? else {
            return Ok(());
        };
        let is_holder = self.locks[key].holder == Some(who);
        must(
            is_holder == (got == Got::Released),
            "S2: a release is not of the holder",
        )?;
        if is_holder {
            let other = token.and_then(|token| self.known[token]?.attached);
            if other.is_some_and(|other| other != conn) {
                self.seen.add(Witness::ByProxy);
            }
            self.hand_over(key);
        }
        Ok(())
    }

    /// Compares the expected state with that of the table and of the core.
    fn judge(&self) -> Judged {
        self.core.check();
        self.sessions.check();
        for token in 0..MANY {
            let asker = Asker {
                conn: ConnId::from_number(0),
                user: None,
                address: 0,
                attached: None,
            };
            let found = self.sessions.find(token_of(token), asker).ok();
            let Some((known, session)) = self.known[token].zip(found) else {
                must(
                    self.known[token].is_none() && found.is_none(),
                    "S8: a session ends too early or too late",
                )?;
                continue;
            };
            must(
                session.owner == known.owner,
                "S3: a session has another owner",
            )?;
            let ids = [known.attached, known.taker].map(|conn| conn.map(|conn| self.id(conn)));
            let of_table = [session.attached.conn(), session.attached.taker()];
            must(of_table == ids, "S1, S5: another connection is attached")?;
            let due_ms = known.heard_ms + u64::from(TTL_S) * STEP_MS;
            let told = self.sessions.next_deadline();
            let is_told = told.is_some_and(|at| at.as_millis() <= due_ms);
            must(is_told, "S8: the end of a session is not on time")?;
        }
        for conn in 0..CONNS {
            let expected = self.attached_to(conn).map(Who::Session);
            let expected = expected.and_then(|who| self.owner(who));
            let has = self.conns[conn].membership.attached();
            // One that is attached learns it when it asks again, or waits on as one that has lost.
            let asks_again = matches!(self.conns[conn].parked, Some(Parked::Session { .. }));
            must(
                has == expected || has.is_none() && asks_again,
                "S1: a connection executes for another owner",
            )?;
        }
        for (key, lock) in self.locks.iter().enumerate() {
            let holders: Vec<Owner> = self
                .core
                .locks()
                .holders_of(key_of(key))
                .map(|(owner, _)| owner)
                .collect();
            let expected = lock.holder.and_then(|who| self.owner(who));
            must(
                holders.into_iter().eq(expected),
                "S2: a lock has another holder",
            )?;
            let line = lock.line.iter();
            let line = line.map(|(who, until_ms)| (self.owner(*who), *until_ms));
            let queue = self.core.waits().queue(key_of(key));
            let queue = queue.map(|(owner, waiter)| (Some(owner), waiter.until.as_millis()));
            must(queue.eq(line), "S2, Q8: a queue has other places")?;
        }
        for (conn, one) in self.conns.iter().enumerate() {
            if let Some(Parked::Lock(key)) = one.parked {
                let who = self.attached_to(conn).map_or(Who::Conn(conn), Who::Session);
                let waits = self.locks[key]
                    .line
                    .iter()
                    .any(|(waiter, _)| *waiter == who);
                must(waits, "Q10: a notice is lost")?;
            }
        }
        Ok(())
    }

    /// Everything that matters to later steps and to their judgement. What is equal by [`judge`](Self::judge) is there once.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "places and tokens are a few"
    )]
    pub(super) fn view(&self) -> Vec<u8> {
        let left = |ms: u64| u8::try_from((ms + 8 * STEP_MS).saturating_sub(self.now_ms) / STEP_MS);
        let left = |ms| left(ms).unwrap_or(u8::MAX);
        let place = |conn: Option<usize>| conn.map_or(9, |conn| conn as u8);
        let who = |who: Option<Who>| match who {
            None => 9,
            Some(Who::Conn(conn)) => conn as u8,
            Some(Who::Session(token)) => 4 + token as u8,
        };
        let mut view = Vec::with_capacity(48);
        for conn in &self.conns {
            let of = |owner: Owner| {
                let is_it = |known: &Option<Known>| known.is_some_and(|it| it.owner == owner);
                self.known.iter().position(is_it).map_or(8, |it| it as u8)
            };
            view.extend([
                u8::from(conn.id.is_some()) + 2 * u8::from(conn.is_doomed),
                match conn.membership {
                    Membership::No => 0,
                    Membership::Attached(owner) => 10 + of(owner),
                    Membership::Waits(owner) => 20 + of(owner),
                },
                match conn.parked {
                    None => 0,
                    Some(Parked::Lock(key)) => 1 + key as u8,
                    Some(Parked::Session {
                        token,
                        only_resumes,
                        is_told,
                    }) => 4 + token as u8 + 2 * u8::from(only_resumes) + 4 * u8::from(is_told),
                },
            ]);
        }
        for (token, known) in self.known.iter().enumerate() {
            view.push(u8::from(self.has_ended[token]));
            if let Some(known) = known {
                let session = self.sessions.get(known.owner);
                let times = session.map(|session| [session.ends_at(), session.due_at()]);
                view.extend([
                    place(known.attached),
                    place(known.taker),
                    left(known.heard_ms),
                ]);
                view.extend(times.into_iter().flatten().map(|at| left(at.as_millis())));
            } else {
                view.push(u8::MAX);
            }
        }
        for (key, lock) in self.locks.iter().enumerate() {
            let holding = self.core.locks().in_force(key_of(key));
            let (is_told, is_unanswered) = holding.map_or((false, false), |holding| {
                let is_told = holding.fence.number() == lock.fence;
                (is_told, holding.is_unanswered)
            });
            let facts = [lock.is_unseen, is_told, is_unanswered];
            view.push(who(lock.holder));
            view.extend(facts.map(u8::from));
            let line = lock.line.iter();
            view.extend(line.flat_map(|(waiter, until)| [who(Some(*waiter)), left(*until)]));
            view.push(u8::MAX);
        }
        view
    }
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "a reference would be written at each call"
)]
fn same<T: PartialEq + std::fmt::Debug>(got: T, due: T, rule: &str) -> Judged {
    if got == due {
        Ok(())
    } else {
        Err(format!("{rule}: the reply is {got:?}, and {due:?} is due"))
    }
}
