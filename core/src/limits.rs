//! Every bound of the core, by name, with the result of reaching it.

use latchd_protocol::command::{SHARERS_MAX, WAIT_MS_MAX};
use latchd_protocol::value::VALUE_BYTES_MAX_DEFAULT;
use latchd_protocol::wire::WireLimits;

/// The bounds of one [`Core`](crate::engine::Core).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub struct Limits {
    /// The largest value in bytes. A larger one is refused with
    /// [`Refusal::TooLarge`](latchd_protocol::reply::Refusal::TooLarge). memcached's `-I`; 1 MiB by default.
    pub value_bytes_max: usize,
    /// The memory limit for all items together, in bytes as the store accounts for them. Past it, items are
    /// evicted. memcached's `-m`; 64 MiB by default. It can change while there are items
    /// ([`Event::Limits`](crate::engine::Event::Limits)).
    pub memory_bytes_max: usize,
    /// Whether items are evicted to free memory. If not, a store without free memory is
    /// [`Refusal::OutOfMemory`](latchd_protocol::reply::Refusal::OutOfMemory). memcached's `-M`.
    pub evict: bool,
    /// Whether dead values are zeroed: `--secure-erase`. [`Store`](crate::store::Store) says when a value is
    /// dead.
    pub erase: bool,
    /// Locks that one connection may hold. One more is
    /// [`Refusal::TooManyLocks`](latchd_protocol::reply::Refusal::TooManyLocks).
    pub locks_per_connection_max: usize,
    /// The part of `memory_bytes_max` that locked items may pin, in bytes as the store accounts for them. Past
    /// it a lock is [`Refusal::TooManyLocks`](latchd_protocol::reply::Refusal::TooManyLocks), and a store that would grow
    /// a locked item is [`Refusal::OutOfMemory`](latchd_protocol::reply::Refusal::OutOfMemory).
    pub locked_bytes_max: usize,
    /// The part of `memory_bytes_max` that the tables of locks, waits and wins may use. Past it a lock is
    /// [`Refusal::TooManyLocks`](latchd_protocol::reply::Refusal::TooManyLocks).
    pub lock_table_bytes_max: usize,
    /// The memory of one connection's locks: their part of the table plus the items they pin. It
    /// keeps one client from blocking all other locks. Past it as at `locked_bytes_max`.
    pub lock_bytes_per_connection_max: usize,
    /// The most locks of ended connections, wins of ended connections and expired locks, each, that one command
    /// releases. So their items are freed in time, and no command does the work of many. At least 1, so that
    /// pinned memory does not grow: a command acquires at most one lock. At least 2 where requests may wait,
    /// since handing over a lock makes another entry to release.
    pub locks_settled_max: usize,
    /// Connections that may share the lock of one key, whatever limit they ask for. One more is
    /// [`Refusal::TooManyLocks`](latchd_protocol::reply::Refusal::TooManyLocks), or waits if others wait before it.
    pub sharers_per_key_max: u32,
    /// Connections that may wait for the lock of one key, and as many for its value. One more is
    /// [`Refusal::TooManyLocks`](latchd_protocol::reply::Refusal::TooManyLocks). This also bounds the waiters that one
    /// release looks at if none of them can have the lock, and that one store wakes.
    pub waits_per_key_max: usize,
    /// Connections that may wait in all, including ended waits whose [`Notice`](latchd_protocol::wait::Notice) was not
    /// taken yet. One more is [`Refusal::TooManyLocks`](latchd_protocol::reply::Refusal::TooManyLocks). Their memory is
    /// part of `lock_table_bytes_max`.
    pub waits_max: usize,
    /// The longest wait, in milliseconds. A longer one is cut to this.
    pub wait_ms_max: u64,
    /// Wins that may be bound to one connection, or are about to be. One more is
    /// [`Refusal::TooManyLocks`](latchd_protocol::reply::Refusal::TooManyLocks). Their memory is part of
    /// `lock_table_bytes_max`.
    pub bound_wins_per_connection_max: usize,
    /// Locks and shares that the search for a deadlock looks at: those of the key, of the keys that their
    /// holders wait for, and so on. Past it the wait is
    /// [`Refusal::TooManyLocks`](latchd_protocol::reply::Refusal::TooManyLocks).
    pub wait_chain_max: usize,
    /// Items that one tick looks at for expiry. It bounds the time of a tick.
    pub crawl_items_max: usize,
    /// Keys that one page of `keys` looks at. It bounds the time of a page.
    pub scan_items_max: usize,
}

impl Limits {
    /// The bounds for a memory limit of `memory_bytes_max` and values of up to `value_bytes_max` bytes. The
    /// other bounds follow from them.
    #[must_use]
    pub const fn new(memory_bytes_max: usize, value_bytes_max: usize) -> Self {
        Self {
            value_bytes_max,
            memory_bytes_max,
            evict: true,
            erase: false,
            // Enough for a program that locks a batch of rows, and few enough that one client cannot pin a
            // cache of small items.
            locks_per_connection_max: 65_536,
            locked_bytes_max: 0,
            lock_table_bytes_max: 0,
            lock_bytes_per_connection_max: 0,
            locks_settled_max: 16,
            // More than the clients of one server that want the same key at once.
            sharers_per_key_max: SHARERS_MAX,
            waits_per_key_max: 16_384,
            waits_max: 65_536,
            wait_ms_max: WAIT_MS_MAX,
            // More than a client computes at once.
            bound_wins_per_connection_max: 1_024,
            // All sharers of one key, and as many holders that they wait for: some hundred microseconds.
            wait_chain_max: 2 * SHARERS_MAX as usize,
            crawl_items_max: 1_000,
            scan_items_max: 1_000,
        }
        .with_memory(memory_bytes_max)
    }

    /// The bounds of each of `count` shards: its part of the memory of the items and of the locked ones. The tables of locks,
    /// and what one connection has, are counted over all shards.
    #[must_use]
    pub const fn share(self, count: usize) -> Self {
        Self {
            memory_bytes_max: self.memory_bytes_max / count,
            locked_bytes_max: self.locked_bytes_max / count,
            ..self
        }
    }

    /// The same bounds for another memory limit. The bounds of locks, which are parts of it, are computed anew.
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
        Self::new(64 << 20, VALUE_BYTES_MAX_DEFAULT)
    }
}

impl From<&Limits> for WireLimits {
    /// The bounds for the connections of a core within these limits.
    fn from(limits: &Limits) -> Self {
        Self::new(limits.value_bytes_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// docs/OPERATIONS.md: half of the memory for locked items, a quarter for lock tables, an eighth for the
    /// locks of one connection.
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
