//! JSON whose objects have each name once, read by `serde_json`.
//!
//! - J1: No text makes the reader panic or keep more values than the text has bytes. Its arrays and objects are nested
//!   at most 127 deep, the limit of `serde_json`.
//! - J2: A text that RFC 8259 does not allow is refused. So is an object with a doubled name or with more than
//!   [`MEMBERS_MAX`] members, and a number beyond the range of `f64`.
//!
//! `serde_json` keeps the last of two members with the same name. So the text is read twice: for the names, then for
//! the values.

use alloc::collections::BTreeSet;
use alloc::string::String;
use core::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

/// The most members of an object.
pub(crate) const MEMBERS_MAX: usize = 64;

/// Reads a text that is one value.
///
/// # Errors
/// The byte at which the reader stopped, from 0.
pub(crate) fn parse(text: &str) -> Result<Value, usize> {
    let value = serde_json::from_str(text).and_then(|Distinct| serde_json::from_str(text));
    value.map_err(|error| place(text, &error))
}

fn place(text: &str, error: &serde_json::Error) -> usize {
    if error.is_eof() {
        return text.len();
    }
    let lines = text.split_inclusive('\n').take(error.line() - 1);
    // The column counts the bytes of the line up to the one that is refused.
    (lines.map(str::len).sum::<usize>() + error.column()).saturating_sub(1)
}

/// A value whose objects have each name once.
struct Distinct;

impl<'de> Deserialize<'de> for Distinct {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Self)
    }
}

impl<'de> Visitor<'de> for Distinct {
    type Value = Self;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a value of JSON")
    }

    fn visit_unit<E>(self) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<Self, A::Error> {
        while let Some(Self) = values.next_element()? {}
        Ok(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self, A::Error> {
        let mut names = BTreeSet::new();
        while let Some(name) = members.next_key::<String>()? {
            if names.len() == MEMBERS_MAX || !names.insert(name) {
                return Err(A::Error::custom("a doubled name, or too many"));
            }
            let Self = members.next_value()?;
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_read_as_rfc_8259_says() {
        let text = " { \"a\" : [ 0 , -1.5e+3, true,null ,{} , [] ] , \"b\\u00e9\\ud83d\\ude00\\n\\/\":\"\\\"x\" } ";
        let value = json!({ "a": [0, -1500.0, true, null, {}, []], "bé😀\n/": "\"x" });
        assert_eq!(parse(text), Ok(value));
    }

    #[test]
    fn other_texts_are_refused_with_their_place() {
        for (text, at) in [
            ("", 0),
            ("{", 1),
            ("{\"a\":1,}", 7),
            ("{\"a\":1,\"a\":2}", 9),
            ("[{\"a\":1,\n \"b\":{},\n \"a\":2}]", 21),
            ("[1 2]", 3),
            ("[1,\n\n 2 3]", 8),
            ("01", 1),
            ("1.", 2),
            ("-", 1),
            ("1e999", 4),
            ("\"\\x\"", 2),
            ("\"\\ud800\"", 7),
            ("\"\\ud800\\u0041\"", 12),
            ("\"\\udc00\"", 6),
            ("\"\n\"", 1),
            ("\"\\u00e\u{e9}\"", 6),
            ("nul", 3),
            ("nult", 3),
            ("1 1", 2),
        ] {
            assert_eq!(parse(text), Err(at), "{text}");
        }
    }

    #[test]
    fn a_text_is_read_up_to_its_bounds() {
        let nested = |depth| "[".repeat(depth) + &"]".repeat(depth);
        assert!(parse(&nested(127)).is_ok());
        assert_eq!(parse(&nested(128)), Err(127));
        let members = |count| {
            let more = (1..count).map(|at| format!(",\"{at}\":0"));
            format!("{{\"0\":0{}}}", more.collect::<String>())
        };
        assert!(parse(&members(MEMBERS_MAX)).is_ok());
        assert!(parse(&members(MEMBERS_MAX + 1)).is_err());
    }

    quickcheck::quickcheck! {
        fn no_text_panics(text: String, cut: usize) -> bool {
            let written = format!("{{\"a\":[1,{text}],\"b\":{}", json!(text));
            let cut = cut % (written.len() + 1);
            let cut = (0..=cut).rev().find(|at| written.is_char_boundary(*at)).unwrap_or_default();
            let _ = parse(&format!("{written}}}"));
            parse(&written[..cut]).is_err()
        }
    }
}
