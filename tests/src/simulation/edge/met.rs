//! Which states of its buffers a client's turn has met: a state that was never met was never
//! judged.

use latchd_protocol::connection::Progress;
use latchd_server::verify::simulated::{Look, Wants};

use crate::simulation::tally::Buffering;

impl Buffering {
    /// Counts the states that a turn has met.
    pub(super) fn note(
        &mut self,
        before: &Look,
        after: &Look,
        progress: Option<Progress>,
        is_told: bool,
        sent: usize,
        has_more: bool,
    ) {
        let kept = &after.buffers;
        let is_unsent = after.wants == Wants::Output;
        let waits = progress == Some(Progress::Waiting);
        let mut count = |is_met: bool, counter: fn(&mut Self) -> &mut u64| {
            *counter(self) += u64::from(is_met);
        };
        let is_begun =
            kept.input_bytes > 0 && matches!(progress, Some(Progress::NeedsInput { .. }));
        count(is_begun && !kept.is_collecting, |it| &mut it.begun);
        count(kept.input_bytes > 0 && kept.is_collecting, |it| {
            &mut it.collected
        });
        count(is_unsent && sent > 0, |it| &mut it.sent_in_part);
        count(is_unsent && sent == 0, |it| &mut it.not_sent);
        count(is_unsent && has_more, |it| &mut it.not_read);
        count(after.wants == Wants::Turn && kept.pending_bytes > 0, |it| {
            &mut it.sent_enough
        });
        count(progress == Some(Progress::OutputFull), |it| {
            &mut it.output_full
        });
        count(progress == Some(Progress::Yielded), |it| &mut it.yielded);
        let is_resumed = before.wants == Wants::Output && progress.is_some();
        count(is_resumed, |it| &mut it.resumed);
        count(waits && kept.input_bytes > 64, |it| {
            &mut it.waits_before_more
        });
        count(waits && is_unsent, |it| &mut it.waits_unsent);
        count(is_told && before.wants == Wants::Output, |it| {
            &mut it.told_unsent
        });
        count(kept.has_left, |it| &mut it.left_unsent);
    }
}
