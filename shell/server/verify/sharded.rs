//! The shards of a server as one machine, for proofs that compare several shards with one core.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use latchd_core::engine::{Config, Event, Notification};
use latchd_core::server::StateMachine;
use latchd_core::{ConnId, Instant, Limits, Owner};
use latchd_protocol::command::Command;
use latchd_protocol::key::Key;
use latchd_protocol::reply::Reply;
use latchd_protocol::wait::Notice;

use crate::clients::budget::Holder;
use crate::clients::mailbox::{Mailbox, Message};
use crate::clients::waiters::Waiters;
use crate::shards::{ShardSession, Shards};

/// Several cores behind one door, with a session for each connection. A connection's number is its owner's.
#[derive(Debug)]
pub struct Sharded {
    shards: Shards,
    waiters: Arc<Waiters>,
    mailboxes: Arc<[Mailbox]>,
    sessions: BTreeMap<Owner, ShardSession>,
    /// The ended waits that were not taken.
    notices: VecDeque<Notice>,
    unix_s_at_start: u64,
}

impl Sharded {
    /// Two cores without items. Each of `keys` is in the core of its number: the hash of keys is drawn until that
    /// is so.
    ///
    /// # Panics
    /// If the system has no descriptor left.
    #[must_use]
    pub fn new(limits: Limits, unix_s_at_start: u64, keys: &[(&[u8], usize)]) -> Self {
        let mailbox = Mailbox::new().expect("there is a descriptor left");
        let mailboxes: Arc<[Mailbox]> = Arc::new([mailbox]);
        let waiters = Arc::new(Waiters::new(Arc::clone(&mailboxes), false));
        let shards = loop {
            let waiters = Arc::clone(&waiters);
            let shards = Shards::new(2, Config::new(limits, unix_s_at_start), waiters);
            let is_in = |(key, core): &(&[u8], usize)| {
                let key = Key::new(key).expect("a legal key");
                shards.shard_of(key) == *core
            };
            if keys.iter().all(is_in) {
                break shards;
            }
        };
        Self {
            shards,
            waiters,
            mailboxes,
            sessions: BTreeMap::new(),
            notices: VecDeque::new(),
            unix_s_at_start,
        }
    }

    /// How many connections are registered as waiting.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiters.waiting()
    }
}

impl StateMachine for Sharded {
    fn handle(&mut self, now: Instant, event: Event) {
        match event {
            Event::Opened(owner) => {
                let number = owner.number();
                let seat = Holder {
                    worker: 0,
                    name: number,
                };
                let conn = ConnId::from_number(number);
                let session = if owner.is_session() {
                    ShardSession::of_session(owner, conn, seat)
                } else {
                    ShardSession::new(conn, seat)
                };
                self.sessions.insert(owner, session);
            }
            Event::Closed(owner) => {
                if let Some(session) = self.sessions.remove(&owner) {
                    self.shards.close(now, session);
                }
            }
            Event::WallClock { unix_s_at_start } => {
                self.unix_s_at_start = unix_s_at_start;
                self.shards.tick(now, unix_s_at_start);
            }
            Event::Tick => drop(self.shards.tick(now, self.unix_s_at_start)),
            Event::Due => self.shards.pass(now),
            Event::WithholdGrants(until) => self.shards.withhold_grants(now, until),
            other @ (Event::Detached(..)
            | Event::Resumed(_)
            | Event::Limits(_)
            | Event::ReportLockEnds(_)
            | Event::ReadEvictions { .. }
            | Event::Unstored(_)) => panic!("the shards see to it themselves: {other:?}"),
        }
    }

    fn execute(
        &mut self,
        now: Instant,
        owner: Owner,
        command: &Command<'_>,
        answer: &mut dyn FnMut(&Reply<'_>),
    ) {
        let session = self.sessions.get_mut(&owner).expect("it is open");
        let none = |_| (Vec::new(), None);
        let mut answer = |reply: &Reply<'_>| answer(reply);
        self.shards
            .execute(now, session, command, &none, &mut answer);
        self.shards.check(now);
    }

    fn poll(&mut self) -> Option<Notification> {
        for message in self.mailboxes[0].take() {
            if let Message::WaitEnded(name, outcome) = message {
                let owners = &mut self.sessions.keys();
                // A closed connection gets no notice.
                if let Some(owner) = owners.find(|owner| owner.number() == name) {
                    let owner = *owner;
                    self.notices.push_back(Notice { owner, outcome });
                }
            }
        }
        self.notices.pop_front().map(Notification::WaitOver)
    }
}
