//! The core, the oracle beside it, and what the clients have said and are to be answered.

use std::collections::{BTreeMap, VecDeque};
use std::iter;

use latchd_core::command::Command;
use latchd_core::engine::{Config, Core, Event};
use latchd_core::key::Key;
use latchd_core::reply::Reply;
use latchd_core::server::StateMachine;
use latchd_core::store::LogStore;
use latchd_core::wait::{Notice, Outcome};
use latchd_core::{ConnId, Instant};
use latchd_harness::alphabet::{Input, Pairs, UNIX_S_AT_START};
use latchd_harness::lockstep::steps;
use latchd_harness::oracle::{Oracle, OwnedReply};
use latchd_harness::strict::Strict;

use super::ask::{Ask, Verb};
use super::{Coarse, Setting, name};
use crate::simulation::auditor::Breach;
use crate::simulation::follow::Follow;

/// What is known of the requests of one connection, on their way through the core.
#[derive(Debug, Default)]
struct Line {
    /// Said, and not executed.
    said: VecDeque<Ask>,
    /// Executed, and waits.
    waits: Option<Ask>,
    /// Executed, and to be read by the client.
    answered: VecDeque<(Ask, OwnedReply)>,
}

/// A core that is watched.
#[derive(Debug)]
pub(super) struct Machine {
    pub(super) core: Core<Strict<LogStore<Coarse>>>,
    oracle: Oracle,
    follow: Follow,
    is_great: bool,
    lines: BTreeMap<ConnId, Line>,
    notices: VecDeque<Notice>,
    pub(super) executed: u64,
    /// How many waits have ended in which way.
    pub(super) settled: u64,
    pub(super) pairs: Box<Pairs>,
    /// What was found wrong first.
    pub(super) breach: Option<Breach>,
    name: Vec<u8>,
    value: Vec<u8>,
}

impl Machine {
    pub(super) fn new(setting: &Setting) -> Self {
        let config = Config::new(setting.limits, UNIX_S_AT_START);
        let store = LogStore::with_hasher(&setting.limits, setting.hasher);
        let mut machine = Self {
            core: Core::with_store(config, Strict::new(store)),
            oracle: Oracle::new(setting.limits, UNIX_S_AT_START),
            follow: Follow::default(),
            is_great: setting.is_great,
            lines: BTreeMap::new(),
            notices: VecDeque::new(),
            executed: 0,
            settled: 0,
            pairs: Box::default(),
            breach: None,
            name: Vec::new(),
            value: value(),
        };
        machine.enter(setting.now_ms, Input::Due);
        machine
    }

    /// A client has written a request.
    pub(super) fn say(&mut self, conn: ConnId, ask: Ask) {
        self.lines.entry(conn).or_default().said.push_back(ask);
    }

    /// What the client is to read next, if its answer is out.
    pub(super) fn next_answer(&mut self, conn: ConnId) -> Option<(Ask, OwnedReply)> {
        self.lines.get_mut(&conn)?.answered.pop_front()
    }

    /// How many requests have no answer yet.
    pub(super) fn owed(&self, conn: ConnId) -> usize {
        self.lines.get(&conn).map_or(0, |line| line.said.len())
    }

    pub(super) fn break_rule(&mut self, rule: &'static str, what: String) {
        self.breach.get_or_insert(Breach { rule, what });
    }

    /// Something that has no reply.
    fn enter(&mut self, now_ms: u64, input: Input<'_>) {
        input.enter(&mut self.core, Instant::from_millis(now_ms));
        self.oracle.enter(now_ms, &input);
        self.compare_notices();
        self.compare_counted(&input);
    }

    /// C2.
    fn compare_notices(&mut self) {
        let by_conn = |notice: &Notice| notice.conn;
        let mut due = self.oracle.take_notices();
        due.sort_by_key(by_conn);
        let mut told: Vec<Notice> = iter::from_fn(|| self.core.next_notice()).collect();
        told.sort_by_key(by_conn);
        if told != due {
            let what = format!("the oracle has told {due:?}, the core {told:?}");
            self.break_rule("C2", what);
        }
        for notice in &told {
            self.pairs.note_outcome(notice.outcome);
            self.settled += 1;
        }
        self.notices.extend(told);
        let (next, due) = (self.core.next_deadline(), self.oracle.next_deadline_ms());
        if next.map(Instant::as_millis) != due {
            self.break_rule("C2", format!("{due:?} ms is the next moment, not {next:?}"));
        }
    }

