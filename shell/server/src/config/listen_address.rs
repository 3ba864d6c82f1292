//! TCP addresses: the ones in `-l`, and the ones that a client connects to.

use std::fmt;
use std::str::FromStr;

use latchd_protocol::address::{DEFAULT_PORT, HostPort};

/// Where to listen on TCP: a name or an address, and a port.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ListenAddress {
    /// A host name, an IPv4 address or an IPv6 address without brackets. A name stands for every
    /// address it has, and `*` for every address of the machine, IPv4 and IPv6.
    pub host: String,
    /// The port; 0 takes a free one.
    pub port: u16,
    /// The TLS mode of this address, if the server uses TLS.
    pub tls: ListenTls,
}

/// The TLS mode of one address of a server that uses TLS: the prefix of the address in `-l`.
///
/// Source: memcached 1.6.45 `memcached.c`, `server_sockets`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum ListenTls {
    /// The server's settings apply.
    #[default]
    Usual,
    /// `notls:`, without TLS.
    Never,
    /// `btls:`, no client certificate is requested.
    Basic,
    /// `mtls:`, only clients with a valid certificate are accepted.
    Mutual,
}

impl ListenAddress {
    /// 127.0.0.1 and a port.
    #[must_use]
    pub fn loopback(port: u16) -> Self {
        Self {
            host: "127.0.0.1".into(),
            port,
            tls: ListenTls::Usual,
        }
    }

    /// Reads `HOST`, `HOST:PORT` or `[V6]:PORT`; a bare IPv6 address has no port. `*` is every address of the
    /// machine.
    ///
    /// # Errors
    /// A message for a person, if the text has none of these forms.
    pub fn parse(text: &str, default_port: u16) -> Result<Self, String> {
        let HostPort { host, port } = HostPort::parse(text, default_port)?;
        let tls = ListenTls::Usual;
        Ok(Self { host, port, tls })
    }
}

impl FromStr for ListenAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::parse(text, DEFAULT_PORT)
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = self.host.clone();
        let port = self.port;
        HostPort { host, port }.fmt(formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> (String, u16) {
        let address = ListenAddress::parse(text, 7).unwrap();
        (address.host, address.port)
    }

    #[test]
    fn address_has_an_optional_port() {
        assert_eq!(parsed("localhost"), ("localhost".into(), 7));
        assert_eq!(parsed("10.0.0.1:80"), ("10.0.0.1".into(), 80));
        assert_eq!(parsed("::1"), ("::1".into(), 7));
        assert_eq!(parsed("[::1]"), ("::1".into(), 7));
        assert_eq!(parsed("[::1]:0"), ("::1".into(), 0));
        assert_eq!(parsed("*:5"), ("*".into(), 5));
    }

    #[test]
    fn malformed_address_is_refused() {
        for text in ["", ":11211", "host:port", "host:70000", "[::1"] {
            assert!(ListenAddress::parse(text, 7).is_err(), "{text}");
        }
    }

    #[test]
    fn an_address_is_shown_as_it_is_read() {
        for text in ["127.0.0.1:5", "[::1]:5"] {
            assert_eq!(ListenAddress::parse(text, 7).unwrap().to_string(), text);
        }
    }
}
