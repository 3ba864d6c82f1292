//! One state: the processes, their transactions on the way, the record, a client, and the clocks.

use latchd_cluster::election::{
    Action, Answer, Election, End, Found, Id, Moment, News, PartitionRecord, Process, State,
    Timing, Transaction,
};
use latchd_cluster::verify::Register;
use latchd_core::Instant;

use super::{Bounds, Happening, Trap, Witness};
use crate::frame::{Judged, Shown, must};

/// Milliseconds in a step of time.
const STEP_MS: u64 = 400;

/// The time at the beginning: T is over before.
const START_MS: u64 = 10_000;

/// H and T: for clocks at the rates 0.8 and 1, T must be more than H / 0.8.
const TIMING: Timing = Timing::unchecked(1200, 1600);

/// The steps in which a process serves again (X5): T + 1 s on a slow clock.
const STEPS_TO_SERVE: u64 = (1600 + 1000) * 10 / 8 / STEP_MS + 1;

/// A process and its transactions on the way.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is seen with each")]
struct One {
    id: Id,
    election: Election,
    /// Sent, and not executed.
    request: Option<(u64, Transaction)>,
    /// Executed, and not heard.
    answer: Option<(u64, Answer)>,
    /// It is not heard in this step of time.
    is_mute: bool,
    /// A transaction before the one under way, or a copy, with its number; 0 if an earlier process has sent it.
    late: Option<(u64, Late)>,
    is_stopped: bool,
    is_over: bool,
    is_leaving: bool,
    has_closed: bool,
    /// The first number of its term, if it has one.
    first: u64,
    /// Until when its term grants no lock.
    grants_from: Option<Instant>,
    /// The highest number that it has given.
    numbers: u64,
    /// Executed, and not sent: until when the client may believe, and whether the reply is deferred.
    reply: Option<(Belief, bool)>,
    /// Before the last transaction, with the wall clock then; for traps.
    before: Option<(Box<Election>, u64)>,
    /// The first and the last record that it has read, for a trap.
    read: Option<[Option<Found>; 2]>,
}

/// The state of a transaction that is late.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
enum Late {
    /// Sent, and not executed.
    Sent(Transaction),
    /// Executed, and not heard.
    Executed(Answer),
}

/// A client's belief that a process is the primary.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
struct Belief {
    process: Id,
    asked: Instant,
    span_ms: u64,
}

/// All that matters of a state.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) struct View {
    step: u64,
    register: Register,
    processes: Vec<One>,
    /// The reply on its way to the client.
    heard: Option<Belief>,
    belief: Option<Belief>,
    /// The highest number that any process has given.
    given: u64,
    /// The number of processes that there were.
    started: u128,
    left: [u8; 7],
}

/// A state.
#[derive(Clone, Debug)]
pub struct World {
    bounds: Bounds,
    pub(super) view: View,
    /// The witnesses of the last step.
    pub(super) seen: Shown,
}

/// The places in [`View::left`].
const DELAYS: usize = 0;
const LATES: usize = 1;
const STOPS: usize = 2;
const RESTARTS: usize = 3;
const DELETIONS: usize = 4;
const LEAVES: usize = 5;
const ASKS: usize = 6;

/// Whether a record gives a process the partition.
fn names(record: &PartitionRecord, id: Id) -> bool {
    record.id == id && record.state != State::Vacant
}

impl World {
    /// The first process serves, and the others have just started.
    pub(super) fn new(bounds: &Bounds) -> Self {
        let free = PartitionRecord {
            term: 1,
            id: Id(0),
            beat: 0,
            state: State::Free,
            address: "h:1".into(),
            floor: 1 << 50,
            version: "1".into(),
        };
        let found = Some(Found {
            revision: 1,
            value: free.to_json(),
        });
        let view = View {
            step: 0,
            register: Register { found, writes: 1 },
            processes: Vec::new(),
            heard: None,
            belief: None,
            given: 0,
            started: 0,
            left: [
                bounds.delays,
                bounds.lates,
                bounds.stops,
                bounds.restarts,
                bounds.deletions,
                bounds.leaves,
                bounds.asks,
            ],
        };
        let mut world = Self {
            bounds: *bounds,
            view,
            seen: Shown::default(),
        };
        for place in 0..bounds.processes {
            let one = world.started(None);
            world.view.processes.push(one);
            let begun = world.run(place);
            begun.expect("nothing is wrong at the start");
            while place == 0 && world.view.processes[0].request.is_some() {
                world.execute(0);
                world.hear(0).expect("nothing is wrong at the start");
            }
        }
        world.seen = Shown::default();
        world
    }

