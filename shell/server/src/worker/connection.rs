//! One client's connection: its reads, requests and writes from one event to the next.
//!
//! A worker has one input and one output buffer for all its clients. A client has buffers of its own only for
//! these, and frees them when they are empty:
//!
//! - B1: Input that is not a complete request yet, or has to wait for the next turn ([`Input`]).
//! - B2: `pending` is output that the socket did not take. It holds at most [`OUTPUT_BYTES_MAX`] and one
//!   reply. While it is not empty, the server reads nothing from the client.
//! - B3: A turn of one client reads at most [`INPUT_BYTES`], does as much as [`Turn::work`] allows, and
//!   writes once within the limit of a turn. So the other clients have their turns. If a client's end has
//!   been seen, it is read until the end, within the same work.
//! - B4: When a turn has executed the last request of a client, its locks are free at the end of that turn.
//!   The last reply may still wait to be sent.
//! - B6: While a client's request waits for a lock, the client is not read. The worker only watches for its
//!   end, which releases its locks and removes it from the queue.
//! - B7: A small reply may be deferred until other clients have theirs ([`crate::worker::outbox`]), if its
//!   client may send more requests. A reply to a client that has waited, or is leaving, is sent at once.
//! - B5: A TLS handshake does not delay requests: it has one step at a time, after the turns of the other
//!   clients.

mod deferred;
mod end;
mod memory;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use latchd_core::{Instant, Output};
use latchd_protocol::connection::{Connection, Progress};
use latchd_protocol::wait::Outcome;
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;

use crate::clients::budget::{Charge, Holder};
use crate::clients::connection_table::{Entry, State};
use crate::clients::watch::Watcher;
use crate::net::dead_peer::{self, Rounds};
use crate::net::send::Sent;
use crate::net::socket::Socket;
use crate::net::tls::Records;
use crate::net::transport::Transport;
use crate::os::headroom;
use crate::server_state::ServerState;
use crate::stats::connection_stats::Traffic;
use crate::worker::backend::{Backend, ConnTurn};
use crate::worker::input::Input;
use crate::worker::turn::Turn;

pub(crate) use self::end::End;
#[cfg(feature = "verify")]
pub use self::memory::Buffers;

/// Beyond this size, output is sent before more is produced, in bytes.
pub(crate) const OUTPUT_BYTES_MAX: usize = 256 << 10;

/// The part of a larger output buffer that a worker keeps, in bytes.
const OUTPUT_BYTES_KEPT: usize = 512 << 10;

/// The most reads in one turn if the client's end has been seen, so that the end comes before the other
/// clients' next requests.
const LAST_READS_MAX: usize = 32;

/// The event that a client waits for.
#[derive(Debug)]
pub(crate) enum Next {
    /// Bytes from its peer.
    Input,
    /// Space in its socket.
    Output,
    /// A lock, until [`ClientConn::end_wait`] reports the end of the wait.
    Lock,
    /// Its next turn: it has more work.
    Turn,
    /// A turn that it waits for already.
    InTurn,
    /// Nothing: the connection is to be dropped.
    End(End),
}

/// One client: by default of the server, behind a socket of the system.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools)] // Each is a state of its own.
pub(crate) struct ClientConn<S = OwnedFd, B: Backend = ServerState> {
    transport: Transport<S>,
    /// `None` once its locks have been released (B4).
    session: Option<B::Session>,
    wire: Connection,
    input: Input,
    pending: Output,
    /// The memory that the budget of requests counts for it.
    charged_input: Charge,
    /// The memory that the budget of replies counts for it.
    charged_output: Charge,
    waits_for: EventFlags,
    /// Its entry in the connection table, with its state.
    entry: Arc<Entry>,
    last_active: Instant,
    number: u64,
    /// It has requested a lock, so its peer's death is detected sooner.
    is_holder: bool,
    /// A reply to it is deferred (B7).
    has_deferred: bool,
    /// It stands in its worker's queue of clients in the middle of a long request.
    is_in_queue: bool,
    /// It has sent bytes of a request: it is no probe.
    has_sent: bool,
    /// Its queue of log lines, if it watches.
    watcher: Option<Arc<Watcher>>,
}

