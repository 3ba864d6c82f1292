//! JSON, as records and the answers of an authority have it.
//!
//! - J1: No text makes the reader panic, nest deeper than [`DEPTH_MAX`] or keep more values than the text has bytes.
//! - J2: A text that RFC 8259 does not allow is refused, and so is an object that has a name twice.
//!
//! A reader of our own, since the readers with a tree of values bring serde and its macros, and a record has eight
//! fields. A number stays as it is written: only its reader knows the range that it may have.

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::{self, Write as _};

/// The most arrays and objects that may be nested.
pub const DEPTH_MAX: usize = 16;

/// The most members of an object.
pub const MEMBERS_MAX: usize = 64;

/// A value.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Value<'a> {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number, as it is written.
    Number(&'a str),
    /// A string without its escapes.
    Text(Cow<'a, str>),
    /// An array.
    Array(Vec<Self>),
    /// An object; each name stands once.
    Object(Vec<(Cow<'a, str>, Self)>),
}

/// A text is no JSON, or is beyond a bound.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Malformed {
    /// The first byte that has no place there.
    pub at: usize,
}

impl fmt::Display for Malformed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "no JSON at byte {}", self.at)
    }
}

impl<'a> Value<'a> {
    /// Reads a text that is one value.
    ///
    /// ```
    /// use latchd_cluster::election::json::Value;
    ///
    /// let value = Value::parse(r#"{"term": "7", "state": "serving"}"#).unwrap();
    /// assert_eq!(value.member("state").and_then(Value::text), Some("serving"));
    /// ```
    ///
    /// # Errors
    /// [`Malformed`], with the place.
    pub fn parse(text: &'a str) -> Result<Self, Malformed> {
        let mut reader = Reader { text, at: 0 };
        let value = reader.value(0)?;
        reader.space();
        if reader.at == text.len() {
            Ok(value)
        } else {
            Err(reader.malformed())
        }
    }

    /// The member of an object with this name.
    #[must_use]
    pub fn member(&self, name: &str) -> Option<&Self> {
        match self {
            Self::Object(members) => members
                .iter()
                .find_map(|(own, value)| (own == name).then_some(value)),
            Self::Null | Self::Bool(_) | Self::Number(_) | Self::Text(_) | Self::Array(_) => None,
        }
    }

    /// The characters of a string.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Null | Self::Bool(_) | Self::Number(_) | Self::Array(_) | Self::Object(_) => None,
        }
    }

    /// The values of an array.
    #[must_use]
    pub fn array(&self) -> Option<&[Self]> {
        match self {
            Self::Array(values) => Some(values),
            Self::Null | Self::Bool(_) | Self::Number(_) | Self::Text(_) | Self::Object(_) => None,
        }
    }

    /// A whole number from 0 on, written as a number.
    #[must_use]
    pub fn number(&self) -> Option<u64> {
        match self {
            Self::Number(digits) => digits.parse().ok(),
            Self::Null | Self::Bool(_) | Self::Text(_) | Self::Array(_) | Self::Object(_) => None,
        }
    }
}

