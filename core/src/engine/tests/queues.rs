//! Any sequence of requests, ends and time, beside a list of who should hold what and who should wait.

use alloc::collections::VecDeque;
use alloc::vec;
use core::num::NonZeroU32;

use quickcheck::{Arbitrary, Gen, quickcheck};

use super::*;
use crate::command::{Acquire, Lease, Mode, Release, Wait};
use crate::wait::Outcome;

const CONNS: u64 = 5;
const KEYS: [&str; 3] = ["a", "b", "c"];
const CONN_OF_NOBODY: ConnId = ConnId::from_number(u64::MAX);

/// Something happens.
#[derive(Clone, Copy, Debug)]
enum Happens {
    /// Somebody asks for a lock, with or without others and a lease, and waits so long.
    Asks {
        conn: u64,
        key: usize,
        mode: Mode,
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
                mode: match u8::arbitrary(g) % 6 {
                    0..=2 => Mode::Exclusive,
                    3 => Mode::Shared { among: None },
                    among => Mode::Shared {
                        among: NonZeroU32::new(u32::from(among) - 3),
                    },
                },
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

/// Who holds a key: in which mode, until when.
#[derive(Clone, Copy, Debug)]
struct Holds {
    conn: ConnId,
    mode: Mode,
    until: Option<u64>,
}

/// Who waits for a key: in which mode, with what lease, until when.
#[derive(Clone, Copy, Debug)]
struct Waits {
    conn: ConnId,
    mode: Mode,
    lease_ms: Option<u64>,
    until: u64,
}

/// Who holds a key, in the order of the grants, and who waits for it, in that of arrival.
#[derive(Clone, Debug, Default)]
struct Line {
    held: Vec<Holds>,
    waits: VecDeque<Waits>,
}

impl Line {
    /// Whether the lock can be had in this mode, by one whose turn it is.
    fn fits(&self, mode: Mode) -> bool {
        let modes = self.held.iter().map(|it| it.mode);
        let among = modes.map(Mode::among).fold(mode.among(), u32::min);
        let all_share = mode.is_shared() && self.held.iter().all(|it| it.mode.is_shared());
        self.held.is_empty() || all_share && self.held.len() < among as usize
    }

    fn of(&self, conn: ConnId) -> Option<&Holds> {
        self.held.iter().find(|it| it.conn == conn)
    }
}

/// What should be, by the rules and nothing else.
#[derive(Clone, Default)]
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
            for key in 0..KEYS.len() {
                let line = &mut self.by_key[key];
                let is_over = |until: u64| until <= now_ms;
                for wait in line.waits.iter().filter(|wait| is_over(wait.until)) {
                    self.told.push((wait.conn, Outcome::TimedOut));
                }
                line.waits.retain(|wait| !is_over(wait.until));
                line.held.retain(|it| !it.until.is_some_and(is_over));
                self.hands_over(key);
            }
        }
    }

    /// Whoever comes first is given what he can have.
    fn hands_over(&mut self, key: usize) {
        let line = &mut self.by_key[key];
        while let Some(first) = line.waits.front().copied()
            && line.fits(first.mode)
        {
            line.waits.pop_front();
            line.held.push(Holds {
                conn: first.conn,
                mode: first.mode,
                until: first.lease_ms.map(|ms| self.now_ms + ms),
            });
            self.told.push((first.conn, Outcome::Granted));
        }
    }

    fn frees(&mut self, key: usize, conn: ConnId) {
        self.by_key[key].held.retain(|it| it.conn != conn);
        self.hands_over(key);
    }

    fn frees_all(&mut self, conn: ConnId) {
        for key in 0..KEYS.len() {
            self.frees(key, conn);
        }
    }

    fn waits_for(&self, conn: ConnId) -> Option<usize> {
        let waits = |line: &Line| line.waits.iter().any(|wait| wait.conn == conn);
        self.by_key.iter().position(waits)
    }

    /// Whether one who waited for `key` would do so in vain, though all others gave back what they have as soon as they
    /// could.
    fn is_in_vain(&self, conn: ConnId, key: usize, mode: Mode) -> bool {
        let mut lines = self.clone();
        lines.by_key[key].waits.push_back(Waits {
            conn,
            mode,
            lease_ms: None,
            until: u64::MAX,
        });
        loop {
            let told = lines.told.len();
            let free: Vec<ConnId> = lines
                .by_key
                .iter()
                .flat_map(|line| &line.held)
                .map(|it| it.conn)
                .collect();
            for conn in free
                .into_iter()
                .filter(|it| lines.waits_for(*it).is_none())
                .collect::<Vec<_>>()
            {
                lines.frees_all(conn);
            }
            if lines.waits_for(conn).is_none() {
                return false;
            }
            if lines.told.len() == told {
                return true;
            }
        }
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
                mode,
                lease_ms,
                wait_ms,
            } => {
                let conn = conns[usize::try_from(conn).unwrap()];
                if lines.waits_for(conn).is_some() {
                    continue;
                }
                let acquire = Acquire {
                    mode,
                    lease: lease_ms.map(|ms| Lease::For { ms }),
                    wait: Wait::UpTo { ms: wait_ms },
                    ..Acquire::new(key(KEYS[at]))
                };
                let reply = core.execute(now, conn, ItemCommand::Acquire(acquire).into());
                let until = lease_ms.map(|ms| lines.now_ms + ms);
                let line = &mut lines.by_key[at];
                let own = line.of(conn).copied();
                if let Some(own) = own
                    && own.mode.is_shared() == mode.is_shared()
                    && until.is_some()
                {
                    assert!(matches!(reply, Reply::Granted(_)), "it renews");
                    let mut held = line.held.iter_mut();
                    held.find(|it| it.conn == conn).unwrap().until = until;
                } else if own.is_none() && line.waits.is_empty() && line.fits(mode) {
                    assert!(matches!(reply, Reply::Granted(_)), "it is free");
                    line.held.push(Holds { conn, mode, until });
                } else {
                    let holder = line.held[0].conn;
                    let would_wait = wait_ms > 0;
                    match reply {
                        Reply::Waits => {
                            assert!(own.is_none() && would_wait);
                            assert!(!lines.is_in_vain(conn, at, mode), "it is a deadlock");
                            lines.by_key[at].waits.push_back(Waits {
                                conn,
                                mode,
                                lease_ms,
                                until: lines.now_ms + wait_ms,
                            });
                        }
                        Reply::WouldDeadlock(seen) => {
                            assert!(would_wait);
                            let is_due = own.is_some() || lines.is_in_vain(conn, at, mode);
                            assert!(is_due, "it is none");
                            assert_eq!(seen.holder, holder);
                        }
                        Reply::Contended(seen) => {
                            assert!(!would_wait);
                            assert_eq!(seen.holder, holder);
                            assert_eq!(seen.waiting, line.waits.len());
                        }
                        other => panic!("{other:?}"),
                    }
                }
            }
            Happens::GivesBack { conn, key: at } => {
                let conn = conns[usize::try_from(conn).unwrap()];
                let release = Release::new(key(KEYS[at]));
                let reply = core.execute(now, conn, ItemCommand::Release(release).into());
                if lines.by_key[at].of(conn).is_some() {
                    assert_eq!(reply, Reply::Unlocked);
                    lines.frees(at, conn);
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
                    line.waits.retain(|wait| wait.conn != conn);
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
        // As a command about it does.
        core.would_contend(now, CONN_OF_NOBODY, &Acquire::new(key(name)));
        let held: Vec<_> = core.locks().holders_of(key(name)).collect();
        let should = line.held.iter().map(|it| (it.conn, it.mode.among()));
        assert_eq!(held, should.collect::<Vec<_>>(), "who holds {name}");
        let waits: Vec<_> = core.waits().queue(key(name)).map(|it| it.0).collect();
        let should: Vec<_> = line.waits.iter().map(|wait| wait.conn).collect();
        assert_eq!(waits, should, "who waits for {name}");
        for it in &line.held {
            let until = core.locks().held_as(key(name), it.conn);
            let until = until.and_then(|it| it.lease_until);
            let until = until.map(Instant::as_millis);
            assert_eq!(until, it.until, "how long {name} is held");
        }
    }
    let mut told = vec![];
    while let Some(notice) = core.next_notice() {
        // They are told, and ask no more.
        if notice.outcome == Outcome::Granted {
            for name in KEYS {
                core.locks.set_untold(key(name), notice.conn, false);
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