/// The registration of a client without pending output. The peer's end is a separate event, so it is
/// distinguishable from bytes.
pub(crate) const READABLE: EventFlags = EventFlags::IN.union(EventFlags::RDHUP);

impl<S: Socket, B: Backend> ClientConn<S, B> {
    pub(crate) fn new(
        transport: Transport<S>,
        session: B::Session,
        wire: Connection,
        input: Input,
        entry: Arc<Entry>,
        now: Instant,
    ) -> Self {
        Self {
            transport,
            number: B::conn(&session).number(),
            session: Some(session),
            wire,
            input,
            pending: Output::new(),
            charged_input: Charge::default(),
            charged_output: Charge::default(),
            waits_for: READABLE,
            entry,
            last_active: now,
            is_holder: false,
            has_deferred: false,
            is_in_queue: false,
            has_sent: false,
            watcher: None,
        }
    }

    /// Its address.
    pub(crate) fn peer(&self) -> String {
        self.entry.peer()
    }

    /// Its connection id.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Whether it waits for more bytes of a long request.
    pub(crate) fn is_collecting(&self) -> bool {
        self.waits_for == READABLE && self.input.is_collecting() && !self.is_handshaking()
    }

    /// Notes whether it stands in the queue of such clients. Returns whether that is new.
    pub(crate) fn note_collecting(&mut self, is_in_queue: bool) -> bool {
        std::mem::replace(&mut self.is_in_queue, is_in_queue) != is_in_queue
    }

    /// Whether it watches.
    pub(crate) fn watches(&self) -> bool {
        self.watcher.is_some()
    }

    /// Whether it could send a request now. If it watches or waits for a lock, silence means nothing.
    pub(crate) fn may_ask(&self) -> bool {
        !self.watches() && !self.wire.is_waiting()
    }

    /// Registers the address for its notifications, if it watches. Returns whether lines are queued.
    pub(crate) fn register_watcher(&self, holder: Holder) -> bool {
        let watcher = self.watcher.as_ref();
        watcher.is_some_and(|watcher| watcher.register(holder))
    }

    /// Whether it holds a lock. Then it may be idle, and only its socket shows that it is dead.
    pub(crate) fn holds(&self, now: Instant, backend: &B) -> bool {
        let session = self.session.as_ref();
        session.is_some_and(|session| backend.holds(now, session))
    }

    /// Whether it relies on this server alone: it holds a lock or a bound win, waits, or has a session.
    pub(crate) fn relies(&self, now: Instant, backend: &B) -> bool {
        let session = self.session.as_ref();
        self.wire.is_waiting() || session.is_some_and(|session| backend.relies(now, session))
    }

    /// Probes its peer if the peer has been silent for long and `place` is due in these rounds.
    pub(crate) fn ask_peer(&self, now: Instant, place: usize, rounds: &Rounds) {
        let silent_ms = now.as_millis().saturating_sub(self.last_active.as_millis());
        if let Some(within) = rounds.within(place, self.is_holder)
            && Duration::from_millis(silent_ms) >= dead_peer::silence(within)
        {
            self.transport.ask_peer(within);
        }
    }

    /// The time of its last request; incomplete requests do not count.
    pub(crate) fn last_active(&self) -> Instant {
        self.last_active
    }

    /// Notes the events that it waits for; returns them if the epoll registration changes.
    pub(crate) fn wait_for(&mut self, events: EventFlags) -> Option<EventFlags> {
        let is_news = self.waits_for != events;
        self.waits_for = events;
        self.entry.set_state(if self.watches() {
            State::Watching
        } else if events == EventFlags::OUT {
            State::Writing
        } else if events == IN_TURN {
            State::Working
        } else if events == ENDING {
            State::Waiting
        } else if self.input.kept().is_empty() {
            State::Reading
        } else {
            State::ReadingOn
        });
        is_news.then_some(events)
    }

