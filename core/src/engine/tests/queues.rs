//! Random sequences of requests, ends and time, compared with a plain list of holders and waiters.

mod lines;

use alloc::vec;
use core::num::NonZeroU32;

use latchd_protocol::command::{Acquire, Lease, Mode, Release, Wait};
use latchd_protocol::wait::Outcome;
use lines::{Bound, Bounds, Holds, Lines, Waits};
use quickcheck::{Arbitrary, Gen, quickcheck};

use super::*;

const CONNS: u64 = 5;
const KEYS: [&str; 3] = ["a", "b", "c"];

/// Asks for a lock, with or without others and a lease, and waits so long.
#[derive(Clone, Copy, Debug)]
struct Asked {
    at: usize,
    mode: Mode,
    lease_ms: Option<u64>,
    wait_ms: u64,
}

/// Something happens.
#[derive(Clone, Copy, Debug)]
enum Happens {
    Asks {
        owner: u64,
        asked: Asked,
    },
    GivesBack {
        owner: u64,
        key: usize,
    },
    GivesAllBack {
        owner: u64,
    },
    /// And comes again, as another.
    Ends {
        owner: u64,
    },
    Passes {
        ms: u64,
    },
    Ticks,
}

impl Arbitrary for Happens {
    fn arbitrary(g: &mut Gen) -> Self {
        let owner = u64::arbitrary(g) % CONNS;
        let key = usize::arbitrary(g) % KEYS.len();
        match u8::arbitrary(g) % 16 {
            0..=7 => {
                let mode = match u8::arbitrary(g) % 6 {
                    0..=2 => Mode::Exclusive,
                    3 => Mode::Shared { max_sharers: None },
                    max_sharers => Mode::Shared {
                        max_sharers: NonZeroU32::new(u32::from(max_sharers) - 3),
                    },
                };
                let asked = Asked {
                    at: key,
                    mode,
                    lease_ms: bool::arbitrary(g).then(|| 10 + u64::arbitrary(g) % 40),
                    wait_ms: u64::arbitrary(g) % 60,
                };
                Self::Asks { owner, asked }
            }
            8..=11 => Self::GivesBack { owner, key },
            12 => Self::GivesAllBack { owner },
            13 => Self::Ends { owner },
            14 => Self::Passes {
                ms: u64::arbitrary(g) % 30,
            },
            _ => Self::Ticks,
        }
    }
}

/// Asks, and compares the answer.
fn ask(core: &mut Core, lines: &mut Lines, owner: Owner, asked: Asked) {
    let Asked {
        at,
        mode,
        lease_ms,
        wait_ms,
    } = asked;
    let acquire = Acquire {
        mode,
        lease: lease_ms.map(|ms| Lease::For { ms }),
        wait: Wait::UpTo { ms: wait_ms },
        ..Acquire::new(key(KEYS[at]))
    };
    let now = Instant::from_millis(lines.now_ms);
    let reply = core.execute(now, owner, &ItemCommand::Acquire(acquire).into());
    let until = lease_ms.map(|ms| lines.end_ms(ms));
    let own = lines.by_key[at].of(owner).copied();
    if let Some(own) = own
        && own.mode.is_shared() == mode.is_shared()
        && until.is_some()
    {
        assert!(matches!(reply, Reply::Granted(_)), "it renews");
        let mut held = lines.by_key[at].held.iter_mut();
        held.find(|it| it.owner == owner).unwrap().until = until;
    } else if own.is_none() && lines.by_key[at].waits.is_empty() && lines.by_key[at].fits(mode) {
        if lines.may_have(owner, at) {
            assert!(matches!(reply, Reply::Granted(_)), "it is free");
            let line = &mut lines.by_key[at];
            line.held.push(Holds { owner, mode, until });
        } else {
            assert_eq!(reply, Reply::Refused(Refusal::TooManyLocks));
        }
    } else if wait_ms == 0 {
        let Reply::Contended(seen) = reply else {
            panic!("{reply:?}");
        };
        assert_eq!(seen.holder, lines.by_key[at].held[0].owner);
        assert_eq!(seen.waiting, lines.by_key[at].waits.len());
    } else if own.is_some() || lines.is_in_vain(owner, at, mode) {
        let Reply::WouldDeadlock(seen) = reply else {
            panic!("{reply:?}");
        };
        assert_eq!(seen.holder, lines.by_key[at].held[0].owner);
    } else if lines.may_wait(owner, at) {
        assert_eq!(reply, Reply::Waits);
        let wait_ms = lines.wait_ms(wait_ms);
        let until = lines.end_ms(wait_ms);
        lines.by_key[at].waits.push_back(Waits {
            owner,
            mode,
            lease_ms,
            until,
        });
    } else {
        assert_eq!(reply, Reply::Refused(Refusal::TooManyLocks));
    }
}

