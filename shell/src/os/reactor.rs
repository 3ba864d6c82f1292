//! The thread of async-io, which the library starts at its first use.
//!
//! If the system refuses the thread, the library panics. The panic becomes an error and prints nothing.

use std::io;
use std::panic::{set_hook, take_hook};

/// Starts the thread, before a panic ends the process.
///
/// # Errors
/// The system refuses the thread. The error names the limit.
pub(crate) fn start() -> io::Result<()> {
    let hook = take_hook();
    set_hook(Box::new(|_| ()));
    let started = latchd_server::start_reactor();
    set_hook(hook);
    started
}
