//! The engine against the oracle, on random sequences of operations.
//!
//! `TEST_SEQUENCES` is the number of sequences for each property (default: 16,000), and
//! `TEST_SEED` the start of their random numbers.

use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use latchd_core::Limits;
use latchd_core::engine::{Config, Core};
use latchd_core::store::{MapStore, Store};
use latchd_harness::alphabet::limits::{LOG_SEGMENT_BYTES, ample, scarce, scarce_for_log};
use latchd_harness::alphabet::{
    ClientNumber, Op, Pairs, ReplyKind, RequestKind, SmallKey, SmallRequest, SmallSet, SmallValue,
    UNIX_S_AT_START, needs_bound, needs_log,
};
use latchd_harness::lockstep::{Lockstep, Room, panic_words};
use latchd_harness::oracle::{ByItem, Judged};
use quickcheck::{Gen, QuickCheck, TestResult, Testable};

use crate::drawn::{DrawnOp, DrawnRead, DrawnTurn};
use crate::number_from;

/// Whether only want of room can cause the reply: a request is out of memory, or a wait that is
/// over finds no room for the lock that is free since.
fn needs_scarcity(request: RequestKind, reply: ReplyKind) -> bool {
    reply == ReplyKind::RefusedOutOfMemory
        || request == RequestKind::Wait && reply == ReplyKind::RefusedTooManyLocks
}

/// The store that the program uses, where memory is scarce.
const BY_TINY: Room = Room::BySegment {
    segment_bytes: LOG_SEGMENT_BYTES,
};

/// How many segments a log has besides those that it needs: few, or so many that it must have room at first.
const fn segments_more(choice: usize) -> usize {
    match choice % 4 {
        3 => 10,
        few => few,
    }
}

/// The longest sequence.
const OPS_MAX: usize = 100;

/// The number of parts that a property is played in, each with random numbers of its own. So the
/// sequences do not depend on the cores of the machine.
const PARTS: u64 = 8;

/// Plays a property on every core of the machine.
fn check_on_all_cores<P: Testable + Clone + Send + Sync>(property: &P) {
    check_with_fewer(property, 1);
}

/// The same with one of `one_in` sequences.
fn check_with_fewer<P: Testable + Clone + Send + Sync>(property: &P, one_in: u64) {
    let sequences = number_from("TEST_SEQUENCES", 16_000).div_ceil(PARTS * one_in);
    let seed = number_from("TEST_SEED", 1).wrapping_mul(1_000);
    let next_part = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, NonZero::get) {
            scope.spawn(|| {
                loop {
                    let part = next_part.fetch_add(1, Ordering::Relaxed);
                    if part >= PARTS {
                        break;
                    }
                    QuickCheck::new()
                        .rng(Gen::from_size_and_seed(OPS_MAX, seed.wrapping_add(part)))
                        .tests(sequences)
                        .max_tests(sequences)
                        .min_tests_passed(sequences)
                        .quickcheck(property.clone());
                }
            });
        }
    });
}

/// The pairs that a property has met in all of its sequences, and how often a log was asked for
/// room that it had to have.
type Seen = Mutex<Option<(Pairs, Judged, u64)>>;

/// Plays a sequence beside the oracle. A panic of the core is a difference like any other.
fn play<S: Store>(
    core: Core<S>,
    ops: impl Iterator<Item = Op>,
    room: Room,
    seen: &Seen,
) -> TestResult {
    let ops: Vec<Op> = ops.collect();
    let mut pairs = Pairs::default();
    let mut judged = Judged::default();
    let mut had_idle = 0;
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let mut lockstep = Lockstep::new(core, room);
        let outcome = lockstep.play(&ops, &mut pairs);
        judged = lockstep.judged();
        had_idle = lockstep.had_idle();
        outcome
    }));
    let mut seen = seen.lock().expect("no panic poisons it");
    let (all_pairs, all_judged, all_had_idle) = seen.get_or_insert_default();
    all_pairs.add(&pairs);
    all_judged.add(&judged);
    *all_had_idle += had_idle;
    drop(seen);
    let difference = match outcome {
        Ok(Ok(())) => return TestResult::passed(),
        Ok(Err(difference)) => difference,
        Err(panic) => format!("the core asserts: {}", panic_words(&*panic)),
    };
    let lines: Vec<String> = ops.iter().map(|op| format!("  {op:?}\n")).collect();
    TestResult::error(format!("after\n{}{difference}\n", lines.concat()))
}

