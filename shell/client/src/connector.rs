//! Opens connections to a server: its address, TLS and login.
//!
//! - N1: Requests are sent only after the TLS handshake, if TLS is configured, and after the login.
//! - N2: A password leaves this machine only under TLS, unless the caller allows plain text.

use std::fmt;
use std::io;
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_io::{Async, Timer};
use futures_lite::future::FutureExt;
use futures_lite::io::{AsyncReadExt, AsyncWriteExt};
use latchd_client_core::{Credentials, Login, LoginStep};

use super::background::is_forked;
use super::discovery::Route;
use super::endpoint::{Endpoint, Place};
use super::options::ClientOptions;
use super::race;
use super::socket::{Socket, Stream};
use super::tls::{Tls, explained};

/// The bytes read at a time from the reply to a login.
const ANSWER_BYTES: usize = 512;

/// Opens connections to one server. Clones share their settings.
#[derive(Clone)]
pub(super) struct Connector(Arc<Settings>);

struct Settings {
    endpoint: Endpoint,
    /// The way from the name to the current address, in a cluster that was discovered.
    route: Option<Route>,
    within: Duration,
    tls: Option<Tls>,
    credentials: Option<Credentials>,
    may_be_plain: bool,
}

/// The server refused the login, with this reply; or the client did not send it.
#[derive(Clone, Debug)]
pub(super) struct Unauthenticated(pub(super) Box<str>);

impl Connector {
    /// Connections with the settings of `options`. Reads files, and opens no connection.
    ///
    /// # Errors
    /// A message for a person if TLS cannot be set up.
    pub(super) fn new(
        endpoint: Endpoint,
        route: Option<Route>,
        options: &ClientOptions,
    ) -> Result<Self, String> {
        let tls = match (&options.tls, endpoint.host()) {
            (None, _) => None,
            (Some(tls), Some(host)) => Some(Tls::new(tls, host)?),
            (Some(_), None) => return Err("no server speaks TLS on a Unix socket".into()),
        };
        Ok(Self(Arc::new(Settings {
            endpoint,
            route,
            within: options.connect_timeout,
            tls,
            credentials: options.credentials.clone(),
            may_be_plain: options.plain_password,
        })))
    }

    /// The server's address.
    pub(super) fn endpoint(&self) -> &Endpoint {
        &self.0.endpoint
    }

    /// Opens a connection on which requests can be sent (N1).
    ///
    /// The system's, also of the name look-up; [`io::ErrorKind::TimedOut`] if all steps together exceed the
    /// options' limit; [`Unauthenticated`] inside an error.
    pub(super) async fn open(self) -> io::Result<Socket> {
        if is_forked() {
            return Err(io::ErrorKind::NotConnected.into());
        }
        let late = async {
            Timer::after(self.0.within).await;
            Err(io::ErrorKind::TimedOut.into())
        };
        match self.0.enter().or(late).await {
            Ok(stream) => Ok(Socket::new(stream)),
            Err(error) => {
                self.has_failed();
                Err(error)
            }
        }
    }

    /// A connection has failed, or its server refuses to serve: the server may have another address now.
    pub(super) fn has_failed(&self) {
        if let Some(route) = &self.0.route {
            route.has_failed();
        }
    }
}

impl Settings {
    async fn enter(&self) -> io::Result<Pin<Box<dyn Stream>>> {
        let (plain, is_here): (Pin<Box<dyn Stream>>, bool) = match self.endpoint.place() {
            Place::Tcp(address) => {
                let current = match &self.route {
                    Some(route) => route.address().await,
                    None => None,
                };
                let address = current.as_ref().unwrap_or(address);
                let stream = race::connect(address, self.within).await?;
                stream.get_ref().set_nodelay(true)?;
                let is_here = stream
                    .get_ref()
                    .peer_addr()?
                    .ip()
                    .to_canonical()
                    .is_loopback();
                (Box::pin(stream), is_here)
            }
            Place::Unix(path) => (Box::pin(Async::<UnixStream>::connect(&**path).await?), true),
        };
        self.guard(is_here)?;
        let mut stream: Pin<Box<dyn Stream>> = match &self.tls {
            None => plain,
            Some(tls) => tls.begin(plain).await?,
        };
        if let Some(credentials) = &self.credentials {
            log_in(&mut stream, credentials).await.map_err(explained)?;
        }
        Ok(stream)
    }

    /// N2. `is_here`: no network is between client and server.
    fn guard(&self, is_here: bool) -> Result<(), Unauthenticated> {
        let is_readable = self.tls.is_none() && !is_here;
        if self.credentials.is_some() && is_readable && !self.may_be_plain {
            let why = "a password is not sent to another machine in plain text: use TLS, or allow plain text";
            return Err(Unauthenticated(why.into()));
        }
        Ok(())
    }
}

/// Logs in.
///
/// # Errors
/// The socket's; [`Unauthenticated`] if the server refuses the credentials.
async fn log_in(stream: &mut Pin<Box<dyn Stream>>, credentials: &Credentials) -> io::Result<()> {
    let (mut input, mut output) = (Vec::new(), Vec::new());
    let mut login = Login::new(credentials, &mut output);
    loop {
        stream.write_all(&output).await?;
        stream.flush().await?;
        output.clear();
        let mut chunk = [0; ANSWER_BYTES];
        let bytes = stream.read(&mut chunk).await?;
        if bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        input.extend_from_slice(chunk.get(..bytes).unwrap_or_default());
        match login.receive(&input, &mut output) {
            LoginStep::Incomplete => {}
            LoginStep::Send => input.clear(),
            LoginStep::In => return Ok(()),
            LoginStep::Refused(words) => {
                let why = format!(
                    "the server does not know this name and password, or not any more: {words}"
                );
                return Err(Unauthenticated(why.into()).into());
            }
            LoginStep::Unexpected(words) => {
                let words = words.unwrap_or_else(|| "these bytes are no answer".into());
                let words = String::from(words);
                return Err(io::Error::new(io::ErrorKind::ConnectionRefused, words));
            }
        }
    }
}

impl fmt::Display for Unauthenticated {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for Unauthenticated {}

impl From<Unauthenticated> for io::Error {
    fn from(error: Unauthenticated) -> Self {
        Self::new(io::ErrorKind::PermissionDenied, error)
    }
}

impl Unauthenticated {
    /// The [`Unauthenticated`] inside an error, if there is one.
    pub(super) fn of(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_needs_tls_or_permission() {
        let options = ClientOptions::new;
        let fred = || Credentials::new("fred", "pass").expect("a name and a password");
        for (options, is_here, goes) in [
            (options(), false, true),
            (options().credentials(fred()), true, true),
            (options().credentials(fred()), false, false),
            (options().credentials(fred()).plain_password(), false, true),
        ] {
            let endpoint = Endpoint::parse("cache.example").expect("an address");
            let connector = Connector::new(endpoint, None, &options).expect("nothing is read");
            assert_eq!(connector.0.guard(is_here).is_ok(), goes, "{options:?}");
        }
    }
}
