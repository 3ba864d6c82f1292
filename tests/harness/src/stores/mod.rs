//! What every store must do, whatever it is made of: any sequence of calls, beside a list that knows
//! what should be there.
//!
//! The list shares no code with any store, and judges every store by the same rules: the reference, and the log with
//! segments small and large. Of room it knows what a store says that it may hold, and, where it is told how the store
//! takes room of that ([`Charge`]), when one may evict and refuse.
//!
//! - N1: what is found is what was last stored, header and value: never anything else.
//! - N2: an item is gone only if it was removed or flushed, has expired, or was evicted; a locked
//!   one only if it was removed (S1). Where there is room for all, none is evicted.
//! - N3: a refused call has changed nothing, but for evictions (S2). Where there is room for all,
//!   none is refused.
//! - N4: what the store says it holds is what is there, and no more than it may (S3).
//! - N5: the counters tell each item that is gone for its time or for room, once; where all is looked at after
//!   each call, they tell for which of the two, and whether it had been fetched and would have expired.
//! - N6: an item that is there from the first page of a scan to the last is shown.
//! - N7: nothing is evicted while what there is fits, and what is to be stored; nor by a call that stores nothing,
//!   unless the limit was lowered.
//! - N8: a call is refused only if what may not go does not fit beside what it needs.
//! - N9: when a store wants no crawl any more, nothing has expired in it but what is locked.
//!
//! Which item a log evicts next is no rule of these: `core/src/store/log/tests/course.rs` pins it, call by call.

mod arithmetic;
mod beside;
mod call;
mod hashes;
mod keys;

pub use arithmetic::{Charge, SEGMENTS_IDLE_MAX};
pub use beside::{Beside, Room, Seen};
pub use call::{Call, Sizes};
pub use hashes::{ByLength, Same};
