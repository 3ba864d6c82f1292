//! Points in time and spans between them, as the machines count them: whole milliseconds, and never
//! past the end of time.

use core::time::Duration;

use latchd_protocol::time::Instant;

use super::terms::RECONNECT;

/// The longest pause before a refused request is repeated.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The moment `span` after `start`, but at most the last moment there is.
pub(super) fn after(start: Instant, span: Duration) -> Instant {
    Instant::from_millis(start.as_millis().saturating_add(millis(span)))
}

/// The span from `start` to `end`; 0 if `end` is earlier.
pub(super) const fn span(start: Instant, end: Instant) -> Duration {
    Duration::from_millis(end.as_millis().saturating_sub(start.as_millis()))
}

/// The earlier of two moments, each of which may never come.
pub(super) fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// Rounded down: a belief ends early rather than late.
pub(super) use latchd_protocol::time::saturating_millis as millis;

/// A pause before a refused request is repeated: 100 ms, then twice as long each time, up to a second.
pub(super) fn growing(refusals: &mut u32) -> Duration {
    let factor = 1_u32.checked_shl(*refusals).unwrap_or(u32::MAX);
    *refusals = refusals.saturating_add(1);
    RECONNECT.saturating_mul(factor).min(PAUSE_MAX)
}
