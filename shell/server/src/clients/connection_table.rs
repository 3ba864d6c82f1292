//! The connected clients, as `stats conns` shows them.
//!
//! - A client is listed from its acceptance until its locks are free and its socket is closed.
//! - A client's worker notes the client's state in its [`Entry`] without a lock; any thread may read it at
//!   any time.
//! - Listeners come first, numbered from 1. Clients are numbered from there on, and no number is used again.
//!
//! Names and states are memcached's. Source: 1.6.45 `memcached.c`, `process_stats_conns`.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::ops::Bound;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use latchd_core::Instant;
use latchd_protocol::stats::StatsLine;
use rustix::net::SocketAddrAny;

use crate::net::listen::Address;

/// The number of clients on one page.
const CLIENTS_PER_PAGE: usize = 64;

/// Listeners and clients.
#[derive(Debug)]
pub(crate) struct ConnectionTable {
    listeners: Vec<Arc<str>>,
    clients: Mutex<BTreeMap<u64, Arc<Entry>>>,
    /// The number of clients per host; hosts without clients are absent.
    by_host: Mutex<BTreeMap<IpAddr, usize>>,
}

/// One client.
#[derive(Debug)]
pub(crate) struct Entry {
    peer: Option<SocketAddrAny>,
    listener: Arc<str>,
    state: AtomicU8,
    /// When its last request was executed, in milliseconds.
    active_ms: AtomicU64,
}

/// The state of a client.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum State {
    /// Waiting for the first byte of a request.
    Reading,
    /// Waiting for the rest of a request.
    ReadingOn,
    /// Executing complete requests.
    Working,
    /// Waiting until the client reads its replies.
    Writing,
    /// Waiting for a lock.
    Waiting,
    /// Watching: it receives log lines and sends no requests.
    Watching,
}

impl State {
    const ALL: [Self; 6] = [
        Self::Reading,
        Self::ReadingOn,
        Self::Working,
        Self::Writing,
        Self::Waiting,
        Self::Watching,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Reading => "conn_read",
            Self::ReadingOn => "conn_nread",
            Self::Working => "conn_parse_cmd",
            Self::Writing => "conn_mwrite",
            Self::Waiting => "conn_waiting",
            Self::Watching => "conn_watch",
        }
    }
}

impl Entry {
    /// Notes the client's state.
    pub(crate) fn set_state(&self, state: State) {
        self.state.store(state as u8, Ordering::Relaxed);
    }

    /// Notes that a request was executed.
    pub(crate) fn set_active(&self, now: Instant) {
        self.active_ms.store(now.as_millis(), Ordering::Relaxed);
    }

    fn state(&self) -> State {
        let number = usize::from(self.state.load(Ordering::Relaxed));
        State::ALL.get(number).copied().unwrap_or(State::Reading)
    }
}

impl ConnectionTable {
    /// A table without clients.
    pub(crate) fn new(addresses: &[Address]) -> Self {
        Self {
            listeners: addresses
                .iter()
                .map(|address| match address {
                    Address::Tcp(address) if address.is_ipv4() => format!("tcp:{address}").into(),
                    Address::Tcp(address) => format!("tcp6:{address}").into(),
                    Address::Unix(path) => format!("unix:{}", one_word(&path.display())).into(),
                })
                .collect(),
            clients: Mutex::default(),
            by_host: Mutex::default(),
        }
    }

    /// The number before the first client's number.
    pub(crate) fn last_listener(&self) -> u64 {
        self.listeners.len() as u64
    }

    /// Adds a client of the listener with this index.
    pub(crate) fn add(
        &self,
        number: u64,
        listener: usize,
        peer: Option<SocketAddrAny>,
        now: Instant,
    ) -> Arc<Entry> {
        if let Some(host) = peer.as_ref().and_then(host) {
            *self.by_host().entry(host).or_default() += 1;
        }
        let entry = Arc::new(Entry {
            peer,
            listener: Arc::clone(&self.listeners[listener]),
            state: AtomicU8::new(State::Reading as u8),
            active_ms: AtomicU64::new(now.as_millis()),
        });
        self.clients().insert(number, Arc::clone(&entry));
        entry
    }

    /// Removes a client that has left.
    pub(crate) fn remove(&self, number: u64) {
        let Some(entry) = self.clients().remove(&number) else {
            return;
        };
        if let Some(host) = entry.peer.as_ref().and_then(host) {
            let mut by_host = self.by_host();
            if let Some(count) = by_host.get_mut(&host) {
                *count -= 1;
                if *count == 0 {
                    by_host.remove(&host);
                }
            }
        }
    }

