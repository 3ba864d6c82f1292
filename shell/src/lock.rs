//! `latchd lock KEY... -- COMMAND`: runs a command while locks are held.
//!
//! - P1: the command starts only once all locks are held, and they are given back only once the
//!   command has ended.
//! - P2: when a lock is lost, the command's process group is told to stop (TERM), and 5 s later made to
//!   (KILL).
//! - P3: signals that we get are the command's, those for stopping and going on included. While the
//!   command is stopped by its terminal, so are we; and it goes on only once the server has said that
//!   the locks are still ours.
//! - P4: when we die, the command dies as well, or has the locks (`--inherit`).
//!
//! Exit codes: the command's own, or 128 and the number of the signal that ended it; as timeout(1),
//! 125 when we fail, lose the lock or are asked for nonsense, 126 when the command cannot be started,
//! 127 when it is not found; as flock(1), the code of `-E` when the lock is not obtained.

mod attend;
mod held;
pub(crate) mod helper;
mod inherited;
mod keys;
mod terminal;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use async_signal::{Signal, Signals};
use latchd_client::{Client, ClientOptions, Error, ErrorKind, NotObtained};
use rustix::io::Errno;
use smol::Timer;
use smol::future::FutureExt;
use smol::stream::StreamExt;

use attend::{Attendance, End};
use held::Held;
use inherited::Inherited;
use keys::Job;
use terminal::Terminal;

use crate::flags::{AccessArgs, ServerArgs, seconds};
use crate::os::descriptors;

/// What we exit with when we fail, or lose the lock.
pub(crate) const EXIT_FAILED: u8 = 125;
/// What is added to the number of a signal that ended the command.
const EXIT_SIGNALLED: i32 = 128;

/// How long to wait before a server that could not be reached is tried again.
const TRY_AGAIN: Duration = Duration::from_millis(200);

/// What stands under the options.
pub(crate) const HELP: &str = "\
Exit codes:
  the command's own, or 128 and the number of the signal that ended it;
    1  the lock is somebody else's (-E chooses another code)
  125  we have failed: no server, a lock that is lost, options that make no sense
  126  the command cannot be started
  127  there is no such command

Without --ttl the lock is bound to the connection: it is free the moment this process ends, however it
ends; that needs latchd, which serves those who wait in the order in which they came. With --ttl it is a lease, which is renewed while the command runs and survives on
the server for that long if this process dies; that works on memcached too. A ttl under a second is a
latchd's: such a lease ends with this process as well.

The command finds the key in LATCHD_LOCK_KEY, and in LATCHD_LOCK_NUMBER a number that is higher for every
later holder: hand it along with what the command writes, and refuse lower ones there. Of several keys
these are the first in the order of their bytes; all are in LATCHD_LOCK_KEYS and LATCHD_LOCK_NUMBERS, one a
line, unless a key has a line end or they are longer than a variable can be.

Ctrl-Z stops the command and us: a lease is not renewed then. When both go on, the lock is checked before
the command is; a command whose lock was lost meanwhile is killed.";

