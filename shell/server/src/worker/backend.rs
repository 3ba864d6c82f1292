//! The backend of a client's connection, which executes its requests.
//!
//! The server has one, [`ServerState`](crate::server_state::ServerState): all items and all watchers. A proof uses another
//! one (`simulated.rs`) with the same connections.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use latchd_core::{ConnId, Instant, Output};
use latchd_protocol::connection::{Connection, Progress};

use crate::clients::connection_table::Entry;
use crate::clients::watch::Watcher;
use crate::worker::turn::Work;

/// Executes the requests of clients.
pub(crate) trait Backend {
    /// Its state of a connection: while this exists, the connection may hold locks.
    type Session: fmt::Debug;

    /// The connection of a session.
    fn conn(session: &Self::Session) -> ConnId;

    /// Whether the connection has ever requested a lock.
    fn may_hold(session: &Self::Session) -> bool;

    /// Whether the connection holds a lock at this time.
    fn holds(&self, now: Instant, session: &Self::Session) -> bool;

    /// Whether the connection relies on this server alone: it holds a lock or a bound win, or has a session.
    fn relies(&self, now: Instant, session: &Self::Session) -> bool;

    /// Whether the server may execute and send at this moment (E2 of [`latchd_cluster::election`]).
    fn serves(&self) -> bool;

    /// Notes that a connection has sent its first bytes, before they are executed.
    fn note_first_bytes(&self, conn: u64, entry: &Entry);

    /// Takes every step that `input` allows ([`Connection::drive`]), until `output` holds `output_bytes_max` or more.
    fn drive(
        &self,
        part: ConnTurn<'_, Self::Session>,
        wire: &mut Connection,
        input: &[u8],
        output: &mut Output,
        output_bytes_max: usize,
    ) -> (usize, Progress);

    /// Releases every lock of a connection, for good. When this returns, they are free.
    fn close(&self, now: Instant, session: Self::Session);

    /// Removes a watcher after its connection has closed.
    fn forget_watcher(&self, watcher: &Watcher);

    /// The time within which an unreachable peer is detected, if it may hold locks.
    fn dead_peer(&self) -> Duration;
}

/// A client's part of one turn.
#[derive(Debug)]
pub(crate) struct ConnTurn<'a, S> {
    /// The current time.
    pub(crate) now: Instant,
    /// The backend's state of its connection.
    pub(crate) session: &'a mut S,
    /// The buffer of its input, if a value in it may stay there ([`part_of`](crate::os::pages::part_of)).
    pub(crate) request: Option<&'a Bytes>,
    /// The work allowed in the rest of this turn.
    pub(crate) work: &'a mut Work,
    /// Its queue of log lines, if it watches.
    pub(crate) watcher: &'a mut Option<Arc<Watcher>>,
}
