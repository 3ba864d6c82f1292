//! Options for locks and values.

use std::num::NonZeroU32;
use std::time::Duration;

use latchd_client_core::{
    BoundTerms, Credentials, LeaseTerms, Losers, Mark, MissingItem, OnDisconnect, RecomputeTerms,
    Retry, SHORT_TTL_MIN, SessionTerms, Terms, TermsError, Token,
};
use latchd_protocol::command::Mode;
use latchd_protocol::time::Exptime;

use super::clock;
use super::tls_options::TlsOptions;

/// Options for every call of a client.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    pub(super) connect_timeout: Duration,
    pub(super) reply_timeout: Duration,
    pub(super) connections: usize,
    pub(super) tls: Option<TlsOptions>,
    pub(super) credentials: Option<Credentials>,
    pub(super) plain_password: bool,
}

impl Default for ClientOptions {
    fn default() -> Self {
        let patience = Duration::from_secs(5);
        Self {
            connect_timeout: patience,
            reply_timeout: patience,
            connections: 4,
            tls: None,
            credentials: None,
            plain_password: false,
        }
    }
}

impl ClientOptions {
    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The time limit to open a connection, name look-up, TLS and login included; 5 s by default. Several
    /// addresses of a host are tried within that time.
    #[must_use]
    pub const fn connect_timeout(mut self, span: Duration) -> Self {
        self.connect_timeout = span;
        self
    }

    /// The time limit for a reply; after it, the connection counts as broken; 5 s by default. The options of
    /// a call can override it.
    #[must_use]
    pub const fn reply_timeout(mut self, span: Duration) -> Self {
        self.reply_timeout = span;
        self
    }

    /// The number of connections that leased locks share; 4 by default, and at least one. They are opened
    /// when needed. More are opened only when each has a thousand keys. A connection-bound lock has its own
    /// connection, and so has the computation of a value.
    #[must_use]
    pub const fn connections(mut self, count: usize) -> Self {
        self.connections = count;
        self
    }

    /// Uses TLS on every connection. It requires the feature `tls`, and a server on TCP.
    #[must_use]
    pub fn tls(mut self, tls: TlsOptions) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Logs in on every connection, if the server requires it (memcached's and latchd's `-Y`). For a server
    /// on another machine this requires [`tls`](Self::tls) or [`plain_password`](Self::plain_password).
    #[must_use]
    pub fn credentials(mut self, credentials: Credentials) -> Self {
        self.credentials = Some(credentials);
        self
    }

    /// Allows to send the password over the network in plain text, readable by everyone on the way.
    #[must_use]
    pub const fn plain_password(mut self) -> Self {
        self.plain_password = true;
        self
    }
}

/// Options to obtain and keep a leased lock. By default, it tries once, renews the lock, and asks over a new
/// connection if one breaks.
#[derive(Clone, Debug, Default)]
pub struct LockOptions {
    pub(super) retry: Retry,
    pub(super) deadline: Option<Duration>,
    pub(super) metadata: Vec<u8>,
    pub(super) token: Option<Token>,
    without_watchdog: bool,
    hold_max: Option<Duration>,
    on_disconnect: OnDisconnect,
    reply_timeout: Option<Duration>,
}

impl LockOptions {
    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// When to try again while another client holds the lock. On latchd, one key is waited for in the
    /// server's queue instead, for as long as the tries and their pauses would take at most. [`Retry::none`]
    /// does not wait; a strategy without a limit waits until the deadline.
    #[must_use]
    pub const fn retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    /// The time limit of the whole call, connecting included; the ttl by default. The reply to a last try at
    /// that moment may take a tenth of a second more.
    #[must_use]
    pub const fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Tries again every `interval` for `timeout`.
    #[must_use]
    pub const fn wait(self, timeout: Duration, interval: Duration) -> Self {
        self.retry(Retry::linear(interval)).deadline(timeout)
    }

    /// Metadata to store with the token, for people who inspect the lock.
    #[must_use]
    pub fn metadata(mut self, metadata: impl Into<Vec<u8>>) -> Self {
        self.metadata = metadata.into();
        self
    }

    /// The caller's own token. It takes over a lock that has the same token, so a holder can return to its
    /// lock after a restart.
    #[must_use]
    pub fn token(mut self, token: Token) -> Self {
        self.token = Some(token);
        self
    }

    /// Does not renew the lock: the caller does that with [`refresh`](super::Lock::refresh).
    #[must_use]
    pub const fn without_watchdog(mut self) -> Self {
        self.without_watchdog = true;
        self
    }

    /// The longest time to hold the lock, with any renewals. Without it, a holder that hangs is renewed for
    /// ever.
    #[must_use]
    pub const fn hold_max(mut self, span: Duration) -> Self {
        self.hold_max = Some(span);
        self
    }

