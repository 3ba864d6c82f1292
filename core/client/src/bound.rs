//! A lock that ends with its connection: `ml`, which waits in the server's queue, or `lock`.
//!
//! - B1: The lock, and everything done under it, is on one connection. If the connection is gone, the lock is
//!   gone. So no answer is ever in doubt: an obtain has failed if its connection breaks.
//! - B2: A holder believes until it learns that the connection is gone. An idle connection is checked every
//!   [`heartbeat`](BoundTerms::heartbeat), so this takes at most that plus
//!   [`reply_timeout`](BoundTerms::reply_timeout). The server may notice earlier and grant the lock to another
//!   client. If that matters, send the number of the grant along, or use a lease.
//! - B3: One request is unanswered at a time.
//!
//! latchd's `ml` locks a key, whether or not there is an item. Then [`MissingItem::Create`] makes no item, and
//! a lock leaves nothing behind. A client that finds the key held waits in the server's queue (`waiting.rs`).
//! The number of the grant is its fence, which rises over restarts too.
//!
//! The first answer on a connection shows whether the server has `ml` ([`LockSupport`]). Without `ml`, a lock is
//! on an item, so the item must exist. [`MissingItem::Create`] makes an empty one, and removes it instead of
//! unlocking it if it was never written. If the holder dies, that item stays until it expires; a held item does
//! not expire. A client that finds the item held asks again.
//!
//! - B4: Acquiring and releasing the lock changes neither the value nor the exptime of a client's own item.
//!   Items made for a lock have the client flags [`LOCK_ITEM`] and belong to no client.
//! - B5: A client that waits on the server has learned over the same connection that another client holds the
//!   lock. So silence is expected, and a broken connection is no failure.
//! - B6: A key whose item has [`LEASE_ITEM`] is another client's leased lock ([`Lease`](super::Lease)). `ml`
//!   shows the flags of the item in the same step. So the lock is released again before it is believed, and the
//!   item is looked up before the next try. Conversely, the server refuses to store or renew the item of a
//!   locked key. So on a latchd the two kinds of lock exclude each other.
//!
//! A lock in a session ([`SessionTerms`]) outlives its connection (`in_session.rs`); B1 and B2 are about the others.
//!
//! Source: yrmcds 1.1 `docs/locking.md`; docs/PROTOCOL.md, "Locks" and "Locks of keys".

mod answers;
mod hold;
mod in_session;
mod leased;
mod requests;
mod terms;
mod waiting;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::time::Duration;

use super::attachment::Attachment;
#[cfg(doc)]
use super::attachment::SessionTerms;
use super::keys::needs_meta;
use super::machine::{Action, Failure, Loss, Machine, NotObtained};
use super::moment::{after, earlier};
use super::retry::Retries;
use super::session::AnyResponse;
#[cfg(doc)]
use super::terms::LEASE_ITEM;
use super::terms::{LAST_TRY, RECONNECT, SILENCE};
use latchd_protocol::fence::Fence;
use latchd_protocol::key::Key;
use latchd_protocol::time::{Exptime, Instant};
use latchd_protocol::wire::classic::reply::ClassicResponse;

use hold::Hold;

pub use terms::{BoundTerms, Item, LeaseTerms, LockSupport, Mark, MissingItem, SHORT_TTL_MIN};

/// How often in a row an item is made for a lock before the obtain fails: a server without free memory evicts
/// it again before it is locked.
const CREATIONS_MAX: u32 = 8;

/// The client flags of an item that was made for a lock: "lock" in ASCII.
pub const LOCK_ITEM: u32 = 0x6c6f_636b;

/// The news of a connection-bound lock.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum BoundNews {
    /// It is ours.
    Obtained,
    /// It is not ours, and no more tries follow.
    NotObtained(NotObtained),
    /// The item's content.
    Read(Item),
    /// The item holds the new value.
    Written,
    /// The server has answered, so the connection lives and the lock is ours.
    Checked,
    /// A requested refresh succeeded.
    Refreshed,
    /// A read, a write or a check was not done; the lock is still ours.
    Undone(Failure),
    /// It was ours until this moment, and is released.
    Released,
    /// It was not ours at the release: another client removed the item.
    NotHeld,
    /// It is no longer ours.
    Lost(Loss),
    /// The obtain has ended without an answer. If the server had granted the lock, it is released.
    Failed(Failure),
    /// The lock's session has ended, or is left to end by time. The last news of a lock in a session.
    SessionEnded,
}

