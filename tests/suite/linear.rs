//! The judge of histories is judged: possible histories have an order, impossible ones have none.

use latchd_harness::wording::Protocol;
use latchd_tests::linear::history::{Answer, Hit, Marks, Mode, NEVER, Operation, Record, Store};
use latchd_tests::linear::judge_numbers;
use latchd_tests::linear::one_step::{self, Look};
use latchd_tests::linear::packed;
use latchd_tests::linear::search::{Verdict, judge, judge_within};

/// A history as it is written: the client, the span, the request, and the answer.
#[derive(Default)]
struct History(Vec<Record>);

impl History {
    fn with(
        mut self,
        conn: u64,
        (invoked, answered): (u64, u64),
        operation: Operation,
        answer: impl Into<Option<Answer>>,
    ) -> Self {
        let place = self.0.len() as u64;
        self.0.push(Record {
            conn,
            lane: 0,
            place,
            key: Some(0),
            protocol: Protocol::Classic,
            operation,
            invoked,
            answered,
            answer: answer.into(),
        });
        self
    }

    /// The last operation was sent on this connection of its session.
    fn on(mut self, lane: u64) -> Self {
        if let Some(record) = self.0.last_mut() {
            record.lane = lane;
        }
        self
    }

    fn is_linearizable(&self) -> bool {
        match judge(&self.0) {
            Verdict::Linearizable { .. } => true,
            Verdict::Violation(_) => false,
            Verdict::Undecided => panic!("it is short"),
        }
    }
}

fn set(value: &str) -> Operation {
    Operation::Store(Store::new(value.as_bytes()))
}

fn guarded(value: &str, cas: u64) -> Operation {
    Operation::Store(Store {
        guard: Some(cas),
        ..Store::new(value.as_bytes())
    })
}

fn incr() -> Operation {
    Operation::Count { up: true, delta: 1 }
}

const STORED: Answer = Answer::Stored { cas: None };

fn number(number: u64) -> Answer {
    Answer::Counted { number, cas: None }
}

fn hit(value: &str) -> Answer {
    hit_of(value, None)
}

fn hit_of(value: &str, cas: Option<u64>) -> Answer {
    Answer::Hit(Hit {
        value: value.as_bytes().into(),
        client_flags: 0,
        cas,
        marks: None,
    })
}

#[test]
fn overlapping_operations_may_have_happened_in_either_order() {
    for read in [hit("1"), hit("2")] {
        let history = History::default()
            .with(1, (0, 100), set("1"), STORED)
            .with(2, (10, 90), set("2"), STORED)
            .with(3, (110, 120), Operation::Get, read);
        assert!(history.is_linearizable());
    }
}

#[test]
fn a_stale_read_has_no_order() {
    let history = History::default()
        .with(1, (0, 10), set("1"), STORED)
        .with(1, (20, 30), set("2"), STORED)
        .with(2, (40, 50), Operation::Get, hit("1"));
    assert!(!history.is_linearizable());
}

/// A request of a connection that has lost its session at 20 may have happened by then.
#[test]
fn lost_request_does_not_happen_after_takeover() {
    let session = (1 << 63) + 7;
    let lost = || History::default().with(session, (0, 20), set("1"), None);
    let read = |history: History, span, answer| history.with(2, span, Operation::Get, answer);
    for (first, second, has_order) in [
        (hit("1"), hit("1"), true),
        (Answer::Missing, Answer::Missing, true),
        (Answer::Missing, hit("1"), false),
    ] {
        let history = lost().with(session, (30, 40), Operation::Get, first).on(1);
        let history = read(history, (50, 60), second);
        assert_eq!(history.is_linearizable(), has_order);
    }
    // A read that began before may have come first.
    let history = read(read(lost(), (10, 60), Answer::Missing), (15, 60), hit("1"));
    assert!(history.is_linearizable());
}

/// Two connections of a session act at the same time, for one owner.
#[test]
fn session_holds_on_each_of_its_connections() {
    let (session, granted) = ((1 << 63) + 7, Answer::Granted { fence: 3 });
    let history = |holder| {
        let history = History::default()
            .with(session, (0, 10), Operation::Acquire, granted.clone())
            .with(session, (0, 10), Operation::Acquire, granted.clone())
            .on(1);
        history.with(holder, (20, 30), set("1"), STORED).on(1)
    };
    assert!(history(session).is_linearizable());
    assert!(!history(session + 1).is_linearizable());
}

