//! The status lines of both text protocols, each written once.
//!
//! Source: memcached 1.6.45 `proto_text.c` and `proto_parser.c`, as seen on a live server; for the
//! locks yrmcds 1.1 `docs/locking.md`.

use alloc::vec::Vec;

use crate::reply::Refusal;

pub(crate) const ERROR: &str = "ERROR";
pub(crate) const BAD_FORMAT: &str = "CLIENT_ERROR bad command line format";
pub(crate) const BAD_EXPTIME: &str = "CLIENT_ERROR invalid exptime argument";
pub(crate) const BAD_DELTA: &str = "CLIENT_ERROR invalid numeric delta argument";
pub(crate) const BAD_CHUNK: &str = "CLIENT_ERROR bad data chunk";
pub(crate) const LINE_TOO_LONG: &str = "CLIENT_ERROR line too long";
pub(crate) const TOO_LARGE: &str = "SERVER_ERROR object too large for cache";
/// Source: memcached 1.6.45 `memcached.c`, `try_read_network`.
pub(crate) const NO_ROOM_TO_READ: &str = "SERVER_ERROR out of memory reading request";
/// Source: memcached 1.6.45 `proto_text.c`, `process_memlimit_command`.
pub(crate) const MEMORY_REFUSED: &str = "MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust";
pub(crate) const OUT_OF_MEMORY: &str = "SERVER_ERROR out of memory";

/// For a reply that does not fit its command. Only a driver that mixes up its replies sends it.
pub(crate) const MISMATCH: &str = "SERVER_ERROR the reply does not fit the request";

/// For a session or a lease whose time must be on the disk first, and is not.
pub(crate) const UNRECORDED: &str =
    "SERVER_ERROR cannot record the time on disk; see the server's log";

/// For every request while the server does not serve its partition.
pub const NOT_PRIMARY: &str = "SERVER_ERROR not primary";

/// For a key of another partition, in front of its name.
const KEY_OF: &str = "SERVER_ERROR key of ";

/// The same if the name is not known any more: the body of the request was skipped.
pub(crate) const KEY_OF_ANOTHER: &str = "SERVER_ERROR key of another partition";

/// Appends the line for a key of another partition.
#[cold]
pub(crate) fn put_key_of(partition: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(KEY_OF.as_bytes());
    put_line(out, partition);
}

/// The line for a refusal. Lines that differ by verb are with the verb.
pub(crate) const fn refusal(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::Locked => "LOCKED",
        Refusal::NotLocked | Refusal::NotLockedNotFound => {
            "CLIENT_ERROR object is not locked or not found"
        }
        Refusal::TooManyLocks => "SERVER_ERROR too many locks",
        Refusal::ConnectionClosed => "SERVER_ERROR connection is closed",
        Refusal::TooLarge => TOO_LARGE,
        Refusal::OutOfMemory => "SERVER_ERROR out of memory storing object",
        Refusal::NonNumeric => "CLIENT_ERROR cannot increment or decrement non-numeric value",
        Refusal::Unrecorded => UNRECORDED,
    }
}

pub(crate) fn put_line(out: &mut Vec<u8>, line: &str) {
    out.extend_from_slice(line.as_bytes());
    out.extend_from_slice(b"\r\n");
}

pub(crate) fn put_number(out: &mut Vec<u8>, number: impl itoa::Integer) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}
