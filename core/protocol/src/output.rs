//! Bytes to send: copied bytes, and large values that are shared with the store.
//!
//! Replies are encoded one behind the other, and a transport sends all of them together. Most bytes are copied
//! into one buffer. A large value is not copied: it stays shared with the store, and is placed between the
//! copied bytes until the peer has received it.
//!
//! - P1: Bytes are read from an output in the order in which they were added, however they were added and taken
//!   out.
//! - P2: A shared value is dropped as soon as its last byte is taken out.
//! - P3: An output has at most [`CHUNKS_MAX`] chunks.

use alloc::collections::{TryReserveError, VecDeque};
use alloc::vec::Vec;

use bytes::{Buf, Bytes};

use crate::value::{SHARED_VALUE_BYTES_MIN, Value};

/// The most chunks of an output. A value that would make one more is copied. So they fit into one call of
/// `writev`, which takes 1024 (`IOV_MAX`), and their list fits on the stack.
pub const CHUNKS_MAX: usize = 64;

/// Each shared value has copied bytes before it, and the last has some behind it.
const SHARED_MAX: usize = (CHUNKS_MAX - 1) / 2;

/// Bytes on their way to one peer.
///
/// ```
/// use latchd_protocol::Output;
///
/// let mut out = Output::new();
/// out.extend_from_slice(b"VALUE k 0 5\r\n");
/// out.push_shared(bytes::Bytes::from_static(b"hello"));
/// out.extend_from_slice(b"\r\nEND\r\n");
/// assert_eq!(out.chunks().count(), 3);
/// assert_eq!(out.len(), 25);
///
/// out.advance(13); // as much as the peer has taken
/// assert_eq!(out.chunks().next(), Some(&b"hello"[..]));
/// assert_eq!(Vec::from(out), b"hello\r\nEND\r\n");
/// ```
#[derive(Clone, Debug, Default)]
pub struct Output {
    /// The copied bytes, in one piece.
    copied: Vec<u8>,
    /// Bytes of `copied` that were taken out.
    taken: usize,
    /// The shared values, in order.
    shared: VecDeque<Shared>,
    /// Their length together.
    shared_bytes: usize,
}

/// A value that belongs between two copied bytes.
#[derive(Clone, Debug)]
struct Shared {
    /// Bytes of `copied` before it, including bytes that were taken out.
    at: usize,
    value: Bytes,
    /// Its length before any of it was taken out: this much memory is kept for it.
    whole_bytes: usize,
}

/// A value in memory that an output shares with the store or other outputs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SharedValue {
    /// The same for all owners of the value, and different for every other value meanwhile.
    pub id: usize,
    /// Its memory, in bytes.
    pub bytes: usize,
}

