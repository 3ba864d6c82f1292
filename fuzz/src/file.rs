//! The rules for any bytes that are taken for a file of items (`-e`).

use std::io::Read;

use arbitrary::{Arbitrary, Result, Unstructured};
use latchd_core::engine::{Numbers, SavedItem};
use latchd_protocol::fence::Fence;
use latchd_protocol::item::Cas;
use latchd_protocol::key::{Key, KeyForm};

// The format knows nothing of the server that is around it.
#[path = "../../shell/server/src/saved.rs"]
mod format;

use format::{Damage, Head, Writer, read, verify};

/// The largest value that the reader allows.
const VALUE_BYTES_MAX: usize = 1 << 10;

/// The bytes of one frame for items that are larger than a frame, and the bytes of an item besides
/// its value: no shown value is longer than these and the largest together.
const FRAME_BYTES_MAX: usize = VALUE_BYTES_MAX + (64 << 10) + 26 + 250;

/// The length of a head.
const HEAD_BYTES: usize = 32;

/// The length of the id and the term in a head that has them.
const WRITER_BYTES: usize = 24;

/// The length of the head of a frame.
const FRAME_HEAD_BYTES: usize = 9;

/// The first byte chooses the meaning of the others: a file, the bodies of frames with correct
/// checksums, or data to draw items from.
pub(crate) fn any(input: &[u8]) {
    let Some((&first, rest)) = input.split_first() else {
        return;
    };
    match first % 3 {
        0 => drop(refuse_or_read(rest)),
        1 => {
            let sealed = sealed(&mut Unstructured::new(rest)).unwrap_or_default();
            drop(refuse_or_read(&sealed));
        }
        _ => written(&mut Unstructured::new(rest)).unwrap_or_default(),
    }
}

/// An item that was shown.
#[derive(Debug, Eq, PartialEq)]
struct Shown {
    key: Vec<u8>,
    value: Vec<u8>,
    rest: (KeyForm, u32, Cas, Option<u64>, bool, bool),
}

impl Shown {
    fn of(item: &SavedItem<'_>) -> Self {
        let rest = (
            item.key_form,
            item.client_flags,
            item.cas,
            item.expires_unix_ms,
            item.fetched,
            item.stale,
        );
        Self {
            key: item.key.as_bytes().to_vec(),
            value: item.value.to_vec(),
            rest,
        }
    }

    fn item(&self) -> SavedItem<'_> {
        let (key_form, client_flags, cas, expires_unix_ms, fetched, stale) = self.rest;
        SavedItem {
            key: Key::new(&self.key).expect("it was the key of an item"),
            key_form,
            value: &self.value,
            client_flags,
            cas,
            expires_unix_ms,
            fetched,
            stale,
        }
    }
}

/// The content of a file, if it is whole. Otherwise it is refused, also by `verify`, which runs
/// before the reader that hands items on.
fn refuse_or_read(file: &[u8]) -> Option<(Head, Vec<Shown>, u64)> {
    let mut items = Vec::new();
    let read = read(file, VALUE_BYTES_MAX, &mut |item| {
        assert!(item.value.len() <= FRAME_BYTES_MAX, "more than a frame");
        items.push(Shown::of(item));
    });
    match (verify(file, VALUE_BYTES_MAX), read) {
        (Ok(about), Ok((head, passed_over))) => {
            assert_eq!(about, head);
            Some((head, items, passed_over))
        }
        (Err(damage), Err(again)) => {
            assert_eq!(damage.to_string(), again.to_string());
            assert!(!matches!(damage, Damage::Unreadable(_)), "{damage}");
            None
        }
        (verified, read) => panic!("{verified:?} and then {read:?}"),
    }
}

/// A file with correct checksums and any content: the kinds and bodies of its frames are drawn, and
/// so is its end. Source: the table in `shell/server/src/saved.rs`.
fn sealed(source: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let mut file = b"latchd\r\n\x01\0\0\0".to_vec();
    for _ in 0..2 {
        file.extend_from_slice(&source.arbitrary::<u64>()?.to_le_bytes());
    }
    file.extend_from_slice(&crc32fast::hash(&file).to_le_bytes());
    let mut frames = 0_u64;
    while !source.is_empty() {
        let kind: u8 = source.int_in_range(0..=3)?;
        let times = 1 << source.int_in_range(0..=9)?;
        let body = some(source)?.repeat(times);
        seal(&mut file, &mut frames, kind, &body);
    }
    Ok(file)
}

