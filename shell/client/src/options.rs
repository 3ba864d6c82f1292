//! What a lock or a value is asked for with.

use std::num::NonZeroU32;
use std::time::Duration;

use latchd_core::client::{
    BoundTerms, Credentials, LeaseTerms, Losers, Mark, MissingItem, OnDisconnect, RecomputeTerms,
    Retry, SHORT_TTL_MIN, Terms, TermsError, Token,
};
use latchd_core::command::Mode;
use latchd_core::time::Exptime;

use super::clock;
use super::tls_options::TlsOptions;

/// What holds of every call of a client.
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

    /// How long opening a connection may take, the look-up of a name, TLS and the login included; 5 s unless it
    /// is said. Of a host with several addresses each is tried within that time.
    #[must_use]
    pub const fn connect_timeout(mut self, span: Duration) -> Self {
        self.connect_timeout = span;
        self
    }

    /// How long the server may take to answer before the connection counts as broken; 5 s unless it
    /// is said. The options of a call may say otherwise.
    #[must_use]
    pub const fn reply_timeout(mut self, span: Duration) -> Self {
        self.reply_timeout = span;
        self
    }

    /// How many connections leased locks share; 4 unless it is said, and at least one. They are opened as
    /// they are needed, and more than that only when each has a thousand keys. A lock that is bound to a
    /// connection has its own, and so has a value while it is computed.
    #[must_use]
    pub const fn connections(mut self, count: usize) -> Self {
        self.connections = count;
        self
    }

    /// Speaks TLS on every connection. It needs the feature `tls`, and a server on TCP.
    #[must_use]
    pub fn tls(mut self, tls: TlsOptions) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Says on every connection who we are, if the server asks (memcached's and latchd's `-Y`). One that asks
    /// nobody is not told. To another machine this needs [`tls`](Self::tls), unless
    /// [`plain_password`](Self::plain_password) is said.
    #[must_use]
    pub fn credentials(mut self, credentials: Credentials) -> Self {
        self.credentials = Some(credentials);
        self
    }

    /// Lets the password go over the network in the clear, where everybody on the way can read it.
    #[must_use]
    pub const fn plain_password(mut self) -> Self {
        self.plain_password = true;
        self
    }
}

/// How a leased lock is asked for, and kept. The default: try once, keep it renewed, ask anew after a
/// broken connection.
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

    /// When to try again while another client holds it. On a latchd one key is waited for in the server's queue
    /// instead, for as long as the tries and their pauses would take at most: [`Retry::none`] does not wait, and a
    /// strategy without a limit waits until the deadline.
    #[must_use]
    pub const fn retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    /// How long the whole call may take, connecting and asking included; as long as the ttl unless it is
    /// said. The answer to a last try at that moment is waited for a tenth of a second.
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

    /// A note that is stored beside the token, for whoever looks.
    #[must_use]
    pub fn metadata(mut self, metadata: impl Into<Vec<u8>>) -> Self {
        self.metadata = metadata.into();
        self
    }

    /// A token of the caller's own. A lock that shows it already is taken over: that is how a holder
    /// comes back to its lock after a restart.
    #[must_use]
    pub fn token(mut self, token: Token) -> Self {
        self.token = Some(token);
        self
    }

    /// Does not renew it: that is the caller's, with [`refresh`](super::Lock::refresh).
    #[must_use]
    pub const fn without_watchdog(mut self) -> Self {
        self.without_watchdog = true;
        self
    }

    /// How long it may be held at all, whoever renews it. A holder that hangs is renewed for ever
    /// otherwise.
    #[must_use]
    pub const fn hold_max(mut self, span: Duration) -> Self {
        self.hold_max = Some(span);
        self
    }

    /// What a broken connection means; unless it is said, the server is asked over a new one. For a lock of less
    /// than a second it is always a loss.
    #[must_use]
    pub const fn on_disconnect(mut self, on_disconnect: OnDisconnect) -> Self {
        self.on_disconnect = on_disconnect;
        self
    }

    /// How long the server may take to answer before the connection counts as broken; what the
    /// client's options say unless it is said.
    #[must_use]
    pub const fn reply_timeout(mut self, span: Duration) -> Self {
        self.reply_timeout = Some(span);
        self
    }

    /// Of a lock of less than a second, which is its connection's.
    pub(super) fn short_terms(
        &self,
        ttl: Duration,
        client: &ClientOptions,
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
        // Renewals are signs of life enough.
        terms.heartbeat = None;
        terms.reply_timeout = self.reply_timeout.unwrap_or(client.reply_timeout);
        terms.seed = clock::seed();
        terms.lease = Some(LeaseTerms {
            ttl,
            watchdog: !self.without_watchdog,
            hold_max: self.hold_max,
        });
        Ok(terms)
    }

    pub(super) fn terms(&self, ttl: Duration, client: &ClientOptions) -> Result<Terms, TermsError> {
        let mut terms = Terms::new(ttl)?;
        terms.retry = self.retry;
        terms.deadline = self.deadline;
        terms.watchdog = !self.without_watchdog;
        terms.hold_max = self.hold_max;
        terms.on_disconnect = self.on_disconnect;
        terms.reply_timeout = self.reply_timeout.unwrap_or(client.reply_timeout);
        terms.seed = clock::seed();
        terms.own_token = self.token.is_some();
        // A token that is shown again takes the lease over, also from a holder that keeps its place.
        terms.queues = !terms.own_token;
        Ok(terms)
    }
}

