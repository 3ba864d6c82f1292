//! Items that outlive a core, by example.

use latchd_protocol::command::ScanCursor;
use latchd_protocol::fence::Fence;
use latchd_protocol::key::KeyForm;

use super::*;

/// Key, value, CAS, when it expires, and whether it is stale.
type Copied = (Vec<u8>, Vec<u8>, u64, Option<u64>, bool);

/// Everything that `core` has.
fn all(core: &Core) -> Vec<Copied> {
    let mut items = Vec::new();
    let mut cursor = Some(ScanCursor::default());
    while let Some(at) = cursor {
        cursor = core.save(at, 3, &mut |item| {
            items.push((
                item.key.as_bytes().to_vec(),
                item.value.to_vec(),
                item.cas.number(),
                item.expires_unix_ms,
                item.stale,
            ));
        });
    }
    items.sort();
    items
}

/// A core that begins `later_s` seconds after the first one did, with what `core` has.
fn next(core: &Core, later_s: u64) -> (Core, Vec<Restored>) {
    let mut next = Core::new(Config::new(*core.limits(), 1_700_000_000 + later_s));
    next.handle(Instant::default(), Event::Resumed(core.numbers()));
    let mut restored = Vec::new();
    let mut cursor = Some(ScanCursor::default());
    while let Some(at) = cursor {
        cursor = core.save(at, 3, &mut |item| {
            restored.push(next.restore(Instant::default(), item));
        });
    }
    next.check();
    (next, restored)
}

#[test]
fn visible_items_outlive_a_run() {
    let mut bench = Bench::new();
    for number in 0..20 {
        bench.ask(A, Set::new(key(&alloc::format!("k{number}")), b"v"));
    }
    bench.ask(A, expiring("short", 5));
    bench.ask(A, expiring("long", 100));
    let before = all(&bench.core);
    let (next, restored) = next(&bench.core, 50);
    let expired = restored.iter().filter(|item| **item == Restored::Expired);
    assert_eq!((restored.len(), expired.count()), (22, 1));
    let after = all(&next);
    let left: Vec<_> = before
        .into_iter()
        .filter(|item| item.0 != b"short")
        .collect();
    assert_eq!(after, left, "a TTL goes on by the wall clock");
    let mut bench = Bench::of(next);
    let Reply::Stored(stored) = bench.ask(A, Set::new(key("new"), b"v")) else {
        panic!("it is stored");
    };
    assert!(after.iter().all(|item| item.2 < stored.cas.number()), "N3");
}

#[test]
fn locks_and_wins_do_not_outlive_a_core() {
    let mut bench = Bench::new();
    let steps = TtlSteps::one(TtlStep::Vivify(Exptime::In { seconds: 300 }));
    let get = Get {
        steps,
        ..meta_get("win")
    };
    assert_eq!(bench.hit(A, get).win, Win::Won);
    bench.ask(A, Set::new(key("held"), b"v"));
    bench.ask(A, ItemCommand::Lock { key: key("held") });
    let (next, _) = next(&bench.core, 1);
    let mut bench = Bench::of(next);
    assert_eq!(bench.core.locks().len(), 0, "N1");
    let set = Set::new(key("held"), b"other");
    assert!(matches!(bench.ask(B, set), Reply::Stored(_)));
    assert_eq!(bench.hit(B, get).win, Win::Won, "N2");
}

/// A timestamp, which is what clients choose; the last number there is; and one that the core comes to itself.
#[test]
fn chosen_versions_come_back_and_move_no_counter() {
    let mut bench = Bench::new();
    for (name, number) in [("time", 1_700_000_000_000), ("last", u64::MAX), ("near", 4)] {
        let set = Set::new(key(name), b"v");
        let new_cas = NewCas::Is(Cas::new(number).unwrap());
        bench.ask(A, Set { new_cas, ..set });
    }
    bench.ask(A, Set::new(key("given"), b"v"));
    let before = all(&bench.core);
    let (next, restored) = next(&bench.core, 1);
    assert_eq!(restored, [Restored::Kept; 4]);
    assert_eq!(all(&next), before);
    let numbers = bench.core.numbers();
    assert_eq!(next.numbers().cas, numbers.cas, "N3");
    let mut bench = Bench::of(next);
    for given in 0..3 {
        let Reply::Stored(stored) = bench.ask(A, Set::new(key("new"), b"v")) else {
            panic!("it is stored");
        };
        assert_eq!(stored.cas, numbers.cas.step(given), "E3");
    }
}

#[test]
fn unfit_item_is_refused_unchanged() {
    let mut core = Core::new(config(1 << 20));
    let item = SavedItem {
        key: key("k"),
        key_form: KeyForm::Plain,
        value: b"v",
        client_flags: 0,
        cas: Cas::FIRST,
        expires_unix_ms: None,
        fetched: false,
        stale: false,
    };
    let now = Instant::default();
    assert_eq!(core.restore(now, &item), Restored::Kept);
    let numbers = Numbers {
        cas: Cas::FIRST.step(9),
        fence: Fence::FIRST.step(1 << 60),
    };
    let store = || MapStore::new(&config(1 << 20).limits.share(2));
    let mut core = Core::with_stores(config(1 << 20), alloc::vec![store(), store()]);
    core.handle(now, Event::Resumed(numbers));
    assert_eq!(core.numbers().cas.number(), 11);
    assert!(core.numbers().fence == numbers.fence);
    let large = SavedItem {
        value: &[0; 1025],
        ..item
    };
    assert_eq!(core.restore(now, &large), Restored::Refused);
    let largest = SavedItem {
        key: key("largest"),
        value: &[0; 1024],
        ..item
    };
    assert_eq!(core.restore(now, &largest), Restored::Kept);
    assert_eq!(core.restore(now, &item), Restored::Kept);
    assert_eq!(core.restore(now, &item), Restored::Refused, "twice");
    core.check();
}
