//! A small simulation, and the proof that a simulation can fail: planted faults are found.

use latchd_tests::simulation::{Cluster, Fault, Plan, Report, run};

/// Seeds that are played, and events in each.
const SEEDS: std::ops::Range<u64> = 0..40;
const EVENTS: u64 = 20_000;

/// With any behaviour of the network, no answer breaks a promise; and enough has happened for that
/// to mean something.
#[test]
fn no_promise_is_broken() {
    let mut total = Report::default();
    for seed in SEEDS {
        let report = run(&Plan::new(seed, EVENTS)).unwrap_or_else(|failure| panic!("{failure}"));
        assert!(report.events >= EVENTS);
        total.add(&report);
    }
    for (what, count) in total.tally.counts() {
        assert!(count > 50, "{what}: {count}");
    }
    for (what, count) in total.sessions.counts() {
        assert!(count > 0, "{what}: never");
    }
    for (what, count) in total.buffers.counts() {
        assert!(count > 0, "{what}: never");
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    let play = |seed| -> Report { run(&Plan::new(seed, EVENTS)).expect("played above") };
    for seed in [1, 2, 5, 6] {
        assert_eq!(play(seed), play(seed));
    }
    assert_ne!(play(1).digest, play(2).digest);
}

/// Seeds of a cluster, and events in each.
const CLUSTERS: std::ops::Range<u64> = 0..10;
const CLUSTER_EVENTS: u64 = 100_000;

#[test]
fn no_promise_of_a_cluster_is_broken() {
    let mut total = Report::default();
    for seed in CLUSTERS {
        let plan = Plan::of_cluster(seed, CLUSTER_EVENTS);
        total.add(&run(&plan).unwrap_or_else(|failure| panic!("{failure}")));
    }
    let Cluster {
        served,
        terms,
        suspended,
        resumed,
        grants,
        reads,
        dropped,
        ..
    } = total.cluster;
    let counts = [served, terms, suspended, resumed, grants, reads, dropped];
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
    let play = |seed| run(&Plan::of_cluster(seed, CLUSTER_EVENTS)).expect("played above");
    assert_eq!(play(1), play(1));
    assert_ne!(play(1).digest, play(2).digest);
}

/// Each fault, and a promise that it breaks by the rules of the simulation. It may break others
/// first.
const FOUND_AS: [(Fault, &str); 7] = [
    (Fault::LosesClose, "the oracle's word"),
    (Fault::GrantsTwice, "N1"),
    (Fault::RepeatsCas, "N1"),
    (Fault::SwallowsAnswer, "N1"),
    (Fault::AnswersTwice, "N1"),
    (Fault::LosesStore, "the oracle's word"),
    (Fault::MishearsExptime, "N5"),
];

/// Every seed finds every planted fault.
#[test]
fn planted_faults_are_found() {
    assert_eq!(FOUND_AS.map(|(fault, _)| fault), Fault::ALL);
    for (fault, rule) in FOUND_AS {
        let mut rules = Vec::new();
        for seed in 0..8 {
            let plan = Plan {
                fault: Some(fault),
                ..Plan::new(seed, 8 * EVENTS)
            };
            let failure = run(&plan).expect_err(&format!("{fault:?} with seed {seed} goes unseen"));
            rules.push(failure.rule);
        }
        assert!(rules.contains(&rule), "{fault:?} is found as {rules:?}");
    }
}

/// A failure names its place, and the command to replay it.
#[test]
fn a_failure_can_be_replayed() {
    let plan = Plan {
        fault: Some(Fault::GrantsTwice),
        ..Plan::new(1, EVENTS)
    };
    let failure = run(&plan).expect_err("it is planted");
    let again = run(&Plan {
        events: failure.event,
        ..plan
    })
    .expect_err("it is planted still");
    assert_eq!((failure.event, &failure.what), (again.event, &again.what));
    let told = failure.to_string();
    assert!(failure.last.len() <= 30 && !failure.last.is_empty());
    assert!(
        told.contains(&format!("--seed 1 --events {}", failure.event)),
        "{told}"
    );
}
