//! The thread of the election: it carries transactions to the authority, and does what the election says.
//!
//! [`Election`] decides, without I/O and without a clock; the file has no rule of its own about terms. Each request to
//! an endpoint of the authority has a thread, because it blocks. A transaction goes to all endpoints at once. The server is
//! a [`Host`].
//!
//! - Y1: The thread waits for nothing but notices and the next moment of the election. The server reads the file of `-e` on
//!   a thread of its own.
//! - Y2: The serving lease ([`crate::serving_lease`]) is set after every step of the election, and begins only when the items of
//!   the process before are there.
//! - Y3: An endpoint that does not answer holds up neither another endpoint nor the next request to itself. At most
//!   [`LANES_MAX`](crate::endpoints::LANES_MAX) requests are under way at an endpoint; another one is not sent there.
//! - Y4: A request without an answer is logged, for each endpoint and kind of failure at most once in [`SILENCE`].

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use latchd_protocol::time::saturating_millis;
use smol::channel::{Receiver, Sender};
use smol::future::FutureExt;

use crate::election::{
    ANSWER_MS, Action, Election, End, Found, HEARTBEAT_MS, Id, Moment, News, PartitionRecord,
    Process, RingRecord, State, Term, partition_key,
};
use crate::endpoints::{Endpoints, Request};
use crate::etcd::{AuthorityError, Etcd};
use crate::host::{Host, SpawnThread};
use crate::member::{Member, Notice, Role};
use crate::partitions::{Partitions, Primary};
use crate::serving_lease::boot_time;
use crate::settings::ClusterSettings;

/// The interval of the requests for the ring before it is read.
const RING_INTERVAL: Duration = Duration::from_secs(1);

/// The time without an answer after which the start counts as done, and the process stands by.
const UNDECIDED_MAX: Duration = Duration::from_secs(3);

/// The interval of the requests for the addresses of the primaries.
const PRIMARIES_INTERVAL: Duration = Duration::from_secs(2);

/// The interval in which at most one failure of a kind is logged for an endpoint (Y4).
const SILENCE: Duration = Duration::from_secs(10);

/// The time for the last log line of a process whose term is over, in milliseconds.
const LAST_WORDS_MS: u64 = 100;

/// The most time for the record to say `free` after the process has closed: for the answer to the transaction under way,
/// for that to its own, and for a late poll. Only the next primary waits for it, and without it for T.
const FREE_MAX: Duration = Duration::from_millis(2 * ANSWER_MS + HEARTBEAT_MS);

/// The reason why a process can take no part in its cluster any more.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Over {
    /// Its term is over: the process must end with this code at once, and serves nothing until then.
    Ended {
        /// The exit code, 75.
        exit_code: u8,
    },
    /// The ring does not fit its settings: a message for the operator.
    Refused(String),
}

/// The means of the thread.
#[derive(Debug)]
pub(crate) struct Candidate {
    pub(crate) host: Box<dyn Host>,
    pub(crate) spawn_thread: SpawnThread,
    pub(crate) member: Arc<Member>,
    pub(crate) settings: ClusterSettings,
    pub(crate) process: Process,
    /// The id that the state directory had.
    pub(crate) predecessor: Option<Id>,
    pub(crate) notices: Receiver<Notice>,
    pub(crate) over: Sender<Over>,
    /// Dropped once the ring has accepted the process or refused it, or nothing was heard for [`UNDECIDED_MAX`].
    pub(crate) undecided: Option<Sender<()>>,
    /// Whether the serving lease may begin: the items of the process before are there.
    pub(crate) is_ready: bool,
    /// The primary of each partition, in the order of the ring, as last read.
    pub(crate) primaries: Vec<Option<Primary>>,
}

impl Candidate {
    /// Takes part until the process closes or its term is over.
    pub(crate) fn run(mut self, etcd: &Etcd) {
        let mut endpoints =
            match Endpoints::start(etcd, &self.settings, &self.member, self.spawn_thread) {
                Ok(endpoints) => endpoints,
                Err(error) => return self.refuse(&error.to_string()),
            };
        let Some((ring, revision)) = self.read_ring(&mut endpoints) else {
            return;
        };
        let election = Election::new(self.process.clone(), ring.timing(), self.predecessor);
        let checks = self.settings.check_keys;
        if let Some(partitions) = Partitions::new(ring, revision, &self.settings.partition, checks)
        {
            self.member.set_partitions(partitions);
            self.tell_servers();
        }
        self.undecided = None;
        self.take_part(election, &mut endpoints);
    }

