//! Takes the steps of a connection, and sends its replies into the output.

use alloc::string::String;

use super::{Connection, Parked, Progress};
use crate::command::{Command, ItemCommand};
use crate::execute::Execute;
use crate::output::Output;
use crate::reply::{Refusal, Reply};
use crate::session::{SessionReply, Token};
use crate::wait::Outcome;
use crate::wire::classic::reply::ClassicResponse;
use crate::wire::meta::{self, Verb};
use crate::wire::status_line::{ERROR, MEMORY_REFUSED};
use crate::wire::{Envelope, KeyBuffer, LocalResponse, Operation, Step};

impl Connection {
    /// Takes every step that `input` allows, until `out` holds `out_bytes_max` or more.
    ///
    /// Returns the number of consumed bytes of `input`, and why it stopped. One reply may take `out` past the
    /// bound, never two. It takes at least one step if there is one, so that every call makes progress, however
    /// soon the executor yields.
    pub fn drive(
        &mut self,
        input: &[u8],
        core: &mut impl Execute,
        out: &mut Output,
        out_bytes_max: usize,
    ) -> (usize, Progress) {
        let mut key_buffer = KeyBuffer::new();
        let mut rest = input;
        match self.parked {
            Parked::No => {}
            Parked::Waiting => return (0, Progress::Waiting),
            Parked::Over(_) if out.len() >= out_bytes_max => return (0, Progress::OutputFull),
            Parked::Over(outcome) => {
                let done = self.answer_late(outcome, input, core, out);
                rest = input.get(done..).unwrap_or_default();
            }
        }
        let progress = loop {
            if out.len() >= out_bytes_max {
                break Progress::OutputFull;
            }
            // Not copied: a command is large, and few callers read all of it.
            let mut step = self.look(rest, &mut key_buffer);
            if let Operation::Send {
                unstored: Some(why),
                ..
            } = step.operation
            {
                core.note_unstored(why);
            }
            self.remember(&mut step, rest.len());
            match &step.operation {
                Operation::Incomplete { at_least } => {
                    let at_least = *at_least;
                    break Progress::NeedsInput { at_least };
                }
                Operation::Execute { command, envelope } => {
                    if let Envelope::Meta(_) = envelope {
                        core.note_meta();
                    }
                    core.execute(command, &mut |reply| self.reply(envelope, reply, out));
                    if self.parked == Parked::Waiting {
                        break Progress::Waiting;
                    }
                }
                Operation::Send { response, .. } => response.encode(out),
                Operation::Skip => {}
                Operation::ExecuteAs { .. }
                | Operation::Session { .. }
                | Operation::Hold
                | Operation::Cluster
                | Operation::Authenticate { .. }
                | Operation::Watch { .. }
                | Operation::ReadCertificates { .. }
                | Operation::LimitMemory { .. }
                | Operation::Close { .. }
                | Operation::ShutDown => {
                    if let Err(progress) = self.take_rare(&step.operation, core, out) {
                        break progress;
                    }
                }
            }
            rest = rest.get(step.consumed..).unwrap_or_default();
            // With no input left there is nothing to yield for.
            if !rest.is_empty() && !core.goes_on() {
                break Progress::Yielded;
            }
        };
        (input.len() - rest.len(), progress)
    }

