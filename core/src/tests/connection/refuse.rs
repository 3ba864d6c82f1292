//! A connection without service.

use quickcheck::quickcheck;

use super::*;

const REFUSED: &[u8] = b"SERVER_ERROR not primary\r\n";

/// The output for `request`, which arrives in pieces of `piece` bytes.
fn refused(connection: &mut Connection, request: &[u8], piece: usize) -> Vec<u8> {
    let (mut input, mut all) = (Vec::new(), Vec::new());
    for piece in request.chunks(piece) {
        input.extend_from_slice(piece);
        loop {
            let mut out = Output::new();
            // A bound of one byte stops after each reply.
            let (consumed, progress) = connection.refuse(&input, &mut out, 1);
            input.drain(..consumed);
            all.append(&mut Vec::from(out));
            match progress {
                Progress::OutputFull => {}
                Progress::NeedsInput { at_least } => {
                    assert!(at_least > input.len());
                    break;
                }
                Progress::Close => return all,
                Progress::Yielded | Progress::Waiting => panic!("{progress:?}"),
            }
        }
    }
    assert!(input.is_empty(), "{}", input.escape_ascii());
    all
}

fn connection() -> Connection {
    Connection::new(WireLimits::new(VALUE_BYTES_MAX))
}

#[test]
fn every_request_has_one_error() {
    let large = [&b"set k 0 0 2000\r\n"[..], &[b'x'; 2000], b"\r\n"].concat();
    for request in [
        &b"get a\r\n"[..],
        b"get a b c\r\n",
        b"gats 0 a b\r\n",
        b"set a 0 0 5\r\nget a\r\n",
        b"ms a 5 q\r\nget a\r\n",
        b"ms a 2 y\r\nmn\r\n",
        b"mg a q v\r\n",
        b"ml a w1000 H\r\n",
        b"ml a j0123456789abcdef\r\n",
        b"mo 0123456789abcdef T9\r\n",
        b"mn\r\n",
        b"mn H\r\n",
        b"config get cluster\r\n",
        b"version\r\n",
        b"verbosity 1\r\n",
        b"stats\r\n",
        b"stats conns\r\n",
        b"keys\r\n",
        b"lru_crawler metadump all\r\n",
        b"cache_memlimit 64\r\n",
        b"refresh_certs\r\n",
        b"watch\r\n",
        b"foo\r\n",
        &large,
    ] {
        for piece in [1, usize::MAX] {
            let reply = refused(&mut connection(), request, piece);
            let shown = request.get(..20).unwrap_or(request).escape_ascii();
            assert_eq!(reply, REFUSED, "{shown} {}", reply.escape_ascii());
        }
    }
}

#[test]
fn noreply_hides_the_error() {
    for request in [
        &b"set a 0 0 1 noreply\r\nx\r\n"[..],
        b"delete a noreply\r\n",
        b"flush_all noreply\r\n",
        b"cache_memlimit 64 noreply\r\n",
        b"verbosity 1 noreply\r\n",
    ] {
        assert_eq!(refused(&mut connection(), request, usize::MAX), b"");
    }
}

#[test]
fn packets_are_refused_with_their_opaque() {
    let packet = |opcode: u8, key: &[u8]| {
        let key_bytes = u8::try_from(key.len()).unwrap();
        let mut packet = vec![0x80, opcode, 0, key_bytes, 0, 0, 0, 0, 0, 0, 0, key_bytes];
        packet.extend_from_slice(b"\0\0\0\x09\0\0\0\0\0\0\0\0");
        packet.extend_from_slice(key);
        packet
    };
    let refusal = |opcode| {
        let start = &[0x81, opcode, 0, 0, 0, 0, 0, 0x86, 0, 0, 0, 11][..];
        [start, b"\0\0\0\x09\0\0\0\0\0\0\0\0", b"not primary"].concat()
    };
    // Get, GetQ, Noop, Version, Stat, Lock, Keys, an unknown one, SASL; a noop follows each.
    for (opcode, key) in [
        (0x00, &b"k"[..]),
        (0x09, b"k"),
        (0x0a, b""),
        (0x0b, b""),
        (0x10, b""),
        (0x40, b"k"),
        (0x50, b"k"),
        (0x7f, b"k"),
        (0x20, b""),
    ] {
        for piece in [1, usize::MAX] {
            let request = [packet(opcode, key), packet(0x0a, b"")].concat();
            let reply = refused(&mut connection(), &request, piece);
            let expected = [refusal(opcode), refusal(0x0a)].concat();
            assert_eq!(reply, expected, "{opcode:#x}");
        }
    }
}

