//! `latchd lock KEY -- COMMAND`: runs a command while a lock is held.
//!
//! - P1: the command starts only once the lock is held, and the lock is given back only once the
//!   command has ended.
//! - P2: when the lock is lost, the command's process group is told to stop (TERM), and 5 s later
//!   made to (KILL).
//! - P3: signals that we get are the command's.
//!
//! Exit codes: the command's own, or 128 and the number of the signal that ended it; as timeout(1),
//! 125 when we fail or lose the lock, 126 when the command cannot be started, 127 when it is not
//! found; as flock(1), the code of `-E` when the lock is not obtained.

use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;

use async_signal::{Signal, Signals};
use latchd::client::{
    BoundLock, BoundOptions, Client, ClientOptions, Error, ErrorKind, Exptime, Lock, LockOptions,
    Loss, Mark, NotObtained, Retry,
};
use rustix::process::{Pid, kill_process, kill_process_group};
use smol::Timer;
use smol::future::FutureExt;
use smol::process::{Child, Command};
use smol::stream::StreamExt;

/// What we exit with when we fail, or lose the lock.
const EXIT_FAILED: u8 = 125;
/// What we exit with when the command cannot be started.
const EXIT_NOT_STARTED: u8 = 126;
/// What we exit with when there is no such command.
const EXIT_NOT_FOUND: u8 = 127;
/// What is added to the number of a signal that ended the command.
const EXIT_SIGNALLED: i32 = 128;

/// How long a server may take to say that a lock is not to be had, when it is not waited for.
const NONBLOCK: Duration = Duration::from_secs(1);

/// How long the command may take to stop once the lock is lost.
const GRACE: Duration = Duration::from_secs(5);

/// How long an item that is made for a lock outlives a holder that dies, in seconds. It need only
/// be there until it is locked.
const ITEM_TTL_S: u32 = 5;

/// Run a command while holding a lock
///
/// Without --ttl the lock is bound to the connection: it is free the moment this process ends,
/// however it ends; that needs latchd. With --ttl it is a lease, which is renewed while the command
/// runs and survives on the server for that long if this process dies; that works on memcached too.
///
/// The command finds the key in `LATCHD_LOCK_KEY`, and in `LATCHD_LOCK_NUMBER` a number that is higher for
/// every later holder: hand it along with what the command writes, and refuse lower ones there.
#[derive(Debug, clap::Args)]
pub(crate) struct LockArgs {
    /// What to lock
    key: String,
    /// HOST:PORT or the path of a Unix socket
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:11211")]
    server: String,
    /// Give up after this long, connecting and asking included; wait for ever unless it is said
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
    /// Store this in the item, for others to read
    #[arg(long, value_name = "TEXT")]
    metadata: Option<String>,
    /// Leave the command in our process group, so that it may read from the terminal
    #[arg(long)]
    foreground: bool,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<std::ffi::OsString>,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds")?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

/// A lock of either kind.
enum Held {
    Leased(Lock),
    Bound(BoundLock),
}

/// What ended the wait for a lock or for the command.
enum Ended {
    Command(io::Result<ExitStatus>),
    Lost(Option<Loss>),
    Signal(Signal),
    TimeOut,
}

/// Runs the command under the lock, and returns what to exit with.
pub(crate) fn run(args: &LockArgs) -> ExitCode {
    smol::block_on(async {
        // Before the lock: a signal that comes while we wait for it ends the wait.
        let signals = match Signals::new([
            Signal::Int,
            Signal::Term,
            Signal::Hup,
            Signal::Quit,
            Signal::Usr1,
            Signal::Usr2,
        ]) {
            Ok(signals) => signals,
            Err(error) => return failed(&error),
        };
        lock_and_run(args, signals).await
    })
}

async fn lock_and_run(args: &LockArgs, mut signals: Signals) -> ExitCode {
    let obtained = async { Ok(args.obtain().await) };
    let signal = async { Err(next(&mut signals).await) };
    let lock = match obtained.or(signal).await {
        Ok(Ok(lock)) => lock,
        Ok(Err(error)) if error.is_not_obtained() => {
            eprintln!("latchd: {}: {error}", args.key);
            return ExitCode::from(args.conflict_exit_code);
        }
        Ok(Err(error)) => return failed(&args.explained(&error)),
        Err(signal) => return signalled(signal as i32),
    };
    let mut child = match args.start(lock.number()) {
        Ok(child) => child,
        Err(error) => {
            eprintln!("latchd: {}: {error}", args.command_name());
            // Whether it worked is of no interest any more.
            let _ = lock.release().await;
            return ExitCode::from(if error.kind() == io::ErrorKind::NotFound {
                EXIT_NOT_FOUND
            } else {
                EXIT_NOT_STARTED
            });
        }
    };
    let (status, loss) = attend(args, &lock, &mut child, &mut signals).await;
    if let Some(loss) = loss {
        return failed(&format!("the lock of {} is lost: {loss}", args.key));
    }
    if let Err(error) = lock.release().await {
        return failed(&format!("{}: {error}", args.key));
    }
    match status {
        Ok(status) => match (status.code(), status.signal()) {
            (Some(code), _) => ExitCode::from(u8::try_from(code).unwrap_or(EXIT_FAILED)),
            (None, Some(signal)) => signalled(signal),
            (None, None) => ExitCode::from(EXIT_FAILED),
        },
        Err(error) => failed(&error),
    }
}

/// Waits for the command, passes signals on, and stops it when the lock is lost.
async fn attend(
    args: &LockArgs,
    lock: &Held,
    child: &mut Child,
    signals: &mut Signals,
) -> (io::Result<ExitStatus>, Option<Loss>) {
    let target = Target::of(child, args.foreground);
    let mut lost_by = None;
    let mut kill_at = None;
    loop {
        let command = async { Ended::Command(child.status().await) };
        let loss = async {
            match lost_by {
                None => Ended::Lost(lock.lost().await),
                Some(_) => std::future::pending().await,
            }
        };
        let signal = async { Ended::Signal(next(signals).await) };
        let time_out = async {
            match kill_at {
                Some(at) => {
                    Timer::at(at).await;
                    Ended::TimeOut
                }
                None => std::future::pending().await,
            }
        };
        match command.or(loss).or(signal).or(time_out).await {
            Ended::Command(status) => {
                if lost_by.is_some() {
                    // What the command has left behind in its group is not protected either.
                    target.signal(rustix::process::Signal::KILL);
                }
                return (status, lost_by);
            }
            Ended::Lost(loss) => {
                lost_by = Some(loss.unwrap_or(Loss::Expired));
                kill_at = Some(std::time::Instant::now() + GRACE);
                target.signal(rustix::process::Signal::TERM);
                // A stopped process hears nothing but KILL.
                target.signal(rustix::process::Signal::CONT);
            }
            Ended::Signal(signal) => {
                if let Some(signal) = rustix::process::Signal::from_named_raw(signal as i32) {
                    target.signal(signal);
                }
            }
            Ended::TimeOut => {
                kill_at = None;
                target.signal(rustix::process::Signal::KILL);
            }
        }
    }
}

/// Who gets the signals.
struct Target {
    pid: Option<Pid>,
    group: bool,
}

impl Target {
    fn of(child: &Child, foreground: bool) -> Self {
        Self {
            pid: i32::try_from(child.id()).ok().and_then(Pid::from_raw),
            group: !foreground,
        }
    }

