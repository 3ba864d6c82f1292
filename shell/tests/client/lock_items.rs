//! Locks that show an item: clients with the recipe of `add` and this client exclude each other, on latchd and memcached.

use std::time::Duration;

use latchd_client::{Client, ErrorKind, LockOptions, NotObtained};
use smol::{Timer, block_on, future};

use crate::support::{Started, eventually, holder_process};

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn with_item() -> LockOptions {
    LockOptions::new().with_item().survive(ms(2_000))
}

fn on_each<F: Future<Output = ()>>(test: impl Fn(Client, Started) -> F) {
    for server in Started::all() {
        println!("against {}", server.name());
        block_on(async {
            let client = Client::connect(&server.address()).await.unwrap();
            test(client, server).await;
        });
    }
}

/// The recipe's answer.
fn add(server: &Started, seconds: u32) -> String {
    server.ask(&format!("add k 7 {seconds} 5\r\nother\r\n"), "\r\n")
}

fn delete(server: &Started) -> String {
    server.ask("delete k\r\n", "\r\n")
}

#[test]
fn a_lock_excludes_the_recipe() {
    on_each(async |client, server| {
        let lock = client.lock("k", &with_item()).await.unwrap();
        // Longer than the item would last without a renewal.
        for _ in 0..10 {
            let added = add(&server, 60);
            assert!(
                ["NOT_STORED\r\n", "LOCKED\r\n"].contains(&&*added),
                "{added}"
            );
            assert!(
                server.ask("mg k\r\n", "\r\n").starts_with("HD"),
                "the item is shown"
            );
            Timer::after(ms(500)).await;
        }
        assert!(lock.is_held());
        lock.release().await.unwrap();
        assert_eq!(add(&server, 60), "STORED\r\n");
    });
}

#[test]
fn the_recipe_excludes_a_lock() {
    on_each(async |client, server| {
        assert_eq!(add(&server, 60), "STORED\r\n");
        let refused = client.try_lock("k", &with_item()).await.unwrap_err();
        assert!(refused.is_not_obtained(), "{refused}");
        assert!(refused.holder().unwrap().left.unwrap() > ms(50_000));
        let options = with_item();
        let release = async {
            Timer::after(ms(300)).await;
            assert_eq!(delete(&server), "DELETED\r\n");
        };
        let (lock, ()) = future::zip(client.lock("k", &options), release).await;
        lock.unwrap().release().await.unwrap();
    });
}

#[test]
fn a_dead_holder_leaves_the_key_in_time() {
    on_each(async |client, server| {
        // The recipe's holder dies: its item expires.
        assert_eq!(add(&server, 1), "STORED\r\n");
        let lock = client.lock("k", &with_item()).await.unwrap();
        lock.release().await.unwrap();
        // Ours dies.
        let mut child = holder_process(&server, &["--ttl", "2"]).spawn().unwrap();
        eventually(|| {
            server
                .ask("mg k\r\n", "\r\n")
                .starts_with("HD")
                .then_some(())
        });
        child.kill().unwrap();
        child.wait().unwrap();
        assert_ne!(add(&server, 60), "STORED\r\n");
        eventually(|| (add(&server, 60) == "STORED\r\n").then_some(()));
    });
}

#[test]
fn a_value_is_no_lock() {
    on_each(async |client, server| {
        server.ask("set k 0 0 4\r\nidle\r\n", "\r\n");
        for _ in 0..2 {
            let refused = client.lock("k", &with_item()).await.unwrap_err();
            let kind = refused.kind();
            assert!(
                matches!(kind, ErrorKind::NotObtained(NotObtained::HasValue)),
                "{refused}"
            );
            assert!(refused.to_string().contains("no lock"), "{refused}");
        }
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_latchd"))
            .args([
                "lock",
                "--server",
                &server.address(),
                "--ttl",
                "6",
                "k",
                "--",
                "echo",
                "ran",
            ])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(125));
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("an item that is no lock"), "{said}");
        assert_eq!(
            server.ask("get k\r\n", "END\r\n"),
            "VALUE k 0 4\r\nidle\r\nEND\r\n"
        );
    });
}
