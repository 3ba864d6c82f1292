//! Synchronization between threads: locks, atomics, channels, bells and time.
//!
//! The folder holds these and their replacements for tests. It uses no other part of the server.
//!
//! - Z1: The released server uses those of the standard library, of smol and of the system, unwrapped.
//! - Z2: In unit tests with the feature `scheduled`, the same names belong to a scheduler. It chooses the
//!   next thread before each access, and time stands still until a test advances it.
//!
//! So the tests in `verify/scheduled.rs` run the server's own code, in one order of events after the other.

pub(crate) mod clock;
#[cfg(not(all(test, feature = "scheduled")))]
mod real;
#[cfg(test)]
#[cfg(feature = "scheduled")]
pub(crate) mod stand_in;

#[cfg(not(all(test, feature = "scheduled")))]
pub(crate) use self::real::{
    Instant, Mutex, MutexGuard, Timer, Waker, atomic, channel, since_epoch,
};
#[cfg(all(test, feature = "scheduled"))]
pub(crate) use self::stand_in::{
    Instant, Mutex, MutexGuard, Timer, Waker, atomic, channel, since_epoch,
};