    /// The effect of a broken connection; by default, the client asks the server over a new one. For a lock
    /// of less than a second it is always a loss.
    #[must_use]
    pub const fn on_disconnect(mut self, on_disconnect: OnDisconnect) -> Self {
        self.on_disconnect = on_disconnect;
        self
    }

    /// The time limit for a reply; after it, the connection counts as broken. The default is that of the
    /// client's options.
    #[must_use]
    pub const fn reply_timeout(mut self, span: Duration) -> Self {
        self.reply_timeout = Some(span);
        self
    }

    /// Options of a lock of less than a second, which is bound to its connection.
    pub(super) fn short_terms(
        &self,
        ttl: Duration,
        reply_timeout: Duration,
    ) -> Result<BoundTerms, TermsError> {
        if ttl < SHORT_TTL_MIN {
            return Err(TermsError::TtlTooShort);
        }
        if !self.metadata.is_empty() || self.token.is_some() {
            return Err(TermsError::Short);
        }
        let mut terms = BoundTerms::default();
        terms.retry = self.retry;
        terms.deadline = Some(self.deadline.unwrap_or(ttl));
        terms.missing = MissingItem::Create(Exptime::Never);
        // Renewals already show that the server is alive.
        terms.heartbeat = None;
        terms.reply_timeout = self.reply_timeout.unwrap_or(reply_timeout);
        terms.seed = clock::seed();
        terms.lease = Some(LeaseTerms {
            ttl,
            watchdog: !self.without_watchdog,
            hold_max: self.hold_max,
        });
        Ok(terms)
    }

    pub(super) fn terms(
        &self,
        ttl: Duration,
        reply_timeout: Duration,
    ) -> Result<Terms, TermsError> {
        let mut terms = Terms::new(ttl)?;
        terms.retry = self.retry;
        terms.deadline = self.deadline;
        terms.watchdog = !self.without_watchdog;
        terms.hold_max = self.hold_max;
        terms.on_disconnect = self.on_disconnect;
        terms.reply_timeout = self.reply_timeout.unwrap_or(reply_timeout);
        terms.seed = clock::seed();
        terms.own_token = self.token.is_some();
        // A known token takes over the lease, also from a holder with a place in the queue.
        terms.queues = !terms.own_token;
        Ok(terms)
    }
}

/// The seconds for which an empty item, made for a lock, outlives a holder that dies. It need only exist
/// until it is locked.
const ITEM_TTL_S: u32 = 5;

/// Options to obtain and keep a connection-bound lock. By default, it tries once, with or without an item.
#[derive(Clone, Debug)]
pub struct BoundOptions {
    terms: BoundTerms,
    reply_timeout: Option<Duration>,
    session: Option<Duration>,
}

impl Default for BoundOptions {
    fn default() -> Self {
        let mut terms = BoundTerms::default();
        terms.missing = MissingItem::Create(Exptime::In {
            seconds: ITEM_TTL_S,
        });
        Self {
            terms,
            reply_timeout: None,
            session: None,
        }
    }
}

impl BoundOptions {
    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// When to try again while another client holds the lock. On latchd, the client waits in the server's
    /// queue instead, for as long as the tries and their pauses would take at most. [`Retry::none`] does not
    /// wait; a strategy without a limit waits until the deadline.
    #[must_use]
    pub const fn retry(mut self, retry: Retry) -> Self {
        self.terms.retry = retry;
        self
    }

    /// The time limit of the whole call, connecting included; by default, that of the strategy and the
    /// server. The reply to a last try at that moment may take a tenth of a second more.
    #[must_use]
    pub const fn deadline(mut self, deadline: Duration) -> Self {
        self.terms.deadline = Some(deadline);
        self
    }

    /// The exptime of an empty item; 5 s by default. Where only items can be locked, the client makes one if
    /// there is none. It does not expire while it is locked. latchd needs no item.
    #[must_use]
    pub const fn create(mut self, exptime: Exptime) -> Self {
        self.terms.missing = MissingItem::Create(exptime);
        self
    }

    /// Locks only a key that has an item; otherwise the call fails as
    /// [`NotObtained::NoItem`](super::NotObtained::NoItem).
    #[must_use]
    pub const fn existing(mut self) -> Self {
        self.terms.missing = MissingItem::Refuse;
        self
    }

    /// The mark that the grant leaves in the item: metadata, or, where the server does not number grants, a
    /// new version, which is the number.
    #[must_use]
    pub fn mark(mut self, mark: Mark) -> Self {
        self.terms.mark = mark;
        self
    }

