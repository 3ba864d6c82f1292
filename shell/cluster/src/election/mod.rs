//! Which process serves a partition: an election by compare-and-swap and the processes' own clocks.
//!
//! One record in an authority (etcd) names the primary of a partition. The primary writes it anew with each
//! heartbeat, and serves as long as the last one that arrived allows. A standby that sees the record unchanged for
//! longer than that claims the partition. An [`Election`] decides all of this for one process, without I/O and
//! without a clock. Its driver polls it, carries its transactions to the authority and the answers back, and does
//! the rest of what an [`Action`] says.
//!
//! - E11: A standby, a suspended primary and a process whose term is over serve nothing.
//!
//! Which file has which rule: times `timing.rs`, claims `standby.rs`, terms `primary.rs`, the form of the records
//! `record.rs` and `distinct.rs`.
//!
//! ```
//! use latchd_protocol::Instant;
//! use latchd_cluster::election::{Action, Answer, Authority, Election, Found, Id, Moment, News, Process, Timing};
//!
//! /// An authority of one record.
//! #[derive(Default)]
//! struct Register(Option<Found>);
//!
//! impl Authority for Register {
//!     type Error = std::convert::Infallible;
//!
//!     fn read(&mut self, _: &str) -> Result<Option<Found>, Self::Error> {
//!         Ok(self.0.clone())
//!     }
//!
//!     fn swap(&mut self, _: &str, expected: Option<&Found>, value: &str) -> Result<Answer, Self::Error> {
//!         if self.0.as_ref() != expected {
//!             return Ok(Answer::Found(self.0.clone()));
//!         }
//!         let revision = expected.map_or(1, |found| found.revision + 1);
//!         self.0 = Some(Found { revision, value: value.into() });
//!         Ok(Answer::Swapped { revision })
//!     }
//! }
//!
//! let process = Process { id: Id(7), address: "10.0.0.1:11211".into(), version: "1.0.0".into(), workers: 1 };
//! let mut election = Election::new(process, Timing::default(), None);
//! let (mut authority, mut now) = (Register::default(), Instant::from_millis(0));
//! let term = loop {
//!     let moment = Moment { now, unix_ms: 1_700_000_000_000, numbers: 0 };
//!     match election.poll(moment) {
//!         Action::Send { number, transaction } => {
//!             let answer = transaction.perform(&mut authority, "/latchd/shop/partition/cache-a:11211").unwrap();
//!             election.answer(now, number, answer);
//!         }
//!         Action::Tell(News::Serves(term)) => break term,
//!         Action::Tell(_) | Action::AskWorkers { .. } => {}
//!         Action::Wait { until } => now = until.unwrap(),
//!     }
//! };
//! // Without a record, it waited for T, as another process may hold the partition.
//! assert_eq!((term.number, now.as_millis()), (1, 4000));
//! assert_eq!(election.serves_until(), Some(Instant::from_millis(4000 + 3600 - 400)));
//! ```

pub(crate) mod distinct;
mod primary;
mod record;
mod standby;
#[cfg(test)]
mod tests;
mod timing;

use alloc::boxed::Box;
use alloc::string::String;

use latchd_protocol::fence::Fence;
use latchd_protocol::time::Instant;
use primary::Primary;
use standby::Standby;

pub use record::{
    ADDRESS_BYTES_MAX, CLUSTER_BYTES_MAX, FORMAT, Id, PARTITIONS_MAX, Partition, PartitionRecord,
    RECORD_BYTES_MAX, RecordError, RingRecord, State, VERSION_BYTES_MAX, WEIGHT_MAX, partition_key,
    ring_key,
};
pub use timing::{
    ANSWER_MS, HEARTBEAT_MS, HOLD_MS, HOLD_MS_MIN, LEAVING_MS, MARGIN_MS, RETRY_MS, SPAN_MS_MAX,
    Timing, TimingError, WAIT_MS,
};

/// A record as the authority has it.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Found {
    /// The authority's count of changes at its last one (etcd's `mod_revision`).
    pub revision: u64,
    /// The value.
    pub value: String,
}

/// The outcome of a transaction that was executed. There is none for an error, a time-out or an answer that is not
/// understood: nothing follows from these, so the election must not hear of them (E1).
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Answer {
    /// The record was as expected, and has the new value.
    Swapped {
        /// Its revision now.
        revision: u64,
    },
    /// The record was read, or it was not as expected. This is it; `None` if there is none.
    Found(Option<Found>),
}