fn reference(limits: Limits) -> Core<MapStore> {
    Core::reference(Config::new(limits, UNIX_S_AT_START))
}

fn in_log(limits: Limits) -> Core {
    Core::new(Config::new(limits, UNIX_S_AT_START))
}

/// For any sequence of operations, the engine gives the oracle's answers, and keeps the oracle's
/// items.
#[test]
fn the_engine_matches_the_oracle() {
    static SEEN: Seen = Mutex::new(None);

    #[allow(clippy::needless_pass_by_value)] // Quickcheck wants it so.
    fn property(steps: Vec<DrawnOp>) -> TestResult {
        play(
            reference(ample()),
            steps.iter().map(|step| step.0),
            Room::Ample,
            &SEEN,
        )
    }

    check_on_all_cores(&(property as fn(Vec<DrawnOp>) -> TestResult));
    assert_gone(&SEEN, &["found_expired", "shown_expired"]);
    // The oracle evicts nothing, so there is room for everything.
    assert_seen(&SEEN, |request, reply| {
        needs_bound(request, reply) || needs_scarcity(request, reply)
    });
}

/// However scarce memory is, for any sequence of operations: locked items do not vanish, items are
/// those that were stored last, and limits hold. A request is refused for want of room only if it
/// does not fit.
#[test]
fn scarce_memory_breaks_no_promise() {
    static SEEN: Seen = Mutex::new(None);

    #[allow(clippy::needless_pass_by_value)] // Quickcheck wants it so.
    fn property(steps: Vec<DrawnOp>) -> TestResult {
        let limits = scarce(1 + steps.len() % 2);
        play(
            reference(limits),
            steps.iter().map(|step| step.0),
            Room::ByItem(ByItem {
                overhead_bytes: MapStore::new(&limits).bytes_for(0, 0),
            }),
            &SEEN,
        )
    }

    check_on_all_cores(&(property as fn(Vec<DrawnOp>) -> TestResult));
    assert_gone(&SEEN, &["found_expired", "shown_expired", "shown_eviction"]);
    let seen = SEEN.lock().expect("no panic poisons it").clone();
    let (seen, judged, _) = seen.expect("something was played");
    assert_judged(&judged, true);
    let of_log = |(request, reply): &(RequestKind, ReplyKind)| needs_log(*request, *reply);
    let missing = seen.missing(|_, _| false).filter(of_log).count();
    assert_eq!(
        missing, 8,
        "the reference store has room for what does not grow"
    );
    assert_seen(&SEEN, |request, reply| {
        needs_bound(request, reply) || needs_log(request, reply)
    });
}

/// If nothing is evicted, only expired items go, and a request is refused if and only if it does
/// not fit beside all items.
#[test]
fn without_eviction_everything_stays() {
    static SEEN: Seen = Mutex::new(None);

    #[allow(clippy::needless_pass_by_value)] // Quickcheck wants it so.
    fn property(steps: Vec<DrawnOp>) -> TestResult {
        let mut limits = scarce(1 + steps.len() % 2);
        limits.evict = false;
        // An expired item is in the way until it is taken out, and when that is depends on the
        // store and on locks that are over. So a tick that looks at everything comes before each
        // request.
        limits.crawl_items_max = 64;
        play(
            reference(limits),
            steps.iter().flat_map(|step| [Op::Tick, step.0]),
            Room::ByItem(ByItem {
                overhead_bytes: MapStore::new(&limits).bytes_for(0, 0),
            }),
            &SEEN,
        )
    }

    check_with_fewer(&(property as fn(Vec<DrawnOp>) -> TestResult), 4);
    assert_gone(&SEEN, &["crawled_all"]);
    let seen = SEEN.lock().expect("no panic poisons it").take();
    let (seen, judged, _) = seen.expect("something was played");
    assert_judged(&judged, false);
    let impossible: Vec<_> = seen.impossible().collect();
    assert!(impossible.is_empty(), "not in the table: {impossible:?}");
}

