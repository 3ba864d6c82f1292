//! The time for which a lease is requested, believed and renewed.
//!
//! - T1: The holder believes for `ttl`, counted by its own clock from the moment the request was sent.
//! - T2: The request asks for more than `ttl`, so the server's lease ends later than the holder's belief
//!   ([`exptime_for`]).
//!
//! A memcached counts whole seconds that begin at any moment, so an item may be gone up to a second before its
//! exptime. Two clocks do not run equally fast either. T2 covers both.

use core::fmt;
use core::time::Duration;

use latchd_protocol::time::{Exptime, RELATIVE_EXPTIME_MAX_S};

use super::moment::millis;
use super::retry::Retry;
pub use latchd_protocol::item::LEASE_ITEM;

/// The shortest ttl that every server can measure.
pub const TTL_MIN: Duration = Duration::from_secs(1);

/// The longest ttl: the exptime for it must still be a span and not a date.
pub const TTL_MAX: Duration = Duration::from_secs(29 * 24 * 60 * 60);

/// The server's clock may run faster than the holder's by one part in this many.
pub(super) const DRIFT_PART: u64 = 100;

/// The error of a server that counts milliseconds, in milliseconds: its clock ticks once a turn.
pub(super) const TICK_MS: u64 = 10;

/// The time between two tries to reach a server again.
pub(super) const RECONNECT: Duration = Duration::from_millis(100);

/// How long after the deadline of a call the answer to its last try may take.
pub(super) const LAST_TRY: Duration = Duration::from_millis(100);

/// The longest silence of a server after which its last answer, that another client holds the lock, still
/// counts.
pub(super) const SILENCE: Duration = Duration::from_secs(1);

/// The exptime that a request asks for, so that a lease outlives the belief in it: one second and one percent
/// more than `ttl`, rounded up to a second.
///
/// The second covers memcached's clock, which ticks once a second and counts the exptime from the last tick.
/// The percent covers the drift of two clocks.
#[must_use]
pub fn exptime_for(ttl: Duration) -> Exptime {
    let ttl_ms = millis(ttl);
    let asked_s = (ttl_ms + ttl_ms.div_ceil(DRIFT_PART)).div_ceil(1000) + 1;
    let seconds = u32::try_from(asked_s).unwrap_or(u32::MAX);
    debug_assert!(
        i64::from(seconds) <= RELATIVE_EXPTIME_MAX_S,
        "Terms bound the ttl"
    );
    Exptime::In { seconds }
}

/// The ttl of the key's lock beside the item. It is longer than the item's, so that both end when the lock
/// does.
pub(super) fn place_ttl(ttl: Duration) -> Duration {
    let seconds = u64::try_from(exptime_for(ttl).to_wire()).unwrap_or_default();
    Duration::from_secs(seconds + 1)
}

/// The terms of a lease: what to request, and how to keep it.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub struct Terms {
    /// The length of each obtain and each renewal, [`TTL_MIN`] to [`TTL_MAX`].
    pub ttl: Duration,
    /// When to try again while another client holds it.
    pub retry: Retry,
    /// How long to go on trying; `None` means as long as the ttl. At the deadline there is a last try.
    pub deadline: Option<Duration>,
    /// Whether it is renewed at a third of its ttl, so that two renewals may fail before it runs out.
    /// Otherwise that is left to the caller.
    pub watchdog: bool,
    /// The longest time it may be held, counted from the obtain, however often it is renewed; `None` means no
    /// limit. Without a limit, a holder that hangs is renewed forever.
    pub hold_max: Option<Duration>,
    /// The effect of a broken connection on a held lease.
    pub on_disconnect: OnDisconnect,
    /// How long the server may take to answer before the connection counts as broken.
    pub reply_timeout: Duration,
    /// The seed of the jitter: any number that differs between clients.
    pub seed: u64,
    /// The caller gave the token, so an item that shows it is ours from an earlier obtain.
    pub own_token: bool,
    /// Whether to acquire the key's lock as well, where the server has such locks. Then other clients wait for
    /// it in the server's queue, and so does this one ([`LeaseNews::Queues`](super::LeaseNews::Queues)).
    pub queues: bool,
}

