//! Options for locks and values.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use latchd_client_core::{
    Credentials, Feature, LeaseTerms, LockItem, LockTerms, Losers, METADATA_BYTES_MAX,
    RecomputeTerms, Retry, SessionTerms, TTL_MAX, TTL_MIN, TermsError, Token, TokenValue,
};
use latchd_protocol::command::{LEASE_MS_MIN, Mode};
use latchd_protocol::session::SESSION_S_MAX;

use super::clock;
use super::error::ErrorKind;
use super::pool::{Owner, ServerKind};
use super::setters::setters;
use super::tls_options::TlsOptions;

/// Options for every call of a client.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    pub(super) connect_timeout: Duration,
    pub(super) reply_timeout: Duration,
    pub(super) connections: usize,
    pub(super) waits_max: usize,
    pub(super) heartbeat: Duration,
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
            waits_max: 64,
            heartbeat: patience,
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

    setters! {
        /// The time limit to open a connection, name look-up, TLS and login included; 5 s by default. Several
        /// addresses of a host are tried within that time.
        [const] connect_timeout(span: Duration) => connect_timeout = span;

        /// The time limit for a reply; after it, the connection counts as broken; 5 s by default.
        [const] reply_timeout(span: Duration) => reply_timeout = span;

        /// The number of connections that cache calls share; 4 by default, and at least one. They are opened when needed. More
        /// are opened only when each has a thousand requests under way.
        [const] connections(count: usize) => connections = count;

        /// The number of keys that this client waits for at a time, each over a connection of its own; 64 by default. Further
        /// tasks wait in the process. So do tasks that wait for the same key.
        [const] waits_max(count: usize) => waits_max = count;

        /// How often the server is asked for each lock; 5 s by default, and at most a third of the time that the lock
        /// survives. A lock that an operator has released is lost within this time.
        [const] heartbeat(every: Duration) => heartbeat = every;

        /// Uses TLS on every connection. It requires the feature `tls`, and a server on TCP.
        tls(tls: TlsOptions) => tls = Some(tls);

        /// Logs in on every connection, if the server requires it (memcached's and latchd's `-Y`). For a server
        /// on another machine this requires [`tls`](Self::tls) or [`plain_password`](Self::plain_password).
        credentials(credentials: Credentials) => credentials = Some(credentials);

        /// Allows to send the password over the network in plain text, readable by everyone on the way.
        [const] plain_password() => plain_password = true;
    }
}

/// How long a lock outlasts a broken connection or a dead client, by default.
const SURVIVE: Duration = Duration::from_secs(10);

/// Options of a lock. By default it is exclusive, renewed in the background, and outlasts a broken connection or a dead
/// client by 10 s.
#[derive(Clone)]
pub struct LockOptions {
    pub(super) deadline: Option<Duration>,
    survive: Duration,
    hold_max: Option<Duration>,
    is_manual: bool,
    mode: Mode,
    metadata: Option<Vec<u8>>,
    has_item: bool,
    token: Option<Token>,
    pub(super) pauses: Pauses,
    is_inheritable: bool,
}

/// The pauses where a server has no queue.
#[derive(Clone)]
pub(super) struct Pauses {
    begin: Arc<dyn Fn() -> Tries + Send + Sync>,
    /// How long a wait in a queue lasts at most; `None` is for ever.
    pub(super) patience: Option<Duration>,
    /// Whether the lock may be waited for in a queue.
    pub(super) may_queue: bool,
}

/// One use of the pauses.
pub(super) type Tries = Box<dyn Iterator<Item = Duration> + Send>;

impl Pauses {
    fn of(retry: Retry) -> Self {
        let begin = move || -> Tries {
            let mut retries = retry.begin(clock::seed());
            Box::new(std::iter::from_fn(move || retries.next_turn()))
        };
        Self {
            begin: Arc::new(begin),
            patience: retry.span(),
            may_queue: true,
        }
    }

    pub(super) fn begin(&self) -> Tries {
        (self.begin)()
    }
}

/// How to lock on a server: what has the lock, and the terms of each key.
#[derive(Clone, Eq, PartialEq)]
pub(super) struct Plan {
    pub(super) owner: Owner,
    /// The session of a lock with a token of its own.
    pub(super) session: Option<SessionTerms>,
    /// Other processes can inherit its connection.
    pub(super) is_inheritable: bool,
    pub(super) terms: LockTerms,
    pub(super) token: Token,
}

impl Plan {
    /// Whether the lock has a keeper of its own.
    pub(super) const fn is_own(&self) -> bool {
        self.session.is_some() || self.is_inheritable
    }
}