/// Appends a string with its quotes and escapes.
pub fn push_text(out: &mut String, text: &str) {
    out.push('"');
    for letter in text.chars() {
        match letter {
            '"' | '\\' => out.extend(['\\', letter]),
            // Writing into a string does not fail.
            '\0'..='\x1f' | '\x7f' => drop(write!(out, "\\u{:04x}", u32::from(letter))),
            _ => out.push(letter),
        }
    }
    out.push('"');
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    const fn malformed(&self) -> Malformed {
        Malformed { at: self.at }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn space(&mut self) {
        while let Some(b' ' | b'\t' | b'\r' | b'\n') = self.peek() {
            self.at += 1;
        }
    }

    /// Steps over `byte`, if it is next.
    fn is_next(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    fn must(&mut self, byte: u8) -> Result<(), Malformed> {
        if self.is_next(byte) {
            Ok(())
        } else {
            Err(self.malformed())
        }
    }

    fn value(&mut self, depth: usize) -> Result<Value<'a>, Malformed> {
        self.space();
        match self.peek() {
            Some(b'{' | b'[') if depth == DEPTH_MAX => Err(self.malformed()),
            Some(b'{') => self.object(depth + 1).map(Value::Object),
            Some(b'[') => self.list(depth + 1).map(Value::Array),
            Some(b'"') => self.string().map(Value::Text),
            Some(b'-' | b'0'..=b'9') => self.digits().map(Value::Number),
            Some(_) | None => {
                let words = [
                    ("null", Value::Null),
                    ("true", Value::Bool(true)),
                    ("false", Value::Bool(false)),
                ];
                let rest = self.text.get(self.at..).unwrap_or_default();
                let found = words.into_iter().find(|(word, _)| rest.starts_with(word));
                let (word, value) = found.ok_or_else(|| self.malformed())?;
                self.at += word.len();
                Ok(value)
            }
        }
    }

    fn object(&mut self, depth: usize) -> Result<Vec<(Cow<'a, str>, Value<'a>)>, Malformed> {
        let mut members: Vec<(Cow<'a, str>, Value<'a>)> = Vec::new();
        self.must(b'{')?;
        self.space();
        if self.is_next(b'}') {
            return Ok(members);
        }
        loop {
            self.space();
            let start = self.malformed();
            let name = self.string()?;
            if members.len() == MEMBERS_MAX || members.iter().any(|(known, _)| *known == name) {
                return Err(start);
            }
            self.space();
            self.must(b':')?;
            members.push((name, self.value(depth)?));
            self.space();
            if !self.is_next(b',') {
                return self.must(b'}').map(|()| members);
            }
        }
    }

    fn list(&mut self, depth: usize) -> Result<Vec<Value<'a>>, Malformed> {
        let mut values = Vec::new();
        self.must(b'[')?;
        self.space();
        if self.is_next(b']') {
            return Ok(values);
        }
        loop {
            values.push(self.value(depth)?);
            self.space();
            if !self.is_next(b',') {
                return self.must(b']').map(|()| values);
            }
        }
    }

    fn digits(&mut self) -> Result<&'a str, Malformed> {
        let start = self.at;
        self.is_next(b'-');
        if !self.is_next(b'0') {
            self.run_of_digits()?;
        }
        if self.is_next(b'.') {
            self.run_of_digits()?;
        }
        if self.is_next(b'e') || self.is_next(b'E') {
            let _ = self.is_next(b'+') || self.is_next(b'-');
            self.run_of_digits()?;
        }
        Ok(self.text.get(start..self.at).unwrap_or_default())
    }

    /// One digit or more.
    fn run_of_digits(&mut self) -> Result<(), Malformed> {
        let start = self.at;
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
        if self.at == start {
            Err(self.malformed())
        } else {
            Ok(())
        }
    }

    fn string(&mut self) -> Result<Cow<'a, str>, Malformed> {
        self.must(b'"')?;
        let mut unescaped: Option<String> = None;
        loop {
            let rest = self.text.get(self.at..).unwrap_or_default();
            let is_end = |byte: u8| byte == b'"' || byte == b'\\' || byte < 0x20;
            let length = rest.bytes().position(is_end).unwrap_or(rest.len());
            // Each of these bytes is a character, so a character ends before it.
            let plain = rest.get(..length).unwrap_or_default();
            self.at += length;
            if self.is_next(b'"') {
                return Ok(match unescaped {
                    Some(text) => Cow::Owned(text + plain),
                    None => Cow::Borrowed(plain),
                });
            }
            self.must(b'\\')?;
            let text = unescaped.get_or_insert_default();
            text.push_str(plain);
            text.push(self.escaped()?);
        }
    }

    fn escaped(&mut self) -> Result<char, Malformed> {
        let letter = match self.peek() {
            Some(letter @ (b'"' | b'\\' | b'/')) => char::from(letter),
            Some(b'b') => '\x08',
            Some(b'f') => '\x0c',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.code_point(),
            Some(_) | None => return Err(self.malformed()),
        };
        self.at += 1;
        Ok(letter)
    }

    /// `uXXXX`, or two of them for a character beyond 16 bits.
    fn code_point(&mut self) -> Result<char, Malformed> {
        let high = self.unit()?;
        let code = if (0xd800..0xdc00).contains(&high) {
            self.must(b'\\')?;
            let low = self.unit()?;
            let low = low.checked_sub(0xdc00).filter(|low| *low < 0x400);
            low.map(|low| 0x1_0000 + ((high - 0xd800) << 10) + low)
        } else {
            Some(high)
        };
        code.and_then(char::from_u32)
            .ok_or_else(|| self.malformed())
    }

    fn unit(&mut self) -> Result<u32, Malformed> {
        self.must(b'u')?;
        let digits = self.text.get(self.at..self.at + 4);
        let digits = digits.filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let code = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        let code = code.ok_or_else(|| self.malformed())?;
        self.at += 4;
        Ok(code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_rfc_8259_says() {
        let text = " { \"a\" : [ 0 , -1.5e+3, true,null ,{} , [] ] , \"b\\u00e9\\ud83d\\ude00\\n\\/\":\"\\\"x\" } ";
        let value = Value::parse(text).unwrap();
        let list = value.member("a").and_then(Value::array).unwrap();
        assert_eq!(list[0].number(), Some(0));
        assert_eq!(list[1], Value::Number("-1.5e+3"));
        assert_eq!(list[1].number(), None);
        assert_eq!(list[2..4], [Value::Bool(true), Value::Null]);
        assert_eq!(value.member("bé😀\n/").and_then(Value::text), Some("\"x"));
    }

    #[test]
    fn other_texts_are_refused_with_their_place() {
        let deep = "[".repeat(DEPTH_MAX + 1);
        for (text, at) in [
            ("", 0),
            ("{", 1),
            ("{\"a\":1,}", 7),
            ("{\"a\":1,\"a\":2}", 7),
            ("[1 2]", 3),
            ("01", 1),
            ("1.", 2),
            ("-", 1),
            ("\"\\x\"", 2),
            ("\"\\ud800\"", 7),
            ("\"\\ud800\\u0041\"", 13),
            ("\"\\udc00\"", 7),
            ("\"\n\"", 1),
            ("\"\\u00e\u{e9}\"", 3),
            ("nul", 0),
            ("1 1", 2),
            (&deep, DEPTH_MAX),
        ] {
            assert_eq!(Value::parse(text), Err(Malformed { at }), "{text}");
        }
    }

    quickcheck::quickcheck! {
        fn a_written_text_is_read_back(text: String) -> bool {
            let mut written = String::new();
            push_text(&mut written, &text);
            Value::parse(&written).as_ref().map(Value::text) == Ok(Some(text.as_str()))
        }

        fn no_text_panics(text: String, cut: usize) -> bool {
            let mut written = alloc::format!("{{\"a\":[1,{text}],\"b\":");
            push_text(&mut written, &text);
            let cut = cut % (written.len() + 1);
            let cut = (0..=cut).rev().find(|at| written.is_char_boundary(*at)).unwrap_or_default();
            let _ = Value::parse(&written);
            Value::parse(&written[..cut]).is_err()
        }
    }
}
