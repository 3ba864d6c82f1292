//! What a wire has words for: a request of the alphabet, as near as a protocol can say it.
//!
//! - An option that the wire has no word for is left out, and so is one that means nothing there.
//! - A request of which nothing would be left is not said on this wire, but it may be on another of
//!   the same connection: `md I` is classic text's to pass on to meta text.
//! - Text has no word for a lock and a get in one, nor for a replace and an unlock: it says the half
//!   that is about the lock.
//! - A replace that wants a version is a set that does, unless it unlocks: no wire has the other.
//! - Packets have no negative exptime: their clients say a date that is past.

use crate::alphabet::{
    GuardChoice, SmallArithmetic, SmallDelete, SmallGet, SmallRequest, SmallSet, UNIX_S_AT_START,
};
use latchd_core::command::{LockAfter, OnMissing, Removal, SetMode, TtlStep, TtlSteps};
use latchd_core::time::Exptime;

use super::Protocol;

/// `request` as `protocol` says it; `None` if it cannot.
#[must_use]
pub fn nearest(request: &SmallRequest, protocol: Protocol) -> Option<SmallRequest> {
    match protocol {
        Protocol::Classic => classic(request),
        Protocol::Meta => meta(request),
        Protocol::Binary => binary(request),
    }
}

fn classic(request: &SmallRequest) -> Option<SmallRequest> {
    Some(match *request {
        SmallRequest::Get(SmallGet {
            key, lock: true, ..
        }) => SmallRequest::Lock { key },
        SmallRequest::Get(SmallGet {
            recaches: false,
            bump: false,
            ..
        }) => return None,
        SmallRequest::Get(get) => plain_get(get, touch(get.steps)),
        SmallRequest::Set(SmallSet {
            key,
            lock: LockAfter::Release,
            ..
        }) => SmallRequest::Unlock { key },
        SmallRequest::Set(set) => match set.mode {
            // `cas`, if it has a guard.
            SetMode::Set => plain_set(set, set.mode, without_stale(set.guard)),
            SetMode::Add | SetMode::Replace | SetMode::Append { .. } | SetMode::Prepend { .. } => {
                plain_set(set, refusing(set.mode), GuardChoice::None)
            }
        },
        SmallRequest::Delete(delete) => plain_delete(delete, GuardChoice::None)?,
        SmallRequest::Arithmetic(sum) => {
            plain_arithmetic(sum, TtlSteps::NONE, 0, GuardChoice::None)
        }
        SmallRequest::SetTooLarge { .. }
        | SmallRequest::Lock { .. }
        | SmallRequest::Unlock { .. }
        | SmallRequest::UnlockAll
        | SmallRequest::FlushAll { .. }
        | SmallRequest::Keys { .. }
        | SmallRequest::Stats
        | SmallRequest::StatsReset => *request,
    })
}

fn meta(request: &SmallRequest) -> Option<SmallRequest> {
    let mut said = guarded_set(*request);
    match &mut said {
        SmallRequest::Get(SmallGet { lock: true, .. })
        | SmallRequest::Set(SmallSet {
            lock: LockAfter::Release,
            ..
        })
        | SmallRequest::Lock { .. }
        | SmallRequest::Unlock { .. }
        | SmallRequest::UnlockAll
        | SmallRequest::FlushAll { .. }
        | SmallRequest::Keys { .. }
        | SmallRequest::Stats
        | SmallRequest::StatsReset => return None,
        // `me`, or else `mg`.
        SmallRequest::Get(SmallGet { bump, recaches, .. }) => *recaches |= *bump,
        SmallRequest::Set(_)
        | SmallRequest::SetTooLarge { .. }
        | SmallRequest::Delete(_)
        | SmallRequest::Arithmetic(_) => {}
    }
    Some(said)
}

