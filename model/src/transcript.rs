//! A way through a model as a transcript: what clients would have to send to see the same.
//!
//! The answers are those of the very cores that the way was found on, by way of the real
//! connection. So a file made of an offence passes for as long as the offence is there; whoever
//! mends it corrects the answers, and has a test that stays. The format is that of
//! `tests/transcripts/README.md`; what is written of a text client can be pasted into `nc`.

use std::fmt::Write as _;

use latchd_core::connection::Execute;
use latchd_core::reply::Reply;
use latchd_core::wire::WireLimits;
use latchd_core::{Command, ConnId, Connection, Core, Event, Instant};
use latchd_tests::transcript::binary::{Packet, Response};
use stateright::Model;

use crate::action::{Action, KEYS, PRESSURE_KEY, Verb};
use crate::explore::Explored;
use crate::setup::{CLIENTS_MAX, Room, Setup};
use crate::wire::{Request, VALUE_BYTES_MAX, expand};
use crate::world::World;

/// What a step of time is on the wire: a model's second, and what a deadline may be rounded up by
/// (T2), since a server's seconds do not begin with the transcript's.
const WAIT_MS: u64 = 1250;

/// The letter of the client that stores items of no interest.
const PRESSURE_LETTER: char = 'P';

/// What one step is on the wire.
enum Line {
    /// Lines of text to send.
    Text(Vec<String>),
    /// A packet to send.
    Binary(String),
    /// Nothing that a client sends; what to write instead.
    Note(String),
    /// A second passes.
    Wait,
    /// The client closes.
    Close,
}

/// Plays a way on the cores of a model, and writes down what is sent and what comes back.
///
/// `title` is the scenario's; `end` is what is to be said of the last step.
#[must_use]
pub(crate) fn write(model: &Explored, steps: &[Action], title: &str, end: &str) -> String {
    let mut player = Player::new(model, steps);
    let mut text = header(model.setup(), title);
    let mut world = model
        .init_states()
        .pop()
        .expect("there is one state to start with");
    for &action in steps {
        player.step(&mut text, &world, action);
        world = model
            .next_state(&world, action)
            .expect("every action leads somewhere");
    }
    for line in end.lines() {
        writeln!(text, "# {line}").expect("a String takes what is written to it");
    }
    text
}

