//! The sans-IO whole: many connections over one core, for whoever brings the bytes and the time.
//!
//! A transport opens a connection for each of its peers, hands over what arrives, sends what comes
//! out, and says when a peer is gone and that time has passed. It need not know a protocol.
//!
//! - V1: however the bytes are cut, and however small the output is, the answers are the same.
//! - V2: an output grows past its bound by one reply at most. What is not answered for want of room
//!   is kept, and goes on with the next [`receive`](Server::receive).
//! - V3: what is kept of a connection's input is at most one unfinished request and, while its
//!   output is full, what one [`receive`](Server::receive) has brought; while it waits, what came with its request and
//!   up to [`WAITING_BYTES_MAX`] in all.
//! - V4: when a connection is closed, by whichever side, its locks are free before the call returns,
//!   and its id is dead for good.
//!
//! # Answers that come later
//!
//! A request is answered in the call that completes it, unless it waits for a lock. Then it is answered by
//! what happens to others: to another connection, or to time. Such a connection stops with
//! [`Progress::Waiting`], only for a transport that has asked for it ([`with_waits`](Server::with_waits)).
//!
//! - V5: after every call, [`next_ready`](Server::next_ready) tells which connections can go on: each goes on with
//!   [`resume`](Server::resume), which has its answer. While a connection waits, nothing behind its request is executed.
//! - V6: when [`next_deadline`](Server::next_deadline) has come, a wait or a lease is over. A transport that
//!   calls [`pass`](Server::pass) then is on time.

use alloc::collections::{BTreeMap, BTreeSet};
use core::time::Duration;

use bytes::{Buf, BytesMut};

use crate::command::Command;
use crate::conn_id::ConnId;
use crate::connection::{Connection, Progress};
use crate::engine::{Config, Core, Event};
use crate::execute::Execute;
use crate::limits::MemoryRefused;
use crate::output::Output;
use crate::reply::Reply;
use crate::stats::Unstored;
use crate::store::Store;
use crate::time::{Instant, saturating_millis};
use crate::wait::Notice;
use crate::wire::WireLimits;

/// How many bytes may wait to be sent before nothing more is executed, by default.
pub const OUT_BYTES_MAX: usize = 256 << 10;

/// How many bytes may be kept of the input of a connection that waits, when more of it arrives.
pub const WAITING_BYTES_MAX: usize = 64 << 10;

/// What a [`Server`] has behind its connections: a [`Core`], or what stands before several.
pub trait StateMachine {
    /// Takes an event, at `now`.
    fn handle(&mut self, now: Instant, event: Event);

    /// Executes a command of `conn`, at `now`, and hands its reply to `answer`, exactly once.
    fn execute(
        &mut self,
        now: Instant,
        conn: ConnId,
        command: Command<'_>,
        answer: &mut dyn FnMut(&Reply<'_>),
    );

    /// A set was refused before there was a command ([`Core::note_unstored`]). By default nobody counts it.
    fn note_unstored(&mut self, why: Unstored) {
        let _ = why;
    }

    /// It is `now`, and what time ends by itself has ended ([`Core::pass`]). Nothing, by default.
    fn pass(&mut self, now: Instant) {
        let _ = now;
    }

    /// What all items together may take is so many bytes from now on ([`Core::limit_memory`]). By default that does
    /// not change.
    ///
    /// # Errors
    /// Why not. Everything is as it was then.
    fn limit_memory(&mut self, now: Instant, bytes: usize) -> Result<(), MemoryRefused> {
        let _ = (now, bytes);
        Err(MemoryRefused::Fixed)
    }

    /// The next wait that is over ([`Core::next_notice`]). By default nothing waits.
    fn next_notice(&mut self) -> Option<Notice> {
        None
    }

    /// When [`Self::pass`] is to be called ([`Core::next_deadline`]). By default never.
    fn next_deadline(&self) -> Option<Instant> {
        None
    }
}

impl<S: Store> StateMachine for Core<S> {
    fn handle(&mut self, now: Instant, event: Event) {
        Self::handle(self, now, event);
    }

    fn note_unstored(&mut self, why: Unstored) {
        Self::note_unstored(self, why);
    }