/// The same on the store that the program uses, in a few segments.
#[test]
fn without_eviction_everything_stays_in_the_log() {
    static SEEN: Seen = Mutex::new(None);

    #[allow(clippy::needless_pass_by_value)] // Quickcheck wants it so.
    fn property(steps: Vec<DrawnOp>) -> TestResult {
        let mut limits = scarce_for_log(segments_more(steps.len()));
        limits.evict = false;
        play(
            in_log(limits),
            steps.iter().map(|step| step.0),
            BY_TINY,
            &SEEN,
        )
    }

    check_with_fewer(&(property as fn(Vec<DrawnOp>) -> TestResult), 4);
    assert_gone(
        &SEEN,
        &[
            "found_expired",
            "found_flushed",
            "crawled_all",
            "shown_expired",
        ],
    );
    let seen = SEEN.lock().expect("no panic poisons it").take();
    let (seen, judged, had_idle) = seen.expect("something was played");
    println!("{judged:?}, idle {had_idle}");
    assert_eq!(judged.evicted, 0);
    assert!(had_idle > 1_000, "there was room {had_idle} times");
    let full = judged.told_full;
    assert!(full > 1_000, "there was no room {full} times");
    let refused = (RequestKind::Set, ReplyKind::RefusedOutOfMemory);
    assert!(
        seen.missing(|_, _| false).all(|pair| pair != refused),
        "nothing was refused"
    );
    let impossible: Vec<_> = seen.impossible().collect();
    assert!(impossible.is_empty(), "not in the table: {impossible:?}");
}

/// The same on the store that the program uses.
#[test]
fn the_engine_matches_the_oracle_on_the_log() {
    static SEEN: Seen = Mutex::new(None);

    #[allow(clippy::needless_pass_by_value)] // Quickcheck wants it so.
    fn property(steps: Vec<DrawnOp>) -> TestResult {
        play(
            in_log(ample()),
            steps.iter().map(|step| step.0),
            Room::Ample,
            &SEEN,
        )
    }

    check_on_all_cores(&(property as fn(Vec<DrawnOp>) -> TestResult));
    assert_gone(&SEEN, &["found_expired", "found_flushed", "shown_expired"]);
    assert_seen(&SEEN, |request, reply| {
        needs_bound(request, reply) || needs_scarcity(request, reply)
    });
}

/// The same on the store that the program uses, in as few segments as possible.
#[test]
fn scarce_memory_breaks_no_promise_on_the_log() {
    static SEEN: Seen = Mutex::new(None);

    #[allow(clippy::needless_pass_by_value)] // Quickcheck wants it so.
    fn property(steps: Vec<DrawnOp>) -> TestResult {
        let limits = scarce_for_log(segments_more(steps.len()));
        play(
            in_log(limits),
            steps.iter().map(|step| step.0),
            BY_TINY,
            &SEEN,
        )
    }

    check_on_all_cores(&(property as fn(Vec<DrawnOp>) -> TestResult));
    assert_gone(
        &SEEN,
        &[
            "found_expired",
            "found_flushed",
            "crawled_all",
            "active",
            "shown_expired",
            "shown_eviction",
        ],
    );
    let seen = SEEN.lock().expect("no panic poisons it").clone();
    let (_, judged, had_idle) = seen.expect("something was played");
    println!("{judged:?}, idle {had_idle}");
    assert!(judged.evicted > 1_000, "{} were evicted", judged.evicted);
    assert!(had_idle > 1_000, "there was room {had_idle} times");
    let full = judged.told_full;
    assert!(full > 1_000, "there was no room {full} times");
    // Two cases are too rare to wait for here, so the fuzzer's corpus has one of each: a locked
    // number that a flush has taken is moved, and a wait that is over finds a free lock and no room
    // for it.
    assert_seen(&SEEN, |request, reply| {
        let is_decrement = matches!(request, RequestKind::Decrement | RequestKind::DecrementCas);
        needs_bound(request, reply)
            || (is_decrement && needs_log(request, reply))
            || (request == RequestKind::Wait && reply == ReplyKind::RefusedTooManyLocks)
    });
}

