//! The core, and what its clients have said and are to read.

use std::collections::{BTreeMap, VecDeque};
use std::iter;

use latchd_core::command::Command;
use latchd_core::engine::{Config, Event};
use latchd_core::key::Key;
use latchd_core::reply::Reply;
use latchd_core::server::StateMachine;
use latchd_core::wait::Notice;
use latchd_core::{ConnId, Instant, Limits};
use latchd_harness::alphabet::{Input, Pairs, UNIX_S_AT_START};
use latchd_harness::strict::{self, StrictCore};

use super::ask::{Ask, item, lock};
use super::{KEYS, LOCKS_MAX};
use crate::simulation::auditor::Breach;
use crate::simulation::beside::{Answer, Beside};

/// How far the request has come that was executed last.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Waiting {
    /// It does not wait.
    #[default]
    No,
    /// It waits.
    Yes,
    /// Its wait is over, and it was not executed since.
    Over,
}

/// What is known of one connection.
#[derive(Debug, Default)]
struct Line {
    /// Said, and not executed in full.
    said: VecDeque<Ask>,
    /// How many commands of the first have been executed; of what no core hears, how often it was answered.
    done: usize,
    waiting: Waiting,
    /// To be read by the client; what stands before `read` was.
    answers: Vec<u8>,
    read: usize,
    executed: u64,
    /// The core was told of its end.
    has_ended: bool,
}

/// What has been read stands before the answers until there are so many bytes of it.
const READ_BYTES_MAX: usize = 1 << 16;

impl Line {
    /// What no core hears of and stands first is answered, so often at most: it is known what that comes to.
    fn answer_locals(&mut self, times_max: usize) {
        let mut times_left = times_max;
        while let Some(ask @ Ask::Local { times, .. }) = self.said.front().copied()
            && times_left > 0
        {
            ask.answer_local(&mut self.answers);
            (self.done, times_left) = (self.done + 1, times_left - 1);
            if self.done == times as usize {
                self.said.pop_front();
                self.done = 0;
            }
        }
    }
}

/// A core that is watched.
#[derive(Debug)]
pub(super) struct Machine {
    pub(super) core: StrictCore,
    beside: Beside,
    /// Taken from the core, and not told.
    notices: VecDeque<Notice>,
    lines: BTreeMap<ConnId, Line>,
    pub(super) executed: u64,
    pub(super) pairs: Box<Pairs>,
    /// What was found wrong first.
    pub(super) breach: Option<Breach>,
}

