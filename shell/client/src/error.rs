//! What can go wrong, told apart by what the caller does next, and at which server.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::sync::Arc;

use latchd_core::client::{Failure, Feature, KeyError, Loss, NotObtained, TermsError, TokenError};

use super::background::is_forked;
use super::door::NotLetIn;

/// What a server says that has not been told who asks: it takes every store for a try to tell it. Source:
/// memcached 1.6.45 `proto_text.c`, `try_read_command_asciiauth`.
const UNAUTHENTICATED: [&str; 4] = [
    "CLIENT_ERROR unauthenticated",
    "CLIENT_ERROR bad authentication token format",
    "CLIENT_ERROR auth token too long",
    "CLIENT_ERROR authentication failure",
];

/// Why a call of the client did not succeed.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    server: Option<Arc<str>>,
}

/// What has gone wrong.
#[derive(Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The lock is not to be had, by the server's own word: try again later, or with other options.
    NotObtained(NotObtained),
    /// There is nothing of ours to refresh or release any more: stop what the lock protects.
    NotHeld(Option<Loss>),
    /// Somebody else computes the value, and takes longer than we wait: go without, or wait longer.
    TimedOut,
    /// The server could not be reached or did not answer, so nothing is known of the lock: look at the
    /// server and the way there, or wait longer.
    Unreachable(io::Error),
    /// The server does not let us in, or is not told a password that others could read: say another name
    /// and password, or speak TLS.
    NotLetIn(Box<str>),
    /// TLS cannot be spoken as the options say, for this reason.
    Tls(Box<str>),
    /// The server cannot do this at all: go without, or take a latchd.
    Unsupported(Feature),
    /// The server refused, in these words.
    Refused(Box<str>),
    /// What was asked for cannot be had from any server: ask for something else.
    Terms(TermsError),
    /// The token or the metadata cannot be stored: choose another.
    Token(TokenError),
    /// No server can have such a key: choose another.
    Key(KeyError),
    /// This is no address of a server, for this reason.
    Address(Box<str>),
    /// This process was forked from one that used the client, which has its connections: make a new client before
    /// anything is asked, that is fork first, or start a new program.
    Forked,
}

impl Error {
    /// An error of a server.
    pub(super) const fn at(server: Arc<str>, kind: ErrorKind) -> Self {
        let server = Some(server);
        Self { kind, server }
    }

    /// What has gone wrong.
    #[must_use]
    pub const fn kind(&self) -> &ErrorKind {
        &self.kind
    }

    /// Which server it was, as `HOST:PORT` or a path; `None` if none was asked.
    #[must_use]
    pub fn server(&self) -> Option<&str> {
        self.server.as_deref()
    }

    /// Whether the lock is somebody else's, by the server's own word, and nothing is broken.
    #[must_use]
    pub const fn is_not_obtained(&self) -> bool {
        matches!(
            self.kind,
            ErrorKind::NotObtained(NotObtained::Held | NotObtained::Deadline)
        )
    }

    /// Whether the lock was not ours any more.
    #[must_use]
    pub const fn is_not_held(&self) -> bool {
        matches!(self.kind, ErrorKind::NotHeld(_))
    }

    /// Whether the server could not be reached, or did not answer in time.
    #[must_use]
    pub const fn is_unreachable(&self) -> bool {
        matches!(self.kind, ErrorKind::Unreachable(_))
    }
}

impl ErrorKind {
    /// What a failure of a machine is to the caller. `cause` is what the socket said last.
    pub(super) fn from_failure(failure: Failure, cause: Option<io::Error>) -> Self {
        match failure {
            Failure::Refused(words) => Self::refused(words),
            Failure::Unsupported(feature) => Self::Unsupported(feature),
            Failure::NoAnswer => Self::Unreachable(io::ErrorKind::TimedOut.into()),
            Failure::Unexpected => Self::Unreachable(io::Error::new(
                io::ErrorKind::InvalidData,
                "the answer makes no sense",
            )),
            // A failure that is not known here yet leaves the same doubt as a broken connection.
            Failure::Disconnected | _ => {
                Self::of_socket(cause.unwrap_or_else(|| io::ErrorKind::ConnectionAborted.into()))
            }
        }
    }

