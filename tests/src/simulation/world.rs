//! The loop: what happens next, to whom, and what must hold after it.

mod enact;

use std::rc::Rc;

use latchd_core::engine::Event;
use latchd_core::store::Store as _;
use latchd_core::wire::WireLimits;
use latchd_core::wire::limits::LINE_BYTES_MAX;
use latchd_core::{ConnId, Instant, Limits, Output, Progress, Server};
use latchd_harness::alphabet::{Input, UNIX_S_AT_START, pressure_keys};
use latchd_harness::random::{Random, draw_op};

use super::auditor::{AuditLimits, Auditor, Breach};
use super::beside::Beside;
use super::caller::{Caller, State};
use super::match_replies::ReplyMatcher;
use super::names::Names;
use super::server::WatchedCore;
use super::setting::Setting;
use super::trace::{Keeps, Note, Trace};
use super::workload::Taste;
use super::{Buffering, Plan, Report};

/// How many events there are between two looks into the core.
const CHECK_EVERY: u64 = 4096;

/// Of 16 turns, how many are an op's. The others are the network's.
const OPS_OF_16: u64 = 10;

/// The most bytes that come to the server at once.
const DELIVERY_MAX: usize = 1024;

/// Room for what stands before and behind a value in an answer, and for `stats`.
const REPLY_BYTES_MAX: usize = 6 << 10;

/// Clients, network, server, and what is known of them.
#[derive(Debug)]
pub(super) struct World {
    events_max: u64,
    events: u64,
    random: Random,
    names: Rc<Names>,
    taste: Taste,
    limits: Limits,
    server: Server<WatchedCore>,
    callers: Vec<Caller>,
    auditor: Auditor,
    trace: Trace,
    /// N3: by key, who believes to hold it.
    believers: Vec<Option<usize>>,
    /// How many requests there were, and so values.
    asked: u32,
    now_ms: u64,
    unix_s_at_start: u64,
    /// Room for a value.
    value: Vec<u8>,
    next_check: u64,
    digest: u64,
}

impl World {
    pub(super) fn new(plan: &Plan, keeps: Keeps) -> Self {
        let mut random = Random::new(plan.seed.wrapping_mul(0x9e37_79b9).wrapping_add(1));
        let Setting {
            clients,
            keys,
            limits,
            is_ample,
            now_ms,
        } = Setting::draw(plan.seed, &mut random);
        let value_bytes_max = limits.value_bytes_max;
        let room = AuditLimits {
            is_ample,
            value_bytes_max,
            locks_per_connection_max: limits.locks_per_connection_max,
        };
        let names = Rc::new(Names::new(keys));
        // What is planted is there for the clients to find.
        let has_oracle = is_ample || plan.fault.is_none();
        let beside = has_oracle.then(|| Beside::new(limits, !is_ample));
        let machine = WatchedCore::new(limits, beside, plan.fault, Rc::clone(&names));
        Self {
            events_max: plan.events,
            events: 0,
            names,
            taste: Taste {
                keys,
                value_bytes_max,
            },
            limits,
            server: Server::with_machine(machine, WireLimits::from(&limits)),
            callers: (0..clients).map(|_| Caller::new(keys)).collect(),
            auditor: Auditor::new(keys, room, UNIX_S_AT_START),
            trace: Trace::new(keeps),
            believers: vec![None; keys],
            asked: 0,
            now_ms,
            unix_s_at_start: UNIX_S_AT_START,
            value: Vec::new(),
            next_check: CHECK_EVERY,
            digest: plan.seed,
            random,
        }
    }

    pub(super) const fn events(&self) -> u64 {
        self.events
    }

    pub(super) fn last(&self) -> Vec<String> {
        self.trace.last()
    }

    pub(super) fn run(&mut self) -> Result<Report, Breach> {
        while self.events < self.events_max {
            let bits = self.random.next();
            if bits & 15 < OPS_OF_16 {
                let op = draw_op(&mut self.random);
                self.enact(&op, bits >> 8);
            } else {
                let client = (bits >> 8 & 0xffff) % self.callers.len() as u64;
                self.visit(usize::try_from(client).expect("an index"), bits >> 24)?;
            }
            if self.events >= self.next_check {
                self.next_check = self.events + CHECK_EVERY;
                self.look_inside()?;
            }
        }
        self.look_inside()?;
        for client in 0..self.callers.len() {
            self.reset(client);
        }
        self.look_inside()?;
        let mut tally = self.auditor.tally;
        let beside = self.server.machine().beside.as_ref();
        if let Some(beside) = beside {
            tally.reclaimed = beside.judged().reclaimed;
        }
        if let Some(beside) = beside.filter(|beside| beside.is_scarce()) {
            let judged = beside.judged();
            tally.judged_scarce = judged.all;
            tally.followed = judged.followed;
            tally.believed = judged.believed;
        }
        Ok(Report {
            events: self.events,
            commands: self.server.machine().executed,
            digest: self.digest,
            tally,
            buffers: Buffering::default(),
            pairs: self.server.machine_mut().pairs.take().unwrap_or_default(),
        })
    }

