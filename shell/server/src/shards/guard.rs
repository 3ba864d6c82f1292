//! A shard that a thread has locked (D4 of `lazy.rs`).

use std::ops::{Deref, DerefMut};

use super::ShardItems;
use super::lazy::order;
use crate::sync::MutexGuard;

/// The items of a locked shard.
pub(super) struct ShardGuard<'a> {
    items: MutexGuard<'a, ShardItems>,
    shard: usize,
}

impl<'a> ShardGuard<'a> {
    /// A shard that was locked by `lock`.
    #[inline]
    pub(super) fn new(shard: usize, lock: impl FnOnce() -> MutexGuard<'a, ShardItems>) -> Self {
        order::enter_shard(shard);
        let items = lock();
        Self { items, shard }
    }

    /// The number of the shard.
    pub(super) const fn number(&self) -> usize {
        self.shard
    }
}

impl Drop for ShardGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        order::leave_shard(self.shard);
    }
}

impl Deref for ShardGuard<'_> {
    type Target = ShardItems;

    #[inline]
    fn deref(&self) -> &ShardItems {
        &self.items
    }
}

impl DerefMut for ShardGuard<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut ShardItems {
        &mut self.items
    }
}
