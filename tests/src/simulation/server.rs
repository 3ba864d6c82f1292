//! The server behind the connections: the core, the oracle beside it, and the faults that can be
//! planted there.
//!
//! It keeps the unanswered requests of each client. A connection must have understood exactly these
//! (N5), and must send exactly the core's replies, as the wire has them (N1).

use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::rc::Rc;

use latchd_core::engine::{Config, Core, Event, Notification};
use latchd_core::server::StateMachine;
use latchd_core::store::{LogStore, Store as _};
use latchd_core::{ConnId, Instant, Owner};
use latchd_harness::alphabet::{Input, Pairs, Told, UNIX_S_AT_START, pressure_keys};
use latchd_protocol::command::{Command, GlobalCommand, ItemCommand, ScanCursor};
use latchd_protocol::connection::Progress;
use latchd_protocol::item::Cas;
use latchd_protocol::reply::{Refusal, Reply, Stored};
use latchd_protocol::time::Exptime;
use latchd_protocol::wait::{Notice, Outcome};

use super::Breach;
use super::ask::{Ask, What};
use super::beside::{Answer, Beside};
use super::names::Names;
use super::setting::{Coarse, Kind, Setting};
use super::tally::Tally;
use super::workload::intent::{intended, written};

/// An occasional fault falls on one of this many commands.
const FAULT_EVERY: u64 = 97;

/// Faults that can be planted, to see that the simulation finds them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fault {
    /// The end of a connection does not reach the core.
    LosesClose,
    /// A lock that is held is granted to a second client, too.
    GrantsTwice,
    /// Now and then an item shows an old version.
    RepeatsCas,
    /// Now and then a request gets no answer.
    SwallowsAnswer,
    /// Now and then a request gets two answers.
    AnswersTwice,
    /// Now and then a store is answered and not done.
    LosesStore,
    /// Now and then a store never expires.
    MishearsExptime,
}

impl Fault {
    /// All that can be planted before the core.
    pub const ALL: [Self; 7] = [
        Self::LosesClose,
        Self::GrantsTwice,
        Self::RepeatsCas,
        Self::SwallowsAnswer,
        Self::AnswersTwice,
        Self::LosesStore,
        Self::MishearsExptime,
    ];

    /// The fault with this name; `None` if there is none.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|fault| format!("{fault:?}") == name)
    }
}

/// The progress of the last executed request.
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

/// The state of one connection.
#[derive(Debug, Default)]
struct Line {
    /// Requests without a complete answer, in order.
    said: VecDeque<Ask>,
    /// How many commands of the first have been executed.
    done: usize,
    waiting: Waiting,
    /// The bytes for its client; it has read those before `read`.
    answers: Vec<u8>,
    read: usize,
    /// How many commands of it were executed.
    executed: u64,
    /// Its end has reached the core.
    has_ended: bool,
    /// The key of the last lock that it was granted.
    granted: Option<usize>,
    /// The end of the last answered request, in bytes that its client has written.
    answered_to: u64,
}

/// The number of read bytes that stay before the answers until they are dropped.
const READ_BYTES_MAX: usize = 1 << 16;

impl Line {
    /// The next bytes for its client.
    fn due(&self) -> &[u8] {
        &self.answers[self.read..]
    }

    /// Answers the first request if the core does not see it; `None` if the core does, or there is
    /// none.
    fn answer_local(&mut self) -> Option<Ask> {
        let first = self.said.front().filter(|ask| !ask.reaches_core())?;
        first.answer_local(&mut self.answers);
        self.said.pop_front()
    }
}

/// A core that is watched: it gets only requests that clients have sent.
#[derive(Debug)]
pub(super) struct Machine {
    pub(super) core: Core<LogStore<Coarse>>,
    /// Predicts the core's answers.
    pub(super) beside: Beside,
    fault: Option<Fault>,
    notices: VecDeque<Notice>,
    /// Commands that were executed.
    pub(super) executed: u64,
    pub(super) heard: Heard,
}

