//! How long answers took: a histogram with steps that grow with the value (HDR).

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

/// Longer times all count as this one.
const LONGEST: Duration = Duration::from_secs(60);
/// Times are kept to one part in a thousand.
const DIGITS: u8 = 3;

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
    fn endless_requests_count_as_the_longest() {
        let mut latencies = Latencies::new();
        latencies.record(Duration::from_secs(3_600), 1);
        assert!(is_about(latencies.percentiles().max_us, 60e6));
    }
}
