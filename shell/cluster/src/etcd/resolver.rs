//! Looks up the host of an endpoint, on a thread: the system's look-up has no time limit.
//!
//! - N1: Each connection has at most one look-up at a time. A call that runs out of time leaves it to the next call.
//!
//! A host is looked up for each new connection, as an address may move.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::thread::Builder;

use latchd_protocol::address::HostPort;
use ureq::Error;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;

/// The most addresses of a host that are tried: the bound of [`ResolvedSocketAddrs`].
const ADDRESSES_MAX: usize = 16;

type Found = io::Result<Vec<SocketAddr>>;

/// The host of one endpoint.
#[derive(Debug)]
pub(super) struct HostResolver {
    address: HostPort,
    /// The look-up that is under way (N1).
    pending: Mutex<Option<Receiver<Found>>>,
}

impl HostResolver {
    pub(super) const fn new(address: HostPort) -> Self {
        Self {
            address,
            pending: Mutex::new(None),
        }
    }

    fn begin(&self) -> io::Result<Receiver<Found>> {
        let (answer, receiver) = mpsc::sync_channel(1);
        let HostPort { host, port } = self.address.clone();
        let thread = Builder::new().name("latchd-resolve".to_owned());
        let started = thread.spawn(move || {
            let found = (&*host, port).to_socket_addrs();
            // The endpoint may have been dropped.
            let _ = answer.send(found.map(|found| found.take(ADDRESSES_MAX).collect()));
        });
        match started {
            Ok(_) => Ok(receiver),
            // At a limit of threads the kind is that of a time-out, so the call counts as late.
            Err(error) => {
                let why = format!("cannot start the thread latchd-resolve: {error}");
                Err(io::Error::new(error.kind(), why))
            }
        }
    }
}

impl Resolver for HostResolver {
    fn resolve(
        &self,
        _: &Uri,
        _: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, Error> {
        let mut resolved = self.empty();
        if let Ok(ip) = self.address.host.parse::<IpAddr>() {
            resolved.push(SocketAddr::new(ip, self.address.port));
            return Ok(resolved);
        }
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        let receiver = match pending.take() {
            Some(receiver) => receiver,
            None => self.begin()?,
        };
        match receiver.recv_timeout(*timeout.after) {
            Ok(found) => found?
                .into_iter()
                .for_each(|address| resolved.push(address)),
            Err(RecvTimeoutError::Timeout) => {
                *pending = Some(receiver);
                return Err(Error::Timeout(timeout.reason));
            }
            Err(RecvTimeoutError::Disconnected) => {}
        }
        if resolved.is_empty() {
            return Err(Error::HostNotFound);
        }
        Ok(resolved)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn resolver(host: &str) -> HostResolver {
        HostResolver::new(HostPort {
            host: host.into(),
            port: 1,
        })
    }

    fn resolve(resolver: &HostResolver, limit: Duration) -> Result<Vec<SocketAddr>, Error> {
        let timeout = NextTimeout {
            after: ureq::unversioned::transport::time::Duration::Exact(limit),
            ..NextTimeout::default()
        };
        let uri = Uri::from_static("http://ignored/");
        let found = resolver.resolve(&uri, &Config::default(), timeout)?;
        Ok(found.iter().copied().collect())
    }

    #[test]
    fn a_late_look_up_is_left_to_the_next_call() {
        let resolver = resolver("a.invalid");
        let (answer, receiver) = mpsc::sync_channel(1);
        *resolver.pending.lock().unwrap() = Some(receiver);
        for _ in 0..2 {
            let late = resolve(&resolver, Duration::ZERO);
            assert!(matches!(late, Err(Error::Timeout(_))), "{late:?}");
        }
        let address = SocketAddr::from(([10, 0, 0, 1], 1));
        answer.send(Ok(vec![address; ADDRESSES_MAX])).unwrap();
        let found = resolve(&resolver, Duration::from_secs(60)).unwrap();
        assert_eq!(found, [address; ADDRESSES_MAX]);
        assert!(resolver.pending.lock().unwrap().is_none());
    }

    #[test]
    fn addresses_need_no_look_up() {
        for (host, ip) in [("127.0.0.1", "127.0.0.1:1"), ("::1", "[::1]:1")] {
            let found = resolve(&resolver(host), Duration::ZERO).unwrap();
            assert_eq!(found, [ip.parse().unwrap()]);
        }
        let found = resolve(&resolver("localhost"), Duration::from_secs(60)).unwrap();
        assert!(found.iter().all(|address| address.ip().is_loopback()));
    }
}
