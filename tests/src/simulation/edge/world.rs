//! The loop: the next event, and the checks after each turn.

use std::collections::VecDeque;
use std::rc::Rc;

use latchd_core::engine::Event;
use latchd_core::server::StateMachine as _;
use latchd_core::{ConnId, Instant};
use latchd_harness::random::Random;
use latchd_harness::wording::Protocol;
use latchd_protocol::wire::WireLimits;
use latchd_server::verify::simulated::{
    INPUT_BYTES, Look, OUTPUT_BYTES_MAX, Pipe, Span, Wants, Worker,
};

use super::draw::look;
use super::{LARGEST_KEY, SMALL_KEYS, VALUE_BYTES_MAX};
use crate::simulation::Breach;
use crate::simulation::ask::{Ask, What};
use crate::simulation::encode::encode;
use crate::simulation::names::Names;
use crate::simulation::server::Machine;
use crate::simulation::setting::Setting;
use crate::simulation::tally::Buffering;
use crate::simulation::{Plan, Report, Sessions};

/// How many events there are between two looks into the core.
const CHECK_EVERY: u64 = 4096;

/// The most requests that a client writes behind one that has no answer.
const OWED_MAX: usize = 12;

/// The most bytes that a socket holds before the server reads them.
const ARRIVED_BYTES_MAX: usize = 256 << 10;

/// More than a reply has besides its value, in bytes.
const WORDS_BYTES_MAX: usize = 512;

/// The sizes of a socket's buffer, and how much it takes at a time, in bytes.
const ROOMS: [usize; 5] = [64, 3_000, 70_000, 600_000, 8 << 20];
const PIECES: [usize; 4] = [1, 1_000, 50_000, usize::MAX];

/// How a client ends its connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Farewell {
    /// The connection is open.
    No,
    /// `quit`
    Quit,
    /// Its side is closed.
    HalfClosed,
}

/// The connection of a client.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) conn: ConnId,
    pub(super) pipe: Pipe,
    /// Written, and not at the server's socket.
    to_server: VecDeque<u8>,
    /// It does not read.
    pub(super) is_stalled: bool,
    pub(super) farewell: Farewell,
    /// A request that it has written may wait.
    may_wait: bool,
    /// The longest request that it has written, in bytes.
    longest: usize,
    asked: u32,
    /// As it was after its last turn.
    last: Look,
    read: u64,
    taken: u64,
    untaken: usize,
    executed: u64,
}

fn quit() -> Ask {
    Ask::new(What::Quit, Protocol::Classic, 0)
}

/// The cause of a client's turn.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Cause {
    Epoll,
    Row,
    Letter,
}

/// Clients, server, and the state of their connections.
#[derive(Debug)]
pub(crate) struct World {
    pub(super) setting: Setting,
    events_max: u64,
    events: u64,
    pub(super) random: Random,
    pub(super) worker: Worker<Machine>,
    pub(super) clients: Vec<Option<Client>>,
    pub(super) now_ms: u64,
    pub(super) asked: u32,
    digest: u64,
    buffers: Buffering,
    written: Vec<u8>,
    /// Room for a value.
    value: Vec<u8>,
    names: Rc<Names>,
}

impl World {
    pub(crate) fn new(plan: &Plan) -> Self {
        let mut random = Random::new(plan.seed.wrapping_mul(0x9e37_79b9).wrapping_add(7));
        let setting = Setting::draw(plan, &mut random);
        let wire = WireLimits::from(&setting.limits);
        let names = Rc::new(Names::new(setting.keys, false));
        let machine = Machine::new(&setting, None, Rc::clone(&names));
        Self {
            events_max: plan.events,
            events: 0,
            random,
            worker: Worker::new(machine, wire),
            clients: (0..setting.clients).map(|_| None).collect(),
            now_ms: setting.now_ms,
            asked: 0,
            digest: plan.seed,
            buffers: Buffering::default(),
            written: Vec::new(),
            value: Vec::new(),
            names,
            setting,
        }
    }

    pub(crate) const fn events(&self) -> u64 {
        self.events
    }

    pub(crate) fn run(&mut self) -> Result<Report, Breach> {
        let mut next_check = CHECK_EVERY;
        while self.events < self.events_max {
            let client = self.below(self.clients.len());
            self.happen(client)?;
            self.serve(client)?;
            if self.events >= next_check {
                next_check = self.events + CHECK_EVERY;
                self.worker.machine_mut().look_inside()?;
            }
        }
        self.leave()?;
        self.worker.machine_mut().look_inside()?;
        let machine = self.worker.machine_mut();
        let commands = machine.executed;
        let pairs = std::mem::take(&mut machine.heard.pairs);
        let mut tally = machine.heard.tally;
        tally.judged_edge = machine.beside.judged().all;
        Ok(Report {
            events: self.events,
            commands,
            digest: self.digest,
            buffers: self.buffers,
            sessions: Sessions::default(),
            tally,
            pairs,
            ..Report::default()
        })
    }

