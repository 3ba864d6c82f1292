//! Accepts new clients and assigns them to workers.
//!
//! One thread of its own accepts for all workers. It hands each client to the worker with the fewest clients,
//! so the load is even in every order of arrival. New clients are accepted however busy the workers are.
//!
//! - J1: At most [`connections_max`](crate::Config::connections_max) clients are connected at a time. One
//!   more gets an error and is closed, or stays in the backlog: memcached's two ways (`-o maxconns_fast`).
//! - J2: If accepting cannot succeed (connection limit, no descriptors), the thread retries only after a
//!   client has left or [`RETRY`] has passed. So a lasting condition does not spin.
//! - J3: A warning about this is logged at most once in [`SILENCE`], with the number of suppressed warnings.
//! - J4: At most [`connections_per_peer_max`](crate::Config::connections_per_peer_max) clients come from one
//!   address. One more always gets an error and is closed: left in the backlog, it would delay clients of
//!   other addresses.

use std::cell::RefCell;
use std::convert::Infallible;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use latchd_core::ConnId;
use rustix::io::Errno;
use rustix::net::{SendFlags, SocketAddrAny};
use smol::LocalExecutor;
use smol::future::FutureExt;

use crate::clients::mailbox::{Arrival, Message};
use crate::net::listen::Listener;
use crate::net::reactor::Reactor;
use crate::net::transport::Security;
use crate::os::headroom;
use crate::server_state::ServerState;
use crate::sync::Timer;
use crate::sync::channel::Receiver;

/// The most clients of one listener accepted in a row, before the other listeners have their turn.
const ACCEPTED_PER_TURN: usize = 16;

/// The pause after a failed accept, unless a client leaves earlier (J2).
const RETRY: Duration = Duration::from_millis(200);

/// The interval in which at most one warning is logged (J3).
const SILENCE: Duration = Duration::from_secs(1);

/// The reply to a client past the limit. Source: memcached 1.6.45 `memcached.c`, `drive_machine`.
const TOO_MANY: &[u8] = b"ERROR Too many open connections\r\n";

/// Accepts on all listeners until `stopped` is closed; as a member of a cluster from the first message of `begins` on
/// (E11 of [`latchd_cluster::election`]).
///
/// # Errors
/// The kernel's, if it cannot listen or wait. An error of one client ends only that client.
pub(crate) fn accept(
    listeners: &[Listener],
    shared: &ServerState,
    begins: Option<Receiver<()>>,
    stopped: &Receiver<()>,
) -> io::Result<()> {
    let reactor = Reactor::new(listeners.len())?;
    let descriptors: Vec<_> = listeners.iter().map(AsFd::as_fd).collect();
    let acceptor = Acceptor::new(shared);
    let executor = LocalExecutor::new();
    // Nothing is ever sent: an error means that the sender was dropped.
    let stop = async || stopped.recv().await.is_ok();
    let accepting = async {
        if let Some(begins) = begins {
            let begun = async { begins.recv().await.is_ok() };
            if !begun.or(stop()).await {
                return Ok(());
            }
            listeners.iter().try_for_each(Listener::begin)?;
        }
        let tasks: Vec<_> = (0..listeners.len())
            .map(|place| {
                let (acceptor, reactor) = (&acceptor, &reactor);
                let listener = &listeners[place];
                let endpoint = Waited {
                    listener,
                    reactor,
                    place,
                };
                executor.spawn(async move { acceptor.accept_on(place, &endpoint).await })
            })
            .collect();
        executor.run(stop()).await;
        drop(tasks);
        Ok(())
    };
    reactor.run(&descriptors, accepting)?
}

/// A listening endpoint.
pub(crate) trait Endpoint {
    /// The transport security of its clients.
    fn security(&self) -> Security;

    /// Accepts the next waiting client: its socket and its address.
    ///
    /// # Errors
    /// The kernel's; [`Errno::AGAIN`] if no client is waiting.
    fn take(&self) -> rustix::io::Result<(OwnedFd, Option<SocketAddrAny>)>;

    /// Waits until a client is waiting.
    async fn client_waits(&self);

    /// Its address, for the log.
    fn place(&self) -> &dyn fmt::Display;
}

/// A listener, and its place in the reactor of this thread.
struct Waited<'a> {
    listener: &'a Listener,
    reactor: &'a Reactor,
    place: usize,
}

impl Endpoint for Waited<'_> {
    fn security(&self) -> Security {
        self.listener.security()
    }

    fn take(&self) -> rustix::io::Result<(OwnedFd, Option<SocketAddrAny>)> {
        self.listener.accept()
    }

    async fn client_waits(&self) {
        self.reactor.readable(self.place).await;
    }

    fn place(&self) -> &dyn fmt::Display {
        self.listener.address()
    }
}