/// A job for the holder.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
enum Job {
    Check,
    Refresh,
    Read,
    Write {
        value: Box<[u8]>,
        client_flags: u32,
        exptime: Exptime,
        unlock: bool,
    },
    /// `is_written`: this follows a write that was stored under the lock and was the lock's only purpose.
    Unlock {
        is_written: bool,
    },
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum BoundGoal {
    None,
    Obtain {
        until: Option<Instant>,
        /// When all tries with their pauses would be over.
        tries_end: Option<Instant>,
    },
    Hold,
}

/// A kind of request.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum Query {
    Lock,
    /// Acquires the lock, with a wait in the queue.
    Wait {
        ms: u64,
    },
    Create,
    /// Whether the item exists for a lock alone.
    Look,
    /// Whether the item that stands for another client's lock still exists (B6, E3).
    Obstacle,
    Mark,
    /// The lock was granted but cannot be kept.
    GiveUp,
    /// Asks for the ttl from now on.
    Renew,
    Ping,
    /// The first of the jobs.
    Job,
    /// Attaches the connection to the session, or is its sign of life.
    Attach,
    /// Asks for the lock that the session has.
    Confirm,
    EndSession,
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum Turn {
    Rest,
    Due {
        query: Query,
        at: Instant,
    },
    /// The answer. A requested lease is for `ttl`.
    Awaiting {
        query: Query,
        sent: Instant,
        ttl: Duration,
    },
}

/// A belief in a lock that expires.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
struct Belief {
    deadline: Instant,
    since: Instant,
}

/// A request to release the lock, in a session.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
enum Release {
    #[default]
    Unsent,
    Sent,
    /// It was sent over a connection that broke before the reply.
    Unanswered,
}

/// Whether there is a connection.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum Link {
    Down,
    Up,
    /// It may hold, or be granted, a lock that is no longer wanted.
    Unwanted,
}

/// One connection-bound lock.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each may be so or not whatever the others are"
)]
pub struct Bound {
    key: Box<[u8]>,
    /// Only meta commands can carry the key.
    needs_meta: bool,
    terms: BoundTerms,
    retries: Retries,
    goal: BoundGoal,
    turn: Turn,
    link: Link,
    /// The server has said in this obtain that another client holds the lock.
    heard_held: bool,
    jobs: VecDeque<Job>,
    creations: u32,
    /// The lock commands of the server at the other end.
    words: LockSupport,
    /// The lock was acquired by `ml`: it is on the key, and not on an item.
    of_key: bool,
    /// The item exists for the lock alone.
    ours: bool,
    number: Option<u64>,
    /// Of a lock with a lease.
    belief: Option<Belief>,
    /// When the watchdog next renews.
    renew_at: Option<Instant>,
    /// The failure of the last answered renewal.
    undone_renewal: Option<Failure>,
    /// An item of the key stands for another client's lock; it is looked up before the next try (B6, E3).
    is_obstructed: bool,
    /// The session that has the lock.
    session: Option<Attachment>,
    /// The request that follows once the connection is attached to the session.
    then: Option<Query>,
    release: Release,
    /// For how long the server is the only one, if it says so.
    hold: Option<Hold>,
    /// The server at the other end does not know the flag that asks for the hold.
    lacks_hold: bool,
    /// When something last came from the server.
    heard: Instant,
    /// The value of a read without its last part.
    item: Option<Item>,
    news: VecDeque<BoundNews>,
}

impl Bound {
    /// A lock that was not requested yet.
    #[must_use]
    pub fn new(key: Key<'_>, terms: BoundTerms) -> Self {
        Self {
            key: key.as_bytes().into(),
            needs_meta: needs_meta(key),
            retries: terms.retry.begin(terms.seed),
            session: terms
                .session
                .clone()
                .map(|session| Attachment::new(session, terms.seed)),
            then: None,
            release: Release::Unsent,
            terms,
            goal: BoundGoal::None,
            turn: Turn::Rest,
            link: Link::Down,
            heard_held: false,
            jobs: VecDeque::new(),
            creations: 0,
            words: LockSupport::Unknown,
            of_key: false,
            ours: false,
            number: None,
            belief: None,
            renew_at: None,
            undone_renewal: None,
            is_obstructed: false,
            hold: None,
            lacks_hold: false,
            heard: Instant::default(),
            item: None,
            news: VecDeque::new(),
        }
    }

