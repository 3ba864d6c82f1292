//! The threads of a server, run in one order of events after the other.
//!
//! The shards, the waiters, the mailboxes, the counters, the clock thread and the acceptor are the server's
//! own ([`sync`](crate::sync)). Whenever one of them accesses shared state, shuttle chooses the next thread.
//! A test plays the worker: it waits for its waker, reads its mailbox, and executes the requests of a client.
//!
//! - X1: A scenario holds in every order tried; a deadlock of all threads is a failure. Time passes only when
//!   a scenario advances it, so no timer hides a missing notification.
//! - X2: A scenario names its witnesses: the events that make it meaningful. It fails unless each one occurs
//!   in some order.
//! - X3: The orders are the same in each run. Half of them are drawn step by step; the other half have few
//!   changes of the running thread.
//!
//! `cargo test -p latchd-server --lib --features scheduled scheduled::`; a failure prints its order.

#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "what nobody has asked for fails, whatever it is"
)]

mod acceptor;
mod close;
mod flush;
mod sessions;
mod stop;
mod time;
mod waits;

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};

use latchd_core::{ConnId, Instant};
use latchd_protocol::command::{
    Acquire, Command, Get, GlobalCommand, ItemCommand, Release, Set, Wait,
};
use latchd_protocol::key::Key;
use latchd_protocol::reply::Reply;
use latchd_protocol::wait::Outcome;
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config as Settings, Runner};

use crate::clients::budget::Holder;
use crate::clients::mailbox::{Mailbox, Message};
use crate::config::Config;
use crate::net::listen::Address;
use crate::server_state::ServerState;
use crate::shards::ShardSession;
use crate::sync::stand_in;

/// The number of orders tried in each of the two ways, unless `TEST_ORDERS` is set.
const ORDERS: usize = 10_000;

/// The most avoidable thread changes in an order of the second way.
const CHANGES: usize = 3;

/// The stack size of a test thread, in bytes.
const STACK_BYTES: usize = 512 << 10;

/// The same orders each time.
const SEED: u64 = 16;

/// The witnesses seen, with their counts.
#[derive(Debug, Default)]
struct Seen(Mutex<BTreeMap<&'static str, usize>>);

impl Seen {
    fn note(&self, what: &'static str) {
        *self.0.lock().unwrap().entry(what).or_default() += 1;
    }
}

/// Runs a scenario in many orders. Each witness must occur in one of them.
fn in_many_orders(witnesses: &[&'static str], scenario: fn(&Arc<Seen>)) {
    let orders = std::env::var("TEST_ORDERS").map_or(ORDERS, |orders| orders.parse().unwrap());
    let seen = Arc::new(Seen::default());
    let mut settings = Settings::new();
    settings.stack_size = STACK_BYTES;
    // All atomics behave as sequentially consistent here: the supported machines, or the lock around them,
    // ensure that.
    settings.silence_warnings = true;
    let play = {
        let seen = Arc::clone(&seen);
        move || {
            stand_in::begin_time();
            scenario(&seen);
        }
    };
    let drawn = RandomScheduler::new_from_seed(SEED, orders);
    Runner::new(drawn, settings.clone()).run(play.clone());
    let few = PctScheduler::new_from_seed(SEED, CHANGES, orders);
    Runner::new(few, settings).run(play);
    let seen = seen.0.lock().unwrap();
    println!("{seen:?}");
    for witness in witnesses {
        assert!(seen.contains_key(witness), "never seen: {witness}");
    }
}

/// A server with this many threads and two shards, and a key in each shard.
fn server(threads: usize, change: impl FnOnce(&mut Config)) -> (Arc<ServerState>, [String; 2]) {
    let mut config = Config {
        threads: NonZeroUsize::new(threads).unwrap(),
        memory_bytes_max: 1 << 20,
        value_bytes_max: 64 << 10,
        ..Config::default()
    };
    change(&mut config);
    let addresses = [Address::Unix("/tmp/nowhere".into())];
    let (shared, _shutdowns) =
        ServerState::new(config, &addresses, None, None, None, None).unwrap();
    let in_shard = |shard| {
        let mut names = (0..).map(|number| format!("key{number}"));
        let is_there = |name: &String| shared.shards.shard_of(key(name)) == shard;
        names.find(is_there).unwrap()
    };
    let keys = [in_shard(0), in_shard(threads.min(2) - 1)];
    (Arc::new(shared), keys)
}

fn key(name: &str) -> Key<'_> {
    Key::new(name.as_bytes()).unwrap()
}

/// The replies that the scenarios distinguish.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Answer {
    Granted,
    Contended,
    WouldDeadlock,
    Waits,
    Unlocked,
    NotLocked,
    Hit,
    Miss,
    Done,
}

