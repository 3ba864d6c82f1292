//! The format of a file of items, which a server writes when it ends and the next one reads.
//!
//! A file is a head, frames, and an end. All numbers are little endian.
//!
//! | part | bytes |
//! | --- | --- |
//! | head | `latchd\r\n`, the version of the format (4), the next CAS (8), the next fence (8), their checksum |
//! | head of version 2 | the same, with the id (16) and the term (8) of a member of a cluster before the checksum |
//! | frame | its kind (1; 1 is items), the length of its body (4), its checksum, its body |
//! | item | bits (1), length of the key (1), of the value (4), client flags (4), CAS (8), Unix time of expiry in milliseconds if it expires (8), key, value |
//! | end | a frame of kind 2, with the number of items as its body (8). No bytes follow it |
//!
//! A checksum is the CRC-32 of the part's bytes; for a frame it also covers its kind, its length and its
//! index. So a reader detects a frame that was damaged, moved, duplicated or left out.
//!
//! - P1: A reader detects an incomplete file before it uses any item: [`verify`] runs first.
//! - P2: A reader or writer holds one frame at a time: [`FRAME_BYTES`], or one item if that is larger.
//! - P3: No input makes a reader panic, or allocate more than the input's length and its own limit.

use std::fmt;
use std::io::{self, Read, Write};

use latchd_core::engine::{Numbers, SavedItem};
use latchd_protocol::fence::Fence;
use latchd_protocol::item::Cas;
use latchd_protocol::key::{Key, KeyForm};

const MAGIC: &[u8; 8] = b"latchd\r\n";

/// The format version of a server by itself.
const VERSION: u32 = 1;

/// The format version of a member of a cluster. It has the writer's id and term, so that no later term reads it.
const VERSION_OF_TERM: u32 = 2;

/// The size at which a frame is written, in bytes.
const FRAME_BYTES: usize = 64 << 10;

/// The most bytes of an item besides its value.
const ITEM_BYTES: usize = 26 + 250;

const ITEMS: u8 = 1;
const END: u8 = 2;

const HAS_DEADLINE: u8 = 1;
const BINARY_KEY: u8 = 2;
const FETCHED: u8 = 4;
const STALE: u8 = 8;
const KNOWN_BITS: u8 = HAS_DEADLINE | BINARY_KEY | FETCHED | STALE;

/// The head of a file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Head {
    /// The numbers that its server had assigned.
    pub(crate) numbers: Numbers,
    /// The member of a cluster that wrote it, and its term.
    pub(crate) writer: Option<(u128, u64)>,
}

/// Writes items one after the other.
#[derive(Debug)]
pub(crate) struct Writer<W> {
    out: W,
    frame: Vec<u8>,
    frames: u64,
    items: u64,
}

impl<W: Write> Writer<W> {
    /// # Errors
    /// The system's, also in the methods below.
    pub(crate) fn new(mut out: W, written: Head) -> io::Result<Self> {
        let Head { numbers, writer } = written;
        let version = writer.map_or(VERSION, |_| VERSION_OF_TERM);
        let mut head = Vec::with_capacity(56);
        head.extend_from_slice(MAGIC);
        head.extend_from_slice(&version.to_le_bytes());
        head.extend_from_slice(&numbers.cas.number().to_le_bytes());
        head.extend_from_slice(&numbers.fence.number().to_le_bytes());
        if let Some((id, term)) = writer {
            head.extend_from_slice(&id.to_le_bytes());
            head.extend_from_slice(&term.to_le_bytes());
        }
        let check = crc32fast::hash(&head);
        head.extend_from_slice(&check.to_le_bytes());
        out.write_all(&head)?;
        Ok(Self {
            out,
            frame: Vec::with_capacity(FRAME_BYTES + ITEM_BYTES),
            frames: 0,
            items: 0,
        })
    }

