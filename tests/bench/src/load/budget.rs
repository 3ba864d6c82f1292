//! The end of a run: after a time, or after a number of requests.

use std::time::{Duration, Instant};

/// When no more is asked.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stop {
    /// After so long.
    After(Duration),
    /// After this many requests.
    Requests(u64),
    /// When the workload has no more.
    AtTheEnd,
}

/// Whether more may be asked.
#[derive(Debug)]
pub(super) struct Budget {
    requests: u64,
    deadline: Option<Instant>,
    is_over: bool,
}

impl Budget {
    pub(super) fn new(stop: Stop) -> Self {
        let (requests, deadline) = match stop {
            Stop::After(span) => (u64::MAX, Some(Instant::now() + span)),
            Stop::Requests(requests) => (requests, None),
            Stop::AtTheEnd => (u64::MAX, None),
        };
        Self {
            requests,
            deadline,
            is_over: false,
        }
    }

    pub(super) fn look(&mut self, now: Instant) {
        self.is_over |= self.deadline.is_some_and(|deadline| now >= deadline);
    }

    pub(super) fn allows(&self) -> bool {
        self.requests > 0 && !self.is_over
    }

    pub(super) fn spend(&mut self) {
        self.requests -= 1;
    }
}