    fn started(&mut self, predecessor: Option<Id>) -> One {
        self.view.started += 1;
        let id = Id(self.view.started);
        One {
            id,
            election: self.election(id, predecessor),
            request: None,
            answer: None,
            is_mute: false,
            late: None,
            is_stopped: false,
            is_over: false,
            is_leaving: false,
            has_closed: false,
            first: 0,
            grants_from: None,
            numbers: 0,
            reply: None,
            before: None,
            read: None,
        }
    }

    fn election(&self, id: Id, predecessor: Option<Id>) -> Election {
        let process = Process {
            id,
            address: "h:1".into(),
            version: "1".into(),
            workers: 1,
        };
        let timing = match self.bounds.trap {
            Some(Trap::WaitIsHold) => Timing::unchecked(TIMING.hold_ms(), TIMING.hold_ms()),
            Some(_) | None => TIMING,
        };
        Election::new(process, timing, predecessor)
    }

    const fn is(&self, trap: Trap) -> bool {
        matches!(self.bounds.trap, Some(one) if one as u8 == trap as u8)
    }

    /// The time on a clock: that of a process, or of the client behind them.
    fn clock(&self, place: usize) -> Instant {
        let now_ms = START_MS + self.view.step * STEP_MS;
        let is_slow = place == 0 || place == self.view.processes.len();
        Instant::from_millis(if is_slow { now_ms * 8 / 10 } else { now_ms })
    }

    /// The wall clock of a process. Unless the record is deleted, numbers do not depend on it: one is far behind.
    fn unix_ms(&self, place: usize) -> u64 {
        let is_wrong = place > 0 && self.bounds.deletions == 0;
        if is_wrong {
            0
        } else {
            1 << 40 | self.view.step
        }
    }

    fn serves(&self, place: usize) -> bool {
        let until = self.view.processes[place].election.serves_until();
        until.is_some_and(|until| self.clock(place) < until)
    }

    fn another_serves(&self, place: usize) -> bool {
        (0..self.view.processes.len()).any(|other| other != place && self.serves(other))
    }

    /// Whether a process serves and grants locks, other than this one.
    fn another_grants(&self, id: Id) -> bool {
        (0..self.view.processes.len()).any(|place| {
            let one = &self.view.processes[place];
            let is_free = one.grants_from.is_none_or(|at| self.clock(place) >= at);
            one.id != id && self.serves(place) && is_free
        })
    }

    /// Whether the client believes in a process.
    fn believes(&self) -> Option<Id> {
        let belief = self.view.belief?;
        let until = belief.asked.as_millis() + belief.span_ms;
        (self.clock(self.view.processes.len()).as_millis() < until).then_some(belief.process)
    }

    /// Lets a process do its due work.
    fn run(&mut self, place: usize) -> Judged {
        let (now, unix_ms) = (self.clock(place), self.unix_ms(place));
        loop {
            let is_trapped = self.bounds.trap.is_some();
            let one = &mut self.view.processes[place];
            let before = is_trapped.then(|| (Box::new(one.election.clone()), unix_ms));
            let moment = Moment {
                now,
                unix_ms,
                numbers: one.numbers,
            };
            match one.election.poll(moment) {
                Action::Send {
                    number,
                    transaction,
                } => {
                    let request = one.request.replace((number, transaction));
                    let request = request.map(|(number, old)| (number, Late::Sent(old)));
                    let answer = one.answer.take();
                    let answer = answer.map(|(number, old)| (number, Late::Executed(old)));
                    one.before = before;
                    if let Some(old) = request.or(answer)
                        && self.view.left[LATES] > 0
                    {
                        one.late = Some(old);
                    }
                }
                Action::AskWorkers { round } => one.election.worker_answered(0, round),
                Action::Tell(news) => self.tell(place, &news)?,
                Action::Wait { .. } => return Ok(()),
            }
        }
    }

