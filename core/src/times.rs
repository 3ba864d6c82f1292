//! How long locks are held, and waited for: histograms.
//!
//! A span is counted in the first bucket whose bound it does not exceed, as in Prometheus. The buckets reach
//! from a lock around one request to a lock that a batch job keeps for a day.

/// The longest span that each bucket counts, in milliseconds; longer ones are in a bucket of their own.
pub const TIME_BOUNDS_MS: [u64; 14] = [
    1, 5, 10, 50, 100, 500, 1_000, 5_000, 10_000, 60_000, 300_000, 900_000, 3_600_000, 86_400_000,
];

/// Counted spans.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Times {
    /// Spans in each bucket; the last bucket has the spans beyond all bounds.
    pub counts: [u64; TIME_BOUNDS_MS.len() + 1],
    /// Their sum, in milliseconds.
    pub sum_ms: u64,
}

impl Times {
    /// Counts a span.
    pub fn note(&mut self, ms: u64) {
        let bucket = TIME_BOUNDS_MS.partition_point(|bound| *bound < ms);
        if let Some(count) = self.counts.get_mut(bucket) {
            *count += 1;
        }
        self.sum_ms = self.sum_ms.saturating_add(ms);
    }

    /// Adds the spans that `other` has counted.
    pub fn add(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.sum_ms = self.sum_ms.saturating_add(other.sum_ms);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_in_the_first_bucket_that_it_does_not_exceed() {
        let mut times = Times::default();
        for ms in [0, 1, 2, 86_400_000, 86_400_001, u64::MAX] {
            times.note(ms);
        }
        let mut sum = Times::default();
        sum.add(&times);
        sum.add(&Times::default());
        let [first, second, rest @ .., last_bound, beyond] = sum.counts;
        assert_eq!((first, second, last_bound, beyond), (2, 1, 1, 2));
        assert!(rest.iter().all(|count| *count == 0));
        assert_eq!(sum.sum_ms, u64::MAX);
    }
}
