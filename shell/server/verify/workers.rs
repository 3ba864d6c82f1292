//! The workers of a server without sockets, threads and a clock: its own connections, shards, sessions and mailboxes, for
//! proofs that choose the order of all turns.
//!
//! The caller plays the network, as with [`simulated`](super::simulated), and the threads. It says which worker reads
//! its mailbox, which client has a turn, and when the clock wakes. The same calls give the same bytes.
//!
//! Not simulated: TLS, watchers, budgets over all clients, idle clients.

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroUsize;

use latchd_core::sessions::SessionLimits;
use latchd_core::{ConnId, Instant, Owner};
use latchd_protocol::connection::Connection;
use latchd_protocol::key::Key;
use latchd_protocol::wait::Outcome;

use super::simulated::{Client, Desk, Look, Pipe, Span};
use crate::clients::budget::Holder;
use crate::clients::mailbox::Message;
use crate::config::Config;
use crate::net::listen::Address;
use crate::server_state::ServerState;
use crate::worker::backend::Backend as _;
use crate::worker::connection::{ClientConn, End, Next};
use crate::worker::executor::ClientSession;
use crate::worker::turn::Turn;

/// The memory for items, in bytes: enough for two shards.
const MEMORY_BYTES_MAX: usize = 1 << 20;

/// The largest value, in bytes.
const VALUE_BYTES_MAX: usize = 64 << 10;

/// The clients of one worker that have something to come.
#[derive(Debug, Default)]
struct Line {
    /// Those with more work, in the order of their turns.
    waiting: VecDeque<ConnId>,
    /// Those with ended waits.
    ended_waits: VecDeque<(ConnId, Outcome)>,
}

/// A server with several workers and two shards.
#[derive(Debug)]
pub struct Workers {
    shared: ServerState,
    desk: Desk,
    lines: Vec<Line>,
    clients: BTreeMap<ConnId, (usize, Client<ServerState>)>,
    /// The memory of the tables of locks before the first request, in bytes.
    table_bytes: usize,
}

/// A session, as its server has it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SessionSeen {
    /// The attached connection.
    pub conn: Option<ConnId>,
    /// How long it lasts if its client is not heard, in milliseconds.
    pub left_ms: u64,
}

/// What is left in a server.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Left {
    /// Connections.
    pub clients: usize,
    /// Sessions.
    pub sessions: usize,
    /// Connections that have or want a session.
    pub attached: usize,
    /// Locks.
    pub locks: usize,
    /// Whether a request waits in a shard.
    pub has_waits: bool,
    /// Registrations of waiting clients.
    pub registered: usize,
    /// The memory of the tables of locks, beyond the memory before the first request, in bytes.
    pub table_bytes: usize,
}

impl Workers {
    /// A server at this moment, which is not 0, with `threads` workers and at most as many sessions as `sessions` says.
    ///
    /// # Panics
    /// If the system has no descriptor left.
    #[must_use]
    pub fn new(now: Instant, threads: NonZeroUsize, sessions: SessionLimits) -> Self {
        let config = Config {
            threads,
            memory_bytes_max: MEMORY_BYTES_MAX,
            value_bytes_max: VALUE_BYTES_MAX,
            sessions,
            ..Config::default()
        };
        let addresses = [Address::Unix("nowhere".into())];
        let (shared, _) = ServerState::new(config, &addresses, None, None, None, None)
            .expect("there is a descriptor left");
        shared.clock.set(now);
        Self {
            table_bytes: shared.shards.table_bytes(now),
            desk: Desk::new(),
            lines: (0..threads.get()).map(|_| Line::default()).collect(),
            clients: BTreeMap::new(),
            shared,
        }
    }

    /// The shard of a key.
    #[must_use]
    pub fn shard_of(&self, key: Key<'_>) -> usize {
        self.shared.shards.shard_of(key)
    }

    /// Sets the time.
    pub fn set_time(&mut self, now: Instant) {
        self.shared.clock.set(now);
    }

    /// Connects a client of this host to a worker.
    pub fn open(&mut self, worker: usize, host: u128) -> (ConnId, Pipe) {
        let (shared, now) = (&self.shared, self.shared.clock.now());
        let conn = ConnId::from_number(shared.next_number());
        let holder = Holder {
            worker,
            name: conn.number(),
        };
        let session = ClientSession::new(conn, holder, host);
        let entry = shared.connection_table.add(conn.number(), 0, None, now);
        let client = Client::new(session, Connection::new(shared.wire_limits), entry, now);
        let pipe = client.pipe.clone();
        self.clients.insert(conn, (worker, client));
        (conn, pipe)
    }

