//! When to try again after a failure.
//!
//! A [`Retry`] is a plain value, the strategy. [`Retries`] is one use of it and counts the tries. A use belongs
//! to one obtain, so two obtains with the same strategy never share a count. (redislock's `LimitRetry` and
//! `ExponentialBackoff` count in the strategy, so a second use has fewer tries left.)

use core::time::Duration;

use fastrand::Rng;

/// How often and how fast to try again.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Retry {
    /// The first wait; each further one is twice as long, up to `max`.
    min: Duration,
    max: Duration,
    tries_max: Option<u32>,
    jitter: bool,
}

impl Retry {
    /// Does not try again.
    #[must_use]
    pub const fn none() -> Self {
        Self::linear(Duration::ZERO)
    }

    /// Tries again every `every`; 0 is [`none`](Self::none).
    #[must_use]
    pub const fn linear(every: Duration) -> Self {
        Self::exponential(every, every)
    }

    /// Waits `min`, then twice as long each time, and never longer than `max`. If `max` is less
    /// than `min`, every wait is `max`; 0 is [`none`](Self::none).
    #[must_use]
    pub const fn exponential(min: Duration, max: Duration) -> Self {
        Self {
            min,
            max,
            tries_max: None,
            jitter: false,
        }
    }

    /// As `self`, but tries again at most `tries` times.
    #[must_use]
    pub const fn limited(mut self, tries: u32) -> Self {
        self.tries_max = Some(tries);
        self
    }

    /// As `self`, but each wait is drawn from its upper half, so that clients that failed together
    /// do not come back together.
    #[must_use]
    pub const fn with_jitter(mut self) -> Self {
        self.jitter = true;
        self
    }

    /// The longest time that all pauses together can take; `None` means no limit.
    #[must_use]
    pub fn span(self) -> Option<Duration> {
        let whole = Self {
            jitter: false,
            ..self
        };
        let (mut retries, mut span) = (whole.begin(0), Duration::ZERO);
        // A pause doubles at most as often as its factor has bits; after that all pauses are the same.
        for _ in 0..u32::BITS {
            match retries.next_wait() {
                Some(wait) => span = span.saturating_add(wait),
                None => return Some(span),
            }
        }
        let rest = self.tries_max?.saturating_sub(u32::BITS);
        let last = retries.next_wait().unwrap_or_default();
        Some(span.saturating_add(last.saturating_mul(rest)))
    }

    /// Begins a use of the strategy. `seed` is the seed of the jitter.
    #[must_use]
    pub const fn begin(self, seed: u64) -> Retries {
        Retries {
            retry: self,
            tries: 0,
            state: seed,
        }
    }
}

/// One use of a [`Retry`].
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Retries {
    retry: Retry,
    /// How many waits have been handed out.
    tries: u32,
    /// The state of the jitter's generator.
    state: u64,
}

impl Retries {
    /// Begins the tries anew.
    pub(super) const fn restart(&mut self) {
        self.tries = 0;
    }

    /// How long to wait before the next try; `None` means no more tries.
    pub fn next_wait(&mut self) -> Option<Duration> {
        if self.retry.tries_max.is_some_and(|max| self.tries >= max) {
            return None;
        }
        let Retry { min, max, .. } = self.retry;
        let factor = 1_u32.checked_shl(self.tries).unwrap_or(u32::MAX);
        let wait = min.saturating_mul(factor).min(max);
        if wait.is_zero() {
            return None;
        }
        self.tries = self.tries.saturating_add(1);
        if !self.retry.jitter {
            return Some(wait);
        }
        Some(self.upper_half(wait).max(Duration::from_millis(1)))
    }

    /// As [`next_wait`](Self::next_wait), but one of the strategy's pauses so far, drawn at random. A client
    /// that has waited for long is as likely to come back soon as a new one, so no client starves where the
    /// next try decides.
    pub fn next_turn(&mut self) -> Option<Duration> {
        let longest = self.next_wait()?;
        let Retry { min, max, .. } = self.retry;
        if min >= max {
            return Some(longest);
        }
        // A pause doubles at most as often as its factor has bits.
        let doublings = (max.as_nanos() / min.as_nanos().max(1)).checked_ilog2();
        let steps = self.tries.min(doublings.map_or(1, |count| count + 2));
        let step = self.draw(u64::from(steps.saturating_sub(1)));
        let shift = u32::try_from(step).unwrap_or_default();
        let pause = min.saturating_mul(1_u32.checked_shl(shift).unwrap_or(u32::MAX));
        let drawn = self.upper_half(pause);
        Some(drawn.min(longest.max(pause / 2)).min(max))
    }

    /// An even draw between the half of a span and the whole.
    fn upper_half(&mut self, span: Duration) -> Duration {
        let half = span / 2;
        let micros = u64::try_from(span.saturating_sub(half).as_micros()).unwrap_or(u64::MAX);
        half + Duration::from_micros(self.draw(micros))
    }