/// The session of the lock of these keys with a token of its own.
///
/// # Errors
/// [`TermsError`] if no session has this time.
pub(super) fn session_of(
    owner: Owner,
    token: &Token,
    keys: &[Box<[u8]>],
) -> Result<Option<SessionTerms>, TermsError> {
    let Owner::Session(seconds) = owner else {
        return Ok(None);
    };
    let ttl = Duration::from_secs(seconds.into());
    SessionTerms::of_token(token, keys.iter().map(|key| &**key), ttl).map(Some)
}

impl Default for LockOptions {
    fn default() -> Self {
        let (min, max) = (Duration::from_millis(16), Duration::from_secs(1));
        Self {
            deadline: None,
            survive: SURVIVE,
            hold_max: None,
            is_manual: false,
            mode: Mode::Exclusive,
            metadata: None,
            has_item: false,
            token: None,
            pauses: Pauses::of(Retry::exponential(min, max).with_jitter()),
            is_inheritable: false,
        }
    }
}

impl LockOptions {
    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    setters! {
        /// The time limit of the whole call, connecting included; none by default. The reply to a last try at that moment may
        /// take a tenth of a second more.
        [const] deadline(deadline: Duration) => deadline = Some(deadline);

        /// How long the lock outlasts a broken connection or a dead client; 10 s by default. On latchd at most an hour, and
        /// [`Duration::ZERO`] ends the lock with its connection; on memcached at least a second.
        [const] survive(span: Duration) => survive = span;

        /// The longest time to hold the lock. Without it, a holder that hangs is renewed for ever.
        [const] hold_max(span: Duration) => hold_max = Some(span);

        /// Does not renew the lock: it ends [`survive`](Self::survive) after the last [`refresh`](super::Lock::refresh).
        [const] manual() => is_manual = true;

        /// Shares the lock with all others that ask for a shared one, as readers do, and excludes all other clients. It
        /// requires latchd. While a key is shared, no client can change its item.
        [const] shared() => mode = Mode::Shared { max_sharers: None };

        /// As [`shared`](Self::shared), among at most `count` holders, 1 to 1,024. If the holders name different limits, the
        /// lowest counts.
        [const] permits(count: NonZeroU32) => mode = Mode::Shared { max_sharers: Some(count) };

        /// A text of at most 250 bytes that others can read beside the lock; by default the program, the host and the process.
        metadata(metadata: impl Into<Vec<u8>>) => metadata = Some(metadata.into());

        /// Shows an item under the key while the lock is held, so that clients that lock by `add` are excluded. On memcached
        /// that item is the lock.
        [const] with_item() => has_item = true;

        /// The caller's own token. A client that asks for the same keys with the same token takes the lock over.
        token(token: Token) => token = Some(token);

        /// The pauses before the next try, where the server has no queue; from 16 ms to 1 s, with jitter, by default. A
        /// strategy with a limit bounds a wait in a queue as well, and [`Retry::none`] does not wait.
        retry(retry: Retry) => pauses = Pauses::of(retry);
    }

    /// As [`retry`](Self::retry), with pauses of the caller's own. The lock is not waited for in a queue.
    #[must_use]
    pub fn retry_with<I>(mut self, pauses: I) -> Self
    where
        I: IntoIterator<Item = Duration, IntoIter: Send + 'static> + Clone + Send + Sync + 'static,
    {
        self.pauses = Pauses {
            begin: Arc::new(move || Box::new(pauses.clone().into_iter())),
            patience: None,
            may_queue: false,
        };
        self
    }

    setters! {
        /// Gives the lock a connection of its own, which other processes can [inherit](super::Lock::inheritable). It ends with
        /// that connection: [`survive`](Self::survive) must be 0.
        [const] inheritable() => is_inheritable = true;
    }

