//! Changes in the right of a grant, over other connections than the lock's.

use std::time::Duration;

use latchd_client::{
    Client, ClientOptions, ErrorKind, Exptime, Feature, Fence, LockOptions, Outcome, StoreOptions,
    TermsError,
};

use crate::support::Started;
use smol::block_on;

fn client(server: &Started) -> Client {
    Client::new(&server.address(), ClientOptions::new()).unwrap()
}

#[test]
fn a_fenced_change_needs_the_grant_in_force() {
    let server = Started::latchd();
    let (holder, writer) = (client(&server), client(&server));
    block_on(async {
        let made = writer.set("k", "5", Exptime::Never).await;
        assert_eq!(made.unwrap(), Outcome::Done);
        let lock = holder.lock("k", &LockOptions::new()).await.unwrap();
        let grant = writer.in_grant(lock.fence().unwrap());
        assert_eq!(
            writer.set("k", "0", Exptime::Never).await.unwrap(),
            Outcome::Locked
        );
        assert_eq!(grant.incr("k", 3).await.unwrap(), Some(8));
        assert_eq!(grant.decr("k", 1).await.unwrap(), Some(7));
        assert_eq!(
            grant.set("k", "70", Exptime::Never).await.unwrap(),
            Outcome::Done
        );
        let compared = grant.store("k", "1", &StoreOptions::new().cas(1)).await;
        let error = compared.unwrap_err();
        let is_refused = matches!(error.kind(), ErrorKind::Terms(TermsError::CasInGrant));
        assert!(is_refused, "{error:?}");
        // Another key's lock is not this one.
        let elsewhere = grant.set("other", "1", Exptime::Never).await.unwrap_err();
        assert!(elsewhere.is_not_held(), "{elsewhere}");
        let stale = lock.fence().unwrap();
        lock.release().await.unwrap();
        let late = writer.in_grant(stale);
        for error in [
            late.set("k", "1", Exptime::Never).await.unwrap_err(),
            late.delete("k").await.unwrap_err(),
            late.incr("k", 1).await.unwrap_err(),
            late.decr("k", 1).await.unwrap_err(),
        ] {
            assert!(error.is_not_held(), "{error:?}");
            assert!(error.to_string().contains("not ours any more"), "{error}");
            assert_eq!(error.server(), Some(&*server.address()));
        }
        assert_eq!(&writer.get("k").await.unwrap().unwrap().value[..], b"70");
        // That of a lock of less than a second, of a key without an item; and a removal.
        let short = holder
            .lock(
                "short",
                &LockOptions::new().survive(Duration::from_millis(500)),
            )
            .await
            .unwrap();
        let grant = writer.in_grant(short.fence().unwrap());
        let made = grant.set("short", "1", Exptime::Never).await;
        assert_eq!(made.unwrap(), Outcome::Done);
        short.release().await.unwrap();
        let again = holder.lock("k", &LockOptions::new()).await;
        let again = again.unwrap();
        let grant = writer.in_grant(again.fence().unwrap());
        assert_eq!(grant.delete("k").await.unwrap(), Outcome::Done);
        again.release().await.unwrap();
    });
    if let Some(memcached) = Started::memcached() {
        let writer = client(&memcached);
        block_on(async {
            let grant = writer.in_grant(Fence::new(7).unwrap());
            for error in [
                grant.set("k", "1", Exptime::Never).await.unwrap_err(),
                grant.delete("k").await.unwrap_err(),
                grant.incr("k", 1).await.unwrap_err(),
            ] {
                let is_unsupported =
                    matches!(error.kind(), ErrorKind::Unsupported(Feature::Fences));
                assert!(is_unsupported, "{error:?}");
            }
        });
    }
}