#[test]
fn disagreeing_reads_have_no_order() {
    let history = History::default()
        .with(1, (0, 100), set("1"), STORED)
        .with(2, (0, 100), set("2"), STORED)
        .with(3, (110, 120), Operation::Get, hit("1"))
        .with(4, (130, 140), Operation::Get, hit("2"));
    assert!(!history.is_linearizable());
}

#[test]
fn a_value_from_nowhere_has_no_order() {
    let history = History::default().with(1, (0, 10), set("1"), STORED).with(
        2,
        (5, 50),
        Operation::Get,
        hit("3"),
    );
    assert!(!history.is_linearizable());
}

#[test]
fn a_lost_update_has_no_order() {
    let begun = || {
        History::default()
            .with(1, (0, 10), set("5"), STORED)
            .with(1, (20, 40), incr(), number(6))
    };
    assert!(
        begun()
            .with(2, (20, 40), incr(), number(7))
            .is_linearizable()
    );
    assert!(
        !begun()
            .with(2, (20, 40), incr(), number(6))
            .is_linearizable()
    );
}

#[test]
fn one_version_guards_only_one_store() {
    let begun = || {
        History::default()
            .with(1, (0, 10), set("1"), STORED)
            .with(1, (20, 30), Operation::Get, hit_of("1", Some(9)))
            .with(1, (40, 60), guarded("2", 9), STORED)
    };
    let lost = begun().with(2, (40, 60), guarded("3", 9), Answer::Exists);
    assert!(lost.is_linearizable());
    let both = begun().with(2, (40, 60), guarded("3", 9), STORED);
    assert!(!both.is_linearizable());
}

#[test]
fn a_version_that_goes_down_has_no_order() {
    let history = History::default()
        .with(1, (0, 10), set("1"), Answer::Stored { cas: Some(9) })
        .with(1, (20, 30), set("2"), Answer::Stored { cas: Some(8) });
    assert!(!history.is_linearizable());
}

#[test]
fn two_holders_of_one_lock_have_no_order() {
    let begun = || {
        History::default().with(1, (0, 10), set("1"), STORED).with(
            1,
            (20, 30),
            Operation::Lock,
            Answer::Done,
        )
    };
    let refused = begun().with(2, (20, 40), Operation::Lock, Answer::Locked);
    assert!(refused.is_linearizable());
    let granted = begun().with(2, (20, 40), Operation::Lock, Answer::Done);
    assert!(!granted.is_linearizable());
}

#[test]
fn changing_a_foreign_locked_item_has_no_order() {
    let begun =
        || History::default().with(1, (0, 10), Operation::Acquire, Answer::Granted { fence: 1 });
    assert!(
        begun()
            .with(2, (20, 30), set("1"), Answer::Locked)
            .is_linearizable()
    );
    assert!(
        !begun()
            .with(2, (20, 30), set("1"), STORED)
            .is_linearizable()
    );
}

#[test]
fn a_fence_that_goes_down_has_no_order() {
    let history = History::default()
        .with(1, (0, 10), Operation::Acquire, Answer::Granted { fence: 7 })
        .with(
            1,
            (20, 30),
            Operation::Release { fence: Some(7) },
            Answer::Done,
        )
        .with(
            2,
            (40, 50),
            Operation::Acquire,
            Answer::Granted { fence: 6 },
        );
    assert!(!history.is_linearizable());
}

#[test]
fn a_locked_reply_names_the_holder() {
    let begun =
        || History::default().with(1, (0, 10), Operation::Acquire, Answer::Granted { fence: 1 });
    let ask = |by| begun().with(2, (20, 30), Operation::Acquire, Answer::Held { by });
    assert!(ask(1).is_linearizable());
    assert!(!ask(3).is_linearizable());
}

/// The connection of a holder ends at 20; the server has noticed at 60.
fn dead_holder() -> History {
    History::default()
        .with(1, (0, 10), Operation::Acquire, Answer::Granted { fence: 1 })
        .with(1, (20, 60), Operation::Death, None)
}

