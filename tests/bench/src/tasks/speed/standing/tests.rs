//! The server to beat, and by how much.

use super::*;
use crate::tasks::speed::rows::{LOCKS, SPEED};

/// A server with this many operations a second in three rounds.
fn standing(label: &str, whose: Whose, mix: Mix, operations_per_second: [f64; 3]) -> Standing {
    let rounds = operations_per_second.map(|operations_per_second| Sample {
        operations_per_second,
        cpu_us_per_operation: 1e6 / operations_per_second,
        load_cpu_us_per_operation: 1.0,
        server_busy: 1.0,
        load_busy: 0.5,
        server_waited: 0.0,
        load_waited: 0.0,
        others_busy: 0.0,
        p50_us: 10.0,
        p99_us: 20.0,
        p99_9_us: 30.0,
    });
    Standing::new(label.into(), whose, mix, rounds.into(), None, 1 << 20)
}

fn standings(row: &str, servers: Vec<Standing>) -> Standings {
    let row = SPEED.iter().chain(LOCKS).find(|r| r.name == row);
    let cores = Cores::new(1).expect("this thread runs somewhere");
    Standings::new(row.expect("there is such a row"), &cores, servers)
}

#[test]
fn the_aim_is_the_faster_memcached() {
    let mix = Mix::GetsSets;
    let row = standings(
        "b",
        vec![
            standing("latchd", Whose::Ours, mix, [300.0, 330.0, 360.0]),
            standing("old", Whose::Memcached, mix, [100.0, 100.0, 100.0]),
            standing("new", Whose::Memcached, mix, [200.0, 200.0, 200.0]),
            standing("other", Whose::Other, mix, [900.0, 900.0, 900.0]),
        ],
    );
    let ratio = |index: usize| row.servers[index].against.map(|a| a.operations.median);
    assert_eq!(ratio(0), Some(1.65));
    assert_eq!(ratio(1), Some(0.5));
    assert_eq!(ratio(2), None, "it is the one");
    assert_eq!(ratio(3), Some(4.5));
    let text = row.to_string();
    assert!(text.contains("1.65 (1.50 to 1.80)"), "{text}");
    assert!(
        text.contains("1.20 times the operations; 1.65: met"),
        "{text}"
    );
}

#[test]
fn without_memcached_another_latchd_is_the_rival() {
    let mix = Mix::GetsSets;
    let row = standings(
        "b",
        vec![
            standing("new", Whose::Ours, mix, [100.0; 3]),
            standing("old", Whose::Other, mix, [200.0; 3]),
        ],
    );
    let text = row.to_string();
    assert!(text.contains("0.50 (0.50 to 0.50)"), "{text}");
    assert!(text.contains("missed"), "{text}");
}

#[test]
fn a_server_alone_has_no_rival() {
    let ours = standing("latchd", Whose::Ours, Mix::GetsSets, [100.0; 3]);
    let row = standings("b", vec![ours]);
    assert!(row.servers[0].against.is_none());
    assert!(!row.to_string().contains("aim"));
}

#[test]
fn locks_are_measured_by_locks_and_beside_gets() {
    let row = standings(
        "lock-1",
        vec![
            standing("latchd, get", Whose::Ours, Mix::Gets, [100.0; 3]),
            standing("latchd, lock, unlock", Whose::Ours, Mix::Locks, [90.0; 3]),
            standing("yrmcds, get", Whose::Other, Mix::Gets, [50.0; 3]),
            standing("yrmcds, lock, unlock", Whose::Other, Mix::Locks, [30.0; 3]),
        ],
    );
    let ratio = |index: usize| row.servers[index].against.map(|a| a.operations.median);
    assert_eq!((ratio(0), ratio(1)), (Some(2.0), Some(3.0)));
    let beside: Vec<_> = (row.locks_against_gets.iter())
        .map(|pair| (pair.label.as_str(), pair.operations.median))
        .collect();
    assert_eq!(beside, [("latchd", 0.9), ("yrmcds", 0.6)]);
}

#[test]
fn a_row_that_others_disturbed_says_so() {
    let is_marked = |disturb: fn(&mut Standing)| {
        let mut ours = standing("latchd", Whose::Ours, Mix::GetsSets, [100.0; 3]);
        disturb(&mut ours);
        standings("b", vec![ours]).to_string().contains("disturbed")
    };
    assert!(!is_marked(|_| ()));
    assert!(is_marked(|ours| ours.others_busy.median = 0.1));
    assert!(is_marked(|ours| ours.load_waited.median = 0.1));
    // Its own threads, of which memcached has several, may well be in each other's way.
    assert!(!is_marked(|ours| ours.server_waited.median = 0.1));
}
