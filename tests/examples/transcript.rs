//! Plays transcripts against a server that is already there.
//!
//! `transcript HOST:PORT [--dialect latchd|1.6.45|1.6.18|yrmcds] FILE…`
//!
//! Every scenario begins with an empty server, so **everything the server holds is flushed**.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::process::ExitCode;
use std::time::Duration;

use latchd_harness::socket::SocketPeer;
use latchd_harness::transcript::{Dialect, parse, run};

const USAGE: &str = "usage: transcript HOST:PORT [--dialect latchd|1.6.45|1.6.18|yrmcds] FILE…";

fn main() -> ExitCode {
    match play(std::env::args().skip(1)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("transcript: {error}");
            ExitCode::from(2)
        }
    }
}

fn play(mut arguments: impl Iterator<Item = String>) -> io::Result<bool> {
    let wrong = |what: String| io::Error::new(io::ErrorKind::InvalidInput, what);
    let mut dialect = Dialect::Latchd;
    let mut words = Vec::new();
    while let Some(argument) = arguments.next() {
        if argument == "--dialect" {
            dialect = arguments
                .next()
                .and_then(|name| Dialect::named(&name))
                .ok_or_else(|| wrong(USAGE.to_owned()))?;
        } else {
            words.push(argument);
        }
    }
    let [address, files @ ..] = words.as_slice() else {
        return Err(wrong(USAGE.to_owned()));
    };
    let address = address
        .to_socket_addrs()?
        .next()
        .ok_or_else(|| wrong(format!("{address} is not an address")))?;

    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for file in files {
        let text = std::fs::read_to_string(file)?;
        let transcript = parse::parse(file, &text).map_err(|error| wrong(error.to_string()))?;
        let outcome = run::run(&transcript, dialect, || {
            flush(address)?;
            Ok(SocketPeer::new(address, ()))
        })?;
        for failure in &outcome.failures {
            println!("{failure}");
        }
        passed += outcome.passed;
        failed += outcome.failures.len();
        skipped += outcome.skipped;
    }
    println!("{passed} passed, {failed} failed, {skipped} for other servers");
    Ok(failed == 0)
}

fn flush(address: SocketAddr) -> io::Result<()> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.write_all(b"flush_all\r\n")?;
    let mut answer = [0; 4];
    stream.read_exact(&mut answer)?;
    if &answer == b"OK\r\n" {
        Ok(())
    } else {
        Err(io::Error::other(format!(
            "flush_all: {}",
            String::from_utf8_lossy(&answer)
        )))
    }
}
