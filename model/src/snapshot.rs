//! The core as the rules and the canonical view see it: a small copy of every fact that decides its
//! next steps.
//!
//! - V1: it is made by exhaustive destructuring of the core's [`View`], without `..`. Each omitted
//!   field is omitted by name, with the reason. A search over a view that forgets something ends
//!   clean over a core that is wrong.

use latchd_core::Owner;
use latchd_core::engine::{Holding, LockScope, View};
use latchd_core::store::{MapEntry, MapView};
use latchd_protocol::item::{ItemHeader, WinMark};
use latchd_protocol::time::{Clock, Tick};

use crate::action::KEYS;
use crate::setup::{CLIENTS_MAX, Setup};

/// The most shards of a model.
pub(crate) const SHARDS_MAX: usize = 2;

/// All items and locks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Snapshot {
    /// The items, by their places in [`KEYS`].
    pub items: [Option<Seen>; KEYS.len()],
    /// The locks in force, by the places of their keys.
    pub locks: [Option<LockOf>; KEYS.len()],
    /// The unfinished ends of locks, by the places of their keys. To every request they are
    /// finished; to the store they are not.
    pub lingering: [Option<Lingering>; KEYS.len()],
    /// The number that the next change in each shard gets.
    pub next_cas: [u64; SHARDS_MAX],
    /// When a `flush_all` is to take effect, in milliseconds.
    pub flush_at_ms: Option<u64>,
    /// The connections that are open.
    pub connections: [Option<Owner>; CLIENTS_MAX],
    /// The time of the core, in milliseconds.
    pub now_ms: u64,
}

/// A lock in force.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct LockOf {
    /// The holder, as its key tells.
    pub owner: Owner,
    /// The holder, as the connections' lists tell.
    pub listed: Option<Owner>,
    /// The number of the grant.
    pub fence: u64,
    /// The deadline of its lease, in milliseconds.
    pub lease_until_ms: Option<u64>,
    /// It is the key's, and stays when the item is deleted.
    pub is_of_key: bool,
}

/// The remains of a lock that is over.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Lingering {
    /// Its lock is over, and the store still takes the item for held. If not, a request has noticed
    /// it since, and only its place in the list is left.
    pub is_over: bool,
    /// It is there for every request; if not, its TTL or a flush has taken it.
    pub stays: bool,
    /// When its lease ends, in milliseconds, if it had one: it is released then, if not before.
    pub lease_until_ms: Option<u64>,
    /// When it is its turn to be released: a bit for each place in the list.
    pub places: u8,
}

/// An item, with its lock.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Seen {
    /// Its version.
    pub cas: u64,
    /// The beginning of its value, and its length.
    pub value: ([u8; 8], usize),
    /// The tick in which it expires.
    pub deadline: Option<Tick>,
    /// Marked out of date.
    pub stale: bool,
    /// Whether a client has its win.
    pub win: WinMark,
    /// Marked as held.
    pub locked: bool,
    /// It goes when its lock ends.
    pub flush_pending: bool,
    /// Its place in the order of eviction.
    pub place: u8,
    /// The hits to its credit.
    pub hits: u8,
}

impl Seen {
    /// Whether its TTL has passed at `now_ms`.
    #[must_use]
    pub(crate) fn is_past(&self, now_ms: u64) -> bool {
        let now = latchd_core::Instant::from_millis(now_ms).tick();
        self.deadline.is_some_and(|deadline| deadline <= now)
    }

    /// The facts that requests can find out about it now: not how soon it would be evicted, nor
    /// notes for later (the ghosts have a note of their own).
    #[must_use]
    pub(crate) const fn told(self) -> Self {
        Self {
            place: 0,
            hits: 0,
            flush_pending: false,
            win: WinMark::None,
            ..self
        }
    }
}

impl Snapshot {
    /// Nothing anywhere.
    #[must_use]
    pub(crate) fn empty() -> Self {
        Self {
            items: [None; KEYS.len()],
            locks: [None; KEYS.len()],
            lingering: [None; KEYS.len()],
            next_cas: [0; SHARDS_MAX],
            flush_at_ms: None,
            connections: [None; CLIENTS_MAX],
            now_ms: 0,
        }
    }

