//! Errors by the caller's next step, with the server they come from.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::sync::Arc;

use latchd_client_core::{Failure, Feature, LockState, Loss, NotObtained, TermsError};

use super::background::is_forked;
use super::connector::Unauthenticated;

/// The error of a server that requires a login first: it takes every store for a login. Source: memcached
/// 1.6.45 `proto_text.c`, `try_read_command_asciiauth`.
const UNAUTHENTICATED: [&str; 4] = [
    "CLIENT_ERROR unauthenticated",
    "CLIENT_ERROR bad authentication token format",
    "CLIENT_ERROR auth token too long",
    "CLIENT_ERROR authentication failure",
];

/// The reply of a server that is not primary.
const NOT_PRIMARY: &str = "SERVER_ERROR not primary";

/// The error of a call of the client. `Debug` is its message too, since `main() -> Result<(), Error>` prints that.
#[derive(Clone)]
pub struct Error(Arc<Inner>);

struct Inner {
    kind: ErrorKind,
    server: Option<Arc<str>>,
    holder: Option<LockState>,
}

/// The kind of an error.
#[derive(Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The server said that the lock is not available: try again later, or with other options.
    NotObtained(NotObtained),
    /// The lock is lost, so it cannot be refreshed or released: stop the work that it protects.
    NotHeld(Option<Loss>),
    /// Another client computes the value for longer than this call waits: go without it, or wait longer.
    TimedOut,
    /// The server could not be reached or did not reply, so the state of the lock is unknown: check the
    /// server and the network, or wait longer.
    Unreachable(io::Error),
    /// The server refused the login, or the client did not send a readable password: use other credentials,
    /// or TLS.
    Unauthenticated(Box<str>),
    /// TLS cannot be set up with these options, for this reason.
    Tls(Box<str>),
    /// The server does not support this: go without it, or use latchd.
    Unsupported(Feature),
    /// The server refused, with this reply.
    Refused(Box<str>),
    /// No server can fulfil these options, or have this key: choose others.
    Terms(TermsError),
    /// The server's address is invalid, for this reason.
    Address(Box<str>),
    /// This process was forked from one that used the client, and must not use its connections. Make a new
    /// client before the first call: fork earlier, or start a new program.
    Forked,
}

impl Error {
    /// An error from a server.
    pub(super) fn at(server: Arc<str>, kind: ErrorKind) -> Self {
        Self::new(kind, Some(server), None)
    }

    /// An error from a server, which has shown this holder.
    pub(super) fn held(server: Arc<str>, why: NotObtained, holder: LockState) -> Self {
        Self::new(ErrorKind::NotObtained(why), Some(server), Some(holder))
    }

    fn new(kind: ErrorKind, server: Option<Arc<str>>, holder: Option<LockState>) -> Self {
        Self(Arc::new(Inner {
            kind,
            server,
            holder,
        }))
    }

    /// The holder of the lock, as far as the server has shown it; `None` if the lock was not asked for, or not held.
    #[must_use]
    pub fn holder(&self) -> Option<&LockState> {
        self.0.holder.as_ref()
    }

    /// The kind of the error.
    #[must_use]
    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    /// The server, as `HOST:PORT` or a path; `None` if none was involved.
    #[must_use]
    pub fn server(&self) -> Option<&str> {
        self.0.server.as_deref()
    }

    /// Whether the server said that another client holds the lock, and nothing failed.
    #[must_use]
    pub fn is_not_obtained(&self) -> bool {
        matches!(
            self.kind(),
            ErrorKind::NotObtained(NotObtained::Held | NotObtained::Deadline)
        )
    }

    /// Whether the lock was lost.
    #[must_use]
    pub fn is_not_held(&self) -> bool {
        matches!(self.kind(), ErrorKind::NotHeld(_))
    }

    /// Whether the server serves nothing at present, because it is not primary of its partition: another server may be.
    #[must_use]
    pub fn is_not_primary(&self) -> bool {
        matches!(self.kind(), ErrorKind::Refused(words) if &**words == NOT_PRIMARY)
    }

    /// Whether the same call may succeed later: the server is to blame, and not the call.
    pub(super) fn may_pass(&self) -> bool {
        matches!(
            self.kind(),
            ErrorKind::Unreachable(_) | ErrorKind::Refused(_)
        )
    }

    /// Whether the server could not be reached, or did not reply in time.
    #[must_use]
    pub fn is_unreachable(&self) -> bool {
        matches!(self.kind(), ErrorKind::Unreachable(_))
    }
}

