//! How a client comes to say what was drawn for it.
//!
//! What is asked comes from the alphabet. Here are the tastes of the clients: they share few keys and
//! prefer some of them, so that requests meet; they prefer to give back what they hold; they choose
//! among the words that their wire has for a request, and want answers in every form; and at times
//! they say what only a wire has.

pub(super) mod intent;

use latchd_core::command::{Guard, LockAfter, Removal, SetMode};
use latchd_core::item::Cas;
use latchd_core::key::KeyForm;
use latchd_harness::alphabet::{
    GuardChoice, SmallAcquire, SmallArithmetic, SmallDelete, SmallGet, SmallKey, SmallRequest,
    SmallSet, SmallValue,
};
use latchd_harness::random::Random;
use latchd_harness::wording::{Protocol, Style, at_moment, nearest};

use self::intent::{Text, Versions};
use super::ask::{Ask, KEYS_MAX, What};
use super::auditor::Auditor;

/// What clients have to choose from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taste {
    pub(super) keys: usize,
    pub(super) value_bytes_max: usize,
}

/// Whose request it is, and when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asker {
    pub(super) conn: u64,
    pub(super) is_binary: bool,
    /// Its requests arrive one at a time, so an error can be told to be the answer of a quiet one.
    pub(super) is_alone: bool,
    /// The number of its next request.
    pub(super) number: u32,
    /// A number that no other request of the run has.
    pub(super) tag: u32,
    /// What its wall clock shows.
    pub(super) unix_s: u64,
}

/// What the client says where `request` was drawn for it; `None` if it has no words for that.
pub(super) fn draw(
    request: &SmallRequest,
    random: &mut Random,
    auditor: &Auditor,
    taste: &Taste,
    asker: &Asker,
) -> Option<Ask> {
    let bits = random.next();
    if let Some(what) = of_a_wire_only(bits & 4095, asker) {
        return Some(say_of_a_wire_only(what, bits >> 16, asker));
    }
    let request = &in_old_words(*request);
    // A value over the limit is one that somebody wants to set.
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
    // Or most items would be gone before anybody comes back for them.
    let lasts = bits >> 12 & 3 != 0;
    let request = at_moment(&request, protocol, asker.unix_s, lasts);
    let key = choose_key(&request, random, auditor, taste, asker);
    let request = request.about(SmallKey::new(key));

    let style = bits.to_le_bytes()[3];
    let shows = bits >> 17 & 7 != 0;
    let as_replace = is_swap(&request) && protocol != Protocol::Classic && style & 1 == 0;
    let mut ask = Ask::new(What::of(&request, protocol, shows, as_replace), protocol);
    ask.request = Some(request);
    ask.number = asker.number;
    ask.style = Style {
        as_replace,
        opaque: Some(asker.number),
        says_all: style & 4 == 0,
        order: style,
        ..Style::default()
    };
    ask.versions = versions(auditor, usize::from(key));
    ask.keys[0] = key;
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
    wrap(&mut ask, bits >> 32, asker);
    Some(ask)
}

/// Whether it is a compare-and-swap, which is the same by another word.
fn is_swap(request: &SmallRequest) -> bool {
    match *request {
        SmallRequest::Set(SmallSet {
            mode, guard, lock, ..
        }) => mode == SetMode::Set && guard != GuardChoice::None && lock == LockAfter::Keep,
        _ => false,
    }
}

/// Of 4096: what a client says that no core hears of.
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
    let mut ask = Ask::new(what, protocol);
    ask.number = asker.number;
    ask.text = Text::Digits {
        number: asker.tag.into(),
        blanks: 0,
    };
    ask.style.quiet = what == What::Quit && protocol == Protocol::Binary && bits & 3 == 0;
    ask
}

/// The same with the lock of an item in the place of that of a key, and in the client's own right: who
/// audits here knows locks as something that an item has.
const fn in_old_words(request: SmallRequest) -> SmallRequest {
    match request {
        SmallRequest::Acquire(SmallAcquire { key, .. }) => SmallRequest::Lock { key },
        SmallRequest::Release { key, .. } => SmallRequest::Unlock { key },
        SmallRequest::Set(set) => SmallRequest::Set(SmallSet {
            fence: None,
            lock: match set.mode {
                SetMode::Replace => set.lock,
                SetMode::Set | SetMode::Add | SetMode::Append { .. } | SetMode::Prepend { .. } => {
                    LockAfter::Keep
                }
            },
            ..set
        }),
        SmallRequest::Delete(delete) => SmallRequest::Delete(SmallDelete {
            fence: None,
            lock: LockAfter::Keep,
            ..delete
        }),
        SmallRequest::Arithmetic(sum) => SmallRequest::Arithmetic(SmallArithmetic {
            fence: None,
            lock: LockAfter::Keep,
            ..sum
        }),
        other => other,
    }
}

