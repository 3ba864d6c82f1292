//! The loop: the next event, its client, and the checks after it.

mod enact;

use std::rc::Rc;

use latchd_core::engine::Event;
use latchd_core::{Action, ConnId, Instant, Server};
use latchd_harness::alphabet::{Input, Op, UNIX_S_AT_START, WaitingOp};
use latchd_harness::random::{Random, draw};
use latchd_protocol::connection::Progress;
use latchd_protocol::wire::WireLimits;
use latchd_protocol::wire::limits::LINE_BYTES_MAX;

use super::caller::{Caller, State};
use super::names::Names;
use super::server::Machine;
use super::setting::{Kind, Setting};
use super::trace::{Keeps, Trace};
use super::workload::{Taste, is_of_a_crowd};
use super::{Breach, Buffering, Plan, Report, Sessions};

/// How many events there are between two looks into the core.
const CHECK_EVERY: u64 = 4096;

/// A check of a great core takes as long as a thousand events of it.
const GREAT_CHECK_EVERY: u64 = 8 * CHECK_EVERY;

/// The number of events from which on a great seed must have met its cases.
const GREAT_EVENTS: u64 = 200_000;

/// The number of locks that one client of a great seed takes in one go.
const LOCKS_IN_A_ROW: usize = 1_500;

/// Of 16 turns, how many are an op's. The others are the network's.
const OPS_OF_16: u64 = 10;

/// Room for the line around a value in an answer, and for `stats`.
const REPLY_BYTES_MAX: usize = 6 << 10;

/// The bytes that a waiting connection gets at once, and the most that it has at the server.
const WAITING_DELIVERY_MAX: usize = 512;
const WAITING_KEPT_MAX: usize = 32 << 10;

/// Clients, network, server, and the state of their connections.
#[derive(Debug)]
pub(super) struct World {
    setting: Setting,
    events_max: u64,
    events: u64,
    random: Random,
    names: Rc<Names>,
    taste: Taste,
    server: Server<Machine>,
    callers: Vec<Caller>,
    trace: Trace,
    /// How many requests there were, and so values.
    asked: u32,
    now_ms: u64,
    unix_s_at_start: u64,
    /// Keys below have been stored once, in a great seed.
    stored: usize,
    /// The most locks that one connection was seen to hold.
    held_most: usize,
    /// Room for a value.
    value: Vec<u8>,
    next_check: u64,
    digest: u64,
}

impl World {
    pub(super) fn new(plan: &Plan, keeps: Keeps) -> Self {
        let mut random = Random::new(plan.seed.wrapping_mul(0x9e37_79b9).wrapping_add(1));
        let setting = Setting::draw(plan, &mut random);
        let is_great = setting.kind == Kind::Great;
        let names = Rc::new(Names::new(setting.keys, is_great));
        let machine = Machine::new(&setting, plan.fault, Rc::clone(&names));
        let mut wire_limits = WireLimits::from(&setting.limits);
        wire_limits.waits = setting.kind.waits();
        let server = Server::with_machine(machine, wire_limits).with_opened(setting.opened);
        let mut world = Self {
            events_max: plan.events,
            events: 0,
            names,
            taste: Taste {
                keys: setting.keys,
                value_bytes_max: setting.limits.value_bytes_max,
                is_great,
            },
            server,
            callers: (0..setting.clients).map(|_| Caller::new()).collect(),
            trace: Trace::new(keeps),
            asked: 0,
            now_ms: setting.now_ms,
            unix_s_at_start: UNIX_S_AT_START,
            stored: 0,
            held_most: 0,
            value: Vec::new(),
            next_check: CHECK_EVERY,
            digest: plan.seed,
            random,
            setting,
        };
        world.enter(Input::Event(Event::Due));
        world
    }

    pub(super) const fn events(&self) -> u64 {
        self.events
    }

    pub(super) fn last(&self) -> Vec<String> {
        self.trace.last()
    }

