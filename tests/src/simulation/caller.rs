//! One client, its connection, and the bytes between them.
//!
//! The two directions are queues of bytes. The server is driven as the shell drives its
//! connections: nothing comes to it while the output is at its bound.

use std::collections::VecDeque;

use super::ask::Ask;

/// One client of the simulation, over all its connections.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(super) struct Caller {
    /// The number of its connection; a new one for each.
    pub(super) conn: u64,
    pub(super) state: State,
    pub(super) is_binary: bool,
    /// Requests arrive one at a time.
    pub(super) is_alone: bool,
    /// It does not read.
    pub(super) stalled: bool,
    /// It has sent its last request.
    pub(super) finished: bool,
    /// On the way to the server.
    pub(super) to_server: Vec<u8>,
    /// The output is at its bound, and requests may wait at the server.
    pub(super) full: bool,
    /// Answers on the way to the client.
    pub(super) output: Vec<u8>,
    pub(super) output_max: usize,
    /// Bytes since the connection began: written by the client, come to the server, done with
    /// there, and read by the client.
    pub(super) written: u64,
    pub(super) arrived: u64,
    pub(super) consumed: u64,
    pub(super) read: u64,
    /// What it waits for, in order.
    pub(super) asks: VecDeque<Ask>,
    pub(super) asked: u32,
    /// Locks whose answer is on the way: where it ends, the key, and the request's number.
    pub(super) grants: VecDeque<(u64, usize, u32)>,
    /// By key: the number of the last request after which it may not count on the lock.
    pub(super) relinquished: Vec<u32>,
    /// Which keys an unfinished listing has shown, a bit a key.
    pub(super) listed: u64,
}

/// How much of a connection there is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum State {
    None,
    Open,
    /// The client has closed its side; what it sent is on the way.
    HalfClosed,
    /// The server has closed; what it sent is on the way.
    Ended,
}

impl Caller {
    pub(super) fn new(keys: usize) -> Self {
        Self {
            conn: 0,
            state: State::None,
            is_binary: false,
            is_alone: false,
            stalled: false,
            finished: false,
            to_server: Vec::new(),
            full: false,
            output: Vec::new(),
            output_max: 0,
            written: 0,
            arrived: 0,
            consumed: 0,
            read: 0,
            asks: VecDeque::new(),
            asked: 0,
            grants: VecDeque::new(),
            relinquished: vec![0; keys],
            listed: 0,
        }
    }

    /// A new connection of the same client.
    pub(super) fn connect(&mut self, conn: u64) {
        self.drop_connection();
        self.conn = conn;
        self.state = State::Open;
    }

    /// Nothing is left of the connection on either side.
    pub(super) fn drop_connection(&mut self) {
        self.state = State::None;
        self.stalled = false;
        self.finished = false;
        self.full = false;
        self.to_server.clear();
        self.output.clear();
        self.asks.clear();
        self.grants.clear();
        self.relinquished.fill(0);
        self.written = 0;
        self.arrived = 0;
        self.consumed = 0;
        self.read = 0;
        self.asked = 0;
        self.listed = 0;
    }

    /// Where in its bytes a server has stopped that has closed: at what is to end the connection,
    /// or at a request before that of which the core has not heard.
    pub(super) fn left_off(&self) -> u64 {
        let is_missed =
            |ask: &&Ask| ask.ends_connection() || ask.reaches_core() && ask.executed == 0;
        let missed = self.asks.iter().find(is_missed);
        missed.map_or(self.arrived, |ask| ask.start)
    }

    /// How many bytes may come to the server now: none while it does not read.
    pub(super) fn may_arrive(&self) -> usize {
        let serves = matches!(self.state, State::Open | State::HalfClosed);
        if !serves || self.full || self.output.len() >= self.output_max {
            return 0;
        }
        if !self.is_alone {
            return self.to_server.len();
        }
        let until = self.asks.front().map_or(self.arrived, |ask| ask.end);
        let left = until.saturating_sub(self.arrived);
        usize::try_from(left).map_or(0, |left| left.min(self.to_server.len()))
    }
}
