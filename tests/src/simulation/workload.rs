//! How a client puts a drawn request into words.
//!
//! Requests come from the alphabet. Here are the tastes of the clients: they share few keys and
//! prefer some of them, so that requests meet; they prefer to release the locks that they hold;
//! they choose among the words that their wire has for a request, and want answers in every form;
//! and at times they send a request that only a wire has.

pub(super) mod intent;

use latchd_core::ConnId;
use latchd_harness::alphabet::{
    GuardChoice, SmallAcquire, SmallDelete, SmallGet, SmallKey, SmallRequest, SmallSet, SmallValue,
};
use latchd_harness::random::Random;
use latchd_harness::wording::{Protocol, Style, at_moment, nearest};
use latchd_protocol::command::{LockAfter, Removal, SetMode};
use latchd_protocol::key::KeyForm;

use self::intent::Text;
use super::ask::{Ask, What};
use super::server::Machine;

/// The choices of the clients.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taste {
    pub(super) keys: usize,
    pub(super) value_bytes_max: usize,
    /// There are thousands of keys.
    pub(super) is_great: bool,
}

/// The client of a request, and the time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asker {
    pub(super) conn: ConnId,
    pub(super) is_binary: bool,
    /// The number of its next request.
    pub(super) number: u32,
    /// A number that no other request of the run has.
    pub(super) tag: u32,
    /// The time on its wall clock.
    pub(super) unix_s: u64,
}

/// The client's words for the drawn `request`; `None` if it has no words for that.
pub(super) fn draw(
    request: &SmallRequest,
    random: &mut Random,
    machine: &Machine,
    taste: &Taste,
    asker: &Asker,
) -> Option<Ask> {
    let bits = random.next();
    if let Some(what) = of_a_wire_only(bits & 4095, asker) {
        return Some(say_of_a_wire_only(what, bits >> 16, asker));
    }
    // A value over the limit must come from a set.
    let (request, is_too_large) = match *request {
        SmallRequest::SetTooLarge { key } => (
            SmallRequest::Set(SmallSet::new(key, SmallValue::Long)),
            true,
        ),
        other => (other, false),
    };
    let (request, protocol) = if asker.is_binary {
        (nearest(&request, Protocol::Binary)?, Protocol::Binary)
    } else {
        let (first, second) = if bits >> 16 & 1 == 0 {
            (Protocol::Meta, Protocol::Classic)
        } else {
            (Protocol::Classic, Protocol::Meta)
        };
        match nearest(&request, first) {
            Some(said) => (said, first),
            None => (nearest(&request, second)?, second),
        }
    };
    // Otherwise most items would be gone before any client reads them.
    let lasts = bits >> 12 & 3 != 0;
    let request = at_moment(&request, protocol, asker.unix_s, lasts);
    let key = choose_key(&request, random, machine, taste, asker);

    let style = bits.to_le_bytes()[3];
    let shows = bits >> 17 & 7 != 0;
    let as_replace = is_swap(&request) && protocol != Protocol::Classic && style & 1 == 0;
    let what = What::of(&request, protocol, shows, as_replace);
    let mut ask = Ask::new(what, protocol, asker.number);
    ask.request = Some(request);
    ask.style = Style {
        as_replace,
        opaque: Some(asker.number),
        says_all: style & 4 == 0,
        order: style,
        ..Style::default()
    };
    ask.told = machine.heard.told(key);
    ask.first = key;
    choose_more_keys(&mut ask, bits >> 20, taste);
    if let SmallRequest::Set(SmallSet { value, .. }) = request {
        let chance = random.next();
        ask.text = if is_too_large {
            Text::too_large(asker.tag, taste.value_bytes_max, chance)
        } else {
            Text::of(value, asker.tag, taste.value_bytes_max, chance)
        };
        // Without a value this one is malformed.
        if ask.what == What::ReplaceAndUnlock && ask.text.bytes() == 0 {
            ask.text = Text::of(SmallValue::Word, asker.tag, taste.value_bytes_max, chance);
        }
        ask.is_too_large = ask.text.bytes() > taste.value_bytes_max;
    }
    wrap(&mut ask, bits >> 32);
    if taste.is_great {
        // In base64 the keys would be longer than a key may be.
        ask.set_key_form(KeyForm::Plain);
    }
    Some(ask)
}

