//! The words of a wire: a request of the alphabet, as close as a protocol can express it.
//!
//! - An option without a word on the wire is left out, and so is one that means nothing there.
//! - Only meta text has fences, and changes that release a lock: the others have the change alone.
//! - A request of which nothing would be left is not sent on this wire, but it may be on another of
//!   the same connection: classic text leaves `md I` to meta text.
//! - Text has no word for a lock and a get in one, nor for a replace and an unlock: it sends the
//!   half that is about the lock.
//! - A replace with a version becomes a set with it, unless it unlocks: no wire has such a replace.
//! - Packets have no negative exptime: their clients send a past date instead.

use latchd_protocol::command::{LockAfter, OnMissing, Removal, SetMode, TtlStep, TtlSteps};
use latchd_protocol::time::Exptime;

use super::Protocol;
use crate::alphabet::{
    GuardChoice, SmallArithmetic, SmallDelete, SmallGet, SmallRequest, SmallSet, UNIX_S_AT_START,
};

/// `request` as `protocol` says it; `None` if it cannot.
#[must_use]
pub fn nearest(request: &SmallRequest, protocol: Protocol) -> Option<SmallRequest> {
    match *request {
        SmallRequest::Get(get) => nearest_get(get, protocol),
        SmallRequest::Set(set) => nearest_set(set, protocol),
        SmallRequest::SetTooLarge { .. } => Some(*request),
        SmallRequest::Delete(delete) => nearest_delete(delete, protocol),
        SmallRequest::Arithmetic(sum) => Some(nearest_arithmetic(sum, protocol)),
        SmallRequest::Acquire(_) | SmallRequest::Release { .. } => {
            (protocol == Protocol::Meta).then_some(*request)
        }
        SmallRequest::Lock { .. }
        | SmallRequest::Unlock { .. }
        | SmallRequest::UnlockAll
        | SmallRequest::FlushAll { .. }
        | SmallRequest::Keys { .. }
        | SmallRequest::Stats
        | SmallRequest::StatsReset => (protocol != Protocol::Meta).then_some(*request),
    }
}

fn nearest_get(get: SmallGet, protocol: Protocol) -> Option<SmallRequest> {
    let SmallGet { key, lock, .. } = get;
    let debugs = !get.bump && !get.recaches;
    let plain = SmallGet {
        steps: only(get.steps, |step| matches!(step, TtlStep::Touch(_))),
        lock,
        ..SmallGet::new(key)
    };
    // `me`, or else `mg`.
    let meta = SmallGet {
        recaches: get.recaches | get.bump,
        ..get
    };
    match protocol {
        Protocol::Classic if lock => Some(SmallRequest::Lock { key }),
        Protocol::Classic | Protocol::Binary => (!debugs).then_some(SmallRequest::Get(plain)),
        Protocol::Meta => (!lock).then_some(SmallRequest::Get(meta)),
    }
}

fn nearest_set(set: SmallSet, protocol: Protocol) -> Option<SmallRequest> {
    let key = set.key;
    // Meta text says this by `U`: a replace is a packet's.
    let is_line = set.mode != SetMode::Replace || set.fence.is_some();
    let unlocks = set.lock == LockAfter::Release && !is_line;
    let plain = SmallSet {
        client_flags: set.client_flags,
        exptime: set.exptime,
        mode: refusing(set.mode),
        lock: if unlocks {
            LockAfter::Release
        } else {
            LockAfter::Keep
        },
        ..SmallSet::new(key, set.value)
    };
    let set = match protocol {
        Protocol::Classic if unlocks => return Some(SmallRequest::Unlock { key }),
        Protocol::Meta if unlocks => return None,
        Protocol::Classic => SmallSet {
            // `cas`, if it has a guard.
            guard: match set.mode {
                SetMode::Set => without_stale(set.guard),
                SetMode::Add
                | SetMode::Replace
                | SetMode::Append { .. }
                | SetMode::Prepend { .. } => GuardChoice::None,
            },
            ..plain
        },
        Protocol::Meta => guarded(set),
        Protocol::Binary => guarded(SmallSet {
            guard: match without_stale(set.guard) {
                // A version of 0 is none.
                GuardChoice::Never => GuardChoice::None,
                guard @ (GuardChoice::None
                | GuardChoice::Match(_)
                | GuardChoice::MatchElseStale(_)) => guard,
            },
            ..without_extras(plain)
        }),
    };
    Some(SmallRequest::Set(set))
}

fn nearest_delete(delete: SmallDelete, protocol: Protocol) -> Option<SmallRequest> {
    let guard = match protocol {
        Protocol::Classic => GuardChoice::None,
        Protocol::Meta => return Some(SmallRequest::Delete(delete)),
        Protocol::Binary if delete.guard == GuardChoice::Never => return None,
        Protocol::Binary => without_stale(delete.guard),
    };
    let plain = SmallDelete {
        guard,
        ..SmallDelete::new(delete.key)
    };
    (delete.removal == plain.removal).then_some(SmallRequest::Delete(plain))
}

fn nearest_arithmetic(sum: SmallArithmetic, protocol: Protocol) -> SmallRequest {
    let plain = SmallArithmetic::new(sum.key, sum.direction, sum.delta);
    SmallRequest::Arithmetic(match protocol {
        Protocol::Classic => plain,
        Protocol::Meta => sum,
        Protocol::Binary => SmallArithmetic {
            initial: sum.initial,
            steps: only(sum.steps, |step| matches!(step, TtlStep::Vivify(_))),
            guard: sum.guard,
            ..plain
        },
    })
}

/// A replace that wants a version and keeps the lock, as a set.
fn guarded(mut set: SmallSet) -> SmallSet {
    let is_guarded = set.guard != GuardChoice::None;
    if set.mode == SetMode::Replace && set.lock == LockAfter::Keep && is_guarded {
        set.mode = SetMode::Set;
    }
    set
}

/// An append or a prepend: their packets have no room for client flags and an exptime.
const fn without_extras(mut set: SmallSet) -> SmallSet {
    if let SetMode::Append { .. } | SetMode::Prepend { .. } = set.mode {
        set.client_flags = 0;
        set.exptime = Exptime::Never;
    }
    set
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

fn only(steps: TtlSteps, which: impl Fn(&TtlStep) -> bool) -> TtlSteps {
    let step = steps.iter().find(which);
    step.map_or(TtlSteps::NONE, TtlSteps::one)
}

/// The same with the exptimes that a client of `protocol` says at `unix_s`. The dates of the
/// alphabet lie around the beginning of a short sequence; here they lie around the moment of the
/// request. A request that `lasts` ends nothing soon.
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
        | SmallRequest::Acquire(_)
        | SmallRequest::Release { .. }
        | SmallRequest::Lock { .. }
        | SmallRequest::Unlock { .. }
        | SmallRequest::UnlockAll
        | SmallRequest::Keys { .. }
        | SmallRequest::Stats
        | SmallRequest::StatsReset => {}
    }
    request
}
