//! Access: disabled commands, authenticated and unauthenticated clients.

use latchd_protocol::wire::LockedReply;

use super::*;

/// The reply of a connection with these limits, and whether it goes on.
fn answered(limits: WireLimits, input: &[u8]) -> (String, bool) {
    let (answer, goes_on) = answer(limits, input);
    (String::from_utf8_lossy(&answer).into_owned(), goes_on)
}

/// The same, as bytes.
fn answer(limits: WireLimits, input: &[u8]) -> (Vec<u8>, bool) {
    struct Friend;
    impl Execute for Friend {
        fn execute(&mut self, _: &Command<'_>, answer: &mut impl FnMut(&Reply<'_>)) {
            answer(&Reply::Ok);
        }
        fn admits(&mut self, claim: Option<Claim<'_>>) -> bool {
            claim.is_some_and(|who| (who.name, who.password) == (b"fred", b"pass"))
        }
    }
    let mut out = Output::new();
    let (_, progress) = Connection::new(limits).drive(input, &mut Friend, &mut out, usize::MAX);
    (Vec::from(out), progress != Progress::Close)
}

fn allowing(change: impl Fn(&mut Allowed)) -> WireLimits {
    let mut limits = WireLimits::new(VALUE_BYTES_MAX);
    change(&mut limits.allowed);
    limits
}

#[test]
fn disabled_commands_are_refused() {
    let limits = allowing(|allowed| (allowed.flush_all, allowed.listing) = (false, false));
    for (asked, refused) in [
        ("flush_all", "CLIENT_ERROR flush_all not allowed\r\n"),
        ("flush_all noreply", ""),
        ("keys a", "CLIENT_ERROR keys not allowed\r\n"),
        ("stats locks", "CLIENT_ERROR stats locks not allowed\r\n"),
        ("stats detail", "CLIENT_ERROR stats detail not allowed\r\n"),
        (
            "stats cachedump 1 1",
            "CLIENT_ERROR stats cachedump not allowed\r\n",
        ),
        ("lru_crawler metadump all", "ERROR metadump not allowed\r\n"),
        ("lru_crawler mgdump all", "ERROR key dump not allowed\r\n"),
        ("watch", "CLIENT_ERROR watch commands not allowed\r\n"),
    ] {
        let asked = format!("{asked}\r\n");
        assert_eq!(answered(limits, asked.as_bytes()), (refused.into(), true));
    }
    for (opcode, key) in [
        (0x08, ""),
        (0x18, ""),
        (0x50, ""),
        (0x10, "locks"),
        (0x10, "detail on"),
    ] {
        let mut packet = std::vec![0; 24];
        (packet[0], packet[1]) = (0x80, opcode);
        // The key is so short that its length fits one byte, as does that of the body.
        let key_bytes = u8::try_from(key.len()).unwrap();
        (packet[3], packet[11]) = (key_bytes, key_bytes);
        packet.extend_from_slice(key.as_bytes());
        let (answer, goes_on) = answered(limits, &packet);
        assert!(answer.ends_with("Auth failure.") && goes_on, "{answer}");
    }
}

#[test]
fn shutdown_needs_permission() {
    let refused = ("SERVER_ERROR: shutdown not enabled\r\n".into(), true);
    assert_eq!(answered(allowing(|_| {}), b"shutdown\r\n"), refused);
    let limits = allowing(|allowed| allowed.shutdown = true);
    assert_eq!(answered(limits, b"shutdown\r\n"), (String::new(), false));
    assert_eq!(
        answered(limits, b"shutdown graceful\r\n"),
        (String::new(), false)
    );
    assert_eq!(
        answered(limits, b"shutdown now\r\n"),
        ("CLIENT_ERROR invalid shutdown mode\r\n".into(), true)
    );
}

#[test]
fn certificates_are_read_anew_where_there_are_any() {
    let said = |asked| answered(allowing(|_| {}), asked);
    let refused = "Error TLS not enabled\r\n";
    assert_eq!(said(b"refresh_certs\r\n"), (refused.into(), true));
    assert_eq!(said(b"refresh_certs noreply\r\n"), (String::new(), true));
}

