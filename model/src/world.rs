//! One state of a model: a real core, clients that believe only their replies, and the time.
//!
//! - B2: after every event the core's own structural check runs, and every rule of `rules` is
//!   applied to the change. The first offence ends the path.

use latchd_core::engine::{Core, Event};
use latchd_core::store::MapStore;
use latchd_core::{Instant, Owner};
use latchd_harness::alphabet::{Input, Op, ReplyKind, SmallRequest};
use latchd_protocol::command::{Command, GlobalCommand, ItemCommand, Release, ReleaseOf, Set};
use latchd_protocol::item::Cas;

use crate::action::{Action, GONE, KEYS, PRESSURE_KEY, Words, key};
use crate::beliefs;
use crate::client::ModelClient;
use crate::expected;
use crate::frame::{Judged, Shown};
use crate::invariants::Witness;
use crate::pairs;
use crate::reply_seen::ReplySeen;
use crate::rules::{self, Cause, Change};
use crate::setup::{CLIENTS_MAX, Setup, UNIX_S_AT_START, VALUE_BYTES};
use crate::snapshot::{SHARDS_MAX, Seen, Snapshot};
use crate::verb::Scope;

/// A state of a model.
#[derive(Clone, Debug)]
pub struct World {
    /// The real thing.
    pub(crate) core: Core<MapStore>,
    pub(crate) clients: [ModelClient; CLIENTS_MAX],
    pub(crate) now_ms: u64,
    /// How many connections there have been. Ids are never used again.
    pub(crate) connections: u64,
    /// How many values have been stored. No two are alike.
    pub(crate) values: u64,
    pub(crate) ghosts: [Ghost; KEYS.len()],
    /// The number of the last grant that any client was told, by key.
    pub(crate) fences: [Option<u64>; KEYS.len()],
    /// The greatest fence that was given.
    pub(crate) fence_given: u64,
    /// When a `flush_all` is to take effect, as its sender understands it.
    pub(crate) flush_due_ms: Option<u64>,
    /// The greatest number that each shard has given to a change.
    pub(crate) given: [u64; SHARDS_MAX],
    /// The last connection that has ended.
    pub(crate) last_ended: Option<Owner>,
    /// The core, as the last event has left it.
    pub(crate) snapshot: Snapshot,
    /// The witnesses of the last step.
    pub(crate) witnessed: Shown,
    /// The kind of the last step's reply.
    pub(crate) answered: Option<ReplyKind>,
}

/// Expectations about an item because of past events.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Ghost {
    /// A reply has said `W`, and nothing has opened the win since.
    pub(crate) win_out: bool,
    /// A `flush_all` has found it held.
    pub(crate) flush_pending: bool,
}

impl World {
    /// A world without connections, and with a core before its first event.
    pub(crate) fn new(setup: &Setup) -> Self {
        let mut world = Self {
            core: setup.core(),
            clients: Default::default(),
            now_ms: 0,
            connections: 0,
            values: 0,
            ghosts: Default::default(),
            fences: [None; KEYS.len()],
            fence_given: 0,
            flush_due_ms: None,
            given: [0; SHARDS_MAX],
            last_ended: None,
            snapshot: Snapshot::empty(),
            witnessed: Shown::default(),
            answered: None,
        };
        world.look(setup).expect("there is nothing to see");
        world
    }

    /// The value of the next request: as many digits as every value has, and another number each
    /// time.
    pub(crate) fn next_value(&self) -> String {
        let value = format!("{}", 1000 + (self.values + 1) % 8000);
        debug_assert_eq!(value.len(), VALUE_BYTES);
        value
    }

    /// The last version of a key that the client was told.
    pub(crate) fn version(&self, client: usize, key: usize) -> Option<u64> {
        let version = self.clients.get(client)?.versions.get(key)?;
        version.map(Cas::number)
    }

    /// Every possible event, in a fixed order.
    pub(crate) fn actions(&self, setup: &Setup, actions: &mut Vec<Action>) {
        let number = |index: usize| u8::try_from(index).expect("there are few");
        for verb in setup.verbs() {
            let action = |client: usize, key: usize| Action {
                client: number(client),
                verb,
                key: number(key),
            };
            if verb.scope() == Scope::World {
                actions.push(action(0, 0));
            }
            if verb.scope() == Scope::Key {
                actions.extend((0..setup.keys).map(|key| action(0, key)));
            }
            for (index, client) in self.clients.iter().enumerate().take(setup.clients) {
                let is_possible = match verb.scope() {
                    Scope::Absent => client.conn.is_none(),
                    Scope::Client | Scope::Item | Scope::Version => client.conn.is_some(),
                    Scope::World | Scope::Key => false,
                };
                let is_about = |key: &usize| match verb.scope() {
                    Scope::Item => true,
                    Scope::Version => client.versions[*key].is_some(),
                    // One action, for any keys.
                    Scope::Absent | Scope::Client => *key == 0,
                    Scope::World | Scope::Key => false,
                };
                if is_possible {
                    actions.extend(
                        (0..setup.keys)
                            .filter(is_about)
                            .map(|key| action(index, key)),
                    );
                }
            }
        }
    }