impl Output {
    /// Nothing to send.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            copied: Vec::new(),
            taken: 0,
            shared: VecDeque::new(),
            shared_bytes: 0,
        }
    }

    /// The number of bytes to send.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        self.copied.len() - self.taken + self.shared_bytes
    }

    /// Whether there is nothing to send.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends a copy of `bytes`.
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        self.copied.extend_from_slice(bytes);
    }

    /// Appends a value without copying it, unless it would be one chunk too many (P3).
    pub fn push_shared(&mut self, value: Bytes) {
        let whole_bytes = value.len();
        self.push_rest(value, whole_bytes);
    }

    /// Appends the rest of a value that takes `whole_bytes` of memory.
    fn push_rest(&mut self, value: Bytes, whole_bytes: usize) {
        if self.shared.len() >= SHARED_MAX {
            return self.extend_from_slice(&value);
        }
        if !value.is_empty() {
            self.shared_bytes += value.len();
            let at = self.copied.len();
            self.shared.push_back(Shared {
                at,
                value,
                whole_bytes,
            });
        }
    }

    /// The values that it keeps in memory, in order. The same value may come several times.
    pub fn shared_values(&self) -> impl Iterator<Item = SharedValue> + Clone {
        self.shared.iter().map(|shared| SharedValue {
            // The end of a value stays in place while its beginning is taken out.
            id: shared.value.as_ptr_range().end.addr(),
            bytes: shared.whole_bytes,
        })
    }

    /// Whether it takes no memory and holds no shared value.
    #[inline]
    #[must_use]
    pub fn takes_nothing(&self) -> bool {
        self.copied.capacity() == 0 && self.shared.is_empty()
    }

    /// The memory of the copied bytes, in bytes.
    #[must_use]
    pub fn copied_room(&self) -> usize {
        self.copied.capacity()
    }

    /// Appends a value: a large one without copying it, if it is shared with the store.
    pub(crate) fn push_value(&mut self, value: Value<'_>) {
        match value {
            Value::Shared(shared) if shared.len() >= SHARED_VALUE_BYTES_MIN => {
                self.push_shared(shared.clone());
            }
            Value::Shared(_) | Value::Borrowed(_) => self.extend_from_slice(&value),
        }
    }

    /// Reserves memory at once for a value and the bytes around it, if the value will be copied.
    pub(crate) fn reserve(&mut self, bytes_around: usize, value: Value<'_>) {
        let copied = match value {
            Value::Shared(shared) if shared.len() >= SHARED_VALUE_BYTES_MIN => 0,
            Value::Shared(_) | Value::Borrowed(_) => value.len(),
        };
        self.copied.reserve(bytes_around + copied);
    }

    /// Moves all bytes of `other` behind the bytes here. Shared values stay shared. Copied bytes are copied
    /// again, so they use no more memory here than they need.
    pub fn append(&mut self, other: &mut Self) {
        if self.is_empty() {
            // Bytes that were taken out are not kept when new ones come.
            self.clear();
        }
        for Shared {
            at,
            value,
            whole_bytes,
        } in other.shared.drain(..)
        {
            let before = other.copied.get(other.taken..at).unwrap_or_default();
            self.copied.extend_from_slice(before);
            other.taken = at;
            self.push_rest(value, whole_bytes);
        }
        let rest = other.copied.get(other.taken..).unwrap_or_default();
        self.copied.extend_from_slice(rest);
        other.clear();
    }

    /// As [`Self::append`], but if the allocator refuses, nothing changes.
    ///
    /// # Errors
    /// The allocator's error.
    pub fn try_append(&mut self, other: &mut Self) -> Result<(), TryReserveError> {
        self.try_reserve(other.copied.len() - other.taken)?;
        self.append(other);
        Ok(())
    }

    /// Reserves memory for `bytes` more copied bytes.
    ///
    /// # Errors
    /// The allocator's error.
    pub fn try_reserve(&mut self, bytes: usize) -> Result<(), TryReserveError> {
        self.copied.try_reserve(bytes)
    }

    /// The bytes to send, in order: for one system call that takes several pieces, or for one call each. No
    /// chunk is empty.
    pub fn chunks(&self) -> impl Iterator<Item = &[u8]> {
        let mut from = self.taken;
        let shared = self
            .shared
            .iter()
            .flat_map(move |Shared { at, value, .. }| {
                let before = self.copied.get(from..*at).unwrap_or_default();
                from = *at;
                [before, value.as_ref()]
            });
        let last = self.shared.back().map_or(self.taken, |shared| shared.at);
        let rest = self.copied.get(last..).unwrap_or_default();
        shared.chain([rest]).filter(|chunk| !chunk.is_empty())
    }

    /// The first of [`Self::chunks`]; empty if there is nothing to send.
    #[must_use]
    pub fn chunk(&self) -> &[u8] {
        self.chunks().next().unwrap_or_default()
    }

    /// All bytes to send, if they are in one piece, as they are in most outputs. This check is cheap. Empty if
    /// there is nothing to send.
    #[must_use]
    #[inline]
    pub fn as_one_chunk(&self) -> Option<&[u8]> {
        let is_one = self.shared.is_empty();
        is_one.then(|| self.copied.get(self.taken..).unwrap_or_default())
    }

    /// Takes out the first `bytes` bytes, which were sent, or all if there are fewer.
    pub fn advance(&mut self, mut bytes: usize) {
        if bytes >= self.len() {
            return self.clear();
        }
        while let Some(Shared { at, value, .. }) = self.shared.front_mut() {
            let before = *at - self.taken;
            if bytes < before {
                break;
            }
            (self.taken, bytes) = (*at, bytes - before);
            let sent = bytes.min(value.len());
            value.advance(sent);
            self.shared_bytes -= sent;
            bytes -= sent;
            if !value.is_empty() {
                return;
            }
            self.shared.pop_front();
        }
        self.taken += bytes;
    }

    /// Takes everything out, and keeps the memory of the copied bytes.
    #[inline]
    pub fn clear(&mut self) {
        self.copied.clear();
        self.taken = 0;
        self.shared_bytes = 0;
        if !self.shared.is_empty() {
            self.shared.clear();
        }
    }

    /// Frees the buffer of copied bytes beyond `bytes`, so that one large reply does not keep its memory.
    pub fn shrink_to(&mut self, bytes: usize) {
        self.copied.shrink_to(bytes);
    }

    /// The buffer of copied bytes, for appending only: earlier bytes may have been taken out, or have values
    /// between them.
    pub(crate) const fn copied(&mut self) -> &mut Vec<u8> {
        &mut self.copied
    }
}

