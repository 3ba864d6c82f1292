//! The last minutes: what was counted, every few seconds.

use std::collections::VecDeque;
use std::time::Duration;

use latchd_core::stats::Stats;

/// How long it is from one look to the next.
pub(super) const INTERVAL: Duration = Duration::from_secs(5);

/// How many looks are kept: five minutes.
const SAMPLES_MAX: usize = 61;

/// What was counted when.
#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    at_ms: u64,
    gets: u64,
    hits: u64,
    misses: u64,
    sets: u64,
    locks: u64,
}

/// The looks of the last minutes, the oldest first.
#[derive(Debug, Default)]
pub(super) struct History(VecDeque<Sample>);

/// What was done between two looks, each a second, and how many gets of a hundred were hits; `None` if
/// there were none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Rates {
    /// Gets a second.
    pub(super) gets: f64,
    /// Sets a second.
    pub(super) sets: f64,
    /// Locks that were asked for, a second.
    pub(super) locks: f64,
    /// Hits of a hundred gets.
    pub(super) hit_percent: Option<f64>,
}

impl History {
    /// Notes what is counted now.
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

    /// What was done from each look to the next.
    pub(super) fn steps(&self) -> Vec<Rates> {
        let later = self.0.iter().skip(1);
        self.0
            .iter()
            .zip(later)
            .map(|(from, to)| rates(*from, *to))
            .collect()
    }

    /// What was done over all of it.
    pub(super) fn whole(&self) -> Rates {
        match (self.0.front(), self.0.back()) {
            (Some(first), Some(last)) => rates(*first, *last),
            (None, _) | (_, None) => Rates::default(),
        }
    }

    /// How long it is.
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
        // After `stats reset` there is less.
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
    fn rates_are_differences_and_a_reset_is_no_news() {
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
    fn what_is_old_is_forgotten() {
        let mut history = History::default();
        for at_s in 0..1000 {
            history.note(at_s * 5_000, &counted(at_s, 0));
        }
        assert_eq!(history.steps().len(), 60);
        assert_eq!(history.span(), Duration::from_secs(300));
    }
}
