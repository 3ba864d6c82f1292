//! Locks with several holders at a time, from the client's side.

use std::num::NonZeroU32;
use std::process::{Command, Stdio};

use latchd_client::{Client, ClientOptions, ErrorKind, Exptime, Feature, LockOptions};

use crate::support::Started;
use smol::block_on;

fn client(server: &Started) -> Client {
    Client::new(&server.address(), ClientOptions::new()).unwrap()
}

fn exclusive() -> LockOptions {
    LockOptions::new()
}

#[test]
fn a_writer_waits_for_all_readers() {
    let server = Started::latchd();
    let (one, other) = (client(&server), client(&server));
    block_on(async {
        let shared = exclusive().shared();
        let first = one.lock("k", &shared).await.unwrap();
        let second = other.lock("k", &shared).await.unwrap();
        assert!(first.fence() < second.fence());
        let refused = one.try_lock("k", &exclusive()).await.unwrap_err();
        assert!(refused.is_not_obtained(), "{refused}");
        // No holder may change the item, and the lock stays.
        assert!(first.set("x", Exptime::Never).await.is_err() && first.is_held());
        let patient = exclusive();
        let writer = smol::spawn(async move { other.lock("k", &patient).await });
        first.release().await.unwrap();
        second.release().await.unwrap();
        let writer = writer.await.unwrap();
        let refused = one.try_lock("k", &shared).await.unwrap_err();
        assert!(refused.is_not_obtained(), "{refused}");
        writer.release().await.unwrap();
    });
}

#[test]
fn permits_bound_how_many_hold_it() {
    let server = Started::latchd();
    let client = client(&server);
    block_on(async {
        let two = exclusive().permits(NonZeroU32::new(2).unwrap());
        let first = client.lock("k", &two).await.unwrap();
        let second = client.lock("k", &two).await.unwrap();
        let refused = client.try_lock("k", &two).await.unwrap_err();
        assert!(refused.is_not_obtained(), "{refused}");
        drop(first);
        let third = client.lock("k", &two).await.unwrap();
        second.release().await.unwrap();
        third.release().await.unwrap();
    });
}

#[test]
fn a_server_without_them_says_so() {
    let Some(server) = Started::memcached() else {
        return;
    };
    let error = block_on(client(&server).lock("k", &exclusive().shared())).unwrap_err();
    let is_unsupported = matches!(error.kind(), ErrorKind::Unsupported(Feature::SharedLocks));
    assert!(is_unsupported, "{error:?}");
    assert!(error.to_string().contains("no shared locks"), "{error}");
}

#[test]
fn the_program_shares_and_counts() {
    let server = Started::latchd();
    let lock = |arguments: &[&str], script: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_latchd"));
        command
            .args(["lock", "--server", &server.address()])
            .args(arguments)
            .args(["k", "--", "sh", "-c", script])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    };
    let held = block_on(client(&server).lock("k", &exclusive().shared())).unwrap();
    let code = |arguments: &[&str]| lock(arguments, "true").output().unwrap().status.code();
    assert_eq!(code(&["-n", "--shared"]), Some(0));
    assert_eq!(code(&["-n", "--permits", "2"]), Some(0));
    assert_eq!(code(&["-n", "--permits", "1"]), Some(1));
    assert_eq!(code(&["-n"]), Some(1));
    assert_eq!(code(&["--permits", "0"]), Some(125));
    block_on(held.release()).unwrap();
}
