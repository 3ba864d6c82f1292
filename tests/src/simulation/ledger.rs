//! What all clients together know, from the answers alone: for every key who holds it, what was
//! stored last, its version, when it is gone, whether it is stale and who has the win.
//!
//! Answers are entered in the order in which the server made them. What an answer does not tell is
//! not known afterwards; what is known must be confirmed by every later answer. The ledger never
//! looks into the core.
//!
//! What it holds the server to:
//!
//! - B1: a key has at most one holder, and a free lock can be had.
//! - B2: while a connection holds a key nobody else changes it, and its item stays.
//! - B3: a read shows what was stored last.
//! - B4: an item is not gone before its time while there is room for all, and never readable more
//!   than 250 ms after it.
//! - B5: versions of a key strictly increase, and a guard lets only the present one pass.
//! - B6: between two events that open a win again, it is given to one reader.
//! - B7: a refusal has its reason.

mod change;
mod judge;

use super::ask::{Ask, What};

/// How long an expired item may still be read. Source: the protocol page of latchd, "Time".
const GRACE_MS: u64 = 250;

/// What the answers break, in words.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Breach {
    /// Which promise.
    pub(super) rule: &'static str,
    /// What happened.
    pub(super) what: String,
}

/// So that a rule reads as one line.
macro_rules! breach {
    ($rule:literal, $($what:tt)*) => {
        return Err(Breach { rule: $rule, what: format!($($what)*) })
    };
}
use breach;

/// What the clients know of one key.
#[derive(Clone, Debug)]
pub(super) struct Belief {
    /// The connection that holds its lock.
    pub(super) holder: Option<u64>,
    /// A flush passed over it while it was held; `None` if nobody can tell.
    doomed: Option<bool>,
    there: There,
    /// What was stored last, if `is_known`.
    value: Vec<u8>,
    is_known: bool,
    gone: Gone,
    /// Its version; `None` if no answer has told it yet.
    cas: Option<u64>,
    /// Its version is higher than this.
    cas_above: u64,
    /// Lower than its version: what a client may still remember.
    cas_past: u64,
    stale: Option<bool>,
    won: Option<bool>,
}

/// Whether there is an item.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum There {
    No,
    /// There was one; it is there if nothing but room or time could take it.
    Yes,
    /// An unanswered request may have made one.
    Maybe,
}

/// When an item is gone.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Gone {
    Never,
    /// From this moment on, in milliseconds.
    At(u64),
    Unknown,
}

/// The limits that decide which refusals have a reason.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// There is room for every item, also while all are held.
    pub(super) is_ample: bool,
    pub(super) value_bytes_max: usize,
    pub(super) locks_per_connection_max: usize,
}

/// What the clients know.
#[derive(Clone, Debug)]
pub(super) struct Ledger {
    beliefs: Vec<Belief>,
    room: Room,
    now_ms: u64,
    flush_at_ms: Option<u64>,
    /// The highest version that any answer has shown.
    cas_highest: u64,
    /// A buffer for values.
    scratch: Vec<u8>,
    pub(super) tally: Tally,
}

/// What has happened, for a person who wants to know whether a run is worth anything.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Tally {
    /// Locks that were given.
    pub locks: u64,
    /// Locks that somebody had.
    pub contended: u64,
    /// Changes refused because of another's lock.
    pub refused: u64,
    /// Locks that ended with their connection.
    pub died: u64,
    /// Readers who were told to recache.
    pub wins: u64,
    /// Readers who were told that another one does.
    pub waits: u64,
    /// Items that were gone though nobody had removed them: evicted, or expired.
    pub vanished: u64,
    /// Changes refused for want of room.
    pub out_of_memory: u64,
    /// Values over the limit.
    pub too_large: u64,
    /// Values read and found to be the last stored.
    pub confirmed: u64,
}

impl Tally {
    /// Adds another run's counts to these.
    pub const fn add(&mut self, other: &Self) {
        let Self {
            locks,
            contended,
            refused,
            died,
            wins,
            waits,
            vanished,
            out_of_memory,
            too_large,
            confirmed,
        } = other;
        self.locks += *locks;
        self.contended += *contended;
        self.refused += *refused;
        self.died += *died;
        self.wins += *wins;
        self.waits += *waits;
        self.vanished += *vanished;
        self.out_of_memory += *out_of_memory;
        self.too_large += *too_large;
        self.confirmed += *confirmed;
    }
}

