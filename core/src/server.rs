//! The sans-IO whole: many connections over one core, for any transport.
//!
//! A transport learns five calls: [`open`](Server::open) for a new peer, [`receive`](Server::receive) for bytes that have
//! arrived, [`close`](Server::close) for a peer that has ended, [`advance`](Server::advance) for time that has passed, and
//! after each of these [`poll`](Server::poll) for actions, until one is [`Action::Wait`]. It need not know a protocol.
//!
//! - V1: however the bytes are cut, and however small the bound of unsent output is, the answers are the same.
//! - V2: the unsent output of a connection grows past its bound by one reply at most. A request that finds the
//!   output full stays unexecuted, and is executed when the transport has sent enough ([`sent`](Server::sent)).
//! - V3: the server keeps of a connection's input at most one unfinished request and, while its output is full
//!   or its request waits, [`KEPT_BYTES_MAX`] and what one [`receive`](Server::receive) has brought.
//! - V4: when a connection is closed, from either side, its locks are free before the call returns,
//!   and its id is never used again. Locks of a session stay.
//! - V5: a request that waits is answered by the first [`poll`](Server::poll) after its wait is over. While a
//!   connection waits, nothing behind its request is executed.
//! - V7: a connection that loses its session executes nothing more, and is closed before the other connection is answered (S5
//!   of [`crate::sessions`]).
//! - V6: when the time of [`Action::Wait`] has come, a wait, a lease or the time of a tick is over. A transport
//!   that calls [`advance`](Server::advance) then is on time. A server names no time if nothing has been executed since the
//!   last tick, and nothing has a deadline.

pub mod conn_executor;
mod machine;
mod open;

use alloc::collections::{BTreeMap, VecDeque};
use core::time::Duration;

use bytes::BytesMut;
use latchd_protocol::connection::{Connection, Progress};
use latchd_protocol::output::Output;
use latchd_protocol::time::{Instant, saturating_millis};
use latchd_protocol::wait::{Notice, Outcome};
use latchd_protocol::wire::WireLimits;
use latchd_protocol::{ConnId, Owner};

use crate::engine::{Config, Core, Event, Notification};
use crate::sessions::{EndedSession, Lost};

use self::conn_executor::ConnExecutor;
use self::open::Open;

pub use self::machine::{At, StateMachine};

/// How many bytes of output may be unsent before nothing more is executed, by default.
pub const UNSENT_BYTES_MAX: usize = 256 << 10;

/// How many bytes of input may be kept of a connection that executes nothing now, when more of it arrive.
pub const KEPT_BYTES_MAX: usize = 64 << 10;

/// The time between two ticks, in milliseconds.
const TICK_MS: u64 = 250;

/// The same while one tick was not enough.
const BUSY_TICK_MS: u64 = 10;

/// What the transport is to do ([`Server::poll`]).
#[derive(Clone, Debug)]
pub enum Action {
    /// Send these bytes to the peer, behind those of earlier actions. A transport that cannot send all of them at once says so
    /// before its next call ([`Server::unsent`]).
    Send(ConnId, Output),
    /// Read on: the connection did not want input ([`Server::wants_input`]), and wants it again.
    Read(ConnId),
    /// Close the connection, once everything before is sent. The server has forgotten it.
    Close(ConnId),
    /// Nothing more until the next call, which is [`Server::advance`] at this time if no other comes before; `None` is never.
    Wait(Option<Instant>),
}

impl Action {
    /// Which connection it is about.
    #[must_use]
    pub const fn conn(&self) -> Option<ConnId> {
        match self {
            Self::Send(conn, _) | Self::Read(conn) | Self::Close(conn) => Some(*conn),
            Self::Wait(_) => None,
        }
    }
}

