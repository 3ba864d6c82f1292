//! The client in a program with another executor: it brings its own sockets and timers, so it works
//! under tokio, also under a `timeout` of tokio's.

use std::convert::Infallible;
use std::time::Duration;

use latchd_client::{
    BoundOptions, Client, ComputeOptions, Exptime, LockOptions, Loss, OnDisconnect,
};

use crate::support::Started;

const TTL: Duration = Duration::from_secs(30);

#[test]
fn locks_and_values_work_in_tasks_of_another_executor() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let server = Started::latchd();
    runtime.block_on(async {
        let client = Client::connect(&server.address()).await.unwrap();
        let options = LockOptions::new().on_disconnect(OnDisconnect::Lost);
        let lock = client.obtain("k", TTL, &options).await.unwrap();

        // A task that waits for the lock, with a timeout by tokio's clock.
        let waiter = client.clone();
        let waits = tokio::spawn(async move {
            let options = LockOptions::new().wait(TTL, Duration::from_millis(10));
            let obtain = waiter.obtain("k", TTL, &options);
            tokio::time::timeout(Duration::from_millis(100), obtain)
                .await
                .is_err()
        });
        assert!(waits.await.unwrap());
        lock.release().await.unwrap();

        let make = BoundOptions::new().create(Exptime::In { seconds: 5 });
        let bound = client.lock("b", &make).await.unwrap();
        let compute = async |_| {
            tokio::time::sleep(Duration::from_millis(1)).await;
            Ok::<_, Infallible>(b"new".to_vec())
        };
        let value = client
            .get_or_compute("v", TTL, Duration::ZERO, &ComputeOptions::new(), compute)
            .await
            .unwrap();
        assert!(value.computed && value.stored);

        // A task that waits for a loss is woken from outside of tokio.
        let lock = client.obtain("k", TTL, &options).await.unwrap();
        let lost = tokio::spawn(async move { (lock.lost().await, bound.lost().await) });
        drop(server);
        let lost = tokio::time::timeout(TTL, lost).await.unwrap().unwrap();
        assert_eq!(lost, (Loss::Disconnected, Loss::Disconnected));
    });
}
