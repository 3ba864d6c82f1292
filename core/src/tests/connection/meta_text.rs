//! Meta text, byte for byte.
//!
//! Source of every answer: memcached 1.6.45 as seen on a live server. Where we differ:
//! docs/PROTOCOL.md, "Meta text".

use latchd_protocol::wire::limits::TOKENS_MAX;

use super::*;

#[test]
fn fields_come_in_the_requests_order() {
    check(&[
        ("mn\r\n", "MN\r\n"),
        ("mg a v\r\n", "EN\r\n"),
        ("mg a k O5 t v q\r\nmn\r\n", "MN\r\n"),
        ("mg a k O5 t v\r\n", "EN ka O5\r\n"),
        ("ms a 2 T90 F1\r\nhi\r\n", "HD\r\n"),
        ("mg a\r\n", "HD\r\n"),
        ("mg a v\r\n", "VA 2\r\nhi\r\n"),
        ("mg a t f v q\r\n", "VA 2 t90 f1\r\nhi\r\n"),
        ("mg a   k   O5  s c l h \r\n", "HD ka O5 s2 c1 l0 h1\r\n"),
        ("mg a O k\r\n", "HD O ka\r\n"),
        ("mg a vvv kk\r\n", "VA 2 ka\r\nhi\r\n"),
        ("mg a v C1\r\n", "HD\r\n"),
        ("mg a v C2\r\n", "VA 2\r\nhi\r\n"),
        ("mg a v C0\r\n", "VA 2\r\nhi\r\n"),
        ("mg a P5 L6 v\r\n", "VA 2\r\nhi\r\n"),
    ]);
}

#[test]
fn the_ttl_is_the_one_at_its_place() {
    check(&[
        ("ms a 2\r\nhi\r\n", "HD\r\n"),
        ("mg a t T30\r\n", "HD t-1\r\n"),
        ("mg a T40 t\r\n", "HD t40\r\n"),
        ("mg a T- t\r\n", "HD t-1\r\n"),
        ("mg b t N30\r\n", "HD t-1 W\r\n"),
        ("mg c N30 t\r\n", "HD t30 W\r\n"),
        ("ma n N30 t\r\n", "HD t30\r\n"),
        ("ma n t T50\r\n", "HD t30\r\n"),
        ("ma n R10 t v\r\n", "VA 1 t50\r\n2\r\n"),
    ]);
}

#[test]
fn the_right_to_recache_is_told_last() {
    check(&[
        ("mg a v N30 k\r\n", "VA 0 ka W\r\n\r\n"),
        ("mg a v N30\r\n", "VA 0 Z\r\n\r\n"),
        ("ms b 1 T20\r\nx\r\n", "HD\r\n"),
        ("mg b R30 O7\r\n", "HD O7 W\r\n"),
        ("mg b R30\r\n", "HD Z\r\n"),
        ("ms c 1\r\nx\r\nmd c I T30\r\n", "HD\r\nHD\r\n"),
        ("get c\r\n", "VALUE c 0 1\r\nx\r\nEND\r\n"),
        ("mg c v\r\n", "VA 1 X W\r\nx\r\n"),
        ("mg c t\r\n", "HD t30 Z X\r\n"),
    ]);
}