/// Run a command while holding locks
#[derive(Debug, clap::Args)]
pub(crate) struct LockArgs {
    /// What to lock; several are had all at once or not at all. Any that begin with `-` stand between two `--`
    #[arg(value_name = "KEY")]
    keys: Vec<OsString>,
    /// Lock also the keys in FILE, one a line; `-` is standard input
    #[arg(long, value_name = "FILE")]
    keys_from: Option<PathBuf>,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    access: AccessArgs,
    /// Give up after SECS, and wait as long for a server that is down [default: wait for the lock without end]
    #[arg(short, long, value_name = "SECS", value_parser = seconds, conflicts_with = "nonblock")]
    wait: Option<Duration>,
    /// Do not wait for the lock; for the server, a second at most
    #[arg(short, long)]
    nonblock: bool,
    /// How long connecting, or an answer of the server, may take
    #[arg(long, value_name = "SECS", value_parser = seconds, default_value = "5")]
    timeout: Duration,
    /// What to exit with when the lock is not obtained
    #[arg(short = 'E', long, value_name = "CODE", default_value_t = 1)]
    conflict_exit_code: u8,
    /// Take a lease of this many seconds instead of a lock bound to the connection
    #[arg(long, value_name = "SECS", value_parser = seconds)]
    ttl: Option<Duration>,
    /// Share the lock with all others who ask for that, as readers do; it needs a latchd
    #[arg(long, conflicts_with_all = ["ttl", "metadata", "permits"])]
    shared: bool,
    /// Share the lock among at most NUMBER holders; it needs a latchd
    #[arg(long, value_name = "NUMBER", conflicts_with_all = ["ttl", "metadata"],
        value_parser = clap::value_parser!(u32).range(1..=1024))]
    permits: Option<u32>,
    /// Store this in the item, for others to read; refused if the item has a value of its own
    #[arg(long, value_name = "TEXT")]
    metadata: Option<OsString>,
    /// Let the command inherit the connection: if this process is killed, the lock stays until the
    /// command and all it has started have ended. Otherwise they are killed with it
    #[arg(long, conflicts_with = "ttl")]
    inherit: bool,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Runs the command under the locks, and returns what to exit with.
pub(crate) fn run(args: &LockArgs) -> ExitCode {
    // Before any other thread starts: threads inherit the mask.
    let inherited = match Inherited::record() {
        Ok(inherited) => inherited,
        Err(error) => return failed(&error),
    };
    let ready = Job::of(args).and_then(|job| {
        check_program()?;
        descriptors::check(args.descriptors(job.keys.len()))?;
        Ok(job)
    });
    let job = match ready {
        Ok(job) => job,
        Err(problem) => return failed(&problem),
    };
    smol::block_on(async {
        // Before the lock: a signal that comes during the wait ends it.
        match inherited.receive() {
            Ok(signals) => lock_and_run(args, &job, &inherited, signals).await,
            Err(error) => failed(&error),
        }
    })
}

async fn lock_and_run(
    args: &LockArgs,
    job: &Job,
    inherited: &Inherited,
    mut signals: Signals,
) -> ExitCode {
    let client = match args.client() {
        Ok(client) => client,
        Err(problem) => return failed(&problem),
    };
    let obtained = async { Ok(obtain(args, job, &client).await) };
    let signal = async { Err(next(&mut signals).await) };
    let held = match obtained.or(signal).await {
        Ok(Ok(held)) => held,
        Ok(Err(error)) if error.is_not_obtained() => {
            eprintln!("latchd: {}: {error}", job.names());
            return ExitCode::from(args.conflict_exit_code);
        }
        Ok(Err(error)) => return failed(&args.explained(job, &error)),
        Err(signal) => return signalled(signal as i32),
    };
    let copies = match held.inheritable(args.inherit).await {
        Ok(copies) => copies,
        Err(error) => return failed(&args.explained(job, &error)),
    };
    let terminal = Terminal::open();
    let started =
        inherited.with_mask(|| helper::start(args, job, &held, inherited.hides_children()));
    // The command has its copies. Another process must not keep ours beyond our end.
    drop(copies);
    let child = match started {
        Ok(child) => child,
        Err(error) => {
            // The lock ends with this process in any case.
            let _ = held.release().await;
            return failed(&format!("the command cannot be started: {error}"));
        }
    };
    // From now on the command is stopped and continued together with this process.
    let received = inherited.receive_for_command(&mut signals);
    if let Err(error) = received.and_then(|()| child.release()) {
        return failed(&error);
    }
    let attendance = Attendance::new(&held, child, terminal, signals);
    let end = match attendance.attend().await {
        Ok((_, Some(loss))) => {
            return failed(&format!("the lock of {} is lost: {loss}", job.names()));
        }
        Ok((end, None)) => end,
        Err(error) => return failed(&error),
    };
    if let Err(error) = held.release().await {
        return failed(&format!("{}: {error}", job.names()));
    }
    match end {
        End::Code(code) => ExitCode::from(u8::try_from(code).unwrap_or(EXIT_FAILED)),
        End::Signal(signal) => signalled(signal),
        End::Key(signal) => helper::die_of(signal),
    }
}

