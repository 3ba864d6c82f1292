//! The client without futures.

use std::convert::Infallible;
use std::time::Duration;

use latchd_client::blocking::{Client, Cluster};
use latchd_client::{
    BoundOptions, ClientOptions, ComputeOptions, Exptime, GetOptions, LockOptions, Loss, Outcome,
    StoreMode, StoreOptions, Token,
};

use crate::support::{Started, eventually};

const TTL: Duration = Duration::from_secs(30);

#[test]
fn locks_and_values_work_without_an_executor() {
    for server in Started::all() {
        println!("against {}", server.name());
        let client = Client::connect(&server.address()).unwrap();
        let options = LockOptions::new();
        let lock = client.obtain("k", TTL, &options).unwrap();
        assert!(lock.is_held() && lock.as_async().key() == b"k");
        let other = client.obtain_many(["a", "k"], TTL, &options);
        assert!(other.unwrap_err().is_not_obtained());
        lock.refresh(TTL * 2).unwrap();
        assert!(lock.server_ttl().unwrap() > TTL);
        lock.release().unwrap();
        // Without a place in the queue of a latchd, which keeps the item over a flush.
        let own = options.token(Token::new(b"own").unwrap());
        let taken = client.obtain("t", TTL, &own).unwrap();
        client.flush_all().unwrap();
        assert!(taken.refresh(TTL).unwrap_err().is_not_held());
        assert_eq!(taken.lost(), Loss::Taken);

        let computed = client.get_or_compute(
            "v",
            TTL,
            Duration::ZERO,
            &ComputeOptions::new(),
            |old| -> Result<_, Infallible> {
                assert_eq!(old, None);
                Ok(b"new".to_vec())
            },
        );
        assert!(computed.unwrap().stored);
        assert_eq!(&client.get("v").unwrap().unwrap().value[..], b"new");
        assert_eq!(client.set("n", "1", Exptime::Never).unwrap(), Outcome::Done);
        assert_eq!(client.incr("n", 4).unwrap(), Some(5));
        assert_eq!(client.decr("n", 2).unwrap(), Some(3));
        let add = StoreOptions::new().mode(StoreMode::Add);
        assert_eq!(client.store("n", "x", &add).unwrap(), Outcome::NotStored);
        let soon = Exptime::In { seconds: 9 };
        assert_eq!(client.touch("n", soon).unwrap(), Outcome::Done);
        let item = client.get_with("n", &GetOptions::new()).unwrap().unwrap();
        assert!(item.ttl_s.unwrap() <= 9);
        let many = client.get_many(["n", "none"]).unwrap();
        assert!(many[0].is_some() && many[1].is_none());
        assert_eq!(client.delete("n").unwrap(), Outcome::Done);
        let stats = client.stats().unwrap();
        assert!(stats.iter().any(|(name, _)| name == "curr_items"));
    }
}

#[test]
fn a_bound_lock_ends_by_release_or_restart() {
    let server = Started::latchd();
    let client = Client::new(&server.address(), ClientOptions::new()).unwrap();
    let make = BoundOptions::new().create(Exptime::Never);
    let lock = client.lock("k", &make).unwrap();
    lock.set("value", Exptime::Never).unwrap();
    assert_eq!(lock.get().unwrap(), b"value");
    assert!(client.lock("k", &make).unwrap_err().is_not_obtained());
    lock.release().unwrap();
    let lock = client.lock("k", &make).unwrap();
    assert!(lock.is_held() && lock.as_async().key() == b"k");
    drop(server);
    eventually(|| (!lock.is_held()).then_some(()));
    assert!(lock.release().unwrap_err().is_not_held());
}

#[test]
fn a_detached_lock_is_regained_without_executor() {
    for server in Started::all() {
        let client = Client::new(&server.address(), ClientOptions::new()).unwrap();
        let options = LockOptions::new();
        let waits = std::iter::repeat_n(Duration::from_millis(1), 3);
        let lock = client
            .obtain_with(["a", "b"], TTL, &options, waits.clone())
            .unwrap();
        lock.refresh_with(TTL, waits).unwrap();
        let token = lock.detach().unwrap();
        assert!(client.obtain("a", TTL, &options).is_err());
        let again = client.obtain_many(["a", "b"], TTL, &options.token(token));
        let again = again.unwrap();
        again.try_release().unwrap();
        assert!(!again.is_held());
    }
}

#[test]
fn fenced_changes_end_with_the_lock() {
    let server = Started::latchd();
    let client = Client::new(&server.address(), ClientOptions::new()).unwrap();
    client.set("k", "1", Exptime::Never).unwrap().expect_done();
    let (lock, value) = client.lock_and_get("k", &BoundOptions::new()).unwrap();
    assert_eq!(value, b"1");
    lock.check().unwrap();
    drop(lock.inheritable().unwrap());
    let account = client.in_grant(lock.as_async().fence().unwrap());
    assert_eq!(account.incr("k", 4).unwrap(), Some(5));
    assert_eq!(account.decr("k", 2).unwrap(), Some(3));
    account.set("k", "7", Exptime::Never).unwrap().expect_done();
    let append = StoreOptions::new().mode(StoreMode::Append);
    account.store("k", "0", &append).unwrap().expect_done();
    lock.replace_and_unlock("new", Exptime::Never).unwrap();
    assert!(account.delete("k").unwrap_err().is_not_held());
    assert_eq!(&client.get("k").unwrap().unwrap().value[..], b"new");
}

#[test]
fn several_servers_are_asked_without_an_executor() {
    let servers = [Started::latchd(), Started::latchd()];
    let addresses = servers.each_ref().map(Started::address);
    let cluster = Cluster::new(&addresses, &ClientOptions::new()).unwrap();
    let keys: Vec<String> = (0..20).map(|number| format!("k{number}")).collect();
    for key in &keys {
        let server = cluster.server(key);
        server.set(key, key, Exptime::Never).unwrap().expect_done();
    }
    let items = cluster.get_many(&keys).unwrap();
    for (key, item) in keys.iter().zip(items) {
        assert_eq!(&item.unwrap().value[..], key.as_bytes());
    }
    let has_some = |server: &Client| keys.iter().any(|key| server.get(key).unwrap().is_some());
    assert!(cluster.servers().iter().all(has_some));
    let heavy = addresses.iter().map(|address| (address, 3));
    let heavy = Cluster::with_weights(heavy, &ClientOptions::new()).unwrap();
    assert_eq!(heavy.server("k1").address(), cluster.server("k1").address());
}

trait ExpectDone {
    fn expect_done(self);
}

impl ExpectDone for Outcome {
    fn expect_done(self) {
        assert_eq!(self, Outcome::Done);
    }
}