    /// Begins to obtain it. Ends in [`Obtained`](BoundNews::Obtained),
    /// [`NotObtained`](BoundNews::NotObtained) or [`Failed`](BoundNews::Failed).
    ///
    /// To break an obtain off, close the connection; in a session, [`abandon`](Self::abandon) it. While an earlier session
    /// of the lock is being ended, nothing begins.
    pub fn obtain(&mut self, now: Instant) {
        if self.goal != BoundGoal::None || self.turn != Turn::Rest {
            return;
        }
        self.retries = self.terms.retry.begin(self.terms.seed);
        (self.creations, self.ours, self.heard_held) = (0, false, false);
        (self.of_key, self.number) = (false, None);
        (self.belief, self.renew_at, self.is_obstructed) = (None, None, false);
        (self.then, self.release, self.hold) = (None, Release::Unsent, None);
        if self.words == LockSupport::Classic && self.needs_ml() {
            return self.is_unsupported();
        }
        self.goal = BoundGoal::Obtain {
            until: self.terms.deadline.map(|patience| after(now, patience)),
            tries_end: self.terms.retry.span().map(|span| after(now, span)),
        };
        self.begin(Query::Lock, now);
    }

    /// Reads the item. Ends in [`Read`](BoundNews::Read), [`Undone`](BoundNews::Undone),
    /// [`Lost`](BoundNews::Lost) or [`NotHeld`](BoundNews::NotHeld).
    pub fn read(&mut self) {
        self.want(Job::Read);
    }

    /// Stores a value. Ends in [`Written`](BoundNews::Written), [`Undone`](BoundNews::Undone),
    /// [`Lost`](BoundNews::Lost) or [`NotHeld`](BoundNews::NotHeld).
    pub fn write(&mut self, value: &[u8], client_flags: u32, exptime: Exptime) {
        self.want(Job::Write {
            value: value.into(),
            client_flags,
            exptime,
            unlock: false,
        });
    }

    /// Stores a value, and releases the lock if that succeeds. Ends in [`Released`](BoundNews::Released), or as
    /// [`write`](Self::write).
    pub fn replace_and_unlock(&mut self, value: &[u8], client_flags: u32, exptime: Exptime) {
        self.want(Job::Write {
            value: value.into(),
            client_flags,
            exptime,
            unlock: true,
        });
    }

    /// Asks the server for a sign of life. Ends in [`Checked`](BoundNews::Checked),
    /// [`Undone`](BoundNews::Undone), [`Lost`](BoundNews::Lost) or [`NotHeld`](BoundNews::NotHeld).
    pub fn check(&mut self) {
        self.want(Job::Check);
    }

    /// Releases it. Ends in [`Released`](BoundNews::Released), [`NotHeld`](BoundNews::NotHeld) or
    /// [`Lost`](BoundNews::Lost). A connection that breaks frees the lock as well. But the server may have
    /// noticed the break earlier, so another client may have held the lock meanwhile.
    pub fn release(&mut self) {
        self.want(Job::Unlock { is_written: false });
    }

