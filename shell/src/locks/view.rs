//! Locks as a table, as JSON and as a sentence.

use std::fmt::Write as _;

use serde_json::json;

use super::list::{LeaseItem, Lock};
use crate::cli::readable::shown;
use crate::output;

/// The headings of the table.
const HEADINGS: [&str; 9] = [
    "KEY", "KIND", "HOLDER", "ADDRESS", "HELD", "LEASE", "WAITING", "FENCE", "METADATA",
];

impl Lock {
    /// The kind: exclusive, or shared by that many.
    fn kind(&self) -> String {
        if self.is_shared {
            format!("shared by {}", self.holders)
        } else {
            "exclusive".into()
        }
    }

    /// The first holder.
    fn holder(&self) -> String {
        let number = self.holder;
        match self.session {
            Some(_) => format!("session {number}"),
            None => format!("connection {number}"),
        }
    }

    /// The address of the first holder.
    fn address(&self) -> &str {
        self.peer.as_deref().unwrap_or("not connected")
    }

    /// The first holder, with its address, its metadata and its time with the lock.
    pub(crate) fn held_by(&self) -> String {
        let (holder, address, held_s) = (self.holder(), self.address(), self.held_s);
        let metadata = self.metadata.as_deref();
        let metadata = metadata.map_or(String::new(), |it| format!(", {}", shown(it)));
        format!("held by {holder} ({address}{metadata}) for {held_s} s")
    }
}

/// A table with a line for each lock.
pub(super) fn table(locks: &[Lock]) -> String {
    let mut lines = vec![HEADINGS.map(str::to_owned)];
    lines.extend(locks.iter().map(|lock| {
        [
            shown(&lock.key),
            lock.kind(),
            lock.holder(),
            lock.address().to_owned(),
            format!("{} s", lock.held_s),
            lock.lease_s
                .map_or("-".into(), |left| format!("{left} s left")),
            lock.waiting.to_string(),
            lock.fence.number().to_string(),
            lock.metadata.as_deref().map_or("-".into(), shown),
        ]
    }));
    output::table(&lines)
}

/// One JSON object. Absent values are null. A fence is text: most readers of JSON keep 53 bits of a number.
pub(super) fn json(locks: &[Lock]) -> String {
    let row = |lock: &Lock| {
        let is_session = lock.session.is_some();
        json!({
            "key": shown(&lock.key),
            "mode": if lock.is_shared { "s" } else { "x" },
            "holders": lock.holders,
            "connection": (!is_session).then_some(lock.holder),
            "session": is_session.then_some(lock.holder),
            "peer": lock.peer,
            "metadata": lock.metadata.as_deref().map(shown),
            "fence": lock.fence.number().to_string(),
            "held_s": lock.held_s,
            "lease_s": lock.lease_s,
            "session_left_s": lock.session.and_then(|session| session.left_s),
            "waiting": lock.waiting,
        })
    };
    let rows: Vec<_> = locks.iter().map(row).collect();
    format!("{}\n", json!({ "locks": rows }))
}

/// A sentence for the operator that is about to release the lock, as lines.
pub(super) fn sentence(lock: &Lock) -> String {
    let (key, held, fence) = (shown(&lock.key), lock.held_by(), lock.fence.number());
    let mut text = format!("{key}: {held}, fence {fence}");
    // Writing into a string does not fail.
    if let Some(left) = lock.lease_s {
        let _ = write!(text, ", lease {left} s left");
    }
    let _ = writeln!(text, ", {} waiting", lock.waiting);
    if lock.holders > 1 {
        let others = lock.holders - 1;
        let _ = writeln!(
            text,
            "it is shared: {others} more hold it and keep their shares"
        );
    }
    text
}

/// The same for a lease without a lock of the key.
pub(super) fn lease_sentence(key: &[u8], item: &LeaseItem) -> String {
    let (key, left_s) = (shown(key), item.left_s);
    format!("{key}: held by a lease without a connection, {left_s} s left\n")
}
