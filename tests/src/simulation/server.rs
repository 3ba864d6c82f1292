//! What the server is before: the core, the oracle beside it where there is one, and the faults
//! that can be planted there.
//!
//! It knows what the client has written that asks: what its connection has understood must be just
//! that (N5).

use std::collections::VecDeque;
use std::rc::Rc;

use latchd_core::command::{Command, Delete, GlobalCommand, ItemCommand, ScanCursor, SetMode};
use latchd_core::engine::{Config, Event};
use latchd_core::item::Cas;
use latchd_core::reply::{Refusal, Reply, Stored, Win};
use latchd_core::server::StateMachine;
use latchd_core::time::Exptime;
use latchd_core::{ConnId, Instant, Limits};
use latchd_harness::alphabet::{Input, Pairs, UNIX_S_AT_START};
use latchd_harness::strict::{self, StrictCore};

use super::ask::{Ask, What};
use super::auditor::Breach;
use super::beside::{Answer, Beside};
use super::names::Names;
use super::workload::intent::{Intent, intended};

/// How many commands are executed for one on which an occasional fault falls.
const FAULT_EVERY: u64 = 97;

/// What can be made wrong, to see that the simulation finds it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fault {
    /// The core is not told that a connection has ended.
    LosesClose,
    /// A lock that is held is given to a second client, too.
    GrantsTwice,
    /// `unlock_all` is answered and not done.
    KeepsLocks,
    /// A change is let through whoever holds the key.
    ForgetsOwner,
    /// Now and then a held item is gone.
    LosesHeld,
    /// `flush_all` is answered and not done.
    LosesFlush,
    /// Time does not pass for the core.
    StopsTime,
    /// Who is to wait for the winner is told to have won.
    WinsTwice,
    /// Now and then an item shows a version that is past.
    RepeatsCas,
    /// Now and then a request is not answered.
    SwallowsAnswer,
    /// Now and then a request is answered twice.
    AnswersTwice,
    /// Now and then a store is answered and not done.
    LosesStore,
    /// Now and then a store is understood to be for ever.
    MishearsExptime,
}

impl Fault {
    /// All that can be planted before the core.
    pub const ALL: [Self; 13] = [
        Self::LosesClose,
        Self::GrantsTwice,
        Self::KeepsLocks,
        Self::ForgetsOwner,
        Self::LosesHeld,
        Self::LosesFlush,
        Self::StopsTime,
        Self::WinsTwice,
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

/// A core that is watched: asked for nothing but what clients have said.
#[derive(Debug)]
pub(super) struct WatchedCore {
    pub(super) core: StrictCore,
    /// Who says what it should answer.
    pub(super) beside: Option<Beside>,
    fault: Option<Fault>,
    /// Commands that were executed.
    pub(super) executed: u64,
    /// Which kinds of command got which kinds of reply; `None` while one is executed.
    pub(super) pairs: Option<Box<Pairs>>,
    /// What was found wrong first: N5, or where the core and the oracle parted.
    pub(super) breach: Option<Breach>,
    /// What the client whose bytes are looked at has written and is not answered, in order.
    pub(super) asks: VecDeque<Ask>,
    /// The one of them whose command came last.
    pub(super) at: usize,
    names: Rc<Names>,
    /// Room for a value.
    value: Vec<u8>,
}

impl WatchedCore {
    pub(super) fn new(
        limits: Limits,
        beside: Option<Beside>,
        fault: Option<Fault>,
        names: Rc<Names>,
    ) -> Self {
        Self {
            core: strict::in_log(Config::new(limits, UNIX_S_AT_START)),
            beside,
            fault,
            executed: 0,
            pairs: Some(Box::default()),
            breach: None,
            asks: VecDeque::new(),
            at: 0,
            names,
            value: Vec::new(),
        }
    }

    /// Something whose reply, if it has one, no client waits for.
    pub(super) fn enter(&mut self, now_ms: u64, input: Input<'_>) {
        if let (Some(Fault::LosesClose), Input::Event(Event::Closed(_))) = (self.fault, input) {
            return;
        }
        let now = self.instant(now_ms);
        let reply = input.enter(&mut self.core, now);
        let answer = input
            .command()
            .zip(reply)
            .map(|(command, reply)| Answer::of(command, &reply));
        self.compare(now_ms, &input, answer.as_ref());
    }

    /// The time that the core is told.
    const fn instant(&self, now_ms: u64) -> Instant {
        match self.fault {
            Some(Fault::StopsTime) => Instant::from_millis(0),
            _ => Instant::from_millis(now_ms),
        }
    }

    fn compare(&mut self, now_ms: u64, input: &Input<'_>, answer: Option<&Answer>) {
        let Some(beside) = &mut self.beside else {
            return;
        };
        let compared = beside.compare(&self.core, now_ms, input, answer);
        self.breach = self.breach.take().or(compared.err());
    }
}

impl StateMachine for WatchedCore {
    fn handle(&mut self, now: Instant, event: Event) {
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
        let command = self.heard(command);
        self.compare_with_said(&command);
        let now_ms = now.as_millis();
        // Out of here while the core is at work.
        let mut pairs = self.pairs.take();
        let mut answered = None;
        let is_judged = self.beside.is_some();
        self.execute_one(now_ms, conn, command, &mut |reply| {
            if let Some(pairs) = &mut pairs {
                pairs.note_command(&command, reply);
            }
            answered = is_judged.then(|| Answer::of(&command, reply));
            answer(reply);
        });
        self.pairs = pairs;
        // One whose answer was lost by a fault is not seen by the oracle, either.
        if answered.is_some() {
            let input = Input::Command(conn, command);
            self.compare(now_ms, &input, answered.as_ref());
        }
    }
}

impl WatchedCore {
    /// The command as it is understood: as it came, unless the fault is that it is not.
    fn heard<'a>(&self, mut command: Command<'a>) -> Command<'a> {
        let is_misheard = self.fault == Some(Fault::MishearsExptime);
        if let Command::Item(ItemCommand::Set(set)) = &mut command
            && is_misheard
            && self.executed.is_multiple_of(FAULT_EVERY)
        {
            set.exptime = Exptime::Never;
        }
        command
    }