/// How long an empty item that is made for a lock outlives a holder that dies, in seconds. It need only be there
/// until it is locked.
const ITEM_TTL_S: u32 = 5;

/// How a connection-bound lock is asked for, and kept. The default: try once, whether or not there is an item.
#[derive(Clone, Debug)]
pub struct BoundOptions {
    terms: BoundTerms,
    reply_timeout: Option<Duration>,
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
        }
    }
}

impl BoundOptions {
    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// When to try again while somebody else holds it. A latchd is waited for instead, for as long as the
    /// tries and their pauses would take at most: [`Retry::none`] does not wait, and a strategy without a
    /// limit waits until the deadline.
    #[must_use]
    pub const fn retry(mut self, retry: Retry) -> Self {
        self.terms.retry = retry;
        self
    }

    /// How long the whole call may take, connecting and asking included; as long as the strategy and the
    /// server do unless it is said. The answer to a last try at that moment is waited for a tenth of a
    /// second.
    #[must_use]
    pub const fn deadline(mut self, deadline: Duration) -> Self {
        self.terms.deadline = Some(deadline);
        self
    }

    /// Where only items can be locked, makes an empty one with this exptime if there is none; 5 s by default. It does
    /// not expire while it is held. A latchd needs no item.
    #[must_use]
    pub const fn create(mut self, exptime: Exptime) -> Self {
        self.terms.missing = MissingItem::Create(exptime);
        self
    }

    /// Locks only a key that has an item: otherwise it is [`NotObtained::NoItem`](super::NotObtained::NoItem).
    #[must_use]
    pub const fn existing(mut self) -> Self {
        self.terms.missing = MissingItem::Refuse;
        self
    }

    /// What the grant leaves in the item: a note, or where the server does not number grants a new version, which
    /// is the number.
    #[must_use]
    pub fn mark(mut self, mark: Mark) -> Self {
        self.terms.mark = mark;
        self
    }

    /// Shares the lock with all others who ask for that, as readers do; nobody else has it meanwhile. It needs a
    /// latchd. Nobody changes the item of a key that is shared, and a [mark](Self::mark) leaves nothing in it.
    #[must_use]
    pub fn shared(mut self) -> Self {
        self.terms.mode = Mode::Shared { among: None };
        self
    }

    /// As [`shared`](Self::shared), among at most so many holders, 1 to 1,024. Of those who share a key the least
    /// number counts.
    #[must_use]
    pub fn permits(mut self, count: NonZeroU32) -> Self {
        self.terms.mode = Mode::Shared { among: Some(count) };
        self
    }

    /// How long the connection may be silent before it is tried; 5 s unless it is said, `None` for
    /// ever.
    #[must_use]
    pub const fn heartbeat(mut self, every: Option<Duration>) -> Self {
        self.terms.heartbeat = every;
        self
    }

    /// How long the server may take to answer before the connection counts as broken; what the
    /// client's options say unless it is said.
    #[must_use]
    pub const fn reply_timeout(mut self, span: Duration) -> Self {
        self.reply_timeout = Some(span);
        self
    }

    pub(super) fn terms(&self, client: &ClientOptions) -> BoundTerms {
        let mut terms = self.terms.clone();
        terms.reply_timeout = self.reply_timeout.unwrap_or(client.reply_timeout);
        if terms.mode.is_shared() {
            terms.mark = Mark::None;
        }
        terms.seed = clock::seed();
        terms
    }
}

/// How a value is read that one client at a time computes.
#[derive(Clone, Debug, Default)]
pub struct ComputeOptions {
    losers: Losers,
    claim: Option<Duration>,
    retry: Option<Retry>,
    deadline: Option<Duration>,
    reply_timeout: Option<Duration>,
}

impl ComputeOptions {
    /// The defaults: who may not compute waits for the new value, at most half a minute.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// What those do who may not compute it.
    #[must_use]
    pub const fn losers(mut self, losers: Losers) -> Self {
        self.losers = losers;
        self
    }

    /// How long a client may take to compute a value that is not there at all, before another one is
    /// told to; 30 s unless it is said.
    #[must_use]
    pub const fn claim(mut self, span: Duration) -> Self {
        self.claim = Some(span);
        self
    }

    /// When to look again while somebody else computes; from 10 to 500 ms unless it is said.
    #[must_use]
    pub const fn retry(mut self, retry: Retry) -> Self {
        self.retry = Some(retry);
        self
    }

    /// How long the whole read may take, connecting included; as long as the claim unless it is said.
    #[must_use]
    pub const fn deadline(mut self, span: Duration) -> Self {
        self.deadline = Some(span);
        self
    }

    /// How long the server may take to answer before the connection counts as broken; what the
    /// client's options say unless it is said.
    #[must_use]
    pub const fn reply_timeout(mut self, span: Duration) -> Self {
        self.reply_timeout = Some(span);
        self
    }

    pub(super) fn terms(
        &self,
        ttl: Duration,
        early: Duration,
        client: &ClientOptions,
    ) -> Result<RecomputeTerms, TermsError> {
        let mut terms = RecomputeTerms::new(ttl, early)?;
        terms.losers = self.losers;
        terms.claim = self.claim.unwrap_or(terms.claim);
        terms.retry = self.retry.unwrap_or(terms.retry);
        terms.deadline = self.deadline;
        terms.reply_timeout = self.reply_timeout.unwrap_or(client.reply_timeout);
        terms.seed = clock::seed();
        Ok(terms)
    }
}
