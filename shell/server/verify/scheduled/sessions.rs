//! A session is taken over, ended and used by several threads: one of them has it at a time, and it ends once (N1 to N3).

use std::sync::Arc;

use latchd_core::{ConnId, Instant, Output};
use latchd_protocol::connection::{Connection, Progress};
use shuttle::thread;

use super::{Client, Seen, Told, in_many_orders, server};
use crate::clients::budget::Holder;
use crate::clients::mailbox::Message;
use crate::shared::Shared;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::worker::backend::{Backend as _, Visit};
use crate::worker::executor::ClientSession;
use crate::worker::turn::{LATER_TURN, Work};

const OPEN: &str = "mo 0123456789abcdef T1";

/// A connection, with its worker's own executor.
struct Caller {
    shared: Arc<Shared>,
    session: ClientSession,
    wire: Connection,
    holder: Holder,
    input: Vec<u8>,
}

/// What a connection is told.
#[derive(Debug, Eq, PartialEq)]
enum Heard {
    Said(String),
    Waits,
    Closed,
}

impl Caller {
    fn new(shared: &Arc<Shared>, number: u64, worker: usize) -> Self {
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
            let visit = Visit {
                now: Instant::from_millis(at_ms),
                session: &mut self.session,
                request: None,
                work: &mut Work::new(LATER_TURN),
                watcher: &mut None,
            };
            let (shared, wire) = (&self.shared, &mut self.wire);
            let driven = shared.drive(visit, wire, &self.input, &mut output, usize::MAX);
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

    /// Waits until its worker reads a message to it, and does what the worker does then.
    fn hear(&mut self, at_ms: u64) -> Heard {
        loop {
            self.shared.mailbox(self.holder.worker).hear();
            let messages = self.shared.mailbox(self.holder.worker).take();
            // What ends its wait comes first; nothing else comes but the end of its connection.
            if let Some(message) = messages.into_iter().next() {
                match message {
                    Message::LostSession(name) if name == self.holder.name => return Heard::Closed,
                    Message::WaitEnded(name, outcome) if name == self.holder.name => {
                        assert!(self.wire.end_wait(outcome), "it waits");
                        return self.drive(at_ms);
                    }
                    other => panic!("nobody has sent {other:?}"),
                }
            }
        }
    }

    fn close(self, at_ms: u64) {
        let now = Instant::from_millis(at_ms);
        self.shared.close(now, self.session);
    }
}

/// Everything is free again.
fn locks_all(shared: &Arc<Shared>, keys: &[String; 2]) {
    assert_eq!(
        shared.sessions.general_lines()[0].value,
        "0",
        "the session has ended"
    );
    let mut last = Client::new(shared, 9, 0).at(1_001);
    let told = [0, 1].map(|name: usize| last.lock(&keys[name]));
    assert_eq!(told, [Told::Granted; 2], "N2: nothing is left of it");
    last.close();
}

/// One connection takes over while the other one asks for its session again.
fn is_taken_over(seen: &Arc<Seen>) {
    let (shared, keys) = server(2, |_| ());
    let [mut one, mut two] = [(1, 0), (2, 1)].map(|(n, worker)| Caller::new(&shared, n, worker));
    assert!(one.said(0, OPEN).ends_with(" N"));
    assert_eq!(one.said(0, &format!("ml {}", keys[0])), "HD");
    let is_closed = Arc::new(AtomicBool::new(false));
    let (all, closed) = (Arc::clone(seen), Arc::clone(&is_closed));
    let loser = thread::spawn(move || {
        all.note(match one.ask(500, OPEN) {
            Heard::Said(_) => "it is resumed before it loses",
            Heard::Waits => "it asks in vain",
            Heard::Closed => panic!("the session has not ended"),
        });
        assert_eq!(one.hear(500), Heard::Closed);
        closed.store(true, Ordering::SeqCst);
        one.close(500);
    });
    let names = keys.clone();
    let winner = thread::spawn(move || {
        let heard = match two.ask(500, OPEN) {
            Heard::Waits => two.hear(500),
            other => other,
        };
        assert!(matches!(heard, Heard::Said(said) if said.ends_with(" R")));
        assert!(is_closed.load(Ordering::SeqCst), "S5: closed before");
        for name in names {
            assert_eq!(two.said(500, &format!("ml {name}")), "HD");
        }
        two
    });
    loser.join().unwrap();
    let mut two = winner.join().unwrap();
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
            Heard::Said(said) => {
                assert_eq!(said, "HD");
                "it is heard in time"
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
            shared.sessions.end_due(now, &shared.shards, |_| ());
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

/// A request in the session is heard, and its waiting connection goes on being heard (N3).
#[test]
fn waiting_session_outlives_requests_in_it() {
    in_many_orders(&[], |_| {
        let (shared, keys) = server(2, |_| ());
        let mut holder = Client::new(&shared, 3, 0);
        assert_eq!(holder.lock(&keys[0]), Told::Granted);
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
        shared.sessions.end_due(due, &shared.shards, |_| ());
        let two = asker.join().unwrap();
        shared.sessions.end_due(due, &shared.shards, |_| ());
        assert_eq!(shared.sessions.count(), 1, "its client waits");
        one.close(5_000);
        let closed = [5_999, 6_001].map(|ms| {
            shared
                .sessions
                .end_due(Instant::from_millis(ms), &shared.shards, |_| ());
            shared.sessions.count()
        });
        assert_eq!(closed, [1, 0], "it was heard until its connection closed");
        two.close(6_001);
        holder.close();
    });
}

#[test]
fn taken_over_session_has_one_connection() {
    in_many_orders(
        &["it is resumed before it loses", "it asks in vain"],
        is_taken_over,
    );
}

#[test]
fn session_ends_once() {
    in_many_orders(
        &[
            "it is heard in time",
            "it finds that it has ended",
            "it is ended by a request",
            "it is ended by time",
        ],
        ends_once,
    );
}
