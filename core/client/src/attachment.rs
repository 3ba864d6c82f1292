//! A client's part in a session of the server (`core/src/sessions.rs`): the locks and wins of one machine outlive its
//! connection.
//!
//! - H1: The session is believed to live until its time, less 1% and 10 ms, has passed since the last answered `mo` was
//!   *sent*. So the belief ends before the server ends the session (S4). The 1% is for clocks that drift, and the 10 ms
//!   are for a server that reads its clock once a turn.
//! - H2: While anything is held, a new connection only resumes (`x`), and shows the owner that it resumes. If there is
//!   no such session, or it has another owner, everything is lost.
//! - H3: The client pings at a third of the time, and takes a silence of a third for a broken connection. So it has
//!   another third to reach the server again.
//! - H4: The client ends its session when nothing is held or wanted any more. It stops trying when the server has
//!   ended the session by itself.
//! - H5: A connection that is lost soon after it was attached is replaced after a pause, which grows. So two clients
//!   with one token take over from each other a few times a second, and not as fast as they can.
//! - H6: No token is used again after its session, so a late request about an ended session reaches no other.
//!
//! Each machine has a session of its own: one session is one locker.
//!
//! Source: docs/PROTOCOL.md, "Sessions"; the programmer's guide of Apache `ZooKeeper`, "Sessions".

use core::fmt;
use core::time::Duration;

use latchd_protocol::Owner;
use latchd_protocol::session::{
    SESSION_S_MAX, SessionAction, SessionRequest, TOKEN_BYTES_MIN, Token as SessionToken,
};
use latchd_protocol::time::Instant;
use latchd_protocol::wire::classic::reply::ClassicResponse;
use latchd_protocol::wire::meta::session::SessionResponse;

use super::machine::{Failure, Feature};
use super::moment::{after, millis, span};
use super::retry::{Retries, Retry};
use super::session::{AnyRequest, AnyResponse};
use super::terms::{DRIFT_PART, RECONNECT, TICK_MS, TermsError};
use super::token::Token;

/// Two characters for each random byte, and those of a number (H6).
const TOKEN_BYTES: usize = 2 * TOKEN_BYTES_MIN + NUMBER_BYTES;

/// Two characters for each byte of a `u32`.
const NUMBER_BYTES: usize = 8;

/// The longest pause before a connection is replaced.
const RECONNECT_MAX: Duration = Duration::from_secs(1);

/// A connection that was attached for this long is replaced at once (H5).
const STEADY: Duration = Duration::from_secs(1);

/// A session of the server that a machine opens for its locks or wins.
#[derive(Clone, Eq, Hash, PartialEq)]
pub struct SessionTerms {
    token: [u8; TOKEN_BYTES],
    seconds: u32,
}

impl SessionTerms {
    /// A session that ends when its client has not been heard for `ttl`, rounded up to a second. `random`: bytes that
    /// nobody can guess, for its token.
    ///
    /// # Errors
    /// [`TermsError`] if `ttl` is under a second or over an hour.
    pub fn new(random: [u8; TOKEN_BYTES_MIN], ttl: Duration) -> Result<Self, TermsError> {
        let seconds = u32::try_from(ttl.as_millis().div_ceil(1_000)).unwrap_or(u32::MAX);
        if ttl < Duration::from_secs(1) {
            return Err(TermsError::TtlTooShort);
        }
        if seconds > SESSION_S_MAX {
            return Err(TermsError::TtlTooLong);
        }
        let mut token = [b'0'; TOKEN_BYTES];
        put_hex(&mut token, &random);
        Ok(Self { token, seconds })
    }

    /// The session of all clients that lock these keys by this token, and of no other: its secret is the token.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn of_token<'a>(
        token: &Token,
        keys: impl IntoIterator<Item = &'a [u8]>,
        ttl: Duration,
    ) -> Result<Self, TermsError> {
        let mut digest = md5::Context::new();
        digest.consume(token.as_bytes());
        for key in keys {
            digest.consume([0]);
            digest.consume(key.len().to_be_bytes());
            digest.consume(key);
        }
        Self::new(digest.finalize().0, ttl)
    }

    /// Changes the token to that of the session with this number (H6).
    fn number(&mut self, number: u32) {
        let (_, digits) = self.token.split_at_mut(TOKEN_BYTES - NUMBER_BYTES);
        put_hex(digits, &number.to_be_bytes());
    }

    fn request(&self, action: SessionAction) -> AnyRequest<'_> {
        let token = SessionToken::new(&self.token).expect("hexadecimal digits, and enough");
        AnyRequest::Session(SessionRequest { token, action })
    }
}

/// Writes bytes as hexadecimal digits, to the front of `digits`.
fn put_hex(digits: &mut [u8], bytes: &[u8]) {
    for (pair, byte) in digits.chunks_exact_mut(2).zip(bytes) {
        let both = [byte >> 4, byte & 0xf].map(|digit| match digit {
            0..10 => b'0' + digit,
            _ => b'a' + digit - 10,
        });
        pair.copy_from_slice(&both);
    }
}

/// Without the token, which is a secret.
impl fmt::Debug for SessionTerms {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("SessionTerms")
            .field("seconds", &self.seconds)
            .finish_non_exhaustive()
    }
}

/// The meaning of the answer to an attempt to attach.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Attached {
    /// The connection is attached to the session that was there, or to a new one if that was acceptable.
    Yes,
    /// The session has ended, and with it everything that it had (H2).
    Ended,
    /// Nothing has changed.
    Failed(Failure),
}