#[test]
fn one_protocol_may_be_all_that_is_spoken() {
    let version = [&[0x80, 0x0b][..], &[0; 22]].concat();
    let text = allowing(|allowed| allowed.protocols = Protocols::Text);
    assert_eq!(answered(text, b"mn\r\n"), ("MN\r\n".into(), true));
    assert_eq!(answered(text, &version), (String::new(), true));
    let binary = allowing(|allowed| allowed.protocols = Protocols::Binary);
    assert!(answered(binary, &version).0.ends_with(VERSION));
    // No packet begins like this.
    let line = b"mn and more than there is in a header\r\n";
    assert_eq!(answered(binary, line), (String::new(), false));
}

#[test]
fn commands_need_authentication() {
    let limits = allowing(|allowed| allowed.admission = Admission::ByPassword);
    let wrong = "set k 0 0 6\r\nfred x\r\n";
    let (answer, goes_on) = answered(limits, format!("get k\r\n{wrong}mn aa\r\n").as_bytes());
    assert_eq!(
        answer,
        "CLIENT_ERROR unauthenticated\r\nCLIENT_ERROR authentication failure\r\n\
         CLIENT_ERROR unauthenticated\r\n"
    );
    assert!(goes_on);
    let (answer, _) = answered(limits, b"set k 0 0 9\r\nfred pass\r\nmn\r\nflush_all\r\n");
    assert_eq!(answer, "STORED\r\nMN\r\nOK\r\n");
    let (answer, goes_on) = answered(limits, wrong.repeat(20).as_bytes());
    assert_eq!((answer.lines().count(), goes_on), (8, false));
}

/// A packet of the binary protocol without extras.
fn packet(opcode: u8, key: &str, value: &str) -> Vec<u8> {
    let mut packet = Vec::new();
    binary::header::RequestHeader {
        opcode,
        key_bytes: u16::try_from(key.len()).unwrap(),
        extras_bytes: 0,
        body_bytes: u32::try_from(key.len() + value.len()).unwrap(),
        opaque: 0,
        cas: 0,
    }
    .encode(&mut packet);
    packet.extend_from_slice(key.as_bytes());
    packet.extend_from_slice(value.as_bytes());
    packet
}

/// The statuses of the replies to these packets, and whether the connection goes on.
fn statuses(limits: WireLimits, packets: &[Vec<u8>]) -> (Vec<u16>, bool) {
    let (mut statuses, mut goes_on) = (Vec::new(), true);
    for count in 1..=packets.len() {
        let (answer, is_open) = answer(limits, &packets[..count].concat());
        // Each reply has its length: the last header is found by walking over all of them.
        let mut bytes = &answer[..];
        let mut last = None;
        while let Some(status) = bytes.get(6..8) {
            last = Some(u16::from(status[0]) << 8 | u16::from(status[1]));
            let body = usize::from(bytes[10]) << 8 | usize::from(bytes[11]);
            bytes = &bytes[24 + body..];
        }
        statuses.extend(last);
        goes_on = is_open;
        if !is_open {
            break;
        }
    }
    (statuses, goes_on)
}

