//! The bytes that one call allocates and frees: never many, with any number of items.
//!
//! - M3: a call allocates at most [`CALL_BYTES_MAX`], the bytes that it moves into a larger
//!   allocation included, and frees at most as much. A tick frees at most [`TICK_BYTES_MAX`]. A
//!   value that many clients have waited for frees at most the bytes of their waits. So nothing
//!   grows by being copied as a whole, and no memory that was gathered in many calls is freed in
//!   one.

use latchd_core::engine::{Config, Core, Event, Notification};
use latchd_core::store::Store as _;
use latchd_core::{Instant, Limits, Owner};
use latchd_protocol::command::{
    Acquire, Get, GlobalCommand, ItemCommand, Set, TtlStep, TtlSteps, Wait,
};
use latchd_protocol::key::Key;
use latchd_protocol::reply::Reply;
use latchd_protocol::time::Exptime;

use super::{ALLOCATOR, CONN, alone, name};

/// A segment with a chunk of each of the lists that it may need, and some. To touch that much for the first time takes
/// a tenth of a millisecond.
const CALL_BYTES_MAX: usize = 512 << 10;

/// The cost of looking at a thousand items, and as much again of spare segments.
const TICK_BYTES_MAX: usize = 4 << 20;

/// The most bytes of the waiters for one key (`waits_per_key_max`): the one call that they have
/// waited for frees all of them.
const WAITS_BYTES_MAX: usize = 16_384 * 384;

/// The number of items, unless `TEST_ITEMS` gives another. A shard should have at most 4,000,000.
const ITEMS: usize = 500_000;

fn items() -> usize {
    let told = std::env::var("TEST_ITEMS").ok();
    told.map_or(ITEMS, |told| told.parse().expect("TEST_ITEMS is a number"))
}

/// Counts allocations while calls are made.
#[derive(Debug, Default)]
struct Watch {
    /// The most that a call has allocated, in bytes.
    taken: usize,
    /// The most bytes that a call has freed.
    given: usize,
}

impl Watch {
    fn around<T>(&mut self, call: impl FnOnce() -> T) -> T {
        let before = (ALLOCATOR.total_allocated(), ALLOCATOR.allocated());
        let done = call();
        let taken = ALLOCATOR.total_allocated() - before.0;
        self.taken = self.taken.max(taken);
        // The threads that run tests allocate a little, too.
        let given = (before.1 + taken).saturating_sub(ALLOCATOR.allocated());
        self.given = self.given.max(given);
        done
    }

    /// Judges the counts since the last time.
    fn judge(&mut self, what: &str, given_max: usize) {
        println!(
            "{what}: up to {} B taken, {} B given",
            self.taken, self.given
        );
        assert!(self.taken <= CALL_BYTES_MAX, "{what}: {} taken", self.taken);
        assert!(self.given <= given_max, "{what}: {} given", self.given);
        *self = Self::default();
    }
}

/// A core, the time by hand, and the counter that watches it.
struct Bench {
    core: Core,
    now_ms: u64,
    watch: Watch,
}

impl Bench {
    fn new(memory_bytes: usize) -> Self {
        let mut core = Core::new(Config::new(Limits::new(memory_bytes, 1 << 20), 0));
        core.handle(Instant::default(), Event::Opened(CONN));
        Self {
            core,
            now_ms: 0,
            watch: Watch::default(),
        }
    }

    fn ask(&mut self, conn: Owner, command: ItemCommand<'_>) -> bool {
        let now = Instant::from_millis(self.now_ms);
        let core = &mut self.core;
        self.watch.around(|| {
            let reply = core.execute(now, conn, &command.into());
            !matches!(reply, Reply::Refused(_))
        })
    }

    fn store(&mut self, number: usize, exptime: Exptime) {
        let name = name(number);
        let set = Set {
            exptime,
            ..Set::new(
                Key::new(name.as_bytes()).expect("a legal key"),
                b"ten bytes.",
            )
        };
        assert!(self.ask(CONN, ItemCommand::Set(set)), "{name} has room");
    }

    fn handle(&mut self, event: Event) {
        let now = Instant::from_millis(self.now_ms);
        let core = &mut self.core;
        self.watch.around(|| core.handle(now, event));
    }

    /// Ticks until there is no more work, and some more.
    fn tick(&mut self) {
        let mut more = 100;
        while self.core.wants_tick() || more > 0 {
            self.handle(Event::Tick);
            more -= u32::from(!self.core.wants_tick());
        }
    }
}

