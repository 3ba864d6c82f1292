//! How long answers took: a histogram with steps that grow with the value (HDR).

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

/// Longer times all count as this one.
const LONGEST: Duration = Duration::from_secs(60);
/// Times are kept to one part in a thousand.
const DIGITS: u8 = 3;

/// The ends of the steps of a histogram, in microseconds; the last is beyond [`LONGEST`].
const ENDS_US: [u64; 25] = [
    1,
    2,
    5,
    10,
    20,
    50,
    100,
    200,
    500,
    1_000,
    2_000,
    5_000,
    10_000,
    20_000,
    50_000,
    100_000,
    200_000,
    500_000,
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    20_000_000,
    50_000_000,
    100_000_000,
];

/// Times of answers.
#[derive(Clone, Debug)]
pub struct Latencies {
    histogram: Histogram<u64>,
}

/// The percentiles of a histogram, in microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
#[allow(clippy::struct_field_names)] // Units go last.
pub struct Percentiles {
    /// Half of the answers took at most this.
    pub p50_us: f64,
    /// 99 of 100.
    pub p99_us: f64,
    /// 999 of 1,000.
    pub p99_9_us: f64,
    /// 9,999 of 10,000.
    pub p99_99_us: f64,
    /// The slowest.
    pub max_us: f64,
}

impl Latencies {
    /// None yet.
    #[must_use]
    pub fn new() -> Self {
        let longest = nanoseconds(LONGEST);
        let histogram = Histogram::new_with_max(longest, DIGITS).expect("the bounds are constants");
        Self { histogram }
    }

    /// Counts answers that came at the same moment.
    pub fn record(&mut self, latency: Duration, answers: u64) {
        let latency = nanoseconds(latency.min(LONGEST));
        self.histogram
            .record_n(latency, answers)
            .expect("it is within the bounds");
    }

    /// Counts an answer to a client that asks once every `interval`: if it took longer, those that
    /// were not asked meanwhile count too, each with the rest of the time. Else a pause of a second
    /// would be one slow answer among many.
    pub fn record_paced(&mut self, latency: Duration, interval: Duration) {
        let latency = nanoseconds(latency.min(LONGEST));
        self.histogram
            .record_correct(latency, nanoseconds(interval))
            .expect("it is within the bounds");
    }

    /// Adds those of another.
    pub fn add(&mut self, other: &Self) {
        self.histogram
            .add(&other.histogram)
            .expect("both have the same bounds");
    }

    /// How many answers were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The time that this share of the answers, from 0 to 1, did not exceed, in microseconds; 0 if nothing was counted.
    #[must_use]
    pub fn quantile_us(&self, share: f64) -> f64 {
        self.histogram.value_at_quantile(share) as f64 / 1e3
    }

    /// How many answers took how long, in steps of 1, 2, 5, 10 and so on: the end of each step in microseconds, and its
    /// answers. The first and the last step have some.
    #[must_use]
    pub fn steps(&self) -> Vec<(u64, u64)> {
        let mut counts = [0; ENDS_US.len()];
        for step in self.histogram.iter_recorded() {
            let value = self.histogram.lowest_equivalent(step.value_iterated_to());
            let index = ENDS_US.partition_point(|end| end * 1_000 < value);
            counts[index] += step.count_since_last_iteration();
        }
        let first = counts.iter().position(|count| *count > 0);
        let last = counts.iter().rposition(|count| *count > 0);
        let (Some(first), Some(last)) = (first, last) else {
            return Vec::new();
        };
        let steps = ENDS_US.into_iter().zip(counts);
        steps.skip(first).take(last - first + 1).collect()
    }

    /// The percentiles; zeros if nothing was counted.
    #[must_use]
    pub fn percentiles(&self) -> Percentiles {
        let at = |quantile| self.histogram.value_at_quantile(quantile) as f64 / 1e3;
        Percentiles {
            p50_us: at(0.5),
            p99_us: at(0.99),
            p99_9_us: at(0.999),
            p99_99_us: at(0.9999),
            max_us: self.histogram.max() as f64 / 1e3,
        }
    }
}

impl Default for Latencies {
    fn default() -> Self {
        Self::new()
    }
}

fn nanoseconds(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).expect("a minute is not that long")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether `value` is `expected` to one part in a thousand.
    fn is_about(value: f64, expected: f64) -> bool {
        (value - expected).abs() <= expected / 1e3
    }

    #[test]
    fn percentiles_follow_the_counted_values() {
        let mut latencies = Latencies::new();
        for microseconds in 1..=10_000 {
            latencies.record(Duration::from_micros(microseconds), 1);
        }
        let percentiles = latencies.percentiles();
        assert!(is_about(percentiles.p50_us, 5_000.0), "{percentiles:?}");
        assert!(is_about(percentiles.p99_us, 9_900.0), "{percentiles:?}");
        assert!(is_about(percentiles.p99_9_us, 9_990.0), "{percentiles:?}");
        assert!(is_about(percentiles.p99_99_us, 9_999.0), "{percentiles:?}");
        assert!(is_about(percentiles.max_us, 10_000.0), "{percentiles:?}");
    }

    #[test]
    fn answers_of_one_moment_count_each() {
        let mut latencies = Latencies::new();
        latencies.record(Duration::from_micros(10), 99);
        latencies.record(Duration::from_micros(500), 1);
        assert!(is_about(latencies.percentiles().p50_us, 10.0));
        assert!(is_about(latencies.percentiles().max_us, 500.0));
    }

    /// A pause of 100 ms, seen once every millisecond, is not one in a thousand but about one in ten.
    #[test]
    fn a_pause_counts_for_the_skipped_requests() {
        let (paced, pause) = (Duration::from_millis(1), Duration::from_millis(100));
        let mut latencies = Latencies::new();
        for _ in 0..1_000 {
            latencies.record_paced(Duration::from_micros(50), paced);
        }
        latencies.record_paced(pause, paced);
        let percentiles = latencies.percentiles();
        assert!(percentiles.p99_us > 80_000.0, "{percentiles:?}");
        assert!(is_about(percentiles.p50_us, 50.0), "{percentiles:?}");
    }

    #[test]
    fn steps_begin_and_end_with_answers() {
        let mut latencies = Latencies::new();
        assert_eq!(latencies.steps(), []);
        let mut others = Latencies::new();
        latencies.record(Duration::from_micros(10), 3);
        others.record(Duration::from_nanos(10_100), 4);
        others.record(Duration::from_micros(70), 5);
        latencies.add(&others);
        assert_eq!(latencies.steps(), [(10, 3), (20, 4), (50, 0), (100, 5)]);
        assert_eq!(latencies.count(), 12);
        assert!(is_about(latencies.quantile_us(0.25), 10.0));
        latencies.record(Duration::from_secs(3_600), 1);
        assert_eq!(latencies.steps().last(), Some(&(100_000_000, 1)));
    }

    #[test]
    fn endless_requests_count_as_the_longest() {
        let mut latencies = Latencies::new();
        latencies.record(Duration::from_secs(3_600), 1);
        assert!(is_about(latencies.percentiles().max_us, 60e6));
    }
}
