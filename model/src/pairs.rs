//! Which kinds of request got which kinds of reply, over everything that this process has explored.
//!
//! The table of what is possible is the one of the property tests
//! (`latchd_core::arbitrary::reachable`). A model asks for what its alphabet has; but what is asked
//! for in any model has to get every reply that it can get, in that model or in another.
//!
//! - P3: a pair that can be, of a kind of request that was asked for, and that no model saw, fails
//!   a check of all models.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use latchd_core::arbitrary::{ReplyKind, RequestKind, reachable};
use latchd_core::{Command, Reply};

/// A row for each kind of request, in it a bit for each kind of reply.
static SEEN: [AtomicU64; RequestKind::ALL.len()] = [const { AtomicU64::new(0) }; _];

/// Notes a pair.
pub(crate) fn note(command: &Command<'_>, reply: &Reply<'_>) {
    let row = &SEEN[RequestKind::of_command(command) as usize];
    let bit = 1 << ReplyKind::of(reply) as u64;
    if row.load(Ordering::Relaxed) & bit == 0 {
        row.fetch_or(bit, Ordering::Relaxed);
    }
}

/// Why a pair that can be is not to be expected, although its request is asked for.
const fn left_out(request: RequestKind, reply: ReplyKind) -> Option<&'static str> {
    match (request, reply) {
        (_, ReplyKind::HitUnchanged) => {
            Some("no `mg` asks with `C`: it decides only what is shown")
        }
        (RequestKind::LockAndGet, ReplyKind::RefusedConnectionClosed) => {
            Some("who has ended asks for `lock` only, which goes through the same door")
        }
        (RequestKind::Set | RequestKind::Add, ReplyKind::RefusedOutOfMemory) => None,
        (_, ReplyKind::RefusedOutOfMemory) => {
            Some("values are short: only a new item beside held ones finds no room")
        }
        _ => None,
    }
}

fn was_seen(request: RequestKind, reply: ReplyKind) -> bool {
    SEEN[request as usize].load(Ordering::Relaxed) & 1 << reply as u64 != 0
}

/// What was seen, a line for each kind of request that was asked for; then the kinds that no
/// alphabet has.
#[must_use]
pub fn table() -> String {
    let mut table = String::new();
    let mut never = Vec::new();
    for request in RequestKind::ALL {
        let replies = ReplyKind::ALL
            .iter()
            .filter(|reply| was_seen(*request, **reply));
        let replies: Vec<_> = replies.map(|reply| reply.name()).collect();
        if replies.is_empty() {
            never.push(request.name());
        } else {
            // Writing into a string does not fail.
            let _ = writeln!(table, "{:24} {}", request.name(), replies.join(" "));
        }
    }
    let _ = writeln!(table, "{:24} {}", "in no alphabet:", never.join(" "));
    table
}

/// The pairs that break P3, or that cannot be and were seen; empty if all is well.
#[must_use]
pub fn complaints() -> String {
    let mut complaints = String::new();
    for request in RequestKind::ALL {
        let asked = SEEN[*request as usize].load(Ordering::Relaxed) != 0;
        for reply in ReplyKind::ALL {
            let (can_be, seen) = (
                reachable(*request).contains(reply),
                was_seen(*request, *reply),
            );
            let what = match (can_be, seen) {
                (false, true) => "cannot be, and was seen",
                (true, false) if asked && left_out(*request, *reply).is_none() => {
                    "can be, and was never seen"
                }
                _ => continue,
            };
            let _ = writeln!(complaints, "  {} {}: {what}", request.name(), reply.name());
        }
    }
    complaints
}
