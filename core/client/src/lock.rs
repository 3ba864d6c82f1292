//! The interface of the two machines that keep locks: [`Grants`](super::Grants) on latchd, [`Leases`](super::Leases) on
//! memcached.
//!
//! A machine keeps many locks over one connection. Each has a number, and one request of it is unanswered at a time.
//! A machine tries once, or waits once in the server's queue: its driver chooses when to try again, and never asks it
//! twice at a time for one key.

use alloc::boxed::Box;
use core::time::Duration;

use latchd_protocol::command::Mode;
use latchd_protocol::fence::Fence;
use latchd_protocol::key::Key;
use latchd_protocol::time::Instant;
use latchd_protocol::uri;

use super::machine::{Failure, Loss, Machine};
use super::session::AnyResponse;
use super::token::TokenValue;

/// The number of a lock in its machine. No number is used twice.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct LockId(pub(super) u64);

/// How to request and keep a lock.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub struct LockTerms {
    /// Whether other clients may hold it at the same time.
    pub mode: Mode,
    /// Its own time; `None` means as long as its session or its connection.
    pub lease: Option<LeaseTerms>,
    /// The item that the key shows while it is held. On memcached it is the lock.
    pub item: Option<LockItem>,
    /// A text for people beside the lock.
    pub metadata: Box<[u8]>,
    /// It is held already, by the same token: it is confirmed and not acquired.
    pub is_adopted: bool,
}

impl LockTerms {
    /// An exclusive lock without a time, an item or metadata.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

/// The time of a lock.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct LeaseTerms {
    /// The length of the first request and of each renewal.
    pub ttl: Duration,
    /// Whether the machine renews it at a third of its ttl.
    pub renews: bool,
    /// The longest time that it may be held, however often it is renewed; `None` means no limit.
    pub hold_max: Option<Duration>,
}

/// The item of a lock, which excludes clients that lock by `add`.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct LockItem {
    /// Its value: a token, and metadata.
    pub value: TokenValue,
    /// How long it outlasts a dead holder.
    pub ttl: Duration,
    /// The caller chose the token, so an item that shows it is ours from an earlier lock.
    pub own_token: bool,
}

/// The holder of a lock, as a server shows it to other clients.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub struct LockState {
    /// The number of the holding connection or session; 0 while a latchd withholds all locks.
    pub holder: Option<u64>,
    /// How long it has held the lock.
    pub held_for: Option<Duration>,
    /// The fence of its grant. A latchd shows it for one key only if the key has an item.
    pub fence: Option<Fence>,
    /// The number of waiting clients.
    pub waiting: Option<u64>,
    /// The time until it ends without a renewal, if the server shows it.
    pub left: Option<Duration>,
    /// The holder's token, on memcached and in an item.
    pub token: Option<Box<[u8]>>,
    /// The holder's metadata.
    pub metadata: Option<Box<[u8]>>,
    /// Several holders share the lock.
    pub is_shared: bool,
}

impl LockState {
    /// The holder that `LK` shows.
    #[must_use]
    pub fn of_refusal(answer: &AnyResponse<'_>) -> Self {
        let metadata = answer.flag(b'm').map(|text| uri::decode(text).into());
        Self {
            holder: answer.number(b'h'),
            held_for: answer.number(b'a').map(Duration::from_secs),
            waiting: answer.number(b'n'),
            metadata,
            ..Self::default()
        }
    }

    /// The holder that an item shows. It has a token if the item is a lock.
    #[must_use]
    pub fn of_item(answer: &AnyResponse<'_>) -> Self {
        let parts = answer.is_lock().then(|| TokenValue::parts(answer.value()));
        Self {
            left: answer.number(b't').map(Duration::from_secs),
            token: parts.map(|(token, _)| token.into()),
            metadata: parts.map(|(_, metadata)| metadata.into()),
            ..Self::default()
        }
    }
}

/// The news of a lock.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum LockNews {
    /// It is ours.
    Obtained,
    /// Another client holds it. The machine has forgotten it.
    Held(LockState),
    /// An item of another client stands for a lock, or is in the way of ours. The machine has forgotten it.
    Obstructed(LockState),
    /// The key has an item that is no lock. The machine has forgotten it.
    HasValue,
    /// The server has confirmed it; with the time that is left there, if the server shows it.
    Confirmed(Option<Duration>),
    /// A check or a refresh was not done; the lock is still ours.
    Undone(Failure),
    /// It was ours until this moment, and is released. The machine has forgotten it.
    Released,
    /// There was nothing of ours to confirm or to release. The machine has forgotten it.
    NotHeld,
    /// It is no longer ours. The machine has forgotten it, or releases it by itself.
    Lost(Loss),
    /// The result of the request is unknown. After a failed release it may be [released](LockMachine::release) again;
    /// otherwise the machine releases it by itself if necessary.
    Failed(Failure),
}

/// A machine that keeps locks.
pub trait LockMachine: Machine<News = (LockId, LockNews)> {
    /// Requests a lock, with a wait in the server's queue of this length. Ends in [`Obtained`](LockNews::Obtained),
    /// [`Held`](LockNews::Held), [`Obstructed`](LockNews::Obstructed), [`HasValue`](LockNews::HasValue) or
    /// [`Failed`](LockNews::Failed); an adopted one also in [`NotHeld`](LockNews::NotHeld). While one waits, the machine
    /// keeps no other.
    fn acquire(
        &mut self,
        now: Instant,
        key: Key<'_>,
        terms: LockTerms,
        wait: Option<Duration>,
    ) -> LockId;

    /// Asks the server for it. Ends in [`Confirmed`](LockNews::Confirmed), [`Undone`](LockNews::Undone),
    /// [`Lost`](LockNews::Lost) or [`NotHeld`](LockNews::NotHeld).
    fn check(&mut self, now: Instant, id: LockId);

    /// Asks for `ttl` from now on, and with every later renewal; otherwise as [`check`](Self::check). A lock without a
    /// time of its own is only checked.
    fn refresh(&mut self, now: Instant, id: LockId, ttl: Duration);

    /// Releases it. Ends in [`Released`](LockNews::Released), [`NotHeld`](LockNews::NotHeld) or
    /// [`Failed`](LockNews::Failed).
    fn release(&mut self, now: Instant, id: LockId);

    /// Wants it no more, whatever is under way. The news is the last one, as that of a release; a failure too.
    fn abandon(&mut self, now: Instant, id: LockId);

    /// Forgets it, and leaves it to the client that shows its token.
    fn forget(&mut self, id: LockId);

    /// Whether it has not forgotten the lock. Until then its key is not requested again.
    fn knows(&self, id: LockId) -> bool;

    /// Requests nothing more. Drive the machine until it [is over](Self::is_over).
    fn close(&mut self);

    /// Whether it was closed, and the server has nothing of it, as far as it can know.
    fn is_over(&self) -> bool;

    /// The fence of its grant, where the server numbers grants.
    fn fence(&self, id: LockId) -> Option<Fence>;

    /// When all locks are lost without a sign of life; `None` means never.
    fn common_deadline(&self) -> Option<Instant>;

    /// The next lock whose [own belief](Self::belief) has changed.
    fn changed(&mut self) -> Option<LockId>;

    /// The client's belief in one lock; `None` if it is not ours.
    fn belief(&self, id: LockId) -> Option<Belief>;
}

/// A client's belief in a lock of its own.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Belief {
    /// When it ends, if nothing else ends it earlier; `None` means never.
    pub until: Option<Instant>,
    /// Whether it counts: otherwise a connection broke, and the server has not been heard since.
    pub is_certain: bool,
}
