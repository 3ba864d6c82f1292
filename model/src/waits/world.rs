//! One state: the cores, who waits as far as answers and notices have said, and the time.

use latchd_core::command::{Command, Delete, GlobalCommand, ItemCommand, LockAfter, Release, Set};
use latchd_core::engine::{Config, Core, Event};
use latchd_core::key::Key;
use latchd_core::reply::Reply;
use latchd_core::store::MapStore;
use latchd_core::wait::Outcome;
use latchd_core::{ConnId, Instant, Limits};
use latchd_harness::alphabet::ReplyKind;

use super::{Asks, Bounds, Happening, KEYS_MAX, Witness};
use crate::frame::{CLIENTS_MAX, Judged, must};
use crate::setup::UNIX_S_AT_START;

/// Milliseconds in a step of time.
const STEP_MS: u64 = 1000;

/// How long a request waits.
pub(super) const WAIT_MS: u64 = 3 * STEP_MS;

/// How long a lease lasts.
pub(super) const LEASE_MS: u64 = 2 * STEP_MS;

const KEYS: [&[u8]; KEYS_MAX] = [b"k", b"l", b"m"];

/// A client, as what it was told says.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Client {
    pub(super) conn: Option<ConnId>,
    pub(super) parked: Option<Parked>,
}

/// A request that was answered that it waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parked {
    pub(super) key: usize,
    pub(super) asks: Asks,
    pub(super) until_ms: u64,
    /// The notice that has come, and is not heard yet.
    pub(super) told: Option<Outcome>,
}

/// A lock, as those who were given it know it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Held {
    pub(super) client: usize,
    pub(super) fence: u64,
    pub(super) lease_until_ms: Option<u64>,
    /// By its holder's delete of the item it stays.
    pub(super) is_of_key: bool,
    /// Among how many it is held, 1 being alone.
    pub(super) among: u32,
}

/// A state.
#[derive(Clone, Debug)]
pub struct World {
    pub(super) cores: Vec<Core<MapStore>>,
    pub(super) clients: [Client; CLIENTS_MAX],
    /// Who holds each key, in the order of the grants.
    pub(super) held: [Vec<Held>; KEYS_MAX],
    /// Who waits for each key, in the order in which they were answered so.
    pub(super) lines: [Vec<usize>; KEYS_MAX],
    pub(super) now_ms: u64,
    connections: u64,
    /// The greatest that was given, a key.
    pub(super) fence_last: [u64; KEYS_MAX],
    /// Whose connection ends in this step.
    pub(super) closing: Option<ConnId>,
    /// What the last step has shown.
    pub(super) seen: u32,
    /// What kind of reply the last step has brought.
    pub(super) answered: Option<ReplyKind>,
}

pub(super) fn key(number: usize) -> Key<'static> {
    Key::new(KEYS[number]).expect("it has one byte")
}

pub(super) fn place_of(key: Key<'_>) -> usize {
    let place = KEYS.iter().position(|name| *name == key.as_bytes());
    place.expect("it is one of them")
}

impl World {
    pub(super) fn new(bounds: &Bounds) -> Self {
        let core = |shard| {
            let mut limits = Limits::new(1 << 20, 16);
            limits.locks_settled_max = bounds.settled_max;
            limits.crawl_items_max = bounds.settled_max;
            let shards = u32::try_from(bounds.shards).expect("there are few");
            let config = Config::new(limits, UNIX_S_AT_START);
            Core::reference(config.strided(shard, shards))
        };
        Self {
            cores: (0..).map(core).take(bounds.shards).collect(),
            clients: Default::default(),
            held: Default::default(),
            lines: Default::default(),
            now_ms: 0,
            connections: 0,
            fence_last: [0; KEYS_MAX],
            closing: None,
            seen: 0,
            answered: None,
        }
    }

    pub(super) fn client_of(&self, conn: ConnId) -> Option<usize> {
        let is_it = |client: &Client| client.conn == Some(conn);
        self.clients.iter().position(is_it)
    }

    /// How far it is to where nobody waits: giving back and hearing bring every state nearer.
    fn distance(&self) -> usize {
        let parked = self.clients.iter().filter_map(|client| client.parked);
        let of_parked = parked.map(|parked| if parked.told.is_some() { 2 } else { 4 });
        self.held.iter().flatten().count() + of_parked.sum::<usize>()
    }