/// The requests of the clients, and their answers.
#[derive(Debug)]
pub(super) struct Heard {
    /// Requests may wait.
    waits: bool,
    lines: BTreeMap<ConnId, Line>,
    /// By key, the numbers that the clients were told.
    told: Vec<Told>,
    pub(super) tally: Tally,
    /// Which kinds of command got which kinds of reply.
    pub(super) pairs: Box<Pairs>,
    /// The first breach: N5, or where the core and the oracle parted.
    pub(super) breach: Option<Breach>,
    names: Rc<Names>,
    /// Room for a value.
    value: Vec<u8>,
}

impl Machine {
    pub(super) fn new(setting: &Setting, fault: Option<Fault>, names: Rc<Names>) -> Self {
        let Setting { kind, limits, .. } = *setting;
        let store = LogStore::with_hasher(&limits, setting.hasher);
        let config = Config::new(limits, UNIX_S_AT_START);
        Self {
            core: Core::with_store(config, store),
            beside: Beside::new(limits, !setting.is_ample, kind != Kind::Great),
            fault,
            notices: VecDeque::new(),
            executed: 0,
            heard: Heard {
                waits: kind.waits(),
                lines: BTreeMap::new(),
                told: vec![Told::NOTHING; setting.keys],
                tally: Tally::default(),
                pairs: Box::default(),
                breach: None,
                names,
                value: Vec::new(),
            },
        }
    }

    /// Whether a connection holds the lock of a key.
    pub(super) fn holds(&self, conn: ConnId, key: usize) -> bool {
        self.core.locks().owner(self.heard.names.key(key)) == Some(conn.into())
    }

    /// N4: checks the whole core; in a great seed that takes too long.
    pub(super) fn look_inside(&mut self) -> Result<(), Breach> {
        // Of a request that came from no client.
        self.heard.breach.take().map_or(Ok(()), Err)?;
        let Self { core, beside, .. } = self;
        core.check();
        let (bytes, bytes_max) = (core.store().usage().bytes, core.limits().memory_bytes_max);
        if bytes > bytes_max {
            let what = format!("{bytes} bytes of items are kept");
            return Err(Breach { rule: "N4", what });
        }
        if beside.follows() {
            beside.compare_items(core, self.heard.names.keys())?;
            beside.compare_items(core, pressure_keys())?;
        }
        Ok(())
    }

    /// Enters an input; no client waits for its reply, if it has one.
    pub(super) fn enter(&mut self, now_ms: u64, input: Input<'_>) {
        let is_lost = self.fault == Some(Fault::LosesClose)
            && matches!(input, Input::Event(Event::Closed(_)));
        let mut answer = None;
        if !is_lost {
            let reply = input.enter(&mut self.core, Instant::from_millis(now_ms));
            answer = input
                .command()
                .zip(reply)
                .map(|(command, reply)| Answer::of(command, &reply));
        }
        self.compare(now_ms, &input, answer.as_ref());
    }

    /// Compares the core with the oracle, and takes its notices about ended waits.
    fn compare(&mut self, now_ms: u64, input: &Input<'_>, answer: Option<&Answer>) {
        let Self { core, beside, .. } = self;
        let compared = beside.compare(core, now_ms, input, answer);
        match compared.and_then(|()| beside.take_notices(core)) {
            Ok(told) => self.notices.extend(told),
            Err(breach) => self.heard.note(breach),
        }
    }
}

impl Heard {
    /// A client has written a request.
    pub(super) fn say(&mut self, conn: ConnId, ask: Ask) {
        self.lines.entry(conn).or_default().said.push_back(ask);
    }

    /// How many requests have no answer yet.
    pub(super) fn owed(&self, conn: ConnId) -> usize {
        self.lines.get(&conn).map_or(0, |line| line.said.len())
    }

    /// Whether its request waits.
    pub(super) fn waits(&self, conn: ConnId) -> bool {
        let line = self.lines.get(&conn);
        line.is_some_and(|line| line.waiting == Waiting::Yes)
    }

