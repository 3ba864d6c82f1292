//! One client's side of the wire: bytes in, commands out, replies in, bytes out, in order.
//!
//! A connection owns no buffer. The driver passes all bytes that have arrived and are not consumed. The
//! connection returns one [`Step`], which borrows from that input and says how much of it is consumed.
//!
//! - W1: However the network cuts the bytes, the steps are the same.
//! - W2: A request is validated whole before its command is handed out, so an error has no side effect.
//! - W3: No memory is reserved for bytes that have not arrived.
//! - W4: Wherever the driver has to stop, the replies are the same.
//! - W5: A request that waits stays at the front of the input until its wait is over, and the bytes behind it
//!   are not read. Its reply has the form it asked for, and comes in its turn.
//! - W6: The reply to a request is sent after all of the request has arrived, even if its body is not kept. A
//!   proxy that shares the connection among its clients could not match an earlier reply.

mod drive;
mod refuse;

use crate::output::Output;
use crate::reply::{Refusal, Reply};
use crate::wait::Outcome;
use crate::watch::Watched;
use crate::wire::authenticate::{self, FAILURES_MAX, Unauthenticated};
use crate::wire::limits::LINE_BYTES_MAX;
use crate::wire::line::Line;
use crate::wire::locked_reply::WhenLocked;
use crate::wire::status_line::{LINE_TOO_LONG, NO_ROOM_TO_READ};
use crate::wire::{
    Admission, BINARY_MAGIC, Cursor, Envelope, LocalResponse, Protocols, binary, classic, meta,
    text,
};

pub use crate::wire::{KeyBuffer, Operation, Step, WireLimits};

/// Why the connection stopped, and the transport's next action.
///
/// More reasons may be added. For an unknown reason, a transport passes no more input until it is called again,
/// as with [`OutputFull`](Self::OutputFull).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Progress {
    /// All complete requests are answered. Read more: nothing happens before the unconsumed input is at least
    /// this long.
    NeedsInput {
        /// Bytes of unconsumed input.
        at_least: usize,
    },
    /// The output has reached its bound. Drive again after it is sent.
    OutputFull,
    /// The executor does not go on ([`goes_on`](crate::execute::Execute::goes_on)). Drive again after the other connections have had
    /// their turn, whether or not more input has come.
    Yielded,
    /// Its request waits for a lock or a value ([`crate::wait`]): only if [`WireLimits::waits`] is set. Send
    /// the output. Nothing happens until [`Connection::end_wait`] is called; then drive again with the same
    /// input. Meanwhile, watch the peer only for its end.
    Waiting,
    /// Send the output, and close.
    Close,
}

/// One client's protocol state: how much of its input was read, and the progress of a reply of several parts.
/// It is small, since there may be many: see the test of its size.
#[derive(Clone, Debug)]
pub struct Connection {
    limits: WireLimits,
    protocol: Protocol,
    /// The state of its authentication; `None` once it is authenticated, or need not be.
    unauthenticated: Option<Unauthenticated>,
    cursor: Cursor,
    /// Nothing can happen before the input is this long.
    at_least: u32,
    /// How much of the input holds no line end; 0 once the line is known.
    scanned: u32,
    /// How long the line at the front of the input is, line end included; 0 if not known.
    line_bytes: u32,
    /// Bytes still to come that are skipped.
    skip_bytes: u32,
    /// The response to send after the last skipped byte (W6).
    late: LocalResponse<'static>,
    /// The response if another connection holds a lock.
    when_locked: WhenLocked,
    /// Its last request asked to close the connection.
    has_left: bool,
    parked: Parked,
}

/// Whether the request at the front of the input was executed but not answered yet (W5).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Parked {
    /// No: it is still to be executed.
    No,
    /// It waits.
    Waiting,
    /// Its wait is over.
    Over(Outcome),
}

/// The protocol of a client. Its first byte decides, and it does not change.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Protocol {
    /// Its first byte has not arrived.
    Unknown,
    /// Classic and meta text; the first word of each request decides.
    Text,
    /// Binary, packet after packet.
    Binary,
    /// No protocol any more: the client watches, and its input is ignored.
    Watching,
}

