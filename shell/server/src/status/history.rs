//! Samples of the counters over the last minutes.

use std::collections::VecDeque;
use std::time::Duration;

use latchd_protocol::stats::Stats;

/// The interval between samples.
pub(super) const INTERVAL: Duration = Duration::from_secs(5);

/// The number of samples kept: five minutes.
const SAMPLES_MAX: usize = 61;

/// A sample of the counters, with its time.
#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    at_ms: u64,
    gets: u64,
    hits: u64,
    misses: u64,
    sets: u64,
    locks: u64,
}

/// The samples of the last minutes, the oldest first.
#[derive(Debug, Default)]
pub(super) struct History(VecDeque<Sample>);

/// Rates between two samples, per second, and the percentage of gets that were hits; `None` without gets.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Rates {
    /// Gets per second.
    pub(super) gets: f64,
    /// Sets per second.
    pub(super) sets: f64,
    /// Lock requests per second.
    pub(super) locks: f64,
    /// The percentage of gets that were hits.
    pub(super) hit_percent: Option<f64>,
}

impl History {
    /// Adds a sample of the current counters.
    pub(super) fn note(&mut self, at_ms: u64, stats: &Stats) {
        let counters = &stats.counters;
        if self.0.len() == SAMPLES_MAX {
            self.0.pop_front();
        }
        self.0.push_back(Sample {
            at_ms,
            gets: counters.cmd_get,
            hits: counters.get_hits,
            misses: counters.get_misses,
            sets: counters.cmd_set,
            locks: counters.cmd_lock,
        });
    }

    /// The rates from each sample to the next.
    pub(super) fn steps(&self) -> Vec<Rates> {
        let later = self.0.iter().skip(1);
        self.0
            .iter()
            .zip(later)
            .map(|(from, to)| rates(*from, *to))
            .collect()
    }

    /// The rates over the whole history.
    pub(super) fn whole(&self) -> Rates {
        match (self.0.front(), self.0.back()) {
            (Some(first), Some(last)) => rates(*first, *last),
            (None, _) | (_, None) => Rates::default(),
        }
    }

    /// The time between the first and the last sample.
    pub(super) fn span(&self) -> Duration {
        let ends = self.0.front().zip(self.0.back());
        let span_ms = ends.map_or(0, |(first, last)| last.at_ms - first.at_ms);
        Duration::from_millis(span_ms)
    }
}

// A rate is shown with three digits.
#[allow(clippy::cast_precision_loss)]
fn rates(from: Sample, to: Sample) -> Rates {
    let seconds = (to.at_ms.saturating_sub(from.at_ms)) as f64 / 1000.0;
    let a_second = |from: u64, to: u64| {
        // After `stats reset` the counter is lower.
        let many = to.saturating_sub(from) as f64;
        if seconds > 0.0 { many / seconds } else { 0.0 }
    };
    let hits = to.hits.saturating_sub(from.hits);
    let asked = hits + to.misses.saturating_sub(from.misses);
    Rates {
        gets: a_second(from.gets, to.gets),
        sets: a_second(from.sets, to.sets),
        locks: a_second(from.locks, to.locks),
        hit_percent: (asked > 0).then(|| 100.0 * hits as f64 / asked as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(gets: u64, hits: u64) -> Stats {
        let mut stats = Stats::default();
        stats.counters.cmd_get = gets;
        stats.counters.get_hits = hits;
        stats.counters.get_misses = gets - hits;
        stats
    }

    #[test]
    fn rates_are_differences_despite_a_reset() {
        let mut history = History::default();
        assert_eq!(history.whole(), Rates::default());
        for (at_ms, stats) in [
            (0, counted(0, 0)),
            (5_000, counted(100, 75)),
            (10_000, counted(0, 0)),
        ] {
            history.note(at_ms, &stats);
        }
        let steps = history.steps();
        assert_eq!((steps[0].gets, steps[0].hit_percent), (20.0, Some(75.0)));
        assert_eq!((steps[1].gets, steps[1].hit_percent), (0.0, None));
        assert_eq!(history.span(), Duration::from_secs(10));
    }

    #[test]
    fn old_samples_are_dropped() {
        let mut history = History::default();
        for at_s in 0..1000 {
            history.note(at_s * 5_000, &counted(at_s, 0));
        }
        assert_eq!(history.steps().len(), 60);
        assert_eq!(history.span(), Duration::from_secs(300));
    }
}