    /// How many commands of a connection were executed, and whether its end has reached the core.
    pub(super) fn executed_for(&self, conn: ConnId) -> (u64, bool) {
        let line = self.lines.get(&conn);
        line.map_or((0, false), |line| (line.executed, line.has_ended))
    }

    /// Whether an unanswered request may wait.
    pub(super) fn may_wait(&self, conn: ConnId) -> bool {
        let line = self.lines.get(&conn);
        line.is_some_and(|line| line.said.iter().any(Ask::may_wait))
    }

    /// The missing answer of a client that has read all its bytes; `None` if nothing.
    pub(super) fn unanswered(&self, conn: ConnId) -> Option<String> {
        let line = self.lines.get(&conn)?;
        let unread = line.due().len();
        let first = line.said.front().filter(|ask| ask.what != What::Quit);
        (unread > 0 || first.is_some()).then(|| {
            let done = line.done;
            format!("{conn} was not told {unread} bytes, and of {first:?} has {done}")
        })
    }

    /// Ends a connection, once all its bytes are sent.
    pub(super) fn forget(&mut self, conn: ConnId) {
        self.lines.remove(&conn);
    }

    /// The numbers that the clients were told about a key.
    pub(super) fn told(&self, key: usize) -> Told {
        self.told[key]
    }

    /// The key of the last lock that a connection was granted.
    pub(super) fn last_granted(&self, conn: ConnId) -> Option<usize> {
        self.lines.get(&conn)?.granted
    }

    fn note(&mut self, breach: Breach) {
        self.breach.get_or_insert(breach);
    }

    /// A client reads this (N1): the core's replies, and replies to requests that the core does not
    /// see.
    ///
    /// # Errors
    /// It is not that.
    pub(super) fn read(&mut self, conn: ConnId, bytes: &[u8]) -> Result<(), Breach> {
        let line = self.lines.entry(conn).or_default();
        while line.due().len() < bytes.len() && line.answer_local().is_some() {}
        if line.due().starts_with(bytes) {
            line.read += bytes.len();
            if line.read == line.answers.len() || line.read > READ_BYTES_MAX {
                line.answers.drain(..line.read);
                line.read = 0;
            }
            return Ok(());
        }
        let (bytes, due, first) = (shown(bytes), shown(line.due()), line.said.front());
        let what =
            format!("{conn} reads {bytes}, and is to read {due}; it has said {first:?} next");
        Err(Breach { rule: "N1", what })
    }

    /// The server has sent `sent`, all its bytes, and is as far as `progress` says. `progress` also
    /// says how many of the client's bytes have arrived (N1).
    ///
    /// # Errors
    /// The bytes are not the core's replies, or not all of them.
    pub(super) fn send(
        &mut self,
        conn: ConnId,
        sent: &[u8],
        progress: Progress,
        arrived: u64,
    ) -> Result<(), Breach> {
        let line = self.lines.entry(conn).or_default();
        let closes = progress == Progress::Close;
        let is_done =
            |ask: &Ask| matches!(progress, Progress::NeedsInput { .. }) && ask.end <= arrived;
        let mut ends = false;
        // A request that the core does not see is answered when its turn comes: the sent bytes show
        // that, or the end of all requests.
        while !ends
            && let Some(first) = line.said.front().copied()
            && (line.due().len() < sent.len() || closes || is_done(&first))
            && line.answer_local().is_some()
        {
            ends = first.ends_connection();
        }
        self.read(conn, sent)?;
        let line = self.lines.entry(conn).or_default();
        // The reply to a value that is too large comes behind its last byte.
        let is_late = line.answered_to > arrived;
        let what = if !line.due().is_empty() && progress != Progress::OutputFull && !is_late {
            format!("{conn} is not sent {}", shown(line.due()))
        } else if closes != ends {
            format!("{conn} is closed: {closes}, and has asked for that: {ends}")
        } else if let Some(first) = line.said.front().filter(|first| is_done(first)) {
            format!("no answer, or half of one, to {first}")
        } else {
            return Ok(());
        };
        Err(Breach { rule: "N1", what })
    }

