//! The client's side of one connection: requests become bytes, bytes become answers.
//!
//! - S1: Answers come in the order of the requests, and each request ends once.
//! - S2: At most [`PENDING_MAX`] requests are unanswered; one more is refused, and nothing of it is encoded.
//!
//! There are only the requests that a client of this project sends: none is quiet, and each has an answer of its own.
//!
//! Bytes may be cut anywhere: the driver keeps unconsumed bytes and offers them again with more behind them. An
//! answer that no server sends breaks the session for good, since answers can no longer be matched to requests.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use latchd_protocol::command::GlobalCommand;
use latchd_protocol::item::LEASE_ITEM;
use latchd_protocol::key::Key;
use latchd_protocol::session::SessionRequest;
use latchd_protocol::stats::StatsTopic;
use latchd_protocol::time::Exptime;
use latchd_protocol::wire::classic::ClassicEnvelope;
use latchd_protocol::wire::meta::reply::Code;
use latchd_protocol::wire::meta::session::SessionResponse;
use latchd_protocol::wire::meta::{Flag, Verb};
use latchd_protocol::wire::{Malformed, NOT_PRIMARY, classic, meta, u64_from};

/// The most requests that may be unanswered at a time.
pub const PENDING_MAX: usize = 4096;

/// The longest error message that is kept, in bytes.
const REFUSAL_BYTES_MAX: usize = 256;

/// A request of a client.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum AnyRequest<'a> {
    /// A meta command.
    Meta {
        /// The command.
        verb: Verb,
        /// The key of the item.
        key: Key<'a>,
        /// The options, and the fields to show.
        flags: Vec<Flag<'a>>,
        /// The value for `ms`; empty otherwise.
        value: &'a [u8],
    },
    /// `stats`, with or without a topic.
    Stats(StatsTopic),
    /// `flush_all`.
    FlushAll,
    /// `mn`: answered when everything before it is.
    Noop,
    /// `mn H`: the same, and shows for how long no other server can be primary.
    Hold,
    /// `config get cluster`: the servers of the cluster.
    Cluster,
    /// `mo`: opens, resumes or ends a session of the server.
    Session(SessionRequest<'a>),
    /// Some requests that were encoded before.
    Encoded(&'a Encoded),
}

impl<'a> AnyRequest<'a> {
    /// A meta request; the value is for `ms`.
    pub fn meta(
        verb: Verb,
        key: Key<'a>,
        flags: impl Into<Vec<Flag<'a>>>,
        value: &'a [u8],
    ) -> Self {
        let flags = flags.into();
        Self::Meta {
            verb,
            key,
            flags,
            value,
        }
    }

    /// Appends its bytes to `out`, and the form of its answer to `shapes`.
    fn encode(&self, shapes: &mut impl Extend<Shape>, out: &mut Vec<u8>) {
        let shape = match self {
            Self::Meta {
                verb,
                key,
                flags,
                value,
            } => {
                let request = meta::request::MetaRequest {
                    verb: *verb,
                    key: *key,
                    flags,
                    value,
                };
                request.encode(out);
                Shape::Meta
            }
            Self::Stats(topic) => {
                encode_classic(
                    GlobalCommand::Stats(*topic),
                    ClassicEnvelope::Stats(*topic),
                    out,
                );
                Shape::Values
            }
            Self::FlushAll => {
                let at = Exptime::Never;
                let envelope = ClassicEnvelope::Change { noreply: false };
                encode_classic(GlobalCommand::FlushAll { at }, envelope, out);
                Shape::Line
            }
            Self::Noop => {
                meta::request::encode_noop(out);
                Shape::Noop
            }
            Self::Hold => {
                meta::request::encode_hold(out);
                Shape::Noop
            }
            Self::Cluster => {
                classic::request::encode_cluster(out);
                Shape::Values
            }
            Self::Session(request) => {
                meta::session::encode(request, out);
                Shape::Session
            }
            Self::Encoded(encoded) => {
                out.extend_from_slice(&encoded.bytes);
                return shapes.extend(encoded.shapes.iter().copied());
            }
        };
        shapes.extend([shape]);
    }
}

/// Requests that were encoded together, to be sent by another session.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Encoded {
    bytes: Vec<u8>,
    shapes: Vec<Shape>,
}

