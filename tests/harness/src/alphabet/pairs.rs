//! Which request can get which reply, written once, and which of these pairs a run has seen.
//!
//! - P1: a reply that the table does not allow is a mistake of the core or of the table.
//! - P2: a pair that the table allows and no run of a layer ever saw is a hole in that layer.

use std::fmt;

use latchd_protocol::command::{
    Arithmetic, Command, Direction, Get, GlobalCommand, Guard, ItemCommand, Lease, LockAfter,
    OnMissing, ReleaseOf, Removal, Set, SetMode, TtlStep, Wait,
};
use latchd_protocol::fence::Fence;
use latchd_protocol::item::Cas;
use latchd_protocol::reply::{Refusal, Reply, Win};
use latchd_protocol::wait::Outcome;

use super::{Asked, CasChoice, FenceChoice, Meaning, SmallKey, SmallRequest};

/// Declares an enum without fields, its names and the list of all.
macro_rules! kinds {
    ($(#[$doc:meta])* $name:ident { $($variant:ident,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
        #[allow(missing_docs)] // The names say it; the algebra's own types have the words.
        pub enum $name { $($variant,)* }

        impl $name {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Its name in the code.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => stringify!($variant),)* }
            }
        }
    };
}

kinds! {
    /// A reply without its values.
    ReplyKind {
        Hit, HitUnchanged, HitWon, HitSent, HitStale, HitStaleWon, HitStaleSent, Miss,
        Stored, NotStored, Exists, NotFound, Deleted, Number, Locked, Granted, GrantedItem, Contended,
        WouldDeadlock, Withheld, Waits, GivenInTurn, TimedOut, Unlocked, Ok, Keys, Stats,
        RefusedLocked, RefusedNotLocked, RefusedNotLockedNotFound, RefusedTooManyLocks,
        RefusedConnectionClosed, RefusedTooLarge, RefusedOutOfMemory, RefusedNonNumeric,
    }
}

/// Declares the kinds of requests: of each the replies that it can get, and in brackets which one it is
/// with a version that the item must have.
macro_rules! requests {
    ($($kind:ident $(($plain:ident))?: $($reply:ident)+;)+) => {
        kinds! {
            /// A request without its arguments, as fine as its possible replies need it.
            RequestKind { $($kind,)+ }
        }

        impl RequestKind {
            /// The replies that it can get.
            ///
            /// [`RefusedTooManyLocks`](ReplyKind::RefusedTooManyLocks) and
            /// [`RefusedOutOfMemory`](ReplyKind::RefusedOutOfMemory) need limits that are tight: a
            /// run says which pairs its limits leave out ([`Pairs::missing`]).
            #[must_use]
            pub const fn reachable(self) -> &'static [ReplyKind] {
                match self { $(Self::$kind => &[$(ReplyKind::$reply),+],)+ }
            }

            /// The same with a version, if there is such a kind.
            #[allow(clippy::wildcard_enum_match_arm)] // Those without brackets.
            const fn guarded(self) -> Self {
                match self { $($(Self::$plain => Self::$kind,)?)+ other => other }
            }

            /// Whether it asks for a version.
            #[must_use]
            #[allow(clippy::wildcard_enum_match_arm)] // Those without brackets.
            pub const fn is_guarded(self) -> bool {
                match self { $($(Self::$kind => { let _ = Self::$plain; true })?)+ _ => false }
            }
        }
    };
}

