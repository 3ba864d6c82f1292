//! The three protocols: how requests become commands, and replies become bytes.
//!
//! Each protocol has a `request` and a `reply` module, each of them with `decode` and `encode`:
//! the server decodes requests and encodes replies, a client does the opposite with the same code.
//!
//! A server's decoder returns one [`Step`] and keeps nothing. State between two looks at the input is in
//! [`Connection`](crate::connection::Connection).

pub mod allowed;
pub(crate) mod authenticate;
pub mod binary;
pub mod chosen_limits;
pub mod classic;
pub mod cluster;
pub mod envelope;
pub mod limits;
pub mod line;
pub mod local;
pub mod locked_reply;
pub mod meta;
pub(crate) mod scan;
pub(crate) mod status_line;
pub mod step;
pub(crate) mod text;

pub use allowed::{Admission, Allowed, Protocols};
pub use authenticate::LOGIN_BYTES_MAX;
pub use chosen_limits::WireLimits;
pub use envelope::Envelope;
pub use local::{LocalResponse, VERSION};
pub use locked_reply::LockedReply;
pub use meta::KeyBuffer;
pub(crate) use scan::is_plain;
pub use scan::u64_from;
pub use status_line::NOT_PRIMARY;
pub use step::{Claim, Cursor, Operation, Step};

/// Bytes that no server sends. The connection is of no use any more.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Malformed;

/// The first byte of every binary request. No text command begins with it, so the first byte of a connection
/// decides its protocol.
///
/// Source: memcached 1.6.45 `protocol_binary.h`, `PROTOCOL_BINARY_REQ`.
pub const BINARY_MAGIC: u8 = binary::REQUEST_MAGIC;
