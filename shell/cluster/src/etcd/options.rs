//! The options of the authority: the URLs of etcd, a login, and certificates.
//!
//! - O1: Holding an [`AuthorityUrl`] is the proof that it is a scheme, a host and a port, and nothing else.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use latchd_protocol::address::HostPort;
use zeroize::Zeroizing;

/// The port of etcd.
const DEFAULT_PORT: u16 = 2379;

/// The most endpoints of an authority: etcd recommends at most seven members.
pub const ENDPOINTS_MAX: usize = 16;

/// The longest URL, in bytes: a host name has at most 253.
const URL_BYTES_MAX: usize = 280;

/// The longest user name and the longest password, in bytes.
pub const LOGIN_BYTES_MAX: usize = 255;

/// The etcd that decides which process is the primary of a partition. Set the fields that differ from
/// [`AuthorityOptions::new`].
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct AuthorityOptions {
    /// Its endpoints, 1 to [`ENDPOINTS_MAX`], all of one etcd cluster. `--authority`.
    pub endpoints: Vec<AuthorityUrl>,
    /// The user to authenticate as. `--authority-user`.
    pub login: Option<AuthorityLogin>,
    /// The only certificate authorities to trust, in PEM; `None`: those of the system. `--authority-ca`.
    pub ca_file: Option<PathBuf>,
    /// The certificate to present, in PEM. `--authority-cert`.
    pub certificate: Option<PathBuf>,
    /// The key of the certificate, in PEM; `None`: it is in the same file. `--authority-key`.
    pub key: Option<PathBuf>,
}

impl AuthorityOptions {
    /// An etcd with these endpoints, without a login and without a certificate.
    #[must_use]
    pub fn new(endpoints: Vec<AuthorityUrl>) -> Self {
        Self {
            endpoints,
            login: None,
            ca_file: None,
            certificate: None,
            key: None,
        }
    }

    /// Checks the options against each other.
    ///
    /// # Errors
    /// A message for the operator.
    pub fn check(&self) -> Result<(), String> {
        let count = self.endpoints.len();
        if count == 0 || count > ENDPOINTS_MAX {
            return Err(format!(
                "--authority: {count} endpoints; name 1 to {ENDPOINTS_MAX}"
            ));
        }
        let repeated = self.endpoints.iter().enumerate();
        let mut repeated = repeated.filter(|(at, url)| self.endpoints[..*at].contains(url));
        if let Some((_, url)) = repeated.next() {
            return Err(format!("--authority: {url} is named twice"));
        }
        let secure = self
            .endpoints
            .iter()
            .find(|url| url.scheme == Scheme::Https);
        if let (Some(url), false) = (secure, cfg!(feature = "tls")) {
            return Err(format!(
                "--authority {url}: this latchd was built without TLS (feature `tls`)"
            ));
        }
        let tls_options = [
            ("--authority-ca", &self.ca_file),
            ("--authority-cert", &self.certificate),
            ("--authority-key", &self.key),
        ];
        let mut given = tls_options.iter().filter(|(_, path)| path.is_some());
        if let (None, Some((flag, _))) = (secure, given.next()) {
            return Err(format!(
                "{flag}: no endpoint uses TLS; write https:// in --authority"
            ));
        }
        if self.key.is_some() && self.certificate.is_none() {
            return Err("--authority-key: there is no certificate; add --authority-cert".into());
        }
        Ok(())
    }
}

/// The URL of an endpoint: `http://HOST:PORT` or `https://HOST:PORT`; the default port is 2379.
///
/// ```
/// use latchd_cluster::AuthorityUrl;
///
/// let url: AuthorityUrl = "https://etcd-a.example/".parse()?;
/// assert_eq!(url.to_string(), "https://etcd-a.example:2379");
/// assert!("http://etcd-a.example:2379/v3".parse::<AuthorityUrl>().is_err());
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AuthorityUrl {
    scheme: Scheme,
    address: HostPort,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Scheme {
    Http,
    Https,
}

impl AuthorityUrl {
    /// Whether requests go over TLS.
    #[must_use]
    pub fn is_secure(&self) -> bool {
        self.scheme == Scheme::Https
    }

    /// The addresses of its host. It waits for the resolver of the system.
    ///
    /// # Errors
    /// The resolver's.
    pub(crate) fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        let HostPort { host, port } = &self.address;
        Ok((host.as_str(), *port).to_socket_addrs()?.collect())
    }

    /// The host, an IPv6 address without brackets, and the port.
    pub(super) const fn address(&self) -> &HostPort {
        &self.address
    }
}

impl FromStr for AuthorityUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| {
            format!(
                "`{}`: {why}; expected a URL such as http://10.0.0.1:2379",
                text.escape_debug()
            )
        };
        if text.len() > URL_BYTES_MAX {
            return Err(format!(
                "a URL of {} bytes is too long; use at most {URL_BYTES_MAX}",
                text.len()
            ));
        }
        let (scheme, rest) = text.split_once("://").ok_or_else(|| wrong("no scheme"))?;
        let scheme = match scheme.to_ascii_lowercase().as_str() {
            "http" => Scheme::Http,
            "https" => Scheme::Https,
            _ => return Err(wrong("the scheme is neither http nor https")),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if rest.contains('@') {
            let why = "a user does not belong into the URL, use --authority-user";
            return Err(wrong(why));
        }
        if rest.contains(['/', '?', '#']) {
            return Err(wrong("a path, a query or a fragment has no meaning here"));
        }
        let address = HostPort::parse(rest, DEFAULT_PORT).map_err(|_| wrong("no host and port"))?;
        if address.port == 0 || !is_host(&address.host) {
            return Err(wrong("no host and port"));
        }
        // Anything behind the brackets of an IPv6 address but a port would be dropped.
        let printed = address.to_string();
        if rest != printed && format!("{rest}:{DEFAULT_PORT}") != printed {
            return Err(wrong("no host and port"));
        }
        Ok(Self { scheme, address })
    }
}

