//! Storing a value: a new item, a replaced value, or an extended one.
//!
//! The store frees memory before it writes (S2). That may move the item that is to be replaced: it is held
//! meanwhile, and never evicted.

use bytes::Bytes;
use latchd_protocol::key::Key;
use latchd_protocol::stats::Counters;
use latchd_protocol::time::Tick;
use latchd_protocol::value::Value;

use super::block::Block;
use super::geometry::Address;
use super::huge::Merit;
use super::queue::Queue;
use super::reclaim::Need;
use super::record::{STUB_BYTES, head, record_bytes};
use super::segments::Piece;
use super::{End, Full, ItemHeader, KeyHasher, LogSlot, LogStore, cost_of};

/// The change of an item's value.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change<'a> {
    Whole(Value<'a>),
    More(&'a [u8], End),
}

impl<H: KeyHasher, B: Block> LogStore<H, B> {
    /// Writes a new item.
    ///
    /// # Errors
    /// [`Full`] if there is not enough memory; nothing has changed then except that items were evicted.
    pub(super) fn write_new(
        &mut self,
        now: Tick,
        hash: u64,
        key: Key<'_>,
        header: &ItemHeader,
        value: Value<'_>,
        counters: &mut Counters,
    ) -> Result<LogSlot, Full> {
        let is_huge = value.len() > self.geometry.value_bytes_max();
        let is_back =
            self.index.buckets() > 0 && self.ghost.remembers(hash, self.index.bucket(hash));
        let queue = match (is_huge, is_back) {
            (true, _) => Queue::Pinned,
            (false, true) => Queue::Main,
            (false, false) => Queue::Small,
        };
        let stored_bytes = if is_huge { STUB_BYTES } else { value.len() };
        let has_flags = header.client_flags != 0;
        let need = Need {
            queue,
            record_bytes: self.geometry.padded(record_bytes(
                has_flags,
                key.as_bytes().len(),
                stored_bytes,
            )),
            huge_bytes: if is_huge { value.len() } else { 0 },
            new_hash: Some(hash),
        };
        self.make_room(now, &need, counters)?;
        let stub = if is_huge {
            Some(self.take_in(self.whole(value)?)?)
        } else {
            None
        };
        let (head, head_bytes) = head(header, key, stored_bytes, is_huge, 0);
        let stored = stub
            .as_ref()
            .map_or(value.as_bytes(), <[u8; STUB_BYTES]>::as_slice);
        let pieces = [
            Piece::New(&head[..head_bytes]),
            Piece::New(key.as_bytes()),
            Piece::New(stored),
        ];
        let address = self.log.append_new(queue, &pieces);
        if let Err(full) = self.index.insert(hash, address) {
            // The written record is dead, and its value is not kept.
            self.log.kill(address);
            if let Some(stub) = stub {
                self.huge.remove(u32::from_le_bytes(stub));
            }
            return Err(full);
        }
        if let Some(stub) = stub {
            let merit = Merit {
                hits: 0,
                is_back,
                since: self.returns,
            };
            self.admit(stub, address, merit, header.locked);
        }
        if is_back {
            self.returns = self.returns.wrapping_add(u32::from(!is_huge));
            let bucket = self.index.bucket(hash);
            self.ghost.forget(hash, bucket);
        }
        self.tally
            .enter(self.cost(self.record(address)), header.locked);
        self.grow_index();
        Ok(LogSlot { address, hash })
    }

    /// Changes an item's value and header, in place or elsewhere.
    ///
    /// # Errors
    /// As [`write_new`](Self::write_new).
    pub(super) fn write_over(
        &mut self,
        now: Tick,
        slot: LogSlot,
        header: &ItemHeader,
        change: Change<'_>,
        counters: &mut Counters,
    ) -> Result<LogSlot, Full> {
        if let Change::Whole(value) = change
            && self.fits_in_place(slot.address, header, value.len())
        {
            self.overwrite(slot.address, header, value.as_bytes());
            return Ok(slot);
        }
        self.rewrite(now, slot, header, change, counters)
    }

    /// Whether a value can be written in place of the old one: the record keeps its size, and was not
    /// flushed.
    fn fits_in_place(&self, address: Address, header: &ItemHeader, value_bytes: usize) -> bool {
        let record = self.record(address);
        let has_flags = header.client_flags != 0;
        let wanted = record_bytes(has_flags, record.key_bytes(), value_bytes);
        let (id, _) = self.geometry.place(address);
        record.huge().is_none()
            && value_bytes <= self.geometry.value_bytes_max()
            && record.has_flags() == has_flags
            && record.padded_bytes(&self.geometry) == self.geometry.padded(wanted)
            && !self.log.is_flushed(id)
    }

    fn overwrite(&mut self, address: Address, header: &ItemHeader, value: &[u8]) {
        let (geometry, erases) = (self.geometry, self.log.erases);
        let mut record = self.log.record_mut(address);
        let before = record.as_ref();
        let (key_bytes, was_locked) = (before.key_bytes(), before.is_locked());
        let cost = |value_bytes| cost_of(&geometry, key_bytes, value_bytes);
        let (before, after) = (cost(before.value_bytes()), cost(value.len()));
        if erases {
            // A shorter one would leave the end of the old one after it.
            record.erase_value(&geometry);
        }
        record.set_value(value);
        if after != before {
            self.tally.leave(before, was_locked);
            self.tally.enter(after, was_locked);
        }
        self.write_header(address, header);
    }

    /// Writes an item elsewhere, and removes its old record.
    fn rewrite(
        &mut self,
        now: Tick,
        slot: LogSlot,
        header: &ItemHeader,
        change: Change<'_>,
        counters: &mut Counters,
    ) -> Result<LogSlot, Full> {
        let record = self.record(slot.address);
        let (id, _) = self.geometry.place(slot.address);
        let value_bytes = match change {
            Change::Whole(value) => value.len(),
            Change::More(more, _) => self.value_bytes(record) + more.len(),
        };
        let is_huge = value_bytes > self.geometry.value_bytes_max();
        let queue = match self.log.queue(id) {
            Queue::Small | Queue::Main | Queue::Pinned | Queue::Flushed if is_huge => Queue::Pinned,
            Queue::Small => Queue::Small,
            Queue::Main | Queue::Pinned | Queue::Flushed => Queue::Main,
        };
        let stored_bytes = if is_huge { STUB_BYTES } else { value_bytes };
        let has_flags = header.client_flags != 0;
        let wanted = record_bytes(has_flags, record.key_bytes(), stored_bytes);
        let need = Need {
            queue,
            record_bytes: self.geometry.padded(wanted),
            huge_bytes: if is_huge { value_bytes } else { 0 },
            new_hash: None,
        };
        self.in_hand = Some(slot.address);
        let freed = self.make_room(now, &need, counters);
        let old = self.in_hand.take().unwrap_or(slot.address);
        freed?;
        let stub = if is_huge {
            Some(self.take_in(self.changed(old, change)?)?)
        } else {
            None
        };
        let new = self.append_over(old, queue, header, change, stub);
        self.index.replace(slot.hash, old, new);
        if let Some(stub) = stub {
            let merit = match self.record(old).huge() {
                Some(number) => self.huge.merit(number),
                None => Merit {
                    hits: 0,
                    is_back: false,
                    since: self.returns,
                },
            };
            self.admit(stub, new, merit, header.locked);
        }
        self.retire(old);
        self.tally.enter(self.cost(self.record(new)), header.locked);
        Ok(LogSlot {
            address: new,
            hash: slot.hash,
        })
    }

    /// Writes the new record of an item that has an old one.
    fn append_over(
        &mut self,
        old: Address,
        queue: Queue,
        header: &ItemHeader,
        change: Change<'_>,
        stub: Option<[u8; STUB_BYTES]>,
    ) -> Address {
        let (id, offset) = self.geometry.place(old);
        let record = self.record(old);
        let key = record.key_range(offset);
        let value = record.value_range(offset);
        let stored_bytes = match (stub, change) {
            (Some(_), _) => STUB_BYTES,
            (None, Change::Whole(value)) => value.len(),
            (None, Change::More(more, _)) => value.len() + more.len(),
        };
        let (head, head_bytes) = head(
            header,
            record.key(),
            stored_bytes,
            stub.is_some(),
            record.hits(),
        );
        let (head, key) = (Piece::New(&head[..head_bytes]), Piece::Old(key));
        let (first, second) = match (&stub, change) {
            (Some(stub), _) => (Piece::New(stub), Piece::New(&[])),
            (None, Change::Whole(value)) => (Piece::New(value.as_bytes()), Piece::New(&[])),
            (None, Change::More(more, End::Back)) => (Piece::Old(value), Piece::New(more)),
            (None, Change::More(more, End::Front)) => (Piece::New(more), Piece::Old(value)),
        };
        self.log.append(queue, id, &[head, key, first, second])
    }

    /// The huge value to be written.
    fn changed(&self, old: Address, change: Change<'_>) -> Result<Bytes, Full> {
        match change {
            Change::Whole(value) => self.whole(value),
            Change::More(more, End::Back) => self.huge.joined(&[self.value_at(old), more]),
            Change::More(more, End::Front) => self.huge.joined(&[more, self.value_at(old)]),
        }
    }

    /// Marks the old record of an item as dead.
    fn retire(&mut self, address: Address) {
        let record = self.record(address);
        let number = record.huge();
        self.tally.leave(self.cost(record), record.is_locked());
        self.log.kill(address);
        if let Some(number) = number {
            self.huge.remove(number);
        }
    }

    fn take_in(&mut self, value: Bytes) -> Result<[u8; STUB_BYTES], Full> {
        self.huge.insert(value).map(u32::to_le_bytes)
    }

    /// Makes a huge value of a written record evictable, unless its item is locked.
    fn admit(&mut self, stub: [u8; STUB_BYTES], address: Address, merit: Merit, is_locked: bool) {
        let number = u32::from_le_bytes(stub);
        self.huge.set_address(number, address);
        self.huge.set_merit(number, merit);
        self.huge.set_locked(number, is_locked);
    }

    /// Splits a bucket of the index, if its average load requires it and there is memory.
    fn grow_index(&mut self) {
        if self.index.wants_split() {
            let bytes = self.index.split_bytes();
            if bytes == 0 || matches!(self.get_memory(bytes), Ok(true)) {
                let (log, hasher) = (&self.log, &self.hasher);
                let hash_of = |address| hasher.hash(log.record(address).key());
                // If the allocation fails, chains grow longer until one succeeds.
                let _ = self.index.split(&hash_of);
            }
        }
    }

    /// Adds a huge value: as it is if it is shared, otherwise as a copy.
    ///
    /// # Errors
    /// [`Full`] if the allocation fails.
    fn whole(&self, value: Value<'_>) -> Result<Bytes, Full> {
        match value {
            Value::Borrowed(bytes) => self.huge.joined(&[bytes]),
            Value::Shared(bytes) => Ok(bytes.clone()),
        }
    }
}
