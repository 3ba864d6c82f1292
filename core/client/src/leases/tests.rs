//! Locks on memcached against a server of a few lines, every message by hand.

extern crate std;

use alloc::string::String;
use alloc::vec::Vec;

use super::*;
use crate::lock::{LeaseTerms, LockItem, LockState};
use crate::machine::{Failure, Loss};
use crate::{AnyRequest, Session, Token, TokenValue};

const ADD: &str = "ms k 2 ME F1818583411 T5 c me";
const ASK: &str = "mg k v c t f";
const MINE: &str = "VA 2 c9 t4 f1818583411|me";
const OTHERS: &str = "VA 3 c9 t4 f1818583411|mee";

const fn at(ms: u64) -> Instant {
    Instant::from_millis(ms)
}

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn terms(renews: bool, hold_max: Option<Duration>) -> LockTerms {
    let token = Token::new(b"me").unwrap();
    LockTerms {
        lease: Some(LeaseTerms {
            ttl: ms(3_000),
            renews,
            hold_max,
        }),
        item: Some(LockItem {
            value: TokenValue::new(token, b""),
            ttl: ms(3_000),
            own_token: false,
        }),
        ..LockTerms::new()
    }
}

fn asked(terms: LockTerms) -> (Leases, LockId) {
    let mut leases = Leases::new(ms(5_000));
    leases.connected(at(0));
    let id = leases.acquire(at(0), Key::new(b"k").unwrap(), terms, None);
    (leases, id)
}

fn held_by(terms: LockTerms) -> (Leases, LockId) {
    let (mut leases, id) = asked(terms);
    assert_eq!(play(&mut leases, 0, &[]), [ADD]);
    assert_eq!(hear(&mut leases, 10, "HD c7"), ["Obtained"]);
    (leases, id)
}

/// A lock that is renewed by the caller.
fn held() -> (Leases, LockId) {
    held_by(terms(false, None))
}

fn is_held(leases: &Leases, id: LockId, ms: u64) -> bool {
    leases
        .belief(id)
        .is_some_and(|own| own.is_certain && own.until.is_some_and(|until| at(ms) < until))
}

/// Answers its requests in their order until the answers are used up or it waits. Returns its actions.
fn play(leases: &mut Leases, ms: u64, answers: &[&str]) -> Vec<String> {
    let mut answers = answers.iter();
    let mut done = Vec::new();
    loop {
        match leases.poll(at(ms)) {
            Action::Send(request) => {
                let mut out = Vec::new();
                Session::new().send(&request, &mut out).unwrap();
                let text = String::from_utf8(out).unwrap().replace("\r\n", " ");
                done.push(text.trim().into());
                let Some(answer) = answers.next() else {
                    return done;
                };
                say(leases, ms, answer);
            }
            Action::Tell((_, news)) => done.push(std::format!("{news:?}")),
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
                return done;
            }
        }
    }
}

/// The server answers the oldest request.
fn say(leases: &mut Leases, ms: u64, answer: &str) {
    let mut session = Session::new();
    let verb = latchd_protocol::wire::meta::Verb::Get;
    let any = AnyRequest::meta(verb, Key::new(b"k").unwrap(), [], &[]);
    session.send(&any, &mut Vec::new()).unwrap();
    let input = answer.replace('|', "\r\n") + "\r\n";
    let received = session.receive(input.as_bytes()).unwrap().unwrap();
    leases.reply(at(ms), &received.answer);
}

fn hear(leases: &mut Leases, ms: u64, answer: &str) -> Vec<String> {
    say(leases, ms, answer);
    play(leases, ms, &[])
}

fn wakes(leases: &mut Leases, ms: u64) -> Option<u64> {
    match leases.poll(at(ms)) {
        Action::Wait { until } => until.map(Instant::as_millis),
        other @ (Action::Tell(_)
        | Action::Send(_)
        | Action::Connect { .. }
        | Action::Disconnect) => {
            panic!("{other:?}")
        }
    }
}

fn break_at(leases: &mut Leases, ms: u64) {
    leases.disconnected(at(ms));
    assert_eq!(play(leases, ms, &[]), ["connect"]);
    leases.connected(at(ms));
}

#[test]
fn a_lease_lasts_a_ttl_from_the_request() {
    let (leases, id) = held();
    assert!(is_held(&leases, id, 2_999) && !is_held(&leases, id, 3_000));
}

