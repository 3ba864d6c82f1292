//! The resources that a worker lends a client for its turn: buffers, and a bounded amount of work.
//!
//! - T1: A turn ends after [`LATER_TURN`] of work, however few bytes cause it, and the client goes to the
//!   back of the queue. Between two readings of the clock lie at most [`HEAVY`] small commands, or one
//!   command that is not about a single key.
//! - T2: The first turn after bytes have arrived ends after [`FIRST_TURN`]: a client with a small request
//!   gets its reply before a client with large requests continues.
//! - T3: A step that moves or erases more than a turn's worth of bytes ([`WHOLE_TURN`]) is the last of its
//!   turn, regardless of the clock: the time of a turn starts at the first reading of the clock.

use std::time::Duration;

use latchd_core::{Instant, Output};

use crate::net::tls::Records;
use crate::stats::connection_stats::Traffic;
use crate::worker::backend::Backend;
use crate::worker::outbox::Outbox;

/// The most time of a turn of a client that has just sent bytes.
pub(crate) const FIRST_TURN: Duration = Duration::from_micros(200);

/// The most time of each further turn, for a client with more work.
pub(crate) const LATER_TURN: Duration = Duration::from_millis(1);

/// The weight after which the clock is read. A command that may read many items (such as a page of `keys`)
/// has this weight. A step about one key, or without a command, has weight 1, plus the weight of the bytes
/// that it moves ([`latchd_core::work`]).
pub(crate) const HEAVY: u32 = 16;

/// The weight of a step that is a turn by itself: moving half a megabyte takes about as long as
/// [`FIRST_TURN`].
pub(crate) const WHOLE_TURN: u32 = 256;

/// The resources that a worker lends a client for its turn.
#[derive(Debug)]
pub(crate) struct Turn<'a, B> {
    /// Executes the client's commands.
    pub(crate) backend: &'a B,
    /// Whether the server may execute and send, as last asked ([`Backend::serves`]).
    pub(crate) serves: bool,
    /// The counters of bytes.
    pub(crate) traffic: &'a Traffic,
    /// The current time.
    pub(crate) now: Instant,
    /// A buffer for input; empty.
    pub(crate) input: &'a mut Vec<u8>,
    /// A buffer for output; empty.
    pub(crate) output: &'a mut Output,
    /// The queue of deferred replies.
    pub(crate) outbox: &'a mut Outbox,
    /// Whether a reply may be deferred.
    pub(crate) puts_off: bool,
    /// The client's name in the outbox.
    pub(crate) name: u64,
    /// Buffers for the records of TLS.
    pub(crate) records: &'a mut Records,
    /// The work allowed in this turn.
    pub(crate) work: Work,
}

impl<B: Backend> Turn<'_, B> {
    /// Whether the server may still send, after requests have been executed.
    pub(crate) fn still_serves(&mut self) -> bool {
        self.serves = self.serves && self.backend.serves();
        self.serves
    }
}

/// The work allowed in the rest of a turn.
#[derive(Debug)]
pub(crate) struct Work {
    span: Duration,
    /// Set at the first reading of the clock, so a turn of a few requests does not read it.
    ends: Option<std::time::Instant>,
    /// The weight since the last reading.
    weight: u32,
    /// The weight before the last reading.
    weight_before: u32,
    has_executed: bool,
    meta_commands: u32,
}

impl Work {
    /// Work for about this long.
    pub(crate) const fn new(span: Duration) -> Self {
        Self {
            span,
            ends: None,
            weight: 0,
            weight_before: 0,
            has_executed: false,
            meta_commands: 0,
        }
    }

    /// Notes that a command is executed.
    pub(crate) fn note_executed(&mut self) {
        self.has_executed = true;
    }

    /// Notes that a command is a meta command.
    pub(crate) fn note_meta(&mut self) {
        self.meta_commands += 1;
    }

    /// Takes the number of meta commands since the last call.
    pub(crate) fn take_meta(&mut self) -> u32 {
        std::mem::take(&mut self.meta_commands)
    }

    /// Whether any command was executed in this turn.
    pub(crate) fn has_executed(&self) -> bool {
        self.has_executed
    }

    /// Adds the weight of a step.
    pub(crate) fn spend(&mut self, weight: u32) {
        self.weight = self.weight.saturating_add(weight);
    }

    /// The total weight of this turn.
    pub(crate) fn spent(&self) -> u32 {
        self.weight_before.saturating_add(self.weight)
    }

    /// Whether the turn goes on.
    pub(crate) fn is_left(&mut self) -> bool {
        if self.weight < HEAVY {
            return true;
        }
        self.weight_before = self.spent();
        if std::mem::take(&mut self.weight) >= WHOLE_TURN {
            return false;
        }
        let now = std::time::Instant::now();
        now < *self.ends.get_or_insert(now + self.span)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_requests_do_not_look_at_the_clock() {
        let mut work = Work::new(Duration::ZERO);
        for _ in 1..HEAVY {
            work.spend(1);
            assert!(work.is_left());
        }
        assert_eq!(work.ends, None);
    }

    #[test]
    fn a_turn_ends_when_its_time_is_over() {
        let mut work = Work::new(Duration::ZERO);
        work.spend(HEAVY);
        assert!(!work.is_left(), "no time was to be had");
        let mut work = Work::new(Duration::from_secs(600));
        assert_eq!(work.spent(), 0);
        for number in 1..=100 {
            work.spend(HEAVY);
            assert!(work.is_left());
            assert_eq!(work.spent(), number * HEAVY);
        }
        work.spend(WHOLE_TURN - 1);
        assert!(work.is_left());
        work.spend(WHOLE_TURN);
        assert!(!work.is_left(), "T3");
    }
}
