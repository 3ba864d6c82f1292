//! When two worlds are one state: the canonical view.
//!
//! - V2: a difference between two worlds with the same canonical view decides nothing, now or
//!   later. Absolute numbers (time, versions, connection ids, the contents of values) are replaced
//!   by their meaning: the time left, the place of a version relative to the item's, the client of
//!   an id.
//! - V3: the canonical view is the least over all permutations of the clients, and of the keys
//!   where these are alike ([`Setup::keys_alike`]). [`Hash`](std::hash::Hash) and equality of a
//!   world look at nothing else, so a search needs to know nothing of symmetry.
//!
//! Every fact is about a key, about a client, or about a client and a key: so reordering the
//! clients means sorting the words of these facts.

use latchd_core::Owner;
use latchd_protocol::item::WinMark;
use latchd_protocol::time::TICK_MS;

use crate::action::{CHOSEN_CAS, PRESSURE_KEY};
use crate::client::ModelClient;
use crate::setup::{CLIENT_KEYS_MAX, CLIENTS_MAX, Room, Setup};
use crate::snapshot::{Lingering, LockOf, Seen, Snapshot};
use crate::world::{Ghost, World};

/// All that decides the possible events in a world from now on, and nothing else.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct Canonical {
    clients: [u64; CLIENTS_MAX],
    keys: [u64; CLIENT_KEYS_MAX + 1],
    rest: u64,
}

/// Writes facts into a word, each with the number of values that it has.
#[derive(Default)]
struct Word {
    word: u64,
    used: u32,
}

impl Word {
    fn push(&mut self, fact: u64, bits: u32) {
        assert!(fact >> bits == 0, "V2: a fact of {fact} in {bits} bits");
        self.word |= fact << self.used;
        self.used += bits;
        assert!(self.used <= 64, "V2: more facts than a word holds");
    }

    fn push_bit(&mut self, fact: bool) {
        self.push(u64::from(fact), 1);
    }
}

impl Canonical {
    /// Takes the canonical view of a world.
    #[must_use]
    pub(crate) fn of(setup: &Setup, world: &World) -> Self {
        let straight = Self::with_keys(setup, world, [0, 1]);
        if setup.keys == 2 && setup.keys_alike() {
            straight.min(Self::with_keys(setup, world, [1, 0]))
        } else {
            straight
        }
    }

    fn with_keys(setup: &Setup, world: &World, order: [usize; CLIENT_KEYS_MAX]) -> Self {
        let World {
            // Seen through the snapshot, which is taken after every event.
            core: _,
            clients,
            now_ms,
            // Only count on, so that ids and values are new.
            connections: _,
            values: _,
            ghosts,
            flush_due_ms,
            // Below every number that a shard still has to give (E3, checked after each event).
            given: _,
            // Above all numbers that clients were told, and below all that are still to come (L12).
            fence_given: _,
            fences,
            // Its former client decides nothing: to the core, every id that is not open is alike.
            last_ended: _,
            snapshot,
            // The witnesses and the reply of the last step.
            witnessed: _,
            answered: _,
        } = world;
        let Snapshot {
            items,
            locks,
            lingering,
            // Above every version (E3); no reply shows its exact number as such.
            next_cas: _,
            flush_at_ms,
            // Each belongs to a client or is an offence (L4).
            connections: _,
            // Every event brings a time that is not before it.
            now_ms: _,
        } = snapshot;
        let mut view = Self::default();
        for (word, client) in view
            .clients
            .iter_mut()
            .zip(clients.iter().take(setup.clients))
        {
            *word = client_word(setup, client, items, locks, &order);
        }
        view.clients.sort_unstable();
        let places = order.into_iter().take(setup.keys).chain([PRESSURE_KEY]);
        for (word, key) in view.keys.iter_mut().zip(places) {
            *word = key_word(
                setup,
                *now_ms,
                items[key].as_ref(),
                locks[key],
                fences[key],
                ghosts[key],
                lingering[key],
            );
        }
        let mut rest = Word::default();
        for at in [flush_at_ms, flush_due_ms] {
            rest.push(at.map_or(0, |at| 1 + ticks(at, *now_ms)), 8);
        }
        view.rest = rest.word;
        view
    }
}

