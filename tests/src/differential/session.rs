//! A whole comparison: starts nothing, sends everything, and says what came of it.

use std::fmt::Write as _;
use std::io;
use std::time::Duration;

use super::binary::{self, BinaryStream};
use super::link::Link;
use super::locks::{self, LockStream, Next};
use super::packet::BinaryWire;
use super::reply::{TextWire, Wire};
use super::run::{Comparison, Run};
use super::text::TextStream;
use super::{Dialect, PairedRequest, allow, probes};

/// About how many requests go out at once.
const BATCH: usize = 40;
/// How long yrmcds may take to notice that a client is gone.
const NOTICE: Duration = Duration::from_millis(60);
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

/// Plays `commands` random requests of a seed to both.
///
/// # Errors
/// A server cannot be reached.
pub fn play(
    theirs: &mut dyn Link,
    ours: &mut dyn Link,
    dialect: Dialect,
    protocol: Protocol,
    commands: u64,
    seed: u64,
) -> io::Result<Comparison> {
    flush(ours)?;
    let text = TextWire { dialect };
    let wire: &dyn Wire = match protocol {
        Protocol::Text => &text,
        Protocol::Binary => &BinaryWire,
    };
    let mut run = Run::new(theirs, ours, wire, dialect);
    match (dialect, protocol) {
        (Dialect::Yrmcds, _) => play_locks(&mut run, protocol, commands, seed)?,
        (Dialect::Memcached | Dialect::MemcachedBefore1640, Protocol::Text) => {
            let mut stream = TextStream::new(seed, dialect);
            while run.comparison.commands < commands && !run.comparison.is_hopeless() {
                let batch = stream.batch(&run.book, BATCH);
                run.exchange(0, batch)?;
            }
            for line in probes::last_words() {
                run.exchange_last(&PairedRequest::new(line))?;
            }
        }
        (Dialect::Memcached | Dialect::MemcachedBefore1640, Protocol::Binary) => {
            let mut stream = BinaryStream::new(seed);
            while run.comparison.commands < commands && !run.comparison.is_hopeless() {
                let batch = stream.batch(&run.book, BATCH);
                run.exchange(0, batch)?;
            }
            for request in binary::last_words() {
                run.exchange_last(&request)?;
            }
        }
    }
    Ok(run.comparison)
}

/// A latchd that was there before may hold what an earlier comparison left; the peer is new.
fn flush(ours: &mut dyn Link) -> io::Result<()> {
    const CONN: u32 = u32::MAX;
    ours.send(CONN, b"flush_all\r\n")?;
    let mut answer = Vec::new();
    ours.receive(CONN, &mut answer)?;
    ours.close(CONN);
    Ok(())
}

fn play_locks(run: &mut Run<'_>, protocol: Protocol, commands: u64, seed: u64) -> io::Result<()> {
    let mut stream = LockStream::new(seed, protocol == Protocol::Binary);
    while run.comparison.commands < commands && !run.comparison.is_hopeless() {
        match stream.next(&run.book) {
            Next::Batch(conn, batch) => run.exchange(conn, batch)?,
            Next::Close(conn) => {
                run.theirs.close(conn);
                run.ours.close(conn);
                std::thread::sleep(NOTICE);
            }
        }
    }
    if protocol == Protocol::Text {
        let [before, after] = locks::expiry_script();
        for (conn, request) in before {
            run.exchange(conn, vec![request])?;
        }
        std::thread::sleep(EXPIRY);
        for (conn, request) in after {
            run.exchange(conn, vec![request])?;
        }
    }
    Ok(())
}

/// A report for a person: what was compared, what was explained and why, and what was not.
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
