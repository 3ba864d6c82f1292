//! Every bound of the text protocols, by name. What happens at each is said beside it.

use super::allowed::Allowed;
use crate::limits::Limits;

/// The longest request line, in bytes before its line end, for all commands but `get`, `gets`,
/// `gat` and `gats`. A longer one is `CLIENT_ERROR line too long`, and the connection closes.
///
/// Source: memcached 1.6.45 `proto_text.c`, `try_read_command_ascii`, which looks for a line end in
/// as many bytes before it gives up.
pub const LINE_BYTES_MAX: usize = 2048;

/// The longest line of a multi-key `get`, `gets`, `gat` or `gats`, in bytes before its line end, by
/// default: room for 16,000 of the longest keys. memcached has no bound here but its memory.
pub const GET_LINE_BYTES_MAX: usize = 4 << 20;

/// How many words of a line are told apart; what stands behind them is not looked at, except for
/// the keys of a get.
///
/// Source: memcached 1.6.45 `mcmc.h`, `MCMC_PARSER_MAX_TOKENS`, less one for the end.
pub const TOKENS_MAX: usize = 23;

/// How many words a meta command may have, its name and key included; more are
/// `CLIENT_ERROR options flags are too long`.
///
/// Source: memcached 1.6.45 `proto_parser.h`, `MFLAG_MAX_OPT_LENGTH`.
pub const META_TOKENS_MAX: usize = 20;

/// The longest opaque token, in bytes behind its `O`; a longer one is
/// `CLIENT_ERROR opaque token too long`.
///
/// Source: memcached 1.6.45 `doc/protocol.txt`, "opaque". Its code counts the letter too and takes
/// one byte less.
pub const OPAQUE_BYTES_MAX: usize = 32;

/// The longest value that a request can announce, in bytes; more, or less than 0, is
/// `CLIENT_ERROR bad command line format`. What may be stored is
/// [`value_bytes_max`](WireLimits::value_bytes_max); what is longer than that is read past.
///
/// Source: memcached 1.6.45 `proto_parser.c`, `_process_request_storage`.
pub const ANNOUNCED_BYTES_MAX: u32 = i32::MAX as u32 - 2;

/// The bounds of one [`Connection`](crate::connection::Connection) that a transport may choose.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct WireLimits {
    /// The largest value in bytes, as in [`Limits::value_bytes_max`]. A larger one is
    /// `SERVER_ERROR object too large for cache`, and its bytes are read past.
    pub value_bytes_max: usize,
    /// The longest line of a multi-key get; [`GET_LINE_BYTES_MAX`] by default. A longer one is
    /// `CLIENT_ERROR line too long`, and the connection closes.
    pub get_line_bytes_max: usize,
    /// What clients may ask for; everything but the end of the server by default.
    pub allowed: Allowed,
    /// Whether the transport goes on with requests that wait (see [`crate::wait`]); not by default: `w` is
    /// as if it were 0 then.
    pub waits: bool,
}

impl WireLimits {
    /// The bounds for values of up to `value_bytes_max` bytes.
    #[must_use]
    pub const fn new(value_bytes_max: usize) -> Self {
        Self {
            value_bytes_max,
            get_line_bytes_max: GET_LINE_BYTES_MAX,
            allowed: Allowed::DEFAULT,
            waits: false,
        }
    }
}

impl From<&Limits> for WireLimits {
    /// The bounds for the connections of a core within these limits.
    fn from(limits: &Limits) -> Self {
        Self::new(limits.value_bytes_max)
    }
}

impl Default for WireLimits {
    fn default() -> Self {
        Self::from(&Limits::default())
    }
}
