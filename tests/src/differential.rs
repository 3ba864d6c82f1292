//! The same requests to latchd and to a peer, and a comparison of their answers.
//!
//! Requests go out in pipelined batches, the same to both except for CAS numbers: each server gets
//! the numbers that it gave itself. Between requests stand markers, requests with a known answer.
//! They tell the answers to each request apart, however many there are, even if a server reads a
//! request in an unexpected way.
//!
//! - D1: the answers are the same, byte for byte, except for CAS numbers (which must map one to
//!   one), and times (which may be a second apart: the servers' clocks are not the same).
//! - D2: every other difference is one that [`allow`] lists, with its reason.
//! - D3: the counters of both are the same, where [`counters`] says so.

pub mod allow;
pub mod binary;
pub mod cas;
pub mod counters;
pub mod locks;
pub mod packet;
pub mod probes;
pub mod reply;
pub mod run;
pub mod session;
pub mod text;

use latchd_protocol::item::Cas;
use latchd_protocol::wire::binary::RequestPacket;

use cas::CasPair;

/// One request, and the data for comparing its answers.
#[derive(Clone, Debug, Default)]
pub struct PairedRequest {
    theirs: Vec<u8>,
    /// The same, except for CAS numbers.
    ours: Vec<u8>,
    /// The key of the versions in its answers; `None` if they show none.
    pub key: Option<String>,
    /// The CAS of the item was made up by the client (`E`), so nothing follows from its order.
    pub made_up_cas: bool,
    /// It is sent when everything before it has been answered. memcached counts in place only in
    /// an item that no unsent answer refers to, and so a number's padding depends on pipelining.
    pub alone: bool,
    /// An entry of the [allow list](allow) that holds for this request.
    pub allows: Option<&'static str>,
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
    pub fn new(bytes: impl AsRef<[u8]>) -> Self {
        let mut request = Self::default();
        request.push(bytes);
        request
    }

    /// A request about a key that is the same to both, as far as it is written yet.
    #[must_use]
    pub fn about(key: &str, bytes: impl AsRef<[u8]>) -> Self {
        Self {
            key: Some(key.to_owned()),
            ..Self::new(bytes)
        }
    }

    /// A packet, with a version or none.
    ///
    /// # Panics
    /// If it is too long for a packet.
    #[must_use]
    pub fn packet(packet: &RequestPacket<'_>, cas: Option<CasPair>) -> Self {
        let key = String::from_utf8_lossy(packet.key).into_owned();
        let mut request = Self {
            key: (!key.is_empty()).then_some(key),
            ..Self::default()
        };
        for (number, bytes) in [
            (cas.map(|cas| cas.theirs), &mut request.theirs),
            (cas.map(|cas| cas.ours), &mut request.ours),
        ] {
            let packet = RequestPacket {
                cas: number.and_then(Cas::new),
                ..*packet
            };
            packet.encode(bytes).expect("nothing in it is too long");
        }
        request
    }

    /// Adds bytes.
    pub fn push(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        self.theirs.extend_from_slice(bytes.as_ref());
        self.ours.extend_from_slice(bytes.as_ref());
        self
    }

    /// Adds a version in digits, for each server the one it gave.
    pub fn push_cas(&mut self, CasPair { theirs, ours }: CasPair) -> &mut Self {
        self.theirs.extend_from_slice(theirs.to_string().as_bytes());
        self.ours.extend_from_slice(ours.to_string().as_bytes());
        self
    }

    /// The bytes that one of the two is sent.
    #[must_use]
    pub fn bytes(&self, side: Side) -> &[u8] {
        match side {
            Side::Theirs => &self.theirs,
            Side::Ours => &self.ours,
        }
    }
}