    pub(super) fn run(&mut self) -> Result<Report, Breach> {
        let is_great = self.setting.kind == Kind::Great;
        while self.events < self.events_max {
            let bits = self.random.next();
            let client = (bits >> 8 & 0xffff) % self.callers.len() as u64;
            let client = usize::try_from(client).expect("an index");
            if is_great && self.stored < self.setting.keys {
                self.fill(client, bits >> 24)?;
            } else if bits & 15 < OPS_OF_16 {
                let op = self.draw_op();
                self.enact(&op, bits >> 8);
            } else {
                if is_great && bits >> 4 & 15 == 0 {
                    self.lock_many(client)?;
                }
                self.visit(client, bits >> 24)?;
            }
            self.act(None)?;
            if self.events >= self.next_check {
                let every = if is_great {
                    GREAT_CHECK_EVERY
                } else {
                    CHECK_EVERY
                };
                self.next_check = self.events + every;
                self.look_inside()?;
            }
        }
        self.look_inside()?;
        for client in 0..self.callers.len() {
            self.reset(client);
        }
        self.look_inside()?;
        self.see_the_end()?;
        let machine = self.server.machine_mut();
        let mut tally = machine.heard.tally;
        let judged = machine.beside.judged();
        tally.reclaimed = judged.reclaimed;
        if machine.beside.is_scarce() {
            tally.judged_scarce = judged.all;
            tally.followed = judged.followed;
            tally.believed = judged.believed;
        }
        Ok(Report {
            events: self.events,
            commands: machine.executed,
            digest: self.digest,
            tally,
            buffers: Buffering::default(),
            sessions: Sessions::default(),
            pairs: std::mem::take(&mut machine.heard.pairs),
            ..Report::default()
        })
    }

    /// In a crowd most requests are about locks, wins and waits.
    fn draw_op(&mut self) -> Op {
        if self.setting.kind == Kind::Plain {
            return draw(&mut self.random);
        }
        loop {
            let WaitingOp(op) = draw(&mut self.random);
            match op {
                Op::Request { request, .. }
                    if !is_of_a_crowd(&request) && self.random.chance(2, 3) => {}
                _ => return op,
            }
        }
    }

    fn mix(&mut self, word: u64) {
        self.digest = (self.digest ^ word)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(29);
    }

    /// An event that is not a command.
    fn happens(&mut self, word: u64, line: impl FnOnce() -> String) {
        self.events += 1;
        self.mix(word);
        self.trace.note(self.events, line);
    }

    /// The same for one client.
    fn happens_to(&mut self, client: usize, word: u64, line: impl FnOnce() -> String) {
        let conn = self.callers[client].conn;
        self.happens(word << 8 | client as u64, || {
            format!("client {client:>2} ({conn}) {}", line())
        });
    }

    const fn now(&self) -> Instant {
        Instant::from_millis(self.now_ms)
    }

    fn tell(&mut self, event: Event) {
        self.enter(Input::Event(event));
    }

    /// Puts an input into the core that comes from no client.
    fn enter(&mut self, input: Input<'_>) {
        self.server.machine_mut().enter(self.now_ms, input);
    }

    /// The client of a connection.
    fn client(&self, conn: ConnId) -> usize {
        let mut callers = self.callers.iter();
        let client = callers.position(|it| it.conn == conn && it.is_served());
        client.expect("no action names a connection that has ended")
    }

    /// Performs the server's actions, and judges the bytes sent by it, and `driven`.
    fn act(&mut self, driven: Option<usize>) -> Result<(), Breach> {
        let mut sends: Vec<(usize, Vec<u8>)> = driven.map(|it| (it, vec![])).into_iter().collect();
        let before = self.server.machine().executed;
        let mut ended = vec![];
        loop {
            let action = self.server.poll();
            let Some(conn) = action.conn() else { break };
            let client = self.client(conn);
            let at = sends.iter().position(|(it, _)| *it == client);
            let at = at.unwrap_or_else(|| {
                sends.push((client, vec![]));
                sends.len() - 1
            });
            match action {
                Action::Send(_, out) => {
                    self.server.unsent(conn, out.len());
                    sends[at].1.append(&mut out.into());
                }
                Action::Read(_) | Action::Wait(_) => {}
                Action::Close(_) => ended.push(client),
            }
        }
        self.events += self.server.machine().executed - before;
        for (client, sent) in sends {
            self.send(client, &sent)?;
        }
        for client in ended {
            let caller = &mut self.callers[client];
            caller.state = State::Ended;
            caller.to_server.clear();
            self.server.machine_mut().heard.forget(caller.conn);
            self.happens_to(client, 4, || "is closed by the server".into());
        }
        Ok(())
    }

