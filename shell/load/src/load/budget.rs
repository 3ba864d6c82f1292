//! The end of a run: after a time, or after a number of requests.

use std::time::{Duration, Instant};

/// When no more is asked.
#[derive(Clone, Copy, Debug)]
pub enum Stop {
    /// After so long.
    After(Duration),
    /// After this many requests.
    Requests(u64),
    /// When the workload has no more.
    AtTheEnd,
}

/// Whether more may be asked.
#[derive(Debug)]
pub struct Budget {
    requests: u64,
    deadline: Option<Instant>,
    is_over: bool,
}

impl Budget {
    /// All that `stop` allows.
    #[must_use]
    pub fn new(stop: Stop) -> Self {
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

    /// Compares the time with the deadline.
    pub fn look(&mut self, now: Instant) {
        self.is_over |= self.deadline.is_some_and(|deadline| now >= deadline);
    }

    /// Whether another request may be sent.
    #[must_use]
    pub fn allows(&self) -> bool {
        self.requests > 0 && !self.is_over
    }

    /// A request is sent.
    pub fn spend(&mut self) {
        self.requests -= 1;
    }
}
