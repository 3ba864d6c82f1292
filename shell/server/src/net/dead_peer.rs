//! How soon a peer is found out that is gone without a word: its machine has lost power, or its link.
//!
//! Nothing arrives then, not even an end, and only asking tells. The kernel does: when a connection has been silent for
//! a fifth of the time that a peer has ([`Config::dead_peer`](crate::Config::dead_peer)), it sends a probe, and another
//! one each tenth of the time, until an answer comes or the time is over. Bytes that nobody acknowledges count the same,
//! and so do bytes that a peer has no room for: a peer that reads nothing for so long, while something waits for it, is
//! taken for dead.
//!
//! - A1: within the time after its link has gone a connection that has taken a lock is closed, and its
//!   locks are free. From then on it is asked as often, also when it has given them back.
//! - A2: any other has a minute, or as long if that is more.
//! - A3: each is asked at a moment of its own, too, however many fall silent together: by turns, at most
//!   [`ASKED_AT_ONCE`] of a thread at the same moment ([`Rounds`]). The kernel's own probes fall due together then, and
//!   past 1,000 its queue (`net.core.netdev_max_backlog`) drops them: a living peer would be taken for dead. A peer that
//!   has answered by turns is asked by the kernel at that moment of its own from then on.
//!
//! The client asks the same way whether its server is there, on a connection of its own: who waits for a lock
//! waits for a server that is silent (`client/driver.rs`, V3). It makes no rounds.
//!
//! The figures, and their source: [`latchd_core::keepalive`].

use std::ops::Range;
use std::os::fd::AsFd;
use std::time::Duration;

use latchd_core::Instant;
use latchd_core::keepalive::Probes;
use rustix::net::sockopt;

/// What a peer has that has never taken a lock.
const WITHOUT_LOCKS: Duration = Duration::from_secs(60);

/// How long a peer has that has never taken a lock, if one that has is given `with_locks`.
pub(crate) fn without_locks(with_locks: Duration) -> Duration {
    with_locks.max(WITHOUT_LOCKS)
}

/// Has a connection closed that is silent for `within` although it is asked: whole seconds, at least
/// two. On a listening socket this is for those that are accepted from it.
///
/// # Errors
/// The kernel's; on a Unix socket, which has no link that could go down.
pub(crate) fn close(socket: impl AsFd, within: Duration) -> rustix::io::Result<()> {
    let probes = Probes::within(within);
    sockopt::set_tcp_user_timeout(&socket, probes.timeout_ms)?;
    sockopt::set_tcp_keepintvl(&socket, probes.interval)?;
    // Last: it starts the clock anew.
    sockopt::set_tcp_keepidle(&socket, probes.idle)
}

/// How long a connection is silent before it is asked, if it has `within`: whole seconds.
pub(crate) fn silence(within: Duration) -> Duration {
    Probes::within(within).idle
}

/// Has the kernel ask a peer now that has not been heard of for so long that a probe should have been answered.
///
/// # Errors
/// As [`close`].
pub(crate) fn ask(socket: impl AsFd, within: Duration) -> rustix::io::Result<()> {
    sockopt::set_tcp_keepidle(&socket, silence(within))
}

/// How many of a thread are asked at the same moment.
const ASKED_AT_ONCE: usize = 64;

/// Whose turn it is to be asked by a thread, by the places of its connections (A3). A round takes a fifth of the time that
/// a holder has; the others are asked in every so many rounds.
#[derive(Debug)]
pub(crate) struct Rounds {
    within: Duration,
    /// The place that comes next.
    place: usize,
    /// How many rounds are over.
    over: usize,
    /// When it does, in microseconds.
    next_us: u64,
    /// The same in whole milliseconds, rounded up: all that is looked at while it is not due.
    next_ms: u64,
}

impl Rounds {
    /// Of connections whose peers have `within` if they hold locks.
    pub(crate) const fn new(within: Duration) -> Self {
        Self {
            within,
            place: 0,
            over: 0,
            next_us: 0,
            next_ms: 0,
        }
    }