requests! {
    Get: Hit HitStale Miss;
    Touch: Hit HitStale Miss;
    LockAndGet: Hit HitStale Miss RefusedLocked RefusedTooManyLocks RefusedConnectionClosed;
    // It wins a fresh item only if the winner of that has ended.
    MetaGet: Hit HitUnchanged HitWon HitSent HitStaleWon HitStaleSent Miss;
    // A miss: another connection holds the key.
    Vivify: Hit HitUnchanged HitWon HitSent HitStaleWon HitStaleSent Miss RefusedOutOfMemory;
    Recache: Hit HitUnchanged HitWon HitSent HitStaleWon HitStaleSent Miss;
    // Any of these three with `B`.
    GetBound: Hit HitUnchanged HitWon HitSent HitStaleWon HitStaleSent Miss RefusedTooManyLocks
        RefusedConnectionClosed RefusedOutOfMemory;
    // Any of them with `w`, with `B` or without.
    GetOrWait: Hit HitUnchanged HitWon HitStaleWon Miss Waits RefusedTooManyLocks RefusedConnectionClosed
        RefusedOutOfMemory;
    // The end of a wait, as `Wait`; the kind of end counts. A win that is to be bound can find no
    // room then.
    GetWaited: Hit HitUnchanged HitWon HitSent HitStaleWon HitStaleSent Miss RefusedTooManyLocks
        RefusedOutOfMemory;
    Set: Stored RefusedLocked RefusedOutOfMemory;
    Cas (Set): Stored Exists NotFound RefusedLocked RefusedOutOfMemory;
    CasElseStale (Cas): Stored Exists NotFound RefusedLocked RefusedOutOfMemory;
    Add: Stored NotStored RefusedLocked RefusedOutOfMemory;
    Replace: Stored NotStored RefusedLocked RefusedOutOfMemory;
    ReplaceCas (Replace): Stored Exists NotFound RefusedLocked RefusedOutOfMemory;
    ReplaceAndUnlock: Stored NotStored NotFound RefusedLocked RefusedNotLocked RefusedOutOfMemory;
    ReplaceAndUnlockCas (ReplaceAndUnlock): Stored Exists NotFound RefusedLocked RefusedNotLocked RefusedOutOfMemory;
    Append: Stored NotStored RefusedLocked RefusedOutOfMemory;
    AppendCas (Append): Stored NotStored Exists RefusedLocked RefusedOutOfMemory;
    AppendElseCreate: Stored NotStored RefusedLocked RefusedOutOfMemory;
    AppendElseCreateCas (AppendElseCreate): Stored NotStored Exists RefusedLocked RefusedOutOfMemory;
    Prepend: Stored NotStored RefusedLocked RefusedOutOfMemory;
    PrependCas (Prepend): Stored NotStored Exists RefusedLocked RefusedOutOfMemory;
    PrependElseCreate: Stored NotStored RefusedLocked RefusedOutOfMemory;
    PrependElseCreateCas (PrependElseCreate): Stored NotStored Exists RefusedLocked RefusedOutOfMemory;
    SetTooLarge: RefusedTooLarge;
    Delete: Deleted NotFound RefusedLocked;
    DeleteCas (Delete): Deleted NotFound Exists RefusedLocked;
    MarkStale: Deleted NotFound RefusedLocked;
    MarkStaleCas (MarkStale): Deleted NotFound Exists RefusedLocked;
    Clear: Deleted NotFound RefusedLocked RefusedOutOfMemory;
    ClearCas (Clear): Deleted NotFound Exists RefusedLocked RefusedOutOfMemory;
    ClearAndMarkStale: Deleted NotFound RefusedLocked RefusedOutOfMemory;
    ClearAndMarkStaleCas (ClearAndMarkStale): Deleted NotFound Exists RefusedLocked RefusedOutOfMemory;
    Increment: Number NotFound RefusedLocked RefusedNonNumeric RefusedOutOfMemory;
    IncrementCas (Increment): Number NotFound Exists RefusedLocked RefusedNonNumeric RefusedOutOfMemory;
    IncrementElseCreate: Number RefusedLocked RefusedNonNumeric RefusedOutOfMemory;
    IncrementElseCreateCas (IncrementElseCreate): Number Exists RefusedLocked RefusedNonNumeric
        RefusedOutOfMemory;
    Decrement: Number NotFound RefusedLocked RefusedNonNumeric RefusedOutOfMemory;
    DecrementCas (Decrement): Number NotFound Exists RefusedLocked RefusedNonNumeric RefusedOutOfMemory;
    DecrementElseCreate: Number RefusedLocked RefusedNonNumeric RefusedOutOfMemory;
    DecrementElseCreateCas (DecrementElseCreate): Number Exists RefusedLocked RefusedNonNumeric
        RefusedOutOfMemory;
    Lock: Locked NotFound RefusedLocked RefusedTooManyLocks RefusedConnectionClosed;
    Acquire: Granted GrantedItem Contended Withheld RefusedTooManyLocks RefusedConnectionClosed;
    AcquireLeased: Granted GrantedItem Contended Withheld RefusedTooManyLocks RefusedConnectionClosed;
    // Refused: the client holds it in the other mode.
    TakeLeaseOff: Granted GrantedItem NotFound Contended WouldDeadlock;
    // `S`, with a lease or without, and `x` or not.
    AcquireShared: Granted GrantedItem NotFound Contended Withheld RefusedTooManyLocks RefusedConnectionClosed;
    // `x`, with a lease or without.
    AcquireItem: GrantedItem NotFound Contended Withheld RefusedTooManyLocks RefusedConnectionClosed;
    // Any of these, if it may wait.
    AcquireOrWait: Granted GrantedItem NotFound WouldDeadlock Waits RefusedTooManyLocks
        RefusedConnectionClosed;
    // Not the request, but the end of its wait: how the wait ends, and the answer.
    Wait: GivenInTurn TimedOut Granted GrantedItem Contended Withheld NotFound RefusedTooManyLocks;
    Release: Unlocked NotFound;
    ReleaseFenced: Unlocked NotFound;
    ReleaseGrant: Unlocked Exists;
    SetFenced: Stored NotStored Exists RefusedLocked NotFound RefusedOutOfMemory;
    SetAndUnlock: Stored NotStored Exists NotFound RefusedLocked RefusedNotLocked RefusedOutOfMemory;
    DeleteFenced: Deleted NotFound Exists RefusedLocked RefusedOutOfMemory;
    DeleteAndUnlock: Deleted NotFound Exists RefusedLocked RefusedNotLocked RefusedOutOfMemory;
    CountFenced: Number NotFound Exists RefusedLocked RefusedNonNumeric RefusedOutOfMemory;
    CountAndUnlock: Number NotFound Exists RefusedLocked RefusedNotLocked RefusedNonNumeric RefusedOutOfMemory;
    Unlock: Unlocked RefusedNotLocked RefusedNotLockedNotFound;
    UnlockAll: Unlocked;
    FlushAll: Ok;
    Keys: Keys;
    Stats: Stats;
    StatsReset: Ok;
}

