//! The words of the models' alphabets. Each stands for an op of the shared alphabet
//! ([`latchd_harness::alphabet`]).
//!
//! A request is named by its kind, which is a row of the table of requests and replies, and by a
//! manner if it has several. The same kind in another manner is another word.

use std::fmt;

use latchd_harness::alphabet::{
    CasChoice, FenceChoice, GuardChoice, ReleaseChoice, RequestKind as Kind, SmallAcquire,
    SmallArithmetic, SmallDelete, SmallGet, SmallKey, SmallRequest, SmallSet, SmallValue,
};
use latchd_protocol::command::{
    Direction, Lease, LockAfter, OnMissing, Removal, SetMode, TtlStep, TtlSteps,
};
use latchd_protocol::time::Exptime;

/// The token of `R`, in seconds: wins an item of which less than this remains.
const RECACHE_S: u32 = 2;

/// The number of an item that a count makes: of as many digits as every value has.
const INITIAL: u64 = 5000;

/// An amount of arithmetic with more digits than there is room for.
const LONG_DELTA: u64 = 10_u64.pow(19);

/// The possible events.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Verb {
    /// A client connects.
    Open,
    /// A client's connection ends, however it does.
    Close,
    /// A client asks for something.
    Ask(Kind, Manner),
    /// A connection that has ended asks for something.
    Late(Kind),
    /// A second passes.
    Pass,
    /// The core learns the time, and looks for expired items.
    Tick,
    /// The core learns an earlier time.
    StepBack,
    /// The wall clock has changed.
    WallClock,
    /// An item of a key that no client uses is stored: memory becomes scarce.
    Pressure,
}

/// The form of a request.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Manner {
    /// As plainly as its kind allows. A version in it is the one that the client was told last; an
    /// append adds nothing, which is a change all the same.
    Plain,
    /// The item gets the model's TTL.
    Expiring,
    /// The value is, or becomes, longer than there is room for.
    Long,
    /// The version that is asked for does not exist yet.
    Ahead,
    /// The item gets a version of the client's choice.
    Chosen,
    /// It takes effect in a second.
    Later,
    /// The client states its version (`mg C`).
    Known,
}

/// A request in the plain manner.
#[must_use]
pub const fn ask(kind: Kind) -> Verb {
    Verb::Ask(kind, Manner::Plain)
}

/// A list of verbs in groups: `Do` for events other than requests, a manner for requests, and
/// `Late` for late ones.
macro_rules! verbs {
    ($($how:ident($($what:ident)+))+) => { &[$($($crate::verb::verbs!(@$how $what),)+)+] };
    (@Do $verb:ident) => { $crate::verb::Verb::$verb };
    (@Late $kind:ident) => {
        $crate::verb::Verb::Late(::latchd_harness::alphabet::RequestKind::$kind)
    };
    (@$manner:ident $kind:ident) => {
        $crate::verb::Verb::Ask(
            ::latchd_harness::alphabet::RequestKind::$kind,
            $crate::verb::Manner::$manner,
        )
    };
}
pub(crate) use verbs;

/// The subject of a [`Verb`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Scope {
    /// A client that is not connected.
    Absent,
    /// A client.
    Client,
    /// A client and a key.
    Item,
    /// A client and a key that it has been told a version of.
    Version,
    /// A key.
    Key,
    /// The world.
    World,
}

impl Verb {
    /// Its subject.
    #[must_use]
    pub const fn scope(self) -> Scope {
        match self {
            Self::Open => Scope::Absent,
            Self::Close => Scope::Client,
            Self::Ask(kind, manner) => match (kind, manner) {
                (
                    Kind::UnlockAll | Kind::FlushAll | Kind::Keys | Kind::Stats | Kind::StatsReset,
                    _,
                ) => Scope::Client,
                (_, Manner::Known) => Scope::Version,
                (_, Manner::Ahead) => Scope::Item,
                (kind, _) if kind.is_guarded() => Scope::Version,
                (_, _) => Scope::Item,
            },
            Self::Late(_) => Scope::Key,
            Self::Pass | Self::Tick | Self::StepBack | Self::WallClock | Self::Pressure => {
                Scope::World
            }
        }
    }

    /// The request, for an item with a TTL of `ttl_s` seconds if it is to expire; `None` if it is
    /// no request.
    #[must_use]
    pub fn request(self, key: SmallKey, ttl_s: u32) -> Option<SmallRequest> {
        let (kind, manner) = match self {
            Self::Ask(kind, manner) => (kind, manner),
            Self::Late(kind) => (kind, Manner::Plain),
            Self::Open
            | Self::Close
            | Self::Pass
            | Self::Tick
            | Self::StepBack
            | Self::WallClock
            | Self::Pressure => return None,
        };
        Some(Phrase { key, manner, ttl_s }.request(kind))
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ask(kind, Manner::Plain) => out.write_str(kind.name()),
            Self::Ask(kind, manner) => write!(out, "{}:{manner:?}", kind.name()),
            Self::Late(kind) => write!(out, "{}:Late", kind.name()),
            Self::Open
            | Self::Close
            | Self::Pass
            | Self::Tick
            | Self::StepBack
            | Self::WallClock
            | Self::Pressure => write!(out, "{self:?}"),
        }
    }
}

