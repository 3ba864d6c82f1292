//! Dumps of all items, page by page: each page looks at two items.

use latchd_protocol::wire::binary::{Extras, Opcode, RequestPacket};

use super::*;

/// The reply, with its lines sorted: a dump promises no order.
fn dumped(bench: &mut Bench, request: &str) -> (Vec<String>, String) {
    let answer = bench.send(0, request.as_bytes());
    let answer = String::from_utf8(answer).unwrap();
    let mut lines: Vec<_> = answer.split_inclusive('\n').map(String::from).collect();
    let end = lines.pop().unwrap_or_default();
    let opening = usize::from(lines.first().is_some_and(|line| line == "OK\r\n"));
    lines[opening..].sort();
    (lines, end)
}

fn filled(byte_by_byte: bool) -> Bench {
    let mut bench = Bench::new(1, byte_by_byte);
    for request in [
        "set a%b 3 100 1\r\nx\r\n",
        "set b 0 0 2\r\nxx\r\n",
        "set past 0 -1 1\r\nx\r\n",
        "ms AAEC 0 b\r\n\r\n",
        "get b\r\n",
    ] {
        bench.send(0, request.as_bytes());
    }
    bench
}

#[test]
fn metadump_shows_all_metadata() {
    for byte_by_byte in [false, true] {
        let mut bench = filled(byte_by_byte);
        for classes in ["all", "hash", "1", "2,1"] {
            let (lines, end) = dumped(&mut bench, &format!("lru_crawler metadump {classes}\r\n"));
            // The times are those of a core at its start, the sizes those that its store accounts for.
            let wanted = [
                "OK\r\n",
                "key=%00%01%02 exp=-1 la=1700000000 cas=4 fetch=no cls=1 size=32 flags=0 \n",
                "key=a%25b exp=1700000100 la=1700000000 cas=1 fetch=no cls=1 size=32 flags=3 \n",
                "key=b exp=-1 la=1700000000 cas=2 fetch=yes cls=1 size=32 flags=0 \n",
            ];
            assert_eq!(
                (&lines[..], &end[..]),
                (&wanted.map(String::from)[..], "END\r\n")
            );
        }
    }
}

#[test]
fn mgdump_tells_how_to_read_each_item() {
    let mut bench = filled(true);
    let (lines, end) = dumped(&mut bench, "lru_crawler mgdump all\r\n");
    let wanted = ["OK\r\n", "mg AAEC b\r\n", "mg a%b\r\n", "mg b\r\n"];
    assert_eq!(
        (&lines[..], &end[..]),
        (&wanted.map(String::from)[..], "EN\r\n")
    );
}

#[test]
fn cachedump_tells_lengths_and_has_a_limit() {
    let mut bench = filled(true);
    let all = ["ITEM a%b [1 b; 1700000100 s]\r\n", "ITEM b [2 b; 0 s]\r\n"];
    for limit in [0, 2, 3] {
        let (lines, end) = dumped(&mut bench, &format!("stats cachedump 1 {limit}\r\n"));
        assert_eq!(
            (&lines[..], &end[..]),
            (&all.map(String::from)[..], "END\r\n")
        );
    }
    let (lines, end) = dumped(&mut bench, "stats cachedump 1 1\r\n");
    assert_eq!((lines.len(), &end[..]), (1, "END\r\n"));
    assert!(all.contains(&&lines[0][..]));
}

/// A limit holds over all pages, however long the dump, and the next request is answered.
#[test]
fn a_limit_is_counted_over_the_pages() {
    let mut bench = Bench::new(1, false);
    for number in 0..40 {
        bench.send(0, format!("set key{number} 0 0 1\r\nx\r\n").as_bytes());
    }
    for (limit, shown) in [(1, 1), (7, 7), (39, 39), (41, 40)] {
        let answer = bench.send(0, format!("stats cachedump 1 {limit}\r\nmn\r\n").as_bytes());
        let answer = String::from_utf8(answer).unwrap();
        assert_eq!(answer.matches("ITEM ").count(), shown, "{answer}");
        assert!(answer.ends_with("]\r\nEND\r\nMN\r\n"), "{answer}");
    }
}

/// No line can carry these keys, whichever protocol stored them. Another client must not take a part of one for
/// the end of a listing, or for the reply to its next request.
#[test]
fn no_key_forges_a_line_of_a_listing() {
    let mut bench = Bench::new(2, false);
    let mut binary = |opcode, extras, key| {
        let mut bytes = Vec::new();
        let request = RequestPacket {
            extras,
            key,
            ..RequestPacket::new(opcode)
        };
        request.encode(&mut bytes).expect("the key is short");
        let answer = bench.send(1, &bytes);
        assert_eq!(answer[6..8], [0, 0], "{answer:?}");
    };
    let store = Extras::Store {
        client_flags: 0,
        exptime: 0,
    };
    let key = b"b:\r\nEN\r\nx y";
    binary(Opcode::Set, store, &key[..]);
    binary(Opcode::Lock, Extras::None, &key[..]);
    binary(Opcode::Set, store, b"c:\x1b[2J");
    let mut text = |request: &str| String::from_utf8(bench.send(0, request.as_bytes())).unwrap();
    assert_eq!(text("ms YToNCkVORA0KU1RPUkVE 0 b\r\n\r\n"), "HD\r\n"); // "a:\r\nEND\r\nSTORED"
    assert_eq!(text("ml YToNCkVORA0KU1RPUkVE b\r\n"), "HD\r\n");
    assert_eq!(text("stats detail on\r\n"), "OK\r\n");
    assert_eq!(text("mg ZA0KOms= b\r\n"), "EN\r\n"); // "d\r\n:k"
    for (request, wanted) in [
        (
            "keys",
            "END|VALUE YToNCkVORA0KU1RPUkVE b|VALUE YjoNCkVODQp4IHk= b|VALUE YzobWzJK b",
        ),
        (
            "lru_crawler mgdump all",
            "EN|OK|mg YToNCkVORA0KU1RPUkVE b|mg YjoNCkVODQp4IHk= b|mg YzobWzJK b",
        ),
        ("stats cachedump 1 0", "END"),
        (
            "stats detail dump",
            "END|PREFIX d%0D%0A get 1 hit 0 set 0 del 0",
        ),
        ("mg YjoNCkVODQp4IHk= b k", "HD kYjoNCkVODQp4IHk= b"),
    ] {
        let answer = text(&format!("{request}\r\n"));
        let mut lines: Vec<_> = answer.split_terminator("\r\n").collect();
        lines.sort_unstable();
        assert_eq!(lines.join("|"), wanted);
    }
    for (request, lines) in [
        ("me YjoNCkVODQp4IHk= b", 1),
        ("stats locks", 3),
        ("lru_crawler metadump all", 5),
    ] {
        let answer = text(&format!("{request}\r\n"));
        let is_shown = |byte: u8| byte.is_ascii_graphic() || byte == b' ';
        assert!(
            answer.lines().all(|line| line.bytes().all(is_shown)),
            "{answer:?}"
        );
        assert_eq!(answer.lines().count(), lines, "{answer:?}");
    }
}
