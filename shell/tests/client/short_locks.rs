//! Locks of less than a second: bound locks of a latchd, with a lease in milliseconds.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use latchd_client::{
    Client, ClientOptions, ErrorKind, Feature, LockOptions, Loss, Retry, TermsError, random_token,
};

use crate::support::{DUE, Proxy, Started, eventually};
use smol::block_on;

const TTL: Duration = Duration::from_millis(250);

fn client(server: &Started) -> Client {
    Client::new(&server.address(), ClientOptions::new()).unwrap()
}

fn once() -> LockOptions {
    LockOptions::new()
}

fn waiting() -> LockOptions {
    once().wait(DUE, Duration::from_millis(20))
}

#[test]
fn it_is_held_refreshed_measured_and_released() {
    let server = Started::latchd();
    let (one, other) = (client(&server), client(&server));
    block_on(async {
        let lock = one.obtain("k", TTL, &once()).await.unwrap();
        assert!(lock.is_held() && lock.remaining() <= TTL);
        assert!(lock.server_ttl().await.unwrap() <= TTL);
        let refused = other.obtain("k", TTL, &once()).await.unwrap_err();
        assert!(refused.is_not_obtained(), "{refused}");
        lock.refresh(Duration::from_millis(800)).await.unwrap();
        assert!(lock.remaining() > TTL);
        let number = lock.number();
        lock.release().await.unwrap();
        let next = other.obtain("k", TTL, &once()).await.unwrap();
        assert!(next.number() > number);
        next.release().await.unwrap();
    });
    // It was the key's lock, and no item.
    assert_eq!(server.ask("get k\r\n", "END\r\n"), "END\r\n");
}

#[test]
fn a_lost_lock_is_noticed_by_renewal() {
    let server = Started::latchd();
    let (one, other) = (client(&server), client(&server));
    block_on(async {
        let kept = one.obtain("kept", TTL, &once()).await.unwrap();
        let left = one.obtain("left", TTL, &once().without_watchdog()).await;
        let left = left.unwrap();
        assert_eq!(left.lost().await, Loss::Expired);
        assert!(!left.is_held());
        let next = other.obtain("left", TTL, &waiting()).await.unwrap();
        assert!(next.number() > left.number());
        assert!(left.release().await.unwrap_err().is_not_held());
        assert!(next.is_held());
        // It has been renewed by now, more than once.
        smol::Timer::after(TTL * 3).await;
        assert!(kept.is_held());
        kept.release().await.unwrap();
    });
}

#[test]
fn a_waiter_follows_a_dropped_or_expired_holder() {
    let server = Started::latchd();
    let (one, other) = (client(&server), client(&server));
    block_on(async {
        let first = one.obtain("k", TTL, &once()).await.unwrap();
        let options = waiting();
        let second = smol::spawn(async move { other.obtain("k", TTL, &options).await });
        smol::Timer::after(TTL / 2).await;
        drop(first);
        let second = second.await.unwrap();
        assert!(second.is_held() && second.remaining() <= TTL);
        second.release().await.unwrap();
        let unkept = one
            .obtain("k", TTL, &once().without_watchdog())
            .await
            .unwrap();
        let third = client(&server).obtain("k", TTL, &waiting()).await.unwrap();
        assert!(!unkept.is_held() && third.is_held());
        third.release().await.unwrap();
    });
}

#[test]
fn a_connection_that_breaks_is_a_loss() {
    let server = Started::latchd();
    let proxy = Proxy::start(server.address());
    let far = Client::new(&proxy.address(), ClientOptions::new()).unwrap();
    block_on(async {
        let lock = far.obtain("k", Duration::from_millis(900), &once()).await;
        let lock = lock.unwrap();
        proxy.cut();
        assert_eq!(lock.lost().await, Loss::Disconnected);
        assert!(!lock.is_held());
        let near = client(&server).obtain("k", TTL, &waiting()).await.unwrap();
        near.release().await.unwrap();
    });
    // And a server that hangs: the belief ends in time.
    block_on(async {
        let lock = far.obtain("k", TTL, &once()).await.unwrap();
        proxy.silence();
        assert_eq!(lock.lost().await, Loss::Expired);
    });
}

