//! The places in queues that a session has kept from its last connection, over several shards.

#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "any other reply is a failure"
)]

use std::num::NonZeroU32;

use latchd_core::Owner;
use latchd_protocol::command::{Mode, Wait};

use super::held::{bound, win};
use super::*;

const PAIR: Mode = Mode::Shared {
    max_sharers: NonZeroU32::new(2),
};

/// A session that waits, and two keys in different shards of it.
struct Table {
    shards: Shards,
    keys: [String; 2],
    session: ShardSession,
}

fn table(limits: Limits) -> Table {
    let shards = Shards::new(2, Config::new(limits, 0), nobody_waits());
    let keys = [0, 1].map(|shard| in_shard(&shards, shard).next().unwrap());
    let holder = Holder { worker: 0, name: 9 };
    let conn = ConnId::from_number(9);
    Table {
        shards,
        keys,
        session: ShardSession::of_session(Owner::of_session(9), conn, holder),
    }
}

fn wait(shards: &Shards, session: &mut ShardSession, name: &str, mode: Mode) -> &'static str {
    let acquire = Acquire {
        mode,
        wait: Wait::UpTo { ms: 60_000 },
        ..Acquire::new(key(name))
    };
    ask(
        shards,
        session,
        ItemCommand::Acquire(acquire),
        |reply| match reply {
            Reply::Granted(_) => "granted",
            Reply::Waits => "waits",
            Reply::WouldDeadlock(_) => "deadlock",
            other => panic!("{other:?}"),
        },
    )
}

/// Waits for the value of a key that another client has won.
fn wait_for_value(shards: &Shards, session: &mut ShardSession, name: &str) {
    let get = Get {
        wait_ms: 60_000,
        ..bound(name)
    };
    ask(shards, session, get, |reply| {
        assert_eq!(reply, &Reply::Waits);
    });
}

/// Q9: The place was judged when the wait began. A later waiter behind it, and a sharer that waits for the session since, are
/// no reason to refuse the same request again. The notice of its end goes to the connection that has asked last (G2).
#[test]
fn same_wait_again_is_no_deadlock() {
    let Table {
        shards,
        keys: [shared, own],
        session: mut one,
    } = table(Limits::default());
    let [mut first, mut second, mut last] = [1, 2, 3].map(session);
    for sharer in [&mut first, &mut second] {
        assert_eq!(wait(&shards, sharer, &shared, PAIR), "granted");
    }
    assert_eq!(wait(&shards, &mut one, &own, Mode::Exclusive), "granted");
    assert_eq!(wait(&shards, &mut one, &shared, PAIR), "waits");
    assert_eq!(wait(&shards, &mut last, &shared, Mode::Exclusive), "waits");
    assert_eq!(wait(&shards, &mut first, &own, Mode::Exclusive), "waits");
    let address = Holder {
        worker: 0,
        name: 10,
    };
    one.address = address;
    assert_eq!(wait(&shards, &mut one, &shared, PAIR), "waits");
    let registered = shards.waiters.registered();
    assert!(registered.contains(&(one.owner(), address)));
    // The second sharer releases, and the session has its place before the later waiter.
    shards.close(NOW, second);
    assert_eq!(wait(&shards, &mut one, &shared, PAIR), "granted");
}

/// Only a request that waits leaves a place in another shard, as in the same one.
#[test]
fn granted_request_leaves_no_place() {
    let Table {
        shards,
        keys: [held, free],
        session: mut one,
    } = table(Limits::default());
    let mut holder = session(1);
    assert_eq!(
        wait(&shards, &mut holder, &held, Mode::Exclusive),
        "granted"
    );
    assert_eq!(wait(&shards, &mut one, &held, Mode::Exclusive), "waits");
    assert_eq!(wait(&shards, &mut one, &free, Mode::Exclusive), "granted");
    let is_miss = |reply: &Reply<'_>| matches!(reply, Reply::Miss);
    let get = Get {
        wait_ms: 60_000,
        ..Get::new(key(&free))
    };
    assert!(ask(&shards, &mut one, get, is_miss));
    let waits = || shards.manage(|manager| manager.waits().waiting(key(&held)));
    assert_eq!(waits(), 1, "the place is kept");
    shards.close(NOW, holder);
    let mut next = session(2);
    assert_eq!(wait(&shards, &mut next, &held, Mode::Exclusive), "waits");
    assert_eq!(wait(&shards, &mut one, &held, Mode::Exclusive), "granted");
    let mut last = session(3);
    assert_eq!(wait(&shards, &mut last, &free, Mode::Exclusive), "waits");
}

/// As for a lock: the win may be given to it while it waits.
#[test]
fn place_for_a_value_counts_as_a_win() {
    let mut limits = Limits::default();
    limits.bound_wins_per_connection_max = 2;
    let Table {
        shards,
        keys: [held, _],
        session: mut one,
    } = table(limits);
    let names: Vec<_> = in_shard(&shards, 1).take(3).collect();
    let mut winner = session(1);
    assert!(win(0, &shards, &mut winner, &held));
    wait_for_value(&shards, &mut one, &held);
    assert!(win(0, &shards, &mut one, &names[0]));
    assert!(
        !win(0, &shards, &mut one, &names[1]),
        "it has a win and a place"
    );
    ask(&shards, &mut winner, Set::new(key(&held), b"v"), |_| ());
    assert!(win(0, &shards, &mut one, &names[1]), "its wait is over");
    assert!(!win(0, &shards, &mut one, &names[2]));
}

/// A session waits for one thing at a time. Either shard may be the first.
#[test]
fn wait_leaves_the_place_elsewhere() {
    for from in [0, 1] {
        let Table {
            shards,
            keys,
            session: mut one,
        } = table(Limits::default());
        let (held, won) = (&keys[from], &keys[1 - from]);
        let mut other = session(1);
        assert_eq!(wait(&shards, &mut other, held, Mode::Exclusive), "granted");
        assert!(win(0, &shards, &mut other, won));
        assert_eq!(wait(&shards, &mut one, held, Mode::Exclusive), "waits");
        wait_for_value(&shards, &mut one, won);
        assert_eq!(
            shards.manage(|manager| manager.waits().waiting(key(held))),
            0
        );
        assert_eq!(wait(&shards, &mut one, held, Mode::Exclusive), "waits");
        assert_eq!(shards.stats(NOW).gauges.get_waiting, 0);
    }
}
