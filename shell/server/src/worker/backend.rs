//! What is behind the connection of a client: whoever executes what it asks for.
//!
//! What ships has one, [`Shared`](crate::shared::Shared): all items of the server, and whoever watches. A proof puts
//! another there (`simulated.rs`), and the connections before it are the same.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use latchd_core::connection::{Connection, Progress};
use latchd_core::{ConnId, Instant, Output};

use crate::clients::watch::Watcher;
use crate::worker::turn::Work;

/// Executes what clients ask for.
pub(crate) trait Backend {
    /// What it knows of a connection: as long as that is there, it may hold locks.
    type Session: fmt::Debug;

    /// Whose it is.
    fn conn(session: &Self::Session) -> ConnId;

    /// Whether it has ever asked for a lock.
    fn may_hold(session: &Self::Session) -> bool;

    /// Whether it holds a lock at this time.
    fn holds(&self, now: Instant, session: &Self::Session) -> bool;

    /// Takes every step that `input` allows ([`Connection::drive`]), until `output` holds `output_bytes_max` or more.
    fn drive(
        &self,
        visit: Visit<'_, Self::Session>,
        wire: &mut Connection,
        input: &[u8],
        output: &mut Output,
        output_bytes_max: usize,
    ) -> (usize, Progress);

    /// Releases every lock of a connection, for good. When this returns, they are free.
    fn close(&self, now: Instant, session: Self::Session);

    /// Nobody is to be told anything there any more.
    fn forget_watcher(&self, watcher: &Watcher);

    /// Within which time the death of a peer that may hold locks is to be found out.
    fn dead_peer(&self) -> Duration;
}

/// What a client brings along for one turn.
#[derive(Debug)]
pub(crate) struct Visit<'a, S> {
    /// When it is.
    pub(crate) now: Instant,
    /// What is known of its connection.
    pub(crate) session: &'a mut S,
    /// What its input is kept in, if a value in it may stay there ([`crate::pages::part_of`]).
    pub(crate) request: Option<&'a Bytes>,
    /// What it may still do in this turn.
    pub(crate) work: &'a mut Work,
    /// What it is told, if it watches.
    pub(crate) watcher: &'a mut Option<Arc<Watcher>>,
}