    /// N5: which request of the connection `command` is, and for which of its keys; `None` if it
    /// has sent another.
    fn recognise(&mut self, conn: ConnId, command: &Command<'_>) -> Option<Said> {
        let line = self.lines.entry(conn).or_default();
        line.executed += 1;
        while line.answer_local().is_some() {}
        let waiting = mem::take(&mut line.waiting);
        let first = line.said.front().copied();
        let found = first.and_then(|ask| {
            let place = if ask.what == What::Keys { 0 } else { line.done };
            let meant = written(&ask, place, &self.names, &mut self.value)?;
            let meant = intended(&ask, meant);
            let has_waited = waiting == Waiting::Over;
            let meant = if has_waited || !self.waits {
                meant.without_wait()
            } else {
                meant
            };
            let is_it = waiting != Waiting::Yes && is_same(&meant, command, line.done);
            is_it.then_some(Said {
                conn,
                ask,
                place,
                has_waited,
            })
        });
        if found.is_none() {
            let first = first.map(|ask| ask.to_string());
            let what = format!("{conn} has said {first:?} ({waiting:?}), and asked is {command:?}");
            self.note(Breach { rule: "N5", what });
        }
        found
    }

    /// A request is answered: notes the bytes for its client, and the numbers that the clients
    /// learn.
    fn answer(&mut self, said: &Said, reply: &Reply<'_>) {
        let Said {
            conn, ask, place, ..
        } = said;
        let Some(line) = self.lines.get_mut(conn) else {
            return;
        };
        let command = written(ask, *place, &self.names, &mut self.value);
        let command = command.expect("the core has heard it");
        let answer = ask.answer(*place, &command, reply, &mut line.answers);
        let key = ask.key(*place);
        if command.key().is_some() {
            self.told[key].learn(reply);
        }
        let is_last = match reply {
            Reply::Keys(page) => page.next.is_none(),
            _ => place + 1 == ask.key_count,
        };
        match reply {
            Reply::Waits => line.waiting = Waiting::Yes,
            _ if is_last => {
                line.answered_to = ask.end;
                line.done = 0;
                line.said.pop_front();
            }
            _ => line.done += 1,
        }
        if let Reply::Granted(_) = reply {
            line.granted = Some(key);
        }
        self.tally.note(reply);
        if let Err(what) = answer {
            self.note(Breach { rule: "N1", what });
        }
    }

    /// A wait is over, in one of the ways after which its request is executed, or in one of those that answer it.
    fn settle(&mut self, notice: Notice) {
        self.pairs.note_outcome(notice.outcome);
        self.tally.settled += 1;
        let conn = conn_of(notice.owner);
        let Some(line) = self.lines.get_mut(&conn) else {
            return;
        };
        let first = line.said.front().copied();
        let reply = match (notice.outcome, first.map(|ask| ask.what)) {
            (Outcome::Granted | Outcome::TimedOut, _) => {
                line.waiting = Waiting::Over;
                return;
            }
            (Outcome::NotFound, Some(What::Get)) => Reply::Miss,
            (Outcome::NotFound, _) => Reply::NotFound,
            (Outcome::TooManyLocks, _) => Reply::Refused(Refusal::TooManyLocks),
        };
        line.waiting = Waiting::No;
        if let Some(ask) = first {
            let said = Said {
                conn,
                ask,
                place: 0,
                has_waited: true,
            };
            self.answer(&said, &reply);
        }
    }
}

/// A request to the core, for one of its keys.
#[derive(Clone, Copy, Debug)]
struct Said {
    conn: ConnId,
    ask: Ask,
    place: usize,
    has_waited: bool,
}

