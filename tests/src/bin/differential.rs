//! Sends the same random requests to latchd and to a live server, and compares every answer.
//!
//! Exit status: 0 if every difference is explained, 1 if one is not, 2 if there was no comparison.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use latchd_harness::memory::MemoryPeer;
use latchd_harness::peer::Peer;
use latchd_harness::socket::{SocketPeer, memcached_dialect, memcached_version, on_path};
use latchd_harness::transcript::Dialect;
use latchd_tests::differential::session::{PATIENCE, Protocol, play, report, start};

const USAGE: &str = "\
usage: differential [--peer memcached|yrmcds] [--peer-path PROGRAM] [--latchd HOST:PORT]
                    [--protocol text|binary] [--commands N] [--seed N]

The peer is started on a free port and stopped in the end. latchd runs in this process unless an
address is given. To yrmcds go lock commands, to memcached all others.";

struct Options {
    peer: &'static str,
    peer_path: Option<PathBuf>,
    latchd: Option<SocketAddr>,
    protocol: Protocol,
    commands: u64,
    seed: u64,
}

fn main() -> ExitCode {
    let outcome = options(std::env::args().skip(1)).and_then(|options| {
        compare(&options).map_err(|error| format!("the comparison broke off: {error}"))
    });
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::from(2)
        }
    }
}

fn options(mut words: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options {
        peer: "memcached",
        peer_path: None,
        latchd: None,
        protocol: Protocol::Text,
        commands: 200_000,
        seed: 1,
    };
    while let Some(word) = words.next() {
        if word == "--help" || word == "-h" {
            return Err(USAGE.into());
        }
        let value = words
            .next()
            .ok_or_else(|| format!("{word} wants a value\n{USAGE}"))?;
        let bad = || format!("{word} {value}: not understood\n{USAGE}");
        match word.as_str() {
            "--peer" => {
                options.peer = ["memcached", "yrmcds"]
                    .into_iter()
                    .find(|peer| *peer == value)
                    .ok_or_else(bad)?;
            }
            "--peer-path" => options.peer_path = Some(value.into()),
            "--latchd" => options.latchd = Some(value.parse().map_err(|_| bad())?),
            "--protocol" => {
                options.protocol = match value.as_str() {
                    "text" => Protocol::Text,
                    "binary" => Protocol::Binary,
                    _ => return Err(bad()),
                };
            }
            "--commands" => options.commands = value.parse().map_err(|_| bad())?,
            "--seed" => options.seed = value.parse().map_err(|_| bad())?,
            _ => return Err(bad()),
        }
    }
    Ok(options)
}

/// Whether every difference is explained.
fn compare(options: &Options) -> io::Result<bool> {
    let is_yrmcds = options.peer == "yrmcds";
    let name = if is_yrmcds { "yrmcdsd" } else { "memcached" };
    let program = options
        .peer_path
        .clone()
        .or_else(|| on_path(name))
        .ok_or_else(|| {
            io::Error::other(format!(
                "{name} is not installed; --peer-path says where it is"
            ))
        })?;
    let (dialect, version) = if is_yrmcds {
        (Dialect::Yrmcds, "yrmcds".to_owned())
    } else {
        (memcached_dialect(&program)?, memcached_version(&program)?)
    };
    let mut ours: Box<dyn Peer> = match options.latchd {
        Some(address) => Box::new(SocketPeer::new(address, ()).with_due(PATIENCE)),
        None => Box::new(MemoryPeer::on_real_clock()),
    };
    let Options {
        protocol,
        commands,
        seed,
        ..
    } = *options;
    let comparison = play(
        &mut start(&program, dialect)?,
        ours.as_mut(),
        dialect,
        protocol,
        commands,
        seed,
    )?;
    println!(
        "latchd and {version}, {protocol:?}, seed {seed}: {}",
        report(&comparison)
    );
    Ok(comparison.unexplained.is_empty())
}
