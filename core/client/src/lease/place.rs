//! The place of a lease at the head of the queue: the lock of its key (C7).

use core::time::Duration;

use latchd_protocol::command;
use latchd_protocol::fence::Fence;
use latchd_protocol::key::Key;
use latchd_protocol::time::Instant;
use latchd_protocol::wire::meta::Flag;
use latchd_protocol::wire::meta::reply::Code;

use super::{Lease, LeaseAction, LeaseGoal, LeaseNews, Link, Query, Refresh, Turn};
use crate::bound::{Bound, BoundTerms};
use crate::machine::{Failure, NotObtained};
use crate::moment::{after, millis};
use crate::session::{AnyResponse, Flags};
use crate::terms::place_ttl;

/// The known state of the key's lock.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) enum Place {
    /// It is not ours.
    None,
    /// It is requested behind the add that was just sent.
    Due,
    /// It was requested at `sent`, behind an add.
    Asked { sent: Instant },
    /// It is ours, on this connection or an earlier one.
    Held(Fence),
}

impl Place {
    /// The connection is gone: the answer will not come.
    pub(super) const fn forget_unanswered(&mut self) {
        match self {
            Self::Due | Self::Asked { .. } => *self = Self::None,
            Self::None | Self::Held(_) => {}
        }
    }
}

impl Lease {
    /// The key's lock was granted to the connection that the machine uses from now on, and the key has no item.
    pub fn granted(&mut self, now: Instant, fence: Option<Fence>) {
        if let LeaseGoal::Obtain { .. } = self.goal {
            self.place = fence.map_or(Place::None, Place::Held);
            self.begin(Query::Add, now);
        }
    }

    /// The server has no queue, or the wait in it has failed with `why`. Tries again by the strategy instead,
    /// as long as there is time.
    pub fn unqueued(&mut self, now: Instant, why: Failure) {
        self.terms.queues = false;
        let is_unsupported = matches!(why, Failure::Unsupported(_));
        match self.goal {
            LeaseGoal::Obtain { until } if now >= until && !is_unsupported => {
                self.end(LeaseNews::Failed(why));
            }
            LeaseGoal::Obtain { until } if self.heard_held => self.back_off(now, until),
            LeaseGoal::Obtain { .. } => self.begin(Query::Add, now),
            LeaseGoal::None | LeaseGoal::Hold | LeaseGoal::Release { .. } => {}
        }
    }

    /// The wait for the key's lock was in vain. Ends the obtain.
    pub fn not_granted(&mut self, why: NotObtained) {
        if let LeaseGoal::Obtain { .. } = self.goal {
            self.end(LeaseNews::NotObtained(why));
        }
    }

    /// Begins an obtain in the queue; see [`Leases::queue`](crate::Leases::queue).
    pub(crate) fn queue_until(&mut self, now: Instant, until: Instant) {
        if self.goal != LeaseGoal::None {
            return;
        }
        let is_once = self.terms.retry.span() == Some(Duration::ZERO);
        self.terms.queues &= !is_once;
        self.obtain_until(now, until);
        if self.terms.queues && matches!(self.turn, Turn::Due { .. }) {
            self.turn = Turn::Rest;
            self.news.push_back(LeaseNews::Queues);
        }
    }

    /// Lets other clients try first: the first try comes after a pause of the strategy, if it has any.
    pub(crate) fn let_others_first(&mut self, now: Instant) {
        let pause = self.terms.retry.begin(self.terms.seed).next_turn();
        if let (LeaseGoal::Obtain { until }, Turn::Due { query, .. }, Some(pause)) =
            (self.goal, self.turn, pause)
        {
            self.begin(query, after(now, pause).min(until));
        }
    }

    /// Whether this obtain has met another holder.
    pub(crate) const fn heard_held(&self) -> bool {
        self.heard_held
    }

    /// Whether a place is requested beside the item.
    pub(crate) const fn queues(&self) -> bool {
        self.terms.queues
    }

    /// Whether the server has said that it has no queue.
    pub(crate) const fn lacks_queue(&self) -> bool {
        self.lacks_queue
    }

    /// Leaves the item to the client that shows its token. Ends in [`Detached`](LeaseNews::Detached), or
    /// [`Lost`](LeaseNews::Lost).
    pub fn detach(&mut self) {
        self.is_leaving = true;
    }

    /// The key's lock, which makes the place, with a wait of `patience`.
    pub(crate) fn bound(&self, patience: Duration) -> Bound {
        let key = Key::new(&self.key).expect("these bytes were taken from a key");
        Bound::new(key, BoundTerms::of_place(&self.terms, patience))
    }

    /// Whether the key's lock is still to be released, or may be granted yet.
    pub(crate) const fn owes_place(&self) -> bool {
        match (self.link, self.place) {
            (Link::Up, Place::Due | Place::Asked { .. } | Place::Held(_)) => true,
            (Link::Down { .. }, _) | (Link::Up, Place::None) => false,
        }
    }