impl Terms {
    /// A lease of `ttl` with a watchdog and a single try.
    ///
    /// # Errors
    /// [`TermsError`] if the server cannot measure `ttl`.
    pub const fn new(ttl: Duration) -> Result<Self, TermsError> {
        let terms = Self {
            ttl,
            retry: Retry::none(),
            deadline: None,
            watchdog: true,
            hold_max: None,
            on_disconnect: OnDisconnect::Ask,
            reply_timeout: Duration::from_secs(5),
            seed: 0,
            own_token: false,
            queues: false,
        };
        match check_ttl(ttl) {
            Ok(()) => Ok(terms),
            Err(error) => Err(error),
        }
    }
}

/// Whether a server can measure `ttl`.
pub(super) const fn check_ttl(ttl: Duration) -> Result<(), TermsError> {
    if ttl.as_millis() < TTL_MIN.as_millis() {
        Err(TermsError::TtlTooShort)
    } else if ttl.as_millis() > TTL_MAX.as_millis() {
        Err(TermsError::TtlTooLong)
    } else {
        Ok(())
    }
}

/// The effect of a broken connection on a held lease.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum OnDisconnect {
    /// It is lost.
    Lost,
    /// The server is asked over a new connection, as long as the lease has time. Until the answer, the lease is
    /// in doubt and does not count as held: a server that has restarted may have granted it to another client.
    #[default]
    Ask,
}

/// Why these terms of a lease are invalid.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum TermsError {
    /// The ttl is under [`TTL_MIN`].
    TtlTooShort,
    /// The ttl is over [`TTL_MAX`].
    TtlTooLong,
    /// The ttl is under a second, and there are several keys, a note, or a token of the caller's own; or the
    /// lease is to be detached.
    Short,
    /// A version cannot be compared under a lock, since the end of the lock has the same answer.
    CasInGrant,
    /// There is no key, or one is there twice, or there are more than [`KEYS_MAX`](super::KEYS_MAX).
    Keys,
    /// The time of a session is under a second or over an hour.
    SessionTime,
    /// The connection of a lock in a session is to be inherited, which would not keep the lock.
    Inherited,
}

impl fmt::Display for TermsError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::TtlTooShort => {
                "a ttl is at least a second, where servers count in seconds, and 10 ms otherwise"
            }
            Self::Short => {
                "a lock of less than a second is its connection's: it has one key, no note and no token of \
                 one's own, and cannot be left behind"
            }
            Self::CasInGrant => "under a lock no other client changes the item: leave out the version",
            Self::TtlTooLong => "a ttl is at most 29 days: a longer exptime would be a date",
            Self::Keys => "the keys of a lock must be there, differ, and be a thousand at most",
            Self::SessionTime => "a session lasts 1 to 3600 s without a sign of life",
            Self::Inherited => "a lock in a session is not inherited with a connection",
        })
    }
}

impl core::error::Error for TermsError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_is_asked_for_more_than_is_believed() {
        let asked = |ms| exptime_for(Duration::from_millis(ms)).to_wire();
        assert_eq!(asked(1_000), 3); // 1.01 s is 2 whole ones, and one for the tick
        assert_eq!(asked(1_500), 3);
        assert_eq!(asked(30_000), 32);
        assert_eq!(asked(200_000), 203);
    }

    #[test]
    fn the_longest_ttl_is_still_a_span_on_the_wire() {
        assert_eq!(TTL_MAX, Duration::from_secs(2_505_600), "29 days");
        assert!(exptime_for(TTL_MAX).to_wire() <= RELATIVE_EXPTIME_MAX_S);
    }

    #[test]
    fn a_ttl_that_servers_cannot_measure_is_refused() {
        let terms = |ms| Terms::new(Duration::from_millis(ms)).map(|terms| terms.ttl);
        assert_eq!(terms(999), Err(TermsError::TtlTooShort));
        assert_eq!(terms(0), Err(TermsError::TtlTooShort));
        assert!(terms(1_000).is_ok());
        assert_eq!(Terms::new(TTL_MAX).map(|terms| terms.ttl), Ok(TTL_MAX));
        let longer = TTL_MAX + Duration::from_millis(1);
        assert_eq!(Terms::new(longer).map(|_| ()), Err(TermsError::TtlTooLong));
        assert_eq!(terms(u64::MAX), Err(TermsError::TtlTooLong));
    }
}
