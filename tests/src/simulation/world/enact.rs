//! What the ops of the alphabet do to the world.

use latchd_core::connection::WireLimits;
use latchd_core::{ConnId, Event};
use latchd_harness::alphabet::{Op, Request, UNIX_S_AT_START, pressure};

use super::super::draw::{Asker, draw};
use super::super::encode::encode;
use super::super::journal::Note;
use super::super::peer::State;
use super::World;

/// How many requests a client sends ahead of their answers.
const ASKS_MAX: usize = 12;

impl World {
    /// Something happens that the alphabet has a word for; chance decides what it leaves open.
    pub(super) fn enact(&mut self, op: &Op, chance: u64) {
        match *op {
            Op::Open { client } => {
                let client = client.among(self.peers.len());
                if self.peers[client].state == State::None {
                    self.connect(client, chance);
                }
            }
            // A connection is to live long enough for something to come of it.
            Op::Close { client } if chance & 3 == 0 => self.reset(client.among(self.peers.len())),
            Op::Close { .. } => {}
            Op::Advance { ms } => self.pass_time(self.now_ms + u64::from(ms)),
            Op::Rewind { ms } => self.pass_time(self.now_ms.saturating_sub(ms.into())),
            Op::WallClock { ahead_s } => {
                let unix_s_at_start = UNIX_S_AT_START + u64::from(ahead_s);
                self.unix_s_at_start = unix_s_at_start;
                self.happens(0, Note::WallClock(ahead_s), unix_s_at_start);
                self.tell(Event::WallClock { unix_s_at_start });
                self.ledger.look_at_wall_clock(unix_s_at_start);
            }
            Op::Tick => {
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
                    Request::FlushAll { .. } | Request::Keys { .. } => chance & 15 != 0,
                    Request::Stats | Request::StatsReset => chance & 7 != 0,
                    Request::SetTooLarge { .. } => chance & 1 != 0,
                    _ => false,
                };
                if !is_passed_over {
                    self.ask(client.among(self.peers.len()), &request);
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
        self.conns += 1;
        let peer = &mut self.peers[client];
        peer.connect(self.conns, WireLimits::new(self.limits.value_bytes_max));
        peer.is_binary = bits & 3 == 0;
        peer.is_alone = bits >> 2 & 3 == 0;
        peer.output_max = [1, 64, 512, 4096][usize::try_from(bits >> 4 & 3).expect("two bits")];
        self.happens(client, Note::Connected, 1);
        self.tell(Event::Opened(ConnId::from_number(self.conns)));
    }

    /// A client that may ask says what was drawn for it, if it has words for that.
    fn ask(&mut self, client: usize, request: &Request) {
        let peer = &mut self.peers[client];
        if peer.state != State::Open || peer.finished || peer.asks.len() >= ASKS_MAX {
            return;
        }
        self.asked += 1;
        let asker = Asker {
            conn: peer.conn,
            is_binary: peer.is_binary,
            is_alone: peer.is_alone,
            number: peer.asked + 1,
            tag: self.asked,
            unix_s: self.unix_s_at_start + self.now_ms / 1000,
        };
        let drawn = draw(request, &mut self.random, &self.ledger, &self.taste, &asker);
        let Some(mut ask) = drawn else { return };
        peer.asked += 1;
        let before = peer.to_server.len();
        encode(&ask, &self.names, &mut peer.to_server);
        ask.start = peer.written;
        peer.written += (peer.to_server.len() - before) as u64;
        ask.end = peer.written;
        peer.finished = ask.ends_connection();
        for key in ask.gives_up(self.taste.keys) {
            peer.gave_up[key] = ask.number;
            if self.believers[key] == Some(client) {
                self.believers[key] = None;
            }
        }
        peer.asks.push_back(ask);
        let conn = peer.conn;
        self.journal
            .note(self.events, client, conn, || Note::Wrote(ask));
    }
}