    pub(crate) fn push(&mut self, item: &SavedItem<'_>) -> io::Result<()> {
        let too_long = |_| io::Error::from(io::ErrorKind::InvalidInput);
        let key = item.key.as_bytes();
        let bit = |is_set, bit| if is_set { bit } else { 0 };
        let bits = bit(item.expires_unix_ms.is_some(), HAS_DEADLINE)
            | bit(item.key_form == KeyForm::Binary, BINARY_KEY)
            | bit(item.fetched, FETCHED)
            | bit(item.stale, STALE);
        let key_bytes = u8::try_from(key.len()).map_err(too_long)?;
        let value_bytes = u32::try_from(item.value.len()).map_err(too_long)?;
        // An item that does not fit gets a frame of its own. A reader that finds it too large then skips no
        // other item.
        if self.frame.len() + item.value.len() > FRAME_BYTES {
            self.flush()?;
        }
        let frame = &mut self.frame;
        frame.extend_from_slice(&[bits, key_bytes]);
        frame.extend_from_slice(&value_bytes.to_le_bytes());
        frame.extend_from_slice(&item.client_flags.to_le_bytes());
        frame.extend_from_slice(&item.cas.number().to_le_bytes());
        if let Some(unix_ms) = item.expires_unix_ms {
            frame.extend_from_slice(&unix_ms.to_le_bytes());
        }
        frame.extend_from_slice(key);
        frame.extend_from_slice(item.value);
        self.items += 1;
        if self.frame.len() > FRAME_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    /// Writes the end. Returns the output, and the number of items.
    pub(crate) fn finish(mut self) -> io::Result<(W, u64)> {
        self.flush()?;
        self.frame.extend_from_slice(&self.items.to_le_bytes());
        self.write_frame(END)?;
        Ok((self.out, self.items))
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.frame.is_empty() {
            Ok(())
        } else {
            self.write_frame(ITEMS)
        }
    }

    fn write_frame(&mut self, kind: u8) -> io::Result<()> {
        let bytes = u32::try_from(self.frame.len())
            .map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        let mut check = begin_check(self.frames, kind, bytes);
        check.update(&self.frame);
        self.out.write_all(&[kind])?;
        self.out.write_all(&bytes.to_le_bytes())?;
        self.out.write_all(&check.finalize().to_le_bytes())?;
        self.out.write_all(&self.frame)?;
        self.frame.clear();
        // The memory of one large item is not kept for small ones.
        self.frame.shrink_to(FRAME_BYTES + ITEM_BYTES);
        self.frames += 1;
        Ok(())
    }
}

fn begin_check(number: u64, kind: u8, bytes: u32) -> crc32fast::Hasher {
    let mut check = crc32fast::Hasher::new();
    check.update(&number.to_le_bytes());
    check.update(&[kind]);
    check.update(&bytes.to_le_bytes());
    check
}

/// The reason why a file is not read.
#[derive(Debug)]
pub(crate) enum Damage {
    /// A read failed.
    Unreadable(io::Error),
    /// Its head is not latchd's.
    Foreign,
    /// Another version of latchd wrote it.
    Version(u32),
    /// It is too short.
    Cut,
    /// Bytes have changed or were added.
    Changed,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(error) => write!(f, "cannot read the file: {error}"),
            Self::Foreign => f.write_str("not a memory file of latchd"),
            Self::Version(version) => {
                write!(
                    f,
                    "the file has format {version}, but this version reads {VERSION} and {VERSION_OF_TERM}"
                )
            }
            Self::Cut => f.write_str("the file is truncated"),
            Self::Changed => f.write_str("the file is damaged"),
        }
    }
}

impl From<io::Error> for Damage {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::UnexpectedEof {
            Self::Cut
        } else {
            Self::Unreadable(error)
        }
    }
}

/// Reads a complete file to its end, and returns its head (P1).
///
/// # Errors
/// The defect of the file.
pub(crate) fn verify(input: impl Read, value_bytes_max: usize) -> Result<Head, Damage> {
    let (head, _) = read(input, value_bytes_max, &mut |_| ())?;
    Ok(head)
}

