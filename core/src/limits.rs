//! Every bound of the core, by name. What happens at each is said beside it.

/// The longest wait for a lock or a value that a client can ask for, in milliseconds: an hour.
pub const WAIT_MS_MAX: u64 = 60 * 60 * 1000;

/// Why another limit of memory is not taken: nothing has changed then.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum MemoryRefused {
    /// Whoever has the items does not change it.
    Fixed,
    /// It is less than the store needs to work at all, or than two of the largest values.
    TooSmall,
    /// It is more than the store has addresses for. They are chosen when it is made.
    TooLarge,
    /// Locks pin more, or take more, than they might under it.
    Locked,
}

/// The most connections that can share the lock of a key, and the greatest number of them that a client can
/// name.
pub const SHARERS_MAX: u32 = 1024;

/// The bounds of one [`Core`](crate::engine::Core).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub struct Limits {
    /// The largest value in bytes. A larger one is refused with
    /// [`Refusal::TooLarge`](crate::reply::Refusal::TooLarge). memcached's `-I`; 1 MiB by default.
    pub value_bytes_max: usize,
    /// What all items together may take, in bytes as the store accounts for them. Past it, items
    /// are evicted. memcached's `-m`; 64 MiB by default. It may change while there are items
    /// ([`Event::Limits`](crate::engine::Event::Limits)).
    pub memory_bytes_max: usize,
    /// Whether items are evicted for room at all; if not, a store without room is
    /// [`Refusal::OutOfMemory`](crate::reply::Refusal::OutOfMemory). memcached's `-M`.
    pub evict: bool,
    /// Whether values are zeroed when they are dead: `--secure-erase`. When that is stands with
    /// [`Store`](crate::store::Store).
    pub erase: bool,
    /// How many locks one connection may hold, over all cores; one more is
    /// [`Refusal::TooManyLocks`](crate::reply::Refusal::TooManyLocks).
    pub locks_per_connection_max: usize,
    /// How much of `memory_bytes_max` locked items may pin, in bytes as the store accounts for
    /// them; past it a lock is [`Refusal::TooManyLocks`](crate::reply::Refusal::TooManyLocks), and
    /// a store that would grow a locked item is
    /// [`Refusal::OutOfMemory`](crate::reply::Refusal::OutOfMemory).
    pub locked_bytes_max: usize,
    /// How much of `memory_bytes_max` the tables of locks, waits and wins may take; past it a lock is
    /// [`Refusal::TooManyLocks`](crate::reply::Refusal::TooManyLocks). Several cores may share it
    /// ([`Config::sharing_tables`](crate::engine::Config::sharing_tables)).
    pub lock_table_bytes_max: usize,
    /// How much the locks of one connection may take, their part of the table and the items they
    /// pin together and over all cores, so that one client cannot keep all others from locking
    /// anything; past it as at `locked_bytes_max`.
    pub lock_bytes_per_connection_max: usize,
    /// How many locks of connections that have ended, how many of their wins, and how many locks whose leases have
    /// passed, one command lets go of, so that their items go in time and no command does the work of many. At
    /// least 1, so that what is pinned does not grow: a command takes one lock at most. At least 2
    /// where requests may wait: a lock that is handed over leaves a place to be passed by.
    pub locks_settled_max: usize,
    /// How many connections may share the lock of one key, whatever they have asked for; one more is
    /// [`Refusal::TooManyLocks`](crate::reply::Refusal::TooManyLocks), or waits if others wait before it.
    pub sharers_per_key_max: u32,
    /// How many connections may wait for the lock of one key, and as many for its value; one more is
    /// [`Refusal::TooManyLocks`](crate::reply::Refusal::TooManyLocks). It is also how many one release
    /// may have to look at, if none of them can have the lock, and one store, which all of them have waited for.
    pub waits_per_key_max: usize,
    /// How many connections may wait in all, those included that wait no more and whose
    /// [`Notice`](crate::wait::Notice) has not been taken; one more is
    /// [`Refusal::TooManyLocks`](crate::reply::Refusal::TooManyLocks). What they take is part of
    /// `lock_table_bytes_max`.
    pub waits_max: usize,
    /// The longest wait, in milliseconds; a longer one ends as this.
    pub wait_ms_max: u64,
    /// How many wins may be bound to one connection, or about to be, over all cores; one more is
    /// [`Refusal::TooManyLocks`](crate::reply::Refusal::TooManyLocks). What they take is part of
    /// `lock_table_bytes_max`.
    pub bound_wins_per_connection_max: usize,
    /// How many locks and shares are looked at, those of a key, of the keys that their holders wait for, and so on, to find out
    /// whether a wait would be a deadlock; past it the wait is
    /// [`Refusal::TooManyLocks`](crate::reply::Refusal::TooManyLocks).
    pub wait_chain_max: usize,
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
            erase: false,
            // As many as a program that locks a batch of rows would take, few enough that one
            // client cannot pin a cache of small items.
            locks_per_connection_max: 65_536,
            locked_bytes_max: 0,
            lock_table_bytes_max: 0,
            lock_bytes_per_connection_max: 0,
            locks_settled_max: 16,
            // More than the clients of one server want the same thing at once.
            sharers_per_key_max: SHARERS_MAX,
            waits_per_key_max: 16_384,
            waits_max: 65_536,
            wait_ms_max: WAIT_MS_MAX,
            // More than a client computes at once.
            bound_wins_per_connection_max: 1_024,
            // All who share one key, and as many again for whom they wait: some hundred microseconds.
            wait_chain_max: 2 * SHARERS_MAX as usize,
            crawl_items_max: 1_000,
            scan_items_max: 1_000,
        }
        .with_memory(memory_bytes_max)
    }

    /// The same for another memory: what follows from it, the shares of locks, follows anew.
    #[must_use]
    pub const fn with_memory(self, memory_bytes_max: usize) -> Self {
        Self {
            memory_bytes_max,
            locked_bytes_max: memory_bytes_max / 2,
            lock_table_bytes_max: memory_bytes_max / 4,
            lock_bytes_per_connection_max: memory_bytes_max / 8,
            ..self
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::new(64 << 20, 1 << 20)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// docs/OPERATIONS.md: half of the memory for items that are locked, a quarter for locks, an eighth for those of one.
    #[test]
    fn locks_have_their_shares_of_the_memory() {
        let limits = Limits::default().with_memory(800);
        let shares = (
            limits.memory_bytes_max,
            limits.locked_bytes_max,
            limits.lock_table_bytes_max,
            limits.lock_bytes_per_connection_max,
        );
        assert_eq!(shares, (800, 400, 200, 100));
        assert_eq!(Limits::default().memory_bytes_max, 64 * 1024 * 1024);
        assert_eq!(Limits::default().value_bytes_max, 1024 * 1024);
    }
}
