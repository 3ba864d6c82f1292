//! What every store must do, whatever it is made of: any sequence of calls, beside a list that knows
//! what should be there.
//!
//! The list shares no code with any store, and knows of room nothing but this: an item that is not
//! locked may be gone for want of it, and a call may be refused for that; no more. So it judges every
//! store by the same rules: the reference, and the log with segments small and large.
//!
//! - N1: what is found is what was last stored, header and value: never anything else.
//! - N2: an item is gone only if it was removed or flushed, has expired, or was evicted; a locked
//!   one only if it was removed (S1). Where there is room for all, none is evicted.
//! - N3: a refused call has changed nothing, but for evictions (S2). Where there is room for all,
//!   none is refused.
//! - N4: what the store says it holds is what is there, and no more than it may (S3).
//! - N5: the counters tell each item that is gone for its time or for room, once.
//! - N6: an item that is there from the first page of a scan to the last is shown.

mod beside;
mod call;
mod hashes;
mod keys;

pub use beside::{Beside, Room, Seen};
pub use call::{Call, Sizes};
pub use hashes::{ByLength, Same};