impl Belief {
    fn new() -> Self {
        Self {
            holder: None,
            doomed: Some(false),
            there: There::No,
            value: Vec::new(),
            is_known: true,
            gone: Gone::Never,
            cas: None,
            cas_above: 0,
            cas_past: 0,
            stale: Some(false),
            won: Some(false),
        }
    }

    fn is_surely_expired(&self, now_ms: u64) -> bool {
        matches!(self.gone, Gone::At(ms) if ms.saturating_add(GRACE_MS) <= now_ms)
    }

    fn may_be_expired(&self, now_ms: u64) -> bool {
        match self.gone {
            Gone::Never => false,
            Gone::At(ms) => ms <= now_ms,
            Gone::Unknown => true,
        }
    }
}

impl Ledger {
    pub(super) fn new(keys: usize, room: Room) -> Self {
        Self {
            beliefs: vec![Belief::new(); keys],
            room,
            now_ms: 0,
            flush_at_ms: None,
            cas_highest: 0,
            scratch: Vec::new(),
            tally: Tally::default(),
        }
    }

    /// Who holds a key.
    pub(super) fn holder(&self, key: usize) -> Option<u64> {
        self.beliefs[key].holder
    }

    /// A version of a key that clients know: the present one if any, or one that is past.
    pub(super) fn version(&self, key: usize, past: bool) -> Option<u64> {
        let belief = &self.beliefs[key];
        if past {
            Some(belief.cas_past).filter(|cas| *cas != 0)
        } else {
            belief.cas
        }
    }

    /// Time has come to `now_ms`, or stays where it is if that is past.
    pub(super) fn advance(&mut self, now_ms: u64) {
        self.now_ms = self.now_ms.max(now_ms);
        if self.flush_at_ms.is_some_and(|at| at <= self.now_ms) {
            self.flush();
        }
    }

    fn flush(&mut self) {
        self.flush_at_ms = None;
        for belief in &mut self.beliefs {
            if belief.holder.is_some() {
                belief.doomed = Some(true);
            } else {
                belief.there = There::No;
            }
        }
    }

    fn flush_in(&mut self, delay_s: Option<i32>) {
        match delay_s.and_then(|delay| u64::try_from(delay).ok()) {
            None | Some(0) => self.flush(),
            Some(delay) => self.flush_at_ms = Some(self.now_ms + delay * 1000),
        }
    }

    /// A connection has ended, and the server knows.
    pub(super) fn close(&mut self, conn: u64) {
        self.tally.died += self.release_all(conn);
    }

    fn release_all(&mut self, conn: u64) -> u64 {
        let mut released = 0;
        for belief in &mut self.beliefs {
            if belief.holder == Some(conn) {
                belief.release();
                released += 1;
            }
        }
        released
    }

    fn locks_of(&self, conn: u64) -> usize {
        let held = |belief: &&Belief| belief.holder == Some(conn);
        self.beliefs.iter().filter(held).count()
    }

    /// Whether another connection than `conn` holds the key.
    fn is_held_by_another(&self, key: usize, conn: u64) -> bool {
        self.beliefs[key]
            .holder
            .is_some_and(|holder| holder != conn)
    }

    /// When an item with this exptime is gone.
    fn gone(&self, exptime: Option<i32>) -> Gone {
        match exptime {
            None | Some(0) => Gone::Never,
            Some(seconds) => {
                let ms = u64::try_from(seconds).map_or(0, |seconds| seconds * 1000);
                Gone::At(self.now_ms + ms)
            }
        }
    }

    /// An answer shows that there is an item (B4).
    fn found(&mut self, key: usize) -> Result<(), Breach> {
        let now_ms = self.now_ms;
        let belief = &mut self.beliefs[key];
        if belief.there == There::No {
            breach!("B3", "key {key} was gone, nobody stored it, and it is back");
        }
        if belief.holder.is_none() && belief.is_surely_expired(now_ms) {
            breach!(
                "B4",
                "key {key} is there at {now_ms} ms, and was to be {:?}",
                belief.gone
            );
        }
        belief.there = There::Yes;
        Ok(())
    }

