//! What is done to a store, and what is then there.

use super::New;
use super::choices::Choices;
use super::line::Item;
use super::state::{Drain, HITS_MAX, Queue, State, Wanted};

/// What is done to a store between two times that it makes room.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    Store(New),
    Hit(usize),
    SetLocked(usize, bool),
    Delete(usize),
    /// An item has another deadline.
    Retime(usize, Option<u32>),
    /// An item that is there was written anew.
    Replace(New),
    /// All that is there was flushed.
    Flush,
    Now(u32),
}

impl State {
    /// Where a new item will stand.
    pub(super) fn want(&mut self, new: &New) {
        let queue = if self.remembers(new.number) {
            Queue::Main
        } else {
            Queue::Small
        };
        self.want_in(queue, new.bytes);
    }

    /// Where an item will stand that is written anew: in the small queue if it is there now. Whether it was possible.
    pub(super) fn want_over(&mut self, new: &New) -> bool {
        let left = self
            .in_drain(new.number)
            .map(|(drain, _)| drain.rule.home());
        let queue = left.or_else(|| Some(self.find(new.number)?.0));
        let queue = match queue {
            None => return false,
            Some(Queue::Small) => Queue::Small,
            Some(Queue::Main | Queue::Pinned) => Queue::Main,
        };
        self.in_hand = Some(new.number);
        self.want_in(queue, new.bytes);
        true
    }

    const fn want_in(&mut self, queue: Queue, bytes: usize) {
        self.wanted = Some(Wanted {
            queue,
            bytes,
            is_opened: false,
        });
    }

    /// Whether it was possible: an item that is changed is there.
    pub(super) fn change(&mut self, change: &Change, seen: &mut Choices) -> bool {
        match change {
            Change::Store(new) => {
                self.store(new);
                true
            }
            Change::Hit(number) => self.edit(*number, |item| {
                item.hits = (item.hits + 1).min(HITS_MAX);
            }),
            Change::SetLocked(number, is_locked) => {
                self.edit(*number, |item| item.is_locked = *is_locked)
            }
            Change::Delete(number) => self.take(*number).is_some(),
            Change::Retime(number, deadline) => self.retime(*number, *deadline, seen),
            Change::Replace(new) => self.replace(new, seen),
            Change::Flush => {
                self.flush();
                true
            }
            Change::Now(now) => {
                self.now = *now;
                true
            }
        }
    }

    fn store(&mut self, new: &New) {
        let Some(wanted) = self.wanted.take() else {
            return;
        };
        self.open_for(wanted);
        self.push(wanted.queue, Item::new(new, 0, false));
        if self.remembers(new.number) {
            self.mark(new.number, None);
        }
    }

    /// The new record has the hits of the old one, and is locked as that was.
    fn replace(&mut self, new: &New, seen: &mut Choices) -> bool {
        self.in_hand = None;
        let Some(wanted) = self.wanted.take() else {
            return false;
        };
        self.open_for(wanted);
        let Some(old) = self.take(new.number) else {
            return false;
        };
        self.push(wanted.queue, Item::new(new, old.hits, old.is_locked));
        seen.replaced += 1;
        true
    }

    /// What is being emptied has nothing left. What is being swept is swept to its end, and once more for what had been passed.
    fn flush(&mut self) {
        for queue in [Queue::Small, Queue::Main, Queue::Pinned] {
            self.seal(queue);
            for segment in self.line_mut(queue).sealed_mut().split_off(0) {
                let passed = match &mut self.sweep {
                    Some(sweep) if segment.is_swept => {
                        let passed = segment.items()[..sweep.passed].iter();
                        let passed = passed.map(|item| item.weight).sum();
                        sweep.won += segment.weight() - passed;
                        passed
                    }
                    Some(_) | None => segment.weight(),
                };
                if passed > 0 {
                    self.flushed = Some(passed);
                }
            }
        }
        if let Some(drain) = &mut self.drain {
            drain.left.clear();
        }
    }

    /// A segment is told of a deadline that is earlier than the one that an item had, and so is who sweeps it.
    fn retime(&mut self, number: usize, deadline: Option<u32>, seen: &mut Choices) -> bool {
        let sooner = |item: &mut Item| {
            let old = std::mem::replace(&mut item.deadline, deadline);
            deadline.filter(|new| old.is_none_or(|old| *new < old))
        };
        if let Some((drain, at)) = self.in_drain(number) {
            if let Some(new) = sooner(&mut drain.left[at]) {
                drain.tell(new);
            }
            return true;
        }
        let Some((queue, segment, at)) = self.find(number) else {
            return false;
        };
        let Some(of) = self.line_mut(queue).segment_mut(segment) else {
            return false;
        };
        let Some(new) = sooner(of.item_mut(at)) else {
            return true;
        };
        seen.sooner += 1;
        of.tell(new);
        if of.is_swept
            && let Some(sweep) = &mut self.sweep
        {
            sweep.tell(new);
        }
        true
    }

    /// Where an item is that stands in a queue.
    fn find(&self, number: usize) -> Option<(Queue, usize, usize)> {
        Queue::ELSEWHERE.into_iter().find_map(|queue| {
            let mut segments = self.line(queue).segments().enumerate();
            segments.find_map(|(segment, of)| Some((queue, segment, of.position(number)?)))
        })
    }

    fn in_drain(&mut self, number: usize) -> Option<(&mut Drain, usize)> {
        let drain = self.drain.as_mut()?;
        let at = drain.left.iter().position(|item| item.number == number)?;
        Some((drain, at))
    }

    fn edit(&mut self, number: usize, edit: impl Fn(&mut Item)) -> bool {
        if let Some((drain, at)) = self.in_drain(number) {
            edit(&mut drain.left[at]);
            return true;
        }
        let Some((queue, segment, at)) = self.find(number) else {
            return false;
        };
        let Some(of) = self.line_mut(queue).segment_mut(segment) else {
            return false;
        };
        edit(of.item_mut(at));
        self.settle(queue, segment);
        true
    }

    /// Takes an item out, wherever it is.
    fn take(&mut self, number: usize) -> Option<Item> {
        if let Some((drain, at)) = self.in_drain(number) {
            return drain.left.remove(at);
        }
        let (queue, segment, at) = self.find(number)?;
        self.take_out(queue, segment, at)
    }
}
