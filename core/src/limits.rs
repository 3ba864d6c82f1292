//! Every bound of the core, by name. What happens at each is said beside it.

/// The bounds of one [`Core`](crate::engine::Core).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Limits {
    /// The largest value in bytes. A larger one is refused with
    /// [`Refusal::TooLarge`](crate::reply::Refusal::TooLarge). memcached's `-I`; 1 MiB by default.
    pub value_bytes_max: usize,
    /// What all items together may take, in bytes as the store accounts for them. Past it, items
    /// are evicted. memcached's `-m`; 64 MiB by default.
    pub memory_bytes_max: usize,
    /// Whether items are evicted for room at all; if not, a store without room is
    /// [`Refusal::OutOfMemory`](crate::reply::Refusal::OutOfMemory). memcached's `-M`.
    pub evict: bool,
    /// How many locks one connection may hold, over all cores; one more is
    /// [`Refusal::TooManyLocks`](crate::reply::Refusal::TooManyLocks).
    pub locks_per_connection_max: usize,
    /// How much of `memory_bytes_max` locked items may pin, in bytes as the store accounts for
    /// them; past it a lock is [`Refusal::TooManyLocks`](crate::reply::Refusal::TooManyLocks), and
    /// a store that would grow a locked item is
    /// [`Refusal::OutOfMemory`](crate::reply::Refusal::OutOfMemory).
    pub locked_bytes_max: usize,
    /// How much of `memory_bytes_max` the table of locks may take; past it a lock is
    /// [`Refusal::TooManyLocks`](crate::reply::Refusal::TooManyLocks).
    pub lock_table_bytes_max: usize,
    /// How much the locks of one connection may take, their part of the table and the items they
    /// pin together and over all cores, so that one client cannot keep all others from locking
    /// anything; past it as at `locked_bytes_max`.
    pub lock_bytes_per_connection_max: usize,
    /// How many locks of connections that have ended, and how many whose leases have passed, one
    /// command lets go of, so that their items go in time and no command does the work of many. At
    /// least 1, so that what is pinned does not grow: a command takes one lock at most.
    pub locks_settled_max: usize,
    /// How many items one tick looks at for expiry, so that a tick has an end.
    pub crawl_items_max: usize,
    /// How many keys one page of `keys` looks at, so that a page has an end.
    pub scan_items_max: usize,
}

impl Limits {
    /// The bounds for a memory of `memory_bytes_max` and values of up to `value_bytes_max` bytes;
    /// the others follow from them.
    #[must_use]
    pub const fn new(memory_bytes_max: usize, value_bytes_max: usize) -> Self {
        Self {
            value_bytes_max,
            memory_bytes_max,
            evict: true,
            // As many as a program that locks a batch of rows would take, few enough that one
            // client cannot pin a cache of small items.
            locks_per_connection_max: 65_536,
            locked_bytes_max: memory_bytes_max / 2,
            lock_table_bytes_max: memory_bytes_max / 4,
            lock_bytes_per_connection_max: memory_bytes_max / 8,
            locks_settled_max: 16,
            crawl_items_max: 1_000,
            scan_items_max: 1_000,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::new(64 << 20, 1 << 20)
    }
}
