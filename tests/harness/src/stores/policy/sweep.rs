//! How a log looks for what has expired.

use super::choices::Choices;
use super::line::Item;
use super::state::{Drain, Queue, State, Sweep};
use super::step::Stepped;

/// A sweep has won little if it is less than one in so many bytes of a segment.
const SWEEP_WORTH: usize = 4;

impl State {
    /// Begins with the segment whose deadline is the earliest, if that has passed.
    pub(super) fn begin_sweep(&mut self) -> bool {
        let in_drain = self.drain.as_ref().and_then(|drain| drain.due);
        let all = Queue::ELSEWHERE.into_iter().flat_map(|queue| {
            let segments = self.line(queue).segments().enumerate();
            segments.filter_map(move |(at, segment)| Some((segment.due?, queue, at)))
        });
        let first = all.min_by_key(|(due, _, _)| *due);
        let Some((due, queue, at)) = first.filter(|(due, _, _)| *due <= self.now) else {
            return self.begin_with_drain(in_drain);
        };
        if in_drain.is_some_and(|in_drain| in_drain < due) {
            return self.begin_with_drain(in_drain);
        }
        if let Some(segment) = self.line_mut(queue).segment_mut(at) {
            segment.is_swept = true;
        }
        self.sweep = Some(Sweep::default());
        true
    }

    /// Begins with the segment that is being emptied.
    fn begin_with_drain(&mut self, due: Option<u32>) -> bool {
        let is_due = due.is_some_and(|due| due <= self.now);
        if let Some(drain) = self.drain.as_mut().filter(|_| is_due) {
            drain.is_swept = true;
            self.sweep = Some(Sweep::default());
        }
        is_due
    }

    /// Sweeps all segments that a flush has left behind, if there are any, to the last of them. All of it goes, and none of that
    /// is counted.
    pub(super) fn sweep_flushed(&mut self, seen: &mut Choices) -> bool {
        let Some(won) = self.flushed.take() else {
            return false;
        };
        self.has_swept = won * SWEEP_WORTH < self.setting.segment_bytes;
        seen.flushed += 1;
        true
    }

    /// Looks at the next item of the segment that is being swept.
    pub(super) fn sweep_on(&mut self, sweep: Sweep, seen: &mut Choices) -> Stepped {
        if let Some(mut drain) = self.drain.take_if(|drain| drain.is_swept) {
            let stepped = self.sweep_drain(sweep, &mut drain, seen);
            self.drain = Some(drain);
            return stepped;
        }
        let place = Queue::ELSEWHERE.into_iter().find_map(|queue| {
            let mut segments = self.line(queue).segments();
            Some((queue, segments.position(|segment| segment.is_swept)?))
        });
        let of = place.and_then(|(queue, at)| self.line_mut(queue).segment_mut(at));
        let next = of.as_ref().and_then(|of| of.items().get(sweep.passed));
        let Some(item) = next.copied() else {
            if let Some(of) = of {
                of.is_swept = false;
                of.due = sweep.due;
            }
            return self.end_sweep(&sweep, seen);
        };
        let at = sweep.passed;
        let stepped = self.sweep_past(sweep, &item, seen);
        if stepped == Stepped::Reclaimed
            && let Some((queue, segment)) = place
        {
            self.take_out(queue, segment, at);
        }
        stepped
    }

    /// Looks at the next item that is left of the segment that is being emptied.
    fn sweep_drain(&mut self, sweep: Sweep, drain: &mut Drain, seen: &mut Choices) -> Stepped {
        let at = sweep.passed;
        let Some(item) = drain.left.get(at) else {
            drain.is_swept = false;
            drain.due = sweep.due;
            return self.end_sweep(&sweep, seen);
        };
        let stepped = self.sweep_past(sweep, item, seen);
        if stepped == Stepped::Reclaimed {
            drain.left.remove(at);
        }
        stepped
    }

    /// Passes an item, or counts it as one that goes.
    fn sweep_past(&mut self, mut sweep: Sweep, item: &Item, seen: &mut Choices) -> Stepped {
        if item.is_past(self.now) && !item.is_locked {
            sweep.won += item.weight;
            self.sweep = Some(sweep);
            self.reclaimed += 1;
            seen.expired_in_sweep += 1;
            return Stepped::Reclaimed;
        }
        if let Some(deadline) = item.deadline.filter(|_| !item.is_locked) {
            sweep.tell(deadline);
        }
        sweep.passed += 1;
        self.sweep = Some(sweep);
        Stepped::Unseen
    }

    fn end_sweep(&mut self, sweep: &Sweep, seen: &mut Choices) -> Stepped {
        self.has_swept = sweep.won * SWEEP_WORTH < self.setting.segment_bytes;
        seen.swept += 1;
        seen.swept_for_little += u64::from(self.has_swept);
        Stepped::Unseen
    }
}
