//! How long turns take, for whoever watches: `/metrics`.
//!
//! A turn is what a client is given at a time: what it has sent is read, all of it is answered (up to a
//! bound), and the answers are sent. To look at the clock for each would cost more than many of them take, so one in
//! [`TURNS_PER_LOOK`] is measured, whichever it is; the others cost a counter of the thread's own.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Of how many turns one is measured.
const TURNS_PER_LOOK: u32 = 64;

/// The longest turn that each bucket counts, in microseconds; what takes longer is in a bucket of its own.
pub(crate) const BOUNDS_US: [u64; 14] = [
    5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000,
];

/// What one thread has measured.
#[derive(Debug, Default)]
pub(crate) struct TurnTimes {
    buckets: [AtomicU64; BOUNDS_US.len() + 1],
    sum_ns: AtomicU64,
}

/// Which turns of a thread are measured.
#[derive(Debug, Default)]
pub(crate) struct Sampler(u32);

impl Sampler {
    /// A turn begins; when, if it is one that is measured.
    #[inline]
    pub(crate) fn begin(&mut self) -> Option<Instant> {
        self.0 = self.0.wrapping_add(1);
        self.0.is_multiple_of(TURNS_PER_LOOK).then(Instant::now)
    }
}

impl TurnTimes {
    /// A turn has taken so long.
    #[cold]
    pub(crate) fn note(&self, took: Duration) {
        let us = took.as_micros();
        let bucket = BOUNDS_US.partition_point(|bound| u128::from(*bound) < us);
        if let Some(bucket) = self.buckets.get(bucket) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.sum_ns.fetch_add(ns, Ordering::Relaxed);
    }

    /// Counts from 0 again.
    pub(crate) fn reset(&self) {
        for bucket in &self.buckets {
            bucket.store(0, Ordering::Relaxed);
        }
        self.sum_ns.store(0, Ordering::Relaxed);
    }
}

/// What all threads have measured.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Measured {
    /// How many turns each bucket has; the last one those beyond all bounds.
    pub(crate) buckets: [u64; BOUNDS_US.len() + 1],
    /// How long they took, all together.
    pub(crate) sum: Duration,
}

impl Measured {
    /// Adds what a thread has measured.
    pub(crate) fn add(&mut self, times: &TurnTimes) {
        for (sum, bucket) in self.buckets.iter_mut().zip(&times.buckets) {
            *sum += bucket.load(Ordering::Relaxed);
        }
        self.sum += Duration::from_nanos(times.sum_ns.load(Ordering::Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_in_the_first_bucket_that_it_is_no_longer_than() {
        let times = TurnTimes::default();
        for us in [0, 5, 6, 100_000, 100_001, 10_000_000] {
            times.note(Duration::from_micros(us));
        }
        let mut measured = Measured::default();
        measured.add(&times);
        measured.add(&TurnTimes::default());
        let [first, second, rest @ .., last_bound, beyond] = measured.buckets;
        assert_eq!((first, second, last_bound, beyond), (2, 1, 1, 2));
        assert!(rest.iter().all(|count| *count == 0));
        assert_eq!(measured.sum, Duration::from_micros(10_200_012));
        times.reset();
        let mut measured = Measured::default();
        measured.add(&times);
        assert_eq!(measured, Measured::default());
    }

    #[test]
    fn one_turn_of_so_many_is_measured() {
        let mut sampler = Sampler::default();
        let measured = (0..10 * TURNS_PER_LOOK).filter(|_| sampler.begin().is_some());
        assert_eq!(measured.count(), 10);
    }
}
