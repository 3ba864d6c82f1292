//! The lines for each command, and their text.

use alloc::vec;

use super::*;
use crate::command::{
    Arithmetic, Command, Delete, Direction, Get, GlobalCommand, Guard, ItemCommand, OnMissing,
    Removal, Set, SetMode,
};
use crate::fence::Fence;
use crate::item::Cas;
use crate::key::Key;
use crate::reply::{LockInfo, Number, Refusal, Reply, Stored, TtlTrace};
use crate::time::Exptime;

const ALL: Topics = Topics(u8::MAX);

/// The lines besides look-ups, for a key that was not there.
fn lines(wanted: Topics, command: impl Into<Command<'static>>, reply: &Reply<'_>) -> Vec<String> {
    let mut lines = lines_of(None, wanted, command, reply);
    lines.retain(|line| !line.starts_with("type=item_get"));
    lines
}

fn lines_of(
    found_bytes: Option<usize>,
    wanted: Topics,
    command: impl Into<Command<'static>>,
    reply: &Reply<'_>,
) -> Vec<String> {
    let asked = Asked {
        session: None,
        conn: ConnId::from_number(7),
        is_meta: false,
        unix_s: 1_700_000_000,
        found_bytes,
    };
    let mut lines = Vec::new();
    each_line(wanted, asked, &command.into(), reply, &mut |_, line| {
        lines.push(line);
    });
    lines
}

fn key() -> Key<'static> {
    Key::new(b"n,foo").unwrap()
}

#[test]
fn words_are_topics_and_their_beginnings_are_enough() {
    let topics = |words: &[&'static str]| {
        Topics::from_words(words.iter().map(|word| word.as_bytes())).map(Topics::bits)
    };
    let of = |topic| Topics::of(topic);
    assert_eq!(topics(&[]), Some(of(Topic::Fetchers).bits()));
    let both = of(Topic::Mutations).and(of(Topic::Evictions));
    assert_eq!(topics(&["mutations", "ev"]), Some(both.bits()));
    assert_eq!(topics(&["proxyreqs", "sysevents"]), Some(0));
    assert_eq!(topics(&["locks", "nonsense"]), None);
    assert!(!of(Topic::Connections).tell_keys() && both.tell_keys());
}

#[test]
fn look_ups_report_the_found_item() {
    let missed = "type=item_get key=n%2Cfoo status=not_found clsid=1 cfd=7 size=0";
    let found = "type=item_get key=n%2Cfoo status=found clsid=1 cfd=7 size=5";
    let fetchers = Topics::of(Topic::Fetchers);
    for command in [
        ItemCommand::Get(Get::new(key())),
        ItemCommand::Set(Set::new(key(), b"bar")),
        ItemCommand::Delete(Delete::new(key())),
        ItemCommand::Arithmetic(Arithmetic::new(key(), Direction::Increment, 1)),
    ] {
        let lines = |there| lines_of(there, fetchers, command, &Reply::NotFound);
        assert_eq!(
            (lines(None), lines(Some(5))),
            (vec![missed.into()], vec![found.into()])
        );
    }
    let lock = ItemCommand::Lock { key: key() };
    assert_eq!(lines_of(None, fetchers, lock, &Reply::Locked), [""; 0]);
}

#[test]
fn a_store_has_memcacheds_line() {
    let stored = Reply::Stored(Stored {
        cas: Cas::FIRST,
        size: 3,
    });
    for (exptime, ttl) in [
        (Exptime::Never, 0),
        (Exptime::In { seconds: 60 }, 60),
        (
            Exptime::At {
                unix_s: 1_700_000_009,
            },
            9,
        ),
    ] {
        let set = Set {
            exptime,
            ..Set::new(key(), b"bar")
        };
        assert_eq!(
            lines(ALL, set, &stored),
            [alloc::format!(
                "type=item_store key=n%2Cfoo status=stored cmd=set ttl={ttl} clsid=1 cfd=7 size=3"
            )]
        );
    }
    let cas = Set {
        guard: Guard::Never,
        ..Set::new(key(), b"")
    };
    let line = "type=item_store key=n%2Cfoo status=exists cmd=cas ttl=0 clsid=1 cfd=7 size=0";
    assert_eq!(lines(ALL, cas, &Reply::Exists), [line]);
    let number = Reply::Number(Number {
        value: 100,
        cas: Cas::FIRST,
        ttl: TtlTrace::default(),
    });
    let line = "type=item_store key=n%2Cfoo status=stored cmd=incr ttl=0 clsid=1 cfd=7 size=3";
    let incr = Arithmetic::new(key(), Direction::Increment, 1);
    assert_eq!(lines(ALL, incr, &number), [line]);
}

