//! Plain cache calls, against latchd and memcached.

use std::time::Duration;

use latchd_client::{
    Client, ClientOptions, ErrorKind, Exptime, GetOptions, LockOptions, Outcome, StoreMode,
    StoreOptions, TermsError,
};

use crate::support::Started;
use smol::{Executor, block_on};

const NEVER: Exptime = Exptime::Never;

fn on_each<F: Future<Output = ()>>(test: impl Fn(Client) -> F) {
    for server in Started::all() {
        println!("against {}", server.name());
        block_on(async {
            test(Client::connect(&server.address()).await.unwrap()).await;
        });
    }
}

#[test]
fn a_stored_value_is_read() {
    on_each(async |client| {
        assert_eq!(client.get("k").await.unwrap(), None);
        let store = async |value: &str, options: StoreOptions| {
            client.store("k", value, &options).await.unwrap()
        };
        let mode = |mode| StoreOptions::new().mode(mode);
        assert_eq!(
            store("b", mode(StoreMode::Replace)).await,
            Outcome::NotStored
        );
        let add = mode(StoreMode::Add).client_flags(7);
        assert_eq!(store("b", add).await, Outcome::Done);
        assert_eq!(store("x", add).await, Outcome::NotStored);
        assert_eq!(store("c", mode(StoreMode::Append)).await, Outcome::Done);
        assert_eq!(store("a", mode(StoreMode::Prepend)).await, Outcome::Done);
        let item = client.get("k").await.unwrap().unwrap();
        assert_eq!((&item.value[..], item.client_flags), (&b"abc"[..], 7));
        assert_eq!(item.ttl_s, None);

        let cas = StoreOptions::new().cas(item.cas);
        assert_eq!(store("new", cas).await, Outcome::Done);
        assert_eq!(store("newer", cas).await, Outcome::Exists);
        let touched = client.touch("k", Exptime::In { seconds: 100 }).await;
        assert_eq!(touched.unwrap(), Outcome::Done);
        let item = client.get("k").await.unwrap().unwrap();
        assert_eq!(&item.value[..], b"new");
        assert!((99..=100).contains(&item.ttl_s.unwrap()));
        assert_eq!(client.delete("k").await.unwrap(), Outcome::Done);
        assert_eq!(client.delete("k").await.unwrap(), Outcome::NotFound);
        assert_eq!(client.touch("k", NEVER).await.unwrap(), Outcome::NotFound);

        let vivify = GetOptions::new().vivify(Exptime::In { seconds: 30 });
        let won = client.get_with("v", &vivify).await.unwrap().unwrap();
        assert!(won.won && won.value.is_empty());
        assert!(!client.get_with("v", &vivify).await.unwrap().unwrap().won);
    });
}

#[test]
fn arithmetic_refuses_a_value_without_digits() {
    on_each(async |client| {
        assert_eq!(client.incr("n", 1).await.unwrap(), None);
        assert_eq!(client.set("n", "10", NEVER).await.unwrap(), Outcome::Done);
        assert_eq!(client.incr("n", 5).await.unwrap(), Some(15));
        assert_eq!(client.decr("n", 100).await.unwrap(), Some(0));
        assert_eq!(client.set("n", "x", NEVER).await.unwrap(), Outcome::Done);
        let error = client.incr("n", 1).await.unwrap_err();
        assert!(error.to_string().contains("non-numeric"), "{error}");
    });
}

#[test]
fn concurrent_readers_get_their_own_values() {
    on_each(async |client| {
        let keys: Vec<String> = (0..1_200).map(|key| format!("k{key}")).collect();
        let executor = Executor::new();
        let stores: Vec<_> = keys
            .iter()
            .step_by(2)
            .map(|key| {
                let (client, key) = (client.clone(), key.clone());
                executor.spawn(async move { client.set(&key, &key, NEVER).await.unwrap() })
            })
            .collect();
        executor
            .run(async {
                for store in stores {
                    assert_eq!(store.await, Outcome::Done);
                }
            })
            .await;
        let items = client.get_many(&keys).await.unwrap();
        assert_eq!(items.len(), keys.len());
        for (place, (item, key)) in items.iter().zip(&keys).enumerate() {
            let value = item.as_ref().map(|item| &item.value[..]);
            assert_eq!(value, (place % 2 == 0).then_some(key.as_bytes()));
        }
        let stats = client.stats().await.unwrap();
        let count = stats.iter().find(|(name, _)| name == "curr_items");
        assert_eq!(count.unwrap().1, "600");
        client.flush_all().await.unwrap();
        assert_eq!(client.get("k0").await.unwrap(), None);
    });
}

#[test]
fn a_server_that_is_down_is_an_error() {
    let server = Started::latchd();
    let port = server.port();
    block_on(async {
        let client = Client::new(&server.address(), ClientOptions::new()).unwrap();
        let options = LockOptions::new().survive(Duration::ZERO);
        let lock = client.lock("held", &options).await.unwrap();
        let stored = client.set("held", "x", NEVER).await.unwrap();
        assert_eq!(stored, Outcome::Locked);
        drop(server);
        lock.lost().await;
        assert!(client.get("k").await.unwrap_err().is_unreachable());
        let server = Started::latchd_at(port);
        assert_eq!(client.set("k", "v", NEVER).await.unwrap(), Outcome::Done);
        drop(server);
    });
}

#[test]
fn keys_are_spread_over_several_servers() {
    let servers = [Started::latchd(), Started::latchd(), Started::latchd()];
    let addresses: Vec<String> = servers.iter().map(Started::address).collect();
    block_on(async {
        let weighted = addresses.iter().map(|address| (address, 1));
        let cluster = Client::ring(weighted, &ClientOptions::new()).unwrap();
        let keys: Vec<String> = (0..300).map(|key| format!("k{key}")).collect();
        for key in &keys {
            let stored = cluster.set(key, key, NEVER).await.unwrap();
            assert_eq!(stored, Outcome::Done);
        }
        let items = cluster.get_many(&keys).await.unwrap();
        for (item, key) in items.iter().zip(&keys) {
            assert_eq!(&item.as_ref().unwrap().value[..], key.as_bytes());
        }
        let mut counts = Vec::new();
        for server in cluster.servers() {
            let stats = server.stats().await.unwrap();
            let count = stats.iter().find(|(name, _)| name == "curr_items").unwrap();
            counts.push(count.1.parse::<u32>().unwrap());
        }
        assert_eq!(counts.iter().sum::<u32>(), 300, "each is on one of them");
        assert!(counts.iter().all(|count| *count > 30), "{counts:?}");

        let [first, ..] = servers;
        drop(first);
        let is_there = async |key: &String| cluster.get(key).await.is_ok();
        let mut there = 0;
        for key in &keys {
            there += u32::from(is_there(key).await);
        }
        assert_eq!(there, 300 - counts[0], "no other server answers for it");
        assert!(cluster.get_many(&keys).await.unwrap_err().is_unreachable());
        let several = cluster
            .lock_many(&keys, &LockOptions::new())
            .await
            .unwrap_err();
        assert!(
            matches!(several.kind(), ErrorKind::Terms(TermsError::Servers)),
            "{several}"
        );
    });
}
