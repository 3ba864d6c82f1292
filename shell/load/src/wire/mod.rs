//! Requests, built once, and their replies.
//!
//! A request is a template in which only the digits of the key differ from one time to the next, so
//! building one is a copy. A reply is read whole: its lengths are followed and its end is checked.
//!
//! Source: memcached `doc/protocol.txt` and `doc/protocol-binary.txt`; for locks yrmcds
//! `docs/locking.md`, and latchd's docs/PROTOCOL.md for `ml` and `mu`.

mod binary;
pub mod item;
mod text;

use anyhow::Result;
use serde::Serialize;

use self::item::{DIGITS, Mixture, STEM, Values, digits};

/// How requests are written.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Dialect {
    /// `get`, `set`, `lock`.
    Classic,
    /// `mg`, `ms`, `ml`, `mu`.
    Meta,
    /// Packets of 24 bytes and more.
    Binary,
}

impl Dialect {
    /// Its name in tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Classic => "classic",
            Self::Meta => "meta",
            Self::Binary => "binary",
        }
    }
}

/// A request about the key of this number.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Ask {
    /// Reads the item.
    Get(u32),
    /// Stores its value.
    Set(u32),
    /// Acquires the lock.
    Lock(u32),
    /// Releases the lock.
    Unlock(u32),
}

/// A reply; its bytes are in the buffer that it was read from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Reply<'a> {
    /// The item is there, with this value.
    Hit(&'a [u8]),
    /// The item is missing.
    Miss,
    /// The item was stored, or any meta command without a value succeeded.
    Stored,
    /// A lock was acquired or released, by a command other than a meta command.
    Granted,
    /// Anything else: a refusal or an error, in the server's words.
    Other(&'a [u8]),
}

/// All requests that are sent in one dialect with values of one size, or of a mixture.
#[derive(Clone, Debug)]
pub struct Requests {
    dialect: Dialect,
    values: Values,
    get: Template,
    set: Template,
    lock: Template,
    unlock: Template,
    is_mixed: bool,
}

impl Requests {
    /// Requests that store values of `value_bytes` bytes with this exptime.
    #[must_use]
    pub fn new(dialect: Dialect, value_bytes: usize, exptime: u32) -> Self {
        let values = Values::new(value_bytes);
        let [get, set, lock, unlock] = match dialect {
            Dialect::Classic => text::classic(&values, exptime),
            Dialect::Meta => text::meta(&values, exptime),
            Dialect::Binary => binary::templates(&values, exptime),
        };
        Self {
            dialect,
            values,
            get,
            set,
            lock,
            unlock,
            is_mixed: false,
        }
    }

    /// Requests in classic text that store values of the sizes of `mixture`, without exptime.
    #[must_use]
    pub fn mixed(mixture: Mixture) -> Self {
        Self {
            values: Values::mixed(mixture),
            is_mixed: true,
            ..Self::new(Dialect::Classic, DIGITS, 0)
        }
    }

    /// The same, but a lock waits while another connection holds it, for at most an hour. In meta text alone, and on
    /// latchd alone.
    #[must_use]
    pub fn waiting(mut self) -> Self {
        if self.dialect == Dialect::Meta {
            self.lock = text::waiting_lock();
        }
        self
    }

    /// Writes a request behind `out`.
    pub fn encode(&self, ask: Ask, out: &mut Vec<u8>) {
        match ask {
            Ask::Get(key) => self.get.fill(key, out),
            Ask::Set(key) if self.is_mixed => text::classic_set(&self.values, key, out),
            Ask::Set(key) => self.set.fill(key, out),
            Ask::Lock(key) => self.lock.fill(key, out),
            Ask::Unlock(key) => self.unlock.fill(key, out),
        }
    }

    /// Reads the first reply of `input` and says how many bytes it takes; `None` if its end is
    /// missing.
    ///
    /// # Errors
    /// It is not a reply at all.
    pub fn decode<'a>(&self, input: &'a [u8]) -> Result<Option<(Reply<'a>, usize)>> {
        match self.dialect {
            Dialect::Classic | Dialect::Meta => text::decode(input),
            Dialect::Binary => binary::decode(input),
        }
    }

    /// Whether a request that finds its item, or its lock free, is answered like this.
    #[must_use]
    pub fn is_answered(&self, ask: Ask, reply: &Reply<'_>) -> bool {
        match (ask, reply) {
            (Ask::Get(key), Reply::Hit(value)) => self.values.is_of(key, value),
            (Ask::Set(_), Reply::Stored) => true,
            // Meta commands have one word for both.
            (Ask::Lock(_) | Ask::Unlock(_), Reply::Stored) => self.dialect == Dialect::Meta,
            (Ask::Lock(_) | Ask::Unlock(_), Reply::Granted) => self.dialect != Dialect::Meta,
            (
                Ask::Get(_) | Ask::Set(_) | Ask::Lock(_) | Ask::Unlock(_),
                Reply::Hit(_) | Reply::Miss | Reply::Stored | Reply::Granted | Reply::Other(_),
            ) => false,
        }
    }
}

/// Bytes with places for the digits of a key.
#[derive(Clone, Debug, Default)]
struct Template {
    bytes: Vec<u8>,
    /// Where digits go, at most two places: in the key, and in the value.
    places: Vec<usize>,
}

impl Template {
    /// Adds bytes that are always the same.
    fn then(mut self, bytes: &[u8]) -> Self {
        self.bytes.extend_from_slice(bytes);
        self
    }

    /// Adds space for the digits of a key.
    fn then_digits(mut self) -> Self {
        self.places.push(self.bytes.len());
        self.then(&digits(0))
    }

    /// Adds a key.
    fn then_key(self) -> Self {
        self.then(STEM).then_digits()
    }

    /// Adds the value of the same key.
    fn then_value(self, values: &Values) -> Self {
        self.then_digits().then(values.rest())
    }

    /// Writes it for one key behind `out`.
    fn fill(&self, key: u32, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&self.bytes);
        let digits = digits(key);
        for place in &self.places {
            out[start + place..][..DIGITS].copy_from_slice(&digits);
        }
    }
}

/// Bytes as a person can read them in a message, at most the first 80.
#[must_use]
pub fn shown(bytes: &[u8]) -> String {
    const BYTES_MAX: usize = 80;
    let start = bytes.get(..BYTES_MAX).unwrap_or(bytes);
    let dots = if start.len() < bytes.len() { "…" } else { "" };
    format!("{}{dots}", start.escape_ascii())
}