impl Buf for Output {
    fn remaining(&self) -> usize {
        self.len()
    }

    fn chunk(&self) -> &[u8] {
        self.chunk()
    }

    fn advance(&mut self, bytes: usize) {
        self.advance(bytes);
    }
}

impl From<Vec<u8>> for Output {
    fn from(copied: Vec<u8>) -> Self {
        Self {
            copied,
            ..Self::new()
        }
    }
}

impl From<Output> for Vec<u8> {
    /// All bytes in one piece. Without shared values, and before any byte was taken out, this is the buffer
    /// itself.
    fn from(output: Output) -> Self {
        if output.shared.is_empty() && output.taken == 0 {
            return output.copied;
        }
        let mut bytes = Self::with_capacity(output.len());
        for chunk in output.chunks() {
            bytes.extend_from_slice(chunk);
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use quickcheck::{Arbitrary, Gen, quickcheck};

    use super::*;

    /// A change to an output.
    #[derive(Clone, Debug)]
    enum Change {
        Copy(Vec<u8>),
        Share(Vec<u8>),
        Append(Vec<Change>),
        Advance(u8),
    }

    impl Arbitrary for Change {
        fn arbitrary(g: &mut Gen) -> Self {
            match u8::arbitrary(g) % 8 {
                0..=2 => Self::Copy(Vec::arbitrary(g)),
                3..=4 => Self::Share(Vec::arbitrary(g)),
                5 => {
                    let mut fewer = Gen::new(g.size() / 4);
                    Self::Append(Vec::arbitrary(&mut fewer))
                }
                _ => Self::Advance(u8::arbitrary(g)),
            }
        }
    }

    /// Does the same to an output and to a plain buffer.
    fn play(changes: &[Change], out: &mut Output, plain: &mut Vec<u8>) {
        for change in changes {
            match change {
                Change::Copy(bytes) => {
                    out.extend_from_slice(bytes);
                    plain.extend_from_slice(bytes);
                }
                Change::Share(bytes) => {
                    out.push_shared(Bytes::copy_from_slice(bytes));
                    plain.extend_from_slice(bytes);
                }
                Change::Append(changes) => {
                    let (mut other, mut other_plain) = (Output::new(), Vec::new());
                    play(changes, &mut other, &mut other_plain);
                    out.append(&mut other);
                    assert!(other.is_empty());
                    plain.append(&mut other_plain);
                }
                Change::Advance(bytes) => {
                    out.advance(usize::from(*bytes));
                    plain.drain(..usize::from(*bytes).min(plain.len()));
                }
            }
        }
    }

    quickcheck! {
        /// P1 and P3.
        fn an_output_is_what_was_put_into_it(changes: Vec<Change>) -> bool {
            let (mut out, mut plain) = (Output::new(), Vec::new());
            play(&changes, &mut out, &mut plain);
            assert_eq!((out.len(), out.is_empty()), (plain.len(), plain.is_empty()));
            assert!(out.chunks().count() <= CHUNKS_MAX);
            assert!(out.chunks().all(|chunk| !chunk.is_empty()));
            if let Some(all) = out.as_one_chunk() {
                assert_eq!(all, plain);
            }
            Vec::from(out) == plain
        }
    }

    #[test]
    fn a_value_is_the_same_for_all_outputs_and_as_large_however_much_was_sent() {
        let value = Bytes::from(vec![b'v'; 10]);
        let (mut one, mut other) = (Output::new(), Output::new());
        one.extend_from_slice(b"ab");
        one.push_shared(value.clone());
        one.advance(7);
        other.append(&mut one);
        one.push_shared(value);
        one.push_shared(Bytes::from(vec![b'v'; 10]));
        let seen: Vec<_> = other.shared_values().chain(one.shared_values()).collect();
        assert_eq!(seen[0], seen[1]);
        assert_eq!(seen[0].bytes, 10);
        assert_ne!(seen[1], seen[2]);
    }

    #[test]
    fn a_value_is_let_go_of_with_its_last_byte() {
        let value = Bytes::from(vec![b'v'; 10]);
        let mut out = Output::new();
        out.extend_from_slice(b"ab");
        out.push_shared(value.clone());
        out.extend_from_slice(b"cd");
        out.advance(11);
        assert!(!value.is_unique(), "its last byte is still to be sent");
        out.advance(1);
        assert!(value.is_unique());
        assert_eq!(Vec::from(out), b"cd");
    }

    #[test]
    fn a_value_is_not_copied() {
        let value = Bytes::from(vec![b'v'; 10]);
        let mut out = Output::new();
        out.push_shared(value.clone());
        let shared = out.chunks().next().unwrap();
        assert_eq!(shared.as_ptr(), value.as_ptr());
    }

    #[test]
    fn too_many_values_are_copied() {
        let mut out = Output::new();
        for _ in 0..1000 {
            out.extend_from_slice(b"-");
            out.push_shared(Bytes::from_static(b"v"));
        }
        assert_eq!(out.chunks().count(), CHUNKS_MAX - 1);
        assert_eq!(Vec::from(out), b"-v".repeat(1000));
    }

    #[test]
    fn room_is_kept_and_given_back() {
        let mut out = Output::new();
        out.extend_from_slice(&[0; 1000]);
        out.advance(1000);
        assert!(out.copied.capacity() >= 1000);
        out.shrink_to(100);
        assert!(out.copied.capacity() < 1000);
    }

    #[test]
    fn output_in_one_piece_is_recognized() {
        let mut out = Output::from(b"abc".to_vec());
        assert_eq!(out.as_one_chunk(), Some(b"abc".as_slice()));
        out.advance(1);
        assert_eq!(out.as_one_chunk(), Some(b"bc".as_slice()));
        out.push_shared(Bytes::from_static(&[b'v'; SHARED_VALUE_BYTES_MIN]));
        assert_eq!(out.as_one_chunk(), None);
        out.clear();
        assert_eq!(out.as_one_chunk(), Some(b"".as_slice()));
    }

    /// The reserved memory is exactly the bytes around a value, plus the value if it is copied.
    #[test]
    fn memory_is_reserved_for_copied_bytes() {
        let (small, large) = (
            [b'v'; SHARED_VALUE_BYTES_MIN - 1],
            [b'v'; SHARED_VALUE_BYTES_MIN],
        );
        let (small, large) = (
            Bytes::copy_from_slice(&small),
            Bytes::copy_from_slice(&large),
        );
        let room_for = |value: Value<'_>| {
            let mut out = Output::new();
            out.reserve(100, value);
            out.copied.capacity()
        };
        let copied = 100 + small.len();
        assert_eq!(room_for(Value::Shared(&small)), copied);
        assert_eq!(room_for(Value::Borrowed(&small)), copied);
        assert_eq!(room_for(Value::Borrowed(&large)), copied + 1);
        assert_eq!(room_for(Value::Shared(&large)), 100);
    }

    #[test]
    fn refused_memory_changes_nothing() {
        let mut out = Output::from(b"ab".to_vec());
        assert!(out.try_reserve(usize::MAX).is_err());
        assert!(out.try_reserve(10).is_ok());
        assert!(out.copied.capacity() >= 12);
        let mut other = Output::from(b"12345".to_vec());
        other.advance(2);
        assert!(out.try_append(&mut other).is_ok());
        assert!(other.is_empty());
        assert_eq!(Vec::from(out), b"ab345");
        let (mut out, mut other) = (Output::new(), Output::from(vec![b'x'; 40]));
        other.advance(30);
        out.try_append(&mut other).unwrap();
        assert_eq!(out.copied.capacity(), 10, "sent bytes need no capacity");
    }
}
