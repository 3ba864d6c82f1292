//! The part of this process in a cluster, as all its threads share it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use latchd_protocol::command::Command;
use latchd_protocol::stats::StatsLine;
use latchd_protocol::time::{promise_ms, saturating_millis};
use smol::channel::{Receiver, Sender, bounded};

use crate::answer_times::AnswerTimes;
use crate::election::{Answer, Found, HEARTBEAT_MS, Id};
use crate::etcd::AuthorityError;
use crate::partitions::Partitions;
use crate::serving_lease::ServingLease;
use crate::settings::ClusterSettings;

/// The most notices that wait for the thread of the election: several times the number that can be under way.
const NOTICES_MAX: usize = 1024;

/// The interval in which a process that leaves looks whether it still serves.
const LOOK: Duration = Duration::from_millis(10);

/// The round of a worker that has ended: it has answered every round.
const EVERY_ROUND: u64 = u64::MAX;

/// A message to the thread of the election.
#[derive(Debug)]
pub(crate) enum Notice {
    /// The authority has answered a transaction.
    Answered {
        /// The number of the transaction.
        number: u64,
        /// The answer.
        answer: Answer,
    },
    /// The authority has shown the record of the ring.
    Ring(Option<Found>),
    /// The authority has shown the records of all partitions, with their keys.
    Partitions(Vec<(String, Found)>),
    /// An endpoint gave no answer, and why.
    Failed {
        /// The place of the endpoint in `--authority`.
        endpoint: usize,
        /// The reason.
        error: AuthorityError,
    },
    /// A thread has answered a round.
    Confirmed,
    /// The items of the process before have been stored.
    Restored,
    /// The process is to stop.
    Leave,
    /// Nothing is open or unsaved.
    Closed,
}

/// The role of the process.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum Role {
    /// It has not read the ring yet.
    #[default]
    Starting,
    /// It stands by.
    Standby,
    /// It is the primary.
    Primary,
    /// It is the primary, and must not serve until the authority answers.
    Suspended,
    /// It is the primary, and closes.
    Leaving,
    /// It will not serve any more.
    Over,
}

impl Role {
    /// The name in `stats`, metrics and logs.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Standby => "standby",
            Self::Primary => "primary",
            Self::Suspended => "suspended",
            Self::Leaving => "leaving",
            Self::Over => "over",
        }
    }
}

/// The state of the election and of the cluster, for people.
#[derive(Clone, Debug, Default)]
pub(crate) struct View {
    /// The role.
    pub(crate) role: Role,
    /// The term of this process; 0 before it has one.
    pub(crate) term: u64,
    /// The terms that began to be suspended and went on.
    pub(crate) resumed: u64,
    /// The text of `config get cluster`, once the ring is read.
    pub(crate) servers: Option<Arc<str>>,
    /// The requests to the authority without an answer.
    pub(crate) unanswered: u64,
    /// The requests with one.
    pub(crate) answers: AnswerTimes,
}

/// The part of this process in a cluster.
#[derive(Debug)]
pub struct Member {
    /// The names of the cluster and of the partition, and the address that the process advertises.
    names: [String; 3],
    serving_lease: Arc<ServingLease>,
    /// The last round that each worker has answered, and last the clock.
    answered: Box<[AtomicU64]>,
    /// The last round asked.
    asked: AtomicU64,
    /// The highest fence or CAS number at the last tick.
    numbers: AtomicU64,
    notices: Sender<Notice>,
    /// The id of the process, and its term once it has one.
    term: OnceLock<(Id, u64)>,
    partitions: OnceLock<Partitions>,
    view: Mutex<View>,
}

impl Member {
    /// The part of a process with so many workers, and the receiver of its notices.
    pub(crate) fn new(
        settings: &ClusterSettings,
        workers: usize,
        address: &str,
    ) -> (Self, Receiver<Notice>) {
        let (notices, received) = bounded(NOTICES_MAX);
        let member = Self {
            names: [&settings.cluster, &settings.partition, address].map(str::to_owned),
            serving_lease: Arc::new(ServingLease::new()),
            answered: (0..=workers).map(|_| AtomicU64::new(0)).collect(),
            asked: AtomicU64::new(0),
            numbers: AtomicU64::new(0),
            notices,
            term: OnceLock::new(),
            partitions: OnceLock::new(),
            view: Mutex::default(),
        };
        (member, received)
    }

    /// Whether the process may serve at this moment (E2).
    #[inline]
    #[must_use]
    pub fn serves(&self) -> bool {
        self.serving_lease.is_open()
    }

    /// The moments of the hold.
    #[must_use]
    pub const fn serving_lease(&self) -> &Arc<ServingLease> {
        &self.serving_lease
    }

    /// Announces that the process is to stop. A primary serves on until every standby looks for the end (E7), and
    /// until no client relies on it any more.
    pub fn leave(&self) {
        let left = self
            .serving_lease
            .leave(Duration::from_millis(HEARTBEAT_MS));
        // Without a receiver, the election is over.
        let _ = self.notices.send_blocking(Notice::Leave);
        let ends_at = Instant::now() + left;
        while self.serving_lease.is_open() && Instant::now() < ends_at {
            std::thread::sleep(LOOK.min(ends_at.saturating_duration_since(Instant::now())));
        }
    }

    /// Nothing is open or unsaved any more: the partition is free.
    pub(crate) fn close(&self) {
        let _ = self.notices.send_blocking(Notice::Closed);
    }

    /// A sender of notices.
    pub(crate) fn notices(&self) -> Sender<Notice> {
        self.notices.clone()
    }

    /// The workers are asked a round; the clock reads it at its next tick.
    pub(crate) fn ask(&self, round: u64) {
        self.asked.store(round, Ordering::SeqCst);
    }

