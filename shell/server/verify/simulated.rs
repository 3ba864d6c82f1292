//! A worker's clients without sockets, threads and a clock, for proofs that explore every state of their
//! buffers.
//!
//! A client's connection is the server's own (`connection.rs`, with its input and its sending). Around it,
//! three parts are replaced: a [`Pipe`] replaces the socket, a [`StateMachine`] the shards, and this worker
//! the one with an epoll. The caller controls the arriving bytes, the space for output, the order and length
//! of turns, and the time. The same calls give the same bytes.
//!
//! Not simulated: TLS, watchers, budgets over all clients, idle clients.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::io::IoSlice;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use latchd_core::engine::{Event, Notification};
use latchd_core::server::StateMachine;
use latchd_core::{ConnId, Instant, Output};
use latchd_protocol::command::Command;
use latchd_protocol::connection::{Connection, Progress};
use latchd_protocol::execute::Execute;
use latchd_protocol::reply::Reply;
use latchd_protocol::wait::Notice;
use latchd_protocol::wire::WireLimits;
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;

use crate::clients::connection_table::{ConnectionTable, Entry};
use crate::clients::watch::Watcher;
use crate::net::listen::Address;
use crate::net::socket::{self, Socket};
use crate::net::tls::Records;
use crate::net::transport::Transport;
use crate::stats::connection_stats::Traffic;
use crate::worker::backend::{Backend, ConnTurn};
use crate::worker::connection::{self, ClientConn, ENDING, IN_TURN, Next, READABLE};
use crate::worker::input::{self, Input};
use crate::worker::outbox::Outbox;
use crate::worker::turn::{HEAVY, Turn, Work};

pub use crate::worker::connection::Buffers;

/// Beyond this size, output is sent before more is produced, in bytes.
pub const OUTPUT_BYTES_MAX: usize = connection::OUTPUT_BYTES_MAX;

/// The most bytes read at a time.
pub const INPUT_BYTES: usize = socket::INPUT_BYTES;

/// A longer request is collected in the client's own buffer, in bytes.
pub const REQUEST_BYTES_SHARED_MAX: usize = input::REQUEST_BYTES_SHARED_MAX;

/// The state of the peer's side.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Peer {
    /// Open.
    #[default]
    Open,
    /// The peer has shut down its sending side.
    HalfClosed,
    /// The peer has reset the connection.
    Reset,
}

/// A socket made of two queues of bytes: a client's socket on the server's side, and its peer here.
#[derive(Clone, Debug, Default)]
pub struct Pipe(Rc<RefCell<Ends>>);

#[derive(Debug, Default)]
struct Ends {
    peer: Peer,
    /// Bytes from the peer that the server has not read.
    arrived: VecDeque<u8>,
    /// The total of bytes that the server has read.
    read: u64,
    /// Bytes from the server that the peer has not read.
    taken: Vec<u8>,
    /// The capacity of `taken`, in bytes.
    capacity_bytes: usize,
    /// The most bytes taken at a time.
    piece_bytes: usize,
    /// The server has closed the socket.
    is_closed: bool,
}

impl Pipe {
    /// Adds bytes from the peer, unless it has reset the connection.
    pub fn arrive(&self, bytes: &[u8]) {
        let mut ends = self.0.borrow_mut();
        if ends.peer != Peer::Reset {
            ends.arrived.extend(bytes);
        }
    }

    /// Ends the peer's sending, unless it has reset the connection.
    pub fn half_close(&self) {
        let mut ends = self.0.borrow_mut();
        if ends.peer == Peer::Open {
            ends.peer = Peer::HalfClosed;
        }
    }

    /// Resets the connection: the bytes that have arrived are lost.
    pub fn reset(&self) {
        let mut ends = self.0.borrow_mut();
        ends.peer = Peer::Reset;
        ends.arrived.clear();
        ends.taken.clear();
    }

