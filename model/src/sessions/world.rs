//! One state: the core, the connections as their transport knows them, and the expected state.

mod ask;
mod judge;

use std::mem;

use latchd_core::engine::{Core, Event, Notification};
use latchd_core::server::StateMachine as _;
use latchd_core::server::conn_executor::ConnExecutor;
use latchd_core::sessions::{EndedSession, Lost};
use latchd_core::store::MapStore;
use latchd_core::{ConnId, Instant, Limits, Owner};
use latchd_protocol::command::Wait;
use latchd_protocol::key::Key;
use latchd_protocol::session::Token;

use super::{Bounds, CONNS, Happening, MANY, STEP_MS, TTL_MS, Witness};
use crate::frame::{Judged, Shown};
use crate::setup::core_of;

const KEYS: [&[u8]; MANY] = [b"k", b"l"];

const TOKENS: [&[u8]; MANY] = [b"0123456789abcdef", b"0123456789abcdefg"];

/// A connection, as its transport knows it.
#[derive(Clone, Debug, Default)]
struct Conn {
    id: Option<ConnId>,
    /// The session that it believes to be attached to.
    session: Option<Owner>,
    /// Its request waits for the lock of this key.
    parked: Option<usize>,
    /// It is to be closed, since it has lost its session.
    is_doomed: bool,
}

/// A session, as replies say.
#[derive(Clone, Copy, Debug)]
struct Known {
    owner: Owner,
    attached: Option<usize>,
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

/// A state.
#[derive(Clone, Debug)]
pub struct World {
    core: Core<MapStore>,
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

impl World {
    pub(super) fn new(bounds: &Bounds) -> Self {
        Self {
            core: core_of(Limits::new(1 << 20, 16), bounds.shards),
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
            if one.parked.is_some() {
                continue;
            }
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

    pub(super) fn happen(&mut self, bounds: &Bounds, happening: Happening) -> Judged {
        let Happening {
            word,
            conn,
            token,
            key,
        } = happening;
        self.seen = Shown::default();
        match word {
            "time" => self.pass(bounds),
            "stranger" => self.stranger(token)?,
            "open" => {
                self.numbers += 1;
                let id = ConnId::from_number(self.numbers);
                self.conns[conn].id = Some(id);
                self.core.handle(self.now(), Event::Opened(id.into()));
            }
            "close" => self.close(conn),
            "mo" => self.open(conn, token, false)?,
            "mo x" => self.open(conn, token, true)?,
            "mo T0" => self.end(conn, token)?,
            "ml" => self.lock(conn, None, key, Wait::No)?,
            "ml w" => {
                let ms = bounds.wait_ms - 1;
                self.lock(conn, None, key, Wait::UpTo { ms })?;
            }
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
    fn executor<R>(
        &mut self,
        conn: usize,
        call: impl FnOnce(&mut ConnExecutor<'_, Core<MapStore>>) -> R,
    ) -> R {
        if let Some(known) = self.attached_to(conn) {
            self.hear(known);
        }
        let (now, id, session) = (self.now(), self.id(conn), self.conns[conn].session);
        if let Some(owner) = session {
            // One that has lost is not closed at once.
            let _ = self.core.hear(now, owner, id);
        }
        let (core, numbers) = (&mut self.core, &mut self.numbers);
        let mut executor = ConnExecutor::new(core, numbers, now, (id, None), session);
        let result = call(&mut executor);
        let ConnExecutor { session, lost, .. } = executor;
        self.conns[conn].session = session;
        for lost in lost {
            self.doom(lost);
        }
        result
    }

    fn hear(&mut self, token: usize) {
        if let Some(known) = &mut self.known[token] {
            known.heard_ms = self.now_ms;
        }
    }

    fn doom(&mut self, lost: Lost) {
        if let Some(conn) = self.conn_of(lost.conn) {
            self.conns[conn].is_doomed = true;
            if self.conns[conn].parked.is_some() {
                self.seen.add(Witness::LoserWaits);
            }
        }
    }

    /// Tells connections that their waits for locks, or their sessions, are over. Waiting ones ask again at once.
    fn deliver(&mut self) -> Judged {
        while let Some(notification) = self.core.poll() {
            let notice = match notification {
                Notification::WaitOver(notice) => notice,
                Notification::SessionExpired(EndedSession { owner: _, lost }) => {
                    if let Some(lost) = lost {
                        self.doom(lost);
                    }
                    continue;
                }
                Notification::Evicted { .. } | Notification::LocksEnded { .. } => continue,
            };
            let owner = notice.owner;
            let conn = if owner.is_session() {
                self.core.attached(owner)
            } else {
                Some(ConnId::from_number(owner.number()))
            };
            if let Some(conn) = conn.and_then(|id| self.conn_of(id))
                && let Some(key) = self.conns[conn].parked.take()
            {
                self.lock(conn, None, key, Wait::No)?;
            }
        }
        Ok(())
    }

    /// A step of time: what is over ends at its moment.
    fn pass(&mut self, bounds: &Bounds) {
        self.now_ms += STEP_MS;
        let (now, now_ms) = (self.now(), self.now_ms);
        let is_over = |known: &Known| known.heard_ms + TTL_MS <= now_ms;
        for lock in &mut self.locks {
            lock.line.retain(|(_, until_ms)| *until_ms > now_ms);
        }
        for token in 0..MANY {
            let Some(known) = self.known[token] else {
                continue;
            };
            let waits = |conn: usize| self.conns[conn].parked.is_some();
            if known.attached.is_some_and(waits) {
                let began_ms = |(_, until_ms): &(Who, u64)| until_ms - bounds.wait_ms;
                let is_old = |at_ms| at_ms + TTL_MS <= now_ms;
                let mut lines = self.locks.iter().flat_map(|lock| &lock.line);
                let own = lines.find(|(who, _)| *who == Who::Session(token));
                if own.map(began_ms).is_some_and(is_old) {
                    self.seen.add(Witness::WaitIsHeard);
                }
                self.hear(token);
            } else if is_over(&known) {
                let holds = |lock: &Lock| lock.holder == Some(Who::Session(token));
                if self.locks.iter().any(holds) {
                    self.seen.add(Witness::Expires);
                }
                self.forget(token);
            } else if known.attached.is_none() && self.has_lost_place(token) {
                self.seen.add(Witness::PlaceEnds);
            }
        }
        self.core.handle(now, Event::Due);
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
        self.core.is_waiting(owner) && !is_expected
    }

    /// A session has ended, as expected.
    fn forget(&mut self, token: usize) {
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
        self.known[token] = None;
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
        let waits = conn.is_some_and(|conn| self.conns[conn].parked == Some(key));
        let lock = &mut self.locks[key];
        lock.holder = next;
        lock.is_unseen = next.is_some() && !waits;
    }

    /// A connection closes: by its client, or since it has lost its session.
    fn close(&mut self, conn: usize) {
        let (now, id) = (self.now(), self.id(conn));
        let one = mem::take(&mut self.conns[conn]);
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
            if known.attached == Some(conn) {
                if one.parked.is_some() {
                    known.heard_ms = self.now_ms;
                }
                known.attached = None;
            }
        }
        if let Some(owner) = one.session {
            self.core.handle(now, Event::Detached(owner, id));
        }
        self.core.handle(now, Event::Closed(id.into()));
    }
}
