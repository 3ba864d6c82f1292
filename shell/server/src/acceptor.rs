//! Who is let in.
//!
//! A thread of its own accepts for all workers and hands each client to the one with the fewest, so
//! that they are spread evenly whatever the order they come in, and that somebody new is let in
//! however much the workers have to do.
//!
//! - J1: at most [`connections_max`](crate::Config::connections_max) clients at a time. One more is
//!   told so and closed, or is left waiting: memcached's two ways (`-o maxconns_fast`).
//! - J2: when accepting is of no use (the limit, or no descriptors left), it is not tried again until
//!   a client has gone or [`RETRY`] has passed: a condition that lasts must not spin.
//! - J3: that it is of no use is said once in [`SILENCE`] at most, with how often it was not said.
//! - J4: at most [`connections_per_peer_max`](crate::Config::connections_per_peer_max) clients from one address. One more
//!   is told so and closed, whichever way the others have: who waits would hold up those from elsewhere.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use async_io::Async;
use latchd_core::ConnId;
use rustix::io::Errno;
use rustix::net::{SendFlags, SocketAddrAny};
use smol::LocalExecutor;
use smol::future::FutureExt;

use crate::clients::mailbox::{Arrival, Message};
use crate::net::listen::Listener;
use crate::net::transport::Security;
use crate::os::headroom;
use crate::shared::Shared;
use crate::sync::Timer;
use crate::sync::channel::{Receiver, bounded};

/// How many clients of one listener are accepted before the others get their turn.
const ACCEPTED_PER_TURN: usize = 16;

/// How long accepting rests when it was of no use and no client goes.
const RETRY: Duration = Duration::from_millis(200);

/// How long nothing is said after something was.
const SILENCE: Duration = Duration::from_secs(1);

/// What a client past the limit reads. Source: memcached 1.6.45 `memcached.c`, `drive_machine`.
const TOO_MANY: &[u8] = b"ERROR Too many open connections\r\n";

/// Accepts on all listeners until `stopped` is closed.
///
/// # Errors
/// The kernel's, if it cannot wait. What concerns one client ends only that.
pub(crate) async fn accept(
    listeners: Vec<Listener>,
    shared: &Shared,
    stopped: Receiver<()>,
) -> io::Result<()> {
    let door = Door::new(shared);
    let listeners = listeners
        .into_iter()
        .map(Async::new_nonblocking)
        .collect::<io::Result<Vec<_>>>()?;
    let (fail, failed) = bounded(1);
    let executor = LocalExecutor::new();
    let tasks: Vec<_> = listeners
        .iter()
        .enumerate()
        .map(|(index, listener)| {
            let (door, fail) = (&door, fail.clone());
            executor.spawn(async move {
                // Nobody is there to be told of a second failure.
                let _ = fail.try_send(door.accept_on(index, listener).await);
            })
        })
        .collect();
    let stop = async {
        // Nothing is ever sent: an error says that the other side has gone.
        let _ = stopped.recv().await;
        Ok(())
    };
    let failure = async { failed.recv().await.unwrap_or(Ok(())) };
    let end = executor.run(stop.or(failure)).await;
    drop(tasks);
    end
}

/// Where clients knock.
pub(crate) trait Entrance {
    /// How they speak.
    fn security(&self) -> Security;

    /// Takes the next one that waits: its socket, and where it comes from.
    ///
    /// # Errors
    /// The kernel's; [`Errno::AGAIN`] if nobody waits.
    fn take(&self) -> rustix::io::Result<(OwnedFd, Option<SocketAddrAny>)>;

    /// Waits until somebody does.
    ///
    /// # Errors
    /// The kernel's, if it cannot wait.
    async fn knock(&self) -> io::Result<()>;

    /// Where it is, for the log.
    fn place(&self) -> &dyn fmt::Display;
}

impl Entrance for Async<Listener> {
    fn security(&self) -> Security {
        self.get_ref().security()
    }