    fn execute(
        &mut self,
        now: Instant,
        conn: ConnId,
        command: Command<'_>,
        answer: &mut dyn FnMut(&Reply<'_>),
    ) {
        Self::answer(self, now, conn, &command, answer);
    }

    fn pass(&mut self, now: Instant) {
        Self::pass(self, now);
    }

    fn limit_memory(&mut self, now: Instant, bytes: usize) -> Result<(), MemoryRefused> {
        Self::limit_memory(self, now, bytes)
    }

    fn next_notice(&mut self) -> Option<Notice> {
        Self::next_notice(self)
    }

    fn next_deadline(&self) -> Option<Instant> {
        Self::next_deadline(self)
    }
}

/// A cache server without sockets, threads and clocks.
///
/// Each call has the moment at which it happens; a moment before the last one counts as the last
/// one.
///
/// ```
/// use latchd_core::{Config, Instant, Output, Progress, Server};
///
/// let now = Instant::from_millis(0);
/// let mut server = Server::new(Config::default());
/// let (alice, bob) = (server.open(now), server.open(now));
/// let mut out = Output::new();
///
/// // A request may come in pieces.
/// server.receive(now, alice, b"set job 0 60 4\r\nid", &mut out);
/// server.receive(now, alice, b"le\r\nlock job\r\n", &mut out);
/// assert_eq!(Vec::from(out), b"STORED\r\nOK\r\n");
///
/// // While alice holds the lock, bob can read and not write.
/// let mut out = Output::new();
/// server.receive(now, bob, b"get job\r\nset job 0 0 4\r\nbusy\r\n", &mut out);
/// assert_eq!(Vec::from(out), b"VALUE job 0 4\r\nidle\r\nEND\r\nLOCKED\r\n");
///
/// // The lock dies with its connection.
/// server.close(now, alice);
/// let mut out = Output::new();
/// let progress = server.receive(now, bob, b"lock job\r\nquit\r\n", &mut out);
/// assert_eq!(Vec::from(out), b"OK\r\n");
/// assert_eq!(progress, Progress::Close);
/// ```
#[derive(Clone, Debug)]
pub struct Server<M = Core> {
    machine: M,
    connections: BTreeMap<ConnId, Open>,
    /// How many connections there have been: the last id that was given.
    opened: u64,
    /// Those that wait no more and have not gone on yet (V5).
    ready: BTreeSet<ConnId>,
    wire_limits: WireLimits,
    out_bytes_max: usize,
}

/// A connection that is open.
#[derive(Clone, Debug)]
struct Open {
    wire: Connection,
    /// What has arrived and is not done with (V3).
    input: BytesMut,
    /// Its last [`Progress`] was [`Progress::OutputFull`].
    is_full: bool,
}

impl Server {
    /// A server on the store that the program uses.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let wire_limits = WireLimits::from(&config.limits);
        Self::with_machine(Core::new(config), wire_limits)
    }
}

impl<M: StateMachine> Server<M> {
    /// A server before `machine`: a core on another store, say.
    #[must_use]
    pub const fn with_machine(machine: M, wire_limits: WireLimits) -> Self {
        Self {
            machine,
            connections: BTreeMap::new(),
            opened: 0,
            ready: BTreeSet::new(),
            wire_limits,
            out_bytes_max: OUT_BYTES_MAX,
        }
    }

    /// The same with another bound of an output, in bytes; [`OUT_BYTES_MAX`] by default.
    #[must_use]
    pub const fn with_out_bytes_max(mut self, out_bytes_max: usize) -> Self {
        self.set_out_bytes_max(out_bytes_max);
        self
    }

    /// Sets the bound of an output, in bytes, from the next call on: for a transport that has more
    /// room for one peer than for another.
    pub const fn set_out_bytes_max(&mut self, out_bytes_max: usize) {
        // An output without room for anything would never be emptied, and nothing executed.
        self.out_bytes_max = if out_bytes_max == 0 { 1 } else { out_bytes_max };
    }

    /// The same for a transport that goes on with connections whose requests have waited; by default none may, and
    /// whoever asks to is answered at once. For the connections that are opened from then on.
    #[must_use]
    pub const fn with_waits(mut self) -> Self {
        self.wire_limits.waits = true;
        self
    }

    /// The same for a proof that wants to see great ids: so many connections have been opened before.
    #[cfg(feature = "verify")]
    #[must_use]
    pub const fn with_opened(mut self, opened: u64) -> Self {
        self.opened = opened;
        self
    }

    /// Somebody has connected. The id is his until the connection is closed, and nobody's after.
    pub fn open(&mut self, now: Instant) -> ConnId {
        self.opened += 1;
        let conn = ConnId::from_number(self.opened);
        self.machine.handle(now, Event::Opened(conn));
        let open = Open {
            wire: Connection::new(self.wire_limits),
            input: BytesMut::new(),
            is_full: false,
        };
        self.connections.insert(conn, open);
        conn
    }

    /// Bytes have arrived, cut anywhere. Executes every request that is complete, and appends what
    /// is to be sent to `out`, which may hold what this connection was answered before.
    ///
    /// What to do next, the [`Progress`] says:
    ///
    /// - [`NeedsInput`](Progress::NeedsInput): send, and read on.
    /// - [`OutputFull`](Progress::OutputFull): send; and before anything more is read, go on with
    ///   [`resume`](Self::resume). A transport that hands over more bytes all the same loses the
    ///   connection, so that one which does not mind a full output does not lose its memory (V3).
    /// - [`Yielded`](Progress::Yielded) does not happen here: one call does no more than its bytes and
    ///   the room in `out` allow.
    /// - [`Waiting`](Progress::Waiting): send, and go on with [`resume`](Self::resume) when
    ///   [`next_ready`](Self::next_ready) names the connection. Meanwhile it may be read for its end; what it sends is
    ///   kept, and one that sends more than [`WAITING_BYTES_MAX`] loses the connection (V3).
    /// - [`Close`](Progress::Close): send, and close. The connection is closed here already (V4). So
    ///   it is for an id that is nobody's.
    pub fn receive(
        &mut self,
        now: Instant,
        conn: ConnId,
        bytes: &[u8],
        out: &mut Output,
    ) -> Progress {
        self.settle();
        let Some(open) = self.connections.get_mut(&conn) else {
            return Progress::Close;
        };
        let is_too_much = open.is_full
            || open.wire.is_waiting() && open.input.len() + bytes.len() > WAITING_BYTES_MAX;
        let progress = if is_too_much && !bytes.is_empty() {
            Progress::Close
        } else {
            let mut machine = At {
                machine: &mut self.machine,
                now,
                conn,
            };
            open.advance(bytes, &mut machine, out, self.out_bytes_max)
        };
        open.is_full = progress == Progress::OutputFull;
        self.ready.remove(&conn);
        if progress == Progress::Close {
            self.close(now, conn);
        }
        progress
    }

