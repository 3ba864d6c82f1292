//! The rules of every store, of any kind: any sequence of calls, beside a list of the expected
//! items.
//!
//! The list shares no code with any store, and judges every store by the same rules: the reference,
//! and the log with segments small and large. It knows the limit that a store states. If it knows
//! the store's charge ([`Charge`]), it also knows when the store may evict and refuse.
//!
//! - N1: a look-up finds the header and the value that were last stored, and never anything else.
//! - N2: an item is gone only if it was removed or flushed, has expired, or was evicted; a locked
//!   item is gone only if it was removed (S1). If there is room for all, none is evicted.
//! - N3: a refused call has changed nothing except for evictions (S2). If there is room for all,
//!   none is refused.
//! - N4: the store holds as many items and bytes as it says, and no more than it may (S3).
//! - N5: the counters count each expired or evicted item once. If all is looked at after each
//!   call, they tell expired from evicted items, and count the fetched ones and those with an
//!   exptime.
//! - N6: an item that is there from the first page of a scan to the last is shown.
//! - N7: nothing is evicted while the items and the new one fit together. A call that stores
//!   nothing evicts nothing, unless the limit was lowered.
//! - N8: a call is refused only if the kept items and its demand do not fit together.
//! - N9: when a store wants no crawl any more, all its expired items are locked.
//!
//! Which item a log evicts next is not among these rules: the examples in `core/src/store/log/tests.rs`
//! show it.

mod arithmetic;
mod beside;
mod call;
mod hashes;
mod keys;

pub use arithmetic::{Charge, SEGMENTS_IDLE_MAX};
pub use beside::{Beside, Room, Seen};
pub use call::{Call, Sizes};
pub use hashes::{ByLength, Same};