    /// Reads the ring and its revision, however long that takes. `None`: the process is to stop, or the ring is refused.
    ///
    /// It hears every endpoint that answers, so that endpoints of different etcd clusters are found at the start.
    fn read_ring(&mut self, endpoints: &mut Endpoints) -> Option<(RingRecord, u64)> {
        let (mut ring, begun) = (None, Instant::now());
        while ring.is_none() {
            if begun.elapsed() >= UNDECIDED_MAX {
                self.undecided = None;
            }
            endpoints.send(&Request::Ring);
            let until = Instant::now() + RING_INTERVAL;
            let mut unheard = endpoints.count();
            while (unheard > 0 || ring.is_none())
                && let Some(notice) = self.next(until)
            {
                match notice {
                    Notice::Ring(found) => {
                        unheard = unheard.saturating_sub(1);
                        ring.get_or_insert(found);
                    }
                    Notice::Failed { endpoint, error } => {
                        unheard = unheard.saturating_sub(1);
                        if let AuthorityError::OtherCluster { .. } = error {
                            let url = &self.settings.authority.endpoints[endpoint];
                            self.refuse(&format!("--authority {url}: {error}"));
                            return None;
                        }
                        self.note_failed(endpoints, endpoint, &error);
                    }
                    Notice::Leave | Notice::Closed => return None,
                    Notice::Answered { .. }
                    | Notice::Partitions(_)
                    | Notice::Confirmed
                    | Notice::Restored => {}
                }
            }
        }
        let found = ring.flatten();
        match self
            .settings
            .ring(found.as_ref().map(|found| &*found.value))
        {
            Ok(ring) => Some((ring, found.map_or(0, |found| found.revision))),
            Err(why) => {
                self.refuse(&why);
                None
            }
        }
    }

    fn take_part(&mut self, mut election: Election, endpoints: &mut Endpoints) {
        let (mut closes_at, mut gives_up) = (None, None);
        let mut primaries_at = Instant::now();
        loop {
            for (worker, round) in self.member.rounds().enumerate() {
                election.worker_answered(worker, round);
            }
            let action = election.poll(Moment {
                now: boot_time(),
                unix_ms: unix_ms(),
                numbers: self.member.numbers(),
            });
            self.set_gate(&election);
            let until = match action {
                Action::Send {
                    number,
                    transaction,
                } => {
                    endpoints.send(&Request::Transaction(number, transaction));
                    continue;
                }
                Action::AskWorkers { round } => {
                    self.member.ask(round);
                    self.host.ask_workers(round);
                    continue;
                }
                Action::Tell(News::Over(end)) => return self.end(end),
                Action::Tell(news) => {
                    self.follow(news);
                    continue;
                }
                Action::Wait { until } => until,
            };
            if Instant::now() >= primaries_at {
                primaries_at = Instant::now() + PRIMARIES_INTERVAL;
                endpoints.send(&Request::Partitions);
            }
            if closes_at.is_some_and(|at| Instant::now() >= at) {
                closes_at = None;
                election.closed();
                gives_up = Some(Instant::now() + FREE_MAX);
                continue;
            }
            let mut until = until.map_or(primaries_at, |at| primaries_at.min(on_this_clock(at)));
            for at in [closes_at, gives_up].into_iter().flatten() {
                until = until.min(at);
            }
            if gives_up.is_some_and(|at| Instant::now() >= at) {
                return tracing::warn!(
                    "the record was not released in time: a standby waits for the end of the hold"
                );
            }
            let Some(notice) = self.next(until) else {
                continue;
            };
            match notice {
                Notice::Answered { number, answer } => {
                    election.answer(boot_time(), number, answer);
                }
                Notice::Failed { endpoint, error } => self.note_failed(endpoints, endpoint, &error),
                Notice::Partitions(found) => self.note_primaries(&found),
                Notice::Restored => self.begin(),
                Notice::Leave => {
                    self.set_role(Role::Leaving);
                    election.leave();
                }
                Notice::Closed => {
                    self.is_ready = false;
                    // M4 of the serving lease.
                    closes_at = Some(Instant::now() + self.member.serving_lease().until_promised());
                }
                Notice::Ring(_) | Notice::Confirmed => {}
            }
        }
    }

    /// Sets the moments of the hold (Y2).
    fn set_gate(&self, election: &Election) {
        let serves_until = election.serves_until().filter(|_| self.is_ready);
        self.member
            .serving_lease()
            .set(serves_until, election.ends_at());
    }

    /// The next notice; `None` at that moment.
    fn next(&self, until: Instant) -> Option<Notice> {
        let later = async {
            smol::Timer::at(until).await;
            None
        };
        smol::block_on(async { self.notices.recv().await.ok() }.or(later))
    }

