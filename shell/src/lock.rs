//! `latchd lock KEY... -- COMMAND`: runs a command while holding locks.
//!
//! - P1: The command starts after all locks are acquired. The locks are released after the command has ended.
//! - P2: If a lock is lost, the command's process group receives TERM, and KILL 5 s later.
//! - P3: Signals to this process are forwarded to the command, also in a session of its own, including those that stop and continue a process.
//!   While the terminal has stopped the command, this process is stopped too. The command continues only after
//!   the server has confirmed the locks.
//! - P4: If this process dies, the command dies too, or keeps the locks (`--inherit`). If another process stops this
//!   one, the command is stopped at the end of the belief in the locks.
//!
//! Exit codes: the command's own, or those of `exit.rs`. As flock(1): the code of `-E` if the lock is not acquired.

mod attend;
mod guard;
mod held;
pub(crate) mod helper;
mod inherited;
mod keys;
mod process_table;
mod servers;
mod signalled;
mod terminal;
mod wait_notice;

use std::ffi::OsString;
use std::fmt::Display;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use async_signal::{Signal, Signals};
use latchd_client::{ClientOptions, Error, ErrorKind, Feature, NotObtained};
use smol::future::FutureExt;
use smol::stream::StreamExt;

use attend::{Attendance, End};
use inherited::Inherited;
use keys::Job;
use servers::Servers;
use terminal::Terminal;

use crate::exit::{self, LOCK_FAILED as EXIT_FAILED};
use crate::flags::{NETWORK, ServerArgs, seconds};
use crate::os::{descriptors, processes};
use crate::output::{Failure, end_at_panic};

/// The processes and threads that start besides this one: the event loop, the client, a name lookup; the command, its
/// guard, the leader of its group.
const PROCESSES: usize = 6;

/// The descriptors that are needed besides the standard ones: connections that ask what the server is, keep the lock and
/// wait for it, and a copy to inherit; those of the event loop, signals, terminal and child processes; one that asks a
/// server of a list for a sign of life, and one that asks for the holder.
const DESCRIPTORS: usize = 20;

/// The text under the options of `-h`.
pub(crate) const SHORT_HELP: &str = "\
Example: latchd lock -w 60 backup -- /usr/local/bin/backup
`--help` also explains how long the lock lasts, the variables of the command and the exit codes.";

/// The text under the options of `--help`.
pub(crate) const HELP: &str = "\
Example: latchd lock -w 60 backup -- /usr/local/bin/backup

How long the lock lasts:
  Without --ttl and --session it ends with the connection. The server releases it as soon as this
  process ends or its connection breaks. This requires latchd.
  With --session it survives a broken connection for that time, and a dead process, too. This requires
  latchd.
  With --ttl it does so on memcached as well: the key shows an item while it is held, so that clients
  that lock by `add` are excluded. A ttl below one second requires latchd, shows no item, and ends with
  this process.
  On latchd, waiting clients get the lock in order of arrival.

Variables of the command:
  LATCHD_LOCK_KEY      the key; of several keys the first in byte order
  LATCHD_LOCK_NUMBER   its fencing token, which rises with every holder, also over restarts of the
                       server: store it with each write of the command, and refuse writes with a
                       lower one
  LATCHD_LOCK_KEYS     all keys, one per line
  LATCHD_LOCK_NUMBERS  all fencing tokens, one per line
  memcached has no fencing tokens: both NUMBER variables are left out.
  Both lists are left out if a key contains a line end, or if a list exceeds 127 KiB.

Ctrl-Z stops the command and this process; the lock is not renewed then. When both continue,
the lock is checked first. If it was lost, the command is killed.

The command may begin a session or a process group of its own (setsid); signals and the end of the
lock reach it there too. If it gains rights (sudo), it may refuse signals of this user: then `latchd
lock` says so and sends them again every second. It cannot stop such a command when the lock is lost.

Exit codes:
  the command's own, or 128 plus the signal that ended it
    1  another client holds the lock (-E sets another code)
  125  failure: server unreachable, lock lost, or wrong options
  126  the command cannot be started
  127  the command is not found";

/// The heading of the options about locks.
const LOCKS: &str = "Locks";

