//! The loop: who does what next, and what is compared.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use latchd_core::command::{LEASE_MS_MIN, Lease, Mode, TtlStep, Wait};
use latchd_core::fence::Fence;
use latchd_core::key::Key;
use latchd_core::time::Exptime;
use latchd_core::wire::WireLimits;
use latchd_core::{ConnId, Instant, Output, Progress, Server};
use latchd_harness::random::Random;

use super::ask::{Ask, Read, Right, Verb};
use super::client::{Client, read};
use super::machine::{Machine, value};
use super::{Setting, name};
use crate::simulation::auditor::Breach;
use crate::simulation::{Plan, Report};

/// How many events there are between two looks into the core; looking takes time where there is much to see.
const CHECK_EVERY: u64 = 4096;

/// The most requests that a client writes behind one that has no answer.
const OWED_MAX: usize = 12;

/// From how many events on a great seed is to have seen what it is there for.
const GREAT_EVENTS: u64 = 200_000;

/// What one client of a great seed locks in one go.
const LOCKS_IN_A_ROW: usize = 1_500;

/// Clients, server, and what is known of them.
#[derive(Debug)]
pub(crate) struct World {
    setting: Setting,
    events_max: u64,
    events: u64,
    random: Random,
    server: Server<Machine>,
    clients: Vec<Client>,
    /// C4: who was given which grant.
    grants: BTreeMap<u64, (ConnId, usize)>,
    now_ms: u64,
    /// Keys below have been stored once, in a great seed.
    stored: usize,
    /// The most locks that one connection was seen to hold.
    held_most: usize,
    next_check: u64,
    digest: u64,
    name: Vec<u8>,
    value: Vec<u8>,
}

impl World {
    pub(crate) fn new(plan: &Plan) -> Self {
        let mut random = Random::new(plan.seed.wrapping_mul(0x9e37_79b9).wrapping_add(5));
        let setting = Setting::draw(plan.seed, &mut random);
        let wire = WireLimits::from(&setting.limits);
        let server = Server::with_machine(Machine::new(&setting), wire)
            .with_waits()
            .with_opened(setting.opened);
        Self {
            events_max: plan.events,
            events: 0,
            random,
            server,
            clients: (0..setting.clients).map(|_| Client::default()).collect(),
            grants: BTreeMap::new(),
            now_ms: setting.now_ms,
            stored: 0,
            held_most: 0,
            next_check: CHECK_EVERY,
            digest: plan.seed,
            name: Vec::new(),
            value: value(),
            setting,
        }
    }

    pub(crate) const fn events(&self) -> u64 {
        self.events
    }

    pub(crate) fn run(&mut self) -> Result<Report, Breach> {
        while self.events < self.events_max {
            self.happen()?;
            self.go_on()?;
            if let Some(breach) = self.server.machine_mut().breach.take() {
                return Err(breach);
            }
            if self.events >= self.next_check {
                // A look at a great core is as long as a thousand events of it.
                let every = if self.setting.is_great { 8 } else { 1 };
                self.next_check = self.events + every * CHECK_EVERY;
                self.server.machine().core.check();
            }
        }
        self.leave()?;
        self.see_witnesses()?;
        let machine = self.server.machine_mut();
        let mut report = Report {
            events: self.events,
            commands: machine.executed,
            digest: self.digest,
            pairs: std::mem::take(&mut machine.pairs),
            ..Report::default()
        };
        report.tally.settled = machine.settled;
        Ok(report)
    }

