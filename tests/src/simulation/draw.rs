//! Which request a client sends next.
//!
//! Clients share few keys, so that requests meet; they prefer to give back what they hold; and of
//! everything that a request may say, they say everything at times.

use super::ask::{Ask, KEYS_MAX, Text, What, Wire};
use super::ledger::Ledger;
use crate::generate::Random;

/// What clients have to choose from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taste {
    pub(super) keys: usize,
    pub(super) value_bytes_max: usize,
}

/// Whose request it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asker {
    pub(super) conn: u64,
    pub(super) is_binary: bool,
    /// Its requests arrive one at a time, so an error can be told to be the answer of a quiet one.
    pub(super) is_alone: bool,
    /// The number of its next request.
    pub(super) number: u32,
}

/// Of 256: what a text client asks for.
const TEXT: &[(u8, What)] = &[
    (70, What::Get),
    (44, What::Set),
    (6, What::Add),
    (5, What::Replace),
    (8, What::Append),
    (4, What::Prepend),
    (10, What::Delete),
    (10, What::MarkStale),
    (2, What::Clear),
    (2, What::ClearAndMarkStale),
    (8, What::Touch),
    (12, What::Increment),
    (6, What::Decrement),
    (28, What::Lock),
    (24, What::Unlock),
    (3, What::UnlockAll),
    (6, What::Debug),
    (2, What::Version),
    (3, What::Noop),
    (2, What::Unknown),
    (1, What::BadBody),
];

/// Of 256: what a binary client asks for.
const BINARY: &[(u8, What)] = &[
    (66, What::Get),
    (46, What::Set),
    (8, What::Add),
    (6, What::Replace),
    (8, What::Append),
    (4, What::Prepend),
    (14, What::Delete),
    (8, What::Touch),
    (14, What::Increment),
    (8, What::Decrement),
    (16, What::Lock),
    (16, What::LockAndGet),
    (18, What::Unlock),
    (12, What::ReplaceAndUnlock),
    (3, What::UnlockAll),
    (2, What::Version),
    (5, What::Noop),
    (2, What::Unknown),
];

/// Draws a request.
pub(super) fn draw(random: &mut Random, ledger: &Ledger, taste: &Taste, asker: &Asker) -> Ask {
    let bits = random.next();
    let what = what(bits, asker);
    let wire = if asker.is_binary {
        Wire::Binary
    } else {
        match what {
            What::MarkStale | What::Clear | What::ClearAndMarkStale | What::Debug | What::Noop => {
                Wire::Meta
            }
            What::Get
            | What::Set
            | What::Add
            | What::Replace
            | What::Append
            | What::Prepend
            | What::Delete
            | What::Increment
            | What::Decrement
                if bits >> 32 & 1 == 0 =>
            {
                Wire::Meta
            }
            _ => Wire::Classic,
        }
    };
    let mut ask = Ask::new(what, wire);
    ask.number = asker.number;
    choose_keys(&mut ask, random, ledger, taste, asker);
    let bits = random.next();
    let one_in = |shift: u32, of: u64| (bits >> shift).is_multiple_of(of);
    ask.exptime = exptime(&ask, bits >> 40);
    ask.text = text(taste, bits >> 20, asker);
    // One is malformed without a value, the other is to be nothing worse than that.
    if what == What::BadBody || what == What::ReplaceAndUnlock && ask.text.bytes() == 0 {
        ask.text = Text::Digits(asker.number);
    }
    ask.delta = u32::try_from(bits >> 8 & 7).expect("three bits");
    ask.initial = 1_000_000_000_000 + (bits >> 4 & 0xffff_ffff) * 100;
    ask.with_cas = one_in(1, 2);
    ask.with_value = wire == Wire::Binary || !one_in(2, 4);
    ask.with_key = wire != Wire::Classic && one_in(4, 4);
    ask.in_base64 = wire == Wire::Meta && what != What::Noop && one_in(6, 16);
    if wire == Wire::Meta {
        ask.with_value &= matches!(what, What::Get | What::Increment | What::Decrement);
        if what == What::Debug {
            ask.with_cas = false;
            ask.with_key = false;
        }
        if what == What::Get {
            match bits >> 12 & 7 {
                0 if ask.exptime.is_none() => ask.vivify = Some(small_exptime(bits >> 50)),
                1 | 2 => ask.recache = Some(small_exptime(bits >> 50)),
                _ => {}
            }
        }
    }
    if let What::Increment | What::Decrement = what {
        ask.exptime = ask.exptime.filter(|_| wire == Wire::Meta);
        if wire != Wire::Classic && one_in(10, 2) {
            ask.vivify = Some(small_exptime(bits >> 50));
            ask.exptime = None;
        }
    }
    choose_guard(&mut ask, random, ledger);
    ask.quiet = quiet(&ask, asker, one_in(16, 4));
    ask
}

fn what(bits: u64, asker: &Asker) -> What {
    // The rare ones, which touch everything or end something.
    let rare = bits >> 40 & 2047;
    match rare {
        0..4 => return What::Flush,
        4..8 => return What::Keys,
        8 => return What::Stats,
        9..12 if asker.number > 1 => return What::Quit,
        // The first bytes of a connection choose its protocol.
        12 if asker.number > 1 => return What::Nonsense,
        _ => {}
    }
    let table = if asker.is_binary { BINARY } else { TEXT };
    let mut roll = bits.to_le_bytes()[0];
    for (weight, what) in table {
        match roll.checked_sub(*weight) {
            None => return *what,
            Some(left) => roll = left,
        }
    }
    What::Get
}

