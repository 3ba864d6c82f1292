//! The program `latchd`: flags in, signals in, exit code out. The server is the library's.
//!
//! Exit codes: 0 after SIGINT or SIGTERM; 2 for a bad flag; 70 (`EX_SOFTWARE`) when an assertion
//! of ours fails; 71 (`EX_OSERR`, as memcached) when the system refuses what the server needs, at
//! its start or later.
//!
//! Whatever the server has to say goes through the [`Log`], so that nobody waits for whoever should
//! read it.

mod args;
mod lock;
mod log;

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::sync::Arc;

use async_signal::{Signal, Signals};
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use latchd::{Address, Config, Server};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use smol::future::FutureExt;
use smol::stream::StreamExt;

use crate::args::{Args, Task};
use crate::log::Log;

/// `EX_OSERR` of sysexits(3).
const EXIT_OS_ERROR: u8 = 71;

/// `EX_SOFTWARE` of sysexits(3).
const EXIT_SOFTWARE: i32 = 70;

/// Descriptors that are not connections: standard streams, epolls, bells, listeners, and some.
const DESCRIPTORS_RESERVED: u64 = 32;

fn main() -> ExitCode {
    if let Some(code) = lock::helper::run() {
        return code;
    }
    let args = Args::try_parse().unwrap_or_else(|error| refuse(&error));
    if let Some(Task::Lock(lock)) = &args.task {
        return lock::run(lock);
    }
    let log_file = args.log_file.clone();
    let (mut config, ignored) = args.into_config().unwrap_or_else(|problem| {
        Args::command()
            .error(ErrorKind::ValueValidation, problem)
            .exit()
    });
    let log = match Log::start(log_file.as_deref()) {
        Ok(log) => log,
        Err(error) => {
            let what = log_file.map_or("the log".into(), |path| path.display().to_string());
            eprintln!("latchd: cannot log to {what}: {error}");
            return ExitCode::from(EXIT_OS_ERROR);
        }
    };
    config.log_dropped = Arc::clone(log.dropped());
    show_log(&log, log_file.is_none() && io::stderr().is_terminal());
    stop_at_panic(log.clone());
    if !ignored.is_empty() {
        tracing::warn!(
            "these mean nothing to latchd and are ignored: {}",
            ignored.join(", ")
        );
    }
    raise_descriptor_limit(&config);
    let code = match run(config, &log) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let advice = if error.kind() == io::ErrorKind::AddrInUse {
                ": stop what runs there, or choose another with -p, -l or -s"
            } else {
                ""
            };
            log.say(format!("latchd: {error}{advice}\n"));
            ExitCode::from(EXIT_OS_ERROR)
        }
    };
    log.flush();
    code
}

/// Lets `tracing` write to the log. Somebody who sits at a terminal knows what time it is.
fn show_log(log: &Log, at_terminal: bool) {
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(move || writer.clone())
        .with_ansi(at_terminal)
        .with_target(false);
    if at_terminal {
        subscriber.without_time().init();
    } else {
        subscriber.init();
    }
}

/// Says what is wrong with the command line, or what was asked of it, and ends the process. `lock` has
/// timeout(1)'s exit code for that: 2 may be the command's.
fn refuse(error: &clap::Error) -> ! {
    let is_of_lock = std::env::args_os()
        .nth(1)
        .is_some_and(|task| task == "lock");
    if error.use_stderr() && is_of_lock {
        // A standard error that is closed hears nothing.
        let _ = error.print();
        std::process::exit(i32::from(lock::EXIT_FAILED));
    }
    error.exit()
}

