//! What a hypothesis says that there is: queues, what is being emptied or swept, and what is remembered.

use std::collections::VecDeque;
use std::rc::Rc;

use super::Setting;
use super::line::{Item, Line, Segment, Slack};

/// The most hits that an item can have to its credit.
pub(super) const HITS_MAX: u8 = 3;

/// Which queue it is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Queue {
    Small,
    Main,
    Pinned,
}

impl Queue {
    /// In this order a record that finds no free segment looks for room elsewhere.
    pub(super) const ELSEWHERE: [Self; 3] = [Self::Main, Self::Small, Self::Pinned];
}

/// What becomes of the items of a segment that is emptied.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Rule {
    /// All go on, into this queue.
    Keep(Queue),
    /// What was hit goes on into the main queue.
    Promote,
    /// What was hit often goes round again.
    Again,
}

impl Rule {
    /// Where an item goes on that is in nobody's way.
    pub(super) const fn home(self) -> Queue {
        match self {
            Self::Keep(queue) => queue,
            Self::Promote => Queue::Small,
            Self::Again => Queue::Main,
        }
    }
}

/// The segment that is being emptied.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Drain {
    pub(super) rule: Rule,
    pub(super) left: VecDeque<Item>,
    /// What stays for its hits, in bytes.
    pub(super) kept: usize,
    /// What was not locked when it was begun with, in bytes.
    pub(super) may_go: usize,
    /// Three quarters of that may stay, and no more.
    pub(super) is_bounded: bool,
    /// The segment that is kept for what is carried is taken.
    pub(super) has_opened: bool,
    /// As of any segment: a crawl sweeps it all the same.
    pub(super) due: Option<u32>,
    pub(super) is_swept: bool,
}

impl Drain {
    /// It has an item with this deadline.
    pub(super) fn tell(&mut self, deadline: u32) {
        self.due = Some(earlier(self.due, deadline));
    }
}

/// The earlier of two deadlines.
pub(super) fn earlier(due: Option<u32>, deadline: u32) -> u32 {
    due.map_or(deadline, |due| due.min(deadline))
}

/// The segment that is being swept is marked; this is how far.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Sweep {
    /// How many of its items have been looked at, and stay.
    pub(super) passed: usize,
    /// The earliest deadline of those.
    pub(super) due: Option<u32>,
    /// What those took that have gone, in bytes.
    pub(super) won: usize,
}

impl Sweep {
    /// One of the items that have been looked at has this deadline.
    pub(super) fn tell(&mut self, deadline: u32) {
        self.due = Some(earlier(self.due, deadline));
    }
}

/// What a store has asked for that is under way: a queue, and bytes in a segment of it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Wanted {
    pub(super) queue: Queue,
    pub(super) bytes: usize,
    /// A segment was opened for it ahead of time.
    pub(super) is_opened: bool,
}

/// All that decides what goes next.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct State {
    pub(super) setting: Setting,
    pub(super) now: u32,
    pub(super) small: Line,
    pub(super) main: Line,
    pub(super) pinned: Line,
    /// There are segments that a flush has left behind: what the last of them takes that has not been swept, in bytes.
    pub(super) flushed: Option<usize>,
    pub(super) drain: Option<Drain>,
    pub(super) sweep: Option<Sweep>,
    /// A sweep has won little, and no segment was emptied since.
    pub(super) has_swept: bool,
    /// How many hits an item must have more than, to stay in the main queue.
    pub(super) hits_needed: u8,
    /// The lengths of the main queue over the segments that the small one has given up since the main one did.
    pub(super) main_waits: usize,
    /// What is remembered of what went from the small queue: by the place that its hash chooses.
    pub(super) marks: Rc<Vec<Option<usize>>>,
    pub(super) wanted: Option<Wanted>,
    /// The item that it is wanted for, if that is there already: it stays, whatever is emptied for it.
    pub(super) in_hand: Option<usize>,
    pub(super) evicted_active: u64,
    pub(super) reclaimed: u64,
}

impl State {
    pub(super) fn new(setting: Setting) -> Self {
        Self {
            setting,
            now: 0,
            small: Line::default(),
            main: Line::default(),
            pinned: Line::default(),
            flushed: None,
            drain: None,
            sweep: None,
            has_swept: false,
            hits_needed: 0,
            main_waits: 0,
            marks: Rc::new(vec![None; setting.places]),
            wanted: None,
            in_hand: None,
            evicted_active: 0,
            reclaimed: 0,
        }
    }

    pub(super) const fn line(&self, queue: Queue) -> &Line {
        match queue {
            Queue::Small => &self.small,
            Queue::Main => &self.main,
            Queue::Pinned => &self.pinned,
        }
    }

