//! The terms of a value that one client at a time computes: how to read and keep it.

use core::time::Duration;

use crate::attachment::SessionTerms;
use crate::retry::Retry;
use crate::terms::{TTL_MAX, TTL_MIN, TermsError};

/// How to read and keep a value.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub struct RecomputeTerms {
    /// How long the value lives; 0 means forever.
    pub ttl: Duration,
    /// How long before its end one client wins the right to compute it anew; 0 means never.
    pub early: Duration,
    /// How long a client may take to compute a missing value before another client wins.
    pub claim: Duration,
    /// The behaviour of the readers without the win.
    pub losers: Losers,
    /// When to look again while another client computes.
    pub retry: Retry,
    /// How long to go on looking; `None` means as long as `claim`.
    pub deadline: Option<Duration>,
    /// How long the server may take to answer before the connection counts as broken.
    pub reply_timeout: Duration,
    /// The session that has the win; `None` means its connection. The server needs sessions.
    pub session: Option<SessionTerms>,
    /// The seed of the jitter: any number that differs between clients.
    pub seed: u64,
}

impl RecomputeTerms {
    /// A value that lives for `ttl`, and is computed anew `early` before its end.
    #[must_use]
    pub const fn new(ttl: Duration, early: Duration) -> Self {
        Self {
            ttl,
            early,
            claim: Duration::from_secs(30),
            losers: Losers::Wait,
            retry: Retry::exponential(Duration::from_millis(10), Duration::from_millis(500))
                .with_jitter(),
            deadline: None,
            reply_timeout: Duration::from_secs(5),
            session: None,
            seed: 0,
        }
    }

    /// Checks the times.
    ///
    /// # Errors
    /// [`TermsError`] if the server cannot measure `ttl`, or if `early` is not shorter.
    pub fn check(&self) -> Result<(), TermsError> {
        let (ttl, early) = (self.ttl, self.early);
        if !ttl.is_zero() && ttl < TTL_MIN {
            return Err(TermsError::TtlTooShort);
        }
        if ttl > TTL_MAX || early > TTL_MAX {
            return Err(TermsError::TtlTooLong);
        }
        if !ttl.is_zero() && early >= ttl {
            return Err(TermsError::Early);
        }
        Ok(())
    }
}

/// The behaviour of the readers without the win. A value that is only about to expire is good for all readers.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Losers {
    /// They wait for the new value.
    #[default]
    Wait,
    /// They take a value that was marked stale, and wait if there is none.
    TakeStale,
}

/// The support for wins of the server behind a connection, as known from its answers.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub(super) enum WinSupport {
    /// Unknown.
    #[default]
    Unknown,
    /// It binds them, and has waits for them (`mg … B`, `w`).
    Binds,
    /// As memcached.
    Plain,
}