    /// Whether it is ours, as far as we can know (B2; in a session, until [`deadline`](Self::deadline)).
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.goal == BoundGoal::Hold
    }

    /// The item's key.
    #[must_use]
    pub const fn key(&self) -> &[u8] {
        &self.key
    }

    /// The number of the grant: its fence where the server has fences; otherwise a version, if a [`Mark`] asked
    /// for one.
    #[must_use]
    pub const fn number(&self) -> Option<u64> {
        self.number
    }

    /// The fence of the grant, if the server numbers grants.
    #[must_use]
    pub fn fence(&self) -> Option<Fence> {
        self.number.filter(|_| self.of_key).and_then(Fence::new)
    }

    /// The lock commands that this connection's server has, for the next user of the connection.
    #[must_use]
    pub const fn words(&self) -> LockSupport {
        self.words
    }

    /// Notes what another lock has learned about the server on the same connection. Call it after
    /// [`connected`](Machine::connected), which forgets it.
    pub const fn knows(&mut self, words: LockSupport) {
        self.words = words;
    }

    /// Whether nothing is held, under way or left to report.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let has_session = self.session.as_ref().is_some_and(Attachment::may_live);
        self.goal == BoundGoal::None && self.news.is_empty() && !has_session
    }

    fn want(&mut self, job: Job) {
        if self.is_held() {
            self.jobs.push_back(job);
        } else {
            self.news.push_back(BoundNews::NotHeld);
        }
    }

    fn begin(&mut self, query: Query, at: Instant) {
        self.turn = Turn::Due { query, at };
    }

    fn end(&mut self, news: BoundNews) {
        self.goal = BoundGoal::None;
        self.turn = Turn::Rest;
        self.news.push_back(news);
        // Every job gets its answer: nothing is ours any more.
        for _ in self.jobs.drain(..) {
            self.news.push_back(BoundNews::NotHeld);
        }
    }

    fn obtained(&mut self) {
        if self.has_waited_too_long() {
            return self.attach_again();
        }
        if self.is_hold_over() {
            return self.begin(Query::Ping, self.heard);
        }
        self.goal = BoundGoal::Hold;
        self.news.push_back(BoundNews::Obtained);
    }

    /// Ends an obtain after its deadline. The server may still grant the lock to its connection, which must be
    /// closed then.
    fn pass_time(&mut self, now: Instant) {
        if self.goal_end().is_none_or(|end| now < end) {
            return;
        }
        let (is_out, answers) = match self.turn {
            Turn::Awaiting { query, sent, .. } => (true, now < after(sent, query.wait() + SILENCE)),
            Turn::Due { .. } | Turn::Rest => (false, self.link == Link::Up),
        };
        if is_out {
            self.link = Link::Unwanted;
        }
        self.end(if self.heard_held && answers {
            BoundNews::NotObtained(NotObtained::Deadline)
        } else if self.heard_held && self.link == Link::Down {
            BoundNews::Failed(Failure::Disconnected)
        } else {
            BoundNews::Failed(Failure::NoAnswer)
        });
    }

    /// When an obtain ends by time alone, without any answer.
    fn goal_end(&self) -> Option<Instant> {
        match self.goal {
            BoundGoal::Obtain { until, .. } => Some(after(until?, LAST_TRY)),
            BoundGoal::None | BoundGoal::Hold => None,
        }
    }

    /// When the next action by time alone is due.
    fn wake(&self) -> Option<Instant> {
        let turn = match self.turn {
            Turn::Due { at, .. } => Some(at),
            Turn::Awaiting { query, sent, .. } => Some(self.silence_end(query, sent)),
            Turn::Rest if self.is_held() => {
                let ping = match &self.session {
                    Some(session) => session.ping_at(),
                    None => self.terms.heartbeat.map(|every| after(self.heard, every)),
                };
                earlier(earlier(ping, self.renew_at), self.hold_at())
            }
            Turn::Rest => None,
        };
        earlier(earlier(self.goal_end(), self.deadline()), turn)
    }

    /// When a request sent at `sent` has been unanswered for too long.
    fn silence_end(&self, query: Query, sent: Instant) -> Instant {
        let own = self.terms.reply_timeout;
        let patience = match &self.session {
            Some(session) => session.patience(own),
            None => own,
        };
        after(sent, query.wait().saturating_add(patience))
    }

    /// Chooses the next request, if no request is under way.
    fn take_turn(&mut self, now: Instant) {
        if self.turn != Turn::Rest {
            return;
        }
        if self.session.is_some() {
            return self.take_turn_in_session(now);
        }
        if !self.is_held() {
            return;
        }
        let quiet_since = after(self.heard, self.terms.heartbeat.unwrap_or(Duration::MAX));
        if self.is_hold_due(now) {
            self.begin(Query::Ping, now);
        } else if !self.jobs.is_empty() {
            self.begin(Query::Job, now);
        } else if self.renew_at.is_some_and(|at| now >= at) {
            self.begin(Query::Renew, now);
        } else if self.terms.heartbeat.is_some() && now >= quiet_since {
            self.begin(Query::Ping, now);
        }
    }
}

impl Query {
    /// How long the server may be silent because the request waits.
    const fn wait(self) -> Duration {
        match self {
            Self::Wait { ms } => Duration::from_millis(ms),
            Self::Lock
            | Self::Create
            | Self::Look
            | Self::Obstacle
            | Self::Mark
            | Self::GiveUp
            | Self::Renew
            | Self::Ping
            | Self::Job
            | Self::Attach
            | Self::Confirm
            | Self::EndSession => Duration::ZERO,
        }
    }
}