    /// How to lock these keys on a server of this kind.
    ///
    /// # Errors
    /// [`ErrorKind::Terms`] or [`ErrorKind::Unsupported`].
    pub(super) fn plan(&self, kind: ServerKind, keys: &[Box<[u8]>]) -> Result<Plan, ErrorKind> {
        let refused = |error| Err(ErrorKind::Terms(error));
        if self.hold_max.is_some_and(|span| span.is_zero()) {
            return refused(TermsError::HoldMax);
        }
        let metadata = self
            .metadata
            .as_deref()
            .unwrap_or_else(|| clock::this_process());
        if metadata.len() > METADATA_BYTES_MAX {
            return refused(TermsError::Metadata);
        }
        if self.is_manual && self.survive.is_zero() {
            return refused(TermsError::Manual);
        }
        let token = self.token.clone();
        let token = token.unwrap_or_else(|| Token::from_random(clock::random()));
        let item = || LockItem {
            value: TokenValue::new(token.clone(), metadata),
            ttl: if self.survive.is_zero() {
                SURVIVE
            } else {
                self.survive.max(TTL_MIN)
            },
            own_token: self.token.is_some(),
        };
        let mut terms = LockTerms::new();
        terms.mode = self.mode;
        terms.metadata = metadata.into();
        let renewed = LeaseTerms {
            ttl: self.survive,
            renews: !self.is_manual,
            hold_max: self.hold_max,
        };
        match kind {
            ServerKind::Other => return Err(ErrorKind::Unsupported(Feature::Locks)),
            ServerKind::Memcached => {
                if self.mode.is_shared() {
                    return Err(ErrorKind::Unsupported(Feature::SharedLocks));
                }
                if self.survive < TTL_MIN || self.is_inheritable {
                    return Err(ErrorKind::Unsupported(Feature::ShortLocks));
                }
                if self.survive > TTL_MAX {
                    return refused(TermsError::TtlTooLong);
                }
                (terms.lease, terms.item) = (Some(renewed), Some(item()));
                return Ok(Plan {
                    owner: Owner::Item,
                    session: None,
                    is_inheritable: false,
                    terms,
                    token,
                });
            }
            ServerKind::Latchd => {}
        }
        if self.has_item && self.mode.is_shared() {
            return refused(TermsError::SharedItem);
        }
        if self.is_inheritable && !self.survive.is_zero() {
            return refused(TermsError::Inherited);
        }
        terms.item = self.has_item.then(item);
        let seconds = self.survive.as_millis().div_ceil(1_000);
        let seconds = u32::try_from(seconds).unwrap_or(u32::MAX);
        let (owner, lease) = if self.survive.is_zero() {
            (Owner::Connection, self.held_at_most())
        } else if self.survive < SHORT_TTL_MIN {
            return refused(TermsError::TtlTooShort);
        } else if self.survive < TTL_MIN {
            (Owner::Connection, Some(renewed))
        } else if seconds > SESSION_S_MAX && !self.has_item || self.survive > TTL_MAX {
            return refused(TermsError::TtlTooLong);
        } else if self.is_manual {
            (Owner::Session(seconds.min(SESSION_S_MAX)), Some(renewed))
        } else {
            (
                Owner::Session(seconds.min(SESSION_S_MAX)),
                self.held_at_most(),
            )
        };
        terms.lease = lease;
        let session = match &self.token {
            Some(token) => session_of(owner, token, keys).map_err(ErrorKind::Terms)?,
            None => None,
        };
        Ok(Plan {
            owner,
            session,
            is_inheritable: self.is_inheritable,
            terms,
            token,
        })
    }

    /// The time of a lock that only its longest hold ends.
    fn held_at_most(&self) -> Option<LeaseTerms> {
        self.hold_max.map(|span| LeaseTerms {
            ttl: span.min(TTL_MAX),
            renews: false,
            hold_max: Some(span),
        })
    }
}

impl fmt::Debug for LockOptions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("LockOptions")
            .field("deadline", &self.deadline)
            .field("survive", &self.survive)
            .finish_non_exhaustive()
    }
}

/// The shortest time that latchd can measure.
const SHORT_TTL_MIN: Duration = Duration::from_millis(LEASE_MS_MIN);

/// Options to read a value that one client at a time computes.
#[derive(Clone, Debug)]
pub struct ComputeOptions {
    terms: RecomputeTerms,
    session: Option<Duration>,
}

impl ComputeOptions {
    /// A value that lives for `ttl`; 0 is for ever. A client that may not compute it waits for it, at most 30 s.
    #[must_use]
    pub const fn new(ttl: Duration) -> Self {
        Self {
            terms: RecomputeTerms::new(ttl, Duration::ZERO),
            session: None,
        }
    }

    setters! {
        /// How long before its end one client computes it anew, while the others continue to read it; shorter than its ttl.
        [const] early(span: Duration) => terms.early = span;

        /// The behaviour of a client that may not compute the value.
        [const] losers(losers: Losers) => terms.losers = losers;

        /// The time to compute a missing value, before another client is told to compute it; 30 s by default.
        [const] claim(span: Duration) => terms.claim = span;

        /// When to read again while another client computes; after 10 to 500 ms by default.
        [const] retry(retry: Retry) => terms.retry = retry;

        /// The time limit of the whole read, connecting included; the claim by default.
        [const] deadline(span: Duration) => terms.deadline = Some(span);

        /// Keeps the right to compute in a session, which outlives a broken connection for `ttl`: no other client computes
        /// meanwhile. In turn, a winner that dies delays the others for `ttl`. 1 s to 1 h, rounded up to a second. It
        /// requires latchd. The session stays with its connection for the next call.
        [const] session(ttl: Duration) => session = Some(ttl);
    }

    pub(super) fn terms(&self, reply_timeout: Duration) -> Result<RecomputeTerms, TermsError> {
        let mut terms = self.terms.clone();
        terms.check()?;
        terms.reply_timeout = reply_timeout;
        let session = |ttl| SessionTerms::new(clock::random(), ttl);
        terms.session = self.session.map(session).transpose()?;
        terms.seed = clock::seed();
        Ok(terms)
    }
}
