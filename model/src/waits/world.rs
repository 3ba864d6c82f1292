//! One state: the core, the knowledge about clients and keys from replies and notices, and the
//! time.

use std::collections::VecDeque;
use std::iter;

use latchd_core::engine::{Core, Event, Notification};
use latchd_core::store::MapStore;
use latchd_core::{Instant, Limits, Owner};
use latchd_harness::alphabet::ReplyKind;
use latchd_protocol::command::{
    Command, Delete, Get, GlobalCommand, ItemCommand, LockAfter, Release, Removal, Set, TtlStep,
    TtlSteps,
};
use latchd_protocol::key::Key;
use latchd_protocol::reply::Reply;
use latchd_protocol::time::Exptime;
use latchd_protocol::wait::{Notice, Outcome};

use super::word::{STEP_MS, Scope, TTL_S, WAIT_MS};
use super::{Bounds, Happening, KEYS_MAX, Witness, Word};
use crate::frame::{CLIENTS_MAX, Judged, Shown, must};
use crate::setup::core_of;

/// The TTL that `touch` leaves, and the delay of `flush_all 1`, in seconds: a step.
const SOON_S: u32 = 1;

/// How often the core may be called for its due work.
const CALLS_MAX: usize = 20;

const KEYS: [&[u8]; KEYS_MAX] = [b"k", b"l", b"m"];

/// A client, as replies and notices say.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Client {
    pub(super) conn: Option<Owner>,
    pub(super) parked: Option<Parked>,
}

/// A waiting request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parked {
    pub(super) key: usize,
    pub(super) word: Word,
    pub(super) until_ms: u64,
    /// A notice on its way to the client.
    pub(super) told: Option<Outcome>,
    /// With that notice the client got the lock, or the win.
    pub(super) was_given: bool,
}

/// The knowledge about a key.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    /// The holders, in the order of the grants.
    pub(super) held: Vec<Held>,
    /// The greatest fence that was given.
    pub(super) fence_last: u64,
    /// The clients that wait for the lock, in order of arrival.
    pub(super) line: Vec<usize>,
    pub(super) item: Option<Item>,
    /// The win that is out.
    pub(super) win: Option<Won>,
    /// The item was made to be filled, and its winner has gone: the next client gets the win.
    pub(super) is_open: bool,
    /// The clients that wait for the value, in order of arrival.
    pub(super) gets: Vec<usize>,
}

/// A lock, as its holder knows it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Held {
    pub(super) client: usize,
    pub(super) fence: u64,
    pub(super) lease_until_ms: Option<u64>,
    /// It stays when its holder deletes the item.
    pub(super) is_of_key: bool,
    /// Among how many it may be shared, 1 being alone.
    pub(super) max_sharers: u32,
}

/// An item, as far as it decides the next winner.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Item {
    pub(super) is_stale: bool,
    pub(super) gone_at_ms: Option<u64>,
    /// A flush came while it was held: it goes with its lock.
    pub(super) is_flushed: bool,
}

impl Item {
    /// A new one that is gone at this moment.
    pub(super) const fn new(gone_at_ms: Option<u64>) -> Self {
        Self {
            is_stale: false,
            gone_at_ms,
            is_flushed: false,
        }
    }

    /// Whether it is gone once it is not held.
    fn is_over(self, now_ms: u64) -> bool {
        self.is_flushed || self.gone_at_ms.is_some_and(|at_ms| at_ms <= now_ms)
    }
}

/// A win that is out.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Won {
    /// The winner; `None` if it has gone and the win was not bound.
    pub(super) client: Option<usize>,
    /// It ends with its connection.
    pub(super) is_bound: bool,
    /// Its item was made with it.
    pub(super) is_made: bool,
    /// Its winner has waited for it, and its notice is still under way.
    pub(super) is_unacknowledged: bool,
}

/// A state.
#[derive(Clone, Debug)]
pub struct World {
    pub(super) core: Core<MapStore>,
    pub(super) clients: [Client; CLIENTS_MAX],
    pub(super) keys: [Known; KEYS_MAX],
    pub(super) flush_at_ms: Option<u64>,
    pub(super) now_ms: u64,
    connections: u64,
    /// The client with a connection that ends in this step.
    pub(super) closing: Option<usize>,
    /// How many clients got something in this step, by key.
    pub(super) given: [usize; KEYS_MAX],
    /// The witnesses of the last step.
    pub(super) seen: Shown,
    /// The kind of the last step's reply.
    pub(super) answered: Option<ReplyKind>,
}