    /// How long it is until the next are asked, in milliseconds.
    #[inline]
    pub(crate) const fn until_next_ms(&self, now: Instant) -> u64 {
        self.next_ms.saturating_sub(now.as_millis())
    }

    /// The places whose turn it is at `now`, of so many.
    #[inline]
    pub(crate) fn due(&mut self, now: Instant, places: usize) -> Range<usize> {
        if now.as_millis() < self.next_ms {
            return 0..0;
        }
        self.go_on(now, places)
    }

    fn go_on(&mut self, now: Instant, places: usize) -> Range<usize> {
        if self.place >= places {
            self.place = 0;
            self.over = self.over.wrapping_add(1);
        }
        let period_us = u64::try_from(self.within.as_micros() / 5).unwrap_or(u64::MAX);
        let steps = places.div_ceil(ASKED_AT_ONCE).max(1) as u64;
        // A step that is late is made up for, and no more: others are not asked together for that.
        let next_us = self.next_us.saturating_add(period_us / steps);
        self.next_us = next_us.max(micros(now));
        self.next_ms = self.next_us.div_ceil(1000);
        let due = self.place..places.min(self.place + ASKED_AT_ONCE);
        self.place = due.end;
        due
    }

    /// Within which time the connection at this place is to answer, if it `is_holder`; `None` if it is not its turn.
    pub(crate) fn within(&self, place: usize, is_holder: bool) -> Option<Duration> {
        if is_holder {
            return Some(self.within);
        }
        let others = without_locks(self.within);
        let every = others.as_secs() / self.within.as_secs().max(1);
        let every = usize::try_from(every).unwrap_or(usize::MAX).max(1);
        (self.over % every == place % every).then_some(others)
    }
}

const fn micros(at: Instant) -> u64 {
    at.as_millis().saturating_mul(1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_takes_what_is_asked() {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let within = Duration::from_secs(10);
        close(&listener, within).unwrap();
        let taken = Probes {
            timeout_ms: sockopt::tcp_user_timeout(&listener).unwrap(),
            interval: sockopt::tcp_keepintvl(&listener).unwrap(),
            idle: sockopt::tcp_keepidle(&listener).unwrap(),
        };
        assert_eq!(taken, Probes::within(within));
    }

    /// 10,000 that fall silent together are asked one part after the other: holders once in 2 s, others once in 12 s.
    #[test]
    fn rounds_spread_a_crowd() {
        let at = Instant::from_millis;
        let mut rounds = Rounds::new(Duration::from_secs(10));
        let is_holder = |place: usize| place.is_multiple_of(2);
        let mut asked = vec![0; 10_000];
        let due = |rounds: &mut Rounds, now_ms: u64, asked: &mut [u32]| {
            let places = rounds.due(at(now_ms), asked.len());
            assert!(places.len() <= ASKED_AT_ONCE, "{places:?} at {now_ms}");
            for place in places {
                if rounds.within(place, is_holder(place)).is_some() {
                    asked[place] += 1;
                }
            }
        };
        for now_ms in 5_000..29_000 {
            due(&mut rounds, now_ms, &mut asked);
        }
        for (place, times) in asked.iter().enumerate() {
            let expected = if is_holder(place) { 11..=13 } else { 1..=3 };
            assert!(expected.contains(times), "{place}: {times}");
        }
        assert!(rounds.until_next_ms(at(29_000)) <= 13);
        // A thread that comes too late does not ask all at once.
        due(&mut rounds, 100_000, &mut asked);
        // And with few, a round is one step.
        let mut few = Rounds::new(Duration::from_secs(10));
        assert_eq!((few.due(at(7), 3), few.due(at(8), 3)), (0..3, 0..0));
        assert_eq!(few.until_next_ms(at(8)), 1_992);
        assert_eq!(
            few.within(2, false),
            None,
            "its turn comes in another round"
        );
    }

    #[test]
    fn who_never_had_a_lock_has_a_minute() {
        assert_eq!(without_locks(Duration::from_secs(10)), WITHOUT_LOCKS);
        let long = Duration::from_secs(100);
        assert_eq!(without_locks(long), long);
    }
}
