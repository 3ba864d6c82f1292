//! Who is let in.
//!
//! One worker accepts for all of them and hands each client to the worker with the fewest, so that
//! they are spread evenly whatever the order they come in.
//!
//! - J1: at most [`connections_max`](crate::Config::connections_max) clients at a time. One more is
//!   told so and closed, or is left waiting: memcached's two ways (`-o maxconns_fast`).
//! - J2: when accepting is of no use (the limit, or no descriptors left), the listeners leave the
//!   epoll until a client has gone or a tick has passed: a condition that lasts must not spin.

use std::os::fd::AsFd;

use latchd_core::ConnId;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::SendFlags;

use crate::listen::Listener;
use crate::mailbox::Arrival;
use crate::shared::Shared;

/// How many clients are accepted before those that are there get their turn.
const ACCEPTED_PER_TURN: usize = 16;

/// What a client past the limit reads. Source: memcached 1.6.45 `memcached.c`, `drive_machine`.
const TOO_MANY: &[u8] = b"ERROR Too many open connections\r\n";

/// The listeners, in the epoll of the worker that accepts.
#[derive(Debug)]
pub(crate) struct Acceptor {
    listeners: Vec<Listener>,
    /// What the `n`th listener is called in the epoll.
    name: fn(usize) -> EventData,
    last_conn: u64,
    /// An error has been logged and none of its kind is to be, until a client is let in.
    has_warned: bool,
}

impl Acceptor {
    pub(crate) fn new(listeners: Vec<Listener>, name: fn(usize) -> EventData) -> Self {
        Self {
            listeners,
            name,
            last_conn: 0,
            has_warned: false,
        }
    }

    /// Waits for clients.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn enter(&self, epoll: impl AsFd) -> rustix::io::Result<()> {
        for (index, listener) in self.listeners.iter().enumerate() {
            epoll::add(&epoll, listener, (self.name)(index), EventFlags::IN)?;
        }
        Ok(())
    }

    /// Does not wait for clients any more.
    fn leave(&self, epoll: impl AsFd) {
        for listener in &self.listeners {
            if let Err(error) = epoll::delete(&epoll, listener) {
                tracing::warn!("cannot pause accepting on {}: {error}", listener.address());
            }
        }
    }

    /// Lets in the clients that wait at a listener, as many as a turn allows.
    pub(crate) fn accept(
        &mut self,
        listener: usize,
        epoll: impl AsFd,
        shared: &Shared,
        mut admit: impl FnMut(Arrival),
    ) {
        let Some(listener) = self.listeners.get(listener) else {
            return;
        };
        for _ in 0..ACCEPTED_PER_TURN {
            if shared.connection_stats.is_full() && !shared.config.reject_past_limit {
                if shared.config.verbosity > 0 {
                    tracing::info!(
                        "{} connections: the next one waits",
                        shared.config.connections_max
                    );
                }
                self.pause(&epoll, shared);
                // A client that went just now may not have seen that somebody waits for it.
                return self.resume(&epoll, shared);
            }
            match listener.accept() {
                Ok(socket) if shared.connection_stats.is_full() => {
                    shared.connection_stats.count_rejected();
                    // The peer may be gone already, and is closed anyway.
                    let _ = rustix::net::send(&socket, TOO_MANY, SendFlags::NOSIGNAL);
                }
                Ok(socket) => {
                    self.has_warned = false;
                    self.last_conn += 1;
                    shared.connection_stats.count_open();
                    admit(Arrival {
                        socket,
                        conn: ConnId::from_number(self.last_conn),
                    });
                }
                Err(Errno::AGAIN) => return,
                // The client left while it waited.
                Err(Errno::CONNABORTED | Errno::INTR | Errno::PROTO) => {}
                Err(errno) => {
                    if !self.has_warned {
                        self.has_warned = true;
                        tracing::warn!("cannot accept on {}: {errno}", listener.address());
                    }
                    return self.pause(epoll, shared);
                }
            }
        }
    }

    fn pause(&self, epoll: impl AsFd, shared: &Shared) {
        self.leave(epoll);
        shared.connection_stats.pause();
    }

    /// Accepts again, if there is room.
    pub(crate) fn resume(&self, epoll: impl AsFd, shared: &Shared) {
        if shared.connection_stats.is_accepting() || shared.connection_stats.is_full() {
            return;
        }
        match self.enter(epoll) {
            Ok(()) => shared.connection_stats.resume(),
            Err(errno) => tracing::warn!("cannot accept again yet: {errno}"),
        }
    }
}