/// The parts of a request besides its kind.
#[derive(Clone, Copy)]
struct Phrase {
    key: SmallKey,
    manner: Manner,
    ttl_s: u32,
}

impl Phrase {
    fn request(self, kind: Kind) -> SmallRequest {
        let key = self.key;
        let append = |missing| SetMode::Append { missing };
        let prepend = |missing| SetMode::Prepend { missing };
        let (refuse, create) = (OnMissing::Refuse, OnMissing::Create);
        let release = |of| SmallRequest::Release { key, of };
        match kind {
            Kind::Get => self.get(TtlSteps::NONE, false, false),
            Kind::Touch => self.get(TtlSteps::one(TtlStep::Touch(self.ttl())), false, false),
            Kind::LockAndGet => self.get(TtlSteps::NONE, false, true),
            Kind::MetaGet => self.get(TtlSteps::NONE, true, false),
            Kind::Vivify => self.get(self.vivify(), true, false),
            Kind::Recache => {
                let token = Exptime::In { seconds: RECACHE_S };
                self.get(TtlSteps::one(TtlStep::Recache(token)), true, false)
            }
            Kind::Set | Kind::Cas | Kind::CasElseStale => self.store(kind, SetMode::Set),
            Kind::Add => self.store(kind, SetMode::Add),
            Kind::Replace
            | Kind::ReplaceCas
            | Kind::ReplaceAndUnlock
            | Kind::ReplaceAndUnlockCas => self.store(kind, SetMode::Replace),
            Kind::Append | Kind::AppendCas => self.store(kind, append(refuse)),
            Kind::AppendElseCreate | Kind::AppendElseCreateCas => self.store(kind, append(create)),
            Kind::Prepend | Kind::PrependCas => self.store(kind, prepend(refuse)),
            Kind::PrependElseCreate | Kind::PrependElseCreateCas => {
                self.store(kind, prepend(create))
            }
            Kind::SetTooLarge => SmallRequest::SetTooLarge { key },
            Kind::Delete | Kind::DeleteCas | Kind::DeleteFenced | Kind::DeleteAndUnlock => {
                self.delete(kind, Removal::Remove)
            }
            Kind::MarkStale
            | Kind::MarkStaleCas
            | Kind::Clear
            | Kind::ClearCas
            | Kind::ClearAndMarkStale
            | Kind::ClearAndMarkStaleCas => self.delete(kind, self.emptying(kind)),
            Kind::Increment | Kind::IncrementCas | Kind::CountFenced | Kind::CountAndUnlock => {
                self.count(kind, Direction::Increment, TtlSteps::NONE)
            }
            Kind::IncrementElseCreate | Kind::IncrementElseCreateCas => {
                self.count(kind, Direction::Increment, self.vivify())
            }
            Kind::Decrement | Kind::DecrementCas => {
                self.count(kind, Direction::Decrement, TtlSteps::NONE)
            }
            Kind::DecrementElseCreate | Kind::DecrementElseCreateCas => {
                self.count(kind, Direction::Decrement, self.vivify())
            }
            Kind::Acquire | Kind::AcquireItem | Kind::AcquireLeased | Kind::TakeLeaseOff => {
                self.acquire(kind)
            }
            Kind::AcquireOrWait
            | Kind::Wait
            | Kind::GetBound
            | Kind::GetOrWait
            | Kind::GetWaited => {
                unreachable!("who waits is the models' of waiting")
            }
            Kind::AcquireShared => unreachable!("nobody shares anything in this model"),
            Kind::Release => release(ReleaseChoice::Own),
            Kind::ReleaseFenced => release(ReleaseChoice::OwnGrant(FenceChoice::Current)),
            Kind::ReleaseGrant => release(ReleaseChoice::Grant(FenceChoice::Current)),
            // Something must be refused for its mode.
            Kind::SetFenced | Kind::SetAndUnlock => {
                let is_add = self.manner == Manner::Expiring;
                self.store(kind, if is_add { SetMode::Add } else { SetMode::Set })
            }
            Kind::Lock => SmallRequest::Lock { key },
            Kind::Unlock => SmallRequest::Unlock { key },
            Kind::UnlockAll => SmallRequest::UnlockAll,
            Kind::FlushAll => SmallRequest::FlushAll {
                at: self.flush_at(),
            },
            Kind::Keys => SmallRequest::Keys { prefix: None },
            Kind::Stats => SmallRequest::Stats,
            Kind::StatsReset => SmallRequest::StatsReset,
        }
    }

    fn acquire(self, kind: Kind) -> SmallRequest {
        // A lease ends a millisecond after its length: with a step of time, like an item.
        let ms = u64::from(self.ttl_s) * 1000 - 1;
        SmallRequest::Acquire(SmallAcquire {
            needs_item: kind == Kind::AcquireItem,
            lease: if kind == Kind::AcquireLeased {
                Some(Lease::For { ms })
            } else if kind == Kind::TakeLeaseOff {
                Some(Lease::Off)
            } else {
                None
            },
            ..SmallAcquire::new(self.key)
        })
    }