/// The same with locks and little else: most sequences have a waiter.
#[test]
fn waiters_are_served_as_in_the_oracle() {
    static SEEN: Seen = Mutex::new(None);

    #[allow(clippy::needless_pass_by_value)] // Quickcheck wants it so.
    fn property(steps: Vec<DrawnTurn>) -> TestResult {
        let ops = steps.iter().map(|step| step.0);
        play(reference(ample()), ops, Room::Ample, &SEEN)
    }

    check_on_all_cores(&(property as fn(Vec<DrawnTurn>) -> TestResult));
    assert_seen(&SEEN, |request, reply| {
        needs_scarcity(request, reply)
            || !matches!(request, RequestKind::AcquireOrWait | RequestKind::Wait)
    });
}

/// The same with wins and little else: most sequences have wins that are bound, and a client that
/// waits for one.
#[test]
fn who_wins_and_who_waits_for_it_is_as_the_oracle_says() {
    static SEEN: Seen = Mutex::new(None);

    #[allow(clippy::needless_pass_by_value)] // Quickcheck wants it so.
    fn property(steps: Vec<DrawnRead>) -> TestResult {
        let mut limits = ample();
        // All due work is done in one call: the oracle knows no bound.
        limits.crawl_items_max = 16;
        let ops = steps.iter().map(|step| step.0);
        play(reference(limits), ops, Room::Ample, &SEEN)
    }

    check_on_all_cores(&(property as fn(Vec<DrawnRead>) -> TestResult));
    assert_gone(&SEEN, &["found_expired", "shown_expired", "shown_wins"]);
    let judged = SEEN.lock().expect("no panic poisons it").clone();
    let refused = judged.expect("something was played").1.too_many_wins;
    println!("{refused} had as many wins as they may");
    assert!(refused > 20, "too many wins was judged {refused} times");
    // A refusal for that is counted above: a short run does not meet it for each kind of get.
    assert_seen(&SEEN, |request, reply| {
        needs_scarcity(request, reply)
            || reply == ReplyKind::RefusedTooManyLocks
            || !needs_bound(request, reply)
    });
}

/// Bounds of the tables for locks, waits and wins, when small. Two locks, a lock and a share, a
/// wait beside a lock, and one or two wins of keys of one byte fit to the byte into some of them.
const SMALL_TABLES_BYTES: [usize; 8] = [482, 818, 1_024, 1_653, 2_048, 193, 386, 3_072];

/// Limits with room for every item, but not for every lock, wait and win, or with a search for
/// deadlocks that may end too early.
const fn with_small_tables(choice: usize) -> Limits {
    let mut limits = ample();
    match choice % 9 {
        8 => limits.wait_chain_max = choice / 9 % 3,
        tables => limits.lock_table_bytes_max = SMALL_TABLES_BYTES[tables],
    }
    limits
}

/// Limits with room for every item and every lock, but a share too small for all the locks that a
/// connection may hold.
const fn with_small_shares(choice: usize) -> Limits {
    let mut limits = ample();
    // A lock of a key of one byte takes 241, a share 577, its item 145 and its value. So there is
    // room for a lock, with an item or without; for a share; for a share and an item; and for a
    // lock besides, but never to the byte.
    limits.lock_bytes_per_connection_max = [241, 386, 389, 577, 723, 726, 900, 964][choice % 8];
    limits
}

