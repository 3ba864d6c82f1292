//! Whether a request may change the version that is there.
//!
//! Source: memcached 1.6.45 `memcached.c`, `do_store_item`.

use latchd_protocol::command::Guard;
use latchd_protocol::item::Cas;

/// The judgement of a guard on an item's version.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::engine) enum Guarded {
    /// It may be changed.
    Pass,
    /// It may be overwritten, and stays stale.
    PassStale,
    /// It is another version.
    Fail,
}

/// Judges `guard` on an item of version `cas`.
pub(in crate::engine) fn judge(guard: Guard, cas: Cas) -> Guarded {
    match guard {
        Guard::None => Guarded::Pass,
        Guard::Match(wanted) | Guard::MatchElseStale(wanted) if wanted == cas => Guarded::Pass,
        Guard::MatchElseStale(wanted) if wanted < cas => Guarded::PassStale,
        Guard::Match(_) | Guard::MatchElseStale(_) | Guard::Never => Guarded::Fail,
    }
}