impl ErrorKind {
    /// The error for a machine's failure. `cause` is the socket's last error.
    pub(super) fn from_failure(failure: Failure, cause: Option<io::Error>) -> Self {
        match failure {
            Failure::Refused(words) => Self::refused(words),
            Failure::Unsupported(feature) => Self::Unsupported(feature),
            Failure::NoAnswer => Self::Unreachable(io::ErrorKind::TimedOut.into()),
            Failure::Unexpected => Self::Unreachable(io::Error::new(
                io::ErrorKind::InvalidData,
                "the reply is invalid",
            )),
            // A failure unknown here leaves the same doubt as a broken connection.
            Failure::Disconnected | _ => {
                Self::of_socket(cause.unwrap_or_else(|| io::ErrorKind::ConnectionAborted.into()))
            }
        }
    }

    /// The error for a socket that failed, or could not be opened.
    pub(super) fn of_socket(error: io::Error) -> Self {
        match Unauthenticated::of(&error) {
            Some(Unauthenticated(words)) => Self::Unauthenticated(words.clone()),
            None if is_forked() => Self::Forked,
            None => Self::Unreachable(error),
        }
    }

    /// The error for an error line of the server.
    pub(super) fn refused(words: Box<str>) -> Self {
        if UNAUTHENTICATED.contains(&&*words) {
            let why = "the server requires a login: say a name and a password";
            return Self::Unauthenticated(why.into());
        }
        Self::Refused(words)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(server) = self.server() {
            write!(formatter, "{server}: ")?;
        }
        self.kind().fmt(formatter)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

/// Whether the address has no listener.
fn is_absence(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, NotFound};
    // An error of a name look-up has no number of the system.
    error.raw_os_error().is_some() && matches!(error.kind(), ConnectionRefused | NotFound)
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotObtained(why) => why.fmt(formatter),
            Self::NotHeld(Some(loss)) => write!(formatter, "the lock is lost: {loss}"),
            Self::NotHeld(None) => formatter.write_str("the lock is not held"),
            Self::TimedOut => formatter.write_str("another client is still computing the value: wait longer, or go without it"),
            Self::Unreachable(error) if error.kind() == io::ErrorKind::TimedOut => {
                formatter.write_str("the server does not answer")
            }
            Self::Unreachable(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                formatter.write_str("the server has closed the connection")
            }
            Self::Unreachable(error) if is_absence(error) => {
                write!(formatter, "{error}: no server listens there; start it, or use another address")
            }
            Self::Unreachable(error) => error.fmt(formatter),
            Self::Unauthenticated(words) | Self::Tls(words) => formatter.write_str(words),
            Self::Unsupported(feature) => {
                write!(formatter, "this server has no {feature}, as a latchd has")
            }
            Self::Refused(words) => write!(formatter, "the server refused: {words}"),
            Self::Terms(error) => error.fmt(formatter),
            Self::Address(problem) => formatter.write_str(problem),
            Self::Forked => formatter.write_str(
                "this process was forked after its parent had used the client: fork before the first call, or start a \
                 new program",
            ),
        }
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        let ErrorKind::Unreachable(error) = self.kind() else {
            return None;
        };
        Some(error)
    }
}

/// An error without a server.
impl From<ErrorKind> for Error {
    fn from(kind: ErrorKind) -> Self {
        Self::new(kind, None, None)
    }
}

impl From<TermsError> for Error {
    fn from(error: TermsError) -> Self {
        ErrorKind::Terms(error).into()
    }
}

/// The reason why there is no value. `Debug` is its message too, as that of [`Error`].
#[non_exhaustive]
pub enum ComputeError<E> {
    /// This call was to compute the value, and that failed. Another client may try now.
    Compute(E),
    /// The call of another task of this client was to compute the value, and that failed. The next call may try after a
    /// pause.
    Elsewhere,
    /// The client failed.
    Client(Error),
}

impl<E: fmt::Display> fmt::Display for ComputeError<E> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Compute(error) => write!(formatter, "the value could not be computed: {error}"),
            Self::Elsewhere => {
                formatter.write_str("another task of this process could not compute the value")
            }
            Self::Client(error) => error.fmt(formatter),
        }
    }
}

impl<E: fmt::Display> fmt::Debug for ComputeError<E> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl<E: StdError + 'static> StdError for ComputeError<E> {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Compute(error) => Some(error),
            Self::Elsewhere => None,
            Self::Client(error) => Some(error),
        }
    }
}

impl<E> From<Error> for ComputeError<E> {
    fn from(error: Error) -> Self {
        Self::Client(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_is_the_message_and_its_remedy() {
        let refused = io::Error::from_raw_os_error(rustix::io::Errno::CONNREFUSED.raw_os_error());
        let error = Error::at("h:1".into(), ErrorKind::Unreachable(refused));
        let message = "h:1: Connection refused (os error 111): no server listens there; start it, or use another address";
        assert_eq!(format!("{error:?}"), message);
        let computed = ComputeError::<std::convert::Infallible>::Client(error);
        assert_eq!(format!("{computed:?}"), message);
    }
}
