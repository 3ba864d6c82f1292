//! Any sequence of requests, ends and time, beside a list of who should hold what and who should wait.

use alloc::collections::VecDeque;
use alloc::vec;

use quickcheck::{Arbitrary, Gen, quickcheck};

use super::*;
use crate::command::{Acquire, Lease, Release, Wait};
use crate::wait::Outcome;

const CONNS: u64 = 5;
const KEYS: [&str; 3] = ["a", "b", "c"];

/// Something happens.
#[derive(Clone, Copy, Debug)]
enum Happens {
    /// Somebody asks for a lock, with or without a lease, and waits so long.
    Asks {
        conn: u64,
        key: usize,
        lease_ms: Option<u64>,
        wait_ms: u64,
    },
    GivesBack {
        conn: u64,
        key: usize,
    },
    GivesAllBack {
        conn: u64,
    },
    /// And comes again, as another.
    Ends {
        conn: u64,
    },
    Passes {
        ms: u64,
    },
    Ticks,
}

impl Arbitrary for Happens {
    fn arbitrary(g: &mut Gen) -> Self {
        let conn = u64::arbitrary(g) % CONNS;
        let key = usize::arbitrary(g) % KEYS.len();
        match u8::arbitrary(g) % 16 {
            0..=7 => Self::Asks {
                conn,
                key,
                lease_ms: bool::arbitrary(g).then(|| 10 + u64::arbitrary(g) % 40),
                wait_ms: u64::arbitrary(g) % 60,
            },
            8..=11 => Self::GivesBack { conn, key },
            12 => Self::GivesAllBack { conn },
            13 => Self::Ends { conn },
            14 => Self::Passes {
                ms: u64::arbitrary(g) % 30,
            },
            _ => Self::Ticks,
        }
    }
}

/// Who holds a key, until when, and who waits for it: with what lease, until when.
#[derive(Clone, Debug, Default)]
struct Line {
    held: Option<(ConnId, Option<u64>)>,
    waits: VecDeque<(ConnId, Option<u64>, u64)>,
}

/// What should be, by the rules and nothing else.
#[derive(Default)]
struct Lines {
    now_ms: u64,
    by_key: [Line; KEYS.len()],
    told: Vec<(ConnId, Outcome)>,
}

impl Lines {
    /// What time ends, moment by moment, as if somebody looked at each.
    fn pass(&mut self, until_ms: u64) {
        while self.now_ms < until_ms {
            self.now_ms += 1;
            let now_ms = self.now_ms;
            for line in &mut self.by_key {
                let is_over = |until: u64| until <= now_ms;
                for (conn, _, _) in line.waits.iter().filter(|wait| is_over(wait.2)) {
                    self.told.push((*conn, Outcome::TimedOut));
                }
                line.waits.retain(|wait| !is_over(wait.2));
            }
            for key in 0..KEYS.len() {
                let lease = self.by_key[key].held.and_then(|held| held.1);
                if lease.is_some_and(|until| until <= now_ms) {
                    self.frees(key);
                }
            }
        }
    }

    fn frees(&mut self, key: usize) {
        let line = &mut self.by_key[key];
        line.held = None;
        if let Some((conn, lease_ms, _)) = line.waits.pop_front() {
            line.held = Some((conn, lease_ms.map(|ms| self.now_ms + ms)));
            self.told.push((conn, Outcome::Granted));
        }
    }

    fn frees_all(&mut self, conn: ConnId) {
        for key in 0..KEYS.len() {
            if self.by_key[key].held.is_some_and(|held| held.0 == conn) {
                self.frees(key);
            }
        }
    }

    fn waits_for(&self, conn: ConnId) -> Option<usize> {
        let waits = |line: &Line| line.waits.iter().any(|wait| wait.0 == conn);
        self.by_key.iter().position(waits)
    }

    /// Whether one who waited for `key` would wait for himself.
    fn is_circle(&self, conn: ConnId, key: usize) -> bool {
        let mut next = Some(key);
        while let Some((holder, _)) = next.and_then(|key| self.by_key[key].held) {
            if holder == conn {
                return true;
            }
            next = self.waits_for(holder);
        }
        false
    }
}

