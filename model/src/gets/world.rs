//! One state: the core, who has won and who waits as far as answers and notices have said, and the time.

use std::collections::VecDeque;
use std::iter;

use latchd_core::command::{
    Acquire, Command, Delete, Get, GlobalCommand, ItemCommand, Release, Removal, Set, TtlStep,
    TtlSteps,
};
use latchd_core::engine::{Config, Core, Event};
use latchd_core::key::Key;
use latchd_core::reply::Reply;
use latchd_core::store::MapStore;
use latchd_core::time::Exptime;
use latchd_core::wait::{Notice, Outcome};
use latchd_core::{ConnId, Instant, Limits};
use latchd_harness::alphabet::ReplyKind;

use super::{Bounds, Gets, Happening, KEYS_MAX, Witness};
use crate::frame::{CLIENTS_MAX, Judged, must};
use crate::setup::UNIX_S_AT_START;

/// Milliseconds in a step of time.
pub(super) const STEP_MS: u64 = 1000;

/// How long a get waits: longer than an item lasts that is made for it.
pub(super) const WAIT_MS: u64 = 3 * STEP_MS;

/// What `N` and `T` give, in seconds: two steps.
pub(super) const TTL_S: u32 = 2;

/// What `R` asks for: an item that has been there for a step is short of it.
pub(super) const SHORT_S: u32 = 2;

/// What `touch` leaves, and when a flush comes that is asked for later: a step.
const SOON_S: u32 = 1;

const KEYS: [&[u8]; KEYS_MAX] = [b"k", b"l"];

/// A client, as what it was told says.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Client {
    pub(super) conn: Option<ConnId>,
    pub(super) parked: Option<Parked>,
}

/// A get that was answered that it waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parked {
    pub(super) key: usize,
    pub(super) gets: Gets,
    pub(super) until_ms: u64,
    /// The notice that has come, and is not heard yet.
    pub(super) told: Option<Outcome>,
    /// What it was told is that it has won.
    pub(super) has_won: bool,
}

/// What is known of a key.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    pub(super) item: Option<Item>,
    /// The win that is out.
    pub(super) win: Option<Won>,
    /// The item was made to be filled, and who was told to has gone: the next is told.
    pub(super) is_open: bool,
    /// Who waits, in the order in which they were answered so.
    pub(super) line: Vec<usize>,
    /// Who holds the lock.
    pub(super) holder: Option<usize>,
}

/// An item, as far as that decides who wins.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Item {
    pub(super) is_stale: bool,
    pub(super) gone_at_ms: Option<u64>,
    /// A flush came while it was held: it goes with its lock.
    pub(super) is_flushed: bool,
}

impl Item {
    /// One that was just made, and is gone at this moment.
    pub(super) const fn new(gone_at_ms: Option<u64>) -> Self {
        Self {
            is_stale: false,
            gone_at_ms,
            is_flushed: false,
        }
    }
}

/// A win that is out.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Won {
    /// Whose; `None` if it has gone and the win was not bound.
    pub(super) client: Option<usize>,
    /// It ends with its connection.
    pub(super) is_bound: bool,
    /// Its item was made with it.
    pub(super) is_made: bool,
    /// It was given to one who has waited, and has not heard.
    pub(super) is_untold: bool,
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
    /// How many were told a value in this step.
    pub(super) told_values: usize,
    /// What the last step has shown.
    pub(super) seen: u32,
    /// What kind of reply the last step has brought.
    pub(super) answered: Option<ReplyKind>,
}

pub(super) fn name_of(number: usize) -> Key<'static> {
    Key::new(KEYS[number]).expect("it has one byte")
}

/// What an answer says of a change.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Answer {
    Done,
    NotFound,
    Refused,
    /// Whatever else it is, it is wrong.
    Other,
}

impl Answer {
    #[allow(clippy::wildcard_enum_match_arm)] // Of some twenty replies a change gets these.
    const fn of(reply: &Reply<'_>) -> Self {
        match reply {
            Reply::Hit(_)
            | Reply::Stored(_)
            | Reply::Deleted
            | Reply::Granted(_)
            | Reply::Unlocked => Self::Done,
            Reply::NotFound | Reply::Miss => Self::NotFound,
            Reply::Refused(_) | Reply::Contended(_) => Self::Refused,
            _ => Self::Other,
        }
    }
}

impl World {
    pub(super) fn new(bounds: &Bounds) -> Self {
        let mut limits = Limits::new(1 << 20, 16);
        limits.locks_settled_max = bounds.settled_max;
        limits.crawl_items_max = bounds.settled_max;
        Self {
            core: Core::reference(Config::new(limits, UNIX_S_AT_START)),
            clients: Default::default(),
            keys: Default::default(),
            flush_at_ms: None,
            now_ms: 0,
            connections: 0,
            told_values: 0,
            seen: 0,
            answered: None,
        }
    }

    pub(super) fn client_of(&self, conn: ConnId) -> Option<usize> {
        let is_it = |client: &Client| client.conn == Some(conn);
        self.clients.iter().position(is_it)
    }

    pub(super) fn now(&self) -> Instant {
        Instant::from_millis(self.now_ms)
    }