    /// C2: of what has gone. In a great crowd it would have to be looked for among too many.
    fn compare_counted(&mut self, input: &Input<'_>) {
        if self.is_great {
            return;
        }
        let Self { core, oracle, .. } = self;
        if let Err(what) = self.follow.compare(core, oracle, input, false) {
            self.break_rule("C2", what);
        }
    }

    /// Who waits for the lock that a command is about, as the oracle and the core know it.
    fn lines_for(&self, command: &Command<'_>) -> String {
        let Some(key) = command.key() else {
            return String::new();
        };
        let due: Vec<_> = self.oracle.queue(key.as_bytes()).collect();
        let queue: Vec<_> = self.core.waits().queue(key).collect();
        format!("{due:?} wait, and {queue:?}")
    }

    /// C1: which request this is.
    fn recognise(&mut self, conn: ConnId, command: &Command<'_>) -> Option<Ask> {
        let line = self.lines.entry(conn).or_default();
        let waited = line.waits.take();
        let ask = waited.or_else(|| line.said.pop_front())?;
        name(ask.key, self.is_great, &mut self.name);
        let key = Key::new(&self.name).expect("names are keys");
        let said = match waited {
            Some(ask) => ask.without_wait(),
            None => ask,
        };
        let meant = said.command(key, &self.value);
        (meant == *command).then_some(ask)
    }
}

/// Bytes that values are the beginning of: a number, that can be counted.
pub(super) fn value() -> Vec<u8> {
    vec![b'7'; 600]
}

impl StateMachine for Machine {
    fn handle(&mut self, now: Instant, event: Event) {
        if let Event::Closed(conn) = event {
            self.lines.remove(&conn);
        }
        self.enter(now.as_millis(), Input::Event(event));
    }

    fn execute(
        &mut self,
        now: Instant,
        conn: ConnId,
        command: Command<'_>,
        answer: &mut dyn FnMut(&Reply<'_>),
    ) {
        self.executed += 1;
        let line = self.lines.get(&conn);
        let has_waited = line.is_some_and(|line| line.waits.is_some());
        let ask = self.recognise(conn, &command);
        let input = Input::Command(conn, command);
        let expected = self.oracle.enter(now.as_millis(), &input);
        let reply = self.core.execute(now, conn, command);
        if has_waited {
            self.pairs.note_waited(&command, &reply);
        } else {
            self.pairs.note_command(&command, &reply);
        }
        let told = OwnedReply::of(&reply, steps(&command).len());
        answer(&reply);
        drop(reply);
        if expected.as_ref() != Some(&told) {
            let what = format!(
                "{command:?} at {} ms: the oracle said {expected:?}, the core {told:?}; {}",
                now.as_millis(),
                self.lines_for(&command)
            );
            self.break_rule("C2", what);
        }
        match ask {
            None => self.break_rule("C1", format!("{conn} has not said {command:?}")),
            Some(ask) => {
                let line = self.lines.entry(conn).or_default();
                if told == OwnedReply::Waits {
                    line.waits = Some(ask);
                } else {
                    line.answered.push_back((ask, told));
                }
            }
        }
        self.compare_notices();
        self.compare_counted(&input);
    }

    fn pass(&mut self, now: Instant) {
        self.enter(now.as_millis(), Input::Due);
    }

    fn next_notice(&mut self) -> Option<Notice> {
        let notice = self.notices.pop_front()?;
        if let Some(line) = self.lines.get_mut(&notice.conn)
            && notice.outcome == Outcome::NotFound
            && let Some(ask) = line.waits.take()
        {
            // Nobody need be asked again.
            let answer = if matches!(ask.verb, Verb::Get(_)) {
                OwnedReply::Miss
            } else {
                OwnedReply::NotFound
            };
            line.answered.push_back((ask, answer));
        }
        Some(notice)
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.core.next_deadline()
    }
}
