//! Every fixed bound of the text protocols, by name, with the result of exceeding it.

/// The longest request line, in bytes before its line end, for all commands but `get`, `gets`,
/// `gat` and `gats`. A longer one is `CLIENT_ERROR line too long`, and the connection closes.
///
/// Source: memcached 1.6.45 `proto_text.c`, `try_read_command_ascii`, which searches this many bytes for a line
/// end.
pub const LINE_BYTES_MAX: usize = 2048;

/// The default for the longest line of a multi-key `get`, `gets`, `gat` or `gats`, in bytes before its line
/// end: enough for 16,000 of the longest keys. memcached has no bound here but its memory.
pub const GET_LINE_BYTES_MAX: usize = 4 << 20;

/// The most words of a line that are split. The rest of the line is ignored, except for the keys of a get.
///
/// Source: memcached 1.6.45 `mcmc.h`, `MCMC_PARSER_MAX_TOKENS`, less one for the end.
pub const TOKENS_MAX: usize = 23;

/// The most words of a meta command, including its name and key. More are `CLIENT_ERROR options flags are too
/// long`.
///
/// Source: memcached 1.6.45 `proto_parser.h`, `MFLAG_MAX_OPT_LENGTH`.
pub const META_TOKENS_MAX: usize = 20;

/// The longest opaque token, in bytes behind its `O`; a longer one is
/// `CLIENT_ERROR opaque token too long`.
///
/// Source: memcached 1.6.45 `doc/protocol.txt`, "opaque". Its code counts the letter too and takes
/// one byte less.
pub const OPAQUE_BYTES_MAX: usize = 32;

/// The longest value that a request can announce, in bytes. A longer one, or less than 0, is `CLIENT_ERROR bad
/// command line format`. Values over [`value_bytes_max`](super::WireLimits::value_bytes_max) are skipped, not
/// stored.
///
/// Source: memcached 1.6.45 `proto_parser.c`, `_process_request_storage`.
pub const ANNOUNCED_BYTES_MAX: u32 = i32::MAX as u32 - 2;
