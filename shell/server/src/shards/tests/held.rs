//! The locks and wins of one owner, over several shards (L10).

use latchd_protocol::command::Lease;
use latchd_protocol::reply::{Refusal, Win};

use super::*;

/// `mg NAME N30 B`
pub(super) fn bound(name: &str) -> Get<'_> {
    Get {
        steps: TtlSteps::one(TtlStep::Vivify(Exptime::In { seconds: 30 })),
        recaches: true,
        bound_to_owner: true,
        ..Get::new(key(name))
    }
}

/// Asks for a bound win. Returns whether the client has won; if not, it has as many wins as it may.
pub(super) fn win(seconds: u64, shards: &Shards, session: &mut ShardSession, name: &str) -> bool {
    let now = Instant::from_millis(1_000 * seconds);
    ask_at(now, shards, session, bound(name), |reply| {
        if let Reply::Hit(hit) = reply {
            assert_eq!(hit.win, Win::Won);
            return true;
        }
        assert_eq!(*reply, Reply::Refused(Refusal::TooManyLocks));
        false
    })
}

/// Limits of an owner: so many locks and as many bound wins.
fn limits(most: usize) -> Limits {
    let mut limits = Limits::default();
    limits.locks_per_connection_max = most;
    limits.bound_wins_per_connection_max = most;
    limits
}

#[test]
fn owner_has_what_any_shard_says() {
    let shards = shards(4);
    let mut one = session(1);
    let names = [0, 1, 2, 3].map(|shard| in_shard(&shards, shard).next().unwrap());
    let release = |name| ItemCommand::Release(Release::new(key(name)));
    // It may hold something, holds a lock, has a win, has either.
    let has = |one: &ShardSession| {
        let holds = shards.holds(NOW, one);
        let has_anything = shards.has_anything(NOW, one);
        let wins = shards.manage(|manager| manager.held(one.owner)).wins;
        [one.may_hold(), holds, wins > 0, has_anything]
    };
    store(&shards, &mut one, &names[1], b"value");
    ask(&shards, &mut one, Get::new(key(&names[1])), |_| ());
    ask(&shards, &mut one, GlobalCommand::UnlockAll, |_| ());
    assert_eq!(has(&one), [false; 4]);
    assert_eq!(
        shards.manage(|manager| manager.locks().open_connections().count()),
        0
    );
    let get = Get {
        lock: true,
        ..Get::new(key(&names[1]))
    };
    ask(&shards, &mut one, get, |reply| {
        assert!(matches!(reply, Reply::Hit(_)), "{reply:?}");
    });
    // The last shard that is looked at has nothing.
    assert!(acquire(&shards, &mut one, &names[3]));
    ask(&shards, &mut one, release(&names[3]), |_| ());
    assert_eq!(has(&one), [true, true, false, true]);
    ask(&shards, &mut one, release(&names[1]), |_| ());
    assert_eq!(has(&one), [true, false, false, false]);
    assert!(win(0, &shards, &mut one, &names[2]));
    ask(&shards, &mut one, GlobalCommand::UnlockAll, |_| ());
    assert_eq!(has(&one), [true, false, true, true], "wins stay bound");
    store(&shards, &mut one, &names[2], b"value");
    assert_eq!(has(&one), [true, false, false, false]);
}

/// Only the shards with locks are asked, and a lock lasts the whole lease that its holder has asked for.
#[test]
fn lock_that_expired_elsewhere_makes_room() {
    let shards = Shards::new(4, Config::new(limits(2), 0), nobody_waits());
    let mut one = session(1);
    let names: Vec<_> = in_shard(&shards, 0).take(2).collect();
    let lease = ItemCommand::Acquire(Acquire {
        lease: Some(Lease::For { ms: 100 }),
        ..Acquire::new(key(&names[0]))
    });
    ask(&shards, &mut one, lease, |_| ());
    assert!(acquire(&shards, &mut one, &names[1]));
    let name = in_shard(&shards, 1).next().unwrap();
    for (ms, is_granted) in [(100, false), (101, true)] {
        let acquire = ItemCommand::Acquire(Acquire::new(key(&name)));
        ask_at(
            Instant::from_millis(ms),
            &shards,
            &mut one,
            acquire,
            |reply| {
                assert_eq!(matches!(reply, Reply::Granted(_)), is_granted, "{reply:?}");
            },
        );
    }
}

#[test]
fn owner_without_a_share_is_refused() {
    let shards = Shards::new(4, Config::new(limits(0), 0), nobody_waits());
    assert!(!acquire(&shards, &mut session(1), "key0"));
    assert!(!win(0, &shards, &mut session(2), "key0"));
}

/// A get of an owner at its limit checks a few of its wins, in whatever shards: 16.
#[test]
fn win_that_vanished_elsewhere_makes_room() {
    let shards = Shards::new(2, Config::new(limits(21), 0), nobody_waits());
    let mut one = session(1);
    for name in in_shard(&shards, 0).take(20) {
        assert!(win(0, &shards, &mut one, &name));
    }
    let wins = |one: &ShardSession| shards.manage(|manager| manager.held(one.owner)).wins;
    let more: Vec<_> = in_shard(&shards, 1).take(2).collect();
    assert!(win(31, &shards, &mut one, &more[0]));
    assert_eq!(wins(&one), 21, "the last one that it may have");
    assert!(win(31, &shards, &mut one, &more[1]));
    let checked = 21 + 1 - wins(&one);
    assert!((15..=16).contains(&checked), "{checked}");
}
