use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;

use super::standby::NUMBERS_AHEAD;
use super::*;

const UNIX_MS: u64 = 1_700_000_000_000;

/// An authority with one record, in which a driver can break the line.
#[derive(Default)]
struct Register {
    found: Option<Found>,
    /// Executes a swap, and does not answer it.
    is_mute: bool,
    /// Neither executes nor answers.
    is_cut: bool,
    writes: u64,
}

impl Authority for Register {
    type Error = ();

    fn read(&mut self, _: &str) -> Result<Option<Found>, ()> {
        let found = self.found.clone();
        if self.is_cut { Err(()) } else { Ok(found) }
    }

    fn swap(&mut self, _: &str, expected: Option<&Found>, value: &str) -> Result<Answer, ()> {
        if self.is_cut {
            return Err(());
        }
        let is_expected = self.found.as_ref() == expected;
        if is_expected {
            self.write(value);
        }
        if self.is_mute {
            return Err(());
        }
        let revision = self.writes;
        Ok(if is_expected {
            Answer::Swapped { revision }
        } else {
            Answer::Found(self.found.clone())
        })
    }
}

impl Register {
    fn write(&mut self, value: &str) {
        self.writes += 1;
        let (revision, value) = (self.writes, value.into());
        self.found = Some(Found { revision, value });
    }

    fn record(&self) -> PartitionRecord {
        PartitionRecord::parse(&self.found.as_ref().unwrap().value).unwrap()
    }
}

struct Driver {
    election: Election,
    now: u64,
    numbers: u64,
    /// Whether workers answer.
    is_awake: bool,
    sent: Vec<(u64, &'static str)>,
    /// How long an answer takes, in milliseconds.
    delay_ms: u64,
    /// The answers on the way, with their moments and numbers.
    answers: VecDeque<(u64, u64, Answer)>,
}

impl Driver {
    fn new(id: u128, now: u64, predecessor: Option<u128>) -> Self {
        let process = Process {
            id: Id(id),
            address: format!("10.0.0.{id}:11211"),
            version: "1.0.0".into(),
            workers: 2,
        };
        Self {
            election: Election::new(process, Timing::default(), predecessor.map(Id)),
            now,
            numbers: 0,
            is_awake: true,
            sent: Vec::new(),
            delay_ms: 0,
            answers: VecDeque::new(),
        }
    }

    /// A process that has served since `now`, of a partition that was free.
    fn primary(register: &mut Register, id: u128, now: u64) -> Self {
        let free = Self::record(State::Free);
        register.write(&free.to_json());
        let mut driver = Self::new(id, now, None);
        let news = driver.run(register, now);
        assert!(
            matches!(news[..], [(_, News::Stands(_)), (_, News::Serves(_))]),
            "{news:?}"
        );
        driver
    }

    fn record(state: State) -> PartitionRecord {
        PartitionRecord {
            term: 4,
            id: Id(99),
            beat: 7,
            state,
            address: "10.0.0.99:11211".into(),
            floor: 1 << 62,
            version: "1.0.0".into(),
        }
    }

    /// Polls until the moment after `end`, and returns the news.
    fn run(&mut self, register: &mut Register, end: u64) -> Vec<(u64, News)> {
        let mut news = Vec::new();
        loop {
            let now = Instant::from_millis(self.now);
            while self.answers.front().is_some_and(|one| one.0 <= self.now) {
                let (_, number, answer) = self.answers.pop_front().unwrap();
                self.election.answer(now, number, answer.clone());
                // A second time it is ignored.
                self.election.answer(now, number, answer);
            }
            let moment = Moment {
                now,
                unix_ms: UNIX_MS,
                numbers: self.numbers,
            };
            match self.election.poll(moment) {
                Action::Send {
                    number,
                    transaction,
                } => {
                    let is_read = transaction == Transaction::Read;
                    self.sent
                        .push((self.now, if is_read { "read" } else { "swap" }));
                    if let Ok(answer) = transaction.perform(register, "") {
                        let due = self.now + self.delay_ms;
                        self.answers.push_back((due, number, answer));
                    }
                }
                Action::AskWorkers { round } => self.answer(round),
                Action::Tell(notice) => {
                    if let News::Suspended { round } = notice {
                        self.answer(round);
                    }
                    news.push((self.now, notice));
                }
                Action::Wait { until } => {
                    let until = until.map_or(u64::MAX, Instant::as_millis);
                    assert!(until > self.now, "it waits for a moment that has passed");
                    let due = self.answers.front().map_or(u64::MAX, |one| one.0);
                    let until = until.min(due);
                    if until > end {
                        return news;
                    }
                    self.now = until;
                }
            }
        }
    }

