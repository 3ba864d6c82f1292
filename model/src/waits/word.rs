//! The words of these models: requests in the notation of docs/PROTOCOL.md, and other events.

use std::fmt;
use std::num::NonZeroU32;

use latchd_protocol::command::{Acquire, Get, Lease, Mode, TtlStep, TtlSteps, Wait};
use latchd_protocol::key::Key;
use latchd_protocol::time::Exptime;

/// Milliseconds in a step of time.
pub(super) const STEP_MS: u64 = 1000;

/// When a wait ends, from its request on: later than a lease, or an item that is made for it.
pub(super) const WAIT_MS: u64 = 3 * STEP_MS;

/// When a lease ends, from its grant on.
pub(super) const LEASE_MS: u64 = 2 * STEP_MS;

/// The wait that requests ask for. A span ends a millisecond after its length, so this one ends with a step of time.
pub(super) const ASKED_WAIT_MS: u64 = WAIT_MS - 1;

/// The lease that requests ask for.
const ASKED_LEASE_MS: u64 = LEASE_MS - 1;

/// How long an item lasts that `N` or `T` has given a TTL, in seconds.
pub(super) const TTL_S: u32 = 2;

/// The TTL in `R`, in seconds: an item that is a step old has less left.
pub(super) const SHORT_S: u32 = 2;

/// A word: a request as a line of text, or `open`, `close`, `time`, `pass`, `tick` or `hear`.
#[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Word(pub &'static str);

impl fmt::Debug for Word {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.0)
    }
}

/// The subject of a word.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Scope {
    World,
    Client,
    /// A client and a key.
    Item,
}

impl Word {
    pub(super) fn verb(self) -> &'static str {
        self.0.split(' ').next().unwrap_or_default()
    }

    pub(super) fn has(self, flag: &str) -> bool {
        self.0.split(' ').skip(1).any(|one| one == flag)
    }

    pub(super) fn scope(self) -> Scope {
        match self.verb() {
            "time" | "pass" | "tick" | "flush_all" => Scope::World,
            "open" | "close" | "hear" | "unlock_all" => Scope::Client,
            _ => Scope::Item,
        }
    }

    /// Whether it asks for a value, and not for a lock.
    pub(super) fn is_get(self) -> bool {
        self.verb() == "mg"
    }

    pub(super) fn mode(self) -> Mode {
        match (self.has("S"), self.has("S2")) {
            (false, false) => Mode::Exclusive,
            (true, _) => Mode::Shared { max_sharers: None },
            (false, true) => Mode::Shared {
                max_sharers: NonZeroU32::new(2),
            },
        }
    }

    /// Among how many a lock is shared, 1 being alone.
    pub(super) fn max_sharers(self) -> u32 {
        self.mode().max_sharers()
    }

    /// The request of `ml`.
    pub(super) fn acquire(self, key: Key<'_>, wait: Wait) -> Acquire<'_> {
        Acquire {
            mode: self.mode(),
            lease: self.has("T").then_some(Lease::For { ms: ASKED_LEASE_MS }),
            needs_item: self.has("x"),
            wait,
            ..Acquire::new(key)
        }
    }

    /// The request of `mg`.
    pub(super) fn get(self, key: Key<'_>) -> Get<'_> {
        let seconds = |seconds| Exptime::In { seconds };
        let steps = if self.has("N") {
            TtlSteps::one(TtlStep::Vivify(seconds(TTL_S)))
        } else if self.has("R") {
            TtlSteps::one(TtlStep::Recache(seconds(SHORT_S)))
        } else {
            TtlSteps::NONE
        };
        Get {
            steps,
            recaches: true,
            bound_to_owner: self.has("B"),
            wait_ms: if self.has("w") { ASKED_WAIT_MS } else { 0 },
            ..Get::new(key)
        }
    }
}