fn client_word(
    setup: &Setup,
    client: &ModelClient,
    items: &[Option<Seen>],
    locks: &[Option<LockOf>],
    order: &[usize; CLIENT_KEYS_MAX],
) -> u64 {
    let ModelClient {
        conn,
        holds,
        holds_key,
        // As its lock has it, where it holds one (L5).
        lease_until_ms: _,
        versions,
    } = client;
    let mut word = Word::default();
    // No word of a client is 0, which stands for the clients that a model does not have.
    word.push_bit(true);
    word.push_bit(conn.is_some());
    for &key in order.iter().take(setup.keys) {
        let item = items[key].as_ref();
        let is_own = |id: Option<Owner>| conn.is_some() && id == *conn;
        let lock = locks[key];
        word.push_bit(holds[key]);
        word.push_bit(holds_key[key]);
        word.push_bit(lock.is_some_and(|lock| is_own(Some(lock.owner))));
        word.push_bit(lock.is_some_and(|lock| is_own(lock.listed)));
        if does_order_decide(setup) {
            let is_later = |other: &LockOf| {
                is_own(Some(other.owner)) && lock.is_some_and(|lock| lock.fence > other.fence)
            };
            word.push_bit(locks.iter().flatten().any(is_later));
        }
        let version = versions[key].map(latchd_protocol::item::Cas::number);
        let relation = match (version, item) {
            (None, _) => 0,
            (Some(_), None) => 1,
            (Some(version), Some(item)) => match version.cmp(&item.cas) {
                std::cmp::Ordering::Less => 1,
                std::cmp::Ordering::Equal => 2,
                std::cmp::Ordering::Greater => 3,
            },
        };
        word.push(relation, 2);
        // It may become an item's version again; every other is given only once (E3).
        word.push_bit(version == Some(CHOSEN_CAS));
    }
    word.word
}

fn key_word(
    setup: &Setup,
    now_ms: u64,
    item: Option<&Seen>,
    lock: Option<LockOf>,
    told_fence: Option<u64>,
    ghost: Ghost,
    lingering: Option<Lingering>,
) -> u64 {
    let mut word = Word::default();
    word.push_bit(lock.is_some());
    if let Some(LockOf {
        // Said of the clients.
        owner: _,
        listed: _,
        fence,
        lease_until_ms,
        is_of_key,
    }) = lock
    {
        word.push_bit(is_of_key);
        word.push(lease_until_ms.map_or(0, |at| 1 + ticks(at, now_ms)), 6);
        // A grant that is over is never in force again, and all that are over are alike.
        word.push_bit(told_fence == Some(fence));
    }
    let Lingering {
        is_over,
        stays,
        lease_until_ms,
        places,
    } = lingering.unwrap_or_default();
    word.push_bit(is_over);
    word.push_bit(stays);
    word.push(lease_until_ms.map_or(0, |at| 1 + ticks(at, now_ms)), 6);
    if does_order_decide(setup) {
        word.push(u64::from(places), 8);
    }
    let Ghost {
        win_out,
        flush_pending: due_at_unlock,
    } = ghost;
    word.push_bit(win_out);
    word.push_bit(due_at_unlock);
    let Some(item) = item else {
        return word.word;
    };
    let Seen {
        cas,
        // The values of items; only their length decides, by the room that they take, and whether
        // they can be numbers.
        value: (_, value_bytes),
        deadline,
        stale,
        win,
        locked,
        flush_pending,
        place,
        hits,
    } = item;
    word.push_bit(true);
    word.push_bit(*cas == CHOSEN_CAS);
    word.push(*value_bytes as u64, 4);
    let deadline_ms = deadline.map(|tick| u64::from(tick.count()) * TICK_MS);
    word.push(deadline_ms.map_or(0, |at| 1 + ticks(at, now_ms)), 8);
    let (is_sent, is_open) = (*win == WinMark::Sent, *win == WinMark::Open);
    for fact in [*stale, is_sent, is_open, *locked, *flush_pending] {
        word.push_bit(fact);
    }
    match setup.room {
        Room::Ample => {}
        Room::Items(_) => {
            word.push(u64::from(*place), 4);
            word.push(u64::from(*hits), 4);
        }
    }
    word.word
}

/// Whether the order in which ended locks are released decides anything. If all are released together, before anything else, it
/// decides only which of the items is evicted first from then on.
fn does_order_decide(setup: &Setup) -> bool {
    !setup.settles_together() || matches!(setup.room, Room::Items(_))
}

/// Ticks from now until `at_ms`; 0 if it has passed.
const fn ticks(at_ms: u64, now_ms: u64) -> u64 {
    at_ms.saturating_sub(now_ms).div_ceil(TICK_MS)
}
