//! The lengths of turns, for `/metrics`.
//!
//! In a turn, the worker reads a client's bytes, executes its requests up to a bound, and sends the replies.
//! Reading the clock in each would take longer than many of them. So one turn in [`TURNS_PER_LOOK`] is
//! measured; the others cost a thread-local counter.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// One in this many turns is measured.
const TURNS_PER_LOOK: u32 = 64;

/// The upper bound of each bucket, in microseconds; longer turns have a bucket of their own.
pub(crate) const BOUNDS_US: [u64; 14] = [
    5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000,
];

/// The measured turns of one thread.
#[derive(Debug, Default)]
pub(crate) struct TurnTimes {
    buckets: [AtomicU64; BOUNDS_US.len() + 1],
    sum_ns: AtomicU64,
}

/// Chooses the turns of a thread to measure.
#[derive(Debug, Default)]
pub(crate) struct Sampler(u32);

impl Sampler {
    /// Begins a turn; returns the time if it is measured.
    #[inline]
    pub(crate) fn begin(&mut self) -> Option<Instant> {
        self.0 = self.0.wrapping_add(1);
        self.0.is_multiple_of(TURNS_PER_LOOK).then(Instant::now)
    }
}

impl TurnTimes {
    /// Counts a measured turn.
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

    /// Resets the counts to 0.
    pub(crate) fn reset(&self) {
        for bucket in &self.buckets {
            bucket.store(0, Ordering::Relaxed);
        }
        self.sum_ns.store(0, Ordering::Relaxed);
    }
}

/// The measured turns of all threads.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Measured {
    /// The number of turns in each bucket; the last one holds those beyond all bounds.
    pub(crate) buckets: [u64; BOUNDS_US.len() + 1],
    /// Their total time.
    pub(crate) sum: Duration,
}

impl Measured {
    /// Adds the turns of a thread.
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
    fn turn_counts_in_the_first_fitting_bucket() {
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
    fn one_turn_in_64_is_measured() {
        let mut sampler = Sampler::default();
        let measured = (0..10 * TURNS_PER_LOOK).filter(|_| sampler.begin().is_some());
        assert_eq!(measured.count(), 10);
    }
}