    /// The network's turn at one client: changes of the connection, and delivered bytes.
    fn visit(&mut self, client: usize, bits: u64) -> Result<(), Breach> {
        let caller = &self.callers[client];
        match caller.state {
            State::None => return Ok(()),
            State::Open => match bits & 1023 {
                0..3 => {
                    self.half_close(client);
                    return Ok(());
                }
                8..14 if !caller.stalled => self.stall(client, true),
                8..44 if caller.stalled => self.stall(client, false),
                _ => {}
            },
            State::HalfClosed | State::Ended => {}
        }
        self.deliver(client, bits >> 12)?;
        if !self.callers[client].stalled {
            self.read(client, bits >> 24)?;
        }
        Ok(())
    }

    /// Bytes come to the server, or the end of them.
    fn deliver(&mut self, client: usize, bits: u64) -> Result<(), Breach> {
        let caller = &self.callers[client];
        let mut may = 0;
        if self.server.wants_input(caller.conn) {
            may = caller.to_server.len().min(self.setting.delivery_max);
        }
        let waits = self.server.machine().heard.waits(caller.conn);
        if waits {
            let is_enough = self.server.kept_bytes(caller.conn) > WAITING_KEPT_MAX;
            may = if is_enough {
                0
            } else {
                may.min(WAITING_DELIVERY_MAX)
            };
        }
        if may == 0 {
            // A waiter is dropped when its end is seen.
            let progress = self.server.progress(caller.conn);
            let is_done = caller.to_server.is_empty() && progress != Progress::OutputFull;
            if caller.state == State::HalfClosed && is_done {
                self.happens_to(client, 2, || "is seen to have closed its side".into());
                self.end(client);
            }
            return Ok(());
        }
        let span = usize::try_from(bits >> 4 & 0xff).expect("a byte");
        let bytes = match bits & 15 {
            0 => 1,
            1 | 2 => may.min(1 + span % 4),
            3..6 => may.min(1 + span),
            _ => may,
        };
        self.drive(client, bytes)
    }

    /// The server serves a connection as far as it can, after `bytes` more bytes have arrived.
    fn drive(&mut self, client: usize, bytes: usize) -> Result<(), Breach> {
        if bytes > 0 {
            self.happens_to(client, 3 + ((bytes as u64) << 4), || {
                format!("{bytes} bytes arrive")
            });
        }
        let now = self.now();
        let before = self.server.machine().executed;
        let caller = &mut self.callers[client];
        caller.arrived += bytes as u64;
        let arrived: Vec<u8> = caller.to_server.drain(..bytes).collect();
        self.server.receive(now, caller.conn, &arrived);
        self.events += self.server.machine().executed - before;
        self.act(Some(client))
    }

    /// The server sends this to a client, and has no more to do for it now.
    fn send(&mut self, client: usize, sent: &[u8]) -> Result<(), Breach> {
        let caller = &mut self.callers[client];
        caller.output.extend_from_slice(sent);
        let (conn, arrived) = (caller.conn, caller.arrived);
        let progress = self.server.progress(conn);
        self.trace.note(self.events, || {
            format!(
                "client {client:>2} ({conn}) is sent {}",
                sent.escape_ascii()
            )
        });
        for word in sent.chunks(8) {
            let mut bytes = [0; 8];
            bytes[..word.len()].copy_from_slice(word);
            self.mix(u64::from_le_bytes(bytes));
        }
        let heard = &mut self.server.machine_mut().heard;
        heard.breach.take().map_or(Ok(()), Err)?;
        heard.send(conn, sent, progress, arrived)?;
        self.check_bounds(client, progress)
    }

