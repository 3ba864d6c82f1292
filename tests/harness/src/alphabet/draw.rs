//! Draws ops from random bytes: the one generator behind quickcheck, cargo-fuzz and simulation.
//!
//! Only requests that a client can bring about are drawn (A3): a lock-and-get neither vivifies nor
//! recaches, a replace-and-unlock is a replace.

use arbitrary::{Arbitrary, Result, Unstructured};
use std::num::NonZeroU32;

use latchd_protocol::command::{
    Direction, Lease, LockAfter, Mode as LockMode, OnMissing, Removal, SetMode, TtlStep, TtlSteps,
};
use latchd_protocol::item::LEASE_ITEM;
use latchd_protocol::key::KeyForm;
use latchd_protocol::time::Exptime;

use super::{
    CasChoice, ClientNumber, FenceChoice, GuardChoice, Op, ReleaseChoice, SmallAcquire,
    SmallArithmetic, SmallDelete, SmallGet, SmallKey, SmallMetadata, SmallRequest, SmallSet,
    SmallValue, UNIX_S_AT_START,
};

/// Spans that pass within a sequence or not at all, and dates before and after its beginning.
const EXPTIMES: [Exptime; 12] = [
    Exptime::Never,
    Exptime::Never,
    Exptime::Never,
    Exptime::Never,
    Exptime::In { seconds: 60 },
    Exptime::In { seconds: 60 },
    Exptime::In { seconds: 59 },
    Exptime::In { seconds: 1 },
    Exptime::In { seconds: 2 },
    Exptime::Past,
    Exptime::At {
        unix_s: UNIX_S_AT_START - 1,
    },
    Exptime::At {
        unix_s: UNIX_S_AT_START + 3,
    },
];

/// Within a tick, to the edge of one, over one, over the short exptimes.
const SPANS_MS: [u32; 7] = [1, 100, 249, 250, 400, 1_000, 2_001];

/// Leases that pass within a sequence, and one that does not.
const LEASES: [Option<Lease>; 8] = [
    None,
    None,
    None,
    None,
    Some(Lease::For { ms: 400 }),
    Some(Lease::For { ms: 1_001 }),
    Some(Lease::For { ms: 60_000 }),
    Some(Lease::Off),
];

/// Waits that end within a sequence, and one that does not.
const WAITS_MS: [Option<u32>; 8] = [
    None,
    None,
    None,
    Some(100),
    Some(400),
    Some(1_000),
    Some(1_000),
    Some(60_000),
];

const CLIENT_FLAGS: [u32; 4] = [0, 7, LEASE_ITEM, u32::MAX];
/// By a little, by many digits, and all the way round.
const DELTAS: [u64; 7] = [1, 0, 3, 10, 1 << 40, 10_u64.pow(19), u64::MAX];
const INITIALS: [u64; 4] = [0, 5, 100, u64::MAX];
const CASES: [CasChoice; 7] = [
    CasChoice::Current,
    CasChoice::Current,
    CasChoice::Former,
    CasChoice::Former,
    CasChoice::Higher,
    CasChoice::Higher,
    CasChoice::Highest,
];

impl<'a> Arbitrary<'a> for Op {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        let client = ClientNumber::new(u.arbitrary()?);
        Ok(match u.arbitrary::<u8>()? {
            0..=15 => Self::Open { client },
            16..=21 => Self::Close { client },
            22..=24 => Self::Detach { client },
            25..=39 => Self::Advance {
                ms: *u.choose(&SPANS_MS)?,
            },
            40 => Self::Rewind {
                ms: *u.choose(&SPANS_MS)?,
            },
            41 => Self::WallClock {
                ahead_s: u.int_in_range(0..=5)?,
            },
            42..=45 => Self::Tick,
            46..=49 => Self::Due,
            50 => Self::Withhold {
                ms: *u.choose(&SPANS_MS)?,
            },
            51..=56 => Self::Pressure {
                key: u.arbitrary()?,
            },
            57 => Self::Limit {
                quarters: u.int_in_range(2..=8)?,
            },
            58..=255 => Self::Request {
                client,
                request: u.arbitrary()?,
            },
        })
    }
}