/// Some of the bytes that are left.
fn some<'a>(source: &mut Unstructured<'a>) -> Result<&'a [u8]> {
    let bytes = source.int_in_range(0..=300)?;
    source.bytes(bytes.min(source.len()))
}

fn seal(file: &mut Vec<u8>, frames: &mut u64, kind: u8, body: &[u8]) {
    let bytes = u32::try_from(body.len())
        .expect("it is short")
        .to_le_bytes();
    let mut check = crc32fast::Hasher::new();
    check.update(&frames.to_le_bytes());
    check.update(&[kind]);
    check.update(&bytes);
    check.update(body);
    file.push(kind);
    file.extend_from_slice(&bytes);
    file.extend_from_slice(&check.finalize().to_le_bytes());
    file.extend_from_slice(body);
    *frames += 1;
}

/// A written file is read as it was. With its end cut off, it is refused, and also with one bit
/// changed.
fn written(source: &mut Unstructured<'_>) -> Result<()> {
    let numbers = Numbers {
        cas: Cas::new(source.arbitrary::<u64>()? | 1).expect("it is not 0"),
        fence: Fence::new(source.arbitrary::<u64>()? | 1).expect("it is not 0"),
    };
    let member = Option::<(u128, u64)>::arbitrary(source)?;
    let head = Head {
        numbers,
        writer: member,
    };
    let (cut, bit) = (
        source.arbitrary::<u32>()? as usize,
        source.arbitrary::<u32>()? as usize,
    );
    let mut items = Vec::new();
    while !source.is_empty() {
        items.push(drawn(source)?);
    }
    let mut writer = Writer::new(Vec::new(), head).expect("memory takes it");
    for item in &items {
        writer.push(&item.item()).expect("memory takes it");
    }
    let (file, count) = writer.finish().expect("memory takes it");
    assert_eq!(count, items.len() as u64);

    let whole = refuse_or_read(&file);
    let (head_read, shown, passed_over) = whole.expect("it is as it was written");
    assert_eq!(head_read, head);
    assert_eq!(shown.len() as u64 + passed_over, count);
    if passed_over == 0 {
        assert_eq!(shown, items);
    }
    let cut = &file[..cut % file.len()];
    assert!(
        refuse_or_read(cut).is_none(),
        "{} bytes of {}",
        cut.len(),
        file.len()
    );

    // Within the body of the first frame: there a CRC finds every bit.
    let head_bytes = HEAD_BYTES + member.map_or(0, |_| WRITER_BYTES);
    let first = head_bytes + FRAME_HEAD_BYTES;
    let mut head = [0; FRAME_HEAD_BYTES];
    (&file[head_bytes..])
        .read_exact(&mut head)
        .expect("there is a frame");
    let [_, b0, b1, b2, b3, ..] = head;
    let body_bits = 8 * u32::from_le_bytes([b0, b1, b2, b3]) as usize;
    let mut flipped = file.clone();
    flipped[first + bit % body_bits / 8] ^= 1 << (bit % 8);
    assert!(
        refuse_or_read(&flipped).is_none(),
        "bit {}",
        bit % body_bits
    );
    Ok(())
}

fn drawn(source: &mut Unstructured<'_>) -> Result<Shown> {
    let mut key = some(source)?.to_vec();
    key.truncate(250);
    if key.is_empty() {
        key.push(b'k');
    }
    let times = 1 << source.int_in_range(0..=9)?;
    let value = some(source)?.repeat(times);
    let key_form = if source.arbitrary()? {
        KeyForm::Binary
    } else {
        KeyForm::Plain
    };
    let cas = Cas::new(source.arbitrary::<u64>()? | 1).expect("it is not 0");
    let rest = (
        key_form,
        source.arbitrary()?,
        cas,
        source.arbitrary()?,
        source.arbitrary()?,
        source.arbitrary()?,
    );
    Ok(Shown { key, value, rest })
}
