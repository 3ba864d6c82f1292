//! One client's side of the wire: bytes in, commands out, replies in, bytes out, in order.
//!
//! A connection owns no buffer. The driver hands it what has arrived and is not yet consumed; it
//! answers with one [`Step`], which borrows from that input, and says how much of it is done with.
//!
//! - W1: however the network cuts the bytes, the steps are the same.
//! - W2: a request is validated whole before its command is handed out, so an error has no side
//!   effect.
//! - W3: nothing is reserved for bytes that have not arrived.

use alloc::vec::Vec;

use crate::command::{Command, Keys, ScanCursor};
use crate::execute::Execute;
use crate::reply::Reply;
use crate::wire::binary::Lowered;
use crate::wire::limits::LINE_BYTES_MAX;
use crate::wire::meta::Verb;
use crate::wire::scan::without_line_end;
use crate::wire::status_line::{BAD_FORMAT, LINE_TOO_LONG};
use crate::wire::{Answer, BINARY_MAGIC, Decoded, Envelope, VERSION, binary, classic, meta};

pub use crate::wire::{KeyBuffer, WireLimits};

/// What is to be done next for a connection.
#[derive(Debug)]
pub enum Step<'a> {
    /// Nothing until the input is at least this long in all. Calling sooner is harmless.
    Incomplete {
        /// Bytes of input, counted from where the last step left off.
        at_least: usize,
    },
    /// Give the command to the core, and its reply to [`Connection::reply`], before the next step.
    Request {
        /// Bytes of input that are done with once the reply is encoded.
        consumed: usize,
        /// What the client asks for.
        command: Command<'a>,
        /// How it wants to be answered.
        envelope: Envelope<'a>,
    },
    /// Encode the answer ([`Answer::encode`]); the core has no part in it.
    Answer {
        /// Bytes of input that are done with.
        consumed: usize,
        /// What to send.
        answer: Answer<'a>,
    },
    /// Bytes that no one is to look at (the body of a refused set).
    Skip {
        /// Bytes of input that are done with; at least 1.
        consumed: usize,
    },
    /// Encode the answer, send it, and close.
    Close {
        /// What to send before.
        answer: Answer<'a>,
    },
}

/// How far [`Connection::drive`] came.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Progress {
    /// Everything that was complete is answered. More is to be read; nothing more happens before
    /// the input that is not consumed is at least this long.
    NeedsInput {
        /// Bytes of input, counted from what is not consumed.
        at_least: usize,
    },
    /// The output has reached its bound. Drive again once it is sent.
    OutputFull,
    /// Send what is in the output, and close.
    Close,
}

/// One client's protocol state: what of its input has been looked at, and how far an answer of
/// several parts has come. It is small, since there may be many: see the test of its size.
#[derive(Clone, Debug)]
pub struct Connection {
    limits: WireLimits,
    protocol: Protocol,
    listing: Listing,
    /// Nothing can happen before the input is this long.
    at_least: u32,
    /// How much of the input holds no line end; 0 once the line is known.
    scanned: u32,
    /// How long the line at the front of the input is, line end included; 0 if not known.
    line_bytes: u32,
    /// Where in the line the next key of a get stands; 0 before the first.
    next_key: u32,
    /// Bytes still to come that no one is to look at.
    skip_bytes: u32,
}

/// Which of the protocols a client speaks; its first byte tells, and it does not change.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Protocol {
    /// Nothing has arrived yet.
    Unknown,
    /// Classic and meta text.
    Text,
    /// Binary.
    Binary,
}

/// How far a listing of keys has come.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Listing {
    /// None is under way.
    None,
    /// The page from here on is next.
    Page(ScanCursor),
    /// The last page is encoded; the request's line is still in the input.
    Done,
}

impl Connection {
    /// A connection to which nothing has happened yet.
    #[must_use]
    pub const fn new(limits: WireLimits) -> Self {
        Self {
            limits,
            protocol: Protocol::Unknown,
            listing: Listing::None,
            at_least: 1,
            scanned: 0,
            line_bytes: 0,
            next_key: 0,
            skip_bytes: 0,
        }
    }

    /// Says what is to be done next, given all input that is not consumed.
    ///
    /// `key_buffer` is room for a key that the wire shows in base64; the step may borrow from it.
    pub fn next<'a>(&mut self, input: &'a [u8], key_buffer: &'a mut KeyBuffer) -> Step<'a> {
        if self.skip_bytes > 0 {
            return self.skip(input);
        }
        if input.len() < self.at_least as usize {
            return Step::Incomplete {
                at_least: self.at_least as usize,
            };
        }
        if self.protocol == Protocol::Unknown {
            self.protocol = if input.first() == Some(&BINARY_MAGIC) {
                Protocol::Binary
            } else {
                Protocol::Text
            };
        }
        match self.protocol {
            Protocol::Unknown | Protocol::Text => self.next_text(input, key_buffer),
            Protocol::Binary => self.next_binary(input),
        }
    }

