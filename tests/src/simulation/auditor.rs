//! What all clients together know, from the answers alone: for every key who holds it, what was
//! stored last, its version, when it is gone, whether it is stale and who has the win.
//!
//! Answers are shown to it in the order in which the server made them. What an answer does not tell is
//! not known afterwards; what is known must be confirmed by every later answer. The auditor never
//! looks into the core.
//!
//! What it holds the server to:
//!
//! - B1: a key has at most one holder, and a free lock can be had.
//! - B2: while a connection holds a key nobody else changes it, and its item stays.
//! - B3: a read shows what was stored last, value and client flags.
//! - B4: an item is not gone before its time while there is room for all, and never readable more
//!   than 250 ms after it; its TTL is shown as what is left of it.
//! - B5: the versions that the server gives are never given twice, and each is above all that were
//!   told before; one that a client chose stands where it was chosen; and a guard lets only the
//!   present one pass.
//! - B6: between two events that open a win again, it is given to one reader; and to none without
//!   a reason.
//! - B7: a refusal has its reason.

mod change;
mod judge;
mod ttl;
mod version;

pub(super) use judge::Said;

use latchd_core::item::Cas;
use latchd_core::time::Exptime;

use super::tally::Tally;
use ttl::Gone;

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
    flush_pending: Option<bool>,
    there: There,
    /// What was stored last, if `is_known`.
    value: Vec<u8>,
    is_known: bool,
    client_flags: Option<u32>,
    gone: Gone,
    /// Its version; `None` if no answer has told it yet.
    cas: Option<u64>,
    /// If the server gave its version, it is higher than this.
    cas_above: u64,
    /// The version that a client chose for it, if it may have that.
    cas_chosen: Option<u64>,
    /// One that it had before: what a client may still remember.
    cas_past: Option<u64>,
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

/// The limits that decide which refusals have a reason.
#[derive(Clone, Copy, Debug)]
pub(super) struct AuditLimits {
    /// There is room for every item, also while all are held.
    pub(super) is_ample: bool,
    pub(super) value_bytes_max: usize,
    pub(super) locks_per_connection_max: usize,
}

/// What the clients know.
#[derive(Clone, Debug)]
pub(super) struct Auditor {
    beliefs: Vec<Belief>,
    room: AuditLimits,
    now_ms: u64,
    /// Where the wall clock stood when `now_ms` was 0.
    unix_s_at_start: u64,
    flush_at_ms: Option<u64>,
    /// The highest version that any answer has shown, but for those that a client chose.
    cas_highest: u64,
    pub(super) tally: Tally,
}

impl Belief {
    fn new() -> Self {
        Self {
            holder: None,
            flush_pending: Some(false),
            there: There::No,
            value: Vec::new(),
            is_known: true,
            client_flags: Some(0),
            gone: Gone::Never,
            cas: None,
            cas_above: 0,
            cas_chosen: None,
            cas_past: None,
            stale: Some(false),
            won: Some(false),
        }
    }
}

impl Auditor {
    pub(super) fn new(keys: usize, room: AuditLimits, unix_s_at_start: u64) -> Self {
        Self {
            beliefs: vec![Belief::new(); keys],
            room,
            now_ms: 0,
            unix_s_at_start,
            flush_at_ms: None,
            cas_highest: 0,
            tally: Tally::default(),
        }
    }

    /// Who holds a key.
    pub(super) fn holder(&self, key: usize) -> Option<u64> {
        self.beliefs[key].holder
    }

    /// A version of a key that clients know: the present one if any, or one that is past.
    pub(super) fn version(&self, key: usize, past: bool) -> Option<Cas> {
        let belief = &self.beliefs[key];
        let known = if past { belief.cas_past } else { belief.cas };
        known.and_then(Cas::new)
    }

    /// A version above all that the server has told. It may be the next one that it gives.
    pub(super) fn higher_version(&self) -> Cas {
        Cas::new(self.cas_highest + 3).expect("not 0")
    }

    /// Time has come to `now_ms`, or stays where it is if that is past.
    pub(super) fn advance(&mut self, now_ms: u64) {
        self.now_ms = self.now_ms.max(now_ms);
        if self.flush_at_ms.is_some_and(|at| at <= self.now_ms) {
            self.flush();
        }
    }

    /// The wall clock was looked at, and stands so.
    pub(super) const fn look_at_wall_clock(&mut self, unix_s_at_start: u64) {
        self.unix_s_at_start = unix_s_at_start;
    }

    fn flush(&mut self) {
        self.flush_at_ms = None;
        for belief in &mut self.beliefs {
            if belief.holder.is_some() {
                belief.flush_pending = Some(true);
            } else {
                belief.there = There::No;
            }
        }
    }

    fn flush_at(&mut self, at: Exptime) {
        match self.gone(at) {
            Gone::At(ms) if ms > self.now_ms => self.flush_at_ms = Some(ms),
            Gone::Never | Gone::At(_) | Gone::Unknown => self.flush(),
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

    /// Whether there cannot be an item: it was taken out, or its time is up.
    fn must_be_gone(&self, key: usize) -> bool {
        let belief = &self.beliefs[key];
        let is_over = belief.holder.is_none() && belief.is_surely_expired(self.now_ms);
        belief.there == There::No || is_over
    }

    /// Whether nothing can have taken the item: not time, not want of room, and nobody's request.
    fn must_be_there(&self, key: usize) -> bool {
        let belief = &self.beliefs[key];
        let is_safe = self.room.is_ample && !belief.may_be_expired(self.now_ms);
        belief.there == There::Yes && (belief.holder.is_some() || is_safe)
    }

    /// The keys that are surely held, for a comparison with the server's own table.
    pub(super) fn held(&self) -> impl Iterator<Item = (usize, u64)> {
        let holders = self.beliefs.iter().map(|belief| belief.holder);
        holders
            .enumerate()
            .filter_map(|(key, holder)| Some((key, holder?)))
    }
}

impl Belief {
    /// Its lock has ended. What the lock held off happens now.
    fn release(&mut self) {
        self.holder = None;
        match self.flush_pending.replace(false) {
            Some(false) => {}
            Some(true) => self.there = There::No,
            None => {
                self.there = There::Maybe;
                self.gone = Gone::Unknown;
            }
        }
    }
}