#[test]
fn a_late_answer_is_renewed_before_belief() {
    let (mut leases, id) = asked(terms(false, None));
    play(&mut leases, 0, &[]);
    let renew = "ms k 2 C7 F1818583411 T5 c me";
    assert_eq!(hear(&mut leases, 3_000, "HD c7"), [renew]);
    assert!(!is_held(&leases, id, 3_000));
    assert_eq!(hear(&mut leases, 3_001, "HD c8"), ["Obtained"]);
    assert!(is_held(&leases, id, 5_999) && !is_held(&leases, id, 6_000));
}

#[test]
fn an_item_shows_its_holder() {
    let (mut leases, id) = asked(terms(false, None));
    let theirs = "VA 9 c9 t4 f1818583411|other abc";
    let done = play(&mut leases, 0, &["NS c0", theirs]);
    assert_eq!(done[..2], [ADD, ASK]);
    let state = LockState {
        left: Some(ms(4_000)),
        token: Some(b"other"[..].into()),
        metadata: Some(b"abc"[..].into()),
        ..LockState::default()
    };
    assert_eq!(done[2], std::format!("{:?}", LockNews::Held(state)));
    assert!(!leases.knows(id));
}

#[test]
fn an_item_without_a_time_is_no_lock() {
    let told = |item| play(&mut asked(terms(false, None)).0, 0, &["NS c0", item])[2].clone();
    assert_eq!(told("VA 4 c9 t-1 f0|idle"), "HasValue");
    assert!(told("VA 1 c9 t60 f0|1").starts_with("Obstructed("));
    // A recipe may store a lock without a time.
    assert!(told("VA 1 c9 t-1 f1818583411|1").starts_with("Held("));
}

#[test]
fn an_item_that_vanishes_is_added_again() {
    let (mut leases, _) = asked(terms(false, None));
    let answers = ["NS c0", "EN", "NS c0", "EN", "NS c0", "EN"];
    let done = play(&mut leases, 0, &answers);
    assert_eq!(done[..6], [ADD, ASK, ADD, ASK, ADD, ASK]);
    assert!(done[6].starts_with("Held("), "{done:?}");
}

#[test]
fn the_watchdog_renews_at_a_third() {
    let (mut leases, id) = held_by(terms(true, None));
    assert_eq!(wakes(&mut leases, 999), Some(1_000));
    let renew = "ms k 2 C7 F1818583411 T5 c me";
    assert_eq!(play(&mut leases, 1_000, &["HD c8"]), [renew]);
    assert!(is_held(&leases, id, 3_999) && !is_held(&leases, id, 4_000));
}

#[test]
fn refused_renewals_pause_and_cost_the_lease_in_time() {
    let (mut leases, id) = held_by(terms(true, None));
    let (mut now, mut asked, mut pauses) = (1_000, 0, Vec::new());
    while let Some(next) = {
        let done = play(&mut leases, now, &["SERVER_ERROR no", "SERVER_ERROR no"]);
        asked += done.len();
        (!done.contains(&"Lost(Expired)".into())).then(|| wakes(&mut leases, now).unwrap())
    } {
        pauses.push(next - now);
        now = next;
    }
    assert_eq!((now, pauses), (3_000, [100, 200, 400, 800, 500].into()));
    assert!(asked < 10 && !is_held(&leases, id, now), "{asked}");
}

#[test]
fn a_refresh_lasts_and_a_refused_one_changes_nothing() {
    let (mut leases, id) = held();
    leases.refresh(at(100), id, ms(9_000));
    let renew = "ms k 2 C7 F1818583411 T11 c me";
    assert_eq!(
        play(&mut leases, 100, &["HD c8"]),
        [renew, "Confirmed(None)"]
    );
    assert!(is_held(&leases, id, 9_099));
    let (mut leases, id) = held_by(terms(true, None));
    leases.refresh(at(100), id, ms(9_000));
    let done = play(&mut leases, 100, &["SERVER_ERROR no"]);
    assert!(done[1].starts_with("Undone("), "{done:?}");
    assert_eq!(
        play(&mut leases, 200, &[MINE, "HD c10"])[1],
        "ms k 2 C9 F1818583411 T5 c me"
    );
}