    fn answer(&mut self, round: u64) {
        self.election.worker_answered(0, round);
        if self.is_awake {
            self.election.worker_answered(1, round);
        }
    }

    fn stops(&self) -> Option<u64> {
        self.election.serves_until().map(Instant::as_millis)
    }
}

#[test]
fn a_standby_claims_an_unchanged_record_after_t() {
    let mut register = Register::default();
    let mut standby = Driver::new(1, 1000, None);
    register.write(&Driver::record(State::Serving).to_json());
    let news = standby.run(&mut register, 4900);
    assert!(matches!(&news[..], [(1000, News::Stands(Some(one)))] if one.id == Id(99)));
    assert_eq!(
        standby.sent,
        (0..10)
            .map(|read| (1000 + 400 * read, "read"))
            .collect::<Vec<_>>()
    );
    // A heartbeat, and only a heartbeat: the wait begins again, and there is no news.
    let mut beaten = Driver::record(State::Serving);
    beaten.beat += 1;
    register.write(&beaten.to_json());
    assert_eq!(standby.run(&mut register, 8999), []);
    let term = Term {
        number: 5,
        first: Fence::new(1 << 62).unwrap(),
        inherits: None,
        grants_from: None,
    };
    assert_eq!(
        standby.run(&mut register, 9000),
        [(9000, News::Serves(term))]
    );
    assert_eq!(register.record().floor, (1 << 62) + NUMBERS_AHEAD);
    assert_eq!(standby.stops(), Some(9000 + 3200));
}

#[test]
fn free_leaving_and_dead_primaries_are_not_waited_for() {
    let mut register = Register::default();
    let mut standby = Driver::new(1, 0, None);
    register.write(&Driver::record(State::Leaving).to_json());
    standby.run(&mut register, 250);
    assert_eq!(standby.sent, [(0, "read"), (100, "read"), (200, "read")]);
    register.write(&Driver::record(State::Free).to_json());
    let news = standby.run(&mut register, 300);
    let inherits = |news: &(u64, News)| match news {
        (_, News::Serves(term)) => term.inherits,
        (_, other) => panic!("{other:?}"),
    };
    assert_eq!(inherits(&news[1]), Some((Id(99), 4)));
    let grants_from = |news: &(u64, News)| match news {
        (_, News::Serves(term)) => term.grants_from.map(Instant::as_millis),
        (_, other) => panic!("{other:?}"),
    };
    assert_eq!(grants_from(&news[1]), None, "every promise is over");

    // The same record after a later term: an authority that was restored.
    let mut standby = Driver::new(1, 0, Some(99));
    let mut later = Driver::record(State::Serving);
    (later.id, later.term) = (Id(98), 5);
    register.write(&later.to_json());
    standby.run(&mut register, 100);
    register.write(&Driver::record(State::Free).to_json());
    standby.run(&mut register, 4399);
    assert_eq!(register.record().term, 4, "it waits for T");
    let news = standby.run(&mut register, 4400);
    assert!(matches!(&news[..], [(_, News::Serves(term))] if term.number == 6));

    register.write(&Driver::record(State::Serving).to_json());
    let news = Driver::new(2, 5000, Some(99)).run(&mut register, 5000);
    assert_eq!(inherits(&news[1]), None);
    assert_eq!(grants_from(&news[1]), Some(5000 + 3201));
    register.write(&Driver::record(State::Serving).to_json());
    assert_eq!(
        Driver::new(3, 5000, Some(98))
            .run(&mut register, 5000)
            .len(),
        1
    );
}

#[test]
fn an_unreadable_record_is_never_claimed() {
    let mut register = Register::default();
    let mut standby = Driver::new(1, 0, None);
    for beat in 0..20 {
        register.write(&format!("{{\"format\":2,\"beat\":{beat}}}"));
        let news = standby.run(&mut register, 400 * beat + 399);
        let expected = usize::from(beat == 0);
        assert_eq!(news.len(), expected, "{news:?}");
    }
    standby.run(&mut register, 60_000);
    assert_eq!(standby.stops(), None);

    let mut primary = Driver::primary(&mut register, 2, 60_000);
    register.write("{}");
    let news = primary.run(&mut register, 70_000);
    assert_eq!(
        news.iter().map(|(at, _)| *at).collect::<Vec<_>>(),
        [60_400, 63_200],
        "reported, and suspended: {news:?}"
    );
}

#[test]
fn a_claim_without_an_answer_is_looked_up() {
    let mut register = Register::default();
    let mut standby = Driver::new(1, 0, None);
    register.write(&Driver::record(State::Free).to_json());
    // The claim is lost on its way there, then on its way back.
    register.is_cut = true;
    standby.run(&mut register, 399);
    register.is_cut = false;
    let moment = |now| Moment {
        now: Instant::from_millis(now),
        unix_ms: UNIX_MS,
        numbers: 0,
    };
    let Action::Send {
        number,
        transaction,
    } = standby.election.poll(moment(400))
    else {
        panic!()
    };
    let answer = transaction.perform(&mut register, "").unwrap();
    standby
        .election
        .answer(Instant::from_millis(410), number, answer);
    assert!(matches!(
        standby.election.poll(moment(410)),
        Action::Tell(_)
    ));
    let claim = standby.election.poll(moment(410));
    assert!(matches!(
        claim,
        Action::Send {
            transaction: Transaction::Swap { .. },
            ..
        }
    ));
    standby.now = 411;
    register.is_mute = true;
    standby.run(&mut register, 810);
    let before = standby.sent.len();
    assert_eq!(standby.run(&mut register, 1210).len(), 1);
    assert_eq!(standby.sent[before..].first(), Some(&(1210, "read")));
    // It counts from the first sending.
    assert_eq!(standby.stops(), Some(410 + 3200));
}

#[test]
fn a_hold_counts_from_the_first_sending() {
    let mut register = Register::default();
    let mut primary = Driver::primary(&mut register, 1, 0);
    assert_eq!(primary.stops(), Some(3200));
    primary.run(&mut register, 400);
    assert_eq!(primary.stops(), Some(3600));
    register.is_mute = true;
    assert_eq!(primary.run(&mut register, 1999), []);
    assert_eq!(primary.stops(), Some(3600));
    register.is_mute = false;
    // The record shows the heartbeat that was sent at 800, and at once the next one follows.
    primary.sent.clear();
    primary.run(&mut register, 2000);
    assert_eq!(primary.sent, [(2000, "swap"), (2000, "swap")]);
    assert_eq!(primary.stops(), Some(2000 + 3200));
    assert_eq!(register.record().beat, 3);
}

#[test]
fn answers_later_than_a_heartbeat_keep_the_hold() {
    for delay_ms in [399, 400, 401, 799, 800, 801, ANSWER_MS - 1] {
        let mut register = Register::default();
        register.write(&Driver::record(State::Free).to_json());
        let mut standby = Driver::new(1, 0, None);
        standby.delay_ms = delay_ms;
        let news = standby.run(&mut register, 60_000);
        assert!(
            matches!(news[..], [(_, News::Stands(_)), (at, News::Serves(_))] if at <= 2 * delay_ms + RETRY_MS),
            "{delay_ms}: {news:?}"
        );
        let beats = register.record().beat;
        assert!(
            beats >= 58_000 / (delay_ms + 400),
            "{delay_ms}: {beats} heartbeats"
        );
    }
}

#[test]
fn late_answer_counts_for_its_heartbeat_only() {
    let mut register = Register::default();
    let mut primary = Driver::primary(&mut register, 1, 0);
    let mut send = |primary: &mut Driver, now| {
        let moment = Moment {
            now: Instant::from_millis(now),
            unix_ms: UNIX_MS,
            numbers: 0,
        };
        loop {
            match primary.election.poll(moment) {
                Action::Send {
                    number,
                    transaction,
                } => break (number, transaction.perform(&mut register, "").unwrap()),
                Action::AskWorkers { round } => primary.answer(round),
                other @ (Action::Tell(_) | Action::Wait { .. }) => panic!("{other:?}"),
            }
        }
    };
    let (first, swapped) = send(&mut primary, 400);
    let (second, found) = send(&mut primary, 800);
    assert!(matches!(swapped, Answer::Swapped { .. }));
    let now = Instant::from_millis(1250);
    primary.election.answer(now, first, swapped.clone());
    assert_eq!(primary.stops(), Some(400 + 3200));
    let (third, confirmed) = send(&mut primary, 1250);
    // Both would end the term, or lengthen the hold, if they counted for the heartbeat of 1250.
    for (number, answer) in [
        (second, found),
        (first, swapped),
        (second, Answer::Found(None)),
    ] {
        primary.election.answer(now, number, answer);
        assert_eq!(primary.stops(), Some(400 + 3200));
    }
    primary.election.answer(now, third, confirmed);
    assert_eq!(primary.stops(), Some(1250 + 3200));
}

#[test]
fn late_reads_neither_restart_a_wait_nor_shorten_it() {
    let mut register = Register::default();
    register.write(&Driver::record(State::Serving).to_json());
    let mut standby = Driver::new(1, 0, None);
    let old = Answer::Found(register.found.clone());
    // The first read gets no answer, the second one shows a later record.
    register.is_cut = true;
    standby.run(&mut register, 399);
    register.is_cut = false;
    let mut beaten = Driver::record(State::Serving);
    beaten.beat += 1;
    register.write(&beaten.to_json());
    standby.run(&mut register, 500);
    standby
        .election
        .answer(Instant::from_millis(500), 1, old.clone());
    assert_eq!(standby.run(&mut register, 4399), []);
    assert_eq!(register.record().id, Id(99));
    let news = standby.run(&mut register, 4400);
    assert!(matches!(news[..], [(4400, News::Serves(_))]), "{news:?}");

    // Without another answer, the late one is the first: its record is claimed T after it arrived.
    register.write(&Driver::record(State::Serving).to_json());
    let old = Answer::Found(register.found.clone());
    let mut standby = Driver::new(2, 0, None);
    register.is_cut = true;
    standby.run(&mut register, 700);
    register.is_cut = false;
    standby.now = 700;
    standby.election.answer(Instant::from_millis(700), 1, old);
    let news = standby.run(&mut register, 4700);
    assert!(
        matches!(
            news[..],
            [(700, News::Stands(Some(_))), (4700, News::Serves(_))]
        ),
        "{news:?}"
    );
}

#[test]
fn silence_of_the_authority_leaves_time_for_the_primary() {
    // The authority comes back to a standby that has waited for T.
    for silence in [ANSWER_MS, 5000, 60_000] {
        let mut register = Register::default();
        register.write(&Driver::record(State::Serving).to_json());
        let mut standby = Driver::new(1, 0, None);
        standby.run(&mut register, 3000);
        register.is_cut = true;
        standby.run(&mut register, 3000 + silence);
        register.is_cut = false;
        let back = standby.sent.last().map(|(at, _)| at + RETRY_MS).unwrap();
        let calm = back + ANSWER_MS + RETRY_MS;
        let claims_at = calm.max(4000);
        assert_eq!(standby.run(&mut register, claims_at - 1), [], "{silence}");
        let news = standby.run(&mut register, claims_at);
        assert!(
            matches!(news[..], [(at, News::Serves(_))] if at == claims_at),
            "{silence}: {news:?}"
        );
    }
    // What no process serves is claimed at the first answer.
    let mut register = Register::default();
    register.write(&Driver::record(State::Serving).to_json());
    let mut standby = Driver::new(1, 0, None);
    standby.run(&mut register, 1000);
    register.is_cut = true;
    register.write(&Driver::record(State::Free).to_json());
    standby.run(&mut register, 9000);
    register.is_cut = false;
    let news = standby.run(&mut register, 9000 + RETRY_MS);
    assert!(
        matches!(news[..], [(_, News::Stands(_)), (_, News::Serves(_))]),
        "{news:?}"
    );
}

#[test]
fn a_primary_without_answers_is_suspended_and_resumes() {
    let mut register = Register::default();
    let mut primary = Driver::primary(&mut register, 1, 0);
    register.is_cut = true;
    let suspended = (3200, News::Suspended { round: 2 });
    assert_eq!(primary.run(&mut register, 19_999), [suspended]);
    assert_eq!(primary.stops(), None);
    register.is_cut = false;
    assert_eq!(
        primary.run(&mut register, 20_000),
        [(20_000, News::Resumed)]
    );
    assert_eq!(primary.stops(), Some(23_200));

    // Another process has claimed it.
    let other = Driver::record(State::Serving);
    register.write(&other.to_json());
    assert_eq!(
        primary.run(&mut register, 30_000),
        [(20_400, News::Over(End::Lost))]
    );
    assert_eq!(End::Lost.exit_code(), 75);
}

#[test]
fn a_record_that_is_no_heartbeat_of_its_own_ends_a_term() {
    for change in 0..4 {
        let mut register = Register::default();
        let mut primary = Driver::primary(&mut register, 1, 0);
        let mut record = register.record();
        match change {
            0 => record.id = Id(2),
            1 => record.term += 1,
            // The authority was restored from a copy.
            2 => record.beat += 5,
            _ => register.found = None,
        }
        if register.found.is_some() {
            register.write(&record.to_json());
        }
        assert_eq!(
            primary.run(&mut register, 9999),
            [(400, News::Over(End::Lost))],
            "{change}"
        );
        assert_eq!(primary.stops(), None);
    }
}

#[test]
fn a_stuck_worker_ends_the_term() {
    let mut register = Register::default();
    let mut primary = Driver::primary(&mut register, 1, 0);
    primary.is_awake = false;
    let news = primary.run(&mut register, 9999);
    // The heartbeat at 400 asks, and there is none after it.
    assert_eq!(register.record().beat, 1);
    let over = (4000, News::Over(End::Stuck));
    assert_eq!(news, [(3600, News::Suspended { round: 2 }), over]);
}

#[test]
fn a_process_that_was_stopped_ends_at_once() {
    let mut register = Register::default();
    let mut primary = Driver::primary(&mut register, 1, 0);
    primary.now = 10_000;
    assert_eq!(primary.stops(), Some(3200));
    assert_eq!(
        primary.run(&mut register, 10_000),
        [(10_000, News::Over(End::Stuck))]
    );
    assert_eq!(register.record().beat, 0);
}

#[test]
fn numbers_stay_below_the_floor_of_the_record() {
    let mut register = Register::default();
    let mut primary = Driver::primary(&mut register, 1, 0);
    primary.numbers = (1 << 62) + 1000;
    primary.run(&mut register, 400);
    assert_eq!(register.record().floor, primary.numbers + NUMBERS_AHEAD);
    // Without a record, the wall clock is above all earlier terms; the count of the terms goes on.
    register.found = None;
    let mut standby = Driver::new(2, 400, None);
    let news = standby.run(&mut register, 4400);
    let first = Fence::first_at(UNIX_MS);
    let term = Term {
        number: 1,
        first,
        inherits: None,
        grants_from: None,
    };
    assert_eq!(
        news,
        [(400, News::Stands(None)), (4400, News::Serves(term))]
    );
}

#[test]
fn a_process_that_leaves_says_free_once_it_has_closed() {
    let mut register = Register::default();
    let mut primary = Driver::primary(&mut register, 1, 0);
    primary.election.leave();
    primary.run(&mut register, 300);
    assert_eq!(
        (register.record().state, primary.stops()),
        (State::Leaving, Some(3201))
    );
    primary.election.closed();
    assert_eq!(primary.stops(), None);
    let news = primary.run(&mut register, 301);
    assert_eq!(news, [(2, News::Over(End::Left))]);
    assert_eq!(
        (register.record().state, End::Left.exit_code()),
        (State::Free, 0)
    );

    // Without the authority it does not wait longer than its hold.
    let mut primary = Driver::primary(&mut register, 2, 1000);
    register.is_cut = true;
    primary.election.leave();
    primary.election.closed();
    assert_eq!(
        primary.run(&mut register, 9999),
        [(4600, News::Over(End::Left))]
    );
    let mut standby = Driver::new(3, 0, None);
    standby.election.leave();
    assert_eq!(standby.run(&mut register, 0), [(0, News::Over(End::Left))]);
    assert_eq!(Id(255).to_string(), "000000000000000000000000000000ff");
}

#[test]
fn missing_record_is_written_before_the_wait() {
    let mut register = Register::default();
    // Its predecessor has written the vacant record, and served nothing.
    let mut first = Driver::new(1, 0, None);
    let news = first.run(&mut register, 0);
    assert_eq!(
        news,
        [(0, News::Stands(None))],
        "a vacant record is no news"
    );
    let record = register.record();
    assert_eq!(
        (record.state, record.id, record.term),
        (State::Vacant, Id(1), 0)
    );
    let mut again = Driver::new(2, 1000, Some(1));
    again.run(&mut register, 4999);
    assert_eq!(
        register.record().state,
        State::Vacant,
        "E9: it may not be dead"
    );
    let news = again.run(&mut register, 5000);
    assert!(matches!(news[..], [(5000, News::Serves(_))]), "{news:?}");
    assert_eq!(register.record().term, 1);
}

#[test]
fn second_absence_is_no_longer_wait() {
    let mut register = Register::default();
    let mut standby = Driver::new(1, 0, None);
    standby.run(&mut register, 3999);
    // Another process claims the partition, and its record is deleted before the standby reads.
    let claimed = Driver::record(State::Serving);
    register.write(&claimed.to_json());
    register.found = None;
    assert_eq!(standby.run(&mut register, 7999), []);
    assert_eq!(register.record().state, State::Vacant);
    let news = standby.run(&mut register, 8000);
    assert!(matches!(news[..], [(8000, News::Serves(_))]), "{news:?}");
}
