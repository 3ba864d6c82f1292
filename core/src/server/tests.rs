//! The contract with a transport.

extern crate std;

mod hold;
mod sessions;

use std::format;
use std::string::String;
use std::vec;
use std::vec::Vec;

use latchd_protocol::command::Command;
use latchd_protocol::reply::{MemoryRefused, Reply};
use quickcheck::quickcheck;

use super::*;
use crate::store::Store;
use crate::{Limits, Owner};

const NOW: Instant = Instant::from_millis(0);
const VALUE_BYTES_MAX: usize = 1 << 10;

fn server() -> Server {
    server_with(|_| {})
}

fn server_with(change: impl FnOnce(&mut WireLimits)) -> Server {
    let mut limits = Limits::new(1 << 20, VALUE_BYTES_MAX);
    limits.scan_items_max = 2;
    let mut wire_limits = WireLimits::from(&limits);
    change(&mut wire_limits);
    let core = Core::new(Config::new(limits, 1_700_000_000));
    Server::with_machine(core, wire_limits)
}

/// The output of all connections so far; `None` for a closed connection.
fn actions(server: &mut Server) -> Vec<(ConnId, Option<String>)> {
    let mut all: Vec<(ConnId, Option<String>)> = vec![];
    loop {
        let action = server.poll();
        server.machine().check();
        match action {
            Action::Send(conn, out) => {
                let sent = String::from_utf8(out.into()).expect("these tests speak text");
                match all.last_mut() {
                    Some((last, Some(before))) if *last == conn => before.push_str(&sent),
                    _ => all.push((conn, Some(sent))),
                }
            }
            Action::Read(_) => {}
            Action::Close(conn) => all.push((conn, None)),
            Action::Wait(_) => return all,
        }
    }
}

/// The next action, unless it is to wait.
fn action(server: &mut Server) -> Option<Action> {
    let action = server.poll();
    action.conn().is_some().then_some(action)
}

/// When the server is to be called if nothing happens.
fn deadline(server: &mut Server) -> Option<Instant> {
    match server.poll() {
        Action::Wait(at) => at,
        action @ (Action::Send(..) | Action::Read(_) | Action::Close(_)) => panic!("{action:?}"),
    }
}

/// The time of the wall clock at `now`.
const fn wall_clock(now: Instant) -> Duration {
    Duration::from_millis(1_700_000_000_000 + now.as_millis())
}

/// The present output for `conn`, which the transport does not send yet.
fn output(server: &mut Server, conn: ConnId) -> String {
    let mut sent = String::new();
    while let Some(action) = action(server) {
        assert_eq!(action.conn(), Some(conn));
        if let Action::Send(_, out) = action {
            server.unsent(conn, out.len());
            sent.push_str(&String::from_utf8(out.into()).expect("these tests speak text"));
        }
    }
    sent
}

/// The whole output for `conn` after `bytes` have arrived from it. No other connection has output.
fn answers_at(server: &mut Server, now: Instant, conn: ConnId, bytes: &[u8]) -> String {
    server.receive(now, conn, bytes);
    let mut sent = String::new();
    for (to, text) in actions(server) {
        assert_eq!(to, conn);
        sent.push_str(&text.unwrap_or_default());
    }
    sent
}