    pub(super) fn witness(&mut self, witness: Witness) {
        self.seen |= witness.bit();
    }

    /// Whether the core has something to do by now.
    pub(super) fn is_due(&self) -> bool {
        let next = self.core.next_deadline();
        next.is_some_and(|next| next <= self.now())
    }

    pub(super) fn happen(&mut self, bounds: &Bounds, happening: Happening) -> Judged {
        self.seen = 0;
        self.answered = None;
        self.told_values = 0;
        let distance = self.distance();
        let leads_on = self.leads_on(happening);
        self.act(bounds, happening)?;
        must(
            !leads_on || self.distance() < distance,
            "Z12: what a winner does, or who hears, does not lead on",
        )?;
        self.judge(bounds, happening)
    }

    fn act(&mut self, bounds: &Bounds, happening: Happening) -> Judged {
        match happening {
            Happening::Open(client) => {
                self.connections += 1;
                let conn = ConnId::from_number(self.connections);
                self.clients[client].conn = Some(conn);
                self.tell(Event::Opened(conn), |_| {})
            }
            Happening::Close(client) => {
                let conn = self.clients[client].conn.expect("it is open");
                self.tell(Event::Closed(conn), |world| world.close(client))
            }
            Happening::Time => {
                self.now_ms += STEP_MS;
                if bounds.is_punctual {
                    self.pass()
                } else {
                    Ok(())
                }
            }
            Happening::Pass => self.pass(),
            Happening::Tick => self.tell(Event::Tick, |_| {}),
            Happening::Get(client, key, gets) => self.get(client, key, gets),
            Happening::Hear(client) => self.hear(client),
            Happening::Set(client, key) => self.set(client, key, None),
            Happening::SetExpiring(client, key) => self.set(client, key, Some(TTL_S)),
            Happening::Mark(client, key) => {
                self.delete(client, key, Removal::MarkStale { exptime: None })
            }
            Happening::Delete(client, key) => self.delete(client, key, Removal::Remove),
            Happening::Touch(client, key) => self.touch(client, key),
            Happening::Lock(client, key) => self.lock(client, key),
            Happening::Release(client, key) => self.release(client, key),
            Happening::UnlockAll(client) => {
                let conn = self.conn(client);
                self.call(
                    |core, now| drop(core.execute(now, conn, GlobalCommand::UnlockAll.into())),
                    |world, ()| {
                        (0..KEYS_MAX).for_each(|key| world.let_go(client, key));
                        Ok(())
                    },
                )
            }
            Happening::Flush => self.flush_at(Exptime::Never),
            Happening::FlushLater => self.flush_at(Exptime::In { seconds: SOON_S }),
        }
    }

    /// One call of the core. The time comes before it, with all that is over by then; then what it answers, and what
    /// comes of that; and whoever waits hears of either.
    fn call<T>(
        &mut self,
        call: impl FnOnce(&mut Core<MapStore>, Instant) -> T,
        apply: impl FnOnce(&mut Self, T) -> Judged,
    ) -> Judged {
        self.come_to_now();
        let now = self.now();
        let answer = call(&mut self.core, now);
        let core = &mut self.core;
        let mut notices: VecDeque<Notice> = iter::from_fn(|| core.next_notice()).collect();
        self.take_in(&mut notices)?;
        apply(self, answer)?;
        self.take_in(&mut notices)?;
        must(
            notices.is_empty(),
            "Z11: one is told something that is not so, or did not wait",
        )
    }

    fn tell(&mut self, event: Event, apply: impl FnOnce(&mut Self)) -> Judged {
        self.call(
            |core, now| core.handle(now, event),
            |world, ()| {
                apply(world);
                Ok(())
            },
        )
    }

    /// As a transport does that keeps to the deadlines.
    fn pass(&mut self) -> Judged {
        let mut calls = 0;
        loop {
            self.call(Core::pass, |_, ()| Ok(()))?;
            calls += 1;
            if !self.is_due() {
                return Ok(());
            }
            must(calls < 20, "Z8: what is due is never done")?;
        }
    }

    fn conn(&self, client: usize) -> ConnId {
        self.clients[client].conn.expect("it is open")
    }

    fn get(&mut self, client: usize, key: usize, gets: Gets) -> Judged {
        let command = Command::from(gets.command(name_of(key)));
        self.ask(client, key, gets, command)
    }

    /// What has waited is asked once more, without its wait.
    fn hear(&mut self, client: usize) -> Judged {
        let parked = self.clients[client].parked.take().expect("it has waited");
        let (key, gets) = (parked.key, parked.gets);
        let told = parked.told.expect("it was told");
        if told == Outcome::NotFound {
            // That is the answer.
            return Ok(());
        }
        let has_it = self.has_untold(client, key);
        self.witness(match told {
            Outcome::Granted if has_it => Witness::HeardInTime,
            Outcome::Granted if parked.has_won => Witness::LostBeforeHeard,
            Outcome::Granted | Outcome::TimedOut | Outcome::NotFound | Outcome::TooManyLocks => {
                Witness::HeardTooLate
            }
        });
        let command = Command::from(gets.command(name_of(key)));
        self.ask(client, key, gets, command.without_wait())
    }