/// The same where the tables of locks, waits and wins have little room: requests without room there
/// are refused, and no others. So it is where a search for deadlocks may look at two locks at most.
#[test]
fn small_tables_refuse_and_break_no_promise() {
    static SEEN: Seen = Mutex::new(None);

    #[allow(clippy::needless_pass_by_value)] // Quickcheck wants it so.
    fn of_wins(steps: Vec<DrawnRead>) -> TestResult {
        let mut limits = with_small_tables(steps.len());
        // All due work is done in one call: the oracle knows no bound.
        limits.crawl_items_max = 16;
        let ops = steps.iter().map(|step| step.0);
        play(in_log(limits), ops, BY_TINY, &SEEN)
    }

    #[allow(clippy::needless_pass_by_value)] // Quickcheck wants it so.
    fn of_locks(steps: Vec<DrawnTurn>) -> TestResult {
        let ops = steps.iter().map(|step| step.0);
        play(in_log(with_small_tables(steps.len())), ops, BY_TINY, &SEEN)
    }

    check_with_fewer(&(of_wins as fn(Vec<DrawnRead>) -> TestResult), 4);
    check_with_fewer(&(of_locks as fn(Vec<DrawnTurn>) -> TestResult), 4);
    let seen = SEEN.lock().expect("no panic poisons it").take();
    let (seen, judged, had_idle) = seen.expect("something was played");
    println!("{judged:?}, idle {had_idle}\n{seen}");
    assert_eq!(judged.evicted, 0);
    for (what, count) in [
        ("no place in the tables", judged.tables_full),
        ("the last place in the tables", judged.tables_just_enough),
        ("too long to tell a deadlock", judged.too_long_to_tell),
    ] {
        assert!(count > 20, "{what} was judged {count} times");
    }
    let unsettled = judged.tables_unsettled;
    assert!(
        unsettled * 10 < judged.tables_full,
        "what is over was in the way {unsettled} times, and {} times it was not",
        judged.tables_full
    );
    assert!(had_idle > 1_000, "there was room {had_idle} times");
    for refused in [
        RequestKind::AcquireOrWait,
        RequestKind::GetBound,
        RequestKind::GetOrWait,
    ] {
        let times = seen.count(refused, ReplyKind::RefusedTooManyLocks);
        assert!(times > 2, "{refused:?} was refused {times} times");
    }
    assert_possible(&seen);
}

/// The same where a connection has a small share of the tables, and of the bytes that locks may
/// pin.
#[test]
fn small_shares_refuse_and_break_no_promise() {
    static SEEN: Seen = Mutex::new(None);

    fn room(limits: &Limits) -> Room {
        Room::ByItem(ByItem {
            overhead_bytes: MapStore::new(limits).bytes_for(0, 0),
        })
    }

    #[allow(clippy::needless_pass_by_value)] // Quickcheck wants it so.
    fn of_all(steps: Vec<DrawnOp>) -> TestResult {
        let limits = with_small_shares(steps.len());
        let ops = steps.iter().map(|step| step.0);
        play(reference(limits), ops, room(&limits), &SEEN)
    }

    #[allow(clippy::needless_pass_by_value)] // Quickcheck wants it so.
    fn of_locks(steps: Vec<DrawnTurn>) -> TestResult {
        let limits = with_small_shares(steps.len());
        // They pin an item, unless it was deleted.
        let items = (0..3).map(|key| {
            let set = SmallSet::new(SmallKey::new(key), SmallValue::Word);
            let client = ClientNumber::new(0);
            let request = SmallRequest::Set(set);
            Op::Request { client, request }
        });
        let items = items.take(steps.len() / 8 % 4);
        // In every second sequence time passes in leaps: all leases end at once.
        let leaps = (steps.len() / 32).is_multiple_of(2);
        let leap = |op| {
            let passes = leaps && matches!(op, Op::Advance { .. });
            if passes {
                Op::Advance { ms: 2_000 }
            } else {
                op
            }
        };
        let steps = steps.iter().map(|step| leap(step.0));
        let ops = items.chain(steps);
        play(reference(limits), ops, room(&limits), &SEEN)
    }

    check_with_fewer(&(of_all as fn(Vec<DrawnOp>) -> TestResult), 4);
    check_with_fewer(&(of_locks as fn(Vec<DrawnTurn>) -> TestResult), 4);
    let seen = SEEN.lock().expect("no panic poisons it").take();
    let (seen, judged, _) = seen.expect("something was played");
    println!("{judged:?}\n{seen}");
    for (what, count) in [
        ("past its share", judged.past_share),
        ("all of its share", judged.share_just_enough),
    ] {
        assert!(count > 20, "{what} was judged {count} times");
    }
    for (refused, how) in [
        (RequestKind::Lock, ReplyKind::RefusedTooManyLocks),
        (RequestKind::AcquireOrWait, ReplyKind::RefusedTooManyLocks),
        (RequestKind::Wait, ReplyKind::RefusedTooManyLocks),
        (RequestKind::Set, ReplyKind::RefusedOutOfMemory),
    ] {
        let times = seen.count(refused, how);
        assert!(times > 2, "{refused:?}: {how:?} {times} times");
    }
    assert_possible(&seen);
}

