//! Which request can get which reply, written once, and which of these pairs a run has seen.
//!
//! - P1: a reply that the table does not allow is a mistake of the core or of the table.
//! - P2: a pair that the table allows and no run of a layer ever saw is a hole in that layer.

use std::fmt;

use latchd_core::command::{
    Arithmetic, Command, Direction, Get, GlobalCommand, Guard, ItemCommand, LockAfter, OnMissing,
    Removal, Set, SetMode, TtlStep,
};
use latchd_core::item::Cas;
use latchd_core::reply::{Refusal, Reply, Win};

use super::{CasChoice, Meaning, SmallKey, SmallRequest};

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

            /// What it is called in the code.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => stringify!($variant),)* }
            }
        }
    };
}

kinds! {
    /// A request without its arguments, as fine as its possible replies need it.
    RequestKind {
        Get, Touch, LockAndGet, MetaGet, Vivify, Recache,
        Set, Cas, CasElseStale,
        Add, Replace, ReplaceCas, ReplaceAndUnlock, ReplaceAndUnlockCas,
        Append, AppendCas, AppendElseCreate, AppendElseCreateCas,
        Prepend, PrependCas, PrependElseCreate, PrependElseCreateCas,
        SetTooLarge,
        Delete, DeleteCas, MarkStale, MarkStaleCas, Clear, ClearCas, ClearAndMarkStale,
        ClearAndMarkStaleCas,
        Increment, IncrementCas, IncrementElseCreate, IncrementElseCreateCas,
        Decrement, DecrementCas, DecrementElseCreate, DecrementElseCreateCas,
        Lock, Unlock, UnlockAll, FlushAll, Keys, Stats, StatsReset,
    }
}

kinds! {
    /// A reply without its values.
    ReplyKind {
        Hit, HitUnchanged, HitWon, HitSent, HitStale, HitStaleWon, HitStaleSent, Miss,
        Stored, NotStored, Exists, NotFound, Deleted, Number, Locked, Unlocked, Ok, Keys, Stats,
        RefusedLocked, RefusedNotLocked, RefusedNotLockedNotFound, RefusedTooManyLocks,
        RefusedConnectionClosed, RefusedTooLarge, RefusedOutOfMemory, RefusedNonNumeric,
    }
}

