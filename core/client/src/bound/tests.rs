//! A connection-bound lock against a server of a few lines, every message by hand. The server here knows
//! `lock`; the server in `waiting.rs` knows `ml`.

extern crate std;

use alloc::string::String;
use alloc::vec::Vec;

mod believers;
mod hold;
mod in_session;
mod leased;
mod rare;
mod waiting;

use super::*;
use crate::{Retry, Session};
use latchd_protocol::Owner;
use latchd_protocol::wire::meta::reply::MetaResponse;
use latchd_protocol::wire::meta::session::SessionResponse;

const fn at(ms: u64) -> Instant {
    Instant::from_millis(ms)
}

/// A lock on a server that is known to have no `ml`.
fn bound(terms: BoundTerms) -> Bound {
    let mut bound = Bound::new(Key::new(b"k").unwrap(), terms);
    bound.connected(at(0));
    bound.knows(LockSupport::Classic);
    bound.obtain(at(0));
    bound
}

/// A lock on an unknown server.
fn asked(terms: BoundTerms) -> Bound {
    let mut bound = Bound::new(Key::new(b"k").unwrap(), terms);
    bound.connected(at(0));
    bound.obtain(at(0));
    bound
}

/// An answer to `ml`.
fn answer(line: &'static [u8]) -> AnyResponse<'static> {
    let read = MetaResponse::decode(line).unwrap();
    AnyResponse::Meta(read.unwrap().0)
}

/// Answers its requests until the answers are used up or it waits. Returns its actions.
fn play(bound: &mut Bound, ms: u64, answers: &[&str]) -> Vec<String> {
    let mut answers = answers.iter();
    let mut done = Vec::new();
    loop {
        let mut session = Session::new();
        match bound.poll(at(ms)) {
            Action::Send(request) => {
                let mut out = Vec::new();
                session.send(&request, &mut out).unwrap();
                done.push(
                    String::from_utf8(out)
                        .unwrap()
                        .replace("\r\n", " ")
                        .trim()
                        .into(),
                );
                let Some(answer) = answers.next() else {
                    return done;
                };
                let mut input = answer.as_bytes();
                while let Some(received) = session.receive(input).unwrap() {
                    bound.reply(at(ms), &received.answer);
                    input = &input[received.consumed..];
                }
            }
            Action::Tell(news) => done.push(std::format!("{news:?}")),
            Action::Wait { .. } => return done,
            Action::Connect { .. } => {
                done.push("connect".into());
                return done;
            }
            Action::Disconnect => {
                done.push("disconnect".into());
                return done;
            }
        }
    }
}

#[test]
fn lock_and_unlock() {
    let mut bound = bound(BoundTerms::default());
    assert_eq!(play(&mut bound, 0, &["OK\r\n"]), ["lock k", "Obtained"]);
    assert!(bound.is_held() && !bound.is_idle());
    bound.release();
    assert_eq!(play(&mut bound, 1, &["OK\r\n"]), ["unlock k", "Released"]);
    assert!(bound.is_idle());
    bound.release();
    assert!(!bound.is_idle(), "there is something to tell");
    assert_eq!(play(&mut bound, 1, &[]), ["NotHeld"]);
}

#[test]
fn held_lock_is_retried_missing_item_made() {
    let terms = BoundTerms {
        retry: Retry::linear(Duration::from_millis(100)),
        missing: MissingItem::Create(Exptime::In { seconds: 60 }),
        mark: Mark::Number,
        ..BoundTerms::default()
    };
    let mut bound = bound(terms);
    assert_eq!(play(&mut bound, 0, &["LOCKED\r\n"]), ["lock k"]);
    assert_eq!(
        play(
            &mut bound,
            100,
            &["NOT_FOUND\r\n", "STORED\r\n", "OK\r\n", "HD c9\r\n"]
        ),
        [
            "lock k",
            "add k 1819239275 60 0",
            "lock k",
            "ms k 0 MA c",
            "Obtained"
        ]
    );
    assert_eq!(bound.number(), Some(9));
    // The item existed for the lock alone, and is removed with it; the owner may delete it.
    bound.release();
    assert_eq!(
        play(&mut bound, 200, &["DELETED\r\n"]),
        ["delete k", "Released"]
    );
}

#[test]
fn an_item_that_was_made_and_written_stays() {
    let mut bound = bound(BoundTerms {
        missing: MissingItem::Create(Exptime::In { seconds: 60 }),
        ..BoundTerms::default()
    });
    play(&mut bound, 0, &["NOT_FOUND\r\n", "STORED\r\n", "OK\r\n"]);
    bound.replace_and_unlock(b"new", 0, Exptime::Never);
    assert_eq!(
        play(&mut bound, 1, &["STORED\r\n", "OK\r\n"]),
        ["set k 0 0 3 new", "unlock k", "Released"]
    );
}

#[test]
fn without_an_item_or_a_strategy_it_is_not_obtained() {
    let mut one = bound(BoundTerms::default());
    assert_eq!(
        play(&mut one, 0, &["NOT_FOUND\r\n"]),
        ["lock k", "NotObtained(NoItem)"]
    );
    let mut other = bound(BoundTerms::default());
    assert_eq!(
        play(&mut other, 0, &["LOCKED\r\n"]),
        ["lock k", "NotObtained(Held)"]
    );
    // memcached's answer to `lock`.
    let mut memcached = bound(BoundTerms::default());
    assert_eq!(
        play(&mut memcached, 0, &["ERROR\r\n"]),
        ["lock k", "Failed(Refused(\"ERROR\"))"]
    );
}

#[test]
fn vanishing_item_ends_the_obtain() {
    let mut bound = bound(BoundTerms {
        missing: MissingItem::Create(Exptime::Past),
        ..BoundTerms::default()
    });
    let answers = ["NOT_FOUND\r\n", "STORED\r\n"].repeat(20);
    let done = play(&mut bound, 0, &answers);
    assert_eq!(done.last().unwrap(), "NotObtained(NoItem)");
    assert_eq!(done.len(), 2 * 8 + 2);
}

#[test]
fn the_holder_reads_and_replaces_on_the_same_connection() {
    let mut bound = bound(BoundTerms::default());
    play(&mut bound, 0, &["OK\r\n"]);
    bound.read();
    let read = play(&mut bound, 1, &["VALUE k 5 2 7\r\nhi\r\nEND\r\n"]);
    assert_eq!(read.first().unwrap(), "gets k");
    assert!(
        read.last()
            .unwrap()
            .starts_with("Read(Item { value: [104, 105]")
    );
    bound.replace_and_unlock(b"new", 5, Exptime::Never);
    assert_eq!(
        play(&mut bound, 2, &["STORED\r\n", "OK\r\n"]),
        ["set k 5 0 3 new", "unlock k", "Released"]
    );
}

#[test]
fn a_write_that_fails_keeps_the_lock() {
    let mut bound = bound(BoundTerms::default());
    play(&mut bound, 0, &["OK\r\n"]);
    bound.replace_and_unlock(b"new", 0, Exptime::Never);
    let done = play(&mut bound, 0, &["SERVER_ERROR out of memory\r\n"]);
    assert!(done.last().unwrap().starts_with("Undone(Refused"));
    assert!(bound.is_held());
}

#[test]
fn a_check_is_a_sign_of_life() {
    let mut bound = bound(BoundTerms::default());
    play(&mut bound, 0, &["OK\r\n"]);
    bound.check();
    assert_eq!(play(&mut bound, 1, &["MN\r\n"]), ["mn", "Checked"]);
    // An unexpected answer to it is no sign of life.
    bound.check();
    let done = play(&mut bound, 1, &["SERVER_ERROR out of memory\r\n"]);
    assert!(done.last().unwrap().starts_with("Undone("), "{done:?}");
    bound.check();
    play(&mut bound, 2, &[]);
    bound.disconnected(at(3));
    assert_eq!(play(&mut bound, 3, &[]), ["Lost(Disconnected)", "NotHeld"]);
}

#[test]
fn a_silent_connection_is_tried_and_given_up() {
    let mut bound = bound(BoundTerms::default());
    play(&mut bound, 0, &["OK\r\n"]);
    assert_eq!(play(&mut bound, 4_999, &[]), [""; 0]);
    assert_eq!(play(&mut bound, 5_000, &["MN\r\n"]), ["mn"]);
    assert_eq!(play(&mut bound, 9_999, &[]), [""; 0]);
    assert_eq!(play(&mut bound, 10_000, &[]), ["mn"]);
    assert_eq!(play(&mut bound, 15_000, &[]), ["disconnect"]);
    bound.disconnected(at(15_000));
    assert_eq!(play(&mut bound, 15_000, &[]), ["Lost(Disconnected)"]);
}

#[test]
fn the_end_of_the_connection_is_the_end_of_the_lock() {
    let mut obtaining = bound(BoundTerms::default());
    play(&mut obtaining, 0, &[]);
    obtaining.disconnected(at(1));
    assert_eq!(play(&mut obtaining, 1, &[]), ["Failed(Disconnected)"]);

    let mut reading = bound(BoundTerms::default());
    play(&mut reading, 0, &["OK\r\n"]);
    reading.read();
    play(&mut reading, 0, &[]);
    reading.disconnected(at(1));
    assert_eq!(
        play(&mut reading, 1, &[]),
        ["Lost(Disconnected)", "NotHeld"]
    );

    let mut releasing = bound(BoundTerms::default());
    play(&mut releasing, 0, &["OK\r\n"]);
    releasing.release();
    play(&mut releasing, 0, &[]);
    releasing.disconnected(at(1));
    // The server may have noticed the break at any time since: another client may have held the lock.
    assert_eq!(
        play(&mut releasing, 1, &[]),
        ["Lost(Disconnected)", "NotHeld"]
    );

    // The write was stored under the lock and was the lock's only purpose.
    let mut writing = bound(BoundTerms::default());
    play(&mut writing, 0, &["OK\r\n"]);
    writing.replace_and_unlock(b"new", 0, Exptime::Never);
    play(&mut writing, 0, &["STORED\r\n"]);
    writing.disconnected(at(1));
    assert_eq!(play(&mut writing, 1, &[]), ["Released"]);
}

fn noted() -> BoundTerms {
    let exptime = Exptime::In { seconds: 5 };
    BoundTerms {
        missing: MissingItem::Create(exptime),
        mark: Mark::Note(b"build 7"[..].into(), exptime),
        ..BoundTerms::default()
    }
}

#[test]
fn note_needs_an_item_of_the_lock() {
    let mut ours = bound(noted());
    assert_eq!(
        play(
            &mut ours,
            0,
            &["NOT_FOUND\r\n", "STORED\r\n", "OK\r\n", "HD c9\r\n"]
        )[1..],
        [
            "add k 1819239275 5 0",
            "lock k",
            "ms k 7 T5 F1819239275 c build 7",
            "Obtained"
        ]
    );
    let mut left_behind = bound(noted());
    assert_eq!(
        play(
            &mut left_behind,
            0,
            &["OK\r\n", "HD f1819239275\r\n", "HD c9\r\n"]
        ),
        [
            "lock k",
            "mg k f",
            "ms k 7 T5 F1819239275 c build 7",
            "Obtained"
        ]
    );
    left_behind.release();
    assert_eq!(
        play(&mut left_behind, 1, &["DELETED\r\n"]),
        ["delete k", "Released"]
    );
    let mut somebodys = bound(noted());
    assert_eq!(
        play(&mut somebodys, 0, &["OK\r\n", "HD f0\r\n", "OK\r\n"]),
        ["lock k", "mg k f", "unlock k", "NotObtained(HasValue)"]
    );
}

#[test]
fn waiter_survives_a_server_restart() {
    let terms = BoundTerms {
        retry: Retry::linear(Duration::from_millis(100)),
        deadline: Some(Duration::from_millis(500)),
        ..BoundTerms::default()
    };
    let mut bound = bound(terms);
    assert_eq!(play(&mut bound, 0, &["LOCKED\r\n"]), ["lock k"]);
    bound.disconnected(at(10));
    assert_eq!(play(&mut bound, 10, &[]), [""; 0]);
    assert!(matches!(bound.poll(at(110)), Action::Connect { .. }));
    bound.disconnected(at(110));
    assert_eq!(play(&mut bound, 209, &[]), [""; 0]);
    assert!(matches!(bound.poll(at(210)), Action::Connect { .. }));
    let mut gone = bound.clone();
    bound.connected(at(220));
    // Another server may have taken the place of the one before.
    assert_eq!(
        play(&mut bound, 220, &["ERROR\r\n", "OK\r\n"]),
        ["ml k F H f x", "lock k", "Obtained"]
    );
    assert_eq!(play(&mut gone, 600, &[]), ["Failed(Disconnected)"]);
}

#[test]
fn deadline_always_ends_an_obtain() {
    let terms = || BoundTerms {
        retry: Retry::linear(Duration::from_millis(100)),
        deadline: Some(Duration::from_millis(250)),
        ..BoundTerms::default()
    };
    let mut held = bound(terms());
    for ms in [0, 100, 200] {
        assert_eq!(play(&mut held, ms, &["LOCKED\r\n"]), ["lock k"]);
    }
    assert_eq!(
        play(&mut held, 250, &["LOCKED\r\n"]),
        ["lock k", "NotObtained(Deadline)"]
    );

    let mut silent = bound(terms());
    play(&mut silent, 0, &[]);
    assert_eq!(play(&mut silent, 349, &[]), [""; 0]);
    // The server may still grant the lock to this connection.
    assert_eq!(
        play(&mut silent, 350, &[]),
        ["Failed(NoAnswer)", "disconnect"]
    );

    // The last try was too late for its answer, but the answer before it was clear.
    let mut late = bound(terms());
    play(&mut late, 0, &["LOCKED\r\n"]);
    play(&mut late, 240, &["LOCKED\r\n"]);
    play(&mut late, 250, &[]);
    assert_eq!(
        play(&mut late, 350, &[]),
        ["NotObtained(Deadline)", "disconnect"]
    );

    let mut unreachable = Bound::new(Key::new(b"k").unwrap(), terms());
    unreachable.obtain(at(0));
    let until = Some(at(350));
    assert_eq!(unreachable.poll(at(0)), Action::Connect { until });
    assert_eq!(play(&mut unreachable, 350, &[]), ["Failed(NoAnswer)"]);
}