/// A connection, as its worker serves it.
#[derive(Debug)]
struct Client {
    shared: Arc<ServerState>,
    session: ShardSession,
    holder: Holder,
    /// The time of its requests.
    now: Instant,
}

impl Client {
    /// A new connection with an unused number.
    fn new(shared: &Arc<ServerState>, number: u64, worker: usize) -> Self {
        let holder = Holder {
            worker,
            name: number,
        };
        Self {
            shared: Arc::clone(shared),
            session: ShardSession::new(ConnId::from_number(number), holder),
            holder,
            now: Instant::from_millis(0),
        }
    }

    /// From now on, its requests have this time.
    fn at(mut self, ms: u64) -> Self {
        self.now = Instant::from_millis(ms);
        self
    }

    fn ask<'a>(&mut self, command: impl Into<Command<'a>>) -> Answer {
        let mut answered = None;
        let (shards, command) = (&self.shared.shards, command.into());
        shards.execute(
            self.now,
            &mut self.session,
            &command,
            &|_| (Vec::new(), None),
            &mut |reply| {
                assert_eq!(answered, None, "a command has one reply");
                answered = Some(match reply {
                    Reply::Granted(_) => Answer::Granted,
                    Reply::Contended(_) => Answer::Contended,
                    Reply::WouldDeadlock(_) => Answer::WouldDeadlock,
                    Reply::Waits => Answer::Waits,
                    Reply::Unlocked => Answer::Unlocked,
                    Reply::NotFound => Answer::NotLocked,
                    Reply::Hit(_) => Answer::Hit,
                    Reply::Miss => Answer::Miss,
                    Reply::Ok | Reply::Stored(_) => Answer::Done,
                    other => panic!("nobody has asked for {other:?}"),
                });
            },
        );
        answered.expect("a command has a reply")
    }

    /// `ml`
    fn lock(&mut self, name: &str) -> Answer {
        self.ask(ItemCommand::Acquire(Acquire::new(key(name))))
    }

    /// `ml w`
    fn wait(&mut self, name: &str, ms: u64) -> Answer {
        self.ask(ItemCommand::Acquire(Acquire {
            wait: Wait::UpTo { ms },
            ..Acquire::new(key(name))
        }))
    }

    /// `mu`
    fn unlock(&mut self, name: &str) -> Answer {
        self.ask(ItemCommand::Release(Release::new(key(name))))
    }

    fn unlock_all(&mut self) -> Answer {
        self.ask(GlobalCommand::UnlockAll)
    }

    fn get(&mut self, name: &str) -> Answer {
        self.ask(ItemCommand::Get(Get::new(key(name))))
    }

    fn set(&mut self, name: &str) -> Answer {
        self.ask(Set::new(key(name), b"value"))
    }

    fn mailbox(&self) -> &Mailbox {
        self.shared.mailbox(self.holder.worker)
    }

    /// Waits until its worker reads that its wait has ended.
    fn hear(&self) -> Outcome {
        loop {
            self.mailbox().hear();
            let outcomes = self.outcomes();
            if let Some(outcome) = outcomes.first() {
                assert_eq!(outcomes.len(), 1, "it is notified once");
                return *outcome;
            }
        }
    }

    /// Takes the outcomes in the mailbox of its worker, which has no other waiting client.
    fn outcomes(&self) -> Vec<Outcome> {
        let outcomes = self.mailbox().take();
        let outcome = |message| match message {
            Message::WaitEnded(name, outcome) if name == self.holder.name => outcome,
            other => panic!("nobody has sent {other:?}"),
        };
        outcomes.into_iter().map(outcome).collect()
    }

    /// Closes the connection, and so releases its locks.
    fn close(self) {
        self.shared.shards.close(self.now, self.session);
    }
}
