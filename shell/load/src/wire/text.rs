//! Classic and meta text: one way to read both, since no reply of one is a reply of the other.

use anyhow::{Result, bail, ensure};

use super::{Reply, Template, shown};
use crate::wire::item::{STEM, Values, digits};

/// The longest first line of a reply that is waited for.
const LINE_BYTES_MAX: usize = 2048;

/// The reply of a TLS server to a request without TLS: a record of type alert. Source: RFC 8446, section 5.1.
const TLS_ALERT: &[u8] = &[0x15, 3];

/// `get`, `set`, `lock` and `unlock` in classic text.
pub(super) fn classic(values: &Values, exptime: u32) -> [Template; 4] {
    let of_key = |verb: &[u8]| Template::default().then(verb).then_key();
    let header = format!(" 0 {exptime} {}\r\n", values.bytes());
    [
        of_key(b"get ").then(b"\r\n"),
        of_key(b"set ")
            .then(header.as_bytes())
            .then_value(values)
            .then(b"\r\n"),
        of_key(b"lock ").then(b"\r\n"),
        of_key(b"unlock ").then(b"\r\n"),
    ]
}

/// Writes a `set` of the value of this key behind `out`.
pub(super) fn classic_set(values: &Values, key: u32, out: &mut Vec<u8>) {
    let (digits, rest) = (digits(key), values.rest_of(key));
    let header = format!(" 0 0 {}\r\n", digits.len() + rest.len());
    let parts: [&[u8]; 7] = [
        b"set ",
        STEM,
        &digits,
        header.as_bytes(),
        &digits,
        rest,
        b"\r\n",
    ];
    for part in parts {
        out.extend_from_slice(part);
    }
}

/// The wait of a lock, in milliseconds: the longest that latchd permits.
const WAIT_MS: u32 = 3_600_000;

/// `mg`, `ms`, `ml` and `mu`.
pub(super) fn meta(values: &Values, exptime: u32) -> [Template; 4] {
    let of_key = |verb: &[u8]| Template::default().then(verb).then_key();
    let header = match exptime {
        0 => format!(" {}\r\n", values.bytes()),
        _ => format!(" {} T{exptime}\r\n", values.bytes()),
    };
    [
        of_key(b"mg ").then(b" v\r\n"),
        of_key(b"ms ")
            .then(header.as_bytes())
            .then_value(values)
            .then(b"\r\n"),
        of_key(b"ml ").then(b"\r\n"),
        of_key(b"mu ").then(b"\r\n"),
    ]
}

/// `ml` that waits.
pub(super) fn waiting_lock() -> Template {
    let flag = format!(" w{WAIT_MS}\r\n");
    Template::default()
        .then(b"ml ")
        .then_key()
        .then(flag.as_bytes())
}

/// See [`Requests::decode`](super::Requests::decode).
pub(super) fn decode(input: &[u8]) -> Result<Option<(Reply<'_>, usize)>> {
    ensure!(
        !input.starts_with(TLS_ALERT),
        "the server requires TLS: {}",
        shown(input)
    );
    let Some(end) = memchr::memchr(b'\n', input) else {
        ensure!(
            input.len() <= LINE_BYTES_MAX,
            "a line without an end: {}",
            shown(input)
        );
        return Ok(None);
    };
    let (line, after) = input.split_at(end + 1);
    let Some(line) = line.strip_suffix(b"\r\n") else {
        bail!("a line that does not end in CR LF: {}", shown(line));
    };
    let (value_bytes, tail): (_, &[u8]) = if let Some(rest) = line.strip_prefix(b"VA ") {
        (rest.split(|byte| *byte == b' ').next(), b"\r\n")
    } else if let Some(rest) = line.strip_prefix(b"VALUE ") {
        // VALUE <key> <flags> <bytes>; the last word, since no `gets` is sent.
        (rest.split(|byte| *byte == b' ').nth(2), b"\r\nEND\r\n")
    } else {
        let reply = match line {
            b"STORED" | b"HD" => Reply::Stored,
            b"END" | b"EN" => Reply::Miss,
            b"OK" => Reply::Granted,
            _ => Reply::Other(line),
        };
        return Ok(Some((reply, end + 1)));
    };
    let Some(value_bytes) = value_bytes.and_then(number) else {
        bail!("no length in {}", shown(line));
    };
    let Some((value, end_of_value)) = after.split_at_checked(value_bytes) else {
        return Ok(None);
    };
    let Some(end_of_value) = end_of_value.get(..tail.len()) else {
        return Ok(None);
    };
    ensure!(
        end_of_value == tail,
        "a value that does not end where it should: {} behind {}",
        shown(end_of_value),
        shown(line)
    );
    let bytes = end + 1 + value.len() + tail.len();
    Ok(Some((Reply::Hit(value), bytes)))
}

