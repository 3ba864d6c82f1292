//! A hasher for which numbers that only name something are equal if they come in the same order.
//!
//! A server numbers connections, sessions and grants, and the same happenings in another order give other numbers. Here
//! these numbers are far above all others, and each counts as its place among those that were hashed before.

use std::hash::{DefaultHasher, Hash, Hasher};

/// The first number of a grant.
pub(super) const FENCES: u64 = 1 << 40;

/// The first number of a connection or session.
pub(super) const OWNERS: u64 = 1 << 41;

/// Below the bit that tells a session from a connection.
const END: u64 = 1 << 42;

/// Hashes the view of a world.
#[derive(Default)]
pub(super) struct Names {
    hasher: DefaultHasher,
    known: Vec<u64>,
}

impl Names {
    /// Hashes text, whose words may end with a name.
    pub(super) fn write_text(&mut self, text: &[u8]) {
        text.len().hash(&mut self.hasher);
        for word in text.split(u8::is_ascii_whitespace) {
            match word
                .split_first()
                .and_then(|(kind, name)| Some((kind, name_in(name)?)))
            {
                Some((kind, name)) => (kind, name).hash(self),
                None => word.hash(self),
            }
        }
    }

    fn place(&mut self, name: u64) -> usize {
        let known = self.known.iter().position(|known| *known == name);
        known.unwrap_or_else(|| {
            self.known.push(name);
            self.known.len() - 1
        })
    }
}

fn name_in(word: &[u8]) -> Option<u64> {
    let name = str::from_utf8(word).ok()?.parse().ok()?;
    (FENCES..END).contains(&name).then_some(name)
}

impl Hasher for Names {
    fn finish(&self) -> u64 {
        self.hasher.finish()
    }

    fn write(&mut self, bytes: &[u8]) {
        self.hasher.write(bytes);
    }

    fn write_u64(&mut self, number: u64) {
        let name = number & !(1 << 63);
        if (FENCES..END).contains(&name) {
            self.hasher.write_u64(number & 1 << 63 | u64::MAX >> 1);
            let place = self.place(name);
            self.hasher.write_usize(place);
        } else {
            self.hasher.write_u64(number);
        }
    }
}
