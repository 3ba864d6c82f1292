//! Replaces the part in a cluster in builds without the feature `cluster`: uninhabited types.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use latchd_protocol::command::Command;
use latchd_protocol::stats::StatsLine;

/// No part in a cluster.
#[derive(Debug)]
pub(crate) struct Member(Infallible);

impl Member {
    pub(crate) fn serves(&self) -> bool {
        match self.0 {}
    }

    pub(crate) fn confirm(&self, _: usize, _: u64) {
        match self.0 {}
    }

    pub(crate) fn note_tick(&self, _: u64) {
        match self.0 {}
    }

    pub(crate) fn other_partition(&self, _: &Command<'_>) -> Option<&str> {
        match self.0 {}
    }

    pub(crate) fn promise_ms(&self) -> u64 {
        match self.0 {}
    }

    pub(crate) fn servers(&self) -> Option<Arc<str>> {
        match self.0 {}
    }

    pub(crate) fn answers(&self) -> AnswerTimes {
        match self.0 {}
    }

    pub(crate) fn lines(&self) -> Vec<StatsLine> {
        match self.0 {}
    }

    pub(crate) fn number_lines(&self) -> Vec<StatsLine> {
        match self.0 {}
    }
}

/// No answers.
#[derive(Debug)]
pub(crate) struct AnswerTimes(Infallible);

impl AnswerTimes {
    pub(crate) const BOUNDS_MS: [u64; 0] = [];

    pub(crate) fn buckets(&self) -> &[u64] {
        match self.0 {}
    }

    pub(crate) fn sum(&self) -> Duration {
        match self.0 {}
    }
}
