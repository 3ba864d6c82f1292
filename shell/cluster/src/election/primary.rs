//! A primary: its heartbeats, its hold, and the end of its term.
//!
//! - E1: A heartbeat replaces the record that the one before has left. It is sent again every 400 ms until an answer
//!   confirms it, and the answer to each of its sendings counts, however late. A record that shows it has been written,
//!   so the hold lasts H from the moment at which it was first sent. A record of another process, term or beat, or
//!   none, is the end of the term. No other answer has any effect, in particular none to an earlier heartbeat.
//! - E2: The process serves before the end of its hold less C.
//! - E3: At that moment it is suspended. If a worker has not confirmed that when the hold ends, the term is over.
//! - E4: A suspended process serves again if a heartbeat has replaced its own record: nobody has served meanwhile.
//! - E5: A heartbeat is sent only if every worker has answered since the last one, and time has passed.
//! - E6: A term that is over does not begin again.
//! - E10: A term begins with a number that is at least `floor` and at least the time in units of 2^-20 ms. Each
//!   heartbeat raises `floor` to 2^32 above the numbers given.
//! - E12: A process that leaves says so. It says `free` once it has closed, and not before.

use alloc::string::String;
use alloc::vec::Vec;

use latchd_protocol::time::Instant;

use super::record::{PartitionRecord, RecordError, State};
use super::standby::NUMBERS_AHEAD;
use super::timing::{HEARTBEAT_MS, MARGIN_MS, Timing};
use super::{Action, Answer, End, Found, Moment, News, Pending, Term, Transaction, after};