#[test]
fn a_lock_ends_with_its_client() {
    let granted = Answer::Granted { fence: 2 };
    let at_once = dead_holder().with(2, (30, 40), Operation::Acquire, granted.clone());
    assert!(at_once.is_linearizable());
    let unnoticed = dead_holder().with(2, (30, 40), Operation::Acquire, Answer::Held { by: 1 });
    assert!(unnoticed.is_linearizable());
    let outlived = dead_holder().with(2, (70, 80), Operation::Acquire, Answer::Held { by: 1 });
    assert!(!outlived.is_linearizable());
    let early = dead_holder().with(2, (12, 18), Operation::Acquire, granted);
    assert!(!early.is_linearizable());
}

#[test]
fn an_unanswered_request_may_have_happened() {
    let begun = || {
        History::default()
            .with(1, (0, 10), set("1"), STORED)
            .with(1, (20, NEVER), set("2"), None)
            .with(1, (30, 90), Operation::Death, None)
    };
    for seen in ["1", "2"] {
        assert!(
            begun()
                .with(2, (40, 50), Operation::Get, hit(seen))
                .is_linearizable()
        );
    }
    let undone = begun().with(2, (40, 50), Operation::Get, hit("2")).with(
        2,
        (60, 70),
        Operation::Get,
        hit("1"),
    );
    assert!(!undone.is_linearizable());
    let late = begun().with(2, (100, 110), Operation::Get, hit("1")).with(
        2,
        (120, 130),
        Operation::Get,
        hit("2"),
    );
    assert!(
        !late.is_linearizable(),
        "nothing of a connection happens after its end"
    );
}

#[test]
fn requests_of_one_connection_happen_in_their_order() {
    let swapped = History::default().with(1, (0, 100), set("1"), STORED).with(
        1,
        (0, 100),
        Operation::Get,
        Answer::Missing,
    );
    assert!(!swapped.is_linearizable());
}

#[test]
fn a_flush_takes_unlocked_items() {
    let begun = || {
        History::default().with(1, (0, 10), set("1"), STORED).with(
            2,
            (20, 30),
            Operation::Flush,
            Answer::Done,
        )
    };
    assert!(
        begun()
            .with(1, (40, 50), Operation::Get, Answer::Missing)
            .is_linearizable()
    );
    assert!(
        !begun()
            .with(1, (40, 50), Operation::Get, hit("1"))
            .is_linearizable()
    );
}

#[test]
fn an_ineffective_request_may_take_effect_later() {
    let history = History::default()
        .with(1, (0, 100), Operation::Flush, Answer::Done)
        .with(2, (10, 20), set("1"), STORED)
        .with(2, (110, 120), Operation::Get, Answer::Missing);
    assert!(history.is_linearizable());
}

#[test]
fn a_search_past_its_limit_is_undecided() {
    let history = History::default()
        .with(1, (0, 100), set("1"), STORED)
        .with(2, (0, 100), set("2"), STORED)
        .with(3, (0, 100), set("3"), STORED);
    assert!(matches!(judge_within(&history.0, 1), Verdict::Undecided));
}

#[test]
fn a_violation_lists_only_relevant_records() {
    let mut history = History::default();
    for at in 0..50 {
        let value = at.to_string();
        let moment = at * 100;
        history = history
            .with(1, (moment, moment + 10), set(&value), STORED)
            .with(2, (moment + 20, moment + 30), Operation::Get, hit(&value))
            .with(3, (moment + 20, moment + 30), incr(), number(at + 1));
    }
    history = history.with(2, (5010, 5020), Operation::Get, hit("7"));
    let Verdict::Violation(violation) = judge(&history.0) else {
        panic!("the 7 has been gone for long");
    };
    assert_eq!(violation.records.len(), 1, "{violation}");
    assert_eq!(violation.before.len(), 1, "{violation}");
    assert!(
        violation.to_string().contains("before: \"50\" flags 0"),
        "{violation}"
    );
}

fn look(conn: u64, (invoked, answered): (u64, u64), is_done: bool) -> Look {
    let history =
        History::default().with(conn, (invoked, answered), Operation::Get, Answer::Missing);
    let record = history.0.into_iter().next().expect("one was put in");
    Look { record, is_done }
}

#[test]
fn a_step_is_seen_by_all_or_by_none() {
    let overlapping = [look(1, (0, 30), true), look(2, (20, 40), false)];
    assert!(one_step::judge(&overlapping).is_ok());
    let torn = [look(1, (0, 30), true), look(2, (31, 40), false)];
    assert!(one_step::judge(&torn).is_err());
    let pipelined = [look(1, (0, 30), true), look(1, (0, 30), false)];
    assert!(one_step::judge(&pipelined).is_err());
}

