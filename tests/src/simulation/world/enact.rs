//! What the ops of the alphabet do to the world.

use latchd_core::engine::Event;
use latchd_harness::alphabet::{Op, SmallRequest, UNIX_S_AT_START, pressure};

use super::super::caller::State;
use super::super::encode::encode;
use super::super::trace::Note;
use super::super::workload::{Asker, draw};
use super::World;

/// How many requests a client sends ahead of their answers.
const ASKS_MAX: usize = 12;

impl World {
    /// Something happens that the alphabet has a word for; chance decides what it leaves open.
    pub(super) fn enact(&mut self, op: &Op, chance: u64) {
        match *op {
            Op::Open { client } => {
                let client = client.among(self.callers.len());
                if self.callers[client].state == State::None {
                    self.connect(client, chance);
                }
            }
            // A connection is to live long enough for something to come of it.
            Op::Close { client } if chance & 3 == 0 => self.reset(client.among(self.callers.len())),
            // The servers' limits are their own.
            Op::Close { .. } | Op::Limit { .. } => {}
            Op::Advance { ms } => self.pass_time(self.now_ms + u64::from(ms)),
            Op::Rewind { ms } => self.pass_time(self.now_ms.saturating_sub(ms.into())),
            Op::WallClock { ahead_s } => {
                let unix_s_at_start = UNIX_S_AT_START + u64::from(ahead_s);
                self.unix_s_at_start = unix_s_at_start;
                self.happens(0, Note::WallClock(ahead_s), unix_s_at_start);
                self.tell(Event::WallClock { unix_s_at_start });
                self.auditor.look_at_wall_clock(unix_s_at_start);
            }
            // A tick does what is due, too; nobody waits here.
            Op::Tick | Op::Due => {
                self.happens(0, Note::Tick, 9);
                self.tell(Event::Tick);
            }
            Op::Pressure { key } => {
                self.happens(0, Note::Pressure(key), 10 + (u64::from(key) << 4));
                self.enter(pressure(key));
            }
            Op::Request { client, request } => {
                // Or there would be little else, and little left.
                let is_passed_over = match request {
                    SmallRequest::FlushAll { .. } | SmallRequest::Keys { .. } => chance & 15 != 0,
                    SmallRequest::Stats | SmallRequest::StatsReset => chance & 7 != 0,
                    SmallRequest::SetTooLarge { .. } => chance & 1 != 0,
                    _ => false,
                };
                if !is_passed_over {
                    self.ask(client.among(self.callers.len()), &request);
                }
            }
        }
    }

    /// It is `now_ms`, which may be earlier than it was: the core is to go by the latest.
    fn pass_time(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
        self.happens(0, Note::Time(now_ms), now_ms);
    }

    fn connect(&mut self, client: usize, bits: u64) {
        let conn = self.server.open(self.now());
        let caller = &mut self.callers[client];
        caller.connect(conn.number());
        caller.is_binary = bits & 3 == 0;
        caller.is_alone = bits >> 2 & 3 == 0;
        caller.output_max = [1, 64, 512, 4096][usize::try_from(bits >> 4 & 3).expect("two bits")];
        self.happens(client, Note::Connected, 1);
        self.auditor.advance(self.now_ms);
    }

    /// A client that may ask says what was drawn for it, if it has words for that.
    fn ask(&mut self, client: usize, request: &SmallRequest) {
        let caller = &mut self.callers[client];
        if caller.state != State::Open || caller.finished || caller.asks.len() >= ASKS_MAX {
            return;
        }
        self.asked += 1;
        let asker = Asker {
            conn: caller.conn,
            is_binary: caller.is_binary,
            is_alone: caller.is_alone,
            number: caller.asked + 1,
            tag: self.asked,
            unix_s: self.unix_s_at_start + self.now_ms / 1000,
        };
        let drawn = draw(
            request,
            &mut self.random,
            &self.auditor,
            &self.taste,
            &asker,
        );
        let Some(mut ask) = drawn else { return };
        caller.asked += 1;
        let before = caller.to_server.len();
        encode(
            &mut ask,
            &self.names,
            &mut self.value,
            &mut caller.to_server,
        );
        ask.start = caller.written;
        caller.written += (caller.to_server.len() - before) as u64;
        ask.end = caller.written;
        caller.finished = ask.ends_connection();
        for key in ask.relinquishes(self.taste.keys) {
            caller.relinquished[key] = ask.number;
            if self.believers[key] == Some(client) {
                self.believers[key] = None;
            }
        }
        caller.asks.push_back(ask);
        let conn = caller.conn;
        self.trace
            .note(self.events, client, conn, || Note::Wrote(ask));
    }
}
