//! Bytes in, answers out.

use latchd_protocol::command::{Get, ItemCommand, Set};
use quickcheck::quickcheck;

use super::*;

fn key() -> Key<'static> {
    Key::new(b"k").unwrap()
}

fn quiet_get<'a>() -> AnyRequest<'a> {
    let flags = Flags::new(&[Flag::Value, Flag::Quiet]).unwrap();
    AnyRequest::meta(Verb::Get, key(), flags)
}

fn gets<'a>() -> AnyRequest<'a> {
    AnyRequest::Classic {
        command: Command::from(Get::new(key())),
        envelope: classic::ClassicEnvelope::Get {
            with_cas: true,
            last: true,
        },
    }
}

fn lock<'a>() -> AnyRequest<'a> {
    AnyRequest::change(ItemCommand::Lock { key: key() })
}

#[test]
fn requests_are_bytes_that_a_server_knows() {
    let mut session = Session::new();
    let mut out = Vec::new();
    session.send(&lock(), &mut out).unwrap();
    session.send(&gets(), &mut out).unwrap();
    session
        .send(&AnyRequest::change(Set::new(key(), b"new")), &mut out)
        .unwrap();
    session.send(&quiet_get(), &mut out).unwrap();
    session.send(&AnyRequest::Noop, &mut out).unwrap();
    assert_eq!(
        out,
        b"lock k\r\ngets k\r\nset k 0 0 3\r\nnew\r\nmg k v q O3\r\nmn\r\n"
    );
}

#[test]
fn answers_end_their_requests_in_order() {
    let mut session = Session::new();
    let mut out = Vec::new();
    session.send(&gets(), &mut out).unwrap();
    session.send(&lock(), &mut out).unwrap();
    let input = b"VALUE k 0 2 7\r\nhi\r\nEND\r\nLOCKED\r\n";
    let value = session.receive(input).unwrap().unwrap();
    assert!(!value.last);
    let rest = &input[value.consumed..];
    let end = session.receive(rest).unwrap().unwrap();
    assert!(end.last && end.ticket == 0);
    let rest = &rest[end.consumed..];
    let locked = session.receive(rest).unwrap().unwrap();
    assert_eq!(locked.ticket, 1);
    assert_eq!(
        locked.answer,
        AnyResponse::Classic(classic::reply::ClassicResponse::Locked)
    );
    assert_eq!(session.pending(), 0);
}

#[test]
fn silence_is_told_by_a_later_number() {
    let mut session = Session::new();
    let mut out = Vec::new();
    for _ in 0..3 {
        session.send(&quiet_get(), &mut out).unwrap();
    }
    session.send(&AnyRequest::Noop, &mut out).unwrap();
    let mut input = &b"VA 2 O1\r\nhi\r\nMN\r\n"[..];
    let mut told = Vec::new();
    while session.pending() > 0 {
        let received = session.receive(input).unwrap().unwrap();
        told.push((received.ticket, received.answer.code()));
        input = &input[received.consumed..];
    }
    assert_eq!(
        told,
        [
            (0, None),
            (1, Some(Code::Value)),
            (2, None),
            (3, Some(Code::Noop))
        ]
    );
}

#[test]
fn unexpected_answers_break_the_session() {
    assert_eq!(Session::new().receive(b"HD\r\n"), Err(Malformed));
    let mut session = Session::new();
    session.send(&lock(), &mut Vec::new()).unwrap();
    assert_eq!(session.receive(b"HD\r\n"), Err(Malformed));
    let mut session = Session::new();
    session.send(&quiet_get(), &mut Vec::new()).unwrap();
    assert_eq!(session.receive(b"HD O7\r\n"), Err(Malformed));
    let mut session = Session::new();
    session.send(&AnyRequest::Noop, &mut Vec::new()).unwrap();
    assert_eq!(session.receive(b"HD\r\n"), Err(Malformed));
}

#[test]
fn an_error_line_answers_any_request_that_is_not_quiet() {
    let mut session = Session::new();
    let flags = Flags::new(&[Flag::Value]).unwrap();
    session
        .send(&AnyRequest::meta(Verb::Get, key(), flags), &mut Vec::new())
        .unwrap();
    let received = session
        .receive(b"SERVER_ERROR out\tof memory\r\n")
        .unwrap()
        .unwrap();
    assert_eq!(
        received.answer.refusal().as_deref(),
        Some("SERVER_ERROR out?of memory")
    );
    session.send(&quiet_get(), &mut Vec::new()).unwrap();
    assert_eq!(session.receive(b"ERROR\r\n"), Err(Malformed));
}

