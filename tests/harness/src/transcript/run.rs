//! Plays a scenario against a server and says where it first differs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};
use std::io;

use super::binary::{Packet, Response, literal_number};
use super::number::Variables;
use super::{Action, Dialect, End, Expected, Piece, Scenario, ScenarioStep, Transcript, escaped};
use crate::peer::{Patience, Peer, Received};

/// The most bytes of a long line that are shown.
const SHOWN_BYTES_MAX: usize = 300;

/// Where a server's answer first differs from the transcript.
#[derive(Debug)]
pub struct Failure {
    /// The transcript.
    pub file: String,
    /// The line that differs from the server's.
    pub line: usize,
    /// The title of the scenario.
    pub title: String,
    /// The expected line.
    pub expected: String,
    /// The server's reply.
    pub got: String,
    /// The bytes sent and received until then.
    pub so_far: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            file,
            line,
            title,
            expected,
            got,
            so_far,
        } = self;
        write!(
            formatter,
            "{file}:{line}: {title}\n  expected: {expected}\n  got:      {got}\n  so far:\n{so_far}"
        )
    }
}

/// The outcome of playing a transcript.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Scenarios that went as written.
    pub passed: usize,
    /// Scenarios that are for other servers.
    pub skipped: usize,
    /// Those that did not go as written.
    pub failures: Vec<Failure>,
}

/// Plays every scenario that is for `dialect`, each against a server that `empty_server` gives.
///
/// # Errors
/// A server cannot be started.
pub fn run<P: Peer>(
    transcript: &Transcript,
    dialect: Dialect,
    mut empty_server: impl FnMut() -> io::Result<P>,
) -> io::Result<Outcome> {
    let mut outcome = Outcome::default();
    for scenario in &transcript.scenarios {
        if !scenario.admits(dialect) {
            outcome.skipped += 1;
            continue;
        }
        match play(&transcript.file, scenario, dialect, &mut empty_server()?) {
            Ok(()) => outcome.passed += 1,
            Err(failure) => outcome.failures.push(*failure),
        }
    }
    Ok(outcome)
}

/// Plays one scenario, and checks in the end that no connection has more to say.
///
/// # Errors
/// Where the server first differs.
pub fn play(
    file: &str,
    scenario: &Scenario,
    dialect: Dialect,
    peer: &mut dyn Peer,
) -> Result<(), Box<Failure>> {
    let mut player = Player {
        peer,
        received: BTreeMap::new(),
        ended: BTreeSet::new(),
        variables: Variables::default(),
        any_lines: BTreeSet::new(),
        log: String::new(),
    };
    let fail = |player: &Player<'_>, line: usize, difference: Difference| {
        Box::new(Failure {
            file: file.to_owned(),
            line,
            title: scenario.title.clone(),
            expected: difference.expected,
            got: difference.got,
            so_far: player.log.clone(),
        })
    };
    for step in scenario
        .steps
        .iter()
        .filter(|step| step.tags.admit(dialect))
    {
        player
            .step(step)
            .map_err(|difference| fail(&player, step.line, difference))?;
    }
    let last = scenario
        .steps
        .last()
        .map_or(scenario.line, |step| step.line);
    player
        .finish()
        .map_err(|difference| fail(&player, last, difference))
}

/// The expected and the actual reply.
struct Difference {
    expected: String,
    got: String,
}

impl From<io::Error> for Difference {
    fn from(error: io::Error) -> Self {
        Self {
            expected: "a connection".to_owned(),
            got: error.to_string(),
        }
    }
}

impl From<String> for Difference {
    fn from(mistake: String) -> Self {
        Self {
            expected: "a line that can be played".to_owned(),
            got: mistake,
        }
    }
}

struct Player<'a> {
    peer: &'a mut dyn Peer,
    /// Bytes received on each connection and not yet compared.
    received: BTreeMap<char, Vec<u8>>,
    /// Connections with nothing more to expect.
    ended: BTreeSet<char>,
    variables: Variables,
    /// Connections on which any number of lines may come before the next expected one.
    any_lines: BTreeSet<char>,
    log: String,
}