    /// Sets the capacity for unread bytes, and the most bytes taken at a time.
    pub fn set_capacity(&self, capacity_bytes: usize, piece_bytes: usize) {
        let mut ends = self.0.borrow_mut();
        (ends.capacity_bytes, ends.piece_bytes) = (capacity_bytes, piece_bytes.max(1));
    }

    /// Reads up to this many bytes as the peer.
    #[must_use]
    pub fn take(&self, bytes: usize) -> Vec<u8> {
        let mut ends = self.0.borrow_mut();
        let bytes = bytes.min(ends.taken.len());
        let rest = ends.taken.split_off(bytes);
        std::mem::replace(&mut ends.taken, rest)
    }

    /// The number of arrived bytes that the server has not read.
    #[must_use]
    pub fn unread(&self) -> usize {
        self.0.borrow().arrived.len()
    }

    /// The number of taken bytes that the peer has not read.
    #[must_use]
    pub fn untaken(&self) -> usize {
        self.0.borrow().taken.len()
    }

    /// The total of bytes that the server has read.
    #[must_use]
    pub fn read(&self) -> u64 {
        self.0.borrow().read
    }

    /// Whether the peer has reset the connection.
    #[must_use]
    pub fn is_reset(&self) -> bool {
        self.0.borrow().peer == Peer::Reset
    }

    /// Whether the server has closed the socket.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.0.borrow().is_closed
    }

    /// The events that an epoll would report.
    fn ready(&self) -> EventFlags {
        let ends = self.0.borrow();
        let mut ready = EventFlags::empty();
        if !ends.arrived.is_empty() || ends.peer != Peer::Open {
            ready |= EventFlags::IN;
        }
        if ends.taken.len() < ends.capacity_bytes || ends.peer == Peer::Reset {
            ready |= EventFlags::OUT;
        }
        match ends.peer {
            Peer::Open => {}
            Peer::HalfClosed => ready |= EventFlags::RDHUP,
            Peer::Reset => ready |= EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR,
        }
        ready
    }
}

impl Socket for Pipe {
    fn receive(&self, buffer: &mut Vec<u8>) -> rustix::io::Result<usize> {
        let mut ends = self.0.borrow_mut();
        let space = buffer.capacity() - buffer.len();
        let bytes = space.min(ends.arrived.len());
        if bytes == 0 {
            return match ends.peer {
                Peer::Open => Err(Errno::AGAIN),
                Peer::HalfClosed => Ok(0),
                Peer::Reset => Err(Errno::CONNRESET),
            };
        }
        buffer.extend(ends.arrived.drain(..bytes));
        ends.read += bytes as u64;
        Ok(bytes)
    }

    fn receive_into(&self, space: &mut [u8]) -> rustix::io::Result<usize> {
        let mut buffer = Vec::with_capacity(space.len());
        let read = self.receive(&mut buffer)?;
        space[..read].copy_from_slice(&buffer);
        Ok(read)
    }

    fn send(&self, bytes: &[u8]) -> rustix::io::Result<usize> {
        self.send_chunks(&[IoSlice::new(bytes)])
    }

    fn send_chunks(&self, chunks: &[IoSlice<'_>]) -> rustix::io::Result<usize> {
        let mut ends = self.0.borrow_mut();
        if ends.peer == Peer::Reset {
            return Err(Errno::PIPE);
        }
        let space = ends.capacity_bytes.saturating_sub(ends.taken.len());
        let mut left = space.min(ends.piece_bytes);
        if left == 0 {
            return Err(Errno::AGAIN);
        }
        let before = ends.taken.len();
        for chunk in chunks {
            let bytes = left.min(chunk.len());
            ends.taken.extend_from_slice(&chunk[..bytes]);
            left -= bytes;
        }
        Ok(ends.taken.len() - before)
    }

    fn failure(&self) -> Errno {
        Errno::CONNRESET
    }

    fn watch_peer(&self, _: Duration) {}

    fn ask_peer(&self, _: Duration) {}
}

/// A machine that replaces the shards.
#[derive(Debug)]
struct Behind<M> {
    machine: RefCell<M>,
    /// The progress of the last drive since the caller last took it.
    progress: Cell<Option<Progress>>,
}

/// The machine's state of a connection.
#[derive(Debug)]
struct Session {
    conn: ConnId,
    has_executed: bool,
}

impl<M: StateMachine> Backend for Behind<M> {
    type Session = Session;