/// Whether this is a host name, an IPv4 address or an IPv6 address.
fn is_host(host: &str) -> bool {
    let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    let is_name = !host.is_empty() && host.bytes().all(is_of_name);
    is_name || host.parse::<std::net::Ipv6Addr>().is_ok()
}

impl fmt::Display for AuthorityUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.scheme {
            Scheme::Http => "http",
            Scheme::Https => "https",
        };
        write!(formatter, "{scheme}://{}", self.address)
    }
}

/// A user of etcd and its password. The password is overwritten with zeros when the last copy is dropped, and
/// `Debug` does not show it.
#[derive(Clone, Eq, PartialEq)]
pub struct AuthorityLogin(Arc<Login>);

#[derive(Eq, PartialEq)]
struct Login {
    user: String,
    password: Zeroizing<String>,
}

impl AuthorityLogin {
    /// Checks both: 1 to [`LOGIN_BYTES_MAX`] bytes each.
    ///
    /// # Errors
    /// A message for the operator.
    pub fn new(user: impl Into<String>, password: impl Into<String>) -> Result<Self, String> {
        let (user, password) = (user.into(), Zeroizing::new(password.into()));
        for (name, text) in [("user", &user), ("password", &*password)] {
            if text.is_empty() || text.len() > LOGIN_BYTES_MAX {
                let bytes = text.len();
                return Err(format!(
                    "the {name} has {bytes} bytes; use 1 to {LOGIN_BYTES_MAX}"
                ));
            }
        }
        Ok(Self(Arc::new(Login { user, password })))
    }

    /// The user's name.
    #[must_use]
    pub fn user(&self) -> &str {
        &self.0.user
    }

    pub(super) fn password(&self) -> &str {
        &self.0.password
    }
}

impl fmt::Debug for AuthorityLogin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("AuthorityLogin");
        shown.field("user", &self.0.user).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Result<String, String> {
        text.parse::<AuthorityUrl>().map(|url| url.to_string())
    }

    #[test]
    fn a_url_is_scheme_host_and_port() {
        for (text, printed) in [
            ("http://a", "http://a:2379"),
            ("HTTPS://etcd-1.example:443/", "https://etcd-1.example:443"),
            ("http://10.0.0.1:2379", "http://10.0.0.1:2379"),
            ("http://[::1]", "http://[::1]:2379"),
            ("https://[fd00::1]:1", "https://[fd00::1]:1"),
        ] {
            assert_eq!(url(text).as_deref(), Ok(printed));
        }
        for text in [
            "",
            "a:2379",
            "http://",
            "http:///",
            "ftp://a",
            "http://a:0",
            "http://a:65536",
            "http://a:2379/v3",
            "http://a:2379//",
            "http://a?b",
            "http://a#b",
            "http://u:p@a",
            "http://a b",
            "http://[::1",
            "http://[::1]x",
            "http://[a]:1",
            "http://::1",
            "http://fe80::1%eth0",
            "http://\u{e9}",
            "http://a,http://b",
        ] {
            let error = url(text).unwrap_err();
            assert!(error.contains("expected a URL such as"), "{text}: {error}");
        }
        assert!(
            url(&format!("http://{}", "a".repeat(300)))
                .unwrap_err()
                .contains("too long")
        );
    }

    #[test]
    fn options_that_contradict_are_refused() {
        let options = |urls: &[&str]| {
            AuthorityOptions::new(urls.iter().map(|url| url.parse().unwrap()).collect())
        };
        let wrong = |options: &AuthorityOptions| options.check().unwrap_err();
        assert!(wrong(&options(&[])).contains("0 endpoints"));
        let many: Vec<_> = (0..=ENDPOINTS_MAX)
            .map(|at| format!("http://e{at}"))
            .collect();
        let many: Vec<_> = many.iter().map(String::as_str).collect();
        assert!(wrong(&options(&many)).contains("17 endpoints; name 1 to 16"));
        assert_eq!(options(&many[1..]).check(), Ok(()));
        assert!(wrong(&options(&["http://a", "http://a:2379"])).contains("named twice"));

        let mut plain = options(&["http://a"]);
        plain.ca_file = Some("ca.pem".into());
        assert!(wrong(&plain).starts_with("--authority-ca: no endpoint uses TLS"));
        let mut secure = options(&["http://a", "https://b"]);
        if cfg!(feature = "tls") {
            assert_eq!(secure.check(), Ok(()));
            secure.key = Some("key.pem".into());
            assert!(wrong(&secure).starts_with("--authority-key: there is no certificate"));
        } else {
            assert!(wrong(&secure).contains("built without TLS"));
        }
    }

    #[test]
    fn a_password_is_never_shown() {
        let login = AuthorityLogin::new("latchd", "secret").unwrap();
        assert_eq!(
            format!("{login:?}"),
            "AuthorityLogin { user: \"latchd\", .. }"
        );
        let long = "x".repeat(LOGIN_BYTES_MAX + 1);
        for (user, password) in [("", "p"), ("u", ""), (&*long, "p"), ("u", &*long)] {
            assert!(AuthorityLogin::new(user, password).is_err());
        }
    }
}
