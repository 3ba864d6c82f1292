//! The program `latchd`: reads flags, handles signals and sets the exit code. latchd-server runs the server.
//!
//! This library is for the program's `main` and for its manual pages alone, and promises no stable interface.
//!
//! All messages of the server go through the `Log`, so a slow reader of the log delays no client.

// A failed write would panic.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod args;
mod bench;
mod check;
mod cli;
mod cluster;
mod exit;
mod flags;
mod lock;
mod locks;
mod log;
mod os;
mod output;

use std::backtrace::{Backtrace, BacktraceStatus};
use std::ffi::OsString;
use std::fmt::{Display, Write as _};
use std::io::{self, IsTerminal};
use std::iter;
use std::mem;
use std::os::fd::OwnedFd;
use std::process::ExitCode;
use std::sync::Arc;

use async_signal::{Signal, Signals};
use clap::error::ErrorKind;
use latchd_cluster::Over;
use latchd_server::{Address, Config, Ended, Server};
use smol::Timer;
use smol::future::{self, FutureExt};
use smol::stream::StreamExt;

use crate::args::{Args, Task};
use crate::flags::Process;
use crate::log::{Form, JsonEvents, Log};
use crate::os::daemon::{self, Daemon};
use crate::os::pid_file::PidFile;
use crate::os::privileges::Refusal;
use crate::os::service_manager::{ServiceManager, State};
use crate::os::{descriptors, handed_over, pid_file, privileges, reactor};
use crate::output::{Failure, checked, concluded, end_at_panic, print};

pub use args::command;
pub use exit::TABLE as EXIT_CODES;

/// The text of `-i`.
const LICENCE: &str =
    "latchd is licensed under the MIT licence or the Apache licence 2.0, at your option.\n";

/// Runs the program, and returns its exit code.
#[must_use]
pub fn main() -> ExitCode {
    if let Some(code) = lock::helper::run() {
        return code;
    }
    // Of tasks; the server reports through its log.
    end_at_panic(exit::SOFTWARE);
    let args = args::read(std::env::args_os()).unwrap_or_else(|error| refuse(&error));
    match &args.task {
        None => start(args).unwrap_or_else(|failure| failure.report().into()),
        Some(Task::Lock(lock)) => lock::run(lock),
        Some(Task::Locks(locks)) => locks::run(locks),
        Some(Task::Unlock(unlock)) => locks::run_unlock(unlock),
        Some(Task::Cli(cli)) => cli::run(cli),
        Some(Task::Bench(bench)) => bench::run(bench),
        Some(Task::Check(check)) => {
            let words = iter::once(OsString::from("latchd")).chain(check.flags.iter().cloned());
            let args = args::read(words).unwrap_or_else(|error| refuse(&error));
            let process = args.process.clone();
            let (config, ignored) = configure(args, Vec::new());
            check::run(&config, &ignored, &process)
        }
        Some(Task::Cluster(cluster)) => cluster::run(cluster),
    }
}

/// The configuration that the flags give, and warnings. A wrong flag ends the process.
fn configure(mut args: Args, sockets: Vec<Arc<OwnedFd>>) -> (Config, Vec<String>) {
    let mut warnings = mem::take(&mut args.warnings);
    let (config, ignored) = args
        .into_config(sockets)
        .unwrap_or_else(|problem| command().error(ErrorKind::ValueValidation, problem).exit());
    if !ignored.is_empty() {
        let ignored = ignored.join(", ");
        warnings.push(format!("ignoring options without effect: {ignored}"));
    }
    (config, warnings)
}

/// Starts a server, here or as a daemon.
fn start(args: Args) -> Result<ExitCode, Failure> {
    let process = args.process.clone();
    if process.license {
        return print(LICENCE).map(|()| ExitCode::SUCCESS);
    }
    // Taking the sockets unsets the variables.
    let not_ours = handed_over::warning();
    let sockets =
        handed_over::sockets().map_err(|error| Failure::system(format!("LISTEN_FDS: {error}")))?;
    let (config, mut ignored) = configure(args, sockets);
    ignored.extend(not_ours);
    if process.daemon && !daemon::is_detached() {
        return daemon::detach().map_err(|error| Failure::system(format!("-d: {error}")));
    }
    serve(config, &ignored, &process)
}