/// A service that executes transactions on a few records one after the other (linearizably), also if its machines
/// fail.
pub trait Authority {
    /// Why there is no answer.
    type Error;

    /// Reads a record.
    ///
    /// # Errors
    /// Nothing is known.
    fn read(&mut self, key: &str) -> Result<Option<Found>, Self::Error>;

    /// Writes the record if it is `expected`, in revision and value; else reads it. The value is compared as well,
    /// since an authority that was restored from a copy gives the same revisions again.
    ///
    /// # Errors
    /// Nothing is known: it may have been written, and may still be.
    fn swap(
        &mut self,
        key: &str,
        expected: Option<&Found>,
        value: &str,
    ) -> Result<Answer, Self::Error>;
}

/// A transaction on the record of the partition.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Transaction {
    /// [`Authority::read`].
    Read,
    /// [`Authority::swap`].
    Swap {
        /// The record that it replaces; `None` if there must be none.
        expected: Option<Found>,
        /// The new value.
        value: String,
    },
}

impl Transaction {
    /// Lets an authority execute it.
    ///
    /// # Errors
    /// As the authority: there is no answer.
    pub fn perform<A: Authority>(&self, authority: &mut A, key: &str) -> Result<Answer, A::Error> {
        match self {
            Self::Read => authority.read(key).map(Answer::Found),
            Self::Swap { expected, value } => authority.swap(key, expected.as_ref(), value),
        }
    }
}

/// The process that takes part.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Process {
    /// Its name: of its own at each start.
    pub id: Id,
    /// `HOST:PORT`, at which it serves.
    pub address: String,
    /// The version of its program.
    pub version: String,
    /// How many threads must answer (E5): those that serve clients, and the one that tells them the time.
    pub workers: usize,
}

/// The state of the process at a call.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Moment {
    /// The time on `CLOCK_BOOTTIME`.
    pub now: Instant,
    /// Milliseconds since 1970, by the wall clock. Only numbers depend on it (E10).
    pub unix_ms: u64,
    /// The highest fence or CAS number that the process has given; 0 before the first.
    pub numbers: u64,
}

/// An action for the driver.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Action {
    /// Send this to all endpoints of the authority, and poll again. Report each answer within [`ANSWER_MS`] to
    /// [`Election::answer`], also if another transaction was sent meanwhile.
    Send {
        /// The number of the transaction, for its answer.
        number: u64,
        /// The transaction.
        transaction: Transaction,
    },
    /// Ask each worker for an answer, and poll again. A worker answers rounds in their order, to
    /// [`Election::worker_answered`].
    AskWorkers {
        /// The number of the round.
        round: u64,
    },
    /// The role has changed: do what the news says, log it, and poll again.
    Tell(News),
    /// Wait for an answer, a worker or a signal, and poll again at this moment at the latest.
    Wait {
        /// `None` means never.
        until: Option<Instant>,
    },
}

/// A change of the role of the process.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum News {
    /// The process stands by, and this is the primary as recorded; `None` if there is no record. The next one comes
    /// with a change of more than the heartbeat.
    Stands(Option<Box<PartitionRecord>>),
    /// The record cannot be read, so nobody can claim the partition. Reported once for each record.
    Unreadable(RecordError),
    /// The process is the primary: begin to serve.
    Serves(Term),
    /// The hold is about to end (E3): each worker closes the connections with a lock, a wait, a bound win or a
    /// session, and then answers this round. If one does not in time, the term is over.
    Suspended {
        /// The round that confirms it.
        round: u64,
    },
    /// The hold goes on, and nobody has served meanwhile (E4): serve again.
    Resumed,
    /// The process has served, or has stood by, and never will again (E6).
    Over(End),
}

/// The beginning of a term.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Term {
    /// Its number.
    pub number: u64,
    /// The first fence and the first CAS number to give (E10).
    pub first: Fence,
    /// The process that closed in good order just before, and its term. A file that this one saved may be read; any
    /// other is of an earlier term (E12).
    pub inherits: Option<(Id, u64)>,
    /// Until then no lock is granted: a client may still believe in a promise of the predecessor (E9). `None`: the promises are
    /// over.
    pub grants_from: Option<Instant>,
}

/// Why a process will not serve any more.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum End {
    /// The record names another process or term, or there is none.
    Lost,
    /// A worker had not confirmed the suspension when the hold ended.
    Stuck,
    /// The process has closed, after SIGTERM.
    Left,
}

impl End {
    /// The exit code. The supervisor restarts a process that ends with 75 (`EX_TEMPFAIL`).
    #[must_use]
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Lost | Self::Stuck => 75,
            Self::Left => 0,
        }
    }
}

