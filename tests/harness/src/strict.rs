//! A store that holds its caller to the contract of [`Store`]: the result of a look-up is good
//! until the next call that may move items. A slot that is used after that names another item, or
//! none, in a store that moves its items, and is right by luck in one that does not.

use latchd_core::engine::{Config, Core};
use latchd_core::limits::Limits;
use latchd_core::store::{End, Full, LogStore, MapStore, QueueState, Shown, Store, Usage, Visited};
use latchd_protocol::command::ScanCursor;
use latchd_protocol::item::ItemHeader;
use latchd_protocol::key::Key;
use latchd_protocol::reply::MemoryRefused;
use latchd_protocol::stats::Counters;
use latchd_protocol::time::Tick;
use latchd_protocol::value::Value;
use latchd_protocol::watch::Evicted;

/// Another store, with slots and vacancies that are told apart by the time of their look-up.
#[derive(Debug)]
pub struct Strict<S> {
    store: S,
    /// How many calls have invalidated earlier results.
    moves: u64,
}

/// A core on the store that the program uses, held to the contract of stores.
pub type StrictCore = Core<Strict<LogStore>>;

/// The result of a look-up in a [`Strict`] store.
#[derive(Clone, Copy, Debug)]
pub struct Said<T> {
    what: T,
    moves: u64,
}

/// A fresh core on the store that the program uses, held to the contract of stores.
#[must_use]
pub fn in_log(config: Config) -> StrictCore {
    let store = LogStore::new(&config.limits, config.hash_seed);
    Core::with_store(config, Strict::new(store))
}

/// A fresh core on the reference store, held to the contract of stores.
#[must_use]
pub fn reference(config: Config) -> Core<Strict<MapStore>> {
    let store = MapStore::new(&config.limits);
    Core::with_store(config, Strict::new(store))
}

impl<S> Strict<S> {
    /// Holds the caller of `store` to the contract.
    #[must_use]
    pub const fn new(store: S) -> Self {
        Self { store, moves: 0 }
    }

    const fn say<T>(&self, what: T) -> Said<T> {
        let moves = self.moves;
        Said { what, moves }
    }

    /// The result, if it is still good.
    fn good<T>(&self, said: Said<T>) -> T {
        let moves = self.moves - said.moves;
        assert_eq!(
            moves, 0,
            "calls since the look-up that may have moved things"
        );
        said.what
    }

    /// Earlier results are no longer good.
    const fn moving(&mut self) -> &mut S {
        self.moves += 1;
        &mut self.store
    }
}

impl<S: Store> Store for Strict<S> {
    const SHARES_VALUES: bool = S::SHARES_VALUES;

    type Slot = Said<S::Slot>;
    type Vacancy = Said<S::Vacancy>;

    fn find(&self, key: Key<'_>) -> Result<Self::Slot, Self::Vacancy> {
        let found = self.store.find(key);
        found.map(|it| self.say(it)).map_err(|it| self.say(it))
    }

    fn find_item(&self, key: Key<'_>) -> Result<(Self::Slot, ItemHeader), Self::Vacancy> {
        let found = self.store.find_item(key);
        let found = found.map(|(slot, header)| (self.say(slot), header));
        found.map_err(|vacancy| self.say(vacancy))
    }

    fn header(&self, slot: Self::Slot) -> ItemHeader {
        self.store.header(self.good(slot))
    }

    fn set_header(&mut self, slot: Self::Slot, header: ItemHeader) {
        let slot = self.good(slot);
        self.store.set_header(slot, header);
    }

