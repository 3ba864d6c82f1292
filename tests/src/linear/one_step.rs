//! An operation on several keys happens in one step: once a client has seen it done for one key, no
//! client sees it undone for another.
//!
//! The end of a client and `unlock_all` free locks of several keys, a `flush_all` takes their items. Each
//! look at a key during such a step finds it not yet done, or done.

use std::collections::BTreeMap;

use super::history::Record;

/// A look at one key.
#[derive(Clone, Debug)]
pub struct Look {
    /// The request and its answer.
    pub record: Record,
    /// Whether it found the step done.
    pub is_done: bool,
}

/// Two looks that contradict each other.
#[derive(Clone, Debug)]
pub struct Torn {
    /// It found the step done.
    pub done: Record,
    /// It came later, and found the step not yet done.
    pub undone: Record,
}

/// Whether one step explains all looks.
///
/// # Errors
/// A look that came after another one by the clock, or behind it on the same connection, and saw less.
pub fn judge(looks: &[Look]) -> Result<(), Box<Torn>> {
    let torn = |done: &Record, undone: &Record| {
        let (done, undone) = (done.clone(), undone.clone());
        Err(Box::new(Torn { done, undone }))
    };
    let done = looks.iter().filter(|look| look.is_done);
    let undone = looks.iter().filter(|look| !look.is_done);
    let first_done = done.min_by_key(|look| look.record.answered);
    let last_undone = undone.max_by_key(|look| look.record.invoked);
    if let (Some(done), Some(undone)) = (first_done, last_undone)
        && done.record.answered < undone.record.invoked
    {
        return torn(&done.record, &undone.record);
    }
    let mut done_on: BTreeMap<u64, &Record> = BTreeMap::new();
    let mut in_order: Vec<&Look> = looks.iter().collect();
    in_order.sort_by_key(|look| look.record.place);
    for look in in_order {
        if look.is_done {
            done_on.entry(look.record.conn).or_insert(&look.record);
        } else if let Some(done) = done_on.get(&look.record.conn) {
            return torn(done, &look.record);
        }
    }
    Ok(())
}

impl std::fmt::Display for Torn {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let key = |record: &Record| record.key.map_or(String::new(), |key| format!("key {key}"));
        writeln!(formatter, "seen done, and later undone")?;
        for record in [&self.done, &self.undone] {
            writeln!(formatter, "  {} {record}", key(record))?;
        }
        Ok(())
    }
}