    pub(super) fn happen(&mut self, bounds: &Bounds, happening: Happening) -> Judged {
        self.seen = 0;
        self.answered = None;
        let distance = self.distance();
        let leads_on = self.leads_on(happening);
        self.act(bounds, happening)?;
        must(
            !leads_on || self.distance() < distance,
            "Q11: who gives back or hears does not lead on",
        )?;
        self.judge(bounds)
    }

    /// Whether a core has something to do by now.
    pub(super) fn is_due(&self) -> bool {
        let next = |core: &Core<MapStore>| core.next_deadline();
        let mut nexts = self.cores.iter().filter_map(next);
        nexts.any(|next| next <= self.now())
    }

    /// How many places locks that have ended have left over.
    pub(super) fn left_over(&self) -> usize {
        let places = self.cores.iter().map(|core| {
            let view = core.view();
            view.handovers.len() + view.ended.len()
        });
        places.max().unwrap_or_default()
    }

    pub(super) fn witness(&mut self, witness: Witness) {
        self.seen |= witness.bit();
    }

    pub(super) fn now(&self) -> Instant {
        Instant::from_millis(self.now_ms)
    }

    fn act(&mut self, bounds: &Bounds, happening: Happening) -> Judged {
        match happening {
            Happening::Open(client) => {
                self.connections += 1;
                let conn = ConnId::from_number(self.connections);
                self.clients[client].conn = Some(conn);
                self.tell_all(Event::Opened(conn))
            }
            Happening::Close(client) => self.close(client),
            Happening::Time => {
                self.now_ms += STEP_MS;
                if bounds.is_punctual {
                    self.pass_all()
                } else {
                    Ok(())
                }
            }
            Happening::Pass => self.pass_all(),
            Happening::Ask(client, key, asks) => self.ask(client, key, asks),
            Happening::Hear(client) => self.hear(client),
            Happening::Release(client, key) => self.give(client, key, |key| {
                ItemCommand::Release(Release { key, fence: None })
            }),
            Happening::Unlock(client, key) => {
                self.give(client, key, |key| ItemCommand::Unlock { key })
            }
            Happening::DeleteAndUnlock(client, key) => self.give(client, key, |key| {
                ItemCommand::Delete(Delete {
                    lock: LockAfter::Release,
                    ..Delete::new(key)
                })
            }),
            Happening::Delete(client, key) => self.delete(client, key),
            Happening::Set(client, key) => self.set(client, key),
            Happening::UnlockAll(client) => self.unlock_all(client),
        }
    }

    fn tell_all(&mut self, event: Event) -> Judged {
        for shard in 0..self.cores.len() {
            self.come_to(shard);
            let now = self.now();
            self.cores[shard].handle(now, event);
            self.take_notices(shard)?;
        }
        Ok(())
    }

    /// As a transport does that keeps to the deadlines.
    fn pass_all(&mut self) -> Judged {
        for shard in 0..self.cores.len() {
            self.pass(shard)?;
        }
        Ok(())
    }

    fn pass(&mut self, shard: usize) -> Judged {
        self.come_to(shard);
        let now = self.now();
        let mut calls = 0;
        loop {
            self.cores[shard].pass(now);
            calls += 1;
            let next = self.cores[shard].next_deadline();
            if next.is_none_or(|next| next > now) {
                break;
            }
            must(calls < 20, "Q6: what is due is never done")?;
        }
        self.take_notices(shard)
    }

    pub(super) fn shard_of(&self, key: usize) -> usize {
        key % self.cores.len()
    }

    fn keys_of(&self, shard: usize) -> impl Iterator<Item = usize> + use<> {
        let shards = self.cores.len();
        (0..KEYS_MAX).filter(move |key| key % shards == shard)
    }

    /// A core is told the time: what is over by now is held by nobody.
    pub(super) fn come_to(&mut self, shard: usize) {
        for key in self.keys_of(shard) {
            let now_ms = self.now_ms;
            let before = self.held[key].len();
            let lasts = |held: &Held| held.lease_until_ms.is_none_or(|until| until > now_ms);
            self.held[key].retain(lasts);
            if self.held[key].len() < before {
                self.witness(Witness::LeaseOver);
                if !self.lines[key].is_empty() {
                    self.witness(Witness::LeaseHandedOver);
                }
            }
        }
    }