    fn key(&self, slot: Self::Slot) -> Key<'_> {
        self.store.key(self.good(slot))
    }

    fn value(&self, slot: Self::Slot) -> &[u8] {
        self.store.value(self.good(slot))
    }

    fn show(&self, slot: Self::Slot) -> Shown<'_> {
        self.store.show(self.good(slot))
    }

    fn read(
        &mut self,
        slot: Self::Slot,
        header: Option<ItemHeader>,
        used_at: Option<Tick>,
    ) -> Shown<'_> {
        let slot = self.good(slot);
        self.store.read(slot, header, used_at)
    }

    fn item_bytes(&self, slot: Self::Slot) -> usize {
        self.store.item_bytes(self.good(slot))
    }

    fn record_hit(&mut self, slot: Self::Slot) {
        let slot = self.good(slot);
        self.store.record_hit(slot);
    }

    fn insert(
        &mut self,
        now: Tick,
        vacancy: Self::Vacancy,
        key: Key<'_>,
        header: ItemHeader,
        value: Value<'_>,
        counters: &mut Counters,
    ) -> Result<Self::Slot, Full> {
        let vacancy = self.good(vacancy);
        let slot = (self.moving()).insert(now, vacancy, key, header, value, counters)?;
        Ok(self.say(slot))
    }

    fn replace(
        &mut self,
        now: Tick,
        slot: Self::Slot,
        header: ItemHeader,
        value: Value<'_>,
        counters: &mut Counters,
    ) -> Result<Self::Slot, Full> {
        let slot = self.good(slot);
        let slot = self.moving().replace(now, slot, header, value, counters)?;
        Ok(self.say(slot))
    }

    fn extend(
        &mut self,
        now: Tick,
        slot: Self::Slot,
        header: ItemHeader,
        bytes: &[u8],
        end: End,
        counters: &mut Counters,
    ) -> Result<Self::Slot, Full> {
        let slot = self.good(slot);
        let slot = (self.moving()).extend(now, slot, header, bytes, end, counters)?;
        Ok(self.say(slot))
    }

    fn set_aside(
        &mut self,
        now: Tick,
        kept: Option<Self::Slot>,
        bytes: usize,
        counters: &mut Counters,
    ) -> Result<Option<Self::Slot>, Full> {
        let kept = kept.map(|slot| self.good(slot));
        let kept = self.moving().set_aside(now, kept, bytes, counters)?;
        Ok(kept.map(|slot| self.say(slot)))
    }

    fn judge_memory(&self, memory_bytes_max: usize) -> Result<(), MemoryRefused> {
        self.store.judge_memory(memory_bytes_max)
    }

    fn set_memory(&mut self, now: Tick, limits: &Limits, counters: &mut Counters) {
        self.moving().set_memory(now, limits, counters);
    }

    fn remove(&mut self, slot: Self::Slot) -> Self::Vacancy {
        let slot = self.good(slot);
        let vacancy = self.moving().remove(slot);
        self.say(vacancy)
    }

    fn clear(&mut self) {
        self.moving().clear();
    }

    fn crawl(&mut self, now: Tick, items_max: usize, counters: &mut Counters) {
        self.moving().crawl(now, items_max, counters);
    }

    fn wants_crawl(&self, now: Tick) -> bool {
        self.store.wants_crawl(now)
    }

    fn scan<'a>(
        &'a self,
        cursor: ScanCursor,
        items_max: usize,
        visit: &mut dyn FnMut(Visited<'a>),
    ) -> Option<ScanCursor> {
        self.store.scan(cursor, items_max, visit)
    }

    fn usage(&self) -> Usage {
        self.store.usage()
    }

    fn watch_evictions(&mut self, is_watched: bool) {
        self.moving().watch_evictions(is_watched);
    }

    fn take_evicted(&mut self) -> (Vec<Evicted>, u64) {
        self.moving().take_evicted()
    }

    fn queue(&self) -> QueueState {
        self.store.queue()
    }

    fn was_flushed(&self, key: Key<'_>, vacancy: Self::Vacancy) -> bool {
        self.store.was_flushed(key, self.good(vacancy))
    }

    fn bytes_for(&self, key_bytes: usize, value_bytes: usize) -> usize {
        self.store.bytes_for(key_bytes, value_bytes)
    }

    fn check(&self) {
        self.store.check();
    }
}

#[cfg(test)]
mod tests {
    use latchd_protocol::item::Cas;

    use super::*;
    use crate::alphabet::limits::ample;

    const KEY: &[u8] = b"k";

    fn key() -> Key<'static> {
        Key::new(KEY).expect("a legal key")
    }

    /// A store with one item, and the result of its look-up.
    fn store() -> (Strict<MapStore>, Said<<MapStore as Store>::Slot>) {
        let mut store = Strict::new(MapStore::new(&ample()));
        let header = ItemHeader::new(Cas::FIRST, Tick::from_count(0));
        let vacancy = store.find(key()).expect_err("it is empty");
        let (value, mut counters) = (Value::default(), Counters::default());
        let stored = store.insert(
            Tick::from_count(0),
            vacancy,
            key(),
            header,
            value,
            &mut counters,
        );
        stored.expect("there is room");
        let slot = store.find(key()).expect("it is there");
        (store, slot)
    }

    #[test]
    fn look_ups_survive_calls_that_move_nothing() {
        let (mut store, slot) = store();
        let header = store.header(slot);
        store.set_header(slot, header);
        store.record_hit(slot);
        store.read(slot, None, Some(header.last_access));
        assert_eq!(store.key(slot).as_bytes(), KEY);
    }

    #[test]
    #[should_panic(expected = "calls since the look-up that may have moved things")]
    fn look_ups_end_with_moving_calls() {
        let (mut store, slot) = store();
        store.crawl(Tick::from_count(0), 1, &mut Counters::default());
        store.header(slot);
    }
}