#[test]
fn sets_have_modes() {
    check(&[
        ("ms a 1 ME s\r\nx\r\n", "HD s1\r\n"),
        ("ms a 1 ME c s\r\nx\r\n", "NS c0 s1\r\n"),
        ("ms a 1 ME C7\r\nx\r\n", "NS\r\n"),
        ("ms a 2 MA s\r\nyz\r\n", "HD s3\r\n"),
        ("ms a 1 MP\r\n_\r\n", "HD\r\n"),
        ("mg a v\r\n", "VA 4\r\n_xyz\r\n"),
        ("ms a 1 MSet\r\nx\r\n", "HD\r\n"),
        ("ms b 3 MR c s\r\nxyz\r\n", "NS c0 s3\r\n"),
        ("ms b 3 MR C5 c s\r\nxyz\r\n", "NF c0 s3\r\n"),
        ("ms b 3 MA C5 c s k O7\r\nxyz\r\n", "NS c0 s3 kb O7\r\n"),
        ("ms b 3 C5\r\nxyz\r\n", "NF\r\n"),
        ("ms b 3 MP N0 T9\r\nxyz\r\nmg b t\r\n", "HD\r\nHD t-1\r\n"),
        ("ms b 3 MR\r\nxyz\r\n", "HD\r\n"),
        ("ms b 1 q\r\nx\r\nms b 1 q ME\r\nx\r\n", "NS\r\n"),
        (
            "ms a 1 MQ\r\nx\r\n",
            "CLIENT_ERROR invalid mode for ms M token\r\n",
        ),
        (
            "ms a 1 M q\r\nx\r\n",
            "CLIENT_ERROR invalid mode for ms M token\r\n",
        ),
    ]);
}

#[test]
fn versions_guard_changes() {
    check(&[
        ("ms a 3 E50 c\r\nxyz\r\n", "HD c50\r\n"),
        ("ms a 3 C1 c s\r\nxyz\r\n", "EX c0 s3\r\n"),
        ("ms a 2 C0 I\r\nab\r\n", "EX\r\n"),
        ("ms a 1 MA C9\r\nx\r\n", "EX\r\n"),
        ("ms a 1 MA C0\r\nx\r\n", "HD\r\n"),
        ("ms a 1 E60\r\n5\r\n", "HD\r\n"),
        ("ma a C1 k O5 t\r\n", "EX ka O5\r\n"),
        ("ma a C0 v\r\n", "VA 1\r\n6\r\n"),
        (
            "md a C0\r\nmd a C5 k\r\nmd b C0\r\n",
            "EX\r\nEX ka\r\nNF\r\n",
        ),
        (
            "ms a 1 E70\r\nx\r\nms a 3 C7 I T9\r\nnew\r\n",
            "HD\r\nHD\r\n",
        ),
        ("mg a v t\r\n", "VA 3 t-1 X W\r\nnew\r\n"),
        (
            "ms a 1 E80\r\nx\r\nms a 1 C80 E0\r\ny\r\nmg a v\r\n",
            "HD\r\nHD\r\nVA 1\r\ny\r\n",
        ),
    ]);
}

#[test]
fn deletes_remove_empty_or_mark() {
    check(&[
        ("md a q k O9\r\n", "NF ka O9\r\n"),
        ("ms a 1\r\nx\r\nmd a k O9 s t c f\r\n", "HD\r\nHD ka O9\r\n"),
        ("ms a 1\r\nx\r\nmd a q\r\nmg a\r\n", "HD\r\nEN\r\n"),
        ("ms a 1 F5\r\nx\r\nmd a x F7 T30\r\n", "HD\r\nHD\r\n"),
        ("mg a v f t\r\n", "VA 0 f7 t30\r\n\r\n"),
        ("ms a 1 F5\r\nx\r\nmd a x I\r\n", "HD\r\nHD\r\n"),
        ("mg a v f t\r\n", "VA 0 f0 t-1 X W\r\n\r\n"),
    ]);
}

#[test]
fn arithmetic_counts_and_creates() {
    check(&[
        ("ma n q k\r\n", "NF kn\r\n"),
        ("ma n N0 J5 v t k O8 s f\r\n", "VA 1 t-1 kn O8\r\n5\r\n"),
        ("ma n\r\n", "HD\r\n"),
        ("ma n MD D2 v\r\n", "VA 1\r\n4\r\n"),
        ("ma n M- v\r\n", "VA 1\r\n3\r\n"),
        ("ma n M+ D0 v\r\n", "VA 1\r\n3\r\n"),
        ("ma n MIx v q\r\nma n q\r\nma n v\r\n", "VA 1\r\n6\r\n"),
        (
            "ma n MQ\r\n",
            "CLIENT_ERROR invalid mode for ma M token\r\n",
        ),
        ("ma n M\r\n", "CLIENT_ERROR invalid mode for ma M token\r\n"),
        ("ms n 1\r\nx\r\n", "HD\r\n"),
        (
            "ma n q\r\n",
            "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n",
        ),
        ("ma n y\r\n", "CLIENT_ERROR invalid or duplicate flag\r\n"),
        ("ma n Dx\r\n", "CLIENT_ERROR invalid or duplicate flag\r\n"),
        (
            &format!("ma {}\r\n", "k".repeat(251)),
            "CLIENT_ERROR invalid or duplicate flag\r\n",
        ),
        ("ma n !\r\n", BAD_LINE),
    ]);
}