fn choose_keys(ask: &mut Ask, random: &mut Random, ledger: &Ledger, taste: &Taste, asker: &Asker) {
    let bits = random.next();
    let keys = taste.keys as u64;
    // The lower numbers are asked for more often.
    let first = (bits & 0xffff) % keys;
    let second = (bits >> 16 & 0xffff) % keys;
    let mut key = usize::try_from(first.min(second)).expect("a key");
    let wants_own = match ask.what {
        What::Unlock | What::ReplaceAndUnlock => bits >> 32 & 7 != 0,
        What::Set | What::Get | What::Append | What::Increment | What::Delete => {
            bits >> 32 & 3 == 0
        }
        _ => false,
    };
    if wants_own {
        let own = (key..taste.keys)
            .chain(0..key)
            .find(|key| ledger.holder(*key) == Some(asker.conn));
        key = own.unwrap_or(key);
    }
    ask.keys[0] = u8::try_from(key).expect("few keys");
    if ask.what == What::Get && ask.wire == Wire::Classic {
        let more = usize::try_from(bits >> 40 & 7).expect("three bits");
        // Neighbours, none of them twice.
        let count = more.min(KEYS_MAX - 1).min(taste.keys - 1) + 1;
        for (place, slot) in ask.keys.iter_mut().enumerate().take(count) {
            *slot = u8::try_from((key + place) % taste.keys).expect("few keys");
        }
        ask.key_count = u8::try_from(count).expect("few keys");
    }
}

fn small_exptime(bits: u64) -> u16 {
    [0, 1, 2, 3, 5, 30, 600, 1][usize::try_from(bits & 7).expect("three bits")]
}

fn exptime(ask: &Ask, bits: u64) -> Option<i32> {
    let seconds = match bits >> 3 & 31 {
        0 if ask.wire != Wire::Binary => -1,
        _ => i32::from(small_exptime(bits)),
    };
    let is_given = bits >> 8 & 1 == 0;
    match ask.what {
        What::Touch => Some(seconds),
        What::Flush => (is_given).then_some(seconds.max(0)),
        What::Set | What::Add | What::Replace if seconds != 0 || ask.wire == Wire::Meta => {
            is_given.then_some(seconds)
        }
        // Not in the past: the item would be gone before anybody could see what became of its lock.
        What::ReplaceAndUnlock => Some(seconds.max(0)),
        What::Get if bits >> 8 & 7 == 0 => Some(seconds),
        What::LockAndGet
        | What::MarkStale
        | What::Clear
        | What::ClearAndMarkStale
        | What::Increment
        | What::Decrement
            if is_given =>
        {
            Some(seconds)
        }
        _ => None,
    }
}

fn text(taste: &Taste, bits: u64, asker: &Asker) -> Text {
    let max = taste.value_bytes_max as u64;
    let tag = u32::try_from(bits & 0xffff).expect("16 bits") << 16 | asker.number & 0xffff;
    let bytes = match bits >> 16 & 31 {
        0 => max,
        1 => max + 1 + bits % 40,
        2..6 => bits % (max + 1),
        6..14 => return Text::Digits(tag & 0xffff),
        14 => 0,
        _ => bits % 64,
    };
    Text::Letters {
        tag,
        bytes: u16::try_from(bytes).expect("a small limit"),
    }
}

fn choose_guard(ask: &mut Ask, random: &mut Random, ledger: &Ledger) {
    let may_guard = matches!(
        ask.what,
        What::Set | What::Delete | What::MarkStale | What::ReplaceAndUnlock
    );
    if !may_guard || (ask.wire == Wire::Classic && ask.what != What::Set) {
        return;
    }
    let bits = random.next();
    let is_past = bits >> 8 & 3 == 0;
    if bits & 3 == 0
        && let Some(version) = ledger.version(ask.key(), is_past)
    {
        // At times one that does not exist yet.
        let is_future = bits >> 12 & 15 == 0;
        ask.guard = version + if is_future { 1 << 40 } else { 0 };
        ask.else_stale = ask.wire == Wire::Meta && ask.what == What::Set && bits >> 4 & 1 == 0;
    }
}

/// Whether a request may be quiet: if its answer, or that there is none, can be told from those of
/// its neighbours.
fn quiet(ask: &Ask, asker: &Asker, wished: bool) -> bool {
    wished
        && match ask.wire {
            Wire::Classic => match ask.what {
                What::Set => ask.guard == 0,
                What::Delete | What::Increment | What::Decrement | What::Touch | What::Flush => {
                    true
                }
                _ => false,
            },
            Wire::Meta => match ask.what {
                // Their errors carry their opaque.
                What::Get => ask.vivify.is_none() || asker.is_alone,
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
            Wire::Binary => !matches!(
                ask.what,
                What::LockAndGet
                    | What::Touch
                    | What::Keys
                    | What::Stats
                    | What::Version
                    | What::Noop
                    | What::Unknown
                    | What::Nonsense
            ),
        }
}
