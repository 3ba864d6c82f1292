//! Sequences of requests for which stores keep different items.
//!
//! Each is the same for every server: it depends on nothing but its length and a seed.

use std::sync::Arc;

use fastrand::Rng;

/// Keys that are asked for now and then, of the popular ones.
const POPULAR: u32 = 500_000;
/// All keys of the skewed traces.
const SKEWED: u32 = 2_000_000;
/// Keys that are asked for once begin here, and go on.
const ONCE: u32 = 1 << 30;

/// A kind of sequence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Trace {
    /// The key of rank r is asked for in proportion to r^-s, of two million.
    Zipf(f64),
    /// Every other request is for a key that never comes again; the rest is skewed.
    OneHitWonders,
    /// Skewed, and one request in three is a walk over the same 400,000 other keys.
    Scan,
    /// The same keys in the same order, some more than fit.
    Loop,
    /// Skewed over keys that were never requested before, `phase` by `phase`.
    Shift { phase: u32 },
}

impl Trace {
    /// Its first `length` keys.
    pub(crate) fn keys(self, length: u32, seed: u64) -> Box<dyn Iterator<Item = u32>> {
        let mut rng = Rng::with_seed(seed);
        let count = usize::try_from(length).expect("a sequence can be counted");
        match self {
            Self::Zipf(skew) => {
                let zipf = Zipf::new(SKEWED, skew);
                Box::new(std::iter::repeat_with(move || zipf.draw(&mut rng)).take(count))
            }
            Self::OneHitWonders => {
                let zipf = Zipf::new(POPULAR, 1.0);
                Box::new((0..length).map(move |index| {
                    if index % 2 == 0 {
                        zipf.draw(&mut rng)
                    } else {
                        ONCE + index
                    }
                }))
            }
            Self::Scan => {
                const WALK: u32 = 400_000;
                let zipf = Zipf::new(POPULAR, 1.0);
                Box::new((0..length).map(move |index| {
                    if index % 3 == 0 {
                        ONCE + (index / 3) % WALK
                    } else {
                        zipf.draw(&mut rng)
                    }
                }))
            }
            Self::Loop => {
                const ROUND: u32 = 350_000;
                Box::new((0..length).map(|index| index % ROUND))
            }
            Self::Shift { phase } => {
                let zipf = Zipf::new(POPULAR, 1.0);
                let first = ONCE + phase * POPULAR;
                Box::new(std::iter::repeat_with(move || first + zipf.draw(&mut rng)).take(count))
            }
        }
    }
}

/// Draws numbers below a bound, the smaller the likelier.
#[derive(Clone, Debug)]
struct Zipf {
    /// For each number, how likely it or a smaller one is.
    up_to: Arc<[f64]>,
}

impl Zipf {
    fn new(bound: u32, skew: f64) -> Self {
        let weights = (1..=bound).map(|rank| f64::from(rank).powf(-skew));
        let mut sum = 0.0;
        let mut up_to: Vec<f64> = weights
            .map(|weight| {
                sum += weight;
                sum
            })
            .collect();
        for share in &mut up_to {
            *share /= sum;
        }
        Self {
            up_to: up_to.into(),
        }
    }

    fn draw(&self, rng: &mut Rng) -> u32 {
        let at = rng.f64();
        let index = self.up_to.partition_point(|up_to| *up_to <= at);
        // Rounding may leave the last share a little below 1.
        u32::try_from(index.min(self.up_to.len() - 1)).expect("the bound is a u32")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn zipf_draws_follow_their_rank() {
        let zipf = Zipf::new(1_000, 1.0);
        let mut rng = Rng::with_seed(3);
        let mut counts = vec![0_u32; 1_000];
        for _ in 0..200_000 {
            counts[usize::try_from(zipf.draw(&mut rng)).expect("below 1000")] += 1;
        }
        // The sum of 1/r up to 1000 is 7.485.
        for (rank, expected) in [(1, 26_718), (2, 13_359), (10, 2_672)] {
            let count = counts[rank - 1];
            assert!(
                count.abs_diff(expected) < expected / 10,
                "rank {rank}: {count} of about {expected}"
            );
        }
        assert!(counts.iter().all(|count| *count < 30_000));
    }

    #[test]
    fn a_trace_depends_on_its_seed_only() {
        for trace in [
            Trace::Zipf(0.8),
            Trace::OneHitWonders,
            Trace::Scan,
            Trace::Loop,
            Trace::Shift { phase: 2 },
        ] {
            let keys = |seed| trace.keys(1_000, seed).collect::<Vec<_>>();
            assert_eq!(keys(1).len(), 1_000, "{trace:?}");
            assert_eq!(keys(1), keys(1), "{trace:?}");
            assert_eq!(keys(1) == keys(2), trace == Trace::Loop, "{trace:?}");
        }
    }

    #[test]
    fn a_wonder_is_asked_for_once() {
        let mut counts = BTreeMap::new();
        for key in Trace::OneHitWonders.keys(10_000, 1) {
            *counts.entry(key).or_insert(0) += 1;
        }
        let wonders: Vec<_> = counts.range(ONCE..).map(|(_, count)| *count).collect();
        assert_eq!(wonders, vec![1; 5_000]);
    }

    #[test]
    fn phases_of_a_shift_share_no_key() {
        let last = |phase| Trace::Shift { phase }.keys(10_000, 1).max();
        let first = |phase| Trace::Shift { phase }.keys(10_000, 1).min();
        assert!(last(0) < first(1));
        assert!(last(2) < first(3));
    }
}
