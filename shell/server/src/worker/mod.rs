//! A worker thread: its epoll, its clients, and their turns.
//!
//! The folder holds the parts of a client's turn: input, commands, output. It uses all layers below:
//! `server_state`, `shards`, `clients`, `net`, `stats`, `os` and `sync`.
//!
//! The data path is an epoll loop, not a task for each client: a wake-up through the executor takes a hop through the thread of
//! its reactor, about 120 µs. So a thread makes one system call per wait, and uses no wakers. A thread without clients waits without
//! a timeout.
//!
//! - V1: Events are level-triggered. After a short read there is no second one: if more bytes arrive, epoll
//!   reports them again.
//! - V2: Of the events of one wait, ends come before requests. If a client's end has been reported, its locks
//!   are free for every request executed after. If many clients end at once, the first [`ENDS_SPAN`] of ends
//!   are processed: epoll reports the others again, and a round of requests comes in between.
//! - V3: An event for a closed client is dropped: a new client in its slot has another name.
//! - V4: A client with more work than fits into a turn goes to the back of the queue of such clients. One of
//!   them has a turn after each round of the clients with new events. The worker checks in each round whether
//!   the server stops.
//! - V5: Clients in a handshake have a queue of their own, of which one has a turn per round. So a flood of
//!   handshakes costs other clients one step of one handshake per round.
//! - V6: Deferred replies ([`Outbox`]) are sent before the clients with more work continue, and before any
//!   other work for the client of one of them.
//! - V7: Clients with ended waits have a queue of their own, however many waits one request has ended. In
//!   each round, after the clients with new events, they have turns of [`ENDED_WAITS_SPAN`] together.
//! - V8: Clients in the middle of a long request have a queue of their own. In each round, after the clients with
//!   new events, they have turns of [`COLLECTING_SPAN`] together. So a crowd of large values costs other
//!   clients a bounded time per round.
//! - V9: The more clients have events in a round, the shorter are their first turns: about
//!   [`FIRST_TURNS_SPAN`] in total, beyond the first [`HEAVY`](crate::worker::turn::HEAVY) commands of each.

pub(crate) mod backend;
pub(crate) mod connection;
mod ending;
pub(crate) mod executor;
pub(crate) mod input;
mod mail;
pub(crate) mod outbox;
mod request_log;
mod token;
pub(crate) mod turn;

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use latchd_core::{Instant, Output};
use latchd_protocol::wait::Outcome;
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use slab::Slab;

use crate::clients::budget::Holder;
use crate::clients::mailbox::Message;
use crate::net::dead_peer::Rounds;
use crate::net::lingering::Lingering;
use crate::net::socket::INPUT_BYTES;
use crate::net::tls::Records;
use crate::server_state::ServerState;
use crate::stats::connection_stats::BufferKind;
use crate::stats::turn_times::Sampler;
use crate::worker::connection::{ClientConn, ENDING, End, IN_TURN, Next, READABLE, is_ending};
use crate::worker::outbox::Outbox;
use crate::worker::token::Token;
use crate::worker::turn::{FIRST_TURN, LATER_TURN, Turn, Work};

/// The most events of one wait.
const EVENTS_PER_TURN: usize = 128;

/// The time for ends in one round, before other clients have a turn.
const ENDS_SPAN: Duration = Duration::from_millis(2);

/// The total time per round for clients with ended waits, before others have a turn.
const ENDED_WAITS_SPAN: Duration = Duration::from_millis(1);

/// The total time per round for clients in the middle of a long request, after others have had a turn.
const COLLECTING_SPAN: Duration = Duration::from_millis(1);

/// The total time per round for the first turns of the clients with new events. Up to 10 of them, each has
/// [`FIRST_TURN`].
const FIRST_TURNS_SPAN: Duration = Duration::from_millis(2);

/// The most sockets of closed clients drained per round; epoll reports the rest again.
const DRAINED_PER_TURN: usize = 4;

/// No waiting: a client has more work.
const NO_PATIENCE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