#[test]
fn short_and_long_leases_exclude_each_other() {
    let server = Started::latchd();
    let (one, other) = (client(&server), client(&server));
    let long = Duration::from_secs(20);
    block_on(async {
        let lease = one.obtain("k", long, &once()).await.unwrap();
        let refused = other.obtain("k", TTL, &once()).await.unwrap_err();
        assert!(refused.is_not_obtained(), "{refused}");
        let options = waiting();
        let short = smol::spawn(async move { other.obtain("k", TTL, &options).await });
        smol::Timer::after(TTL).await;
        lease.refresh(long).await.unwrap();
        assert!(lease.is_held());
        lease.release().await.unwrap();
        let short = short.await.unwrap();
        let refused = one.obtain("k", long, &once()).await.unwrap_err();
        assert!(refused.is_not_obtained(), "{refused}");
        short.release().await.unwrap();
        one.obtain("k", long, &once())
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
    });
}

#[test]
fn a_server_that_counts_seconds_has_none() {
    let Some(server) = Started::memcached() else {
        return;
    };
    let error = block_on(client(&server).obtain("k", TTL, &once())).unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::Unsupported(Feature::ShortLeases)),
        "{error:?}"
    );
    assert_eq!(error.server(), Some(&*server.address()));
    assert!(error.to_string().contains("less than a second"), "{error}");
}

#[test]
fn impossible_options_of_bound_locks_are_refused() {
    let server = Started::latchd();
    let client = client(&server);
    block_on(async {
        for error in [
            client
                .obtain_many(["a", "b"], TTL, &once())
                .await
                .unwrap_err(),
            client
                .obtain("k", TTL, &once().metadata("me"))
                .await
                .unwrap_err(),
            client
                .obtain("k", TTL, &once().token(random_token()))
                .await
                .unwrap_err(),
        ] {
            let is_short = matches!(error.kind(), ErrorKind::Terms(TermsError::Short));
            assert!(is_short, "{error:?}");
        }
        let under = Duration::from_millis(9);
        let error = client.obtain("k", under, &once()).await.unwrap_err();
        let is_under = matches!(error.kind(), ErrorKind::Terms(TermsError::TtlTooShort));
        assert!(is_under, "{error:?}");
        let lock = client.obtain("k", TTL, &once()).await.unwrap();
        assert!(lock.refresh(under).await.is_err() && lock.is_held());
        let error = lock.detach().await.unwrap_err();
        let is_short = matches!(error.kind(), ErrorKind::Terms(TermsError::Short));
        assert!(is_short, "{error:?}");
    });
}

#[test]
fn the_program_has_them() {
    let server = Started::latchd();
    let lock = |script: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_latchd"));
        command
            .args(["lock", "--server", &server.address(), "--ttl", "0.25", "k"])
            .args(["--", "sh", "-c", script])
            .stdin(Stdio::null());
        command
    };
    let begun = Instant::now();
    // It is renewed as long as the command runs.
    let output = lock("sleep 0.8; echo $LATCHD_LOCK_NUMBER")
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(begun.elapsed() > TTL * 3);
    let number: u64 = String::from_utf8(output.stdout)
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    assert!(number > 0);
    // A holder that is killed keeps no client out.
    let mut killed = lock("sleep 20").spawn().unwrap();
    eventually(|| {
        let answer = server.ask("ml k\r\n", "\r\n");
        answer.starts_with("LK").then_some(())
    });
    killed.kill().unwrap();
    killed.wait().unwrap();
    let patient = waiting().retry(Retry::linear(Duration::from_millis(10)));
    let next = block_on(client(&server).obtain("k", TTL, &patient)).unwrap();
    block_on(next.release()).unwrap();
}