/// Calls the visitor with each item of a file. It skips an item in a frame of its own if the value exceeds
/// `value_bytes_max`. Returns the head, and an upper bound of the skipped items.
///
/// # Errors
/// The defect of the file. The visitor has seen the items before it.
pub(crate) fn read(
    mut input: impl Read,
    value_bytes_max: usize,
    visit: &mut dyn FnMut(&SavedItem<'_>),
) -> Result<(Head, u64), Damage> {
    let written = read_head(&mut input)?;
    let frame_bytes_max = value_bytes_max.saturating_add(FRAME_BYTES + ITEM_BYTES);
    let (mut shown, mut passed_over) = (0, 0);
    let mut body = Vec::new();
    for number in 0.. {
        let mut head = [0; 9];
        input.read_exact(&mut head)?;
        let [kind, b0, b1, b2, b3, c0, c1, c2, c3] = head;
        let bytes = u32::from_le_bytes([b0, b1, b2, b3]);
        let wanted = u32::from_le_bytes([c0, c1, c2, c3]);
        let mut check = begin_check(number, kind, bytes);
        body.clear();
        let is_held = bytes as usize <= frame_bytes_max;
        if is_held {
            // Memory grows with the bytes read (P3).
            let read = (&mut input).take(u64::from(bytes)).read_to_end(&mut body)?;
            if read < bytes as usize {
                return Err(Damage::Cut);
            }
            check.update(&body);
        } else {
            pass_over(&mut input, bytes, &mut check)?;
        }
        if check.finalize() != wanted {
            return Err(Damage::Changed);
        }
        match kind {
            ITEMS if !is_held => passed_over += 1,
            ITEMS => shown += each_item(&body, visit).ok_or(Damage::Changed)?,
            END => {
                let items = body.as_slice().try_into().map(u64::from_le_bytes);
                // A skipped frame held one item.
                if items.ok() != Some(shown + passed_over) || input.read(&mut [0])? != 0 {
                    return Err(Damage::Changed);
                }
                return Ok((written, passed_over));
            }
            _ => return Err(Damage::Changed),
        }
        body.shrink_to(FRAME_BYTES + ITEM_BYTES);
    }
    Err(Damage::Changed)
}

fn read_head(input: &mut impl Read) -> Result<Head, Damage> {
    let mut magic = [0; 8];
    input.read_exact(&mut magic)?;
    if magic != *MAGIC {
        return Err(Damage::Foreign);
    }
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&magic);
    let version = u32::from_le_bytes(next(input, &mut hasher)?);
    if version != VERSION && version != VERSION_OF_TERM {
        return Err(Damage::Version(version));
    }
    let cas = u64::from_le_bytes(next(input, &mut hasher)?);
    let fence = u64::from_le_bytes(next(input, &mut hasher)?);
    let mut writer = None;
    if version == VERSION_OF_TERM {
        let id = u128::from_le_bytes(next(input, &mut hasher)?);
        writer = Some((id, u64::from_le_bytes(next(input, &mut hasher)?)));
    }
    let mut check = [0; 4];
    input.read_exact(&mut check)?;
    if hasher.finalize() != u32::from_le_bytes(check) {
        return Err(Damage::Changed);
    }
    let numbers = Numbers {
        cas: Cas::new(cas).ok_or(Damage::Changed)?,
        fence: Fence::new(fence).ok_or(Damage::Changed)?,
    };
    Ok(Head { numbers, writer })
}

/// Reads the next bytes of a head, and adds them to its checksum.
fn next<const N: usize>(
    input: &mut impl Read,
    hasher: &mut crc32fast::Hasher,
) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    input.read_exact(&mut bytes)?;
    hasher.update(&bytes);
    Ok(bytes)
}

/// Reads this many bytes without keeping them.
fn pass_over(
    input: &mut impl Read,
    bytes: u32,
    check: &mut crc32fast::Hasher,
) -> Result<(), Damage> {
    let mut left = bytes as usize;
    let mut buffer = [0; 4096];
    while left > 0 {
        let part = buffer.len().min(left);
        let part = &mut buffer[..part];
        input.read_exact(part)?;
        check.update(part);
        left -= part.len();
    }
    Ok(())
}

