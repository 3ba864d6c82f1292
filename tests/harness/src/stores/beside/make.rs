//! Makes a call of the store, and judges its effect on the item that it is about.

use latchd_core::store::{End, Full, Store};
use latchd_protocol::command::ScanCursor;
use latchd_protocol::item::{Cas, ItemHeader, WinMark};
use latchd_protocol::key::{Key, KeyForm};
use latchd_protocol::time::{Deadline, Tick};
use latchd_protocol::value::Value;

use super::{Beside, Item, Scan};
use crate::stores::call::Call;
use crate::stores::keys::{self, KeySet, key};

impl<S: Store> Beside<S> {
    /// Returns whether an item was stored.
    pub(super) fn enact(&mut self, call: Call) -> bool {
        match call {
            Call::Put {
                key,
                bytes,
                ttl,
                has_flags,
                is_locked,
            } => return self.put(key, bytes, ttl, has_flags, is_locked),
            Call::Extend {
                key,
                bytes,
                is_back,
            } => return self.extend(key, bytes, is_back),
            Call::Remove { key } => {
                if let Ok(slot) = self.store.find(named(key)) {
                    self.store.remove(slot);
                    self.strike(key);
                }
            }
            Call::Touch { key, ttl } => self.change_header(key, |header, now| {
                header.deadline = deadline(now, ttl);
                header.last_access = now;
                header.fetched = true;
                header.stale = !header.stale;
                header.win = if ttl % 2 == 0 {
                    WinMark::Sent
                } else {
                    WinMark::Open
                };
            }),
            Call::Lock { key, is_locked } => self.lock(key, is_locked),
            Call::Hit { key } => {
                if let Ok(slot) = self.store.find(named(key)) {
                    self.store.record_hit(slot);
                }
            }
            Call::Clear => {
                // Only now it shows which of them were gone before for another reason.
                self.compare_all();
                self.store.clear();
                self.items.retain(|item| item.header.locked);
                if let Some(scan) = &mut self.scan {
                    scan.wanted = scan.wanted.both(self.items.keys());
                }
                self.seen.spared += self.items.len() as u64;
                for item in self.items.values_mut() {
                    item.is_doomed = true;
                }
            }
            Call::Crawl { items_max } => {
                let before = self.counters.crawler_items_checked;
                self.store.crawl(self.now, items_max, &mut self.counters);
                let looked_at = self.counters.crawler_items_checked - before;
                assert!(looked_at <= items_max as u64, "{looked_at} of {items_max}");
            }
            Call::Scan { items_max } => self.page(items_max),
            Call::SetAside { kept, bytes } => self.set_aside(kept, bytes),
            Call::Limit { quarters } => self.limit(quarters),
            Call::Pass { ticks } => {
                self.now = Tick::from_count(self.now.count() + u32::from(ticks));
            }
        }
        false
    }

    fn put(&mut self, key: u8, bytes: usize, ttl: u8, has_flags: bool, is_locked: bool) -> bool {
        let value = self.value(bytes);
        let header = ItemHeader {
            deadline: deadline(self.now, ttl),
            client_flags: if has_flags { 0xF1A6_5000 } else { 0 },
            locked: is_locked,
            ..self.new_header()
        };
        let mut room = None;
        let stored = Value::Borrowed(&value);
        // Some values are shared with the store, as a transport may do, and others are not.
        let stored = if S::SHARES_VALUES && has_flags {
            stored.share(&mut room)
        } else {
            stored
        };
        let (now, counters) = (self.now, &mut self.counters);
        let (stored, header) = match self.store.find(named(key)) {
            Ok(slot) => {
                // A store over an item leaves its lock as it is.
                let locked = self.store.header(slot).locked;
                let header = ItemHeader { locked, ..header };
                (
                    self.store.replace(now, slot, header, stored, counters),
                    header,
                )
            }
            Err(vacancy) => (
                self.store
                    .insert(now, vacancy, named(key), header, stored, counters),
                header,
            ),
        };
        self.settle(key, stored, header, value)
    }

    fn extend(&mut self, key: u8, bytes: usize, is_back: bool) -> bool {
        let Ok(slot) = self.store.find(named(key)) else {
            return false;
        };
        let more = self.value(bytes);
        let header = ItemHeader {
            cas: self.new_header().cas,
            ..self.store.header(slot)
        };
        let old = self.store.value(slot);
        let (end, value) = if is_back {
            (End::Back, [old, &more].concat())
        } else {
            (End::Front, [&more, old].concat())
        };
        let counters = &mut self.counters;
        let stored = self
            .store
            .extend(self.now, slot, header, &more, end, counters);
        self.settle(key, stored, header, value)
    }

