//! Connections of one call at a time, on a server that the test plays. The next call uses them, and knows their server.

use latchd_client_core::{Bound, BoundTerms, wire_key};

use super::*;
use crate::drive::drive;
use crate::{BoundOptions, LockOptions, Retry, Value, clock};

/// Reads `key`, or computes it.
async fn read(played: &Played, key: &str, options: &ComputeOptions) -> Value {
    let compute = async |_| Ok::<_, Infallible>(b"new".to_vec());
    let client = &played.client;
    let read = client.get_or_compute(key, TTL, Duration::ZERO, options, compute);
    read.await.unwrap()
}

#[test]
fn next_read_knows_the_flags_of_the_server() {
    let played = Played::new();
    let (options, found) = (ComputeOptions::new(), "VA 1 c5\r\nv");
    let turns = [("mg a v c N30 B", "ERROR"), ("mg a v c N30", found)];
    let (_, mut side) = played.first(read(&played, "a", &options), &turns);
    // The read before has learnt that the server does not know `B`.
    side.during(read(&played, "b", &options), &[("mg b v c N30\r\n", found)]);
}

#[test]
fn session_stays_with_its_connection() {
    let played = Played::new();
    let (plain, found) = (ComputeOptions::new(), "VA 1 c5\r\nv");
    let options = plain.clone().session(Duration::from_secs(3_600));
    let turns = [
        ("mo ", "HD n9 N"),
        ("mg a", "VA 0 c5 W\r\n"),
        ("ms a", "HD"),
    ];
    let (won, mut side) = played.first(read(&played, "a", &options), &turns);
    assert!(won.stored);
    wait_for(|| played.client.pool.idle_connections() == 1);
    // A read without a session has another connection.
    let (_, _other) = played.first(read(&played, "b", &plain), &[("mg b", found)]);
    side.during(read(&played, "c", &options), &[("mg c", found)]);
}

/// After a wait in the queue a lease keeps the connection of its place, and the next bound lock has it.
#[test]
fn connection_of_a_place_is_used_again() {
    let played = Played::new();
    let options = LockOptions::new().retry(Retry::linear(TTL)).deadline(TTL);
    let (lock, mut own) = beside(played.client.obtain("k", TTL, &options), || {
        let mut shared = played.accept();
        shared.play(&[("ms k", "NS c0"), ("mn H", "MN"), ("ml k", "LK")]);
        let mut own = played.accept();
        own.play(&[
            ("ml k", "LK"),
            ("ml k", "HD F6"),
            ("ms k", "HD c9"),
            ("mn H", "MN"),
        ]);
        own
    });
    own.during(lock.unwrap().release(), &[("md k", "HD")])
        .unwrap();
    wait_for(|| played.client.pool.idle_connections() == 1);
    let options = BoundOptions::new();
    let lock = own.during(played.client.lock("b", &options), &[("ml b", "HD F7")]);
    drop(lock.unwrap());
}

/// Its reply would reach the next user.
#[test]
fn connection_with_a_pending_request_is_closed() {
    let played = Played::new();
    let pool = &played.client.pool;
    let mut driver = block_on(pool.driver());
    let mut bound = Bound::new(wire_key(b"k").unwrap(), BoundTerms::default());
    bound.obtain(clock::now());
    let (heard, is_heard) = async_channel::bounded(1);
    let asked = drive(&mut driver, &mut bound, is_heard.recv(), |_| {});
    let (_, mut side) = beside(asked, || {
        let mut side = played.accept();
        assert!(side.hear(1)[0].starts_with("ml k"));
        heard.try_send(()).unwrap();
        side
    });
    pool.give_back(driver);
    assert_eq!(pool.idle_connections(), 0);
    assert_eq!(side.hear(1), [""]);
}
