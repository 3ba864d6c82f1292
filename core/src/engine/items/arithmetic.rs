//! Counting up and down in an item's value.
//!
//! A number is kept as decimal digits. One that gets shorter keeps its length, padded by blanks at
//! the end, as in memcached; one that gets longer takes the bytes it needs.
//!
//! Source: memcached 1.6.45 `memcached.c`, `do_add_delta`; `proto_parser.c`,
//! `process_marithmetic_cmd`. Where we differ: counting never ends a win (docs/PROTOCOL.md,
//! "The win").

use alloc::vec::Vec;

use latchd_protocol::Owner;
use latchd_protocol::command::{Arithmetic, Direction};
use latchd_protocol::item::ItemHeader;
use latchd_protocol::reply::{Number, Refusal, Reply};

use crate::engine::items::fenced::{Forbidden, Right};
use crate::engine::items::guard::{Guarded, judge};
use crate::engine::rules::{Access, Rules};
use crate::engine::wins::recache::{self, Origin};
use crate::store::Store;

/// The digits of the largest number, 2^64 - 1.
const DIGITS_MAX: usize = 20;

impl<S: Store, M: Access> Rules<'_, S, M> {
    pub(in crate::engine) fn arithmetic(
        &mut self,
        owner: Owner,
        request: &Arithmetic<'_>,
    ) -> Reply<'static> {
        let right = Right {
            owner,
            fence: request.fence,
            lock: request.lock,
        };
        let (slot, header) = match self.find_live(request.key) {
            Ok(found) => found,
            Err(vacancy) => return self.make_number(right, request, vacancy),
        };
        if let Err(forbidden) = self.may_change(request.key, right, &header) {
            return forbidden.into();
        }
        let old = self.items.store.value(slot);
        let old_bytes = old.len();
        // memcached looks for an empty value before the CAS, and for a number after it.
        if old.is_empty() {
            return Reply::Refused(Refusal::NonNumeric);
        }
        if judge(request.guard, header.cas) != Guarded::Pass {
            return Reply::Exists;
        }
        let Some(number) = parse(old) else {
            return Reply::Refused(Refusal::NonNumeric);
        };
        let number = match request.direction {
            Direction::Increment => number.wrapping_add(request.delta),
            Direction::Decrement => number.saturating_sub(request.delta),
        };
        let (deadline, ttl) = recache::walk(
            &self.items.clock,
            header.deadline,
            &request.steps,
            Origin::Found,
            |_, _| {},
        );
        let cas = self.items.peek_cas(request.new_cas);
        let now = self.items.clock.tick();
        // A number computed from a stale one is stale, and the winner goes on: both marks stay, and the mark that it
        // was fetched.
        let after = ItemHeader {
            cas,
            deadline,
            last_access: now,
            ..header
        };
        let mut digits = itoa::Buffer::new();
        let value = Padded::new(digits.format(number).as_bytes(), old_bytes);
        let Ok(slot) = self.overwrite(slot, after, value.as_bytes().into()) else {
            return self.items.out_of_memory();
        };
        let counters = &mut self.items.counters;
        match request.direction {
            Direction::Increment => counters.incr_hits += 1,
            Direction::Decrement => counters.decr_hits += 1,
        }
        self.items.commit_cas(request.new_cas);
        self.end_lock(request.key, owner, Some(slot), request.lock);
        Reply::Number(Number {
            value: number,
            cas,
            ttl,
        })
    }

    /// There is no number: makes one if the request says so.
    fn make_number(
        &mut self,
        right: Right,
        request: &Arithmetic<'_>,
        vacancy: S::Vacancy,
    ) -> Reply<'static> {
        match self.may_make(request.key, right) {
            Ok(()) => {}
            // As with replace-and-unlock, a missing item is reported first.
            Err(Forbidden::NotHolder) if !request.steps.vivifies() => {}
            Err(forbidden) => return forbidden.into(),
        }
        if !request.steps.vivifies() {
            match request.direction {
                Direction::Increment => self.items.counters.incr_misses += 1,
                Direction::Decrement => self.items.counters.decr_misses += 1,
            }
            return Reply::NotFound;
        }
        let (deadline, ttl) = recache::walk(
            &self.items.clock,
            None,
            &request.steps,
            Origin::Made,
            |_, _| {},
        );
        let now = self.items.clock.tick();
        let header = ItemHeader {
            deadline,
            key_form: request.key_form,
            ..ItemHeader::new(self.items.peek_cas(request.new_cas), now)
        };
        let mut digits = itoa::Buffer::new();
        let value = digits.format(request.initial).as_bytes();
        let inserted = self.may_pin_new(request.key, value.len()).and_then(|()| {
            let counters = &mut self.items.counters;
            self.items
                .store
                .insert(now, vacancy, request.key, header, value.into(), counters)
        });
        let Ok(slot) = inserted else {
            return self.items.out_of_memory();
        };
        self.items.commit_cas(request.new_cas);
        self.lock_made_item(request.key, slot);
        self.end_lock(request.key, right.owner, Some(slot), request.lock);
        Reply::Number(Number {
            value: request.initial,
            cas: header.cas,
            ttl,
        })
    }
}

