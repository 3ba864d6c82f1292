//! Counts of the judged cases, so that a run which looked at nothing is not taken for a success.

use std::collections::BTreeMap;
use std::fmt;

use super::history::{Answer, NEVER, Operation, Record, is_session};

/// Counts of a run.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Histories judged: one a key and round.
    pub histories: u64,
    /// Operations in total.
    pub operations: u64,
    /// Operations without an answer: their connections had ended.
    pub open: u64,
    /// Connections that were ended in the midst of an operation.
    pub deaths: u64,
    /// Operations in sessions.
    pub in_sessions: u64,
    /// Operations in sessions on a connection that was not the first of its session.
    pub elsewhere: u64,
    /// Operations without an answer whose connection has lost its session to another.
    pub taken_over: u64,
    /// Steps over several keys.
    pub steps: u64,
    /// Looks at keys during those.
    pub looks: u64,
    /// How often a client was told that a client of another process holds a lock; `None` if all are
    /// of one.
    pub crossed: Option<u64>,
    /// The most pairs of a set of operations and a state that one history took.
    pub states_max: usize,
    /// The same in all.
    pub states: u64,
    /// How often each operation had each answer.
    pub answers: BTreeMap<(&'static str, &'static str), u64>,
}

/// Cases that a run must meet to mean something. The refusals are those of contention.
const WITNESSES: [(&str, &str); 30] = [
    ("get", "hit"),
    ("get", "missing"),
    ("vivify", "hit"),
    ("set", "stored"),
    ("set", "locked"),
    ("set", "exists"),
    ("add", "stored"),
    ("add", "not stored"),
    ("replace", "stored"),
    ("append", "stored"),
    ("prepend", "stored"),
    ("replace and unlock", "stored"),
    ("replace and unlock", "not locked"),
    ("delete", "deleted"),
    ("delete", "exists"),
    ("delete", "locked"),
    ("mark stale", "deleted"),
    ("count", "counted"),
    ("count", "not a number"),
    ("lock", "done"),
    ("lock", "locked"),
    ("lock and get", "hit"),
    ("lock and get", "locked"),
    ("unlock", "done"),
    ("acquire", "granted"),
    ("acquire", "held"),
    ("release", "done"),
    ("release", "missing"),
    ("unlock_all", "done"),
    ("flush_all", "done"),
];

impl Tally {
    pub(super) fn note(&mut self, record: &Record) {
        if record.operation == Operation::Death {
            self.deaths += 1;
            return;
        }
        self.operations += 1;
        self.in_sessions += u64::from(is_session(record.conn));
        self.elsewhere += u64::from(record.lane > 0);
        self.taken_over += u64::from(record.answer.is_none() && record.answered != NEVER);
        match &record.answer {
            None => self.open += 1,
            Some(answer) => {
                let pair = (asked(&record.operation), told(answer));
                *self.answers.entry(pair).or_default() += 1;
            }
        }
    }

    /// Cases that a run must meet and did not.
    #[must_use]
    pub fn unseen(&self) -> Vec<String> {
        let is_unseen = |pair: &&(&'static str, &'static str)| !self.answers.contains_key(*pair);
        let pairs = WITNESSES.iter().filter(is_unseen);
        let pairs = pairs.map(|(asked, told)| format!("{asked}: {told}"));
        let counts = [
            (
                self.crossed.unwrap_or(1),
                "a lock that a client of another process holds",
            ),
            (self.open, "an operation without an answer"),
            (self.deaths, "the end of a connection in the midst of it"),
            (self.in_sessions, "an operation in a session"),
            (self.elsewhere, "one on another connection of it"),
            (self.taken_over, "one without an answer before a takeover"),
            (self.looks, "a look during a step that spans keys"),
        ];
        let counts = counts.into_iter().filter(|(count, _)| *count == 0);
        pairs
            .chain(counts.map(|(_, what)| what.to_owned()))
            .collect()
    }
}

const fn asked(operation: &Operation) -> &'static str {
    use super::history::Mode;
    match operation {
        Operation::Get => "get",
        Operation::Vivify => "vivify",
        Operation::Store(store) => match store.mode {
            Mode::Set => "set",
            Mode::Add => "add",
            Mode::Replace => "replace",
            Mode::Append => "append",
            Mode::Prepend => "prepend",
        },
        Operation::ReplaceAndUnlock(_) => "replace and unlock",
        Operation::Delete { .. } => "delete",
        Operation::MarkStale { .. } => "mark stale",
        Operation::Count { .. } => "count",
        Operation::Lock => "lock",
        Operation::LockAndGet => "lock and get",
        Operation::Unlock => "unlock",
        Operation::Acquire => "acquire",
        Operation::Release { .. } => "release",
        Operation::UnlockAll => "unlock_all",
        Operation::Flush => "flush_all",
        Operation::Death => "death",
    }
}

const fn told(answer: &Answer) -> &'static str {
    match answer {
        Answer::Hit(_) => "hit",
        Answer::Missing => "missing",
        Answer::Stored { .. } => "stored",
        Answer::NotStored => "not stored",
        Answer::Exists => "exists",
        Answer::Deleted => "deleted",
        Answer::Counted { .. } => "counted",
        Answer::Done => "done",
        Answer::Granted { .. } => "granted",
        Answer::Locked => "locked",
        Answer::Held { .. } => "held",
        Answer::NotLocked => "not locked",
        Answer::NonNumeric => "not a number",
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(crossed) = self.crossed {
            write!(
                formatter,
                "{crossed} times a client of another process held the lock"
            )?;
        }
        let mut last = "";
        for ((asked, told), count) in &self.answers {
            if *asked != last {
                write!(formatter, "\n  {asked:18}")?;
                last = asked;
            }
            write!(formatter, " {told} {count};")?;
        }
        writeln!(
            formatter,
            "\n{} operations in {} histories, {} of them in sessions, {} on other connections of these, {} before a takeover, and {} never answered, {} connections ended; {} steps \
             across keys with {} looks; {} states tried, at most {} for one history",
            self.operations,
            self.histories,
            self.in_sessions,
            self.elsewhere,
            self.taken_over,
            self.open,
            self.deaths,
            self.steps,
            self.looks,
            self.states,
            self.states_max,
        )
    }
}
