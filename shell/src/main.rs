//! The program `latchd`: flags in, signals in, exit code out. The server is the library's.
//!
//! Exit codes: 0 after SIGINT or SIGTERM; 2 for a bad flag; 70 (`EX_SOFTWARE`) when an assertion
//! of ours fails; 71 (`EX_OSERR`, as memcached) when the system refuses what the server needs, at
//! its start or later.

mod args;
mod lock;

use std::io::{self, IsTerminal};
use std::process::ExitCode;

use async_signal::{Signal, Signals};
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use latchd::{Address, Config, Server};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use smol::future::FutureExt;
use smol::stream::StreamExt;

use crate::args::{Args, Task};

/// `EX_OSERR` of sysexits(3).
const EXIT_OS_ERROR: u8 = 71;

/// `EX_SOFTWARE` of sysexits(3).
const EXIT_SOFTWARE: i32 = 70;

/// Descriptors that are not connections: standard streams, epolls, bells, listeners, and some.
const DESCRIPTORS_RESERVED: u64 = 32;

fn main() -> ExitCode {
    let args = Args::parse();
    if let Some(Task::Lock(lock)) = &args.task {
        return lock::run(lock);
    }
    let (config, ignored) = args.into_config().unwrap_or_else(|problem| {
        Args::command()
            .error(ErrorKind::ValueValidation, problem)
            .exit()
    });
    tracing_subscriber::fmt()
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .with_target(false)
        .init();
    stop_at_panic();
    if !ignored.is_empty() {
        tracing::warn!(
            "these mean nothing to latchd and are ignored: {}",
            ignored.join(", ")
        );
    }
    raise_descriptor_limit(&config);
    match run(config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            eprintln!("latchd: {error}: stop what runs there, or choose another with -p, -l or -s");
            ExitCode::from(EXIT_OS_ERROR)
        }
        Err(error) => {
            eprintln!("latchd: {error}");
            ExitCode::from(EXIT_OS_ERROR)
        }
    }
}

fn run(config: Config) -> io::Result<()> {
    // Before the server: a signal that comes while it starts ends it as well.
    let mut signals = Signals::new([Signal::Int, Signal::Term])?;
    let facts = format!(
        "{} MB of memory, {} connections, {} threads",
        config.memory_bytes_max >> 20,
        config.connections_max,
        config.threads
    );
    let server = Server::start(config)?;
    if io::stderr().is_terminal() {
        greet(server.addresses(), &facts);
    } else {
        let version = env!("CARGO_PKG_VERSION");
        tracing::info!(
            "latchd {version} listening on {}; {facts}",
            list(server.addresses())
        );
    }
    let end = smol::block_on(async {
        let signal = async { signals.next().await.transpose() };
        let failure = async { Err(server.failed().await) };
        signal.or(failure).await
    });
    server.shutdown();
    if let Some(signal) = end? {
        tracing::info!("ended by {signal:?}");
    }
    Ok(())
}

/// What a person at a terminal sees.
fn greet(addresses: &[Address], facts: &str) {
    let version = env!("CARGO_PKG_VERSION");
    eprintln!("latchd {version}, a cache server with locks that die with their client");
    eprintln!("listening on {}", list(addresses));
    eprintln!("{facts}");
    let connect = addresses.first().map(|address| match address {
        Address::Tcp(address) => format!("nc {} {}", address.ip(), address.port()),
        Address::Unix(path) => format!("nc -U {}", path.display()),
    });
    if let Some(connect) = connect {
        eprintln!("try `{connect}`, then: set k 0 0 5, hello, get k, lock k");
    }
    eprintln!("Ctrl-C stops it");
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
/// go on answering.
fn stop_at_panic() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        print(panic);
        std::process::exit(EXIT_SOFTWARE);
    }));
}