#[test]
fn no_call_allocates_much_with_millions_of_items() {
    let _alone = alone();
    let items = items();
    let mut bench = Bench::new(400 << 20);
    for number in 0..items {
        bench.store(number, Exptime::Never);
    }
    assert_eq!(bench.core.store().usage().items, items);
    bench.watch.judge("filling", CALL_BYTES_MAX);
    let now = Instant::from_millis(bench.now_ms);
    let core = &mut bench.core;
    let flush = GlobalCommand::FlushAll { at: Exptime::Never };
    bench.watch.around(|| {
        core.execute(now, CONN, &flush.into());
    });
    bench.watch.judge("flush_all", CALL_BYTES_MAX);
    bench.tick();
    assert!(bench.core.store().usage().held_bytes < 4 << 20);
    bench.watch.judge("ticks after it", TICK_BYTES_MAX);
    for number in 0..items {
        bench.store(number, Exptime::In { seconds: 10 });
    }
    bench.watch.judge("filling again", CALL_BYTES_MAX);
    bench.now_ms = 20_000;
    bench.tick();
    assert_eq!(bench.core.store().usage().items, 0);
    bench
        .watch
        .judge("ticks after all has expired", TICK_BYTES_MAX);
}

#[test]
fn no_call_allocates_much_while_evicting() {
    let _alone = alone();
    // A quarter of their bytes, so that most of them evict.
    let items = items() / 2;
    let mut bench = Bench::new(items * 16);
    for number in 0..items {
        bench.store(number, Exptime::Never);
    }
    assert!(bench.core.store().usage().items < items);
    bench.watch.judge("evicting", CALL_BYTES_MAX);
}

#[test]
fn no_call_allocates_much_with_many_locks() {
    let _alone = alone();
    let mut bench = Bench::new(400 << 20);
    let locks = bench.core.limits().locks_per_connection_max;
    for number in 0..locks {
        bench.store(number, Exptime::Never);
        let name = name(number);
        let key = Key::new(name.as_bytes()).expect("a legal key");
        assert!(bench.ask(CONN, ItemCommand::Lock { key }), "{name}");
    }
    bench.watch.judge("locking", CALL_BYTES_MAX);
    bench.handle(Event::Closed(CONN));
    assert_eq!(bench.core.locks().len(), 0);
    bench.watch.judge("the end of a connection", CALL_BYTES_MAX);
    bench.tick();
    bench.watch.judge("ticks after it", TICK_BYTES_MAX);
}

#[test]
fn no_call_allocates_much_with_many_waiters() {
    let _alone = alone();
    let mut bench = Bench::new(400 << 20);
    let waits = bench.core.limits().waits_per_key_max;
    let key = Key::new(b"awaited").expect("a legal key");
    let wins = Get {
        steps: TtlSteps::one(TtlStep::Vivify(Exptime::In { seconds: 1_000 })),
        recaches: true,
        bound_to_owner: true,
        ..Get::new(key)
    };
    assert!(bench.ask(CONN, ItemCommand::Get(wins)));
    let patient = Get {
        wait_ms: 60_000,
        ..wins
    };
    let conns = |number: usize| Owner::from_number(10 + number as u64);
    for number in 0..waits {
        bench.handle(Event::Opened(conns(number)));
        assert!(
            bench.ask(conns(number), ItemCommand::Get(patient)),
            "{number}"
        );
    }
    assert_eq!(bench.core.win_waits().len(), waits);
    bench.watch.judge("waiting for a value", CALL_BYTES_MAX);
    let set = Set::new(key, b"the value");
    assert!(bench.ask(CONN, ItemCommand::Set(set)));
    bench
        .watch
        .judge("the value that all wait for", WAITS_BYTES_MAX);
    let core = &mut bench.core;
    let watch = &mut bench.watch;
    let told =
        std::iter::from_fn(|| watch.around(|| core.poll().and_then(Notification::wait_over)))
            .count();
    assert_eq!(told, waits);
    bench.watch.judge("telling them", CALL_BYTES_MAX);

    let key = Key::new(b"lock").expect("a legal key");
    for number in 0..waits {
        let acquire = Acquire {
            wait: Wait::UpTo { ms: 60_000 },
            ..Acquire::new(key)
        };
        assert!(
            bench.ask(conns(number), ItemCommand::Acquire(acquire)),
            "{number}"
        );
    }
    bench.watch.judge("waiting for a lock", CALL_BYTES_MAX);
    bench.now_ms = 100_000;
    bench.tick();
    bench.watch.judge("the end of their waits", TICK_BYTES_MAX);
}
