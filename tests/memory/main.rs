//! The memory limit bounds the memory of the process: counted where everything is allocated.
//!
//! - M1: with any sequence of value sizes, the allocated bytes stay within the limit, those of
//!   locks included. After the limit was lowered, they do so again once the due ticks have come.
//! - M2: if the system has no memory for a segment, that store is refused, and nothing else
//!   happens.
//! - M3: no call allocates or frees much: [`calls`].

mod calls;

use std::alloc::System;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cap::Cap;
use latchd_core::engine::{Config, Core, Event};
use latchd_core::store::Store as _;
use latchd_core::{Instant, Limits, Owner};
use latchd_protocol::command::{
    Acquire, Get, GlobalCommand, ItemCommand, LOCK_METADATA_BYTES_MAX, LockMetadata, Release, Set,
};
use latchd_protocol::key::Key;
use latchd_protocol::reply::{Refusal, Reply};

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

/// One test at a time: they count the allocations of all threads.
static ALONE: Mutex<()> = Mutex::new(());

/// The memory of a server with a small `-m`.
const MEMORY_BYTES: usize = 16 << 20;

/// The value sizes, as they shift.
const SIZES: [usize; 6] = [50, 500, 5_000, 100, 20_000, 10];

const CONN: Owner = Owner::from_number(1);

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn core() -> Core {
    let mut core = Core::new(Config::new(Limits::new(MEMORY_BYTES, 1 << 20), 0));
    core.handle(Instant::default(), Event::Opened(CONN));
    core
}

fn name(number: usize) -> String {
    format!("key-{number:012}")
}

fn set<'a>(core: &'a mut Core, name: &'a str, value: &'a [u8]) -> Reply<'a> {
    let key = Key::new(name.as_bytes()).expect("a legal key");
    core.execute(Instant::default(), CONN, &Set::new(key, value).into())
}

fn lock<'a>(core: &'a mut Core, name: &'a str) -> Reply<'a> {
    let key = Key::new(name.as_bytes()).expect("a legal key");
    core.execute(Instant::default(), CONN, &ItemCommand::Lock { key }.into())
}

/// M1. Values worth three times the memory of each size, twice round; every hundredth item is locked
/// for a while, and a tick comes now and then.
#[test]
fn memory_stays_within_the_limit_as_sizes_shift() {
    let _alone = alone();
    let value = vec![b'v'; 20_000];
    let before = ALLOCATOR.allocated();
    let mut core = core();
    let (mut number, mut most) = (0, 0);
    for size in SIZES.into_iter().chain(SIZES) {
        for _ in 0..3 * MEMORY_BYTES / (size + 60) {
            number += 1;
            let name = name(number);
            let reply = set(&mut core, &name, &value[..size]);
            assert!(matches!(reply, Reply::Stored(_)), "{reply:?}");
            if number % 100 == 0 {
                let _ = lock(&mut core, &name);
            }
            if number % 5_000 == 0 {
                core.handle(Instant::default(), Event::Tick);
            }
            if number % 30_000 == 0 {
                core.execute(Instant::default(), CONN, &GlobalCommand::UnlockAll.into());
            }
            most = most.max(ALLOCATOR.allocated() - before);
        }
        let bytes = core.store().usage().bytes;
        println!("values of {size} B: {bytes} B of items, at most {most} B allocated so far");
        assert!(most <= MEMORY_BYTES, "{most} bytes with values of {size}");
        // The rest is the index, and the memory that is kept free: more beside items that are all
        // key.
        let least = if size < 100 {
            3 * MEMORY_BYTES / 5
        } else {
            4 * MEMORY_BYTES / 5
        };
        assert!(bytes >= least, "{bytes} bytes of items of {size}");
    }
    drop(core);
    assert!(ALLOCATOR.allocated() <= before + (64 << 10));
}

