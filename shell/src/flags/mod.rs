//! Groups of flags that several tasks of the program share.
//!
//! Uses `log`, whose form is such a flag, and nothing else of the program.

mod access;
mod process;
mod server;

use std::time::Duration;

pub(crate) use self::access::AccessArgs;
pub(crate) use self::process::Process;
pub(crate) use self::server::ServerArgs;

/// Reads a span of seconds, which may have a fraction.
///
/// # Errors
/// A sentence for a person.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds")?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}
