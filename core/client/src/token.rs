//! A lease's token, and the note for people beside it.
//!
//! The value of a leased item is the token, and if there is metadata, a blank and the metadata. A token
//! contains no blank, so the first blank ends it and two tokens compare whole. (redislock stores both without a
//! separator and compares a prefix, so the token `ab` takes a lock that `abc` holds.)

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::terms::TermsError;

/// The longest token in bytes.
const TOKEN_BYTES_MAX: usize = 250;

/// The longest metadata in bytes, so small that a lock never competes with the cache for memory.
pub const METADATA_BYTES_MAX: usize = 250;

/// Identifies one holder: 1 to 250 bytes, none of them a blank or a control byte.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Token(Box<[u8]>);

impl Token {
    /// A unique token, made of random bytes: 22 characters.
    #[must_use]
    pub fn from_random(random: [u8; 16]) -> Self {
        Self(URL_SAFE_NO_PAD.encode(random).into_bytes().into())
    }

    /// A token of the caller's own. Any client that shows the same token takes over the lease.
    ///
    /// # Errors
    /// [`TermsError`] if it is empty or too long, or holds a blank or a control byte.
    pub fn new(bytes: &[u8]) -> Result<Self, TermsError> {
        let odd = |byte: &u8| *byte == b' ' || byte.is_ascii_control();
        if bytes.is_empty() || bytes.len() > TOKEN_BYTES_MAX || bytes.iter().any(odd) {
            return Err(TermsError::Token);
        }
        Ok(Self(bytes.into()))
    }

    /// The token's bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether an item with this value belongs to the holder of this token.
    #[must_use]
    pub fn owns(&self, value: &[u8]) -> bool {
        value.split(|byte| *byte == b' ').next() == Some(self.as_bytes())
    }
}

/// As text; bytes that are not UTF-8 are replaced.
impl fmt::Display for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&String::from_utf8_lossy(&self.0))
    }
}

impl FromStr for Token {
    type Err = TermsError;

    fn from_str(text: &str) -> Result<Self, TermsError> {
        Self::new(text.as_bytes())
    }
}

/// The value of a leased item: a token, and metadata after it.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct TokenValue {
    token: Token,
    bytes: Box<[u8]>,
}

impl TokenValue {
    /// Puts the two together.
    #[must_use]
    pub fn new(token: Token, metadata: &[u8]) -> Self {
        let mut bytes = Vec::with_capacity(token.0.len() + 1 + metadata.len());
        bytes.extend_from_slice(&token.0);
        if !metadata.is_empty() {
            bytes.push(b' ');
            bytes.extend_from_slice(metadata);
        }
        Self {
            token,
            bytes: bytes.into(),
        }
    }

    /// The token and the metadata of a stored value.
    #[must_use]
    pub fn parts(value: &[u8]) -> (&[u8], &[u8]) {
        let end = value.iter().position(|byte| *byte == b' ');
        let (token, rest) = value.split_at(end.unwrap_or(value.len()));
        (token, rest.get(1..).unwrap_or_default())
    }

    /// The token of the holder.
    #[must_use]
    pub const fn token(&self) -> &Token {
        &self.token
    }

    /// The stored value.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_owns_its_value_and_no_longer_one() {
        let token = Token::new(b"ab").unwrap();
        assert!(token.owns(b"ab"));
        assert!(token.owns(b"ab build 7"));
        assert!(!token.owns(b"abc"));
        assert!(!token.owns(b"abc ab"));
        assert!(!token.owns(b"a"));
        assert!(!token.owns(b""));
    }

    #[test]
    fn a_value_is_token_blank_metadata() {
        let value = |metadata: &[u8]| {
            TokenValue::new(Token::new(b"tok").unwrap(), metadata)
                .as_bytes()
                .to_vec()
        };
        assert_eq!(value(b""), b"tok");
        assert_eq!(value(b"build 7"), b"tok build 7");
    }

    #[test]
    fn a_token_is_read_as_it_is_shown() {
        let token = Token::from_random([7; 16]);
        let shown = alloc::format!("{token}");
        assert_eq!(shown.parse(), Ok(token));
        assert_eq!("a b".parse::<Token>(), Err(TermsError::Token));
    }

    #[test]
    fn ambiguous_tokens_are_refused() {
        for bytes in [&b""[..], b"a b", b"a\r\nb", &[b'a'; TOKEN_BYTES_MAX + 1]] {
            assert_eq!(Token::new(bytes), Err(TermsError::Token));
        }
        let token = Token::from_random([0xff; 16]);
        assert_eq!(token.as_bytes().len(), 22);
        assert!(Token::new(token.as_bytes()).is_ok());
        assert_eq!(
            TokenValue::parts(b"tok build 7"),
            (&b"tok"[..], &b"build 7"[..])
        );
        assert_eq!(TokenValue::parts(b"tok"), (&b"tok"[..], &b""[..]));
    }
}
