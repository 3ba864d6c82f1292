//! Detection of unreachable peers: the machine has lost power, or the link is down.
//!
//! Such a peer sends nothing more, not even an end, so the kernel has to probe it. When a connection has been
//! silent for a fifth of the peer's time ([`Config::dead_peer`](crate::Config::dead_peer)), the kernel sends
//! a probe. It sends further probes each tenth of that time, until a reply arrives or the time is over.
//! Unacknowledged bytes count as silence, and so do bytes that a full peer does not take. So a peer that
//! reads nothing for this time, while bytes wait for it, is treated as dead.
//!
//! - A1: If the link of a connection that has acquired a lock fails, the connection is closed and its locks
//!   are released within this time. The probes stay as frequent after it has released its locks.
//! - A2: Any other connection has a minute, or this time if it is longer.
//! - A3: Each peer is also probed at a moment of its own, however many fall silent together. A thread probes
//!   in rounds, at most [`ASKED_AT_ONCE`] peers at the same moment ([`Rounds`]). The kernel's own probes
//!   would fall due together, and past 1,000 its queue (`net.core.netdev_max_backlog`) drops them: a living
//!   peer would be treated as dead. After a reply to a probe of a round, the kernel's probes of this peer
//!   keep to its own moment.
//!
//! The client probes its server the same way, on a connection of its own: a client that waits for a lock
//! waits for a silent server (`client/driver.rs`, V3). It makes no rounds.
//!
//! The figures and their source: [`latchd_protocol::keepalive`].

use std::ops::Range;
use std::os::fd::AsFd;
use std::time::Duration;

use latchd_core::Instant;
use latchd_protocol::keepalive::Probes;
use rustix::net::sockopt;

/// The time of a peer that has never acquired a lock.
const WITHOUT_LOCKS: Duration = Duration::from_secs(60);

/// The time of a peer that has never acquired a lock, if one that has gets `with_locks`.
pub(crate) fn without_locks(with_locks: Duration) -> Duration {
    with_locks.max(WITHOUT_LOCKS)
}

/// Closes a connection that stays silent for `within` despite probes: whole seconds, at least 2 s. Set on a
/// listening socket, it applies to the sockets accepted from it.
///
/// # Errors
/// The kernel's; always on a Unix socket, which has no link.
pub(crate) fn close(socket: impl AsFd, within: Duration) -> rustix::io::Result<()> {
    let probes = Probes::within(within);
    sockopt::set_tcp_user_timeout(&socket, probes.timeout_ms)?;
    sockopt::set_tcp_keepintvl(&socket, probes.interval)?;
    // Last: this restarts the kernel's timer.
    sockopt::set_tcp_keepidle(&socket, probes.idle)
}

/// The silence before the first probe, if the peer has `within`, in whole seconds.
pub(crate) fn silence(within: Duration) -> Duration {
    Probes::within(within).idle
}

/// Makes the kernel probe a peer now, if the peer has been silent for so long that a probe should have been
/// answered.
///
/// # Errors
/// As [`close`].
pub(crate) fn ask(socket: impl AsFd, within: Duration) -> rustix::io::Result<()> {
    sockopt::set_tcp_keepidle(&socket, silence(within))
}

/// The most peers that one thread probes at the same moment.
const ASKED_AT_ONCE: usize = 64;

/// The order in which a thread probes its peers, by the slots of its connections (A3). A round takes a fifth
/// of the time of a lock holder. Other connections are probed only in every so many rounds.
#[derive(Debug)]
pub(crate) struct Rounds {
    within: Duration,
    /// The next slot.
    place: usize,
    /// The number of completed rounds.
    over: usize,
    /// The time of the next step, in microseconds.
    next_us: u64,
    /// The same in whole milliseconds, rounded up. Nothing else is read before it has come.
    next_ms: u64,
}

impl Rounds {
    /// Rounds over connections; a peer that holds locks has `within`.
    pub(crate) const fn new(within: Duration) -> Self {
        Self {
            within,
            place: 0,
            over: 0,
            next_us: 0,
            next_ms: 0,
        }
    }

    /// The time until the next probes, in milliseconds.
    #[inline]
    pub(crate) const fn until_next_ms(&self, now: Instant) -> u64 {
        self.next_ms.saturating_sub(now.as_millis())
    }

    /// The slots, out of this many, that are due at `now`.
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
        // A late step is made up for, and no more: later steps are not merged.
        let next_us = self.next_us.saturating_add(period_us / steps);
        self.next_us = next_us.max(micros(now));
        self.next_ms = self.next_us.div_ceil(1000);
        let due = self.place..places.min(self.place + ASKED_AT_ONCE);
        self.place = due.end;
        due
    }

    /// The time within which the peer at this slot must reply, if it `is_holder`; `None` if it is not due.
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
    fn kernel_accepts_the_probe_times() {
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

    /// Of 10,000 peers that fall silent together, each round probes one part after the other: holders once in
    /// 2 s, others once in 12 s.
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
        // After a long delay, a thread does not probe all peers at once.
        due(&mut rounds, 100_000, &mut asked);
        // With few peers, a round is one step.
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
    fn lockless_peer_has_a_minute() {
        assert_eq!(without_locks(Duration::from_secs(10)), WITHOUT_LOCKS);
        let long = Duration::from_secs(100);
        assert_eq!(without_locks(long), long);
    }
}