    /// Encodes the core's reply to the command of the last step.
    pub fn reply(&mut self, envelope: &Envelope<'_>, reply: &Reply<'_>, out: &mut Vec<u8>) {
        match envelope {
            Envelope::Classic(envelope) => {
                self.turn_page(reply);
                classic::reply::encode(*envelope, reply, out);
            }
            Envelope::Meta(envelope) => meta::reply::encode(envelope, reply, out),
            Envelope::Binary(envelope) => {
                self.turn_page(reply);
                binary::reply::encode(envelope, reply, out);
            }
        }
    }

    /// Notes where the next page of a listing begins, if one is under way.
    fn turn_page(&mut self, reply: &Reply<'_>) {
        if self.listing != Listing::None {
            let next = if let Reply::Keys(page) = reply {
                page.next
            } else {
                None
            };
            self.listing = next.map_or(Listing::Done, Listing::Page);
        }
    }

    fn next_text<'a>(&mut self, input: &'a [u8], key_buffer: &'a mut KeyBuffer) -> Step<'a> {
        if self.line_bytes == 0
            && let Some(step) = self.find_line(input)
        {
            return step;
        }
        let line_bytes = self.line_bytes as usize;
        let Some((line, body)) = input.split_at_checked(line_bytes) else {
            return self.incomplete(line_bytes);
        };
        if self.listing == Listing::Done {
            self.listing = Listing::None;
            return Step::Skip {
                consumed: self.consume(input, 0),
            };
        }
        let text = without_line_end(line);
        let decoded = if self.next_key > 0 {
            classic::request::resume(text, self.next_key as usize)
        } else {
            decode(line.len(), text, body, &self.limits, key_buffer)
        };
        match decoded {
            Decoded::Request {
                command,
                envelope,
                body_bytes,
            } => Step::Request {
                consumed: self.consume(input, body_bytes),
                command,
                envelope,
            },
            Decoded::Several {
                command,
                envelope,
                next,
            } => {
                self.next_key = saturated(next);
                Step::Request {
                    consumed: 0,
                    command,
                    envelope,
                }
            }
            Decoded::Listing { prefix } => {
                let cursor = match self.listing {
                    Listing::Page(cursor) => cursor,
                    Listing::None | Listing::Done => ScanCursor::default(),
                };
                self.listing = Listing::Page(cursor);
                Step::Request {
                    consumed: 0,
                    command: Command::Keys(Keys { prefix, cursor }),
                    envelope: Envelope::Classic(classic::Envelope::Keys),
                }
            }
            Decoded::NeedsBody { body_bytes } => self.incomplete(line_bytes + body_bytes),
            Decoded::Answer { answer, body_bytes } => Step::Answer {
                consumed: self.consume(input, body_bytes),
                answer,
            },
            Decoded::Close { answer } => Step::Close { answer },
        }
    }