#[test]
fn binary_keys_are_the_bytes_they_stand_for() {
    check(&[
        ("ms Zm9v 2 b k c\r\nhi\r\n", "HD kZm9v b c1\r\n"),
        ("mg Zm9v b k v\r\n", "VA 2 kZm9v b\r\nhi\r\n"),
        ("mg Zm9v k\r\n", "EN kZm9v\r\n"),
        ("mg Zm_9v k b\r\n", "HD kZm9v b\r\n"),
        ("mg foo k\r\n", "HD kZm9v b\r\n"),
        ("mg aab= b k q\r\nmg aab= b k\r\n", "EN kaaY= b\r\n"),
        ("md Zm9v b k\r\n", "HD kZm9v b\r\n"),
        ("mg a b\r\n", "CLIENT_ERROR error decoding key\r\n"),
        ("ms a 1 b\r\nx\r\n", "CLIENT_ERROR error decoding key\r\n"),
        ("me a b\r\n", BAD_LINE),
    ]);
    let mut bench = Bench::new(1, false);
    bench.send(0, b"ms Zm9v 0 b\r\n\r\n");
    for request in ["me foo\r\n", "me Zm9v b\r\n"] {
        assert!(
            bench
                .send(0, request.as_bytes())
                .starts_with(b"ME Zm9v exp=-1 "),
            "{request}"
        );
    }
}

#[test]
fn everything_about_an_item_is_for_a_person() {
    for byte_by_byte in [false, true] {
        let mut bench = Bench::new(2, byte_by_byte);
        bench.send(0, b"set k 0 90 1\r\nx\r\n");
        let shown = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let before = shown(bench.send(1, b"me k O5 k\r\n"));
        assert!(
            before.starts_with("ME k exp=90 la=0 cas=1 fetch=no cls=1 size="),
            "{before}"
        );
        bench.send(0, b"lock k\r\n");
        let after = shown(bench.send(1, b"me k\r\n"));
        assert_eq!(
            after,
            before.replace("\r\n", " lock=1 fence=1 held=0 waiting=0 mode=x\r\n")
        );
        assert_eq!(bench.send(1, b"me b\r\nme\r\nme k !\r\n"), b"EN\r\nCLIENT_ERROR bad command line format\r\nCLIENT_ERROR bad command line format\r\n");
    }
}

