//! Several shards are one to their clients.

use std::collections::BTreeSet;

use latchd_core::ConnId;
use latchd_protocol::command::{
    Acquire, Delete, Get, GlobalCommand, ItemCommand, Keys, OnMissing, Release, ScanCursor, Set,
    SetMode, TtlStep, TtlSteps,
};
use latchd_protocol::reply::{KeysPage, MemoryRefused};
use latchd_protocol::stats::LOCK_LINES_MAX;
use latchd_protocol::time::Exptime;
use latchd_protocol::wait::Outcome;

use super::*;
use crate::clients::budget::Holder;
use crate::clients::mailbox::{Mailbox, Message};

mod held;
mod memory;
mod places;
mod reads;

const NOW: Instant = Instant::from_millis(0);

impl Shards {
    /// Calls `act` with the lock manager.
    fn manage<R>(&self, act: impl FnOnce(&mut LockManager) -> R) -> R {
        self.at(NOW).manage(act)
    }

    fn stats(&self, now: Instant) -> Stats {
        shards::stats(&mut self.at(now))
    }

    /// Asserts that all connections have left nothing: no lock, no wait, no open connection, no memory of tables.
    pub(crate) fn check_empty(&self, now: Instant) {
        while self.tick(now, 0) {}
        self.manage(|manager| {
            let (locks, stats) = (manager.locks(), manager.stats().gauges);
            let sessions = manager.sessions().len();
            assert_eq!(locks.open_connections().count(), sessions);
            assert!(locks.is_empty() && !manager.has_waits());
            assert_eq!((stats.wins_bound, manager.table_bytes()), (0, 0));
        });
    }

    #[cfg(not(feature = "scheduled"))]
    /// Asserts that no connection waits for the lock of this key while it is free.
    pub(crate) fn check_waiters(&self, key: Key<'_>) {
        self.manage(|manager| {
            let owner = manager.locks().owner(key);
            for (waiter, _) in manager.waits().queue(key) {
                assert!(
                    owner.is_some_and(|owner| owner != waiter),
                    "{waiter:?} waits for a free lock"
                );
            }
        });
    }
}

fn shards(count: usize) -> Shards {
    Shards::new(count, Config::new(Limits::default(), 0), nobody_waits())
}

/// The waiters of a server with one thread.
fn nobody_waits() -> Arc<Waiters> {
    Arc::new(Waiters::new(Arc::new([Mailbox::new().unwrap()]), false))
}

fn session(number: u64) -> ShardSession {
    let address = Holder {
        worker: 0,
        name: number,
    };
    ShardSession::new(ConnId::from_number(number), address)
}

/// Executes a command, and returns the result of `look` for its reply.
fn ask<'a, T>(
    shards: &Shards,
    session: &mut ShardSession,
    command: impl Into<Command<'a>>,
    look: impl Fn(&Reply<'_>) -> T,
) -> T {
    ask_at(NOW, shards, session, command, look)
}

/// [`ask`] at another time.
fn ask_at<'a, T>(
    now: Instant,
    shards: &Shards,
    session: &mut ShardSession,
    command: impl Into<Command<'a>>,
    look: impl Fn(&Reply<'_>) -> T,
) -> T {
    let mut seen = None;
    let command = command.into();
    shards.execute(
        now,
        session,
        &command,
        &|_| (Vec::new(), None),
        &mut |reply| {
            assert!(seen.is_none(), "a command has one reply");
            seen = Some(look(reply));
        },
    );
    seen.expect("a command has a reply")
}

fn key(name: &str) -> Key<'_> {
    Key::new(name.as_bytes()).unwrap()
}

fn names() -> Vec<String> {
    (0..200).map(|number| format!("key{number}")).collect()
}

/// The keys of a shard.
fn in_shard(shards: &Shards, shard: usize) -> impl Iterator<Item = String> {
    let names = (0..).map(|number| format!("key{number}"));
    names.filter(move |name| shards.shard_of(key(name)) == shard)
}