impl Player<'_> {
    fn step(&mut self, step: &ScenarioStep) -> Result<(), Difference> {
        match &step.action {
            Action::Send { conn, pieces } => {
                let bytes = self.bytes(pieces)?;
                self.note(*conn, '>', &escaped(&bytes));
                self.received.entry(*conn).or_default();
                self.peer.send(*conn, &bytes)?;
            }
            Action::SendBinary { conn, packet } => {
                let bytes = packet.request(&|number| self.variables.value_of(number))?;
                self.note(*conn, '>', &escaped(&bytes));
                self.received.entry(*conn).or_default();
                self.peer.send(*conn, &bytes)?;
            }
            Action::Expect { conn, expected } => self.expect(*conn, expected)?,
            Action::End { conn, how } => {
                self.note(*conn, '>', &format!("({how:?})"));
                self.peer.end(*conn, *how)?;
                if *how != End::HalfClose {
                    self.ended.insert(*conn);
                }
            }
            Action::Wait(span) => {
                self.note(' ', ' ', &format!("({span:?} pass)"));
                self.peer.wait(*span);
            }
        }
        Ok(())
    }

    fn expect(&mut self, conn: char, expected: &Expected) -> Result<(), Difference> {
        match expected {
            Expected::Lines => {
                self.any_lines.insert(conn);
                Ok(())
            }
            Expected::Nothing => self.expect_no_bytes(conn, Received::Nothing),
            Expected::Closed => {
                self.ended.insert(conn);
                self.expect_no_bytes(conn, Received::Closed)
            }
            Expected::Binary(packet) => self.expect_packet(conn, packet),
            Expected::Bytes(pieces) => {
                let any_lines = self.any_lines.remove(&conn);
                loop {
                    let Err(difference) = self.expect_bytes(conn, pieces) else {
                        return Ok(());
                    };
                    if !any_lines || !self.skip_line(conn)? {
                        return Err(difference);
                    }
                }
            }
        }
    }

    fn expect_no_bytes(&mut self, conn: char, expected: Received) -> Result<(), Difference> {
        let patience = match expected {
            Received::Closed => Patience::Due,
            Received::Nothing | Received::Bytes => Patience::NotDue,
        };
        let mut buffer = self.received.remove(&conn).unwrap_or_default();
        let mut got = Received::Bytes;
        if buffer.is_empty() {
            got = self.peer.receive(conn, &mut buffer, patience)?;
        }
        self.received.insert(conn, buffer);
        if got == expected {
            self.note(conn, '<', &format!("({expected:?})"));
            return Ok(());
        }
        Err(Difference {
            expected: format!("{expected:?}"),
            got: match got {
                Received::Bytes => self.rest_of_line(conn)?,
                Received::Closed | Received::Nothing => format!("{got:?}"),
            },
        })
    }

    fn expect_packet(&mut self, conn: char, packet: &Packet) -> Result<(), Difference> {
        let any_packets = self.any_lines.remove(&conn);
        loop {
            let (response, length) = self.next_packet(conn)?;
            let described = response.describe();
            let exact_time = self.peer.owns_time();
            let variables = &mut self.variables;
            let compared = packet.compare(&response, &mut |pieces, got| match pieces {
                [Piece::Literal(text)] if literal_number(text)? == got => Ok(()),
                [Piece::Word] => Ok(()),
                [Piece::Number(number)] => variables.compare(exact_time, number, got),
                _ => Err(format!("got {got}")),
            });
            self.received.entry(conn).or_default().drain(..length);
            self.note(conn, '<', &described);
            match compared {
                Ok(()) => return Ok(()),
                Err(_) if any_packets => {}
                Err(expected) => {
                    return Err(Difference {
                        expected,
                        got: described,
                    });
                }
            }
        }
    }

    fn next_packet(&mut self, conn: char) -> Result<(Response, usize), Difference> {
        loop {
            let bytes = self.received.entry(conn).or_default();
            if let Some(found) = Response::decode(bytes) {
                return Ok(found);
            }
            if !self.fill(conn)? {
                let got = escaped(self.received.get(&conn).map_or(&[][..], Vec::as_slice));
                return Err(Difference {
                    expected: "a packet".to_owned(),
                    got,
                });
            }
        }
    }

    /// Compares the received bytes with `pieces`. Takes them, and binds variables, only if they are
    /// the same.
    fn expect_bytes(&mut self, conn: char, pieces: &[Piece]) -> Result<(), Difference> {
        let mut at = 0;
        let mut variables = self.variables.clone();
        let mut why = None;
        for piece in pieces {
            let matched = match piece {
                Piece::Literal(literal) => {
                    let same = self.literal_length(conn, at, literal)?;
                    (same == literal.len()).then_some(same)
                }
                Piece::Number(number) => {
                    let length = self.run_length(conn, at, |byte| byte.is_ascii_digit())?;
                    let digits = self.received[&conn]
                        .get(at..at + length)
                        .unwrap_or_default();
                    let exact = self.peer.owns_time();
                    match variables.compare_digits(exact, number, digits) {
                        Ok(()) => Some(length),
                        Err(reason) => {
                            why = Some(reason);
                            None
                        }
                    }
                }
                Piece::Word => {
                    let not_blank = |byte: u8| !matches!(byte, b' ' | b'\r' | b'\n');
                    Some(self.run_length(conn, at, not_blank)?).filter(|length| *length > 0)
                }
                Piece::Rest => Some(self.run_length(conn, at, |byte| byte != b'\r')?),
            };
            let Some(length) = matched else {
                let mut got = self.rest_of_line(conn)?;
                if let Some(why) = why {
                    got = format!("{got} ({why})");
                }
                return Err(Difference {
                    expected: shortened(&self.variables.describe(pieces)),
                    got,
                });
            };
            at += length;
        }
        self.variables = variables;
        let taken: Vec<u8> = self.received.entry(conn).or_default().drain(..at).collect();
        self.note(conn, '<', &escaped(&taken));
        Ok(())
    }

    /// How many of `literal`'s bytes stand at `at`.
    fn literal_length(&mut self, conn: char, at: usize, literal: &[u8]) -> io::Result<usize> {
        loop {
            let bytes = self.received.entry(conn).or_default();
            let here = bytes.get(at..).unwrap_or_default();
            let same = here.iter().zip(literal).take_while(|(a, b)| a == b).count();
            if same == literal.len() || same < here.len() || !self.fill(conn)? {
                return Ok(same);
            }
        }
    }

    /// How many bytes from `at` on are of a kind.
    fn run_length(&mut self, conn: char, at: usize, of: impl Fn(u8) -> bool) -> io::Result<usize> {
        loop {
            let bytes = self.received.entry(conn).or_default();
            let here = bytes.get(at..).unwrap_or_default();
            if let Some(end) = here.iter().position(|byte| !of(*byte)) {
                return Ok(end);
            }
            let length = here.len();
            if !self.fill(conn)? {
                return Ok(length);
            }
        }
    }

    fn skip_line(&mut self, conn: char) -> io::Result<bool> {
        let length = self.run_length(conn, 0, |byte| byte != b'\n')?;
        let bytes = self.received.entry(conn).or_default();
        if bytes.len() <= length {
            return Ok(false);
        }
        bytes.drain(..=length);
        Ok(true)
    }

    /// The received bytes, for the report.
    fn rest_of_line(&mut self, conn: char) -> io::Result<String> {
        let length = self.run_length(conn, 0, |byte| byte != b'\n')?;
        let bytes = self.received.entry(conn).or_default();
        let line = bytes.get(..=length).unwrap_or(bytes);
        if line.is_empty() {
            return Ok("nothing".to_owned());
        }
        Ok(shortened(&escaped(line)))
    }

    fn fill(&mut self, conn: char) -> io::Result<bool> {
        let bytes = self.received.entry(conn).or_default();
        Ok(self.peer.receive(conn, bytes, Patience::Due)? == Received::Bytes)
    }

    /// Closes our half of every connection and checks that the server has no more to say.
    fn finish(&mut self) -> Result<(), Difference> {
        let open: Vec<char> = self
            .received
            .keys()
            .copied()
            .filter(|conn| !self.ended.contains(conn))
            .collect();
        for conn in open {
            self.peer.end(conn, End::HalfClose)?;
            self.note(conn, '>', "(end of the scenario)");
            self.expect_no_bytes(conn, Received::Closed)?;
        }
        Ok(())
    }

    fn bytes(&self, pieces: &[Piece]) -> Result<Vec<u8>, String> {
        let mut bytes = Vec::new();
        for piece in pieces {
            match piece {
                Piece::Literal(literal) => bytes.extend_from_slice(literal),
                Piece::Number(number) => {
                    let value = self.variables.value_of(number)?;
                    bytes.extend_from_slice(value.to_string().as_bytes());
                }
                Piece::Word | Piece::Rest => return Err("a request has no wildcards".to_owned()),
            }
        }
        Ok(bytes)
    }

    fn note(&mut self, conn: char, direction: char, text: &str) {
        writeln!(self.log, "    {conn}{direction} {}", shortened(text))
            .expect("writing to a String cannot fail");
    }
}

fn shortened(text: &str) -> String {
    match text.get(..SHOWN_BYTES_MAX) {
        Some(start) if text.len() > SHOWN_BYTES_MAX => {
            format!("{start}… ({} bytes)", text.len())
        }
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests;