    /// An even draw of a number up to `most`.
    fn draw(&mut self, most: u64) -> u64 {
        let mut random = Rng::with_seed(self.state);
        let drawn = random.u64(0..=most);
        self.state = random.get_seed();
        drawn
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use quickcheck::quickcheck;

    use super::*;

    fn waits(retry: Retry, count: usize) -> Vec<u64> {
        let mut retries = retry.begin(7);
        core::iter::from_fn(|| retries.next_wait())
            .take(count)
            .map(|wait| u64::try_from(wait.as_millis()).unwrap())
            .collect()
    }

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn none_gives_up_at_once() {
        assert_eq!(waits(Retry::none(), 5), []);
        assert_eq!(waits(Retry::linear(ms(0)), 5), []);
        assert_eq!(waits(Retry::exponential(ms(0), ms(0)), 5), []);
    }

    #[test]
    fn linear_keeps_its_pace() {
        assert_eq!(waits(Retry::linear(ms(100)), 3), [100, 100, 100]);
    }

    #[test]
    fn exponential_doubles_from_min_up_to_max() {
        assert_eq!(
            waits(Retry::exponential(ms(16), ms(100)), 5),
            [16, 32, 64, 100, 100]
        );
        assert_eq!(waits(Retry::exponential(ms(16), ms(10)), 2), [10, 10]);
        // Past the width of the counter it stays at max.
        assert_eq!(
            waits(Retry::exponential(ms(1), ms(50)), 100).last(),
            Some(&50)
        );
    }

    #[test]
    fn a_limit_counts_anew_in_every_use() {
        let retry = Retry::linear(ms(10)).limited(2);
        assert_eq!(waits(retry, 9), [10, 10]);
        assert_eq!(waits(retry, 9), [10, 10]);
        assert_eq!(waits(retry.limited(0), 9), []);
    }

    #[test]
    fn a_span_is_all_the_pauses() {
        assert_eq!(Retry::none().span(), Some(ms(0)));
        assert_eq!(Retry::linear(ms(0)).span(), Some(ms(0)));
        assert_eq!(Retry::linear(ms(100)).span(), None);
        assert_eq!(Retry::exponential(ms(1), ms(50)).with_jitter().span(), None);
        assert_eq!(Retry::linear(ms(100)).limited(0).span(), Some(ms(0)));
        assert_eq!(
            Retry::exponential(ms(16), ms(100)).limited(5).span(),
            Some(ms(16 + 32 + 64 + 100 + 100))
        );
        let often = Retry::exponential(ms(1), ms(4))
            .with_jitter()
            .limited(1_000);
        assert_eq!(often.span(), Some(ms(1 + 2 + 998 * 4)));
        // Many long pauses add up to the longest span there is.
        let long = Retry::linear(Duration::MAX).limited(u32::MAX);
        assert_eq!(long.span(), Some(Duration::MAX));
    }

    quickcheck! {
        fn span_covers_all_waits(seed: u64, min_ms: u16, max_ms: u16, tries: u8) -> bool {
            let retry = Retry::exponential(ms(min_ms.into()), ms(max_ms.into())).limited(tries.into());
            let mut retries = retry.begin(seed);
            let whole: Duration = core::iter::from_fn(|| retries.next_wait()).sum();
            retry.span() == Some(whole)
        }

        fn turn_is_one_of_the_pauses_so_far(seed: u64, min_ms: u8, doublings: u8) -> bool {
            let min = ms(u64::from(min_ms) + 1);
            let max = min * (1 << (doublings % 8));
            let retry = Retry::exponential(min, max).limited(40);
            let (mut turns, mut waits) = (retry.begin(seed), retry.begin(seed));
            let pauses: Vec<_> = core::iter::from_fn(|| Some((turns.next_turn()?, waits.next_wait()?))).collect();
            let is_in_range = |(turn, wait): &(Duration, Duration)| (min / 2..=*wait).contains(turn);
            // However long it has waited, a client comes back soon in the end.
            pauses.len() == 40 && pauses.iter().all(is_in_range)
                && (max == min || pauses[20..].iter().any(|(turn, _)| *turn < max / 2))
        }

        fn jitter_stays_in_the_upper_half(seed: u64, every_ms: u16) -> bool {
            let every = ms(u64::from(every_ms).max(2));
            let mut retries = Retry::linear(every).with_jitter().begin(seed);
            (0..20).all(|_| {
                let wait = retries.next_wait().unwrap();
                wait >= every / 2 && wait <= every
            })
        }

        fn two_seeds_do_not_come_back_together(seed: u64) -> bool {
            let retry = Retry::linear(ms(60_000)).with_jitter();
            retry.begin(seed).next_wait() != retry.begin(seed.wrapping_add(1)).next_wait()
        }
    }
}
