//! The bounds of each model, and its required witnesses.

use super::{KEYS_MAX, Word};
use crate::frame::witnesses;

/// The bounds of one model.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// The name on the command line.
    pub name: &'static str,
    /// States and transitions, as of the last intended change of model or core.
    pub pinned: (usize, usize),
    /// How many clients.
    pub clients: usize,
    /// How many keys.
    pub keys: usize,
    /// Over how many shards of items the keys are spread.
    pub shards: usize,
    /// Whether a core learns the time as soon as an event is due. If not, a request may come first.
    pub is_punctual: bool,
    /// How many ended locks, waits and items a call releases.
    pub settled_max: usize,
    /// The clients' words, besides opening, closing and hearing, with commas between.
    pub words: &'static str,
}

impl Bounds {
    /// Whether one call releases everything that has ended.
    pub(super) const fn settles_together(&self) -> bool {
        self.settled_max > KEYS_MAX
    }

    pub(super) fn words(&self) -> impl Iterator<Item = Word> {
        self.words.split(", ").map(Word)
    }

    fn has(&self, word: &str) -> bool {
        self.words().any(|one| one.0 == word)
    }

    fn waits_for_locks(&self) -> bool {
        self.words()
            .any(|word| word.verb() == "ml" && word.has("w"))
    }

    pub(super) fn waits_for_values(&self) -> bool {
        self.words().any(Word::is_get)
    }
}

witnesses! {
    &'static str, Bounds;
    GivenInTurn of "Q2", "a lock is given to a client that has waited for it", Bounds::waits_for_locks;
    TwoWait of "Q2", "two wait for one lock, or one item", |b| b.clients > 2;
    OneOfTwo of "Q2", "the first of two is given the lock, or the win, and the other waits on", |b| b.clients > 2;
    TimedOut of "Q3", "a wait takes too long", |_| true;
    NotFound of "Q10", "a wait ends, and the item that the request needs is missing", |b| b.has("ml w x") || b.has("mg w") || b.has("mg R w B");
    Deadlock of "Q9", "a request would close a cycle of others", |b| b.waits_for_locks() && b.keys > 1;
    DeadlockOfThree of "Q9", "the cycle would be one of three", |b| b.waits_for_locks() && b.keys > 2;
    WaitsForItself of "Q9", "a request would wait for a lock that its own connection holds, or a winner waits for its own item", |_| true;
    NobodyBarges of "Q7", "a newcomer is refused while others wait", |b| b.waits_for_locks();
    LeaseOver of "Q3", "the lease of a lock ends", |b| b.has("ml w T");
    LeaseHandedOver of "Q3", "the lease of a lock ends while a client waits for it", |b| b.has("ml w T");
    WaiterGoes of "Q8", "a waiter goes, and others stay", |b| b.clients > 2;
    GrantOfDeadPassedOn of "Q8", "a connection ends that was given a lock and had not heard of it, and another waits", Bounds::waits_for_locks;
    HeardInTime of "Q10", "a client gets its notice, and still has the lock or the win", |_| true;
    LostBeforeHeard of "Q10", "a client loses the lock or the win before it gets its notice", |b| b.has("ml w T") || b.waits_for_values();
    HeardTooLate of "Q10", "a client that has waited too long asks once more", |_| true;
    TwoShare of "L1", "two share a lock", |b| b.keys == 1 && (b.has("ml w S") || b.has("ml w S2"));
    GivenTogether of "Q6", "two waiters are given a share in one call", |b| b.keys == 1 && (b.has("ml w S") || b.has("ml w S2"));
    ShareIsFull of "L1", "a shared lock is full", |b| b.keys == 1 && b.has("ml w S2");
    ShareBehind of "Q7", "a share is available, but another client waits before", |b| b.keys == 1 && b.has("ml w S2");
    DeadlockByOneOfTwo of "Q9", "a request would close a cycle by one of several that share a lock", |b| b.keys > 1 && b.has("ml w S2");
    OtherMakesRoom of "Q9", "a request waits although one holder of the share waits for it: another can make room", |b| b.keys > 1 && b.has("ml w S2") && b.settles_together();
    WonInTurn of "Z10", "the win of an item that is there is given to a client that has waited for it", Bounds::waits_for_values;
    MadeInTurn of "Z10", "an item is made for a client that has waited, and the win is its", Bounds::waits_for_values;
    ValueTold of "Z11", "a value is told to a client that has waited for it", Bounds::waits_for_values;
    ToldTogether of "Z8", "two are told the value that one request has stored", |b| b.waits_for_values() && b.clients > 2;
    ExpiresWaited of "Z5", "an item expires while a client waits for it", Bounds::waits_for_values;
    NobodyPasses of "Z9", "a newcomer finds a win that was given to a waiter that has not heard of it", |b| b.waits_for_values() && b.clients > 2;
    WinnerGoes of "Z7", "a winner ends, and no client waits: the win is open", Bounds::waits_for_values;
    WinnerGoesWaited of "Z7", "a winner ends while a client waits", Bounds::waits_for_values;
    UnboundGoes of "Z12", "a winner with an unbound win ends, and a client waits on", |b| b.has("mg N");
    GivenToDead of "Z10", "a client ends that was given a win and had not heard of it, and another waits", |b| b.waits_for_values() && b.clients > 2;
    ReopenedStale of "Z7", "the win of a stale item is open again", |b| b.has("mg N") && b.has("md I");
    MadeBehindLock of "Z8", "a winner ends, and with its lock the item: it is made for a waiter", |b| b.waits_for_values() && b.has("ml");
    HeldByAnother of "Z8", "a waiter is told that there is nothing, since another holds the key", |b| b.waits_for_values() && b.has("ml");
    Circle of "Z12", "a connection waits for the item that another computes, which waits for its own", |b| b.waits_for_values() && b.keys > 1;
}