    fn signal(&self, signal: rustix::process::Signal) {
        // Who has ended already needs no signal.
        let _ = match self.pid {
            Some(pid) if self.group => kill_process_group(pid, signal),
            Some(pid) => kill_process(pid, signal),
            None => Ok(()),
        };
    }
}

impl LockArgs {
    async fn obtain(&self) -> Result<Held, Error> {
        let client_options = ClientOptions::new()
            .connect_timeout(self.timeout)
            .reply_timeout(self.timeout);
        let client = Client::new(&self.server, client_options)?;
        let deadline = if self.nonblock {
            Some(NONBLOCK)
        } else {
            self.wait
        };
        let retry = if self.nonblock {
            Retry::none()
        } else {
            Retry::exponential(Duration::from_millis(10), Duration::from_millis(500)).with_jitter()
        };
        let Some(ttl) = self.ttl else {
            let exptime = Exptime::In {
                seconds: ITEM_TTL_S,
            };
            let mark = match &self.metadata {
                Some(text) => Mark::Note(text.as_bytes().into(), exptime),
                None => Mark::Number,
            };
            let mut options = BoundOptions::new().retry(retry).create(exptime).mark(mark);
            if let Some(deadline) = deadline {
                options = options.deadline(deadline);
            }
            return Ok(Held::Bound(client.lock(&self.key, &options).await?));
        };
        let options = LockOptions::new()
            .retry(retry)
            .deadline(deadline.unwrap_or(Duration::MAX))
            .metadata(self.metadata.as_deref().unwrap_or_default());
        Ok(Held::Leased(client.obtain(&self.key, ttl, &options).await?))
    }

    /// What a person can do about an error, where that is not plain.
    fn explained(&self, error: &Error) -> String {
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
        format!("{}: {error}{hint}", self.key)
    }

    fn start(&self, number: u64) -> io::Result<Child> {
        let (program, arguments) = self
            .command
            .split_first()
            .ok_or(io::ErrorKind::InvalidInput)?;
        let mut command = std::process::Command::new(program);
        command
            .args(arguments)
            .env("LATCHD_LOCK_KEY", &self.key)
            .env("LATCHD_LOCK_NUMBER", number.to_string());
        if !self.foreground {
            command.process_group(0);
        }
        Command::from(command).spawn()
    }

    fn command_name(&self) -> String {
        let name = self.command.first().cloned().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }
}

impl Held {
    fn number(&self) -> u64 {
        match self {
            Self::Leased(lock) => lock.number(),
            Self::Bound(lock) => lock.number().unwrap_or_default(),
        }
    }

    async fn lost(&self) -> Option<Loss> {
        match self {
            Self::Leased(lock) => lock.watch().await,
            Self::Bound(lock) => lock.watch().await,
        }
    }

    async fn release(self) -> Result<(), Error> {
        match self {
            Self::Leased(lock) => lock.release().await,
            Self::Bound(lock) => lock.release().await,
        }
    }
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
