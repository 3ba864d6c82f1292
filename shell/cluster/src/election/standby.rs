//! A standby: it reads the record, and claims the partition when its primary must have stopped.
//!
//! - E7: A standby claims the record that it has seen unchanged for T since the first answer that showed it, or that
//!   says `free`, and no other. If there is no record, it writes a vacant one, and waits for T like everyone: a missing
//!   record has no revision, so nothing would show that there was a record meanwhile. The next transaction follows the
//!   answer to the one before, or comes after 400 ms without it. A late answer counts, unless a later transaction has
//!   been answered or a claim was sent meanwhile. A claim counts as held from its first sending. If its outcome is
//!   unknown, the record is read again.
//!   After a silence of the authority of 1.2 s or more, a standby claims no record of a serving process until 1.6 s
//!   after the next answer: a suspended primary hears the authority again first, and goes on with its items (E4, X6).
//! - E9: A record of the predecessor, which is known to have ended, is claimed at once. A client may not know of that end, and
//!   believes for the rest of its promise. So the new term grants no lock until every promise is over (E13, X2).
//!
//! A record that cannot be read is never claimed: a newer version may serve.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec;

use latchd_protocol::fence::Fence;
use latchd_protocol::time::Instant;

use super::primary::Primary;
use super::record::{Id, PartitionRecord, RecordError, State};
use super::timing::{ANSWER_MS, HEARTBEAT_MS, LEAVING_MS, RETRY_MS, Timing};
use super::{Action, Answer, Found, Moment, News, Pending, Process, Term, Transaction, after};

/// The distance of `floor` from the numbers given: more than a process gives between two heartbeats.
pub(super) const NUMBERS_AHEAD: u64 = 1 << 32;

/// The time for a suspended primary to be heard once the authority answers again: a transaction under way may still be
/// waited for, and the next one follows.
const CALM_MS: u64 = ANSWER_MS + RETRY_MS;

