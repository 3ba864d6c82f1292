//! The authority over etcd's JSON gateway: blocking calls, each on a connection of its own.
//!
//! - A1: A call is answered only if etcd says that it executed the transaction, in a reply that is understood whole.
//!   Any other end is an error: nothing is known, and the transaction may be executed later.
//! - A2: A request takes at most its time limit, with the look-up of the host and the connection. A call is one
//!   request; if the endpoint has no valid token, a login of at most [`LOGIN_LIMIT`] and one more request follow.
//! - A3: The first answer decides which etcd cluster the authority is. An answer of another one is an error.
//! - A4: Every range and every swap is linearizable.
//!
//! Which file has what: requests and replies `message.rs`, HTTP `link.rs`, host names `resolver.rs`, logins `token.rs`,
//! certificates `credentials.rs` and `tls.rs`.
//!
//! Source: etcd 3.4 `Documentation/dev-guide/api_grpc_gateway.md`.

mod credentials;
mod error;
mod link;
mod message;
mod options;
mod resolver;
#[cfg(test)]
mod tests;
#[cfg(feature = "tls")]
mod tls;
#[cfg(not(feature = "tls"))]
#[path = "etcd/without_tls.rs"]
mod tls;
mod token;

use std::fmt;
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::election::{ANSWER_MS, Answer, Authority, Found};
use zeroize::Zeroizing;

use self::credentials::Credentials;
use self::link::Link;
use self::message::{Refusal, Reply};
use self::token::{Token, Tokens};

pub use self::error::AuthorityError;
pub use self::options::{
    AuthorityLogin, AuthorityOptions, AuthorityUrl, ENDPOINTS_MAX, LOGIN_BYTES_MAX,
};

/// The time limit of a call by a program that asks one endpoint after the other.
const IN_TURN_LIMIT: Duration = Duration::from_secs(2);

/// The time limit of a login. etcd computes for a tenth of a second, and for all clients at once after its restart: a
/// login that is given up would only be computed again.
const LOGIN_LIMIT: Duration = Duration::from_secs(5);

/// The most records of a list: those of the largest ring, and as many again.
pub const RECORDS_MAX: usize = 512;

const RANGE: &str = "/v3/kv/range";
const TXN: &str = "/v3/kv/txn";
const AUTHENTICATE: &str = "/v3/auth/authenticate";

/// An etcd cluster.
#[derive(Debug)]
pub struct Etcd {
    options: AuthorityOptions,
    credentials: Arc<Credentials>,
    cluster: Arc<OnceLock<u64>>,
}

impl Etcd {
    /// Reads the certificates. Nothing is sent yet.
    ///
    /// # Errors
    /// The options contradict each other ([`io::ErrorKind::InvalidInput`]), or a file is not usable.
    pub fn new(options: &AuthorityOptions) -> io::Result<Self> {
        let invalid = |why| io::Error::new(io::ErrorKind::InvalidInput, why);
        options.check().map_err(invalid)?;
        Ok(Self {
            options: options.clone(),
            credentials: Arc::new(Credentials::load(options)?),
            cluster: Arc::default(),
        })
    }

    /// Reads the certificates again. They apply to the next request of each connection.
    ///
    /// # Errors
    /// A file is not usable; the certificates stay as they are then.
    pub fn reload(&self) -> io::Result<()> {
        self.credentials.reload()
    }

    /// The endpoints. A request takes at most [`ANSWER_MS`] (A2).
    #[must_use]
    pub fn endpoints(&self) -> Vec<Endpoint> {
        self.endpoints_within(Duration::from_millis(ANSWER_MS))
    }

    /// The endpoints for a program that asks one after the other, at most 2 s each.
    #[must_use]
    pub fn in_turn(&self) -> InTurn {
        InTurn {
            endpoints: self.endpoints_within(IN_TURN_LIMIT),
        }
    }

    fn endpoints_within(&self, limit: Duration) -> Vec<Endpoint> {
        let endpoint = |url: &AuthorityUrl| Endpoint {
            url: url.clone(),
            link: Link::new(url, &self.credentials),
            tokens: self.options.login.clone().map(Tokens::new).map(Arc::new),
            credentials: Arc::clone(&self.credentials),
            cluster: Arc::clone(&self.cluster),
            limit,
            login_limit: LOGIN_LIMIT,
        };
        self.options.endpoints.iter().map(endpoint).collect()
    }
}

/// A connection to an endpoint of etcd. It can move to a thread of its own.
#[derive(Debug)]
pub struct Endpoint {
    url: AuthorityUrl,
    link: Link,
    /// `None` without a login. Shared by all connections to this endpoint.
    tokens: Option<Arc<Tokens>>,
    credentials: Arc<Credentials>,
    /// Shared by all endpoints (A3).
    cluster: Arc<OnceLock<u64>>,
    limit: Duration,
    login_limit: Duration,
}

impl Endpoint {
    /// Another connection to the same endpoint, for a request at the same time. They share a login.
    #[must_use]
    pub fn another(&self) -> Self {
        Self {
            url: self.url.clone(),
            link: Link::new(&self.url, &self.credentials),
            tokens: self.tokens.clone(),
            credentials: Arc::clone(&self.credentials),
            cluster: Arc::clone(&self.cluster),
            limit: self.limit,
            login_limit: self.login_limit,
        }
    }

    /// Its URL.
    #[must_use]
    pub const fn url(&self) -> &AuthorityUrl {
        &self.url
    }

