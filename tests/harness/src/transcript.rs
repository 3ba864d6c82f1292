//! Protocol behaviour as data: the bytes sent, their connection, and the expected replies.
//!
//! The same file runs against the core in memory, against a latchd server over a socket, and
//! against other servers. `tests/transcripts/README.md` describes the format for authors; [`parse`]
//! reads it, [`run`] plays it.
//!
//! - R1: every line of a transcript is played, or names the servers that it is for.
//! - R2: a tag has a reason. A tag without one is a mistake of the transcript.

pub mod binary;
pub mod number;
pub mod parse;
pub mod run;
pub mod written;

use std::fmt;
use std::time::Duration;

/// Which server's answers a transcript is compared with.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Dialect {
    /// Ours.
    Latchd,
    /// memcached from 1.6.40 on: the reference.
    Memcached1645,
    /// memcached before 1.6.40, as Debian ships it.
    Memcached1618,
    /// yrmcds 1.1, the reference for locks.
    Yrmcds,
}

impl Dialect {
    /// Whether a line with this tag is for this server; `None` if there is no such tag.
    #[must_use]
    pub fn matches(self, tag: &str) -> Option<bool> {
        Some(match tag {
            "latchd" => self == Self::Latchd,
            "memcached" => matches!(self, Self::Memcached1645 | Self::Memcached1618),
            "1.6.45" => self == Self::Memcached1645,
            "1.6.18" => self == Self::Memcached1618,
            "yrmcds" => self == Self::Yrmcds,
            _ => return None,
        })
    }

    /// The dialect with this name: a tag that names one server.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "latchd" => Self::Latchd,
            "memcached" | "1.6.45" => Self::Memcached1645,
            "1.6.18" => Self::Memcached1618,
            "yrmcds" => Self::Yrmcds,
            _ => return None,
        })
    }
}

/// The servers that a part is for.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Tags(Vec<String>);

impl Tags {
    /// Reads tags divided by commas or blanks.
    ///
    /// # Errors
    /// The first tag that does not exist.
    pub fn parse(text: &str) -> Result<Self, String> {
        let tags: Vec<String> = text
            .split([',', ' '])
            .filter(|tag| !tag.is_empty())
            .map(str::to_owned)
            .collect();
        match tags
            .iter()
            .find(|tag| Dialect::Latchd.matches(tag).is_none())
        {
            Some(unknown) => Err(format!("there is no tag {unknown}")),
            None if tags.is_empty() => Err("a tag has a name".to_owned()),
            None => Ok(Self(tags)),
        }
    }

    /// Whether there is no tag: then it is for latchd and memcached, which answer alike but where a
    /// tag says otherwise.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a line with these tags is for `dialect`; without tags it is for all.
    #[must_use]
    pub fn admit(&self, dialect: Dialect) -> bool {
        self.0.is_empty() || self.0.iter().any(|tag| dialect.matches(tag) == Some(true))
    }
}

/// A file of scenarios.
#[derive(Clone, Debug)]
pub struct Transcript {
    /// Where it was read.
    pub file: String,
    /// Its scenarios in order.
    pub scenarios: Vec<Scenario>,
}

/// Steps that begin with an empty server.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The behaviour that it shows.
    pub title: String,
    /// For which servers it is; empty for latchd and memcached.
    pub tags: Tags,
    /// The rows of docs/PROTOCOL.md that it checks, as `SECTION | FIRST CELL`.
    pub rows: Vec<String>,
    /// Line of its title.
    pub line: usize,
    /// Its steps.
    pub steps: Vec<ScenarioStep>,
}

impl Scenario {
    /// Whether the scenario is for `dialect`.
    #[must_use]
    pub fn admits(&self, dialect: Dialect) -> bool {
        if self.tags.is_empty() {
            dialect != Dialect::Yrmcds
        } else {
            self.tags.admit(dialect)
        }
    }
}

/// One line of a scenario.
#[derive(Clone, Debug)]
pub struct ScenarioStep {
    /// Its line in the file.
    pub line: usize,
    /// For which servers it is; empty for all that the scenario is for.
    pub tags: Tags,
    /// The action of the step.
    pub action: Action,
}

/// The action of a line of a scenario.
#[derive(Clone, Debug)]
pub enum Action {
    /// Bytes are sent.
    Send {
        /// On which connection; it is opened at its first use.
        conn: char,
        /// Which.
        pieces: Vec<Piece>,
    },
    /// A binary request is sent.
    SendBinary {
        /// On which connection.
        conn: char,
        /// Its fields.
        packet: binary::Packet,
    },
    /// An answer is expected, next on this connection.
    Expect {
        /// On which connection.
        conn: char,
        /// The expected answer.
        expected: Expected,
    },
    /// The client ends its connection.
    End {
        /// Which connection.
        conn: char,
        /// How.
        how: End,
    },
    /// Time passes.
    Wait(Duration),
}

/// The expected answer.
#[derive(Clone, Debug)]
pub enum Expected {
    /// These bytes.
    Bytes(Vec<Piece>),
    /// Any number of lines, up to the next expected one.
    Lines,
    /// Nothing at all.
    Nothing,
    /// The end: the server has closed.
    Closed,
    /// A binary response.
    Binary(binary::Packet),
}

/// How a client ends its connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum End {
    /// It closes.
    Close,
    /// It closes its half: it can still read the bytes on the way.
    HalfClose,
    /// It resets: a killed process or a pulled cable looks like this at best.
    Reset,
}

/// A part of a line.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Piece {
    /// These bytes.
    Literal(Vec<u8>),
    /// A number that the server chose.
    Number(Number),
    /// Anything but a blank or the end of the line; at least one byte.
    Word,
    /// Anything up to the end of the line.
    Rest,
}

/// A number in a line.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Number {
    /// The value of a variable and this more. If it has none yet, the received number becomes its
    /// value.
    Variable {
        /// Its name.
        name: String,
        /// The number that is added.
        plus: i64,
    },
    /// The value of a variable plus a number.
    Above {
        /// The variable.
        floor: String,
        /// The variable that gets the number, if any.
        name: Option<String>,
    },
    /// This number; or one more or less where a real clock may have gone on by a second.
    Seconds(u64),
}

/// Escapes bytes for a reader, as the transcript format does.
#[must_use]
pub fn escaped(bytes: &[u8]) -> String {
    use fmt::Write as _;

    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        match byte {
            b'\r' => text.push_str("\\r"),
            b'\n' => text.push_str("\\n"),
            b'\t' => text.push_str("\\t"),
            b'\\' => text.push_str("\\\\"),
            b' '..=b'~' => text.push(char::from(byte)),
            _ => write!(text, "\\x{byte:02x}").expect("writing to a String cannot fail"),
        }
    }
    text
}