/// An op that may bind a win or wait for a value, for tests of late replies to gets.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct WaitingOp(pub Op);

impl<'a> Arbitrary<'a> for WaitingOp {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        let mut op = u.arbitrary()?;
        if let Op::Request { request, .. } = &mut op
            && let SmallRequest::Get(get) = request
            && get.recaches
        {
            // One byte for both; nothing where there is none.
            let bits: u8 = u.arbitrary()?;
            get.bound_to_owner = bits & 1 != 0;
            let wait_ms = WAITS_MS.get(usize::from(bits >> 1) % WAITS_MS.len());
            get.wait_ms = wait_ms.copied().flatten();
        }
        Ok(Self(op))
    }
}

impl<'a> Arbitrary<'a> for SmallRequest {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        let key = SmallKey::new(u.arbitrary()?);
        Ok(match u.arbitrary::<u8>()? {
            0..=63 => get(u, key)?,
            64..=135 => set(u, key)?,
            136..=139 => Self::SetTooLarge { key },
            140..=175 => Self::Delete(SmallDelete {
                key,
                key_form: key_form(u)?,
                guard: match guard(u)? {
                    // Only a set can leave an item stale by comparing.
                    GuardChoice::MatchElseStale(cas) => GuardChoice::Match(cas),
                    other @ (GuardChoice::None | GuardChoice::Match(_) | GuardChoice::Never) => {
                        other
                    }
                },
                removal: removal(u)?,
                new_cas: new_cas(u)?,
                fence: fence(u, 5)?,
                lock: lock_after(u)?,
            }),
            176..=199 => arithmetic(u, key)?,
            200..=209 => Self::Lock { key },
            210..=223 => acquire(u, key)?,
            224..=231 => Self::Unlock { key },
            232..=238 => Self::Release {
                key,
                of: match fence(u, 2)? {
                    None => ReleaseChoice::Own,
                    Some(choice) if u.arbitrary()? => ReleaseChoice::Grant(choice),
                    Some(choice) => ReleaseChoice::OwnGrant(choice),
                },
            },
            239..=242 => Self::UnlockAll,
            243..=246 => Self::FlushAll { at: exptime(u)? },
            247..=252 => Self::Keys {
                prefix: if u.arbitrary()? {
                    Some(SmallKey::new(u.arbitrary()?))
                } else {
                    None
                },
            },
            253..=254 => Self::Stats,
            255 => Self::StatsReset,
        })
    }
}

fn acquire(u: &mut Unstructured<'_>, key: SmallKey) -> Result<SmallRequest> {
    let (lease, needs_item) = (*u.choose(&LEASES)?, u.ratio(1, 4)?);
    // One byte for all of them.
    let bits: u8 = u.arbitrary()?;
    let wait_ms = WAITS_MS.get(usize::from(bits >> 1) % WAITS_MS.len());
    let max_sharers = match bits >> 4 {
        0..=3 => Some(u32::from(bits >> 4)),
        4..=6 => Some(0),
        _ => None,
    };
    Ok(SmallRequest::Acquire(SmallAcquire {
        key,
        mode: max_sharers.map_or(LockMode::Exclusive, |max_sharers| LockMode::Shared {
            max_sharers: NonZeroU32::new(max_sharers),
        }),
        lease,
        metadata: match bits >> 4 {
            3 | 13 => Some(SmallMetadata::Word),
            6 | 14 => Some(SmallMetadata::Most),
            15 => Some(SmallMetadata::Binary),
            _ => None,
        },
        needs_item,
        reads_item: bits & 1 != 0,
        wait_ms: wait_ms.copied().flatten(),
    }))
}