/// Stores 200 keys, which lie in every shard.
fn fill(shards: &Shards, session: &mut ShardSession) -> Vec<u64> {
    let names = names();
    let used: BTreeSet<_> = names
        .iter()
        .map(|name| shards.shard_of(key(name)))
        .collect();
    assert_eq!(
        used.len(),
        shards.items.len(),
        "200 keys leave no shard of 8 empty"
    );
    names
        .iter()
        .map(|name| {
            let set = Set::new(key(name), b"value");
            ask(shards, session, set, |reply| {
                let Reply::Stored(stored) = reply else {
                    panic!("{reply:?}")
                };
                stored.cas.number()
            })
        })
        .collect()
}

fn lock(shards: &Shards, session: &mut ShardSession, name: &str) -> bool {
    let command = ItemCommand::Lock { key: key(name) };
    ask(shards, session, command, |reply| {
        matches!(reply, Reply::Locked)
    })
}

fn store(shards: &Shards, session: &mut ShardSession, name: &str, value: &[u8]) {
    ask(shards, session, Set::new(key(name), value), |reply| {
        assert!(matches!(reply, Reply::Stored(_)), "{reply:?}");
    });
}

/// `ml NAME`. Returns whether the lock is granted.
fn acquire(shards: &Shards, session: &mut ShardSession, name: &str) -> bool {
    let acquire = ItemCommand::Acquire(Acquire::new(key(name)));
    ask(shards, session, acquire, |reply| {
        matches!(reply, Reply::Granted(_))
    })
}

#[test]
fn no_two_shards_give_the_same_cas() {
    let shards = shards(8);
    let cas = fill(&shards, &mut session(1));
    assert_eq!(cas.iter().collect::<BTreeSet<_>>().len(), 200);
    assert!(!cas.contains(&0));
}

#[test]
fn keys_of_every_shard_are_listed_once() {
    let mut limits = Limits::default();
    limits.scan_items_max = 7;
    let shards = Shards::new(8, Config::new(limits, 0), nobody_waits());
    let mut one = session(1);
    fill(&shards, &mut one);
    let mut found = Vec::new();
    let mut cursor = Some(ScanCursor::default());
    while let Some(from) = cursor {
        let command = GlobalCommand::Keys(Keys {
            prefix: b"key1",
            cursor: from,
        });
        let page = ask(&shards, &mut one, command, |reply| {
            let Reply::Keys(page) = reply else {
                panic!("{reply:?}")
            };
            let keys = page.items.iter().map(|item| item.key.to_vec());
            let names = keys.map(|key| String::from_utf8(key).unwrap());
            (names.collect::<Vec<_>>(), page.next)
        });
        found.extend(page.0);
        cursor = page.1;
    }
    found.sort();
    let mut wanted = names();
    wanted.retain(|name| name.starts_with("key1"));
    wanted.sort();
    assert_eq!(found, wanted);
}

#[test]
fn a_cursor_past_the_last_shard_is_the_end() {
    let shards = shards(2);
    let command = GlobalCommand::Keys(Keys {
        prefix: b"",
        cursor: ScanCursor(u64::MAX),
    });
    ask(&shards, &mut session(1), command, |reply| {
        assert_eq!(
            reply,
            &Reply::Keys(KeysPage {
                items: Vec::new(),
                next: None
            })
        );
    });
}

#[test]
fn the_limit_of_memory_is_divided_and_changes_in_all_shards_or_none() {
    let shards = shards(8);
    let mut one = session(1);
    fill(&shards, &mut one);
    let all = |shards: &Shards| shards.stats(NOW).gauges.limit_maxbytes >> 20;
    assert_eq!(shards.limit_memory(NOW, 100 << 20), Ok(()));
    assert_eq!(all(&shards), 100);
    let of_shard = *shards.shard(3).limits();
    assert_eq!(of_shard.memory_bytes_max, (100 << 20) / 8);
    assert_eq!(of_shard.locked_bytes_max, (50 << 20) / 8);
    assert_eq!(of_shard.lock_bytes_per_connection_max, (100 << 20) / 8);
    // One that has not two of the largest values, one that no shard has addresses for.
    for (mib, why) in [
        (15, MemoryRefused::TooSmall),
        (300 << 10, MemoryRefused::TooLarge),
    ] {
        assert_eq!(shards.limit_memory(NOW, mib << 20), Err(why));
        assert_eq!(all(&shards), 100);
    }
    // In one of eight shards there is a lock that has more than an eighth of the least.
    let value = vec![b'v'; 1 << 20];
    for name in in_shard(&shards, 5).take(3) {
        store(&shards, &mut one, &name, &value);
        assert!(lock(&shards, &mut one, &name));
    }
    let least = 16 << 20;
    assert_eq!(shards.limit_memory(NOW, least), Err(MemoryRefused::Locked));
    assert_eq!(all(&shards), 100);
    shards.close(NOW, one);
    assert_eq!(shards.limit_memory(NOW, least), Ok(()));
    assert_eq!(all(&shards), 16);
}