    /// An answer shows that there is no item (B2, B4).
    fn missed(&mut self, key: usize) -> Result<(), Breach> {
        let now_ms = self.now_ms;
        let belief = &mut self.beliefs[key];
        if let Some(holder) = belief.holder {
            breach!("B2", "key {key} is held by {holder}, and its item is gone");
        }
        if belief.there == There::Yes {
            if self.room.is_ample && !belief.may_be_expired(now_ms) {
                breach!(
                    "B4",
                    "key {key} vanished at {now_ms} ms, and was to be {:?}",
                    belief.gone
                );
            }
            self.tally.vanished += 1;
        }
        belief.there = There::No;
        Ok(())
    }

    /// An answer shows the version of an item that nothing has changed (B5).
    fn showed_cas(&mut self, key: usize, cas: Option<u64>) -> Result<(), Breach> {
        let Some(cas) = cas else { return Ok(()) };
        let belief = &mut self.beliefs[key];
        match belief.cas {
            Some(known) if known != cas => {
                breach!(
                    "B5",
                    "key {key} has version {cas}, and nothing changed since {known}"
                );
            }
            None if cas <= belief.cas_above => {
                let above = belief.cas_above;
                breach!(
                    "B5",
                    "key {key} changed, and its version {cas} is not above {above}"
                );
            }
            Some(_) | None => belief.cas = Some(cas),
        }
        self.cas_highest = self.cas_highest.max(cas);
        Ok(())
    }

    /// An item got a new version, which the answer may show (B5).
    fn new_cas(&mut self, key: usize, cas: Option<u64>) -> Result<(), Breach> {
        let highest = self.cas_highest;
        let belief = &mut self.beliefs[key];
        belief.cas_past = belief.cas.unwrap_or(belief.cas_past);
        belief.cas = None;
        belief.cas_above = highest;
        self.showed_cas(key, cas)
    }

    /// A guard has let a change pass, or not (B5).
    fn guarded(&mut self, ask: &Ask, passed: bool) -> Result<(), Breach> {
        if ask.guard == 0 {
            return Ok(());
        }
        let (key, wanted) = (ask.key(), ask.guard);
        let belief = &self.beliefs[key];
        let lowest = belief.cas.unwrap_or(belief.cas_above + 1);
        let may_pass = match belief.cas {
            Some(cas) => wanted == cas || (ask.else_stale && wanted < cas),
            None => wanted >= lowest || ask.else_stale,
        };
        let may_fail = match belief.cas {
            Some(cas) => wanted != cas && !(ask.else_stale && wanted < cas),
            None => true,
        };
        if passed && !may_pass {
            breach!(
                "B5",
                "key {key}: a guard for {wanted} passed, and the version is {lowest} or more"
            );
        }
        if !passed && !may_fail {
            breach!(
                "B5",
                "key {key}: a guard for {wanted} failed, and that is the version"
            );
        }
        Ok(())
    }

    /// The keys that are surely held, for a comparison with the server's own table.
    pub(super) fn held(&self) -> impl Iterator<Item = (usize, u64)> {
        let holders = self.beliefs.iter().map(|belief| belief.holder);
        holders
            .enumerate()
            .filter_map(|(key, holder)| Some((key, holder?)))
    }

    /// Whether a key in a listing is one that can be there.
    fn listed(&mut self, key: usize) -> Result<(), Breach> {
        self.found(key)
    }

    /// An unanswered request may have changed the item, or not.
    fn doubt(&mut self, ask: &Ask) {
        let belief = &mut self.beliefs[ask.key()];
        belief.is_known = false;
        belief.cas_past = belief.cas.unwrap_or(belief.cas_past);
        belief.cas = None;
        // It may have its old version still, so `cas_above` stays.
        belief.stale = None;
        belief.won = None;
        if ask.what == What::Set {
            belief.gone = Gone::Unknown;
            belief.doomed = belief.doomed.filter(|doomed| !doomed);
            if belief.there == There::No {
                belief.there = There::Maybe;
            }
        }
    }
}

impl Belief {
    /// Its lock has ended. What the lock held off happens now.
    fn release(&mut self) {
        self.holder = None;
        match self.doomed.replace(false) {
            Some(false) => {}
            Some(true) => self.there = There::No,
            None => {
                self.there = There::Maybe;
                self.gone = Gone::Unknown;
            }
        }
    }
}