/// Whether a reply needs a store that moves an item that does not grow, as a log does: it can be
/// out of room for that. The reference store never is.
#[must_use]
pub fn needs_log(request: RequestKind, reply: ReplyKind) -> bool {
    let shrinks = [
        RequestKind::Clear,
        RequestKind::ClearCas,
        RequestKind::ClearAndMarkStale,
        RequestKind::ClearAndMarkStaleCas,
        RequestKind::DeleteFenced,
        RequestKind::DeleteAndUnlock,
        RequestKind::Decrement,
        RequestKind::DecrementCas,
    ];
    reply == ReplyKind::RefusedOutOfMemory && shrinks.contains(&request)
}

/// Whether a reply needs a lock that is shared: no holder may change the item, as the lock is
/// shared.
#[must_use]
pub fn needs_sharing(request: RequestKind, reply: ReplyKind) -> bool {
    let in_own_right = [
        RequestKind::ReplaceAndUnlock,
        RequestKind::ReplaceAndUnlockCas,
        RequestKind::SetFenced,
        RequestKind::SetAndUnlock,
        RequestKind::DeleteFenced,
        RequestKind::DeleteAndUnlock,
        RequestKind::CountFenced,
        RequestKind::CountAndUnlock,
    ];
    request == RequestKind::AcquireShared
        || reply == ReplyKind::RefusedLocked && in_own_right.contains(&request)
        || request == RequestKind::TakeLeaseOff
            && matches!(reply, ReplyKind::Contended | ReplyKind::WouldDeadlock)
}

/// Whether a pair needs gets that wait, or wins that are bound.
#[must_use]
pub fn needs_bound(request: RequestKind, reply: ReplyKind) -> bool {
    request.is_of_wins() || (request, reply) == (RequestKind::MetaGet, ReplyKind::HitWon)
}

impl RequestKind {
    /// Whether this reply is possible. Only those of the table are demanded of a layer: the lease of a lock is seldom
    /// removed with metadata that finds no memory.
    #[must_use]
    pub fn can_get(self, reply: ReplyKind) -> bool {
        let by_metadata = (Self::TakeLeaseOff, ReplyKind::RefusedTooManyLocks);
        self.reachable().contains(&reply) || (self, reply) == by_metadata
    }

