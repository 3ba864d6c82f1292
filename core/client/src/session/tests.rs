//! Bytes in, answers out.

use alloc::vec;

use quickcheck::quickcheck;

use super::*;

fn key() -> Key<'static> {
    Key::new(b"k").unwrap()
}

fn get<'a>() -> AnyRequest<'a> {
    AnyRequest::meta(Verb::Get, key(), [Flag::Value], &[])
}

const STATS: AnyRequest<'_> = AnyRequest::Stats(StatsTopic::General);

#[test]
fn requests_are_bytes_that_a_server_knows() {
    let mut session = Session::new();
    let mut out = Vec::new();
    let set = AnyRequest::meta(Verb::Set, key(), [Flag::ShowCas], b"new");
    for request in [get(), STATS, AnyRequest::FlushAll, set, AnyRequest::Noop] {
        session.send(&request, &mut out).unwrap();
    }
    assert_eq!(
        out,
        b"mg k v\r\nstats\r\nflush_all 0\r\nms k 3 c\r\nnew\r\nmn\r\n"
    );
}

#[test]
fn answers_end_their_requests_in_order() {
    let mut session = Session::new();
    let mut out = Vec::new();
    session.send(&STATS, &mut out).unwrap();
    session.send(&AnyRequest::FlushAll, &mut out).unwrap();
    let input = b"STAT pid 7\r\nEND\r\nOK\r\n";
    let value = session.receive(input).unwrap().unwrap();
    assert!(!value.last);
    let rest = &input[value.consumed..];
    let end = session.receive(rest).unwrap().unwrap();
    assert!(end.last);
    let rest = &rest[end.consumed..];
    let flushed = session.receive(rest).unwrap().unwrap();
    assert_eq!(
        flushed.answer,
        AnyResponse::Classic(classic::reply::ClassicResponse::Ok)
    );
    assert_eq!(session.pending(), 0);
}

#[test]
fn unexpected_answers_break_the_session() {
    assert_eq!(Session::new().receive(b"HD\r\n"), Err(Malformed));
    for (request, answer) in [
        (AnyRequest::FlushAll, &b"HD\r\n"[..]),
        (AnyRequest::Noop, b"HD\r\n"),
        (get(), b"MN\r\n"),
        (get(), b"STORED\r\n"),
    ] {
        let mut session = Session::new();
        session.send(&request, &mut Vec::new()).unwrap();
        assert_eq!(session.receive(answer), Err(Malformed), "{request:?}");
    }
}

#[test]
fn an_error_line_answers_any_request() {
    for request in [get(), STATS, AnyRequest::FlushAll, AnyRequest::Noop] {
        let mut session = Session::new();
        session.send(&request, &mut Vec::new()).unwrap();
        let received = session.receive(b"SERVER_ERROR out\tof memory\r\n");
        let received = received.unwrap().unwrap();
        assert_eq!(
            received.answer.refusal().as_deref(),
            Some("SERVER_ERROR out?of memory")
        );
        assert!(received.last);
    }
}

#[test]
fn unanswered_requests_have_a_bound() {
    let (mut session, mut out) = (Session::new(), Vec::new());
    for _ in 0..PENDING_MAX {
        session.send(&AnyRequest::Noop, &mut out).unwrap();
    }
    let before = out.len();
    assert_eq!(session.send(&AnyRequest::Noop, &mut out), Err(SendError));
    assert_eq!(out.len(), before);
}

quickcheck! {
    /// However the network cuts the bytes, the answers are the same.
    fn cuts_do_not_matter(cut: usize) -> bool {
        let input = b"STAT pid 7\r\nEND\r\nVA 2\r\nhi\r\nCLIENT_ERROR no\r\nMN\r\n";
        let read = |arrivals: &[usize]| {
            let mut session = Session::new();
            for request in [STATS, get(), get(), AnyRequest::Noop] {
                session.send(&request, &mut Vec::new()).unwrap();
            }
            let mut told = Vec::new();
            let mut start = 0;
            for arrived in arrivals {
                while let Some(received) = session.receive(&input[start..*arrived]).unwrap() {
                    start += received.consumed;
                    told.push((received.last, received.answer));
                }
            }
            assert_eq!(session.pending(), 0);
            told.len()
        };
        let cut = cut % input.len();
        read(&[cut, input.len()]) == read(&[input.len()])
    }

    fn no_bytes_panic(bytes: Vec<u8>) -> bool {
        for request in [get(), STATS, AnyRequest::FlushAll, AnyRequest::Noop] {
            let mut session = Session::new();
            session.send(&request, &mut Vec::new()).unwrap();
            let _ = session.receive(&bytes);
        }
        true
    }
}

#[test]
fn requests_of_another_session_are_answered() {
    let (mut sender, mut reader, mut out) = (Session::new(), Session::new(), Vec::new());
    let encoded = reader.encode(&[get(), AnyRequest::Noop]).unwrap();
    sender.send(&AnyRequest::FlushAll, &mut out).unwrap();
    sender
        .send(&AnyRequest::Encoded(&encoded), &mut out)
        .unwrap();
    assert_eq!(out, b"flush_all 0\r\nmg k v\r\nmn\r\n");
    assert_eq!(sender.pending(), 3);
    let input = b"VA 1 \r\nx\r\nMN\r\n";
    let first = reader.receive(input).unwrap().unwrap();
    assert_eq!(first.answer.code(), Some(Code::Value));
    let second = reader.receive(&input[first.consumed..]).unwrap().unwrap();
    assert_eq!(second.answer.code(), Some(Code::Noop));
    assert_eq!(reader.pending(), 0);
    let most = reader.encode(&vec![AnyRequest::Noop; PENDING_MAX]).unwrap();
    let sent = sender.send(&AnyRequest::Encoded(&most), &mut out);
    assert_eq!(sent, Err(SendError));
}