    /// What an error of a socket, or of opening one, is to the caller.
    pub(super) fn of_socket(error: io::Error) -> Self {
        match NotLetIn::of(&error) {
            Some(NotLetIn(words)) => Self::NotLetIn(words.clone()),
            None if is_forked() => Self::Forked,
            None => Self::Unreachable(error),
        }
    }

    /// What an error line of the server is to the caller.
    pub(super) fn refused(words: Box<str>) -> Self {
        if UNAUTHENTICATED.contains(&&*words) {
            let why = "the server lets in only those whom it knows: say a name and a password";
            return Self::NotLetIn(why.into());
        }
        Self::Refused(words)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(server) = &self.server {
            write!(formatter, "{server}: ")?;
        }
        self.kind.fmt(formatter)
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotObtained(why) => why.fmt(formatter),
            Self::NotHeld(Some(loss)) => write!(formatter, "the lock is lost: {loss}"),
            Self::NotHeld(None) => formatter.write_str("the lock is not held"),
            Self::TimedOut => formatter.write_str("somebody else computes the value for too long"),
            Self::Unreachable(error) if error.kind() == io::ErrorKind::TimedOut => {
                formatter.write_str("the server does not answer")
            }
            Self::Unreachable(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                formatter.write_str("the server has closed the connection")
            }
            Self::Unreachable(error) => error.fmt(formatter),
            Self::NotLetIn(words) | Self::Tls(words) => formatter.write_str(words),
            Self::Unsupported(feature) => {
                write!(formatter, "this server has no {feature}, as a latchd has")
            }
            Self::Refused(words) => write!(formatter, "the server refused: {words}"),
            Self::Terms(error) => error.fmt(formatter),
            Self::Token(error) => error.fmt(formatter),
            Self::Key(error) => error.fmt(formatter),
            Self::Address(problem) => formatter.write_str(problem),
            Self::Forked => formatter.write_str(
                "this process was forked from one that uses the client, which has the connections and the locks; fork \
                 before the first call, or start a new program",
            ),
        }
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match &self.kind {
            ErrorKind::Unreachable(error) => Some(error),
            ErrorKind::NotObtained(_)
            | ErrorKind::NotHeld(_)
            | ErrorKind::TimedOut
            | ErrorKind::NotLetIn(_)
            | ErrorKind::Tls(_)
            | ErrorKind::Unsupported(_)
            | ErrorKind::Refused(_)
            | ErrorKind::Terms(_)
            | ErrorKind::Token(_)
            | ErrorKind::Key(_)
            | ErrorKind::Address(_)
            | ErrorKind::Forked => None,
        }
    }
}

/// An error that no server has part in.
impl From<ErrorKind> for Error {
    fn from(kind: ErrorKind) -> Self {
        Self { kind, server: None }
    }
}

impl From<TermsError> for Error {
    fn from(error: TermsError) -> Self {
        ErrorKind::Terms(error).into()
    }
}

impl From<TokenError> for Error {
    fn from(error: TokenError) -> Self {
        ErrorKind::Token(error).into()
    }
}

impl From<KeyError> for Error {
    fn from(error: KeyError) -> Self {
        ErrorKind::Key(error).into()
    }
}

/// Why there is no value.
#[derive(Debug)]
#[non_exhaustive]
pub enum ComputeError<E> {
    /// It was ours to compute, and that failed; somebody else may try now.
    Compute(E),
    /// The client failed.
    Client(Error),
}

impl<E: fmt::Display> fmt::Display for ComputeError<E> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Compute(error) => write!(formatter, "the value could not be computed: {error}"),
            Self::Client(error) => error.fmt(formatter),
        }
    }
}

impl<E: StdError + 'static> StdError for ComputeError<E> {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Compute(error) => Some(error),
            Self::Client(error) => Some(error),
        }
    }
}

impl<E> From<Error> for ComputeError<E> {
    fn from(error: Error) -> Self {
        Self::Client(error)
    }
}
