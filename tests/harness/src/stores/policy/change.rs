//! What is done to a store, and what is then there.

use super::New;
use super::line::Item;
use super::state::{Drain, HITS_MAX, Queue, State, Wanted};

/// What is done to a store between two times that it makes room.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    Store(New),
    Hit(usize),
    SetLocked(usize, bool),
    Delete(usize),
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
        let bytes = new.bytes;
        self.wanted = Some(Wanted {
            queue,
            bytes,
            is_opened: false,
        });
    }

    /// Whether it was possible: an item that is changed is there.
    pub(super) fn change(&mut self, change: &Change) -> bool {
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
            Change::Delete(number) => self.delete(*number),
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
        let item = Item {
            number: new.number,
            bytes: new.bytes,
            weight: new.weight,
            hits: 0,
            is_locked: false,
            deadline: new.deadline,
        };
        self.push(wanted.queue, item);
        if self.remembers(new.number) {
            self.mark(new.number, None);
        }
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

    fn delete(&mut self, number: usize) -> bool {
        if let Some((drain, at)) = self.in_drain(number) {
            drain.left.remove(at);
            return true;
        }
        let Some((queue, segment, at)) = self.find(number) else {
            return false;
        };
        self.take_out(queue, segment, at);
        true
    }
}