/// The replies that a request can get.
///
/// [`RefusedTooManyLocks`](ReplyKind::RefusedTooManyLocks) and
/// [`RefusedOutOfMemory`](ReplyKind::RefusedOutOfMemory) need limits that are tight: a run says
/// which pairs its limits leave out ([`Pairs::missing`]).
#[must_use]
pub const fn reachable(request: RequestKind) -> &'static [ReplyKind] {
    use ReplyKind as R;
    use RequestKind as Q;
    match request {
        Q::Get | Q::Touch => &[R::Hit, R::HitStale, R::Miss],
        Q::LockAndGet => &[
            R::Hit,
            R::HitStale,
            R::Miss,
            R::RefusedLocked,
            R::RefusedTooManyLocks,
            R::RefusedConnectionClosed,
        ],
        Q::MetaGet => &[
            R::Hit,
            R::HitUnchanged,
            R::HitSent,
            R::HitStaleWon,
            R::HitStaleSent,
            R::Miss,
        ],
        Q::Recache => &[
            R::Hit,
            R::HitUnchanged,
            R::HitWon,
            R::HitSent,
            R::HitStaleWon,
            R::HitStaleSent,
            R::Miss,
        ],
        Q::Vivify => &[
            R::Hit,
            R::HitUnchanged,
            R::HitWon,
            R::HitSent,
            R::HitStaleWon,
            R::HitStaleSent,
            R::RefusedOutOfMemory,
        ],
        Q::Set => &[R::Stored, R::RefusedLocked, R::RefusedOutOfMemory],
        Q::Cas | Q::CasElseStale | Q::ReplaceCas => &[
            R::Stored,
            R::Exists,
            R::NotFound,
            R::RefusedLocked,
            R::RefusedOutOfMemory,
        ],
        Q::Add
        | Q::Replace
        | Q::Append
        | Q::Prepend
        | Q::AppendElseCreate
        | Q::PrependElseCreate => &[
            R::Stored,
            R::NotStored,
            R::RefusedLocked,
            R::RefusedOutOfMemory,
        ],
        Q::ReplaceAndUnlock => &[
            R::Stored,
            R::NotFound,
            R::RefusedNotLocked,
            R::RefusedOutOfMemory,
        ],
        Q::ReplaceAndUnlockCas => &[
            R::Stored,
            R::Exists,
            R::NotFound,
            R::RefusedNotLocked,
            R::RefusedOutOfMemory,
        ],
        Q::AppendCas | Q::PrependCas | Q::AppendElseCreateCas | Q::PrependElseCreateCas => &[
            R::Stored,
            R::NotStored,
            R::Exists,
            R::RefusedLocked,
            R::RefusedOutOfMemory,
        ],
        Q::SetTooLarge => &[R::RefusedTooLarge],
        Q::Delete | Q::MarkStale | Q::Clear | Q::ClearAndMarkStale => {
            &[R::Deleted, R::NotFound, R::RefusedLocked]
        }
        Q::DeleteCas | Q::MarkStaleCas | Q::ClearCas | Q::ClearAndMarkStaleCas => {
            &[R::Deleted, R::NotFound, R::Exists, R::RefusedLocked]
        }
        Q::Increment => &[
            R::Number,
            R::NotFound,
            R::RefusedLocked,
            R::RefusedNonNumeric,
            R::RefusedOutOfMemory,
        ],
        Q::IncrementCas => &[
            R::Number,
            R::NotFound,
            R::Exists,
            R::RefusedLocked,
            R::RefusedNonNumeric,
            R::RefusedOutOfMemory,
        ],
        // A number that does not grow needs no room.
        Q::Decrement => &[
            R::Number,
            R::NotFound,
            R::RefusedLocked,
            R::RefusedNonNumeric,
        ],
        Q::DecrementCas => &[
            R::Number,
            R::NotFound,
            R::Exists,
            R::RefusedLocked,
            R::RefusedNonNumeric,
        ],
        Q::IncrementElseCreate | Q::DecrementElseCreate => &[
            R::Number,
            R::RefusedLocked,
            R::RefusedNonNumeric,
            R::RefusedOutOfMemory,
        ],
        Q::IncrementElseCreateCas | Q::DecrementElseCreateCas => &[
            R::Number,
            R::Exists,
            R::RefusedLocked,
            R::RefusedNonNumeric,
            R::RefusedOutOfMemory,
        ],
        Q::Lock => &[
            R::Locked,
            R::NotFound,
            R::RefusedLocked,
            R::RefusedTooManyLocks,
            R::RefusedConnectionClosed,
        ],
        Q::Unlock => &[
            R::Unlocked,
            R::RefusedNotLocked,
            R::RefusedNotLockedNotFound,
        ],
        Q::UnlockAll => &[R::Unlocked],
        Q::FlushAll | Q::StatsReset => &[R::Ok],
        Q::Keys => &[R::Keys],
        Q::Stats => &[R::Stats],
    }
}