    /// Reads all records whose keys begin with `prefix`, in the order of their keys.
    ///
    /// # Errors
    /// There is no answer; [`AuthorityError::TooMany`] if there are more than [`RECORDS_MAX`].
    pub fn list(&mut self, prefix: &str) -> Result<Vec<(String, Found)>, AuthorityError> {
        let request = message::list(prefix, RECORDS_MAX);
        self.ask(RANGE, &request, |reply| reply.records(prefix, RECORDS_MAX))
    }

    /// Sends a request. If the token has expired, logs in and sends it once more: etcd has not executed it.
    fn ask<T>(
        &mut self,
        path: &str,
        request: &str,
        read: impl Fn(&Reply) -> Result<T, AuthorityError>,
    ) -> Result<T, AuthorityError> {
        let token = self.token()?;
        match self.send(path, request, token.as_ref(), self.limit, &read) {
            Err(refusal)
                if refusal.wants_token
                    && let Some(tokens) = &self.tokens =>
            {
                tokens.refused(token.as_ref());
                let token = self.token()?;
                self.send(path, request, token.as_ref(), self.limit, &read)
            }
            other => other,
        }
        .map_err(|refusal| refusal.error)
    }

    /// The token for a request; logs in if there is a login and no token yet.
    fn token(&mut self) -> Result<Option<Token>, AuthorityError> {
        match self.tokens.clone() {
            Some(tokens) => tokens.get(|login| self.log_in(login)),
            None => Ok(None),
        }
    }

    /// Gets a token; `None` if etcd has no users.
    fn log_in(&mut self, login: &AuthorityLogin) -> Result<Option<Token>, AuthorityError> {
        let request = Zeroizing::new(message::authenticate(login.user(), login.password()));
        let token = self.send(AUTHENTICATE, &request, None, self.login_limit, &|reply| {
            reply.token().map(Token::new)
        });
        match token {
            Ok(token) => Ok(Some(token)),
            Err(refusal) if refusal.is_without_auth => Ok(None),
            Err(refusal) => Err(refusal.error),
        }
    }

    fn send<T>(
        &mut self,
        path: &str,
        request: &str,
        token: Option<&Token>,
        limit: Duration,
        read: &impl Fn(&Reply) -> Result<T, AuthorityError>,
    ) -> Result<T, Refusal> {
        let token = token.map(Token::text);
        let response = self.link.post(path, request, token, limit)?;
        if response.status != 200 {
            return Err(message::refusal(response.status, &response.text));
        }
        let reply = Reply::read(&response.text)?;
        let (first, this) = (*self.cluster.get_or_init(|| reply.cluster), reply.cluster);
        if this != first {
            return Err(AuthorityError::OtherCluster { first, this }.into());
        }
        Ok(read(&reply)?)
    }
}

impl Authority for Endpoint {
    type Error = AuthorityError;

    fn read(&mut self, key: &str) -> Result<Option<Found>, AuthorityError> {
        self.ask(RANGE, &message::range(key), |reply| reply.record(key))
    }

    fn swap(
        &mut self,
        key: &str,
        expected: Option<&Found>,
        value: &str,
    ) -> Result<Answer, AuthorityError> {
        let request = message::swap(key, expected, value);
        self.ask(TXN, &request, |reply| reply.outcome(key, expected))
    }
}

/// The endpoints of etcd for a program without a thread for each: they are asked one after the other until one
/// answers, beginning with the one that answered last.
///
/// After a swap without an answer the next endpoint is asked for the same swap, so that the answer can be the own
/// value as found.
#[derive(Debug)]
pub struct InTurn {
    endpoints: Vec<Endpoint>,
}

impl InTurn {
    /// Reads all records whose keys begin with `prefix`, in the order of their keys.
    ///
    /// # Errors
    /// No endpoint answers.
    pub fn list(&mut self, prefix: &str) -> Result<Vec<(String, Found)>, Unanswered> {
        self.ask(|endpoint| endpoint.list(prefix))
    }

    fn ask<T>(
        &mut self,
        mut ask: impl FnMut(&mut Endpoint) -> Result<T, AuthorityError>,
    ) -> Result<T, Unanswered> {
        let mut errors = Vec::new();
        for at in 0..self.endpoints.len() {
            match ask(&mut self.endpoints[at]) {
                Ok(answer) => {
                    self.endpoints.rotate_left(at);
                    return Ok(answer);
                }
                Err(error) => errors.push((self.endpoints[at].url.clone(), error)),
            }
        }
        Err(Unanswered(errors))
    }
}

impl Authority for InTurn {
    type Error = Unanswered;

    fn read(&mut self, key: &str) -> Result<Option<Found>, Unanswered> {
        self.ask(|endpoint| endpoint.read(key))
    }

    fn swap(
        &mut self,
        key: &str,
        expected: Option<&Found>,
        value: &str,
    ) -> Result<Answer, Unanswered> {
        self.ask(|endpoint| endpoint.swap(key, expected, value))
    }
}

/// No endpoint has answered. The text names each endpoint and its reason.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Unanswered(Vec<(AuthorityUrl, AuthorityError)>);

impl Unanswered {
    /// The endpoints in the order in which they were asked, and their reasons.
    #[must_use]
    pub fn errors(&self) -> &[(AuthorityUrl, AuthorityError)] {
        &self.0
    }
}

impl fmt::Display for Unanswered {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (url, error)) in self.0.iter().enumerate() {
            let separator = if at == 0 { "" } else { "; " };
            write!(formatter, "{separator}{url}: {error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Unanswered {}
