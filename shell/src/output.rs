//! The output of the tasks: results to standard output, messages to standard error. Neither write can panic.
//!
//! - O1: A result that cannot be written is a failure, exit code 74 (`EX_IOERR`).
//! - O2: A reader that stops early is no failure, as for other programs in a pipe.
//! - O3: If standard error cannot be written, the exit code tells the result alone.

use std::fmt::Display;
use std::io::{self, Write};

/// Writes a message to standard error, in one piece (O3).
pub(crate) fn complain(problem: &(impl Display + ?Sized)) {
    let line = format!("latchd: {problem}\n");
    let _ = io::stderr().write_all(line.as_bytes());
}