/// A session, as its client knows it.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) struct Attachment {
    terms: SessionTerms,
    /// The number of sessions that have ended (H6).
    number: u32,
    owner: Option<Owner>,
    /// The connection is attached since this moment.
    attached: Option<Instant>,
    /// A request that may have opened the session was sent, and its end was not confirmed.
    may_live: bool,
    /// When the last answered request to attach was sent (H1).
    confirmed: Option<Instant>,
    /// When the server may last have heard of the session.
    spoken: Instant,
    /// The pauses before connections are replaced (H5).
    pauses: Retries,
}

impl Attachment {
    pub(super) fn new(terms: SessionTerms, seed: u64) -> Self {
        let pauses = Retry::exponential(RECONNECT, RECONNECT_MAX).with_jitter();
        Self {
            terms,
            number: 0,
            owner: None,
            attached: None,
            may_live: false,
            confirmed: None,
            spoken: Instant::default(),
            pauses: pauses.begin(seed),
        }
    }

    pub(super) const fn ttl(&self) -> Duration {
        Duration::from_secs(self.terms.seconds as u64)
    }

    /// From the next sign of life on it has the time of these terms.
    pub(super) fn last_for(&mut self, terms: &SessionTerms) {
        if self.terms.seconds != terms.seconds {
            (self.terms.seconds, self.confirmed) = (terms.seconds, None);
        }
    }

    /// Whether this connection is attached.
    pub(super) const fn is_attached(&self) -> bool {
        self.attached.is_some()
    }

    /// Whether the server may still have the session, so it is to be ended.
    pub(super) const fn may_live(&self) -> bool {
        self.may_live
    }

    /// When the server has ended it by itself (H4), if it hears nothing more.
    pub(super) fn ends_at(&self) -> Instant {
        after(self.spoken, self.ttl())
    }

    /// Opens the session, or resumes it if `holds`, and attaches the connection (H2).
    pub(super) fn attach(&self, holds: bool) -> AnyRequest<'_> {
        self.terms.request(SessionAction::Open {
            seconds: self.terms.seconds,
            only_resumes: holds,
        })
    }

    /// Ends the session.
    pub(super) fn end(&self) -> AnyRequest<'_> {
        self.terms.request(SessionAction::End)
    }

    /// A request is sent that the server may hear for the session.
    pub(super) const fn speaks(&mut self, now: Instant) {
        (self.may_live, self.spoken) = (true, now);
    }

    /// The answer to [`attach`](Self::attach), which was sent at `sent`.
    pub(super) fn answered(
        &mut self,
        now: Instant,
        (sent, holds): (Instant, bool),
        answer: &AnyResponse<'_>,
    ) -> Attached {
        let owner = match answer {
            AnyResponse::Session(SessionResponse::Resumed(owner)) => *owner,
            AnyResponse::Session(SessionResponse::Opened(owner)) if !holds => *owner,
            AnyResponse::Session(SessionResponse::NotFound) => {
                self.has_ended();
                return Attached::Ended;
            }
            AnyResponse::Classic(ClassicResponse::Error(b"")) => {
                self.may_live = false;
                return Attached::Failed(Failure::Unsupported(Feature::Sessions));
            }
            AnyResponse::Session(_) | AnyResponse::Classic(_) | AnyResponse::Meta(_) => {
                return Attached::Failed(Failure::from_answer(answer));
            }
        };
        if holds && self.owner.is_some_and(|known| known != owner) {
            // It is another client's now, and not for this one to end.
            self.has_ended();
            return Attached::Ended;
        }
        self.owner = Some(owner);
        self.confirmed = Some(sent);
        self.attached.get_or_insert(now);
        Attached::Yes
    }

    /// The server has answered that there is no such session, or has ended it.
    pub(super) fn has_ended(&mut self) {
        (self.may_live, self.attached, self.confirmed) = (false, None, None);
        self.number = self.number.wrapping_add(1);
        self.terms.number(self.number);
    }

    /// Nothing is known of it until the next answered request to attach.
    pub(super) const fn doubt(&mut self) {
        self.confirmed = None;
    }

    /// It is left to the client that shows its token.
    pub(super) const fn leave(&mut self) {
        (self.may_live, self.confirmed) = (false, None);
    }

    /// The connection is gone. Returns when to open another one (H5).
    pub(super) fn detach(&mut self, now: Instant) -> Instant {
        let attached = self.attached.take();
        if attached.is_some() {
            // The server heard a client that waited until now.
            self.spoken = now;
        }
        if attached.is_some_and(|since| span(since, now) >= STEADY) {
            self.pauses.restart();
            return now;
        }
        after(now, self.pauses.next_wait().unwrap_or(RECONNECT_MAX))
    }

    /// Until when the session surely lives (H1); `None` if that is unknown.
    pub(super) fn believed_until(&self) -> Option<Instant> {
        let ttl_ms = millis(self.ttl());
        let believed_ms = ttl_ms - ttl_ms.div_ceil(DRIFT_PART) - TICK_MS;
        let believed = Duration::from_millis(believed_ms);
        self.confirmed.map(|sent| after(sent, believed))
    }

    /// When to ping (H3).
    pub(super) fn ping_at(&self) -> Option<Instant> {
        self.confirmed.map(|sent| after(sent, self.ttl() / 3))
    }

    /// How long the server may take to answer, at most `own` (H3).
    pub(super) fn patience(&self, own: Duration) -> Duration {
        own.min(self.ttl() / 3)
    }
}
