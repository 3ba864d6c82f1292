//! The bounds of one model: how many clients and keys, how much room, and which verbs.

use std::collections::BTreeSet;

use latchd_core::Limits;
use latchd_core::engine::{Config, Core, LockTable};
use latchd_core::store::{MapStore, Store};
pub(crate) use latchd_harness::alphabet::UNIX_S_AT_START;
use latchd_harness::alphabet::{ReplyKind, RequestKind, SmallValue};
use latchd_protocol::key::Key;

use crate::action::{Action, KEYS};
use crate::beliefs;
use crate::canonical::Canonical;
pub use crate::frame::CLIENTS_MAX;
use crate::frame::{Bounded, Judged, Named, Shown};
use crate::invariants::{Invariant, Witness};
use crate::transcript;
use crate::verb::{Scope, Verb, ask, is_fenced};
use crate::world::World;

/// The most keys that the clients of a model share.
pub const CLIENT_KEYS_MAX: usize = 2;

/// How much memory there is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Room {
    /// So much that nothing is ever evicted. The order of eviction then decides nothing, and the
    /// canonical view omits it.
    Ample,
    /// For so many items.
    Items(u8),
}

/// A model.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Its name on the command line.
    pub name: &'static str,
    /// How many clients; at most [`CLIENTS_MAX`].
    pub clients: usize,
    /// How many keys they share; at most [`CLIENT_KEYS_MAX`].
    pub keys: usize,
    /// Over how many shards of items the keys are spread; at most `SHARDS_MAX`.
    pub shards: usize,
    /// How much memory there is.
    pub room: Room,
    /// The TTL of items that expire, in seconds.
    pub ttl_s: u32,
    /// How many locks a connection may hold.
    pub locks_max: usize,
    /// How many ended locks a command releases ([`locks_settled_max`](Limits::locks_settled_max)).
    pub settled_max: usize,
    /// The possible events.
    pub alphabet: &'static [&'static [Verb]],
    /// States and transitions, as of the last intended change of model or core.
    pub pinned: (usize, usize),
}

pub(crate) const fn of(
    name: &'static str,
    [clients, keys]: [usize; 2],
    pinned: (usize, usize),
    alphabet: &'static [&'static [Verb]],
) -> Setup {
    Setup {
        name,
        clients,
        keys,
        shards: 1,
        room: Room::Ample,
        ttl_s: 1,
        locks_max: 8,
        settled_max: 16,
        alphabet,
        pinned,
    }
}

impl Setup {
    pub(crate) const fn over_two_shards(self) -> Self {
        Self { shards: 2, ..self }
    }

    pub(crate) const fn with_room_for(self, items: u8) -> Self {
        let room = Room::Items(items);
        Self { room, ..self }
    }

    /// Items that expire last two steps.
    pub(crate) const fn lasting_two(self) -> Self {
        Self { ttl_s: 2, ..self }
    }

    /// A connection may hold one lock.
    pub(crate) const fn holding_one(self) -> Self {
        let locks_max = 1;
        Self { locks_max, ..self }
    }

    /// A command releases one ended lock.
    pub(crate) const fn settling_one(self) -> Self {
        let settled_max = 1;
        Self {
            settled_max,
            ..self
        }
    }
}

/// The bytes of every value that clients store, so that a new value fits in the place of the old
/// one.
pub const VALUE_BYTES: usize = 4;

/// The limit on values: a long one fits alone, and not appended to another.
const VALUE_BYTES_MAX: usize = SmallValue::Long.bytes().len() + VALUE_BYTES - 1;

impl Setup {
    /// Whether a verb is in the alphabet.
    #[must_use]
    pub fn has(&self, verb: Verb) -> bool {
        self.verbs().any(|one| one == verb)
    }

    /// Whether a request of this kind is in the alphabet, in the plain manner.
    #[must_use]
    pub fn asks(&self, kind: RequestKind) -> bool {
        self.has(ask(kind))
    }

