//! Locks on a server that the test plays.

use futures_lite::future::zip;

use super::*;
use crate::{Error, Lock, LockOptions, Loss, Token};

/// The turns of the first call that locks: the client asks what the server is.
const LATCHD: &[(&str, &str)] = &[("mo ", "NF"), ("mn", "MN")];
const MEMCACHED: &[(&str, &str)] = &[("mo ", "ERROR"), ("mn", "MN")];

/// A lock of `k` with these options, and its connection.
fn lock_of(
    played: &Played,
    options: &LockOptions,
    kind: &[(&str, &str)],
    turns: &[(&str, &str)],
) -> (Lock, Side) {
    let (lock, (_, own)) = beside(played.client.try_lock("k", options), || {
        let mut shared = played.accept();
        shared.play(kind);
        let mut own = played.accept();
        own.play(turns);
        (shared, own)
    });
    (lock.unwrap(), own)
}

/// Options of a lock that the server renews at no time of the test.
fn options() -> LockOptions {
    LockOptions::new().token(Token::new(b"me").unwrap())
}

fn is_lost<T>(result: Result<T, Error>, why: Option<Loss>) -> bool {
    result.is_err_and(|error| matches!(error.kind(), ErrorKind::NotHeld(loss) if *loss == why))
}

/// A call of a lock is taken when the one before has its reply.
#[test]
fn calls_of_a_lock_wait_their_turn() {
    let played = Played::new();
    let options = options().survive(TTL).manual();
    let (lock, mut side) = lock_of(&played, &options, MEMCACHED, &[("ms k", "HD c5")]);
    let two = zip(lock.refresh(TTL), lock.refresh(TTL));
    let two = side.during(two, &[("ms k", "HD c6"), ("ms k", "HD c7")]);
    two.0.and(two.1).unwrap();
    let two = zip(lock.server_ttl(), lock.server_ttl());
    let two = side.during(two, &[("mg k", "VA 2 c7 t500\r\nme"); 2]);
    two.0.and(two.1).unwrap();
    let two = side.during(zip(lock.release(), lock.release()), &[("md k", "HD")]);
    two.0.and(two.1).unwrap();
    assert!(is_lost(due(lock.check()), None));
}

/// A server without memory may have removed the item, so the client asks.
#[test]
fn refused_refresh_leaves_the_lock() {
    let played = Played::new();
    let options = options().survive(TTL).manual();
    let (lock, mut side) = lock_of(&played, &options, MEMCACHED, &[("ms k", "HD c5")]);
    let refused = side.during(lock.refresh(TTL), &[("ms k", "SERVER_ERROR out of memory")]);
    let error = refused.unwrap_err();
    assert!(!error.is_not_held(), "{error}");
    let asked = ("mg k", "VA 2 c5 t500\r\nme");
    side.during(lock.refresh(TTL), &[asked, ("ms k", "HD c6")])
        .unwrap();
    assert!(lock.is_held());
    let lost = side.during(lock.refresh(TTL), &[("ms k", "NF"), ("mg k", "EN")]);
    assert!(is_lost(lost, Some(Loss::Taken)) && !lock.is_held());
}

#[test]
fn failure_reaches_the_pending_call() {
    let played = Played::new();
    let options = LockOptions::new().survive(Duration::ZERO);
    let (lock, mut side) = lock_of(&played, &options, LATCHD, &[("ml k", "HD F3")]);
    let refused = side.during(lock.check(), &[("ml k", "SERVER_ERROR busy")]);
    assert!(matches!(refused.unwrap_err().kind(), ErrorKind::Refused(_)));
    let lost = beside(lock.check(), move || side.hear(1)).0;
    assert!(is_lost(lost, Some(Loss::Disconnected)));
    assert!(is_lost(due(lock.check()), Some(Loss::Disconnected)));

    let (closed, _) = beside(played.client.try_lock("k", &options), || {
        // The first connection may have been closed for another reason.
        [(); 2].map(|()| played.accept().hear(1))
    });
    let message = closed.unwrap_err().to_string();
    assert!(message.ends_with("the server has closed the connection"));
}

/// What one task holds, another one of the same client does not get, and no request tells the server so.
#[test]
fn tasks_of_one_client_exclude_each_other() {
    let played = Played::new();
    let options = options().survive(TTL).manual();
    let (lock, mut side) = lock_of(&played, &options, MEMCACHED, &[("ms k", "HD c5")]);
    let second = due(played.client.try_lock("k", &options));
    assert!(second.unwrap_err().is_not_obtained());
    side.during(lock.release(), &[("md k", "HD")]).unwrap();
    let third = side.during(played.client.try_lock("k", &options), &[("ms k", "HD c9")]);
    let third = third.unwrap();
    side.during(third.release(), &[("md k", "HD")]).unwrap();
}
