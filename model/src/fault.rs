//! An invariant that does not hold, and what was seen of it.

use std::fmt;

use latchd_harness::lockstep::panic_words;

use crate::invariants::Invariant;

/// A rule that does not hold.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Fault {
    /// Which.
    pub invariant: Invariant,
    /// What was seen.
    pub what: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.invariant, self.what)
    }
}

impl Fault {
    /// What a panic of the core's own checks says.
    pub(crate) fn from_panic(panic: &(dyn std::any::Any + Send)) -> Self {
        let what = panic_words(panic);
        Self {
            invariant: Invariant::of_message(&what),
            what,
        }
    }
}