/// The beginning of bytes, for a person to read.
fn shown(bytes: &[u8]) -> String {
    bytes[..bytes.len().min(200)].escape_ascii().to_string()
}

/// The server decides where a page of a listing begins; `pages` of it have been shown.
fn is_same(meant: &Command<'_>, command: &Command<'_>, pages: usize) -> bool {
    match (meant, command) {
        (
            Command::Global(GlobalCommand::Keys(meant)),
            Command::Global(GlobalCommand::Keys(keys)),
        ) => {
            let is_first = keys.cursor == ScanCursor::default();
            meant.prefix == keys.prefix && is_first == (pages == 0)
        }
        _ => meant == command,
    }
}

/// The connection that an owner is: there are no others here.
const fn conn_of(owner: Owner) -> ConnId {
    ConnId::from_number(owner.number())
}

impl StateMachine for Machine {
    fn handle(&mut self, now: Instant, event: Event) {
        if let Event::Closed(owner) = event
            && let Some(line) = self.heard.lines.get_mut(&conn_of(owner))
        {
            line.has_ended = true;
        }
        self.enter(now.as_millis(), Input::Event(event));
    }

    fn execute(
        &mut self,
        now: Instant,
        owner: Owner,
        command: &Command<'_>,
        answer: &mut dyn FnMut(&Reply<'_>),
    ) {
        self.executed += 1;
        let falls = self.executed.is_multiple_of(FAULT_EVERY);
        let fault = self.fault.filter(|_| falls);
        let command = heard_wrongly(fault, *command);
        let said = self.heard.recognise(conn_of(owner), &command);
        let Self { core, heard, .. } = self;
        let reply = match command {
            Command::Item(ItemCommand::Set(set)) if fault == Some(Fault::LosesStore) => {
                let cas = Cas::new(u64::MAX / 2 + self.executed).expect("not 0");
                let size = set.value.len();
                Reply::Stored(Stored { cas, size })
            }
            _ => core.execute(now, owner, &command),
        };
        if said.is_some_and(|said| said.has_waited) {
            heard.pairs.note_waited(&command, &reply);
        } else {
            heard.pairs.note_command(&command, &reply);
        }
        if let Some(said) = &said {
            heard.answer(said, &reply);
        }
        let twice = self.fault.filter(|fault| *fault == Fault::GrantsTwice);
        answer_wrongly(fault.or(twice), &reply, answer);
        let answered = Answer::of(&command, &reply);
        drop(reply);
        let input = Input::Command(owner, command);
        self.compare(now.as_millis(), &input, Some(&answered));
    }

    fn poll(&mut self) -> Option<Notification> {
        let notice = self.notices.pop_front()?;
        self.heard.settle(notice);
        Some(Notification::WaitOver(notice))
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.core.next_deadline()
    }
}

/// The command as it is executed: as it came, unless the fault changes it.
const fn heard_wrongly(fault: Option<Fault>, mut command: Command<'_>) -> Command<'_> {
    if let (Some(Fault::MishearsExptime), Command::Item(ItemCommand::Set(set))) =
        (fault, &mut command)
    {
        set.exptime = Exptime::Never;
    }
    command
}

/// Passes the reply on, unless the fault changes, drops or repeats it.
fn answer_wrongly(fault: Option<Fault>, reply: &Reply<'_>, answer: &mut dyn FnMut(&Reply<'_>)) {
    match (fault, reply) {
        (Some(Fault::GrantsTwice), Reply::Refused(Refusal::Locked)) => answer(&Reply::Locked),
        (Some(Fault::RepeatsCas), Reply::Hit(hit)) => {
            let mut hit = *hit;
            hit.cas = Cas::new(hit.cas.number() - 1).unwrap_or(hit.cas);
            answer(&Reply::Hit(hit));
        }
        (Some(Fault::SwallowsAnswer), _) => {}
        (Some(Fault::AnswersTwice), _) => {
            answer(reply);
            answer(reply);
        }
        _ => answer(reply),
    }
}