/// Whether it is a compare-and-swap, which has a name of its own.
fn is_swap(request: &SmallRequest) -> bool {
    match *request {
        SmallRequest::Set(SmallSet {
            mode, guard, lock, ..
        }) => mode == SetMode::Set && guard != GuardChoice::None && lock == LockAfter::Keep,
        _ => false,
    }
}

/// Of 4096: a request that the core does not see.
fn of_a_wire_only(roll: u64, asker: &Asker) -> Option<What> {
    Some(match roll {
        0..6 if asker.number > 1 => What::Quit,
        // The first bytes of a connection choose its protocol.
        6..8 if asker.number > 1 => What::Nonsense,
        8..40 => What::Version,
        40..96 => What::Noop,
        96..128 => What::Unknown,
        128..144 if !asker.is_binary => What::BadBody,
        _ => return None,
    })
}

fn say_of_a_wire_only(what: What, bits: u64, asker: &Asker) -> Ask {
    let protocol = match what {
        _ if asker.is_binary => Protocol::Binary,
        What::Noop => Protocol::Meta,
        _ => Protocol::Classic,
    };
    let mut ask = Ask::new(what, protocol, asker.number);
    ask.text = Text::Digits {
        number: asker.tag.into(),
        blanks: 0,
    };
    ask.style.quiet = what == What::Quit && protocol == Protocol::Binary && bits & 3 == 0;
    ask
}

/// In a great seed, the number of keys in most requests: few enough that clients meet.
const KEYS_WANTED: usize = 16;

/// The requested key.
fn choose_key(
    request: &SmallRequest,
    random: &mut Random,
    machine: &Machine,
    taste: &Taste,
    asker: &Asker,
) -> usize {
    let bits = random.next();
    let below = |bound: usize| usize::try_from(bits & 0xffff).expect("16 bits") % bound;
    let drawn = match request {
        SmallRequest::Keys { prefix } => *prefix,
        other => other.key(),
    };
    let drawn = drawn.unwrap_or_default().among(taste.keys);
    let wants_own = match request {
        SmallRequest::Unlock { .. }
        | SmallRequest::Release { .. }
        | SmallRequest::Set(
            SmallSet {
                lock: LockAfter::Release,
                ..
            }
            | SmallSet { fence: Some(_), .. },
        ) => bits >> 32 & 7 != 0,
        SmallRequest::Get(_)
        | SmallRequest::Set(_)
        | SmallRequest::Arithmetic(_)
        | SmallRequest::Delete(SmallDelete {
            removal: Removal::Remove,
            ..
        }) => bits >> 32 & 3 == 0,
        _ => false,
    };
    if taste.is_great {
        let granted = machine.heard.last_granted(asker.conn).filter(|_| wants_own);
        let other = match bits >> 35 & 7 {
            0 => drawn * below(taste.keys) % taste.keys,
            _ => below(KEYS_WANTED) * 4_999 % taste.keys,
        };
        return granted.unwrap_or(other);
    }
    // Lower numbers are requested more often.
    let key = drawn.min(below(taste.keys));
    let mut others = (key..taste.keys).chain(0..key);
    let own = others.find(|key| wants_own && machine.holds(asker.conn, *key));
    own.unwrap_or(key)
}

/// An item of one byte, which never expires: a great seed is full of them.
pub(super) fn store(key: usize, number: u32) -> Ask {
    let mut ask = Ask::new(What::Set, Protocol::Meta, number);
    let set = SmallSet::new(SmallKey::default(), SmallValue::Number);
    ask.request = Some(SmallRequest::Set(set));
    ask.first = key;
    ask
}

/// A plain `ml`.
pub(super) fn acquire(key: usize, number: u32) -> Ask {
    let mut ask = Ask::new(What::Acquire, Protocol::Meta, number);
    ask.request = Some(SmallRequest::Acquire(
        SmallAcquire::new(SmallKey::default()),
    ));
    ask.first = key;
    ask
}