    /// A worker answers a round.
    pub fn confirm(&self, worker: usize, round: u64) {
        if let Some(answered) = self.answered.get(worker) {
            answered.fetch_max(round, Ordering::SeqCst);
            // If the channel is full, the election looks soon.
            let _ = self.notices.try_send(Notice::Confirmed);
        }
    }

    /// The clock has ticked, and the highest number given is this.
    pub fn note_tick(&self, numbers: u64) {
        self.numbers.fetch_max(numbers, Ordering::SeqCst);
        let (clock, asked) = (self.answered.len() - 1, self.asked.load(Ordering::SeqCst));
        if self.round_of(clock) < asked {
            self.confirm(clock, asked);
        }
    }

    /// All workers and the clock have ended: they count as having answered.
    pub fn note_ended(&self) {
        for worker in 0..self.answered.len() {
            self.confirm(worker, EVERY_ROUND);
        }
    }

    /// The items of the process before are restored, or there are none: [`Host::begin_term`](crate::Host::begin_term) is
    /// complete.
    pub fn note_restored(&self) {
        // Without a receiver, the process ends.
        let _ = self.notices.send_blocking(Notice::Restored);
    }

    /// The last round that each thread has answered: the workers in their order, then the clock.
    pub fn rounds(&self) -> impl Iterator<Item = u64> {
        (0..self.answered.len()).map(|worker| self.round_of(worker))
    }

    fn round_of(&self, worker: usize) -> u64 {
        self.answered[worker].load(Ordering::SeqCst)
    }

    /// The highest fence or CAS number at the last tick.
    pub(crate) fn numbers(&self) -> u64 {
        self.numbers.load(Ordering::SeqCst)
    }

    /// The process with this id begins its term, its only one (E6).
    pub(crate) fn begin_term(&self, id: Id, term: u64) {
        self.view().term = term;
        let _ = self.term.set((id, term));
    }

    /// The id of the process and its term; `None` before it.
    #[must_use]
    pub fn term(&self) -> Option<(Id, u64)> {
        self.term.get().copied()
    }

    /// The ring is read.
    pub(crate) fn set_partitions(&self, partitions: Partitions) {
        let _ = self.partitions.set(partitions);
    }

    /// The partitions, once the ring is read.
    pub(crate) fn partitions(&self) -> Option<&Partitions> {
        self.partitions.get()
    }

    /// The name of the partition that has the key of this command, if the check covers it and it is another one (M5).
    #[inline]
    #[must_use]
    pub fn other_partition(&self, command: &Command<'_>) -> Option<&str> {
        self.partitions()?.other(command)
    }

    /// The time for which no other process can serve, by the clock of a client that relies on it (E13).
    #[must_use]
    pub fn promise_ms(&self) -> u64 {
        promise_ms(saturating_millis(self.serving_lease.promise()))
    }

    /// Sets the text of `config get cluster`.
    pub fn set_servers(&self, text: Arc<str>) {
        self.view().servers = Some(text);
    }

    /// The text of `config get cluster`; `None` before the ring is read.
    #[must_use]
    pub fn servers(&self) -> Option<Arc<str>> {
        self.view().servers.clone()
    }

    /// The times of the answers of the authority.
    #[must_use]
    pub fn answers(&self) -> AnswerTimes {
        self.view().answers
    }

    /// The lines of `stats cluster`.
    #[must_use]
    pub fn lines(&self) -> Vec<StatsLine> {
        let [cluster, partition, address] = &self.names;
        let role = self.view().role;
        let mut lines = vec![
            StatsLine::new("cluster", cluster),
            StatsLine::new("partition", partition),
            StatsLine::new("address", address),
            StatsLine::new("role", role.name()),
        ];
        lines.extend(self.number_lines());
        // The client needs whole names for its ring; those of `config get cluster` have no ports.
        let ring = self.partitions().into_iter().flat_map(Partitions::all);
        lines.extend(ring.map(|(name, weight)| StatsLine::new(format!("ring:{name}"), weight)));
        lines
    }

    /// The lines of `stats` and of `stats cluster` with numbers.
    #[must_use]
    pub fn number_lines(&self) -> [StatsLine; 7] {
        let hold_ms = self.serving_lease.left().as_millis();
        let view = self.view();
        [
            StatsLine::new("cluster_primary", u8::from(hold_ms > 0)),
            StatsLine::new("cluster_term", view.term),
            StatsLine::new("cluster_hold_ms", hold_ms),
            StatsLine::new("cluster_resumed", view.resumed),
            StatsLine::new("cluster_unanswered", view.unanswered),
            StatsLine::new("cluster_answered", view.answers.count()),
            StatsLine::new("cluster_answer_ms", view.answers.latest.as_millis()),
        ]
    }

    /// The state for people. The lock is held for a moment only.
    pub(crate) fn view(&self) -> MutexGuard<'_, View> {
        self.view.lock().expect("nobody panics while holding it")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::etcd::AuthorityOptions;

    #[test]
    fn clock_answers_the_round_asked_before() {
        let authority = AuthorityOptions::new(Vec::new());
        let settings = ClusterSettings::new(authority, "shop".into(), "a:1".into());
        let (member, received) = Member::new(&settings, 2, "a:1");
        member.ask(3);
        member.confirm(0, 3);
        assert_eq!(member.rounds().collect::<Vec<_>>(), [3, 0, 0]);
        member.note_tick(17);
        assert_eq!(member.rounds().collect::<Vec<_>>(), [3, 0, 3]);
        member.note_tick(16);
        assert_eq!((member.numbers(), received.len()), (17, 2), "notified once");
        member.note_ended();
        assert!(member.rounds().all(|round| round == u64::MAX));
    }
}