/// The way out of an error about a path. Errors about addresses and limits have their own.
fn advice(error: &io::Error) -> &'static str {
    if error.kind() == io::ErrorKind::NotFound {
        "; create it, or name another path"
    } else {
        ""
    }
}

/// Runs the server until it stops.
fn serve(mut config: Config, ignored: &[String], process: &Process) -> Result<ExitCode, Failure> {
    // The order matters: actions that require root, then dropping root, then sockets and threads.
    let log_file = process.log_file.as_deref();
    let target = log::Target::open(log_file).map_err(|error| {
        let place = log_file.map_or("standard error".into(), |path| path.display().to_string());
        let advice = advice(&error);
        Failure::system(format!("cannot log to {place}: {error}{advice}"))
    })?;
    let (daemon, warnings) = prepare(&config, process)?;
    let log = Log::start(target, process.log).map_err(refused)?;
    reactor::start().map_err(refused)?;
    config.log_dropped = Arc::clone(log.dropped());
    show_log(
        &log,
        process.log,
        log_file.is_none() && io::stderr().is_terminal(),
    );
    stop_at_panic(log.clone());
    for warning in ignored.iter().chain(&warnings) {
        tracing::warn!("{warning}");
    }
    let code = match run(config, process, daemon, &log) {
        Ok(Ended::Clean) => ExitCode::SUCCESS,
        Ok(Ended::ItemsLost) => ExitCode::from(exit::IO_ERROR),
        Err(error) => {
            log.tell("ERROR", &format!("latchd: {error}{}", advice(&error)));
            ExitCode::from(exit::OS_ERROR)
        }
    };
    log.flush();
    Ok(code)
}

/// The system refuses something.
fn refused(error: impl Display) -> Failure {
    Failure::system(error.to_string())
}

/// Directs `tracing` to the log. Lines at a terminal have no time.
fn show_log(log: &Log, form: Form, at_terminal: bool) {
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(move || writer.clone())
        .with_ansi(at_terminal)
        .with_target(false);
    match form {
        Form::Json => subscriber.event_format(JsonEvents).init(),
        Form::Text if at_terminal => subscriber.without_time().init(),
        Form::Text => subscriber.init(),
    }
}

/// Prints the error, or the requested help, and ends the process. For `lock` the exit code is that of its failures,
/// because 2 may be the command's.
fn refuse(error: &clap::Error) -> ! {
    let is_of_lock = std::env::args_os()
        .nth(1)
        .is_some_and(|task| task == "lock");
    let written = error.print();
    let code = match error.use_stderr() {
        true if is_of_lock => exit::LOCK_FAILED,
        // Standard error may be closed.
        true => exit::USAGE,
        false => concluded(checked(written)),
    };
    std::process::exit(code.into())
}

/// Performs the actions that require root, then drops root. Returns the daemon of `-d`, and warnings.
fn prepare(config: &Config, process: &Process) -> Result<(Option<Daemon>, Vec<String>), Failure> {
    let daemon = process.daemon.then(Daemon::begin).transpose();
    let daemon = daemon.map_err(refused)?;
    let mut warnings = Vec::from_iter(descriptors::raise(config));
    if process.enable_coredumps {
        privileges::allow_core_files().map_err(refused)?;
    }
    if process.lock_memory {
        privileges::raise_locked_memory();
    }
    if let Some(user) = &process.user {
        let warning = privileges::become_user(user).map_err(|refusal| match refusal {
            Refusal::NoUser(why) => Failure::new(exit::NO_USER, why),
            Refusal::Denied(why) => Failure::system(why),
        });
        warnings.extend(warning?);
    }
    if let Some(path) = &process.log_file {
        warnings.extend(log::may_reopen(path).err());
    }
    if process.lock_memory {
        warnings.extend(privileges::lock_memory(check::memory_needed(config)).err());
    }
    Ok((daemon, warnings))
}