    fn tell(&mut self, place: usize, news: &News) -> Judged {
        let record = self.record();
        let is_one = self.is(Trap::NumbersFromOne);
        let grants_at_once = self.is(Trap::GrantsAtOnce);
        let one = &mut self.view.processes[place];
        match news {
            News::Stands(_) | News::Unreadable(_) => {}
            News::Serves(term) => {
                one.first = if is_one { 1 } else { term.first.number() };
                one.grants_from = term.grants_from.filter(|_| !grants_at_once);
                if one.id.0 > 1 {
                    self.seen.add(Witness::HandedOver);
                }
                if term.inherits.is_some() {
                    self.seen.add(Witness::Free);
                }
                if one.id.0 > self.bounds.processes as u128 {
                    self.seen.add(Witness::Restarted);
                }
            }
            News::Suspended { round } => one.election.worker_answered(0, *round),
            News::Resumed => self.seen.add(Witness::Resumed),
            News::Over(end) => {
                one.is_over = true;
                let is_own = record.is_some_and(|record| names(&record, one.id));
                return must(
                    *end != End::Lost || !is_own,
                    "X6: a term is over while the record names it",
                );
            }
        }
        Ok(())
    }

    fn record(&self) -> Option<PartitionRecord> {
        let found = self.view.register.found.as_ref()?;
        PartitionRecord::parse(&found.value).ok()
    }

    fn is_vacant(&self) -> bool {
        let record = self.record();
        record.is_some_and(|record| record.state == State::Vacant)
    }

    /// The authority executes the transaction of a process.
    fn execute(&mut self, place: usize) {
        let Some((number, transaction)) = self.view.processes[place].request.take() else {
            return;
        };
        let one = &self.view.processes[place];
        let is_claim = one.election.held_until().is_none();
        let transaction = match transaction {
            Transaction::Swap { value, .. } if is_claim && self.is(Trap::ClaimsWithoutCompare) => {
                let expected = self.view.register.found.clone();
                Transaction::Swap { expected, value }
            }
            Transaction::Swap { value, .. } if is_claim && self.is(Trap::WaitGoesOn) => {
                let expected = one.read.clone().and_then(|[_, last]| last);
                Transaction::Swap { expected, value }
            }
            other @ (Transaction::Read | Transaction::Swap { .. }) => other,
        };
        let was_vacant = self.is_vacant();
        let answer = self.perform(&transaction);
        if was_vacant && matches!(answer, Answer::Swapped { .. }) {
            self.seen.add(Witness::Again);
        }
        self.view.processes[place].answer = Some((number, answer));
    }

    fn perform(&mut self, transaction: &Transaction) -> Answer {
        match transaction.perform(&mut self.view.register, "") {
            Ok(answer) => answer,
            Err(never) => match never {},
        }
    }

    /// A process gets its answer.
    fn hear(&mut self, place: usize) -> Judged {
        let Some((number, mut answer)) = self.view.processes[place].answer.take() else {
            return Ok(());
        };
        let mut now = self.clock(place);
        let is_vacant = self.is_vacant();
        let trap = self.bounds.trap;
        let one = &mut self.view.processes[place];
        let is_standby = one.election.held_until().is_none();
        let replays = match trap {
            Some(Trap::HoldsFromAnswer) => !is_standby,
            Some(Trap::ClaimsFromAnswer) => is_standby,
            Some(_) | None => false,
        };
        if let Some((before, unix_ms)) = one.before.take_if(|_| replays) {
            // As if it had been sent only now.
            one.election = *before;
            let numbers = one.numbers;
            let moment = Moment {
                now,
                unix_ms,
                numbers,
            };
            loop {
                match one.election.poll(moment) {
                    Action::Tell(News::Suspended { round }) | Action::AskWorkers { round } => {
                        one.election.worker_answered(0, round);
                    }
                    Action::Tell(_) => {}
                    Action::Send { .. } | Action::Wait { .. } => break,
                }
            }
        }
        if trap == Some(Trap::WaitGoesOn)
            && is_standby
            && let Answer::Found(found) = &mut answer
        {
            let [first, _] = one.read.take().unwrap_or([found.clone(), None]);
            one.read = Some([first.clone(), found.clone()]);
            *found = first;
        }
        if trap == Some(Trap::ClaimsAtOnce) && is_vacant && is_standby {
            now = Instant::from_millis(now.as_millis() - TIMING.wait_ms());
        }
        if let Answer::Found(Some(found)) = &answer
            && PartitionRecord::parse(&found.value).is_ok_and(|found| names(&found, one.id))
        {
            self.seen.add(Witness::Doubted);
        }
        if trap == Some(Trap::LockWithoutId)
            && one.id.0 > self.bounds.processes as u128
            && let Answer::Found(Some(found)) = &answer
            && let Ok(record) = PartitionRecord::parse(&found.value)
        {
            let (id, unix_ms) = (one.id, 0);
            let mut election = self.election(id, Some(record.id));
            let _ = election.poll(Moment {
                now,
                unix_ms,
                numbers: 0,
            });
            election.answer(now, 1, answer);
            self.view.processes[place].election = election;
            return self.run(place);
        }
        one.election.answer(now, number, answer);
        self.run(place)
    }

