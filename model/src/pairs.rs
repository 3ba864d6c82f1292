//! Which kinds of request got which kinds of reply, over everything that this process has explored.
//!
//! The table of possible pairs is the one of the property tests (`RequestKind::reachable`). A model
//! asks only for requests of its alphabet; but every kind of request has to get every reply that it
//! can get, in one model or another; models run on the reference store.
//!
//! - P3: a pair that can be and that no model saw fails a check of all models.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use latchd_harness::alphabet::{ReplyKind, RequestKind, needs_bound, needs_log, needs_sharing};
use latchd_protocol::command::Command;
use latchd_protocol::reply::Reply;

/// A row for each kind of request, in it a bit for each kind of reply.
static SEEN: [AtomicU64; RequestKind::ALL.len()] =
    [const { AtomicU64::new(0) }; RequestKind::ALL.len()];

/// Notes a pair.
pub(crate) fn note(command: &Command<'_>, reply: &Reply<'_>) {
    let row = &SEEN[RequestKind::of_command(command) as usize];
    let bit = 1 << ReplyKind::of(reply) as u64;
    if row.load(Ordering::Relaxed) & bit == 0 {
        row.fetch_or(bit, Ordering::Relaxed);
    }
}

fn was_seen(request: RequestKind, reply: ReplyKind) -> bool {
    SEEN[request as usize].load(Ordering::Relaxed) & 1 << reply as u64 != 0
}

/// The pairs that were seen, a line for each kind of request.
#[must_use]
pub fn table() -> String {
    let mut table = String::new();
    for request in RequestKind::ALL {
        let replies = ReplyKind::ALL
            .iter()
            .filter(|reply| was_seen(*request, **reply));
        let replies: Vec<_> = replies.map(|reply| reply.name()).collect();
        // Writing into a string does not fail.
        let _ = writeln!(table, "{:24} {}", request.name(), replies.join(" "));
    }
    table
}

/// The pairs that break P3, or that are impossible and were seen; empty if all is well. The models
/// of waiting have witnesses of their own for the ends of waits.
#[must_use]
pub fn complaints() -> String {
    let mut complaints = String::new();
    let of_waits = |kind: &&RequestKind| {
        kind.is_of_wins() || matches!(kind, RequestKind::AcquireOrWait | RequestKind::Wait)
    };
    for request in RequestKind::ALL.iter().filter(|kind| !of_waits(kind)) {
        for reply in ReplyKind::ALL {
            let (can_be, seen) = (
                request.reachable().contains(reply)
                    && !needs_log(*request, *reply)
                    && !needs_sharing(*request, *reply)
                    && !needs_bound(*request, *reply)
                    // No model withholds grants.
                    && *reply != ReplyKind::Withheld,
                was_seen(*request, *reply),
            );
            let what = match (can_be, seen) {
                (false, true) => "cannot be, and was seen",
                (true, false) => "can be, and was never seen",
                _ => continue,
            };
            let _ = writeln!(complaints, "  {} {}: {what}", request.name(), reply.name());
        }
    }
    complaints
}