    /// Whether it concerns gets that wait, or wins that are bound: a layer that wants to see them
    /// draws it.
    #[must_use]
    pub const fn is_of_wins(self) -> bool {
        matches!(self, Self::GetBound | Self::GetOrWait | Self::GetWaited)
    }

    /// The kind of `request`.
    #[must_use]
    pub fn of(request: &SmallRequest) -> Self {
        /// The kind does not depend on which version a guard asks for.
        struct Any;
        impl Meaning<'static> for Any {
            fn version(&self, _: SmallKey, _: CasChoice) -> Cas {
                Cas::FIRST
            }

            fn fence(&self, _: SmallKey, _: FenceChoice) -> Fence {
                Fence::FIRST
            }
        }
        Self::of_command(&request.lower(&Any))
    }

    /// The kind of an asked request: one that has waited is no request of its own.
    #[must_use]
    pub fn of_asked(asked: &Asked) -> Self {
        if asked.has_waited {
            Self::of_waited(matches!(asked.request, SmallRequest::Get(_)))
        } else {
            Self::of(&asked.request)
        }
    }

    /// The kind of a request that has waited: a get, or one for a lock.
    const fn of_waited(is_get: bool) -> Self {
        if is_get { Self::GetWaited } else { Self::Wait }
    }

    /// The kind of `command`: of the alphabet or of a layer's own making.
    #[must_use]
    pub fn of_command(command: &Command<'_>) -> Self {
        match command {
            Command::Item(command) => Self::of_item_command(command),
            Command::Global(command) => match command {
                GlobalCommand::UnlockAll => Self::UnlockAll,
                GlobalCommand::FlushAll { .. } => Self::FlushAll,
                GlobalCommand::Keys(_) => Self::Keys,
                GlobalCommand::Stats(_) => Self::Stats,
                GlobalCommand::StatsReset => Self::StatsReset,
            },
        }
    }

    /// As [`of_command`](Self::of_command).
    #[must_use]
    pub fn of_item_command(command: &ItemCommand<'_>) -> Self {
        match command {
            ItemCommand::Get(get) => Self::of_get(get),
            ItemCommand::Set(set) => Self::of_set(set),
            ItemCommand::SetTooLarge { .. } => Self::SetTooLarge,
            ItemCommand::Delete(delete) if delete.fence.is_some() => Self::DeleteFenced,
            ItemCommand::Delete(delete) if delete.lock == LockAfter::Release => {
                Self::DeleteAndUnlock
            }
            ItemCommand::Delete(delete) => {
                let plain = match delete.removal {
                    Removal::Remove => Self::Delete,
                    Removal::MarkStale { .. } => Self::MarkStale,
                    Removal::Clear { .. } => Self::Clear,
                    Removal::ClearAndMarkStale { .. } => Self::ClearAndMarkStale,
                };
                plain.by(delete.guard)
            }
            ItemCommand::Arithmetic(sum) if sum.fence.is_some() => Self::CountFenced,
            ItemCommand::Arithmetic(sum) if sum.lock == LockAfter::Release => Self::CountAndUnlock,
            ItemCommand::Acquire(acquire) if acquire.lease == Some(Lease::Off) => {
                Self::TakeLeaseOff
            }
            ItemCommand::Acquire(acquire) if matches!(acquire.wait, Wait::UpTo { .. }) => {
                Self::AcquireOrWait
            }
            ItemCommand::Acquire(acquire) if acquire.mode.is_shared() => Self::AcquireShared,
            ItemCommand::Acquire(acquire) if acquire.needs_item => Self::AcquireItem,
            ItemCommand::Acquire(acquire) if acquire.lease.is_some() => Self::AcquireLeased,
            ItemCommand::Acquire(_) => Self::Acquire,
            ItemCommand::Release(release) => match release.of {
                ReleaseOf::Own => Self::Release,
                ReleaseOf::OwnGrant(_) => Self::ReleaseFenced,
                ReleaseOf::Grant(_) => Self::ReleaseGrant,
            },
            ItemCommand::Arithmetic(arithmetic) => Self::of_arithmetic(arithmetic),
            ItemCommand::Lock { .. } => Self::Lock,
            ItemCommand::Unlock { .. } => Self::Unlock,
        }
    }

    fn of_get(get: &Get<'_>) -> Self {
        let recaches = |step| matches!(step, TtlStep::Recache(_));
        match (get.lock, get.recaches) {
            (true, _) => Self::LockAndGet,
            (false, true) if get.wait_ms > 0 => Self::GetOrWait,
            (false, true) if get.bound_to_owner => Self::GetBound,
            (false, false) if get.steps.is_empty() => Self::Get,
            (false, false) => Self::Touch,
            (false, true) if get.steps.vivifies() => Self::Vivify,
            (false, true) if get.steps.iter().any(recaches) => Self::Recache,
            (false, true) => Self::MetaGet,
        }
    }

    fn of_arithmetic(arithmetic: &Arithmetic<'_>) -> Self {
        let plain = match (arithmetic.direction, arithmetic.steps.vivifies()) {
            (Direction::Increment, false) => Self::Increment,
            (Direction::Increment, true) => Self::IncrementElseCreate,
            (Direction::Decrement, false) => Self::Decrement,
            (Direction::Decrement, true) => Self::DecrementElseCreate,
        };
        plain.by(arithmetic.guard)
    }

    fn of_set(set: &Set<'_>) -> Self {
        if set.fence.is_some() {
            return Self::SetFenced;
        }
        let plain = match (set.lock, set.mode) {
            (LockAfter::Release, SetMode::Replace) => Self::ReplaceAndUnlock,
            (LockAfter::Release, _) => return Self::SetAndUnlock,
            (LockAfter::Keep, SetMode::Set) => Self::Set,
            (LockAfter::Keep, SetMode::Add) => Self::Add,
            (LockAfter::Keep, SetMode::Replace) => Self::Replace,
            (LockAfter::Keep, SetMode::Append { missing }) => match missing {
                OnMissing::Refuse => Self::Append,
                OnMissing::Create => Self::AppendElseCreate,
            },
            (LockAfter::Keep, SetMode::Prepend { missing }) => match missing {
                OnMissing::Refuse => Self::Prepend,
                OnMissing::Create => Self::PrependElseCreate,
            },
        };
        plain.by(set.guard)
    }

    /// The same by a guard. Only a set can leave an item stale by comparing.
    const fn by(self, guard: Guard) -> Self {
        match guard {
            Guard::None => self,
            Guard::Match(_) | Guard::Never => self.guarded(),
            Guard::MatchElseStale(_) => self.guarded().guarded(),
        }
    }
}