    fn next_binary<'a>(&mut self, input: &'a [u8]) -> Step<'a> {
        let decoded = match binary::request::decode(input, self.limits.value_bytes_max) {
            Ok(decoded) => decoded,
            Err(malformed) => {
                return Step::Close {
                    answer: Answer::packet_or_nothing(malformed.answer),
                };
            }
        };
        match decoded {
            binary::request::Decoded::Incomplete { at_least } => self.incomplete(at_least),
            binary::request::Decoded::Request { request, consumed } => {
                self.next_packet(&request, consumed)
            }
            binary::request::Decoded::Refused {
                answer,
                consumed,
                skip,
            } => {
                self.read_past(skip);
                Step::Answer {
                    consumed,
                    answer: Answer::Packet(answer),
                }
            }
            binary::request::Decoded::SetTooLarge {
                key,
                envelope,
                consumed,
                skip,
            } => {
                self.read_past(skip);
                Step::Request {
                    consumed,
                    command: Command::SetTooLarge { key },
                    envelope: Envelope::Binary(envelope),
                }
            }
        }
    }

    /// What is to be done for a whole packet of `packet_bytes` bytes.
    fn next_packet<'a>(&mut self, request: &binary::Request<'a>, packet_bytes: usize) -> Step<'a> {
        self.at_least = 1;
        let cursor = match self.listing {
            Listing::None => ScanCursor::default(),
            Listing::Page(cursor) => cursor,
            Listing::Done => {
                self.listing = Listing::None;
                return Step::Skip {
                    consumed: packet_bytes,
                };
            }
        };
        match binary::lower::lower(request, VERSION, cursor) {
            Some(Lowered::Command { command, envelope }) => {
                // A listing is asked for page by page; its packet stays in the input until the last.
                let consumed = if let Command::Keys(_) = command {
                    self.listing = Listing::Page(cursor);
                    0
                } else {
                    packet_bytes
                };
                Step::Request {
                    consumed,
                    command,
                    envelope: Envelope::Binary(envelope),
                }
            }
            Some(Lowered::Answer(answer)) => Step::Answer {
                consumed: packet_bytes,
                answer: Answer::Packet(answer),
            },
            Some(Lowered::Close { answer }) => Step::Close {
                answer: Answer::packet_or_nothing(answer),
            },
            // Not from a decoded packet; what is malformed closes.
            None => Step::Close {
                answer: Answer::Nothing,
            },
        }
    }

    /// The request is done with but for `bytes` behind what is consumed.
    fn read_past(&mut self, bytes: usize) {
        self.skip_bytes = saturated(bytes);
        self.at_least = 1;
    }

    /// Looks for the end of the line at the front of the input, from where the last look ended;
    /// `None` if it is there.
    fn find_line<'a>(&mut self, input: &'a [u8]) -> Option<Step<'a>> {
        let bytes_max = if input.len() > LINE_BYTES_MAX && classic::request::is_get(input) {
            self.limits.get_line_bytes_max.max(LINE_BYTES_MAX)
        } else {
            LINE_BYTES_MAX
        };
        let window = input.get(..=bytes_max).unwrap_or(input);
        let scanned = self.scanned as usize;
        let unseen = window.get(scanned..).unwrap_or_default();
        if let Some(end) = memchr::memchr(b'\n', unseen) {
            self.line_bytes = saturated(scanned + end + 1);
            self.scanned = 0;
            return None;
        }
        if window.len() > bytes_max {
            return Some(Step::Close {
                answer: Answer::Line(LINE_TOO_LONG),
            });
        }
        self.scanned = saturated(window.len());
        Some(self.incomplete(window.len() + 1))
    }

    fn incomplete<'a>(&mut self, at_least: usize) -> Step<'a> {
        self.at_least = saturated(at_least);
        Step::Incomplete { at_least }
    }

    /// Is done with the line and `body_bytes` behind it, of which some may not have arrived.
    /// Returns how much of the input that is.
    fn consume(&mut self, input: &[u8], body_bytes: usize) -> usize {
        let request_bytes = self.line_bytes as usize + body_bytes;
        let consumed = request_bytes.min(input.len());
        self.skip_bytes = saturated(request_bytes - consumed);
        self.at_least = 1;
        self.line_bytes = 0;
        self.next_key = 0;
        consumed
    }

    fn skip<'a>(&mut self, input: &[u8]) -> Step<'a> {
        let consumed = input.len().min(self.skip_bytes as usize);
        if consumed == 0 {
            return Step::Incomplete { at_least: 1 };
        }
        self.skip_bytes -= saturated(consumed);
        Step::Skip { consumed }
    }
}

/// Reads the line of a request of either text protocol. `line_bytes` is its length with its end.
fn decode<'a>(
    line_bytes: usize,
    line: &'a [u8],
    body: &'a [u8],
    limits: &WireLimits,
    key_buffer: &'a mut KeyBuffer,
) -> Decoded<'a> {
    // memcached reads no command from fewer than four bytes, the line end included.
    if line_bytes < 4 {
        return Decoded::line(BAD_FORMAT);
    }
    if let Some((word, rest)) = line.split_at_checked(2)
        && matches!(rest.first(), None | Some(b' '))
    {
        if let Some(verb) = Verb::from_word(word) {
            return meta::request::decode(verb, rest, body, limits, key_buffer);
        }
        if word == b"mn" {
            return Decoded::line("MN");
        }
    }
    classic::request::decode(line, body, limits)
}

/// Lengths are kept in 32 bits: no request is longer, its body included.
fn saturated(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

impl Connection {
    /// Takes every step that `input` allows, until `out` holds `out_bytes_max` or more.
    ///
    /// Returns how many bytes of `input` are done with, and why it stopped. One reply may take
    /// `out` past the bound, never two.
    pub fn drive(
        &mut self,
        input: &[u8],
        core: &mut impl Execute,
        out: &mut Vec<u8>,
        out_bytes_max: usize,
    ) -> (usize, Progress) {
        let mut key_buffer = KeyBuffer::new();
        let mut rest = input;
        let progress = loop {
            if out.len() >= out_bytes_max {
                break Progress::OutputFull;
            }
            let done = match self.next(rest, &mut key_buffer) {
                Step::Incomplete { at_least } => break Progress::NeedsInput { at_least },
                Step::Request {
                    consumed,
                    command,
                    envelope,
                } => {
                    core.execute(command, &mut |reply| self.reply(&envelope, reply, out));
                    consumed
                }
                Step::Answer { consumed, answer } => {
                    answer.encode(out);
                    consumed
                }
                Step::Skip { consumed } => consumed,
                Step::Close { answer } => {
                    answer.encode(out);
                    break Progress::Close;
                }
            };
            rest = rest.get(done..).unwrap_or_default();
        };
        (input.len() - rest.len(), progress)
    }
}

#[cfg(test)]
mod tests;
