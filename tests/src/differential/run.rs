//! Sends, compares, counts.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::io;
use std::time::{Duration, Instant};

use latchd_harness::peer::{Patience, Peer, Received};
use latchd_harness::transcript::{Dialect, End};

use super::allow::{self, Differing};
use super::cas::{CasBook, CasPair};
use super::reply::{Message, Part, Wire, shown};
use super::{PairedRequest, Side};

/// How many requests before an unexplained difference are shown with it.
const REPLAY_MAX: usize = 40;
/// How many recent requests are kept, to choose those from.
const HISTORY_MAX: usize = 4_000;
/// If both have answered faster, their times are at most a second apart, and as much more as the peer's clock is late.
const PROMPT: Duration = Duration::from_millis(250);
/// The comparison stops after so many unexplained differences.
const UNEXPLAINED_MAX: usize = 5;

/// A comparison under way.
pub struct Run<'a> {
    /// The peer.
    pub theirs: &'a mut dyn Peer,
    /// latchd.
    pub ours: &'a mut dyn Peer,
    /// Their protocol.
    pub wire: &'a dyn Wire,
    /// The kind of peer.
    pub dialect: Dialect,
    /// The versions that both have shown.
    pub book: CasBook,
    /// The result.
    pub comparison: Comparison,
    markers: u64,
    /// How many seconds the times that the two tell may be apart.
    apart_s: u64,
    /// Requests as latchd got them, with its answers.
    history: VecDeque<Told>,
}

/// The result of a comparison.
#[derive(Debug, Default)]
pub struct Comparison {
    /// Requests compared, markers not counted.
    pub commands: u64,
    /// Answers that were there to be compared.
    pub answers: u64,
    /// Differences by the entry of the list that explains them.
    pub explained: BTreeMap<&'static str, u64>,
    /// Differences that nothing explains, each with a replay.
    pub unexplained: Vec<String>,
}

impl Comparison {
    /// Whether to stop.
    #[must_use]
    pub fn is_hopeless(&self) -> bool {
        self.unexplained.len() >= UNEXPLAINED_MAX
    }

    /// Adds the figures of another comparison.
    pub fn add(&mut self, other: Self) {
        self.commands += other.commands;
        self.answers += other.answers;
        for (id, count) in other.explained {
            *self.explained.entry(id).or_default() += count;
        }
        self.unexplained.extend(other.unexplained);
    }
}

/// A request of the past.
struct Told {
    conn: char,
    key: Option<String>,
    request: Vec<u8>,
    answer: String,
}

/// The answers of one server to a batch: under the number of each marker, the messages before it.
type Units = BTreeMap<u64, Vec<Message>>;

impl<'a> Run<'a> {
    /// A comparison before the first request.
    pub fn new(
        theirs: &'a mut dyn Peer,
        ours: &'a mut dyn Peer,
        wire: &'a dyn Wire,
        dialect: Dialect,
    ) -> Self {
        let book = match dialect {
            Dialect::Latchd | Dialect::Memcached1645 | Dialect::Memcached1618 => CasBook::default(),
            Dialect::Yrmcds => CasBook::repeating(),
        };
        let apart_s = 1 + theirs.late_s();
        Self {
            theirs,
            ours,
            wire,
            dialect,
            book,
            comparison: Comparison::default(),
            markers: 0,
            apart_s,
            history: VecDeque::new(),
        }
    }

    /// Sends a batch to both, on their connections of this number, and compares. It is cut before a
    /// request that is to be sent [alone](PairedRequest::alone).
    ///
    /// # Errors
    /// A connection cannot be opened.
    pub fn exchange(&mut self, conn: char, batch: Vec<PairedRequest>) -> io::Result<()> {
        let mut part = Vec::new();
        for request in batch {
            if request.alone && !part.is_empty() {
                self.exchange_part(conn, std::mem::take(&mut part))?;
            }
            part.push(request);
        }
        self.exchange_part(conn, part)
    }