fn answers(server: &mut Server, conn: ConnId, bytes: &[u8]) -> String {
    answers_at(server, NOW, conn, bytes)
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

/// V4, if the transport closes.
#[test]
fn closing_frees_locks() {
    let mut server = server();
    let (a, b) = (server.open(NOW), server.open(NOW));
    answers(&mut server, a, b"set k 0 0 1\r\nx\r\nlock k\r\n");
    server.close(NOW, a);
    assert_eq!(answers(&mut server, b, b"lock k\r\n"), "OK\r\n");
}

/// V4, if the protocol closes, also while the last reply is unsent.
#[test]
fn quit_and_errors_of_framing_close_and_free_locks() {
    let too_long = [b'x'; 3000];
    for last in [&b"quit\r\n"[..], &too_long] {
        let mut server = server();
        let (a, b) = (server.open(NOW), server.open(NOW));
        answers(&mut server, a, b"set k 0 0 1\r\nx\r\nlock k\r\n");
        server.receive(NOW, a, last);
        assert_eq!(server.progress(a), Progress::Close);
        server.receive(NOW, b, b"lock k\r\n");
        let all = actions(&mut server);
        assert!(all.contains(&(a, None)), "{all:?}");
        assert_eq!(all.last(), Some(&(b, Some("OK\r\n".into()))));
    }
}

#[test]
fn an_id_of_no_connection_wants_nothing() {
    let mut server = server();
    let a = server.open(NOW);
    server.close(NOW, a);
    server.close(NOW, a);
    for conn in [a, ConnId::from_number(99)] {
        server.receive(NOW, conn, b"version\r\n");
        server.sent(conn, 1);
        assert_eq!(server.progress(conn), Progress::Close);
        assert!(!server.wants_input(conn));
    }
    assert_eq!(actions(&mut server), []);
}

/// The output of a connection that the transport has closed is dropped.
#[test]
fn no_action_names_a_connection_that_the_transport_has_closed() {
    let mut server = server();
    let (a, b) = (server.open(NOW), server.open(NOW));
    server.receive(NOW, a, b"mn\r\nquit\r\n");
    server.receive(NOW, b, b"mn\r\n");
    server.close(NOW, a);
    assert_eq!(actions(&mut server), [(b, Some("MN\r\n".into()))]);
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
    assert_eq!(answers(&mut server, a, b"mn\r\nset k 0 0 3\r\na"), "MN\r\n");
    // The line, and one byte of the announced value.
    let progress = Progress::NeedsInput { at_least: 13 + 5 };
    assert_eq!(server.progress(a), progress);
    assert_eq!(&server.connections[&a].input[..], b"set k 0 0 3\r\na");
    assert_eq!(answers(&mut server, a, b"bc\r\nmn\r\n"), "STORED\r\nMN\r\n");
    assert_eq!(server.connections[&a].input.capacity(), 0);
}

/// V3: no memory is reserved for an announced value, and a refused value is not collected.
#[test]
fn what_is_kept_is_bounded_by_the_largest_request() {
    let mut server = server();
    let a = server.open(NOW);
    for request in [&b"set k 0 0 1000000\r\n"[..], b"add k 0 0 1000000\r\n"] {
        server.receive(NOW, a, request);
        for _ in 0..1_000 {
            server.receive(NOW, a, &[b'v'; 1_000]);
            assert_eq!(server.kept_bytes(a), 0);
        }
        let answered = answers(&mut server, a, b"\r\nmn\r\n");
        assert!(answered.ends_with("MN\r\n"), "{answered}");
    }
    let line = [b'k'; 5_000];
    server.receive(NOW, a, b"get ");
    while server.progress(a) != Progress::Close {
        server.receive(NOW, a, &line);
        assert!(
            server.kept_bytes(a) <= latchd_protocol::wire::limits::GET_LINE_BYTES_MAX + line.len()
        );
    }
    assert_eq!(output(&mut server, a), "CLIENT_ERROR line too long\r\n");
}

/// V2, and an action says when the transport may read on.
#[test]
fn an_output_grows_past_its_bound_by_one_reply() {
    let mut server = server().with_unsent_bytes_max(10);
    let a = server.open(NOW);
    answers(&mut server, a, b"set k 0 0 3\r\nabc\r\n");
    server.receive(NOW, a, b"mn\r\nmn\r\nget k k\r\nmn\r\n");
    assert_eq!(server.progress(a), Progress::OutputFull);
    assert!(!server.wants_input(a));
    let first = output(&mut server, a);
    assert_eq!(first, "MN\r\nMN\r\nVALUE k 0 3\r\nabc\r\n");
    // Nothing happens until enough of it is sent.
    server.sent(a, first.len() - 10);
    assert_eq!(output(&mut server, a), "");
    server.sent(a, 1);
    let second = output(&mut server, a);
    assert_eq!(second, "VALUE k 0 3\r\nabc\r\nEND\r\n");
    server.sent(a, 9 + second.len());
    let Action::Send(_, last) = server.poll() else {
        panic!("there is one more reply");
    };
    assert_eq!(Vec::from(last), b"MN\r\n");
    assert!(matches!(server.poll(), Action::Read(conn) if conn == a));
    assert!(matches!(server.poll(), Action::Wait(_)));
    assert!(server.wants_input(a));
}

/// V3: a transport that hands over more than the bound of unsent replies allows loses the connection.
#[test]
fn more_input_for_a_full_output_closes() {
    let mut server = server().with_unsent_bytes_max(1);
    let (a, b) = (server.open(NOW), server.open(NOW));
    answers(&mut server, a, b"set k 0 0 1\r\nx\r\nlock k\r\n");
    server.receive(NOW, a, b"mn\r\nmn\r\n");
    server.receive(NOW, a, b"");
    assert_eq!(server.progress(a), Progress::OutputFull);
    server.receive(NOW, a, b"mn\r\n");
    assert_eq!(server.progress(a), Progress::Close);
    assert_eq!(output(&mut server, a), "MN\r\n");
    assert_eq!(answers(&mut server, b, b"lock k\r\n"), "OK\r\n");
}

/// A bound of one connection, and its change.
#[test]
fn a_larger_bound_lets_a_connection_go_on() {
    let mut server = server().with_unsent_bytes_max(0);
    let a = server.open(NOW);
    server.receive(NOW, a, b"mn\r\nmn\r\nmn\r\n");
    assert_eq!(output(&mut server, a), "MN\r\n");
    server.set_unsent_bytes_max(a, 5);
    assert_eq!(output(&mut server, a), "MN\r\n");
    server.set_unsent_bytes_max(a, 100);
    assert_eq!(output(&mut server, a), "MN\r\n");
}

#[test]
fn items_expire_whether_or_not_there_are_ticks() {
    let mut server = server();
    let a = server.open(NOW);
    answers(&mut server, a, b"set k 0 1 1\r\nx\r\nset l 0 1 1\r\nx\r\n");
    let later = Instant::from_millis(2_000);
    assert_eq!(answers_at(&mut server, later, a, b"get k\r\n"), "END\r\n");
    let items = |server: &Server| server.machine().store().usage().items;
    assert_eq!(items(&server), 1);
    server.advance(later, wall_clock(later));
    assert_eq!(items(&server), 0);
}

/// V6: a tick follows each that something has happened before, and no other.
#[test]
fn an_idle_server_waits_for_ever() {
    let at = Instant::from_millis;
    let mut server = server();
    assert_eq!(deadline(&mut server), None);
    let a = server.open(at(100));
    answers_at(&mut server, at(200), a, b"set k 0 1 1\r\nx\r\n");
    for (now, next) in [(449, Some(450)), (450, Some(700)), (700, None), (900, None)] {
        server.advance(at(now), wall_clock(at(now)));
        assert_eq!(deadline(&mut server), next.map(at), "{now}");
    }
    server.close(at(1_000), a);
    assert_eq!(deadline(&mut server), Some(at(1_250)));
}

#[test]
fn a_date_is_read_by_the_wall_clock() {
    let mut server = server();
    let a = server.open(NOW);
    let now = Instant::from_millis(5_000);
    server.advance(now, Duration::from_millis(2_000_000_004_600));
    answers(&mut server, a, b"set k 0 2000000060 1\r\nx\r\n");
    // 2,000,000,000 is the second at moment 0, up to half a second.
    assert_eq!(answers_at(&mut server, now, a, b"mg k t\r\n"), "HD t55\r\n");
}

#[test]
fn a_program_has_commands_of_its_own() {
    let mut server = server();
    let a = server.open(NOW);
    let key = latchd_protocol::key::Key::new(b"k").unwrap();
    let set = Command::from(latchd_protocol::command::Set::new(key, b"x"));
    let mine = ConnId::from_number(u64::MAX);
    server.machine_mut().execute(NOW, mine.into(), &set);
    assert_eq!(
        answers(&mut server, a, b"get k\r\n"),
        "VALUE k 0 1\r\nx\r\nEND\r\n"
    );
}

/// The replies of a server to two clients, whose requests come in pieces of the given lengths. The replies are sent in pieces
/// of `sent_bytes`.
fn converse(pieces: &[u8], unsent_bytes_max: usize, sent_bytes: usize) -> [Vec<u8>; 2] {
    const SAYS: [&[u8]; 2] = [
        b"set a 5 0 3\r\nabc\r\nget a b a\r\nkeys\r\nlock a\r\nset b x 0 4\r\nmn\r\n\r\nmn\r\n",
        b"mg a v t c\r\nms b 2 c\r\nhi\r\nget a b b b a\r\nkeys\r\nstats items\r\nincr a 1\r\nbad\r\n",
    ];
    let mut server = server().with_unsent_bytes_max(unsent_bytes_max);
    let mut answers = [vec![], vec![]];
    for (says, answers) in SAYS.iter().zip(&mut answers) {
        let conn = server.open(NOW);
        let mut rest = *says;
        let mut lengths = pieces.iter().cycle();
        while !rest.is_empty() {
            let length = lengths.next().map_or(rest.len(), |n| usize::from(*n) + 1);
            let (arrived, later) = rest.split_at(length.min(rest.len()));
            rest = later;
            server.receive(NOW, conn, arrived);
            while let Some(action) = action(&mut server) {
                if let Action::Send(_, mut out) = action {
                    server.unsent(conn, out.len());
                    while !out.is_empty() {
                        let sent = sent_bytes.min(out.chunk().len());
                        answers.extend_from_slice(&out.chunk()[..sent]);
                        out.advance(sent);
                        server.sent(conn, sent);
                    }
                }
            }
        }
    }
    answers
}

quickcheck! {
    /// V1.
    fn cuts_do_not_matter(pieces: Vec<u8>, unsent_bytes_max: u8, sent_bytes: u8) -> bool {
        let sent_bytes = usize::from(sent_bytes) + 1;
        converse(&pieces, unsent_bytes_max.into(), sent_bytes)
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

/// As with `cache_memlimit`; a server without this feature says so.
#[test]
fn a_machine_limits_its_memory_or_says_that_it_does_not() {
    #[derive(Debug)]
    struct Fixed;
    impl StateMachine for Fixed {
        fn handle(&mut self, _: Instant, _: Event) {}
        fn execute(
            &mut self,
            _: Instant,
            _: Owner,
            _: &Command<'_>,
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
    assert!(fixed.poll().is_none() && fixed.next_deadline().is_none());
}