    /// Reads the core of a model.
    ///
    /// # Errors
    /// An impossible state: an item or a lock of a key that no client has.
    pub(crate) fn of(setup: &Setup, view: &View<'_>) -> Result<Self, String> {
        let View {
            stores,
            // No request of the alphabet shares anything.
            shares: _,
            // No request of a model has metadata.
            metadata: _,
            locks,
            connections,
            handovers,
            // Nor ends a share.
            ended_shares: _,
            ended,
            left,
            // No model withholds grants.
            withheld: _,
            // No request of the alphabet waits.
            waits: _,
            // Nor binds a win.
            bound_wins: _,
            wins_ended: _,
            win_waits: _,
            notices: _,
            // The same from beginning to end.
            limits: _,
            clock:
                Clock {
                    now,
                    // It decides the meaning of a date, and no word of an alphabet has one.
                    unix_s_at_start: _,
                },
            next_cas,
            flush_at,
            // No request of the alphabet is about one.
            sessions: _,
        } = view;
        let mut taken = Self::empty();
        for (shard, store) in stores.iter().enumerate() {
            taken.take_items(setup, shard, store)?;
        }
        for (key, holding) in locks {
            taken.take_lock(key.as_bytes(), holding, now.as_millis())?;
        }
        if let Some(key) = handovers.first() {
            let key = key.as_bytes().escape_ascii();
            return Err(format!("L14: {key} is handed over, and nobody waits"));
        }
        if let Some(key) = left.first() {
            let key = key.as_bytes().escape_ascii();
            return Err(format!("N5: {key} is due, and nobody waits"));
        }
        for (place, key) in ended.iter().enumerate() {
            taken.ended(place, key.as_bytes())?;
        }
        for (number, (conn, keys)) in connections.iter().enumerate() {
            for key in keys {
                taken.listed(*conn, key.as_bytes())?;
            }
            let place = taken.connections.get_mut(number);
            *place.ok_or("L4: more connections than clients")? = Some(*conn);
        }
        for (taken, next) in taken.next_cas.iter_mut().zip(next_cas) {
            *taken = next.number();
        }
        taken.flush_at_ms = flush_at.map(latchd_core::Instant::as_millis);
        taken.now_ms = now.as_millis();
        Ok(taken)
    }

    /// The items of a shard.
    fn take_items(
        &mut self,
        setup: &Setup,
        shard: usize,
        store: &MapView<'_>,
    ) -> Result<(), String> {
        let MapView {
            entries,
            // The same from beginning to end.
            bytes_max: _,
            evict: _,
            // The number of slots, and the place where a crawl continues: every crawl of a model
            // looks at all of them (`crawl_items_max` is over their number), so none of it decides
            // anything.
            slots: _,
            crawled: _,
        } = store;
        for (place, entry) in entries.iter().enumerate() {
            let number = number_of(entry.key.as_bytes())?;
            if setup.shard_of(number) != shard {
                return Err(format!("M1: {:?} is in shard {shard}", entry.key));
            }
            let seen = seen(place, entry)?;
            if self.items[number].replace(seen).is_some() {
                return Err(format!("M1: two items under {:?}", entry.key));
            }
        }
        Ok(())
    }

