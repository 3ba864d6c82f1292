//! The segments of a queue, and the items in them.
//!
//! Segments, and what stands in them, are shared between hypotheses until one of them changes: most never differ.

use std::collections::VecDeque;
use std::rc::Rc;

use super::New;
use super::state::earlier;

/// So many parts of a segment tell apart how slack it is.
pub(super) const SLACK_PARTS: usize = 16;

/// From so many on it is emptied before anything is given up: a quarter.
pub(super) const SLACK_PARTS_WORTH: usize = SLACK_PARTS / 4;

/// An item, as the policy sees it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Item {
    pub(super) number: usize,
    /// What it takes in a segment.
    pub(super) bytes: usize,
    /// What it takes in all: more if its value is large.
    pub(super) weight: usize,
    pub(super) hits: u8,
    pub(super) is_locked: bool,
    pub(super) deadline: Option<u32>,
}

/// How slack a segment is, if that is enough to be emptied for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Slack {
    pub(super) parts: usize,
    /// How many were so slack when it became so, and are.
    pub(super) before: usize,
}

/// What stands one behind the other.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Segment {
    items: Rc<Vec<Item>>,
    /// What has been written, alive or not, in bytes.
    written: usize,
    weight: usize,
    /// The earliest deadline that it was told of since it was last swept.
    pub(super) due: Option<u32>,
    pub(super) slack: Option<Slack>,
    pub(super) is_swept: bool,
}

/// The segments of a queue.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Line {
    /// The oldest first; nothing is added to them.
    sealed: Rc<VecDeque<Segment>>,
    /// The newest, which still takes items.
    pub(super) open: Option<Segment>,
}

impl Item {
    pub(super) const fn new(new: &New, hits: u8, is_locked: bool) -> Self {
        Self {
            number: new.number,
            bytes: new.bytes,
            weight: new.weight,
            hits,
            is_locked,
            deadline: new.deadline,
        }
    }

    pub(super) fn is_past(&self, now: u32) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }
}

impl Segment {
    pub(super) fn items(&self) -> &[Item] {
        &self.items
    }

    pub(super) fn into_items(self) -> VecDeque<Item> {
        self.items.iter().copied().collect()
    }

    pub(super) fn push(&mut self, item: Item) {
        self.written += item.bytes;
        self.weight += item.weight;
        // One that is locked does not expire.
        if let Some(deadline) = item.deadline.filter(|_| !item.is_locked) {
            self.tell(deadline);
        }
        Rc::make_mut(&mut self.items).push(item);
    }

    /// It has an item with this deadline.
    pub(super) fn tell(&mut self, deadline: u32) {
        self.due = Some(earlier(self.due, deadline));
    }

    pub(super) fn item_mut(&mut self, at: usize) -> &mut Item {
        &mut Rc::make_mut(&mut self.items)[at]
    }

    pub(super) fn remove(&mut self, at: usize) -> Item {
        let item = Rc::make_mut(&mut self.items).remove(at);
        self.weight -= item.weight;
        item
    }

    pub(super) fn position(&self, number: usize) -> Option<usize> {
        self.items.iter().position(|item| item.number == number)
    }

    /// What is alive in it takes so much, in bytes, large values included.
    pub(super) const fn weight(&self) -> usize {
        self.weight
    }

    /// What is alive in it, in bytes.
    pub(super) fn live(&self) -> usize {
        self.items.iter().map(|item| item.bytes).sum()
    }

    /// What is locked in it, in bytes.
    pub(super) fn locked(&self) -> usize {
        let locked = self.items.iter().filter(|item| item.is_locked);
        locked.map(|item| item.bytes).sum()
    }

    pub(super) fn has_room(&self, bytes: usize, segment_room: usize) -> bool {
        self.written + bytes <= segment_room
    }

    /// How slack it is, in parts, if that is worth emptying it. Among what was locked, what is not is not worth keeping.
    pub(super) fn slack_parts(&self, is_pinned: bool, segment_bytes: usize) -> Option<usize> {
        let staying = if is_pinned {
            self.locked()
        } else {
            self.live()
        };
        let parts = (self.written - staying) * SLACK_PARTS / segment_bytes;
        (parts >= SLACK_PARTS_WORTH).then_some(parts)
    }
}

impl Line {
    pub(super) fn len(&self) -> usize {
        self.sealed.len() + usize::from(self.open.is_some())
    }

    pub(super) fn weight(&self) -> usize {
        self.segments().map(|segment| segment.weight).sum()
    }

    pub(super) fn has_room(&self, bytes: usize, segment_room: usize) -> bool {
        let open = self.open.as_ref();
        open.is_some_and(|open| open.has_room(bytes, segment_room))
    }

    pub(super) fn segments(&self) -> impl Iterator<Item = &Segment> {
        self.sealed.iter().chain(&self.open)
    }

    /// The segment that so many are older than.
    pub(super) fn segment_mut(&mut self, at: usize) -> Option<&mut Segment> {
        if at < self.sealed.len() {
            Rc::make_mut(&mut self.sealed).get_mut(at)
        } else {
            self.open.as_mut()
        }
    }

    /// Those that nothing is added to.
    pub(super) fn sealed(&self) -> &VecDeque<Segment> {
        &self.sealed
    }

    pub(super) fn sealed_mut(&mut self) -> &mut VecDeque<Segment> {
        Rc::make_mut(&mut self.sealed)
    }
}
