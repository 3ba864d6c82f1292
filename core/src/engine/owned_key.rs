//! A key as the tables of the engine keep it.

use alloc::sync::Arc;

use latchd_protocol::key::Key;

/// A key that several tables share.
pub(super) type OwnedKey = Arc<[u8]>;

/// The key with these bytes, which a table keeps.
pub(super) fn as_key(key: &[u8]) -> Key<'_> {
    Key::new(key).expect("it was made from a key")
}