    /// A connection whose request has waited and has an answer now, if there is one: to be asked after every call, until there is
    /// none. It is named until it has gone on, with [`resume`](Self::resume).
    pub fn next_ready(&mut self) -> Option<ConnId> {
        self.settle();
        self.ready.first().copied()
    }

    /// Tells those whose waits are over.
    fn settle(&mut self) {
        while let Some(Notice { conn, outcome }) = self.machine.next_notice() {
            // Who has gone is told nothing.
            if let Some(open) = self.connections.get_mut(&conn)
                && open.wire.settle(outcome)
            {
                self.ready.insert(conn);
            }
        }
    }

    /// When [`pass`](Self::pass) is to be called; `None` is never.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.machine.next_deadline()
    }

    /// Time has passed: waits and leases that are over end. To be called when
    /// [`next_deadline`](Self::next_deadline) has come.
    pub fn pass(&mut self, now: Instant) {
        self.machine.pass(now);
    }

    /// Goes on with a connection whose output was full and has been sent, or whose wait is over.
    pub fn resume(&mut self, now: Instant, conn: ConnId, out: &mut Output) -> Progress {
        self.receive(now, conn, &[], out)
    }

    /// A connection has ended, however it did. Nothing happens for an id that is nobody's.
    pub fn close(&mut self, now: Instant, conn: ConnId) {
        if self.connections.remove(&conn).is_some() {
            self.ready.remove(&conn);
            self.machine.handle(now, Event::Closed(conn));
        }
    }

    /// Time has passed: expired items are looked for. To be called every quarter second or so;
    /// that an expired item cannot be read does not depend on it.
    pub fn tick(&mut self, now: Instant) {
        self.machine.handle(now, Event::Tick);
    }

    /// The wall clock shows that it is so long since 1970. To be called now and then: an exptime
    /// that is a date is read by it, and nothing else.
    ///
    /// Dates are exact if the moments that are handed over begin at a whole second of the wall
    /// clock, and half a second off at most if not.
    pub fn set_wall_clock(&mut self, now: Instant, since_1970: Duration) {
        let unix_ms = saturating_millis(since_1970);
        // Rounded, so that a hair's breadth between the two clocks is not a second.
        let unix_s_at_start = unix_ms.saturating_add(500).saturating_sub(now.as_millis()) / 1000;
        self.machine
            .handle(now, Event::WallClock { unix_s_at_start });
    }

    /// How much of a connection's input is kept, in bytes (V3); 0 for an id that is nobody's.
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
    pub const fn machine_mut(&mut self) -> &mut M {
        &mut self.machine
    }
}

impl Open {
    /// Takes every step that is to be taken now that `bytes` have arrived.
    fn advance(
        &mut self,
        bytes: &[u8],
        machine: &mut impl Execute,
        out: &mut Output,
        out_bytes_max: usize,
    ) -> Progress {
        // Most of what arrives is whole requests, which need not be copied.
        if self.input.is_empty() {
            let (consumed, progress) = self.wire.drive(bytes, machine, out, out_bytes_max);
            let rest = bytes.get(consumed..).unwrap_or_default();
            self.input.extend_from_slice(rest);
            return progress;
        }
        self.input.extend_from_slice(bytes);
        let (consumed, progress) = self.wire.drive(&self.input, machine, out, out_bytes_max);
        self.input.advance(consumed);
        if self.input.is_empty() {
            // Many connections are idle; none of them keeps the room that its last request took.
            self.input = BytesMut::new();
        }
        progress
    }
}

/// A [`StateMachine`] as one connection sees it at one moment.
struct At<'a, M> {
    machine: &'a mut M,
    now: Instant,
    conn: ConnId,
}

impl<M: StateMachine> Execute for At<'_, M> {
    fn execute(&mut self, command: &Command<'_>, answer: &mut dyn FnMut(&Reply<'_>)) {
        self.machine.execute(self.now, self.conn, *command, answer);
    }

    fn note_unstored(&mut self, why: Unstored) {
        self.machine.note_unstored(why);
    }

    fn limit_memory(&mut self, bytes: usize) -> Result<(), MemoryRefused> {
        self.machine.limit_memory(self.now, bytes)
    }
}

#[cfg(test)]
mod tests;