fn header(setup: &Setup, title: &str) -> String {
    let mut text = format!(
        "# Found by `model check {}`; the answers are as they were.\n",
        setup.name
    );
    let mut note = |line: &str| {
        writeln!(text, "# {line}").expect("a String takes what is written to it");
    };
    match setup.room {
        Room::Ample => {}
        Room::Items(items) => note(&format!("There is room for {items} such items.")),
    }
    if setup.shards > 1 {
        note(&format!(
            "The keys are spread over {} shards.",
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

/// The cores, and the connections to them.
struct Player {
    cores: Vec<Core>,
    clients: [Option<(ConnId, Connection)>; CLIENTS_MAX],
    is_binary: [bool; CLIENTS_MAX],
    ttl_s: u32,
    now_ms: u64,
    connections: u64,
}

impl Player {
    fn new(model: &Explored, steps: &[Action]) -> Self {
        let mut is_binary = [false; CLIENTS_MAX];
        for step in steps
            .iter()
            .filter(|step| Request::is_binary_only(step.verb))
        {
            is_binary[step.client()] = true;
        }
        Self {
            cores: model.fresh_cores(),
            clients: Default::default(),
            is_binary,
            ttl_s: model.setup().ttl_s,
            now_ms: 0,
            connections: 0,
        }
    }

    fn step(&mut self, text: &mut String, world: &World, action: Action) {
        let letter = if action.verb == Verb::Pressure {
            PRESSURE_LETTER
        } else {
            action.letter()
        };
        let key = std::str::from_utf8(
            KEYS[if action.verb == Verb::Pressure {
                PRESSURE_KEY
            } else {
                action.key()
            }],
        )
        .expect("a letter");
        let request = Request {
            key,
            value: world.next_value(),
            version: world.version(action.client(), action.key()).unwrap_or(0),
            ttl_s: self.ttl_s,
        };
        let line = self.line(&request, action);
        let mut push = |line: String| text.push_str(&(line + "\n"));
        match line {
            Line::Note(note) => push(format!("# {note}")),
            Line::Wait => {
                self.now_ms += WAIT_MS;
                push(format!(
                    "wait {}s",
                    std::time::Duration::from_millis(WAIT_MS).as_secs_f64()
                ));
            }
            Line::Close => {
                if let Some((conn, _)) = self.clients[action.client()].take() {
                    let now = Instant::from_millis(self.now_ms);
                    for core in &mut self.cores {
                        core.handle(now, Event::Closed(conn));
                    }
                    push(format!("close {letter}"));
                } else {
                    push(format!("# {letter} closes, and has sent nothing"));
                }
            }
            Line::Text(lines) => {
                let mut bytes = Vec::new();
                for line in lines {
                    bytes.extend_from_slice(&expand(&line));
                    push(if line.is_empty() {
                        format!("{letter}>")
                    } else {
                        format!("{letter}> {line}")
                    });
                }
                let out = self.exchange(action, &bytes);
                let out = String::from_utf8_lossy(&out).into_owned();
                for line in out.split_terminator("\r\n") {
                    push(if line.is_empty() {
                        format!("{letter}<")
                    } else {
                        format!("{letter}< {line}")
                    });
                }
            }
            Line::Binary(packet) => {
                push(format!("{letter}>bin {packet}"));
                let bytes = Packet::parse(&packet)
                    .and_then(|packet| packet.request(&|_| Err("there are no variables".into())))
                    .expect("it is written as the format wants it");
                let out = self.exchange(action, &bytes);
                let mut rest = out.as_slice();
                while let Some((response, bytes)) = Response::decode(rest) {
                    push(format!("{letter}<bin {}", response.describe()));
                    rest = &rest[bytes..];
                }
            }
        }
    }

    fn line(&self, request: &Request<'_>, action: Action) -> Line {
        let letter = action.letter();
        match action.verb {
            Verb::Open => Line::Note(format!("{letter} connects")),
            Verb::Close => Line::Close,
            Verb::Walk => Line::Note(format!("what {letter} has begun reaches the next shard")),
            Verb::LateLock => {
                Line::Note(format!("a connection that has ended locks {}", request.key))
            }
            Verb::Pass => Line::Wait,
            Verb::Tick => Line::Note("the core looks for expired items".to_owned()),
            Verb::StepBack => Line::Note("the clock steps back by a second".to_owned()),
            Verb::Pressure
            | Verb::Lock
            | Verb::LockAndGet
            | Verb::Unlock
            | Verb::UnlockAll
            | Verb::Gets
            | Verb::Touch
            | Verb::Set
            | Verb::SetExpiring
            | Verb::Add
            | Verb::Replace
            | Verb::Append
            | Verb::Cas
            | Verb::ReplaceAndUnlock
            | Verb::CasAndUnlock
            | Verb::SetTooLarge
            | Verb::Increment
            | Verb::Delete
            | Verb::DeleteVersion
            | Verb::MarkStale
            | Verb::Clear
            | Verb::ClearAndMarkStale
            | Verb::MetaGet
            | Verb::Vivify
            | Verb::Recache
            | Verb::StaleSet
            | Verb::StaleSetAhead
            | Verb::SetVersion
            | Verb::Flush
            | Verb::FlushLater => {
                let is_binary = action.verb != Verb::Pressure && self.is_binary[action.client()];
                let binary = request
                    .binary(action.verb)
                    .filter(|_| is_binary)
                    .map(Line::Binary);
                binary
                    .or_else(|| request.text(action.verb).map(Line::Text))
                    .unwrap_or_else(|| Line::Note(action.to_string()))
            }
        }
    }

    /// Sends bytes on a client's connection, and returns what comes back.
    fn exchange(&mut self, action: Action, bytes: &[u8]) -> Vec<u8> {
        let now = Instant::from_millis(self.now_ms);
        let mut out = Vec::new();
        let mut fresh = || {
            self.connections += 1;
            let conn = ConnId::from_number(self.connections);
            for core in &mut self.cores {
                core.handle(now, Event::Opened(conn));
            }
            (conn, Connection::new(WireLimits::new(VALUE_BYTES_MAX)))
        };
        let mut nobody = None;
        let client = if action.verb == Verb::Pressure {
            &mut nobody
        } else {
            &mut self.clients[action.client()]
        };
        let (conn, connection) = client.get_or_insert_with(&mut fresh);
        let mut spread = Spread {
            cores: &mut self.cores,
            now,
            conn: *conn,
        };
        let mut rest = bytes;
        while !rest.is_empty() {
            let (consumed, _) = connection.drive(rest, &mut spread, &mut out, usize::MAX);
            if consumed == 0 {
                break;
            }
            rest = &rest[consumed..];
        }
        out
    }
}

/// Several cores as one connection sees them.
struct Spread<'a> {
    cores: &'a mut [Core],
    now: Instant,
    conn: ConnId,
}

impl Execute for Spread<'_> {
    fn execute(&mut self, command: Command<'_>, answer: &mut dyn FnMut(&Reply<'_>)) {
        let shards = self.cores.len();
        let number = command
            .key()
            .and_then(|key| KEYS.iter().position(|name| *name == key.as_bytes()));
        let concerned = number.map_or(0..shards, |number| number % shards..number % shards + 1);
        let last = concerned.end - 1;
        for shard in concerned {
            let event = Event::Received(self.conn, command);
            let reply = self.cores[shard]
                .handle(self.now, event)
                .expect("a command has a reply");
            if shard == last {
                answer(&reply);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A way through a model is a transcript that plays on a server.
    #[test]
    fn a_way_is_a_transcript() {
        use latchd_tests::memory::{Arrival, MemoryPeer};
        use latchd_tests::transcript::{Dialect, parse::parse, run::run};

        let setup = crate::all()
            .find(|setup| setup.name == "everything-2x1")
            .unwrap();
        let model = Explored::new(setup.clone());
        let by = |client, verb| Action {
            client,
            verb,
            key: 0,
        };
        let text_only = [
            by(0, Verb::Open),
            by(1, Verb::Open),
            by(0, Verb::Vivify),
            by(1, Verb::MetaGet),
            by(0, Verb::StaleSet),
            by(1, Verb::Lock),
            by(0, Verb::Set),
            by(0, Verb::SetTooLarge),
            by(1, Verb::MarkStale),
            by(0, Verb::MetaGet),
            by(1, Verb::Close),
            by(0, Verb::SetExpiring),
            by(0, Verb::Pass),
            by(0, Verb::Pass),
            by(0, Verb::Gets),
            by(0, Verb::Append),
        ];
        let binary_too = [
            by(0, Verb::Open),
            by(0, Verb::Set),
            by(0, Verb::LockAndGet),
            by(0, Verb::CasAndUnlock),
            by(1, Verb::Open),
            by(1, Verb::Lock),
            by(0, Verb::ReplaceAndUnlock),
            by(0, Verb::Increment),
            by(0, Verb::Flush),
        ];
        for steps in [&text_only[..], &binary_too[..]] {
            let text = write(&model, steps, "a way", "nothing is wrong");
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
