//! What can go wrong, told apart by what the caller does next.

use std::error::Error as StdError;
use std::fmt;
use std::io;

use latchd_core::client::{Failure, Loss, NotObtained, TermsError, TokenError};

/// Why a call of the client did not succeed.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The lock is somebody else's: try again later.
    NotObtained(NotObtained),
    /// There is nothing of ours to refresh or release any more: stop what the lock protects.
    NotHeld(Option<Loss>),
    /// Somebody else computes the value, and takes longer than we wait.
    TimedOut,
    /// The server could not be reached or did not answer: nothing is known of the lock.
    Io(io::Error),
    /// The server refused, in these words.
    Refused(Box<str>),
    /// What was asked for cannot be had from any server.
    Terms(TermsError),
    /// The token or the metadata cannot be stored.
    Token(TokenError),
    /// A key is 1 to 250 bytes, and for a connection-bound lock without blanks and control bytes.
    Key,
}

impl Error {
    /// Whether the lock is somebody else's, and nothing is broken.
    #[must_use]
    pub const fn is_not_obtained(&self) -> bool {
        matches!(self, Self::NotObtained(_))
    }

    /// Whether the lock was not ours any more.
    #[must_use]
    pub const fn is_not_held(&self) -> bool {
        matches!(self, Self::NotHeld(_))
    }

    /// What a failure of a machine is to the caller. `cause` is what the socket said last.
    pub(super) fn from_failure(failure: Failure, cause: Option<io::Error>) -> Self {
        match failure {
            Failure::Refused(words) => Self::Refused(words),
            Failure::NoAnswer => Self::Io(io::ErrorKind::TimedOut.into()),
            Failure::Unexpected => Self::Io(io::Error::new(
                io::ErrorKind::InvalidData,
                "the server's answer makes no sense",
            )),
            // A failure that is not known here yet leaves the same doubt as a broken connection.
            Failure::Disconnected | _ => {
                Self::Io(cause.unwrap_or_else(|| io::ErrorKind::ConnectionAborted.into()))
            }
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotObtained(why) => why.fmt(formatter),
            Self::NotHeld(Some(loss)) => write!(formatter, "the lock is lost: {loss}"),
            Self::NotHeld(None) => formatter.write_str("the lock is not held"),
            Self::TimedOut => formatter.write_str("somebody else computes the value for too long"),
            Self::Io(error) => error.fmt(formatter),
            Self::Refused(words) => write!(formatter, "the server refused: {words}"),
            Self::Terms(error) => error.fmt(formatter),
            Self::Token(error) => error.fmt(formatter),
            Self::Key => formatter
                .write_str("a key is 1 to 250 bytes, for `lock` without blanks and control bytes"),
        }
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            Self::NotObtained(_)
            | Self::NotHeld(_)
            | Self::TimedOut
            | Self::Refused(_)
            | Self::Terms(_)
            | Self::Token(_)
            | Self::Key => None,
        }
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<TermsError> for Error {
    fn from(error: TermsError) -> Self {
        Self::Terms(error)
    }
}

impl From<TokenError> for Error {
    fn from(error: TokenError) -> Self {
        Self::Token(error)
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
