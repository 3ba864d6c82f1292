//! The requests about a session, their replies, and the token that names a session.

use core::fmt;

use crate::owner::Owner;
use crate::wire::is_plain;

/// The shortest token, in bytes: 128 random bits, if a client uses all byte values.
pub const TOKEN_BYTES_MIN: usize = 16;

/// The longest token, in bytes.
pub const TOKEN_BYTES_MAX: usize = 64;

/// The longest time of a session, in seconds. The shortest is 1.
pub const SESSION_S_MAX: u32 = 3_600;

/// The name of a session, which only its client knows: [`TOKEN_BYTES_MIN`] to [`TOKEN_BYTES_MAX`] bytes without blanks
/// and control bytes, chosen at random by the client.
///
/// A token is a secret, so `Debug` does not show it (S7).
#[derive(Clone, Copy, Eq, Hash, PartialEq)]
pub struct Token<'a>(&'a [u8]);

impl<'a> Token<'a> {
    /// The token with these bytes; `None` if they are too few, too many, or not all allowed.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Option<Self> {
        let is_valid =
            (TOKEN_BYTES_MIN..=TOKEN_BYTES_MAX).contains(&bytes.len()) && is_plain(bytes);
        is_valid.then_some(Self(bytes))
    }

    /// Its bytes.
    #[must_use]
    pub const fn as_bytes(self) -> &'a [u8] {
        self.0
    }
}

impl fmt::Debug for Token<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Token(…)")
    }
}

/// A request about a session (`mo`).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct SessionRequest<'a> {
    /// The session's token.
    pub token: Token<'a>,
    /// The request.
    pub action: SessionAction,
}

/// A request about a session, apart from the session's name.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum SessionAction {
    /// Opens the session or resumes it, and attaches the connection.
    Open {
        /// The session's time from now on, in seconds: 1 to [`SESSION_S_MAX`].
        seconds: u32,
        /// Only resumes (`x`).
        only_resumes: bool,
    },
    /// Ends the session (`T0`).
    End,
}

/// The request of `Sessions::open`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Open<'a> {
    /// The session's token.
    pub token: Token<'a>,
    /// The session's time from now on, in milliseconds.
    pub ttl_ms: u64,
    /// Only resumes.
    pub only_resumes: bool,
}

/// The reply to a [`SessionRequest`].
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum SessionReply {
    /// The session is new, and the connection is attached.
    Opened(Owner),
    /// The session goes on, and the connection is attached.
    Resumed(Owner),
    /// The session has ended, and the connection has none.
    Ended(Owner),
    /// There is no such session.
    NotFound,
    /// Nothing has changed.
    Refused(SessionRefusal),
}

/// The reason for a refused request about a session, or in a session.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum SessionRefusal {
    /// The transport has no sessions.
    Off,
    /// Another user has opened the session (S7).
    OtherUser,
    /// The connection is attached to another session.
    Attached,
    /// Another connection has taken the session over, and this one is about to be closed (S5).
    Lost,
    /// The connection holds locks or bound wins of its own.
    Holds,
    /// A limit on the number of sessions is reached (S6).
    TooMany,
    /// There is no session with this token (`j`).
    NoSession,
    /// The session's time must be recorded first, and cannot be. Only a transport that records such times refuses this.
    Unrecorded,
}
