//! The surroundings of one step, as the machines of locks and wins see them.

use latchd_protocol::stats::Counters;
use latchd_protocol::time::Instant;

use super::notices::Notices;
use crate::limits::Limits;

/// The time, the bounds, the counters and the notices of one step.
#[derive(Debug)]
pub(super) struct Context<'a> {
    pub(super) now: Instant,
    pub(super) limits: &'a Limits,
    pub(super) counters: &'a mut Counters,
    pub(super) notices: &'a mut Notices,
}
