//! Removed values leave no traces (A5, S4): the tests read all memory of the store, spare and freed segments
//! included.

extern crate std;

use super::*;

const SECRET: &[u8] = b"the-secret-is-long";

/// A block that shows every byte written into it: clearing it resets only their number.
#[derive(Debug, Default)]
struct Glass {
    bytes: Vec<u8>,
    len: usize,
}

impl Block for Glass {
    fn allocate(bytes: usize) -> Option<Self> {
        let bytes = vec![0; bytes];
        Some(Self { bytes, len: 0 })
    }

    fn capacity(&self) -> usize {
        self.bytes.len()
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.len]
    }

    fn write(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    fn write_again(&mut self, range: core::ops::Range<usize>) {
        let bytes = range.len();
        self.bytes.copy_within(range, self.len);
        self.len += bytes;
    }

    fn clear(&mut self) {
        self.len = 0;
    }
}

impl Drop for Glass {
    /// A freed block shows no secret.
    fn drop(&mut self) {
        assert!(std::thread::panicking() || !tells(&self.bytes));
    }
}

/// Whether the bytes contain a piece of the secret.
fn tells(bytes: &[u8]) -> bool {
    bytes
        .windows(6)
        .any(|part| part == &SECRET[SECRET.len() - 6..])
}

impl Bench<SipHash, Glass> {
    fn glass(memory_bytes: usize) -> Self {
        let mut limits = limits(memory_bytes);
        limits.erase = true;
        Self::of(LogStore::in_blocks(&limits, SipHash::new([3, 4])))
    }

    fn tells(&self) -> bool {
        let mut segments = self.store.log.segments.iter();
        segments.any(|segment| tells(&segment.block().bytes))
    }

    fn put_secret(&mut self, name: &str) {
        self.put(name, header(), SECRET).unwrap();
        assert!(self.tells());
    }

    fn crawl_on(&mut self) {
        for _ in 0..100 {
            self.crawl();
        }
    }
}

#[test]
fn deleted_and_replaced_values_are_zeroed() {
    let mut bench = Bench::glass(64 << 10);
    bench.put_secret("a");
    bench.remove("a");
    assert!(!bench.tells());
    for other in [
        &b"something-else-now"[..],
        b"something-else",
        b"x",
        &[7; 100],
    ] {
        bench.put_secret("a");
        bench.put("a", header(), other).unwrap();
        assert!(!bench.tells(), "{other:?}");
    }
    bench.put_secret("a");
    let slot = bench.store.find(named("a")).unwrap();
    let (now, counters) = (bench.now, &mut bench.counters);
    let longer = bench
        .store
        .extend(now, slot, header(), b"more", End::Front, counters);
    bench.store.remove(longer.unwrap());
    assert!(!bench.tells());
    bench.store.check();
}

#[test]
fn evicted_expired_and_flushed_values_are_zeroed() {
    let mut bench = Bench::glass(64 << 10);
    bench.put_secret("evicted");
    let mut number = 0;
    while bench.has("evicted") {
        bench.put(&name(number), header(), &[7; 100]).unwrap();
        number += 1;
    }
    assert!(!bench.tells());
    bench.put("expires", expiring(20), SECRET).unwrap();
    bench.pass_until(30);
    bench.crawl_on();
    assert!(!bench.tells());
    bench.put_secret("flushed");
    bench.store.clear();
    bench.crawl_on();
    assert!(!bench.tells());
}

/// A moved item leaves no copy in its old place.
#[test]
fn moved_values_are_zeroed_in_the_old_place() {
    let mut bench = Bench::glass(64 << 10);
    for number in 0..300 {
        bench.put(&name(number), header(), SECRET).unwrap();
    }
    for number in 0..300 {
        if number % 10 != 0 {
            bench.remove(&name(number));
        }
    }
    let before = bench.store.usage().held_bytes;
    bench.crawl_on();
    assert!(
        bench.store.usage().held_bytes < before,
        "it was brought together"
    );
    assert!(bench.has(&name(290)));
    for number in (0..300).step_by(10) {
        assert!(bench.tells());
        bench.remove(&name(number));
    }
    assert!(!bench.tells());
    bench.store.check();
}

/// Shows that the tests above can fail.
#[test]
fn without_erasing_the_value_stays() {
    let mut bench = Bench::glass(64 << 10);
    bench.store.log.erases = false;
    bench.put_secret("a");
    bench.remove("a");
    let block = bench.store.log.segments.iter().next().unwrap().block();
    assert!(tells(&block.bytes));
    // Freed blocks would be found to contain the secret.
    mem::forget(bench);
}