/// Reads the number a value begins with; `None` if there is none, or one of 2^64 and more.
///
/// White space and a `+` may stand before the digits, and anything may follow white space behind
/// them: `7 8` counts as 7. Source: memcached 1.6.45 `util.c`, `safe_strtoull`, which leaves that to
/// the C library. A minus sign is always refused here; there, `-0` counts as 0.
fn parse(value: &[u8]) -> Option<u64> {
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t'..=b'\r');
    let start = value.iter().position(|byte| !is_space(byte))?;
    let rest = value.get(start..)?;
    let rest = rest.strip_prefix(b"+").unwrap_or(rest);
    let digits = rest
        .split(is_space)
        .next()
        .filter(|digits| !digits.is_empty())?;
    digits.iter().try_fold(0_u64, |number, byte| {
        let digit = byte.checked_sub(b'0').filter(|digit| *digit < 10)?;
        number.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

/// Digits, with blanks behind them up to the length of the value they replace.
enum Padded {
    /// The usual case: as long as a number can be.
    Short([u8; DIGITS_MAX], usize),
    /// A client has stored a number with many blanks or zeros.
    Long(Vec<u8>),
}

impl Padded {
    fn new(digits: &[u8], old_bytes: usize) -> Self {
        let bytes = old_bytes.max(digits.len());
        let mut short = [b' '; DIGITS_MAX];
        if bytes <= DIGITS_MAX {
            short[..digits.len()].copy_from_slice(digits);
            Self::Short(short, bytes)
        } else {
            let mut long = digits.to_vec();
            long.resize(bytes, b' ');
            Self::Long(long)
        }
    }

    fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Short(bytes, length) => &bytes[..*length],
            Self::Long(bytes) => bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_a_number_if_it_begins_with_one() {
        assert_eq!(parse(b"0"), Some(0));
        assert_eq!(parse(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(parse(b"9   "), Some(9));
        assert_eq!(parse(b"007"), Some(7));
        assert_eq!(parse(b" \t+7"), Some(7));
        assert_eq!(parse(b"7 8"), Some(7));
        for not_a_number in [
            &b""[..],
            b" ",
            b"-1",
            b"+",
            b"+ 1",
            b"++1",
            b"1a",
            // The bytes before and behind the digits.
            b"1/",
            b"1:",
            b"18446744073709551616",
        ] {
            assert_eq!(parse(not_a_number), None, "{not_a_number:?}");
        }
    }

    #[test]
    fn a_shorter_number_is_padded_to_the_old_length() {
        assert_eq!(Padded::new(b"9", 2).as_bytes(), b"9 ");
        assert_eq!(Padded::new(b"100", 2).as_bytes(), b"100");
        assert_eq!(
            Padded::new(b"7", 25).as_bytes(),
            b"7                        "
        );
    }
}
