//! The time for which a primary may serve without etcd, by its own answer.
//!
//! - H1: Nothing changes at the primary: `stats cluster` only shows the time. `mn H` would promise it, and a primary that
//!   leaves serves until its promises are over.
//! - H2: All primaries together have [`LIMIT`], also for the look-ups of their hosts.
//!
//! No record has this time, because it counts by the clock of the primary.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// The time for all answers.
const LIMIT: Duration = Duration::from_secs(1);

/// The most bytes of an answer that are read.
const REPLY_BYTES_MAX: u64 = 4 << 10;

/// Asks the primaries at these addresses at the same time, each on a thread; a ring has at most 256. Returns the time
/// left of each in milliseconds: `None` without an address, or without an answer in plain text.
pub(super) fn ask(addresses: &[Option<&str>]) -> Vec<Option<u64>> {
    let until = Instant::now() + LIMIT;
    let (sender, replies) = mpsc::channel();
    for (place, address) in addresses.iter().enumerate() {
        let Some(address) = (*address).map(str::to_owned) else {
            continue;
        };
        let sender = sender.clone();
        let thread = thread::Builder::new().name("latchd-hold".into());
        // Without a thread, or after the limit, there is no answer.
        let _ = thread.spawn(move || sender.send((place, hold_ms(&address, until))));
    }
    drop(sender);
    let mut holds = vec![None; addresses.len()];
    while let Ok((place, hold)) = replies.recv_timeout(left(until)) {
        holds[place] = hold;
    }
    holds
}

fn left(until: Instant) -> Duration {
    until.saturating_duration_since(Instant::now())
}

fn hold_ms(address: &str, until: Instant) -> Option<u64> {
    let mut found = address.to_socket_addrs().ok()?;
    let mut stream =
        found.find_map(|address| TcpStream::connect_timeout(&address, left(until)).ok())?;
    stream.set_read_timeout(Some(left(until))).ok()?;
    stream.write_all(b"stats cluster\r\n").ok()?;
    let mut lines = BufReader::new(stream.take(REPLY_BYTES_MAX)).lines();
    lines.find_map(|line| match line {
        Ok(line) if line == "END" => Some(None),
        Ok(line) => line
            .strip_prefix("STAT cluster_hold_ms ")
            .map(|number| number.parse().ok()),
        Err(_) => Some(None),
    })?
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// A server that answers one request.
    fn server(answer: &'static str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.read_exact(&mut [0; 15]).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
            // Until the client has closed.
            let _ = stream.read(&mut [0]);
        });
        address
    }

    #[test]
    fn only_a_plain_answer_counts() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let silent = listener.local_addr().unwrap().to_string();
        let good = server("STAT role primary\r\nSTAT cluster_hold_ms 3100\r\nEND\r\n");
        let others = [
            server("STAT role primary\r\nEND\r\n"),
            server("CLIENT_ERROR unauthenticated\r\n"),
            server("STAT cluster_hold_ms much\r\n"),
            silent,
            "127.0.0.1:0".into(),
            "no-such-host.invalid:1".into(),
        ];
        let mut addresses = vec![None, Some(&*good)];
        addresses.extend(others.iter().map(|address| Some(&**address)));
        let mut expected = vec![None; 8];
        expected[1] = Some(3100);
        assert_eq!(ask(&addresses), expected);
    }
}