#[test]
fn clients_that_leave_are_closed() {
    let mut leaving = connection();
    let mut out = Output::new();
    let driven = leaving.refuse(b"quit\r\n", &mut out, usize::MAX);
    assert_eq!(driven.1, Progress::Close);
    assert!(leaving.has_left());
    assert!(out.is_empty());
    let long = vec![b'x'; 3_000];
    let closed = connection().refuse(&long, &mut out, usize::MAX);
    assert_eq!(closed.1, Progress::Close);
    assert_eq!(Vec::from(out), b"CLIENT_ERROR line too long\r\n");
}

#[test]
fn service_goes_on_afterwards() {
    let mut bench = Bench::new(1, false);
    assert_eq!(bench.send(0, b"set a 0 0 1\r\nx\r\n"), b"STORED\r\n");
    let client = &mut bench.clients[0];
    // The first key is answered, then service ends, in the middle of the request.
    let (mut out, request) = (Output::new(), b"get a a\r\n");
    let mut core = At::new(&mut bench.core, Instant::default(), client.conn);
    let (consumed, _) = client.connection.drive(request, &mut core, &mut out, 1);
    assert_eq!(Vec::from(out), b"VALUE a 0 1\r\nx\r\n");
    assert_eq!(consumed, 0);
    assert_eq!(
        refused(&mut client.connection, request, usize::MAX),
        REFUSED
    );
    // A body that has not arrived is skipped, whether or not service has returned meanwhile.
    let mut out = Output::new();
    let line = b"set a 0 0 2000\r\n";
    assert_eq!(client.connection.refuse(line, &mut out, 1).0, line.len());
    assert!(out.is_empty());
    let rest = [&[b'x'; 2000][..], b"\r\nget a\r\n"].concat();
    let expected = [REFUSED, b"VALUE a 0 1\r\nx\r\nEND\r\n"].concat();
    assert_eq!(bench.send(0, &rest), expected);
}

#[test]
fn login_is_refused() {
    let mut limits = WireLimits::new(VALUE_BYTES_MAX);
    limits.allowed.admission = Admission::ByPassword;
    let mut unknown = Connection::new(limits);
    let login = b"set any 0 0 9\r\nfred pass\r\n";
    assert_eq!(refused(&mut unknown, login, usize::MAX), REFUSED);
    assert!(!unknown.is_admitted());
}

quickcheck! {
    /// However the bytes are cut, each request is refused once.
    fn cuts_do_not_matter_to_refusals(script: cuts::Script, piece: u8) -> bool {
        let whole = refusals(&script, usize::MAX);
        refusals(&script, usize::from(piece).max(1)) == whole && refusals(&script, 1) == whole
    }
}

/// The output for a script, of which a part may be left over.
fn refusals(script: &cuts::Script, piece: usize) -> Vec<u8> {
    let (mut connection, mut input, mut out) = (connection(), Vec::new(), Output::new());
    for piece in script.0.chunks(piece) {
        input.extend_from_slice(piece);
        let (consumed, progress) = connection.refuse(&input, &mut out, usize::MAX);
        input.drain(..consumed);
        if progress == Progress::Close {
            break;
        }
    }
    out.into()
}
