//! Locks on latchd against a server of a few lines, every message by hand. The model has a real one.

extern crate std;

use alloc::string::String;
use alloc::vec::Vec;

mod clusters;
mod in_session;
mod items;
mod on_connection;

use latchd_protocol::key::Key;

use super::*;
use crate::lock::{LeaseTerms, LockItem};
use crate::{Session, Token, TokenValue};

const OPEN: &str = "mo 0707070707070707070707070707070700000000 T30";
const RESUME: &str = "mo 0707070707070707070707070707070700000000 T30 x";
const END: &str = "mo 0707070707070707070707070707070700000000 T0";

const fn at(ms: u64) -> Instant {
    Instant::from_millis(ms)
}

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn key(key: &str) -> Key<'_> {
    Key::new(key.as_bytes()).unwrap()
}

fn owner(session: Option<Duration>) -> OwnerTerms {
    OwnerTerms {
        session: session.map(|ttl| SessionTerms::new([7; 16], ttl).unwrap()),
        heartbeat: Duration::from_secs(5),
        reply_timeout: Duration::from_secs(5),
        seed: 0,
    }
}

/// A machine with a connection, in a session of 30 s.
fn in_session() -> Grants {
    connected(owner(Some(Duration::from_secs(30))))
}

/// A machine with a connection, without a session.
fn on_connection() -> Grants {
    connected(owner(None))
}

fn connected(terms: OwnerTerms) -> Grants {
    let mut grants = Grants::new(terms);
    grants.connected(at(0));
    grants
}

/// A machine that holds `k` by grant 7.
fn held(mut grants: Grants, terms: LockTerms) -> (Grants, LockId) {
    let id = grants.acquire(at(0), key("k"), terms, None);
    let opens = grants.is_in_session();
    let answers = if opens {
        &["HD n9 N", "HD F7"][..]
    } else {
        &["HD F7"]
    };
    let done = play(&mut grants, 0, answers);
    assert_eq!(done.last().unwrap(), "0 Obtained");
    (grants, id)
}

fn leased(ttl: Duration, renews: bool, hold_max: Option<Duration>) -> LockTerms {
    LockTerms {
        lease: Some(LeaseTerms {
            ttl,
            renews,
            hold_max,
        }),
        ..LockTerms::new()
    }
}

/// Answers its requests in their order until the answers are used up or it waits. Returns its actions.
fn play(grants: &mut Grants, ms: u64, answers: &[&str]) -> Vec<String> {
    let mut answers = answers.iter();
    let mut done = Vec::new();
    let mut asked: VecDeque<Session> = VecDeque::new();
    loop {
        match grants.poll(at(ms)) {
            Action::Send(request) => {
                let mut session = Session::new();
                let mut out = Vec::new();
                session.send(&request, &mut out).unwrap();
                let text = String::from_utf8(out).unwrap().replace("\r\n", " ");
                done.push(text.trim().into());
                asked.push_back(session);
            }
            Action::Tell((id, news)) => done.push(std::format!("{} {news:?}", id.0)),
            Action::Connect { .. } => {
                done.push("connect".into());
                return done;
            }
            Action::Disconnect => {
                done.push("disconnect".into());
                return done;
            }
            Action::Wait { until } => {
                assert!(
                    until.is_none_or(|until| until > at(ms)),
                    "it waits for the past"
                );
                let (Some(session), Some(answer)) = (asked.front_mut(), answers.next()) else {
                    return done;
                };
                let input = answer.replace('|', "\r\n") + "\r\n";
                let received = session.receive(input.as_bytes()).unwrap().unwrap();
                grants.reply(at(ms), &received.answer);
                asked.pop_front();
            }
        }
    }
}

/// The server answers the oldest request that is under way since an earlier call of [`play`].
fn hear(grants: &mut Grants, ms: u64, request: &str, answer: &str) -> Vec<String> {
    let mut session = Session::new();
    let request = match request.get(..2) {
        Some("mo") => {
            let session = grants.session.as_ref().unwrap();
            session.attach(false)
        }
        Some("mn") => AnyRequest::Hold,
        _ => AnyRequest::meta(latchd_protocol::wire::meta::Verb::Get, key("k"), [], &[]),
    };
    session.send(&request, &mut Vec::new()).unwrap();
    let input = answer.replace('|', "\r\n") + "\r\n";
    let received = session.receive(input.as_bytes()).unwrap().unwrap();
    let answer = received.answer;
    grants.reply(at(ms), &answer);
    play(grants, ms, &[])
}

/// When its next action by time alone is due.
fn wakes(grants: &mut Grants, ms: u64) -> Option<u64> {
    match grants.poll(at(ms)) {
        Action::Wait { until } => until.map(Instant::as_millis),
        other @ (Action::Tell(_)
        | Action::Send(_)
        | Action::Connect { .. }
        | Action::Disconnect) => {
            panic!("{other:?}")
        }
    }
}