const fn of(
    name: &'static str,
    [clients, keys]: [usize; 2],
    pinned: (usize, usize),
    words: &'static str,
) -> Bounds {
    Bounds {
        name,
        pinned,
        clients,
        keys,
        shards: 1,
        is_punctual: true,
        settled_max: 16,
        words,
    }
}

impl Bounds {
    const fn over_two_shards(self) -> Self {
        Self { shards: 2, ..self }
    }

    const fn called_late(self) -> Self {
        let is_punctual = false;
        Self {
            is_punctual,
            ..self
        }
    }

    const fn settling_one(self) -> Self {
        let settled_max = 1;
        Self {
            settled_max,
            ..self
        }
    }
}

/// Locks with leases and without.
const HELD: &str = "ml, ml T, ml w, ml w T, mu";

/// Locks that are waited for, and nothing else.
const AWAITED: &str = "ml w, mu";

/// The same, and many that end at once.
const AWAITED_ALL: &str = "ml w, mu, unlock_all";

/// The same, and shared by two.
const BY_TWO: &str = "ml w, ml w S2, mu, unlock_all";

/// Every kind of get, and requests that fill, mark and take an item.
const FILLED: &str = "mg, mg N, mg N B, mg w, mg N w, mg N w B, ms, md I, md, flush_all, tick";

