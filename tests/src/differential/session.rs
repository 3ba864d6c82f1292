//! A whole comparison: starts nothing, sends everything, and returns the result.

use std::fmt::Write as _;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use latchd_harness::peer::{Patience, Peer, Received};
use latchd_harness::socket::{ServerProcess, SocketPeer};
use latchd_harness::transcript::{Dialect, End};

use super::binary::{self, BinaryStream};
use super::locks::{self, LockStream, Next};
use super::packet::BinaryWire;
use super::reply::{TextWire, Wire};
use super::run::{Comparison, Run};
use super::text::TextStream;
use super::{PairedRequest, allow, counters, probes};

/// How long an answer may take before it counts as none: far more than any server needs on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// The pause between two questions whether a lock is free.
const ASKED_EACH: Duration = Duration::from_millis(1);
/// About how many requests go out at once.
const BATCH: usize = 40;
/// Longer than the TTL of the script of expiry, by more than a second: yrmcds looks at its clock
/// once a second.
const EXPIRY: Duration = Duration::from_millis(2_600);

/// The protocol that both are spoken to in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Protocol {
    /// Classic and meta text.
    Text,
    /// Binary.
    Binary,
}

/// Starts a server to be compared with, which ends with the value.
///
/// # Errors
/// It cannot be started.
pub fn start(program: &Path, dialect: Dialect) -> io::Result<SocketPeer<ServerProcess>> {
    let server = match dialect {
        Dialect::Yrmcds => {
            // It releases the locks of a closed connection later: `await_releases` waits for that.
            let peer = ServerProcess::yrmcds(program)?.into_peer();
            return Ok(peer.with_due(PATIENCE).with_notice(Duration::ZERO));
        }
        Dialect::Latchd | Dialect::Memcached1645 | Dialect::Memcached1618 => {
            // Its background threads hold items for moments, so its answers would depend on timing.
            let quiet = ["-o", "no_lru_maintainer,no_lru_crawler"];
            ServerProcess::memcached_with(program, &quiet)?
        }
    };
    Ok(server.into_peer().with_due(PATIENCE))
}

/// Plays `commands` random requests of a seed to both.
///
/// # Errors
/// A server cannot be reached.
pub fn play(
    theirs: &mut dyn Peer,
    ours: &mut dyn Peer,
    dialect: Dialect,
    protocol: Protocol,
    commands: u64,
    seed: u64,
) -> io::Result<Comparison> {
    forget(ours)?;
    let text = TextWire { dialect };
    let wire: &dyn Wire = match protocol {
        Protocol::Text => &text,
        Protocol::Binary => &BinaryWire,
    };
    let mut run = Run::new(theirs, ours, wire, dialect);
    match (dialect, protocol) {
        (Dialect::Yrmcds, _) => play_locks(&mut run, protocol, commands, seed)?,
        (Dialect::Latchd | Dialect::Memcached1645 | Dialect::Memcached1618, Protocol::Text) => {
            let mut stream = TextStream::new(seed, dialect);
            while run.comparison.commands < commands && !run.comparison.is_hopeless() {
                let batch = stream.batch(&run.book, BATCH);
                run.exchange('A', batch)?;
            }
            compare_counters(&mut run, protocol)?;
            for line in probes::last_words() {
                run.exchange_last(&PairedRequest::new(line))?;
            }
        }
        (Dialect::Latchd | Dialect::Memcached1645 | Dialect::Memcached1618, Protocol::Binary) => {
            let mut stream = BinaryStream::new(seed);
            while run.comparison.commands < commands && !run.comparison.is_hopeless() {
                let batch = stream.batch(&run.book, BATCH);
                run.exchange('A', batch)?;
            }
            compare_counters(&mut run, protocol)?;
            for request in binary::last_words() {
                run.exchange_last(&request)?;
            }
        }
    }
    Ok(run.comparison)
}

/// D3.
fn compare_counters(run: &mut Run<'_>, protocol: Protocol) -> io::Result<()> {
    let theirs = counters::ask(run.theirs)?;
    let ours = counters::ask(run.ours)?;
    let differing = counters::differing(protocol, &theirs, &ours, &run.comparison.explained);
    run.comparison.unexplained.extend(differing);
    Ok(())
}