    /// Processes the events `ready` that epoll has reported.
    #[expect(
        clippy::inline_always,
        reason = "each request passes here, and its result is large to return"
    )]
    #[inline(always)]
    pub(crate) fn advance(&mut self, ready: EventFlags, turn: &mut Turn<'_, B>) -> Next {
        turn.puts_off = !is_ending(ready) && self.transport.plain().is_some();
        let next = if self.waits_for == EventFlags::OUT {
            self.resume(turn)
        } else if self.waits_for == IN_TURN {
            Ok(Next::InTurn)
        } else if self.waits_for == ENDING {
            // B6
            Ok(Next::End(if ready.contains(EventFlags::ERR) {
                End::Failed(self.transport.failure())
            } else {
                End::PeerClosed
            }))
        } else if self.transport.is_handshaking() {
            // B5
            Ok(Next::Turn)
        } else {
            self.converse(ready, turn)
        };
        match self.conclude(next) {
            // A reset discards the requests that are not executed by now: the locks do not wait for them.
            Next::Turn | Next::InTurn if ready.contains(EventFlags::ERR) => {
                Next::End(End::Failed(self.transport.failure()))
            }
            next @ (Next::Input
            | Next::Output
            | Next::Lock
            | Next::Turn
            | Next::InTurn
            | Next::End(_)) => next,
        }
    }

    /// The result of a turn, with the state of its transport taken into account.
    fn conclude(&mut self, next: rustix::io::Result<Next>) -> Next {
        match next {
            Ok(Next::Input | Next::Lock) if self.transport.has_unsent() => Next::Output,
            Ok(Next::Input | Next::Lock) if self.transport.has_ended() => {
                Next::End(End::PeerClosed)
            }
            Ok(next) => next,
            Err(errno) => Next::End(
                self.transport
                    .take_failure()
                    .map_or_else(|| errno.into(), |why| End::Misunderstood(Box::new(why))),
            ),
        }
    }

    /// Ends its wait for a lock: its request gets a reply, and the next requests are executed, once earlier
    /// output has been taken.
    pub(crate) fn end_wait(&mut self, outcome: Outcome, turn: &mut Turn<'_, B>) -> Next {
        if !turn.serves {
            return Next::End(End::NotPrimary);
        }
        // If it did not wait, this changes nothing.
        self.wire.end_wait(outcome);
        if self.waits_for == EventFlags::OUT {
            return Next::Output;
        }
        if self.waits_for == IN_TURN {
            return Next::InTurn;
        }
        let next = self.answer(turn);
        self.conclude(next)
    }

    /// Whether its handshake is in progress, so no request is readable yet.
    pub(crate) fn is_handshaking(&self) -> bool {
        self.transport.is_handshaking()
    }

    /// Whether it ended the connection itself.
    pub(crate) fn has_left(&self) -> bool {
        self.wire.has_left()
    }

    /// Its socket, without its buffers. Call it after the release.
    pub(crate) fn into_transport(self) -> Transport<S> {
        self.transport
    }

    /// Announces the end to the peer, where TLS allows it.
    pub(crate) fn say_goodbye(&mut self) {
        if self.pending.is_empty() {
            self.transport.say_goodbye();
        }
    }

    /// Sends its queued log lines, if it watches and has taken the earlier ones.
    pub(crate) fn deliver(&mut self, turn: &mut Turn<'_, B>) -> Next {
        if self.waits_for == EventFlags::OUT {
            return Next::Output;
        }
        if self.waits_for == IN_TURN {
            return Next::InTurn;
        }
        self.send_news(turn)
            .unwrap_or_else(|errno| Next::End(errno.into()))
    }

    fn send_news(&mut self, turn: &mut Turn<'_, B>) -> rustix::io::Result<Next> {
        let Some(watcher) = &self.watcher else {
            return Ok(Next::Input);
        };
        if !turn.serves {
            return Ok(Next::End(End::NotPrimary));
        }
        turn.output.extend_from_slice(&watcher.take());
        let sent = self.send(turn);
        turn.output.clear();
        turn.output.shrink_to(OUTPUT_BYTES_KEPT);
        Ok(match sent? {
            Sent::All => Next::Input,
            Sent::Enough => Next::Turn,
            Sent::Full => Next::Output,
        })
    }

    /// Continues the work that did not fit into its last turn.
    pub(crate) fn go_on(&mut self, turn: &mut Turn<'_, B>) -> Next {
        let next = if !self.pending.is_empty() || self.transport.has_unsent() {
            self.resume(turn)
        } else if self.transport.is_handshaking() {
            self.converse(READABLE, turn)
        } else {
            self.answer(turn)
        };
        self.conclude(next)
    }

    /// Reads and replies; once, or until the end if that has been seen.
    #[inline]
    fn converse(&mut self, ready: EventFlags, turn: &mut Turn<'_, B>) -> rustix::io::Result<Next> {
        let rounds = if is_ending(ready) { LAST_READS_MAX } else { 1 };
        for _ in 0..rounds {
            let read = self
                .input
                .receive(&mut self.transport, turn.input, turn.records);
            turn.traffic.count_read(read.unwrap_or(0));
            match read {
                Ok(0) => return Ok(Next::End(End::PeerClosed)),
                Ok(_) => self.note_sent(turn.backend),
                Err(Errno::AGAIN) => return Ok(Next::Input),
                Err(errno) => return Err(errno),
            }
            match self.answer(turn)? {
                Next::Input => {}
                next @ (Next::Output | Next::Lock | Next::Turn | Next::InTurn | Next::End(_)) => {
                    return Ok(next);
                }
            }
        }
        Ok(Next::Input)
    }

    /// Notes that it is a client for the log.
    pub(crate) fn note_sent(&mut self, backend: &B) {
        if !std::mem::replace(&mut self.has_sent, true) {
            backend.note_first_bytes(self.number, &self.entry);
        }
    }

    /// Whether it is a client for the log.
    pub(crate) fn has_sent(&self) -> bool {
        self.has_sent
    }

    /// Releases every lock. Call it before the client is dropped.
    pub(crate) fn release(&mut self, backend: &B, now: Instant) {
        if let Some(watcher) = self.watcher.take() {
            backend.forget_watcher(&watcher);
        }
        if let Some(session) = self.session.take() {
            backend.close(now, session);
        }
    }

    /// Its session, for a caller that releases its locks after it is dropped.
    pub(crate) fn take_session(&mut self) -> Option<B::Session> {
        self.session.take()
    }

    /// Sends the pending output; when all is sent, continues the work that waited for it.
    fn resume(&mut self, turn: &mut Turn<'_, B>) -> rustix::io::Result<Next> {
        if !turn.serves {
            return Ok(Next::End(End::NotPrimary));
        }
        match self
            .transport
            .send(&mut self.pending, turn.traffic, turn.records)?
        {
            Sent::All => {}
            Sent::Enough => return Ok(Next::Turn),
            Sent::Full => return Ok(Next::Output),
        }
        self.pending = Output::new();
        if self.session.is_none() {
            return Ok(Next::End(End::Protocol));
        }
        if self.watches() {
            return self.send_news(turn);
        }
        // A full output buffer may have interrupted the complete requests.
        self.answer(turn)
    }

    /// Executes every complete request of the input and sends the replies together.
    fn answer(&mut self, turn: &mut Turn<'_, B>) -> rustix::io::Result<Next> {
        let Some(session) = self.session.as_mut() else {
            return Ok(Next::End(End::Protocol));
        };
        self.input.freeze();
        let (input, is_enough) = self.input.all(turn.input);
        if !is_enough {
            self.input.consume(0, turn.input)?;
            return Ok(Next::Input);
        }
        turn.output.try_reserve(OUTPUT_BYTES_MAX).map_err(|_| {
            headroom::count_refused();
            Errno::NOMEM
        })?;
        self.entry.set_state(State::Working);
        let serves = turn.serves;
        // A request of a client that waits has begun: its reply would be one of a primary.
        if !serves && self.wire.is_waiting() {
            return Ok(Next::End(End::NotPrimary));
        }
        let part = ConnTurn {
            now: turn.now,
            session,
            request: self.input.shared(),
            work: &mut turn.work,
            watcher: &mut self.watcher,
        };
        let (consumed, progress) = if serves {
            turn.backend
                .drive(part, &mut self.wire, input, turn.output, OUTPUT_BYTES_MAX)
        } else {
            self.wire.refuse(input, turn.output, OUTPUT_BYTES_MAX)
        };
        let meta_commands = turn.work.take_meta();
        if meta_commands > 0 {
            turn.traffic.count_meta(meta_commands);
        }
        if !self.is_holder && B::may_hold(session) {
            self.is_holder = true;
            self.transport.watch_peer(turn.backend.dead_peer());
        }
        if turn.work.has_executed() || !turn.output.is_empty() {
            self.last_active = turn.now;
            self.entry.set_active(turn.now);
        }
        let kept = self.input.consume(consumed, turn.input);
        let wanted = if let Progress::NeedsInput { at_least } = progress {
            self.input.wait_for(at_least);
            Next::Input
        } else if progress == Progress::Waiting {
            // The request is complete, and so may be the next one.
            self.input.wait_for_nothing();
            Next::Lock
        } else if progress == Progress::Close {
            self.release(turn.backend, turn.now);
            Next::End(End::Protocol)
        } else {
            turn.traffic.count_yield();
            self.input.wait_for_nothing();
            Next::Turn
        };
        #[cfg(any(test, feature = "verify"))]
        assert!(
            self.session.is_none() || !matches!(wanted, Next::End(_)),
            "B4: locks are free before the last reply is sent"
        );
        let sent = if serves && matches!(wanted, Next::Input) && self.put_off(turn) {
            Ok(Sent::All)
        } else if serves && !turn.output.is_empty() && !turn.still_serves() {
            // The requests are executed, and the client must not learn it from this server.
            turn.output.clear();
            kept?;
            return Ok(Next::End(End::NotPrimary));
        } else {
            self.send(turn)
        };
        turn.output.clear();
        turn.output.shrink_to(OUTPUT_BYTES_KEPT);
        kept?;
        Ok(match sent? {
            Sent::All => wanted,
            Sent::Enough => Next::Turn,
            Sent::Full => Next::Output,
        })
    }

    /// Sends the output; the part that the socket does not take becomes pending.
    fn send(&mut self, turn: &mut Turn<'_, B>) -> rustix::io::Result<Sent> {
        let sent = self
            .transport
            .send(turn.output, turn.traffic, turn.records)?;
        if !turn.output.is_empty() {
            headroom::allocate(turn.output.len(), || {
                self.pending.try_append(turn.output).ok()
            })
            .ok_or(Errno::NOMEM)?;
        }
        Ok(sent)
    }

    /// Sends the client an error because its request exceeds the budget, if the client still reads. Call it
    /// before the client is dropped for that.
    pub(crate) fn refuse(&mut self, traffic: &Traffic, records: &mut Records) {
        if self.pending.is_empty() {
            let mut output = Output::new();
            let response = self.wire.out_of_memory(self.input.kept());
            response.encode(&mut output);
            // The connection is closed in any case.
            let _ = self.transport.send(&mut output, traffic, records);
        }
    }
}

impl<B: Backend> AsFd for ClientConn<OwnedFd, B> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.transport.as_fd()
    }
}

/// The registration of a client that waits for a lock (B6).
pub(crate) const ENDING: EventFlags = EventFlags::RDHUP;

/// The registration of a client that waits for its turn: it needs no event. epoll reports a reset without
/// registration.
pub(crate) const IN_TURN: EventFlags = EventFlags::empty();

/// Whether no bytes will arrive after those that have.
pub(crate) fn is_ending(ready: EventFlags) -> bool {
    ready.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR)
}

#[cfg(all(test, not(feature = "scheduled")))]
mod check;