    /// N2.
    fn check_bounds(&self, client: usize, progress: Progress) -> Result<(), Breach> {
        let caller = &self.callers[client];
        // The longest line, and a value with its line end; a packet is shorter.
        let request_max = LINE_BYTES_MAX + 2 + self.setting.limits.value_bytes_max + 2;
        let rest = self.server.kept_bytes(caller.conn);
        let out = caller.output.len();
        let broken = |what| Err(Breach { rule: "N2", what });
        let rest_max = if progress == Progress::Waiting {
            WAITING_KEPT_MAX + WAITING_DELIVERY_MAX + self.setting.delivery_max
        } else {
            request_max + self.setting.delivery_max
        };
        if rest > rest_max {
            return broken(format!("{rest} bytes of input are kept"));
        }
        if out >= caller.output_max + REPLY_BYTES_MAX {
            return broken(format!("{out} bytes of output are kept"));
        }
        if let Progress::NeedsInput { at_least } = progress {
            if at_least <= rest {
                return broken(format!("waits for {at_least} bytes, and has {rest}"));
            }
            if at_least > request_max {
                return broken(format!(
                    "waits for {at_least} bytes, and no request is so long"
                ));
            }
        }
        Ok(())
    }

    /// The client reads some of the sent bytes.
    fn read(&mut self, client: usize, bits: u64) -> Result<(), Breach> {
        let caller = &mut self.callers[client];
        let there = caller.output.len();
        if there == 0 {
            if caller.state == State::Ended {
                *caller = Caller::new();
            }
            return Ok(());
        }
        let bytes = match bits & 7 {
            0 => 1 + usize::try_from(bits >> 3 & 63).expect("six bits") % there,
            _ => there,
        };
        caller.output.drain(..bytes);
        self.happens_to(client, 5 + ((bytes as u64) << 4), || {
            format!("reads {bytes} bytes")
        });
        let caller = &self.callers[client];
        if !caller.is_served() {
            return Ok(());
        }
        self.server.sent(caller.conn, bytes);
        self.act(Some(client))
    }

    fn reset(&mut self, client: usize) {
        if matches!(self.callers[client].state, State::Open | State::HalfClosed) {
            self.happens_to(client, 6, || "is reset".into());
            self.end(client);
        }
    }

    fn half_close(&mut self, client: usize) {
        self.callers[client].state = State::HalfClosed;
        self.happens_to(client, 7, || "closes its side".into());
    }

    fn stall(&mut self, client: usize, stalled: bool) {
        self.callers[client].stalled = stalled;
        self.happens_to(client, 8 + (u64::from(stalled) << 4), || {
            let does = if stalled {
                "stops reading"
            } else {
                "reads again"
            };
            does.into()
        });
    }

    /// The server has seen the end of a connection, and has nothing left of it.
    fn end(&mut self, client: usize) {
        let conn = self.callers[client].conn;
        let held = self.server.machine().core.locks().held_by(conn.into());
        self.held_most = self.held_most.max(held.map_or(0, |held| held.locks));
        self.server.close(self.now(), conn);
        self.server.machine_mut().heard.forget(conn);
        self.callers[client] = Caller::new();
    }

    /// N4.
    fn look_inside(&mut self) -> Result<(), Breach> {
        let machine = self.server.machine_mut();
        machine.look_inside()?;
        let locks = machine.core.locks().len() as u64;
        self.mix(locks);
        Ok(())
    }

    /// When all have gone, there are no holders or waiters, and no win is bound (N4). A great seed
    /// that is long enough has met its cases.
    fn see_the_end(&self) -> Result<(), Breach> {
        let core = &self.server.machine().core;
        let (held, wins) = (core.locks_in_force().count(), core.bound_wins().len());
        if held > 0 || wins > 0 || core.has_waits() {
            let what = format!("{held} locks and {wins} wins are left, or a client waits");
            return Err(Breach { rule: "N4", what });
        }
        let is_seen = self.stored == self.setting.keys
            && self.held_most > LOCKS_IN_A_ROW / 2
            && self.now_ms > self.setting.turn_ms;
        let is_due = self.setting.kind == Kind::Great && self.events_max >= GREAT_EVENTS;
        if is_due && !is_seen {
            let what = format!(
                "{} items, {} locks and {} ms are not much",
                self.stored, self.held_most, self.now_ms
            );
            return Err(Breach {
                rule: "a witness",
                what,
            });
        }
        Ok(())
    }
}
