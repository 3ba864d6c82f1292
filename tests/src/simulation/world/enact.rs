//! The effects of the alphabet's ops on the world, and the events of great seeds.

use std::time::Duration;

use latchd_core::engine::Event;
use latchd_core::server::StateMachine;
use latchd_core::{ConnId, Instant};
use latchd_harness::alphabet::{Op, SmallRequest, UNIX_S_AT_START, pressure};

use super::super::Breach;
use super::super::ask::Ask;
use super::super::caller::{Caller, State};
use super::super::encode::encode;
use super::super::setting::Kind;
use super::super::workload::{Asker, acquire, draw, is_about_grants, store};
use super::{LOCKS_IN_A_ROW, World};

/// How many requests a client sends ahead of their answers.
const ASKS_MAX: usize = 12;

/// The last date that clients say, in seconds since 1970: an exptime of text has 31 bits.
const DATE_MAX: u64 = i32::MAX as u64 - 100;

impl World {
    /// Performs an op of the alphabet; chance decides the rest.
    pub(super) fn enact(&mut self, op: &Op, chance: u64) {
        match *op {
            Op::Open { client } => {
                let client = client.among(self.callers.len());
                if self.callers[client].state == State::None {
                    self.connect(client, chance);
                }
            }
            // A connection must live long enough for requests.
            Op::Close { client } if chance & 3 == 0 => self.reset(client.among(self.callers.len())),
            // The servers have limits of their own.
            Op::Close { .. } | Op::Detach { .. } | Op::Limit { .. } => {}
            Op::Withhold { ms } => {
                let until = Instant::from_millis(self.now_ms + u64::from(ms));
                self.happens(until.as_millis(), || {
                    format!("no lock is granted for {ms} ms")
                });
                self.tell(Event::WithholdGrants(Some(until)));
            }
            Op::Advance { ms } => self.pass_time(self.now_ms + u64::from(ms)),
            Op::Rewind { ms } => self.pass_time(self.now_ms.saturating_sub(ms.into())),
            Op::WallClock { ahead_s } => {
                let unix_s_at_start = UNIX_S_AT_START + u64::from(ahead_s);
                self.unix_s_at_start = unix_s_at_start;
                self.happens(unix_s_at_start, || {
                    format!("the wall clock is {ahead_s} s ahead")
                });
                self.tell(Event::WallClock { unix_s_at_start });
            }
            Op::Tick => {
                self.happens(9, || "tick".into());
                self.tell(Event::Tick);
            }
            Op::Due => {
                // At times exactly at the deadline that the core has named.
                let due = self
                    .server
                    .machine()
                    .next_deadline()
                    .map(Instant::as_millis);
                let due = due.filter(|due| *due > self.now_ms && chance & 1 == 0);
                if let (Some(due), true) = (due, self.setting.kind.waits()) {
                    self.pass_time(due);
                }
                self.happens(11, || "what is due is done".into());
                let since_1970 =
                    Duration::from_secs(self.unix_s_at_start) + Duration::from_millis(self.now_ms);
                self.server.advance(self.now(), since_1970);
            }
            Op::Pressure { key } => {
                self.happens(10 + (u64::from(key) << 4), || {
                    format!("nobody stores item {key}")
                });
                self.enter(pressure(key));
            }
            Op::Request { client, request } => {
                let is_great = self.setting.kind == Kind::Great;
                let is_plain = self.setting.kind == Kind::Plain;
                // Otherwise there would be little else, and few items left.
                let is_passed_over = match request {
                    SmallRequest::FlushAll { .. } | SmallRequest::Keys { .. } => {
                        is_great || chance & 15 != 0
                    }
                    SmallRequest::Stats | SmallRequest::StatsReset => chance & 7 != 0,
                    SmallRequest::SetTooLarge { .. } => chance & 1 != 0,
                    _ => is_plain && is_about_grants(&request) && chance & 7 != 0,
                };
                if !is_passed_over {
                    self.ask(client.among(self.callers.len()), &request);
                }
            }
        }
    }