/// Plays the events, removes a few ended locks at a time, and compares after each. Returns the bounds that were
/// reached.
fn play(all: &[Happens], settled_max: usize, bounds: Bounds) -> Vec<Bound> {
    let mut core = Core::new(config(1 << 20));
    core.change_limits(|limits| limits.locks_settled_max = settled_max);
    core.change_limits(|limits| limits.locks_per_connection_max = bounds.locks);
    core.change_limits(|limits| limits.sharers_per_key_max = bounds.sharers);
    core.change_limits(|limits| limits.waits_per_key_max = bounds.waits_of_key);
    core.change_limits(|limits| limits.waits_max = bounds.waits);
    core.change_limits(|limits| limits.wait_ms_max = bounds.wait_ms);
    let mut owners: Vec<Owner> = (0..CONNS).map(Owner::from_number).collect();
    let mut lines = Lines::new(bounds);
    for owner in &owners {
        core.handle(Instant::default(), Event::Opened(*owner));
    }
    for happens in all {
        let now = Instant::from_millis(lines.now_ms);
        match *happens {
            Happens::Asks { owner, asked } => {
                let owner = owners[usize::try_from(owner).unwrap()];
                if lines.waits_for(owner).is_none() {
                    ask(&mut core, &mut lines, owner, asked);
                }
            }
            Happens::GivesBack { owner, key: at } => {
                let owner = owners[usize::try_from(owner).unwrap()];
                let release = Release::new(key(KEYS[at]));
                let reply = core.execute(now, owner, &ItemCommand::Release(release).into());
                if lines.by_key[at].of(owner).is_some() {
                    assert_eq!(reply, Reply::Unlocked);
                    lines.frees(at, owner);
                } else {
                    assert_eq!(reply, Reply::NotFound);
                }
            }
            Happens::GivesAllBack { owner } => {
                let owner = owners[usize::try_from(owner).unwrap()];
                core.execute(now, owner, &GlobalCommand::UnlockAll.into());
                lines.frees_all(owner);
            }
            Happens::Ends { owner: number } => {
                let number = usize::try_from(number).unwrap();
                let next =
                    Owner::from_number(owners.iter().map(|it| it.number()).max().unwrap() + 1);
                let owner = core::mem::replace(&mut owners[number], next);
                core.handle(now, Event::Closed(owner));
                core.handle(now, Event::Opened(next));
                for line in &mut lines.by_key {
                    line.waits.retain(|wait| wait.owner != owner);
                }
                lines.frees_all(owner);
            }
            Happens::Passes { ms } => {
                let until_ms = lines.now_ms + ms;
                // As a transport does that is on time.
                while let Some(at) = core.next_deadline()
                    && at.as_millis() <= until_ms
                {
                    lines.pass(at.as_millis());
                    core.handle(at, Event::Due);
                }
                lines.pass(until_ms);
                core.handle(Instant::from_millis(until_ms), Event::Due);
            }
            Happens::Ticks => core.handle(now, Event::Tick),
        }
        core.check();
        compare(&mut core, &mut lines);
    }
    lines.met
}

/// Both must say the same, once all is handed over that there is to.
fn compare(core: &mut Core, lines: &mut Lines) {
    let now = Instant::from_millis(lines.now_ms);
    for (name, line) in KEYS.iter().zip(&lines.by_key) {
        // As a command about it does.
        core.advance(now);
        core.step(key(name)).update(key(name));
        let held: Vec<_> = core.locks().holders_of(key(name)).collect();
        let should = line.held.iter().map(|it| (it.owner, it.mode.max_sharers()));
        assert_eq!(held, should.collect::<Vec<_>>(), "who holds {name}");
        let waits: Vec<_> = core.waits().queue(key(name)).map(|it| it.0).collect();
        let should: Vec<_> = line.waits.iter().map(|wait| wait.owner).collect();
        assert_eq!(waits, should, "who waits for {name}");
        for it in &line.held {
            let until = core.locks().held_as(key(name), it.owner);
            let until = until.and_then(|it| it.lease_until);
            let until = until.map(Instant::as_millis);
            assert_eq!(until, it.until, "how long {name} is held");
        }
    }
    let mut notices = vec![];
    while let Some(notice) = core.poll().and_then(Notification::wait_over) {
        // Each gets its notice, and asks no more.
        if notice.outcome == Outcome::Granted {
            for name in KEYS {
                core.manager
                    .locks
                    .table
                    .set_unacknowledged(key(name), notice.owner, false);
            }
        }
        notices.push((notice.owner, notice.outcome));
    }
    let order = |notices: &mut Vec<(Owner, Outcome)>| notices.sort_by_key(|it| it.0);
    order(&mut notices);
    order(&mut lines.notices);
    assert_eq!(notices, lines.notices, "the notices");
    lines.notices.clear();
}

quickcheck! {
    /// Q2, Q6 to Q10: for any events and any bounds, however few ended locks are removed at a time.
    fn locks_go_to_the_longest_waiter(all: Vec<Happens>, updates_few: bool, bounds: Bounds) -> bool {
        play(&all, if updates_few { 1 } else { 16 }, bounds);
        true
    }
}

#[test]
fn each_bound_of_waits_is_met() {
    let mut met = vec![];
    for seed in 0..200 {
        let mut random = Gen::from_size_and_seed(100, seed);
        let bounds = Bounds::arbitrary(&mut random);
        met.extend(play(&Vec::arbitrary(&mut random), 16, bounds));
    }
    for bound in Bound::ALL {
        let times = met.iter().filter(|one| **one == bound).count();
        assert!(times >= 10, "{bound:?} was met {times} times");
    }
}
