//! What a worker lends a client for its turn: room for bytes, and a bounded amount of work.
//!
//! - T1: a turn ends after [`LATER_TURN`] of work, however few bytes ask for it, and the client goes
//!   behind the others. Between two looks at the clock lie at most [`HEAVY`] small commands, or one
//!   that is not about a key.
//! - T2: the first turn after something has arrived ends after [`FIRST_TURN`] already: whoever asks
//!   for little is answered before anyone who asks for much gets on with it.
//! - T3: a step that moves or erases as much as takes longer than a turn ([`WHOLE_TURN`]) is the last of its turn, whatever
//!   the clock shows: the time of a turn is counted from the first look on.

use std::time::Duration;

use latchd_core::{Instant, Output};

use crate::net::tls::Records;
use crate::stats::connection_stats::Traffic;
use crate::worker::outbox::Outbox;

/// How long the turn of a client that has just sent something may be.
pub(crate) const FIRST_TURN: Duration = Duration::from_micros(200);

/// How long each turn of a client may be that has more to do than fits into the first.
pub(crate) const LATER_TURN: Duration = Duration::from_millis(1);

/// The weight of a command that may look at many items (a page of `keys`, say), where a step that is
/// about one key, or no command at all, weighs 1, and what it moves counts besides ([`latchd_core::work`]). After as much
/// the clock is looked at.
pub(crate) const HEAVY: u32 = 16;

/// What is a turn by itself: to move half a megabyte takes about as long as [`FIRST_TURN`].
const WHOLE_TURN: u32 = 256;

/// What a worker lends a client for its turn.
#[derive(Debug)]
pub(crate) struct Turn<'a, B> {
    /// What executes the commands of clients.
    pub(crate) backend: &'a B,
    /// Where bytes are counted.
    pub(crate) traffic: &'a Traffic,
    /// When it is.
    pub(crate) now: Instant,
    /// Room for input; empty.
    pub(crate) input: &'a mut Vec<u8>,
    /// Room for output; empty.
    pub(crate) output: &'a mut Output,
    /// Where a small answer may wait until the others have theirs.
    pub(crate) outbox: &'a mut Outbox,
    /// Whether it may.
    pub(crate) puts_off: bool,
    /// What the client is called there.
    pub(crate) name: u64,
    /// Room for what input and output are under TLS.
    pub(crate) records: &'a mut Records,
    /// How much may be done.
    pub(crate) work: Work,
}

/// How much a turn may still do.
#[derive(Debug)]
pub(crate) struct Work {
    span: Duration,
    /// Known from the first look at the clock on, so that a turn of a few requests does not look.
    ends: Option<std::time::Instant>,
    /// Since the last look.
    weight: u32,
    /// Before the last look.
    weight_before: u32,
    has_executed: bool,
    meta_commands: u32,
}

impl Work {
    /// Work for about so long.
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

    /// How many meta commands there were since this was last asked.
    pub(crate) fn take_meta(&mut self) -> u32 {
        std::mem::take(&mut self.meta_commands)
    }

    /// Whether any command was executed in this turn.
    pub(crate) fn has_executed(&self) -> bool {
        self.has_executed
    }

    /// Notes that something of this weight has been done.
    pub(crate) fn spend(&mut self, weight: u32) {
        self.weight = self.weight.saturating_add(weight);
    }

    /// What was done in this turn, as [`spend`](Self::spend) was told of it.
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
        for _ in 0..100 {
            work.spend(HEAVY);
            assert!(work.is_left());
        }
        work.spend(WHOLE_TURN - 1);
        assert!(work.is_left());
        work.spend(WHOLE_TURN);
        assert!(!work.is_left(), "T3");
    }
}