fn run(config: Config, process: &Process, daemon: Option<Daemon>, log: &Log) -> io::Result<Ended> {
    // Before the server starts, so a signal during the start also stops it.
    let mut signals = Signals::new([Signal::Int, Signal::Term, Signal::Usr1, Signal::Hup])?;
    let is_silent = config.verbosity == 0;
    let mut facts = format!(
        "{} MB of memory, {} connections, {} threads",
        config.memory_bytes_max >> 20,
        config.connections_max,
        config.threads
    );
    let listens = if config.cluster.is_some() {
        "standing by to listen"
    } else {
        "listening"
    };
    let server = Server::start(config)?;
    for address in server.status_addresses() {
        let _ = write!(facts, "; status at http://{address}/");
    }
    // Dropped at the end of this function, after the server.
    let _pid_file = write_files(&server, process);
    if process.user.is_none() && privileges::is_root() {
        tracing::warn!("running as root, which is not needed; add -u NAME");
    }
    let greet = || {
        if io::stderr().is_terminal() && process.log == Form::Text {
            log.say(greeting(server.addresses(), &facts));
        } else {
            let version = env!("CARGO_PKG_VERSION");
            tracing::info!(
                event = "listening",
                "latchd {version} {listens} on {}; {facts}",
                list(server.addresses())
            );
        }
    };
    let running = Running {
        server: &server,
        log,
        manager: ServiceManager::from_environment(),
    };
    let end = smol::block_on(async {
        let signal = running.signal(&mut signals);
        let ends = signal.or(running.shutdown()).or(running.failure());
        let ends = ends.or(running.over()).or(running.watchdog());
        ends.or(running.start(daemon, is_silent, greet)).await
    });
    running.tell(State::Stopping);
    let ended = server.shutdown();
    let end = end?;
    tracing::info!(
        event = "stopped",
        reason = end,
        "server stopped: {end}; all locks are released"
    );
    Ok(ended)
}

/// Writes the process id and the ports, if that is wanted. The file of the process id goes with the value.
fn write_files(server: &Server, process: &Process) -> Option<PidFile> {
    let written = process.pidfile.as_deref().map(PidFile::write).transpose();
    let pid_file = written.unwrap_or_else(|error| {
        tracing::warn!("-P: cannot write the process id: {error}");
        None
    });
    if let Err(error) = pid_file::write_ports(server.addresses()) {
        tracing::warn!("MEMCACHED_PORT_FILENAME: cannot write the ports: {error}");
    }
    pid_file
}

/// A started server. Each of its futures ends with the reason why the server stops, or never.
struct Running<'a> {
    server: &'a Server,
    log: &'a Log,
    manager: Option<ServiceManager>,
}

impl Running<'_> {
    fn tell(&self, state: State) {
        self.manager.iter().for_each(|manager| manager.tell(state));
    }

    /// Tells that the server has started.
    async fn start(
        &self,
        daemon: Option<Daemon>,
        is_silent: bool,
        greet: impl Fn(),
    ) -> io::Result<String> {
        // A refusal of the ring is polled first, and ends the start.
        self.server.decided().await;
        if let Some(daemon) = daemon {
            // The process that started the daemon reads the log so far.
            self.log.flush_start();
            daemon.serve(is_silent)?;
        }
        greet();
        self.tell(State::Ready);
        future::pending().await
    }

    async fn signal(&self, signals: &mut Signals) -> io::Result<String> {
        loop {
            match signals.next().await.transpose()? {
                Some(Signal::Hup) => self.reload(),
                end => return Ok(end.map_or("no more signals".into(), reason)),
            }
        }
    }

    fn reload(&self) {
        self.tell(State::Reloading);
        self.log.reopen();
        match self.server.reload() {
            Ok(()) => tracing::info!(
                event = "reload",
                "SIGHUP: log reopened, passwords and certificates reloaded"
            ),
            Err(error) => tracing::warn!(
                event = "reload_failed",
                reason = error.to_string(),
                "SIGHUP: reload failed, keeping the old configuration"
            ),
        }
        self.tell(State::Ready);
    }

    async fn failure(&self) -> io::Result<String> {
        Err(self.server.failed().await)
    }

    async fn over(&self) -> io::Result<String> {
        match self.server.over().await {
            Over::Refused(why) => Err(io::Error::other(why)),
            Over::Ended { exit_code } => {
                self.log.flush();
                // Nothing is saved or closed: another process may serve already.
                std::process::exit(exit_code.into());
            }
            _ => future::pending().await,
        }
    }

    async fn shutdown(&self) -> io::Result<String> {
        self.server.asked_to_end().await;
        Ok("a client sent shutdown".into())
    }

    async fn watchdog(&self) -> io::Result<String> {
        let Some(interval) = self.manager.as_ref().and_then(ServiceManager::interval) else {
            return future::pending().await;
        };
        loop {
            Timer::after(interval).await;
            // A service manager that is not notified in time restarts the server.
            if self.server.is_well().await {
                self.tell(State::Well);
            }
        }
    }
}

