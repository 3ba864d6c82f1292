//! A way through a model as a transcript: the requests that clients would have to send to see the
//! same.
//!
//! The answers are those of the core that the way was found on, through the real connection. So a
//! file made of a failure passes for as long as the fault is there. Its fix corrects the answers,
//! and has a test that stays. The format is that of `tests/transcripts/README.md`; the lines of a
//! text client can be pasted into `nc`.

use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};

use latchd_core::engine::Core;
use latchd_core::store::MapStore;
use latchd_core::{ConnId, Instant, Server};
use latchd_harness::alphabet::{Op, SmallRequest};
use latchd_harness::memory::exchange;
use latchd_harness::transcript::binary::Response;
use latchd_harness::transcript::written;
use latchd_harness::wording::{self, Style};
use latchd_protocol::command::{Command, Set};
use latchd_protocol::item::Cas;
use latchd_protocol::wire::WireLimits;

use crate::action::{Action, GONE, KEYS, PRESSURE_KEY, Words, key};
use crate::frame::Bounded;
use crate::setup::{CLIENTS_MAX, Room, Setup};
use crate::world::World;

/// A step of time on the wire: a model's second, and the most by which a deadline may be rounded up
/// (T2), since a server's seconds do not begin with the transcript's.
const WAIT_MS: u64 = 1250;

/// The default limit on values of a server; a value that is too large exceeds it.
const VALUE_BYTES_MAX: usize = 1 << 20;

/// The letter of the client that stores items of no interest.
const PRESSURE_LETTER: char = 'P';

/// One step on the wire.
enum Line {
    /// A request in text.
    Text(Vec<u8>),
    /// A packet, as a transcript writes it, and its bytes.
    Binary(String, Vec<u8>),
    /// Nothing that a client sends; a note is written instead.
    Note(String),
    /// A second passes.
    Wait,
    /// The client closes.
    Close,
}

/// Plays a way on the core of a model, and writes down the bytes sent and received.
///
/// `title` is the scenario's; `end` is the comment on the last step.
#[must_use]
pub(crate) fn write(setup: &Setup, steps: &[Action], title: &str, end: &str) -> String {
    let mut player = Player::new(setup, steps);
    let mut text = header(setup, title);
    let mut world = setup.first();
    for &action in steps {
        player.step(&mut text, setup, &world, action);
        // The way ends with the fault; the core may have panicked in it.
        let take = || drop(setup.happen(&mut world, action));
        drop(catch_unwind(AssertUnwindSafe(take)));
    }
    for line in end.lines() {
        writeln!(text, "# {line}").expect("writing to a String cannot fail");
    }
    text
}

fn header(setup: &Setup, title: &str) -> String {
    let mut text = format!(
        "# Found by `model check {}`; the answers are as they were.\n",
        setup.name
    );
    let mut note = |line: &str| {
        writeln!(text, "# {line}").expect("writing to a String cannot fail");
    };
    match setup.room {
        Room::Ample => {}
        Room::Items(items) => note(&format!("There is room for {items} such items.")),
    }
    if setup.shards > 1 {
        note(&format!(
            "The keys are spread over {} shards of items.",
            setup.shards
        ));
    }
    if setup.locks_max < setup.keys {
        note(&format!(
            "A connection may hold {} lock(s).",
            setup.locks_max
        ));
    }
    format!("{text}\n== {title}\n@latchd: it is about locks and wins as latchd has them\n")
}

/// The server, and the connections to it.
struct Player {
    server: Server<Core<MapStore>>,
    clients: [Option<ConnId>; CLIENTS_MAX],
    is_binary: [bool; CLIENTS_MAX],
    now_ms: u64,
}

impl Player {
    fn new(setup: &Setup, steps: &[Action]) -> Self {
        let mut is_binary = [false; CLIENTS_MAX];
        for step in steps {
            // The words for any value and version are the same.
            let words = Words {
                value: b"v",
                known: None,
                fence: None,
            };
            if let Op::Request { client, request } = step.op(setup)
                && let Some(is_binary) = is_binary.get_mut(client.among(CLIENTS_MAX + 1))
            {
                *is_binary |= wording::text(&request, &words, VALUE_BYTES_MAX).is_none();
            }
        }
        Self {
            server: Server::with_machine(setup.core(), WireLimits::new(VALUE_BYTES_MAX)),
            clients: Default::default(),
            is_binary,
            now_ms: 0,
        }
    }

    fn step(&mut self, text: &mut String, setup: &Setup, world: &World, action: Action) {
        let (letter, who) = if let Op::Pressure { .. } = action.op(setup) {
            (PRESSURE_LETTER, None)
        } else {
            (action.letter(), Some(action.client()))
        };
        let mut push = |line: String| text.push_str(&(line + "\n"));
        match self.line(setup, world, action) {
            Line::Note(note) => push(format!("# {note}")),
            Line::Wait => {
                self.now_ms += WAIT_MS;
                push(format!(
                    "wait {}s",
                    std::time::Duration::from_millis(WAIT_MS).as_secs_f64()
                ));
            }
            Line::Close => {
                if let Some(conn) = self.clients[action.client()].take() {
                    self.server.close(Instant::from_millis(self.now_ms), conn);
                    push(format!("close {letter}"));
                } else {
                    push(format!("# {letter} closes, and has sent nothing"));
                }
            }
            Line::Text(bytes) => {
                for line in written::lines(&bytes) {
                    push(format!("{letter}> {line}").trim_end().to_owned());
                }
                let out = self.exchange(who, &bytes);
                let out = String::from_utf8_lossy(&out).into_owned();
                for line in out.split_terminator("\r\n") {
                    push(format!("{letter}< {line}").trim_end().to_owned());
                }
            }
            Line::Binary(packet, bytes) => {
                push(format!("{letter}>bin {packet}"));
                let out = self.exchange(who, &bytes);
                let mut rest = out.as_slice();
                while let Some((response, bytes)) = Response::decode(rest) {
                    push(format!("{letter}<bin {}", response.describe()));
                    rest = &rest[bytes..];
                }
            }
        }
    }