#[test]
fn a_check_tells_the_time_that_is_left() {
    let (mut leases, id) = held();
    leases.check(at(100), id);
    assert_eq!(
        play(&mut leases, 100, &[MINE]),
        [ASK, "Confirmed(Some(4s))"]
    );
    leases.check(at(200), id);
    assert_eq!(play(&mut leases, 200, &[OTHERS]), [ASK, "Lost(Taken)"]);
    leases.check(at(300), id);
    assert_eq!(play(&mut leases, 300, &[]), ["NotHeld"]);
}

#[test]
fn a_release_removes_its_own_version() {
    let (mut leases, id) = held();
    leases.release(at(50), id);
    assert!(!is_held(&leases, id, 50));
    assert_eq!(play(&mut leases, 50, &["HD"]), ["md k C7", "Released"]);
    assert!(!leases.knows(id));
    let (mut leases, id) = held();
    leases.release(at(50), id);
    assert_eq!(
        play(&mut leases, 50, &["EX", OTHERS]),
        ["md k C7", ASK, "NotHeld"]
    );
}

#[test]
fn a_lost_reply_to_an_add_is_asked_for() {
    let (mut leases, id) = asked(terms(false, None));
    play(&mut leases, 0, &[]);
    break_at(&mut leases, 100);
    let renew = "ms k 2 C9 F1818583411 T5 c me";
    assert_eq!(
        play(&mut leases, 100, &[MINE, "HD c10"]),
        [ASK, renew, "Obtained"]
    );
    assert!(is_held(&leases, id, 3_099));
    let (mut leases, _) = asked(terms(false, None));
    play(&mut leases, 0, &[]);
    break_at(&mut leases, 100);
    assert!(play(&mut leases, 100, &[OTHERS])[1].starts_with("Held("));
}

#[test]
fn a_server_that_cannot_be_reached_is_an_error() {
    let mut leases = Leases::new(ms(5_000));
    leases.acquire(at(0), Key::new(b"k").unwrap(), terms(false, None), None);
    assert_eq!(play(&mut leases, 0, &[]), ["connect"]);
    leases.disconnected(at(1));
    assert_eq!(
        play(&mut leases, 1, &[]),
        ["Failed(Disconnected)", "NotHeld"]
    );
    // Two connections in a row are closed without an answer.
    let (mut leases, _) = asked(terms(false, None));
    play(&mut leases, 0, &[]);
    break_at(&mut leases, 1);
    assert_eq!(play(&mut leases, 1, &[]), [ASK]);
    leases.disconnected(at(2));
    // The item may be there: it is removed as soon as the server is reached.
    assert_eq!(
        play(&mut leases, 2, &[]),
        ["Failed(Disconnected)", "connect"]
    );
    leases.connected(at(3));
    assert_eq!(
        play(&mut leases, 3, &[MINE, "HD"]),
        [ASK, "md k C9", "Released"]
    );
}

#[test]
fn a_broken_connection_leaves_a_lease_in_doubt() {
    let (mut leases, id) = held_by(terms(true, None));
    leases.disconnected(at(100));
    assert!(!is_held(&leases, id, 100));
    assert_eq!(play(&mut leases, 100, &[]), ["connect"]);
    leases.connected(at(200));
    let renew = "ms k 2 C9 F1818583411 T5 c me";
    assert_eq!(play(&mut leases, 200, &[MINE]), [ASK, renew]);
    assert!(is_held(&leases, id, 200));
    let (mut leases, _) = held_by(terms(true, None));
    break_at(&mut leases, 100);
    assert_eq!(play(&mut leases, 200, &["EN"]), [ASK, "Lost(Taken)"]);
}

#[test]
fn a_manual_lease_is_not_prolonged_by_a_break() {
    let (mut leases, id) = held();
    break_at(&mut leases, 1_000);
    assert_eq!(play(&mut leases, 1_000, &[MINE]), [ASK]);
    assert!(is_held(&leases, id, 2_999) && !is_held(&leases, id, 3_000));
}

#[test]
fn a_lost_reply_to_a_release_is_asked_for() {
    let (mut leases, id) = held();
    leases.release(at(50), id);
    assert_eq!(play(&mut leases, 50, &[]), ["md k C7"]);
    assert_eq!(play(&mut leases, 5_050, &[]), ["disconnect"]);
    let (mut leases, id) = held_by(terms(true, None));
    leases.release(at(50), id);
    play(&mut leases, 50, &[]);
    break_at(&mut leases, 100);
    assert_eq!(play(&mut leases, 100, &["EN"]), [ASK, "Released"]);
    // The link was dead, and the server has not heard of the release.
    let (mut leases, id) = held_by(terms(true, None));
    leases.release(at(50), id);
    play(&mut leases, 50, &[]);
    break_at(&mut leases, 100);
    leases.release(at(150), id);
    assert_eq!(
        play(&mut leases, 150, &[MINE, "HD"]),
        [ASK, "md k C9", "Released"]
    );
}

