//! How soon a peer is found out that is gone without a word: its machine has lost power, or its link.
//!
//! Nothing arrives then, not even an end, and only asking tells. The kernel does: when a connection has
//! been silent for half of the time that a peer has ([`Config::dead_peer`](crate::Config::dead_peer)),
//! it sends a probe, and goes on until an answer comes or the time is over. Bytes that nobody
//! acknowledges count the same, and so do bytes that a peer has no room for: whoever reads nothing for
//! so long, while something waits for it, is taken for dead.
//!
//! - A1: within the time after its link has gone a connection that has taken a lock is closed, and its
//!   locks are free. From then on it is asked as often, also when it has given them back.
//! - A2: any other has a minute, or as long if that is more.
//!
//! The client asks the same way whether its server is there, on a connection of its own: who waits for a lock
//! waits for a server that is silent (`client/driver.rs`, V3).
//!
//! Source: tcp(7), `TCP_KEEPIDLE`, `TCP_KEEPINTVL`, `TCP_USER_TIMEOUT`; Linux `net/ipv4/tcp_timer.c`,
//! `tcp_keepalive_timer`: with a user timeout, the first probe that is due after it closes.

use std::os::fd::AsFd;
use std::time::Duration;

use rustix::net::sockopt;

/// What a peer has that has never taken a lock.
#[cfg(feature = "server")]
const WITHOUT_LOCKS: Duration = Duration::from_secs(60);

/// How long a peer has that has never taken a lock, if one that has is given `with_locks`.
#[cfg(feature = "server")]
pub(crate) fn without_locks(with_locks: Duration) -> Duration {
    with_locks.max(WITHOUT_LOCKS)
}

/// Has a connection closed that is silent for `within` although it is asked: whole seconds, at least
/// two. On a listening socket this is for those that are accepted from it.
///
/// # Errors
/// The kernel's; on a Unix socket, which has no link that could go down.
pub(crate) fn close(socket: impl AsFd, within: Duration) -> rustix::io::Result<()> {
    let within_s = within.as_secs().max(2);
    let interval_s = (within_s / 10).max(1);
    // A probe and a half early: the one that is due next still comes in time.
    let timeout_ms = within_s * 1000 - interval_s * 1500;
    let timeout_ms = u32::try_from(timeout_ms).unwrap_or(u32::MAX);
    sockopt::set_tcp_user_timeout(&socket, timeout_ms)?;
    sockopt::set_tcp_keepintvl(&socket, Duration::from_secs(interval_s))?;
    // Last: it starts the clock anew.
    sockopt::set_tcp_keepidle(&socket, Duration::from_secs(within_s / 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_probe_comes_in_time() {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        for within_s in [2, 3, 5, 10, 60, 3600] {
            close(&listener, Duration::from_secs(within_s)).unwrap();
            let idle = sockopt::tcp_keepidle(&listener).unwrap().as_millis();
            let interval = sockopt::tcp_keepintvl(&listener).unwrap().as_millis();
            let timeout = u128::from(sockopt::tcp_user_timeout(&listener).unwrap());
            // The first probe that is due after the timeout, and is not the first of all, closes.
            let closed = (1..100)
                .map(|probes| idle + probes * interval)
                .find(|at| *at >= timeout)
                .unwrap();
            assert!(
                closed <= u128::from(within_s) * 1000,
                "{within_s}: {closed}"
            );
            assert!(closed >= u128::from(within_s) * 500, "{within_s}: {closed}");
        }
    }

    #[cfg(feature = "server")]
    #[test]
    fn who_never_had_a_lock_has_a_minute() {
        assert_eq!(without_locks(Duration::from_secs(10)), WITHOUT_LOCKS);
        let long = Duration::from_secs(100);
        assert_eq!(without_locks(long), long);
    }
}