/// The models that are checked.
pub const ALL: &[Bounds] = &[
    of("waits-3x1", [3, 1], (408, 3539), HELD),
    of("waits-4x1", [4, 1], (1913, 19_525), HELD),
    of("waits-3x1-late", [3, 1], (803, 7203), HELD).called_late(),
    of(
        "waits-3x1-items",
        [3, 1],
        (461, 5213),
        "ml, lock, ml w, ml w x, mu, unlock, md U, md, ms",
    ),
    of(
        "waits-3x2",
        [3, 2],
        (15_534, 195_933),
        "ml, ml T, ml w, ml w T, mu, unlock_all",
    ),
    of("waits-4x2", [4, 2], (3093, 27_973), AWAITED),
    of("waits-3x3", [3, 3], (8665, 69_661), AWAITED),
    of("waits-3x2-settled-1", [3, 2], (876, 7474), AWAITED_ALL).settling_one(),
    of(
        "waits-4x3-settled-1",
        [4, 3],
        (78_333, 835_536),
        AWAITED_ALL,
    )
    .settling_one(),
    of(
        "waits-3x2-shards-2",
        [3, 2],
        (30_816, 314_278),
        "ml w, ml w T, mu, unlock_all",
    )
    .over_two_shards()
    .called_late(),
    of(
        "waits-4x3-settled-1-shards-2",
        [4, 3],
        (78_333, 835_536),
        AWAITED_ALL,
    )
    .settling_one()
    .over_two_shards(),
    of(
        "waits-3x2-items-shards-2",
        [3, 2],
        (30_124, 374_164),
        "ml, lock, ml w, ml w x, mu, unlock, md U, md, ms",
    )
    .over_two_shards(),
    of(
        "waits-3x2-leases-settled-1-shards-2",
        [3, 2],
        (17_185, 169_225),
        "ml w, ml w T, mu, unlock_all",
    )
    .settling_one()
    .over_two_shards(),
    of(
        "waits-3x2-late-settled-1-shards-2",
        [3, 2],
        (204_614, 2_097_856),
        "ml w, ml w T, mu, unlock_all",
    )
    .settling_one()
    .over_two_shards()
    .called_late(),
    of("waits-3x3-shards-2", [3, 3], (9592, 87_583), AWAITED_ALL).over_two_shards(),
    of(
        "shares-3x1",
        [3, 1],
        (1765, 22_008),
        "ml, ml w, ml S, ml w S T, ml w S2, mu",
    ),
    of(
        "shares-4x1",
        [4, 1],
        (4289, 42_122),
        "ml w, ml w S, ml w S2, mu",
    ),
    of(
        "shares-3x1-items",
        [3, 1],
        (684, 9505),
        "lock, ml S2, ml w, ml w S, mu, unlock, md U, md, ms",
    ),
    of("shares-3x2", [3, 2], (17_026, 163_096), BY_TWO),
    of("shares-3x2-settled-1", [3, 2], (21_472, 208_526), BY_TWO).settling_one(),
    of("shares-3x2-shards-2", [3, 2], (17_026, 163_096), BY_TWO).over_two_shards(),
    of(
        "shares-3x2-late-shards-2",
        [3, 2],
        (76_980, 983_090),
        "ml w, ml w S2 T, mu, unlock_all",
    )
    .over_two_shards()
    .called_late(),
    of(
        "shares-3x2-settled-1-shards-2",
        [3, 2],
        (21_472, 208_526),
        BY_TWO,
    )
    .settling_one()
    .over_two_shards(),
    of("gets-2x1", [2, 1], (2821, 21_412), FILLED),
    of("gets-3x1", [3, 1], (31_154, 284_145), FILLED),
    of(
        "gets-3x1-late",
        [3, 1],
        (131_617, 1_110_490),
        "mg, mg N, mg N B, mg w, mg N w, mg N w B, ms, md I, md, flush_all 1",
    )
    .called_late(),
    of(
        "gets-3x1-short",
        [3, 1],
        (7256, 59_742),
        "mg, mg N B, mg R B, mg R w B, mg N w B, ms T, touch, md I",
    ),
    of(
        "gets-3x1-held",
        [3, 1],
        (6568, 69_140),
        "mg N B, mg N w B, ms, md, ml, mu, unlock_all, flush_all 1",
    ),
    of(
        "gets-4x1",
        [4, 1],
        (262_985, 2_523_334),
        "mg, mg N, mg N B, mg w, mg N w, mg N w B, ms, md I, md, flush_all",
    ),
    of(
        "gets-2x2",
        [2, 2],
        (125_739, 866_710),
        "mg N B, mg w, mg N w B, ms, md I, flush_all",
    ),
    of(
        "gets-3x2-settled-1",
        [3, 2],
        (97_984, 876_624),
        "mg N B, mg N w, ms, flush_all 1",
    )
    .settling_one(),
    of(
        "gets-2x2-shards-2",
        [2, 2],
        (125_739, 866_710),
        "mg N B, mg w, mg N w B, ms, md I, flush_all",
    )
    .over_two_shards(),
    of(
        "gets-3x2-settled-1-shards-2",
        [3, 2],
        (97_984, 876_624),
        "mg N B, mg N w, ms, flush_all 1",
    )
    .settling_one()
    .over_two_shards(),
    of(
        "gets-2x2-held-shards-2",
        [2, 2],
        (119_308, 1_339_982),
        "mg N B, mg N w B, ms, md, ml, mu, unlock_all, flush_all 1",
    )
    .over_two_shards(),
];
