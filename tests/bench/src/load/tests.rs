//! Short and paced connections against an obedient server, which errs when it should.

use std::time::{Duration, Instant};

use latchd_load::scripted::{Flaw, Scripted};
use latchd_load::wire::{Dialect, Requests};
use latchd_load::workload::GetsSets;
use latchd_load::{Load, Meter, Stop};

use super::innocent::{Beside, Innocent};
use super::{churn, innocent};

fn requests(value_bytes: usize) -> Requests {
    Requests::new(Dialect::Classic, value_bytes, 0)
}

#[test]
fn short_connections_are_counted_one_by_one() {
    let server = Scripted::start(20, 9, Flaw::None, 0);
    let mut meter = Meter::new();
    let mut gets = GetsSets::gets(1, 100);
    let (requests, stop) = (requests(20), Stop::Requests(600));
    churn::run(server.address(), 7, &requests, &mut gets, stop, &mut meter)
        .expect("all answers are right");
    assert_eq!((meter.operations, server.served()), (600, 600));

    let server = Scripted::start(20, 1_000, Flaw::Misses, 30);
    churn::run(server.address(), 7, &requests, &mut gets, stop, &mut meter)
        .expect_err("an answer was wrong");
}

#[test]
fn an_innocent_client_is_served_beside_the_load() {
    let server = Scripted::start(innocent::VALUE_BYTES, 1_000, Flaw::None, 0);
    let mut innocent = Innocent::new(server.address()).expect("it listens");
    let before = server.served();
    let mut meter = Meter::new();
    let mut beside = Beside {
        innocent: &mut innocent,
        load: GetsSets::new(1, 100),
        until: Instant::now() + Duration::from_secs(60),
    };
    let requests = requests(innocent::VALUE_BYTES);
    let stop = Stop::Requests(20_000);
    Load::open(server.address(), 1, 16)
        .expect("it listens")
        .run(&requests, &mut beside, stop, &mut meter)
        .expect("all answers are right");
    innocent.settle().expect("answered");
    assert_eq!(meter.operations, 20_000);
    let both = server.served() - before;
    assert!(both >= meter.operations + 2, "both were served: {both}");
    assert!(innocent.sets.percentiles().max_us > 0.0);
    assert!(innocent.gets.percentiles().max_us > 0.0);
    assert_eq!(innocent.misses, 0);
}

/// A server that serves one connection as long as it asks would keep the load for ever.
#[test]
fn an_innocent_client_stops_in_time() {
    let server = Scripted::start(innocent::VALUE_BYTES, 1_000, Flaw::None, 0);
    let mut innocent = Innocent::new(server.address()).expect("it listens");
    let end = Instant::now() + Duration::from_millis(20);
    while Instant::now() < end + Duration::from_millis(20) {
        innocent.turn_until(end).expect("answered");
    }
    let heard = server.served();
    for _ in 0..1_000 {
        innocent.turn_until(end).expect("nothing is under way");
    }
    assert!(Instant::now() > end + innocent::INTERVAL);
    assert_eq!(server.served(), heard, "it asked after its end");
    innocent.turn().expect("sent");
    innocent.settle().expect("answered");
    assert_eq!(server.served(), heard + 1);
}
