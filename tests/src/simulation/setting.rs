//! The settings that a seed draws at the beginning: how many clients there are and how many keys
//! they share, and the limits of the server.

use latchd_core::Limits;
use latchd_core::store::{KeyHasher, SipHash};
use latchd_harness::alphabet::PRESSURE_KEYS;
use latchd_protocol::key::Key;

use latchd_harness::random::Random;

use super::{Plan, edge};

/// The least bytes of an item, besides its value.
const ITEM_BYTES_MAX: usize = 400;

/// The bytes that the store needs before it can hold anything: a few segments, and its index.
const STORE_BYTES_MIN: usize = 3_000;

/// The moments, in milliseconds, at which a counter of 32 bits could wrap or changes its step:
/// milliseconds, quarter seconds that become seconds, quarter seconds.
const TURNS_MS: [u64; 3] = [1 << 32, (1 << 29) * 1000, (1 << 30) * 1000];

/// How long before one of them a great seed begins.
const BEFORE_MS: u64 = 60_000;

/// More bytes than a lock of any key takes in the table.
const LOCK_BYTES_MAX: usize = 256;

/// Clients, keys and limits of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setting {
    pub(super) kind: Kind,
    pub(super) clients: usize,
    pub(super) keys: usize,
    pub(super) limits: Limits,
    pub(super) hasher: Coarse,
    /// There is room for every item, also while all are held.
    pub(super) is_ample: bool,
    pub(super) now_ms: u64,
    /// How many connections there have been.
    pub(super) opened: u64,
    /// The longest output of a client, in bytes, of which it has one.
    pub(super) outputs_max: [usize; 4],
    /// The most bytes that come to the server at once.
    pub(super) delivery_max: usize,
    /// A time near a wrap that a great seed must pass.
    pub(super) turn_ms: u64,
}

/// The kind of a seed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    /// All events except waits.
    Plain,
    /// Locks of keys, wins that are bound, and waits for both.
    Crowd,
    /// A crowd of many items under long keys, with thousands of locks, and near the wraps of
    /// numbers.
    Great,
    /// The connections are the server's own.
    Edge,
}

impl Kind {
    /// Every eighth seed is a crowd, every eighth of these is great, and every eighth is at the edge; there are no faults there.
    pub(super) const fn of(plan: &Plan) -> Self {
        match plan.seed % 8 {
            5 if plan.seed % 64 == 13 => Self::Great,
            5 => Self::Crowd,
            2 if plan.fault.is_none() => Self::Edge,
            _ => Self::Plain,
        }
    }

    /// Whether requests may wait.
    pub(super) const fn waits(self) -> bool {
        !matches!(self, Self::Plain)
    }
}

impl Setting {
    pub(super) fn draw(plan: &Plan, random: &mut Random) -> Self {
        let kind = Kind::of(plan);
        let mut pick = |from: u64, to: u64| {
            usize::try_from(from + random.below(to - from + 1)).expect("a small number")
        };
        let is_great = kind == Kind::Great;
        let (clients, keys) = match kind {
            Kind::Plain => (pick(8, 64), pick(2, 40)),
            Kind::Crowd => (pick(3, 24), pick(1, 12)),
            Kind::Great => (pick(4, 8), pick(72_000, 76_000)),
            Kind::Edge => (pick(2, 12), edge::ITEMS + pick(1, edge::LOCKS_MAX)),
        };
        // The first great seed passes the last of them, and the next ones pass the others.
        let turn_ms = TURNS_MS[usize::try_from((plan.seed / 64 + 2) % 3).expect("it is below 3")];
        // Every fourth plain seed has room for all items.
        let is_ample = kind != Kind::Plain || plan.seed % 4 == 3;
        let limits = if kind == Kind::Plain {
            limits(keys, is_ample, pick)
        } else if kind == Kind::Edge {
            let mut limits = Limits::new(edge::MEMORY_BYTES_MAX, edge::VALUE_BYTES_MAX);
            // All waits can end in one call.
            limits.locks_settled_max = 64;
            limits
        } else {
            let mut limits = Limits::new(if is_great { 256 << 20 } else { 16 << 20 }, 600);
            limits.locks_per_connection_max = if is_great { 8_192 } else { pick(1, 6) };
            // All waits can end in one call: the oracle leaves nothing for the next.
            limits.locks_settled_max = clients + pick(0, 15);
            // So few that one call can release all locks of one client.
            limits.bound_wins_per_connection_max = pick(1, 3);
            limits
        };
        let hash = [random.next(), random.next()];
        Self {
            kind,
            clients,
            keys,
            limits,
            hasher: Coarse {
                hash: SipHash::new(hash),
                mask: if is_great { 0xffff } else { u64::MAX },
            },
            is_ample,
            now_ms: match kind {
                Kind::Plain | Kind::Crowd | Kind::Edge => random.below(1 << 20),
                Kind::Great => turn_ms - BEFORE_MS,
            },
            opened: if is_great { u64::from(u32::MAX) - 2 } else { 0 },
            outputs_max: if is_great {
                [64 << 10; 4]
            } else {
                [1, 64, 512, 4096]
            },
            delivery_max: if is_great { 8 << 10 } else { 1 << 10 },
            turn_ms,
        }
    }
}

/// The limits of a plain seed.
fn limits(keys: usize, is_ample: bool, mut pick: impl FnMut(u64, u64) -> usize) -> Limits {
    let value_bytes_max = pick(100, 700);
    // From a few items to nearly all.
    let scarce = STORE_BYTES_MIN + 60 * pick(1, keys as u64);
    let mut limits = Limits::new(scarce, value_bytes_max);
    if is_ample {
        let of_clients = keys * (ITEM_BYTES_MAX + value_bytes_max);
        let of_nobody = PRESSURE_KEYS * ITEM_BYTES_MAX;
        limits.memory_bytes_max = STORE_BYTES_MIN + 2 * (of_clients + of_nobody);
    }
    limits.locked_bytes_max = limits.memory_bytes_max / 2;
    // Ample memory is ample for locks, too.
    let share = if is_ample { 1 } else { pick(1, 4) };
    let all_locks = limits.memory_bytes_max + keys * LOCK_BYTES_MAX;
    limits.lock_table_bytes_max = all_locks / share;
    limits.lock_bytes_per_connection_max = all_locks / share;
    limits.locks_settled_max = pick(1, 16);
    limits.evict = is_ample || pick(0, 7) != 0;
    limits.locks_per_connection_max = pick(1, 6);
    limits.crawl_items_max = pick(1, 16);
    // All keys at once, or a few.
    limits.scan_items_max = if is_ample { 1000 } else { pick(1, 30) };
    limits
}

/// A hash of few bits, so that keys collide as no client can make them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Coarse {
    hash: SipHash,
    mask: u64,
}

impl KeyHasher for Coarse {
    fn hash(&self, key: Key<'_>) -> u64 {
        // The bits that are left stand everywhere in the hash.
        (self.hash.hash(key) & self.mask).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}