/// P1 of the table of pairs, where bounds are small that are large otherwise.
fn assert_possible(seen: &Pairs) {
    let impossible: Vec<_> = seen.impossible().collect();
    assert!(impossible.is_empty(), "not in the table: {impossible:?}");
}

/// The oracle met every case of room often enough, evictions included if they are on.
fn assert_judged(judged: &Judged, evicts: bool) {
    println!("{judged:?}");
    let Judged {
        out_of_memory,
        too_much_pinned,
        too_many_locks,
        // There are few, where there is little else: `who_wins_and_who_waits_for_it_is_as_the_oracle_says`.
        too_many_wins: _,
        // `small_tables_refuse_and_break_no_promise`.
        too_long_to_tell: _,
        tables_full: _,
        tables_just_enough: _,
        tables_unsettled: _,
        // `small_shares_refuse_and_break_no_promise`.
        past_share: _,
        share_just_enough: _,
        to_the_byte,
        evicted,
        limited,
        limit_refused,
        told_full,
        // `assert_gone`.
        gone: _,
    } = *judged;
    for (what, count) in [
        ("out of memory", out_of_memory),
        ("too much pinned", too_much_pinned),
        ("too many locks", too_many_locks),
        ("just enough", to_the_byte),
        ("another limit", limited),
        ("a limit that is too small", limit_refused),
    ] {
        assert!(count > 20, "{what} was judged {count} times");
    }
    assert_eq!(told_full, 0, "the oracle knows what fits");
    assert_eq!(evicted > 20, evicts, "{evicted} items were evicted");
    assert!(evicts || evicted == 0, "{evicted} items were evicted");
}

/// The fates of items were counted and shown often enough: these, and those that can occur
/// everywhere.
fn assert_gone(seen: &Seen, also: &[&str]) {
    const ALWAYS: [&str; 7] = [
        "reclaimed",
        "unfetched",
        "with_lock",
        "crawled",
        "shown",
        "shown_locked",
        "shown_oldest",
    ];
    let seen = seen.lock().expect("no panic poisons it");
    let (_, judged, _) = seen.as_ref().expect("something was played");
    let gone = judged.gone.each();
    println!("{gone:?}");
    for (what, count) in gone {
        let is_needed = ALWAYS.contains(&what) || also.contains(&what);
        assert!(count > 10 || !is_needed, "{what} was judged {count} times");
    }
}

/// P1 and P2 of the table of pairs.
fn assert_seen(seen: &Seen, left_out: impl Fn(RequestKind, ReplyKind) -> bool) {
    let seen = seen.lock().expect("no panic poisons it").take();
    let (seen, ..) = seen.expect("something was played");
    println!("{seen}");
    let impossible: Vec<_> = seen.impossible().collect();
    assert!(
        impossible.is_empty(),
        "not in the table of pairs: {impossible:?}"
    );
    let missing: Vec<_> = seen.missing(left_out).collect();
    assert!(
        missing.is_empty(),
        "in the table of pairs and never seen: {missing:?}"
    );
}