#[test]
fn sasl_admits_only_valid_credentials() {
    let [list, auth, step, version, noop] = [0x20, 0x21, 0x22, 0x0b, 0x0a];
    let limits = allowing(|allowed| allowed.admission = Admission::BySasl);
    let begin_with = |token| packet(auth, "PLAIN", token);
    let go_on_with = |token| packet(step, "PLAIN", token);
    let said = |packets: &[Vec<u8>]| statuses(limits, packets);
    let bare = |opcode| packet(opcode, "", "");
    let (mechanisms, _) = answered(limits, &bare(list));
    assert!(mechanisms.ends_with("PLAIN"), "{mechanisms}");
    let login = begin_with("\0fred\0pass");
    assert_eq!(
        said(&[bare(version), login.clone(), bare(noop)]),
        (vec![0, 0, 0], true)
    );
    assert!(answered(limits, &login).0.ends_with("Authenticated"));
    // Any other packet of an unauthenticated client closes its connection, even an unknown one.
    for opcode in [noop, 0x00, 0x01, 0x07, 0x08, 0x10, 0x50, 0x7f] {
        assert_eq!(said(&[bare(opcode)]), (vec![0x20], false));
    }
    // The reply to wrong credentials says so, eight times.
    for token in ["", "fred", "\0fred\0pass", "\0\0"] {
        let (answers, goes_on) = said(&[go_on_with(token)]);
        assert_eq!((answers, goes_on), (vec![0x20], true), "it has not begun");
    }
    for token in ["fred", "\0fred\0pas", "ann\0fred\0pass", "\0\0"] {
        assert_eq!(said(&[begin_with(token)]), (vec![0x20], true), "{token}");
    }
    let other = packet(auth, "CRAM-MD5", "\0fred\0pass");
    assert_eq!(said(&[other]), (vec![0x20], true));
    let (answers, goes_on) = said(&vec![begin_with("\0fred\0x"); 20]);
    assert_eq!((answers.len(), goes_on), (8, false));
    // In two steps, the second right behind the first.
    let second = go_on_with("\0fred\0pass");
    assert_eq!(
        said(&[begin_with(""), second.clone(), bare(noop)]),
        (vec![0x21, 0, 0], true)
    );
    assert_eq!(
        said(&[begin_with(""), login.clone(), second.clone()]),
        (vec![0x21, 0, 0x20], true)
    );
    // It may only continue with the mechanism it began with, and only once.
    let other = packet(auth, "CRAM-MD5", "");
    assert_eq!(said(&[other, second.clone()]), (vec![0x20, 0x20], true));
    assert_eq!(
        said(&[begin_with(""), go_on_with(""), second]),
        (vec![0x21, 0x20, 0x20], true)
    );
    // A client that begins anew is unauthenticated until that has succeeded.
    assert_eq!(
        said(&[login, begin_with("\0fred\0x"), bare(noop)]),
        (vec![0, 0x20, 0x20], false)
    );
    let line = b"version\r\nand more than a header has\r\n";
    assert_eq!(answered(limits, line), (String::new(), false));
}

#[test]
fn both_protocols_can_require_authentication() {
    let limits = allowing(|allowed| allowed.admission = Admission::Either);
    assert_eq!(
        answered(limits, b"version\r\nset k 0 0 9\r\nfred pass\r\nmn\r\n").0,
        "CLIENT_ERROR unauthenticated\r\nSTORED\r\nMN\r\n"
    );
    assert_eq!(
        statuses(limits, &[packet(0x0a, "", "")]),
        (vec![0x20], false)
    );
    let login = packet(0x21, "PLAIN", "\0fred\0pass");
    assert_eq!(
        statuses(limits, &[login, packet(0x0a, "", "")]),
        (vec![0, 0], true)
    );
}

#[test]
fn farewell_and_admission_are_known() {
    struct Nobody;
    impl Execute for Nobody {
        fn execute(&mut self, _: &Command<'_>, answer: &mut impl FnMut(&Reply<'_>)) {
            answer(&Reply::Ok);
        }
    }
    let after = |limits: WireLimits, input: &[u8]| {
        let mut wire = Connection::new(limits);
        let _ = wire.drive(input, &mut Nobody, &mut Output::new(), usize::MAX);
        (wire.is_admitted(), wire.has_left())
    };
    let open = allowing(|_| {});
    assert_eq!(after(open, b"mn\r\n"), (true, false));
    assert_eq!(after(open, b"mn\r\nquit\r\n"), (true, true));
    let guarded = allowing(|allowed| allowed.admission = Admission::ByPassword);
    // By default no client is authenticated, and the memory limit is fixed.
    assert_eq!(
        after(guarded, b"set k 0 0 9\r\nfred pass\r\n"),
        (false, false)
    );
    // An invalid line ends the connection of an unauthenticated client, and does not count as a farewell.
    assert_eq!(after(guarded, b"a\r\n"), (false, false));
    assert_eq!(Nobody.limit_memory(1 << 30), Err(MemoryRefused::Fixed));
}

