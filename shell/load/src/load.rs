//! The load: many connections, one thread, each connection with its next requests as soon as its last
//! ones are answered.
//!
//! - Every reply is read whole and judged by the workload: a wrong one ends the measurement, since
//!   a server that misses is fast.
//! - At most `depth` requests of a connection are without an answer.
//! - Every request is answered before a run ends, so its count is exact and the next starts clean.

mod budget;
mod connection;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::sockopt::set_tcp_quickack;

pub use self::budget::{Budget, Stop};
use self::connection::Connection;
pub use self::connection::read;
use crate::latencies::Latencies;
use crate::wire::{Ask, Reply, Requests};

/// How long a server may be silent.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// Room for the bytes of one read: 16 replies of 4 KiB and more.
const CHUNK_BYTES: usize = 256 << 10;
/// How many ready connections one call reports.
const EVENTS_MAX: usize = 256;

/// The requests, and the check of their answers.
pub trait Workload {
    /// Whether another client is to be served between any two reads, so that waiting must not
    /// block.
    const SHARES_THE_THREAD: bool = false;

    /// The next request of a connection; `None` if it has none until it is asked again.
    fn next(&mut self, connection: usize) -> Option<Ask>;

    /// Takes an answer; `false` if it is wrong.
    fn judge(&mut self, requests: &Requests, ask: Ask, reply: &Reply<'_>) -> bool;

    /// A right answer, and the time since its batch of requests was sent.
    fn answered(&mut self, _connection: usize, _ask: Ask, _reply: &Reply<'_>, _latency: Duration) {}

    /// Serves the other client.
    ///
    /// # Errors
    /// Those of the other client.
    fn share(&mut self) -> Result<()> {
        Ok(())
    }
}

/// A connected stream that does not block: reading, writing and flushing fail with [`io::ErrorKind::WouldBlock`]
/// instead.
///
/// [`io::ErrorKind::WouldBlock`]: std::io::ErrorKind::WouldBlock
pub trait Stream: Read + Write + AsFd {
    /// Whether the stream may keep received bytes that its descriptor does not report, as TLS does.
    const KEEPS_INPUT: bool = false;
}

impl Stream for TcpStream {}
impl Stream for UnixStream {}

/// The measurements of a run.
#[derive(Debug, Default)]
pub struct Meter {
    /// Requests that were answered.
    pub operations: u64,
    /// From the sending of a batch to each of its answers.
    pub latencies: Latencies,
}

impl Meter {
    /// Nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

/// Open connections to one server.
pub struct Load<S = TcpStream> {
    epoll: OwnedFd,
    connections: Vec<Connection<S>>,
    depth: usize,
    acknowledges_at_once: bool,
    chunk: Vec<u8>,
}

impl Load {
    /// Opens `connections` connections over TCP, each for at most `depth` requests at a time.
    ///
    /// # Errors
    /// One cannot be opened.
    pub fn open(address: SocketAddr, connections: usize, depth: usize) -> Result<Self> {
        let mut streams = Vec::with_capacity(connections);
        for _ in 0..connections {
            let stream = TcpStream::connect(address).context("connect")?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            streams.push(stream);
        }
        Self::over(streams, depth)
    }
}

impl<S: Stream> Load<S> {
    /// Load on open streams, each for at most `depth` requests at a time.
    ///
    /// # Errors
    /// The kernel's.
    pub fn over(streams: Vec<S>, depth: usize) -> Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).context("epoll_create")?;
        let mut load = Self {
            epoll,
            connections: Vec::with_capacity(streams.len()),
            depth,
            acknowledges_at_once: false,
            chunk: vec![0; CHUNK_BYTES],
        };
        for (index, stream) in streams.into_iter().enumerate() {
            let mark = epoll::EventData::new_u64(u64::try_from(index)?);
            epoll::add(&load.epoll, &stream, mark, epoll::EventFlags::IN)?;
            load.connections.push(Connection::new(stream));
        }
        Ok(load)
    }

    /// Changes the most requests at a time, for the next run.
    pub fn set_depth(&mut self, depth: usize) {
        self.depth = depth;
    }

    /// The same, over TCP, telling the kernel to acknowledge all that comes at once: a server that sends small
    /// packets and leaves Nagle's algorithm on (yrmcds) else rests for 40 ms between any two. For
    /// measurements of something else than time.
    #[must_use]
    pub fn acknowledging_at_once(mut self) -> Self {
        self.acknowledges_at_once = true;
        self
    }

    /// Sends the requests of `workload` until `stop`, and waits for all answers.
    ///
    /// # Errors
    /// An answer is wrong, or missing for [`PATIENCE`]; or the server closes a connection.
    pub fn run<W: Workload>(
        &mut self,
        requests: &Requests,
        workload: &mut W,
        stop: Stop,
        meter: &mut Meter,
    ) -> Result<()> {
        let mut budget = Budget::new(stop);
        let mut waiting = 0_usize;
        for index in 0..self.connections.len() {
            waiting += usize::from(self.ask(index, requests, workload, &mut budget)?);
        }
        let mut events = Vec::with_capacity(EVENTS_MAX);
        let mut heard_at = Instant::now();
        while waiting > 0 {
            wait(&self.epoll, &mut events, W::SHARES_THE_THREAD)?;
            if W::SHARES_THE_THREAD {
                workload.share()?;
            }
            if events.is_empty() {
                ensure!(
                    W::SHARES_THE_THREAD && heard_at.elapsed() < PATIENCE,
                    "no answer for {PATIENCE:?}"
                );
                continue;
            }
            heard_at = Instant::now();
            budget.look(heard_at);
            for event in events.drain(..) {
                let index = usize::try_from(event.data.u64())?;
                let flags = event.flags; // by value: the kernel packs its events
                if flags.contains(epoll::EventFlags::OUT) {
                    self.flush(index)?;
                }
                // Everything but "can be written to": bytes, an end, an error.
                if flags != epoll::EventFlags::OUT {
                    let was_waiting = self.connections[index].is_waiting();
                    self.receive(index, requests, workload, meter)?;
                    let is_done = was_waiting && !self.connections[index].is_waiting();
                    if is_done && !self.ask(index, requests, workload, &mut budget)? {
                        waiting -= 1;
                    }
                }
                if W::SHARES_THE_THREAD {
                    workload.share()?;
                }
            }
        }
        Ok(())
    }

    /// Sends a connection's next requests; `false` if there are none.
    fn ask<W: Workload>(
        &mut self,
        index: usize,
        requests: &Requests,
        workload: &mut W,
        budget: &mut Budget,
    ) -> Result<bool> {
        let connection = &mut self.connections[index];
        for _ in 0..self.depth {
            if !budget.allows() {
                break;
            }
            let Some(ask) = workload.next(index) else {
                break;
            };
            budget.spend();
            connection.ask(requests, ask);
        }
        if !connection.is_waiting() {
            return Ok(false);
        }
        if !connection.send()? {
            self.watch(index, epoll::EventFlags::IN | epoll::EventFlags::OUT)?;
        }
        Ok(true)
    }

    /// Sends more of the output that could not be sent at once.
    fn flush(&mut self, index: usize) -> Result<()> {
        if self.connections[index].write()? {
            self.watch(index, epoll::EventFlags::IN)?;
        }
        Ok(())
    }

    fn watch(&self, index: usize, flags: epoll::EventFlags) -> Result<()> {
        let mark = epoll::EventData::new_u64(u64::try_from(index)?);
        epoll::modify(&self.epoll, self.connections[index].stream(), mark, flags)?;
        Ok(())
    }

    /// Reads once, or all that the stream keeps, and judges the replies that are complete.
    fn receive<W: Workload>(
        &mut self,
        index: usize,
        requests: &Requests,
        workload: &mut W,
        meter: &mut Meter,
    ) -> Result<()> {
        let connection = &mut self.connections[index];
        while let Some(bytes) = read(connection.stream_mut(), &mut self.chunk)? {
            if self.acknowledges_at_once {
                // The kernel forgets it now and then.
                set_tcp_quickack(connection.stream(), true)?;
            }
            connection.hear(index, &self.chunk[..bytes], requests, workload, meter)?;
            if !S::KEEPS_INPUT {
                break;
            }
        }
        Ok(())
    }
}

/// Waits until something is ready, or, if `is_shared`, only looks.
///
/// # Errors
/// The kernel's.
pub fn wait(epoll: &OwnedFd, events: &mut Vec<epoll::Event>, is_shared: bool) -> Result<()> {
    let patience = if is_shared { Duration::ZERO } else { PATIENCE };
    let timeout = Timespec::try_from(patience)?;
    loop {
        match epoll::wait(epoll, spare_capacity(events), Some(&timeout)) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error).context("epoll_wait"),
        }
    }
}

#[cfg(test)]
mod tests;