    /// One event: of a client, the network or the time.
    fn happen(&mut self, client: usize) -> Result<(), Breach> {
        self.events += 1;
        let Some(it) = &mut self.clients[client] else {
            self.connect(client);
            return Ok(());
        };
        if it.is_stalled && self.random.below(64) == 0 {
            it.is_stalled = false;
        }
        match self.below(64) {
            0 => match self.below(24) {
                0 => self.reset(client),
                1 => self.half_close(client),
                2 => self.write(client, quit(), 1),
                _ => {}
            },
            1 => self.stall(client),
            2 => self.narrow(client),
            3..20 => {
                let (ask, times) = self.draw();
                self.write(client, ask, times);
                if self.below(32) == 0 {
                    // More than a turn sends, and behind it requests that may have to wait.
                    self.write(client, look(LARGEST_KEY), 1);
                    let ask = self.draw_lock();
                    self.write(client, ask, 1);
                } else if self.below(256) == 0 {
                    // More than some sockets take at once, and behind it the client's last request.
                    let key = SMALL_KEYS + self.below(LARGEST_KEY - SMALL_KEYS);
                    self.write(client, look(key), 1);
                    self.write(client, quit(), 1);
                }
            }
            20..32 => self.deliver(client, usize::MAX),
            32..40 => {
                let bytes = 1 + self.below(2_000);
                self.deliver(client, bytes);
            }
            40..58 => {
                let bytes = match self.below(4) {
                    0 => 1 + self.below(3_000),
                    _ => usize::MAX,
                };
                self.read(client, bytes)?;
            }
            _ => self.pass_time(),
        }
        Ok(())
    }

    fn connect(&mut self, client: usize) {
        let (conn, pipe) = self.worker.open(self.now());
        let last = self.worker.look(conn).expect("it is open");
        self.clients[client] = Some(Client {
            conn,
            pipe,
            to_server: VecDeque::new(),
            is_stalled: false,
            farewell: Farewell::No,
            may_wait: false,
            longest: 0,
            asked: 0,
            last,
            read: 0,
            taken: 0,
            untaken: 0,
            executed: 0,
        });
        self.narrow(client);
    }

    /// The buffer of the socket changes its size.
    fn narrow(&mut self, client: usize) {
        let room = *self.random.choose(&ROOMS);
        let piece = *self.random.choose(&PIECES);
        if let Some(it) = &self.clients[client] {
            // One byte at a time would take too long if there is much.
            let piece = piece.max(room / 100);
            it.pipe.set_capacity(room, piece);
        }
    }

    fn stall(&mut self, client: usize) {
        if let Some(it) = &mut self.clients[client] {
            it.is_stalled = true;
        }
    }

    /// It vanishes: its replies are lost.
    fn reset(&mut self, client: usize) {
        if let Some(it) = &self.clients[client] {
            it.pipe.reset();
        }
    }

    fn half_close(&mut self, client: usize) {
        if let Some(it) = &mut self.clients[client]
            && it.to_server.is_empty()
            && it.farewell == Farewell::No
        {
            it.farewell = Farewell::HalfClosed;
            it.pipe.half_close();
        }
    }

    fn write(&mut self, client: usize, mut ask: Ask, times: u32) {
        let Some(it) = &mut self.clients[client] else {
            return;
        };
        let heard = &mut self.worker.machine_mut().heard;
        if it.farewell != Farewell::No || heard.owed(it.conn) >= OWED_MAX {
            return;
        }
        for _ in 0..times {
            it.asked += 1;
            ask.number = it.asked;
            ask.style.opaque = (ask.protocol == Protocol::Meta).then_some(it.asked);
            self.written.clear();
            encode(&mut ask, &self.names, &mut self.value, &mut self.written);
            it.to_server.extend(&self.written);
            heard.say(it.conn, ask);
        }
        it.may_wait |= ask.may_wait();
        if ask.request.is_some() {
            it.longest = it.longest.max(self.written.len());
        }
        if ask.what == What::Quit {
            it.farewell = Farewell::Quit;
        }
    }

    /// Up to `most` bytes arrive, as far as there is room.
    pub(super) fn deliver(&mut self, client: usize, most: usize) {
        if let Some(it) = &mut self.clients[client] {
            let room = ARRIVED_BYTES_MAX.saturating_sub(it.pipe.unread());
            let bytes = most.min(room).min(it.to_server.len());
            self.written.clear();
            self.written.extend(it.to_server.drain(..bytes));
            it.pipe.arrive(&self.written);
        }
    }

