//! The end of a server reaches every thread, and releases every lock.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use shuttle::future::block_on;
use shuttle::thread;

use super::{Answer, Client, Seen, in_many_orders, server};
use crate::clients::mailbox::Message;
use crate::server_state::ServerState;
use crate::sync::channel::bounded;
use crate::time_keeper::keep_time;

/// Plays a worker with one idle client: it reads its mailbox until the server stops, then closes the client.
/// Returns whether it has read that the client's wait has ended.
fn serve(shared: &ServerState, client: Client) -> bool {
    let mut is_notified = false;
    while !shared.is_stopping.load(Ordering::SeqCst) {
        let mailbox = shared.mailbox(client.holder.worker);
        mailbox.hear();
        for message in mailbox.take() {
            assert!(matches!(message, Message::WaitEnded(..)), "{message:?}");
            is_notified = true;
        }
    }
    client.close();
    is_notified
}

/// One client holds a lock and another waits for it, each on a thread of its own, when the server stops.
fn stops(seen: &Arc<Seen>) {
    let (shared, [name, _]) = server(2, |_| ());
    let (stop, stopped) = bounded(1);
    let mut one = Client::new(&shared, 1, 0);
    let mut two = Client::new(&shared, 2, 1);
    assert_eq!(one.lock(&name), Answer::Granted);
    assert_eq!(two.wait(&name, 60_000), Answer::Waits);
    let clock = {
        let shared = Arc::clone(&shared);
        thread::spawn(move || block_on(keep_time(&shared, &stopped)))
    };
    let workers = [one, two].map(|client| {
        let shared = Arc::clone(&shared);
        thread::spawn(move || serve(&shared, client))
    });
    shared.stop();
    drop(stop);
    clock.join().unwrap();
    let notified = workers.map(|worker| worker.join().unwrap());
    let left = shared.mailbox(1).take().len();
    seen.note(match (notified, left) {
        ([false, true], 0) => "who waited was given the lock, heard of it, and ended",
        ([false, false], 1) => "who waited was given the lock and did not hear of it",
        ([false, false], 0) => "who waited ended first",
        other => panic!("{other:?}"),
    });
    let mut three = Client::new(&shared, 3, 0);
    assert_eq!(three.lock(&name), Answer::Granted);
    three.close();
}

#[test]
fn the_end_of_a_server_reaches_every_thread() {
    let witnesses = [
        "who waited was given the lock, heard of it, and ended",
        "who waited was given the lock and did not hear of it",
        "who waited ended first",
    ];
    in_many_orders(&witnesses, stops);
}