/// Plays what happens, a few locks let go of at a time, and compares after each.
fn play(all: &[Happens], settled_max: usize) {
    let mut core = Core::new(config(1 << 20));
    core.limits.locks_settled_max = settled_max;
    let mut conns: Vec<ConnId> = (0..CONNS).map(ConnId::from_number).collect();
    let mut lines = Lines::default();
    for conn in &conns {
        core.handle(Instant::default(), Event::Opened(*conn));
    }
    for happens in all {
        let now = Instant::from_millis(lines.now_ms);
        match *happens {
            Happens::Asks {
                conn,
                key: at,
                lease_ms,
                wait_ms,
            } => {
                let conn = conns[usize::try_from(conn).unwrap()];
                if lines.waits_for(conn).is_some() {
                    continue;
                }
                let acquire = Acquire {
                    lease: lease_ms.map(|ms| Lease::For { ms }),
                    wait: Wait::UpTo { ms: wait_ms },
                    ..Acquire::new(key(KEYS[at]))
                };
                let reply = core.execute(now, conn, ItemCommand::Acquire(acquire).into());
                let until = lease_ms.map(|ms| lines.now_ms + ms);
                match lines.by_key[at].held {
                    None => {
                        assert!(matches!(reply, Reply::Granted(_)), "it is free");
                        lines.by_key[at].held = Some((conn, until));
                    }
                    Some((holder, _)) if holder == conn && until.is_some() => {
                        assert!(matches!(reply, Reply::Granted(_)), "it renews");
                        lines.by_key[at].held = Some((conn, until));
                    }
                    Some((holder, _)) => match reply {
                        Reply::Waits => {
                            assert!(wait_ms > 0 && !lines.is_circle(conn, at));
                            let wait = (conn, lease_ms, lines.now_ms + wait_ms);
                            lines.by_key[at].waits.push_back(wait);
                        }
                        Reply::WouldDeadlock(seen) => {
                            assert!(wait_ms > 0 && lines.is_circle(conn, at));
                            assert_eq!(seen.holder, holder);
                        }
                        Reply::Contended(seen) => {
                            assert_eq!(wait_ms, 0);
                            assert_eq!(seen.holder, holder);
                            assert_eq!(seen.waiting, lines.by_key[at].waits.len());
                        }
                        other => panic!("{other:?}"),
                    },
                }
            }
            Happens::GivesBack { conn, key: at } => {
                let conn = conns[usize::try_from(conn).unwrap()];
                let release = Release::new(key(KEYS[at]));
                let reply = core.execute(now, conn, ItemCommand::Release(release).into());
                if lines.by_key[at].held.is_some_and(|held| held.0 == conn) {
                    assert_eq!(reply, Reply::Unlocked);
                    lines.frees(at);
                } else {
                    assert_eq!(reply, Reply::NotFound);
                }
            }
            Happens::GivesAllBack { conn } => {
                let conn = conns[usize::try_from(conn).unwrap()];
                core.execute(now, conn, GlobalCommand::UnlockAll.into());
                lines.frees_all(conn);
            }
            Happens::Ends { conn: number } => {
                let number = usize::try_from(number).unwrap();
                let next =
                    ConnId::from_number(conns.iter().map(|it| it.number()).max().unwrap() + 1);
                let conn = core::mem::replace(&mut conns[number], next);
                core.handle(now, Event::Closed(conn));
                core.handle(now, Event::Opened(next));
                for line in &mut lines.by_key {
                    line.waits.retain(|wait| wait.0 != conn);
                }
                lines.frees_all(conn);
            }
            Happens::Passes { ms } => {
                let until_ms = lines.now_ms + ms;
                // As a transport does that is on time.
                while let Some(at) = core.next_deadline()
                    && at.as_millis() <= until_ms
                {
                    lines.pass(at.as_millis());
                    core.pass(at);
                }
                lines.pass(until_ms);
                core.pass(Instant::from_millis(until_ms));
            }
            Happens::Ticks => core.handle(now, Event::Tick),
        }
        core.check();
        compare(&mut core, &mut lines);
    }
}

/// Both must say the same, once all is handed over that there is to.
fn compare(core: &mut Core, lines: &mut Lines) {
    let now = Instant::from_millis(lines.now_ms);
    for (name, line) in KEYS.iter().zip(&lines.by_key) {
        let held = line.held.map(|held| held.0);
        assert_eq!(core.holder(now, key(name)), held, "who holds {name}");
        let waits: Vec<_> = core.waits().queue(key(name)).map(|it| it.0).collect();
        let should: Vec<_> = line.waits.iter().map(|wait| wait.0).collect();
        assert_eq!(waits, should, "who waits for {name}");
        let until = core
            .locks()
            .in_force(key(name))
            .and_then(|it| it.lease_until);
        let should = line.held.and_then(|held| held.1);
        assert_eq!(
            until.map(Instant::as_millis),
            should,
            "how long {name} is held"
        );
    }
    let mut told = vec![];
    while let Some(notice) = core.next_notice() {
        // They are told, and ask no more.
        if notice.outcome == Outcome::Granted {
            let held = core.locks.iter();
            let held = held.filter(|(_, it)| it.owner == notice.conn && it.is_untold);
            let names: Vec<_> = held.map(|(name, _)| name.as_bytes().to_vec()).collect();
            for name in names {
                core.locks.set_untold(Key::new(&name).unwrap(), false);
            }
        }
        told.push((notice.conn, notice.outcome));
    }
    let order = |told: &mut Vec<(ConnId, Outcome)>| told.sort_by_key(|it| it.0);
    order(&mut told);
    order(&mut lines.told);
    assert_eq!(told, lines.told, "who is told");
    lines.told.clear();
}

quickcheck! {
    /// Q2, Q6 to Q10: whatever happens, and however few locks are let go of at a time.
    fn locks_go_to_who_has_waited_for_longest(all: Vec<Happens>, settles_few: bool) -> bool {
        play(&all, if settles_few { 1 } else { 16 });
        true
    }
}
