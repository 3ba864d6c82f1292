//! A client that waits for a lock is notified exactly once, in every order of the threads (Q9, G1, G2).

use std::sync::Arc;

use latchd_core::Instant;
use latchd_protocol::wait::Outcome;
use shuttle::thread;

use super::{Answer, Client, Seen, in_many_orders, server};

/// Longer than any scenario.
const LONG_MS: u64 = 60_000;

/// One client releases a lock, while a client of another thread requests it and would wait.
fn hands_over(seen: &Arc<Seen>) {
    let (shared, [name, _]) = server(2, |_| ());
    let mut one = Client::new(&shared, 1, 0);
    let mut two = Client::new(&shared, 2, 1);
    assert_eq!(one.lock(&name), Answer::Granted);
    let key = name.clone();
    let giver = thread::spawn(move || {
        assert_eq!(one.unlock(&key), Answer::Unlocked);
        assert_eq!(one.unlock(&key), Answer::NotLocked);
        one.close();
    });
    let (all, key) = (Arc::clone(seen), name.clone());
    let waiter = thread::spawn(move || {
        let answer = two.wait(&key, LONG_MS);
        if answer == Answer::Granted {
            all.note("it was free already");
        } else {
            assert_eq!(answer, Answer::Waits);
            assert_eq!(two.hear(), Outcome::Granted);
            assert_eq!(two.lock(&key), Answer::Granted, "it learns what it has");
            all.note("it was notified");
        }
        two
    });
    giver.join().unwrap();
    let two = waiter.join().unwrap();
    assert_eq!(two.outcomes(), [], "it is notified once");
    let mut three = Client::new(&shared, 3, 0);
    assert_eq!(three.lock(&name), Answer::Contended);
    two.close();
    assert_eq!(three.lock(&name), Answer::Granted);
    three.close();
    shared.check_empty(Instant::from_millis(0));
}

/// Two clients wait. The first one closes while the lock is released: the second acquires it, whether or not
/// the first had acquired it before.
fn passes_on(seen: &Arc<Seen>) {
    let (shared, [name, _]) = server(2, |_| ());
    let mut one = Client::new(&shared, 1, 0);
    let mut two = Client::new(&shared, 2, 0);
    let mut three = Client::new(&shared, 3, 1);
    assert_eq!(one.lock(&name), Answer::Granted);
    assert_eq!(two.wait(&name, LONG_MS), Answer::Waits);
    assert_eq!(three.wait(&name, LONG_MS), Answer::Waits);
    let key = name.clone();
    let giver = thread::spawn(move || assert_eq!(one.unlock(&key), Answer::Unlocked));
    let leaver = thread::spawn(move || {
        let (shared, holder) = (Arc::clone(&two.shared), two.holder);
        two.close();
        (shared, holder)
    });
    let key = name.clone();
    let waiter = thread::spawn(move || {
        assert_eq!(three.hear(), Outcome::Granted);
        assert_eq!(three.lock(&key), Answer::Granted);
        three
    });
    giver.join().unwrap();
    let (shared, holder) = leaver.join().unwrap();
    let three = waiter.join().unwrap();
    seen.note(match &shared.mailbox(holder.worker).take()[..] {
        [] => "it went in time",
        [_] => "what it was given is passed on",
        more => panic!("{more:?}"),
    });
    assert_eq!(three.outcomes(), []);
    let mut four = Client::new(&shared, 4, 0);
    assert_eq!(four.lock(&name), Answer::Contended);
    three.close();
    assert_eq!(four.lock(&name), Answer::Granted);
    four.close();
}

/// Each of two clients holds a lock in its own shard and requests the other's: exactly one of them is
/// refused.
fn closes_cycle(seen: &Arc<Seen>) {
    let (shared, keys) = server(2, |_| ());
    let [mut one, mut two] = [(1, 0), (2, 1)].map(|(n, worker)| Client::new(&shared, n, worker));
    assert_eq!(one.lock(&keys[0]), Answer::Granted);
    assert_eq!(two.lock(&keys[1]), Answer::Granted);
    let threads = [(one, 1), (two, 0)].map(|(mut client, wanted)| {
        let (seen, name) = (Arc::clone(seen), keys[wanted].clone());
        thread::spawn(move || {
            let answer = client.wait(&name, LONG_MS);
            let is_refused = answer == Answer::WouldDeadlock;
            if is_refused {
                let who = ["the second is refused", "the first is refused"];
                seen.note(who[wanted]);
            } else {
                assert_eq!(answer, Answer::Waits);
                assert_eq!(client.hear(), Outcome::Granted);
                assert_eq!(client.lock(&name), Answer::Granted);
            }
            client.close();
            usize::from(is_refused)
        })
    });
    let refused: usize = threads
        .into_iter()
        .map(|thread| thread.join().unwrap())
        .sum();
    assert_eq!(refused, 1);
    shared.check_empty(Instant::from_millis(0));
}

/// Two clients of one thread wait for locks that two others release: both are notified, by one read of the
/// mailbox or by two.
fn tells_both(seen: &Arc<Seen>) {
    let (shared, keys) = server(2, |_| ());
    let mut givers = [1, 2].map(|number| Client::new(&shared, number, 0));
    let mut waiters = [3, 4].map(|number| Client::new(&shared, number, 1));
    for (index, name) in keys.iter().enumerate() {
        assert_eq!(givers[index].lock(name), Answer::Granted);
        assert_eq!(waiters[index].wait(name, LONG_MS), Answer::Waits);
    }
    let mut names = keys.iter().cloned();
    let givers = givers.map(|mut giver| {
        let name = names.next().unwrap();
        thread::spawn(move || {
            assert_eq!(giver.unlock(&name), Answer::Unlocked);
            giver.close();
        })
    });
    let (mut notified, mut times) = (0, 0);
    while notified < 2 {
        shared.mailbox(1).hear();
        let messages = shared.mailbox(1).take();
        notified += messages.len();
        times += usize::from(!messages.is_empty());
    }
    seen.note(["", "both at once", "one after the other"][times]);
    for giver in givers {
        giver.join().unwrap();
    }
    assert_eq!(shared.mailbox(1).take().len(), 0, "they are notified once");
    for (waiter, name) in waiters.iter_mut().zip(&keys) {
        assert_eq!(waiter.lock(name), Answer::Granted);
    }
    for waiter in waiters {
        waiter.close();
    }
}

#[test]
fn both_waiters_of_a_worker_are_notified() {
    in_many_orders(&["both at once", "one after the other"], tells_both);
}

#[test]
fn waiter_is_notified_once() {
    in_many_orders(&["it was free already", "it was notified"], hands_over);
}

#[test]
fn lock_of_a_closed_waiter_is_handed_over() {
    in_many_orders(
        &["it went in time", "what it was given is passed on"],
        passes_on,
    );
}

#[test]
fn one_client_of_a_deadlock_is_refused() {
    in_many_orders(
        &["the first is refused", "the second is refused"],
        closes_cycle,
    );
}