    /// The late transaction of a process ends: it is executed now, unless it was. Returns its number and its answer.
    fn end_late(&mut self, place: usize) -> Option<(u64, Answer)> {
        self.view.left[LATES] -= 1;
        let (number, late) = self.view.processes[place].late.take()?;
        let answer = match late {
            Late::Sent(transaction) => self.perform(&transaction),
            Late::Executed(answer) => answer,
        };
        if self.view.left[LATES] == 0 {
            for one in &mut self.view.processes {
                one.late = None;
            }
        }
        Some((number, answer))
    }

    /// A process gets the answer to its late transaction.
    fn hear_late(&mut self, place: usize) -> Judged {
        let Some((number, answer)) = self.end_late(place) else {
            return Ok(());
        };
        let (now, is_current) = (self.clock(place), self.is(Trap::LateIsCurrent));
        let one = &mut self.view.processes[place];
        let newest = one.request.as_ref().map(|(number, _)| *number);
        let newest = newest.or(one.answer.as_ref().map(|(number, _)| *number));
        let taken_for = newest.filter(|_| is_current).unwrap_or(number);
        let before = one.election.held_until();
        one.election.answer(now, taken_for, answer);
        if one.election.held_until() > before {
            self.seen.add(Witness::LateCounts);
        }
        self.run(place)
    }

    pub(super) fn happenings(&self, happenings: &mut Vec<Happening>) {
        let view = &self.view;
        let is_late = |one: &One| {
            !one.is_over && !one.is_stopped && (one.request.is_some() || one.answer.is_some())
        };
        let delays = view.processes.iter().filter(|one| is_late(one)).count();
        if view.step < self.bounds.steps && delays <= usize::from(view.left[DELAYS]) {
            happenings.push(Happening::Time);
        }
        if view.left[DELETIONS] > 0 && view.register.found.is_some() {
            happenings.push(Happening::Delete);
        }
        if view.heard.is_some() {
            happenings.push(Happening::HearReply);
        }
        for (place, one) in view.processes.iter().enumerate() {
            if one.request.is_some() {
                if !one.is_stopped && !one.is_over {
                    happenings.push(Happening::Execute(place));
                }
                if view.left[DELAYS] > 0 || one.is_stopped || one.is_over {
                    happenings.push(Happening::ExecuteMute(place));
                }
                let is_swap = matches!(one.request, Some((_, Transaction::Swap { .. })));
                if view.left[LATES] > 0
                    && one.late.is_none()
                    && is_swap
                    && !one.is_stopped
                    && !one.is_over
                {
                    happenings.push(Happening::ExecuteOne(place));
                }
            }
            if view.left[LATES] > 0
                && let Some((number, late)) = &one.late
            {
                if matches!(late, Late::Sent(Transaction::Swap { .. })) {
                    happenings.push(Happening::ExecuteLate(place));
                }
                if *number > 0 && !one.is_stopped && !one.is_over {
                    happenings.push(Happening::HearLate(place));
                }
            }
            if view.left[RESTARTS] > 0 {
                happenings.push(Happening::Restart(place));
            }
            if one.is_stopped {
                happenings.push(Happening::Continue(place));
            } else if !one.is_over {
                if one.answer.is_some() && !one.is_mute {
                    happenings.push(Happening::Hear(place));
                }
                if view.left[STOPS] > 0 && one.first > 0 {
                    happenings.push(Happening::Stop(place));
                }
                if view.left[LEAVES] > 0 && one.first > 0 && !one.is_leaving && !one.has_closed {
                    happenings.push(Happening::Leave(place));
                }
                if one.is_leaving {
                    happenings.push(Happening::Close(place));
                }
                if view.left[ASKS] > 0 && one.reply.is_none() && self.serves(place) {
                    happenings.push(Happening::Ask(place, false));
                    // Both exits are checked alike, unless one is trapped.
                    if self.is(Trap::SendsDeferredUnchecked) {
                        happenings.push(Happening::Ask(place, true));
                    }
                }
                if one.reply.is_some() {
                    happenings.push(Happening::Send(place));
                }
            }
        }
    }