impl Connection {
    /// A new connection.
    #[must_use]
    pub const fn new(limits: WireLimits) -> Self {
        Self {
            limits,
            protocol: match limits.allowed.protocols() {
                Protocols::Any => Protocol::Unknown,
                Protocols::Text => Protocol::Text,
                Protocols::Binary => Protocol::Binary,
            },
            unauthenticated: match limits.allowed.admission {
                Admission::Open => None,
                Admission::ByPassword | Admission::BySasl | Admission::Either => {
                    Some(Unauthenticated {
                        failures: 0,
                        has_begun: false,
                    })
                }
            },
            cursor: Cursor::Start,
            at_least: 1,
            scanned: 0,
            line_bytes: 0,
            skip_bytes: 0,
            late: LocalResponse::Nothing,
            when_locked: WhenLocked::new(limits.allowed.locked_reply),
            has_left: false,
            parked: Parked::No,
        }
    }

    /// Decides the next step, given all unconsumed input.
    ///
    /// `key_buffer` is space for a key that the wire shows in base64; the step may borrow from it.
    pub fn next<'a>(&mut self, input: &'a [u8], key_buffer: &'a mut KeyBuffer) -> Step<'a> {
        let mut step = self.look(input, key_buffer);
        self.remember(&mut step, input.len());
        step
    }

