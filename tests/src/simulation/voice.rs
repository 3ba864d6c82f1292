//! What a wire has words for: a request of the alphabet, as near as a protocol can say it.
//!
//! - An option that the wire has no word for is left out, and so is one that means nothing there.
//! - A request of which nothing would be left is not said on this wire, but it may be on another of
//!   the same connection: `md I` is classic text's to pass on to meta text.
//! - Text has no word for a lock and a get in one, nor for a replace and an unlock: it says the half
//!   that is about the lock.
//! - A replace that wants a version is a set that does, unless it unlocks: no wire has the other.
//! - Packets have no negative exptime: their clients say a date that is past.

use latchd_core::arbitrary::{GuardChoice, Request, UNIX_S_AT_START};
use latchd_core::command::{LockAfter, OnMissing, Removal, SetMode, TtlStep, TtlSteps};
use latchd_core::key::KeyForm;
use latchd_core::time::Exptime;

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
        Request::Get {
            key, lock: true, ..
        } => Request::Lock { key },
        Request::Get {
            recaches: false,
            bump: false,
            ..
        } => return None,
        Request::Get { steps, .. } => plain_get(request, touch(steps)),
        Request::Set {
            key,
            lock: LockAfter::Release,
            ..
        } => Request::Unlock { key },
        Request::Set { mode, guard, .. } => match mode {
            // `cas`, if it has a guard.
            SetMode::Set => plain_set(request, mode, without_stale(guard)),
            SetMode::Add | SetMode::Replace | SetMode::Append { .. } | SetMode::Prepend { .. } => {
                plain_set(request, refusing(mode), GuardChoice::None)
            }
        },
        Request::Delete { .. } => plain_delete(request, GuardChoice::None)?,
        Request::Arithmetic { .. } => {
            plain_arithmetic(request, TtlSteps::NONE, 0, GuardChoice::None)
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

fn meta(request: &Request) -> Option<Request> {
    let mut said = guarded_set(*request);
    match &mut said {
        Request::Get { lock: true, .. }
        | Request::Set {
            lock: LockAfter::Release,
            ..
        }
        | Request::Lock { .. }
        | Request::Unlock { .. }
        | Request::UnlockAll
        | Request::FlushAll { .. }
        | Request::Keys { .. }
        | Request::Stats
        | Request::StatsReset => return None,
        // `me`, or else `mg`.
        Request::Get { bump, recaches, .. } => *recaches |= *bump,
        Request::Set { .. }
        | Request::SetTooLarge { .. }
        | Request::Delete { .. }
        | Request::Arithmetic { .. } => {}
    }
    Some(said)
}

fn binary(request: &Request) -> Option<Request> {
    Some(match *request {
        Request::Get {
            recaches: false,
            bump: false,
            ..
        } => return None,
        Request::Get { steps, .. } => plain_get(request, touch(steps)),
        Request::Set { mode, guard, .. } => {
            let guard = match without_stale(guard) {
                // A version of 0 is none.
                GuardChoice::Never => GuardChoice::None,
                guard => guard,
            };
            guarded_set(without_extras(plain_set(request, refusing(mode), guard)))
        }
        Request::Delete { guard, .. } => match without_stale(guard) {
            GuardChoice::Never => return None,
            guard => plain_delete(request, guard)?,
        },
        Request::Arithmetic {
            steps,
            initial,
            guard,
            ..
        } => plain_arithmetic(request, vivify(steps), initial, guard),
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
    if let Request::Set {
        mode: mode @ SetMode::Replace,
        guard: GuardChoice::Match(_) | GuardChoice::MatchElseStale(_) | GuardChoice::Never,
        lock: LockAfter::Keep,
        ..
    } = &mut request
    {
        *mode = SetMode::Set;
    }
    request
}

/// An append and a prepend, whose packets have no room for client flags and an exptime.
fn without_extras(mut request: Request) -> Request {
    if let Request::Set {
        mode: SetMode::Append { .. } | SetMode::Prepend { .. },
        client_flags,
        exptime,
        ..
    } = &mut request
    {
        *client_flags = 0;
        *exptime = Exptime::Never;
    }
    request
}

fn plain_get(request: &Request, steps: TtlSteps) -> Request {
    let Request::Get { key, lock, .. } = *request else {
        return *request;
    };
    Request::Get {
        key,
        key_form: KeyForm::Plain,
        steps,
        bump: true,
        known_cas: None,
        new_cas: None,
        recaches: false,
        lock,
    }
}

fn plain_set(request: &Request, mode: SetMode, guard: GuardChoice) -> Request {
    let Request::Set {
        key,
        value,
        client_flags,
        exptime,
        lock,
        ..
    } = *request
    else {
        return *request;
    };
    Request::Set {
        key,
        key_form: KeyForm::Plain,
        value,
        client_flags,
        exptime,
        mode,
        guard,
        new_cas: None,
        lock,
    }
}

fn plain_delete(request: &Request, guard: GuardChoice) -> Option<Request> {
    match *request {
        Request::Delete {
            key,
            removal: Removal::Remove,
            ..
        } => Some(Request::Delete {
            key,
            key_form: KeyForm::Plain,
            guard,
            removal: Removal::Remove,
            new_cas: None,
        }),
        _ => None,
    }
}

fn plain_arithmetic(
    request: &Request,
    steps: TtlSteps,
    initial: u64,
    guard: GuardChoice,
) -> Request {
    let Request::Arithmetic {
        key,
        direction,
        delta,
        ..
    } = *request
    else {
        return *request;
    };
    Request::Arithmetic {
        key,
        key_form: KeyForm::Plain,
        direction,
        delta,
        initial,
        steps,
        guard,
        new_cas: None,
    }
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
        Request::Get { steps, .. } | Request::Arithmetic { steps, .. } => {
            *steps = steps_said(steps);
        }
        Request::Set { exptime, .. } | Request::FlushAll { at: exptime } => {
            *exptime = said(*exptime);
        }
        Request::Delete { removal, .. } => match removal {
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