    /// A lock, whether it is in force or over.
    fn take_lock(&mut self, key: &[u8], holding: &Holding, now_ms: u64) -> Result<(), String> {
        let Holding {
            owner,
            // No request of the alphabet shares anything.
            mode: _,
            is_over,
            // Whether its lease has ended it is counted and reported, and read by no rule.
            is_expired: _,
            flush_pending,
            fence,
            // How long it has been held is shown, and decides nothing.
            since: _,
            lease_until,
            scope,
            has_item,
            // No request of the alphabet waits.
            is_waited: _,
            is_unacknowledged: _,
        } = holding;
        let number = number_of(key)?;
        let lease_until_ms = lease_until.map(latchd_core::Instant::as_millis);
        if *is_over {
            let lingering = self.lingering[number].get_or_insert_default();
            lingering.is_over = true;
            lingering.lease_until_ms = lease_until_ms;
        } else {
            self.locks[number] = Some(LockOf {
                owner: *owner,
                listed: None,
                fence: fence.number(),
                lease_until_ms,
                is_of_key: *scope == LockScope::Key,
            });
        }
        let Some(seen) = self.items[number].as_mut() else {
            if *has_item {
                let key = key.escape_ascii();
                return Err(format!("L3: a lock of {key}, which is not there"));
            }
            return Ok(());
        };
        if *is_over {
            // To every request, the lock has ended, with all effects of its end.
            seen.locked = false;
            let stays = !*flush_pending && !seen.is_past(now_ms);
            self.lingering[number].get_or_insert_default().stays = stays;
            if !stays {
                self.items[number] = None;
            }
        } else {
            seen.flush_pending = *flush_pending;
        }
        Ok(())
    }

    /// A place in the list of locks to be ended.
    fn ended(&mut self, place: usize, key: &[u8]) -> Result<(), String> {
        let place = 1_u8
            .checked_shl(u32::try_from(place).unwrap_or(u32::MAX))
            .ok_or("L9: a long line")?;
        let number = number_of(key)?;
        self.lingering[number].get_or_insert_default().places |= place;
        Ok(())
    }

    /// A lock, as the list of a connection tells.
    fn listed(&mut self, conn: Owner, key: &[u8]) -> Result<(), String> {
        let number = number_of(key)?;
        let key = key.escape_ascii();
        let lock = self.locks[number].as_mut();
        let lock = lock.ok_or_else(|| format!("L2: {conn} has {key}, which is not held"))?;
        if lock.listed.replace(conn).is_some() {
            return Err(format!("L2: {key} is in two lists"));
        }
        Ok(())
    }
}

/// An item without its lock.
fn seen(place: usize, entry: &MapEntry<'_>) -> Result<Seen, String> {
    let MapEntry {
        // Where it is put.
        key: _,
        value,
        header,
        hits,
    } = entry;
    let ItemHeader {
        cas,
        deadline,
        // Shown to clients by `me`, `h` and `l`, and read by no rule.
        last_access: _,
        fetched: _,
        // Kept for the clients, and always 0 and plain in a model.
        client_flags: _,
        key_form: _,
        stale,
        win,
        locked,
    } = **header;
    let mut start = [0; 8];
    for (to, from) in start.iter_mut().zip(value.iter()) {
        *to = *from;
    }
    Ok(Seen {
        cas: cas.number(),
        value: (start, value.len()),
        deadline: deadline.map(latchd_protocol::time::Deadline::tick),
        stale,
        win,
        locked,
        flush_pending: false,
        // A held item stands in no queue.
        place: if locked {
            0
        } else {
            u8::try_from(place).map_err(|_| "S3: too many")?
        },
        hits: *hits,
    })
}

/// An item in words, or that there is none.
pub(crate) fn described(item: Option<Seen>) -> String {
    let Some(item) = item else {
        return "nothing".to_owned();
    };
    let (value, bytes) = item.value;
    let value = String::from_utf8_lossy(&value[..bytes.min(value.len())]).into_owned();
    let mut words = vec![format!("{value:?}"), format!("version {}", item.cas)];
    if let Some(deadline) = item.deadline {
        let ms = u64::from(deadline.count()) * latchd_protocol::time::TICK_MS;
        words.push(format!("until {ms} ms"));
    }
    let marks = [
        (item.locked, "held"),
        (item.stale, "stale"),
        (item.win != WinMark::None, "won"),
        (item.flush_pending, "to go at unlock"),
    ];
    words.extend(
        marks
            .iter()
            .filter(|(is_so, _)| *is_so)
            .map(|(_, word)| (*word).to_owned()),
    );
    format!("[{}]", words.join(", "))
}

/// Takes the place of a key in [`KEYS`].
fn number_of(key: &[u8]) -> Result<usize, String> {
    let number = KEYS.iter().position(|name| *name == key);
    number.ok_or_else(|| format!("M1: nobody stores {key:?}"))
}
