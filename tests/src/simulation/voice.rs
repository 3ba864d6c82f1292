//! What a wire has words for: a request of the alphabet, as near as a protocol can say it.
//!
//! - An option that the wire has no word for is left out, and so is one that means nothing there.
//! - A request of which nothing would be left is not said on this wire, but it may be on another of
//!   the same connection: `md I` is classic text's to pass on to meta text.
//! - Text has no word for a lock and a get in one, nor for a replace and an unlock: it says the half
//!   that is about the lock.
//! - A replace that wants a version is a set that does, unless it unlocks: no wire has the other.
//! - Packets have no negative exptime: their clients say a date that is past.

use latchd_core::command::{LockAfter, OnMissing, Removal, SetMode, TtlStep, TtlSteps};
use latchd_core::time::Exptime;
use latchd_harness::alphabet::{
    GuardChoice, Request, SmallArithmetic, SmallDelete, SmallGet, SmallSet, UNIX_S_AT_START,
};

use super::ask::Wire;

/// `request` as `wire` says it; `None` if it cannot.
pub(super) fn nearest(request: &Request, wire: Wire) -> Option<Request> {
    match wire {
        Wire::Classic => classic(request),
        Wire::Meta => meta(request),
        Wire::Binary => binary(request),
    }
}

fn classic(request: &Request) -> Option<Request> {
    Some(match *request {
        Request::Get(SmallGet {
            key, lock: true, ..
        }) => Request::Lock { key },
        Request::Get(SmallGet {
            recaches: false,
            bump: false,
            ..
        }) => return None,
        Request::Get(get) => plain_get(get, touch(get.steps)),
        Request::Set(SmallSet {
            key,
            lock: LockAfter::Release,
            ..
        }) => Request::Unlock { key },
        Request::Set(set) => match set.mode {
            // `cas`, if it has a guard.
            SetMode::Set => plain_set(set, set.mode, without_stale(set.guard)),
            SetMode::Add | SetMode::Replace | SetMode::Append { .. } | SetMode::Prepend { .. } => {
                plain_set(set, refusing(set.mode), GuardChoice::None)
            }
        },
        Request::Delete(delete) => plain_delete(delete, GuardChoice::None)?,
        Request::Arithmetic(sum) => plain_arithmetic(sum, TtlSteps::NONE, 0, GuardChoice::None),
        Request::SetTooLarge { .. }
        | Request::Lock { .. }
        | Request::Unlock { .. }
        | Request::UnlockAll
        | Request::FlushAll { .. }
        | Request::Keys { .. }
        | Request::Stats
        | Request::StatsReset => *request,
    })
}

fn meta(request: &Request) -> Option<Request> {
    let mut said = guarded_set(*request);
    match &mut said {
        Request::Get(SmallGet { lock: true, .. })
        | Request::Set(SmallSet {
            lock: LockAfter::Release,
            ..
        })
        | Request::Lock { .. }
        | Request::Unlock { .. }
        | Request::UnlockAll
        | Request::FlushAll { .. }
        | Request::Keys { .. }
        | Request::Stats
        | Request::StatsReset => return None,
        // `me`, or else `mg`.
        Request::Get(SmallGet { bump, recaches, .. }) => *recaches |= *bump,
        Request::Set(_)
        | Request::SetTooLarge { .. }
        | Request::Delete(_)
        | Request::Arithmetic(_) => {}
    }
    Some(said)
}

fn binary(request: &Request) -> Option<Request> {
    Some(match *request {
        Request::Get(SmallGet {
            recaches: false,
            bump: false,
            ..
        }) => return None,
        Request::Get(get) => plain_get(get, touch(get.steps)),
        Request::Set(set) => {
            let guard = match without_stale(set.guard) {
                // A version of 0 is none.
                GuardChoice::Never => GuardChoice::None,
                guard => guard,
            };
            guarded_set(without_extras(plain_set(set, refusing(set.mode), guard)))
        }
        Request::Delete(delete) => match without_stale(delete.guard) {
            GuardChoice::Never => return None,
            guard => plain_delete(delete, guard)?,
        },
        Request::Arithmetic(sum) => {
            plain_arithmetic(sum, vivify(sum.steps), sum.initial, sum.guard)
        }
        Request::SetTooLarge { .. }
        | Request::Lock { .. }
        | Request::Unlock { .. }
        | Request::UnlockAll
        | Request::FlushAll { .. }
        | Request::Keys { .. }
        | Request::Stats
        | Request::StatsReset => *request,
    })
}

/// A replace that wants a version and keeps the lock, as a set.
fn guarded_set(mut request: Request) -> Request {
    if let Request::Set(SmallSet {
        mode: mode @ SetMode::Replace,
        guard: GuardChoice::Match(_) | GuardChoice::MatchElseStale(_) | GuardChoice::Never,
        lock: LockAfter::Keep,
        ..
    }) = &mut request
    {
        *mode = SetMode::Set;
    }
    request
}