impl Machine {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            core: strict::in_log(Config::new(limits, UNIX_S_AT_START)),
            beside: Beside::new(limits, false),
            notices: VecDeque::new(),
            lines: BTreeMap::new(),
            executed: 0,
            pairs: Box::default(),
            breach: None,
        }
    }

    /// A client says something.
    pub(super) fn say(&mut self, conn: ConnId, ask: Ask) {
        self.line(conn).said.push_back(ask);
    }

    /// How many of its requests have not been executed in full.
    pub(super) fn owed(&self, conn: ConnId) -> usize {
        self.lines.get(&conn).map_or(0, |line| line.said.len())
    }

    /// How many commands of its have been executed.
    pub(super) fn executed_for(&self, conn: ConnId) -> u64 {
        self.lines.get(&conn).map_or(0, |line| line.executed)
    }

    /// Whether its request waits, as far as the core knows.
    pub(super) fn waits(&self, conn: ConnId) -> bool {
        let line = self.lines.get(&conn);
        line.is_some_and(|line| line.waiting == Waiting::Yes)
    }

    /// Whether the core was told of its end.
    pub(super) fn has_ended(&self, conn: ConnId) -> bool {
        self.lines.get(&conn).is_some_and(|line| line.has_ended)
    }

    /// A client reads this (E1).
    pub(super) fn read(&mut self, conn: ConnId, bytes: &[u8]) -> Result<(), Breach> {
        let line = self.line(conn);
        while line.answers.len() - line.read < bytes.len() {
            let known = line.answers.len();
            line.answer_locals(1);
            if line.answers.len() == known {
                break;
            }
        }
        let expected = &line.answers[line.read..];
        let wrong = bytes.iter().zip(expected).position(|(a, b)| a != b);
        let wrong = wrong.or((bytes.len() > expected.len()).then_some(expected.len()));
        if let Some(at) = wrong {
            let shown = |bytes: &[u8]| bytes[at..].iter().copied().take(60).collect::<Vec<_>>();
            let what = format!(
                "{conn} reads {:?} where {:?} was to come; it has said {:?} next",
                shown(bytes).escape_ascii().to_string(),
                shown(expected).escape_ascii().to_string(),
                line.said.front(),
            );
            return Err(Breach { rule: "E1", what });
        }
        line.read += bytes.len();
        if line.read > READ_BYTES_MAX {
            line.answers.drain(..line.read);
            line.read = 0;
        }
        Ok(())
    }

    /// What a client was not told that has read all there was; `None` if nothing.
    pub(super) fn unanswered(&mut self, conn: ConnId) -> Option<String> {
        let line = self.line(conn);
        let unread = line.answers.len() - line.read;
        let first = line.said.front().filter(|ask| **ask != Ask::Quit);
        (unread > 0 || first.is_some()).then(|| {
            let of_first = line.done;
            format!("{conn} was not told {unread} bytes, and of {first:?} has {of_first}")
        })
    }

    /// Whether anything that it has said and was not answered may wait.
    pub(super) fn may_wait(&self, conn: ConnId) -> bool {
        let line = self.lines.get(&conn);
        line.is_some_and(|line| line.said.iter().any(Ask::may_wait))
    }

    /// A client has gone, and reads nothing more.
    pub(super) fn forget(&mut self, conn: ConnId) {
        self.lines.remove(&conn);
    }

    fn line(&mut self, conn: ConnId) -> &mut Line {
        self.lines.entry(conn).or_default()
    }

    fn break_rule(&mut self, rule: &'static str, what: String) {
        self.breach.get_or_insert(Breach { rule, what });
    }

    /// Looks at everything that the core has (E7).
    pub(super) fn look_inside(&mut self) -> Result<(), Breach> {
        // Of what came from no client.
        self.breach.take().map_or(Ok(()), Err)?;
        self.core.check();
        let items = (0..KEYS).map(item);
        let locks = (0..LOCKS_MAX).map(lock);
        for name in items.chain(locks) {
            let key = Key::new(name.as_bytes()).expect("names are keys");
            self.beside.compare_items(&self.core, iter::once(key))?;
        }
        Ok(())
    }

    /// How many commands the oracle has judged.
    pub(super) const fn judged(&self) -> u64 {
        self.beside.judged().all
    }

    /// E7.
    fn compare(&mut self, now: Instant, input: &Input<'_>, answer: Option<&Answer>) {
        let Self { core, beside, .. } = self;
        let compared = beside.compare(core, now.as_millis(), input, answer);
        let breach = match compared.and_then(|()| beside.take_notices(core)) {
            Ok(told) => {
                self.notices.extend(told);
                return;
            }
            Err(breach) => breach,
        };
        self.breach.get_or_insert(breach);
    }

    /// Something that has no reply.
    fn enter(&mut self, now: Instant, input: Input<'_>) {
        input.enter(&mut self.core, now);
        self.compare(now, &input, None);
    }
}

impl StateMachine for Machine {
    fn handle(&mut self, now: Instant, event: Event) {
        if let Event::Closed(conn) = event
            && let Some(line) = self.lines.get_mut(&conn)
        {
            line.has_ended = true;
        }
        self.enter(now, Input::Event(event));
    }

    fn execute(
        &mut self,
        now: Instant,
        conn: ConnId,
        command: Command<'_>,
        answer: &mut dyn FnMut(&Reply<'_>),
    ) {
        self.executed += 1;
        let Self { lines, core, .. } = self;
        let line = lines.entry(conn).or_default();
        line.executed += 1;
        line.answer_locals(usize::MAX);
        let waiting = std::mem::take(&mut line.waiting);
        let (place, ask) = (line.done, line.said.front().copied());
        let is_said = |ask: &Ask| ask.is_said(place, waiting == Waiting::Over, &command);
        let ask = ask.filter(is_said);
        let reply = core.execute(now, conn, command);
        self.pairs.note_command(&command, &reply);
        let wrong = match &ask {
            _ if waiting == Waiting::Yes => {
                Some(("E4", format!("{conn} waits, and {command:?} is executed")))
            }
            None => {
                let first = line.said.front();
                let what = format!(
                    "{conn} has said {first:?} ({place} done, {waiting:?}), not {command:?}"
                );
                Some(("E1", what))
            }
            Some(ask) => ask
                .answer(place, &reply, &mut line.answers)
                .err()
                .map(|what| ("E1", what)),
        };
        if let Reply::Waits = reply {
            line.waiting = Waiting::Yes;
        } else if let Some(ask) = ask {
            line.done += 1;
            if line.done == ask.commands() {
                line.said.pop_front();
                line.done = 0;
            }
        }
        answer(&reply);
        let answered = Answer::of(&command, &reply);
        drop(reply);
        self.compare(now, &Input::Command(conn, command), Some(&answered));
        if let Some((rule, what)) = wrong {
            self.break_rule(rule, what);
        }
    }

    fn pass(&mut self, now: Instant) {
        self.enter(now, Input::Due);
    }

    fn next_notice(&mut self) -> Option<Notice> {
        let notice = self.notices.pop_front()?;
        self.pairs.note_outcome(notice.outcome);
        if let Some(line) = self.lines.get_mut(&notice.conn) {
            line.waiting = Waiting::Over;
        }
        Some(notice)
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.core.next_deadline()
    }
}