fn run(config: Config, log: &Log) -> io::Result<()> {
    // Before the server: a signal that comes while it starts ends it as well.
    let mut signals = Signals::new([Signal::Int, Signal::Term, Signal::Hup])?;
    let facts = format!(
        "{} MB of memory, {} connections, {} threads",
        config.memory_bytes_max >> 20,
        config.connections_max,
        config.threads
    );
    let server = Server::start(config)?;
    if io::stderr().is_terminal() {
        log.say(greeting(server.addresses(), &facts));
    } else {
        let version = env!("CARGO_PKG_VERSION");
        tracing::info!(
            "latchd {version} listening on {}; {facts}",
            list(server.addresses())
        );
    }
    let end = smol::block_on(async {
        let signal = async {
            loop {
                match signals.next().await.transpose()? {
                    Some(Signal::Hup) => {
                        log.reopen();
                        tracing::info!("SIGHUP: the log is open anew");
                    }
                    end => return Ok(end),
                }
            }
        };
        let failure = async { Err(server.failed().await) };
        signal.or(failure).await
    });
    server.shutdown();
    if let Some(signal) = end? {
        tracing::info!("goodbye: {}, and every lock is free", reason(signal));
    }
    Ok(())
}

/// Why the server ends.
fn reason(signal: Signal) -> String {
    match signal {
        Signal::Int => "interrupted (SIGINT)".into(),
        Signal::Term => "told to end (SIGTERM)".into(),
        other => format!("ended by {other:?}"),
    }
}

/// What a person at a terminal sees.
fn greeting(addresses: &[Address], facts: &str) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let listening = list(addresses);
    let connect = addresses.first().map(|address| match address {
        Address::Tcp(address) => format!("nc -C {} {}", address.ip(), address.port()),
        Address::Unix(path) => format!("nc -C -U {}", path.display()),
    });
    let hint = connect.map_or_else(String::new, |connect| {
        format!("try `{connect}`, then line by line: set k 0 0 5 / hello / get k / lock k\n")
    });
    format!(
        "latchd {version}, a cache server with locks that die with their client\n\
         listening on {listening}\n{facts}\n{hint}Ctrl-C stops it\n"
    )
}

fn list(addresses: &[Address]) -> String {
    addresses
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(", ")
}

/// Raises the limit of descriptors as far as the connections need and the system allows.
fn raise_descriptor_limit(config: &Config) {
    let threads = config.threads.get() as u64;
    let needed = config.connections_max as u64 + 3 * threads + DESCRIPTORS_RESERVED;
    let limit = getrlimit(Resource::Nofile);
    let Some(soft) = limit.current.filter(|soft| *soft < needed) else {
        return;
    };
    let raised = limit.maximum.map_or(needed, |hard| needed.min(hard));
    let wanted = Rlimit {
        current: Some(raised),
        maximum: limit.maximum,
    };
    let got = if setrlimit(Resource::Nofile, wanted).is_ok() {
        raised
    } else {
        soft
    };
    if got < needed {
        tracing::warn!(
            "{} connections need {needed} descriptors, and the limit is {got}: raise it with \
             `ulimit -n`, or lower -c",
            config.connections_max
        );
    }
}

/// A failed assertion ends the process: a server that has lost a thread, or half a change, must not
/// go on answering. Its reason is the last line of the log, if that can be written.
fn stop_at_panic(log: Log) {
    std::panic::set_hook(Box::new(move |panic| {
        let thread = std::thread::current();
        let mut reason = format!("thread {} {panic}\n", thread.name().unwrap_or("?"));
        let backtrace = Backtrace::capture();
        if backtrace.status() == BacktraceStatus::Captured {
            reason.push_str(&backtrace.to_string());
        }
        log.say(reason);
        log.flush();
        std::process::exit(EXIT_SOFTWARE);
    }));
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write, pipe};
    use std::process::{Child, Command, Stdio};
    use std::time::{Duration, Instant};

    use super::*;

    /// Not a test: what the processes of the tests below do.
    #[test]
    #[ignore = "it ends the process"]
    fn panics_on_purpose() {
        stop_at_panic(Log::start(None).unwrap());
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
    fn a_thread_that_panics_ends_the_process_with_its_reason() {
        let mut child = panicking(Stdio::piped());
        let mut said = String::new();
        let mut log = child.stderr.take().unwrap();
        log.read_to_string(&mut said).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(EXIT_SOFTWARE));
        assert!(
            said.contains("thread latchd-7 panicked") && said.contains("on purpose"),
            "{said}"
        );
    }

    #[test]
    fn a_reason_that_nobody_reads_does_not_keep_the_process_from_ending() {
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
        assert_eq!(status.code(), Some(EXIT_SOFTWARE));
    }
}