impl ReplyKind {
    /// The reply at the end of a wait.
    #[must_use]
    pub const fn of_outcome(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Granted => Self::GivenInTurn,
            Outcome::TimedOut => Self::TimedOut,
            Outcome::NotFound => Self::NotFound,
            Outcome::TooManyLocks => Self::RefusedTooManyLocks,
        }
    }

    /// The kind of `reply`.
    #[must_use]
    pub const fn of(reply: &Reply<'_>) -> Self {
        match reply {
            Reply::Hit(hit) => match (hit.stale, hit.win) {
                (true, Win::None) => Self::HitStale,
                (true, Win::Won) => Self::HitStaleWon,
                (true, Win::Sent) => Self::HitStaleSent,
                (false, Win::Won) => Self::HitWon,
                (false, Win::Sent) => Self::HitSent,
                (false, Win::None) if hit.unchanged => Self::HitUnchanged,
                (false, Win::None) => Self::Hit,
            },
            Reply::Miss => Self::Miss,
            Reply::Stored(_) => Self::Stored,
            Reply::NotStored => Self::NotStored,
            Reply::Exists => Self::Exists,
            Reply::NotFound => Self::NotFound,
            Reply::Deleted => Self::Deleted,
            Reply::Number(_) => Self::Number,
            Reply::Locked => Self::Locked,
            Reply::Granted(granted) if granted.item.is_some() => Self::GrantedItem,
            Reply::Granted(_) => Self::Granted,
            Reply::Contended(_) => Self::Contended,
            Reply::WouldDeadlock(_) => Self::WouldDeadlock,
            Reply::Withheld { .. } => Self::Withheld,
            Reply::Waits => Self::Waits,
            Reply::Unlocked => Self::Unlocked,
            Reply::Ok => Self::Ok,
            Reply::Keys(_) => Self::Keys,
            Reply::Stats(_) => Self::Stats,
            Reply::Refused(refusal) => match refusal {
                Refusal::Locked => Self::RefusedLocked,
                Refusal::NotLocked => Self::RefusedNotLocked,
                Refusal::NotLockedNotFound => Self::RefusedNotLockedNotFound,
                Refusal::TooManyLocks => Self::RefusedTooManyLocks,
                Refusal::ConnectionClosed => Self::RefusedConnectionClosed,
                Refusal::TooLarge => Self::RefusedTooLarge,
                Refusal::OutOfMemory => Self::RefusedOutOfMemory,
                Refusal::NonNumeric => Self::RefusedNonNumeric,
                Refusal::Unrecorded => panic!("a core records nothing"),
            },
            Reply::KeyOf(_) => panic!("a core has all keys"),
        }
    }
}

