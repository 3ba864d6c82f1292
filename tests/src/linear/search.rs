//! Whether the answers about one key can have come from some order, one operation after the other.
//!
//! The algorithm is that of Wing and Gong ("Testing and verifying concurrent objects", 1993) with the
//! memory that Lowe added ("Testing for linearizability", 2017): an order is tried operation by
//! operation; a set of operations that led to a state once is not tried again.
//!
//! - J1: an operation happens between its invocation and its answer. One without an answer happens at
//!   any time after its invocation, or never; if its connection had lost its session to another one by some moment, not
//!   after that.
//! - J2: operations of one connection happen in the order in which they were sent, so the set of
//!   those that have happened is a place for each connection.
//! - J3: if an operation has not happened because its connection has ended, none of the connection
//!   happens afterwards except its end.
//! - J4: if an operation can happen now and changes nothing, here or in any other place that it can
//!   take, it may happen now: if there is an order, there is one in which it is next. Then nothing
//!   else is tried, unless it was sent after the last moment of an operation that may have happened before.
//! - J5: a history that needs more than [`STATES_MAX`] sets and states is undecided, which is no success.

use std::collections::{BTreeSet, HashSet};
use std::fmt;

use super::history::{NEVER, Operation, Record, is_session};
use super::specification::State;

/// How many pairs of a set of operations and a state are tried for one history.
pub const STATES_MAX: usize = 2_000_000;

/// The verdict on a history.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// There is such an order.
    Linearizable {
        /// How many pairs of a set of operations and a state were tried.
        states: usize,
    },
    /// There is none.
    Violation(Box<Violation>),
    /// The bound was reached ([`STATES_MAX`]).
    Undecided,
}

/// A history without an order, cut down to the records that show it.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The states that it can have begun with.
    pub before: Vec<State>,
    /// The requests and answers since, by invocation.
    pub records: Vec<Record>,
}

/// Judges the history of one key, which begins without an item or a lock.
#[must_use]
pub fn judge(records: &[Record]) -> Verdict {
    judge_within(records, STATES_MAX)
}

/// The same with another bound.
#[must_use]
pub fn judge_within(records: &[Record], states_max: usize) -> Verdict {
    let starts = [State::default()];
    let mut search = Search::new(records, states_max);
    match search.first_end(&starts) {
        Ok(true) => Verdict::Linearizable {
            states: search.tried.len(),
        },
        Ok(false) => Verdict::Violation(Box::new(cut_down(records, states_max))),
        Err(TooMany) => Verdict::Undecided,
    }
}

/// The bound was reached.
#[derive(Clone, Copy, Debug)]
struct TooMany;

/// The operations of one key by connection, and the states that were tried.
struct Search<'a> {
    lanes: Vec<Lane<'a>>,
    tried: HashSet<(Box<[u32]>, State)>,
    states_max: usize,
}

/// The operations of one connection in order.
struct Lane<'a> {
    records: Vec<&'a Record>,
    /// For each, and for the end: the first answer among the operations from there on that happened
    /// for certain.
    due: Vec<u64>,
}

impl<'a> Lane<'a> {
    fn new(records: Vec<&'a Record>) -> Self {
        let mut due = vec![NEVER];
        for record in records.iter().rev() {
            let next = *due.last().expect("it begins with one");
            due.push(if record.has_happened() {
                record.answered
            } else {
                next
            });
        }
        due.reverse();
        Self { records, due }
    }

    /// The place of the connection's end, from `place` on, if all records between can be left out.
    fn end_after(&self, place: usize) -> Option<usize> {
        let rest = self.records.get(place..)?;
        let skipped = rest.iter().take_while(|r| !r.has_happened()).count();
        let end = rest.get(skipped)?;
        (skipped > 0 && end.operation == Operation::Death).then_some(place + skipped)
    }

    /// Whether all that has happened for certain is before `place`.
    fn is_done(&self, place: usize) -> bool {
        self.records
            .get(place..)
            .is_none_or(|rest| rest.iter().all(|record| !record.has_happened()))
    }
}

impl<'a> Search<'a> {
    fn new(records: &'a [Record], states_max: usize) -> Self {
        let lane_of = |record: &Record| (record.conn, record.lane);
        let lanes: BTreeSet<_> = records.iter().map(lane_of).collect();
        let lanes = lanes.iter().map(|lane| {
            let mut own: Vec<_> = records.iter().filter(|r| lane_of(r) == *lane).collect();
            own.sort_by_key(|record| record.place);
            Lane::new(own)
        });
        Self {
            lanes: lanes.collect(),
            tried: HashSet::new(),
            states_max,
        }
    }

    /// Whether there is an order from one of these states on.
    fn first_end(&mut self, starts: &[State]) -> Result<bool, TooMany> {
        self.ends(starts, 1).map(|ends| !ends.is_empty())
    }

