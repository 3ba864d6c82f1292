//! A rest of memory that nothing large may take.
//!
//! Where the system gives only so much (`RLIMIT_AS`, or no overcommitment), a request for memory can
//! fail. A large one is refused then, to whoever wanted it; a small one, of which there are many in
//! libraries, would end the process. So what is large asks first whether a rest would be left.
//!
//! - N1: where memory has an end, every allocation of [`LARGE_BYTES`] or more that clients bring about
//!   leaves [`HEADROOM_BYTES`] to be had by others.
//! - N2: where it has none, nobody asks and nothing is slower.

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};

use memmap2::MmapMut;
use rustix::process::{Resource, getrlimit};

/// What is smaller than this is not asked for, in bytes.
const LARGE_BYTES: usize = 16 << 10;

/// The rest, in bytes: a page for each of a thousand small allocations, which is what the allocator
/// takes for one when it cannot have more at a time.
const HEADROOM_BYTES: usize = 4 << 20;

/// Says how memory can end besides by `RLIMIT_AS`: with 2, at what the system has.
const OVERCOMMIT: &str = "/proc/sys/vm/overcommit_memory";

static HAS_END: LazyLock<bool> = LazyLock::new(|| {
    let is_limited = getrlimit(Resource::As).current.is_some();
    is_limited || fs::read_to_string(OVERCOMMIT).is_ok_and(|mode| mode.trim() == "2")
});

/// One at a time: two who ask at once could be shown the same rest.
static ONE: Mutex<()> = Mutex::new(());

/// How often memory could not be had, by whichever server of the process.
static REFUSED: AtomicU64 = AtomicU64::new(0);

/// Whether memory has an end (N1).
pub(crate) fn has_end() -> bool {
    *HAS_END
}

/// Allocates about `bytes`, if the rest stays.
pub(crate) fn allocate<T>(bytes: usize, take: impl FnOnce() -> Option<T>) -> Option<T> {
    let taken = if bytes < LARGE_BYTES || !*HAS_END {
        take()
    } else {
        let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        if has_room_for(bytes) { take() } else { None }
    };
    if taken.is_none() {
        count_refused();
    }
    taken
}

/// Notes that memory could not be had.
pub(crate) fn count_refused() {
    REFUSED.fetch_add(1, Ordering::Relaxed);
}

/// How often memory could not be had, since the start or since this was last forgotten.
pub(crate) fn refused() -> u64 {
    REFUSED.load(Ordering::Relaxed)
}

/// Counts from 0 again.
pub(crate) fn forget_refused() {
    REFUSED.store(0, Ordering::Relaxed);
}

/// Whether the rest would stay if `bytes` were allocated.
pub(crate) fn stays_beside(bytes: usize) -> bool {
    allocate(bytes, || Some(())).is_some()
}

/// Whether the rest is there: for what is small, but may come in great numbers.
pub(crate) fn is_there() -> bool {
    stays_beside(LARGE_BYTES)
}

/// Tries it: what is asked for here is never touched, and given back at once.
fn has_room_for(bytes: usize) -> bool {
    MmapMut::map_anon(bytes.saturating_add(HEADROOM_BYTES)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_no_room_for_more_than_there_are_addresses() {
        assert!(has_room_for(LARGE_BYTES));
        assert!(!has_room_for(usize::MAX));
    }

    #[test]
    fn what_cannot_be_had_is_counted() {
        let before = refused();
        assert_eq!(allocate(1, || Some(())), Some(()));
        assert_eq!(allocate(1, || None::<()>), None);
        // Other tests of this process may count as well.
        assert!(refused() > before);
    }
}
