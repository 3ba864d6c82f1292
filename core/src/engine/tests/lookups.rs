//! Each command hashes and looks up its key once.

use core::cell::Cell;

use latchd_protocol::command::{ItemCommand, ScanCursor};
use latchd_protocol::item::ItemHeader;
use latchd_protocol::reply::MemoryRefused;
use latchd_protocol::stats::Counters;
use latchd_protocol::time::Tick;
use latchd_protocol::value::Value;

use super::*;
use crate::store::{End, Full, MapStore, QueueState, Shown, Usage, Visited};

/// A [`MapStore`] that counts its calls.
struct Counting {
    store: MapStore,
    finds: Cell<usize>,
}

type Slot = <MapStore as Store>::Slot;
type Vacancy = <MapStore as Store>::Vacancy;

impl Store for Counting {
    type Slot = Slot;
    type Vacancy = Vacancy;

    fn find(&self, key: Key<'_>) -> Result<Slot, Vacancy> {
        self.finds.set(self.finds.get() + 1);
        self.store.find(key)
    }

    fn header(&self, slot: Slot) -> ItemHeader {
        self.store.header(slot)
    }

    fn set_header(&mut self, slot: Slot, header: ItemHeader) {
        self.store.set_header(slot, header);
    }

    fn key(&self, slot: Slot) -> Key<'_> {
        self.store.key(slot)
    }

    fn value(&self, slot: Slot) -> &[u8] {
        self.store.value(slot)
    }

    fn show(&self, slot: Slot) -> Shown<'_> {
        self.store.show(slot)
    }

    fn item_bytes(&self, slot: Slot) -> usize {
        self.store.item_bytes(slot)
    }

    fn record_hit(&mut self, slot: Slot) {
        self.store.record_hit(slot);
    }

    fn insert(
        &mut self,
        now: Tick,
        vacancy: Vacancy,
        key: Key<'_>,
        header: ItemHeader,
        value: Value<'_>,
        counters: &mut Counters,
    ) -> Result<Slot, Full> {
        let store = &mut self.store;
        store.insert(now, vacancy, key, header, value, counters)
    }

    fn replace(
        &mut self,
        now: Tick,
        slot: Slot,
        header: ItemHeader,
        value: Value<'_>,
        counters: &mut Counters,
    ) -> Result<Slot, Full> {
        self.store.replace(now, slot, header, value, counters)
    }

    fn extend(
        &mut self,
        now: Tick,
        slot: Slot,
        header: ItemHeader,
        bytes: &[u8],
        end: End,
        counters: &mut Counters,
    ) -> Result<Slot, Full> {
        self.store.extend(now, slot, header, bytes, end, counters)
    }

    fn judge_memory(&self, memory_bytes_max: usize) -> Result<(), MemoryRefused> {
        self.store.judge_memory(memory_bytes_max)
    }

    fn set_memory(&mut self, now: Tick, limits: &Limits, counters: &mut Counters) {
        self.store.set_memory(now, limits, counters);
    }

    fn remove(&mut self, slot: Slot) -> Vacancy {
        self.store.remove(slot)
    }

    fn clear(&mut self) {
        self.store.clear();
    }

    fn crawl(&mut self, now: Tick, items_max: usize, counters: &mut Counters) {
        self.store.crawl(now, items_max, counters);
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

    fn queue(&self) -> QueueState {
        self.store.queue()
    }

    fn bytes_for(&self, key_bytes: usize, value_bytes: usize) -> usize {
        self.store.bytes_for(key_bytes, value_bytes)
    }

    fn check(&self) {
        self.store.check();
    }
}

#[test]
fn a_command_looks_its_key_up_once() {
    let config = Config::default();
    let store = Counting {
        store: MapStore::new(&config.limits),
        finds: Cell::new(0),
    };
    let mut core = Core::with_store(config, store);
    core.handle(Instant::default(), Event::Opened(A));
    let k = key("k");
    let vivify = Get {
        steps: TtlSteps::one(TtlStep::Vivify(Exptime::In { seconds: 30 })),
        ..meta_get("made")
    };
    let append = Set {
        mode: SetMode::Append {
            missing: OnMissing::Refuse,
        },
        ..Set::new(k, b"1")
    };
    let swap = Set {
        mode: SetMode::Replace,
        lock: LockAfter::Release,
        ..Set::new(k, b"1")
    };
    let lock_and_get = Get {
        lock: true,
        ..Get::new(k)
    };
    let clear = Delete {
        removal: Removal::Clear {
            exptime: Exptime::Never,
            client_flags: 0,
        },
        ..Delete::new(k)
    };
    let count = Arithmetic::new(k, Direction::Increment, 1);
    let new_number = Arithmetic {
        key: key("n"),
        steps: vivify.steps,
        ..count
    };
    for command in [
        Command::from(vivify),
        Command::from(vivify),
        Command::from(Set::new(k, b"1")),
        Command::from(Set::new(k, b"222")),
        Command::from(append),
        Command::from(new_number),
        Command::from(count),
        Command::from(ItemCommand::Lock { key: k }),
        Command::from(ItemCommand::Unlock { key: k }),
        Command::from(lock_and_get),
        Command::from(swap),
        Command::from(clear),
        Command::from(Delete::new(k)),
        Command::from(Delete::new(k)),
        Command::from(ItemCommand::SetTooLarge { key: k }),
        Command::from(expiring("e", 1)),
    ] {
        let before = core.store().finds.get();
        core.execute(Instant::default(), A, &command);
        assert_eq!(core.store().finds.get(), before + 1, "{command:?}");
    }
    let before = core.store().finds.get();
    core.execute(Instant::from_millis(9_000), A, &expiring("e", 1).into());
    assert_eq!(core.store().finds.get(), before + 1, "over an expired item");
}
