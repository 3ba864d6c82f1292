//! The cost of the stores by themselves: no wire, no engine, no lock, no socket.
//!
//! `cargo bench -p latchd-bench --features store -- LogStore` runs all rows of the production store
//! in seconds; without a name the reference is measured too, which takes long, since its deletes
//! walk. Each row is one operation on a store of many items with keys of 32 bytes, the keys in
//! random order. To make a key and to choose it is part of every figure: the row `key` shows that
//! part.
//!
//! The results of the last run: docs/STORE.md.

use std::fmt;
use std::hint::black_box;

use divan::Bencher;
use divan::counter::ItemsCount;
use latchd_core::Limits;
use latchd_core::store::{LogStore, MapStore, Store};
use latchd_protocol::item::{Cas, ItemHeader};
use latchd_protocol::key::Key;
use latchd_protocol::stats::Counters;
use latchd_protocol::time::Tick;
use latchd_protocol::value::Value;

fn main() {
    divan::main();
}

/// How many operations a sample has, and how many samples there are: as many items as are stored or
/// deleted at most.
const SAMPLE_SIZE: u32 = 500;
const SAMPLE_COUNT: u32 = 100;

const KEY_BYTES: usize = 32;

/// The bytes of an item in the log besides its value, about: the key, its record, its share of the
/// index.
const BESIDES_VALUE_BYTES: usize = KEY_BYTES + 36;

const NOW: Tick = Tick::from_count(1);

/// A store's contents.
#[derive(Clone, Copy)]
struct Shape {
    items: usize,
    value_bytes: usize,
}

impl fmt::Display for Shape {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} of {} B", self.items, self.value_bytes)
    }
}

const SHAPES: [Shape; 6] = [
    Shape::new(100_000, 10),
    Shape::new(100_000, 100),
    Shape::new(100_000, 1_000),
    Shape::new(1_000_000, 10),
    Shape::new(1_000_000, 100),
    Shape::new(1_000_000, 1_000),
];

impl Shape {
    const fn new(items: usize, value_bytes: usize) -> Self {
        Self { items, value_bytes }
    }

    /// Memory for twice the items.
    const fn ample(self) -> Limits {
        let bytes = 2 * self.items * (self.value_bytes + 2 * BESIDES_VALUE_BYTES);
        Limits::new(bytes, 1 << 20)
    }

    /// Memory for the items, and not for one more.
    const fn scarce(self) -> Limits {
        let bytes = self.items * (self.value_bytes + BESIDES_VALUE_BYTES);
        Limits::new(bytes, 1 << 20)
    }
}

/// A store that can be made.
trait Subject: Store {
    fn within(limits: &Limits) -> Self;
}

impl Subject for LogStore {
    fn within(limits: &Limits) -> Self {
        Self::new(limits, [1, 2])
    }
}

impl Subject for MapStore {
    fn within(limits: &Limits) -> Self {
        Self::new(limits)
    }
}

/// A store with items, and its next operation.
struct Bench<S> {
    store: S,
    shape: Shape,
    value: Vec<u8>,
    counters: Counters,
    /// The number of the next key.
    next: u64,
}

impl<S: Subject> Bench<S> {
    /// With the items of `shape`, which are numbered from 0.
    fn filled(shape: Shape, limits: &Limits) -> Self {
        let mut bench = Self {
            store: S::within(limits),
            shape,
            value: vec![b'v'; shape.value_bytes],
            counters: Counters::default(),
            next: 0,
        };
        for number in 0..shape.items as u64 {
            bench.insert(number);
        }
        bench
    }

    /// A number below that of the items, another one each time until all have had their turn: in no
    /// order.
    fn choose(&mut self) -> u64 {
        // A step that has no divisor in common with a number of items, which is a power of ten.
        self.next = (self.next + 618_033_989) % self.shape.items as u64;
        self.next
    }

    /// A number that no item has had.
    fn number_new(&mut self) -> u64 {
        self.next += 1;
        self.next + (1 << 40)
    }

    fn insert(&mut self, number: u64) {
        let name = name(number);
        let key = key(&name);
        let vacancy = self.store.find(key).err().expect("it is new");
        let value = Value::Borrowed(&self.value);
        self.store
            .insert(NOW, vacancy, key, header(), value, &mut self.counters)
            .expect("there is room, or will be");
    }

    fn slot(&self, number: u64) -> Option<S::Slot> {
        self.store.find(key(&name(number))).ok()
    }
}

fn header() -> ItemHeader {
    ItemHeader::new(Cas::FIRST, NOW)
}

