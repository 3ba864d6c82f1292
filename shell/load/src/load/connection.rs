//! One connection of the load: its requests, its unsent output, its unfinished input.
//!
//! - Replies come in the order of the requests, so the oldest request without one is theirs.
//! - Bytes are copied only if a reply comes in pieces.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::load::{Meter, Stream, Workload};
use crate::wire::{Ask, Requests, shown};

/// A connection that does not block.
#[derive(Debug)]
pub(super) struct Connection<S> {
    stream: S,
    /// Requests without an answer, the oldest first.
    asked: VecDeque<Ask>,
    sent_at: Instant,
    output: Vec<u8>,
    /// How much of `output` the stream has accepted. Until it is flushed, the connection waits until it can be written to.
    written: usize,
    /// The start of an incomplete reply.
    input: Vec<u8>,
}

impl<S: Stream> Connection<S> {
    pub(super) fn new(stream: S) -> Self {
        Self {
            stream,
            asked: VecDeque::new(),
            sent_at: Instant::now(),
            output: Vec::new(),
            written: 0,
            input: Vec::new(),
        }
    }

    pub(super) fn stream(&self) -> &S {
        &self.stream
    }

    pub(super) fn stream_mut(&mut self) -> &mut S {
        &mut self.stream
    }

    /// Whether an answer is due.
    pub(super) fn is_waiting(&self) -> bool {
        !self.asked.is_empty()
    }

    /// Adds a request to those that are sent next.
    pub(super) fn ask(&mut self, requests: &Requests, ask: Ask) {
        requests.encode(ask, &mut self.output);
        self.asked.push_back(ask);
    }

    /// Sends the requests since the last time; `true` if that was all.
    pub(super) fn send(&mut self) -> Result<bool> {
        self.sent_at = Instant::now();
        self.write()
    }

    /// Writes the rest of the output; `true` if that was all.
    pub(super) fn write(&mut self) -> Result<bool> {
        while let Some(rest) = self.output.get(self.written..).filter(|r| !r.is_empty()) {
            match self.stream.write(rest) {
                Ok(bytes) => self.written += bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("write"),
            }
        }
        loop {
            match self.stream.flush() {
                Ok(()) => break,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("write"),
            }
        }
        self.output.clear();
        self.written = 0;
        Ok(true)
    }

    /// Judges the replies that are complete with these bytes. `index` is this connection's in the load.
    ///
    /// # Errors
    /// One is wrong, or was not requested.
    pub(super) fn hear<W: Workload>(
        &mut self,
        index: usize,
        chunk: &[u8],
        requests: &Requests,
        workload: &mut W,
        meter: &mut Meter,
    ) -> Result<()> {
        let latency = self.sent_at.elapsed();
        let was_cut = !self.input.is_empty();
        let input = if was_cut {
            self.input.extend_from_slice(chunk);
            &self.input[..]
        } else {
            chunk
        };
        let mut consumed = 0;
        let mut answers = 0;
        while let Some(rest) = input.get(consumed..).filter(|rest| !rest.is_empty()) {
            let Some(ask) = self.asked.front().copied() else {
                bail!("the server sent bytes without a request: {}", shown(rest));
            };
            let Some((reply, length)) = requests.decode(rest)? else {
                break;
            };
            if !workload.judge(requests, ask, &reply) {
                bail!("{ask:?} was answered {}", shown(&rest[..length]));
            }
            workload.answered(index, ask, &reply, latency);
            self.asked.pop_front();
            consumed += length;
            answers += 1;
        }
        if was_cut {
            self.input.drain(..consumed);
        } else {
            self.input.extend_from_slice(&chunk[consumed..]);
        }
        meter.operations += answers;
        if answers > 0 {
            meter.latencies.record(latency, answers);
        }
        Ok(())
    }
}

/// Reads once from a socket that does not block; `None` if there is nothing.
///
/// # Errors
/// The server has closed it.
pub fn read(mut stream: impl Read, chunk: &mut [u8]) -> Result<Option<usize>> {
    match stream.read(chunk) {
        Ok(0) => bail!("the server closed the connection"),
        Ok(bytes) => Ok(Some(bytes)),
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(error).context("read"),
    }
}