    fn conn(session: &Session) -> ConnId {
        session.conn
    }

    fn may_hold(session: &Session) -> bool {
        session.has_executed
    }

    // No client is idle here.
    fn holds(&self, _: Instant, session: &Session) -> bool {
        session.has_executed
    }

    fn relies(&self, _: Instant, session: &Session) -> bool {
        session.has_executed
    }

    // It is no member of a cluster.
    fn serves(&self) -> bool {
        true
    }

    fn note_first_bytes(&self, _: u64, _: &Entry) {}

    fn drive(
        &self,
        part: ConnTurn<'_, Session>,
        wire: &mut Connection,
        input: &[u8],
        output: &mut Output,
        output_bytes_max: usize,
    ) -> (usize, Progress) {
        let mut machine = self.machine.borrow_mut();
        let mut core = ConnExecutor {
            machine: &mut *machine,
            now: part.now,
            session: part.session,
            work: part.work,
        };
        let (consumed, progress) = wire.drive(input, &mut core, output, output_bytes_max);
        self.progress.set(Some(progress));
        (consumed, progress)
    }

    fn close(&self, now: Instant, session: Session) {
        let mut machine = self.machine.borrow_mut();
        machine.handle(now, Event::Closed(session.conn.into()));
    }

    fn forget_watcher(&self, _: &Watcher) {}

    fn dead_peer(&self) -> Duration {
        Duration::MAX
    }
}

/// The machine as one connection sees it in one turn; it yields as the server's own executor does.
struct ConnExecutor<'a, M> {
    machine: &'a mut M,
    now: Instant,
    session: &'a mut Session,
    work: &'a mut Work,
}

impl<M: StateMachine> Execute for ConnExecutor<'_, M> {
    fn execute(&mut self, command: &Command<'_>, answer: &mut impl FnMut(&Reply<'_>)) {
        self.work.note_executed();
        self.session.has_executed = true;
        if let Command::Global(_) = command {
            self.work.spend(HEAVY);
        }
        let conn = self.session.conn;
        let before = self.machine.work();
        self.machine.execute(self.now, conn.into(), command, answer);
        let units = self.machine.work() - before;
        self.work.spend(u32::try_from(units).unwrap_or(u32::MAX));
    }

    fn goes_on(&mut self) -> bool {
        self.work.spend(1);
        self.work.is_left()
    }
}

/// The length of a turn.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Span {
    /// It ends at the first check of its time.
    Short,
    /// It ends when all work is done.
    Long,
}

impl Span {
    const fn duration(self) -> Duration {
        match self {
            Self::Short => Duration::ZERO,
            Self::Long => Duration::from_secs(1 << 20),
        }
    }
}

/// The event that a client waits for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Wants {
    /// Bytes from its peer.
    Input,
    /// Space in its socket.
    Output,
    /// The end of its wait, or of its peer.
    Lock,
    /// Its next turn.
    Turn,
}

/// The visible state of a client.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Look {
    /// The event that it waits for.
    pub wants: Wants,
    /// The memory kept for it.
    pub buffers: Buffers,
}

/// A client, and its socket.
#[derive(Debug)]
pub(super) struct Client<B: Backend> {
    pub(super) conn: ClientConn<Pipe, B>,
    pub(super) pipe: Pipe,
    /// The events registered with the epoll.
    interest: EventFlags,
}

impl<B: Backend> Client<B> {
    pub(super) fn new(
        session: B::Session,
        wire: Connection,
        entry: Arc<Entry>,
        now: Instant,
    ) -> Self {
        let pipe = Pipe::default();
        let transport = Transport::Plain(pipe.clone());
        Self {
            conn: ClientConn::new(transport, session, wire, Input::new(false), entry, now),
            pipe,
            interest: READABLE,
        }
    }

