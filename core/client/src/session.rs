//! The client's side of one connection: requests become bytes, bytes become answers.
//!
//! - S1: Answers come in the order of the requests, and each request ends once.
//! - S2: At most [`PENDING_MAX`] requests are unanswered; one more is refused, and nothing of it is encoded.
//! - S3: A quiet meta request carries its number as opaque. An answer with a later number says that the ones
//!   before it were served in silence.
//!
//! Bytes may be cut anywhere: the driver keeps unconsumed bytes and offers them again with more behind them. An
//! answer that no server sends breaks the session for good, since answers can no longer be matched to requests.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use latchd_protocol::command::Command;
use latchd_protocol::key::Key;
use latchd_protocol::session::SessionRequest;
use latchd_protocol::wire::meta::reply::Code;
use latchd_protocol::wire::meta::session::SessionResponse;
use latchd_protocol::wire::meta::{Flag, Verb};
use latchd_protocol::wire::{Malformed, NOT_PRIMARY, classic, meta, u64_from};

/// The most requests that may be unanswered at a time.
pub const PENDING_MAX: usize = 4096;

/// The most flags of a request of this client, including the opaque of a quiet one.
const FLAGS_MAX: usize = 10;

/// The longest error message that is kept, in bytes.
const REFUSAL_BYTES_MAX: usize = 256;

/// A request of a client.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum AnyRequest<'a> {
    /// A meta command.
    Meta {
        /// The command.
        verb: Verb,
        /// The key of the item.
        key: Key<'a>,
        /// The options, and the fields to show.
        flags: Flags<'a>,
        /// The value for `ms`; empty otherwise.
        value: &'a [u8],
    },
    /// A command of the classic protocol that has an answer.
    Classic {
        /// The command.
        command: Command<'a>,
        /// The form of the command.
        envelope: classic::ClassicEnvelope,
    },
    /// `mn`: answered when everything before it is.
    Noop,
    /// `mn H`: the same, and shows for how long no other server can be primary.
    Hold,
    /// `config get cluster`: the servers of the cluster.
    Cluster,
    /// `mo`: opens, resumes or ends a session of the server.
    Session(SessionRequest<'a>),
}

impl<'a> AnyRequest<'a> {
    /// A meta request without a value.
    pub(super) const fn meta(verb: Verb, key: Key<'a>, flags: Flags<'a>) -> Self {
        Self::Meta {
            verb,
            key,
            flags,
            value: &[],
        }
    }

    /// A change of the classic protocol.
    #[cfg(test)]
    pub(super) fn change(command: impl Into<Command<'a>>) -> Self {
        Self::Classic {
            command: command.into(),
            envelope: classic::ClassicEnvelope::Change { noreply: false },
        }
    }
}

/// The flags of a meta request, at most ten.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Flags<'a> {
    flags: [Flag<'a>; FLAGS_MAX],
    len: usize,
}

