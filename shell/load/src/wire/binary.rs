//! The binary protocol: a header of 24 bytes, extras, key, value.
//!
//! Source: memcached `doc/protocol-binary.txt`; Lock and Unlock: yrmcds `docs/locking.md`.

use anyhow::{Result, bail, ensure};

use super::{Reply, Template, shown};
use crate::wire::item::{KEY_BYTES, Values};

const REQUEST: u8 = 0x80;
const RESPONSE: u8 = 0x81;
const HEADER_BYTES: usize = 24;
/// The client flags before the value of a hit.
const HIT_EXTRAS_BYTES: u8 = 4;
/// Client flags and exptime before the key of a set.
const SET_EXTRAS_BYTES: u8 = 8;

const GET: u8 = 0x00;
const SET: u8 = 0x01;
const LOCK: u8 = 0x40;
const UNLOCK: u8 = 0x42;

const SUCCESS: u16 = 0x0000;
const KEY_NOT_FOUND: u16 = 0x0001;

/// Get, Set, Lock and Unlock.
pub(super) fn templates(values: &Values, exptime: u32) -> [Template; 4] {
    let of_key = |opcode| Template::default().then(&header(opcode, 0, 0)).then_key();
    [
        of_key(GET),
        Template::default()
            .then(&header(SET, SET_EXTRAS_BYTES, values.bytes()))
            .then(&0_u32.to_be_bytes())
            .then(&exptime.to_be_bytes())
            .then_key()
            .then_value(values),
        of_key(LOCK),
        of_key(UNLOCK),
    ]
}

fn header(opcode: u8, extras_bytes: u8, value_bytes: usize) -> [u8; HEADER_BYTES] {
    let key_bytes = u16::try_from(KEY_BYTES).expect("a key is short");
    let body_bytes = usize::from(extras_bytes) + KEY_BYTES + value_bytes;
    let body_bytes = u32::try_from(body_bytes).expect("a value is below 4 GiB");
    let mut header = [0; HEADER_BYTES];
    header[0] = REQUEST;
    header[1] = opcode;
    header[2..4].copy_from_slice(&key_bytes.to_be_bytes());
    header[4] = extras_bytes;
    header[8..12].copy_from_slice(&body_bytes.to_be_bytes());
    header
}

/// See [`Requests::decode`](super::Requests::decode).
pub(super) fn decode(input: &[u8]) -> Result<Option<(Reply<'_>, usize)>> {
    let Some((header, after)) = input.split_first_chunk::<HEADER_BYTES>() else {
        return Ok(None);
    };
    let &[
        magic,
        opcode,
        key_0,
        key_1,
        extras_bytes,
        _,
        status_0,
        status_1,
        ref rest @ ..,
    ] = header;
    ensure!(magic == RESPONSE, "not a reply: {}", shown(header));
    let [body_0, body_1, body_2, body_3, ..] = *rest;
    let body_bytes = u32::from_be_bytes([body_0, body_1, body_2, body_3]);
    let body_bytes = usize::try_from(body_bytes)?;
    let Some(body) = after.get(..body_bytes) else {
        return Ok(None);
    };
    let value_at = usize::from(extras_bytes) + usize::from(u16::from_be_bytes([key_0, key_1]));
    let Some(value) = body.get(value_at..) else {
        bail!("a body shorter than what is in it: {}", shown(header));
    };
    let reply = match (opcode, u16::from_be_bytes([status_0, status_1])) {
        (GET, SUCCESS) => {
            ensure!(
                extras_bytes == HIT_EXTRAS_BYTES,
                "a hit without flags: {}",
                shown(header)
            );
            Reply::Hit(value)
        }
        (GET, KEY_NOT_FOUND) => Reply::Miss,
        (SET, SUCCESS) => Reply::Stored,
        (LOCK | UNLOCK, SUCCESS) => Reply::Granted,
        // Statuses come with a text, which is better for a person.
        (_, _) => Reply::Other(value),
    };
    Ok(Some((reply, HEADER_BYTES + body_bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Ask, Dialect, Requests};

    fn reply(opcode: u8, status: u16, extras: &[u8], value: &[u8]) -> Vec<u8> {
        let mut bytes = vec![RESPONSE, opcode, 0, 0];
        bytes.extend([u8::try_from(extras.len()).expect("few"), 0]);
        bytes.extend(status.to_be_bytes());
        let body = u32::try_from(extras.len() + value.len()).expect("few");
        bytes.extend(body.to_be_bytes());
        bytes.extend([0; 12]);
        bytes.extend(extras);
        bytes.extend(value);
        bytes
    }

    #[test]
    fn a_set_carries_its_lengths() {
        let mut out = Vec::new();
        Requests::new(Dialect::Binary, 10, 5).encode(Ask::Set(0x1f), &mut out);
        assert_eq!(
            out[..12],
            [0x80, 0x01, 0, 32, 8, 0, 0, 0, 0, 0, 0, 8 + 32 + 10]
        );
        assert_eq!(out[24..32], [0, 0, 0, 0, 0, 0, 0, 5]);
        assert_eq!(&out[32..], b"latchd:bench:item:number0000001f0000001fab");
    }

    #[test]
    fn a_get_is_a_header_and_a_key() {
        let mut out = Vec::new();
        Requests::new(Dialect::Binary, 10, 0).encode(Ask::Get(2), &mut out);
        assert_eq!(out[..12], [0x80, 0x00, 0, 32, 0, 0, 0, 0, 0, 0, 0, 32]);
        assert_eq!(&out[24..], b"latchd:bench:item:number00000002");
    }

    #[test]
    fn replies_differ_by_opcode_and_status() {
        for (bytes, expected) in [
            (reply(GET, 0, &[0; 4], b"value"), Reply::Hit(b"value")),
            (reply(GET, 1, &[], b"Not found"), Reply::Miss),
            (reply(SET, 0, &[], b""), Reply::Stored),
            (reply(LOCK, 0, &[], b""), Reply::Granted),
            (reply(LOCK, 0x10, &[], b"Locked"), Reply::Other(b"Locked")),
        ] {
            let decoded = decode(&bytes).expect("a reply");
            assert_eq!(decoded, Some((expected, bytes.len())));
            for cut in 0..bytes.len() {
                assert_eq!(decode(&bytes[..cut]).expect("no error"), None, "cut {cut}");
            }
        }
    }

    #[test]
    fn an_invalid_reply_is_an_error() {
        let mut not_a_reply = reply(GET, 0, &[0; 4], b"v");
        not_a_reply[0] = 0x80;
        assert!(decode(&not_a_reply).is_err(), "a request");
        assert!(decode(&reply(GET, 0, &[], b"v")).is_err(), "no flags");
        let mut too_short = reply(SET, 0, &[], b"");
        too_short[4] = 1;
        assert!(decode(&too_short).is_err(), "extras beyond the body");
    }
}