    /// The alphabet.
    pub fn verbs(&self) -> impl Iterator<Item = Verb> + '_ {
        self.alphabet.iter().flat_map(|verbs| verbs.iter().copied())
    }

    /// Whether a version that a client was told can come back in a request; if not, no client
    /// needs to remember any.
    #[must_use]
    pub fn has_versions(&self) -> bool {
        self.verbs().any(|verb| verb.scope() == Scope::Version)
    }

    /// Whether the number of a grant can come back in a request.
    #[must_use]
    pub fn has_fences(&self) -> bool {
        let is_fenced = |verb| matches!(verb, Verb::Ask(kind, _) if is_fenced(kind));
        self.verbs().any(is_fenced)
    }

    /// Whether a state in which two keys have changed places is the same state.
    ///
    /// Not if the order of eviction can matter: a connection that ends releases its locks in the
    /// order of the keys, and that is the order in which the items can be evicted. Not if they are
    /// released one at a time, for the same reason. Each of two shards has one of them.
    #[must_use]
    pub const fn keys_alike(&self) -> bool {
        matches!(self.room, Room::Ample) && self.settles_together()
    }

    /// Whether the next command completes the ends of all locks.
    #[must_use]
    pub const fn settles_together(&self) -> bool {
        self.settled_max > CLIENT_KEYS_MAX
    }

    /// The shard that has the key with this number in `KEYS`.
    #[must_use]
    pub const fn shard_of(&self, key: usize) -> usize {
        KEYS[key][0] as usize % self.shards
    }

    /// The core.
    #[must_use]
    pub fn core(&self) -> Core<MapStore> {
        core_of(self.limits(), self.shards)
    }

    fn limits(&self) -> Limits {
        let item_bytes = MapStore::new(&Limits::default()).bytes_for(1, VALUE_BYTES);
        let bytes = match self.room {
            Room::Ample => 1 << 20,
            // A little more than they take, but too little for another empty one.
            Room::Items(items) => usize::from(items) * item_bytes + item_bytes / 10,
        };
        let mut limits = Limits::new(bytes, VALUE_BYTES_MAX);
        limits.locked_bytes_max = bytes;
        let table_bytes = CLIENT_KEYS_MAX * LockTable::bytes_for(Key::new(b"k").expect("a key"));
        limits.lock_table_bytes_max = table_bytes;
        limits.lock_bytes_per_connection_max = bytes + table_bytes;
        limits.locks_settled_max = self.settled_max;
        limits.locks_per_connection_max = self.locks_max;
        limits
    }
}

/// A core with so many shards of items.
pub(crate) fn core_of(limits: Limits, shards: usize) -> Core<MapStore> {
    let stores = vec![MapStore::new(&limits.share(shards)); shards];
    Core::with_stores(Config::new(limits, UNIX_S_AT_START), stores)
}

impl Named for Setup {
    fn name(&self) -> &'static str {
        self.name
    }

    fn pinned(&self) -> (usize, usize) {
        self.pinned
    }

    fn about(&self) -> String {
        let Self {
            clients,
            keys,
            shards,
            room,
            ..
        } = self;
        let verbs: BTreeSet<String> = self.verbs().map(|verb| verb.to_string()).collect();
        let verbs: Vec<String> = verbs.into_iter().collect();
        let verbs = verbs.join(" ");
        let claimed = Invariant::ALL.iter().filter(|one| one.is_claimed(self));
        let always = claimed.map(|one| format!("\n  always {}", one.title()));
        let always: String = always.collect();
        format!("{clients}×{keys}, {shards} shard(s), room {room:?}: {verbs}{always}")
    }

    fn must_see(&self) -> Vec<(Shown, String)> {
        Witness::due(self)
    }
}

impl Bounded for Setup {
    type World = World;
    type Happening = Action;
    type View = Canonical;
    type Label = (Verb, Option<ReplyKind>);

    fn first(&self) -> World {
        World::new(self)
    }

    fn happenings(&self, world: &World, actions: &mut Vec<Action>) {
        world.actions(self, actions);
    }

    fn happen(&self, world: &mut World, action: Action) -> Judged {
        world.happen(self, action)
    }

    fn probe(&self, world: &World) -> Result<Shown, String> {
        beliefs::escape(world, self)
    }

    fn view(&self, world: &World) -> Canonical {
        Canonical::of(self, world)
    }

    fn label(action: &Action, next: &World) -> Self::Label {
        // Clients, and keys where these are alike, have other names in the other world. A witness
        // may be of the past: that a number is above the last one.
        (action.verb, next.answered)
    }

    fn seen(world: &World) -> Shown {
        world.witnessed
    }

    fn transcript(&self, way: &[Action], fault: &str) -> String {
        let invariant = Invariant::of_fault(fault);
        let title = format!("{invariant} is broken after {} steps", way.len());
        let end = format!("{}\n{fault}", invariant.title());
        transcript::write(self, way, &title, &end)
    }
}