#[test]
fn each_kind_of_store_has_its_name() {
    let stored = Reply::Stored(Stored {
        cas: Cas::FIRST,
        size: 1,
    });
    let missing = OnMissing::Refuse;
    for (mode, guard, name) in [
        (SetMode::Set, Guard::None, "set"),
        (SetMode::Add, Guard::None, "add"),
        (SetMode::Replace, Guard::None, "replace"),
        (SetMode::Append { missing }, Guard::None, "append"),
        (SetMode::Prepend { missing }, Guard::None, "prepend"),
        (SetMode::Set, Guard::Match(Cas::FIRST), "cas"),
    ] {
        let set = Set {
            mode,
            guard,
            ..Set::new(key(), b"x")
        };
        let line = alloc::format!("status=stored cmd={name} ttl=0 clsid=1 cfd=7 size=1");
        let line = alloc::format!("type=item_store key=n%2Cfoo {line}");
        assert_eq!(lines(ALL, set, &stored), [line]);
    }
    let number = Reply::Number(Number {
        value: 0,
        cas: Cas::FIRST,
        ttl: TtlTrace::default(),
    });
    let line = "type=item_store key=n%2Cfoo status=stored cmd=decr ttl=0 clsid=1 cfd=7 size=1";
    let decr = Arithmetic::new(key(), Direction::Decrement, 1);
    assert_eq!(lines(ALL, decr, &number), [line]);
}

#[test]
fn each_answer_has_its_status() {
    for (reply, status) in [
        (Reply::NotStored, "not_stored"),
        (Reply::Exists, "exists"),
        (Reply::NotFound, "not_found"),
        (Reply::Refused(Refusal::TooLarge), "too_large"),
        (Reply::Refused(Refusal::OutOfMemory), "no_memory"),
        (Reply::Refused(Refusal::Locked), "locked"),
    ] {
        let line = alloc::format!("status={status} cmd=set ttl=0 clsid=1 cfd=7 size=1");
        let line = alloc::format!("type=item_store key=n%2Cfoo {line}");
        assert_eq!(lines(ALL, Set::new(key(), b"x"), &reply), [line]);
    }
    let get = Get {
        lock: true,
        ..Get::new(key())
    };
    let held = Reply::Refused(Refusal::Locked);
    let fetchers = Topics::of(Topic::Fetchers);
    let line = "type=item_get key=n%2Cfoo status=locked clsid=1 cfd=7 size=3";
    assert_eq!(lines_of(Some(3), fetchers, get, &held), [line]);
    let lock = ItemCommand::Lock { key: key() };
    let unlock = ItemCommand::Unlock { key: key() };
    let fence = Fence::new(9).unwrap();
    let seen = LockInfo {
        metadata: None,
        holder: ConnId::from_number(3).into(),
        fence,
        held_s: 0,
        is_shared: false,
        waiting: 0,
    };
    for (command, reply, said) in [
        (lock, Reply::NotFound, "lock status=not_found"),
        (
            lock,
            Reply::Refused(Refusal::TooManyLocks),
            "lock status=too_many_locks",
        ),
        (lock, Reply::WouldDeadlock(seen), "lock status=deadlock"),
        (
            unlock,
            Reply::Refused(Refusal::NotLocked),
            "unlock status=not_locked",
        ),
        (
            unlock,
            Reply::Refused(Refusal::NotLockedNotFound),
            "unlock status=not_locked",
        ),
        (unlock, Reply::NotFound, "unlock status=not_found"),
    ] {
        let (what, status) = said.split_once(' ').unwrap();
        let fence = if status.ends_with("deadlock") {
            " fence=9"
        } else {
            ""
        };
        let line = alloc::format!("type={what} key=n%2Cfoo {status} cfd=7{fence}");
        assert_eq!(lines(ALL, command, &reply), [line]);
    }
}

