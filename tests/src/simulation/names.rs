//! The names of the keys.

use latchd_protocol::key::Key;

/// The prefix of the number in every key of a great seed: longer than a table would copy by
/// mistake.
const PREFIX_BYTES: usize = 200;

/// The names of the keys.
#[derive(Clone, Debug)]
pub(super) struct Names(Vec<Vec<u8>>);

impl Names {
    /// Every eighth is a long one; in a great seed all are, and differ at their ends only.
    pub(super) fn new(count: usize, is_great: bool) -> Self {
        let name = |number: usize| {
            if is_great {
                // As long as a key may be, and a little shorter.
                let width = 50 - number % 8;
                format!("{:k>PREFIX_BYTES$}{number:0width$}", "")
            } else {
                let length = if number % 8 == 7 { 60 } else { 0 };
                format!("key{number}{:->length$}", "")
            }
        };
        Self((0..count).map(|number| name(number).into_bytes()).collect())
    }

    pub(super) fn plain(&self, key: usize) -> &[u8] {
        &self.0[key]
    }

    pub(super) fn key(&self, key: usize) -> Key<'_> {
        Key::new(self.plain(key)).expect("names are keys")
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = Key<'_>> {
        (0..self.0.len()).map(|key| self.key(key))
    }
}