impl<'a> Flags<'a> {
    /// These flags; `None` if there are more than nine (a quiet request takes one more for its
    /// opaque).
    #[must_use]
    pub fn new(flags: &[Flag<'a>]) -> Option<Self> {
        if flags.len() >= FLAGS_MAX {
            return None;
        }
        let mut list = [Flag::Quiet; FLAGS_MAX];
        for (slot, flag) in list.iter_mut().zip(flags) {
            *slot = *flag;
        }
        Some(Self {
            flags: list,
            len: flags.len(),
        })
    }

    /// These flags; the compiler has counted them.
    pub(super) fn of<const N: usize>(flags: [Flag<'a>; N]) -> Self {
        const { assert!(N < FLAGS_MAX) };
        let mut list = [Flag::Quiet; FLAGS_MAX];
        for (slot, flag) in list.iter_mut().zip(flags) {
            *slot = flag;
        }
        Self {
            flags: list,
            len: N,
        }
    }

    /// The flags in order.
    #[must_use]
    pub fn as_slice(&self) -> &[Flag<'a>] {
        self.flags.get(..self.len).unwrap_or_default()
    }

    /// These flags and one more at the end, for which there is a place.
    pub(super) fn with(mut self, flag: Flag<'a>) -> Self {
        if let Some(slot) = self.flags.get_mut(self.len) {
            *slot = flag;
            self.len += 1;
        }
        self
    }

    /// These flags and this one at the end, if there is one.
    pub(super) fn with_some(self, flag: Option<Flag<'a>>) -> Self {
        match flag {
            Some(flag) => self.with(flag),
            None => self,
        }
    }

    fn is_quiet(&self) -> bool {
        self.as_slice().contains(&Flag::Quiet)
    }
}

/// An answer of a server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum AnyResponse<'a> {
    /// To a meta command.
    Meta(meta::reply::MetaResponse<'a>),
    /// To a classic command, or an error line to any.
    Classic(classic::reply::ClassicResponse<'a>),
    /// To `mo`, if it is no error line.
    Session(SessionResponse<'a>),
    /// A quiet request was served without an answer.
    Silent,
}

impl AnyResponse<'_> {
    /// The message of an error line, made printable; `None` for any other answer.
    #[must_use]
    pub fn refusal(&self) -> Option<Box<str>> {
        use classic::reply::ClassicResponse;
        let (kind, words) = match self {
            Self::Classic(ClassicResponse::Error(b"")) => ("ERROR", &b""[..]),
            Self::Classic(ClassicResponse::Error(words)) => ("ERROR ", *words),
            Self::Classic(ClassicResponse::ClientError(words)) => ("CLIENT_ERROR ", *words),
            Self::Classic(ClassicResponse::ServerError(words)) => ("SERVER_ERROR ", *words),
            Self::Classic(_) | Self::Meta(_) | Self::Session(_) | Self::Silent => {
                return None;
            }
        };
        let words = words.get(..REFUSAL_BYTES_MAX).unwrap_or(words);
        let mut text = String::from(kind);
        text.extend(words.iter().map(|byte| match byte {
            b' '..=b'~' => char::from(*byte),
            _ => '?',
        }));
        Some(text.into())
    }

    /// Whether the server serves nothing at present: it is not primary.
    #[must_use]
    pub fn is_not_primary(&self) -> bool {
        let words = NOT_PRIMARY.strip_prefix("SERVER_ERROR ").map(str::as_bytes);
        matches!(self, Self::Classic(classic::reply::ClassicResponse::ServerError(said)) if Some(*said) == words)
    }

    /// Whether the server did not understand the request: `ERROR` alone, or `CLIENT_ERROR`. An `ERROR` with a
    /// message, or a `SERVER_ERROR`, is an answer.
    pub(super) const fn is_not_understood(&self) -> bool {
        use classic::reply::ClassicResponse;
        matches!(
            self,
            Self::Classic(ClassicResponse::Error(b"") | ClassicResponse::ClientError(_))
        )
    }

    const fn meta(&self) -> Option<&meta::reply::MetaResponse<'_>> {
        match self {
            Self::Meta(response) => Some(response),
            Self::Classic(_) | Self::Session(_) | Self::Silent => None,
        }
    }

    /// A classic answer, or an error line to any request.
    #[must_use]
    pub const fn classic(&self) -> Option<&classic::reply::ClassicResponse<'_>> {
        match self {
            Self::Classic(response) => Some(response),
            Self::Meta(_) | Self::Session(_) | Self::Silent => None,
        }
    }

    /// The code of a meta answer; `None` for any other answer.
    #[must_use]
    pub fn code(&self) -> Option<Code> {
        self.meta().map(|response| response.code)
    }

    /// The value of a meta answer; empty if it has none.
    #[must_use]
    pub fn value(&self) -> &[u8] {
        self.meta()
            .map(|response| response.value)
            .unwrap_or_default()
    }

    /// The text behind a flag of a meta answer.
    pub(super) fn flag(&self, letter: u8) -> Option<&[u8]> {
        self.meta()?.flag(letter)
    }

    /// The number behind a flag of a meta answer.
    #[must_use]
    pub fn number(&self, letter: u8) -> Option<u64> {
        u64_from(self.flag(letter)?)
    }

    /// Whether a meta answer has this flag.
    #[must_use]
    pub fn has(&self, letter: u8) -> bool {
        self.flag(letter).is_some()
    }
}

/// An answer and its request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Received<'a> {
    /// The request.
    pub(super) ticket: u64,
    /// The answer.
    pub answer: AnyResponse<'a>,
    /// Whether the request is answered in full. A `get` has a value and then its end.
    pub last: bool,
    /// Bytes of input that are consumed.
    pub consumed: usize,
}

/// Why a request was not encoded.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum SendError {
    /// [`PENDING_MAX`] requests are unanswered.
    TooMany,
    /// No bytes express this request: a key with blanks in a classic command, or a `noreply`, which has no
    /// answer to match.
    Inexpressible,
}

