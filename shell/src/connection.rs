//! One client's socket, from the moment it can be read or written to the next time it must wait.
//!
//! A worker has one input and one output buffer for all its clients. What belongs to a client alone
//! is only what cannot be helped, and is given back when it is empty:
//!
//! - B1: `rest`, input that is not a whole request yet. It grows by what has arrived, never by what
//!   was announced, and at most to one request of the largest size and [`INPUT_BYTES`].
//! - B2: `pending`, output that the socket did not take. It holds at most [`OUTPUT_BYTES_MAX`] and
//!   one reply. While there is any, nothing is read: a client that does not read is not read.
//! - B3: a turn of one client reads at most [`INPUT_BYTES`], does as much as [`Turn::work`] allows,
//!   and writes once, so that the others' turns come. Only a client whose end is in sight is read
//!   until the end, within the same work.
//! - B4: the locks of a client whose last request has been executed are free before this file is
//!   left, also when its last answer still waits to be sent.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use latchd_core::connection::{Connection, Progress};
use latchd_core::{Instant, Output};
use rustix::buffer::spare_capacity;
use rustix::event::epoll::EventFlags;
use rustix::io::{Errno, retry_on_intr};

use crate::dead_peer;
use crate::executor::{Executor, drive_aloud};
use crate::mailbox::Arrival;
use crate::send::send;
use crate::shards::ShardSession;
use crate::shared::Shared;
use crate::turn::Turn;

/// What a worker reads at a time, in bytes.
pub(crate) const INPUT_BYTES: usize = 64 << 10;

/// A request longer than this is collected in the client's own buffer, in bytes. A shorter one is
/// copied back before the bytes that follow it, which leaves half of the input for those.
const REQUEST_BYTES_SHARED_MAX: usize = INPUT_BYTES / 2;

/// The least room for what is still to come of such a request, in bytes: how long a line will be
/// is not known before its end.
const COLLECTED_BYTES_MIN: usize = INPUT_BYTES / 4;

/// Past this, output is sent before more is made, in bytes.
const OUTPUT_BYTES_MAX: usize = 256 << 10;

/// What a worker keeps of a larger output buffer, in bytes.
const OUTPUT_BYTES_KEPT: usize = 512 << 10;

/// How often a client whose end is in sight is read in one turn, so that the end comes before the
/// others' next requests.
const LAST_READS_MAX: usize = 32;

/// What a client waits for.
#[derive(Debug)]
pub(crate) enum Next {
    /// Bytes from its peer.
    Input,
    /// Room in its socket.
    Output,
    /// Its next turn: it has more to do.
    Turn,
    /// The turn that it waits for already.
    InTurn,
    /// Nothing: it is to be dropped.
    End(End),
}

/// Why a connection ends.
#[derive(Debug)]
pub(crate) enum End {
    /// The protocol says so: `quit`, or an error that loses track of where requests begin.
    Protocol,
    /// The peer has closed its side.
    PeerClosed,
    /// The network says so: a reset, most of all.
    Failed(Errno),
    /// It was idle for too long.
    Idle,
    /// The server ends.
    Shutdown,
}

impl fmt::Display for End {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Protocol => formatter.write_str("closed by the protocol"),
            Self::PeerClosed => formatter.write_str("closed by the peer"),
            Self::Failed(errno) => errno.fmt(formatter),
            Self::Idle => formatter.write_str("idle for too long"),
            Self::Shutdown => formatter.write_str("the server ends"),
        }
    }
}

/// One client.
#[derive(Debug)]
pub(crate) struct ClientConn {
    socket: OwnedFd,
    /// `None` once its locks have been given back (B4).
    session: Option<ShardSession>,
    wire: Connection,
    rest: Vec<u8>,
    /// Nothing happens before `rest` and what follows are this long, in bytes.
    needed: usize,
    pending: Output,
    waits_for: EventFlags,
    last_active: Instant,
    number: u64,
    /// It has asked for a lock, and its peer's death is found out sooner.
    is_holder: bool,
}