/// The name of a number: its digits, behind a prefix as applications have it.
fn name(mut number: u64) -> [u8; KEY_BYTES] {
    let mut name = *b"user:profile:0000000000000000000";
    for digit in name.iter_mut().rev().take(19) {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
    name
}

fn key(name: &[u8; KEY_BYTES]) -> Key<'_> {
    Key::new(name).expect("a legal key")
}

/// The part that is in every other figure.
#[divan::bench(sample_size = SAMPLE_SIZE, sample_count = SAMPLE_COUNT)]
fn make_key(bencher: Bencher) {
    let mut number = 0;
    bencher.counter(ItemsCount::new(1_u32)).bench_local(|| {
        number = (number + 618_033_989) % 1_000_000;
        black_box(name(number))
    });
}

#[divan::bench(types = [LogStore, MapStore], args = SHAPES, sample_size = SAMPLE_SIZE, sample_count = SAMPLE_COUNT)]
fn get_hit<S: Subject>(bencher: Bencher, shape: Shape) {
    let mut bench = Bench::<S>::filled(shape, &shape.ample());
    bencher.counter(ItemsCount::new(1_u32)).bench_local(|| {
        let number = bench.choose();
        let slot = bench.slot(number).expect("it is there");
        bench.store.record_hit(slot);
        let shown = bench.store.show(slot);
        // The first byte and the last: as far as a reply would read.
        (shown.value[0], shown.value[shown.value.len() - 1])
    });
}

#[divan::bench(types = [LogStore, MapStore], args = SHAPES, sample_size = SAMPLE_SIZE, sample_count = SAMPLE_COUNT)]
fn get_miss<S: Subject>(bencher: Bencher, shape: Shape) {
    let mut bench = Bench::<S>::filled(shape, &shape.ample());
    bencher.counter(ItemsCount::new(1_u32)).bench_local(|| {
        let number = bench.number_new();
        assert!(bench.slot(number).is_none(), "it was never stored");
    });
}

#[divan::bench(types = [LogStore, MapStore], args = SHAPES, sample_size = SAMPLE_SIZE, sample_count = SAMPLE_COUNT)]
fn set_new<S: Subject>(bencher: Bencher, shape: Shape) {
    let mut bench = Bench::<S>::filled(shape, &shape.ample());
    bencher.counter(ItemsCount::new(1_u32)).bench_local(|| {
        let number = bench.number_new();
        bench.insert(number);
    });
    assert_eq!(bench.counters.evictions, 0, "there was room");
}

#[divan::bench(types = [LogStore, MapStore], args = SHAPES, sample_size = SAMPLE_SIZE, sample_count = SAMPLE_COUNT)]
fn set_same_size<S: Subject>(bencher: Bencher, shape: Shape) {
    let mut bench = Bench::<S>::filled(shape, &shape.ample());
    bencher.counter(ItemsCount::new(1_u32)).bench_local(|| {
        let number = bench.choose();
        let slot = bench.slot(number).expect("it is there");
        let value = Value::Borrowed(&bench.value);
        let stored = bench
            .store
            .replace(NOW, slot, header(), value, &mut bench.counters);
        stored.is_ok()
    });
    assert_eq!(bench.store.usage().items, shape.items);
}

#[divan::bench(types = [LogStore, MapStore], args = SHAPES, sample_size = SAMPLE_SIZE, sample_count = SAMPLE_COUNT)]
fn delete<S: Subject>(bencher: Bencher, shape: Shape) {
    let mut bench = Bench::<S>::filled(shape, &shape.ample());
    bencher.counter(ItemsCount::new(1_u32)).bench_local(|| {
        let number = bench.choose();
        let slot = bench.slot(number).expect("it has not had its turn");
        bench.store.remove(slot);
    });
}

#[divan::bench(types = [LogStore, MapStore], args = SHAPES, sample_size = SAMPLE_SIZE, sample_count = SAMPLE_COUNT)]
fn set_evicting<S: Subject>(bencher: Bencher, shape: Shape) {
    let mut bench = Bench::<S>::filled(shape, &shape.scarce());
    // Until the memory is full, with any size of items in this store.
    while bench.counters.evictions < 1_000 {
        let number = bench.number_new();
        bench.insert(number);
    }
    let before = bench.counters.evictions;
    bencher.counter(ItemsCount::new(1_u32)).bench_local(|| {
        let number = bench.number_new();
        bench.insert(number);
    });
    assert!(bench.counters.evictions > before, "others had to go");
}
