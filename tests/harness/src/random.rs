//! Random numbers from a seed, and operations drawn from them.

use arbitrary::{Arbitrary, Unstructured};

/// More bytes than any operation is drawn from.
const OP_BYTES: usize = 48;

/// Random numbers from a seed: the same seed, the same numbers, on every machine.
///
/// Source: Steele, Lea and Flood, "Fast splittable pseudorandom number generators" (2014),
/// `SplitMix64`.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Starts at a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number; all are equally likely.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is not 0. A little uneven for bounds near 2^64.
    pub const fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// True `times` in `of` times.
    pub const fn chance(&mut self, times: u64, of: u64) -> bool {
        self.below(of) < times
    }

    /// One element of a list that is not empty.
    pub fn choose<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        let index = usize::try_from(self.below(of.len() as u64)).expect("an index");
        &of[index]
    }

    /// Fills a buffer.
    pub fn fill(&mut self, buffer: &mut [u8]) {
        for chunk in buffer.chunks_mut(8) {
            let bytes = self.next().to_le_bytes();
            chunk.copy_from_slice(&bytes[..chunk.len()]);
        }
    }
}

/// Draws an operation, or anything else that is made of as few bytes.
///
/// # Panics
/// If it took more bytes than there are.
pub fn draw<T: for<'a> Arbitrary<'a>>(random: &mut Random) -> T {
    let mut bytes = [0; OP_BYTES];
    random.fill(&mut bytes);
    T::arbitrary(&mut Unstructured::new(&bytes)).expect("there are bytes enough")
}
