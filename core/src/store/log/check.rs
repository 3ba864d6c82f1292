//! The invariants of a whole store; reads every record.

use alloc::collections::BTreeSet;

use super::block::Block;
use super::record::Record;
use super::segment::State;
use super::tally::Tally;
use super::{KeyHasher, LogStore};

impl<H: KeyHasher, B: Block> LogStore<H, B> {
    /// L1 to L3, and the invariants of every part.
    pub(super) fn check_all(&self) {
        self.log.check();
        self.index.check(&|address| self.hash_at(address));
        self.ghost.check(self.index.buckets());
        self.huge.check(&|number, address, is_locked| {
            let record = address.map(|address| self.record(address));
            let is_named =
                record.is_some_and(|record| record.huge() == Some(number) && !record.is_dead());
            assert!(is_named, "V1: {number} has another record");
            assert_eq!(
                record.map(Record::is_locked),
                Some(is_locked),
                "V2: {number}"
            );
        });
        self.check_limit();
        self.check_free();
        assert_eq!(self.in_hand, None, "nothing is in hand between two calls");
        let mut tally = Tally::NONE;
        let (mut records, mut numbers) = (0, BTreeSet::new());
        for (id, segment) in self.log.segments.iter().enumerate() {
            let id = u32::try_from(id).expect("segments are numbered in 32 bits");
            let is_drained = self.drain.is_some_and(|drain| drain.segment == id);
            assert_eq!(is_drained, segment.state == State::Draining, "segment {id}");
            for (address, record) in self.log.records(id) {
                if record.is_dead() {
                    continue;
                }
                records += 1;
                let hash = self.hash_at(address);
                let bucket = self.index.bucket(hash);
                let mut entries = self.index.chain(bucket);
                let is_named = entries.any(|entry| entry.address == address);
                assert!(is_named, "L1: {address:?} is not named");
                if let Some(number) = record.huge() {
                    assert!(numbers.insert(number), "V1: {number} is of two records");
                }
                if self.log.is_there(address) {
                    let is_it = |address| self.log.item(address, record.key());
                    let found = self.index.find(hash, is_it).map(|(address, _)| address);
                    assert_eq!(found, Some(address), "L1: two records of a key");
                    tally.enter(self.cost(record), record.is_locked());
                }
            }
        }
        assert_eq!(self.index.len(), records, "L1: an entry without a record");
        assert_eq!(
            self.huge.used(),
            numbers.len(),
            "V1: a value without a record"
        );
        assert_eq!(self.tally, tally, "L2");
        assert!(
            self.held_bytes() <= self.bytes_max,
            "L3: {} bytes of {}",
            self.held_bytes(),
            self.bytes_max
        );
        assert!(self.tally.bytes <= self.held_bytes(), "S3");
        assert!(self.aside_bytes >= self.aside_bytes_min, "L3");
    }
}
