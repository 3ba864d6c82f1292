//! The bytes of locked items, by shard: no shard is pinned as a whole.

use alloc::vec::Vec;

/// The number of a shard of items.
pub(in crate::engine) type Shard = u8;

/// Bytes in the shards that have some, in their order.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub(super) struct Pins(Vec<(Shard, usize)>);

impl Pins {
    fn place(&self, shard: Shard) -> Result<usize, usize> {
        self.0.binary_search_by_key(&shard, |(at, _)| *at)
    }

    pub(super) fn of(&self, shard: Shard) -> usize {
        self.place(shard).map_or(0, |place| self.0[place].1)
    }

    pub(super) fn add(&mut self, shard: Shard, bytes: usize) {
        if bytes == 0 {
            return;
        }
        match self.place(shard) {
            Ok(place) => self.0[place].1 += bytes,
            Err(place) => {
                self.0.reserve_exact(1);
                self.0.insert(place, (shard, bytes));
            }
        }
    }

    pub(super) fn remove(&mut self, shard: Shard, bytes: usize) {
        if bytes == 0 {
            return;
        }
        let place = self.place(shard).expect("L10: they were added");
        self.0[place].1 -= bytes;
        if self.0[place].1 == 0 {
            self.0.remove(place);
        }
    }

    /// Removes as much as `others` has.
    pub(super) fn remove_all(&mut self, others: Self) {
        for (shard, bytes) in others.0 {
            self.remove(shard, bytes);
        }
    }
}