    fn exchange_part(&mut self, conn: char, batch: Vec<PairedRequest>) -> io::Result<()> {
        let first = self.markers + 1;
        // Two more at the end: a request that a server reads too far swallows at most one.
        let last = self.markers + batch.len() as u64 + 2;
        self.markers = last;
        let asked = Instant::now();
        let theirs = self.ask(Side::Theirs, conn, &batch, first, last)?;
        let ours = self.ask(Side::Ours, conn, &batch, first, last)?;
        // On a busy machine, the second is asked that much later; then, and when it is asked about
        // that again.
        if asked.elapsed() > PROMPT {
            let late_s = 1 + self.theirs.late_s() + asked.elapsed().as_secs();
            self.apart_s = self.apart_s.max(1 + late_s);
        }
        for (number, request) in (first..).zip(batch) {
            self.comparison.commands += 1;
            self.compare(&request, theirs.get(&number), ours.get(&number));
            self.history.push_back(Told {
                conn,
                request: request.bytes(Side::Ours).to_vec(),
                answer: ours
                    .get(&number)
                    .map(|answer| shown(answer))
                    .unwrap_or_default(),
                key: request.key,
            });
            if self.history.len() > HISTORY_MAX {
                self.history.pop_front();
            }
        }
        for number in [last - 1, last] {
            if !theirs.contains_key(&number) || !ours.contains_key(&number) {
                self.comparison.unexplained.push(format!(
                    "the batch on connection {conn} has no end: {} answers of the peer, {} of latchd",
                    theirs.len(),
                    ours.len()
                ));
                break;
            }
        }
        Ok(())
    }

    /// Sends bytes that end a connection to both, on connections of their own, and compares all
    /// that comes back.
    ///
    /// # Errors
    /// A connection cannot be opened.
    pub fn exchange_last(&mut self, request: &PairedRequest) -> io::Result<()> {
        const CONN: char = 'Z';
        let mut answers = Vec::new();
        for side in [Side::Theirs, Side::Ours] {
            let peer = self.peer(side);
            peer.send(CONN, request.bytes(side))?;
            let mut bytes = Vec::new();
            while peer.receive(CONN, &mut bytes, Patience::Due)? == Received::Bytes {}
            peer.end(CONN, End::Close)?;
            answers.push(self.messages(&bytes));
        }
        self.comparison.commands += 1;
        self.compare(request, answers.first(), answers.get(1));
        Ok(())
    }

    fn peer(&mut self, side: Side) -> &mut dyn Peer {
        match side {
            Side::Theirs => self.theirs,
            Side::Ours => self.ours,
        }
    }

    fn ask(
        &mut self,
        side: Side,
        conn: char,
        batch: &[PairedRequest],
        first: u64,
        last: u64,
    ) -> io::Result<Units> {
        let wire = self.wire;
        let mut bytes = Vec::new();
        for (number, request) in (first..).zip(batch) {
            bytes.extend_from_slice(request.bytes(side));
            bytes.extend_from_slice(&wire.marker(number));
        }
        bytes.extend_from_slice(&wire.marker(last - 1));
        bytes.extend_from_slice(&wire.marker(last));
        let peer = self.peer(side);
        peer.send(conn, &bytes)?;

        let mut units = Units::new();
        let mut unit = Vec::new();
        let mut seen = first - 1;
        let mut received = Vec::new();
        loop {
            let more = peer.receive(conn, &mut received, Patience::Due)? == Received::Bytes;
            let mut rest = received.as_slice();
            while let Some((message, length)) = wire.parse(rest) {
                rest = rest.get(length..).unwrap_or_default();
                if let Some(number) = wire.marked(&message, seen + 1) {
                    seen = number;
                    units.insert(number, std::mem::take(&mut unit));
                } else {
                    unit.push(message);
                }
            }
            received = rest.to_vec();
            if seen == last {
                return Ok(units);
            }
            if !more {
                // It has closed, or waits for more: its last message belongs to its last request.
                units.insert(seen + 1, unit);
                return Ok(units);
            }
        }
    }

    fn messages(&self, bytes: &[u8]) -> Vec<Message> {
        let mut messages = Vec::new();
        let mut rest = bytes;
        while let Some((message, length)) = self.wire.parse(rest) {
            messages.push(message);
            rest = rest.get(length..).unwrap_or_default();
        }
        messages
    }

