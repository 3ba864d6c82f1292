//! One state of a model: real cores, clients that believe only their replies, and the time.
//!
//! - B2: after every event the core's own structural check runs, and every rule of `rules` is
//!   applied to the change. The first offence ends the path.

use latchd_core::engine::{Core, Event};
use latchd_core::store::MapStore;
use latchd_core::{Instant, Owner};
use latchd_harness::alphabet::{Input, Op, ReplyKind, SmallRequest};
use latchd_protocol::command::{Command, ItemCommand, Release, ReleaseOf, Set};
use latchd_protocol::item::Cas;

use crate::action::{Action, GONE, KEYS, PRESSURE_KEY, Words, key};
use crate::beliefs;
use crate::client::{FanOut, ModelClient};
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
    pub(crate) shards: Vec<Core<MapStore>>,
    pub(crate) clients: [ModelClient; CLIENTS_MAX],
    pub(crate) now_ms: u64,
    /// How many connections there have been. Ids are never used again.
    pub(crate) connections: u64,
    /// How many values have been stored. No two are alike.
    pub(crate) values: u64,
    pub(crate) ghosts: [Ghost; KEYS.len()],
    /// The number of the last grant that any client was told, by key.
    pub(crate) fences: [Option<u64>; KEYS.len()],
    /// The greatest fence that was given, a shard.
    pub(crate) fence_given: [u64; SHARDS_MAX],
    /// When a `flush_all` is to take effect, as its sender understands it.
    pub(crate) flush_due_ms: [Option<u64>; SHARDS_MAX],
    /// The greatest number that was given to a change, a shard.
    pub(crate) given: [u64; SHARDS_MAX],
    /// The last connection that has ended.
    pub(crate) last_ended: Option<Owner>,
    /// The cores, as the last event has left them.
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
    /// A world without connections, and with cores before their first event.
    pub(crate) fn new(setup: &Setup) -> Self {
        let mut world = Self {
            shards: setup.cores(),
            clients: Default::default(),
            now_ms: 0,
            connections: 0,
            values: 0,
            ghosts: Default::default(),
            fences: [None; KEYS.len()],
            fence_given: [0; SHARDS_MAX],
            flush_due_ms: [None; SHARDS_MAX],
            given: [0; SHARDS_MAX],
            last_ended: None,
            snapshot: Snapshot::empty(),
            witnessed: Shown::default(),
            answered: None,
        };
        for shard in 0..world.shards.len() {
            world.look(shard).expect("there is nothing to see");
        }
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
                let is_free = client.conn.is_some() && client.fan_out.is_none();
                let is_possible = match verb.scope() {
                    Scope::Absent => client.conn.is_none(),
                    Scope::Underway => client.fan_out.is_some(),
                    Scope::Client | Scope::Item | Scope::Version => is_free,
                    Scope::World | Scope::Key => false,
                };
                let is_about = |key: &usize| match verb.scope() {
                    Scope::Item => true,
                    Scope::Version => client.versions[*key].is_some(),
                    // One action, for any keys.
                    Scope::Absent | Scope::Underway | Scope::Client => *key == 0,
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
        let Some(op) = action.op(setup) else {
            return self.walk(setup, action.client());
        };
        match op {
            Op::Open { client } => self.open(client.among(CLIENTS_MAX)),
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
                // A connection of no client: it takes no lock, so no core needs to know it.
                let nobody = Owner::from_number(0);
                self.ask(setup, nobody, PRESSURE_KEY, command).map(drop)
            }
            Op::Request { client, request } => {
                self.request(setup, client.among(CLIENTS_MAX + 1), &request)
            }
        }
    }

    /// Every shard gets the same event.
    fn tell(&mut self, setup: &Setup, now_ms: u64, event: Event) -> Judged {
        (0..self.shards.len()).try_for_each(|shard| {
            let input = Input::Event(event);
            self.enter(setup, shard, now_ms, &Cause::Time, input)
                .map(drop)
        })
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
        self.begin(setup, who, FanOut::Close)
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
                let fan_out = FanOut::of(&command).expect("a word asks for it");
                if fan_out == FanOut::UnlockAll {
                    // A client that releases all its locks does not count on any.
                    self.clients[who].holds = Default::default();
                    self.clients[who].holds_key = Default::default();
                    self.clients[who].lease_until_ms = Default::default();
                }
                return self.begin(setup, who, fan_out);
            }
        };
        let number = number.expect("a request for one item names its key");
        self.values += 1;
        if who == GONE {
            // A connection that never was is as good as a dead one.
            let dead = self.last_ended.unwrap_or(Owner::from_number(0));
            return self.ask(setup, dead, number, command).map(drop);
        }
        let conn = self.clients[who].conn.expect("it is a client that asks");
        self.announce(who, number % self.shards.len())?;
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

    fn open(&mut self, who: usize) -> Judged {
        self.connections += 1;
        self.clients[who].conn = Some(Owner::from_number(self.connections));
        // With several shards it is announced to each with its first request there.
        if self.shards.len() == 1 {
            self.announce(who, 0)?;
        }
        Ok(())
    }

    fn announce(&mut self, who: usize, shard: usize) -> Judged {
        let client = &mut self.clients[who];
        let conn = client.conn.expect("a requesting client is connected");
        if std::mem::replace(&mut client.opened[shard], true) {
            return Ok(());
        }
        let now = Instant::from_millis(self.now_ms);
        self.shards[shard].handle(now, Event::Opened(conn));
        // No rule is applied to an announcement alone: it is followed by the request, or by nothing
        // that could differ.
        self.settle(shard, self.now_ms);
        self.look(shard)
    }

    /// Asks the core that has the key with this number.
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
        let shard = number % self.shards.len();
        let input = Input::Command(conn, command.into());
        self.enter(setup, shard, self.now_ms, &cause, input)
    }

    /// Starts an operation on all shards, with the first.
    fn begin(&mut self, setup: &Setup, who: usize, fan_out: FanOut) -> Judged {
        self.clients[who].fan_out = Some((fan_out, 0));
        self.walk(setup, who)
    }

    /// Continues a client's operation on all shards with the next one.
    fn walk(&mut self, setup: &Setup, who: usize) -> Judged {
        let client = &self.clients[who];
        let (fan_out, first) = client.fan_out.expect("it is in the middle of something");
        let conn = client.conn.expect("it is not closed yet");
        let is_concerned = |shard: &usize| match fan_out {
            FanOut::Close | FanOut::UnlockAll => client.opened[*shard],
            FanOut::FlushAll { .. } | FanOut::Keys | FanOut::Stats | FanOut::StatsReset => true,
        };
        let mut concerned = (first..self.shards.len()).filter(is_concerned);
        let (shard, next) = (concerned.next(), concerned.next());
        if let Some(shard) = shard {
            let (cause, input) = match fan_out.command() {
                None => (Cause::Closed { conn }, Input::Event(Event::Closed(conn))),
                Some(command) => (
                    Cause::AskedAll { conn, command },
                    Input::Command(conn, command.into()),
                ),
            };
            if first > 0 {
                self.witnessed.add(Witness::SecondShard);
            }
            self.enter(setup, shard, self.now_ms, &cause, input)?;
        }
        let client = &mut self.clients[who];
        client.fan_out = next.map(|next| (fan_out, next));
        if let Some(shard) = shard
            && fan_out == FanOut::Close
        {
            client.opened[shard] = false;
        }
        if client.fan_out.is_none() && fan_out == FanOut::Close {
            self.last_ended = client.conn.take();
        }
        Ok(())
    }

    /// Puts one input into a core, and applies every rule to the change.
    fn enter(
        &mut self,
        setup: &Setup,
        shard: usize,
        now_ms: u64,
        cause: &Cause<'_>,
        input: Input<'_>,
    ) -> Result<Option<ReplySeen>, String> {
        self.settle(shard, now_ms);
        let before = self.snapshot;
        let core = &mut self.shards[shard];
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
        self.look(shard)?;
        // An item with a past deadline is invisible, whether or not the core has noticed.
        let mut after = self.snapshot;
        rules::forget_expired(&mut after, self.now_ms);
        let mut change = Change {
            setup,
            cause,
            answer,
            shard,
            now_ms: self.now_ms,
            before: &before,
            after: &after,
            ghosts: self.ghosts,
            flush_due_ms: self.flush_due_ms[shard],
            given: self.given[shard],
            fence_given: self.fence_given[shard],
            witnessed: Shown::default(),
        };
        change.judge()?;
        self.witnessed.add(change.witnessed);
        self.ghosts = change.ghosts;
        self.flush_due_ms[shard] = change.flush_due_ms;
        self.given[shard] = change.given;
        self.fence_given[shard] = change.fence_given;
        let is_walking = self.clients.iter().any(|client| client.fan_out.is_some());
        if is_walking && matches!(answer, Some(ReplySeen::Locked)) {
            self.witnessed.add(Witness::BetweenShards);
        }
        let shown = beliefs::handover(self, cause, &before, answer);
        self.witnessed.add(shown);
        Ok(answer)
    }

    /// Frees the locks of a shard with leases that have expired. Each holder knows that by its own
    /// clock. The expiry and flushes that they have held off happen.
    fn end_leases(&mut self, shard: usize, now_ms: u64, flush_is_due: bool) {
        let shards = self.shards.len();
        for number in (0..KEYS.len()).filter(|number| number % shards == shard) {
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

    /// Applies the effects of time on the shard's items, before the next event: every later request
    /// has a right to see them.
    fn settle(&mut self, shard: usize, now_ms: u64) {
        let now_ms = now_ms.max(self.snapshot.shards[shard].now_ms);
        let is_due = self.flush_due_ms[shard].is_some_and(|due| due <= now_ms);
        let shards = self.shards.len();
        self.end_leases(shard, now_ms, is_due);
        for (number, item) in self.snapshot.items.iter_mut().enumerate() {
            if number % shards != shard {
                continue;
            }
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
            self.flush_due_ms[shard] = None;
        }
    }

    /// Reads the state of a shard again.
    fn look(&mut self, shard: usize) -> Judged {
        let shards = self.shards.len();
        self.snapshot
            .take(shard, shards, &self.shards[shard].view())
    }
}