/// Whether it is about locks of keys and grants. Plain seeds have fewer of these: many are refused,
/// and they keep items from being stored and evicted.
pub(super) fn is_about_grants(request: &SmallRequest) -> bool {
    let is_release = |lock| lock == LockAfter::Release;
    match request {
        SmallRequest::Acquire(_) | SmallRequest::Release { .. } => true,
        SmallRequest::Set(set) => {
            set.fence.is_some() || is_release(set.lock) && set.mode != SetMode::Replace
        }
        SmallRequest::Delete(delete) => delete.fence.is_some() || is_release(delete.lock),
        SmallRequest::Arithmetic(sum) => sum.fence.is_some() || is_release(sum.lock),
        _ => false,
    }
}

/// Whether crowds prefer it: locks of keys, wins and waits.
pub(super) const fn is_of_a_crowd(request: &SmallRequest) -> bool {
    matches!(
        request,
        SmallRequest::Acquire(_)
            | SmallRequest::Release { .. }
            | SmallRequest::Get(SmallGet { recaches: true, .. })
            | SmallRequest::Set(
                SmallSet {
                    lock: LockAfter::Release,
                    ..
                } | SmallSet { fence: Some(_), .. }
            )
    )
}

/// The most keys in one `get`.
const KEYS_MAX: usize = 6;

/// A classic get asks for several.
fn choose_more_keys(ask: &mut Ask, bits: u64, taste: &Taste) {
    if ask.what != What::Get || ask.protocol != Protocol::Classic {
        return;
    }
    let more = usize::try_from(bits & 7).expect("three bits");
    // Neighbours, none of them twice.
    let count = more.min(KEYS_MAX - 1).min(taste.keys - 1) + 1;
    ask.max_sharers = taste.keys;
    ask.key_count = count;
}

/// The wanted form of the answer.
fn wrap(ask: &mut Ask, bits: u64) {
    let one_in = |shift: u32, of: u64| (bits >> shift).is_multiple_of(of);
    let is_meta = ask.protocol == Protocol::Meta;
    let counts = matches!(ask.what, What::Increment | What::Decrement);
    // `ml` shows parts of an item only with a look at it.
    let reads_item = match ask.request {
        Some(SmallRequest::Acquire(SmallAcquire { reads_item, .. })) => reads_item,
        _ => true,
    };
    ask.style.with_cas = reads_item && !one_in(20, 4);
    ask.style.with_value = match ask.protocol {
        Protocol::Classic | Protocol::Binary => ask.what != What::Touch,
        Protocol::Meta => {
            let may = matches!(ask.what, What::Get | What::Acquire) || counts;
            may && reads_item && !one_in(2, 4)
        }
    };
    ask.style.with_key = ask.protocol != Protocol::Classic && one_in(4, 4);
    if is_meta {
        ask.style.with_client_flags = ask.what == What::Get && one_in(6, 4);
        if (ask.what == What::Get || counts) && one_in(8, 2) {
            let steps = ask.steps().len() as u64;
            ask.style.ttl_after = u8::try_from((bits >> 9) % (steps + 1)).ok();
        }
    }
    if ask.what == What::Debug {
        ask.style.with_cas = false;
        ask.style.with_key = false;
        if one_in(12, 16) {
            ask.set_key_form(KeyForm::Binary);
        }
    }
    ask.style.quiet = one_in(16, 4) && may_be_quiet(ask);
}

/// Whether its protocol has a quiet form of a request.
const fn may_be_quiet(ask: &Ask) -> bool {
    match ask.protocol {
        Protocol::Classic => matches!(
            ask.what,
            What::Set
                | What::Add
                | What::Replace
                | What::Append
                | What::Prepend
                | What::Delete
                | What::Increment
                | What::Decrement
                | What::Touch
                | What::Flush
        ),
        Protocol::Meta => !matches!(ask.what, What::Debug),
        Protocol::Binary => !matches!(
            ask.what,
            What::Touch | What::Keys | What::Stats | What::StatsReset
        ),
    }
}