    /// Takes a step and judges it.
    pub(crate) fn happen(&mut self, setup: &Setup, action: Action) -> Judged {
        self.witnessed = Shown::default();
        self.answered = None;
        self.act(setup, action)?;
        beliefs::check(self, setup)?;
        self.witnessed.add(beliefs::shown(self));
        Ok(())
    }

    fn act(&mut self, setup: &Setup, action: Action) -> Judged {
        match action.op(setup) {
            Op::Open { client } => self.open(setup, client.among(CLIENTS_MAX)),
            Op::Close { client } => self.close(setup, client.among(CLIENTS_MAX)),
            Op::Advance { ms } => {
                self.now_ms += u64::from(ms);
                Ok(())
            }
            // No model here states the limit, has sessions, or withholds grants.
            Op::Limit { .. } | Op::Detach { .. } | Op::Withhold { .. } => Ok(()),
            // A tick does the due work, too; there are no waiters here.
            Op::Tick | Op::Due => self.tell(setup, self.now_ms, Event::Tick),
            Op::Rewind { ms } => {
                self.witnessed.add(Witness::StepBack);
                self.tell(setup, self.now_ms, Event::Tick)?;
                let earlier = self.now_ms.saturating_sub(ms.into());
                self.tell(setup, earlier, Event::Tick)
            }
            Op::WallClock { ahead_s } => {
                let unix_s_at_start = UNIX_S_AT_START + u64::from(ahead_s);
                self.tell(setup, self.now_ms, Event::WallClock { unix_s_at_start })
            }
            Op::Pressure { .. } => {
                let value = self.next_value();
                self.values += 1;
                let command = ItemCommand::Set(Set::new(key(PRESSURE_KEY), value.as_bytes()));
                // A connection of no client: it takes no lock, so the core need not know it.
                let nobody = Owner::from_number(0);
                self.ask(setup, nobody, PRESSURE_KEY, command).map(drop)
            }
            Op::Request { client, request } => {
                self.request(setup, client.among(CLIENTS_MAX + 1), &request)
            }
        }
    }

    /// The core gets an event that no client causes.
    fn tell(&mut self, setup: &Setup, now_ms: u64, event: Event) -> Judged {
        let input = Input::Event(event);
        self.enter(setup, now_ms, &Cause::Time, input).map(drop)
    }

    fn close(&mut self, setup: &Setup, who: usize) -> Judged {
        for key in 0..setup.keys {
            let item = self.snapshot.items[key];
            let version = self.clients[who].versions[key].map(Cas::number);
            if self.ghosts[key].win_out && item.map(|seen| seen.cas) == version {
                self.witnessed.add(Witness::WinnerDies);
            }
        }
        // A client that hangs up no longer believes anything.
        self.clients[who].holds = Default::default();
        self.clients[who].holds_key = Default::default();
        self.clients[who].lease_until_ms = Default::default();
        self.clients[who].versions = Default::default();
        let conn = self.clients[who].conn.take().expect("it is connected");
        let input = Input::Event(Event::Closed(conn));
        self.enter(setup, self.now_ms, &Cause::Closed { conn }, input)?;
        self.last_ended = Some(conn);
        Ok(())
    }

    /// A client asks for something, or [`GONE`] does.
    fn request(&mut self, setup: &Setup, who: usize, request: &SmallRequest) -> Judged {
        let value = self.next_value();
        let number = request.key().map(|key| key.among(KEYS.len()));
        let known = number.and_then(|number| self.clients.get(who)?.versions[number]);
        let command = request.lower(&Words {
            value: value.as_bytes(),
            known,
            fence: number.and_then(|number| self.fences[number]),
        });
        let command = match command {
            Command::Item(command) => command,
            Command::Global(command) => {
                if command == GlobalCommand::UnlockAll {
                    // A client that releases all its locks does not count on any.
                    self.clients[who].holds = Default::default();
                    self.clients[who].holds_key = Default::default();
                    self.clients[who].lease_until_ms = Default::default();
                }
                let conn = self.conn(who);
                let cause = Cause::AskedAll { conn, command };
                let input = Input::Command(conn, command.into());
                return self.enter(setup, self.now_ms, &cause, input).map(drop);
            }
        };
        let number = number.expect("a request for one item names its key");
        self.values += 1;
        if who == GONE {
            // A connection that never was is as good as a dead one.
            let dead = self.last_ended.unwrap_or(Owner::from_number(0));
            return self.ask(setup, dead, number, command).map(drop);
        }
        let conn = self.conn(who);
        if let Some(answer) = self.ask(setup, conn, number, command)? {
            self.clients[who].learn(setup, self.now_ms, number, &command, &answer);
            if let ItemCommand::Release(Release {
                of: ReleaseOf::Grant(_),
                ..
            }) = command
                && answer == ReplySeen::Unlocked
            {
                // The client that released another's lock tells its holder.
                for client in &mut self.clients {
                    client.holds[number] = false;
                    client.holds_key[number] = false;
                }
            }
            if let ReplySeen::Granted { fence, .. } = answer
                && setup.has_fences()
            {
                self.fences[number] = Some(fence);
            }
        }
        Ok(())
    }

