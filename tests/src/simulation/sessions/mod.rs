//! Seeds of a fourth kind: sessions over the workers of the server itself.
//!
//! Each client is served by the shipped connections, executor, shards, registry of sessions and mailboxes
//! (`latchd_server::verify::workers`), on one of two workers, with keys in two shards. Clients open sessions, take over
//! from each other, end sessions of their own and of others, lose their connections with and without the server
//! noticing, wait for locks, and act in sessions with `j`. The simulation chooses when a worker reads its mailbox, when a
//! client has a turn, and up to 9 ms late when the clock wakes.
//!
//! A second statement of the rules of sessions ([`judge`]) stands beside the server, with an oracle for the locks. Both
//! know each reply word for word.
//!
//! - S1, S5: A connection is answered that it has a session when the one before has closed.
//! - S2, S8: A session ends when its client was not heard for its time: not a millisecond earlier, and at most 10 ms
//!   later. Its locks end with it, and with nothing else but a release.
//! - S3: The next session of a token has another owner and nothing of the first.
//! - S6: When all clients have gone and all sessions have ended, no session, lock, registration or byte of a table is
//!   left.

mod checks;
mod clients;
mod judge;
mod said;
mod world;

use super::Plan;

pub(super) use world::World;

/// Whether a seed has sessions: every eighth; there are no faults there.
pub(super) const fn plays(plan: &Plan) -> bool {
    plan.seed % 8 == 6 && plan.fault.is_none()
}

/// The most sessions that a seed has tokens for.
const TOKENS_MAX: u64 = 5;

/// The most keys; every second one is in the second shard.
const KEYS_MAX: u64 = 5;

/// How late a session may end, in milliseconds.
const LATE_MS_MAX: u64 = 10;
