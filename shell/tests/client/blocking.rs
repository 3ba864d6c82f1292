//! The client without futures.

use std::convert::Infallible;
use std::time::Duration;

use latchd_client::blocking::Client;
use latchd_client::{
    ClientOptions, ComputeOptions, Exptime, GetOptions, LockOptions, Loss, Outcome, StoreMode,
    StoreOptions,
};

use crate::support::{Started, eventually};

const TTL: Duration = Duration::from_secs(30);

#[test]
fn locks_and_values_work_without_an_executor() {
    for server in Started::all() {
        println!("against {}", server.name());
        let client = Client::connect(&server.address()).unwrap();
        let options = LockOptions::new().survive(TTL);
        let lock = client.lock("k", &options).unwrap();
        assert!(lock.is_held() && lock.key() == b"k");
        let other = client.try_lock_many(["a", "k"], &options);
        assert!(other.unwrap_err().is_not_obtained());
        assert!(
            client
                .try_lock("k", &options)
                .unwrap_err()
                .holder()
                .is_some()
        );
        assert!(client.lock_state("k").unwrap().is_some());
        lock.refresh(TTL * 2).unwrap();
        lock.check().unwrap();
        assert!(lock.server_ttl().unwrap().unwrap() > TTL / 2);
        assert_eq!(lock.wait_lost(Duration::from_millis(10)), None);
        lock.release().unwrap();
        assert_eq!(lock.wait_lost(TTL), Some(None), "a release is no loss");
        let taken = client.lock("t", &options.with_item()).unwrap();
        server.end_lease("t");
        assert!(taken.check().unwrap_err().is_not_held());
        assert_eq!(taken.wait_lost(TTL), Some(Some(Loss::Taken)));

        let computed = client.compute(
            "v",
            &ComputeOptions::new(TTL),
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
fn a_lock_ends_with_its_server() {
    let server = Started::latchd();
    let client = Client::new(&server.address(), ClientOptions::new()).unwrap();
    let lock = client
        .lock("k", &LockOptions::new().survive(Duration::ZERO))
        .unwrap();
    lock.set("value", Exptime::Never).unwrap();
    assert_eq!(lock.get().unwrap().unwrap(), b"value");
    drop(server);
    eventually(|| (!lock.is_held()).then_some(()));
    assert!(lock.release().unwrap_err().is_not_held());
}

#[test]
fn a_detached_lock_is_regained_without_executor() {
    for server in Started::all() {
        let client = Client::new(&server.address(), ClientOptions::new()).unwrap();
        let options = LockOptions::new();
        let own = options.clone().token(latchd_client::random_token());
        let lock = client.lock_many(["a", "b"], &own).unwrap();
        let detached = lock.detach().unwrap();
        assert!(client.try_lock("a", &options).is_err());
        let again = client.attach(&detached).unwrap();
        again.release().unwrap();
        assert!(!again.is_held());
    }
}

#[test]
fn fenced_changes_end_with_the_lock() {
    let server = Started::latchd();
    let client = Client::new(&server.address(), ClientOptions::new()).unwrap();
    client.set("k", "1", Exptime::Never).unwrap().expect_done();
    let options = LockOptions::new().survive(Duration::ZERO).inheritable();
    let lock = client.lock("k", &options).unwrap();
    assert_eq!(lock.get().unwrap().unwrap(), b"1");
    lock.check().unwrap();
    drop(lock.inheritable().unwrap());
    let account = client.in_grant(lock.fence().unwrap());
    assert_eq!(account.incr("k", 4).unwrap(), Some(5));
    assert_eq!(account.decr("k", 2).unwrap(), Some(3));
    account.set("k", "7", Exptime::Never).unwrap().expect_done();
    let append = StoreOptions::new().mode(StoreMode::Append);
    account.store("k", "0", &append).unwrap().expect_done();
    lock.release_with("new", Exptime::Never).unwrap();
    assert!(account.delete("k").unwrap_err().is_not_held());
    assert_eq!(&client.get("k").unwrap().unwrap().value[..], b"new");
}

#[test]
fn several_servers_are_asked_without_an_executor() {
    let servers = [Started::latchd(), Started::latchd()];
    let addresses = servers.each_ref().map(Started::address);
    let weighted = addresses.iter().map(|address| (address, 1));
    let ring = Client::ring(weighted, &ClientOptions::new()).unwrap();
    let keys: Vec<String> = (0..20).map(|number| format!("k{number}")).collect();
    for key in &keys {
        ring.set(key, key, Exptime::Never).unwrap().expect_done();
    }
    let items = ring.get_many(&keys).unwrap();
    for (key, item) in keys.iter().zip(items) {
        assert_eq!(&item.unwrap().value[..], key.as_bytes());
    }
    let has_some = |server: Client| keys.iter().any(|key| server.get(key).unwrap().is_some());
    assert!(ring.servers().all(has_some));
}

trait ExpectDone {
    fn expect_done(self);
}

impl ExpectDone for Outcome {
    fn expect_done(self) {
        assert_eq!(self, Outcome::Done);
    }
}
