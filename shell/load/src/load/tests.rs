//! The load against an obedient server: it cuts its answers, and errs when it should.

use super::*;
use crate::scripted::{Flaw, Scripted};
use crate::wire::Dialect;
use crate::workload::{Fill, GetsSets, Locks};

fn requests(value_bytes: usize) -> Requests {
    Requests::new(Dialect::Classic, value_bytes, 0)
}

#[test]
fn every_request_of_a_run_is_answered() {
    for piece_bytes in [3, 1_000] {
        let server = Scripted::start(20, piece_bytes, Flaw::None, 0);
        let mut load = Load::open(server.address(), 5, 7).expect("it listens");
        let mut meter = Meter::new();
        let mut gets_sets = GetsSets::new(1, 100);
        for _ in 0..2 {
            let stop = Stop::Requests(501);
            load.run(&requests(20), &mut gets_sets, stop, &mut meter)
                .expect("all answers are right");
        }
        assert_eq!((meter.operations, server.served()), (1_002, 1_002));
        assert!(meter.latencies.percentiles().max_us > 0.0);
    }
}

#[test]
fn a_workload_that_ends_ends_the_run() {
    let server = Scripted::start(20, 1_000, Flaw::None, 0);
    let mut load = Load::open(server.address(), 3, 4).expect("it listens");
    let mut meter = Meter::new();
    let mut fill = Fill::new(0..100);
    load.run(&requests(20), &mut fill, Stop::AtTheEnd, &mut meter)
        .expect("all are stored");
    assert_eq!((meter.operations, server.served()), (100, 100));
    let mut nothing = Fill::new(0..0);
    load.run(&requests(20), &mut nothing, Stop::AtTheEnd, &mut meter)
        .expect("there is nothing to wait for");
    assert_eq!(meter.operations, 100);
}

#[test]
fn a_run_ends_with_no_request_pending() {
    let server = Scripted::start(20, 1_000, Flaw::None, 0);
    let mut load = Load::open(server.address(), 2, 2).expect("it listens");
    let mut meter = Meter::new();
    let mut locks = Locks::new(1, 0..100, 2);
    let stop = Stop::After(Duration::from_millis(50));
    load.run(&requests(20), &mut locks, stop, &mut meter)
        .expect("all answers are right");
    assert!(meter.operations > 0);
    assert_eq!(meter.operations, server.served());
}

/// Values that no buffer of a socket holds: output that cannot be sent at once is sent later.
#[test]
fn large_requests_are_sent_bit_by_bit() {
    let value_bytes = 3 << 20;
    let server = Scripted::start(value_bytes, 1_000, Flaw::None, 0);
    let mut load = Load::open(server.address(), 2, 3).expect("it listens");
    let mut meter = Meter::new();
    let mut fill = Fill::new(0..12);
    let requests = requests(value_bytes);
    load.run(&requests, &mut fill, Stop::AtTheEnd, &mut meter)
        .expect("all are stored");
    assert_eq!((meter.operations, server.served()), (12, 12));
}

#[test]
fn a_wrong_answer_ends_the_run() {
    for (flaw, words) in [
        (Flaw::Misses, "was answered END"),
        (Flaw::AnothersValue, "was answered VALUE"),
        (Flaw::AnswersTwice, "bytes without a request"),
        (Flaw::Closes, "closed the connection"),
    ] {
        let server = Scripted::start(20, 1_000, flaw, 50);
        let mut load = Load::open(server.address(), 1, 1).expect("it listens");
        let mut gets = GetsSets::gets(1, 100);
        let stop = Stop::Requests(100);
        let outcome = load.run(&requests(20), &mut gets, stop, &mut Meter::new());
        let error = format!("{:#}", outcome.expect_err("an answer was wrong"));
        assert!(error.contains(words), "{flaw:?}: {error}");
    }
}