/// A cache server without sockets, threads and clocks.
///
/// Each call has the moment at which it happens; a moment before the last one counts as the last
/// one.
///
/// ```
/// use latchd_core::server::Action;
/// use latchd_core::{Config, ConnId, Instant, Server};
///
/// /// What each connection is to be sent.
/// fn sends(server: &mut Server) -> Vec<(ConnId, String)> {
///     let mut all = vec![];
///     loop {
///         match server.poll() {
///             Action::Send(conn, out) => all.push((conn, String::from_utf8(out.into()).unwrap())),
///             Action::Read(_) | Action::Close(_) => {}
///             Action::Wait(_) => return all,
///         }
///     }
/// }
///
/// let now = Instant::from_millis(0);
/// let mut server = Server::new(Config::default());
/// let (alice, bob) = (server.open(now), server.open(now));
///
/// // A request may come in pieces.
/// server.receive(now, alice, b"set job 0 60 4\r\nid");
/// server.receive(now, alice, b"le\r\nlock job\r\n");
/// assert_eq!(sends(&mut server), [(alice, "STORED\r\nOK\r\n".into())]);
///
/// // While alice holds the lock, bob can read and not write. He waits for it.
/// server.receive(now, bob, b"set job 0 0 4\r\nbusy\r\nml job w1000 v\r\n");
/// assert_eq!(sends(&mut server), [(bob, "LOCKED\r\n".into())]);
///
/// // The lock dies with its connection.
/// server.close(now, alice);
/// assert_eq!(sends(&mut server), [(bob, "VA 4\r\nidle\r\n".into())]);
/// ```
#[derive(Clone, Debug)]
pub struct Server<M = Core> {
    machine: M,
    connections: BTreeMap<ConnId, Open>,
    /// How many connections and sessions there have been: the last number that was given.
    opened: u64,
    /// Those that can go on without more input.
    ready: VecDeque<ConnId>,
    /// Those with an action to hand out.
    due: VecDeque<ConnId>,
    wire_limits: WireLimits,
    unsent_bytes_max: usize,
    /// Until then no other server can serve these items.
    hold_until: Option<Instant>,
    /// The latest moment that a call has named.
    now: Instant,
    /// When the next tick is due; `None` as in V6.
    tick_at: Option<Instant>,
    /// Something was executed or released since the last tick.
    is_used: bool,
}

impl Server {
    /// A server on the store that the program uses.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let mut wire_limits = WireLimits::from(&config.limits);
        wire_limits.waits = true;
        Self::with_machine(Core::new(config), wire_limits)
    }
}

impl<M: StateMachine> Server<M> {
    /// A server before `machine`: a core on another store, for example. Requests may wait where
    /// [`WireLimits::waits`] is set; elsewhere, one that asks to is answered at once.
    #[must_use]
    pub const fn with_machine(machine: M, wire_limits: WireLimits) -> Self {
        Self {
            machine,
            connections: BTreeMap::new(),
            opened: 0,
            ready: VecDeque::new(),
            due: VecDeque::new(),
            wire_limits,
            unsent_bytes_max: UNSENT_BYTES_MAX,
            hold_until: None,
            now: Instant::from_millis(0),
            tick_at: None,
            is_used: false,
        }
    }

    /// The same with another bound of unsent output for each connection, in bytes; [`UNSENT_BYTES_MAX`] by default.
    #[must_use]
    pub const fn with_unsent_bytes_max(mut self, unsent_bytes_max: usize) -> Self {
        self.unsent_bytes_max = unsent_bytes_max;
        self
    }

    /// The same for a proof that wants to see great ids: so many connections have been opened before.
    #[cfg(feature = "verify")]
    #[must_use]
    pub const fn with_opened(mut self, opened: u64) -> Self {
        self.opened = opened;
        self
    }

    /// A peer has connected. The id is its own until the connection is closed, and is not used again.
    pub fn open(&mut self, now: Instant) -> ConnId {
        self.set_now(now);
        self.opened += 1;
        let conn = ConnId::from_number(self.opened);
        self.machine.handle(self.now, Event::Opened(conn.into()));
        let open = Open {
            wire: Connection::new(self.wire_limits),
            session: None,
            input: BytesMut::new(),
            output: Output::new(),
            sending: 0,
            unsent_bytes_max: self.unsent_bytes_max,
            progress: Progress::NeedsInput { at_least: 1 },
            is_ready: false,
            is_due: false,
            is_held: false,
        };
        self.connections.insert(conn, open);
        conn
    }

    /// Sets the bound of a connection's unsent output, in bytes, for a transport that has a larger buffer for
    /// one peer than for another.
    pub fn set_unsent_bytes_max(&mut self, conn: ConnId, unsent_bytes_max: usize) {
        if let Some(open) = self.connections.get_mut(&conn) {
            open.unsent_bytes_max = unsent_bytes_max;
            self.sent(conn, 0);
        }
    }

    /// Until `hold_until` no other server can serve these items. `mn H` and `ml … H` promise a client as much of the rest
    /// of that time as any clock allows ([`promise_ms`](latchd_protocol::time::promise_ms)), so the times of the calls must not
    /// lag behind. By default it is `None`, and they show nothing.
    pub const fn set_hold(&mut self, hold_until: Option<Instant>) {
        self.hold_until = hold_until;
    }

    /// Bytes have arrived, cut anywhere. Executes every request that is complete, as far as the bound of unsent
    /// output allows.
    ///
    /// Bytes for a connection that wants none ([`wants_input`](Self::wants_input)) close it, so that a peer that
    /// does not read its replies does not cost memory (V3). Nothing happens for an id of no connection.
    pub fn receive(&mut self, now: Instant, conn: ConnId, bytes: &[u8]) {
        self.set_now(now);
        self.handle_notifications();
        let Some(open) = self.connections.get_mut(&conn) else {
            return;
        };
        if open.progress == Progress::Close || bytes.is_empty() {
            return;
        }
        if open.wants_input() {
            self.go_on(conn, bytes);
        } else {
            self.end(conn);
        }
    }