    /// Takes an operation that most connections never take.
    ///
    /// # Errors
    /// The connection stops here: its request waits, or it is to be closed.
    #[cold]
    #[inline(never)]
    fn take_rare(
        &mut self,
        operation: &Operation<'_>,
        core: &mut impl Execute,
        out: &mut Output,
    ) -> Result<(), Progress> {
        match operation {
            Operation::ExecuteAs {
                token,
                command,
                envelope,
            } => {
                core.note_meta();
                self.execute_as(*token, command, envelope, core, out);
            }
            Operation::Session { request } => {
                core.note_meta();
                meta::session::encode_reply(&core.session(*request), out.copied());
            }
            Operation::Authenticate {
                claim,
                welcome,
                refusal,
            } => {
                let is_authentic = core.admits(*claim);
                let said = if is_authentic { welcome } else { refusal };
                said.encode(out);
                if !self.admit(is_authentic) {
                    return Err(Progress::Close);
                }
            }
            Operation::Watch { topics } => self.watch(core.watch(*topics), out),
            Operation::Close { response } => {
                self.has_left = response.is_farewell();
                response.encode(out);
                return Err(Progress::Close);
            }
            Operation::ShutDown => {
                core.shut_down();
                return Err(Progress::Close);
            }
            Operation::Hold => meta::reply::encode_noop(core.hold_ms(), out.copied()),
            Operation::Cluster => encode_cluster(core.cluster().as_deref(), out),
            Operation::ReadCertificates { noreply } => {
                let done = core.read_certificates();
                let said = done.as_ref().map_or_else(String::as_str, |()| "OK");
                LocalResponse::line_unless(*noreply, said).encode(out);
            }
            Operation::LimitMemory { bytes, noreply } => {
                let done = core.limit_memory(*bytes);
                let said = if done.is_ok() { "OK" } else { MEMORY_REFUSED };
                LocalResponse::line_unless(*noreply, said).encode(out);
            }
            // `drive` takes these itself.
            Operation::Incomplete { .. }
            | Operation::Execute { .. }
            | Operation::Send { .. }
            | Operation::Skip => {}
        }
        if self.is_waiting() {
            return Err(Progress::Waiting);
        }
        Ok(())
    }

    /// Executes a command as a session, if there is a token. The reply to a grant shows the hold, if the request
    /// asks for it.
    fn execute_as(
        &mut self,
        token: Option<Token<'_>>,
        command: &Command<'_>,
        envelope: &Envelope<'_>,
        core: &mut impl Execute,
        out: &mut Output,
    ) {
        // Before the command, so that it does not count the time that this takes. An `H` within another flag asks in
        // vain, which costs only time.
        let hold_ms = match envelope {
            Envelope::Meta(envelope)
                if envelope.verb == Verb::Lock && envelope.flags.contains(&b'H') =>
            {
                core.hold_ms()
            }
            Envelope::Meta(_) | Envelope::Classic(_) | Envelope::Binary(_) => None,
        };
        let mut answer = |reply: &Reply<'_>| match (envelope, reply) {
            (Envelope::Meta(envelope), Reply::Granted(granted)) if envelope.verb == Verb::Lock => {
                meta::reply::encode_granted(envelope, granted, hold_ms, out);
            }
            _ => self.reply(envelope, reply, out),
        };
        match token {
            None => core.execute(command, &mut answer),
            Some(token) => {
                if let Err(refusal) = core.execute_as(token, command, &mut answer) {
                    meta::session::encode_reply(&SessionReply::Refused(refusal), out.copied());
                }
            }
        }
    }

    /// Answers the request at the front of `input` after its wait. Returns the number of its bytes that are
    /// consumed.
    #[cold]
    fn answer_late(
        &mut self,
        outcome: Outcome,
        input: &[u8],
        core: &mut impl Execute,
        out: &mut Output,
    ) -> usize {
        self.parked = Parked::No;
        let mut key_buffer = KeyBuffer::new();
        let Step {
            consumed,
            operation,
        } = self.next(input, &mut key_buffer);
        let (Operation::Execute { command, envelope }
        | Operation::ExecuteAs {
            token: None,
            command,
            envelope,
        }) = operation
        else {
            // A driver that has lost the request gets no answer to it.
            return 0;
        };
        let reply = match outcome {
            Outcome::Granted | Outcome::TimedOut => {
                let command = command.without_wait();
                self.execute_as(None, &command, &envelope, core, out);
                return consumed;
            }
            Outcome::NotFound => match command {
                Command::Item(ItemCommand::Get(_)) => Reply::Miss,
                Command::Item(_) | Command::Global(_) => Reply::NotFound,
            },
            Outcome::TooManyLocks => Reply::Refused(Refusal::TooManyLocks),
        };
        self.reply(&envelope, &reply, out);
        consumed
    }
}

/// The reply to `config get cluster`.
fn encode_cluster(text: Option<&str>, out: &mut Output) {
    match text {
        Some(text) => {
            ClassicResponse::Cluster(text.as_bytes()).encode(out.copied());
            ClassicResponse::End.encode(out.copied());
        }
        None => LocalResponse::Line(ERROR).encode(out),
    }
}