    /// Decides the next step, which may count bytes that have not arrived: [`Self::remember`] handles those.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "each command calls it, and a call costs as much as it does"
    )]
    fn look<'a>(&mut self, input: &'a [u8], key_buffer: &'a mut KeyBuffer) -> Step<'a> {
        if self.skip_bytes > 0 && !input.is_empty() {
            return self.skip(input.len());
        }
        if input.len() < self.at_least as usize {
            let at_least = self.at_least as usize;
            return Operation::Incomplete { at_least }.consuming(0);
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
            Protocol::Binary => {
                let Self {
                    limits,
                    cursor,
                    unauthenticated,
                    ..
                } = self;
                binary::request::decode(input, limits, cursor, unauthenticated)
            }
            Protocol::Watching => Operation::Skip.consuming(input.len()),
        }
    }

    /// The step while a body is skipped, of which `arrived` bytes are there; the last one sends the response.
    #[cold]
    fn skip<'a>(&mut self, arrived: usize) -> Step<'a> {
        let consumed = self.skip_bytes as usize;
        if arrived < consumed {
            return Operation::Skip.consuming(consumed);
        }
        let response = core::mem::replace(&mut self.late, LocalResponse::Nothing);
        let unstored = None;
        Operation::Send { response, unstored }.consuming(consumed)
    }

    /// Encodes the core's reply to the command of the last step. If the command waits, none of its input is
    /// consumed, whatever the step said, and the connection [`is_waiting`](Self::is_waiting). If the body of
    /// its request is still to be skipped, the reply comes after it.
    #[inline]
    pub fn reply(&mut self, envelope: &Envelope<'_>, reply: &Reply<'_>, out: &mut Output) {
        if self.skip_bytes > 0 {
            self.late = envelope.refusal(reply);
            return;
        }
        if let (WhenLocked::Plain(words), Reply::Refused(Refusal::Locked)) =
            (self.when_locked, reply)
        {
            return words.encode(envelope, out);
        }
        match envelope {
            Envelope::Classic(envelope) => {
                self.cursor.turn_page(reply, |page| envelope.shows(page));
                classic::reply::encode(*envelope, reply, out);
            }
            Envelope::Meta(envelope) => {
                if let Reply::Waits = reply {
                    self.parked = Parked::Waiting;
                }
                meta::reply::encode(envelope, reply, out);
            }
            Envelope::Binary(envelope) => {
                self.cursor
                    .turn_page(reply, |page| (0, page.next.is_none()));
                binary::reply::encode(envelope, reply, out);
            }
        }
    }

    /// Encodes the result of a [`Operation::Watch`]. The input of a watching client is ignored from then on.
    pub fn watch(&mut self, watched: Watched, out: &mut Output) {
        LocalResponse::Line(watched.line()).encode(out);
        match watched {
            Watched::Yes => self.protocol = Protocol::Watching,
            Watched::TooMany | Watched::No => {}
        }
    }

    /// Whether its request waits. Then it is not driven until [`end_wait`](Self::end_wait).
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.parked == Parked::Waiting
    }

    /// Ends the wait of its request, after a [`Notice`](crate::wait::Notice). Returns whether to
    /// [`drive`](Self::drive) it with its remaining input now. If it does not wait, nothing happens.
    pub fn end_wait(&mut self, outcome: Outcome) -> bool {
        let is_news = self.is_waiting();
        if is_news {
            self.parked = Parked::Over(outcome);
        }
        is_news
    }

    /// Whether the client has asked to close the connection, rather than made a mistake.
    #[must_use]
    pub const fn has_left(&self) -> bool {
        self.has_left
    }

    /// Whether the client may send any command: it is authenticated, or need not be.
    #[must_use]
    pub const fn is_admitted(&self) -> bool {
        self.unauthenticated.is_none()
    }

    /// Notes the result of a [`Operation::Authenticate`]. Returns whether the connection goes on.
    pub fn admit(&mut self, is_authentic: bool) -> bool {
        if is_authentic {
            self.unauthenticated = None;
            return true;
        }
        let unauthenticated = self.unauthenticated.get_or_insert_default();
        unauthenticated.failures += 1;
        unauthenticated.failures < FAILURES_MAX
    }

    fn next_text<'a>(&mut self, input: &'a [u8], key_buffer: &'a mut KeyBuffer) -> Step<'a> {
        // The end of a line is searched for once, although the request is looked at again while its body
        // arrives, and for each key of a get.
        if self.line_bytes == 0
            && let Some(step) = self.find_line(input)
        {
            return step;
        }
        let line_bytes = self.line_bytes as usize;
        match Line::new(input, line_bytes) {
            Some(line) if self.unauthenticated.is_some() => authenticate::decode(line),
            Some(line) => text::decode(line, &self.limits, &mut self.cursor, key_buffer),
            None => {
                let at_least = line_bytes;
                Operation::Incomplete { at_least }.consuming(0)
            }
        }
    }

    /// The response if there is no memory for a request, of which `input` has arrived. The connection must be
    /// closed then, since the start of the next request is unknown.
    #[must_use]
    pub fn out_of_memory(&self, input: &[u8]) -> LocalResponse<'static> {
        match self.protocol {
            Protocol::Unknown | Protocol::Watching => LocalResponse::Nothing,
            Protocol::Text => LocalResponse::Line(NO_ROOM_TO_READ),
            Protocol::Binary => binary::request::out_of_memory(input),
        }
    }

    /// Searches for the end of the line at the front of the input, from where the last search ended; `None` if
    /// it is there.
    fn find_line(&mut self, input: &[u8]) -> Option<Step<'static>> {
        let scanned = self.scanned as usize;
        let end_within = |bytes_max: usize| {
            let window = input.get(..=bytes_max).unwrap_or(input);
            memchr::memchr(b'\n', window.get(scanned..)?)
        };
        let mut bytes_max = LINE_BYTES_MAX;
        let mut end = end_within(bytes_max);
        if end.is_none() && input.len() > bytes_max {
            bytes_max = text::line_bytes_max(input, &self.limits);
            end = end_within(bytes_max);
        }
        if let Some(end) = end {
            self.line_bytes = saturated(scanned + end + 1);
            self.scanned = 0;
            return None;
        }
        if input.len() > bytes_max {
            let response = LocalResponse::Line(LINE_TOO_LONG);
            return Some(Operation::Close { response }.consuming(0));
        }
        self.scanned = saturated(input.len());
        let at_least = input.len() + 1;
        Some(Operation::Incomplete { at_least }.consuming(0))
    }

    /// Notes the state that a step leaves, and limits the step to bytes that have arrived. Consumed bytes that
    /// have not arrived are skipped when they come.
    #[inline]
    fn remember(&mut self, step: &mut Step<'_>, arrived: usize) {
        if self.when_locked.is_plain()
            && let Operation::Execute { command, .. } | Operation::ExecuteAs { command, .. } =
                &step.operation
        {
            self.when_locked.note(command);
        }
        if let Operation::Incomplete { at_least } = step.operation {
            self.at_least = saturated(at_least);
        }
        // A request of several steps stays in the input until the last step. After a close no state is needed.
        if step.consumed == 0 {
            return;
        }
        self.skip_bytes = saturated(step.consumed.saturating_sub(arrived));
        (self.at_least, self.line_bytes) = (1, 0);
        if step.consumed > arrived {
            step.consumed = arrived;
            if let Operation::Send { response, .. } = step.operation {
                self.late = response;
                step.operation = Operation::Skip;
            }
        }
    }
}

/// Lengths are kept in 32 bits: no request is longer, its body included.
fn saturated(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    mod values;

    use super::*;

    #[test]
    fn a_line_is_searched_once_however_slowly_it_comes() {
        let mut connection = Connection::new(WireLimits::new(1024));
        let line = b"get aaaaaaaaaaaaaaaaaaaa";
        for arrived in 1..=line.len() {
            let mut key_buffer = KeyBuffer::new();
            let step = connection.next(&line[..arrived], &mut key_buffer);
            let Operation::Incomplete { at_least } = step.operation else {
                panic!("the line has no end")
            };
            assert_eq!(at_least, arrived + 1);
            assert_eq!(connection.scanned as usize, arrived);
        }
    }
}