    fn open(&mut self, setup: &Setup, who: usize) -> Judged {
        self.connections += 1;
        let conn = Owner::from_number(self.connections);
        self.clients[who].conn = Some(conn);
        let now = Instant::from_millis(self.now_ms);
        self.core.handle(now, Event::Opened(conn));
        // No rule is applied to it: it is followed by a request, or by nothing that could differ.
        self.settle(self.now_ms);
        self.look(setup)
    }

    fn conn(&self, who: usize) -> Owner {
        self.clients[who].conn.expect("it is a client that asks")
    }

    /// Asks for something about the key with this number.
    fn ask(
        &mut self,
        setup: &Setup,
        conn: Owner,
        number: usize,
        command: ItemCommand<'_>,
    ) -> Result<Option<ReplySeen>, String> {
        let cause = Cause::Asked {
            conn,
            key: number,
            command,
        };
        let input = Input::Command(conn, command.into());
        self.enter(setup, self.now_ms, &cause, input)
    }

    /// Puts one input into the core, and applies every rule to the change.
    fn enter(
        &mut self,
        setup: &Setup,
        now_ms: u64,
        cause: &Cause<'_>,
        input: Input<'_>,
    ) -> Result<Option<ReplySeen>, String> {
        self.settle(now_ms);
        let before = self.snapshot;
        let core = &mut self.core;
        let answered = &mut self.answered;
        let now = Instant::from_millis(now_ms);
        let answer = input.enter(core, now).map(|reply| {
            *answered = Some(ReplyKind::of(&reply));
            if let Some(command) = input.command() {
                pairs::note(command, &reply);
            }
            ReplySeen::from(&reply)
        });
        core.check();
        self.look(setup)?;
        // An item with a past deadline is invisible, whether or not the core has noticed.
        let mut after = self.snapshot;
        rules::forget_expired(&mut after, self.now_ms);
        let mut change = Change {
            setup,
            cause,
            answer,
            now_ms: self.now_ms,
            before: &before,
            after: &after,
            ghosts: self.ghosts,
            flush_due_ms: self.flush_due_ms,
            given: self.given,
            fence_given: self.fence_given,
            witnessed: Shown::default(),
        };
        change.judge()?;
        self.witnessed.add(change.witnessed);
        self.ghosts = change.ghosts;
        self.flush_due_ms = change.flush_due_ms;
        self.given = change.given;
        self.fence_given = change.fence_given;
        let shown = beliefs::handover(self, cause, &before, answer);
        self.witnessed.add(shown);
        Ok(answer)
    }

    /// Frees the locks with leases that have expired. Each holder knows that by its own
    /// clock. The expiry and flushes that they have held off happen.
    fn end_leases(&mut self, now_ms: u64, flush_is_due: bool) {
        for number in 0..KEYS.len() {
            for client in &mut self.clients {
                let is_over = client
                    .lease_until_ms
                    .get(number)
                    .is_some_and(|until| until.is_some_and(|until| until <= now_ms));
                if is_over {
                    client.holds[number] = false;
                    client.holds_key[number] = false;
                    client.lease_until_ms[number] = None;
                }
            }
            let lock = &mut self.snapshot.locks[number];
            let is_over = lock
                .and_then(|lock| lock.lease_until_ms)
                .is_some_and(|until| until <= now_ms);
            if !is_over {
                continue;
            }
            *lock = None;
            self.witnessed.add(Witness::LeaseEnds);
            let Some(held) = self.snapshot.items[number] else {
                continue;
            };
            let mut ghost = self.ghosts[number];
            ghost.flush_pending |= flush_is_due;
            let now = Instant::from_millis(now_ms).tick();
            let (item, ..) = expected::released(held, ghost, now);
            self.ghosts[number].flush_pending = false;
            self.snapshot.items[number] = item.map(|item| Seen {
                flush_pending: false,
                ..item
            });
        }
    }

    /// Applies the effects of time on the items, before the next event: every later request
    /// has a right to see them.
    fn settle(&mut self, now_ms: u64) {
        let now_ms = now_ms.max(self.snapshot.now_ms);
        let is_due = self.flush_due_ms.is_some_and(|due| due <= now_ms);
        self.end_leases(now_ms, is_due);
        for (number, item) in self.snapshot.items.iter_mut().enumerate() {
            let ghost = &mut self.ghosts[number];
            match item {
                Some(seen) if seen.locked => ghost.flush_pending |= is_due,
                Some(seen) if is_due || seen.is_past(now_ms) => {
                    self.witnessed.add(if is_due {
                        Witness::FlushedLater
                    } else {
                        Witness::Expired
                    });
                    if ghost.win_out {
                        self.witnessed.add(Witness::WinEndsWithItem);
                    }
                    *item = None;
                }
                Some(_) | None => {}
            }
            if item.is_none() {
                *ghost = Ghost::default();
            }
        }
        if is_due {
            self.flush_due_ms = None;
        }
    }

    /// Reads the state of the core again.
    fn look(&mut self, setup: &Setup) -> Judged {
        self.snapshot = Snapshot::of(setup, &self.core.view())?;
        Ok(())
    }
}
