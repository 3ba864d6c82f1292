//! An operation on all locks of a connection happens to all of them at once (`engine/shards/D1`).

use std::sync::Arc;

use latchd_core::Instant;
use shuttle::thread;

use super::{Answer, Client, Seen, in_many_orders, server};

/// The ways in which a connection loses all its locks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum End {
    Close,
    UnlockAll,
}

/// One connection locks a key in each of two shards, the second one while others check already, and releases
/// both in one step. Another tries both keys, `first` before the other: if the first is free, so is the
/// second.
fn gives_up(seen: &Arc<Seen>, end: End, first: usize) {
    let (shared, keys) = server(2, |_| ());
    let mut one = Client::new(&shared, 1, 0);
    let mut two = Client::new(&shared, 2, 1);
    let second = 1 - first;
    assert_eq!(one.lock(&keys[first]), Answer::Granted);
    let (all, names) = (Arc::clone(seen), keys.clone());
    let giver = thread::spawn(move || {
        // Its last request, then its end.
        if one.lock(&names[second]) == Answer::Contended {
            all.note("somebody else was faster");
        }
        match end {
            End::Close => one.close(),
            End::UnlockAll => {
                assert_eq!(one.unlock_all(), Answer::Unlocked);
                one.close();
            }
        }
    });
    let (all, names) = (Arc::clone(seen), keys.clone());
    let taker = thread::spawn(move || {
        let answers = [first, second].map(|shard| two.lock(&names[shard]));
        all.note(match answers {
            [Answer::Granted, Answer::Granted] => "both are free",
            [Answer::Contended, Answer::Contended] => "both are held",
            [Answer::Contended, Answer::Granted] => "the end comes in between",
            other => panic!("half of the end: {other:?}"),
        });
        two.close();
    });
    giver.join().unwrap();
    taker.join().unwrap();
    let mut three = Client::new(&shared, 3, 0);
    assert_eq!(keys.map(|name| three.lock(&name)), [Answer::Granted; 2]);
    three.close();
    shared.check_empty(Instant::from_millis(0));
}

const WITNESSES: &[&str] = &["both are free", "both are held", "the end comes in between"];

#[test]
fn the_end_of_a_connection_is_seen_whole() {
    in_many_orders(WITNESSES, |seen| gives_up(seen, End::Close, 0));
    in_many_orders(WITNESSES, |seen| gives_up(seen, End::Close, 1));
}

#[test]
fn unlock_all_is_seen_whole() {
    in_many_orders(WITNESSES, |seen| gives_up(seen, End::UnlockAll, 0));
    in_many_orders(WITNESSES, |seen| gives_up(seen, End::UnlockAll, 1));
}