    pub(super) fn happen(&mut self, happening: Happening) -> Judged {
        self.seen = Shown::default();
        match happening {
            Happening::Time => self.pass()?,
            Happening::Execute(place) => {
                self.execute(place);
                self.hear(place)?;
            }
            Happening::ExecuteMute(place) => {
                self.execute(place);
                self.view.processes[place].is_mute = true;
            }
            Happening::ExecuteOne(place) => {
                let copy = self.view.processes[place].request.clone();
                let copy = copy.map(|(number, copy)| (number, Late::Sent(copy)));
                self.view.processes[place].late = copy;
                self.execute(place);
                self.hear(place)?;
            }
            Happening::ExecuteLate(place) => {
                if let Some((_, answer)) = self.end_late(place)
                    && let Answer::Found(_) = answer
                {
                    self.seen.add(Witness::LateInVain);
                }
            }
            Happening::HearLate(place) => self.hear_late(place)?,
            Happening::Hear(place) => self.hear(place)?,
            Happening::Stop(place) => {
                self.view.left[STOPS] -= 1;
                self.view.processes[place].is_stopped = true;
            }
            Happening::Continue(place) => {
                self.view.processes[place].is_stopped = false;
                self.run(place)?;
            }
            Happening::Restart(place) => {
                self.view.left[RESTARTS] -= 1;
                self.restart(place)?;
            }
            Happening::Delete => {
                self.view.left[DELETIONS] -= 1;
                self.view.register.found = None;
            }
            Happening::Leave(place) => {
                self.view.left[LEAVES] -= 1;
                let is_early = self.is(Trap::FreeTooEarly);
                let one = &mut self.view.processes[place];
                one.is_leaving = true;
                one.election.leave();
                if is_early {
                    one.election.closed();
                }
                self.run(place)?;
            }
            Happening::Close(place) => {
                self.disconnect(place);
                let one = &mut self.view.processes[place];
                (one.is_leaving, one.has_closed) = (false, true);
                one.election.closed();
                self.run(place)?;
            }
            Happening::Ask(place, is_deferred) => self.ask(place, is_deferred)?,
            Happening::Send(place) => {
                let is_checked = self.serves(place);
                let reply = self.view.processes[place].reply.take();
                let Some((belief, is_deferred)) = reply else {
                    return Ok(());
                };
                let is_unchecked = match self.bounds.trap {
                    Some(Trap::SendsUnchecked) => !is_deferred,
                    Some(Trap::SendsDeferredUnchecked) => is_deferred,
                    Some(_) | None => false,
                };
                if is_checked || is_unchecked {
                    must(
                        !self.another_serves(place),
                        "X1: a reply leaves a process while another one serves",
                    )?;
                    self.view.heard = Some(belief);
                } else {
                    self.seen.add(Witness::Dropped);
                }
            }
            Happening::HearReply => {
                let mut belief = self.view.heard.take();
                if self.is(Trap::BelievesFromAnswer) {
                    let now = self.clock(self.view.processes.len());
                    if let Some(belief) = &mut belief {
                        belief.asked = now;
                    }
                }
                self.view.belief = belief;
            }
        }
        self.judge()
    }

    fn pass(&mut self) -> Judged {
        self.view.step += 1;
        for place in 0..self.view.processes.len() {
            let trap = self.bounds.trap;
            let now = self.clock(place);
            let one = &mut self.view.processes[place];
            one.is_mute = false;
            if one.is_stopped || one.is_over {
                continue;
            }
            let number = one.request.as_ref().map(|(number, _)| *number);
            let number = number.or(one.answer.as_ref().map(|(number, _)| *number));
            if let Some(number) = number {
                self.view.left[DELAYS] = self.view.left[DELAYS].saturating_sub(1);
                let is_primary = one.election.held_until().is_some();
                if trap == Some(Trap::LostIsFailed)
                    && is_primary
                    && let Some((before, _)) = one.before.take()
                {
                    one.election = *before;
                }
                if trap == Some(Trap::ErrorIsLoss) && is_primary {
                    one.election.answer(now, number, Answer::Found(None));
                }
            }
            self.run(place)?;
        }
        // A belief that is over is as none.
        if self.believes().is_none() {
            self.view.belief = None;
        }
        Ok(())
    }

