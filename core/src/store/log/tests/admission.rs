//! Huge values beside small items: the ones that stay, and the ones that are evicted.

use super::*;

/// Memory in segments of 128 KiB, with a window of 512 KiB.
const MEMORY_BYTES: usize = 16 << 20;

/// About ten of the smallest fill the window.
const HUGE_VALUE_BYTES: usize = 50_000;

/// Numbers below `below`, in an order without pattern: a linear congruential generator.
fn draws(below: usize) -> impl FnMut() -> usize {
    let mut drawn: u64 = 1;
    move || {
        drawn = drawn
            .wrapping_mul(0x5851_F42D_4C95_7F2D)
            .wrapping_add(0x1405_7B7E_F767_814F);
        usize::try_from(drawn >> 33).unwrap() % below
    }
}

impl Bench {
    /// Gets an item, and stores it after a miss, as a client of a cache does. Returns whether it was a hit.
    fn get_or_put(&mut self, name: &str, value_bytes: usize) -> bool {
        if self.hit(name) {
            return true;
        }
        self.put(name, header(), &vec![7; value_bytes]).unwrap();
        let stored = self.value(name).map(<[u8]>::len);
        assert_eq!(stored, Some(value_bytes), "it is there after its set");
        false
    }

    fn count(&self, names: impl Iterator<Item = String>) -> usize {
        names.filter(|name| self.has(name)).count()
    }
}

fn huge_name(number: usize) -> String {
    format!("huge-{number}")
}

#[test]
fn huge_values_read_once_displace_few_items() {
    let mut bench = Bench::new(MEMORY_BYTES);
    let small = bench.fill(100);
    let before = bench.count((0..small).map(name));
    for number in 0..200 {
        let value_bytes = HUGE_VALUE_BYTES + number * 1_500;
        assert!(!bench.get_or_put(&huge_name(number), value_bytes));
        assert!(bench.get_or_put(&huge_name(number), value_bytes));
    }
    let left = bench.count((0..small).map(name));
    assert!(left > before / 10 * 9, "{left} of {before}");
    bench.store.check();
}

/// Each of the values below 40 has 50 times the hits of any other.
#[test]
fn huge_values_with_many_hits_stay() {
    let mut bench = Bench::new(MEMORY_BYTES);
    let mut draw = draws(1 << 20);
    let mut hits = [0; 2];
    for turn in 0..200_000 {
        // More small items than fit, so that evicted ones return.
        let _ = bench.get_or_put(&name(draw() % 150_000), 100);
        if turn % 5 == 0 {
            let is_hot = draw().is_multiple_of(2);
            let number = if is_hot {
                draw() % 40
            } else {
                40 + draw() % 2_000
            };
            let found = bench.get_or_put(&huge_name(number), HUGE_VALUE_BYTES);
            hits[usize::from(is_hot)] += usize::from(found && turn > 100_000);
        }
    }
    let [cold, hot] = hits;
    assert!(hot > 9_500, "{hot} of 10,000");
    assert!(cold < 1_000, "{cold} of 10,000");
    bench.store.check();
}

#[test]
fn memory_follows_the_items_in_use() {
    let mut bench = Bench::new(MEMORY_BYTES);
    let small = bench.fill(100);
    let mut draw = draws(1 << 20);
    // Huge values alone are in use: these fit into nine tenths of the memory.
    let huge = 280;
    for _ in 0..20_000 {
        let _ = bench.get_or_put(&huge_name(draw() % huge), HUGE_VALUE_BYTES);
    }
    assert_eq!(bench.count((0..huge).map(huge_name)), huge);
    bench.store.check();
    // Small items alone are in use.
    for _ in 0..8 * small {
        let _ = bench.get_or_put(&name(draw() % (small / 10 * 9)), 100);
    }
    let left = bench.count((0..small / 10 * 9).map(name));
    assert!(left > small / 10 * 8, "{left} of {small}");
    bench.store.check();
}

#[test]
fn a_scan_of_huge_values_evicts_no_hot_ones() {
    let mut bench = Bench::new(MEMORY_BYTES);
    for round in 0..40 {
        for number in 0..200 {
            let _ = bench.get_or_put(&huge_name(number), HUGE_VALUE_BYTES);
        }
        for number in 0..20 {
            let value_bytes = HUGE_VALUE_BYTES;
            assert!(!bench.get_or_put(&huge_name(1_000 + round * 20 + number), value_bytes));
        }
    }
    assert!(bench.count((0..200).map(huge_name)) > 190);
    bench.store.check();
}

#[test]
fn a_locked_huge_value_is_judged_after_the_unlock() {
    let mut bench = Bench::new(MEMORY_BYTES);
    let value = vec![7; HUGE_VALUE_BYTES];
    bench.put("held", locked(), &value).unwrap();
    let flood = |bench: &mut Bench| {
        for number in 0..1_000 {
            bench.put(&huge_name(number), header(), &value).unwrap();
        }
        bench.store.check();
    };
    flood(&mut bench);
    assert!(bench.has("held"), "S1");
    bench.unlock("held");
    flood(&mut bench);
    assert!(!bench.has("held"));
}

/// The window of a store with small memory holds less than one value.
#[test]
fn a_value_larger_than_the_window_is_kept() {
    let mut bench = Bench::new(1 << 20);
    let value_bytes = (1 << 20) / 4 * 3;
    for number in 0..10 {
        assert!(!bench.get_or_put(&huge_name(number), value_bytes));
        for small in 0..100 {
            let _ = bench.get_or_put(&name(number * 100 + small), 100);
        }
        assert!(bench.has(&huge_name(number)), "{number}");
        bench.store.check();
    }
}

/// A replaced value keeps its hits.
#[test]
fn a_hot_huge_value_stays_when_it_is_replaced() {
    let mut bench = Bench::new(MEMORY_BYTES);
    let value = vec![7; HUGE_VALUE_BYTES];
    bench.put("hot", header(), &value).unwrap();
    for number in 0..3_000 {
        bench.put(&huge_name(number), header(), &value).unwrap();
        if number % 10 == 0 {
            assert!(bench.hit("hot"), "{number}");
            bench.put("hot", header(), &value).unwrap();
        }
    }
    bench.store.check();
}
