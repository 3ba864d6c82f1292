//! What a transport may rely on.

extern crate std;

use std::string::String;
use std::vec;
use std::vec::Vec;

use quickcheck::quickcheck;

use super::*;
use crate::Limits;

const NOW: Instant = Instant::from_millis(0);
const VALUE_BYTES_MAX: usize = 1 << 10;

fn server() -> Server {
    let mut limits = Limits::new(1 << 20, VALUE_BYTES_MAX);
    limits.scan_items_max = 2;
    Server::new(Config::new(limits, 1_700_000_000))
}

/// What `conn` is sent when `bytes` arrive from it, all of it in the end.
fn answers(server: &mut Server, conn: ConnId, bytes: &[u8]) -> String {
    let mut out = Output::new();
    let mut progress = server.receive(NOW, conn, bytes, &mut out);
    let mut sent = vec![];
    while progress == Progress::OutputFull {
        sent.append(&mut Vec::from(core::mem::take(&mut out)));
        progress = server.resume(NOW, conn, &mut out);
    }
    sent.append(&mut out.into());
    String::from_utf8(sent).expect("these tests speak text")
}

#[test]
fn connections_share_items_and_not_locks() {
    let mut server = server();
    let (a, b) = (server.open(NOW), server.open(NOW));
    assert_eq!(
        answers(&mut server, a, b"set k 0 0 1\r\nx\r\nlock k\r\n"),
        "STORED\r\nOK\r\n"
    );
    assert_eq!(
        answers(&mut server, b, b"get k\r\nlock k\r\n"),
        "VALUE k 0 1\r\nx\r\nEND\r\nLOCKED\r\n"
    );
}

#[test]
fn ids_are_never_reused() {
    let mut server = server();
    let first = server.open(NOW);
    server.close(NOW, first);
    let second = server.open(NOW);
    assert!(second > first);
    answers(&mut server, second, b"quit\r\n");
    assert!(server.open(NOW) > second);
}

/// V4, from the transport's side.
#[test]
fn closing_frees_locks() {
    let mut server = server();
    let (a, b) = (server.open(NOW), server.open(NOW));
    answers(&mut server, a, b"set k 0 0 1\r\nx\r\nlock k\r\n");
    server.close(NOW, a);
    assert_eq!(answers(&mut server, b, b"lock k\r\n"), "OK\r\n");
}

/// V4, from the protocol's side: also while the last answer is still to be sent.
#[test]
fn quit_and_errors_of_framing_close_and_free_locks() {
    let too_long = [b'x'; 3000];
    for last in [&b"quit\r\n"[..], &too_long] {
        let mut server = server();
        let (a, b) = (server.open(NOW), server.open(NOW));
        answers(&mut server, a, b"set k 0 0 1\r\nx\r\nlock k\r\n");
        let mut out = Output::new();
        assert_eq!(server.receive(NOW, a, last, &mut out), Progress::Close);
        assert_eq!(answers(&mut server, b, b"lock k\r\n"), "OK\r\n");
    }
}

#[test]
fn an_id_that_is_nobodys_is_told_to_close() {
    let mut server = server();
    let a = server.open(NOW);
    server.close(NOW, a);
    server.close(NOW, a);
    let mut out = Output::new();
    for conn in [a, ConnId::from_number(99)] {
        let progress = server.receive(NOW, conn, b"version\r\n", &mut out);
        assert_eq!(progress, Progress::Close);
        assert_eq!(server.resume(NOW, conn, &mut out), Progress::Close);
    }
    assert!(out.is_empty());
}

#[test]
fn what_comes_behind_the_last_request_is_nobodys() {
    let mut server = server();
    let a = server.open(NOW);
    assert_eq!(answers(&mut server, a, b"mn\r\nquit\r\nmn\r\n"), "MN\r\n");
}

#[test]
fn half_a_request_is_kept_and_no_more() {
    let mut server = server();
    let a = server.open(NOW);
    let mut out = Output::new();
    let progress = server.receive(NOW, a, b"mn\r\nset k 0 0 3\r\na", &mut out);
    // The line and what it announces, of which one byte has come.
    assert_eq!(progress, Progress::NeedsInput { at_least: 13 + 5 });
    assert_eq!(&server.connections[&a].input[..], b"set k 0 0 3\r\na");
    assert_eq!(answers(&mut server, a, b"bc\r\nmn\r\n"), "STORED\r\nMN\r\n");
    assert_eq!(server.connections[&a].input.capacity(), 0);
}

