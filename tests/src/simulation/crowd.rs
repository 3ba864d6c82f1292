//! Seeds of another kind: clients that speak of locks of keys, in meta text, and wait for them; in some seeds in
//! great numbers.
//!
//! The bytes are cut anywhere, clients pipeline behind a request that waits, go while they wait, and read late. The
//! core is asked beside an oracle, reply by reply and notice by notice; there is always room, so the oracle always knows.
//!
//! - C1: what the core is asked is what the client has said, in its order; of a request that has waited, the same
//!   without its wait (N5).
//! - C2: core and oracle give the same replies, end the same waits in the same way, and say the same of when the next
//!   thing happens by itself.
//! - C3: each request has one answer, in order, and it is the reply that the core gave (N1).
//! - C4: a fence that a client reads is that of one grant: nobody reads it who was not given it.
//! - C5: when everybody has gone, nobody holds a lock or waits.
//!
//! A *great* seed has keys of up to 250 bytes that differ at their ends, more than 70,000 items, thousands of locks a
//! connection, whole hashes that collide, connections numbered past 2^32, and a time near one of those at which a counter
//! of 32 bits would turn over.

mod ask;
mod client;
mod machine;
mod world;

use latchd_core::Limits;
use latchd_core::key::Key;
use latchd_core::store::{KeyHasher, SipHash};

use latchd_harness::random::Random;

pub(super) use world::World;

/// Whether a seed is of this kind: every eighth.
pub(super) const fn is_of_a_crowd(seed: u64) -> bool {
    seed % 8 == 5
}

/// Whether there is much of everything in it: every 64th.
const fn is_great(seed: u64) -> bool {
    seed % 64 == 13
}

/// The moments, in milliseconds, at which something with 32 bits could turn over or changes its step: milliseconds,
/// quarter seconds that become seconds, quarter seconds.
const TURNS_MS: [u64; 3] = [1 << 32, (1 << 29) * 1000, (1 << 30) * 1000];

/// How long before one of them a great seed begins.
const BEFORE_MS: u64 = 60_000;

/// What a seed decides before anything happens.
#[derive(Clone, Copy, Debug)]
struct Setting {
    is_great: bool,
    clients: usize,
    keys: usize,
    limits: Limits,
    hasher: Coarse,
    now_ms: u64,
    /// How many connections there have been.
    opened: u64,
    /// What a great seed is to see.
    turn_ms: u64,
}

impl Setting {
    fn draw(seed: u64, random: &mut Random) -> Self {
        let is_great = is_great(seed);
        let mut pick = |from: u64, to: u64| {
            usize::try_from(from + random.below(to - from + 1)).expect("a small number")
        };
        let clients = if is_great { pick(4, 8) } else { pick(3, 24) };
        let keys = if is_great {
            pick(72_000, 76_000)
        } else {
            pick(1, 12)
        };
        let memory = if is_great { 256 << 20 } else { 16 << 20 };
        let mut limits = Limits::new(memory, 4096);
        limits.locks_per_connection_max = if is_great { 8_192 } else { pick(1, 6) };
        // Everybody's wait can end in one call: the oracle leaves nothing for the next.
        limits.locks_settled_max = clients + pick(0, 15);
        // So few that all of one client can be looked after in one call.
        limits.bound_wins_per_connection_max = pick(1, 3);
        let turn = TURNS_MS[pick(0, 2)];
        let hash = [random.next(), random.next()];
        Self {
            is_great,
            clients,
            keys,
            limits,
            hasher: Coarse {
                hash: SipHash::new(hash),
                mask: if is_great { 0xffff } else { u64::MAX },
            },
            now_ms: if is_great { turn - BEFORE_MS } else { 0 },
            turn_ms: turn,
            opened: if is_great { u64::from(u32::MAX) - 2 } else { 0 },
        }
    }
}

/// A hash of few bits, that keys collide as no client can make them.
#[derive(Clone, Copy, Debug)]
struct Coarse {
    hash: SipHash,
    mask: u64,
}

impl KeyHasher for Coarse {
    fn hash(&self, key: Key<'_>) -> u64 {
        // The bits that are left stand everywhere in the hash.
        (self.hash.hash(key) & self.mask).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

/// What stands before the number of every key of a great seed: longer than a table would copy by mistake.
const PREFIX_BYTES: usize = 200;

/// The name of a key: its number at the end, behind what all have in common.
fn name(number: usize, is_great: bool, into: &mut Vec<u8>) {
    into.clear();
    if is_great {
        into.resize(PREFIX_BYTES, b'k');
        // As long as a key may be, and a little shorter.
        let width = 50 - number % 8;
        into.extend_from_slice(format!("{number:0width$}").as_bytes());
    } else {
        into.extend_from_slice(format!("key{number}").as_bytes());
    }
}