    /// Whether the transport may hand over bytes of a connection: not while its output is full, nor while its
    /// request waits and [`KEPT_BYTES_MAX`] bytes are kept behind it. False for an id of no connection.
    #[must_use]
    pub fn wants_input(&self, conn: ConnId) -> bool {
        self.connections.get(&conn).is_some_and(Open::wants_input)
    }

    /// Why nothing more happens for a connection before the next call; [`Progress::Close`] for an id of no
    /// connection. [`Progress::Yielded`] does not happen here.
    #[must_use]
    pub fn progress(&self, conn: ConnId) -> Progress {
        self.connections
            .get(&conn)
            .map_or(Progress::Close, |open| open.progress)
    }

    /// The next action of the transport. To be asked after every call, until it is [`Action::Wait`].
    pub fn poll(&mut self) -> Action {
        self.handle_notifications();
        while let Some(conn) = self.ready.pop_front() {
            if let Some(open) = self.connections.get_mut(&conn) {
                open.is_ready = false;
                if open.may_go_on() {
                    self.go_on(conn, &[]);
                    self.handle_notifications();
                }
            }
        }
        while let Some(conn) = self.due.front().copied() {
            if let Some(open) = self.connections.get_mut(&conn)
                && let Some(action) = open.next_action(conn)
            {
                if let Action::Close(conn) = action {
                    self.connections.remove(&conn);
                } else {
                    // If its output was full, it goes on, unless the transport keeps some of it.
                    self.sent(conn, 0);
                }
                return action;
            }
            self.due.pop_front();
        }
        Action::Wait(self.deadline())
    }

    /// So many bytes of the output that was handed out for a connection cannot be sent yet (V2). To be called before the next
    /// [`poll`](Self::poll), by a transport that cannot send all at once.
    pub fn unsent(&mut self, conn: ConnId, bytes: usize) {
        if let Some(open) = self.connections.get_mut(&conn) {
            open.sending = open.sending.saturating_add(bytes);
        }
    }

    /// So many [unsent](Self::unsent) bytes have left. Requests that found the output full are executed by
    /// the next [`poll`](Self::poll).
    pub fn sent(&mut self, conn: ConnId, bytes: usize) {
        if let Some(open) = self.connections.get_mut(&conn) {
            open.sending = open.sending.saturating_sub(bytes);
            if open.progress == Progress::OutputFull && open.has_room() && !open.is_ready {
                open.is_ready = true;
                self.ready.push_back(conn);
            }
        }
    }