    fn mix(&mut self, word: u64) {
        self.digest = (self.digest ^ word)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(29);
    }

    /// An event that is not a command.
    fn happens(&mut self, client: usize, note: Note, word: u64) {
        self.events += 1;
        self.mix(word << 8 | client as u64);
        let conn = self.callers.get(client).map_or(0, |caller| caller.conn);
        self.trace.note(self.events, client, conn, || note);
    }

    const fn now(&self) -> Instant {
        Instant::from_millis(self.now_ms)
    }

    fn tell(&mut self, event: Event) {
        self.enter(Input::Event(event));
    }

    /// Puts something into the core that comes from no client.
    fn enter(&mut self, input: Input<'_>) {
        self.server.machine_mut().enter(self.now_ms, input);
        self.auditor.advance(self.now_ms);
    }

    /// The network's turn at one client: what it does to a connection, what it carries.
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
        let caller = &mut self.callers[client];
        let may = caller.may_arrive().min(DELIVERY_MAX);
        if may == 0 {
            if caller.state == State::HalfClosed && caller.to_server.is_empty() && !caller.full {
                self.happens(client, Note::SawEnd, 2);
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
        caller.arrived += bytes as u64;
        self.happens(client, Note::Arrived(bytes), 3 + ((bytes as u64) << 4));
        self.drive(client, bytes)
    }

    /// The server does what it can for a connection, now that so many bytes have arrived.
    fn drive(&mut self, client: usize, bytes: usize) -> Result<(), Breach> {
        let now = self.now();
        let server = &mut self.server;
        let caller = &mut self.callers[client];
        let from = caller.output.len();
        let conn = ConnId::from_number(caller.conn);
        let kept = server.kept_bytes(conn) + bytes;
        server.set_out_bytes_max(caller.output_max.saturating_sub(from));
        let machine = server.machine_mut();
        let executed = machine.executed;
        machine.at = 0;
        std::mem::swap(&mut machine.asks, &mut caller.asks);
        let mut out = Output::new();
        let arrived = &caller.to_server[..bytes];
        let progress = server.receive(now, conn, arrived, &mut out);
        let machine = server.machine_mut();
        std::mem::swap(&mut machine.asks, &mut caller.asks);
        let executed = machine.executed - executed;
        let breach = machine.breach.take();
        caller.to_server.drain(..bytes);
        caller.output.append(&mut out.into());
        let closes = progress == Progress::Close;
        let done = if closes {
            caller.left_off().saturating_sub(caller.consumed)
        } else {
            (kept - server.kept_bytes(conn)) as u64
        };
        caller.consumed += done;
        caller.full = progress == Progress::OutputFull;
        let mut digest = self.digest ^ done;
        for word in caller.output[from..].chunks(8) {
            let mut bytes = [0; 8];
            bytes[..word.len()].copy_from_slice(word);
            digest = (digest ^ u64::from_le_bytes(bytes))
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .rotate_left(29);
        }
        self.digest = digest;
        if executed > 0 {
            // Otherwise the core was not told how late it is.
            self.auditor.advance(self.now_ms);
        }
        self.events += executed;
        if let Some(breach) = breach {
            return Err(breach);
        }
        let mut matcher = ReplyMatcher {
            auditor: &mut self.auditor,
            trace: &mut self.trace,
            names: &self.names,
            value: &mut self.value,
            event: self.events,
            client,
        };
        matcher.match_replies(caller, from, closes)?;
        self.check_bounds(client, progress)?;
        if closes {
            let caller = &mut self.callers[client];
            if !caller.asks.is_empty() {
                return Err(Breach {
                    rule: "N1",
                    what: format!(
                        "the server closed, and owes an answer to {}",
                        caller.asks[0]
                    ),
                });
            }
            caller.state = State::Ended;
            caller.to_server.clear();
            self.happens(client, Note::Closed, 4);
            self.close(client);
        }
        Ok(())
    }

    /// N2.
    fn check_bounds(&self, client: usize, progress: Progress) -> Result<(), Breach> {
        let caller = &self.callers[client];
        // The longest line, and a value with its line end; a packet is shorter.
        let request_max = LINE_BYTES_MAX + 2 + self.limits.value_bytes_max + 2;
        let rest = self.server.kept_bytes(ConnId::from_number(caller.conn));
        let out = caller.output.len();
        let broken = |what| Err(Breach { rule: "N2", what });
        if rest > request_max + DELIVERY_MAX {
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

    /// The client reads some of what was sent.
    fn read(&mut self, client: usize, bits: u64) -> Result<(), Breach> {
        let caller = &mut self.callers[client];
        let there = caller.output.len();
        if there == 0 {
            if caller.state == State::Ended {
                caller.drop_connection();
            }
            return Ok(());
        }
        let bytes = match bits & 7 {
            0 => 1 + usize::try_from(bits >> 3 & 63).expect("six bits") % there,
            _ => there,
        };
        caller.output.drain(..bytes);
        caller.read += bytes as u64;
        self.happens(client, Note::Read(bytes), 5 + ((bytes as u64) << 4));
        self.learn(client)?;
        let caller = &self.callers[client];
        if caller.full && caller.output.len() < caller.output_max {
            self.drive(client, 0)?;
        }
        Ok(())
    }

    /// N3: what the client has read makes it believe in its locks.
    fn learn(&mut self, client: usize) -> Result<(), Breach> {
        let caller = &mut self.callers[client];
        while let Some((end, key, number)) = caller.grants.front().copied()
            && end <= caller.read
        {
            caller.grants.pop_front();
            if caller.relinquished[key] > number || caller.state != State::Open {
                continue;
            }
            match self.believers[key] {
                Some(other) if other != client => {
                    return Err(Breach {
                        rule: "N3",
                        what: format!(
                            "clients {other} and {client} both believe to hold key {key}"
                        ),
                    });
                }
                Some(_) | None => self.believers[key] = Some(client),
            }
        }
        Ok(())
    }

    fn reset(&mut self, client: usize) {
        if matches!(self.callers[client].state, State::Open | State::HalfClosed) {
            self.happens(client, Note::Reset, 6);
            self.end(client);
        }
    }

    fn half_close(&mut self, client: usize) {
        self.callers[client].state = State::HalfClosed;
        self.happens(client, Note::HalfClosed, 7);
        self.forget_beliefs(client);
    }

    fn stall(&mut self, client: usize, stalled: bool) {
        self.callers[client].stalled = stalled;
        self.happens(
            client,
            Note::Stalled(stalled),
            8 + (u64::from(stalled) << 4),
        );
    }

    /// Nothing is left of a connection.
    fn end(&mut self, client: usize) {
        self.close(client);
        self.callers[client].drop_connection();
    }

    /// The server has seen the end of a connection.
    fn close(&mut self, client: usize) {
        let conn = self.callers[client].conn;
        self.forget_beliefs(client);
        self.server.close(self.now(), ConnId::from_number(conn));
        self.auditor.advance(self.now_ms);
        self.auditor.close(conn);
    }

    fn forget_beliefs(&mut self, client: usize) {
        for believer in &mut self.believers {
            *believer = believer.filter(|believer| *believer != client);
        }
    }

    /// N4.
    fn look_inside(&mut self) -> Result<(), Breach> {
        // Of what came from no client.
        self.server
            .machine_mut()
            .breach
            .take()
            .map_or(Ok(()), Err)?;
        let WatchedCore { core, beside, .. } = self.server.machine();
        core.check();
        let usage = core.store().usage();
        let broken = |what| Err(Breach { rule: "N4", what });
        if usage.bytes > self.limits.memory_bytes_max {
            return broken(format!("{} bytes of items are kept", usage.bytes));
        }
        if let Some(beside) = beside {
            let of_clients = (0..self.names.count()).map(|key| self.names.key(key));
            beside.compare_items(core, of_clients)?;
            beside.compare_items(core, pressure_keys())?;
        }
        let locks = core.locks();
        for (key, holding) in locks.iter().filter(|(_, holding)| !holding.is_over) {
            let key = self
                .names
                .number(key.as_bytes())
                .expect("keys are stored by name");
            let believed = self.auditor.holder(key);
            let owner = holding.owner.number();
            if believed != Some(owner) {
                return broken(format!(
                    "key {key} is held by {owner}, and {believed:?} was told"
                ));
            }
        }
        let told = self.auditor.held().count();
        if locks.len() != told {
            return broken(format!(
                "{} locks are held, and {told} were told",
                locks.len()
            ));
        }
        self.mix(locks.len() as u64);
        Ok(())
    }
}