/// Two threads read the clock at different moments, so the later thread may have the earlier time.
#[test]
fn a_delayed_flush_is_due_in_every_shard_at_once() {
    let at_ms = Instant::from_millis;
    let shards = shards(8);
    let mut one = session(1);
    fill(&shards, &mut one);
    let is_there = |now, name: &str, session: &mut ShardSession| {
        let get = ItemCommand::Get(Get::new(key(name)));
        ask_at(now, &shards, session, get, |reply| {
            matches!(reply, Reply::Hit(_))
        })
    };
    // One shard is ahead of the others when all of them are flushed.
    is_there(at_ms(400), "key0", &mut one);
    let flush = GlobalCommand::FlushAll {
        at: Exptime::In { seconds: 1 },
    };
    ask(&shards, &mut one, flush, |reply| {
        assert_eq!(reply, &Reply::Ok);
    });
    let names = names();
    assert!(
        names
            .iter()
            .all(|name| is_there(at_ms(999), name, &mut one))
    );
    shards.note_unstored(NOW, Unstored::TooLarge);
    let counted = shards.stats(NOW).counters;
    assert_eq!((counted.cmd_flush, counted.store_too_large), (1, 1));
    let first = names.iter().find(|name| {
        let shard = shards.shard_of(key(name));
        shard != shards.shard_of(key("key0"))
    });
    assert!(!is_there(at_ms(1_000), first.unwrap(), &mut one));
    assert!(
        !names
            .iter()
            .any(|name| is_there(at_ms(999), name, &mut one))
    );
}

/// A tick, a page of keys, or statistics come first when a flush is due.
#[test]
fn whoever_comes_first_when_a_flush_is_due_flushes_every_shard() {
    let at_ms = Instant::from_millis;
    let keys = GlobalCommand::Keys(Keys {
        prefix: b"",
        cursor: ScanCursor::default(),
    });
    let comes: [&dyn Fn(&Shards); 3] = [
        &|shards| {
            shards.tick(at_ms(1_000), 0);
        },
        &|shards| ask_at(at_ms(1_000), shards, &mut session(2), keys, |_| ()),
        &|shards| {
            shards.stats(at_ms(1_000));
        },
    ];
    for (number, come) in comes.into_iter().enumerate() {
        let shards = shards(8);
        fill(&shards, &mut session(1));
        let flush = GlobalCommand::FlushAll {
            at: Exptime::In { seconds: 1 },
        };
        ask(&shards, &mut session(1), flush, |_| ());
        come(&shards);
        let is_pending = |shard| shards.shard(shard).is_flush_due(at_ms(u64::MAX));
        assert!(!(0..8).any(is_pending), "{number}");
    }
}

#[test]
fn shards_are_as_many_as_threads_can_use_and_memory_allows() {
    let limits = |memory_mb: usize| Limits::new(memory_mb << 20, 1 << 20);
    assert_eq!(shard_count(1, &limits(64)), 1);
    assert_eq!(shard_count(4, &limits(64)), 8);
    assert_eq!(shard_count(4, &limits(1024)), 16);
    assert_eq!(shard_count(3, &limits(1024)), 16);
    assert_eq!(shard_count(64, &limits(1 << 20)), 64);
    assert_eq!(shard_count(4, &limits(1)), 1);
}