impl LockArgs {
    /// The server, as the options say.
    ///
    /// # Errors
    /// The options make no sense; a sentence for a person.
    fn client(&self) -> Result<Client, String> {
        let options = ClientOptions::new()
            .connect_timeout(self.timeout)
            .reply_timeout(self.timeout);
        let options = self.access.options(options)?;
        Client::new(&self.server.address()?, options).map_err(|error| error.to_string())
    }

    /// How many descriptors are needed beside the standard ones: a connection for each bound lock, and a copy of it to
    /// be inherited, or four that leases share; the event loop's, the signals', the terminal, and those of processes
    /// that are started.
    fn descriptors(&self, keys: usize) -> usize {
        let connections = match (self.ttl, self.inherit) {
            (Some(_), _) => 4,
            (None, true) => 2 * keys,
            (None, false) => keys,
        };
        connections + 14
    }

    /// An error, and what a person can do about it where that is not plain.
    fn explained(&self, job: &Job, error: &Error) -> String {
        let hint = if let ErrorKind::Refused(words) = error.kind()
            && self.ttl.is_none()
            && &**words == "ERROR"
        {
            ": it knows no locks of connections; with --ttl it may have leases"
        } else if let ErrorKind::NotObtained(NotObtained::HasValue) = error.kind() {
            ": lock another key, or go without --metadata"
        } else {
            ""
        };
        format!("{}: {error}{hint}", job.names())
    }
}

/// Obtains all locks, or none. A server that cannot be reached is tried again until the time of `-w` is over.
async fn obtain(args: &LockArgs, job: &Job, client: &Client) -> Result<Held, Error> {
    let begun = Instant::now();
    loop {
        let left = args.wait.map(|wait| wait.saturating_sub(begun.elapsed()));
        match Held::obtain(args, &job.keys, client, left).await {
            Err(error) if is_absent(&error) && left.is_some_and(|left| left > TRY_AGAIN) => {
                Timer::after(TRY_AGAIN).await;
            }
            ended => return ended,
        }
    }
}

/// Whether a server that starts later could be what is asked for.
fn is_absent(error: &Error) -> bool {
    use std::io::ErrorKind as Kind;
    let ErrorKind::Unreachable(error) = error.kind() else {
        return false;
    };
    let no_descriptors = [Errno::MFILE, Errno::NFILE].map(|errno| Some(errno.raw_os_error()));
    let is_wrong = [
        Kind::InvalidData,
        Kind::InvalidInput,
        Kind::PermissionDenied,
    ];
    !is_wrong.contains(&error.kind()) && !no_descriptors.contains(&error.raw_os_error())
}

/// Whether this program can start itself once more, as the command needs.
///
/// # Errors
/// It cannot; a sentence for a person.
fn check_program() -> Result<(), String> {
    let problem = |error| {
        format!(
            "{}: {error}; `latchd lock` needs /proc to start the command",
            helper::PROGRAM
        )
    };
    if cfg!(target_os = "linux") {
        std::fs::metadata(helper::PROGRAM).map_err(problem)?;
    }
    Ok(())
}

async fn next(signals: &mut Signals) -> Signal {
    loop {
        if let Some(Ok(signal)) = signals.next().await {
            return signal;
        }
    }
}

fn failed(problem: &impl std::fmt::Display) -> ExitCode {
    eprintln!("latchd: {problem}");
    ExitCode::from(EXIT_FAILED)
}

fn signalled(signal: i32) -> ExitCode {
    ExitCode::from(u8::try_from(EXIT_SIGNALLED + signal).unwrap_or(EXIT_FAILED))
}