#[test]
fn a_release_that_cannot_be_made_ends_with_the_item() {
    let (mut leases, id) = held();
    leases.release(at(50), id);
    leases.disconnected(at(60));
    assert_eq!(play(&mut leases, 60, &[]), ["connect"]);
    // T5, and a second for a server's clock.
    assert_eq!(play(&mut leases, 5_999, &[]), ["connect"]);
    assert_eq!(play(&mut leases, 6_000, &[]), ["NotHeld"]);
}

#[test]
fn a_lost_lease_is_released() {
    let (mut leases, _) = held();
    assert_eq!(
        play(&mut leases, 3_000, &["HD"]),
        ["Lost(Expired)", "md k C7", "Released"]
    );
    let (mut leases, id) = held_by(terms(true, Some(ms(1_500))));
    play(&mut leases, 1_000, &["HD c8"]);
    assert!(is_held(&leases, id, 1_509));
    assert_eq!(
        play(&mut leases, 1_510, &["HD"]),
        ["Lost(HeldTooLong)", "md k C8", "Released"]
    );
}

#[test]
fn a_chosen_token_takes_its_own_item_over() {
    let mut own = terms(false, None);
    if let Some(item) = &mut own.item {
        item.own_token = true;
    }
    let (mut leases, _) = asked(own.clone());
    let renew = "ms k 2 C9 F1818583411 T5 c me";
    assert_eq!(
        play(&mut leases, 0, &["NS c0", MINE, "HD c10"]),
        [ADD, ASK, renew, "Obtained"]
    );
    own.is_adopted = true;
    let (mut leases, _) = asked(own.clone());
    assert_eq!(
        play(&mut leases, 0, &[MINE, "HD c10"]),
        [ASK, renew, "Obtained"]
    );
    let (mut leases, _) = asked(own);
    assert_eq!(play(&mut leases, 0, &["EN"]), [ASK, "NotHeld"]);
}

#[test]
fn an_abandoned_obtain_removes_its_item() {
    let (mut leases, id) = asked(terms(false, None));
    play(&mut leases, 0, &[]);
    leases.abandon(at(1), id);
    assert_eq!(hear(&mut leases, 2, "HD c7"), ["md k C7"]);
    assert_eq!(hear(&mut leases, 3, "HD"), ["Released"]);
    let (mut leases, id) = asked(terms(false, None));
    leases.abandon(at(0), id);
    assert_eq!(play(&mut leases, 1, &[]), ["NotHeld"]);
    leases.close();
    assert!(leases.is_over());
}

#[test]
fn a_refused_obtain_is_told_with_the_reply() {
    let (mut leases, _) = asked(terms(false, None));
    let done = play(&mut leases, 0, &["SERVER_ERROR object too large for cache"]);
    assert_eq!(
        done[1..],
        [
            "Failed(Refused(\"SERVER_ERROR object too large for cache\"))",
            "NotHeld"
        ]
    );
    let failure = Failure::Disconnected;
    assert_ne!(LockNews::Failed(failure), LockNews::Lost(Loss::Taken));
}

#[test]
fn many_leases_share_the_connection() {
    let mut leases = Leases::new(ms(5_000));
    leases.connected(at(0));
    for key in [&b"a"[..], b"b", b"c"] {
        leases.acquire(at(0), Key::new(key).unwrap(), terms(true, None), None);
    }
    let sent = ["ms a", "ms b", "ms c"].map(|start| {
        let Action::Send(request) = leases.poll(at(0)) else {
            panic!("{start}");
        };
        let mut out = Vec::new();
        Session::new().send(&request, &mut out).unwrap();
        out.starts_with(start.as_bytes())
    });
    assert_eq!(sent, [true; 3]);
    assert_eq!(hear(&mut leases, 1, "HD c1"), ["Obtained"]);
    assert_eq!(hear(&mut leases, 1, "HD c2"), ["Obtained"]);
    assert_eq!(hear(&mut leases, 1, "HD c3"), ["Obtained"]);
    leases.disconnected(at(2));
    assert_eq!(play(&mut leases, 2, &[]), ["connect"]);
}