    /// Notes the new item in the list, or the refusal of the call.
    fn settle(
        &mut self,
        key: u8,
        stored: Result<S::Slot, Full>,
        header: ItemHeader,
        value: Vec<u8>,
    ) -> bool {
        let Ok(slot) = stored else {
            self.seen.refusals += 1;
            let need = self
                .store
                .bytes_for(named(key).as_bytes().len(), value.len());
            self.judge_refusal(need, key);
            return false;
        };
        assert_eq!(self.store.key(slot), named(key), "N1: another key");
        assert_eq!(self.store.header(slot), header, "N1: another header");
        assert_eq!(self.store.value(slot), value, "N1: another value");
        let item = Item {
            header,
            value,
            bytes: self.store.item_bytes(slot),
            is_doomed: false,
        };
        self.items.insert(key, item);
        true
    }

    fn change_header(&mut self, key: u8, change: impl Fn(&mut ItemHeader, Tick)) {
        if let Ok(slot) = self.store.find(named(key)) {
            let mut header = self.store.header(slot);
            change(&mut header, self.now);
            self.store.set_header(slot, header);
            if let Some(item) = self.items.get_mut(key) {
                item.header = header;
            }
        }
    }

    /// Locks or unlocks an item; one that a flush has found locked goes when it is unlocked.
    fn lock(&mut self, key: u8, is_locked: bool) {
        let Ok(slot) = self.store.find(named(key)) else {
            return;
        };
        let header = ItemHeader {
            locked: is_locked,
            ..self.store.header(slot)
        };
        self.store.set_header(slot, header);
        let item = self.items.get_mut(key).expect("N1: it is in the list");
        item.header = header;
        if item.is_doomed && !is_locked {
            self.store.remove(slot);
            self.strike(key);
        }
    }

    /// Done or refused, the kept item stays.
    fn set_aside(&mut self, key: u8, bytes: usize) {
        let kept = self.store.find(named(key)).ok();
        let (now, counters) = (self.now, &mut self.counters);
        if let Ok(slot) = self.store.set_aside(now, kept, bytes, counters) {
            let key_there = slot.map(|slot| self.store.key(slot));
            assert_eq!(key_there, kept.map(|_| named(key)), "N2: {key:?} was kept");
            self.aside_bytes = bytes;
        } else {
            self.seen.refusals += 1;
            self.judge_refusal(bytes, key);
        }
        let is_there = self.store.find(named(key)).is_ok();
        assert_eq!(is_there, kept.is_some(), "N2: {key:?} was kept");
    }

    /// A refused limit changes nothing; a lower one counts.
    fn limit(&mut self, quarters: u8) {
        let mut limits = self.limits;
        limits.memory_bytes_max = self.limits.memory_bytes_max / 4 * usize::from(quarters);
        let bytes = limits.memory_bytes_max;
        if self.store.judge_memory(bytes).is_ok() {
            self.seen.lowered += u64::from(bytes < self.store.usage().held_bytes);
            self.store.set_memory(self.now, &limits, &mut self.counters);
            self.limit_bytes = bytes;
            self.bytes_max = bytes.max(self.store.usage().held_bytes);
        }
    }

    fn page(&mut self, items_max: usize) {
        let mut scan = self.scan.take().unwrap_or_else(|| Scan {
            cursor: ScanCursor::default(),
            wanted: self.items.keys(),
            shown: KeySet::default(),
        });
        let items = &self.items;
        let next = self.store.scan(scan.cursor, items_max, &mut |shown| {
            let key = keys::number(shown.key.as_bytes()).expect("N1: a key that nobody has stored");
            let known = items.get(key).map(|item| (&item.header, &item.value[..]));
            let seen = Some((&shown.header, shown.value));
            assert_eq!(known, seen, "N1: what is shown is not there");
            scan.shown.insert(key);
        });
        if let Some(next) = next {
            assert_ne!(next, scan.cursor, "a page goes on");
            scan.cursor = next;
            self.scan = Some(scan);
        } else {
            let shown = scan.shown;
            self.scan = Some(scan);
            // An item that is gone by now need not have been shown.
            self.compare_all();
            let wanted = self.scan.take().map(|scan| scan.wanted).unwrap_or_default();
            let missing: Vec<_> = wanted.without(shown).collect();
            assert!(missing.is_empty(), "N6: {missing:?}");
            self.seen.scans += 1;
        }
    }

    fn new_header(&mut self) -> ItemHeader {
        let cas = Cas::new(self.next_cas).expect("it begins at 1");
        self.next_cas += 1;
        ItemHeader {
            key_form: if self.next_cas.is_multiple_of(5) {
                KeyForm::Binary
            } else {
                KeyForm::Plain
            },
            ..ItemHeader::new(cas, self.now)
        }
    }

    /// A unique value.
    fn value(&mut self, bytes: usize) -> Vec<u8> {
        let mut next = self.next_byte;
        self.next_byte = self.next_byte.wrapping_add(7);
        std::iter::repeat_with(|| {
            next = next.wrapping_mul(5).wrapping_add(3);
            next
        })
        .take(bytes)
        .collect()
    }
}

pub(super) fn named(number: u8) -> Key<'static> {
    Key::new(key(number)).expect("1 to 250 bytes")
}

fn deadline(now: Tick, ttl: u8) -> Option<Deadline> {
    (ttl > 0).then(|| Deadline::at(Tick::from_count(now.count() + u32::from(ttl))))
}