/// A latchd that was there before may hold locks and items, and counts, of an earlier comparison;
/// the peer is new.
fn forget(ours: &mut dyn Peer) -> io::Result<()> {
    const CONN: char = 'Z';
    ours.send(CONN, b"flush_all\r\nstats reset\r\n")?;
    let mut answer = Vec::new();
    while !answer.ends_with(b"RESET\r\n")
        && ours.receive(CONN, &mut answer, Patience::Due)? == Received::Bytes
    {}
    ours.end(CONN, End::Close)
}

fn play_locks(run: &mut Run<'_>, protocol: Protocol, commands: u64, seed: u64) -> io::Result<()> {
    let mut stream = LockStream::new(seed, protocol == Protocol::Binary);
    while run.comparison.commands < commands && !run.comparison.is_hopeless() {
        match stream.next(&run.book) {
            Next::Batch(conn, batch) => run.exchange(conn, batch)?,
            Next::Close(conn) => {
                run.theirs.end(conn, End::Close)?;
                run.ours.end(conn, End::Close)?;
                await_releases(run)?;
            }
        }
    }
    if protocol == Protocol::Text {
        let [before, after] = locks::expiry_script();
        for (conn, batch) in before {
            run.exchange(conn, batch)?;
        }
        run.theirs.wait(EXPIRY);
        await_expiry(run.theirs, locks::EXPIRING)?;
        for (conn, batch) in after {
            run.exchange(conn, batch)?;
        }
    }
    Ok(())
}

/// Waits until the peer holds no lock that latchd does not hold. yrmcds releases the locks of a closed connection some
/// time later. A lock that it keeps for longer than [`PATIENCE`] shows as a difference.
fn await_releases(run: &mut Run<'_>) -> io::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    for key in locks::keys() {
        let is_ours = is_held(run.ours, &key)?;
        while !is_ours && is_held(run.theirs, &key)? && Instant::now() < deadline {
            std::thread::sleep(ASKED_EACH);
        }
    }
    Ok(())
}

/// Waits until an item that is due to expire has expired. The peer's clock can be late on a busy machine. An item that
/// stays for longer than [`PATIENCE`] shows as a difference.
fn await_expiry(peer: &mut dyn Peer, key: &str) -> io::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    let request = format!("get {key}\r\n");
    while ask(peer, &request, b"END\r\n")? != b"END\r\n" && Instant::now() < deadline {
        std::thread::sleep(ASKED_EACH);
    }
    Ok(())
}

/// Whether a connection holds the lock of a key. A free lock stays free.
fn is_held(peer: &mut dyn Peer, key: &str) -> io::Result<bool> {
    let said = ask(peer, &format!("lock {key}\r\n"), b"\r\n")?;
    if said == b"OK\r\n" {
        ask(peer, &format!("unlock {key}\r\n"), b"\r\n")?;
    }
    Ok(said == b"LOCKED\r\n")
}

/// Sends a request of the classic protocol, on a connection of its own, and returns the reply, which ends with `end`.
fn ask(peer: &mut dyn Peer, request: &str, end: &[u8]) -> io::Result<Vec<u8>> {
    const CONN: char = 'Y';
    peer.send(CONN, request.as_bytes())?;
    let mut reply = Vec::new();
    while !reply.ends_with(end) {
        if peer.receive(CONN, &mut reply, Patience::Due)? != Received::Bytes {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(reply)
}

/// A report for a person: the compared requests, the explained differences and their reasons, and
/// the unexplained ones.
#[must_use]
pub fn report(comparison: &Comparison) -> String {
    let mut text = format!(
        "{} commands, {} answers compared\n",
        comparison.commands, comparison.answers
    );
    for (id, count) in &comparison.explained {
        let entry = allow::LIST.iter().map(|entry| (entry.id, entry.reason));
        let reason = entry.chain(allow::NOTES).find(|(name, _)| name == id);
        let reason = reason.map_or("", |(_, reason)| reason);
        let _ = writeln!(text, "{count:>8}  {id:<26} {reason}");
    }
    let _ = writeln!(text, "{:>8}  unexplained", comparison.unexplained.len());
    for difference in &comparison.unexplained {
        let _ = writeln!(text, "\n{difference}");
    }
    text
}