/// A client without output that waits, as epoll sees it. The peer's end is asked for by name, so
/// that it can be told from bytes.
pub(crate) const READABLE: EventFlags = EventFlags::IN.union(EventFlags::RDHUP);

impl ClientConn {
    pub(crate) fn new(arrival: Arrival, wire: Connection, now: Instant) -> Self {
        Self {
            socket: arrival.socket,
            number: arrival.conn.number(),
            session: Some(ShardSession::new(arrival.conn)),
            wire,
            rest: Vec::new(),
            needed: 1,
            pending: Output::new(),
            waits_for: READABLE,
            last_active: now,
            is_holder: false,
        }
    }

    /// Its connection id.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// When it last sent or took anything.
    pub(crate) fn last_active(&self) -> Instant {
        self.last_active
    }

    /// Notes what it waits for; returns it if that is news to epoll.
    pub(crate) fn wait_for(&mut self, events: EventFlags) -> Option<EventFlags> {
        let is_news = self.waits_for != events;
        self.waits_for = events;
        is_news.then_some(events)
    }

    /// Does what can be done now that epoll has shown `ready`.
    pub(crate) fn advance(&mut self, ready: EventFlags, turn: &mut Turn<'_>) -> Next {
        self.last_active = turn.now;
        let next = if self.waits_for == EventFlags::OUT {
            self.resume(turn)
        } else if self.waits_for == IN_TURN {
            Ok(Next::InTurn)
        } else {
            self.converse(ready, turn)
        };
        match next {
            // A reset takes back what has not been executed by now: the locks do not wait for it.
            Ok(Next::Turn | Next::InTurn) if ready.contains(EventFlags::ERR) => {
                Next::End(End::Failed(self.error()))
            }
            Ok(next) => next,
            Err(errno) => Next::End(End::Failed(errno)),
        }
    }

    /// Goes on with what did not fit into its last turn.
    pub(crate) fn go_on(&mut self, turn: &mut Turn<'_>) -> Next {
        self.last_active = turn.now;
        self.answer_rest(turn)
            .unwrap_or_else(|errno| Next::End(End::Failed(errno)))
    }

    /// Reads and answers; once, or until the end if that is in sight.
    fn converse(&mut self, ready: EventFlags, turn: &mut Turn<'_>) -> rustix::io::Result<Next> {
        let rounds = if is_ending(ready) { LAST_READS_MAX } else { 1 };
        for _ in 0..rounds {
            match self.receive(turn) {
                Ok(0) => return Ok(Next::End(End::PeerClosed)),
                Ok(_) => {}
                Err(Errno::AGAIN) => return Ok(Next::Input),
                Err(errno) => return Err(errno),
            }
            match self.answer(turn)? {
                Next::Input => {}
                next @ (Next::Output | Next::Turn | Next::InTurn | Next::End(_)) => {
                    return Ok(next);
                }
            }
        }
        Ok(Next::Input)
    }

    /// What its socket has failed with.
    fn error(&self) -> Errno {
        match rustix::net::sockopt::socket_error(&self.socket) {
            Ok(Err(errno)) | Err(errno) => errno,
            Ok(Ok(())) => Errno::CONNRESET,
        }
    }

    /// Gives every lock back. To be called before the client is dropped.
    pub(crate) fn release(&mut self, shared: &Shared, now: Instant) {
        if let Some(session) = self.session.take() {
            shared.shards.close(now, session);
        }
    }

    /// Sends what is pending; when all is gone, goes on with what had to wait for it.
    fn resume(&mut self, turn: &mut Turn<'_>) -> rustix::io::Result<Next> {
        send(&self.socket, &mut self.pending, turn.traffic)?;
        if !self.pending.is_empty() {
            return Ok(Next::Output);
        }
        self.pending = Output::new();
        if self.session.is_none() {
            return Ok(Next::End(End::Protocol));
        }
        if self.rest.len() < self.needed {
            return Ok(Next::Input);
        }
        // A full output has stopped the requests in `rest`.
        self.answer_rest(turn)
    }

