//! The core as a server: connections without sockets, and a clock that is moved by hand or runs.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant as Moment, SystemTime};

use latchd_core::server::StateMachine;
use latchd_core::{Action, Config, ConnId, Instant, Limits, Server};
use latchd_protocol::connection::Progress;

use crate::peer::{Patience, Peer, Received};
use crate::transcript::End;

/// Where the clock starts: not at a whole second, and not at 0.
const START_MS: u64 = 123_457;
/// Where the wall clock stands at the monotonic 0: November 2023.
const UNIX_S_AT_START: u64 = 1_700_000_000;
/// How much time goes by between two ticks.
const TICK_MS: u64 = 250;

/// How bytes arrive. However they do, the answers are the same.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Arrival {
    /// As they were sent.
    Whole,
    /// A few at a time, with a call of the connection for each few; of a long transfer, only
    /// [`CUT_BYTES`] at both ends.
    Cut {
        /// How many.
        bytes: usize,
    },
}

/// The bytes at each end of a transfer that arrive a few at a time. Longer than any line but that
/// of a get: between the ends is the inside of a value, of a list of keys, or of a line that is
/// swallowed.
pub const CUT_BYTES: usize = 70_000;
/// In pieces of which size the rest arrives: no part of anything.
const INSIDE_BYTES: usize = 4_093;

/// The clock.
#[derive(Clone, Copy, Debug)]
enum Time {
    /// As many milliseconds as have been waited for.
    ByHand(u64),
    /// The time since that moment.
    Since(Moment),
}

/// A server, its clients, and their time.
#[derive(Debug)]
pub struct MemoryPeer {
    server: Server,
    time: Time,
    arrival: Arrival,
    pipes: BTreeMap<char, Pipe>,
}

/// Bytes on the way to a client.
#[derive(Debug)]
struct Pipe {
    conn: ConnId,
    output: Vec<u8>,
    is_closed: bool,
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
            server: Server::new(Config::new(Limits::default(), unix_s_at_start)),
            time,
            arrival,
            pipes: BTreeMap::new(),
        }
    }

    fn now(&self) -> Instant {
        Instant::from_millis(match self.time {
            Time::ByHand(now_ms) => now_ms,
            Time::Since(start) => u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX),
        })
    }

    fn pipe(&mut self, conn: char) -> &mut Pipe {
        let now = self.now();
        self.pipes.entry(conn).or_insert_with(|| Pipe {
            conn: self.server.open(now),
            output: Vec::new(),
            is_closed: false,
        })
    }

    fn arrive(&mut self, conn: char, bytes: &[u8]) {
        let now = self.now();
        if let Some(pipe) = self.pipes.get(&conn).filter(|pipe| !pipe.is_closed) {
            self.server.receive(now, pipe.conn, bytes);
        }
        self.act();
    }

    /// Performs the server's actions.
    fn act(&mut self) {
        loop {
            let action = self.server.poll();
            self.server.machine().check();
            let Some(conn) = action.conn() else { return };
            let pipe = self.pipes.values_mut().find(|pipe| pipe.conn == conn);
            let pipe = pipe.expect("it is a client's");
            match action {
                Action::Send(_, out) => pipe.output.append(&mut out.into()),
                Action::Read(_) | Action::Wait(_) => {}
                Action::Close(_) => pipe.is_closed = true,
            }
            check_needs(&self.server, conn);
        }
    }
}

/// A connection that is in need of input has not got it.
fn check_needs<M: StateMachine>(server: &Server<M>, conn: ConnId) {
    if let Progress::NeedsInput { at_least } = server.progress(conn) {
        let kept = server.kept_bytes(conn);
        assert!(at_least > kept, "it waits for {at_least} bytes of {kept}");
    }
}

/// Hands bytes to a server, and appends all its answers to `answers`. `check` looks at the state
/// machine before each action, and in the end.
///
/// # Panics
/// If the connection waits for bytes that it has, or for room that there is, or another one is named.
pub fn exchange<M: StateMachine>(
    server: &mut Server<M>,
    now: Instant,
    conn: ConnId,
    bytes: &[u8],
    answers: &mut Vec<u8>,
    check: impl Fn(&M),
) -> Progress {
    server.receive(now, conn, bytes);
    loop {
        let action = server.poll();
        check(server.machine());
        match action {
            Action::Wait(_) => break,
            Action::Send(to, out) => {
                assert_eq!(to, conn);
                answers.append(&mut out.into());
            }
            Action::Read(to) | Action::Close(to) => assert_eq!(to, conn),
        }
    }
    check_needs(server, conn);
    let progress = server.progress(conn);
    assert_ne!(progress, Progress::OutputFull, "all of it is sent");
    progress
}

impl Peer for MemoryPeer {
    fn send(&mut self, conn: char, bytes: &[u8]) -> io::Result<()> {
        self.pipe(conn);
        match self.arrival {
            Arrival::Whole => self.arrive(conn, bytes),
            Arrival::Cut { bytes: few } => {
                let (head, rest) = bytes.split_at(bytes.len().min(CUT_BYTES));
                let (inside, tail) = rest.split_at(rest.len().saturating_sub(CUT_BYTES));
                for (part, length) in [(head, few), (inside, INSIDE_BYTES), (tail, few)] {
                    for piece in part.chunks(length) {
                        self.arrive(conn, piece);
                    }
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
        let pipe = self.pipe(conn);
        if pipe.output.is_empty() {
            return Ok(if pipe.is_closed {
                Received::Closed
            } else {
                Received::Nothing
            });
        }
        buffer.append(&mut pipe.output);
        Ok(Received::Bytes)
    }

    fn end(&mut self, conn: char, how: End) -> io::Result<()> {
        let now = self.now();
        let pipe = self.pipe(conn);
        pipe.is_closed = true;
        let conn_id = pipe.conn;
        self.server.close(now, conn_id);
        self.server.machine().check();
        if how != End::HalfClose {
            self.pipes.remove(&conn);
        }
        self.act();
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
            let since_1970 = Duration::from_secs(UNIX_S_AT_START) + Duration::from_millis(now_ms);
            self.server
                .advance(Instant::from_millis(now_ms), since_1970);
            self.act();
        }
        self.server.machine().check();
    }

    fn owns_time(&self) -> bool {
        matches!(self.time, Time::ByHand(_))
    }
}
