//! The address of a server, and its name in errors.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use latchd_protocol::address::{DEFAULT_PORT, HostPort};

/// A server's address.
#[derive(Clone, Debug)]
pub(super) struct Endpoint {
    place: Place,
    name: Arc<str>,
}

/// The way to reach it.
#[derive(Clone, Debug)]
pub(super) enum Place {
    /// A host and port, as `HOST:PORT`.
    Tcp(Arc<str>),
    /// A Unix socket.
    Unix(Arc<Path>),
}

impl Endpoint {
    /// Reads `HOST`, `HOST:PORT`, `[V6]:PORT`, or the path of a Unix socket, which begins with `/` or `.`.
    /// The default port is 11211.
    ///
    /// # Errors
    /// A message for a person.
    pub(super) fn parse(address: &str) -> Result<Self, String> {
        if address.starts_with(['/', '.']) {
            let place = Place::Unix(Path::new(address).into());
            let name = address.into();
            return Ok(Self { place, name });
        }
        let address = HostPort::parse(address, DEFAULT_PORT)?;
        let name: Arc<str> = address.to_string().into();
        let place = Place::Tcp(Arc::clone(&name));
        Ok(Self { place, name })
    }

    pub(super) const fn place(&self) -> &Place {
        &self.place
    }

    /// The host of its address; `None` for a Unix socket.
    pub(super) fn host(&self) -> Option<&str> {
        match &self.place {
            Place::Tcp(name) => {
                let (host, _) = name.rsplit_once(':')?;
                Some(host.trim_start_matches('[').trim_end_matches(']'))
            }
            Place::Unix(_) => None,
        }
    }

    /// Its address on the ring; a Unix socket has port 0 there.
    ///
    /// Source: libmemcached 1.1.4 `src/libmemcached/hosts.cc`, `memcached_server_add_unix_socket`.
    pub(super) fn ring_address(&self) -> String {
        match &self.place {
            Place::Tcp(name) => name.to_string(),
            Place::Unix(path) => format!("{}:0", path.display()),
        }
    }

    /// Its name in errors.
    pub(super) const fn name(&self) -> &Arc<str> {
        &self.name
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.name)
    }
}