    /// N5.
    fn compare_with_said(&mut self, command: &Command<'_>) {
        let asks = self.asks.iter_mut().enumerate().skip(self.at);
        let mut waiting = asks.filter_map(|(at, ask)| Some((at, next_place(ask, command)?, ask)));
        let said = waiting.next().map(|(at, place, ask)| {
            self.at = at;
            ask.executed = ask.executed.saturating_add(1);
            let intended = intended(ask, place, &self.names, &mut self.value);
            (intended, &*ask)
        });
        let is_right = match &said {
            Some((Intent::Command(intended), _)) => is_same(intended, command),
            Some((Intent::Unread | Intent::Nothing, _)) | None => false,
        };
        if !is_right && self.breach.is_none() {
            let asked = said.map_or("nothing".to_owned(), |(_, ask)| ask.to_string());
            self.breach = Some(Breach {
                rule: "N5",
                what: format!("the client said {asked}, and the core is asked {command:?}"),
            });
        }
    }
}

/// For which of its keys `ask` is still to reach the core, if it is; `command` is what came next.
fn next_place(ask: &Ask, command: &Command<'_>) -> Option<usize> {
    let place = usize::from(ask.executed);
    if ask.what == What::Keys {
        // A listing comes page by page.
        let goes_on = matches!(
            command,
            Command::Global(GlobalCommand::Keys(keys)) if keys.cursor != ScanCursor::default()
        );
        return (place == 0 || goes_on).then_some(0);
    }
    (place < usize::from(ask.key_count) && ask.reaches_core()).then_some(place)
}

/// Where a page of a listing begins is the server's to say.
fn is_same(intended: &Command<'_>, command: &Command<'_>) -> bool {
    match (intended, command) {
        (
            Command::Global(GlobalCommand::Keys(intended)),
            Command::Global(GlobalCommand::Keys(keys)),
        ) => intended.prefix == keys.prefix,
        _ => intended == command,
    }
}

impl WatchedCore {
    fn execute_one(
        &mut self,
        now_ms: u64,
        conn: ConnId,
        command: Command<'_>,
        answer: &mut dyn FnMut(&Reply<'_>),
    ) {
        match self.fault {
            None => {
                answer(&self.core.execute(self.instant(now_ms), conn, command));
            }
            Some(fault) => self.execute_wrongly(fault, now_ms, conn, command, answer),
        }
    }

    fn execute_wrongly(
        &mut self,
        fault: Fault,
        now_ms: u64,
        mut conn: ConnId,
        command: Command<'_>,
        answer: &mut dyn FnMut(&Reply<'_>),
    ) {
        let now = self.instant(now_ms);
        let falls = self.executed.is_multiple_of(FAULT_EVERY);
        match (fault, command) {
            (Fault::KeepsLocks, Command::Global(GlobalCommand::UnlockAll)) => {
                return answer(&Reply::Unlocked);
            }
            (Fault::LosesFlush, Command::Global(GlobalCommand::FlushAll { .. })) => {
                return answer(&Reply::Ok);
            }
            (Fault::LosesStore, Command::Item(ItemCommand::Set(set)))
                if falls && set.mode == SetMode::Set =>
            {
                let cas = Cas::new(u64::MAX / 2 + self.executed).expect("not 0");
                let size = set.value.len();
                return answer(&Reply::Stored(Stored { cas, size }));
            }
            (
                Fault::ForgetsOwner,
                Command::Item(
                    ItemCommand::Set(_) | ItemCommand::Delete(_) | ItemCommand::Arithmetic(_),
                ),
            ) => {
                let owner = command.key().and_then(|key| self.core.locks().owner(key));
                conn = owner.unwrap_or(conn);
            }
            (Fault::LosesHeld, _) if falls => {
                let mut locks = self.core.locks().iter();
                let held = locks
                    .find(|(_, holding)| !holding.is_over)
                    .map(|(key, holding)| (key.as_bytes().to_vec(), holding.owner));
                drop(locks);
                if let Some((key, owner)) = held {
                    let key = latchd_core::key::Key::new(&key).expect("it was made from a key");
                    let delete = Command::from(Delete::new(key));
                    self.core.execute(now, owner, delete);
                }
            }
            _ => {}
        }
        let reply = &self.core.execute(now, conn, command);
        match (fault, command, reply) {
            (
                Fault::GrantsTwice,
                Command::Item(ItemCommand::Lock { .. }),
                Reply::Refused(Refusal::Locked),
            ) => {
                answer(&Reply::Locked);
            }
            (Fault::WinsTwice, _, Reply::Hit(hit)) if hit.win == Win::Sent => {
                let mut hit = *hit;
                hit.win = Win::Won;
                answer(&Reply::Hit(hit));
            }
            (Fault::RepeatsCas, _, Reply::Hit(hit)) if falls => {
                let mut hit = *hit;
                hit.cas = Cas::new(hit.cas.number() - 1).unwrap_or(hit.cas);
                answer(&Reply::Hit(hit));
            }
            (Fault::SwallowsAnswer, _, _) if falls => {}
            (Fault::AnswersTwice, _, _) if falls => {
                answer(reply);
                answer(reply);
            }
            _ => answer(reply),
        }
    }
}
