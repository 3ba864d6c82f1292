//! A flush takes effect in all shards at the same moment, whether immediate or delayed (`engine/shards/D2`).

use std::sync::Arc;

use latchd_protocol::command::GlobalCommand;
use latchd_protocol::time::Exptime;
use shuttle::thread;

use super::{Answer, Client, Seen, in_many_orders, server};

/// While one client flushes, two others read both shards, one in each order. If a reader misses the first
/// key, it misses the second. The flush is requested at that moment; or it was requested before, and is due
/// now for a reader with a slightly later time.
fn flushes(seen: &Arc<Seen>, delay_s: Option<u32>) {
    let (shared, keys) = server(2, |_| ());
    let mut one = Client::new(&shared, 1, 0);
    for name in &keys {
        assert_eq!(one.set(name), Answer::Done);
    }
    let flush = |exptime| GlobalCommand::FlushAll { at: exptime };
    if let Some(seconds) = delay_s {
        assert_eq!(one.ask(flush(Exptime::In { seconds })), Answer::Done);
    }
    let due_ms = u64::from(delay_s.unwrap_or_default()) * 1000;
    let name = keys[1].clone();
    let mut threads = vec![thread::spawn(move || {
        let mut one = one.at(due_ms);
        if delay_s.is_none() {
            assert_eq!(one.ask(flush(Exptime::Never)), Answer::Done);
        }
        assert_eq!(one.get(&name), Answer::Miss, "it is due");
    })];
    for (number, [first, second]) in [(2, [0, 1]), (3, [1, 0])] {
        let mut reader = Client::new(&shared, number, 1).at(due_ms.saturating_sub(1));
        let (seen, keys) = (Arc::clone(seen), keys.clone());
        threads.push(thread::spawn(move || {
            let answers = [first, second].map(|shard| reader.get(&keys[shard]));
            seen.note(match answers {
                [Answer::Hit, Answer::Hit] => "both are there",
                [Answer::Miss, Answer::Miss] => "both are flushed",
                [Answer::Hit, Answer::Miss] => "the flush comes in between",
                other => panic!("half of a flush: {other:?}"),
            });
        }));
    }
    for thread in threads {
        thread.join().unwrap();
    }
}

const WITNESSES: &[&str] = &[
    "both are there",
    "both are flushed",
    "the flush comes in between",
];

#[test]
fn a_flush_is_seen_whole() {
    in_many_orders(WITNESSES, |seen| flushes(seen, None));
}

#[test]
fn a_flush_that_falls_due_is_seen_whole() {
    in_many_orders(WITNESSES, |seen| flushes(seen, Some(1)));
}