    /// When the answer to a place behind an add is overdue.
    pub(super) fn place_overdue(&self) -> Option<Instant> {
        match self.place {
            Place::Asked { sent } => Some(after(sent, self.terms.reply_timeout)),
            Place::None | Place::Due | Place::Held(_) => None,
        }
    }

    /// The next action for the place, which comes before any other.
    pub(super) fn keep_place(&mut self, now: Instant) -> Option<LeaseAction> {
        match self.place {
            Place::Due => {
                self.place = Place::Asked { sent: now };
                return Some(LeaseAction::Send(Query::Place));
            }
            Place::Asked { .. } if self.place_overdue().is_some_and(|end| now >= end) => {
                return Some(LeaseAction::Disconnect);
            }
            // Without its connection the lock is released, or it expires.
            Place::Held(_) if self.goal == LeaseGoal::None && self.link != Link::Up => {
                self.place = Place::None;
            }
            // Nothing else is sent before its answer has come (C4).
            Place::Asked { .. } => return Some(LeaseAction::Wait { until: self.wake() }),
            Place::Held(fence) if self.turn == Turn::Rest && self.wants_no_place() => {
                self.begin(Query::Leave(fence), now);
            }
            Place::None | Place::Held(_) => {}
        }
        if self.is_leaving && self.turn == Turn::Rest && self.goal == LeaseGoal::Hold {
            self.end(LeaseNews::Detached);
            return self.news.pop_front().map(LeaseAction::Tell);
        }
        None
    }

    fn wants_no_place(&self) -> bool {
        self.goal == LeaseGoal::None || self.is_leaving
    }

    /// Whether an obtain that found the lease held must first wait for the answer about its place, or release
    /// the place.
    pub(super) fn must_settle_place(&mut self, now: Instant) -> bool {
        match self.place {
            Place::None => false,
            Place::Due | Place::Asked { .. } => true,
            Place::Held(fence) => {
                self.begin(Query::Leave(fence), now);
                true
            }
        }
    }

    /// The server says that the item or the lock of the key is not ours. No request relies on either before the
    /// token was asked for.
    pub(super) fn ask_anew(&mut self, now: Instant) {
        match self.place {
            Place::Held(fence) => self.begin(Query::Leave(fence), now),
            Place::None | Place::Due | Place::Asked { .. } => self.begin(Query::Ask, now),
        }
    }

    /// The answer to `ml`, behind an add or alone.
    pub(super) fn placed(&mut self, now: Instant, answer: &AnyResponse<'_>) {
        let fence = answer.number(b'F').and_then(Fence::new);
        match (answer.code(), fence) {
            (Some(Code::Done), Some(fence)) => self.place = Place::Held(fence),
            // An earlier connection may still hold it for us.
            _ => self.place.forget_unanswered(),
        }
        if answer.is_not_understood() {
            (self.terms.queues, self.lacks_queue) = (false, true);
        }
        if self.goal == LeaseGoal::None && self.place == Place::None {
            // Its keeper waits for this news.
            self.news.push_back(LeaseNews::NotHeld);
        }
        if self.turn == Turn::Rest {
            self.go_on(now);
        }
    }

    /// Continues with the action that was postponed while the place was requested.
    fn go_on(&mut self, now: Instant) {
        match self.goal {
            LeaseGoal::Obtain { until } => self.back_off(now, until),
            LeaseGoal::Hold if self.refresh != Refresh::None => self.begin_renewal(now),
            LeaseGoal::Hold if self.measure_asked => self.begin(Query::Ask, now),
            LeaseGoal::Release { .. } => self.begin_removal(now),
            LeaseGoal::Hold | LeaseGoal::None => {}
        }
    }

    /// The answer to `mu`. In any case, the lock of the key is not ours.
    pub(super) fn left(&mut self, now: Instant) {
        self.place = Place::None;
        match self.goal {
            LeaseGoal::Obtain { until } => self.back_off(now, until),
            LeaseGoal::Hold if self.is_leaving => {}
            LeaseGoal::Hold | LeaseGoal::Release { .. } => self.begin(Query::Ask, now),
            LeaseGoal::None => self.news.push_back(LeaseNews::NotHeld),
        }
    }

    /// The flags of `ml`.
    pub(super) fn place_flags(&self) -> Flags<'static> {
        let ms = millis(place_ttl(self.terms.ttl));
        Flags::of([Flag::ShowFence, Flag::Lease(command::Lease::For { ms })])
    }

    /// The flags of a change, with the grant under which it is made.
    pub(super) fn in_place<'a>(&self, flags: Flags<'a>) -> Flags<'a> {
        match self.place {
            Place::Held(fence) => flags.with(Flag::InGrant(fence)),
            Place::None | Place::Due | Place::Asked { .. } => flags,
        }
    }
}