    /// The client reads up to `most` bytes of the sent ones (E1).
    pub(super) fn read(&mut self, client: usize, most: usize) -> Result<(), Breach> {
        let Some(it) = &mut self.clients[client] else {
            return Ok(());
        };
        if it.is_stalled {
            return Ok(());
        }
        let bytes = it.pipe.take(most);
        it.taken += bytes.len() as u64;
        it.untaken = it.pipe.untaken();
        let mut digest = self.digest;
        for word in bytes.chunks(8) {
            let mut whole = [0; 8];
            whole[..word.len()].copy_from_slice(word);
            digest = (digest ^ u64::from_le_bytes(whole))
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .rotate_left(29);
        }
        self.digest = digest;
        self.worker.machine_mut().heard.read(it.conn, &bytes)
    }

    fn pass_time(&mut self) {
        let span = match self.below(16) {
            0 => 500 + self.below(2_000),
            _ => self.below(20),
        };
        self.now_ms += span as u64;
        let now = self.now();
        self.worker.machine_mut().handle(now, Event::Tick);
        self.worker.pass(now);
    }

    /// The server does something: for a client that epoll shows, that has more to do, or with a
    /// wait that is over.
    fn serve(&mut self, client: usize) -> Result<(), Breach> {
        let now = self.now();
        if self.below(4) > 0
            && let Some(conn) = self.clients[client].as_ref().map(|it| it.conn)
        {
            let span = self.span();
            if self.worker.wake(now, conn, span) {
                self.after(conn, Cause::Epoll)?;
            }
        }
        if self.below(4) == 0 {
            let span = self.span();
            if let Some(conn) = self.worker.go_on(now, span) {
                self.after(conn, Cause::Row)?;
            }
        }
        if self.below(2) == 0 {
            let span = self.span();
            if let Some(conn) = self.worker.read_letter(now, span) {
                self.after(conn, Cause::Letter)?;
            }
        }
        Ok(())
    }

    fn span(&mut self) -> Span {
        *self.random.choose(&[Span::Short, Span::Long])
    }

    /// A client has had a turn: E2, E3, E4 and E6; and which states of its buffers it has met.
    pub(super) fn after(&mut self, conn: ConnId, cause: Cause) -> Result<(), Breach> {
        let progress = self.worker.take_progress();
        let heard = &mut self.worker.machine_mut().heard;
        let (executed, has_ended) = heard.executed_for(conn);
        let is_waited_for = heard.waits(conn);
        heard.breach.take().map_or(Ok(()), Err)?;
        let look = self.worker.look(conn);
        let is_it = |it: &Option<Client>| it.as_ref().is_some_and(|it| it.conn == conn);
        let Some(client) = self.clients.iter().position(is_it) else {
            return Ok(());
        };
        let Some(it) = &mut self.clients[client] else {
            return Ok(());
        };
        let broken = |rule, what| Err(Breach { rule, what });
        self.events += executed - it.executed;
        let (before, read) = (it.last, it.pipe.read());
        let has_moved = (read, executed) != (it.read, it.executed);
        if before.wants == Wants::Output && read != it.read {
            return broken("E3", format!("{conn} is read while it does not read"));
        }
        if before.wants == Wants::Lock && cause != Cause::Letter && has_moved {
            return broken("E4", format!("{conn} waits, and is served"));
        }
        let sent = it.pipe.untaken().saturating_sub(it.untaken);
        (it.read, it.executed, it.untaken) = (read, executed, it.pipe.untaken());
        let Some(look) = look else {
            if before.wants == Wants::Lock && cause == Cause::Epoll {
                self.buffers.gone_waiting += 1;
            }
            return self.see_end(client);
        };
        it.last = look;
        let kept = look.buffers;
        if kept.pending_capacity > OUTPUT_BYTES_MAX + VALUE_BYTES_MAX + WORDS_BYTES_MAX {
            return broken(
                "E2",
                format!("{conn} has {} bytes unsent", kept.pending_capacity),
            );
        }
        if kept.input_capacity > it.longest + INPUT_BYTES {
            let (room, longest) = (kept.input_capacity, it.longest);
            let what = format!("{conn} has room for {room} bytes, and asked for {longest}");
            return broken("E2", what);
        }
        if look.wants == Wants::Lock && !is_waited_for && !self.worker.is_to_be_notified(conn) {
            return broken("E4", format!("{conn} waits for what is over"));
        }
        if kept.has_left && !has_ended {
            return broken("E6", format!("{conn} has left, and its locks are held"));
        }
        let has_more = it.pipe.unread() > 0;
        self.buffers.note(
            &before,
            &look,
            progress,
            cause == Cause::Letter,
            sent,
            has_more,
        );
        Ok(())
    }

    pub(super) const fn now(&self) -> Instant {
        Instant::from_millis(self.now_ms)
    }

    pub(super) fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.random.below(bound as u64)).expect("below a usize")
    }
}