    fn take(&self) -> rustix::io::Result<(OwnedFd, Option<SocketAddrAny>)> {
        self.get_ref().accept()
    }

    async fn knock(&self) -> io::Result<()> {
        self.readable().await
    }

    fn place(&self) -> &dyn fmt::Display {
        self.get_ref().address()
    }
}

/// What the listeners have in common.
pub(crate) struct Door<'a> {
    shared: &'a Shared,
    last_conn: Cell<u64>,
    notice: RefCell<Notice>,
}

impl<'a> Door<'a> {
    /// Nobody has come yet.
    pub(crate) fn new(shared: &'a Shared) -> Self {
        Self {
            shared,
            last_conn: Cell::new(shared.roster.last_listener()),
            notice: RefCell::default(),
        }
    }

    /// Accepts on one listener for as long as the kernel can wait.
    ///
    /// # Errors
    /// The kernel's, if it cannot wait.
    pub(crate) async fn accept_on(&self, index: usize, listener: &impl Entrance) -> io::Result<()> {
        let stats = &self.shared.connection_stats;
        let mut accepted = 0;
        loop {
            if stats.is_full() && !self.shared.config.reject_past_limit {
                let most = self.shared.config.connections_max;
                if self.shared.config.verbosity > 0 {
                    self.notice(format_args!("{most} connections: the next one waits"));
                }
                self.rest().await;
                continue;
            }
            if !headroom::is_there() {
                let address = listener.place();
                self.notice(format_args!(
                    "no memory for a client on {address}: the next one waits"
                ));
                self.rest().await;
                continue;
            }
            match listener.take() {
                Ok((socket, peer)) if stats.is_full() || self.has_too_many(peer.as_ref()) => {
                    stats.count_rejected();
                    // The peer may be gone already, and is closed anyway.
                    let _ = rustix::net::send(&socket, TOO_MANY, SendFlags::NOSIGNAL);
                }
                Ok((socket, peer)) => {
                    stats.resume();
                    stats.count_open();
                    self.last_conn.set(self.last_conn.get() + 1);
                    let conn = ConnId::from_number(self.last_conn.get());
                    let worker = self.shared.assign();
                    let now = self.shared.clock.now();
                    let entry = self.shared.roster.add(conn.number(), index, peer, now);
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
                    listener.knock().await?;
                    accepted = 0;
                }
                // The client left while it waited.
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

    /// Whether as many come from there as may (J4).
    fn has_too_many(&self, peer: Option<&SocketAddrAny>) -> bool {
        let most = self.shared.config.connections_per_peer_max;
        most.is_some_and(|most| self.shared.roster.clients_from(peer) >= most.get())
    }

    /// Waits until accepting may be of use again (J2).
    async fn rest(&self) {
        self.shared.connection_stats.pause();
        let gone = async {
            // It lives as long as the server.
            let _ = self.shared.gone.recv().await;
        };
        let later = async {
            Timer::after(RETRY).await;
        };
        gone.or(later).await;
    }

    /// J3.
    fn notice(&self, what: fmt::Arguments<'_>) {
        if let Some(untold) = self.notice.borrow_mut().tell(Instant::now()) {
            match untold {
                0 => tracing::warn!(event = "accept_delayed", "{what}"),
                untold => tracing::warn!(
                    event = "accept_delayed",
                    untold,
                    "{what} (and {untold} times more before)"
                ),
            }
        }
    }
}

/// When something was last said, and how often it was not said since.
#[derive(Debug, Default)]
struct Notice {
    told_at: Option<Instant>,
    untold: u64,
}

impl Notice {
    /// Whether to say it now; and then, how often it has not been said.
    fn tell(&mut self, now: Instant) -> Option<u64> {
        if self
            .told_at
            .is_some_and(|told_at| now.duration_since(told_at) < SILENCE)
        {
            self.untold += 1;
            return None;
        }
        self.told_at = Some(now);
        Some(std::mem::take(&mut self.untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_all_the_time_is_said_once_a_second() {
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
