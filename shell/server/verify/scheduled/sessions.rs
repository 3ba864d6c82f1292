//! A session is taken over, ended and used by several threads: one of them has it at a time, and it ends once (N1, N2).

use std::sync::Arc;

use latchd_core::{ConnId, Instant, Output};
use latchd_protocol::connection::{Connection, Progress};
use shuttle::thread;

use super::{Answer, Client, Seen, in_many_orders, server};
use crate::clients::budget::Holder;
use crate::clients::mailbox::Message;
use crate::server_state::ServerState;
use crate::worker::backend::{Backend as _, ConnTurn};
use crate::worker::executor::ClientSession;
use crate::worker::turn::{LATER_TURN, Work};

const OPEN: &str = "mo 0123456789abcdef T1";

/// A connection, with its worker's own executor.
struct Caller {
    shared: Arc<ServerState>,
    session: ClientSession,
    wire: Connection,
    holder: Holder,
    input: Vec<u8>,
}

/// The outcome of one request.
#[derive(Debug, Eq, PartialEq)]
enum Heard {
    Said(String),
    Waits,
    Closed,
}

impl Caller {
    fn new(shared: &Arc<ServerState>, number: u64, worker: usize) -> Self {
        let holder = Holder {
            worker,
            name: number,
        };
        Self {
            shared: Arc::clone(shared),
            session: ClientSession::new(ConnId::from_number(number), holder, 0),
            wire: Connection::new(shared.wire_limits),
            holder,
            input: Vec::new(),
        }
    }

    fn ask(&mut self, at_ms: u64, line: &str) -> Heard {
        self.input.extend_from_slice(line.as_bytes());
        self.input.extend_from_slice(b"\r\n");
        self.drive(at_ms)
    }

    fn said(&mut self, at_ms: u64, line: &str) -> String {
        match self.ask(at_ms, line) {
            Heard::Said(said) => said,
            other => panic!("{line}: {other:?}"),
        }
    }

    fn drive(&mut self, at_ms: u64) -> Heard {
        let mut output = Output::new();
        loop {
            let part = ConnTurn {
                now: Instant::from_millis(at_ms),
                session: &mut self.session,
                request: None,
                work: &mut Work::new(LATER_TURN),
                watcher: &mut None,
            };
            let (shared, wire) = (&self.shared, &mut self.wire);
            let driven = shared.drive(part, wire, &self.input, &mut output, usize::MAX);
            let (consumed, progress) = driven;
            self.input.drain(..consumed);
            return match progress {
                Progress::Yielded => continue,
                Progress::Waiting => Heard::Waits,
                Progress::Close => Heard::Closed,
                Progress::NeedsInput { .. } | Progress::OutputFull => {
                    let said = String::from_utf8(output.into()).unwrap();
                    Heard::Said(said.trim_end().to_owned())
                }
            };
        }
    }

    fn close(self, at_ms: u64) {
        let now = Instant::from_millis(at_ms);
        self.shared.close(now, self.session);
    }
}

/// Everything is free again.
fn locks_all(shared: &Arc<ServerState>, keys: &[String; 2]) {
    let counts = shared.shards.session_counts(Instant::from_millis(1_001));
    assert_eq!(counts[0].value, "0", "the session has ended");
    let mut last = Client::new(shared, 9, 0).at(1_001);
    let answers = [0, 1].map(|name: usize| last.lock(&keys[name]));
    assert_eq!(answers, [Answer::Granted; 2], "N2: nothing is left of it");
    last.close();
}

/// Whether the worker of a connection has a message to close it.
fn is_to_close(one: &Caller) -> bool {
    let messages = one.shared.mailbox(one.holder.worker).take();
    let name = one.holder.name;
    let is_it = |message: &Message| matches!(message, Message::LostSession(lost) if *lost == name);
    messages.iter().any(is_it)
}