#[test]
fn errors_come_before_any_effect() {
    const BAD_TOKEN: &str = "CLIENT_ERROR bad token in command line format\r\n";
    const INVALID: &str = "CLIENT_ERROR invalid flag\r\n";
    const DUPLICATE: &str = "CLIENT_ERROR duplicate flag\r\n";
    const TOO_MANY: &str = "CLIENT_ERROR options flags are too long\r\n";
    const LONG_OPAQUE: &str = "CLIENT_ERROR opaque token too long\r\n";
    let long = "k".repeat(251);
    let opaque = "1".repeat(32);
    check(&[
        ("mg\r\n", BAD_LINE),
        ("mg \r\n", BAD_LINE),
        (&format!("mg {long}\r\n"), BAD_LINE),
        ("ms a\r\n", BAD_LINE),
        ("ms a S1\r\n", BAD_LINE),
        ("ms a -1\r\n", BAD_LINE),
        ("mg a !\r\n", BAD_LINE),
        ("mg a { t t\r\n", BAD_LINE),
        ("mg a t t {\r\n", BAD_LINE),
        ("mg a [\r\n", INVALID),
        ("mg a 5\r\n", INVALID),
        // Only commands that change an item can also release a lock.
        ("mg a U\r\n", INVALID),
        ("ml a U\r\n", INVALID),
        ("mu a U\r\n", INVALID),
        ("mg a y t t\r\n", INVALID),
        ("mg a t t y\r\n", DUPLICATE),
        ("mg a Tx\r\n", BAD_TOKEN),
        ("mg a N\r\n", BAD_TOKEN),
        ("mg a R2147483648\r\n", BAD_TOKEN),
        ("mg a C-1\r\n", BAD_TOKEN),
        ("mg a E18446744073709551616\r\n", BAD_TOKEN),
        ("mg a F4294967296\r\n", BAD_LINE),
        ("mg a Fx Tx\r\n", BAD_TOKEN),
        ("mg a Tx Fx\r\n", BAD_TOKEN),
        (
            "mg a Dx\r\n",
            "CLIENT_ERROR invalid numeric delta value\r\n",
        ),
        (
            "mg a Tx Jx\r\n",
            "CLIENT_ERROR invalid numeric initial value\r\n",
        ),
        ("mg !!! b Fx\r\n", "CLIENT_ERROR error decoding key\r\n"),
        (
            "mg a c f h k l O s t u v P L I x D1 J1 E1 C1\r\n",
            "EN ka O\r\n",
        ),
        (
            "mg a c f h k l O s t u v P L I x D1 J1 E1 C1 MS\r\n",
            TOO_MANY,
        ),
        (
            "mg a c f h k l O s t u v P L I x D1 J1 E1 C1 MS T1 R1 N1 Fx !\r\n",
            TOO_MANY,
        ),
        (&format!("mg a O{opaque}\r\n"), &format!("EN O{opaque}\r\n")),
        (&format!("mg a N0 O{opaque}1\r\n"), LONG_OPAQUE),
        (&format!("ma a N0 O{opaque}1\r\n"), LONG_OPAQUE),
        (&format!("ms a 1 q O{opaque}1\r\nx\r\n"), LONG_OPAQUE),
        (&format!("md a O{opaque}1\r\n"), LONG_OPAQUE),
        ("ms a 1 noreply\r\nx\r\n", INVALID),
        ("ms a 4 Tx q\r\nmn\r\n\r\n", BAD_TOKEN),
        ("mg a\r\n", "EN\r\n"),
    ]);
}

/// A line is split into a bounded number of words; the rest of the line is ignored.
#[test]
fn text_behind_the_last_word_is_ignored() {
    const BAD_FLAG: &str = "CLIENT_ERROR invalid or duplicate flag\r\n";
    let long = "k".repeat(251);
    let words = " q".repeat(TOKENS_MAX - 2);
    let one_less = " q".repeat(TOKENS_MAX - 3);
    check(&[
        (&format!("me k{words} !\r\n"), "EN\r\n"),
        (&format!("me k{one_less} !\r\n"), BAD_LINE),
        // If the key is too long, the error of `ma` depends on whether the rest was split into words.
        (&format!("ma {long}{words} !\r\n"), BAD_FLAG),
        (&format!("ma {long}{one_less} !\r\n"), BAD_LINE),
    ]);
}

#[test]
fn all_that_a_get_can_show_is_shown_at_once() {
    check(&[
        ("set a 5 90 2\r\nhi\r\n", "STORED\r\n"),
        ("mg a c f h k l s t\r\n", "HD c1 f5 h0 ka l0 s2 t90\r\n"),
    ]);
}

/// With `q` and `v`, only a value is sent.
#[test]
fn a_lock_that_is_taken_quietly_says_nothing_but_the_value() {
    check(&[
        ("ml a q v F\r\nmn\r\n", "MN\r\n"),
        ("mu a\r\nset a 0 0 2\r\nhi\r\n", "HD\r\nSTORED\r\n"),
        ("ml a q v k\r\nmn\r\n", "VA 2 ka\r\nhi\r\nMN\r\n"),
    ]);
}