fn binary(request: &SmallRequest) -> Option<SmallRequest> {
    Some(match *request {
        SmallRequest::Get(SmallGet {
            recaches: false,
            bump: false,
            ..
        })
        | SmallRequest::Delete(SmallDelete {
            guard: GuardChoice::Never,
            ..
        }) => return None,
        SmallRequest::Get(get) => plain_get(get, touch(get.steps)),
        SmallRequest::Set(set) => {
            let guard = match without_stale(set.guard) {
                // A version of 0 is none.
                GuardChoice::Never => GuardChoice::None,
                guard @ (GuardChoice::None
                | GuardChoice::Match(_)
                | GuardChoice::MatchElseStale(_)) => guard,
            };
            guarded_set(without_extras(plain_set(set, refusing(set.mode), guard)))
        }
        SmallRequest::Delete(delete) => plain_delete(delete, without_stale(delete.guard))?,
        SmallRequest::Arithmetic(sum) => {
            plain_arithmetic(sum, vivify(sum.steps), sum.initial, sum.guard)
        }
        SmallRequest::SetTooLarge { .. }
        | SmallRequest::Lock { .. }
        | SmallRequest::Unlock { .. }
        | SmallRequest::UnlockAll
        | SmallRequest::FlushAll { .. }
        | SmallRequest::Keys { .. }
        | SmallRequest::Stats
        | SmallRequest::StatsReset => *request,
    })
}

/// A replace that wants a version and keeps the lock, as a set.
fn guarded_set(mut request: SmallRequest) -> SmallRequest {
    if let SmallRequest::Set(SmallSet {
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
fn without_extras(mut request: SmallRequest) -> SmallRequest {
    if let SmallRequest::Set(SmallSet {
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

fn plain_get(get: SmallGet, steps: TtlSteps) -> SmallRequest {
    SmallRequest::Get(SmallGet {
        steps,
        lock: get.lock,
        ..SmallGet::new(get.key)
    })
}

fn plain_set(set: SmallSet, mode: SetMode, guard: GuardChoice) -> SmallRequest {
    SmallRequest::Set(SmallSet {
        client_flags: set.client_flags,
        exptime: set.exptime,
        mode,
        guard,
        lock: set.lock,
        ..SmallSet::new(set.key, set.value)
    })
}

fn plain_delete(delete: SmallDelete, guard: GuardChoice) -> Option<SmallRequest> {
    let plain = SmallDelete {
        guard,
        ..SmallDelete::new(delete.key)
    };
    (delete.removal == plain.removal).then_some(SmallRequest::Delete(plain))
}

fn plain_arithmetic(
    sum: SmallArithmetic,
    steps: TtlSteps,
    initial: u64,
    guard: GuardChoice,
) -> SmallRequest {
    SmallRequest::Arithmetic(SmallArithmetic {
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

/// The same with the exptimes that a client of `protocol` says at `unix_s`. The dates of the alphabet
/// lie around the beginning of a short sequence; here they lie around the moment that one is said.
/// A request that `lasts` ends nothing soon.
#[must_use]
pub fn at_moment(
    request: &SmallRequest,
    protocol: Protocol,
    unix_s: u64,
    lasts: bool,
) -> SmallRequest {
    let said = |exptime| match exptime {
        Exptime::Past | Exptime::At { .. } | Exptime::In { seconds: ..=9 } if lasts => {
            Exptime::In { seconds: 60 }
        }
        Exptime::Past if protocol == Protocol::Binary => Exptime::At { unix_s: unix_s - 1 },
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
        SmallRequest::Get(SmallGet { steps, .. })
        | SmallRequest::Arithmetic(SmallArithmetic { steps, .. }) => {
            *steps = steps_said(steps);
        }
        SmallRequest::Set(SmallSet { exptime, .. }) | SmallRequest::FlushAll { at: exptime } => {
            *exptime = said(*exptime);
        }
        SmallRequest::Delete(SmallDelete { removal, .. }) => match removal {
            Removal::Remove => {}
            Removal::MarkStale { exptime } => *exptime = exptime.map(said),
            Removal::Clear { exptime, .. } | Removal::ClearAndMarkStale { exptime, .. } => {
                *exptime = said(*exptime);
            }
        },
        SmallRequest::SetTooLarge { .. }
        | SmallRequest::Lock { .. }
        | SmallRequest::Unlock { .. }
        | SmallRequest::UnlockAll
        | SmallRequest::Keys { .. }
        | SmallRequest::Stats
        | SmallRequest::StatsReset => {}
    }
    request
}
