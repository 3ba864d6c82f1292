//! The names of the keys, as text and packets write them and as `b` does.

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
        let base64 = plain.iter().map(|name| base64(name)).collect();
        Self { plain, base64 }
    }

    pub(super) fn count(&self) -> usize {
        self.plain.len()
    }

    pub(super) fn plain(&self, key: usize) -> &[u8] {
        &self.plain[key]
    }

    pub(super) fn base64(&self, key: usize) -> &[u8] {
        &self.base64[key]
    }

    /// The number of a key.
    pub(super) fn number(&self, name: &[u8]) -> Option<usize> {
        self.plain.iter().position(|known| known == name)
    }
}

fn base64(bytes: &[u8]) -> Vec<u8> {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = Vec::new();
    for three in bytes.chunks(3) {
        let bits = (0..3).fold(0_u32, |bits, at| {
            bits << 8 | u32::from(three.get(at).copied().unwrap_or(0))
        });
        for place in 0..4 {
            text.push(if place <= three.len() {
                LETTERS[(bits >> (18 - 6 * place) & 63) as usize]
            } else {
                b'='
            });
        }
    }
    text
}