    /// Goes on with the requests in `rest`.
    fn answer_rest(&mut self, turn: &mut Turn<'_>) -> rustix::io::Result<Next> {
        turn.input.clear();
        turn.input.append(&mut self.rest);
        self.answer(turn)
    }

    /// Reads once, behind what has arrived before. Returns how many bytes came; 0 is the end.
    fn receive(&mut self, turn: &mut Turn<'_>) -> rustix::io::Result<usize> {
        let read = if self.collects() {
            let missing = self.needed - self.rest.len();
            let room = missing.clamp(COLLECTED_BYTES_MIN, self.rest.len().max(INPUT_BYTES));
            self.rest.reserve_exact(room);
            read(&self.socket, &mut self.rest)?
        } else {
            turn.input.clear();
            turn.input.extend_from_slice(&self.rest);
            read(&self.socket, turn.input)?
        };
        turn.traffic.count_read(read);
        Ok(read)
    }

    /// Whether the request that is under way is too long for the worker's buffer.
    fn collects(&self) -> bool {
        self.needed > REQUEST_BYTES_SHARED_MAX
    }

    /// Executes every whole request of the input and sends the answers in one go.
    fn answer(&mut self, turn: &mut Turn<'_>) -> rustix::io::Result<Next> {
        let Some(session) = self.session.as_mut() else {
            return Ok(Next::End(End::Protocol));
        };
        let collects = self.needed > REQUEST_BYTES_SHARED_MAX;
        let input = if collects { &self.rest } else { &*turn.input };
        if input.len() < self.needed {
            if !collects {
                self.rest.extend_from_slice(&turn.input[self.rest.len()..]);
                turn.input.clear();
            }
            return Ok(Next::Input);
        }
        let mut core = Executor {
            shared: turn.shared,
            now: turn.now,
            session,
            work: &mut turn.work,
        };
        let (consumed, progress) = if turn.shared.config.verbosity < 2 {
            self.wire
                .drive(input, &mut core, turn.output, OUTPUT_BYTES_MAX)
        } else {
            drive_aloud(
                &mut self.wire,
                input,
                &mut core,
                turn.output,
                OUTPUT_BYTES_MAX,
            )
        };
        if !self.is_holder && session.may_hold() {
            self.is_holder = true;
            // A Unix socket has no link that could go down.
            let _ = dead_peer::close(&self.socket, turn.shared.config.dead_peer);
        }
        if collects {
            self.rest.drain(..consumed);
            self.rest.shrink_to_fit();
        } else {
            self.rest.clear();
            self.rest.extend_from_slice(&turn.input[consumed..]);
            turn.input.clear();
            if self.rest.is_empty() {
                self.rest = Vec::new();
            }
        }
        let wanted = if let Progress::NeedsInput { at_least } = progress {
            // More than there is, or the next turn would find nothing new to do.
            self.needed = at_least.max(self.rest.len() + 1);
            Next::Input
        } else if progress == Progress::Close {
            self.release(turn.shared, turn.now);
            Next::End(End::Protocol)
        } else {
            turn.traffic.count_yield();
            self.needed = 0;
            Next::Turn
        };
        let sent = send(&self.socket, turn.output, turn.traffic);
        if sent.is_ok() {
            self.pending.append(turn.output);
        }
        turn.output.clear();
        turn.output.shrink_to(OUTPUT_BYTES_KEPT);
        sent?;
        Ok(if self.pending.is_empty() {
            wanted
        } else {
            Next::Output
        })
    }
}

impl AsFd for ClientConn {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A client that waits for its turn, as epoll sees it: nobody has to say that there are bytes.
/// Epoll shows a reset unasked.
pub(crate) const IN_TURN: EventFlags = EventFlags::empty();

/// Whether the peer will send nothing more than what has arrived.
pub(crate) fn is_ending(ready: EventFlags) -> bool {
    ready.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR)
}

/// Reads into the spare capacity of `buffer`.
fn read(socket: &OwnedFd, buffer: &mut Vec<u8>) -> rustix::io::Result<usize> {
    retry_on_intr(|| rustix::io::read(socket, spare_capacity(buffer)))
}