/// M1. The metadata of locks and waiters takes no more than it is charged: of as many locks as fit, of each length, also
/// after three quarters of them have ended.
#[test]
fn metadata_takes_no_more_than_its_charge() {
    const LOCKS: usize = 20_000;
    let _alone = alone();
    let metadata = [b'm'; LOCK_METADATA_BYTES_MAX];
    for bytes in [1, 7, 8, 9, 100, LOCK_METADATA_BYTES_MAX] {
        let metadata = LockMetadata::new(&metadata[..bytes]);
        let taken = |metadata| {
            let mut core = Core::new(Config::new(Limits::new(400 << 20, 1 << 20), 0));
            core.handle(Instant::default(), Event::Opened(CONN));
            let names: Vec<_> = (0..LOCKS).map(name).collect();
            let keys: Vec<_> = names
                .iter()
                .filter_map(|it| Key::new(it.as_bytes()))
                .collect();
            let before = (ALLOCATOR.allocated(), core.lock_memory_bytes());
            let mut taken = Vec::with_capacity(2);
            for key in &keys {
                let acquire = Acquire {
                    metadata,
                    ..Acquire::new(*key)
                };
                let command = ItemCommand::Acquire(acquire).into();
                let reply = core.execute(Instant::default(), CONN, &command);
                assert!(matches!(reply, Reply::Granted(_)), "{reply:?}");
            }
            for is_last in [false, true] {
                let allocated = ALLOCATOR.allocated() - before.0;
                taken.push((allocated, core.lock_memory_bytes() - before.1));
                for (place, key) in keys.iter().enumerate() {
                    if !is_last && place % 4 != 0 {
                        let release = ItemCommand::Release(Release::new(*key)).into();
                        core.execute(Instant::default(), CONN, &release);
                    }
                }
            }
            taken
        };
        for (without, with) in taken(None).into_iter().zip(taken(metadata)) {
            let (allocated, charged) = (with.0 - without.0, with.1 - without.1);
            println!("{bytes} B of metadata each: {allocated} B allocated, {charged} B charged");
            assert!(allocated <= charged, "{allocated} bytes for {charged}");
        }
    }
}

/// M1 with a limit that is lowered and raised, and items small and huge.
#[test]
fn memory_shrinks_to_a_lower_limit() {
    let _alone = alone();
    let value = vec![b'v'; 100_000];
    let before = ALLOCATOR.allocated();
    let mut core = core();
    let mut number = 0;
    for (size, percent) in [(50, 25), (100_000, 50), (500, 13), (10, 100), (20_000, 25)] {
        for _ in 0..2 * MEMORY_BYTES / (size + 60) {
            number += 1;
            let name = name(number);
            let _ = set(&mut core, &name, &value[..size]);
            if number % 100 == 0 {
                let _ = lock(&mut core, &name);
            }
        }
        core.execute(Instant::default(), CONN, &GlobalCommand::UnlockAll.into());
        let limit = MEMORY_BYTES / 100 * percent;
        let held = ALLOCATOR.allocated() - before;
        let limits = core.limits().with_memory(limit);
        core.judge_limits(&limits).expect("nothing is locked");
        core.handle(Instant::default(), Event::Limits(limits));
        let mut ticks = 0;
        while core.wants_tick() {
            core.handle(Instant::default(), Event::Tick);
            ticks += 1;
            assert!(ticks < 2_000, "it has no end");
        }
        let after = ALLOCATOR.allocated() - before;
        println!("from {held} B to {after} B under {limit} B in {ticks} ticks");
        assert!(after <= limit, "{after} bytes under {limit}");
        core.check();
    }
}

/// M2.
#[test]
fn a_failed_segment_allocation_refuses_one_store() {
    let _alone = alone();
    let value = vec![b'v'; 400];
    let mut core = core();
    let mut number = 0;
    ALLOCATOR
        .set_limit(ALLOCATOR.allocated() + (MEMORY_BYTES / 4))
        .expect("it is above what is allocated");
    let refused = loop {
        number += 1;
        let name = name(number);
        let reply = set(&mut core, &name, &value);
        if !matches!(reply, Reply::Stored(_)) {
            break reply == Reply::Refused(Refusal::OutOfMemory);
        }
        assert!(number < 100_000, "there is no room for all of them");
    };
    // Others are answered as before, and a value of the same length still fits.
    let first = name(1);
    let key = Key::new(first.as_bytes()).expect("a legal key");
    let get = Get::new(key);
    let hit = matches!(
        core.execute(Instant::default(), CONN, &ItemCommand::Get(get).into()),
        Reply::Hit(_)
    );
    let again = matches!(set(&mut core, &first, &value), Reply::Stored(_));
    ALLOCATOR.set_limit(usize::MAX).expect("no limit");
    assert!(refused && hit && again, "{refused} {hit} {again}");
    assert!(number > 5_000, "{number} items had room");
    core.check();
    let next = name(number);
    let reply = set(&mut core, &next, &value);
    assert!(matches!(reply, Reply::Stored(_)), "{reply:?}");
}