/// A process in its term.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) struct Primary {
    timing: Timing,
    /// The record as it is to be: the last heartbeat, or the next one.
    record: PartitionRecord,
    /// The record in the authority, before the heartbeat under way.
    known: Found,
    until: Instant,
    term: Term,
    phase: Phase,
    /// The heartbeat that no answer has confirmed.
    beat: Option<Beat>,
    pending: Option<Pending>,
    /// When the last heartbeat was first sent.
    sent: Instant,
    /// The number of the last round.
    round: u64,
    /// Whether the workers are to be asked.
    asks: bool,
    /// The last round that each worker has answered.
    answered: Vec<u64>,
    closing: Closing,
    end: Option<End>,
    /// Why the record cannot be read, and whether that is reported.
    unreadable: Option<(RecordError, bool)>,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct Beat {
    value: String,
    first_sent: Instant,
    /// The number of its first transaction. Those of an earlier heartbeat are lower.
    first_number: u64,
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum Phase {
    /// It has not served yet.
    New,
    Serving,
    /// It must not serve; the workers confirm that with this round.
    Suspended(u64),
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum Closing {
    No,
    Leaving,
    /// Nothing is open or unsaved.
    Closed,
}

impl Closing {
    const fn state(self) -> State {
        match self {
            Self::No => State::Serving,
            Self::Leaving => State::Leaving,
            Self::Closed => State::Free,
        }
    }
}

impl Primary {
    /// The process whose claim is the record, and was first sent at that moment.
    pub(super) fn new(
        record: PartitionRecord,
        known: Found,
        term: Term,
        timing: Timing,
        first_sent: Instant,
        answered: Vec<u64>,
    ) -> Self {
        Self {
            timing,
            record,
            known,
            until: after(first_sent, timing.hold_ms()),
            term,
            phase: Phase::New,
            beat: None,
            pending: None,
            sent: first_sent,
            round: 0,
            asks: false,
            answered,
            closing: Closing::No,
            end: None,
            unreadable: None,
        }
    }

    /// The next action, or the end of the term.
    pub(super) fn poll(&mut self, moment: Moment, number: u64) -> Result<Action, End> {
        let now = moment.now;
        if let Some(end) = self.end {
            return Err(end);
        }
        if self.ends_at().is_some_and(|at| now >= at) {
            return Err(End::Stuck);
        }
        if self.closing == Closing::Closed && now >= self.until {
            return Err(End::Left);
        }
        if let Some(news) = self.change_of_phase(now) {
            return Ok(Action::Tell(news));
        }
        if let Some((error, is_reported)) = &mut self.unreadable
            && !*is_reported
        {
            *is_reported = true;
            return Ok(Action::Tell(News::Unreadable(error.clone())));
        }
        if self.asks {
            self.asks = false;
            let round = self.round;
            return Ok(Action::AskWorkers { round });
        }
        let pending = self.pending.filter(|one| now < one.ends());
        self.pending = pending;
        if pending.is_none() && self.beats_at().is_some_and(|at| now >= at) {
            self.pending = Some(Pending { number, sent: now });
            return Ok(Action::Send {
                number,
                transaction: self.heartbeat(moment, number),
            });
        }
        let wakes = [
            pending.map_or_else(|| self.beats_at(), |one| Some(one.ends())),
            self.serves_until(),
            self.ends_at(),
            (self.closing == Closing::Closed).then_some(self.until),
        ];
        let until = wakes.into_iter().flatten().min();
        Ok(Action::Wait { until })
    }

    /// Begins, suspends and resumes (E2 to E4).
    fn change_of_phase(&mut self, now: Instant) -> Option<News> {
        let is_held = now < self.stops_at() && self.closing != Closing::Closed;
        match self.phase {
            Phase::New if is_held && self.closing == Closing::No => {
                self.phase = Phase::Serving;
                Some(News::Serves(self.term))
            }
            Phase::Serving if !is_held => {
                self.round += 1;
                self.phase = Phase::Suspended(self.round);
                let round = self.round;
                Some(News::Suspended { round })
            }
            Phase::Suspended(round) if is_held && self.have_answered(round) => {
                self.phase = Phase::Serving;
                Some(News::Resumed)
            }
            Phase::New | Phase::Serving | Phase::Suspended(_) => None,
        }
    }

    /// When the next heartbeat is due, or the last one again; `None` if workers must answer first (E5).
    fn beats_at(&self) -> Option<Instant> {
        if self.beat.is_some() {
            return Some(self.sent);
        }
        if self.closing != Closing::Closed && !self.have_answered(self.round) {
            return None;
        }
        let has_news = self.record.state != self.closing.state();
        // In the millisecond of the last one no time has passed.
        let interval = if has_news { 1 } else { HEARTBEAT_MS };
        Some(after(self.sent, interval))
    }

    /// The heartbeat under way again, or the next one.
    fn heartbeat(&mut self, moment: Moment, number: u64) -> Transaction {
        if self.beat.is_none() {
            self.record.beat += 1;
            self.record.state = self.closing.state();
            let floor = moment.numbers.saturating_add(NUMBERS_AHEAD);
            self.record.floor = self.record.floor.max(floor);
            self.sent = moment.now;
            self.round += 1;
            self.asks = true;
        }
        let beat = self.beat.get_or_insert_with(|| Beat {
            value: self.record.to_json(),
            first_sent: moment.now,
            first_number: number,
        });
        Transaction::Swap {
            expected: Some(self.known.clone()),
            value: beat.value.clone(),
        }
    }

    pub(super) fn answer(&mut self, number: u64, answer: Answer) {
        // The first sending came after the answer that showed `known`. So no answer to this heartbeat shows a record
        // from before that.
        let is_its_own = |beat: &&Beat| beat.first_number <= number;
        let Some(beat) = self.beat.as_ref().filter(is_its_own) else {
            return;
        };
        let found = match answer {
            Answer::Swapped { revision } => Found {
                revision,
                value: beat.value.clone(),
            },
            Answer::Found(Some(found)) => found,
            Answer::Found(None) => return self.lose(),
        };
        if found.value == beat.value {
            self.until = self
                .until
                .max(after(beat.first_sent, self.timing.hold_ms()));
            self.known = found;
            (self.beat, self.pending) = (None, None);
            self.unreadable = None;
            if self.record.state == State::Free {
                self.end = Some(End::Left);
            }
            return;
        }
        // If this counts as no answer, the transaction stays pending, so the next one comes after 400 ms.
        match PartitionRecord::parse(&found.value) {
            // The swap would have succeeded: this is no answer to it.
            Ok(_) if found == self.known => {}
            Ok(_) => self.lose(),
            Err(error) => match &self.unreadable {
                Some((known, _)) if *known == error => {}
                Some(_) | None => self.unreadable = Some((error, false)),
            },
        }
    }

    /// The record does not name this term any more.
    fn lose(&mut self) {
        let has_closed = self.closing == Closing::Closed;
        self.end = Some(if has_closed { End::Left } else { End::Lost });
    }

    pub(super) fn worker_answered(&mut self, worker: usize, round: u64) {
        if let Some(answered) = self.answered.get_mut(worker) {
            *answered = round.max(*answered);
        }
    }

    pub(super) fn leave(&mut self) {
        if self.closing == Closing::No {
            self.closing = Closing::Leaving;
        }
    }

    pub(super) fn closed(&mut self) {
        self.closing = Closing::Closed;
        // There is nothing left for a worker to close.
        self.phase = Phase::Suspended(0);
    }

    fn have_answered(&self, round: u64) -> bool {
        self.answered.iter().all(|answered| *answered >= round)
    }

    /// The end of the hold less C.
    const fn stops_at(&self) -> Instant {
        Instant::from_millis(self.until.as_millis().saturating_sub(MARGIN_MS))
    }

    pub(super) fn serves_until(&self) -> Option<Instant> {
        (self.phase == Phase::Serving).then(|| self.stops_at())
    }

    pub(super) fn ends_at(&self) -> Option<Instant> {
        let is_open = match self.phase {
            Phase::New => false,
            Phase::Serving => true,
            Phase::Suspended(round) => !self.have_answered(round),
        };
        is_open.then_some(self.until)
    }

    pub(super) const fn held_until(&self) -> Instant {
        self.until
    }
}
