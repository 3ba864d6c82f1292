//! The address of a server, and its name in errors.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use latchd_core::address::{DEFAULT_PORT, HostPort};

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

    /// Its name on the ketama ring: memcached's default port is left out.
    ///
    /// Source: libmemcached 1.1.4 `src/libmemcached/hosts.cc`, `update_continuum`.
    pub(super) fn ketama_name(&self) -> String {
        match &self.place {
            Place::Tcp(name) => match name.rsplit_once(':') {
                Some((host, port)) => {
                    let host = host.trim_start_matches('[').trim_end_matches(']');
                    if port == DEFAULT_PORT.to_string() {
                        host.to_owned()
                    } else {
                        format!("{host}:{port}")
                    }
                }
                None => name.to_string(),
            },
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
