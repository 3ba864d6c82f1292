//! The line of a text request, and the steps that all text requests share.

use super::envelope::Envelope;
use super::local::LocalResponse;
use super::scan::without_line_end;
use super::status_line::{BAD_CHUNK, TOO_LARGE};
use super::step::{Operation, Step};
use crate::command::Command;
use crate::session::Token;
use crate::stats::Unstored;

/// The line at the front of the input, and the bytes behind it.
#[derive(Clone, Copy, Debug)]
pub struct Line<'a> {
    /// The line without its line end.
    pub text: &'a [u8],
    /// Its length, line end included.
    pub bytes: usize,
    /// The bytes that have arrived behind it: the body of the request, and more.
    pub behind: &'a [u8],
}

impl<'a> Line<'a> {
    /// The first `bytes` bytes of `input`; `None` if they have not all arrived.
    #[must_use]
    pub fn new(input: &'a [u8], bytes: usize) -> Option<Self> {
        let (line, behind) = input.split_at_checked(bytes)?;
        Some(Self {
            text: without_line_end(line),
            bytes,
            behind,
        })
    }

    /// A command without a body.
    #[inline]
    pub(crate) const fn execute(self, command: Command<'a>, envelope: Envelope<'a>) -> Step<'a> {
        Operation::Execute { command, envelope }.consuming(self.bytes)
    }

    /// A command with a body of `body_bytes`, as this session if there is one.
    #[inline]
    pub(crate) const fn execute_in(
        self,
        session: Option<Token<'a>>,
        body_bytes: usize,
        command: Command<'a>,
        envelope: Envelope<'a>,
    ) -> Step<'a> {
        let consumed = self.bytes + body_bytes;
        if session.is_some() {
            return Operation::ExecuteAs {
                token: session,
                command,
                envelope,
            }
            .consuming(consumed);
        }
        Operation::Execute { command, envelope }.consuming(consumed)
    }

    /// The response to a request without a body.
    pub(crate) const fn respond(self, line: &'static str) -> Step<'a> {
        self.respond_past(0, LocalResponse::Line(line))
    }

    /// The response to a request without a body; nothing with `noreply`.
    pub(crate) const fn respond_unless(self, noreply: bool, line: &'static str) -> Step<'a> {
        self.respond_past(0, LocalResponse::line_unless(noreply, line))
    }

    /// The response to a request with a body of `body_bytes`, which is skipped.
    pub(crate) const fn respond_past(
        self,
        body_bytes: usize,
        response: LocalResponse<'static>,
    ) -> Step<'a> {
        Operation::Send {
            response,
            unstored: None,
        }
        .consuming(self.bytes + body_bytes)
    }

    /// The response to a set with a body of `body_bytes` that is not stored; nothing with `noreply`.
    pub(crate) const fn respond_unstored(
        self,
        body_bytes: usize,
        noreply: bool,
        why: Unstored,
    ) -> Step<'a> {
        let text = match why {
            Unstored::BadChunk => BAD_CHUNK,
            Unstored::TooLarge => TOO_LARGE,
        };
        Operation::Send {
            response: LocalResponse::line_unless(noreply, text),
            unstored: Some(why),
        }
        .consuming(self.bytes + body_bytes)
    }

    /// Nothing yet: a body of `body_bytes` is to come.
    pub(crate) const fn await_body(self, body_bytes: usize) -> Step<'a> {
        Operation::Incomplete {
            at_least: self.bytes + body_bytes,
        }
        .consuming(0)
    }
}
