//! The time for which a lock is requested, believed and renewed.
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
pub(super) fn exptime_for(ttl: Duration) -> Exptime {
    let ttl_ms = millis(ttl);
    let asked_s = (ttl_ms + ttl_ms.div_ceil(DRIFT_PART)).div_ceil(1000) + 1;
    let seconds = u32::try_from(asked_s).unwrap_or(u32::MAX);
    debug_assert!(
        i64::from(seconds) <= RELATIVE_EXPTIME_MAX_S,
        "Terms bound the ttl"
    );
    Exptime::In { seconds }
}

/// Why no server can fulfil a call or an option.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum TermsError {
    /// A time is under its least: a second, or 10 ms where servers count in milliseconds.
    TtlTooShort,
    /// A time is over its longest: an hour in a session, otherwise 29 days.
    TtlTooLong,
    /// The longest hold is 0.
    HoldMax,
    /// A lock that is not renewed lasts for a time that is not 0.
    Manual,
    /// A value is to be computed earlier than it is stored.
    Early,
    /// A version cannot be compared under a lock, since the end of the lock has the same answer.
    CasInGrant,
    /// There is no key, or one is there twice, or there are more than a thousand.
    Keys,
    /// The keys of a lock are of several servers.
    Servers,
    /// A shared lock shows no item.
    SharedItem,
    /// The lock has no connection of its own to inherit.
    Inherited,
    /// The lock has no token of its own to be left with, or ends with its connection.
    Detached,
    /// The metadata is longer than [`METADATA_BYTES_MAX`](super::METADATA_BYTES_MAX).
    Metadata,
    /// A key is empty or too long.
    Key,
    /// A key has blanks or control bytes, and in base64 it is too long.
    EncodedKey,
    /// A token is empty or too long, or has a blank or a control byte.
    Token,
    /// The name of a login is empty, or has a blank, which ends it.
    LoginName,
    /// The name and the password of a login are longer than 16 KiB.
    LoginLength,
}

impl fmt::Display for TermsError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::TtlTooShort => {
                "a time is at least a second, or 10 ms where the server counts in milliseconds"
            }
            Self::TtlTooLong => "a time is at most an hour in a session, and 29 days elsewhere",
            Self::HoldMax => "hold_max is 0: give the longest time for which the lock is held",
            Self::Manual => "a lock that is not renewed needs a time: give survive, too",
            Self::Early => "early is not shorter than the ttl, so that each read would compute",
            Self::CasInGrant => {
                "under a lock no other client changes the item: leave out the version"
            }
            Self::Keys => "the keys of a lock must be there, differ, and be a thousand at most",
            Self::Servers => "the keys are of several servers, and a lock is on one",
            Self::SharedItem => {
                "a shared lock shows no item: no client can change the item of its key"
            }
            Self::Inherited => {
                "only a lock with a connection of its own is inherited: set inheritable"
            }
            Self::Detached => {
                "only a lock that survives, with a token of its own, is left behind: set token"
            }
            Self::Metadata => "metadata is at most 250 bytes",
            Self::Key => "a key is 1 to 250 bytes",
            Self::EncodedKey => {
                "a key with blanks or control bytes is at most 186 bytes: it is sent in base64, and \
                 that is at most 250"
            }
            Self::Token => "a token is 1 to 250 bytes without blanks and control bytes",
            Self::LoginName => "a name is at least one byte, and has no blank",
            Self::LoginLength => "a name and its password are at most 16 KiB together",
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
}
