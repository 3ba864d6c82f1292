//! Numbers of which some are far more frequent than others, as the keys of most caches.

use std::sync::Arc;

use fastrand::Rng;

/// Draws numbers below a bound, the smaller the likelier.
#[derive(Clone, Debug)]
pub struct Zipf {
    /// For each number, how likely it or a smaller one is.
    up_to: Arc<[f64]>,
}

impl Zipf {
    /// Numbers below `bound`, at least 1: that of rank r in proportion to r^-`skew`. It has 8 bytes per number.
    #[must_use]
    pub fn new(bound: u32, skew: f64) -> Self {
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

    /// The next number.
    pub fn draw(&self, rng: &mut Rng) -> u32 {
        let at = rng.f64();
        let index = self.up_to.partition_point(|up_to| *up_to <= at);
        // Rounding may leave the last share a little below 1.
        u32::try_from(index.min(self.up_to.len() - 1)).expect("the bound is a u32")
    }
}

#[cfg(test)]
mod tests {
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
}
