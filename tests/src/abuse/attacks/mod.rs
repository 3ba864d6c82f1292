//! The attacks by name, in the order of the table.

mod connections;
mod crowd;
mod faults;
mod huge;
mod items;
mod locks;
mod logs;
mod memory;
mod operator;
mod shares;
mod sockets;
mod turns;
mod vanish;
mod waiters;

use super::Attack;

pub use crowd::QUIET;
pub use vanish::hold_elsewhere;

/// All attacks. The first row is no attack: it measures the delays of the machine itself, and
/// limits rest on it.
pub const ATTACKS: &[Attack] = &[
    QUIET,
    crowd::BUSY,
    turns::KEYS,
    turns::KEYS_STOP,
    turns::STATS,
    turns::MULTIGET,
    turns::LONG_READS,
    turns::QUIET_MISSES,
    turns::APPENDS,
    items::FLUSH_ITEMS,
    items::FLUSH_HELD,
    items::QUEUE_WALK,
    items::DEAD_FIRST,
    locks::HOLDER_DIES,
    locks::UNLOCK_ALL,
    locks::RESET_BEHIND,
    locks::HOG,
    locks::FLUSHES_BETWEEN,
    locks::KILL_HOLDER,
    shares::SHARERS_EXPIRE,
    shares::SHARERS_DIE,
    shares::SHARERS_ASKED,
    shares::DEADLOCK_SEARCH,
    memory::NON_READERS,
    memory::UNFINISHED_SETS,
    memory::UNFINISHED_LINES,
    memory::HALF_REQUESTS,
    memory::ADDRESS_SPACE,
    huge::SIZES,
    huge::ONE_COPY,
    huge::SETS,
    huge::APPENDS,
    huge::ERASED,
    connections::FLOOD,
    connections::DRIP,
    connections::RESET_STORM,
    connections::TRICKLE,
    connections::GARBAGE,
    connections::DESCRIPTORS,
    connections::PAUSE,
    logs::CLOSED,
    logs::NONE,
    logs::FULL_PIPE,
    logs::FULL_DISK,
    faults::STOP_CONT,
    faults::HANG_UP,
    sockets::SECOND_SERVER,
    sockets::SOCKET_FILE,
    vanish::VANISH,
    vanish::VANISH_UNREAD,
    operator::SILENT,
    operator::STATUS_CROWD,
    operator::STATS_CROWD,
    waiters::SET,
    waiters::DELETE,
    waiters::FLUSH,
    waiters::LOCKS,
    waiters::WINNERS_VANISH,
];
