//! The client without futures.

#![allow(clippy::unwrap_used)]

mod support;

use std::convert::Infallible;
use std::time::Duration;

use latchd::client::blocking::Client;
use latchd::client::{
    BoundOptions, ClientOptions, ComputeOptions, Exptime, GetOptions, LockOptions, Loss, Outcome,
    StoreMode, StoreOptions,
};
use support::{Started, eventually};

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
        assert!(lock.ttl().unwrap() > TTL);
        lock.release().unwrap();
        let taken = client.obtain("t", TTL, &options).unwrap();
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
fn a_bound_lock_is_held_until_it_is_given_back_or_its_server_goes() {
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