/// One connection takes over while the other one acquires in its session, releases everything, and closes (S5).
fn is_taken_over(seen: &Arc<Seen>) {
    let (shared, keys) = server(2, |_| ());
    let [mut one, mut two] = [(1, 0), (2, 1)].map(|(n, worker)| Caller::new(&shared, n, worker));
    assert!(one.said(0, OPEN).ends_with(" N"));
    assert_eq!(one.said(0, &format!("ml {}", keys[0])), "HD");
    let (all, names) = (Arc::clone(seen), keys.clone());
    let loser = thread::spawn(move || {
        let requests = format!("ml {0}\r\nms {0} 1\r\nv\r\nunlock_all", names[1]);
        let heard = one.ask(500, &requests);
        all.note(match &heard {
            Heard::Said(said) if !said.contains("closed") => "all of it comes before",
            Heard::Said(said) if said.starts_with("SERVER_ERROR connection is closed") => {
                "none of it is executed"
            }
            Heard::Said(_) => "some of it is executed",
            Heard::Closed => "its turn comes too late",
            Heard::Waits => panic!("nobody holds the key"),
        });
        one
    });
    let names = keys.clone();
    let winner = thread::spawn(move || {
        assert!(two.said(500, OPEN).ends_with(" R"));
        // Nothing of the other connection is executed from here on.
        assert_eq!(two.said(500, "unlock_all"), "OK");
        let stored = two.said(500, &format!("mg {} v", names[1]));
        assert_eq!(two.said(500, &format!("ml {}", names[0])), "HD");
        (two, stored)
    });
    let one = loser.join().unwrap();
    let (mut two, stored) = winner.join().unwrap();
    assert!(is_to_close(&one), "N1");
    assert_eq!(two.said(500, &format!("mg {} v", keys[1])), stored, "S5");
    one.close(500);
    let held = keys
        .each_ref()
        .map(|name| two.said(500, &format!("mu {name}")));
    assert_eq!(
        held,
        ["HD", "NF"],
        "S5: released by it, acquired by the other one"
    );
    assert_eq!(two.said(500, "mo 0123456789abcdef T0"), "HD");
    two.close(500);
    locks_all(&shared, &keys);
}

/// Its connection has a turn at the moment at which it ends by time, and by a request of another one.
fn ends_once(seen: &Arc<Seen>) {
    let (shared, keys) = server(2, |_| ());
    let [mut one, mut two] = [(1, 0), (2, 1)].map(|(n, worker)| Caller::new(&shared, n, worker));
    assert!(one.said(0, OPEN).ends_with(" N"));
    assert_eq!(one.said(0, &format!("ml {}", keys[0])), "HD");
    let (all, name) = (Arc::clone(seen), keys[1].clone());
    let turn = thread::spawn(move || {
        all.note(match one.ask(1_000, &format!("ml {name}")) {
            Heard::Said(said) if said == "HD" => "it is heard in time",
            Heard::Said(said) => {
                assert_eq!(said, "SERVER_ERROR connection is closed");
                "it ends meanwhile"
            }
            Heard::Closed => "it finds that it has ended",
            Heard::Waits => panic!("nobody holds the key"),
        });
        one.close(1_000);
    });
    let clock = {
        let shared = Arc::clone(&shared);
        thread::spawn(move || {
            let now = Instant::from_millis(1_001);
            shared.shards.pass(now);
        })
    };
    let all = Arc::clone(seen);
    let ender = thread::spawn(move || {
        all.note(match &*two.said(1_001, "mo 0123456789abcdef T0") {
            "HD" => "it is ended by a request",
            "NF" => "it is ended by time",
            other => panic!("{other}"),
        });
        two.close(1_001);
    });
    for thread in [turn, clock, ender] {
        thread.join().unwrap();
    }
    locks_all(&shared, &keys);
}

/// A request in the session is heard, and its waiting connection goes on being heard (N2).
#[test]
fn waiting_session_outlives_requests_in_it() {
    in_many_orders(&[], |_| {
        let (shared, keys) = server(2, |_| ());
        let mut holder = Client::new(&shared, 3, 0);
        assert_eq!(holder.lock(&keys[0]), Answer::Granted);
        let [mut one, mut two] =
            [(1, 0), (2, 1)].map(|(n, worker)| Caller::new(&shared, n, worker));
        assert!(one.said(0, OPEN).ends_with(" N"));
        assert_eq!(one.ask(0, &format!("ml {} w60000", keys[0])), Heard::Waits);
        let in_it = format!("ml {} j0123456789abcdef", keys[1]);
        let asker = thread::spawn(move || {
            assert_eq!(two.said(500, &in_it), "HD");
            two
        });
        let due = Instant::from_millis(5_000);
        shared.shards.pass(due);
        let two = asker.join().unwrap();
        shared.shards.pass(due);
        let count = |ms| {
            shared.shards.session_counts(Instant::from_millis(ms))[0]
                .value
                .clone()
        };
        assert_eq!(count(5_000), "1", "its client waits");
        one.close(5_000);
        let closed = [5_999, 6_001].map(|ms| {
            shared.shards.pass(Instant::from_millis(ms));
            count(ms)
        });
        assert_eq!(
            closed,
            ["1", "0"],
            "it was heard until its connection closed"
        );
        two.close(6_001);
        holder.close();
    });
}

#[test]
fn taken_over_session_has_one_connection() {
    in_many_orders(
        &[
            "all of it comes before",
            "some of it is executed",
            "none of it is executed",
            "its turn comes too late",
        ],
        is_taken_over,
    );
}

#[test]
fn session_ends_once() {
    in_many_orders(
        &[
            "it is heard in time",
            "it ends meanwhile",
            "it finds that it has ended",
            "it is ended by a request",
            "it is ended by time",
        ],
        ends_once,
    );
}