    /// The number of clients from the same host; 0 for a client without an address.
    pub(crate) fn clients_from(&self, peer: Option<&SocketAddrAny>) -> usize {
        let host = peer.and_then(host);
        host.and_then(|host| self.by_host().get(&host).copied())
            .unwrap_or(0)
    }

    /// A client's address, and the time since its last request; `None` if it has left.
    pub(crate) fn find(&self, number: u64, now: Instant) -> Option<(String, Duration)> {
        let entry = Arc::clone(self.clients().get(&number)?);
        let active_ms = entry.active_ms.load(Ordering::Relaxed);
        let silent_ms = now.as_millis().saturating_sub(active_ms);
        Some((entry.peer(), Duration::from_millis(silent_ms)))
    }

    /// A page of `stats conns`: the listeners on the first page, and the clients with numbers above `behind`.
    /// Also returns the number behind which the next page begins.
    pub(crate) fn lines(&self, now: Instant, behind: u64) -> (Vec<StatsLine>, Option<u64>) {
        // The list is unlocked before the lines are written.
        let clients: Vec<_> = self
            .clients()
            .range((Bound::Excluded(behind), Bound::Unbounded))
            .take(CLIENTS_PER_PAGE)
            .map(|(number, entry)| (*number, Arc::clone(entry)))
            .collect();
        let last = clients.last().map(|(number, _)| *number);
        let next = last.filter(|_| clients.len() == CLIENTS_PER_PAGE);
        let mut lines = Vec::with_capacity(3 * self.listeners.len() + 4 * clients.len());
        let mut show = |number: u64, name: &str, value: &dyn fmt::Display| {
            lines.push(StatsLine {
                name: format!("{number}:{name}").into(),
                value: value.to_string(),
            });
        };
        for (number, address) in (1..).zip(&self.listeners).filter(|_| behind == 0) {
            show(number, "addr", address);
            show(number, "state", &"conn_listening");
            show(number, "secs_since_last_cmd", &(now.as_millis() / 1000));
        }
        for (number, entry) in clients {
            show(number, "addr", &entry.peer());
            show(number, "listen_addr", &entry.listener);
            show(number, "state", &entry.state().name());
            let active_ms = entry.active_ms.load(Ordering::Relaxed);
            let silent_ms = now.as_millis().saturating_sub(active_ms);
            show(number, "secs_since_last_cmd", &(silent_ms / 1000));
        }
        (lines, next)
    }

