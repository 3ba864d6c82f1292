//! The client in a program with another executor: it brings its own sockets and timers, so it works
//! under tokio, also under a `timeout` of tokio's.

use std::convert::Infallible;
use std::time::Duration;

use latchd_client::{Client, ComputeOptions, LockOptions, Loss};

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
        let options = LockOptions::new().survive(Duration::ZERO);
        let lock = client.lock("k", &options).await.unwrap();

        // A task that waits for the lock, with a timeout by tokio's clock.
        let (waiter, waits) = (client.clone(), options.clone());
        let waits = tokio::spawn(async move {
            let wait = Duration::from_millis(100);
            tokio::time::timeout(wait, waiter.lock("k", &waits))
                .await
                .is_err()
        });
        assert!(waits.await.unwrap());
        lock.release().await.unwrap();

        let bound = client.lock("b", &options).await.unwrap();
        let compute = async |_| {
            tokio::time::sleep(Duration::from_millis(1)).await;
            Ok::<_, Infallible>(b"new".to_vec())
        };
        let value = client
            .compute("v", &ComputeOptions::new(TTL), compute)
            .await
            .unwrap();
        assert!(value.computed && value.stored);

        // A task that waits for a loss is woken from outside of tokio.
        let lock = client.lock("k", &options).await.unwrap();
        let (first, second) = (lock.lost(), bound.lost());
        let lost = tokio::spawn(async move { (first.await, second.await) });
        drop(server);
        let lost = tokio::time::timeout(TTL, lost).await.unwrap().unwrap();
        assert_eq!(lost, (Some(Loss::Disconnected), Some(Loss::Disconnected)));
        drop((lock, bound));
    });
}