    /// The client need not learn of the end.
    fn restart(&mut self, place: usize) -> Judged {
        let old = self.view.processes[place].clone();
        let mut one = self.started(Some(old.id));
        let late = old.request.map(|(_, late)| Late::Sent(late));
        let late = late.or(old.late.map(|(_, late)| late));
        let is_swap = |late: &Late| matches!(late, Late::Sent(Transaction::Swap { .. }));
        let late = late.filter(|late| is_swap(late) && self.view.left[LATES] > 0);
        one.late = late.map(|late| (0, late));
        self.view.processes[place] = one;
        self.run(place)
    }

    /// The connection of the client to a process ends, and the client knows it.
    fn disconnect(&mut self, place: usize) {
        let id = self.view.processes[place].id;
        self.view.processes[place].reply = None;
        for belief in [&mut self.view.heard, &mut self.view.belief] {
            belief.take_if(|belief| belief.process == id);
        }
    }

    fn ask(&mut self, place: usize, is_deferred: bool) -> Judged {
        self.view.left[ASKS] -= 1;
        let asked = self.clock(self.view.processes.len());
        let now = self.clock(place);
        let one = &mut self.view.processes[place];
        let until = one.election.serves_until().unwrap_or(now);
        let left_ms = until.as_millis() - now.as_millis();
        // A fast restart relies on promises that are safe for these clocks (E13).
        let span_ms = if self.bounds.restarts > 0 {
            left_ms * 8 / 10
        } else {
            left_ms
        };
        let belief = Belief {
            process: one.id,
            asked,
            span_ms,
        };
        one.reply = Some((belief, is_deferred));
        let number = one.first.max(one.numbers + 1);
        one.numbers = number;
        if self.view.given > 0 && number == one.first {
            self.seen.add(Witness::Numbered);
        }
        let is_above = number > self.view.given;
        self.view.given = number.max(self.view.given);
        must(is_above, "X3: a number is not above those of earlier terms")
    }

    /// Applies the invariants.
    fn judge(&mut self) -> Judged {
        let mut holders = 0;
        for place in 0..self.view.processes.len() {
            let one = &self.view.processes[place];
            let until = one.election.held_until();
            if until.is_some_and(|until| self.clock(place) >= until) {
                self.seen.add(Witness::Outlived);
            } else if until.is_some() && !one.has_closed {
                holders += 1;
            }
        }
        must(holders < 2, "X1: two processes hold the partition")?;
        if let Some(id) = self.believes() {
            must(
                !self.another_grants(id),
                "X2: a client believes in a process while another one grants locks",
            )?;
            let serving = (0..self.view.processes.len()).filter(|place| self.serves(*place));
            let mut serving = serving.map(|place| self.view.processes[place].id);
            match serving.next() {
                None => self.seen.add(Witness::Believed),
                Some(other) if other != id => self.seen.add(Witness::Withheld),
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// At the end of time, the rest goes well (X5).
    pub(super) fn ends_well(&self) -> Judged {
        if self.view.step < self.bounds.steps || self.bounds.trap.is_some() {
            return Ok(());
        }
        let mut world = self.clone();
        for place in 0..world.view.processes.len() {
            world.view.processes[place].is_stopped = false;
            if world.view.processes[place].is_over {
                world.restart(place)?;
            }
        }
        for _ in 0..=STEPS_TO_SERVE {
            for place in 0..world.view.processes.len() {
                while !world.view.processes[place].is_over
                    && (world.view.processes[place].request.is_some()
                        || world.view.processes[place].answer.is_some())
                {
                    world.execute(place);
                    world.hear(place)?;
                }
                if world.view.processes[place].is_over {
                    world.restart(place)?;
                }
            }
            world.judge()?;
            if (0..world.view.processes.len()).any(|place| world.serves(place)) {
                return Ok(());
            }
            world.pass()?;
        }
        Err("X5: nothing serves T + 1 s after the last fault".to_owned())
    }
}
