//! The lock events that `-vvv` logs: requests and their results, waits, hand-overs, releases and expiries.
//!
//! - Each line has the field `event`, `conn` and, if it is about a key, `key`. Lines about a grant have its
//!   `fence`, as text: most JSON readers keep 53 bits of a number. They have the lock's `metadata`, if it has some; that
//!   of a renewal, if the renewal has some.
//! - If a lock ends together with many others, it is logged when the server removes its item.

use latchd_core::Owner;
use latchd_core::engine::{EndCause, LockEnd};
use latchd_protocol::command::{Command, GlobalCommand, ItemCommand, Lease};
use latchd_protocol::reply::{Refusal, Reply};
use latchd_protocol::wait::Outcome;
use tracing::Value;
use tracing::field::display;

/// A key or metadata as one word.
pub(crate) fn one_word(key: &[u8]) -> String {
    key.escape_ascii().to_string().replace(' ', "\\x20")
}

/// Metadata as a field that is missing if there is none.
fn shown(metadata: Option<&[u8]>) -> Option<impl Value> {
    metadata.map(|metadata| display(one_word(metadata)))
}

/// Logs the result of a command.
pub(crate) fn answered(conn: Owner, command: &Command<'_>, reply: &Reply<'_>) {
    let number = conn.number();
    let command = match command {
        Command::Item(command) => command,
        Command::Global(GlobalCommand::UnlockAll) => {
            tracing::info!(event = "unlock_all", conn = number, "all locks released");
            return;
        }
        Command::Global(
            GlobalCommand::FlushAll { .. }
            | GlobalCommand::StatsReset
            | GlobalCommand::Keys(_)
            | GlobalCommand::Stats(_),
        ) => return,
    };
    let mut metadata = None;
    let (mode, is_renewal) = match command {
        ItemCommand::Acquire(acquire) => {
            metadata = acquire.metadata.map(|metadata| metadata.to_bytes());
            let mode = if acquire.mode.is_shared() { "s" } else { "x" };
            (mode, acquire.lease == Some(Lease::Off))
        }
        ItemCommand::Lock { .. } => ("x", false),
        ItemCommand::Get(get) if get.lock => ("x", false),
        ItemCommand::Get(_)
        | ItemCommand::Set(_)
        | ItemCommand::SetTooLarge { .. }
        | ItemCommand::Delete(_)
        | ItemCommand::Arithmetic(_)
        | ItemCommand::Release(_)
        | ItemCommand::Unlock { .. } => return,
    };
    let key = one_word(command.key().as_bytes());
    let reason = match reply {
        Reply::Granted(granted) => {
            let fence = granted.fence.number();
            let event = if is_renewal { "lease_off" } else { "lock" };
            tracing::info!(event, conn = number, key = %key, fence = %fence, mode, metadata = shown(metadata.as_deref()), "lock granted");
            return;
        }
        Reply::Locked | Reply::Hit(_) => {
            tracing::info!(event = "lock", conn = number, key = %key, mode, "lock granted");
            return;
        }
        Reply::Waits => {
            tracing::info!(event = "lock_wait", conn = number, key = %key, mode, "waiting for the lock");
            return;
        }
        Reply::Contended(_) | Reply::Refused(Refusal::Locked) => "held",
        Reply::Withheld { .. } => "withheld",
        Reply::WouldDeadlock(_) => "deadlock",
        Reply::NotFound | Reply::Miss => "no_item",
        Reply::Refused(Refusal::TooManyLocks) => "too_many_locks",
        Reply::Refused(Refusal::OutOfMemory) => "no_memory",
        Reply::KeyOf(_) => "other_partition",
        // None of these replies to a lock request.
        Reply::Refused(
            Refusal::NotLocked
            | Refusal::NotLockedNotFound
            | Refusal::ConnectionClosed
            | Refusal::TooLarge
            | Refusal::NonNumeric
            | Refusal::Unrecorded,
        )
        | Reply::Stored(_)
        | Reply::NotStored
        | Reply::Exists
        | Reply::Deleted
        | Reply::Number(_)
        | Reply::Unlocked
        | Reply::Ok
        | Reply::Keys(_)
        | Reply::Stats(_) => return,
    };
    tracing::info!(event = "lock_refused", conn = number, key = %key, reason, "lock refused");
}

/// Logs the end of a wait for the lock of a key.
pub(crate) fn waited(conn: Owner, key: &[u8], waited_ms: u64, outcome: Outcome) {
    let (conn, key) = (conn.number(), one_word(key));
    let reason = match outcome {
        Outcome::Granted => {
            tracing::info!(event = "lock_handover", conn, key = %key, waited_ms, "lock handed over");
            return;
        }
        Outcome::TimedOut => "timed_out",
        Outcome::NotFound => "no_item",
        Outcome::TooManyLocks => "too_many_locks",
    };
    tracing::info!(event = "lock_wait_failed", conn, key = %key, waited_ms, reason, "wait for the lock failed");
}

/// Logs the end of a lock.
pub(crate) fn ended(end: &LockEnd) {
    let (event, what) = match end.cause {
        EndCause::Released => ("unlock", "lock released"),
        EndCause::Expired => ("lease_expired", "lease expired"),
        EndCause::Closed => ("holder_closed", "lock released: its holder disconnected"),
    };
    let (conn, key, held_ms) = (end.holder.number(), one_word(&end.key), end.held_ms);
    let fence = end.fence.number();
    let metadata = shown(end.metadata.as_deref());
    tracing::info!(event, conn, key = %key, fence = %fence, held_ms, metadata, "{what}");
}

/// Logs the number of lock ends that did not fit into the queue of ends to be logged.
pub(crate) fn missed(ends: u64) {
    if ends > 0 {
        tracing::info!(
            event = "lock_ends_missed",
            ends,
            "some ended locks were not logged"
        );
    }
}