impl fmt::Display for SendError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::TooMany => "too many requests are unanswered",
            Self::Inexpressible => "no request says this",
        })
    }
}

impl core::error::Error for SendError {}

/// The form of the answer to a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Shape {
    Meta { quiet: bool },
    Noop,
    Hold,
    Line,
    Values,
    Session,
}

/// The client's side of one connection.
#[derive(Clone, Debug, Default)]
pub struct Session {
    pending: VecDeque<Shape>,
    /// The number of the oldest pending request.
    first: u64,
}

impl Session {
    /// The session of a connection that was just opened.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            pending: VecDeque::new(),
            first: 0,
        }
    }

    /// How many requests are unanswered.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Appends the bytes of a request to `out`.
    ///
    /// # Errors
    /// [`SendError`]; nothing has been appended then.
    pub fn send(&mut self, request: &AnyRequest<'_>, out: &mut Vec<u8>) -> Result<(), SendError> {
        let shape = self.shape_of(request)?;
        let ticket = self.first + self.pending.len() as u64;
        match request {
            AnyRequest::Meta {
                verb,
                key,
                flags,
                value,
            } => {
                let mut digits = itoa::Buffer::new();
                let flags = if flags.is_quiet() {
                    flags.with(Flag::Opaque(digits.format(ticket).as_bytes()))
                } else {
                    *flags
                };
                meta::request::MetaRequest {
                    verb: *verb,
                    key: *key,
                    flags: flags.as_slice(),
                    value,
                }
                .encode(out);
            }
            AnyRequest::Classic { command, envelope } => {
                classic::request::encode(command, *envelope, out)
                    .map_err(|_| SendError::Inexpressible)?;
            }
            AnyRequest::Noop => meta::request::encode_noop(out),
            AnyRequest::Hold => meta::request::encode_hold(out),
            AnyRequest::Cluster => classic::request::encode_cluster(out),
            AnyRequest::Session(request) => meta::session::encode(request, out),
        }
        self.pending.push_back(shape);
        Ok(())
    }

    /// Notes a request that another session has encoded. Its answer is read like one of this session.
    ///
    /// # Errors
    /// As [`send`](Self::send). Also [`SendError::Inexpressible`] for a quiet request, since its number is in
    /// its bytes.
    pub fn expect(&mut self, request: &AnyRequest<'_>) -> Result<(), SendError> {
        let shape = self.shape_of(request)?;
        if shape == (Shape::Meta { quiet: true }) {
            return Err(SendError::Inexpressible);
        }
        self.pending.push_back(shape);
        Ok(())
    }

    /// The form of the answer to one more request.
    fn shape_of(&self, request: &AnyRequest<'_>) -> Result<Shape, SendError> {
        if self.pending.len() >= PENDING_MAX {
            return Err(SendError::TooMany);
        }
        Ok(match request {
            AnyRequest::Meta { flags, .. } => Shape::Meta {
                quiet: flags.is_quiet(),
            },
            AnyRequest::Classic { envelope, .. } => {
                shape_of(*envelope).ok_or(SendError::Inexpressible)?
            }
            AnyRequest::Noop => Shape::Noop,
            AnyRequest::Hold => Shape::Hold,
            AnyRequest::Cluster => Shape::Values,
            AnyRequest::Session(_) => Shape::Session,
        })
    }

    /// Reads the next answer off the front of `input`; `None` if it is not there in full.
    ///
    /// # Errors
    /// [`Malformed`] if this does not answer the request, or if no request is pending. The connection is of no
    /// use then.
    pub fn receive<'a>(&mut self, input: &'a [u8]) -> Result<Option<Received<'a>>, Malformed> {
        if input.is_empty() {
            return Ok(None);
        }
        let Some(shape) = self.pending.front().copied() else {
            return Err(Malformed);
        };
        let Some((answer, consumed)) = decode(shape, input)? else {
            return Ok(None);
        };
        if let Shape::Meta { quiet: true } = shape {
            return self.receive_quiet(answer, consumed).map(Some);
        }
        let last = match shape {
            Shape::Meta { .. } | Shape::Noop | Shape::Hold | Shape::Line | Shape::Session => true,
            Shape::Values => ends_values(&answer),
        };
        Ok(Some(self.received(answer, last, consumed)))
    }

    /// The oldest request is quiet, and an answer has arrived: to it, or to a later one.
    fn receive_quiet<'a>(
        &mut self,
        answer: AnyResponse<'a>,
        consumed: usize,
    ) -> Result<Received<'a>, Malformed> {
        match answer {
            AnyResponse::Meta(response) if response.code == Code::Noop => {}
            AnyResponse::Meta(response) => {
                let number = response.flag(b'O').and_then(u64_from);
                // An answer without a number belongs to a later request that is not quiet.
                if number == Some(self.first) {
                    return Ok(self.received(answer, true, consumed));
                }
                if number.is_some_and(|number| number < self.first) {
                    return Err(Malformed);
                }
            }
            // Neither an error line nor a classic answer says which request it belongs to.
            AnyResponse::Classic(_) | AnyResponse::Session(_) | AnyResponse::Silent => {
                return Err(Malformed);
            }
        }
        // A later answer has arrived. It stays in the input until its request is the oldest one.
        if self.pending.len() < 2 {
            return Err(Malformed);
        }
        Ok(self.received(AnyResponse::Silent, true, 0))
    }

    fn received<'a>(
        &mut self,
        answer: AnyResponse<'a>,
        last: bool,
        consumed: usize,
    ) -> Received<'a> {
        let ticket = self.first;
        if last {
            self.pending.pop_front();
            self.first += 1;
        }
        Received {
            ticket,
            answer,
            last,
            consumed,
        }
    }
}

