//! The statistics of a handful of measurements: the median, and how far the others are from it.
//!
//! Means are not used: one disturbed round would move them. Two servers are compared round by
//! round, since a disturbance of the machine lasts longer than a round and so touches both.

use serde::Serialize;

/// The middle of some measurements, and the ends.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Spread {
    /// Of these values; `None` if there are none.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median = if values.len() % 2 == 1 {
            values[middle]
        } else {
            f64::midpoint(values[middle - 1], values[middle])
        };
        Some(Self { median, min, max })
    }

    /// Of the ratios of values that were measured in the same round.
    pub(crate) fn of_pairs(ours: &[f64], theirs: &[f64]) -> Option<Self> {
        assert_eq!(ours.len(), theirs.len(), "both were measured in each round");
        Self::of(ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs))
    }
}

/// `part` of `whole`, 0 if there is no whole.
pub(crate) fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        return 0.0;
    }
    part as f64 / whole as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_odd_count() {
        let spread = Spread::of([3.0, 1.0, 100.0]).expect("there are some");
        assert_eq!((spread.min, spread.median, spread.max), (1.0, 3.0, 100.0));
    }

    #[test]
    fn the_median_of_an_even_count() {
        let spread = Spread::of([4.0, 1.0, 2.0, 100.0]).expect("there are some");
        assert_eq!((spread.min, spread.median, spread.max), (1.0, 3.0, 100.0));
    }

    #[test]
    fn nothing_has_no_median() {
        assert_eq!(Spread::of([]), None);
    }

    /// The second round was slow for both: the ratio does not see it, while that of the medians
    /// of three rounds in another order might.
    #[test]
    fn ratios_are_of_the_same_round() {
        let spread = Spread::of_pairs(&[20.0, 2.0, 30.0], &[10.0, 1.0, 10.0]).expect("some");
        assert_eq!((spread.min, spread.median, spread.max), (2.0, 2.0, 3.0));
    }

    #[test]
    fn a_share_of_nothing_is_nothing() {
        assert_eq!((share(1, 4), share(1, 0)), (0.25, 0.0));
    }
}