    fn ask(&mut self, client: usize, key: usize, gets: Gets, command: Command<'_>) -> Judged {
        let conn = self.conn(client);
        let waits = matches!(&command, Command::Item(ItemCommand::Get(get)) if get.wait_ms > 0);
        self.call(
            |core, now| {
                let reply = core.execute(now, conn, command);
                (ReplyKind::of(&reply), super::rules::Got::of(&reply))
            },
            |world, (kind, got)| {
                world.answered = Some(kind);
                world.judge_get(client, key, (gets, waits), got?)
            },
        )
    }

    /// Asks for a change, and says what has become of it.
    fn change(
        &mut self,
        client: usize,
        command: Command<'_>,
        apply: impl FnOnce(&mut Self, Answer) -> Judged,
    ) -> Judged {
        let conn = self.conn(client);
        self.call(
            |core, now| {
                let reply = core.execute(now, conn, command);
                (ReplyKind::of(&reply), Answer::of(&reply))
            },
            |world, (kind, answer)| {
                world.answered = Some(kind);
                apply(world, answer)
            },
        )
    }

    /// Whether a client may change the item of a key, or make it.
    pub(super) fn may_change(&self, client: usize, key: usize) -> bool {
        self.keys[key].holder.is_none_or(|holder| holder == client)
    }

    fn set(&mut self, client: usize, key: usize, ttl_s: Option<u32>) -> Judged {
        let exptime = ttl_s.map_or(Exptime::Never, |seconds| Exptime::In { seconds });
        let set = Set {
            exptime,
            ..Set::new(name_of(key), b"v")
        };
        let gone_at_ms = ttl_s.map(|seconds| self.now_ms + u64::from(seconds) * STEP_MS);
        self.change(client, set.into(), |world, answer| {
            if !world.may_change(client, key) {
                return must(answer == Answer::Refused, "E2: stored by one who may not");
            }
            must(answer == Answer::Done, "E8: a store is refused")?;
            world.set_item(key, Some(Item::new(gone_at_ms)));
            Ok(())
        })
    }

    fn delete(&mut self, client: usize, key: usize, removal: Removal) -> Judged {
        let delete = Delete {
            removal,
            ..Delete::new(name_of(key))
        };
        self.change(client, delete.into(), |world, answer| {
            let item = world.keys[key].item;
            let due = match item {
                _ if !world.may_change(client, key) => Answer::Refused,
                None => Answer::NotFound,
                Some(_) => Answer::Done,
            };
            must(answer == due, "E8: deleted or marked, or not, and wrongly")?;
            if let (Answer::Done, Some(item)) = (answer, item) {
                let stays = removal != Removal::Remove;
                let is_stale = true;
                world.set_item(key, stays.then_some(Item { is_stale, ..item }));
            }
            Ok(())
        })
    }

    fn touch(&mut self, client: usize, key: usize) -> Judged {
        let seconds = SOON_S;
        let get = Get {
            steps: TtlSteps::one(TtlStep::Touch(Exptime::In { seconds })),
            ..Get::new(name_of(key))
        };
        let gone_at_ms = Some(self.now_ms + u64::from(seconds) * STEP_MS);
        self.change(client, get.into(), |world, answer| {
            let item = &mut world.keys[key].item;
            let is_there = answer == Answer::Done;
            must(
                is_there == item.is_some(),
                "E7: touched, or not, and wrongly",
            )?;
            if let Some(item) = item {
                item.gone_at_ms = gone_at_ms;
            }
            Ok(())
        })
    }

    fn lock(&mut self, client: usize, key: usize) -> Judged {
        let command = Command::Item(ItemCommand::Acquire(Acquire::new(name_of(key))));
        self.change(client, command, |world, answer| {
            let holder = &mut world.keys[key].holder;
            let is_granted = answer == Answer::Done;
            must(
                is_granted == holder.is_none(),
                "L6: granted, or not, and wrongly",
            )?;
            holder.get_or_insert(client);
            Ok(())
        })
    }

    fn release(&mut self, client: usize, key: usize) -> Judged {
        let command = Command::Item(ItemCommand::Release(Release {
            key: name_of(key),
            fence: None,
        }));
        self.change(client, command, |world, answer| {
            let is_its = world.keys[key].holder == Some(client);
            must(
                is_its == (answer == Answer::Done),
                "L6: given back, or not, and wrongly",
            )?;
            world.let_go(client, key);
            Ok(())
        })
    }

    fn flush_at(&mut self, at: Exptime) -> Judged {
        let nobody = ConnId::from_number(0);
        self.call(
            |core, now| {
                drop(core.execute(now, nobody, GlobalCommand::FlushAll { at }.into()));
            },
            |world, ()| {
                match at {
                    Exptime::In { seconds } => {
                        let delay_ms = u64::from(seconds) * STEP_MS;
                        world.flush_at_ms = Some(world.now_ms + delay_ms);
                    }
                    Exptime::Never | Exptime::Past | Exptime::At { .. } => world.flush(),
                }
                Ok(())
            },
        )
    }
}
