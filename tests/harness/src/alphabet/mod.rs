//! One alphabet for everything that drives the core: the model, the property tests, the simulation
//! and the fuzz targets.
//!
//! An [`Op`] is an event in an owned form and from small ranges: few clients, few keys, few values,
//! short TTLs, and versions by their meaning ("the one it has now") and not by number. So sequences
//! collide often, and any sequence has a meaning: an [`Environment`] turns each op into its
//! [`Input`], or into none (an absent client cannot go).
//!
//! Each layer says the meaning of the small words of an op ([`Meaning`]): the name of a key, the
//! bytes of a value, the number of a version.
//!
//! - A1: the alphabet has every command with every option that a request can have. A layer can miss
//!   a command only if the op is missing.
//! - A2: leaving any op out of a sequence gives a valid sequence, so a failing one can be
//!   shortened.
//! - A3: every request of the alphabet can be asked on a wire, except the guarded replace, which is
//!   a guarded set there: only a custom transport can ask for it.

mod draw;
mod environment;
mod input;
pub mod limits;
mod pairs;
mod request;
mod shorten;
mod words;

pub use draw::WaitingOp;
pub use environment::{Asked, Environment, Told, pressure, pressure_keys};
pub use input::Input;
pub use pairs::{Pairs, ReplyKind, RequestKind, needs_bound, needs_log, needs_sharing};
pub use request::{SmallAcquire, SmallArithmetic, SmallDelete, SmallGet, SmallRequest, SmallSet};
pub use words::{
    CasChoice, ClientNumber, FenceChoice, GuardChoice, Meaning, ReleaseChoice, SmallKey,
    SmallMetadata, SmallValue,
};

/// How many clients there are.
pub const CLIENTS: usize = 3;

/// The keys of the alphabet, unless a layer has names of its own. One is the beginning of another,
/// for the sake of `keys`.
pub const KEYS: [&[u8]; 3] = [b"a", b"b", b"ab"];

/// A limit of the value size that no [`SmallValue`] reaches, and two that are put together can.
pub const VALUE_BYTES_MAX: usize = 64;

/// How many different keys [`Op::Pressure`] stores.
pub const PRESSURE_KEYS: usize = 16;

/// Unix time at the start, for exptimes that are dates.
pub const UNIX_S_AT_START: u64 = 1_700_000_000;

/// Something that can happen.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Op {
    /// A client connects. Nothing if it is connected.
    Open {
        /// Which one.
        client: ClientNumber,
    },
    /// A client's connection ends. Nothing if it is not connected.
    Close {
        /// Which one.
        client: ClientNumber,
    },
    /// The connection of a session ends: its client forgets the request that waits. Nothing for another client
    /// ([`ClientNumber::is_session`]).
    Detach {
        /// Which one.
        client: ClientNumber,
    },
    /// Time passes.
    Advance {
        /// Milliseconds.
        ms: u32,
    },
    /// The clock steps back, which must not make anything younger.
    Rewind {
        /// Milliseconds.
        ms: u32,
    },
    /// The wall clock is read, and differs from the expected time.
    WallClock {
        /// Seconds ahead of [`UNIX_S_AT_START`].
        ahead_s: u8,
    },
    /// The core learns that time has passed.
    Tick,
    /// Does all that is due: the call of a transport that keeps to the core's deadlines.
    Due,
    /// The server stores an item of a key of its own: memory becomes scarce.
    Pressure {
        /// Which of [`PRESSURE_KEYS`].
        key: u8,
    },
    /// The limit of memory changes. No effect if the first limit is not known
    /// ([`Environment::within`]).
    Limit {
        /// To how many quarters of that, of which there are at least two.
        quarters: u8,
    },
    /// No lock is granted for a while.
    Withhold {
        /// For how long.
        ms: u32,
    },
    /// A client sends a request. A client that has gone uses the id it had, which is dead, and may
    /// take no lock; nothing if it has never been connected, or waits. After a wait, the client
    /// repeats the request that has waited, and ignores this one.
    Request {
        /// Which one.
        client: ClientNumber,
        /// The request.
        request: SmallRequest,
    },
}