    /// Does what a change of the role needs.
    fn follow(&mut self, news: News) {
        let partition = &self.settings.partition;
        match news {
            News::Stands(record) => {
                self.set_role(Role::Standby);
                let seen = record.map_or("no primary is recorded".into(), |record| {
                    let PartitionRecord { address, term, .. } = &*record;
                    format!("primary {address}, term {term}, {}", record.state.word())
                });
                tracing::info!(event = "standby", "standing by for {partition}: {seen}");
            }
            News::Unreadable(error) => tracing::error!(
                event = "record_unreadable",
                "the record of {partition} in the authority cannot be read, so no process can claim it: {error}"
            ),
            News::Serves(term) => self.serve(term),
            News::Suspended { round } => {
                self.set_role(Role::Suspended);
                tracing::warn!(
                    event = "suspended",
                    "not serving {partition}: the authority has not answered in time; closing the connections with \
                     locks, waits, wins and sessions"
                );
                self.member.ask(round);
                self.host.suspend(round);
            }
            News::Resumed => {
                self.member.view().resumed += 1;
                self.set_role(Role::Primary);
                tracing::warn!(
                    event = "resumed",
                    "serving {partition} again, in the same term"
                );
            }
            News::Over(_) => {}
        }
    }

    /// Begins a term: numbers above all earlier ones (E10), and the items of the process before if it has left them.
    fn serve(&mut self, term: Term) {
        let partition = &self.settings.partition;
        tracing::warn!(
            event = "primary",
            "serving {partition}: term {}",
            term.number
        );
        self.member.begin_term(self.process.id, term.number);
        let withheld_ms = term.grants_from.map_or(0, |at| {
            at.as_millis().saturating_sub(boot_time().as_millis())
        });
        let withheld = Duration::from_millis(withheld_ms);
        if self.host.begin_term(term, withheld) {
            self.begin();
        }
    }

    /// The items are there: clients are let in.
    fn begin(&mut self) {
        self.is_ready = true;
        self.set_role(Role::Primary);
        self.host.listen();
    }

    fn set_role(&self, role: Role) {
        self.member.view().role = role;
    }

    /// The process serves no more, and ends unless it has left.
    fn end(&self, end: End) {
        self.set_role(Role::Over);
        let partition = &self.settings.partition;
        match end {
            End::Left => {
                if self.member.term().is_some() {
                    tracing::info!(event = "left", "{partition} is free for another process");
                }
                return self.member.serving_lease().set(None, None);
            }
            End::Lost => tracing::error!(
                event = "lost",
                "{partition} has another primary, or its record was removed: this process ends"
            ),
            End::Stuck => tracing::error!(
                event = "stuck",
                "a thread did not confirm the end of the hold of {partition}: this process ends"
            ),
        }
        let last = latchd_protocol::Instant::from_millis(boot_time().as_millis() + LAST_WORDS_MS);
        self.member.serving_lease().set(None, Some(last));
        let exit_code = end.exit_code();
        let _ = self.over.try_send(Over::Ended { exit_code });
    }

    fn refuse(&mut self, why: &str) {
        self.set_role(Role::Over);
        let _ = self.over.try_send(Over::Refused(why.to_owned()));
        self.undecided = None;
    }

    /// Counts a request without an answer, and logs it (Y4).
    fn note_failed(&self, endpoints: &mut Endpoints, endpoint: usize, error: &AuthorityError) {
        self.member.view().unanswered += 1;
        if endpoints.note_failed(endpoint, error, SILENCE) {
            let url = &self.settings.authority.endpoints[endpoint];
            tracing::warn!(event = "authority_unanswered", "--authority {url}: {error}");
        }
    }

    /// Keeps the primaries of all partitions, for clients that follow the cluster.
    fn note_primaries(&mut self, found: &[(String, Found)]) {
        let Some(partitions) = self.member.partitions() else {
            return;
        };
        let primary = |name: &str| {
            let key = partition_key(&self.settings.cluster, name)?;
            let (_, found) = found.iter().find(|(known, _)| *known == key)?;
            let record = PartitionRecord::parse(&found.value).ok()?;
            let PartitionRecord { term, address, .. } = record;
            (record.state != State::Vacant).then_some(Primary { term, address })
        };
        let primaries: Vec<_> = partitions.all().map(|(name, _)| primary(name)).collect();
        if primaries != self.primaries {
            self.primaries = primaries;
            self.tell_servers();
        }
    }

    /// Sets the text for clients.
    fn tell_servers(&self) {
        if let Some(partitions) = self.member.partitions() {
            let text = partitions.config(&self.primaries);
            self.member.set_servers(text.into());
        }
    }
}

/// Milliseconds since 1970, by the wall clock. A time before counts as 1970.
fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    saturating_millis(since.unwrap_or_default())
}

/// The moment of `CLOCK_BOOTTIME` on the clock of this process. If the machine sleeps, the thread wakes later.
fn on_this_clock(at: latchd_protocol::Instant) -> Instant {
    let left = at.as_millis().saturating_sub(boot_time().as_millis());
    Instant::now() + Duration::from_millis(left.min(10 * HEARTBEAT_MS))
}