    /// A connection has ended, for any reason. Its locks are free; no action will name it. Nothing happens for an
    /// id of no connection.
    pub fn close(&mut self, now: Instant, conn: ConnId) {
        self.set_now(now);
        if let Some(open) = self.connections.remove(&conn)
            && open.progress != Progress::Close
        {
            self.release(conn, open.session);
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let due = self.machine.next_deadline();
        due.into_iter().chain(self.tick_at).min()
    }

    /// Time has passed: waits and leases that are over end, and expired items are looked for. That an expired item
    /// cannot be read does not depend on it. The wall clock shows that it is `since_1970`: an exptime that is a date is read
    /// by it, and nothing else. To be called at the time of [`Action::Wait`], and before the first request after that.
    ///
    /// Dates are exact if the moments that are handed over begin at a whole second of the wall
    /// clock, and half a second off at most if not.
    pub fn advance(&mut self, now: Instant, since_1970: Duration) {
        self.set_now(now);
        self.set_wall_clock(since_1970);
        self.machine.handle(self.now, Event::Due);
        if self.tick_at.is_some_and(|at| at <= self.now) {
            self.machine.handle(self.now, Event::Tick);
            let was_used = core::mem::take(&mut self.is_used);
            let after_ms = if self.machine.wants_tick() {
                Some(BUSY_TICK_MS)
            } else {
                (was_used || self.machine.next_deadline().is_some()).then_some(TICK_MS)
            };
            self.tick_at = after_ms.map(|ms| self.after(ms));
        }
    }

    fn set_wall_clock(&mut self, since_1970: Duration) {
        let unix_ms = saturating_millis(since_1970);
        // Rounded, so that a small difference of the two clocks is not a second.
        let unix_s_at_start = unix_ms
            .saturating_add(500)
            .saturating_sub(self.now.as_millis())
            / 1000;
        self.machine
            .handle(self.now, Event::WallClock { unix_s_at_start });
    }

    /// How much of a connection's input is kept, in bytes (V3); 0 for an id of no connection.
    #[must_use]
    pub fn kept_bytes(&self, conn: ConnId) -> usize {
        self.connections
            .get(&conn)
            .map_or(0, |open| open.input.len())
    }

    /// What is behind the connections.
    #[must_use]
    pub const fn machine(&self) -> &M {
        &self.machine
    }

    /// What is behind the connections, for a program that has commands of its own to execute.
    ///
    /// Connections are opened and closed by this server alone: telling the machine of either would
    /// take from them the locks that they hold.
    pub fn machine_mut(&mut self) -> &mut M {
        self.note_use();
        &mut self.machine
    }

    fn set_now(&mut self, now: Instant) {
        self.now = self.now.max(now);
    }

    /// Something is executed or released now: a tick follows.
    fn note_use(&mut self) {
        self.is_used = true;
        if self.tick_at.is_none() {
            self.tick_at = Some(self.after(TICK_MS));
        }
    }

    /// So many milliseconds from now.
    const fn after(&self, ms: u64) -> Instant {
        Instant::from_millis(self.now.as_millis().saturating_add(ms))
    }

    /// Frees what a connection has that has ended: its own locks, or its place in a session.
    fn release(&mut self, conn: ConnId, session: Option<Owner>) {
        self.note_use();
        if let Some(owner) = session {
            self.machine.handle(self.now, Event::Detached(owner, conn));
        }
        self.machine.handle(self.now, Event::Closed(conn.into()));
    }

    /// Ends a connection that has lost its session, or sends what it must not: nothing of it is executed any more, and it is
    /// closed before anything else is sent (V7).
    fn end(&mut self, conn: ConnId) {
        if let Some(open) = self.connections.get_mut(&conn)
            && open.progress != Progress::Close
        {
            open.progress = Progress::Close;
            let session = core::mem::take(&mut open.session);
            open.input = BytesMut::new();
            open.is_due = true;
            self.due.push_front(conn);
            self.release(conn, session);
        }
    }

    /// Ends the wait of a connection.
    fn wake(&mut self, conn: ConnId, outcome: Outcome) {
        if let Some(open) = self.connections.get_mut(&conn)
            && open.wire.end_wait(outcome)
            && !open.is_ready
        {
            open.is_ready = true;
            self.ready.push_back(conn);
        }
    }

    /// Makes the connections ready whose waits are over, and ends those whose sessions are.
    fn handle_notifications(&mut self) {
        while let Some(notification) = self.machine.poll() {
            match notification {
                Notification::WaitOver(Notice { owner, outcome }) => {
                    let conn = if owner.is_session() {
                        self.machine.attached(owner)
                    } else {
                        Some(ConnId::from_number(owner.number()))
                    };
                    if let Some(conn) = conn {
                        self.wake(conn, outcome);
                    }
                }
                Notification::SessionExpired(EndedSession { owner: _, lost }) => {
                    if let Some(Lost { conn, route: _ }) = lost {
                        self.end(conn);
                    }
                }
                // These are for machines that ask for them.
                Notification::Evicted { .. } | Notification::LocksEnded { .. } => {}
            }
        }
    }

    /// Executes what a connection has asked for, now that `bytes` have arrived.
    fn go_on(&mut self, conn: ConnId, bytes: &[u8]) {
        self.note_use();
        if let Some(open) = self.connections.get(&conn)
            && let Some(owner) = open.session
            && !self.machine.hear(self.now, owner, conn)
        {
            return self.end(conn);
        }
        if let Some(open) = self.connections.get_mut(&conn)
            && open.progress != Progress::Close
        {
            let (machine, numbers) = (&mut self.machine, &mut self.opened);
            let mut executor =
                ConnExecutor::new(machine, numbers, self.now, (conn, None), open.session);
            executor.hold_until = self.hold_until;
            open.progress = open.advance(bytes, &mut executor);
            let ConnExecutor { session, lost, .. } = executor;
            open.session = session;
            self.follow_up(conn);
            for Lost { conn, route: _ } in lost {
                self.end(conn);
            }
        }
    }

    /// Queues the actions of `conn`, and ends it if it is to be closed (V4).
    fn follow_up(&mut self, conn: ConnId) {
        let Some(open) = self.connections.get_mut(&conn) else {
            return;
        };
        let closes = open.progress == Progress::Close;
        let mut session = None;
        if closes {
            open.input = BytesMut::new();
            session = core::mem::take(&mut open.session);
        }
        let wants_input = open.wants_input();
        if !open.is_due && (closes || !open.output.is_empty() || open.is_held && wants_input) {
            open.is_due = true;
            self.due.push_back(conn);
        }
        open.is_held |= !wants_input;
        if closes {
            self.release(conn, session);
        }
    }
}

#[cfg(test)]
mod tests;