fn number(digits: &[u8]) -> Option<usize> {
    if digits.is_empty() || digits.len() > 10 {
        return None;
    }
    digits.iter().try_fold(0, |number, digit| {
        let digit = digit.is_ascii_digit().then(|| usize::from(digit - b'0'))?;
        Some(number * 10 + digit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::item::Mixture;
    use crate::wire::{Ask, Dialect, Requests};

    fn sent(requests: &Requests, ask: Ask) -> String {
        let mut out = Vec::new();
        requests.encode(ask, &mut out);
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn classic_requests_are_as_a_person_would_type_them() {
        let requests = Requests::new(Dialect::Classic, 10, 60);
        let key = "latchd:bench:item:number000000ff";
        assert_eq!(sent(&requests, Ask::Get(255)), format!("get {key}\r\n"));
        assert_eq!(
            sent(&requests, Ask::Set(255)),
            format!("set {key} 0 60 10\r\n000000ffab\r\n")
        );
        assert_eq!(sent(&requests, Ask::Lock(255)), format!("lock {key}\r\n"));
        assert_eq!(
            sent(&requests, Ask::Unlock(255)),
            format!("unlock {key}\r\n")
        );
    }

    #[test]
    fn a_mixed_set_has_the_size_of_its_key() {
        let mixture = Mixture { large_of_10000: 0 };
        let sent = sent(&Requests::mixed(mixture), Ask::Set(255));
        let bytes = mixture.bytes(255);
        let header = format!("set latchd:bench:item:number000000ff 0 0 {bytes}\r\n");
        assert!(sent.starts_with(&header), "{sent}");
        assert!(sent[header.len()..].starts_with("000000ffab"), "{sent}");
        assert_eq!(sent.len(), header.len() + bytes + 2);
    }

    #[test]
    fn meta_requests_have_a_ttl_only_when_asked() {
        let key = "latchd:bench:item:number00000001";
        let plain = Requests::new(Dialect::Meta, 10, 0);
        assert_eq!(sent(&plain, Ask::Get(1)), format!("mg {key} v\r\n"));
        assert_eq!(
            sent(&plain, Ask::Set(1)),
            format!("ms {key} 10\r\n00000001ab\r\n")
        );
        assert_eq!(sent(&plain, Ask::Lock(1)), format!("ml {key}\r\n"));
        assert_eq!(sent(&plain, Ask::Unlock(1)), format!("mu {key}\r\n"));
        let waits = plain.waiting();
        assert_eq!(sent(&waits, Ask::Lock(1)), format!("ml {key} w3600000\r\n"));
        let dated = Requests::new(Dialect::Meta, 10, 9);
        assert_eq!(
            sent(&dated, Ask::Set(1)),
            format!("ms {key} 10 T9\r\n00000001ab\r\n")
        );
    }

    #[test]
    fn replies_of_both_kinds_are_distinct() {
        for (bytes, reply) in [
            (&b"STORED\r\n"[..], Reply::Stored),
            (b"HD\r\n", Reply::Stored),
            (b"END\r\n", Reply::Miss),
            (b"EN\r\n", Reply::Miss),
            (b"OK\r\n", Reply::Granted),
            (b"LOCKED\r\n", Reply::Other(b"LOCKED")),
            (b"VA 4\r\nabcd\r\n", Reply::Hit(b"abcd")),
            (b"VA 0 s0\r\n\r\n", Reply::Hit(b"")),
            (b"VALUE k 0 4\r\nabcd\r\nEND\r\n", Reply::Hit(b"abcd")),
            (b"VALUE k 7 2\r\n\r\n\r\nEND\r\n", Reply::Hit(b"\r\n")),
        ] {
            let decoded = decode(bytes).expect("a reply");
            assert_eq!(decoded, Some((reply, bytes.len())));
        }
    }

    #[test]
    fn a_partial_reply_asks_for_more() {
        for whole in [
            &b"STORED\r\n"[..],
            b"VA 4\r\nabcd\r\n",
            b"VALUE k 0 4\r\nabcd\r\nEND\r\n",
        ] {
            for cut in 0..whole.len() {
                assert_eq!(decode(&whole[..cut]).expect("no error"), None, "cut {cut}");
            }
        }
    }

    #[test]
    fn an_invalid_reply_is_an_error() {
        assert!(decode(b"STORED\n").is_err(), "no CR");
        assert!(decode(b"\x15\x03\x03\x00\x02").is_err(), "a TLS alert");
        assert!(decode(b"VA x\r\n").is_err(), "no number");
        assert!(
            decode(b"VA 4\r\nabcdef\r\n").is_err(),
            "longer than it says"
        );
        assert!(decode(b"VALUE k 0\r\n").is_err(), "no length");
        assert!(decode(b"VALUE k 0 1\r\na\r\nEXD\r\n").is_err(), "no END");
        assert!(decode(&[b'a'; LINE_BYTES_MAX + 1]).is_err(), "no end");
    }
}