/// Calls the visitor with each item of a frame, and returns the number of items; `None` if they are
/// malformed.
fn each_item(mut body: &[u8], visit: &mut dyn FnMut(&SavedItem<'_>)) -> Option<u64> {
    let mut items = 0;
    while !body.is_empty() {
        let [bits, key_bytes] = take(&mut body)?;
        if bits & !KNOWN_BITS != 0 {
            return None;
        }
        let value_bytes = u32::from_le_bytes(take(&mut body)?);
        let client_flags = u32::from_le_bytes(take(&mut body)?);
        let cas = Cas::new(u64::from_le_bytes(take(&mut body)?))?;
        let expires_unix_ms = if bits & HAS_DEADLINE == 0 {
            None
        } else {
            Some(u64::from_le_bytes(take(&mut body)?))
        };
        let (key, rest) = body.split_at_checked(usize::from(key_bytes))?;
        let (value, rest) = rest.split_at_checked(value_bytes as usize)?;
        body = rest;
        visit(&SavedItem {
            key: Key::new(key)?,
            key_form: if bits & BINARY_KEY == 0 {
                KeyForm::Plain
            } else {
                KeyForm::Binary
            },
            value,
            client_flags,
            cas,
            expires_unix_ms,
            fetched: bits & FETCHED != 0,
            stale: bits & STALE != 0,
        });
        items += 1;
    }
    Some(items)
}

fn take<const N: usize>(body: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, rest) = body.split_first_chunk()?;
    *body = rest;
    Some(*taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUE_BYTES_MAX: usize = 1 << 20;

    fn head() -> Head {
        Head {
            numbers: Numbers {
                cas: Cas::new(77).unwrap(),
                fence: Fence::new(1 << 40).unwrap(),
            },
            writer: None,
        }
    }

    fn item<'a>(key: &'a [u8], value: &'a [u8]) -> SavedItem<'a> {
        SavedItem {
            key: Key::new(key).unwrap(),
            key_form: KeyForm::Plain,
            value,
            client_flags: 0xdead_beef,
            cas: Cas::new(76).unwrap(),
            expires_unix_ms: None,
            fetched: true,
            stale: false,
        }
    }

    fn written(items: &[SavedItem<'_>]) -> Vec<u8> {
        let mut writer = Writer::new(Vec::new(), head()).unwrap();
        for item in items {
            writer.push(item).unwrap();
        }
        let (bytes, count) = writer.finish().unwrap();
        assert_eq!(count, items.len() as u64);
        bytes
    }

    /// The printed items of a file.
    fn shown(bytes: &[u8], value_bytes_max: usize) -> Result<(Vec<String>, u64), Damage> {
        let mut items = Vec::new();
        let (head_read, passed_over) = read(bytes, value_bytes_max, &mut |item| {
            items.push(format!("{item:?}"));
        })?;
        assert_eq!(head_read, head());
        Ok((items, passed_over))
    }

    #[test]
    fn written_items_are_read() {
        let (long_key, large) = ([b'k'; 250], vec![7; 3 * FRAME_BYTES]);
        let items = [
            item(b"a", b""),
            SavedItem {
                expires_unix_ms: Some(1_700_000_000_123),
                stale: true,
                ..item(&long_key, b"value")
            },
            item(b"large", &large),
            SavedItem {
                key_form: KeyForm::Binary,
                fetched: false,
                ..item(b"\0 \r\n", b"x")
            },
        ];
        let bytes = written(&items);
        let all: Vec<_> = items.iter().map(|item| format!("{item:?}")).collect();
        assert_eq!(shown(&bytes, VALUE_BYTES_MAX).unwrap(), (all.clone(), 0));
        assert_eq!(verify(&*bytes, VALUE_BYTES_MAX).unwrap(), head());
        let (small, passed_over) = shown(&bytes, 1 << 10).unwrap();
        assert_eq!(
            (small.len(), passed_over),
            (3, 1),
            "who holds less passes over what is larger"
        );
        assert!(shown(&written(&[]), VALUE_BYTES_MAX).unwrap().0.is_empty());
    }

    #[test]
    fn file_of_a_member_names_its_term() {
        let of_term = Head {
            writer: Some((u128::MAX - 7, 9)),
            ..head()
        };
        let mut writer = Writer::new(Vec::new(), of_term).unwrap();
        writer.push(&item(b"a", b"value")).unwrap();
        let (mut bytes, _) = writer.finish().unwrap();
        assert_eq!(verify(&*bytes, VALUE_BYTES_MAX).unwrap(), of_term);
        for at in 28..52 {
            bytes[at] ^= 1;
            let damage = verify(&*bytes, VALUE_BYTES_MAX).unwrap_err();
            assert!(matches!(damage, Damage::Changed), "byte {at}");
            bytes[at] ^= 1;
        }
    }

    #[test]
    fn small_items_fill_bounded_frames() {
        let value = [1; 1000];
        let items: Vec<_> = (0..1000).map(|_| item(b"key", &value)).collect();
        let bytes = written(&items);
        assert!(bytes.len() > 10 * FRAME_BYTES);
        let mut largest = 0;
        let mut at = 32;
        while let Some(head) = bytes.get(at + 1..at + 5) {
            let body = u32::from_le_bytes(head.try_into().unwrap()) as usize;
            largest = largest.max(body);
            at += 9 + body;
        }
        assert!(largest <= FRAME_BYTES + ITEM_BYTES + 1000, "{largest}");
        assert_eq!(shown(&bytes, VALUE_BYTES_MAX).unwrap().0.len(), 1000);
    }

    #[test]
    fn cut_or_extended_file_is_refused() {
        let bytes = written(&[item(b"a", b"one"), item(b"b", &[9; 200])]);
        for end in 0..bytes.len() {
            let damage = verify(&bytes[..end], VALUE_BYTES_MAX).unwrap_err();
            assert!(matches!(damage, Damage::Cut), "{end}: {damage}");
            // Also if the limit skips every item.
            assert!(verify(&bytes[..end], 0).is_err(), "{end}");
        }
        let longer = [&bytes[..], b"x"].concat();
        assert!(matches!(
            verify(&*longer, VALUE_BYTES_MAX),
            Err(Damage::Changed)
        ));
    }

    #[test]
    fn a_file_with_any_bit_flipped_is_refused() {
        let bytes = written(&[item(b"a", b"one"), item(b"b", &[9; 200])]);
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut flipped = bytes.clone();
                flipped[at] ^= 1 << bit;
                assert!(
                    verify(&*flipped, VALUE_BYTES_MAX).is_err(),
                    "byte {at}, bit {bit}"
                );
            }
        }
    }

    #[test]
    fn frames_cannot_change_places_or_be_left_out() {
        let large = vec![7; 2 * FRAME_BYTES];
        let bytes = written(&[item(b"a", &large), item(b"b", &large)]);
        let frame = 9 + 18 + 1 + large.len();
        let (head, rest) = bytes.split_at(32);
        let (first, rest) = rest.split_at(frame);
        let (second, end) = rest.split_at(frame);
        assert!(verify(&*[head, first, second, end].concat(), VALUE_BYTES_MAX).is_ok());
        for parts in [
            [head, second, first, end].concat(),
            [head, first, end].concat(),
            [head, first, first, end].concat(),
        ] {
            assert!(verify(&*parts, VALUE_BYTES_MAX).is_err());
        }
    }

    #[test]
    fn foreign_file_is_named_as_such() {
        let bytes = written(&[]);
        let mut later = bytes.clone();
        later[8] = 3;
        let said = |bytes: &[u8]| verify(bytes, 0).unwrap_err().to_string();
        assert_eq!(
            said(&later),
            "the file has format 3, but this version reads 1 and 2"
        );
        assert_eq!(said(b"#!/bin/sh\n"), "not a memory file of latchd");
        assert_eq!(said(b""), "the file is truncated");
    }
}
