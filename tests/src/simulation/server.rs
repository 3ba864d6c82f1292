//! The server's side: the core behind the door through which connections reach it, the oracle beside
//! it where there is one, and the faults that can be planted there.

use latchd_core::arbitrary::Pairs;
use latchd_core::command::{Delete, SetMode, TtlSteps};
use latchd_core::connection::Execute;
use latchd_core::engine::Config;
use latchd_core::item::Cas;
use latchd_core::reply::{Reply, Stored, Win};
use latchd_core::{Command, ConnId, Core, Event, Instant, Limits, Refusal};

#[cfg(feature = "seeded-bugs")]
use latchd_core::engine::SeededBug;

use crate::oracle::{Answer, Oracle};

/// Where the wall clock stands at the monotonic 0: November 2023.
const UNIX_S_AT_START: u64 = 1_700_000_000;

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
    /// The core itself gets a rule wrong.
    #[cfg(feature = "seeded-bugs")]
    Rule(SeededBug),
}

impl Fault {
    /// All that can be planted at the door of the core.
    pub const ALL: [Self; 12] = [
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
    ];

    /// All rules that the core can get wrong. Not that shards share their versions: there is one
    /// core here.
    #[cfg(feature = "seeded-bugs")]
    pub const RULES: [SeededBug; 40] = [
        SeededBug::CloseKeepsLocks,
        SeededBug::ReleaseAllStopsAtFirst,
        SeededBug::UnlockByAnother,
        SeededBug::RelockSucceeds,
        SeededBug::LockIsStolen,
        SeededBug::DeadTakesLock,
        SeededBug::LocksUnbounded,
        SeededBug::LockAndGetForgetsLock,
        SeededBug::ReadsBlocked,
        SeededBug::SetIgnoresLock,
        SeededBug::DeleteIgnoresLock,
        SeededBug::CountIgnoresLock,
        SeededBug::TooLargeIgnoresLock,
        SeededBug::RauIgnoresOwner,
        SeededBug::RauKeepsLock,
        SeededBug::RauUnlocksWhenRefused,
        SeededBug::DeleteLeavesLock,
        SeededBug::EvictsHeld,
        SeededBug::ExpiresHeld,
        SeededBug::FlushDropsHeld,
        SeededBug::FlushForgetsHeld,
        SeededBug::StoreStaysDoomed,
        SeededBug::FlushIgnoresDelay,
        SeededBug::NothingExpires,
        SeededBug::TimeGoesBack,
        SeededBug::VivifiedWonTwice,
        SeededBug::ShortWonTwice,
        SeededBug::StaleWonTwice,
        SeededBug::StoreKeepsWin,
        SeededBug::PlainGetTakesWin,
        SeededBug::MarkKeepsWin,
        SeededBug::MarkKeepsVersion,
        SeededBug::ClearOpensWin,
        SeededBug::StaleStoreLooksFresh,
        SeededBug::StaleStoreOpensWin,
        SeededBug::StaleStoreTakesTtl,
        SeededBug::FutureStored,
        SeededBug::GuardIgnored,
        SeededBug::RefusalTakesVersion,
        SeededBug::VersionGivenTwice,
    ];

    /// The fault with this name; `None` if there is none.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let faults = Self::ALL.into_iter();
        #[cfg(feature = "seeded-bugs")]
        let faults = faults.chain(Self::RULES.into_iter().map(Self::Rule));
        let is_named = |fault: &Self| {
            let full = format!("{fault:?}");
            let rule = full
                .strip_prefix("Rule(")
                .and_then(|rule| rule.strip_suffix(')'));
            full == name || rule == Some(name)
        };
        faults.into_iter().find(is_named)
    }
}

/// A core that clients reach.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) core: Core,
    oracle: Option<Oracle>,
    fault: Option<Fault>,
    /// Commands that were executed.
    pub(super) executed: u64,
    /// Which kinds of command got which kinds of reply; `None` while one is executed.
    pub(super) pairs: Option<Box<Pairs>>,
    /// Where the core and the oracle parted, if they did.
    pub(super) difference: Option<String>,
}

impl Server {
    pub(super) fn new(limits: Limits, with_oracle: bool, fault: Option<Fault>) -> Self {
        #[cfg_attr(not(feature = "seeded-bugs"), expect(unused_mut))]
        let mut config = Config::new(limits, UNIX_S_AT_START);
        #[cfg(feature = "seeded-bugs")]
        if let Some(Fault::Rule(bug)) = fault {
            config.seeded_bug = Some(bug);
        }
        Self {
            core: Core::new(config),
            oracle: with_oracle.then(|| Oracle::new(limits, UNIX_S_AT_START)),
            fault,
            executed: 0,
            pairs: Some(Box::default()),
            difference: None,
        }
    }

    /// An event that has no reply.
    pub(super) fn handle(&mut self, now_ms: u64, event: Event<'_>) {
        if let (Some(Fault::LosesClose), Event::Closed(_)) = (self.fault, event) {
            return;
        }
        self.core.handle(self.instant(now_ms), event);
        if let Some(oracle) = &mut self.oracle {
            oracle.handle(now_ms, &event);
        }
    }

