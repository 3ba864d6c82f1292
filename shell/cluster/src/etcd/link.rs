//! One HTTP connection to an endpoint of etcd.
//!
//! - L1: A request takes at most its time limit, from the look-up of the host to the last byte of the reply.
//! - L2: A reply has at most [`REPLY_BYTES_MAX`] bytes, and [`HEADER_BYTES_MAX`] before them.
//! - L3: Requests go to the endpoint itself: proxies of the environment and redirects are not followed.
//!
//! The connection is kept between requests. ureq opens another one if it is closed or was idle for too long.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use ureq::unversioned::transport::DefaultConnector;
use ureq::{Agent, Error};

use super::credentials::Credentials;
use super::error::AuthorityError;
use super::options::AuthorityUrl;
use super::resolver::HostResolver;
use super::tls::{self, Tls};

/// The longest reply, in bytes. The longest record has 128 KiB and four thirds of that in Base64; a list has
/// records of a few hundred bytes.
pub(super) const REPLY_BYTES_MAX: usize = 1 << 20;

/// The longest header of a reply, in bytes.
const HEADER_BYTES_MAX: usize = 8 << 10;

/// A connection that was idle for longer is not used again.
const IDLE_MAX: Duration = Duration::from_secs(15);

/// The buffers of a connection, in bytes: a header that is too long must fit.
const BUFFER_BYTES: usize = 16 << 10;

/// The program, as a log of etcd or of a proxy before it shows it.
const USER_AGENT: &str = concat!("latchd/", env!("CARGO_PKG_VERSION"));

/// The end of one endpoint's connection.
#[derive(Debug)]
pub(super) struct Link {
    agent: Agent,
    url: AuthorityUrl,
    credentials: Arc<Credentials>,
    /// The number of the certificates that `agent` uses.
    number: u64,
    /// The last request was answered, so its connection may be used again.
    is_kept: bool,
}

/// A reply: its HTTP status and its text.
pub(super) struct Response {
    pub(super) status: u16,
    pub(super) text: String,
}

impl Link {
    pub(super) fn new(url: &AuthorityUrl, credentials: &Arc<Credentials>) -> Self {
        let read = credentials.current();
        Self {
            agent: agent(url, read.tls.as_ref()),
            url: url.clone(),
            credentials: Arc::clone(credentials),
            number: read.number,
            is_kept: false,
        }
    }

    /// Drops the connection if its certificates were read again since.
    fn renew(&mut self) {
        if self.url.is_secure() && !self.credentials.are_current(self.number) {
            *self = Self::new(&self.url, &self.credentials);
        }
    }

    /// Sends a request and returns the reply, within `limit` (L1).
    ///
    /// # Errors
    /// There is no reply. The request may have been executed.
    pub(super) fn post(
        &mut self,
        path: &str,
        body: &str,
        token: Option<&str>,
        limit: Duration,
    ) -> Result<Response, AuthorityError> {
        self.renew();
        let was_kept = std::mem::replace(&mut self.is_kept, false);
        let url = format!("{}{path}", self.url);
        let mut request = self.agent.post(&url).content_type("application/json");
        if let Some(token) = token {
            request = request.header("Authorization", token);
        }
        let request = request.config().timeout_global(Some(limit)).build();
        let is_secure = self.url.is_secure();
        let failed = |error| meaning(error, was_kept, is_secure);
        let mut reply = request.send(body).map_err(failed)?;
        let status = reply.status().as_u16();
        let text = reply.body_mut().with_config().limit(REPLY_BYTES_MAX as u64);
        let text = text.read_to_vec().map_err(failed)?;
        self.is_kept = true;
        let text = String::from_utf8(text).map_err(|_| AuthorityError::Malformed("no UTF-8"))?;
        Ok(Response { status, text })
    }
}

/// The client of one connection.
fn agent(url: &AuthorityUrl, tls: Option<&Tls>) -> Agent {
    let config = Agent::config_builder()
        .http_status_as_error(false)
        .proxy(None)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .user_agent(USER_AGENT)
        .accept("application/json")
        .max_response_header_size(HEADER_BYTES_MAX)
        .input_buffer_size(BUFFER_BYTES)
        .output_buffer_size(BUFFER_BYTES)
        .max_idle_connections(1)
        .max_idle_connections_per_host(1)
        .max_idle_age(IDLE_MAX);
    let config = tls::configured(config, tls);
    let resolver = HostResolver::new(url.address().clone());
    Agent::with_parts(config.build(), DefaultConnector::default(), resolver)
}

/// The meaning of an error of ureq. `was_kept` says whether an earlier request used the same connection.
#[allow(clippy::wildcard_enum_match_arm)] // The enum is another crate's.
fn meaning(error: Error, was_kept: bool, is_secure: bool) -> AuthorityError {
    let unreachable = |why: &str| AuthorityError::Unreachable(why.to_owned());
    match error {
        Error::Timeout(_) => AuthorityError::Late,
        Error::HostNotFound => unreachable("the host name has no address"),
        Error::Protocol(_) => AuthorityError::Malformed("no HTTP"),
        Error::LargeResponseHeader(..) => AuthorityError::TooLong(HEADER_BYTES_MAX),
        Error::BodyExceedsLimit(_) => AuthorityError::TooLong(REPLY_BYTES_MAX),
        Error::Io(error) => {
            tls::fault(&error).unwrap_or_else(|| broken(&error, was_kept, is_secure))
        }
        other => tls::meaning(other).unwrap_or_else(|other| unreachable(&other.to_string())),
    }
}

/// The meaning of an error of the socket.
#[allow(clippy::wildcard_enum_match_arm)] // The enum is the standard library's.
fn broken(error: &io::Error, was_kept: bool, is_secure: bool) -> AuthorityError {
    match error.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => AuthorityError::Late,
        io::ErrorKind::ConnectionRefused => {
            AuthorityError::Unreachable("connection refused; check that etcd is running".into())
        }
        io::ErrorKind::UnexpectedEof
        | io::ErrorKind::ConnectionReset
        | io::ErrorKind::ConnectionAborted
        | io::ErrorKind::BrokenPipe => {
            // etcd closes without a reply if one side speaks TLS and the other does not, or if its gateway cannot
            // pass on the certificate.
            let hint = match (was_kept, is_secure) {
                (true, _) => {
                    return AuthorityError::Unreachable("the connection was closed".into());
                }
                (false, false) => "if etcd requires TLS, write https:// in the URL",
                (false, true) => {
                    "check --authority-cert; if etcd has no TLS, write http:// in the URL"
                }
            };
            AuthorityError::Authentication(format!("empty reply; {hint}"))
        }
        _ => AuthorityError::Unreachable(error.to_string()),
    }
}