    pub(super) const fn line_mut(&mut self, queue: Queue) -> &mut Line {
        match queue {
            Queue::Small => &mut self.small,
            Queue::Main => &mut self.main,
            Queue::Pinned => &mut self.pinned,
        }
    }

    /// Everything that is there, in order.
    pub(super) fn numbers(&self) -> Vec<usize> {
        let lines = [&self.small, &self.main, &self.pinned];
        let in_line = lines
            .into_iter()
            .flat_map(Line::segments)
            .flat_map(Segment::items);
        let left = self.drain.iter().flat_map(|drain| &drain.left);
        let mut numbers: Vec<_> = in_line.chain(left).map(|item| item.number).collect();
        numbers.sort_unstable();
        numbers
    }

    /// Whether an item that comes is remembered.
    pub(super) fn remembers(&self, number: usize) -> bool {
        self.marks[number % self.marks.len()] == Some(number)
    }

    pub(super) fn mark(&mut self, number: usize, mark: Option<usize>) {
        let place = number % self.marks.len();
        Rc::make_mut(&mut self.marks)[place] = mark;
    }

    /// Takes an item out of a segment in a queue.
    pub(super) fn take_out(&mut self, queue: Queue, segment: usize, at: usize) -> Option<Item> {
        let of = self.line_mut(queue).segment_mut(segment)?;
        let item = of.remove(at);
        if of.is_swept
            && let Some(sweep) = &mut self.sweep
            && at < sweep.passed
        {
            sweep.passed -= 1;
        }
        self.settle(queue, segment);
        Some(item)
    }

    pub(super) fn has_room(&self, queue: Queue, bytes: usize) -> bool {
        self.line(queue).has_room(bytes, self.setting.segment_room)
    }

    /// Opens a segment if one is wanted.
    pub(super) fn open_for(&mut self, wanted: Wanted) {
        if !self.has_room(wanted.queue, wanted.bytes) {
            self.open(wanted.queue);
        }
    }

    pub(super) fn open(&mut self, queue: Queue) {
        self.seal(queue);
        self.line_mut(queue).open = Some(Segment::default());
    }

    pub(super) fn seal(&mut self, queue: Queue) {
        let line = self.line_mut(queue);
        if let Some(open) = line.open.take() {
            line.sealed_mut().push_back(open);
            let segment = line.sealed().len() - 1;
            self.settle(queue, segment);
        }
    }

    pub(super) fn push(&mut self, queue: Queue, item: Item) {
        if let Some(open) = &mut self.line_mut(queue).open {
            open.push(item);
        }
    }

    /// After what is alive in a segment has changed: a sealed one of which nothing is, is free; and how slack it is may
    /// be another.
    pub(super) fn settle(&mut self, queue: Queue, segment: usize) {
        let segment_bytes = self.setting.segment_bytes;
        let Some(of) = self.line(queue).sealed().get(segment) else {
            return;
        };
        if of.items().is_empty() {
            self.withdraw(queue, segment);
            return;
        }
        let parts = of.slack_parts(queue == Queue::Pinned, segment_bytes);
        let old = of.slack;
        if parts != old.map(|slack| slack.parts) {
            self.leave_slack(old);
            let slack = parts.map(|parts| Slack {
                parts,
                before: self.as_slack(parts),
            });
            self.line_mut(queue).sealed_mut()[segment].slack = slack;
        }
    }

    /// Takes a sealed segment out of its queue.
    pub(super) fn withdraw(&mut self, queue: Queue, segment: usize) -> Segment {
        let of = self.line_mut(queue).sealed_mut().remove(segment);
        let of = of.unwrap_or_default();
        self.leave_slack(of.slack);
        of
    }

    /// How many segments are just so slack.
    fn as_slack(&self, parts: usize) -> usize {
        let lines = [&self.small, &self.main, &self.pinned];
        let slacks = lines
            .into_iter()
            .flat_map(|line| line.sealed().iter().filter_map(|segment| segment.slack));
        slacks.filter(|slack| slack.parts == parts).count()
    }

    fn leave_slack(&mut self, old: Option<Slack>) {
        let Some(old) = old else { return };
        let lines = [&mut self.small, &mut self.main, &mut self.pinned];
        let slacks = lines.into_iter().flat_map(|line| {
            let sealed = line.sealed_mut().iter_mut();
            sealed.filter_map(|segment| segment.slack.as_mut())
        });
        slacks
            .filter(|slack| slack.parts == old.parts && slack.before > old.before)
            .for_each(|slack| slack.before -= 1);
    }
}