/// A process that stands by.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) struct Standby {
    process: Process,
    timing: Timing,
    predecessor: Option<Id>,
    /// The record, as the last answer showed it; `None` before the first.
    watched: Option<Watched>,
    /// The highest term that was seen: a record that was deleted does not start the terms again.
    term_max: u64,
    pending: Option<Pending>,
    /// An answer to a transaction with this number or a lower one is too old.
    answered: u64,
    /// When the first transaction since the last answer was sent.
    asked: Option<Instant>,
    /// The earliest moment of the next read.
    reads_at: Instant,
    /// The claim whose outcome is unknown.
    claim: Option<Box<Claim>>,
    /// The last vacant record that it has sent.
    vacant: Option<String>,
    /// Whether the record must be read before the next claim.
    doubts: bool,
    unreported: bool,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct Watched {
    found: Option<Found>,
    /// `None` if there is none.
    record: Option<Result<PartitionRecord, RecordError>>,
    /// When it was first received.
    since: Instant,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct Claim {
    record: PartitionRecord,
    value: String,
    expected: Option<Found>,
    first_sent: Instant,
    term: Term,
}

impl Standby {
    pub(super) const fn new(process: Process, timing: Timing, predecessor: Option<Id>) -> Self {
        Self {
            process,
            timing,
            predecessor,
            watched: None,
            term_max: 0,
            pending: None,
            answered: 0,
            asked: None,
            reads_at: Instant::from_millis(0),
            claim: None,
            vacant: None,
            doubts: false,
            unreported: false,
        }
    }

    pub(super) fn poll(&mut self, moment: Moment, number: u64) -> Action {
        let now = moment.now;
        if self.unreported {
            self.unreported = false;
            return Action::Tell(self.news());
        }
        if let Some(pending) = self.pending {
            if now < pending.ends() {
                let until = Some(pending.ends());
                return Action::Wait { until };
            }
            self.pending = None;
            if self.claim.is_some() {
                self.doubts = true;
                self.reads_at = now;
            }
        }
        let claims_at = self.claims_at().filter(|_| !self.is_silent(now));
        let transaction = if self.misses_record() && !self.is_silent(now) {
            self.answered = number - 1;
            Transaction::Swap {
                expected: None,
                value: self.vacant_record(),
            }
        } else if claims_at.is_some_and(|at| now >= at) {
            self.answered = number - 1;
            let claim = self.claim(moment);
            Transaction::Swap {
                expected: claim.expected.clone(),
                value: claim.value.clone(),
            }
        } else if now >= self.reads_at {
            self.reads_at = after(now, self.interval());
            Transaction::Read
        } else {
            let until = claims_at.map_or(self.reads_at, |at| at.min(self.reads_at));
            return Action::Wait { until: Some(until) };
        };
        self.pending = Some(Pending { number, sent: now });
        self.asked.get_or_insert(now);
        Action::Send {
            number,
            transaction,
        }
    }

    /// Whether the authority has not answered for long.
    fn is_silent(&self, now: Instant) -> bool {
        self.asked.is_some_and(|at| now >= after(at, ANSWER_MS))
    }

    /// The time from one read to the next.
    fn interval(&self) -> u64 {
        match self.record().map(|one| one.state) {
            Some(State::Leaving) => LEAVING_MS,
            Some(State::Serving | State::Free | State::Vacant) | None => HEARTBEAT_MS,
        }
    }

    /// Takes an answer, and returns the primary that the process has become.
    pub(super) fn answer(&mut self, now: Instant, number: u64, answer: Answer) -> Option<Primary> {
        if number <= self.answered {
            return None;
        }
        self.answered = number;
        let was_silent = self.is_silent(now);
        self.asked = None;
        if was_silent && let Some(watched) = &mut self.watched {
            let calm = after(now, CALM_MS).as_millis();
            let since = calm.saturating_sub(self.timing.wait_ms());
            watched.since = watched.since.max(Instant::from_millis(since).min(now));
        }
        self.pending.take_if(|one| one.number == number);
        match answer {
            Answer::Swapped { revision } => match (self.claim.take(), self.vacant.take()) {
                (Some(claim), _) => {
                    let value = claim.value.clone();
                    Some(self.primary(*claim, Found { revision, value }))
                }
                (None, Some(value)) => self.see(now, Some(Found { revision, value })),
                (None, None) => None,
            },
            Answer::Found(found) => self.see(now, found),
        }
    }

    /// The record is this one now.
    fn see(&mut self, now: Instant, found: Option<Found>) -> Option<Primary> {
        self.doubts = false;
        let (claim, found) = match (self.claim.take(), found) {
            (Some(claim), Some(found)) if claim.value == found.value => {
                return Some(self.primary(*claim, found));
            }
            (claim, found) => (claim, found),
        };
        // A claim compares: it cannot succeed any more once the record has changed.
        self.claim = claim.filter(|claim| claim.expected == found);
        if let Some(watched) = &self.watched
            && watched.found == found
        {
            return None;
        }
        let record = found
            .as_ref()
            .map(|found| PartitionRecord::parse(&found.value));
        let before = self
            .watched
            .as_ref()
            .map(|one| subject(one.record.as_ref()));
        self.unreported |= before != Some(subject(record.as_ref()));
        if let Some(Ok(record)) = &record {
            self.term_max = self.term_max.max(record.term);
        }
        self.watched = Some(Watched {
            found,
            record,
            since: now,
        });
        self.reads_at = self.reads_at.min(after(now, self.interval()));
        None
    }

    /// The record, if there is one that can be read.
    fn record(&self) -> Option<&PartitionRecord> {
        self.watched.as_ref()?.record.as_ref()?.as_ref().ok()
    }

    fn news(&self) -> News {
        match self.watched.as_ref().and_then(|one| one.record.as_ref()) {
            None => News::Stands(None),
            Some(Ok(record)) if record.state == State::Vacant => News::Stands(None),
            Some(Ok(record)) => News::Stands(Some(Box::new(record.clone()))),
            Some(Err(error)) => News::Unreadable(error.clone()),
        }
    }

    /// Whether the last answer said that there is no record.
    fn misses_record(&self) -> bool {
        let watched = self.watched.as_ref().filter(|_| !self.doubts);
        watched.is_some_and(|one| one.found.is_none())
    }

    /// The record that it writes if there is none (E7).
    fn vacant_record(&mut self) -> String {
        let record = PartitionRecord {
            term: self.term_max,
            id: self.process.id,
            beat: 0,
            state: State::Vacant,
            address: self.process.address.clone(),
            floor: 0,
            version: self.process.version.clone(),
        };
        self.vacant.insert(record.to_json()).clone()
    }

    /// Whether the watched record is that of the predecessor, which has ended (E9).
    fn is_predecessors(&self) -> bool {
        let is_dead =
            |one: &PartitionRecord| one.state != State::Vacant && self.predecessor == Some(one.id);
        self.record().is_some_and(is_dead)
    }

    /// Until when a term that is claimed `now` grants no lock (E9).
    fn grants_from(&self, now: Instant) -> Option<Instant> {
        let is_over = |watched: &Watched| now >= after(watched.since, self.timing.wait_ms());
        let has_waited = self.watched.as_ref().is_some_and(is_over);
        let is_free = self.record().is_some_and(|one| one.state == State::Free);
        let is_doubtful = self.is_predecessors() && !has_waited && !is_free;
        is_doubtful.then(|| after(now, self.timing.promise_ms_max()))
    }

    /// When the record may be claimed, if it stays as it is (E7, E9); `None` if it must be read or written first.
    fn claims_at(&self) -> Option<Instant> {
        let watched = self.watched.as_ref().filter(|_| !self.doubts)?;
        let waited = after(watched.since, self.timing.wait_ms());
        match &watched.record {
            Some(Ok(record)) => {
                // A record of an earlier term was put back: the later primary may still hold the partition.
                let is_last = record.term >= self.term_max;
                let is_free = is_last && (record.state == State::Free || self.is_predecessors());
                Some(if is_free { watched.since } else { waited })
            }
            Some(Err(_)) | None => None,
        }
    }

    /// The claim of the watched record; the last one, if that was of this record.
    fn claim(&mut self, moment: Moment) -> &Claim {
        let (watched, known) = (self.watched.as_ref(), self.record());
        let inherits = known.filter(|one| one.state == State::Free);
        let floor = known.and_then(|one| Fence::new(one.floor));
        let first = Fence::first_at(moment.unix_ms).max(floor.unwrap_or(Fence::FIRST));
        let term = Term {
            number: self.term_max.saturating_add(1),
            first,
            inherits: inherits.map(|one| (one.id, one.term)),
            grants_from: self.grants_from(moment.now),
        };
        let record = PartitionRecord {
            term: term.number,
            id: self.process.id,
            beat: 0,
            state: State::Serving,
            address: self.process.address.clone(),
            floor: first.step(NUMBERS_AHEAD).number(),
            version: self.process.version.clone(),
        };
        let expected = watched.and_then(|one| one.found.clone());
        self.claim.get_or_insert_with(|| {
            Box::new(Claim {
                value: record.to_json(),
                record,
                expected,
                first_sent: moment.now,
                term,
            })
        })
    }

    fn primary(&self, claim: Claim, known: Found) -> Primary {
        let answered = vec![0; self.process.workers];
        Primary::new(
            claim.record,
            known,
            claim.term,
            self.timing,
            claim.first_sent,
            answered,
        )
    }
}

/// The part of a record that is news if it changes. A vacant record is none.
fn subject(
    record: Option<&Result<PartitionRecord, RecordError>>,
) -> Option<Result<(Id, u64, State), &RecordError>> {
    match record? {
        Ok(one) if one.state == State::Vacant => None,
        Ok(one) => Some(Ok((one.id, one.term, one.state))),
        Err(error) => Some(Err(error)),
    }
}