impl Machine for Bound {
    type News = BoundNews;

    fn poll(&mut self, now: Instant) -> Action<'_, BoundNews> {
        self.pass_time(now);
        self.expire(now);
        self.pass_session(now);
        if let Some(news) = self.news.pop_front() {
            return Action::Tell(news);
        }
        if self.link == Link::Unwanted {
            return Action::Disconnect;
        }
        self.take_turn(now);
        match self.turn {
            Turn::Due { query, at } if now >= at => {
                if self.link == Link::Down {
                    let until = self.connect_end();
                    return Action::Connect { until };
                }
                let query = self.after_attaching(query);
                self.note_sent(query, now);
                self.turn = Turn::Awaiting {
                    query,
                    sent: now,
                    ttl: self.ttl(),
                };
                return Action::Send(self.request(query));
            }
            Turn::Awaiting { query, sent, .. } if now >= self.silence_end(query, sent) => {
                return Action::Disconnect;
            }
            Turn::Due { .. } | Turn::Awaiting { .. } | Turn::Rest => {}
        }
        Action::Wait { until: self.wake() }
    }

    fn connected(&mut self, now: Instant) {
        self.link = Link::Up;
        self.heard = now;
        self.words = LockSupport::Unknown;
        self.lacks_hold = false;
        if !self.is_held() {
            // It may be another server.
            self.hold = None;
        }
    }

    fn disconnected(&mut self, now: Instant) {
        self.link = Link::Down;
        self.item = None;
        if self.session.is_some() {
            return self.disconnected_in_session(now);
        }
        let gave_up = matches!(
            self.turn,
            Turn::Awaiting {
                query: Query::GiveUp,
                ..
            }
        );
        match self.goal {
            BoundGoal::None => self.turn = Turn::Rest,
            // A wait for another client's lock continues through a restart of the server.
            BoundGoal::Obtain { .. } if self.heard_held && (!gave_up || self.is_obstructed) => {
                (self.creations, self.ours, self.is_obstructed) = (0, false, false);
                self.begin(Query::Lock, after(now, RECONNECT));
            }
            BoundGoal::Obtain { .. } => self.end(BoundNews::Failed(Failure::Disconnected)),
            BoundGoal::Hold if self.jobs.front() == Some(&Job::Unlock { is_written: true }) => {
                self.jobs.pop_front();
                self.end(BoundNews::Released);
            }
            BoundGoal::Hold => self.end(BoundNews::Lost(Loss::Disconnected)),
        }
    }

    fn reply(&mut self, now: Instant, answer: &AnyResponse<'_>) {
        self.heard = now;
        let Turn::Awaiting { query, sent, ttl } = self.turn else {
            return;
        };
        // A value is followed by the end of its answer.
        if let AnyResponse::Classic(ClassicResponse::Value {
            value,
            cas,
            client_flags,
            ..
        }) = answer
        {
            self.item = Some(Item {
                value: (*value).into(),
                cas: *cas,
                client_flags: *client_flags,
            });
            return;
        }
        self.turn = Turn::Rest;
        self.note_hold(sent, answer);
        match query {
            Query::Lock if self.words == LockSupport::Classic => self.locked(now, answer),
            Query::Lock => self.asked(now, (sent, ttl), answer),
            Query::Wait { ms } => self.waited(now, after(sent, Duration::from_millis(ms)), answer),
            Query::Create => self.created(now, answer),
            Query::Look => self.looked(now, answer),
            Query::Obstacle => self.saw_obstacle(now, answer),
            Query::Mark => self.marked(answer),
            Query::GiveUp => self.gave_up(now, answer),
            Query::Renew => self.renewed(now, (sent, ttl), answer),
            Query::Ping => self.pinged(now, answer),
            Query::Attach => self.attached(now, sent, answer),
            Query::Confirm => self.confirmed(answer),
            Query::EndSession => self.end_answered(answer),
            Query::Job if self.jobs.front() == Some(&Job::Refresh) => {
                self.renewed(now, (sent, ttl), answer);
                if self.is_held() {
                    self.jobs.pop_front();
                    self.news.push_back(match self.undone_renewal.take() {
                        Some(failure) => BoundNews::Undone(failure),
                        None => BoundNews::Refreshed,
                    });
                }
            }
            Query::Job => {
                if let Some(job) = self.jobs.pop_front() {
                    self.did(job, answer);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
