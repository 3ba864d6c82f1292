//! The names of the keys, as text and packets write them and as `b` does.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use latchd_core::key::Key;

/// The names of the keys.
#[derive(Clone, Debug)]
pub(super) struct Names {
    plain: Vec<Vec<u8>>,
    base64: Vec<Vec<u8>>,
}

impl Names {
    /// Every eighth is a long one.
    pub(super) fn new(count: usize) -> Self {
        let plain: Vec<Vec<u8>> = (0..count)
            .map(|number| {
                let length = if number % 8 == 7 { 60 } else { 0 };
                format!("key{number}{:->length$}", "").into_bytes()
            })
            .collect();
        let base64 = plain.iter().map(|name| STANDARD.encode(name).into_bytes());
        let base64 = base64.collect();
        Self { plain, base64 }
    }

    pub(super) fn count(&self) -> usize {
        self.plain.len()
    }

    pub(super) fn plain(&self, key: usize) -> &[u8] {
        &self.plain[key]
    }

    pub(super) fn key(&self, key: usize) -> Key<'_> {
        Key::new(self.plain(key)).expect("names are keys")
    }

    pub(super) fn base64(&self, key: usize) -> &[u8] {
        &self.base64[key]
    }

    /// The number of a key.
    pub(super) fn number(&self, name: &[u8]) -> Option<usize> {
        self.plain.iter().position(|known| known == name)
    }
}
