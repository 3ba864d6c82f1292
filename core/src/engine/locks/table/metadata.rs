//! The metadata of grants: bytes of the holders, which no rule reads.
//!
//! - L19: A grant has the metadata of the request that got it, or that of the last renewal with metadata. It ends with
//!   the grant. Its bytes count for the table and for the owner.

use alloc::boxed::Box;
use alloc::vec::Vec;

use latchd_protocol::Owner;
use latchd_protocol::fence::Fence;

use super::LockTable;

/// The bytes of a grant's or a waiter's metadata besides itself: a place in a tree that is seldom full (60), the
/// allocator's header, and its rounding.
const METADATA_BYTES: usize = 96;

/// The bytes that metadata of this length takes of the tables.
pub(in crate::engine) fn charge(metadata_bytes: Option<usize>) -> usize {
    metadata_bytes.map_or(0, |bytes| METADATA_BYTES + bytes)
}

/// A copy of a lock's metadata, for a reply that is read when the table is not locked any more.
#[derive(Clone, Debug, Default)]
pub(in crate::engine) struct MetadataBuffer(Vec<u8>);

impl MetadataBuffer {
    /// Keeps this metadata instead of the last.
    pub(in crate::engine) fn keep(&mut self, metadata: Option<&[u8]>) {
        self.0.clear();
        self.0.extend_from_slice(metadata.unwrap_or_default());
    }

    /// The kept metadata.
    pub(in crate::engine) fn get(&self) -> Option<&[u8]> {
        (!self.0.is_empty()).then_some(&self.0)
    }
}

impl LockTable {
    /// The metadata of the grant with this fence, if it has some and is in the table.
    #[must_use]
    pub fn metadata(&self, fence: Fence) -> Option<&[u8]> {
        Some(self.metadata.get(&fence)?)
    }

    /// The bytes that the metadata of a grant takes of the table.
    pub(in crate::engine) fn metadata_bytes(&self, fence: Fence) -> usize {
        charge(self.metadata(fence).map(<[u8]>::len))
    }

    /// The grant of `owner` with this fence, which is in force, has this metadata from now on.
    pub(in crate::engine) fn set_metadata(
        &mut self,
        owner: Owner,
        fence: Fence,
        metadata: Box<[u8]>,
    ) {
        let before = self.metadata_bytes(fence);
        let after = charge(Some(metadata.len()));
        self.metadata.insert(fence, metadata);
        self.table_bytes = self.table_bytes - before + after;
        if let Some(holder) = self.by_owner.get_mut(&owner) {
            holder.table_bytes = holder.table_bytes - before + after;
        }
    }

    /// Removes the metadata of a grant that leaves the table. Also returns the bytes that it has taken, which still count
    /// for the owner.
    pub(super) fn take_metadata(&mut self, fence: Fence) -> (Option<Box<[u8]>>, usize) {
        let metadata = self.metadata.remove(&fence);
        let bytes = charge(metadata.as_deref().map(<[u8]>::len));
        self.table_bytes -= bytes;
        (metadata, bytes)
    }
}
