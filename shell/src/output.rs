//! The output of the tasks: results to standard output, messages to standard error. Neither write can panic.
//!
//! - O1: A result that cannot be written is a failure, exit code 74 (`EX_IOERR`).
//! - O2: A reader that stops early is no failure, as for other programs in a pipe.
//! - O3: If standard error cannot be written, the exit code tells the result alone.

use std::fmt::Display;
use std::io::{self, Write};
use std::panic;
use std::process;

use crate::exit;

/// Writes a message to standard error, in one piece (O3).
pub(crate) fn complain(problem: &(impl Display + ?Sized)) {
    let line = format!("latchd: {problem}\n");
    let _ = io::stderr().write_all(line.as_bytes());
}

/// Writes results to standard output, in one piece. Reports a failure, and returns the exit code of one (O1).
///
/// # Errors
/// The exit code.
pub(crate) fn print(text: impl AsRef<[u8]>) -> Result<(), u8> {
    let mut out = io::stdout().lock();
    let written = out.write_all(text.as_ref()).and_then(|()| out.flush());
    checked(written)
}

/// The result of a write to standard output. Reports a failure (O1), and that is none if the reader has stopped (O2).
///
/// # Errors
/// The exit code.
pub(crate) fn checked(written: io::Result<()>) -> Result<(), u8> {
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            complain(&format!(
                "cannot write to standard output: {error}; the output is incomplete"
            ));
            Err(exit::IO_ERROR)
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Makes a failed assertion in any thread end the process with this code. A task without one of its threads may never
/// end.
pub(crate) fn end_at_panic(code: u8) {
    panic::set_hook(Box::new(move |panic| {
        complain(panic);
        process::exit(code.into());
    }));
}
