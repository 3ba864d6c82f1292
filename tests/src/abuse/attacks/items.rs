//! Commands that concern every item at once, and long walks of eviction.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use super::super::client::Client;
use super::super::{Attack, Kind, Outcome, Stage, fill, hold};
use super::turns::small;

/// `flush_all` over every item.
pub(super) const FLUSH_ITEMS: Attack = Attack {
    name: "flush-items",
    about: "flush_all of a large store, 5 times, stored anew between",
    has_peer: true,
    play: |stage| {
        let target = stage.start_large()?;
        let (seen, ()) = stage.watch(target.address, || {
            let mut client = Client::connect(target.address)?;
            for _ in 0..5 {
                client.ask("flush_all")?;
                fill(&target, stage.setting.items / 10)?;
            }
            Ok(())
        })?;
        finish(stage, &target, seen)
    },
};

/// `flush_all` while many items are locked.
pub(super) const FLUSH_HELD: Attack = Attack {
    name: "flush-held",
    about: "100 pipelined flush_all, many locks held",
    has_peer: true,
    play: |stage| {
        let target = stage.start_large()?;
        let holder = match stage.kind {
            Kind::Latchd => Some(hold(&target, stage.setting.locks)?),
            Kind::Memcached => None,
        };
        let (seen, ()) = stage.watch(target.address, || {
            let mut client = Client::connect(target.address)?;
            client.pipeline(100, "OK", |_, bytes| {
                bytes.extend_from_slice(b"flush_all\r\n");
            })?;
            Ok(())
        })?;
        drop(holder);
        finish(stage, &target, seen)
    },
};

/// Every item has been read, so each gets another chance before it is evicted.
pub(super) const QUEUE_WALK: Attack = Attack {
    name: "queue-walk",
    about: "a store that is full of items hit three times, then a set",
    has_peer: true,
    play: queue_walk,
};

fn queue_walk(stage: &Stage<'_>) -> io::Result<Outcome> {
    // The store is full: the items take at most the memory limit.
    let memory = (stage.setting.items / 12_500).max(1).to_string();
    let target = small(stage, &["-m", &memory, "-t", "4"])?;
    fill(&target, stage.setting.items)?;
    let mut client = Client::connect(target.address)?;
    for _ in 0..3 {
        client.pipeline(stage.setting.items, "HD", |index, bytes| {
            bytes.extend_from_slice(format!("mg k{index}\r\n").as_bytes());
        })?;
    }
    let (seen, ()) = stage.watch(target.address, || {
        for index in 0..200 {
            client.send(format!("set new{index} 0 0 8\r\nvalue678\r\n"))?;
            client.line()?;
        }
        Ok(())
    })?;
    finish(stage, &target, seen)
}

/// The store is full of expired items.
pub(super) const DEAD_FIRST: Attack = Attack {
    name: "dead-first",
    about: "a store full of expired items: no live one is evicted",
    has_peer: true,
    play: dead_first,
};

fn dead_first(stage: &Stage<'_>) -> io::Result<Outcome> {
    let memory = (stage.setting.items / 5_000).max(4).to_string();
    let target = small(stage, &["-m", &memory, "-t", "4"])?;
    let mut client = Client::connect(target.address)?;
    // Live ones first: they are the oldest, so the next to be evicted.
    let live = stage.setting.items / 10;
    client.pipeline(live, "STORED", |index, bytes| {
        bytes.extend_from_slice(format!("set live{index} 0 0 8\r\nvalue678\r\n").as_bytes());
    })?;
    let begun = Instant::now();
    let mut stored = 0;
    while client.stat("evictions")?.unwrap_or(0) == 0 && stored < stage.setting.items * 4 {
        client.pipeline(10_000, "STORED", |index, bytes| {
            let key = stored + index;
            bytes.extend_from_slice(format!("set dead{key} 0 2 8\r\nvalue678\r\n").as_bytes());
        })?;
        stored += 10_000;
    }
    // All of them have expired, and the server has had some time to see that.
    thread::sleep(Duration::from_millis(2_500).saturating_sub(begun.elapsed()));
    thread::sleep(Duration::from_secs(3));
    let before = client.stat("evictions")?.unwrap_or(0);
    let mut outcome = Outcome::default();
    client.pipeline(live, "STORED", |index, bytes| {
        bytes.extend_from_slice(format!("set more{index} 0 0 8\r\nvalue678\r\n").as_bytes());
    })?;
    let evicted = client.stat("evictions")?.unwrap_or(0) - before;
    let left = client.stat("curr_items")?.unwrap_or(0);
    outcome.notes.push(format!(
        "{evicted} evicted for {live} new ones, {left} items left"
    ));
    outcome.must(evicted == 0, format!("{evicted} live items evicted"));
    stage.note_memory(&target, &mut outcome)?;
    Ok(outcome)
}

fn finish(
    stage: &Stage<'_>,
    target: &super::super::target::Target,
    seen: super::super::watch::Seen,
) -> io::Result<Outcome> {
    let mut outcome = Outcome::seen(seen);
    stage.note_memory(target, &mut outcome)?;
    Ok(outcome)
}
