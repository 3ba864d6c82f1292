//! `-d`: runs the server as a daemon.
//!
//! The program starts itself once more, in a new session, and waits until that process listens or stands by in its
//! cluster. So when the shell's prompt returns, clients are served. An earlier failure is still printed, with its exit
//! code. memcached detaches before it listens.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};

use latchd_server::cannot_start;

/// The variable that marks the serving process.
const DETACHED: &str = "LATCHD_DETACHED";

/// The message of the serving process once it listens or stands by.
const READY: &[u8] = b"ready\n";

/// Whether this is the serving process.
pub(crate) fn is_detached() -> bool {
    std::env::var_os(DETACHED).is_some()
}

/// Starts the serving process and waits until it listens or stands by. Returns the exit code of this process.
///
/// # Errors
/// The system's, if the process cannot be started.
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
        .spawn()
        .map_err(|error| cannot_start("the daemon", &error))?;
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

/// The serving process of a daemon.
pub(crate) struct Daemon {
    /// `/dev/null`. It is open from the start, because a user that the server becomes may be unable to open it.
    nowhere: File,
}

impl Daemon {
    /// Starts a new session, so closing the terminal does not stop the server.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn begin() -> io::Result<Self> {
        rustix::process::setsid()?;
        let nowhere = File::options().write(true).open("/dev/null");
        let explain =
            |error: io::Error| io::Error::new(error.kind(), format!("-d: /dev/null: {error}"));
        nowhere.map(|nowhere| Self { nowhere }).map_err(explain)
    }

    /// Reports that the server listens or stands by, and closes standard output; standard error too if it `is_silent`.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn serve(self, is_silent: bool) -> io::Result<()> {
        // The waiting process may have been killed.
        let _ = io::stdout()
            .write_all(READY)
            .and_then(|()| io::stdout().flush());
        rustix::stdio::dup2_stdout(&self.nowhere)?;
        if is_silent {
            rustix::stdio::dup2_stderr(&self.nowhere)?;
        }
        Ok(())
    }
}
