//! `-d`: the server goes on without whoever started it.
//!
//! The program starts itself once more, in a session of its own, and waits until that one listens: when
//! the prompt is back clients are served, and what goes wrong before is still told, with its exit code.
//! memcached lets go before it listens.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};

/// Set for the one that is to serve.
const DETACHED: &str = "LATCHD_DETACHED";

/// What it says when it does.
const READY: &[u8] = b"ready\n";

/// Whether this is the one that is to serve.
pub(crate) fn is_detached() -> bool {
    std::env::var_os(DETACHED).is_some()
}

/// Starts the one that is to serve, and waits until it does. Returns the exit code of this one.
///
/// # Errors
/// It cannot be started.
pub(crate) fn detach() -> io::Result<ExitCode> {
    let mut words = std::env::args_os();
    let mut command = Command::new(std::env::current_exe()?);
    if let Some(name) = words.next() {
        command.arg0(name);
    }
    let mut child = command
        .args(words)
        .env(DETACHED, "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut said = Vec::new();
    if let Some(mut stdout) = child.stdout.take() {
        stdout.read_to_end(&mut said)?;
    }
    if said == READY {
        return Ok(ExitCode::SUCCESS);
    }
    let code = child.wait()?.code().unwrap_or(1);
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}

/// Leaves the session of whoever has started it: no terminal ends it any more.
///
/// # Errors
/// The kernel's.
pub(crate) fn begin() -> io::Result<()> {
    rustix::process::setsid()?;
    Ok(())
}

/// Says that it serves, and lets go of the standard streams; of standard error only if it `is_silent`.
///
/// # Errors
/// The kernel's.
pub(crate) fn serve(is_silent: bool) -> io::Result<()> {
    // Whoever waits for it may have been killed.
    let _ = io::stdout()
        .write_all(READY)
        .and_then(|()| io::stdout().flush());
    let nowhere = File::options().write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdout(&nowhere)?;
    if is_silent {
        rustix::stdio::dup2_stderr(&nowhere)?;
    }
    Ok(())
}