    /// Gives a client a turn if its epoll has an event for it. Returns whether it had one.
    pub fn wake(&mut self, conn: ConnId) -> bool {
        let Some((_, client)) = self.clients.get(&conn) else {
            return false;
        };
        let ready = client.ready();
        if ready.is_empty() {
            return false;
        }
        self.have_turn(conn, |client, turn| client.advance(ready, turn));
        true
    }

    /// Gives the first client of a worker with more work a turn. Returns the client, if there is one.
    pub fn go_on(&mut self, worker: usize) -> Option<ConnId> {
        let conn = self.lines[worker].waiting.pop_front()?;
        self.have_turn(conn, ClientConn::go_on);
        Some(conn)
    }

    /// Notifies the first client of a worker with an ended wait. Returns the client, if there is one; it may be closed.
    pub fn end_wait(&mut self, worker: usize) -> Option<ConnId> {
        let (conn, outcome) = self.lines[worker].ended_waits.pop_front()?;
        self.have_turn(conn, |client, turn| client.end_wait(outcome, turn));
        Some(conn)
    }

    /// A worker reads its mailbox. Returns the clients that were closed.
    ///
    /// # Panics
    /// If there is a message that no request here causes.
    pub fn read_mail(&mut self, worker: usize) -> Vec<ConnId> {
        let mut closed = Vec::new();
        for message in self.shared.mailbox(worker).take() {
            match message {
                Message::WaitEnded(name, outcome) => {
                    let conn = ConnId::from_number(name);
                    self.lines[worker].ended_waits.push_back((conn, outcome));
                }
                Message::LostSession(name) => {
                    let conn = ConnId::from_number(name);
                    if self.clients.contains_key(&conn) {
                        self.end(conn, &End::LostSession);
                        closed.push(conn);
                    }
                }
                other @ (Message::Adopt(_)
                | Message::Sweep
                | Message::Close(..)
                | Message::News(_)
                | Message::Echo(_)
                | Message::Confirm(_)
                | Message::Suspend(_)) => panic!("no request here causes {other:?}"),
            }
        }
        closed
    }

    fn have_turn(
        &mut self,
        conn: ConnId,
        advance: impl FnOnce(&mut ClientConn<Pipe, ServerState>, &mut Turn<'_, ServerState>) -> Next,
    ) {
        let at = (self.shared.clock.now(), Span::Long);
        let Some((worker, client)) = self.clients.get_mut(&conn) else {
            return;
        };
        match self.desk.have_turn(&self.shared, at, client, advance) {
            Next::Turn => self.lines[*worker].waiting.push_back(conn),
            Next::End(why) => self.end(conn, &why),
            Next::Input | Next::Output | Next::Lock | Next::InTurn => {}
        }
    }

    /// Removes a client, in the order of the server's worker.
    fn end(&mut self, conn: ConnId, why: &End) {
        let now = self.shared.clock.now();
        let Some((_, mut client)) = self.clients.remove(&conn) else {
            return;
        };
        let lost = if let End::LostSession = why {
            client.conn.take_session()
        } else {
            client.conn.release(&self.shared, now);
            None
        };
        self.shared.connection_table.remove(conn.number());
        client.close_socket();
        if let Some(session) = lost {
            self.shared.close(now, session);
        }
    }

    /// The moment at which the clock wakes.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.shared.waiters.deadline()
    }

    /// The clock wakes, and does all that is due.
    pub fn pass(&mut self) {
        let now = self.shared.clock.now();
        self.shared.waiters.forget_deadline();
        self.shared.shards.pass(now);
    }

    /// The clock ticks: locks that ended many at once are removed from the tables.
    pub fn tick(&mut self) {
        let clock = &self.shared.clock;
        let _ = self
            .shared
            .shards
            .tick(clock.now(), clock.unix_s_at_start());
    }

    /// The state of a client between two turns; `None` if it is closed.
    #[must_use]
    pub fn look(&self, conn: ConnId) -> Option<Look> {
        self.clients.get(&conn).map(|(_, client)| client.look())
    }

    /// The session that this owner is; `None` if it has ended.
    #[must_use]
    pub fn session(&self, owner: Owner) -> Option<SessionSeen> {
        let now = self.shared.clock.now();
        let shown = self.shared.shards.session_shown(now, owner)?;
        Some(SessionSeen {
            conn: shown.conn,
            left_ms: shown.left_ms,
        })
    }

    /// Asserts the invariants of sessions and cores. Returns what is left in the server.
    #[must_use]
    pub fn check(&self) -> Left {
        let shared = &self.shared;
        let now = shared.clock.now();
        shared.shards.check(now);
        let (sessions, attached) = shared.shards.sessions_left(now);
        let (locks, has_waits) = shared.shards.left(now);
        Left {
            clients: self.clients.len(),
            sessions,
            attached,
            locks,
            has_waits,
            registered: shared.waiters.waiting(),
            table_bytes: shared.shards.table_bytes(now) - self.table_bytes,
        }
    }
}