    /// The states that orders from these states on can lead to, the first `ends_max` of them.
    fn ends(&mut self, starts: &[State], ends_max: usize) -> Result<HashSet<State>, TooMany> {
        let mut ends = HashSet::new();
        let begin: Box<[u32]> = vec![0; self.lanes.len()].into();
        let mut stack: Vec<_> = starts
            .iter()
            .map(|start| (begin.clone(), start.clone()))
            .collect();
        let mut next = Vec::new();
        while let Some((places, state)) = stack.pop() {
            let is_done = |(lane, place): (&Lane<'_>, &u32)| lane.is_done(*place as usize);
            if self.lanes.iter().zip(&places).all(is_done) {
                ends.insert(state.clone());
                if ends.len() >= ends_max {
                    return Ok(ends);
                }
            }
            self.successors(&places, &state, &mut next);
            for (places, state) in next.drain(..) {
                if self.tried.len() >= self.states_max {
                    return Err(TooMany);
                }
                if self.tried.insert((places.clone(), state.clone())) {
                    stack.push((places, state));
                }
            }
        }
        Ok(ends)
    }

    /// The possible next operations, the most likely last.
    fn successors(&self, places: &[u32], state: &State, next: &mut Vec<(Box<[u32]>, State)>) {
        let dues = self.lanes.iter().zip(places);
        let due = dues.map(|(lane, place)| lane.due[*place as usize]).min();
        let due = due.unwrap_or(NEVER);
        // The last invocation among the operations that have happened.
        let begun = self.lanes.iter().zip(places).filter_map(|(lane, place)| {
            let last = (*place as usize).checked_sub(1)?;
            Some(lane.records.get(last)?.invoked)
        });
        let begun = begun.max().unwrap_or(0);
        let may_happen = |record: &Record| record.has_happened() || record.answered >= begun;
        // The first last moment of an operation that may happen now.
        let open = self.lanes.iter().zip(places).filter_map(|(lane, place)| {
            let next = lane.records.get(*place as usize)?;
            (!next.has_happened() && may_happen(next)).then_some(next.answered)
        });
        let open = open.min().unwrap_or(NEVER);
        let mut found = Vec::new();
        for (number, (lane, place)) in self.lanes.iter().zip(places).enumerate() {
            let place = *place as usize;
            for at in [Some(place), lane.end_after(place)].into_iter().flatten() {
                let Some(record) = lane.records.get(at) else {
                    continue;
                };
                if record.invoked > due || !may_happen(record) {
                    continue;
                }
                if let Some(after) = state.after(record) {
                    let is_alone = at == place
                        && record.invoked <= open
                        && changes_nothing(record)
                        && after == *state;
                    let mut places: Box<[u32]> = places.into();
                    places[number] = u32::try_from(at + 1).expect("histories are short");
                    if is_alone {
                        next.push((places, after));
                        return;
                    }
                    found.push((!record.has_happened(), lane.due[at], places, after));
                }
            }
        }
        found.sort_by_key(|(may_not_have, due, ..)| std::cmp::Reverse((*may_not_have, *due)));
        next.extend(
            found
                .into_iter()
                .map(|(_, _, places, state)| (places, state)),
        );
    }
}

/// Whether an operation that changes nothing now would change nothing later. The answer says so, or
/// only the connection itself can give itself a lock to lose; a session has other connections that can.
fn changes_nothing(record: &Record) -> bool {
    let loses_own = matches!(record.operation, Operation::UnlockAll | Operation::Death);
    record.changes_nothing() || loses_own && !is_session(record.conn)
}

/// The part of a history that shows that it has no order.
fn cut_down(records: &[Record], states_max: usize) -> Violation {
    let fails = |starts: &[State], records: &[Record]| {
        matches!(
            Search::new(records, states_max).first_end(starts),
            Ok(false)
        )
    };
    let mut starts = vec![State::default()];
    let mut records = shortest_prefix(records, |records| fails(&starts, records));
    records.sort_by_key(|record| (record.invoked, record.conn, record.place));

    // The records before a quiet moment have an order: only where it can have led to counts.
    for cut in quiet_moments(&records).into_iter().rev() {
        let (before, rest) = records.split_at(cut);
        let Ok(ends) = Search::new(before, states_max).ends(&starts, usize::MAX) else {
            continue;
        };
        let ends: Vec<State> = ends.into_iter().collect();
        if !ends.is_empty() && fails(&ends, rest) {
            (starts, records) = (ends, rest.to_vec());
            break;
        }
    }

    // A record that has changed nothing may be left out: if the rest has no order, neither has the
    // whole.
    let mut at = 0;
    while at < records.len() {
        let mut without = records.clone();
        let record = without.remove(at);
        let may_go = record.changes_nothing() || !record.has_happened();
        if may_go && fails(&starts, &without) {
            records = without;
        } else {
            at += 1;
        }
    }
    Violation {
        before: starts,
        records,
    }
}

/// The shortest beginning of a history that has no order: the records answered until then.
fn shortest_prefix(records: &[Record], fails: impl Fn(&[Record]) -> bool) -> Vec<Record> {
    let mut answers: Vec<u64> = records.iter().map(|record| record.answered).collect();
    answers.sort_unstable();
    answers.dedup();
    let until = |moment: u64| -> Vec<Record> {
        let begun = records.iter().filter(|record| record.invoked <= moment);
        let seen = begun.map(|record| {
            let mut record = record.clone();
            if record.answered > moment {
                record.answered = NEVER;
                record.answer = None;
            }
            record
        });
        seen.collect()
    };
    // A beginning of a history that has an order has one, too.
    let shortest = answers.partition_point(|moment| !fails(&until(*moment)));
    let mut prefix = until(answers.get(shortest).copied().unwrap_or(NEVER));
    // A request without an answer is known to no client: it is left out where that makes no
    // difference.
    let answered: Vec<Record> = prefix
        .iter()
        .filter(|r| r.has_happened())
        .cloned()
        .collect();
    if fails(&answered) {
        prefix = answered;
    }
    prefix
}

/// Where a history, sorted by invocation, can be cut: every earlier request was answered before the
/// first later one was sent.
fn quiet_moments(records: &[Record]) -> Vec<usize> {
    let mut answered = 0;
    let mut moments = Vec::new();
    for (place, record) in records.iter().enumerate() {
        if place > 0 && answered < record.invoked {
            moments.push(place);
        }
        answered = answered.max(record.answered);
    }
    moments
}

impl fmt::Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "no order of these explains the answers")?;
        for state in &self.before {
            writeln!(formatter, "  before: {state}")?;
        }
        for record in &self.records {
            writeln!(formatter, "  {record}")?;
        }
        Ok(())
    }
}