impl RequestKind {
    /// What kind of request `request` is.
    #[must_use]
    pub fn of(request: &SmallRequest) -> Self {
        /// The kind does not depend on which version a guard asks for.
        struct Any;
        impl Meaning<'static> for Any {
            fn version(&self, _: SmallKey, _: CasChoice) -> Cas {
                Cas::FIRST
            }
        }
        Self::of_command(&request.lower(&Any))
    }

    /// What kind of request `command` is: of the alphabet or of a layer's own making.
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
            ItemCommand::Delete(delete) => match (delete.removal, delete.guard) {
                (Removal::Remove, Guard::None) => Self::Delete,
                (Removal::Remove, _) => Self::DeleteCas,
                (Removal::MarkStale { .. }, Guard::None) => Self::MarkStale,
                (Removal::MarkStale { .. }, _) => Self::MarkStaleCas,
                (Removal::Clear { .. }, Guard::None) => Self::Clear,
                (Removal::Clear { .. }, _) => Self::ClearCas,
                (Removal::ClearAndMarkStale { .. }, Guard::None) => Self::ClearAndMarkStale,
                (Removal::ClearAndMarkStale { .. }, _) => Self::ClearAndMarkStaleCas,
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
            (false, false) if get.steps.is_empty() => Self::Get,
            (false, false) => Self::Touch,
            (false, true) if get.steps.vivifies() => Self::Vivify,
            (false, true) if get.steps.iter().any(recaches) => Self::Recache,
            (false, true) => Self::MetaGet,
        }
    }

    fn of_arithmetic(arithmetic: &Arithmetic<'_>) -> Self {
        let guarded = arithmetic.guard != Guard::None;
        match (arithmetic.direction, guarded, arithmetic.steps.vivifies()) {
            (Direction::Increment, false, false) => Self::Increment,
            (Direction::Increment, true, false) => Self::IncrementCas,
            (Direction::Increment, false, true) => Self::IncrementElseCreate,
            (Direction::Increment, true, true) => Self::IncrementElseCreateCas,
            (Direction::Decrement, false, false) => Self::Decrement,
            (Direction::Decrement, true, false) => Self::DecrementCas,
            (Direction::Decrement, false, true) => Self::DecrementElseCreate,
            (Direction::Decrement, true, true) => Self::DecrementElseCreateCas,
        }
    }

    fn of_set(set: &Set<'_>) -> Self {
        let guarded = set.guard != Guard::None;
        let else_stale = matches!(set.guard, Guard::MatchElseStale(_));
        match (set.lock, set.mode) {
            (LockAfter::Release, _) if guarded => Self::ReplaceAndUnlockCas,
            (LockAfter::Release, _) => Self::ReplaceAndUnlock,
            (LockAfter::Keep, SetMode::Set) if else_stale => Self::CasElseStale,
            (LockAfter::Keep, SetMode::Set) if guarded => Self::Cas,
            (LockAfter::Keep, SetMode::Set) => Self::Set,
            (LockAfter::Keep, SetMode::Add) => Self::Add,
            (LockAfter::Keep, SetMode::Replace) if guarded => Self::ReplaceCas,
            (LockAfter::Keep, SetMode::Replace) => Self::Replace,
            (LockAfter::Keep, SetMode::Append { missing }) => match (missing, guarded) {
                (OnMissing::Refuse, false) => Self::Append,
                (OnMissing::Refuse, true) => Self::AppendCas,
                (OnMissing::Create, false) => Self::AppendElseCreate,
                (OnMissing::Create, true) => Self::AppendElseCreateCas,
            },
            (LockAfter::Keep, SetMode::Prepend { missing }) => match (missing, guarded) {
                (OnMissing::Refuse, false) => Self::Prepend,
                (OnMissing::Refuse, true) => Self::PrependCas,
                (OnMissing::Create, false) => Self::PrependElseCreate,
                (OnMissing::Create, true) => Self::PrependElseCreateCas,
            },
        }
    }
}

impl ReplyKind {
    /// What kind of reply `reply` is.
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
            },
        }
    }
}

/// How often each pair was seen.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Pairs {
    seen: [[u64; ReplyKind::ALL.len()]; RequestKind::ALL.len()],
}

impl Default for Pairs {
    fn default() -> Self {
        Self {
            seen: [[0; ReplyKind::ALL.len()]; RequestKind::ALL.len()],
        }
    }
}

impl Pairs {
    /// Notes a pair.
    pub fn note(&mut self, request: &SmallRequest, reply: &Reply<'_>) {
        self.note_kind(RequestKind::of(request), reply);
    }

    /// Notes a pair of a layer that has commands and no requests.
    pub fn note_command(&mut self, command: &Command<'_>, reply: &Reply<'_>) {
        self.note_kind(RequestKind::of_command(command), reply);
    }

    fn note_kind(&mut self, request: RequestKind, reply: &Reply<'_>) {
        let row = self.seen.get_mut(request as usize);
        if let Some(count) = row.and_then(|row| row.get_mut(ReplyKind::of(reply) as usize)) {
            *count += 1;
        }
    }

    /// Adds what another run has seen.
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

    /// The pairs that can be and were never seen (P2), but for those that the limits of the run
    /// leave out.
    pub fn missing(
        &self,
        left_out: impl Fn(RequestKind, ReplyKind) -> bool,
    ) -> impl Iterator<Item = (RequestKind, ReplyKind)> {
        every_pair().filter(move |(request, reply)| {
            reachable(*request).contains(reply)
                && !left_out(*request, *reply)
                && self.count(*request, *reply) == 0
        })
    }

    /// The pairs that were seen and cannot be (P1).
    pub fn impossible(&self) -> impl Iterator<Item = (RequestKind, ReplyKind)> {
        every_pair().filter(|(request, reply)| {
            !reachable(*request).contains(reply) && self.count(*request, *reply) > 0
        })
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
                if count > 0 || reachable(*request).contains(reply) {
                    write!(formatter, " {} {count}", reply.name())?;
                }
            }
            writeln!(formatter)?;
        }
        Ok(())
    }
}