    /// The events that the epoll has for it.
    pub(super) fn ready(&self) -> EventFlags {
        // epoll reports these without registration.
        let unasked = EventFlags::ERR | EventFlags::HUP;
        self.pipe.ready() & (self.interest | unasked)
    }

    /// The state of a client between two turns.
    pub(super) fn look(&self) -> Look {
        let wants = if self.interest == EventFlags::OUT {
            Wants::Output
        } else if self.interest == IN_TURN {
            Wants::Turn
        } else if self.interest == ENDING {
            Wants::Lock
        } else {
            Wants::Input
        };
        Look {
            wants,
            buffers: self.conn.buffers(),
        }
    }

    /// The server closes its socket.
    pub(super) fn close_socket(&self) {
        self.pipe.0.borrow_mut().is_closed = true;
    }
}

/// The buffers that a worker lends its clients for their turns.
#[derive(Debug)]
pub(super) struct Desk {
    traffic: Traffic,
    input: Vec<u8>,
    output: Output,
    outbox: Outbox,
    records: Records,
}

impl Desk {
    pub(super) fn new() -> Self {
        Self {
            traffic: Traffic::default(),
            input: Vec::with_capacity(INPUT_BYTES),
            output: Output::new(),
            outbox: Outbox::new(),
            records: Records::default(),
        }
    }

    /// Gives a client a turn, and registers the event that it waits for then.
    pub(super) fn have_turn<B: Backend>(
        &mut self,
        backend: &B,
        (now, span): (Instant, Span),
        client: &mut Client<B>,
        advance: impl FnOnce(&mut ClientConn<Pipe, B>, &mut Turn<'_, B>) -> Next,
    ) -> Next {
        let mut turn = Turn {
            backend,
            serves: backend.serves(),
            traffic: &self.traffic,
            now,
            input: &mut self.input,
            output: &mut self.output,
            outbox: &mut self.outbox,
            puts_off: false,
            name: client.conn.number(),
            records: &mut self.records,
            work: Work::new(span.duration()),
        };
        let mut next = advance(&mut client.conn, &mut turn);
        // No other client is ready here: the deferred replies are sent.
        while let Some((_, reply)) = self.outbox.take() {
            match client.conn.send_deferred(reply, &self.traffic) {
                Next::Input => {}
                unsent @ (Next::Output | Next::Lock | Next::Turn | Next::InTurn | Next::End(_)) => {
                    next = unsent;
                }
            }
        }
        assert!(
            self.input.is_empty() && self.output.is_empty(),
            "what is the worker's is left as it was found"
        );
        let wanted = match next {
            Next::Input => READABLE,
            Next::Output => EventFlags::OUT,
            Next::Lock => ENDING,
            Next::Turn => IN_TURN,
            Next::InTurn | Next::End(_) => return next,
        };
        if let Some(events) = client.conn.wait_for(wanted) {
            client.interest = events;
        }
        next
    }
}

/// A worker's clients in front of a machine.
#[derive(Debug)]
pub struct Worker<M: StateMachine> {
    behind: Behind<M>,
    clients: BTreeMap<ConnId, Client<Behind<M>>>,
    opened: u64,
    /// The clients with more work, in the order of their turns.
    waiting: VecDeque<ConnId>,
    /// The ended waits of clients that are not notified yet.
    mail: VecDeque<Notice>,
    wire_limits: WireLimits,
    connection_table: ConnectionTable,
    desk: Desk,
}

impl<M: StateMachine> Worker<M> {
    /// A worker without clients, in front of `machine`.
    #[must_use]
    pub fn new(machine: M, wire_limits: WireLimits) -> Self {
        Self {
            behind: Behind {
                machine: RefCell::new(machine),
                progress: Cell::new(None),
            },
            clients: BTreeMap::new(),
            opened: 0,
            waiting: VecDeque::new(),
            mail: VecDeque::new(),
            wire_limits: WireLimits {
                waits: true,
                ..wire_limits
            },
            connection_table: ConnectionTable::new(&[Address::Unix("nowhere".into())]),
            desk: Desk::new(),
        }
    }