/// If the operator says so, a client that has used no lock command sees another client's lock in memcached's
/// replies. From its first lock command on, it sees latchd's.
#[test]
fn locked_reply_follows_the_setting() {
    let packet = |opcode, cas, extras: &[u8], value: &[u8]| {
        let mut bytes = std::vec![0; 24];
        (bytes[0], bytes[1], bytes[3], bytes[15]) = (0x80, opcode, 1, 7);
        bytes[4] = u8::try_from(extras.len()).unwrap();
        bytes[11] = u8::try_from(extras.len() + 1 + value.len()).unwrap();
        bytes[23] = cas;
        [&bytes, extras, b"k", value].concat()
    };
    let status = |answer: &[u8]| u16::from_be_bytes([answer[6], answer[7]]);
    for (is_plain, is_binary) in [(false, false), (true, false), (true, true)] {
        let mut bench = Bench::new(3, false);
        if is_plain {
            let limits = allowing(|allowed| allowed.locked_reply = LockedReply::NotStored);
            bench.clients[1].connection = Connection::new(limits);
            bench.clients[2].connection = Connection::new(limits);
        }
        bench.send(0, b"set k 0 0 1\r\n1\r\nlock k\r\n");
        let mut reply_to =
            |request: &str| String::from_utf8(bench.send(1, request.as_bytes())).unwrap();
        let of_meta = |code: &str| format!("{code} O7 kk\r\n");
        if !is_binary {
            for (request, plain, code) in [
                ("set k 0 0 1\r\n2\r\n", String::from("NOT_STORED\r\n"), ""),
                ("add k 0 0 1\r\n2\r\n", String::from("NOT_STORED\r\n"), ""),
                (
                    "append k 0 0 1\r\n2\r\n",
                    String::from("NOT_STORED\r\n"),
                    "",
                ),
                ("set k 0 0 1 noreply\r\n2\r\n", String::new(), ""),
                ("cas k 0 0 1 9\r\n2\r\n", String::from("EXISTS\r\n"), ""),
                ("delete k\r\n", String::from("NOT_FOUND\r\n"), ""),
                ("incr k 1\r\n", String::from("NOT_FOUND\r\n"), ""),
                ("ms k 1 O7 k\r\n2\r\n", of_meta("NS"), "LK"),
                ("ms k 1 O7 k C9\r\n2\r\n", of_meta("EX"), "LK"),
                ("md k O7 k\r\n", of_meta("NF"), "LK"),
                ("ma k O7 k\r\n", of_meta("NF"), "LK"),
            ] {
                let own = match (code, plain.is_empty()) {
                    ("", true) => String::new(),
                    ("", false) => String::from("LOCKED\r\n"),
                    (code, _) => of_meta(code),
                };
                assert_eq!(
                    reply_to(request),
                    if is_plain { plain } else { own },
                    "{request}"
                );
            }
            assert_eq!(reply_to("get k\r\n"), "VALUE k 0 1\r\n1\r\nEND\r\n");
            // It knows locks.
            assert_eq!(reply_to("lock k\r\n"), "LOCKED\r\n");
            assert_eq!(reply_to("set k 0 0 1\r\n2\r\n"), "LOCKED\r\n");
            continue;
        }
        let store = &[0; 8];
        let count = &[0; 20];
        for (request, expected) in [
            (packet(0x01, 0, store, b"2"), 5), // Set
            (packet(0x02, 0, store, b"2"), 5), // Add
            (packet(0x03, 0, store, b"2"), 5), // Replace
            (packet(0x11, 0, store, b"2"), 5), // SetQ
            (packet(0x01, 9, store, b"2"), 2), // Set with a CAS
            (packet(0x04, 0, b"", b""), 1),    // Delete
            (packet(0x05, 0, count, b""), 1),  // Increment
            (packet(0x41, 0, b"", b""), 0x10), // Lock
            (packet(0x01, 0, store, b"2"), 0x10),
        ] {
            assert_eq!(status(&bench.send(2, &request)), expected, "{request:?}");
        }
    }
}