/// A worker's state.
#[derive(Debug)]
pub(crate) struct Worker {
    index: usize,
    shared: Arc<ServerState>,
    epoll: OwnedFd,
    clients: Slab<ClientConn>,
    /// The clients with more work, in the order of their turns (V4).
    waiting: VecDeque<Token>,
    /// The clients in a handshake (V5).
    handshaking: VecDeque<Token>,
    /// The clients with ended waits, and the outcomes (V7). At most one entry per client with a request.
    ended_waits: VecDeque<(Token, Outcome)>,
    /// The clients in the middle of a long request that have new bytes (V8). At most one entry per client.
    collecting: VecDeque<Token>,
    /// The most time of a first turn in this round (V9).
    first_turn: Duration,
    input: Vec<u8>,
    output: Output,
    /// Replies that are sent after all clients with new events have been served (V6).
    outbox: Outbox,
    records: Records,
    /// The clients that may be in a handshake, with its start, in the order of their arrival.
    handshakes: VecDeque<(Instant, Token)>,
    lingering: Lingering,
    /// The number of sockets that may still be drained in this round.
    drains_left: usize,
    now: Instant,
    /// Chooses the turns to measure.
    sampler: Sampler,
    /// The rounds in which peers are probed.
    rounds: Rounds,
}

impl Worker {
    /// A worker without clients.
    ///
    /// # Errors
    /// The kernel's, if there are no descriptors left.
    pub(crate) fn new(index: usize, shared: Arc<ServerState>) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(
            &epoll,
            shared.mailbox(index),
            Token::Mailbox.encode(),
            EventFlags::IN,
        )?;
        Ok(Self {
            index,
            now: shared.clock.now(),
            rounds: Rounds::new(shared.config.dead_peer),
            shared,
            epoll,
            clients: Slab::new(),
            waiting: VecDeque::new(),
            handshaking: VecDeque::new(),
            ended_waits: VecDeque::new(),
            collecting: VecDeque::new(),
            first_turn: FIRST_TURN,
            input: Vec::with_capacity(INPUT_BYTES),
            output: Output::new(),
            outbox: Outbox::new(),
            records: Records::default(),
            handshakes: VecDeque::new(),
            lingering: Lingering::default(),
            drains_left: DRAINED_PER_TURN,
            sampler: Sampler::default(),
        })
    }

    /// Serves until the server stops; then it releases every lock of its clients.
    ///
    /// # Errors
    /// The kernel's, if it cannot wait. An error of a client ends only that client.
    pub(crate) fn run(mut self) -> io::Result<()> {
        let result = self.serve();
        self.now = self.shared.clock.now();
        for slot in self.slots(|_| true) {
            self.end(slot, &End::Shutdown);
        }
        let ended = self.lingering.end_all();
        self.count_lingering_ended(ended);
        result
    }

    fn serve(&mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(EVENTS_PER_TURN);
        while !self.shared.is_stopping.load(Ordering::SeqCst) {
            events.clear();
            let patience = if self.is_idle() {
                self.patience()
            } else {
                Some(NO_PATIENCE)
            };
            let free = spare_capacity(&mut events);
            match epoll::wait(&self.epoll, free, patience.as_ref()) {
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(errno.into()),
            }
            self.now = self.shared.clock.now();
            self.round(&events);
        }
        Ok(())
    }

    /// Whether no client has anything to do without a new event.
    fn is_idle(&self) -> bool {
        self.waiting.is_empty()
            && self.handshaking.is_empty()
            && self.ended_waits.is_empty()
            && self.collecting.is_empty()
    }

    /// Processes the events of one wait; then clients with ended waits, and one client of each other queue.
    fn round(&mut self, events: &[Event]) {
        self.drains_left = DRAINED_PER_TURN;
        self.first_turn = first_turn(events.len());
        self.see_to_ends(events);
        for event in events.iter().filter(|event| !is_ending(event.flags)) {
            if self.is_put_behind(*event) {
                continue;
            }
            self.wake(*event);
            if self.outbox.is_due() {
                self.send_deferred();
            }
        }
        self.send_deferred();
        if !self.ended_waits.is_empty() {
            self.answer_ended_waits();
        }
        if !self.collecting.is_empty() {
            self.collect();
        }
        if let Some(name) = self.waiting.pop_front() {
            self.go_on(name);
        }
        if let Some(name) = self.handshaking.pop_front() {
            self.go_on(name);
        }
        self.ask_peers();
    }

    /// Processes the reported ends of clients (V2).
    fn see_to_ends(&mut self, events: &[Event]) {
        let mut ends_at = None;
        for event in events.iter().filter(|event| is_ending(event.flags)) {
            // A single end does not read the clock.
            if let Some(at) = ends_at
                && std::time::Instant::now() >= at
            {
                return;
            }
            self.wake(*event);
            ends_at = ends_at.or_else(|| Some(std::time::Instant::now() + ENDS_SPAN));
        }
    }

    /// Replies to clients with ended waits, in order, within the time limit (V7).
    fn answer_ended_waits(&mut self) {
        let ends_at = std::time::Instant::now() + ENDED_WAITS_SPAN;
        while let Some((name, outcome)) = self.ended_waits.pop_front() {
            self.have_turn(name, FIRST_TURN, |client, turn| {
                client.end_wait(outcome, turn)
            });
            if std::time::Instant::now() >= ends_at {
                return;
            }
        }
        // The queue may have been long: its memory is freed.
        self.ended_waits = VecDeque::new();
    }

    /// Puts a client with new bytes of a long request into the queue of such clients (V8). Returns whether it
    /// stands there.
    fn is_put_behind(&mut self, event: Event) -> bool {
        let name = Token::decode(event.data);
        let Token::Client { slot, .. } = name else {
            return false;
        };
        if !self.is_there(slot, name) || !self.clients[slot].is_collecting() {
            return false;
        }
        if self.clients[slot].note_collecting(true) {
            self.collecting.push_back(name);
        }
        true
    }

    /// Reads more of long requests, in order, within the time limit (V8).
    fn collect(&mut self) {
        let ends_at = std::time::Instant::now() + COLLECTING_SPAN;
        while let Some(name) = self.collecting.pop_front() {
            if let Token::Client { slot, .. } = name
                && self.is_there(slot, name)
            {
                self.clients[slot].note_collecting(false);
                self.have_turn(name, FIRST_TURN, |client, turn| {
                    client.advance(EventFlags::IN, turn)
                });
            }
            if std::time::Instant::now() >= ends_at {
                break;
            }
        }
        self.send_deferred();
    }

    /// How long to wait for events: until the next probes of peers; without clients, as long as it takes.
    fn patience(&self) -> Option<Timespec> {
        if self.clients.is_empty() {
            return None;
        }
        let left = Duration::from_millis(self.rounds.until_next_ms(self.now));
        left.try_into().ok()
    }

    /// Probes the peers that are due.
    fn ask_peers(&mut self) {
        for slot in self.rounds.due(self.now, self.clients.capacity()) {
            if let Some(client) = self.clients.get(slot) {
                client.ask_peer(self.now, slot, &self.rounds);
            }
        }
    }

    fn wake(&mut self, event: Event) {
        match Token::decode(event.data) {
            Token::Mailbox => self.read_mail(),
            Token::Lingering { place } => {
                let Some(left) = self.drains_left.checked_sub(1) else {
                    return;
                };
                self.drains_left = left;
                if self.lingering.drain(place, &mut self.input) {
                    self.count_lingering_ended(1);
                }
            }
            name @ Token::Client { .. } => {
                let ready = event.flags;
                self.have_turn(name, self.first_turn, |client, turn| {
                    client.advance(ready, turn)
                });
            }
        }
    }

    /// Gives a client with more work its next turn.
    fn go_on(&mut self, name: Token) {
        self.have_turn(name, LATER_TURN, ClientConn::go_on);
    }

    /// Gives a client a turn of about `span`, and registers the event that it waits for then. If the client
    /// is closed, it does nothing (V3).
    fn have_turn(
        &mut self,
        name: Token,
        span: Duration,
        advance: impl FnOnce(&mut ClientConn, &mut Turn<'_, ServerState>) -> Next,
    ) {
        let Token::Client { slot, .. } = name else {
            return;
        };
        if !self.is_there(slot, name) {
            return;
        }
        if self.clients[slot].has_deferred() {
            self.send_deferred();
            if !self.is_there(slot, name) {
                return;
            }
        }
        let begun = self.sampler.begin();
        let client = &mut self.clients[slot];
        let mut turn = Turn {
            backend: &*self.shared,
            serves: self.shared.serves(),
            traffic: self.shared.connection_stats.traffic(self.index),
            now: self.now,
            input: &mut self.input,
            output: &mut self.output,
            outbox: &mut self.outbox,
            puts_off: false,
            name: name.encode().u64(),
            records: &mut self.records,
            work: Work::new(span),
        };
        let next = advance(client, &mut turn);
        if let Some(begun) = begun {
            turn.traffic.turns.note(begun.elapsed());
        }
        turn.outbox.note(turn.work.spent());
        self.see_to(slot, name, next);
    }

    /// Sends the deferred replies (V6).
    fn send_deferred(&mut self) {
        while let Some((to, reply)) = self.outbox.take() {
            let name = Token::decode(EventData::new_u64(to));
            let Token::Client { slot, .. } = name else {
                continue;
            };
            let is_meant = |client: &&mut ClientConn| Token::client(slot, client.number()) == name;
            let Some(client) = self.clients.get_mut(slot).filter(is_meant) else {
                continue;
            };
            let next = if self.shared.serves() {
                let traffic = self.shared.connection_stats.traffic(self.index);
                client.send_deferred(reply, traffic)
            } else {
                client.drop_deferred()
            };
            match next {
                // It waits for that already.
                Next::Input => {}
                next @ (Next::Output | Next::Lock | Next::Turn | Next::InTurn | Next::End(_)) => {
                    self.see_to(slot, name, next);
                }
            }
        }
    }

    /// Registers the event that a client waits for, or ends it.
    #[expect(clippy::inline_always, reason = "each request passes here")]
    #[inline(always)]
    fn see_to(&mut self, slot: usize, name: Token, next: Next) {
        let client = &mut self.clients[slot];
        let wanted = match next {
            Next::Input => READABLE,
            Next::Output => EventFlags::OUT,
            Next::Lock => ENDING,
            Next::Turn => IN_TURN,
            Next::InTurn => return,
            Next::End(end) => return self.end(slot, &end),
        };
        if let Some(events) = client.wait_for(wanted)
            && let Err(errno) = epoll::modify(&self.epoll, &*client, name.encode(), events)
        {
            return self.end(slot, &End::Failed(errno));
        }
        if wanted == IN_TURN {
            if client.is_handshaking() {
                self.handshaking.push_back(name);
            } else {
                self.waiting.push_back(name);
            }
        }
        if wanted == READABLE && client.watches() {
            self.register_watcher(slot, name);
        }
        self.charge(slot);
    }

    /// Registers the address of a watcher for notifications, and notifies it if lines are queued already.
    fn register_watcher(&mut self, slot: usize, name: Token) {
        let holder = Holder {
            worker: self.index,
            name: name.encode().u64(),
        };
        if self.clients[slot].register_watcher(holder) {
            let news = Message::News(holder.name);
            self.shared.mailbox(self.index).post(news);
        }
    }

    /// Reports a client's memory to the budgets, and closes the clients that then take too much.
    #[inline]
    fn charge(&mut self, slot: usize) {
        let Some(client) = self.clients.get_mut(slot) else {
            return;
        };
        if client.takes_nothing() {
            return;
        }
        let holder = Holder {
            worker: self.index,
            name: Token::client(slot, client.number()).encode().u64(),
        };
        let ServerState {
            unfinished, unsent, ..
        } = &*self.shared;
        let (inputs, outputs) = client.charge(holder, unfinished, unsent);
        for holder in inputs {
            self.close_over_budget(holder, BufferKind::Input);
        }
        for holder in outputs {
            self.close_over_budget(holder, BufferKind::Output);
        }
    }

    /// Whether the slot still has the client of that name (V3).
    #[inline]
    fn is_there(&self, slot: usize, name: Token) -> bool {
        let is_meant = |client: &ClientConn| Token::client(slot, client.number()) == name;
        self.clients.get(slot).is_some_and(is_meant)
    }

    fn slots(&self, are: impl Fn(&ClientConn) -> bool) -> Vec<usize> {
        self.clients
            .iter()
            .filter(|(_, client)| are(client))
            .map(|(slot, _)| slot)
            .collect()
    }
}

/// The most time of a first turn in a round with this many events (V9).
fn first_turn(events: usize) -> Duration {
    let events = u32::try_from(events).unwrap_or(u32::MAX).max(1);
    FIRST_TURN.min(FIRST_TURNS_SPAN / events)
}

#[cfg(test)]
#[cfg(not(feature = "scheduled"))]
mod tests;
