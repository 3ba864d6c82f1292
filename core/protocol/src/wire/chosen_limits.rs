//! The bounds of a connection that a transport can choose; the fixed ones are in `limits.rs`.

use super::allowed::Allowed;
use super::limits::GET_LINE_BYTES_MAX;
use crate::value::VALUE_BYTES_MAX_DEFAULT;

/// The bounds of one [`Connection`](crate::connection::Connection) that a transport can choose.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct WireLimits {
    /// The largest value in bytes, as in `Limits::value_bytes_max`. A larger one is `SERVER_ERROR object too
    /// large for cache`, and its bytes are skipped.
    pub value_bytes_max: usize,
    /// The longest line of a multi-key get; [`GET_LINE_BYTES_MAX`] by default. A longer one is
    /// `CLIENT_ERROR line too long`, and the connection closes.
    pub get_line_bytes_max: usize,
    /// The allowed commands; by default everything but `shutdown`.
    pub allowed: Allowed,
    /// Whether the transport supports requests that wait (see [`crate::wait`]). By default it does not, and `w`
    /// counts as 0.
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

impl Default for WireLimits {
    fn default() -> Self {
        Self::new(VALUE_BYTES_MAX_DEFAULT)
    }
}