/// The crawl keeps pace with the store: it is called again at once until nothing is due.
#[test]
fn a_tick_says_whether_there_is_more_to_take_out() {
    let at_s = |seconds: u64| Instant::from_millis(1_000 * seconds);
    let shards = shards(2);
    let mut one = session(1);
    for number in 0..10_000 {
        let name = format!("key{number}");
        let mut set = Set::new(key(&name), b"value");
        set.exptime = Exptime::In { seconds: 10 };
        ask(&shards, &mut one, set, |reply| {
            assert!(matches!(reply, Reply::Stored(_)), "{reply:?}");
        });
    }
    assert!(!shards.tick(at_s(9), 0), "nothing is due");
    let mut ticks = 1;
    while shards.tick(at_s(20), 0) {
        ticks += 1;
    }
    // A thousand of each shard at a time.
    assert!((5..=8).contains(&ticks), "{ticks}");
    assert_eq!(shards.stats(at_s(20)).gauges.curr_items, 0);
}

/// An operator, a time server or a virtual machine sets the wall clock.
#[test]
fn a_wall_clock_that_steps_ends_no_lock_and_no_item() {
    const DAY_S: u64 = 86_400;
    let at_s = |seconds: u64| Instant::from_millis(1_000 * seconds);
    let shards = shards(8);
    let (mut one, mut two) = (session(1), session(2));
    fill(&shards, &mut one);
    assert!(names().iter().all(|name| lock(&shards, &mut one, name)));
    let mut relative = Set::new(key("relative"), b"value");
    relative.exptime = Exptime::In { seconds: 10 };
    let stored = |reply: &Reply<'_>| assert!(matches!(reply, Reply::Stored(_)), "{reply:?}");
    ask(&shards, &mut one, relative, stored);
    // The clock of moment 0, as it is read second by second: years ahead, 1970, a day back and forth.
    let steps = [
        20_000 * DAY_S,
        0,
        40_000 * DAY_S,
        39_999 * DAY_S,
        40_000 * DAY_S,
    ];
    let is_there = |seconds, session: &mut ShardSession| {
        let get = ItemCommand::Get(Get::new(key("relative")));
        ask_at(at_s(seconds), &shards, session, get, |reply| {
            matches!(reply, Reply::Hit(_))
        })
    };
    for (seconds, unix_s_at_start) in (1..).zip(steps) {
        shards.tick(at_s(seconds), unix_s_at_start);
        assert!(!names().iter().any(|name| lock(&shards, &mut two, name)));
        assert!(is_there(seconds, &mut two), "{seconds} s");
        // A date is read by the clock of the moment.
        let mut dated = Set::new(key("dated"), b"value");
        dated.exptime = Exptime::At {
            unix_s: unix_s_at_start + seconds + 5,
        };
        ask_at(at_s(seconds), &shards, &mut two, dated, stored);
        let get = ItemCommand::Get(Get::new(key("dated")));
        ask_at(at_s(seconds + 1), &shards, &mut two, get, |reply| {
            assert!(matches!(reply, Reply::Hit(_)), "{seconds} s: {reply:?}");
        });
    }
    assert!(!is_there(11, &mut two), "it has had its ten seconds");
    shards.close(at_s(12), one);
    assert!(names().iter().all(|name| lock(&shards, &mut two, name)));
}

/// A client is charged for the copy of a value before its shard is locked, and for the values that the store adds and removes.
#[test]
fn moved_bytes_are_charged_to_the_client() {
    let (shards, mut client) = (shards(1), session(1));
    let large = vec![b'v'; 200 << 10];
    let mut work_of = |set: Set<'_>| {
        ask(&shards, &mut client, set, |reply| {
            assert!(matches!(reply, Reply::Stored(_)), "{reply:?}");
        });
        client.take_work()
    };
    assert_eq!(work_of(Set::new(key("small"), b"v")), 0);
    assert_eq!(work_of(Set::new(key("large"), &large)), 100 + 100);
    let mode = SetMode::Append {
        missing: OnMissing::Refuse,
    };
    let append = Set {
        mode,
        ..Set::new(key("large"), b"v")
    };
    assert_eq!(work_of(append), 100 + 100);
    assert_eq!(work_of(Set::new(key("large"), b"v")), 100);
    let in_log_max = shards.value_bytes_in_log_max;
    assert_eq!(work_of(Set::new(key("log"), &large[..in_log_max])), 0);
    assert!(work_of(Set::new(key("own"), &large[..=in_log_max])) > 0);
}