/// How often each pair was seen.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Pairs {
    /// A row a request.
    seen: Vec<[u64; ReplyKind::ALL.len()]>,
}

impl Default for Pairs {
    fn default() -> Self {
        Self {
            seen: vec![[0; ReplyKind::ALL.len()]; RequestKind::ALL.len()],
        }
    }
}

impl Pairs {
    /// Notes a pair.
    pub fn note(&mut self, asked: &Asked, reply: &Reply<'_>) {
        self.note_kind(RequestKind::of_asked(asked), ReplyKind::of(reply));
    }

    /// Notes how a wait has ended.
    pub fn note_outcome(&mut self, outcome: Outcome) {
        self.note_kind(RequestKind::Wait, ReplyKind::of_outcome(outcome));
    }

    /// Notes a pair of a layer that has commands and no requests.
    pub fn note_command(&mut self, command: &Command<'_>, reply: &Reply<'_>) {
        self.note_kind(RequestKind::of_command(command), ReplyKind::of(reply));
    }

    /// The same for a request that is answered at the end of its wait.
    pub fn note_waited(&mut self, command: &Command<'_>, reply: &Reply<'_>) {
        let kind = RequestKind::of_waited(matches!(command, Command::Item(ItemCommand::Get(_))));
        self.note_kind(kind, ReplyKind::of(reply));
    }

    fn note_kind(&mut self, request: RequestKind, reply: ReplyKind) {
        let row = self.seen.get_mut(request as usize);
        if let Some(count) = row.and_then(|row| row.get_mut(reply as usize)) {
            *count += 1;
        }
    }

    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Self) {
        for (row, other) in self.seen.iter_mut().zip(&other.seen) {
            for (count, other) in row.iter_mut().zip(other) {
                *count += other;
            }
        }
    }

    /// How often a pair was seen.
    #[must_use]
    pub fn count(&self, request: RequestKind, reply: ReplyKind) -> u64 {
        self.seen
            .get(request as usize)
            .and_then(|row| row.get(reply as usize))
            .map_or(0, |n| *n)
    }

    /// The possible pairs that were never seen (P2), except those that the limits of the run
    /// exclude.
    pub fn missing(
        &self,
        left_out: impl Fn(RequestKind, ReplyKind) -> bool,
    ) -> impl Iterator<Item = (RequestKind, ReplyKind)> {
        every_pair().filter(move |(request, reply)| {
            request.reachable().contains(reply)
                && !left_out(*request, *reply)
                && self.count(*request, *reply) == 0
        })
    }

    /// The pairs that were seen and cannot be (P1).
    pub fn impossible(&self) -> impl Iterator<Item = (RequestKind, ReplyKind)> {
        every_pair()
            .filter(|(request, reply)| !request.can_get(*reply) && self.count(*request, *reply) > 0)
    }
}

fn every_pair() -> impl Iterator<Item = (RequestKind, ReplyKind)> {
    RequestKind::ALL
        .iter()
        .flat_map(|request| ReplyKind::ALL.iter().map(move |reply| (*request, *reply)))
}

/// A line for each request, with how often it got which reply.
impl fmt::Display for Pairs {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for request in RequestKind::ALL {
            write!(formatter, "{:<24}", request.name())?;
            for reply in ReplyKind::ALL {
                let count = self.count(*request, *reply);
                if count > 0 || request.reachable().contains(reply) {
                    write!(formatter, " {} {count}", reply.name())?;
                }
            }
            writeln!(formatter)?;
        }
        Ok(())
    }
}