/// Run a command while holding locks
#[derive(Debug, clap::Args)]
#[allow(clippy::struct_excessive_bools)] // Each is a flag of its own.
pub(crate) struct LockArgs {
    /// Lock these keys, all or none; put keys that begin with `-` between two `--`
    #[arg(value_name = "KEY")]
    keys: Vec<OsString>,
    /// Also lock the keys in this file, one per line; `-` is standard input
    #[arg(long, value_name = "FILE", help_heading = LOCKS)]
    keys_from: Option<PathBuf>,
    #[command(flatten)]
    server: ServerArgs,
    /// Wait at most SECS for the lock and the server [default: no limit for the lock]
    ///
    /// Until then, an unreachable server is tried again every 200 ms; the servers of a list in turn.
    /// Without this option, the wait for the lock has no limit, and an unreachable server is an error.
    #[arg(short, long, value_name = "SECS", value_parser = seconds, conflicts_with = "nonblock",
        allow_negative_numbers = true, help_heading = LOCKS, verbatim_doc_comment)]
    wait: Option<Duration>,
    /// Do not wait for the lock; wait at most 1 s for the server
    #[arg(short, long, help_heading = LOCKS)]
    nonblock: bool,
    /// Do not tell a terminal after 2 s which client holds the lock
    #[arg(short, long, help_heading = LOCKS)]
    quiet: bool,
    /// Fail if connecting or a reply takes longer than SECS
    #[arg(long, value_name = "SECS", value_parser = seconds, default_value = "5", help_heading = NETWORK,
        allow_negative_numbers = true)]
    timeout: Duration,
    /// Exit with this code if the lock is not acquired
    #[arg(short = 'E', long, value_name = "CODE", default_value_t = 1, help_heading = LOCKS,
        allow_negative_numbers = true)]
    conflict_exit_code: u8,
    /// Acquire a lock that lasts SECS without a renewal, with an item; also on memcached
    #[arg(long, value_name = "SECS", value_parser = seconds, help_heading = LOCKS, allow_negative_numbers = true)]
    ttl: Option<Duration>,
    /// Acquire the lock in a session that survives a broken connection for SECS
    ///
    /// SECS is 1 to 3600. After a break the client connects again by itself. If that takes longer than
    /// SECS, less 1%, the lock is lost. If this process dies, the lock stays for SECS. This requires
    /// latchd, and excludes --ttl and --inherit.
    #[arg(long, value_name = "SECS", value_parser = clap::value_parser!(u16).range(1..=3600),
        conflicts_with_all = ["ttl", "inherit"], help_heading = LOCKS, verbatim_doc_comment,
        allow_negative_numbers = true)]
    session: Option<u16>,
    /// Share the lock with other shared holders, as readers do; requires latchd
    #[arg(long, conflicts_with_all = ["ttl", "metadata", "permits"], help_heading = LOCKS)]
    shared: bool,
    /// Share the lock among at most NUMBER holders, 1 to 1024; requires latchd
    #[arg(long, value_name = "NUMBER", conflicts_with_all = ["ttl", "metadata"],
        value_parser = clap::value_parser!(u32).range(1..=1024), help_heading = LOCKS, allow_negative_numbers = true)]
    permits: Option<u32>,
    /// Show this text beside the lock [default: program, host and process]
    #[arg(long, value_name = "TEXT", help_heading = LOCKS)]
    metadata: Option<OsString>,
    /// Let the command keep the lock if this process is killed
    ///
    /// The command inherits the connection. If this process is killed, the lock stays until the
    /// command and all its child processes have ended. Without this option they are killed too.
    #[arg(long, conflicts_with = "ttl", help_heading = LOCKS, verbatim_doc_comment)]
    inherit: bool,
    /// Run this command with its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Runs the command under the locks. Returns the exit code.
pub(crate) fn run(args: &LockArgs) -> ExitCode {
    end_at_panic(EXIT_FAILED);
    begin(args).unwrap_or_else(|failure| failure.report().into())
}

