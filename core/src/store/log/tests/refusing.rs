//! A store that runs out of memory (C2).

extern crate std;

use core::ops::Range;

use super::*;

std::thread_local! {
    /// Whether allocations fail now, for the stores of this test.
    static IS_OUT: Cell<bool> = const { Cell::new(false) };
}

/// A block that fails to allocate on demand.
#[derive(Debug, Default)]
struct Scarce(Vec<u8>);

impl Block for Scarce {
    fn allocate(bytes: usize) -> Option<Self> {
        if IS_OUT.get() {
            return None;
        }
        Vec::allocate(bytes).map(Self)
    }

    fn capacity(&self) -> usize {
        self.0.capacity()
    }

    fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }

    fn write_again(&mut self, range: Range<usize>) {
        self.0.write_again(range);
    }

    fn clear(&mut self) {
        self.0.clear();
    }
}

/// Items that cannot be moved together because no segment is free stay in their place until there is one.
#[test]
fn a_segment_that_cannot_be_carried_stays_in_its_queue() {
    let limits = limits(1 << 20);
    let mut bench = Bench::<_, Scarce>::of(LogStore::in_blocks(&limits, SipHash::new([3, 4])));
    // 24 segments, and no other record fits into the last one.
    let mut count = 0;
    while bench.store.log.with_memory() < 24 || bench.store.log.has_room(queue::Queue::Small, 136) {
        bench.put(&name(count), header(), &[7; 100]).unwrap();
        count += 1;
    }
    for number in (0..count * 7 / 8).filter(|number| number % 4 > 0) {
        bench.remove(&name(number));
    }
    IS_OUT.set(true);
    bench.crawl();
    assert!(bench.store.drain.is_none(), "it waits in its queue");
    assert_eq!(bench.store.log.with_memory(), 24);
    bench.store.check();
    IS_OUT.set(false);
    for _ in 0..20 {
        bench.crawl();
    }
    assert!(bench.store.log.with_memory() < 12);
    for number in (0..count * 7 / 8).step_by(4) {
        assert!(bench.has(&name(number)), "{number}");
    }
    bench.store.check();
}