    /// A great seed that is long enough has seen what it is there for.
    fn see_witnesses(&self) -> Result<(), Breach> {
        let is_seen = self.stored == self.setting.keys
            && self.held_most > LOCKS_IN_A_ROW / 2
            && self.now_ms > self.setting.turn_ms;
        if self.setting.is_great && self.events_max >= GREAT_EVENTS && !is_seen {
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

    /// One event: of the clients, the network or the time.
    fn happen(&mut self) -> Result<(), Breach> {
        self.events += 1;
        let client = self.below(self.clients.len());
        let Some(conn) = self.clients[client].conn else {
            let conn = self.server.open(self.now());
            self.clients[client].conn = Some(conn);
            return Ok(());
        };
        // Until everything is stored there is little else in a great seed.
        let is_filling = self.setting.is_great && self.stored < self.setting.keys;
        match self.below(64) {
            _ if is_filling && self.server.machine().owed(conn) < OWED_MAX => {
                for _ in 0..OWED_MAX {
                    self.store_next(client, conn);
                }
                self.deliver(client, conn, usize::MAX)
            }
            0 if self.below(8) == 0 && !is_filling => {
                self.close(client, conn);
                Ok(())
            }
            1 if self.setting.is_great => {
                self.lock_many(client, conn);
                self.deliver(client, conn, usize::MAX)
            }
            2..34 => {
                if self.server.machine().owed(conn) < OWED_MAX {
                    let ask = self.draw(client);
                    self.write(client, conn, ask);
                }
                Ok(())
            }
            34..46 => {
                let most = self.clients[client].to_server.len();
                let bytes = 1 + self.below(most.max(1));
                self.deliver(client, conn, bytes)
            }
            46..58 => self.deliver(client, conn, usize::MAX),
            58..60 => self.read_answers(client, conn),
            _ => {
                self.pass_time();
                Ok(())
            }
        }
    }

    fn pass_time(&mut self) {
        let span = match self.below(16) {
            0 => 1000 + self.below(4000),
            1..6 => 250,
            _ => self.below(40),
        };
        // Sometimes to the moment at which something is due, sometimes past it.
        let due = self.server.next_deadline().map(Instant::as_millis);
        self.now_ms = match due {
            Some(at) if at > self.now_ms && self.below(2) == 0 => at,
            _ => self.now_ms + span as u64,
        };
        match self.below(3) {
            0 => self.server.tick(self.now()),
            1 => self.server.pass(self.now()),
            // Whoever asks next finds out.
            _ => {}
        }
    }

    fn store_next(&mut self, client: usize, conn: ConnId) {
        if self.stored < self.setting.keys {
            let verb = Verb::Set {
                right: Right::default(),
                exptime: Exptime::Never,
                value_bytes: 1,
            };
            self.write(client, conn, (verb, self.stored, false));
            self.stored += 1;
        }
    }

    /// A batch, as of somebody who locks every row of a table.
    fn lock_many(&mut self, client: usize, conn: ConnId) {
        if self.below(12) > 0 {
            return;
        }
        let from = self.below(self.setting.keys - LOCKS_IN_A_ROW);
        for key in from..from + LOCKS_IN_A_ROW {
            let verb = Verb::Lock {
                mode: Mode::Exclusive,
                lease: None,
                wait: Wait::No,
                needs_item: false,
            };
            self.write(client, conn, (verb, key, false));
        }
    }

    fn draw(&mut self, client: usize) -> (Verb, usize, bool) {
        let known = self.clients[client].fence;
        let key = match known {
            // Most of what is done in the right of a grant is done to its key.
            Some((key, _)) if self.below(4) > 0 => key,
            // Few enough that somebody else wants them as well.
            _ if self.setting.is_great => match self.below(8) {
                0 => self.below(self.setting.keys),
                _ => self.below(16) * 4_999 % self.setting.keys,
            },
            _ => self.below(self.setting.keys),
        };
        let fence = known.map(|(_, fence)| fence);
        let right = Right {
            fence: fence.filter(|_| self.below(3) == 0),
            unlocks: self.below(4) == 0,
        };
        let verb = match self.below(16) {
            0..7 => self.draw_lock(),
            7..10 => Verb::Unlock {
                fence: fence.filter(|_| self.below(2) == 0),
            },
            10 | 11 => Verb::Set {
                right,
                exptime: match self.below(4) {
                    0 => Exptime::In {
                        seconds: 1 + u32::try_from(self.below(5)).expect("a few"),
                    },
                    _ => Exptime::Never,
                },
                value_bytes: 1 + u16::try_from(self.below(200)).expect("a few"),
            },
            12 => Verb::Delete {
                right,
                marks: self.below(2) == 0,
            },
            13 => Verb::Count { right },
            14 => match self.below(24) {
                0 => Verb::UnlockAll,
                1 if !self.setting.is_great => Verb::FlushAll {
                    seconds: 1 + u32::try_from(self.below(3)).expect("a few"),
                },
                _ => self.draw_get(),
            },
            _ => self.draw_get(),
        };
        let looks = match verb {
            Verb::Get(_) | Verb::Lock { .. } => self.below(2) == 0,
            _ => false,
        };
        (verb, key, looks)
    }

    fn draw_get(&mut self) -> Verb {
        let seconds = 1 + u32::try_from(self.below(5)).expect("a few");
        let exptime = Exptime::In { seconds };
        Verb::Get(Read {
            step: match self.below(8) {
                0..4 => Some(TtlStep::Vivify(exptime)),
                4 => Some(TtlStep::Recache(exptime)),
                _ => None,
            },
            binds: self.below(2) == 0,
            wait_ms: match self.below(2) {
                0 => 1 + self.below(3_000) as u64,
                _ => 0,
            },
        })
    }

    fn draw_lock(&mut self) -> Verb {
        let lease = match self.below(8) {
            0 | 1 => Some(Lease::For {
                ms: LEASE_MS_MIN + self.below(900) as u64,
            }),
            2 => Some(Lease::Off),
            _ => None,
        };
        let wait = match self.below(8) {
            0..4 => Wait::UpTo {
                ms: 1 + self.below(2_000) as u64,
            },
            _ => Wait::No,
        };
        let mode = match self.below(6) {
            0 => Mode::Shared { among: None },
            // Among 1 to 3.
            1 => Mode::Shared {
                among: NonZeroU32::new(1 + u32::try_from(self.below(3)).expect("a few")),
            },
            _ => Mode::Exclusive,
        };
        Verb::Lock {
            mode,
            lease,
            wait,
            needs_item: self.below(6) == 0,
        }
    }

    fn write(&mut self, client: usize, conn: ConnId, (verb, key, looks): (Verb, usize, bool)) {
        let caller = &mut self.clients[client];
        caller.asked += 1;
        let ask = Ask {
            verb,
            key,
            number: caller.asked,
            looks,
        };
        name(key, self.setting.is_great, &mut self.name);
        let key = Key::new(&self.name).expect("names are keys");
        let command = ask.command(key, &self.value);
        let order = u8::try_from(self.random.below(4)).expect("two bits");
        ask.write(&command, order, &mut caller.to_server);
        self.server.machine_mut().say(conn, ask);
    }

    /// So many bytes come to the server, or all there are.
    fn deliver(&mut self, client: usize, conn: ConnId, most: usize) -> Result<(), Breach> {
        let caller = &mut self.clients[client];
        if caller.is_full {
            return self.receive(client, conn, 0);
        }
        // While it waits the server keeps what comes, up to a bound.
        let most = if caller.waits { most.min(512) } else { most };
        let bytes = most.min(caller.to_server.len());
        if caller.waits && self.server.kept_bytes(conn) > 32 << 10 {
            return Ok(());
        }
        self.receive(client, conn, bytes)
    }

    fn receive(&mut self, client: usize, conn: ConnId, bytes: usize) -> Result<(), Breach> {
        let now = self.now();
        let caller = &mut self.clients[client];
        let mut out = Output::new();
        let before = self.server.machine().executed;
        let progress = self
            .server
            .receive(now, conn, &caller.to_server[..bytes], &mut out);
        self.events += self.server.machine().executed - before;
        caller.to_server.drain(..bytes);
        let out = Vec::from(out);
        for byte in &out {
            self.digest = (self.digest ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        }
        caller.answers.extend_from_slice(&out);
        caller.is_full = progress == Progress::OutputFull;
        caller.waits = progress == Progress::Waiting;
        if progress == Progress::Close {
            return Err(Breach {
                rule: "C3",
                what: format!("{conn} was closed, and said nothing wrong"),
            });
        }
        if self.below(4) > 0 {
            self.read_answers(client, conn)?;
        }
        Ok(())
    }

    /// Those whose waits are over go on, and those whose answers did not fit.
    fn go_on(&mut self) -> Result<(), Breach> {
        while let Some(conn) = self.server.next_ready() {
            let client = self.clients.iter().position(|it| it.conn == Some(conn));
            self.receive(client.expect("it is open"), conn, 0)?;
        }
        Ok(())
    }

    /// C3, C4.
    fn read_answers(&mut self, client: usize, conn: ConnId) -> Result<(), Breach> {
        let broken = |rule, what| Err(Breach { rule, what });
        let answers = std::mem::take(&mut self.clients[client].answers);
        let mut rest = &answers[..];
        while let Some((ask, reply)) = self.server.machine_mut().next_answer(conn) {
            match read(&ask, &reply, rest) {
                Ok((taken, fence)) => {
                    rest = &rest[taken..];
                    if let Some(fence) = fence {
                        self.grant(client, conn, ask.key, fence)?;
                    }
                }
                Err(shown) => {
                    return broken("C3", format!("{ask:?} was {reply:?}, and is told {shown}"));
                }
            }
        }
        if !rest.is_empty() {
            let shown = rest[..rest.len().min(80)].escape_ascii();
            return broken(
                "C3",
                format!("{conn} has asked nothing that {shown} answers"),
            );
        }
        Ok(())
    }

    fn grant(
        &mut self,
        client: usize,
        conn: ConnId,
        key: usize,
        fence: Fence,
    ) -> Result<(), Breach> {
        let given = self.grants.entry(fence.number()).or_insert((conn, key));
        if *given != (conn, key) {
            let what = format!("{conn} reads fence {fence:?} of key {key}, and so did {given:?}");
            return Err(Breach { rule: "C4", what });
        }
        self.clients[client].fence = Some((key, fence));
        Ok(())
    }

    fn close(&mut self, client: usize, conn: ConnId) {
        let held = self.server.machine().core.locks().held_by(conn);
        self.held_most = self.held_most.max(held.map_or(0, |held| held.locks));
        self.server.close(self.now(), conn);
        self.clients[client].forget();
    }

    /// C5.
    fn leave(&mut self) -> Result<(), Breach> {
        for client in 0..self.clients.len() {
            if let Some(conn) = self.clients[client].conn {
                self.read_answers(client, conn)?;
                self.close(client, conn);
                self.go_on()?;
            }
        }
        let machine = self.server.machine_mut();
        machine.core.check();
        let held = machine.core.locks_in_force().count();
        let wins = machine.core.bound_wins().len();
        if wins > 0 {
            machine.break_rule("C5", format!("{wins} wins are bound to nobody"));
        }
        if held > 0 || machine.core.has_waits() {
            machine.break_rule("C5", format!("{held} locks are held by nobody"));
        }
        machine.breach.take().map_or(Ok(()), Err)
    }

    const fn now(&self) -> Instant {
        Instant::from_millis(self.now_ms)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.random.below(bound as u64)).expect("below a usize")
    }
}
