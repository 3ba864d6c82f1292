//! Connections of one call at a time, on a server that the test plays. The next call uses them, and knows their server.

use latchd_client_core::{
    Grants, LockMachine as _, LockTerms, OwnerTerms, Recompute, RecomputeTerms, wire_key,
};

use super::*;
use crate::{Value, clock};

/// Reads `key`, or computes it.
async fn read(played: &Played, key: &str, options: &ComputeOptions) -> Value {
    let compute = async |_| Ok::<_, Infallible>(b"new".to_vec());
    let read = played.client.compute(key, options, compute);
    read.await.unwrap()
}

#[test]
fn next_read_knows_the_flags_of_the_server() {
    let played = Played::new();
    let (options, found) = (ComputeOptions::new(TTL), "VA 1 c5\r\nv");
    let turns = [("mg a v c N30 B", "ERROR"), ("mg a v c N30", found)];
    let (_, mut side) = played.first(read(&played, "a", &options), &turns);
    // The read before has learnt that the server does not know `B`.
    side.during(read(&played, "b", &options), &[("mg b v c N30\r\n", found)]);
}

#[test]
fn session_stays_with_its_connection() {
    let played = Played::new();
    let (plain, found) = (ComputeOptions::new(TTL), "VA 1 c5\r\nv");
    let options = plain.clone().session(Duration::from_secs(3_600));
    let turns = [
        ("mo ", "HD n9 N"),
        ("mg a", "VA 0 c5 W\r\n"),
        ("ms a", "HD"),
    ];
    let (won, mut side) = played.first(read(&played, "a", &options), &turns);
    assert!(won.stored);
    wait_for(|| played.client.first().idle_connections() == 1);
    // A read without a session has another connection.
    let (_, _other) = played.first(read(&played, "b", &plain), &[("mg b", found)]);
    side.during(read(&played, "c", &options), &[("mg c", found)]);
}

/// Its reply would reach the next user.
#[test]
fn connection_with_a_pending_request_is_closed() {
    let played = Played::new();
    let pool = played.client.first();
    let (mut driver, _) = block_on(pool.driver(false));
    let mut machine = Grants::new(OwnerTerms {
        session: None,
        heartbeat: TTL,
        reply_timeout: DUE,
        seed: 0,
    });
    let key = wire_key(b"k").unwrap();
    machine.acquire(clock::now(), key, LockTerms::new(), None);
    let (heard, is_heard) = async_channel::bounded(1);
    let asked = driver.drive(&mut machine, is_heard.recv(), |_| {});
    let (_, mut side) = beside(asked, || {
        let mut side = played.accept();
        assert!(side.hear(1)[0].starts_with("ml k"));
        heard.try_send(()).unwrap();
        side
    });
    let terms = RecomputeTerms::new(TTL, Duration::ZERO);
    pool.give_back(driver, Recompute::new(key, terms).kept());
    assert_eq!(pool.idle_connections(), 0);
    assert_eq!(side.hear(1), [""]);
}
