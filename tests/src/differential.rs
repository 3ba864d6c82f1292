//! The same requests to latchd and to the server it is compared with, answer beside answer.
//!
//! Requests go out in pipelined batches, the same to both but for CAS numbers: each server is sent
//! the numbers that it gave itself. Between requests stand markers, requests whose answer is known,
//! so that the answers to each request are told apart however many there are, even where a server
//! reads a request otherwise than it was meant.
//!
//! - D1: the answers are the same, byte for byte, but for CAS numbers (which must map one to one),
//!   and times (which may be a second apart: the servers' clocks are not the same).
//! - D2: every other difference is one that [`allow`] lists, with its reason.

pub mod allow;
pub mod binary;
pub mod cas;
pub mod locks;
pub mod packet;
pub mod probes;
pub mod reply;
pub mod request_builder;
pub mod run;
pub mod session;
pub mod text;

/// One request, and what is needed to compare its answers.
#[derive(Clone, Debug)]
pub struct PairedRequest {
    /// What is sent.
    pub pieces: Vec<Piece>,
    /// The key whose versions its answers tell; `None` if they tell none.
    pub key: Option<String>,
    /// The CAS of the item was made up by the client (`E`), so nothing follows from its order.
    pub made_up_cas: bool,
    /// It is sent when everything before it has been answered. memcached counts in place only in
    /// an item that no unsent answer refers to, and so a number's padding depends on pipelining.
    pub alone: bool,
    /// An entry of the [allow list](allow) that holds for this request.
    pub allows: Option<&'static str>,
}

/// A part of a request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Piece {
    /// The same to both.
    Bytes(Vec<u8>),
    /// A CAS number, in decimal or in the eight bytes of a binary header.
    Cas {
        /// What the peer is sent.
        theirs: u64,
        /// What latchd is sent.
        ours: u64,
        /// As eight bytes.
        binary: bool,
    },
}

/// Which of the two servers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Side {
    /// The peer.
    Theirs,
    /// latchd.
    Ours,
}

impl PairedRequest {
    /// A request that is the same to both.
    #[must_use]
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self {
            pieces: vec![Piece::Bytes(bytes.into())],
            key: None,
            made_up_cas: false,
            alone: false,
            allows: None,
        }
    }

    /// The bytes that one of the two is sent.
    #[must_use]
    pub fn bytes(&self, side: Side) -> Vec<u8> {
        let mut bytes = Vec::new();
        for piece in &self.pieces {
            match piece {
                Piece::Bytes(same) => bytes.extend_from_slice(same),
                Piece::Cas {
                    theirs,
                    ours,
                    binary,
                } => {
                    let number = if side == Side::Theirs { *theirs } else { *ours };
                    if *binary {
                        bytes.extend_from_slice(&number.to_be_bytes());
                    } else {
                        bytes.extend_from_slice(number.to_string().as_bytes());
                    }
                }
            }
        }
        bytes
    }
}
