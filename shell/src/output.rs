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

/// Why a task has no success: its exit code, and the message for the user.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct Failure {
    code: u8,
    why: String,
}

impl Failure {
    pub(crate) fn new(code: u8, why: impl Into<String>) -> Self {
        let why = why.into();
        Self { code, why }
    }

    /// The answer is no.
    pub(crate) fn no(why: impl Into<String>) -> Self {
        Self::new(exit::NO, why)
    }

    /// An option or a command is wrong, or the server refuses the request.
    pub(crate) fn usage(why: impl Into<String>) -> Self {
        Self::new(exit::USAGE, why)
    }

    /// Whether it is that of [`usage`](Self::usage).
    pub(crate) const fn is_usage(&self) -> bool {
        self.code == exit::USAGE
    }

    /// A server or etcd cannot be used.
    pub(crate) fn unavailable(why: impl Into<String>) -> Self {
        Self::new(exit::UNAVAILABLE, why)
    }

    /// The system refuses a resource.
    pub(crate) fn system(why: impl Into<String>) -> Self {
        Self::new(exit::OS_ERROR, why)
    }

    /// The same, with the place before the message: a server or a line.
    pub(crate) fn at(self, place: impl Display) -> Self {
        Self::new(self.code, format!("{place}: {}", self.why))
    }

    /// Writes the message to standard error. Returns the exit code.
    pub(crate) fn report(self) -> u8 {
        complain(&self.why);
        self.code
    }
}

/// The exit code of a task. Reports its failure.
pub(crate) fn concluded(done: Result<(), Failure>) -> u8 {
    done.map_or_else(Failure::report, |()| 0)
}

/// Writes a message to standard error, in one piece (O3).
pub(crate) fn complain(problem: &(impl Display + ?Sized)) {
    let line = format!("latchd: {problem}\n");
    let _ = io::stderr().write_all(line.as_bytes());
}

/// A table: columns as wide as their widest cell, aligned to the left.
pub(crate) fn table<const COLUMNS: usize>(lines: &[[String; COLUMNS]]) -> String {
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max();
    let widths: [usize; COLUMNS] = std::array::from_fn(|column| width(column).unwrap_or(0));
    let mut text = String::new();
    for line in lines {
        let cells = line.iter().zip(widths);
        let padded: Vec<_> = cells
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        text.push_str(padded.join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// Writes results to standard output, in one piece.
///
/// # Errors
/// O1.
pub(crate) fn print(text: impl AsRef<[u8]>) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    checked(out.write_all(text.as_ref()).and_then(|()| out.flush()))
}

/// The result of a write to standard output.
///
/// # Errors
/// O1, unless the reader has stopped (O2).
pub(crate) fn checked(written: io::Result<()>) -> Result<(), Failure> {
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::new(
            exit::IO_ERROR,
            format!("cannot write to standard output: {error}; the output is incomplete"),
        )),
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