    /// The rest of the item after a removal.
    fn emptying(self, kind: Kind) -> Removal {
        let (exptime, client_flags) = (self.exptime(), 0);
        if matches!(kind, Kind::MarkStale | Kind::MarkStaleCas) {
            let exptime = (self.manner == Manner::Expiring).then_some(self.ttl());
            Removal::MarkStale { exptime }
        } else if matches!(kind, Kind::Clear | Kind::ClearCas) {
            Removal::Clear {
                exptime,
                client_flags,
            }
        } else {
            Removal::ClearAndMarkStale {
                exptime,
                client_flags,
            }
        }
    }

    fn flush_at(self) -> Exptime {
        if self.manner == Manner::Later {
            Exptime::In { seconds: 1 }
        } else {
            Exptime::Never
        }
    }

    const fn ttl(self) -> Exptime {
        Exptime::In {
            seconds: self.ttl_s,
        }
    }

    fn exptime(self) -> Exptime {
        if self.manner == Manner::Expiring {
            self.ttl()
        } else {
            Exptime::Never
        }
    }

    const fn vivify(self) -> TtlSteps {
        TtlSteps::one(TtlStep::Vivify(self.ttl()))
    }

    fn guard(self, kind: Kind) -> GuardChoice {
        let version = if self.manner == Manner::Ahead {
            CasChoice::Highest
        } else {
            CasChoice::Current
        };
        // The others are of another kind with a version.
        let has_other = kind.is_guarded() || kind == Kind::ReplaceAndUnlock;
        let may_know = !has_other && (is_fenced(kind) || lock_after(kind) == LockAfter::Release);
        if kind == Kind::CasElseStale {
            GuardChoice::MatchElseStale(version)
        } else if kind.is_guarded() || may_know && self.manner == Manner::Known {
            GuardChoice::Match(version)
        } else {
            GuardChoice::None
        }
    }

    fn get(self, steps: TtlSteps, recaches: bool, lock: bool) -> SmallRequest {
        SmallRequest::Get(SmallGet {
            steps,
            known_cas: (self.manner == Manner::Known).then_some(CasChoice::Current),
            recaches,
            lock,
            ..SmallGet::new(self.key)
        })
    }

    fn store(self, kind: Kind, mode: SetMode) -> SmallRequest {
        let is_whole = matches!(mode, SetMode::Set | SetMode::Add | SetMode::Replace);
        let value = if self.manner == Manner::Long {
            SmallValue::Long
        } else if is_whole {
            SmallValue::Number
        } else {
            SmallValue::Empty
        };
        SmallRequest::Set(SmallSet {
            exptime: if mode.creates() {
                self.ttl()
            } else {
                self.exptime()
            },
            mode,
            guard: self.guard(kind),
            new_cas: (self.manner == Manner::Chosen).then_some(CasChoice::Higher),
            fence: fence(kind),
            lock: lock_after(kind),
            ..SmallSet::new(self.key, value)
        })
    }

    fn delete(self, kind: Kind, removal: Removal) -> SmallRequest {
        SmallRequest::Delete(SmallDelete {
            guard: self.guard(kind),
            removal,
            fence: fence(kind),
            lock: lock_after(kind),
            ..SmallDelete::new(self.key)
        })
    }

    fn count(self, kind: Kind, direction: Direction, steps: TtlSteps) -> SmallRequest {
        let delta = if self.manner == Manner::Long {
            LONG_DELTA
        } else {
            1
        };
        SmallRequest::Arithmetic(SmallArithmetic {
            initial: INITIAL,
            steps,
            guard: self.guard(kind),
            fence: fence(kind),
            lock: lock_after(kind),
            ..SmallArithmetic::new(self.key, direction, delta)
        })
    }
}

/// Whether it names a grant.
pub(crate) fn is_fenced(kind: Kind) -> bool {
    kind.name().ends_with("Fenced")
}

/// The grant that it names.
fn fence(kind: Kind) -> Option<FenceChoice> {
    is_fenced(kind).then_some(FenceChoice::Current)
}

/// The lock afterwards.
fn lock_after(kind: Kind) -> LockAfter {
    if kind.name().contains("AndUnlock") {
        LockAfter::Release
    } else {
        LockAfter::Keep
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbs_make_requests_of_their_kind() {
        let manners = [Manner::Plain, Manner::Expiring, Manner::Long, Manner::Known];
        // Only the models of waiting ask for these; there is no sharing in the others.
        let elsewhere = [
            Kind::AcquireOrWait,
            Kind::Wait,
            Kind::GetBound,
            Kind::GetOrWait,
            Kind::GetWaited,
            Kind::AcquireShared,
        ];
        for kind in Kind::ALL.iter().filter(|kind| !elsewhere.contains(kind)) {
            for manner in manners {
                let request = Verb::Ask(*kind, manner).request(SmallKey::new(1), 2);
                let request = request.expect("it asks");
                assert_eq!(Kind::of(&request), *kind, "{request:?}");
                assert!(request.key().is_none_or(|key| key == SmallKey::new(1)));
            }
        }
    }
}
