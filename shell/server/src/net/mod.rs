//! Sockets: listening, reading, writing, TLS, dead peers. It knows nothing of requests.
//!
//! Uses `config`, `os`, `stats` and `sync`.

pub(crate) mod dead_peer;
pub(crate) mod lingering;
pub(crate) mod listen;
pub(crate) mod reactor;
pub(crate) mod send;
pub(crate) mod socket;
#[cfg(feature = "tls")]
pub(crate) mod tls;
#[cfg(not(feature = "tls"))]
#[path = "without_tls.rs"]
pub(crate) mod tls;
pub(crate) mod transport;