/// The store shares the buffer in which a large value has arrived.
#[test]
fn large_value_is_not_copied() {
    let (shards, mut client) = (shards(1), session(1));
    let request = Bytes::from(vec![b'v'; 1 << 20]);
    client.keep_in(Some(request.clone()));
    ask(&shards, &mut client, Set::new(key("k"), &request), |_| ());
    client.keep_in(None);
    let get = ItemCommand::Get(Get::new(key("k")));
    let stored_at = ask(&shards, &mut client, get, |reply| {
        let Reply::Hit(hit) = reply else {
            panic!("{reply:?}")
        };
        hit.value.as_ptr()
    });
    assert_eq!(stored_at, request.as_ptr());
}

#[test]
fn hashes_are_seeded_at_random() {
    assert_ne!(random_seed(), random_seed());
}

/// D5
#[test]
fn a_crowd_is_notified_in_turn_a_few_at_a_time() {
    let mailboxes: Arc<[Mailbox]> = Arc::new([Mailbox::new().unwrap()]);
    let waiters = Arc::new(Waiters::new(Arc::clone(&mailboxes), false));
    let shards = Shards::new(4, Config::new(Limits::default(), 0), Arc::clone(&waiters));
    let get = Get {
        steps: TtlSteps::one(TtlStep::Vivify(Exptime::In { seconds: 600 })),
        recaches: true,
        ..Get::new(key("k"))
    };
    let mut winner = session(1);
    let ask_for = |session: &mut ShardSession, get| {
        ask(&shards, session, ItemCommand::Get(get), |reply| {
            matches!(reply, Reply::Waits)
        })
    };
    assert!(!ask_for(&mut winner, get));
    let patient = Get {
        wait_ms: 60_000,
        ..get
    };
    let mut crowd: Vec<_> = (10..160).map(session).collect();
    assert!(crowd.iter_mut().all(|one| ask_for(one, patient)));
    waiters.forget_deadline();
    ask(&shards, &mut winner, Set::new(key("k"), b"v"), |_| ());
    let mut notified = Vec::new();
    // The clock notifies all others, and may come once more.
    for due in [64, 86] {
        assert_eq!(waiters.deadline(), Some(NOW), "the clock comes at once");
        let messages = mailboxes[0].take();
        assert_eq!(messages.len(), due);
        notified.extend(messages.into_iter().map(|message| {
            let Message::WaitEnded(name, Outcome::Granted) = message else {
                panic!("{message:?}")
            };
            name
        }));
        waiters.forget_deadline();
        shards.pass(NOW);
    }
    assert!(
        notified.iter().copied().eq(10..160),
        "in turn: {notified:?}"
    );
    assert_eq!(waiters.deadline(), None);
    assert!(mailboxes[0].take().is_empty());
}

/// The lines of all pages of a topic, each page of at most 64.
fn pages(
    shards: &Shards,
    session: &mut ShardSession,
    topic: impl Fn(ScanCursor) -> StatsTopic,
) -> Vec<StatsLine> {
    let mut shown = Vec::new();
    let mut at = Some(ScanCursor::default());
    while let Some(from) = at {
        let page = GlobalCommand::Stats(topic(from));
        let (lines, next) = ask(shards, session, page, |reply| {
            let Reply::Stats(report) = reply else {
                panic!("{reply:?}")
            };
            (report.lines.to_vec(), report.next)
        });
        assert!(lines.len() <= 64);
        shown.extend(lines);
        at = next;
    }
    shown
}