fn get(u: &mut Unstructured<'_>, key: SmallKey) -> Result<SmallRequest> {
    /// The families of reads, and the requests of each.
    enum Family {
        Get,
        Touch,
        LockAndGet,
        LockTouchAndGet,
        MetaDebug,
        MetaGet,
    }
    use Family as F;
    let families = [
        F::Get,
        F::Touch,
        F::LockAndGet,
        F::LockTouchAndGet,
        F::MetaDebug,
        F::MetaGet,
        F::MetaGet,
        F::MetaGet,
        F::MetaGet,
        F::MetaGet,
    ];
    let family = u.choose(&families)?;
    let steps = match family {
        F::Get | F::LockAndGet | F::MetaDebug => TtlSteps::NONE,
        F::Touch => TtlSteps::one(TtlStep::Touch(exptime(u)?)),
        F::LockTouchAndGet => TtlSteps::one(TtlStep::Touch(unsigned(exptime(u)?))),
        F::MetaGet => steps(u, true)?,
    };
    let meta = matches!(family, F::MetaGet);
    Ok(SmallRequest::Get(SmallGet {
        key,
        key_form: if meta { key_form(u)? } else { KeyForm::Plain },
        steps,
        bump: match family {
            F::MetaDebug => false,
            F::MetaGet => u.ratio(3, 4)?,
            F::Get | F::Touch | F::LockAndGet | F::LockTouchAndGet => true,
        },
        known_cas: if meta && u.ratio(1, 4)? {
            Some(*u.choose(&CASES)?)
        } else {
            None
        },
        new_cas: if meta { new_cas(u)? } else { None },
        recaches: meta,
        lock: matches!(family, F::LockAndGet | F::LockTouchAndGet),
        // Drawn by tests that want to see a client wait.
        bound_to_owner: false,
        wait_ms: None,
    }))
}

fn set(u: &mut Unstructured<'_>, key: SmallKey) -> Result<SmallRequest> {
    let missing = |u: &mut Unstructured<'_>| -> Result<OnMissing> {
        Ok(if u.arbitrary()? {
            OnMissing::Create
        } else {
            OnMissing::Refuse
        })
    };
    let mode = match u.int_in_range(0..=7)? {
        0..=3 => SetMode::Set,
        4 => SetMode::Add,
        5 => SetMode::Replace,
        6 => SetMode::Append {
            missing: missing(u)?,
        },
        _ => SetMode::Prepend {
            missing: missing(u)?,
        },
    };
    let release = mode == SetMode::Replace && u.arbitrary()?;
    let guard = match (mode, guard(u)?) {
        // An add has nothing to compare with.
        (SetMode::Add, _) => GuardChoice::None,
        (SetMode::Set, guard) => guard,
        // `I` stands beside a set only.
        (SetMode::Replace | SetMode::Append { .. } | SetMode::Prepend { .. }, guard) => {
            plain(guard)
        }
    };
    // It is a packet's, which has one form of keys.
    let key_form = if release {
        KeyForm::Plain
    } else {
        key_form(u)?
    };
    let exptime = exptime(u)?;
    let value = *u.choose(&SmallValue::ALL)?;
    // A packet without one is malformed.
    let value = if release && value == SmallValue::Empty {
        SmallValue::Word
    } else {
        value
    };
    Ok(SmallRequest::Set(SmallSet {
        key,
        key_form,
        value,
        client_flags: *u.choose(&CLIENT_FLAGS)?,
        exptime: if release { unsigned(exptime) } else { exptime },
        mode,
        guard,
        new_cas: if release { None } else { new_cas(u)? },
        // A guarded replace is a guarded set on the wire.
        fence: if mode == SetMode::Replace && (release || guard != GuardChoice::None) {
            None
        } else {
            fence(u, 5)?
        },
        lock: match mode {
            _ if release => LockAfter::Release,
            // A packet's has no fence, so a line's has one.
            SetMode::Replace => LockAfter::Keep,
            SetMode::Set | SetMode::Add | SetMode::Append { .. } | SetMode::Prepend { .. } => {
                lock_after(u)?
            }
        },
    }))
}

