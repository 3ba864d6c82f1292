//! What the threads of a server meet by: locks, atomics, channels, bells and time.
//!
//! The folder holds these and their stand-ins. It uses nothing of the server.
//!
//! - Z1: what ships has those of the standard library, of smol and of the system, and nothing between.
//! - Z2: in unit tests, with the feature `scheduled`, the same names are a scheduler's: it chooses who goes on
//!   before each of these is touched, and time stands still until a test lets it pass.
//!
//! So the tests in `verify/scheduled.rs` run what ships, one order of events after the other.

pub(crate) mod clock;
#[cfg(not(all(test, feature = "scheduled")))]
mod real;
#[cfg(test)]
#[cfg(feature = "scheduled")]
pub(crate) mod stand_in;

#[cfg(not(all(test, feature = "scheduled")))]
pub(crate) use self::real::{
    Bell, Instant, Mutex, MutexGuard, Timer, atomic, channel, since_epoch,
};
#[cfg(all(test, feature = "scheduled"))]
pub(crate) use self::stand_in::{
    Bell, Instant, Mutex, MutexGuard, Timer, atomic, channel, since_epoch,
};