fn begin(args: &LockArgs) -> Result<ExitCode, Failure> {
    // This must precede every other thread, because threads inherit the mask.
    let inherited = Inherited::record().map_err(failed)?;
    let job = Job::of(args).map_err(failed)?;
    check_program()
        .and_then(|()| descriptors::check(DESCRIPTORS))
        .and_then(|()| processes::check(PROCESSES))
        .map_err(failed)?;
    smol::block_on(async {
        // Before the lock is requested: a signal during the wait ends the wait.
        let signals = inherited.receive().map_err(failed)?;
        lock_and_run(args, &job, &inherited, signals).await
    })
}

async fn lock_and_run(
    args: &LockArgs,
    job: &Job,
    inherited: &Inherited,
    mut signals: Signals,
) -> Result<ExitCode, Failure> {
    let servers = args.servers().map_err(failed)?;
    let explained = |error: Error| args.explained(job, &error);
    let obtained = async { Ok(servers.obtain(args, job).await) };
    let signal = async { Err(next(&mut signals).await) };
    let held = match obtained.or(signal).await {
        Ok(Err(error)) if error.is_not_obtained() => {
            let why = format!("{}: {error}", job.names());
            return Err(Failure::new(args.conflict_exit_code, why));
        }
        Ok(obtained) => obtained.map_err(explained)?,
        Err(signal) => return Ok(signalled(signal as i32)),
    };
    let copies = held.inheritable(args.inherit).await.map_err(explained)?;
    let terminal = Terminal::open();
    let started =
        inherited.with_mask(|| helper::start(args, job, &held, inherited.hides_children()));
    // The command has its own copies. Another process must not keep these after this process has ended.
    drop(copies);
    let mut child = match started {
        Ok(child) => child,
        Err(error) => {
            // If this fails, the server releases the lock when this process ends.
            let _ = held.lock.release().await;
            return Err(failed(format!("cannot start the command: {error}")));
        }
    };
    // From now on the command is stopped and continued together with this process.
    let received = inherited.receive_for_command(&mut signals);
    received.and_then(|()| child.release()).map_err(failed)?;
    let attendance = Attendance::new(&held, child, terminal, signals);
    let (end, loss) = attendance.attend().await.map_err(failed)?;
    if let Some(loss) = loss {
        let names = job.names();
        return Err(failed(format!("lost the lock of {names}: {loss}")));
    }
    let released = held.lock.release().await;
    released.map_err(|error| failed(error).at(job.names()))?;
    Ok(match end {
        End::Code(code) => ExitCode::from(u8::try_from(code).unwrap_or(EXIT_FAILED)),
        End::Signal(signal) => signalled(signal),
        End::Key(signal) => helper::die_of(signal),
    })
}

impl LockArgs {
    /// The servers that the options describe.
    ///
    /// # Errors
    /// A message for the user, if the options contradict each other.
    fn servers(&self) -> Result<Servers, String> {
        let options = ClientOptions::new()
            .connect_timeout(self.timeout)
            .reply_timeout(self.timeout);
        let options = self.server.access.options(options)?;
        Servers::new(&self.server.addresses()?, &options)
    }

    /// An error, with advice where the cause is not obvious.
    fn explained(&self, job: &Job, error: &Error) -> Failure {
        let kind = error.kind();
        let hint =
            if self.ttl.is_none() && matches!(kind, ErrorKind::Unsupported(Feature::ShortLocks)) {
                "; it has no locks bound to connections: add --ttl to use a lease"
            } else if matches!(kind, ErrorKind::NotObtained(NotObtained::HasValue)) {
                "; lock another key, or delete the item"
            } else {
                ""
            };
        failed(format!("{error}{hint}")).at(job.names())
    }
}

/// Checks that this program can start itself once more, which starting the command needs.
///
/// # Errors
/// A message for the user, if it cannot.
fn check_program() -> Result<(), String> {
    let problem = |error| {
        format!(
            "cannot open {}: {error}; `latchd lock` requires a mounted /proc",
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

fn failed(problem: impl Display) -> Failure {
    Failure::new(EXIT_FAILED, problem.to_string())
}

fn signalled(signal: i32) -> ExitCode {
    let code = i32::from(exit::SIGNALLED) + signal;
    ExitCode::from(u8::try_from(code).unwrap_or(EXIT_FAILED))
}
