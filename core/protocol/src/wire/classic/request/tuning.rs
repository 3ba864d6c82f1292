//! memcached's commands for tuning. Only the memory limit can be changed. The other commands get the replies of
//! a memcached with that feature turned off, or that cannot do the request.
//!
//! Source: memcached 1.6.45 `proto_text.c`, `process_memlimit_command`, `process_lru_crawler_command`,
//! `process_slabs_command`, `process_lru_command`; as seen on a server that was started with `-o
//! no_lru_crawler,no_lru_maintainer,no_slab_reassign`.

use core::ops::RangeInclusive;

use super::{BAD_FORMAT, ERROR, Operation, Step, Tokens};
use crate::wire::line::Line;
use crate::wire::scan::u32_from;

const OK: &str = "OK";

/// The longest sleep that a request may set for the crawler.
const SLEEP_US_MAX: u32 = 1_000_000;

/// The reply to a line whose first word is `lru_crawler`, `slabs` or `lru`.
pub(super) fn answer(line: &[u8]) -> &'static str {
    let mut words = Tokens::new(line);
    let mut next = || words.next().unwrap_or_default();
    let (verb, what, first, second, third, fourth) =
        (next(), next(), next(), next(), next(), next());
    let is_number = |word: &[u8]| u32_from(word).is_some();
    match (verb, what) {
        (b"lru_crawler", b"crawl") if !first.is_empty() => "CLIENT_ERROR lru crawler disabled",
        (b"lru_crawler", b"enable") => "ERROR failed to start lru crawler thread",
        (b"lru_crawler", b"disable") => OK,
        (b"lru_crawler", b"sleep") if u32_from(first).is_some_and(|us| us > SLEEP_US_MAX) => {
            "CLIENT_ERROR sleep must be one second or less"
        }
        (b"lru_crawler", b"sleep" | b"tocrawl") | (b"slabs", b"automove") if !first.is_empty() => {
            if is_number(first) {
                OK
            } else {
                BAD_FORMAT
            }
        }
        (b"slabs", b"reassign") if !second.is_empty() => "CLIENT_ERROR slab reassignment disabled",
        (b"lru", b"tune") if [second, third, fourth].iter().all(|word| !word.is_empty()) => OK,
        _ => ERROR,
    }
}

/// The range of `cache_memlimit`, in MiB.
const MEMORY_MIB: RangeInclusive<u32> = 8..=1_000_000_000;

/// The step of a line `cache_memlimit MIB`.
pub(super) fn memory_limit<'a>(mib: Option<&[u8]>, noreply: bool, line: Line<'a>) -> Step<'a> {
    let Some(mib) = mib.and_then(u32_from) else {
        return line.respond_unless(noreply, ERROR);
    };
    if mib < *MEMORY_MIB.start() {
        let too_small = "MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m";
        return line.respond_unless(noreply, too_small);
    }
    if mib > *MEMORY_MIB.end() {
        let in_bytes = "MEMLIMIT_ADJUST_FAILED input value is megabytes not bytes";
        return line.respond_unless(noreply, in_bytes);
    }
    // If there are fewer addresses, no store can have that limit.
    let bytes = usize::try_from(u64::from(mib) << 20).unwrap_or(usize::MAX);
    Operation::LimitMemory { bytes, noreply }.consuming(line.bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tuning_is_answered_and_changes_nothing() {
        for (line, said) in [
            ("lru_crawler crawl all", "CLIENT_ERROR lru crawler disabled"),
            ("lru_crawler sleep 5", "OK"),
            ("lru_crawler sleep x", BAD_FORMAT),
            (
                "lru_crawler sleep 1000001",
                "CLIENT_ERROR sleep must be one second or less",
            ),
            ("lru_crawler sleep 1000000", "OK"),
            ("lru_crawler sleep", "ERROR"),
            ("lru_crawler crawl", "ERROR"),
            ("lru_crawler tocrawl 3", "OK"),
            ("lru_crawler tocrawl", "ERROR"),
            (
                "lru_crawler enable",
                "ERROR failed to start lru crawler thread",
            ),
            ("lru_crawler disable", "OK"),
            ("lru_crawler", "ERROR"),
            ("lru_crawler foo", "ERROR"),
            (
                "slabs reassign 1 2",
                "CLIENT_ERROR slab reassignment disabled",
            ),
            ("slabs reassign 1", "ERROR"),
            ("slabs automove 0", "OK"),
            ("slabs automove", "ERROR"),
            ("slabs", "ERROR"),
            ("lru tune 10 25 0.1 2.0", "OK"),
            ("lru tune 10 25 0.1", "ERROR"),
            ("lru mode flat", "ERROR"),
            ("lru temp_ttl 60", "ERROR"),
            ("lru", "ERROR"),
        ] {
            assert_eq!(answer(line.as_bytes()), said, "{line}");
        }
    }
}