pub(super) fn name_of(key: usize) -> Key<'static> {
    Key::new(KEYS[key]).expect("it has one byte")
}

impl World {
    pub(super) fn new(bounds: &Bounds) -> Self {
        let mut limits = Limits::new(1 << 20, 16);
        limits.locks_settled_max = bounds.settled_max;
        limits.crawl_items_max = bounds.settled_max;
        Self {
            core: core_of(limits, bounds.shards),
            clients: Default::default(),
            keys: Default::default(),
            flush_at_ms: None,
            now_ms: 0,
            connections: 0,
            closing: None,
            given: [0; KEYS_MAX],
            seen: Shown::default(),
            answered: None,
        }
    }

    /// Every step that can be taken.
    pub(super) fn happenings(&self, bounds: &Bounds, all: &mut Vec<Happening>) {
        let mut push = |word, client, key| all.push(Happening { word, client, key });
        push(Word("time"), 0, 0);
        if self.is_due() {
            push(Word("pass"), 0, 0);
        }
        let of_world = bounds.words().filter(|word| word.scope() == Scope::World);
        of_world.for_each(|word| push(word, 0, 0));
        for (client, one) in self.clients.iter().enumerate().take(bounds.clients) {
            if one.conn.is_none() {
                push(Word("open"), client, 0);
                continue;
            }
            push(Word("close"), client, 0);
            if let Some(parked) = one.parked {
                // It sends no other request.
                if parked.told.is_some() {
                    push(Word("hear"), client, 0);
                }
                continue;
            }
            for word in bounds.words() {
                match word.scope() {
                    Scope::World => {}
                    Scope::Client => push(word, client, 0),
                    Scope::Item => (0..bounds.keys).for_each(|key| push(word, client, key)),
                }
            }
        }
    }

    pub(super) fn happen(&mut self, bounds: &Bounds, happening: Happening) -> Judged {
        self.seen = Shown::default();
        self.answered = None;
        self.given = [0; KEYS_MAX];
        let distance = self.distance();
        let leads_on = self.leads_on(happening);
        self.act(bounds, happening)?;
        must(
            !leads_on || self.distance() < distance,
            "Q11, Z12: a release, a winner's step or a notice heard does not lead on",
        )?;
        self.judge(bounds, happening)
    }

    fn act(&mut self, bounds: &Bounds, happening: Happening) -> Judged {
        let Happening { word, client, key } = happening;
        match word.verb() {
            "open" => {
                self.connections += 1;
                let conn = Owner::from_number(self.connections);
                self.clients[client].conn = Some(conn);
                self.tell(Event::Opened(conn), |_| {})
            }
            "close" => {
                let conn = self.conn(client);
                self.closing = Some(client);
                self.tell(Event::Closed(conn), |world| world.leave(client))?;
                self.closing = None;
                self.clients[client] = Client::default();
                Ok(())
            }
            "time" => {
                self.now_ms += STEP_MS;
                if bounds.is_punctual {
                    self.pass()
                } else {
                    Ok(())
                }
            }
            "pass" => self.pass(),
            "tick" => self.tell(Event::Tick, |_| {}),
            "hear" => self.hear(client),
            "mg" => self.get(client, key, word, word.get(name_of(key)).into()),
            "ml" | "lock" => self.lock(client, key, word),
            "mu" | "unlock" => self.release(client, key, word),
            "ms" => self.set(client, key, word),
            "md" => self.delete(client, key, word),
            "touch" => self.touch(client, key),
            "unlock_all" => self.unlock_all(client),
            "flush_all" => self.flush_all(word.has("1")),
            verb => Err(format!("M: nobody knows {verb}")),
        }
    }

    pub(super) fn client_of(&self, conn: Owner) -> Option<usize> {
        let is_it = |client: &Client| client.conn == Some(conn);
        self.clients.iter().position(is_it)
    }

    pub(super) fn conn(&self, client: usize) -> Owner {
        self.clients[client].conn.expect("it is open")
    }

    pub(super) fn now(&self) -> Instant {
        Instant::from_millis(self.now_ms)
    }

    /// Whether the core has due work.
    pub(super) fn is_due(&self) -> bool {
        let next = self.core.next_deadline();
        next.is_some_and(|next| next <= self.now())
    }