/// The state that all listeners share.
pub(crate) struct Acceptor<'a> {
    shared: &'a ServerState,
    notice: RefCell<Notice>,
}

impl<'a> Acceptor<'a> {
    /// Before the first client.
    pub(crate) fn new(shared: &'a ServerState) -> Self {
        Self {
            shared,
            notice: RefCell::default(),
        }
    }

    /// Accepts on one listener, without end.
    pub(crate) async fn accept_on(&self, index: usize, listener: &impl Endpoint) -> Infallible {
        let stats = &self.shared.connection_stats;
        let mut accepted = 0;
        loop {
            if stats.is_full() && !self.shared.config.reject_past_limit {
                let most = self.shared.config.connections_max;
                if self.shared.is_verbose() {
                    self.notice(format_args!(
                        "{most} connections are open: new connections wait"
                    ));
                }
                self.rest().await;
                continue;
            }
            if !headroom::is_there() {
                let address = listener.place();
                self.notice(format_args!(
                    "no memory for a client on {address}: new connections wait"
                ));
                self.rest().await;
                continue;
            }
            match listener.take() {
                Ok((socket, peer)) if stats.is_full() || self.has_too_many(peer.as_ref()) => {
                    stats.count_rejected();
                    // The peer may have closed already; the socket is closed anyway.
                    let _ = rustix::net::send(&socket, TOO_MANY, SendFlags::NOSIGNAL);
                }
                Ok((socket, peer)) => {
                    stats.resume();
                    stats.count_open();
                    let conn = ConnId::from_number(self.shared.next_number());
                    let worker = self.shared.assign();
                    let now = self.shared.clock.now();
                    let entry = self
                        .shared
                        .connection_table
                        .add(conn.number(), index, peer, now);
                    let arrival = Arrival {
                        socket,
                        security: listener.security(),
                        conn,
                        entry,
                    };
                    self.shared.mailbox(worker).post(Message::Adopt(arrival));
                }
                Err(Errno::AGAIN) => {
                    stats.resume();
                    listener.client_waits().await;
                    accepted = 0;
                }
                // The client left the backlog before it was accepted.
                Err(Errno::CONNABORTED | Errno::INTR | Errno::PROTO) => {}
                Err(errno) => {
                    let address = listener.place();
                    self.notice(format_args!("cannot accept on {address}: {errno}"));
                    self.rest().await;
                }
            }
            accepted += 1;
            if accepted % ACCEPTED_PER_TURN == 0 {
                smol::future::yield_now().await;
            }
        }
    }

    /// Whether this address has as many clients as it may (J4).
    fn has_too_many(&self, peer: Option<&SocketAddrAny>) -> bool {
        let most = self.shared.config.connections_per_peer_max;
        most.is_some_and(|most| self.shared.connection_table.clients_from(peer) >= most.get())
    }

    /// Waits until accepting may succeed again (J2).
    async fn rest(&self) {
        self.shared.connection_stats.pause();
        let closed = async {
            // The sender lives as long as the server.
            let _ = self.shared.closed.recv().await;
        };
        let later = async {
            Timer::after(RETRY).await;
        };
        closed.or(later).await;
    }

    /// Logs a warning at most once in [`SILENCE`] (J3).
    fn notice(&self, what: fmt::Arguments<'_>) {
        if let Some(suppressed) = self.notice.borrow_mut().tell(Instant::now()) {
            match suppressed {
                0 => tracing::warn!(event = "accept_delayed", "{what}"),
                suppressed => tracing::warn!(
                    event = "accept_delayed",
                    suppressed,
                    "{what} (and {suppressed} more times)"
                ),
            }
        }
    }
}

/// The time of the last warning, and the number of warnings suppressed since.
#[derive(Debug, Default)]
struct Notice {
    warned_at: Option<Instant>,
    suppressed: u64,
}

impl Notice {
    /// Whether to log now; if so, how many warnings were suppressed.
    fn tell(&mut self, now: Instant) -> Option<u64> {
        if self
            .warned_at
            .is_some_and(|warned_at| now.duration_since(warned_at) < SILENCE)
        {
            self.suppressed += 1;
            return None;
        }
        self.warned_at = Some(now);
        Some(std::mem::take(&mut self.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warning_repeats_once_per_second() {
        let mut notice = Notice::default();
        let start = Instant::now();
        assert_eq!(notice.tell(start), Some(0));
        for ms in 1..1000 {
            assert_eq!(notice.tell(start + Duration::from_millis(ms)), None);
        }
        assert_eq!(notice.tell(start + SILENCE), Some(999));
        assert_eq!(notice.tell(start + 2 * SILENCE), Some(0));
    }
}
