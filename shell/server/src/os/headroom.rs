//! Headroom: a reserve of memory that large allocations may not use.
//!
//! Where the system limits memory (`RLIMIT_AS`, or no overcommitment), an allocation can fail. If a large one
//! fails, its client gets an error. If one of the many small ones in libraries fails, the process ends. So a
//! large allocation first checks that the reserve would remain.
//!
//! - N1: Where memory is limited, every allocation of [`LARGE_BYTES`] or more that a client causes leaves
//!   [`HEADROOM_BYTES`] free.
//! - N2: Where memory is unlimited, there is no check and no cost.

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};

use memmap2::MmapMut;
use rustix::process::{Resource, getrlimit};

/// Smaller allocations are not checked, in bytes.
const LARGE_BYTES: usize = 16 << 10;

/// The reserve, in bytes: a page for each of a thousand small allocations. The allocator takes a page for one
/// when it can get no more at a time.
const HEADROOM_BYTES: usize = 4 << 20;

/// The other limit besides `RLIMIT_AS`: if this is 2, the system's memory.
const OVERCOMMIT: &str = "/proc/sys/vm/overcommit_memory";

static HAS_END: LazyLock<bool> = LazyLock::new(|| {
    let is_limited = getrlimit(Resource::As).current.is_some();
    is_limited || fs::read_to_string(OVERCOMMIT).is_ok_and(|mode| mode.trim() == "2")
});

/// One check at a time: two concurrent checks could count the same reserve.
static ONE: Mutex<()> = Mutex::new(());

/// The number of failed allocations, over all servers of the process.
static REFUSED: AtomicU64 = AtomicU64::new(0);

/// Whether memory is limited (N1).
pub(crate) fn has_end() -> bool {
    *HAS_END
}

/// Allocates about `bytes`, if the reserve remains.
pub(crate) fn allocate<T>(bytes: usize, take: impl FnOnce() -> Option<T>) -> Option<T> {
    let taken = if bytes < LARGE_BYTES || !*HAS_END {
        take()
    } else {
        let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        if fits(bytes) { take() } else { None }
    };
    if taken.is_none() {
        count_refused();
    }
    taken
}

/// Counts a failed allocation.
pub(crate) fn count_refused() {
    REFUSED.fetch_add(1, Ordering::Relaxed);
}

/// The number of failed allocations, since the start or the last reset.
pub(crate) fn refused() -> u64 {
    REFUSED.load(Ordering::Relaxed)
}

/// Resets the count to 0.
pub(crate) fn forget_refused() {
    REFUSED.store(0, Ordering::Relaxed);
}

/// Whether the reserve would remain if `bytes` were allocated.
pub(crate) fn stays_beside(bytes: usize) -> bool {
    allocate(bytes, || Some(())).is_some()
}

/// Whether the reserve exists now: for small allocations in great numbers.
pub(crate) fn is_there() -> bool {
    stays_beside(LARGE_BYTES)
}

/// Tests it with a mapping that is never touched and unmapped at once.
fn fits(bytes: usize) -> bool {
    MmapMut::map_anon(bytes.saturating_add(HEADROOM_BYTES)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_fits_beyond_the_address_space() {
        assert!(fits(LARGE_BYTES));
        assert!(!fits(usize::MAX));
    }

    #[test]
    fn failed_allocation_is_counted() {
        let before = refused();
        assert_eq!(allocate(1, || Some(())), Some(()));
        assert_eq!(allocate(1, || None::<()>), None);
        // Other tests of this process may count as well.
        assert!(refused() > before);
    }
}