fn encode_classic(command: GlobalCommand<'_>, envelope: ClassicEnvelope, out: &mut Vec<u8>) {
    classic::request::encode(&command.into(), envelope, out).expect("there is no key in it");
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
            Self::Classic(_) | Self::Meta(_) | Self::Session(_) => {
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
            Self::Classic(_) | Self::Session(_) => None,
        }
    }

    /// A classic answer, or an error line to any request.
    #[must_use]
    pub const fn classic(&self) -> Option<&classic::reply::ClassicResponse<'_>> {
        match self {
            Self::Classic(response) => Some(response),
            Self::Meta(_) | Self::Session(_) => None,
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

    /// Whether a meta answer shows the item of a lock.
    pub(super) fn is_lock(&self) -> bool {
        self.number(b'f') == Some(u64::from(LEASE_ITEM))
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
    /// The answer.
    pub answer: AnyResponse<'a>,
    /// Whether the request is answered in full. A `get` has a value and then its end.
    pub last: bool,
    /// Bytes of input that are consumed.
    pub consumed: usize,
}

/// [`PENDING_MAX`] requests are unanswered, so one more was not encoded.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SendError;

impl fmt::Display for SendError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("too many requests are unanswered")
    }
}

impl core::error::Error for SendError {}

/// The form of the answer to a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Shape {
    Meta,
    Noop,
    Line,
    Values,
    Session,
}

/// The client's side of one connection.
#[derive(Clone, Debug, Default)]
pub struct Session {
    pending: VecDeque<Shape>,
}

impl Session {
    /// The session of a connection that was just opened.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            pending: VecDeque::new(),
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
        let count = if let AnyRequest::Encoded(encoded) = request {
            encoded.shapes.len()
        } else {
            1
        };
        if self.pending.len() + count > PENDING_MAX {
            return Err(SendError);
        }
        request.encode(&mut self.pending, out);
        Ok(())
    }

    /// Encodes requests that another session will send. Their answers are read by this one.
    ///
    /// # Errors
    /// [`SendError`] if they are too many.
    pub fn encode(&mut self, requests: &[AnyRequest<'_>]) -> Result<Encoded, SendError> {
        let mut encoded = Encoded::default();
        for request in requests {
            self.send(request, &mut encoded.bytes)?;
        }
        encoded.shapes.extend(self.pending.iter().copied());
        Ok(encoded)
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
        let last = shape != Shape::Values || ends_values(&answer);
        if last {
            self.pending.pop_front();
        }
        Ok(Some(Received {
            answer,
            last,
            consumed,
        }))
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
    // `E` may become `EN`, `EX` or `ERROR`, and the two decoders want a whole line anyway.
    let is_error = [&b"ERR"[..], b"CLI", b"SER"]
        .iter()
        .any(|word| input.starts_with(word));
    match shape {
        Shape::Line | Shape::Values => classic(),
        Shape::Meta | Shape::Noop | Shape::Session if is_error => classic(),
        Shape::Session => {
            let read = SessionResponse::decode(input)?;
            Ok(read.map(|(response, consumed)| (AnyResponse::Session(response), consumed)))
        }
        Shape::Meta | Shape::Noop => {
            let read = meta::reply::MetaResponse::decode(input)?;
            // `MN` answers `mn` alone.
            let is_fit = |code| (code == Code::Noop) == (shape == Shape::Noop);
            if read.is_some_and(|(response, _)| !is_fit(response.code)) {
                return Err(Malformed);
            }
            Ok(read.map(|(response, consumed)| (AnyResponse::Meta(response), consumed)))
        }
    }
}

#[cfg(test)]
mod tests;
