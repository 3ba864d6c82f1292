//! Locks on a server that the test plays.

use futures_lite::future::zip;
use latchd_client_core::{Bound, SHORT_TTL_MIN, TokenValue, wire_key};

use super::*;
use crate::{BoundOptions, Error, Lock, LockOptions, Loss, Retry, Token};

fn token() -> Token {
    Token::new(b"me").unwrap()
}

/// A lease of `k` with the caller's token, which has no place in the queue; and its connection.
fn lease(played: &Played) -> (Lock, Side) {
    let options = LockOptions::new().token(token());
    let obtain = played.client.obtain("k", TTL, &options);
    let (lock, side) = played.first(obtain, &[("ms k", "HD c5"), ("mn H", "MN")]);
    (lock.unwrap(), side)
}

/// As a lock of less than a second, but with enough time for the test.
fn short(played: &Played) -> (Lock, Side) {
    let terms = LockOptions::new().short_terms(TTL, DUE).unwrap();
    let bound = Bound::new(wire_key(b"k").unwrap(), terms);
    let value = TokenValue::new(token(), b"").unwrap();
    let obtain = Lock::obtain_short(&played.client.pool, bound, value);
    let (lock, side) = played.first(obtain, &[("ml k", "HD F3")]);
    (lock.unwrap(), side)
}

fn is_lost<T>(result: Result<T, Error>, why: Option<Loss>) -> bool {
    result.is_err_and(|error| matches!(error.kind(), ErrorKind::NotHeld(loss) if *loss == why))
}

#[test]
fn failed_refresh_is_tried_again() {
    let played = Played::new();
    let (lock, mut side) = lease(&played);
    // The key is locked at that moment, which says nothing about the lease.
    let refused = ("ms k", "LK");
    let refresh = lock.refresh_with(TTL, [Duration::ZERO; 2]);
    let refreshed = side.during(refresh, &[refused, refused, ("ms k", "HD c6")]);
    refreshed.unwrap();
    let refresh = lock.refresh_with(TTL, [Duration::ZERO]);
    let refreshed = side.during(refresh, &[refused, refused]);
    assert!(refreshed.unwrap_err().is_unreachable(), "as the last try");

    // Another try cannot succeed.
    let mut waits = std::iter::repeat_n(Duration::ZERO, 9);
    let impossible = due(lock.refresh_with(Duration::from_millis(1), waits.by_ref()));
    assert!(matches!(
        impossible.unwrap_err().kind(),
        ErrorKind::Terms(_)
    ));
    let refresh = lock.refresh_with(TTL, waits.by_ref());
    let lost = side.during(refresh, &[("ms k", "NF"), ("mg k", "EN")]);
    assert!(is_lost(lost, Some(Loss::Taken)) && waits.len() >= 7);
}

/// A call of a lock is taken when the one before has its reply.
#[test]
fn calls_of_a_lock_wait_their_turn() {
    let played = Played::new();
    let (lock, mut side) = lease(&played);
    let two = zip(lock.refresh(TTL), lock.refresh(TTL));
    let two = side.during(two, &[("ms k", "HD c6"), ("ms k", "HD c7")]);
    two.0.and(two.1).unwrap();
    let two = zip(lock.server_ttl(), lock.server_ttl());
    let two = side.during(two, &[("mg k", "VA 2 c7 t500\r\nme"); 2]);
    two.0.and(two.1).unwrap();
    let two = zip(lock.try_release(), lock.try_release());
    let two = side.during(two, &[("md k", "HD")]);
    assert!(two.0.is_ok() && is_lost(two.1, None));

    let (lock, mut side) = short(&played);
    let two = zip(lock.refresh(TTL), lock.refresh(TTL));
    let two = side.during(two, &[("ml k", "HD F3"); 2]);
    two.0.and(two.1).unwrap();
    let two = zip(lock.server_ttl(), lock.server_ttl());
    let two = side.during(two, &[("mn", "MN"); 2]);
    two.0.and(two.1).unwrap();
    // The shortest ttl is requested; it may be over before the reply.
    let _ = side.during(lock.refresh(SHORT_TTL_MIN), &[("ml k", "HD F3")]);

    let options = BoundOptions::new().heartbeat(None);
    let lock = played.client.lock("k", &options);
    let (lock, mut side) = played.first(lock, &[("ml k", "HD F4")]);
    let lock = lock.unwrap();
    let two = side.during(zip(lock.check(), lock.check()), &[("mn", "MN"); 2]);
    two.0.and(two.1).unwrap();
}

#[test]
fn failure_reaches_the_pending_call() {
    let played = Played::new();
    let (lock, mut side) = short(&played);
    let refused = side.during(lock.refresh(TTL), &[("ml k", "SERVER_ERROR busy")]);
    assert!(matches!(refused.unwrap_err().kind(), ErrorKind::Refused(_)));
    let lost = beside(lock.refresh(TTL), move || side.hear(1)).0;
    assert!(is_lost(lost, Some(Loss::Disconnected)));
    assert!(is_lost(due(lock.refresh(TTL)), Some(Loss::Disconnected)));

    let options = BoundOptions::new();
    let lock = played.client.lock("k", &options);
    let (closed, _) = beside(lock, || played.accept().hear(1));
    let message = closed.unwrap_err().to_string();
    assert!(message.ends_with("the server has closed the connection"));
}

/// Where no queue orders the clients, one that met another holder is late the next time. One that did not is not.
#[test]
fn former_holder_lets_others_go_first() {
    let played = Played::new();
    let client = &played.client;
    let options = |pause| LockOptions::new().retry(Retry::linear(pause)).deadline(TTL);
    let (soon, late) = (options(Duration::from_millis(1)), options(TTL));
    // After that answer to `ml`, no client asks for a place again.
    let turns = [
        ("ms k", "NS c0"),
        ("mn H", "MN"),
        ("ml k", "ERROR"),
        ("ms k", "HD c5"),
    ];
    let (lock, mut side) = played.first(client.obtain("k", TTL, &soon), &turns);
    side.during(lock.unwrap().release(), &[("md k", "HD")])
        .unwrap();
    let mut polite = pin!(client.obtain("k", TTL, &late));
    assert!(block_on(future::poll_once(polite.as_mut())).is_none());
    for _ in 0..2 {
        let lock = side.during(client.obtain("free", TTL, &late), &[("ms free", "HD c6")]);
        side.during(lock.unwrap().release(), &[("md free", "HD")])
            .unwrap();
    }
}

/// A first lease of a key asks for its place. One with the caller's token does not, and is no first one.
#[test]
fn first_lease_of_a_key_asks_for_its_place() {
    let played = Played::new();
    let (lock, mut side) = lease(&played);
    let options = LockOptions::new();
    let second = played.client.obtain("k", TTL, &options);
    let refused = side.during(second, &[("ms k", "NS c0"), ("ml k", "LK")]);
    assert!(refused.unwrap_err().is_not_obtained());
    side.during(lock.release(), &[("md k", "HD")]).unwrap();
}