#[test]
fn unmatchable_requests_are_refused() {
    let mut session = Session::new();
    let mut out = Vec::new();
    let noreply = AnyRequest::Classic {
        command: Command::from(Set::new(key(), b"")),
        envelope: classic::ClassicEnvelope::Change { noreply: true },
    };
    assert_eq!(
        session.send(&noreply, &mut out),
        Err(SendError::Inexpressible)
    );
    let blank = AnyRequest::change(ItemCommand::Lock {
        key: Key::new(b"a b").unwrap(),
    });
    assert_eq!(
        session.send(&blank, &mut out),
        Err(SendError::Inexpressible)
    );
    assert_eq!((out.len(), session.pending()), (0, 0));
    for _ in 0..PENDING_MAX {
        session.send(&AnyRequest::Noop, &mut out).unwrap();
    }
    let before = out.len();
    assert_eq!(
        session.send(&AnyRequest::Noop, &mut out),
        Err(SendError::TooMany)
    );
    assert_eq!(out.len(), before);
}

quickcheck! {
    /// However the network cuts the bytes, the answers are the same.
    fn cuts_do_not_matter(cut: usize) -> bool {
        let input = b"VALUE k 0 2 7\r\nhi\r\nEND\r\nVA 2 O1\r\nhi\r\nCLIENT_ERROR no\r\nMN\r\n";
        let read = |arrivals: &[usize]| {
            let mut session = Session::new();
            let mut out = Vec::new();
            let plain = Flags::new(&[Flag::Value]).unwrap();
            for request in [gets(), quiet_get(), AnyRequest::meta(Verb::Get, key(), plain)] {
                session.send(&request, &mut out).unwrap();
            }
            session.send(&AnyRequest::Noop, &mut out).unwrap();
            let mut told = Vec::new();
            let mut start = 0;
            for arrived in arrivals {
                while let Some(received) = session.receive(&input[start..*arrived]).unwrap() {
                    start += received.consumed;
                    told.push((received.ticket, received.last, received.answer));
                }
            }
            assert_eq!(session.pending(), 0);
            told.len()
        };
        let cut = cut % input.len();
        read(&[cut, input.len()]) == read(&[input.len()])
    }

    fn no_bytes_panic(bytes: Vec<u8>) -> bool {
        for request in [gets(), quiet_get(), lock(), AnyRequest::Noop] {
            let mut session = Session::new();
            session.send(&request, &mut Vec::new()).unwrap();
            let _ = session.receive(&bytes);
        }
        true
    }
}

#[test]
fn requests_of_another_session_are_answered() {
    let (mut encoder, mut reader) = (Session::new(), Session::new());
    let key = Key::new(b"k").unwrap();
    let quiet = AnyRequest::meta(Verb::Get, key, Flags::of([Flag::Quiet]));
    assert_eq!(reader.expect(&quiet), Err(SendError::Inexpressible));
    let get = AnyRequest::meta(Verb::Get, key, Flags::of([Flag::Value]));
    for request in [get, AnyRequest::Noop] {
        let mut bytes = Vec::new();
        encoder.send(&request, &mut bytes).unwrap();
        assert_eq!(reader.expect(&request), Ok(()));
    }
    let input = b"VA 1 \r\nx\r\nMN\r\n";
    let first = reader.receive(input).unwrap().unwrap();
    assert_eq!(first.answer.code(), Some(Code::Value));
    let second = reader.receive(&input[first.consumed..]).unwrap().unwrap();
    assert_eq!(second.answer.code(), Some(Code::Noop));
    assert_eq!(reader.pending(), 0);
    for _ in 0..PENDING_MAX {
        reader.expect(&AnyRequest::Noop).unwrap();
    }
    assert_eq!(reader.expect(&AnyRequest::Noop), Err(SendError::TooMany));
}

/// `MN` answers `mn` alone, and an old number belongs to no request.
#[test]
fn wrong_answer_breaks_the_session() {
    let mut session = Session::new();
    let get = AnyRequest::meta(Verb::Get, key(), Flags::new(&[Flag::Value]).unwrap());
    session.send(&get, &mut Vec::new()).unwrap();
    assert_eq!(session.receive(b"MN\r\n"), Err(Malformed));
    let mut session = Session::new();
    for request in [quiet_get(), AnyRequest::Noop, quiet_get(), AnyRequest::Noop] {
        session.send(&request, &mut Vec::new()).unwrap();
    }
    for _ in 0..2 {
        session.receive(b"MN\r\n").unwrap();
    }
    assert_eq!(session.pending(), 2);
    assert_eq!(session.receive(b"HD O0\r\n"), Err(Malformed));
    assert!(session.receive(b"HD O2\r\n").is_ok());
}
