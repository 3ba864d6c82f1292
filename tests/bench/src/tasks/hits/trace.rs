//! Sequences of requests for which stores keep different items.
//!
//! Each is the same for every server: it depends on nothing but its length and a seed.

use fastrand::Rng;
use latchd_load::zipf::Zipf;

/// Keys that are asked for now and then, of the popular ones.
const POPULAR: u32 = 500_000;
/// The keys of the mixed sizes.
const MIXED: u32 = 1_000_000;
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
    /// Skewed, a fifth as long: large values take time.
    Mixed,
    /// Skewed over keys that were never requested before, `phase` by `phase`.
    Shift { phase: u32 },
}

impl Trace {
    /// Its length, if most have this one.
    pub(crate) fn length(self, length: u32) -> u32 {
        match self {
            Self::Mixed => length / 5,
            Self::Zipf(_)
            | Self::OneHitWonders
            | Self::Scan
            | Self::Loop
            | Self::Shift { phase: _ } => length,
        }
    }

    /// Its first `length` keys.
    pub(crate) fn keys(self, length: u32, seed: u64) -> Box<dyn Iterator<Item = u32>> {
        let mut rng = Rng::with_seed(seed);
        let count = usize::try_from(length).expect("a sequence can be counted");
        match self {
            Self::Zipf(skew) => {
                let zipf = Zipf::new(SKEWED, skew);
                Box::new(std::iter::repeat_with(move || zipf.draw(&mut rng)).take(count))
            }
            Self::Mixed => {
                let zipf = Zipf::new(MIXED, 0.9);
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_trace_depends_on_its_seed_only() {
        for trace in [
            Trace::Zipf(0.8),
            Trace::OneHitWonders,
            Trace::Scan,
            Trace::Loop,
            Trace::Mixed,
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