/// Prefixes with the sums of all shards, and locks up to their bound.
#[test]
fn lists_of_statistics_come_in_pages() {
    let shards = Shards::new(
        4,
        Config::new(Limits::default(), 0).detailed(b':'),
        nobody_waits(),
    );
    let mut one = session(1);
    for number in 0..2_000 {
        let name = format!("p{}:{number}", number % 500);
        ask(&shards, &mut one, Get::new(key(&name)), |_| ());
    }
    let shown = pages(&shards, &mut one, StatsTopic::Detail);
    let mut found: Vec<_> = shown.iter().map(|line| line.name.to_string()).collect();
    found.sort();
    let mut expected: Vec<_> = (0..500).map(|number| format!("p{number}")).collect();
    expected.sort();
    assert_eq!(found, expected);
    let counted = |line: &StatsLine| line.value.starts_with("get 4 hit 0 ");
    assert!(shown.iter().all(counted), "{shown:?}");

    for (locks, lines) in [(500, 500), (1_500, LOCK_LINES_MAX)] {
        for number in 0..locks {
            acquire(&shards, &mut one, &format!("p{number}"));
        }
        let shown = pages(&shards, &mut one, StatsTopic::Locks);
        assert_eq!(shown.len(), lines);
        let names: BTreeSet<_> = shown.iter().map(|line| &line.name).collect();
        assert_eq!(names.len(), lines, "each is shown once");
    }
}

/// The clock unmarks the items of an owner that has ended, a thousand in each turn, also if no client waits for one.
#[test]
fn items_of_many_ended_locks_are_unmarked_in_turns() {
    let shards = shards(4);
    let mut holder = session(1);
    for number in 0..5_000 {
        let name = format!("key{number}");
        store(&shards, &mut holder, &name, b"v");
        assert!(lock(&shards, &mut holder, &name));
    }
    let locked_bytes = || shards.stats(NOW).gauges.locked_bytes;
    assert!(locked_bytes() > 0);
    shards.waiters.forget_deadline();
    shards.close(NOW, holder);
    let mut turns = 0;
    while let Some(at) = shards.waiters.deadline() {
        assert_eq!(at, Instant::from_millis(turns + 1), "the clock comes soon");
        shards.waiters.forget_deadline();
        shards.pass(at);
        turns += 1;
    }
    assert!((5..=6).contains(&turns), "{turns}");
    assert_eq!(locked_bytes(), 0);
}

/// A plain command about a key that is neither marked nor noted does not lock the manager, whatever is locked beside it.
#[test]
fn unmarked_keys_never_reach_the_manager() {
    let shards = shards(2);
    let (mut holder, mut other) = (session(1), session(2));
    store(&shards, &mut holder, "locked", b"value");
    assert!(lock(&shards, &mut holder, "locked"));
    assert!(acquire(&shards, &mut holder, "without an item"));
    assert!(held::win(0, &shards, &mut holder, "won"));
    let before = shards.manager_locks.load(Ordering::Relaxed);
    for name in names() {
        let set = || Set::new(key(&name), b"1");
        let add = Set {
            mode: SetMode::Add,
            ..set()
        };
        ask(&shards, &mut other, Get::new(key(&name)), |_| ());
        ask(&shards, &mut other, add, |_| ());
        ask(&shards, &mut other, set(), |_| ());
        ask(&shards, &mut other, Get::new(key(&name)), |_| ());
        ask(&shards, &mut other, Delete::new(key(&name)), |_| ());
    }
    // Neither does a read of an item that is locked, or whose win is out.
    assert_eq!(shards.manager_locks.load(Ordering::Relaxed), before);
    ask(
        &shards,
        &mut other,
        Get::new(key("without an item")),
        |_| (),
    );
    assert!(shards.manager_locks.load(Ordering::Relaxed) > before);
}

/// A connection with locks in several shards counts once, and no longer after its end.
#[test]
fn holders_are_counted_once_over_all_shards() {
    let shards = shards(8);
    let count_all = || shards.stats(NOW).gauges.lock_holders;
    let mut holders: Vec<_> = (1..101).map(session).collect();
    for holder in &mut holders {
        for lock in 0..12 {
            let name = format!("{}-{lock}", holder.conn().number());
            assert!(acquire(&shards, holder, &name));
        }
    }
    assert_eq!(count_all(), 100);
    for holder in holders.drain(30..) {
        shards.close(NOW, holder);
    }
    assert_eq!(count_all(), 30);
    for holder in &mut holders {
        ask(&shards, holder, GlobalCommand::UnlockAll, |_| ());
    }
    assert_eq!(count_all(), 0);
}