    /// The core as a connection reaches it.
    pub(super) const fn door(&mut self, now_ms: u64, conn: ConnId) -> Door<'_> {
        Door {
            server: self,
            now_ms,
            conn,
        }
    }

    const fn instant(&self, now_ms: u64) -> Instant {
        match self.fault {
            Some(Fault::StopsTime) => Instant::from_millis(0),
            _ => Instant::from_millis(now_ms),
        }
    }

    fn compare(&mut self, now_ms: u64, conn: ConnId, command: &Command<'_>, answer: &Answer) {
        let Some(oracle) = &mut self.oracle else {
            return;
        };
        let expected = oracle.handle(now_ms, &Event::Received(conn, *command));
        if expected.as_ref() != Some(answer) && self.difference.is_none() {
            self.difference = Some(format!(
                "{command:?}: the oracle expected {expected:?}, the core answered {answer:?}"
            ));
        }
    }
}

/// What a connection hands its commands to.
#[derive(Debug)]
pub(super) struct Door<'a> {
    server: &'a mut Server,
    now_ms: u64,
    conn: ConnId,
}

impl Execute for Door<'_> {
    fn execute(&mut self, command: Command<'_>, answer: &mut dyn FnMut(&Reply<'_>)) {
        self.server.executed += 1;
        // Out of the server while the core is at work, which has it as well.
        let mut pairs = self.server.pairs.take();
        self.execute_and_compare(command, &mut |reply| {
            if let Some(pairs) = &mut pairs {
                pairs.note_command(&command, reply);
            }
            answer(reply);
        });
        self.server.pairs = pairs;
    }
}

impl Door<'_> {
    fn execute_and_compare(&mut self, command: Command<'_>, answer: &mut dyn FnMut(&Reply<'_>)) {
        if self.server.oracle.is_some() {
            let mut answered = None;
            self.execute_one(command, &mut |reply| {
                answered = Some(Answer::of(reply, steps(&command)));
                answer(reply);
            });
            if let Some(answered) = answered {
                self.server
                    .compare(self.now_ms, self.conn, &command, &answered);
            }
        } else {
            self.execute_one(command, answer);
        }
    }
}

fn steps(command: &Command<'_>) -> usize {
    let steps: &TtlSteps = match command {
        Command::Get(get) => &get.steps,
        Command::Arithmetic(arithmetic) => &arithmetic.steps,
        _ => return 0,
    };
    steps.len()
}

impl Door<'_> {
    fn execute_one(&mut self, command: Command<'_>, answer: &mut dyn FnMut(&Reply<'_>)) {
        match self.server.fault {
            #[cfg(feature = "seeded-bugs")]
            Some(Fault::Rule(_)) => {
                let now = Instant::from_millis(self.now_ms);
                self.server.core.at(now, self.conn).execute(command, answer);
            }
            None => {
                let now = Instant::from_millis(self.now_ms);
                self.server.core.at(now, self.conn).execute(command, answer);
            }
            Some(fault) => self.execute_wrongly(fault, command, answer),
        }
    }

    fn execute_wrongly(
        &mut self,
        fault: Fault,
        command: Command<'_>,
        answer: &mut dyn FnMut(&Reply<'_>),
    ) {
        let server = &mut *self.server;
        let now = server.instant(self.now_ms);
        let falls = server.executed.is_multiple_of(FAULT_EVERY);
        let mut conn = self.conn;
        match (fault, command) {
            (Fault::KeepsLocks, Command::UnlockAll) => return answer(&Reply::Unlocked),
            (Fault::LosesFlush, Command::FlushAll { .. }) => return answer(&Reply::Ok),
            (Fault::LosesStore, Command::Set(set)) if falls && set.mode == SetMode::Set => {
                let cas = Cas::new(u64::MAX / 2 + server.executed).expect("not 0");
                let size = set.value.len();
                return answer(&Reply::Stored(Stored { cas, size }));
            }
            (
                Fault::ForgetsOwner,
                Command::Set(_) | Command::Delete(_) | Command::Arithmetic(_),
            ) => {
                let owner = command.key().and_then(|key| server.core.locks().owner(key));
                conn = owner.unwrap_or(conn);
            }
            (Fault::LosesHeld, _) if falls => {
                let held = server.core.locks().iter().next();
                let held = held.map(|(key, holding)| (key.as_bytes().to_vec(), holding.owner));
                if let Some((key, owner)) = held {
                    let key = latchd_core::Key::new(&key).expect("it was made from a key");
                    let delete = Command::Delete(Delete::new(key));
                    server.core.at(now, owner).execute(delete, &mut |_| {});
                }
            }
            _ => {}
        }
        server
            .core
            .at(now, conn)
            .execute(command, &mut |reply| match (fault, command, reply) {
                (Fault::GrantsTwice, Command::Lock { .. }, Reply::Refused(Refusal::Locked)) => {
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
            });
    }
}
