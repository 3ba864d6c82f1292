//! The simulated sockets, threads and clock in which proofs run the server.
//!
//! It may use everything; the released server does not use it.

#[cfg(test)]
mod empty;
#[cfg(test)]
#[cfg(feature = "scheduled")]
mod scheduled;
#[cfg(feature = "verify")]
pub mod sharded;
#[cfg(feature = "verify")]
pub mod simulated;
#[cfg(feature = "verify")]
pub mod workers;