    fn close(&mut self, client: usize) -> Judged {
        let conn = self.clients[client].conn.take().expect("it is open");
        if let Some(parked) = self.clients[client].parked.take() {
            let was_given = parked.told == Some(Outcome::Granted);
            let line = &mut self.lines[parked.key];
            line.retain(|other| *other != client);
            let others_wait = !line.is_empty();
            if was_given && others_wait && self.holds(client, parked.key) {
                self.witness(Witness::GrantOfDeadPassedOn);
            }
            if parked.told.is_none() && others_wait {
                self.witness(Witness::WaiterGoes);
            }
        }
        for key in 0..KEYS_MAX {
            self.lose(client, key);
        }
        self.closing = Some(conn);
        let judged = self.tell_all(Event::Closed(conn));
        self.closing = None;
        judged
    }

    pub(super) fn holds(&self, client: usize, key: usize) -> bool {
        self.share(client, key).is_some()
    }

    /// What a client holds of a key.
    pub(super) fn share(&self, client: usize, key: usize) -> Option<Held> {
        let mut shares = self.held[key].iter();
        shares.find(|held| held.client == client).copied()
    }

    fn lose(&mut self, client: usize, key: usize) {
        self.held[key].retain(|held| held.client != client);
    }

    /// Whether a client may change the item of a key, or make it.
    fn may_change(&self, client: usize, key: usize) -> bool {
        let holders = &self.held[key];
        holders
            .iter()
            .all(|held| held.client == client && held.among == 1)
    }

    /// Asks a core; `read` takes of its answer what matters.
    pub(super) fn execute<T>(
        &mut self,
        shard: usize,
        client: usize,
        command: Command<'_>,
        read: impl FnOnce(&Reply<'_>) -> T,
    ) -> T {
        let conn = self.clients[client].conn.expect("it is open");
        let now = self.now();
        let reply = self.cores[shard].execute(now, conn, command);
        self.answered = Some(ReplyKind::of(&reply));
        read(&reply)
    }

    /// Gives back, by one command or another.
    fn give<'a>(
        &mut self,
        client: usize,
        key: usize,
        command: impl FnOnce(Key<'a>) -> ItemCommand<'a>,
    ) -> Judged {
        let shard = self.shard_of(key);
        self.come_to(shard);
        let command = Command::Item(command(self::key(key)));
        let (is_unlocked, is_deleted) = self.execute(shard, client, command, |reply| {
            let is_deleted = matches!(reply, Reply::Deleted);
            (matches!(reply, Reply::Unlocked), is_deleted)
        });
        if is_unlocked || is_deleted {
            let held = self.holds(client, key);
            must(held, "L6: given back by one who does not hold it")?;
            let may = !is_deleted || self.may_change(client, key);
            must(may, "L15: deleted while it is shared")?;
            self.lose(client, key);
        }
        self.take_notices(shard)
    }

    fn delete(&mut self, client: usize, key: usize) -> Judged {
        let shard = self.shard_of(key);
        self.come_to(shard);
        let command = Command::from(Delete::new(self::key(key)));
        let is_done = self.execute(shard, client, command, |reply| {
            matches!(reply, Reply::Deleted)
        });
        let may = self.may_change(client, key);
        must(!is_done || may, "E2: deleted by one who may not")?;
        if is_done {
            self.held[key].retain(|held| held.is_of_key);
        }
        self.take_notices(shard)
    }

    fn set(&mut self, client: usize, key: usize) -> Judged {
        let shard = self.shard_of(key);
        self.come_to(shard);
        let command = Command::from(Set::new(self::key(key), b"v"));
        let is_done = self.execute(shard, client, command, |reply| {
            matches!(reply, Reply::Stored(_))
        });
        let may = self.may_change(client, key);
        must(is_done == may, "E2: stored by one who may not, or refused")?;
        self.take_notices(shard)
    }

    fn unlock_all(&mut self, client: usize) -> Judged {
        // All shards are taken before the first is changed (`shell/src/shards.rs`).
        for shard in 0..self.cores.len() {
            self.come_to(shard);
        }
        for key in 0..KEYS_MAX {
            self.lose(client, key);
        }
        for shard in 0..self.cores.len() {
            let command = Command::Global(GlobalCommand::UnlockAll);
            self.execute(shard, client, command, |_| ());
            self.take_notices(shard)?;
        }
        Ok(())
    }
}