/// V3: an announced value is waited for, not reserved; a refused one is not kept as it comes.
#[test]
fn what_is_kept_is_bounded_by_the_largest_request() {
    let mut server = server();
    let a = server.open(NOW);
    for request in [&b"set k 0 0 1000000\r\n"[..], b"add k 0 0 1000000\r\n"] {
        let mut out = Output::new();
        server.receive(NOW, a, request, &mut out);
        for _ in 0..1_000 {
            server.receive(NOW, a, &[b'v'; 1_000], &mut out);
            assert_eq!(server.kept_bytes(a), 0);
        }
        server.receive(NOW, a, b"\r\n", &mut out);
        assert_eq!(answers(&mut server, a, b"mn\r\n"), "MN\r\n");
    }
    let mut out = Output::new();
    let line = [b'k'; 5_000];
    server.receive(NOW, a, b"get ", &mut out);
    while server.receive(NOW, a, &line, &mut out) != Progress::Close {
        assert!(server.kept_bytes(a) <= crate::wire::limits::GET_LINE_BYTES_MAX + line.len());
    }
    assert_eq!(Vec::from(out), b"CLIENT_ERROR line too long\r\n");
}

/// V2.
#[test]
fn an_output_grows_past_its_bound_by_one_reply() {
    let mut server = server().with_out_bytes_max(10);
    let a = server.open(NOW);
    answers(&mut server, a, b"set k 0 0 3\r\nabc\r\n");
    let mut out = Output::new();
    let progress = server.receive(NOW, a, b"mn\r\nmn\r\nget k k\r\nmn\r\n", &mut out);
    assert_eq!(progress, Progress::OutputFull);
    assert_eq!(out.len(), "MN\r\nMN\r\nVALUE k 0 3\r\nabc\r\n".len());
    // Nothing happens as long as it is not sent, and a part of it may be.
    assert_eq!(server.resume(NOW, a, &mut out), Progress::OutputFull);
    out.advance(out.len() - 10);
    assert_eq!(server.resume(NOW, a, &mut out), Progress::OutputFull);
    out.advance(1);
    assert_eq!(server.resume(NOW, a, &mut out), Progress::OutputFull);
    assert_eq!(
        Vec::from(core::mem::take(&mut out)),
        b" 3\r\nabc\r\nVALUE k 0 3\r\nabc\r\nEND\r\n"
    );
    let progress = server.resume(NOW, a, &mut out);
    assert_eq!(progress, Progress::NeedsInput { at_least: 1 });
    assert_eq!(Vec::from(out), b"MN\r\n");
}

/// V3: whoever hands over more than there is room to answer loses the connection.
#[test]
fn more_input_for_a_full_output_closes() {
    let mut server = server().with_out_bytes_max(1);
    let (a, b) = (server.open(NOW), server.open(NOW));
    let mut out = Output::new();
    answers(&mut server, a, b"set k 0 0 1\r\nx\r\nlock k\r\n");
    let progress = server.receive(NOW, a, b"mn\r\nmn\r\n", &mut out);
    assert_eq!(progress, Progress::OutputFull);
    let progress = server.receive(NOW, a, b"mn\r\n", &mut out);
    assert_eq!(progress, Progress::Close);
    assert_eq!(Vec::from(out), b"MN\r\n");
    assert_eq!(answers(&mut server, b, b"lock k\r\n"), "OK\r\n");
}

#[test]
fn items_expire_whether_or_not_there_are_ticks() {
    let mut server = server();
    let a = server.open(NOW);
    answers(&mut server, a, b"set k 0 1 1\r\nx\r\nset l 0 1 1\r\nx\r\n");
    let later = Instant::from_millis(2_000);
    let mut out = Output::new();
    server.receive(later, a, b"get k\r\n", &mut out);
    assert_eq!(Vec::from(out), b"END\r\n");
    let items = |server: &Server| server.machine().store().usage().items;
    assert_eq!(items(&server), 1);
    server.tick(later);
    assert_eq!(items(&server), 0);
}

#[test]
fn a_date_is_read_by_the_wall_clock() {
    let mut server = server();
    let a = server.open(NOW);
    let now = Instant::from_millis(5_000);
    server.set_wall_clock(now, Duration::from_millis(2_000_000_004_600));
    answers(&mut server, a, b"set k 0 2000000060 1\r\nx\r\n");
    let mut out = Output::new();
    server.receive(now, a, b"mg k t\r\n", &mut out);
    // 2,000,000,000 is the second at moment 0, up to half a second.
    assert_eq!(Vec::from(out), b"HD t55\r\n");
}

