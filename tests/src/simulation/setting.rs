//! What a seed decides before anything happens: how many clients there are and how many keys they
//! share, and the limits of the server.

use latchd_core::Limits;
use latchd_harness::alphabet::PRESSURE_KEYS;

use latchd_harness::random::Random;

/// No less than an item takes, besides its value.
const ITEM_BYTES_MAX: usize = 400;

/// What the store needs before it can hold anything: a few segments, and what it finds things with.
const STORE_BYTES_MIN: usize = 3_000;

/// Clients, keys and limits of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setting {
    pub(super) clients: usize,
    pub(super) keys: usize,
    pub(super) limits: Limits,
    /// There is room for every item, also while all are held.
    pub(super) is_ample: bool,
    pub(super) now_ms: u64,
}

/// More than a lock of any name takes of the table, in bytes.
const LOCK_BYTES_MAX: usize = 256;

impl Setting {
    /// Every fourth seed has room for all.
    pub(super) fn draw(seed: u64, random: &mut Random) -> Self {
        let mut pick = |from: u64, to: u64| {
            usize::try_from(from + random.below(to - from + 1)).expect("a small number")
        };
        let clients = pick(8, 64);
        let keys = pick(2, 40);
        let value_bytes_max = pick(100, 700);
        let is_ample = seed % 4 == 3;
        // From a few items to nearly all.
        let scarce = STORE_BYTES_MIN + 60 * pick(1, keys as u64);
        let mut limits = Limits::new(scarce, value_bytes_max);
        if is_ample {
            let of_clients = keys * (ITEM_BYTES_MAX + value_bytes_max);
            let of_nobody = PRESSURE_KEYS * ITEM_BYTES_MAX;
            limits.memory_bytes_max = STORE_BYTES_MIN + 2 * (of_clients + of_nobody);
        }
        limits.locked_bytes_max = limits.memory_bytes_max / 2;
        // Where room is ample it is so for locks, too.
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
        let now_ms = random.below(1 << 20);
        Self {
            clients,
            keys,
            limits,
            is_ample,
            now_ms,
        }
    }
}