    fn by_host(&self) -> MutexGuard<'_, BTreeMap<IpAddr, usize>> {
        self.by_host.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn clients(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Entry>>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    /// A number of its host; 0 for a client without an address.
    pub(crate) fn host_number(&self) -> u128 {
        match self.peer.as_ref().and_then(host) {
            Some(IpAddr::V4(address)) => u128::from(address.to_bits()),
            Some(IpAddr::V6(address)) => address.to_bits(),
            None => 0,
        }
    }

    /// Its address as `watch` shows it.
    pub(crate) fn endpoint(&self) -> String {
        let peer = self.peer.clone();
        match peer.and_then(|peer| std::net::SocketAddr::try_from(peer).ok()) {
            Some(peer) => format!("rip={} rport={} transport=tcp", peer.ip(), peer.port()),
            None => "rip=unix rport=0 transport=local".to_owned(),
        }
    }

    /// Its address as `stats conns` shows it.
    pub(crate) fn peer(&self) -> String {
        let peer = self.peer.clone();
        match peer.and_then(|peer| std::net::SocketAddr::try_from(peer).ok()) {
            Some(peer) if peer.is_ipv4() => format!("tcp:{peer}"),
            Some(peer) => format!("tcp6:{peer}"),
            // The client's end of a Unix socket has no name.
            None => self.listener.to_string(),
        }
    }
}

/// The host of an address. An IPv4 address mapped into IPv6 counts as IPv4. Of IPv6, the first 64 bits count:
/// the owner of one address of such a network has all of them.
fn host(peer: &SocketAddrAny) -> Option<IpAddr> {
    let peer = std::net::SocketAddr::try_from(peer.clone()).ok()?;
    Some(match peer.ip().to_canonical() {
        IpAddr::V6(address) => {
            let network = address.to_bits() & !u128::from(u64::MAX);
            IpAddr::V6(Ipv6Addr::from_bits(network))
        }
        address @ IpAddr::V4(_) => address,
    })
}

/// A value of `stats` holds no blanks.
pub(crate) fn one_word(text: &dyn fmt::Display) -> String {
    text.to_string()
        .replace(|c: char| c.is_whitespace() || c.is_control(), "_")
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    impl ConnectionTable {
        /// Whether no client is listed.
        pub(crate) fn is_empty(&self) -> bool {
            self.clients().is_empty() && self.by_host().is_empty()
        }
    }

    #[test]
    fn client_is_listed_until_it_leaves() {
        let unix = Address::Unix("/tmp/a b".into());
        let connection_table =
            ConnectionTable::new(&[Address::Tcp("[::1]:7".parse().unwrap()), unix]);
        let first = connection_table.last_listener() + 1;
        let now = Instant::from_millis(9_000);
        let entry = connection_table.add(first, 1, None, now);
        entry.set_state(State::Writing);
        entry.set_active(Instant::from_millis(5_500));
        let shown: Vec<_> = connection_table
            .lines(now, 0)
            .0
            .into_iter()
            .map(|line| format!("{} {}", line.name, line.value))
            .collect();
        assert_eq!(
            shown,
            [
                "1:addr tcp6:[::1]:7",
                "1:state conn_listening",
                "1:secs_since_last_cmd 9",
                "2:addr unix:/tmp/a_b",
                "2:state conn_listening",
                "2:secs_since_last_cmd 9",
                "3:addr unix:/tmp/a_b",
                "3:listen_addr unix:/tmp/a_b",
                "3:state conn_mwrite",
                "3:secs_since_last_cmd 3",
            ]
        );
        connection_table.remove(first);
        assert_eq!(connection_table.lines(now, 0).0.len(), 6);
    }

    #[test]
    fn pages_show_each_client_once() {
        let connection_table = ConnectionTable::new(&[Address::Tcp("[::1]:7".parse().unwrap())]);
        let (now, clients) = (Instant::from_millis(0), 2 * CLIENTS_PER_PAGE as u64);
        for number in 2..2 + clients {
            connection_table.add(number, 0, None, now);
        }
        let (mut shown, mut at, mut pages) = (Vec::new(), Some(0), 0);
        while let Some(behind) = at {
            let (lines, next) = connection_table.lines(now, behind);
            shown.extend(
                lines
                    .into_iter()
                    .filter(|line| line.name.ends_with(":state")),
            );
            // A client that arrives meanwhile is shown as well; a removed one is skipped.
            connection_table.remove(2);
            (at, pages) = (next, pages + 1);
        }
        let shown: Vec<_> = shown.into_iter().map(|line| line.name).collect();
        let expected: Vec<_> = (1..2 + clients)
            .map(|number| format!("{number}:state"))
            .collect();
        assert_eq!(
            (shown, pages),
            (
                expected
                    .iter()
                    .map(|name| name.as_str().to_owned().into())
                    .collect(),
                3
            )
        );
    }

    #[test]
    fn clients_are_counted_per_host() {
        let connection_table = ConnectionTable::new(&[Address::Tcp("[::]:7".parse().unwrap())]);
        let now = Instant::from_millis(0);
        let peer = |text: &str| Some(SocketAddrAny::from(text.parse::<SocketAddr>().unwrap()));
        let from = |text: &str| connection_table.clients_from(peer(text).as_ref());
        let two = connection_table.add(2, 0, peer("10.0.0.1:5000"), now);
        let three = connection_table.add(3, 0, peer("[::ffff:10.0.0.1]:5001"), now);
        let four = connection_table.add(4, 0, peer("[2001:db8::1]:5000"), now);
        connection_table.add(5, 0, peer("[2001:db8::2:0:0:1]:5000"), now);
        connection_table.add(6, 0, None, now);
        assert_eq!((from("10.0.0.1:9"), from("10.0.0.2:9")), (2, 0));
        assert_eq!(
            (from("[2001:db8::9]:9"), from("[2001:db8:0:1::1]:9")),
            (2, 0)
        );
        assert_eq!(connection_table.clients_from(None), 0);
        let hosts = [&two, &three, &four].map(|entry| entry.host_number());
        assert_eq!(hosts, [0x0a00_0001, 0x0a00_0001, 0x2001_0db8 << 96]);
        let shown = [&two, &four].map(|entry| entry.peer());
        assert_eq!(shown, ["tcp:10.0.0.1:5000", "tcp6:[2001:db8::1]:5000"]);
        connection_table.remove(2);
        connection_table.remove(2);
        assert_eq!(from("10.0.0.1:9"), 1);
        for number in 3..=6 {
            connection_table.remove(number);
        }
        assert!(connection_table.by_host().is_empty());
    }

    #[test]
    fn every_state_is_read_as_it_was_noted() {
        for state in State::ALL {
            assert_eq!(State::ALL[state as usize], state);
        }
    }
}
