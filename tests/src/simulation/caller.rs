//! One client, its connection, and the bytes between them.
//!
//! The two directions are queues of bytes. The server is driven as the shell drives its
//! connections: it gets no bytes while its output is at its bound.

use latchd_core::ConnId;

/// One client of the simulation, over all its connections.
#[derive(Debug)]
pub(super) struct Caller {
    /// Its connection; a new one for each.
    pub(super) conn: ConnId,
    pub(super) state: State,
    pub(super) is_binary: bool,
    /// It does not read.
    pub(super) stalled: bool,
    /// It has sent its last request.
    pub(super) finished: bool,
    /// On the way to the server.
    pub(super) to_server: Vec<u8>,
    /// Answers on the way to the client.
    pub(super) output: Vec<u8>,
    pub(super) output_max: usize,
    /// Bytes since the connection began: written by the client, and come to the server.
    pub(super) written: u64,
    pub(super) arrived: u64,
    pub(super) asked: u32,
}

/// How much of a connection there is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum State {
    None,
    Open,
    /// The client has closed its side; its last bytes are on the way.
    HalfClosed,
    /// The server has closed; its last bytes are on the way.
    Ended,
}

impl Caller {
    /// A client without a connection.
    pub(super) const fn new() -> Self {
        Self {
            conn: ConnId::from_number(0),
            state: State::None,
            is_binary: false,
            stalled: false,
            finished: false,
            to_server: Vec::new(),
            output: Vec::new(),
            output_max: 0,
            written: 0,
            arrived: 0,
            asked: 0,
        }
    }

    /// Whether its connection stands, as far as the server knows.
    pub(super) const fn is_served(&self) -> bool {
        matches!(self.state, State::Open | State::HalfClosed)
    }
}
