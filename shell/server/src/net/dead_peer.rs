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
//! The figures, and their source: [`latchd_core::keepalive`].

use std::os::fd::AsFd;
use std::time::Duration;

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

    #[test]
    fn who_never_had_a_lock_has_a_minute() {
        assert_eq!(without_locks(Duration::from_secs(10)), WITHOUT_LOCKS);
        let long = Duration::from_secs(100);
        assert_eq!(without_locks(long), long);
    }
}