#[test]
fn versions_and_fences_are_unique() {
    let versions = |other: &str| {
        History::default()
            .with(1, (0, 10), Operation::Get, hit_of("1", Some(4)))
            .with(2, (20, 30), Operation::Get, hit_of(other, Some(4)))
    };
    assert!(judge_numbers(&versions("1").0).is_ok());
    assert!(judge_numbers(&versions("2").0).is_err());
    let fences = History::default()
        .with(1, (0, 10), Operation::Acquire, Answer::Granted { fence: 4 })
        .with(
            2,
            (20, 30),
            Operation::Acquire,
            Answer::Granted { fence: 4 },
        );
    assert!(judge_numbers(&fences.0).is_err());
}

/// One record of each kind of operation, with each kind of answer among them.
fn all_kinds() -> Vec<Record> {
    let store = Store {
        mode: Mode::Prepend,
        client_flags: u32::MAX,
        guard: Some(u64::MAX),
        else_stale: true,
        fence: Some(0),
        ..Store::new(b"\x00\xff")
    };
    let marked = |marks| {
        Answer::Hit(Hit {
            value: b"1".as_slice().into(),
            client_flags: 128,
            cas: Some(127),
            marks,
        })
    };
    let [stale, won, sent] = [
        (true, false, false),
        (false, true, false),
        (false, false, true),
    ]
    .map(|(stale, won, sent)| marked(Some(Marks { stale, won, sent })));
    let plain = [Mode::Set, Mode::Add, Mode::Replace, Mode::Append].map(|mode| {
        Operation::Store(Store {
            mode,
            ..Store::new(b"")
        })
    });
    let operations = plain.into_iter().chain([
        Operation::Get,
        Operation::Vivify,
        Operation::Store(store.clone()),
        Operation::ReplaceAndUnlock(store),
        Operation::Delete { guard: Some(1) },
        Operation::MarkStale { guard: None },
        Operation::Count {
            up: false,
            delta: 9,
        },
        incr(),
        Operation::Lock,
        Operation::LockAndGet,
        Operation::Unlock,
        Operation::Acquire,
        Operation::Release { fence: Some(3) },
        Operation::UnlockAll,
        Operation::Flush,
        Operation::Death,
    ]);
    let answers = [
        None,
        Some(stale),
        Some(won),
        Some(sent),
        Some(marked(None)),
        Some(Answer::Missing),
        Some(Answer::Stored { cas: Some(1 << 62) }),
        Some(Answer::NotStored),
        Some(Answer::Exists),
        Some(Answer::Deleted),
        Some(number(7)),
        Some(Answer::Done),
        Some(Answer::Granted { fence: 1 << 40 }),
        Some(Answer::Locked),
        Some(Answer::Held { by: 12 }),
        Some(Answer::NotLocked),
        Some(Answer::NonNumeric),
    ];
    let protocols = [Protocol::Classic, Protocol::Meta, Protocol::Binary];
    let mut records = Vec::new();
    for (place, operation) in operations.enumerate() {
        for (at, answer) in answers.iter().enumerate() {
            records.push(Record {
                conn: (1 << 63) + at as u64,
                lane: at as u64 % 3,
                place: place as u64,
                key: at.checked_sub(1),
                protocol: protocols[at % 3],
                operation: operation.clone(),
                invoked: 1_000_000_007 * at as u64,
                answered: if at == 0 {
                    NEVER
                } else {
                    1_000_000_007 * at as u64 + 300
                },
                answer: answer.clone(),
            });
        }
    }
    records
}

/// A process gets the same records that another one has packed.
#[test]
fn a_record_that_was_packed_is_the_same() {
    for record in all_kinds() {
        let look = Look {
            record,
            is_done: true,
        };
        let mut bytes = Vec::new();
        packed::encode_look(&look, &mut bytes);
        for cut in 0..bytes.len() {
            let is_nonsense = packed::decode_look(&mut &bytes[..cut]).is_err();
            assert!(is_nonsense, "{} without its end", look.record);
        }
        bytes.push(7);
        let mut rest = bytes.as_slice();
        let unpacked = packed::decode_look(&mut rest).unwrap();
        assert_eq!((unpacked.record, unpacked.is_done), (look.record, true));
        assert_eq!(rest, [7], "nothing of what follows is taken");
    }
}