    /// Connects a client.
    pub fn open(&mut self, now: Instant) -> (ConnId, Pipe) {
        self.opened += 1;
        let conn = ConnId::from_number(self.opened);
        let machine = self.behind.machine.get_mut();
        machine.handle(now, Event::Opened(conn.into()));
        let session = Session {
            conn,
            has_executed: false,
        };
        let entry = self.connection_table.add(self.opened, 0, None, now);
        let client = Client::new(session, Connection::new(self.wire_limits), entry, now);
        let pipe = client.pipe.clone();
        self.clients.insert(conn, client);
        (conn, pipe)
    }

    /// Gives a client a turn if the epoll has an event for it. Returns whether it had one.
    pub fn wake(&mut self, now: Instant, conn: ConnId, span: Span) -> bool {
        let Some(client) = self.clients.get(&conn) else {
            return false;
        };
        let ready = client.ready();
        if ready.is_empty() {
            return false;
        }
        self.have_turn(now, conn, span, |client, turn| client.advance(ready, turn));
        true
    }

    /// Gives the first client with more work a turn. Returns the client, if there is one.
    pub fn go_on(&mut self, now: Instant, span: Span) -> Option<ConnId> {
        let conn = self.waiting.pop_front()?;
        self.have_turn(now, conn, span, ClientConn::go_on);
        Some(conn)
    }

    /// Notifies the first client with an ended wait. Returns the client, if there is one.
    pub fn read_letter(&mut self, now: Instant, span: Span) -> Option<ConnId> {
        let Notice { owner, outcome } = self.mail.pop_front()?;
        let conn = ConnId::from_number(owner.number());
        self.have_turn(now, conn, span, |client, turn| {
            client.end_wait(outcome, turn)
        });
        Some(conn)
    }

    fn have_turn(
        &mut self,
        now: Instant,
        conn: ConnId,
        span: Span,
        advance: impl FnOnce(&mut ClientConn<Pipe, Behind<M>>, &mut Turn<'_, Behind<M>>) -> Next,
    ) {
        let Some(client) = self.clients.get_mut(&conn) else {
            return;
        };
        match self
            .desk
            .have_turn(&self.behind, (now, span), client, advance)
        {
            Next::Turn => self.waiting.push_back(conn),
            Next::End(_) => return self.end(now, conn),
            Next::Input | Next::Output | Next::Lock | Next::InTurn => {}
        }
        self.sort_mail();
    }

    /// Removes a client: first it releases its locks, then it closes its socket.
    fn end(&mut self, now: Instant, conn: ConnId) {
        if let Some(mut client) = self.clients.remove(&conn) {
            client.conn.release(&self.behind, now);
            client.close_socket();
            self.connection_table.remove(conn.number());
        }
        self.sort_mail();
    }

    fn sort_mail(&mut self) {
        let machine = self.behind.machine.get_mut();
        while let Some(notice) = machine.poll().and_then(Notification::wait_over) {
            self.mail.push_back(notice);
        }
    }

    /// Advances the time, and does all that is due.
    pub fn pass(&mut self, now: Instant) {
        self.behind.machine.get_mut().handle(now, Event::Due);
        self.sort_mail();
    }

    /// The state of a client between two turns; `None` if it is closed.
    #[must_use]
    pub fn look(&self, conn: ConnId) -> Option<Look> {
        self.clients.get(&conn).map(Client::look)
    }

    /// Whether a client's wait has ended and it is not notified yet.
    #[must_use]
    pub fn is_to_be_notified(&self, conn: ConnId) -> bool {
        self.mail.iter().any(|notice| notice.owner == conn.into())
    }

    /// The progress of the wire protocol in the last drive, unless the caller has taken it already.
    pub fn take_progress(&mut self) -> Option<Progress> {
        self.behind.progress.take()
    }

    /// The machine behind the connections.
    #[must_use]
    pub fn machine_mut(&mut self) -> &mut M {
        self.behind.machine.get_mut()
    }
}