/// The reason why the server stops, for the log.
fn reason(signal: Signal) -> String {
    let name = if signal == Signal::Int {
        "SIGINT"
    } else if signal == Signal::Usr1 {
        "SIGUSR1"
    } else {
        "SIGTERM"
    };
    name.into()
}

/// The greeting at a terminal.
fn greeting(addresses: &[Address], facts: &str) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let listening = list(addresses);
    let hint = addresses.first().map_or_else(String::new, |address| {
        let name = match address {
            // Without `/` or `./` at its front it would be read as a host name.
            Address::Unix(path) if !path.starts_with("/") => format!("./{}", path.display()),
            Address::Tcp(_) | Address::Unix(_) => address.to_string(),
        };
        let server = if name == "127.0.0.1:11211" {
            String::new()
        } else {
            format!(" -s {name}")
        };
        format!("try `latchd cli{server}` with the lines: set k 0 0 hello / get k / lock k\n")
    });
    format!(
        "latchd {version}, a cache server with locks that end with their client\n\
         listening on {listening}\n{facts}\n{hint}press Ctrl-C to stop\n"
    )
}

fn list(addresses: &[Address]) -> String {
    addresses
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(", ")
}

/// Makes a failed assertion end the process: a server without one of its threads, or with half a change, must not
/// continue. The reason is the last line of the log, if that can be written.
fn stop_at_panic(log: Log) {
    std::panic::set_hook(Box::new(move |panic| {
        let thread = std::thread::current();
        let mut reason = format!("thread {} {panic}", thread.name().unwrap_or("?"));
        let backtrace = Backtrace::capture();
        if backtrace.status() == BacktraceStatus::Captured {
            // Writing to a string cannot fail.
            let _ = write!(reason, "\n{backtrace}");
        }
        log.tell("ERROR", reason.trim_end());
        log.flush_reason();
        std::process::exit(exit::SOFTWARE.into());
    }));
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write, pipe};
    use std::process::{Child, Command, Stdio};
    use std::time::{Duration, Instant};

    use super::*;

    /// Not a test: the tests below run this in a process of its own.
    #[test]
    #[ignore = "it ends the process"]
    fn panics_on_purpose() {
        stop_at_panic(Log::start(log::Target::StandardError, Form::Text).unwrap());
        let failing = std::thread::Builder::new()
            .name("latchd-7".into())
            .spawn(|| panic!("on purpose"));
        failing.unwrap().join().unwrap();
    }

    fn panicking(standard_error: Stdio) -> Child {
        Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "tests::panics_on_purpose"])
            .stdout(Stdio::null())
            .stderr(standard_error)
            .spawn()
            .unwrap()
    }

    #[test]
    fn a_panic_ends_the_process_with_its_reason() {
        let mut child = panicking(Stdio::piped());
        let mut said = String::new();
        let mut log = child.stderr.take().unwrap();
        log.read_to_string(&mut said).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(exit::SOFTWARE.into()));
        assert!(
            said.contains("thread latchd-7 panicked") && said.contains("on purpose"),
            "{said}"
        );
    }

    #[test]
    fn an_unread_panic_reason_does_not_block_the_exit() {
        let (_unread, mut full) = pipe().unwrap();
        rustix::io::ioctl_fionbio(&full, true).unwrap();
        while full.write(&[b'x'; 4096]).is_ok() {}
        rustix::io::ioctl_fionbio(&full, false).unwrap();
        let mut child = panicking(full.into());
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if begun.elapsed() > Duration::from_secs(20) {
                child.kill().unwrap();
                panic!("it waits for a reader");
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        assert_eq!(status.code(), Some(exit::SOFTWARE.into()));
    }
}