    fn line(&self, setup: &Setup, world: &World, action: Action) -> Line {
        let letter = action.letter();
        let value = world.next_value();
        match action.op(setup) {
            Op::Open { .. } => Line::Note(format!("{letter} connects")),
            Op::Close { .. } => Line::Close,
            Op::Advance { .. } => Line::Wait,
            Op::Rewind { .. } => Line::Note("the clock steps back by a second".to_owned()),
            Op::WallClock { .. } => Line::Note("the wall clock is set".to_owned()),
            Op::Detach { .. } => Line::Note(format!("{letter} has no connection")),
            Op::Withhold { .. } => Line::Note("no lock is granted for a while".to_owned()),
            Op::Limit { .. } => Line::Note("the limit of memory changes".to_owned()),
            Op::Tick | Op::Due => Line::Note("the core looks for expired items".to_owned()),
            Op::Pressure { .. } => {
                let set = Command::from(Set::new(key(PRESSURE_KEY), value.as_bytes()));
                let mut line = Vec::new();
                wording::classic(&set, &[], &Style::default(), &mut line);
                Line::Text(line)
            }
            Op::Request { client, request } => {
                let who = client.among(CLIENTS_MAX + 1);
                let number = request.key().map_or(0, |key| key.among(KEYS.len()));
                let known = world.version(who, number).and_then(Cas::new);
                let words = Words {
                    value: value.as_bytes(),
                    known,
                    fence: world.fences[number],
                };
                if who == GONE {
                    return Line::Note(format!("a connection that has ended asks: {action:?}"));
                }
                said(&request, &words, self.is_binary[who]).unwrap_or_else(|| {
                    Line::Note(format!("there are no words for this here: {action:?}"))
                })
            }
        }
    }

    /// Sends bytes on a client's connection, or on a new one of its own, and returns the received
    /// bytes.
    fn exchange(&mut self, who: Option<usize>, bytes: &[u8]) -> Vec<u8> {
        let now = Instant::from_millis(self.now_ms);
        let server = &mut self.server;
        let mut nobody = None;
        let client = who.map_or(&mut nobody, |who| &mut self.clients[who]);
        let conn = *client.get_or_insert_with(|| server.open(now));
        let mut out = Vec::new();
        exchange(server, now, conn, bytes, &mut out, |_| {});
        out
    }
}

/// A request as a client writes it; `None` if its protocol has no words for it.
fn said(request: &SmallRequest, words: &Words<'_>, in_binary: bool) -> Option<Line> {
    if in_binary {
        let packet = wording::binary(request, words)?;
        let mut bytes = Vec::new();
        packet.encode(&mut bytes).ok()?;
        Some(Line::Binary(written::packet(&packet), bytes))
    } else {
        wording::text(request, words, VALUE_BYTES_MAX).map(Line::Text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verb::{Manner, Verb, ask};

    /// A way through a model is a transcript that plays on a server.
    #[test]
    fn a_way_is_a_transcript() {
        use latchd_harness::alphabet::RequestKind as Kind;
        use latchd_harness::memory::{Arrival, MemoryPeer};
        use latchd_harness::transcript::{Dialect, parse::parse, run::run};

        let setup = crate::models::ALL
            .iter()
            .find(|setup| setup.name == "everything-2x1")
            .unwrap();
        let by = |client, verb| Action {
            client,
            verb,
            key: 0,
        };
        let text_only = [
            by(0, Verb::Open),
            by(1, Verb::Open),
            by(0, ask(Kind::Vivify)),
            by(1, ask(Kind::MetaGet)),
            by(0, ask(Kind::CasElseStale)),
            by(1, ask(Kind::Lock)),
            by(0, ask(Kind::Set)),
            by(0, ask(Kind::SetTooLarge)),
            by(1, ask(Kind::MarkStale)),
            by(0, ask(Kind::MetaGet)),
            by(1, Verb::Close),
            by(0, Verb::Ask(Kind::Set, Manner::Expiring)),
            by(0, Verb::Pass),
            by(0, Verb::Pass),
            by(0, ask(Kind::Get)),
            by(0, ask(Kind::Append)),
        ];
        let binary_too = [
            by(0, Verb::Open),
            by(0, ask(Kind::Set)),
            by(0, ask(Kind::LockAndGet)),
            by(0, ask(Kind::ReplaceAndUnlockCas)),
            by(1, Verb::Open),
            by(1, ask(Kind::Lock)),
            by(0, ask(Kind::ReplaceAndUnlock)),
            by(0, ask(Kind::Increment)),
            by(0, ask(Kind::FlushAll)),
        ];
        for steps in [&text_only[..], &binary_too[..]] {
            let text = write(setup, steps, "a way", "nothing is wrong");
            let transcript =
                parse("way", &text).unwrap_or_else(|mistake| panic!("{mistake}\n{text}"));
            let outcome = run(&transcript, Dialect::Latchd, || {
                Ok(MemoryPeer::new(Arrival::Whole))
            });
            let outcome = outcome.unwrap();
            assert_eq!(outcome.passed, 1, "{:?}\n{text}", outcome.failures);
        }
    }
}