#[test]
fn a_program_has_commands_of_its_own() {
    let mut server = server();
    let a = server.open(NOW);
    let key = crate::key::Key::new(b"k").unwrap();
    let set = Command::from(crate::command::Set::new(key, b"x"));
    let mine = ConnId::from_number(u64::MAX);
    server.machine_mut().execute(NOW, mine, set);
    assert_eq!(
        answers(&mut server, a, b"get k\r\n"),
        "VALUE k 0 1\r\nx\r\nEND\r\n"
    );
}

/// What a server answers to a conversation of two clients, cut into pieces of the given lengths,
/// and sent in pieces of `sent_bytes`.
fn converse(pieces: &[u8], out_bytes_max: usize, sent_bytes: usize) -> [Vec<u8>; 2] {
    const SAYS: [&[u8]; 2] = [
        b"set a 5 0 3\r\nabc\r\nget a b a\r\nkeys\r\nlock a\r\nset b x 0 4\r\nmn\r\n\r\nmn\r\n",
        b"mg a v t c\r\nms b 2 c\r\nhi\r\nget a b b b a\r\nkeys\r\nstats items\r\nincr a 1\r\nbad\r\n",
    ];
    let mut server = server().with_out_bytes_max(out_bytes_max);
    let mut answers = [vec![], vec![]];
    for (says, answers) in SAYS.iter().zip(&mut answers) {
        let conn = server.open(NOW);
        let (mut rest, mut out) = (*says, Output::new());
        let mut lengths = pieces.iter().cycle();
        while !rest.is_empty() {
            let length = lengths.next().map_or(rest.len(), |n| usize::from(*n) + 1);
            let (arrived, later) = rest.split_at(length.min(rest.len()));
            rest = later;
            let mut progress = server.receive(NOW, conn, arrived, &mut out);
            while !out.is_empty() || progress == Progress::OutputFull {
                let before = Vec::from(out.clone());
                let sent = sent_bytes.min(before.len());
                answers.extend_from_slice(&before[..sent]);
                out.advance(sent);
                if progress == Progress::OutputFull {
                    progress = server.resume(NOW, conn, &mut out);
                }
            }
        }
    }
    answers
}

quickcheck! {
    /// V1.
    fn cuts_do_not_matter(pieces: Vec<u8>, out_bytes_max: u8, sent_bytes: u8) -> bool {
        let sent_bytes = usize::from(sent_bytes) + 1;
        converse(&pieces, out_bytes_max.into(), sent_bytes)
            == converse(&[], usize::MAX, usize::MAX)
    }
}

#[test]
fn the_conversation_has_answers() {
    let [one, two] = converse(&[], usize::MAX, usize::MAX);
    let (one, two) = (
        String::from_utf8(one).unwrap(),
        String::from_utf8(two).unwrap(),
    );
    assert!(
        one.ends_with("OK\r\nCLIENT_ERROR bad command line format\r\nMN\r\n"),
        "{one}"
    );
    assert!(two.starts_with("VA 3 t-1 c1\r\nabc\r\nHD c2\r\n"), "{two}");
    assert!(two.ends_with("ERROR\r\n"), "{two}");
    assert!(two.contains("STAT items:1:number 2\r\n"), "{two}");
}

mod waits;

/// As with `cache_memlimit`, and what is not made for that says so.
#[test]
fn a_machine_limits_its_memory_or_says_that_it_does_not() {
    #[derive(Debug)]
    struct Fixed;
    impl StateMachine for Fixed {
        fn handle(&mut self, _: Instant, _: Event) {}
        fn execute(
            &mut self,
            _: Instant,
            _: ConnId,
            _: Command<'_>,
            answer: &mut dyn FnMut(&Reply<'_>),
        ) {
            answer(&Reply::Ok);
        }
    }
    let limited = b"cache_memlimit 8\r\n";
    let mut server = server();
    let conn = server.open(NOW);
    assert_eq!(answers(&mut server, conn, limited), "OK\r\n");
    assert_eq!(server.machine().limits().memory_bytes_max, 8 << 20);
    let mut fixed = Fixed;
    assert_eq!(fixed.limit_memory(NOW, 8 << 20), Err(MemoryRefused::Fixed));
    assert_eq!((fixed.next_notice(), fixed.next_deadline()), (None, None));
}