    /// Shares the lock with all others that ask for a shared one, as readers do, and excludes all other
    /// clients. It requires latchd. While a key is shared, no client can change its item, and a
    /// [mark](Self::mark) leaves nothing in it.
    #[must_use]
    pub fn shared(mut self) -> Self {
        self.terms.mode = Mode::Shared { among: None };
        self
    }

    /// As [`shared`](Self::shared), among at most `count` holders, 1 to 1,024. If the holders name
    /// different limits, the lowest counts.
    #[must_use]
    pub fn permits(mut self, count: NonZeroU32) -> Self {
        self.terms.mode = Mode::Shared { among: Some(count) };
        self
    }

    /// Holds the lock in a session of its own, which outlives a broken connection: the client connects again by itself,
    /// and the lock is lost only if that takes longer than `ttl`, less 1%. In turn, a dead holder blocks the others for
    /// `ttl`. 1 s to 1 h, rounded up to a second. It requires latchd; the [heartbeat](Self::heartbeat) is a third of it.
    #[must_use]
    pub const fn session(mut self, ttl: Duration) -> Self {
        self.session = Some(ttl);
        self
    }

    /// The longest silence on the connection before the client checks it; 5 s by default, `None` for ever.
    #[must_use]
    pub const fn heartbeat(mut self, every: Option<Duration>) -> Self {
        self.terms.heartbeat = every;
        self
    }

    /// The time limit for a reply; after it, the connection counts as broken. The default is that of the
    /// client's options.
    #[must_use]
    pub const fn reply_timeout(mut self, span: Duration) -> Self {
        self.reply_timeout = Some(span);
        self
    }

    pub(super) fn terms(&self, reply_timeout: Duration) -> Result<BoundTerms, TermsError> {
        let mut terms = self.terms.clone();
        terms.session = self.session.map(new_session).transpose()?;
        terms.reply_timeout = self.reply_timeout.unwrap_or(reply_timeout);
        if terms.mode.is_shared() {
            terms.mark = Mark::None;
        }
        terms.seed = clock::seed();
        Ok(terms)
    }
}

/// A session with a random token.
fn new_session(ttl: Duration) -> Result<SessionTerms, TermsError> {
    SessionTerms::new(clock::random(), ttl)
}

/// Options to read a value that one client at a time computes.
#[derive(Clone, Debug, Default)]
pub struct ComputeOptions {
    losers: Losers,
    claim: Option<Duration>,
    retry: Option<Retry>,
    deadline: Option<Duration>,
    reply_timeout: Option<Duration>,
    session: Option<Duration>,
}

impl ComputeOptions {
    /// The defaults: a client that may not compute the value waits for it, at most 30 s.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The behaviour of a client that may not compute the value.
    #[must_use]
    pub const fn losers(mut self, losers: Losers) -> Self {
        self.losers = losers;
        self
    }

    /// The time to compute a missing value, before another client is told to compute it; 30 s by default.
    #[must_use]
    pub const fn claim(mut self, span: Duration) -> Self {
        self.claim = Some(span);
        self
    }

    /// When to read again while another client computes; after 10 to 500 ms by default.
    #[must_use]
    pub const fn retry(mut self, retry: Retry) -> Self {
        self.retry = Some(retry);
        self
    }

    /// The time limit of the whole read, connecting included; the claim by default.
    #[must_use]
    pub const fn deadline(mut self, span: Duration) -> Self {
        self.deadline = Some(span);
        self
    }

    /// The time limit for a reply; after it, the connection counts as broken. The default is that of the
    /// client's options.
    #[must_use]
    pub const fn reply_timeout(mut self, span: Duration) -> Self {
        self.reply_timeout = Some(span);
        self
    }

    /// Keeps the right to compute in a session, which outlives a broken connection for `ttl`: no other client computes
    /// meanwhile. In turn, a winner that dies delays the others for `ttl`. 1 s to 1 h, rounded up to a second. It
    /// requires latchd. The session stays with its connection for the next call.
    #[must_use]
    pub const fn session(mut self, ttl: Duration) -> Self {
        self.session = Some(ttl);
        self
    }

    pub(super) fn terms(
        &self,
        ttl: Duration,
        early: Duration,
        reply_timeout: Duration,
    ) -> Result<RecomputeTerms, TermsError> {
        let mut terms = RecomputeTerms::new(ttl, early)?;
        terms.losers = self.losers;
        terms.claim = self.claim.unwrap_or(terms.claim);
        terms.retry = self.retry.unwrap_or(terms.retry);
        terms.deadline = self.deadline;
        terms.reply_timeout = self.reply_timeout.unwrap_or(reply_timeout);
        terms.session = self.session.map(new_session).transpose()?;
        terms.seed = clock::seed();
        Ok(terms)
    }
}