    /// How many places ended locks have left behind.
    pub(super) fn left_over(&self) -> usize {
        let view = self.core.view();
        view.handovers.len() + view.ended.len()
    }

    /// One call of the core. The time comes before it, with all that is over by then; then its reply
    /// and its effects. Waiters get notices of either.
    pub(super) fn call<T, R>(
        &mut self,
        call: impl FnOnce(&mut Core<MapStore>, Instant) -> T,
        apply: impl FnOnce(&mut Self, T) -> Result<R, String>,
    ) -> Result<R, String> {
        self.advance_to();
        let now = self.now();
        let core = &mut self.core;
        let answer = call(core, now);
        let mut notices: VecDeque<Notice> =
            iter::from_fn(|| core.poll().and_then(Notification::wait_over)).collect();
        self.take_in(&mut notices)?;
        let result = apply(self, answer)?;
        self.take_in(&mut notices)?;
        must(
            notices.is_empty(),
            "Q10, Z11: a notice without a reason, or to a client that does not wait",
        )?;
        Ok(result)
    }

    /// Tells the core of an event; `apply` adds the effects.
    fn tell(&mut self, event: Event, apply: impl FnOnce(&mut Self)) -> Judged {
        self.call(
            |core, now| core.handle(now, event),
            |world, ()| {
                apply(world);
                Ok(())
            },
        )
    }

    /// As a transport that keeps to the deadlines does.
    fn pass(&mut self) -> Judged {
        for _ in 0..CALLS_MAX {
            self.tell(Event::Due, |_| {})?;
            if !self.is_due() {
                return Ok(());
            }
        }
        Err("Q6, Z8: what is due is never done".into())
    }

    /// Asks the core. `apply` gets the kind of its reply, and the fence if it is a grant.
    pub(super) fn ask<R>(
        &mut self,
        client: usize,
        command: Command<'_>,
        apply: impl FnOnce(&mut Self, ReplyKind, u64) -> Result<R, String>,
    ) -> Result<R, String> {
        let conn = self.conn(client);
        self.call(
            |core, now| {
                let reply = core.execute(now, conn, &command);
                let fence = if let Reply::Granted(granted) = &reply {
                    granted.fence.number()
                } else {
                    0
                };
                (ReplyKind::of(&reply), fence)
            },
            |world, (kind, fence)| {
                world.answered = Some(kind);
                apply(world, kind, fence)
            },
        )
    }