const fn shape_of(envelope: classic::ClassicEnvelope) -> Option<Shape> {
    use classic::ClassicEnvelope;
    match envelope {
        // No client requests a dump: its lines are for other programs.
        ClassicEnvelope::Get { .. }
        | ClassicEnvelope::Keys
        | ClassicEnvelope::Dump(_)
        | ClassicEnvelope::Stats(_) => Some(Shape::Values),
        ClassicEnvelope::StatsReset
        | ClassicEnvelope::Touch { noreply: false }
        | ClassicEnvelope::Change { noreply: false }
        | ClassicEnvelope::Arithmetic { noreply: false } => Some(Shape::Line),
        ClassicEnvelope::Touch { noreply: true }
        | ClassicEnvelope::Change { noreply: true }
        | ClassicEnvelope::Arithmetic { noreply: true } => None,
    }
}

/// Whether an answer of several parts is over.
const fn ends_values(answer: &AnyResponse<'_>) -> bool {
    use classic::reply::ClassicResponse;
    !matches!(
        answer,
        AnyResponse::Classic(
            ClassicResponse::Value { .. }
                | ClassicResponse::Cluster(_)
                | ClassicResponse::Key { .. }
                | ClassicResponse::Stat { .. }
        )
    )
}

/// Reads an answer to a request with this shape, or an error line.
fn decode(shape: Shape, input: &[u8]) -> Result<Option<(AnyResponse<'_>, usize)>, Malformed> {
    let classic = || {
        let read = classic::reply::ClassicResponse::decode(input)?;
        Ok(read.map(|(response, consumed)| (AnyResponse::Classic(response), consumed)))
    };
    let meta = || {
        let read = meta::reply::MetaResponse::decode(input)?;
        Ok(read.map(|(response, consumed)| (AnyResponse::Meta(response), consumed)))
    };
    // `E` may become `EN`, `EX` or `ERROR`, and the two decoders want a whole line anyway.
    let is_error = [&b"ERR"[..], b"CLI", b"SER"]
        .iter()
        .any(|word| input.starts_with(word));
    match shape {
        Shape::Line | Shape::Values => classic(),
        Shape::Meta { .. } | Shape::Noop | Shape::Hold | Shape::Session if is_error => classic(),
        Shape::Session => {
            let read = SessionResponse::decode(input)?;
            Ok(read.map(|(response, consumed)| (AnyResponse::Session(response), consumed)))
        }
        Shape::Meta { quiet: true } => meta(),
        Shape::Meta { quiet: false } => match meta()? {
            Some((AnyResponse::Meta(response), _)) if response.code == Code::Noop => Err(Malformed),
            read => Ok(read),
        },
        Shape::Noop | Shape::Hold => match meta()? {
            Some((AnyResponse::Meta(response), _)) if response.code != Code::Noop => Err(Malformed),
            read => Ok(read),
        },
    }
}

#[cfg(test)]
mod tests;