    /// Sets the time to `now_ms`, which may be earlier than before: the core must go by the latest.
    fn pass_time(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
        self.happens(now_ms, || format!("it is {now_ms} ms"));
    }

    fn connect(&mut self, client: usize, bits: u64) {
        let conn = self.server.open(self.now());
        let of = usize::try_from(bits >> 4 & 3).expect("two bits");
        self.callers[client] = Caller {
            conn,
            state: State::Open,
            is_binary: bits & 3 == 0,
            output_max: self.setting.outputs_max[of],
            ..Caller::new()
        };
        let output_max = self.callers[client].output_max;
        self.server.set_unsent_bytes_max(conn, output_max);
        self.happens_to(client, 1, || "connects".into());
    }

    /// Whether a client may ask for more.
    fn may_ask(&self, client: usize) -> bool {
        let caller = &self.callers[client];
        let owed = self.server.machine().heard.owed(caller.conn);
        caller.state == State::Open && !caller.finished && owed < ASKS_MAX
    }

    /// A client that may send requests sends the drawn one, if it has words for that.
    fn ask(&mut self, client: usize, request: &SmallRequest) {
        if !self.may_ask(client) {
            return;
        }
        let caller = &self.callers[client];
        self.asked += 1;
        let asker = Asker {
            conn: caller.conn,
            is_binary: caller.is_binary,
            number: caller.asked + 1,
            tag: self.asked,
            unix_s: (self.unix_s_at_start + self.now_ms / 1000).min(DATE_MAX),
        };
        let machine = self.server.machine();
        let drawn = draw(request, &mut self.random, machine, &self.taste, &asker);
        if let Some(ask) = drawn {
            self.write(client, ask);
        }
    }

    fn write(&mut self, client: usize, mut ask: Ask) {
        let caller = &mut self.callers[client];
        caller.asked += 1;
        let before = caller.to_server.len();
        encode(
            &mut ask,
            &self.names,
            &mut self.value,
            &mut caller.to_server,
        );
        caller.written += (caller.to_server.len() - before) as u64;
        ask.end = caller.written;
        caller.finished = ask.ends_connection();
        let conn = caller.conn;
        self.server.machine_mut().heard.say(conn, ask);
        self.trace.note(self.events, || {
            format!("client {client:>2} ({conn}) writes {ask}")
        });
    }

    /// A client of a great seed stores the next missing item. Until all are stored, there is little
    /// else.
    pub(super) fn fill(&mut self, client: usize, bits: u64) -> Result<(), Breach> {
        if self.callers[client].state == State::None {
            self.connect(client, 1);
        }
        while self.may_ask(client) && self.stored < self.setting.keys {
            let number = self.callers[client].asked + 1;
            self.write(client, store(self.stored, number));
            self.stored += 1;
        }
        self.deliver(client, bits)?;
        self.read(client, u64::MAX)
    }

    /// A batch, like that of a client that locks every row of a table.
    pub(super) fn lock_many(&mut self, client: usize) -> Result<(), Breach> {
        let Caller { conn, .. } = self.callers[client];
        let is_idle = self.callers[client].to_server.is_empty() && self.is_idle(conn);
        if !is_idle || !self.may_ask(client) || self.callers[client].is_binary {
            return Ok(());
        }
        let from = usize::try_from(self.random.next() >> 32).expect("32 bits");
        let from = from % (self.setting.keys - LOCKS_IN_A_ROW);
        for key in from..from + LOCKS_IN_A_ROW {
            let number = self.callers[client].asked + 1;
            self.write(client, acquire(key, number));
        }
        self.read(client, u64::MAX)?;
        let bytes = self.callers[client].to_server.len();
        self.drive(client, bytes)
    }

    fn is_idle(&self, conn: ConnId) -> bool {
        self.server.kept_bytes(conn) == 0 && !self.server.machine().heard.waits(conn)
    }
}