    /// Asks for a change. `due` says of the state before which reply is due and whether anything changes; `apply` makes
    /// that change.
    fn change(
        &mut self,
        client: usize,
        command: Command<'_>,
        due: impl FnOnce(&Self) -> (ReplyKind, &'static str),
        done: ReplyKind,
        apply: impl FnOnce(&mut Self),
    ) -> Judged {
        self.ask(client, command, |world, kind, _| {
            let (due, rule) = due(world);
            if kind != due {
                return Err(format!("{rule}: the reply is {kind:?}, and {due:?} is due"));
            }
            if kind == done {
                apply(world);
            }
            Ok(())
        })
    }

    fn gone_at(&self, ttl_s: u32) -> u64 {
        self.now_ms + u64::from(ttl_s) * STEP_MS
    }

    fn set(&mut self, client: usize, key: usize, word: Word) -> Judged {
        let ttl_s = word.has("T").then_some(TTL_S);
        let set = Set {
            exptime: ttl_s.map_or(Exptime::Never, |seconds| Exptime::In { seconds }),
            ..Set::new(name_of(key), b"v")
        };
        let gone_at_ms = ttl_s.map(|ttl_s| self.gone_at(ttl_s));
        let due = |world: &Self| {
            let may = world.may_change(client, key);
            let refused = (ReplyKind::RefusedLocked, "E2");
            if may {
                (ReplyKind::Stored, "E8")
            } else {
                refused
            }
        };
        let apply = |world: &mut Self| world.set_item(key, Some(Item::new(gone_at_ms)));
        self.change(client, set.into(), due, ReplyKind::Stored, apply)
    }

    fn delete(&mut self, client: usize, key: usize, word: Word) -> Judged {
        let marks = word.has("I");
        let unlocks = word.has("U");
        let delete = Delete {
            removal: if marks {
                Removal::MarkStale { exptime: None }
            } else {
                Removal::Remove
            },
            lock: if unlocks {
                LockAfter::Release
            } else {
                LockAfter::Keep
            },
            ..Delete::new(name_of(key))
        };
        let due = |world: &Self| {
            let is_there = world.keys[key].item.is_some();
            let is_its = world.share(client, key).is_some();
            if unlocks && !is_its && is_there {
                (ReplyKind::RefusedNotLocked, "L6")
            } else if (is_its || !unlocks) && !world.may_change(client, key) {
                (ReplyKind::RefusedLocked, "L15")
            } else if is_there {
                (ReplyKind::Deleted, "E8")
            } else {
                (ReplyKind::NotFound, "E8")
            }
        };
        let apply = |world: &mut Self| {
            let item = world.keys[key].item.filter(|_| marks);
            let is_stale = true;
            world.set_item(key, item.map(|item| Item { is_stale, ..item }));
            if unlocks {
                world.let_go(client, key);
            } else if !marks {
                world.keys[key].held.retain(|held| held.is_of_key);
            }
        };
        let command = delete.into();
        self.change(client, command, due, ReplyKind::Deleted, apply)
    }

    fn touch(&mut self, client: usize, key: usize) -> Judged {
        let seconds = SOON_S;
        let get = Get {
            steps: TtlSteps::one(TtlStep::Touch(Exptime::In { seconds })),
            ..Get::new(name_of(key))
        };
        let gone_at_ms = Some(self.gone_at(SOON_S));
        let due = |world: &Self| match world.keys[key].item {
            Some(item) if item.is_stale => ReplyKind::HitStale,
            Some(_) => ReplyKind::Hit,
            None => ReplyKind::Miss,
        };
        self.ask(client, get.into(), |world, kind, _| {
            must(kind == due(world), "E7: touched, or not, and wrongly")?;
            if let Some(item) = &mut world.keys[key].item {
                item.gone_at_ms = gone_at_ms;
            }
            Ok(())
        })
    }

    fn release(&mut self, client: usize, key: usize, word: Word) -> Judged {
        let name = name_of(key);
        let command = if word.verb() == "unlock" {
            ItemCommand::Unlock { key: name }
        } else {
            ItemCommand::Release(Release::new(name))
        };
        let due = |world: &Self| {
            let known = &world.keys[key];
            let kind = match (word.verb(), world.share(client, key), known.item) {
                (_, Some(_), _) => ReplyKind::Unlocked,
                ("mu", None, _) => ReplyKind::NotFound,
                (_, None, None) => ReplyKind::RefusedNotLockedNotFound,
                (_, None, Some(_)) => ReplyKind::RefusedNotLocked,
            };
            (kind, "L6")
        };
        let apply = |world: &mut Self| world.let_go(client, key);
        let command = Command::Item(command);
        self.change(client, command, due, ReplyKind::Unlocked, apply)
    }

    fn unlock_all(&mut self, client: usize) -> Judged {
        let conn = self.conn(client);
        self.call(
            |core, now| drop(core.execute(now, conn, &GlobalCommand::UnlockAll.into())),
            |world, ()| {
                (0..KEYS_MAX).for_each(|key| world.let_go(client, key));
                Ok(())
            },
        )
    }

    fn flush_all(&mut self, is_later: bool) -> Judged {
        let nobody = Owner::from_number(0);
        let at = if is_later {
            Exptime::In { seconds: SOON_S }
        } else {
            Exptime::Never
        };
        self.call(
            |core, now| drop(core.execute(now, nobody, &GlobalCommand::FlushAll { at }.into())),
            |world, ()| {
                if is_later {
                    world.flush_at_ms = Some(world.gone_at(SOON_S));
                } else {
                    world.flush();
                }
                Ok(())
            },
        )
    }

    /// Whether a client may change the item of a key, or make it, and so far as its lock goes.
    pub(super) fn may_change(&self, client: usize, key: usize) -> bool {
        let mut held = self.keys[key].held.iter();
        held.all(|held| held.client == client && held.max_sharers == 1)
    }

    /// A client's part in the lock of a key.
    pub(super) fn share(&self, client: usize, key: usize) -> Option<Held> {
        let mut shares = self.keys[key].held.iter();
        shares.find(|held| held.client == client).copied()
    }

    /// The core learns the time: locks and items that are over by now are gone.
    pub(super) fn advance_to(&mut self) {
        let now_ms = self.now_ms;
        if self.flush_at_ms.is_some_and(|at_ms| at_ms <= now_ms) {
            self.flush();
        }
        for key in 0..KEYS_MAX {
            let known = &mut self.keys[key];
            let before = known.held.len();
            let lasts = |held: &Held| held.lease_until_ms.is_none_or(|until| until > now_ms);
            known.held.retain(lasts);
            let is_over = known.held.len() < before;
            let is_gone = known.held.is_empty() && known.item.is_some_and(|it| it.is_over(now_ms));
            let (waits, gets) = (!known.line.is_empty(), !known.gets.is_empty());
            if is_over {
                self.seen.add(Witness::LeaseOver);
                if waits {
                    self.seen.add(Witness::LeaseHandedOver);
                }
            }
            if is_gone {
                if gets {
                    self.seen.add(Witness::ExpiresWaited);
                }
                self.set_item(key, None);
            }
        }
    }

    /// A key has another item, or none: its win is over.
    pub(super) fn set_item(&mut self, key: usize, item: Option<Item>) {
        let known = &mut self.keys[key];
        known.item = item;
        known.win = None;
        known.is_open = false;
    }

    fn flush(&mut self) {
        self.flush_at_ms = None;
        for key in 0..KEYS_MAX {
            let known = &mut self.keys[key];
            match &mut known.item {
                Some(item) if !known.held.is_empty() => item.is_flushed = true,
                _ => self.set_item(key, None),
            }
        }
    }

    /// The lock of a client ends, if it has one: an item that only the lock has kept goes with the
    /// last holder.
    fn let_go(&mut self, client: usize, key: usize) {
        let now_ms = self.now_ms;
        let known = &mut self.keys[key];
        let before = known.held.len();
        known.held.retain(|held| held.client != client);
        let is_over = known.held.len() < before && known.held.is_empty();
        if is_over && known.item.is_some_and(|item| item.is_over(now_ms)) {
            self.set_item(key, None);
        }
    }

    /// A client's connection ends.
    fn leave(&mut self, client: usize) {
        for key in 0..KEYS_MAX {
            let known = &mut self.keys[key];
            let stood = known.line.len() + known.gets.len();
            known.line.retain(|other| *other != client);
            known.gets.retain(|other| *other != client);
            let stands = known.line.len() + known.gets.len();
            let (others_line, others_get) = (!known.line.is_empty(), !known.gets.is_empty());
            let (has_left, is_held) = (stands < stood, self.share(client, key).is_some());
            let parked = self.clients[client].parked;
            let was_given = parked.is_some_and(|it| it.key == key && it.was_given);
            if has_left && (others_line || others_get) {
                self.seen.add(Witness::WaiterGoes);
            }
            if was_given && is_held && others_line {
                self.seen.add(Witness::GrantOfDeadPassedOn);
            }
            let won = self.keys[key].win.filter(|won| won.client == Some(client));
            self.let_go(client, key);
            if let Some(won) = won {
                self.end_win(key, won, is_held, others_get);
            }
        }
    }

    /// Z7: the winner of a key has gone.
    fn end_win(&mut self, key: usize, won: Won, was_held: bool, others_wait: bool) {
        let known = &mut self.keys[key];
        let (Some(item), Some(out)) = (known.item, &mut known.win) else {
            if won.is_bound && was_held && others_wait && known.item.is_none() {
                self.seen.add(Witness::MadeBehindLock);
            }
            return;
        };
        if !won.is_bound {
            out.client = None;
            if others_wait {
                self.seen.add(Witness::UnboundGoes);
            }
            return;
        }
        known.win = None;
        known.is_open = won.is_made && !item.is_stale;
        if item.is_stale {
            self.seen.add(Witness::ReopenedStale);
        }
        self.seen.add(match (others_wait, won.is_unacknowledged) {
            (true, true) => Witness::GivenToDead,
            (true, false) => Witness::WinnerGoesWaited,
            (false, _) => Witness::WinnerGoes,
        });
    }

    /// A client waits for a key.
    pub(super) fn park(&mut self, client: usize, key: usize, word: Word) {
        let known = &mut self.keys[key];
        let line = if word.is_get() {
            &mut known.gets
        } else {
            &mut known.line
        };
        line.push(client);
        if line.len() > 1 {
            self.seen.add(Witness::TwoWait);
        }
        self.clients[client].parked = Some(Parked {
            key,
            word,
            until_ms: self.now_ms + WAIT_MS,
            told: None,
            was_given: false,
        });
    }
}
