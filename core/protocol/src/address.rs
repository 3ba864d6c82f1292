//! `HOST`, `HOST:PORT` and `[V6]:PORT`: the form of an address for the server's `-l` and for the client.

use alloc::format;
use alloc::string::String;
use core::fmt;

/// The port of memcached.
pub const DEFAULT_PORT: u16 = 11211;

/// A host and a port. [`Display`](fmt::Display) writes the form that [`parse`](Self::parse) reads.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HostPort {
    /// A host name, an IPv4 address or an IPv6 address without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl HostPort {
    /// Reads `HOST`, `HOST:PORT` or `[V6]:PORT`; a bare IPv6 address has no port.
    ///
    /// # Errors
    /// A sentence for a person, if the text has none of these forms.
    pub fn parse(text: &str, default_port: u16) -> Result<Self, String> {
        let (host, port) = match text.strip_prefix('[') {
            Some(bracketed) => {
                let (host, rest) = bracketed
                    .split_once(']')
                    .ok_or_else(|| format!("{text}: no `]`"))?;
                (host, rest.strip_prefix(':'))
            }
            // More than one colon is a bare IPv6 address.
            None => match text.split_once(':') {
                Some((host, port)) if !port.contains(':') => (host, Some(port)),
                Some(_) | None => (text, None),
            },
        };
        let port = match port {
            Some(port) => port
                .parse()
                .map_err(|_| format!("{text}: `{port}` is not a port"))?,
            None => default_port,
        };
        match host {
            "" => Err(format!(
                "{text}: no host; for every address of the machine say `*`"
            )),
            host => Ok(Self {
                host: host.into(),
                port,
            }),
        }
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(formatter, "[{}]:{}", self.host, self.port)
        } else {
            write!(formatter, "{}:{}", self.host, self.port)
        }
    }
}