#[test]
fn a_delete_is_told_if_it_removed_something() {
    let delete = Delete::new(key());
    let line = "type=deleted key=n%2Cfoo cmd=delete clsid=1 cfd=7 size=5";
    let deletions = Topics::of(Topic::Deletions);
    assert_eq!(
        lines_of(Some(5), deletions, delete, &Reply::Deleted),
        [line]
    );
    assert_eq!(lines(ALL, delete, &Reply::NotFound), [""; 0]);
    let stale = Delete {
        removal: Removal::MarkStale { exptime: None },
        ..delete
    };
    assert_eq!(lines(ALL, stale, &Reply::Deleted), [""; 0]);
}

#[test]
fn lock_lines_report_the_outcome() {
    let lock = ItemCommand::Lock { key: key() };
    let line = "type=lock key=n%2Cfoo status=granted cfd=7";
    assert_eq!(lines(ALL, lock, &Reply::Locked), [line]);
    let line = "type=lock key=n%2Cfoo status=contended cfd=7";
    let held = Reply::Refused(Refusal::Locked);
    assert_eq!(lines(ALL, lock, &held), [line]);
    let unlock = ItemCommand::Unlock { key: key() };
    let line = "type=unlock key=n%2Cfoo status=released cfd=7";
    assert_eq!(lines(ALL, unlock, &Reply::Unlocked), [line]);
    let line = "type=unlock_all reason=asked cfd=7";
    assert_eq!(
        lines(ALL, GlobalCommand::UnlockAll, &Reply::Unlocked),
        [line]
    );
}

#[test]
fn unwatched_topics_are_silent() {
    let locks = Topics::of(Topic::Locks);
    assert_eq!(lines(locks, Get::new(key()), &Reply::Miss), [""; 0]);
    let fetchers = Topics::of(Topic::Fetchers);
    let held = Get {
        lock: true,
        ..Get::new(key())
    };
    assert_eq!(lines_of(None, fetchers, held, &Reply::Miss).len(), 1);
    assert_eq!(
        lines_of(None, locks.and(fetchers), held, &Reply::Miss).len(),
        2
    );
}

#[test]
fn topics_are_sets() {
    assert!(Topics::NONE.is_none() && !Topics::of(Topic::Fetchers).is_none());
    let locks = Topics::of(Topic::Locks);
    assert_eq!(locks.and(locks), locks);
    let some = locks.and(Topics::of(Topic::Deletions));
    assert_eq!(Topics::from_bits(some.bits()), some);
    assert!(some.contain(Topic::Locks) && !some.contain(Topic::Mutations));
    let words =
        |words: &[&'static str]| Topics::from_words(words.iter().map(|word| word.as_bytes()));
    assert_eq!(words(&["locks"]), Some(locks), "one word is not none");
}

#[test]
fn eviction_lines_describe_the_item() {
    let evicted = Evicted {
        key: b"a,b".to_vec(),
        fetched: true,
        ttl_s: None,
        idle_s: 7,
        value_bytes: 300,
    };
    assert_eq!(
        evicted.line(),
        "type=eviction key=a%2Cb fetch=yes ttl=-1 la=7 clsid=1 size=300"
    );
    let unread = Evicted {
        fetched: false,
        ttl_s: Some(9),
        ..evicted
    };
    assert_eq!(
        unread.line(),
        "type=eviction key=a%2Cb fetch=no ttl=9 la=7 clsid=1 size=300"
    );
}