/// An append and a prepend, whose packets have no room for client flags and an exptime.
fn without_extras(mut request: Request) -> Request {
    if let Request::Set(SmallSet {
        mode: SetMode::Append { .. } | SetMode::Prepend { .. },
        client_flags,
        exptime,
        ..
    }) = &mut request
    {
        *client_flags = 0;
        *exptime = Exptime::Never;
    }
    request
}

fn plain_get(get: SmallGet, steps: TtlSteps) -> Request {
    Request::Get(SmallGet {
        steps,
        lock: get.lock,
        ..SmallGet::new(get.key)
    })
}

fn plain_set(set: SmallSet, mode: SetMode, guard: GuardChoice) -> Request {
    Request::Set(SmallSet {
        client_flags: set.client_flags,
        exptime: set.exptime,
        mode,
        guard,
        lock: set.lock,
        ..SmallSet::new(set.key, set.value)
    })
}

fn plain_delete(delete: SmallDelete, guard: GuardChoice) -> Option<Request> {
    let plain = SmallDelete {
        guard,
        ..SmallDelete::new(delete.key)
    };
    (delete.removal == plain.removal).then_some(Request::Delete(plain))
}

fn plain_arithmetic(
    sum: SmallArithmetic,
    steps: TtlSteps,
    initial: u64,
    guard: GuardChoice,
) -> Request {
    Request::Arithmetic(SmallArithmetic {
        initial,
        steps,
        guard,
        ..SmallArithmetic::new(sum.key, sum.direction, sum.delta)
    })
}

const fn refusing(mode: SetMode) -> SetMode {
    let missing = OnMissing::Refuse;
    match mode {
        SetMode::Append { .. } => SetMode::Append { missing },
        SetMode::Prepend { .. } => SetMode::Prepend { missing },
        SetMode::Set | SetMode::Add | SetMode::Replace => mode,
    }
}

const fn without_stale(guard: GuardChoice) -> GuardChoice {
    match guard {
        GuardChoice::MatchElseStale(cas) => GuardChoice::Match(cas),
        GuardChoice::None | GuardChoice::Match(_) | GuardChoice::Never => guard,
    }
}

fn touch(steps: TtlSteps) -> TtlSteps {
    only(steps, |step| matches!(step, TtlStep::Touch(_)))
}

fn vivify(steps: TtlSteps) -> TtlSteps {
    only(steps, |step| matches!(step, TtlStep::Vivify(_)))
}

fn only(steps: TtlSteps, which: impl Fn(&TtlStep) -> bool) -> TtlSteps {
    let step = steps.iter().find(which);
    step.map_or(TtlSteps::NONE, TtlSteps::one)
}

/// The same with the exptimes that a client of `wire` says at `unix_s`. The dates of the alphabet
/// lie around the beginning of a short sequence; here they lie around the moment that one is said.
/// A request that `lasts` ends nothing soon.
pub(super) fn at_moment(request: &Request, wire: Wire, unix_s: u64, lasts: bool) -> Request {
    let said = |exptime| match exptime {
        Exptime::Past | Exptime::At { .. } | Exptime::In { seconds: ..=9 } if lasts => {
            Exptime::In { seconds: 60 }
        }
        Exptime::Past if wire == Wire::Binary => Exptime::At { unix_s: unix_s - 1 },
        Exptime::At { unix_s: date } => Exptime::At {
            unix_s: (date + unix_s).saturating_sub(UNIX_S_AT_START),
        },
        Exptime::Never | Exptime::Past | Exptime::In { .. } => exptime,
    };
    let steps_said = |steps: &TtlSteps| {
        steps.iter().fold(TtlSteps::NONE, |steps, step| {
            let step = match step {
                TtlStep::Touch(exptime) => TtlStep::Touch(said(exptime)),
                TtlStep::Vivify(exptime) => TtlStep::Vivify(said(exptime)),
                TtlStep::Recache(exptime) => TtlStep::Recache(said(exptime)),
            };
            steps.then(step).expect("there are as many as before")
        })
    };
    let mut request = *request;
    match &mut request {
        Request::Get(SmallGet { steps, .. })
        | Request::Arithmetic(SmallArithmetic { steps, .. }) => {
            *steps = steps_said(steps);
        }
        Request::Set(SmallSet { exptime, .. }) | Request::FlushAll { at: exptime } => {
            *exptime = said(*exptime);
        }
        Request::Delete(SmallDelete { removal, .. }) => match removal {
            Removal::Remove => {}
            Removal::MarkStale { exptime } => *exptime = exptime.map(said),
            Removal::Clear { exptime, .. } | Removal::ClearAndMarkStale { exptime, .. } => {
                *exptime = said(*exptime);
            }
        },
        Request::SetTooLarge { .. }
        | Request::Lock { .. }
        | Request::Unlock { .. }
        | Request::UnlockAll
        | Request::Keys { .. }
        | Request::Stats
        | Request::StatsReset => {}
    }
    request
}