fn removal(u: &mut Unstructured<'_>) -> Result<Removal> {
    Ok(match u.int_in_range(0..=4)? {
        0 => Removal::Remove,
        1 => Removal::MarkStale { exptime: None },
        2 => Removal::MarkStale {
            exptime: Some(exptime(u)?),
        },
        3 => Removal::Clear {
            exptime: exptime(u)?,
            client_flags: *u.choose(&CLIENT_FLAGS)?,
        },
        _ => Removal::ClearAndMarkStale {
            exptime: exptime(u)?,
            client_flags: *u.choose(&CLIENT_FLAGS)?,
        },
    })
}

fn arithmetic(u: &mut Unstructured<'_>, key: SmallKey) -> Result<SmallRequest> {
    Ok(SmallRequest::Arithmetic(SmallArithmetic {
        key,
        key_form: key_form(u)?,
        direction: if u.arbitrary()? {
            Direction::Increment
        } else {
            Direction::Decrement
        },
        delta: *u.choose(&DELTAS)?,
        initial: *u.choose(&INITIALS)?,
        steps: steps(u, false)?,
        guard: plain(guard(u)?),
        new_cas: new_cas(u)?,
        fence: fence(u, 5)?,
        lock: lock_after(u)?,
    }))
}

/// Touch, vivify and (for a get) recache, each at most once, in any order.
fn steps(u: &mut Unstructured<'_>, recaches: bool) -> Result<TtlSteps> {
    let mut steps = TtlSteps::NONE;
    let mut left = [true, true, recaches];
    for _ in 0..u.int_in_range(0..=2)? {
        let which = u.choose_index(left.len())?;
        if !std::mem::take(left.get_mut(which).unwrap_or(&mut false)) {
            continue;
        }
        let exptime = exptime(u)?;
        let step = match which {
            0 => TtlStep::Touch(exptime),
            1 => TtlStep::Vivify(exptime),
            _ => TtlStep::Recache(exptime),
        };
        steps = steps.then(step).unwrap_or(steps);
    }
    Ok(steps)
}

fn exptime(u: &mut Unstructured<'_>) -> Result<Exptime> {
    u.choose(&EXPTIMES).copied()
}

/// The same for a packet. Its exptimes have no sign, so a past exptime becomes a past date.
const fn unsigned(exptime: Exptime) -> Exptime {
    match exptime {
        Exptime::Past => Exptime::At {
            unix_s: UNIX_S_AT_START - 1,
        },
        Exptime::Never | Exptime::In { .. } | Exptime::At { .. } => exptime,
    }
}

fn key_form(u: &mut Unstructured<'_>) -> Result<KeyForm> {
    Ok(if u.ratio(1, 8)? {
        KeyForm::Binary
    } else {
        KeyForm::Plain
    })
}

fn new_cas(u: &mut Unstructured<'_>) -> Result<Option<CasChoice>> {
    Ok(if u.ratio(1, 8)? {
        Some(*u.choose(&CASES)?)
    } else {
        None
    })
}

/// A grant, in one of `of` draws.
fn fence(u: &mut Unstructured<'_>, of: u8) -> Result<Option<FenceChoice>> {
    Ok(if u.ratio(1, of)? {
        Some(if u.ratio(3, 4)? {
            FenceChoice::Current
        } else {
            FenceChoice::Former
        })
    } else {
        None
    })
}

fn lock_after(u: &mut Unstructured<'_>) -> Result<LockAfter> {
    Ok(if u.ratio(1, 6)? {
        LockAfter::Release
    } else {
        LockAfter::Keep
    })
}

fn guard(u: &mut Unstructured<'_>) -> Result<GuardChoice> {
    Ok(match u.int_in_range(0..=15)? {
        0..=7 => GuardChoice::None,
        8..=11 => GuardChoice::Match(*u.choose(&CASES)?),
        12..=14 => GuardChoice::MatchElseStale(*u.choose(&CASES)?),
        _ => GuardChoice::Never,
    })
}

/// The same for a request to which `I` means nothing, and version 0 "no version".
const fn plain(guard: GuardChoice) -> GuardChoice {
    match guard {
        GuardChoice::None | GuardChoice::Never => GuardChoice::None,
        GuardChoice::Match(cas) | GuardChoice::MatchElseStale(cas) => GuardChoice::Match(cas),
    }
}
