//! How long the answers of the authority take, for people.
//!
//! A time is counted in the first bucket whose bound it does not exceed, as in Prometheus. A request that gets no answer
//! is not counted here.

use std::time::Duration;

/// Counted answers.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct AnswerTimes {
    buckets: [u64; Self::BOUNDS_MS.len() + 1],
    sum: Duration,
    /// The time of the latest one.
    pub(crate) latest: Duration,
}

impl AnswerTimes {
    /// The longest time that each bucket counts, in milliseconds; longer ones are in a bucket of their own. A request is sent
    /// again after 400 ms, and given up after 1.2 s.
    pub const BOUNDS_MS: [u64; 10] = [1, 2, 5, 10, 25, 50, 100, 200, 400, 800];

    /// Counts an answer.
    pub(crate) fn note(&mut self, took: Duration) {
        let fits = |bound: &u64| Duration::from_millis(*bound) < took;
        let bucket = Self::BOUNDS_MS.partition_point(fits);
        if let Some(count) = self.buckets.get_mut(bucket) {
            *count += 1;
        }
        self.sum = self.sum.saturating_add(took);
        self.latest = took;
    }

    /// Answers in each bucket; the last one has those beyond all bounds.
    #[must_use]
    pub const fn buckets(&self) -> &[u64] {
        &self.buckets
    }

    /// The sum of their times.
    #[must_use]
    pub const fn sum(&self) -> Duration {
        self.sum
    }

    /// The number of answers.
    pub(crate) fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_counts_in_the_first_fitting_bucket() {
        let mut times = AnswerTimes::default();
        for us in [0, 1_000, 1_001, 800_000, 800_001, 1_200_000] {
            times.note(Duration::from_micros(us));
        }
        let [first, second, rest @ .., last_bound, beyond] = times.buckets;
        assert_eq!((first, second, last_bound, beyond), (2, 1, 1, 2));
        assert!(rest.iter().all(|count| *count == 0));
        assert_eq!(times.count(), 6);
        assert_eq!(times.sum, Duration::from_micros(2_802_002));
        assert_eq!(times.latest, Duration::from_millis(1_200));
    }
}