/// Which of the keys is asked for.
fn choose_key(
    request: &SmallRequest,
    random: &mut Random,
    auditor: &Auditor,
    taste: &Taste,
    asker: &Asker,
) -> u8 {
    let bits = random.next();
    let keys = taste.keys as u64;
    let drawn = request.key().unwrap_or_default().among(taste.keys) as u64;
    // The lower numbers are asked for more often.
    let other = (bits & 0xffff) % keys;
    let mut key = usize::try_from(drawn.min(other)).expect("a key");
    let wants_own = match request {
        SmallRequest::Unlock { .. }
        | SmallRequest::Set(SmallSet {
            lock: LockAfter::Release,
            ..
        }) => bits >> 32 & 7 != 0,
        SmallRequest::Get(_)
        | SmallRequest::Set(_)
        | SmallRequest::Arithmetic(_)
        | SmallRequest::Delete(SmallDelete {
            removal: Removal::Remove,
            ..
        }) => bits >> 32 & 3 == 0,
        _ => false,
    };
    if wants_own {
        let own = (key..taste.keys)
            .chain(0..key)
            .find(|key| auditor.holder(*key) == Some(asker.conn));
        key = own.unwrap_or(key);
    }
    u8::try_from(key).expect("few keys")
}

/// A classic get asks for several.
fn choose_more_keys(ask: &mut Ask, bits: u64, taste: &Taste) {
    if ask.what != What::Get || ask.protocol != Protocol::Classic {
        return;
    }
    let more = usize::try_from(bits & 7).expect("three bits");
    // Neighbours, none of them twice.
    let count = more.min(KEYS_MAX - 1).min(taste.keys - 1) + 1;
    let key = ask.key();
    for (place, slot) in ask.keys.iter_mut().enumerate().take(count) {
        *slot = u8::try_from((key + place) % taste.keys).expect("few keys");
    }
    ask.key_count = u8::try_from(count).expect("few keys");
}

/// What the clients have been told of the versions of an item.
fn versions(auditor: &Auditor, key: usize) -> Versions {
    let former = auditor.version(key, true).unwrap_or(Cas::FIRST);
    Versions {
        current: auditor.version(key, false).unwrap_or(former),
        former,
        higher: auditor.higher_version(),
    }
}

/// How the client wants to be answered.
fn wrap(ask: &mut Ask, bits: u64, asker: &Asker) {
    let one_in = |shift: u32, of: u64| (bits >> shift).is_multiple_of(of);
    let is_meta = ask.protocol == Protocol::Meta;
    // Who chooses the version of an item that may be made wants to know whether it was.
    let chooses = ask.new_cas().is_some() && ask.steps().vivifies();
    ask.style.with_cas = !one_in(20, 4) || chooses;
    ask.style.with_value = match ask.protocol {
        Protocol::Classic | Protocol::Binary => ask.what != What::Touch,
        Protocol::Meta => !one_in(2, 4),
    };
    ask.style.with_key = ask.protocol != Protocol::Classic && one_in(4, 4);
    if is_meta {
        ask.style.with_value &= ask.reads() || ask.counts();
        ask.style.with_client_flags = ask.what == What::Get && one_in(6, 4);
        if matches!(ask.what, What::Get | What::Increment | What::Decrement) && one_in(8, 2) {
            let steps = ask.steps().len() as u64;
            ask.style.ttl_after = u8::try_from((bits >> 9) % (steps + 1)).ok();
        }
    }
    if ask.what == What::Debug {
        ask.style.with_cas = false;
        ask.style.with_key = false;
        if let Some(SmallRequest::Get(SmallGet { key_form, .. })) = &mut ask.request
            && one_in(12, 16)
        {
            *key_form = KeyForm::Binary;
        }
    }
    ask.style.quiet = one_in(16, 4) && may_be_quiet(ask, asker);
}

/// Whether a request may be quiet: if its answer, or that there is none, can be told from those of
/// its neighbours.
fn may_be_quiet(ask: &Ask, asker: &Asker) -> bool {
    match ask.protocol {
        Protocol::Classic => match ask.what {
            What::Set => ask.guard() == Guard::None,
            What::Delete | What::Increment | What::Decrement | What::Touch | What::Flush => true,
            _ => false,
        },
        Protocol::Meta => match ask.what {
            // Their errors carry their opaque.
            What::Get => !ask.steps().vivifies() || asker.is_alone,
            What::Delete | What::MarkStale => true,
            What::Set
            | What::Add
            | What::Replace
            | What::Append
            | What::Prepend
            | What::Clear
            | What::ClearAndMarkStale
            | What::Increment
            | What::Decrement => asker.is_alone,
            _ => false,
        },
        Protocol::Binary => !matches!(
            ask.what,
            What::Touch | What::Keys | What::Stats | What::StatsReset
        ),
    }
}
