//! What a proof runs the server in: sockets, threads and a clock that it controls.
//!
//! May use everything; what ships uses nothing of it.

#[cfg(test)]
#[cfg(feature = "scheduled")]
mod scheduled;
#[cfg(feature = "verify")]
pub mod simulated;
