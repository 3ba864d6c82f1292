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

use crate::command::Command;
use crate::reply::Reply;
use crate::wire::{Answer, Envelope};

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

/// Executes commands for one connection at one moment.
///
/// The core implements it ([`Core::at`](crate::Core::at)); a transport that spreads items over
/// several cores implements it by choosing one.
pub trait Execute {
    /// Executes `command` and hands its reply to `answer`, exactly once.
    fn execute(&mut self, command: Command<'_>, answer: &mut dyn FnMut(&Reply<'_>));
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
        let mut rest = input;
        let progress = loop {
            if out.len() >= out_bytes_max {
                break Progress::OutputFull;
            }
            let done = match self.next(rest) {
                Step::Incomplete { at_least } => break Progress::NeedsInput { at_least },
                Step::Request { consumed, command, envelope } => {
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