/// The part of one process in the election of its partition.
///
/// Calls are in the order of their times.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Election {
    role: Role,
    /// The number of the last transaction.
    sent: u64,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
enum Role {
    Standby(Standby),
    Primary(Primary),
    /// Whether the end is reported.
    Over(End, bool),
}

/// A transaction that was sent.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
struct Pending {
    number: u64,
    sent: Instant,
}

impl Pending {
    /// The moment at which another transaction follows, if there is no answer.
    fn ends(self) -> Instant {
        after(self.sent, RETRY_MS)
    }
}

impl Election {
    /// A process that stands by. `predecessor` is the process that used the same state directory before, and has
    /// ended: its lock is free (E9).
    #[must_use]
    pub const fn new(process: Process, timing: Timing, predecessor: Option<Id>) -> Self {
        Self {
            role: Role::Standby(Standby::new(process, timing, predecessor)),
            sent: 0,
        }
    }

    /// Returns the next action.
    pub fn poll(&mut self, moment: Moment) -> Action {
        let number = self.sent + 1;
        let action = match &mut self.role {
            Role::Standby(standby) => standby.poll(moment, number),
            Role::Primary(primary) => match primary.poll(moment, number) {
                Ok(action) => action,
                Err(end) => {
                    self.role = Role::Over(end, true);
                    Action::Tell(News::Over(end))
                }
            },
            Role::Over(end, is_reported) => {
                if *is_reported {
                    Action::Wait { until: None }
                } else {
                    *is_reported = true;
                    Action::Tell(News::Over(*end))
                }
            }
        };
        if let Action::Send { .. } = action {
            self.sent = number;
        }
        action
    }

    /// A transaction was answered. The order of the answers is free, and a late one counts, unless nothing new follows
    /// from it: its heartbeat has been confirmed, or a later read has been answered.
    pub fn answer(&mut self, now: Instant, number: u64, answer: Answer) {
        match &mut self.role {
            Role::Standby(standby) => {
                if let Some(primary) = standby.answer(now, number, answer) {
                    self.role = Role::Primary(primary);
                }
            }
            Role::Primary(primary) => primary.answer(number, answer),
            Role::Over(..) => {}
        }
    }

    /// A worker (from 0) has answered this round and those before. For a worker that has ended, the driver reports
    /// `u64::MAX`.
    pub fn worker_answered(&mut self, worker: usize, round: u64) {
        if let Role::Primary(primary) = &mut self.role {
            primary.worker_answered(worker, round);
        }
    }

    /// SIGTERM: the record says `leaving` from now on. The driver closes, saves, and reports
    /// [`closed`](Self::closed). A process that does not serve is over at once.
    pub fn leave(&mut self) {
        match &mut self.role {
            Role::Standby(_) => self.role = Role::Over(End::Left, false),
            Role::Primary(primary) => primary.leave(),
            Role::Over(..) => {}
        }
    }

    /// All locks are released, all connections closed, and the items saved: the process serves nothing any more, and
    /// the record says `free` as soon as possible (E12).
    pub fn closed(&mut self) {
        match &mut self.role {
            Role::Standby(_) => self.role = Role::Over(End::Left, false),
            Role::Primary(primary) => primary.closed(),
            Role::Over(..) => {}
        }
    }

    /// The first moment at which the process must not serve (E2); `None` if it does not serve now. It is checked
    /// before a batch is executed, and before anything is sent.
    #[must_use]
    pub fn serves_until(&self) -> Option<Instant> {
        match &self.role {
            Role::Primary(primary) => primary.serves_until(),
            Role::Standby(_) | Role::Over(..) => None,
        }
    }

    /// The moment at which the process must have ended, unless it hears more until then (E3): a thread that takes no
    /// lock sees to it.
    #[must_use]
    pub fn ends_at(&self) -> Option<Instant> {
        match &self.role {
            Role::Primary(primary) => primary.ends_at(),
            Role::Standby(_) | Role::Over(..) => None,
        }
    }

    /// The end of the hold, after which another process may serve; `None` without a term.
    #[must_use]
    pub const fn held_until(&self) -> Option<Instant> {
        match &self.role {
            Role::Primary(primary) => Some(primary.held_until()),
            Role::Standby(_) | Role::Over(..) => None,
        }
    }
}

/// The moment `ms` milliseconds after another, at most the last one there is.
fn after(start: Instant, ms: u64) -> Instant {
    Instant::from_millis(start.as_millis().saturating_add(ms))
}
