//! The last snapshot and the rates before it, from which each page is written. A snapshot is taken as seldom
//! as possible (U1).

use std::time::{Duration, Instant};

use super::history::History;
use super::snapshot::Snapshot;
use super::{locks, metrics, page};
use crate::server_state::ServerState;

/// The age limit of a snapshot. Taking one locks each shard for some microseconds.
pub(super) const FRESH: Duration = Duration::from_millis(250);

/// The last snapshot, and the samples of the last minutes.
#[derive(Debug)]
pub(super) struct Watch {
    taken: Instant,
    last: Snapshot,
    history: History,
}

impl Watch {
    pub(super) fn new(shared: &ServerState) -> Self {
        let mut watch = Self {
            taken: Instant::now(),
            last: Snapshot::take(shared),
            history: History::default(),
        };
        watch.sample(shared);
        watch
    }

    /// Adds a sample of the current counters.
    pub(super) fn sample(&mut self, shared: &ServerState) {
        let at_ms = shared.clock.now().as_millis();
        let stats = self.look(shared).stats;
        self.history.note(at_ms, &stats);
    }

    /// `/metrics`.
    pub(super) fn metrics(&mut self, shared: &ServerState) -> String {
        metrics::text(self.look(shared))
    }

    /// `/locks.json`.
    pub(super) fn locks(&mut self, shared: &ServerState) -> String {
        locks::json(self.look(shared))
    }

    /// `/`, with the locks whose keys begin with `prefix`.
    pub(super) fn page(&mut self, shared: &ServerState, prefix: &[u8]) -> String {
        self.look(shared);
        page::html(&self.last, &self.history, prefix)
    }

    fn look(&mut self, shared: &ServerState) -> &Snapshot {
        if self.taken.elapsed() >= FRESH {
            self.last = Snapshot::take(shared);
            self.taken = Instant::now();
        }
        &self.last
    }
}
