//! Writes a request.

use super::cas::CasPair;
use super::{PairedRequest, Piece};

/// A request that is being written.
#[derive(Debug)]
pub struct RequestBuilder {
    request: PairedRequest,
}

impl RequestBuilder {
    /// An empty one, about a key or none.
    #[must_use]
    pub fn new(key: Option<&str>) -> Self {
        let request = PairedRequest {
            pieces: Vec::new(),
            key: key.map(str::to_owned),
            made_up_cas: false,
            alone: false,
            allows: None,
        };
        Self { request }
    }

    /// Adds bytes.
    pub fn push(&mut self, text: impl AsRef<[u8]>) -> &mut Self {
        if let Some(Piece::Bytes(bytes)) = self.request.pieces.last_mut() {
            bytes.extend_from_slice(text.as_ref());
        } else {
            self.request
                .pieces
                .push(Piece::Bytes(text.as_ref().to_vec()));
        }
        self
    }

    /// Adds a version, for each server the one it gave.
    pub fn push_cas(&mut self, pair: CasPair, binary: bool) -> &mut Self {
        let CasPair { theirs, ours } = pair;
        self.request.pieces.push(Piece::Cas {
            theirs,
            ours,
            binary,
        });
        self
    }

    /// See [`PairedRequest::made_up_cas`].
    pub fn made_up_cas(&mut self) {
        self.request.made_up_cas = true;
    }

    /// See [`PairedRequest::alone`].
    pub fn alone(&mut self) {
        self.request.alone = true;
    }

    /// The request.
    #[must_use]
    pub fn done(self) -> PairedRequest {
        self.request
    }
}
