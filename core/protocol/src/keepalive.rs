//! How a kernel probes a silent TCP peer, so that a dead one is found in time. Server and client use the same figures.
//!
//! When a connection has been silent for a fifth of the allowed time, the kernel sends a probe. It repeats the
//! probe every tenth of that time, until a reply comes or the time is over.
//!
//! Source: tcp(7), `TCP_KEEPIDLE`, `TCP_KEEPINTVL`, `TCP_USER_TIMEOUT`. Linux `net/ipv4/tcp_timer.c`,
//! `tcp_keepalive_timer`: with a user timeout, the first probe that is due after it closes the connection.
//! `net/ipv4/tcp.c`, `tcp_sock_set_keepidle_locked`: a connection that has been silent for longer is probed at
//! once.

use core::time::Duration;

/// The three socket options, in the order in which they are to be set: the last one starts the kernel's clock.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Probes {
    /// `TCP_USER_TIMEOUT`, in milliseconds.
    pub timeout_ms: u32,
    /// `TCP_KEEPINTVL`: from probe to probe.
    pub interval: Duration,
    /// `TCP_KEEPIDLE`: the silence before the first probe.
    pub idle: Duration,
}

impl Probes {
    /// The options that close a connection after `within` of silence: whole seconds, at least two.
    #[must_use]
    pub fn within(within: Duration) -> Self {
        let within_s = within.as_secs().max(2);
        let interval_s = (within_s / 10).max(1);
        // A probe and a half early, so that the next probe still comes in time. With few seconds more time is
        // left, for a second probe.
        let timeout_ms = (within_s * 1000 - interval_s * 1500).max(within_s * 700);
        Self {
            timeout_ms: u32::try_from(timeout_ms).unwrap_or(u32::MAX),
            interval: Duration::from_secs(interval_s),
            idle: Duration::from_secs((within_s / 5).max(1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_probe_comes_in_time() {
        for within_s in [2, 3, 5, 10, 60, 3600] {
            let probes = Probes::within(Duration::from_secs(within_s));
            let timeout = u128::from(probes.timeout_ms);
            // The first probe that is due after the timeout, and is not the first of all, closes.
            let closed = (1..100)
                .map(|n| probes.idle.as_millis() + n * probes.interval.as_millis())
                .find(|at| *at >= timeout)
                .unwrap();
            let within_ms = u128::from(within_s) * 1000;
            assert!(closed <= within_ms, "{within_s}: {closed}");
            assert!(timeout >= within_ms / 2, "{within_s}: {timeout}");
        }
    }
}