    fn compare(
        &mut self,
        request: &PairedRequest,
        theirs: Option<&Vec<Message>>,
        ours: Option<&Vec<Message>>,
    ) {
        let empty = Vec::new();
        let (theirs, ours) = (theirs.unwrap_or(&empty), ours.unwrap_or(&empty));
        self.comparison.answers += ours.len() as u64;
        let mut notes = Vec::new();
        if same(theirs, ours, self.apart_s, &mut notes) {
            for note in notes {
                *self.comparison.explained.entry(note).or_default() += 1;
            }
            if let Some(why) = self.learn(request, theirs, ours) {
                self.unexplained(request, theirs, ours, &why);
            }
            return;
        }
        let differing = Differing {
            request: request.bytes(Side::Ours),
            theirs,
            ours,
            dialect: self.dialect,
            apart_s: self.apart_s,
            allows: request.allows,
        };
        match allow::LIST
            .iter()
            .find(|entry| (entry.explains)(&differing))
        {
            Some(entry) => *self.comparison.explained.entry(entry.id).or_default() += 1,
            None => self.unexplained(request, theirs, ours, "the answers differ"),
        }
    }

    /// Notes the versions that both show, or says why they do not match.
    fn learn(
        &mut self,
        request: &PairedRequest,
        theirs: &[Message],
        ours: &[Message],
    ) -> Option<String> {
        let key = request.key.as_deref()?;
        for pair in theirs.iter().flatten().zip(ours.iter().flatten()) {
            if let (Part::Cas(theirs), Part::Cas(ours)) = pair
                && *theirs != 0
            {
                let pair = CasPair {
                    theirs: *theirs,
                    ours: *ours,
                };
                if let Err(why) = self.book.learn(key, pair, request.made_up_cas) {
                    return Some(why);
                }
            }
        }
        None
    }

    fn unexplained(
        &mut self,
        request: &PairedRequest,
        theirs: &[Message],
        ours: &[Message],
        why: &str,
    ) {
        let mut text = format!("{why}\n");
        let name = request.key.as_deref().unwrap_or_default();
        // Requests that have shown a version of the key, those that named it among others, and
        // those that touch every key.
        let about = |told: &&Told| {
            let words = || told.request.split(|byte| b" \r\n".contains(byte));
            told.key.as_deref() == Some(name)
                || words().any(|word| word == name.as_bytes() || word == b"flush_all")
        };
        let replay: Vec<&Told> = self
            .history
            .iter()
            .rev()
            .filter(about)
            .take(REPLAY_MAX)
            .collect();
        for told in replay.into_iter().rev() {
            let Told {
                conn,
                request,
                answer,
                ..
            } = told;
            let _ = writeln!(text, "  {conn}> {}   -> {answer}", printable(request));
        }
        let _ = writeln!(text, "  => {}", printable(request.bytes(Side::Ours)));
        let _ = writeln!(text, "  peer:   {}", shown(theirs));
        let _ = write!(text, "  latchd: {}", shown(ours));
        self.comparison.unexplained.push(text);
    }
}

fn printable(bytes: &[u8]) -> String {
    bytes[..bytes.len().min(300)].escape_ascii().to_string()
}

/// D1. An answer that is equal only within a tolerance is noted.
fn same(theirs: &[Message], ours: &[Message], apart_s: u64, notes: &mut Vec<&'static str>) -> bool {
    theirs.len() == ours.len()
        && theirs.iter().zip(ours).all(|(theirs, ours)| {
            theirs.len() == ours.len()
                && theirs.iter().zip(ours).all(|pair| match pair {
                    (Part::Same(theirs), Part::Same(ours)) => theirs == ours,
                    (Part::Cas(theirs), Part::Cas(ours)) => (*theirs == 0) == (*ours == 0),
                    (Part::Ttl(theirs), Part::Ttl(ours)) if *theirs > i64::from(i32::MAX) => {
                        notes.push(allow::PAST_TTL);
                        *ours == 0
                    }
                    (Part::Ttl(theirs), Part::Ttl(ours)) => is_same_ttl(*theirs, *ours, apart_s),
                    (Part::Age(theirs), Part::Age(ours)) => {
                        if theirs.abs_diff(*ours) > apart_s {
                            notes.push(allow::ACCESS_TIME);
                        }
                        // latchd notes every access, so the times that it shows are never older.
                        *ours <= theirs.saturating_add_unsigned(apart_s)
                    }
                    (Part::Size(_), Part::Size(_)) => {
                        notes.push(allow::ITEM_SIZE);
                        true
                    }
                    _ => false,
                })
        })
}

/// Whether two TTLs, of which -1 is none, are the same except for the moments of the answers.
pub(super) fn is_same_ttl(theirs: i64, ours: i64, apart_s: u64) -> bool {
    let never = theirs == -1 || ours == -1;
    theirs == ours || !never && theirs.abs_diff(ours) <= apart_s
}
