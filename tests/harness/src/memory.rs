//! The core as a server: connections without sockets, and a clock that is moved by hand or goes by
//! itself.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant as Moment, SystemTime};

use latchd_core::connection::Progress;
use latchd_core::engine::Config;
use latchd_core::wire::WireLimits;
use latchd_core::{ConnId, Connection, Core, Event, Instant, Limits, Output};

use crate::peer::{Patience, Peer, Received};
use crate::transcript::End;

/// Where the clock starts: not at a whole second, and not at 0.
const START_MS: u64 = 123_457;
/// Where the wall clock stands at the monotonic 0: November 2023.
const UNIX_S_AT_START: u64 = 1_700_000_000;
/// How much may wait to be read before a connection pauses, as in the server.
const OUT_BYTES_MAX: usize = 64 << 10;
/// How much time goes by between two ticks.
const TICK_MS: u64 = 250;

/// How bytes arrive. However they do, the answers are the same.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Arrival {
    /// As they were sent.
    Whole,
    /// A few at a time, with a call of the connection for each few.
    Cut {
        /// How many.
        bytes: usize,
    },
}

/// What time it is.
#[derive(Clone, Copy, Debug)]
enum Time {
    /// As many milliseconds as have been waited for.
    ByHand(u64),
    /// As long as it has been.
    Since(Moment),
}

/// A core, its clients, and their time.
#[derive(Debug)]
pub struct MemoryPeer {
    core: Core,
    time: Time,
    arrival: Arrival,
    clients: BTreeMap<char, Client>,
    opened: u64,
}

#[derive(Debug)]
struct Client {
    id: ConnId,
    connection: Connection,
    /// Arrived, and not yet done with.
    input: Vec<u8>,
    /// How long `input` must be before the connection looks at it again.
    at_least: usize,
    /// On the way to the client.
    output: Vec<u8>,
    closed: bool,
}

impl MemoryPeer {
    /// An empty core.
    #[must_use]
    pub fn new(arrival: Arrival) -> Self {
        Self::at(Time::ByHand(START_MS), UNIX_S_AT_START, arrival)
    }

    /// An empty core on the real clock, for a comparison with servers that have no other.
    #[must_use]
    pub fn on_real_clock() -> Self {
        let unix_s = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let unix_s = unix_s.map_or(0, |since| since.as_secs());
        Self::at(Time::Since(Moment::now()), unix_s, Arrival::Whole)
    }

    fn at(time: Time, unix_s_at_start: u64, arrival: Arrival) -> Self {
        Self {
            core: Core::new(Config::new(Limits::default(), unix_s_at_start)),
            time,
            arrival,
            clients: BTreeMap::new(),
            opened: 0,
        }
    }

    fn now(&self) -> Instant {
        Instant::from_millis(match self.time {
            Time::ByHand(now_ms) => now_ms,
            Time::Since(start) => u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX),
        })
    }

    fn client(&mut self, conn: char) -> &mut Client {
        let now = self.now();
        self.clients.entry(conn).or_insert_with(|| {
            self.opened += 1;
            let id = ConnId::from_number(self.opened);
            self.core.handle(now, Event::Opened(id));
            Client {
                id,
                connection: Connection::new(WireLimits::new(self.core.limits().value_bytes_max)),
                input: Vec::new(),
                at_least: 0,
                output: Vec::new(),
                closed: false,
            }
        })
    }

    fn arrive(&mut self, conn: char, bytes: &[u8]) {
        let now = self.now();
        let Some(client) = self.clients.get_mut(&conn) else {
            return;
        };
        client.input.extend_from_slice(bytes);
        while !client.closed && client.input.len() >= client.at_least {
            let mut out = Output::new();
            let mut core = self.core.at(now, client.id);
            let (done, progress) =
                client
                    .connection
                    .drive(&client.input, &mut core, &mut out, OUT_BYTES_MAX);
            client.input.drain(..done);
            client.output.append(&mut Vec::from(out));
            if let Progress::NeedsInput { at_least } = progress {
                assert!(
                    at_least > client.input.len(),
                    "a connection that waits for what it has waits for ever"
                );
                client.at_least = at_least;
            } else if progress == Progress::Close {
                client.closed = true;
                self.core.handle(now, Event::Closed(client.id));
            } else {
                client.at_least = 0;
            }
        }
        self.core.check();
    }

    fn close(&mut self, conn: char) {
        let now = self.now();
        if let Some(client) = self.clients.get_mut(&conn)
            && !client.closed
        {
            client.closed = true;
            self.core.handle(now, Event::Closed(client.id));
            self.core.check();
        }
    }
}

impl Peer for MemoryPeer {
    fn send(&mut self, conn: char, bytes: &[u8]) -> io::Result<()> {
        self.client(conn);
        match self.arrival {
            Arrival::Whole => self.arrive(conn, bytes),
            Arrival::Cut { bytes: length } => {
                for few in bytes.chunks(length) {
                    self.arrive(conn, few);
                }
            }
        }
        Ok(())
    }

    fn receive(
        &mut self,
        conn: char,
        buffer: &mut Vec<u8>,
        _patience: Patience,
    ) -> io::Result<Received> {
        let client = self.client(conn);
        if client.output.is_empty() {
            return Ok(if client.closed {
                Received::Closed
            } else {
                Received::Nothing
            });
        }
        buffer.append(&mut client.output);
        Ok(Received::Bytes)
    }

    fn end(&mut self, conn: char, how: End) -> io::Result<()> {
        self.client(conn);
        self.close(conn);
        if how != End::HalfClose {
            self.clients.remove(&conn);
        }
        Ok(())
    }

    fn wait(&mut self, span: Duration) {
        let Time::ByHand(mut now_ms) = self.time else {
            return std::thread::sleep(span);
        };
        let end_ms = now_ms + u64::try_from(span.as_millis()).unwrap_or(u64::MAX / 2);
        while now_ms < end_ms {
            now_ms = (now_ms + TICK_MS).min(end_ms);
            self.time = Time::ByHand(now_ms);
            self.core.handle(Instant::from_millis(now_ms), Event::Tick);
        }
        self.core.check();
    }

    fn owns_time(&self) -> bool {
        matches!(self.time, Time::ByHand(_))
    }
}
