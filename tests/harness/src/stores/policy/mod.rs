//! Which item goes next, said by itself: S3-FIFO over segments, record by record.
//!
//! **Queues.** New items stand in a small queue, those that were asked for in a main one, one behind the other in segments.
//! When room is wanted, one of the two gives up its oldest segment: the small one as long as it has more than a fifth of what
//! both weigh, and the main one then, or when new items have filled the memory eight times meanwhile. A large value weighs
//! what it takes outside of its segment, too. From the small queue an item goes that nobody has asked for, and the others go
//! into the main one. In the main queue an item stays for another round for a hit, if it has more than the fewest that are
//! asked for just now and no more than three quarters of its segment have stayed; that number goes up when more than seven
//! eighths of those were used, and down when less than half were. While somebody waits for room, or hardly any is left, no
//! more than three quarters stay of a segment of the small queue either.
//!
//! **Marks.** What goes from the small queue leaves its mark in a place that its hash chooses, over the mark that was there.
//! Whose mark is there when it comes again stands in the main queue from the beginning, and its mark is wiped out.
//!
//! **Locks.** A locked item that is come across leaves its queue for a third one, of which no segment has its turn, and is
//! none of those that three quarters are taken of. A segment of which more than three quarters are locked goes there as it
//! is. One segment is kept free for what is carried; if one that is emptied needs a second and there is none, the record goes
//! where there is room, into the main queue, the small or the third.
//!
//! **Slack.** Before anything is given up, a segment is emptied of which a quarter or more is dead, and what is alive is
//! carried into the queue that it was in. Slack is counted in sixteenths; the slackest segment is the first, of those the one
//! that became so first. The newest segment of a queue is not slack. In the third queue what is not locked counts as
//! dead; when such a segment is emptied, that goes the way of an item of the main queue.
//!
//! **Deadlines.** Before the next segment is emptied, one is swept if it is due: the earliest deadline that it was told of
//! since its last sweep has passed, and none was told of an earlier one. What has expired goes, and is counted as
//! reclaimed. If that was less than a quarter of a segment, none is swept until one was emptied. What is come across in a
//! segment that is emptied and has expired goes as well.
//!
//! **Flushes.** What is flushed is gone at once, and counted nowhere. When what was under way is done, its segments are swept before
//! another one is emptied, the oldest first, those of the small queue before those of the main one.
//!
//! **Other values.** One that takes the same room stands in the place of the old one, and nothing goes for it. Else the item
//! is written anew, with its hits: in the small queue if it was there, and in the main one if not. It stays meanwhile: where
//! its segment is emptied for it, it is carried on in its queue. Of an earlier deadline its segment is told.
//!
//! - N10: what is evicted is what this says, in this order, and counted as active if it was hit since it was last
//!   kept; what is carried elsewhere meanwhile is what this says, and as many that have expired are gone.
//!
//! How far a log has come is seen only when an item goes or moves. So there are several hypotheses: when something is
//! changed, it may be that the log has begun with a segment by then, or looked at an item, or not. Those from which
//! what is seen later does not follow are dropped; when none is left, N10 is broken.
//!
//! **Crawls.** A crawl sweeps all segments that are due, the one that is being emptied as well. With the time that it has left
//! it brings together what is in segments that are half slack or more, the slackest first; but while a segment is emptied
//! to give something up, it does not.
//!
//! Nothing is said of when a log makes room and how much, nor of flushes where something is locked, or between which a crawl
//! comes by, of crawls that have little time, and of limits that change; and nothing of two deadlines in one tick, or the
//! deadline of an item that is locked.

mod change;
mod choices;
mod course;
mod line;
mod state;
mod step;
mod sweep;

use std::fmt;

use self::change::Change;
pub use self::choices::Choices;
use self::course::Course;
use self::state::State;

/// How many hypotheses there may be at a time: where there are more, too little is judged.
const HYPOTHESES_MAX: usize = 1_024;

/// What is known of a log beforehand.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Setting {
    /// What a segment takes of the memory, in bytes.
    pub segment_bytes: usize,
    /// What it has room for, in bytes.
    pub segment_room: usize,
    /// From how many places a hash chooses one for the mark: what is left over when the number is divided by it.
    pub places: usize,
    /// It may be that somebody waits for room, or that hardly any is left.
    pub may_be_short: bool,
}

/// An item that is stored.
#[derive(Clone, Copy, Debug)]
pub struct New {
    /// Its key.
    pub number: usize,
    /// What it takes in a segment, in bytes.
    pub bytes: usize,
    /// What it takes in all, in bytes.
    pub weight: usize,
    /// When it expires, in ticks.
    pub deadline: Option<u32>,
}

impl New {
    /// Whether it can stand in the place of what was there: both are as long as the other, and neither value is large.
    #[must_use]
    pub const fn fits_in_place_of(&self, old: &Self) -> bool {
        self.bytes == old.bytes && self.bytes == self.weight && old.bytes == old.weight
    }
}

/// What a store has told of what went when it had stored an item.
#[derive(Clone, Copy, Debug)]
pub struct Told<'a> {
    /// What was evicted for it, in this order.
    pub evicted: &'a [usize],
    /// How many evicted items had been hit since they were last kept, ever.
    pub evicted_active: u64,
    /// How many expired items have gone, ever.
    pub reclaimed: u64,
    /// There was so much room that it has not looked for any.
    pub is_idle: bool,
}

/// What is seen of a store when it had stored an item.
pub struct Sight<'a> {
    /// What it tells.
    pub told: &'a Told<'a>,
    /// Whether an item is elsewhere than it was.
    pub has_moved: &'a dyn Fn(usize) -> bool,
}

/// What a log should evict.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Each has come as far as it must have at least.
    hypotheses: Vec<Course>,
    /// What was done since the log last made room.
    changes: Vec<Change>,
    /// It has never looked for room.
    is_idle: bool,
    hypotheses_most: usize,
}

impl Policy {
    /// Of an empty log.
    #[must_use]
    pub fn new(setting: Setting) -> Self {
        Self {
            hypotheses: vec![Course::new(State::new(setting))],
            changes: Vec::new(),
            is_idle: true,
            hypotheses_most: 1,
        }
    }

    /// An item was stored that was not there. Returns what was carried elsewhere before.
    ///
    /// # Panics
    /// N10.
    pub fn store(&mut self, new: New, sight: &Sight<'_>) -> Vec<usize> {
        self.catch_up();
        for course in &mut self.hypotheses {
            course.want(&new);
        }
        self.write(Change::Store(new), sight)
    }

    /// An item that is there was written anew, elsewhere. Returns what was carried elsewhere before; it may be among that.
    ///
    /// # Panics
    /// N10.
    pub fn replace(&mut self, new: New, sight: &Sight<'_>) -> Vec<usize> {
        self.catch_up();
        self.each(&new, |mut course, all| {
            if course.want_over(&new) {
                all.push(course);
            }
        });
        self.write(Change::Replace(new), sight)
    }

    /// Something is written, for which there was room in the end.
    fn write(&mut self, change: Change, sight: &Sight<'_>) -> Vec<usize> {
        for number in sight.told.evicted {
            self.each(number, |course, all| {
                course.follow(sight, Some(*number), all);
            });
        }
        self.each(sight.told, |course, all| course.follow(sight, None, all));
        self.is_idle &= sight.told.is_idle;
        self.changes.push(change);
        self.carried()
    }

    /// A crawl came by, and had time for all that it may do. Returns what it has carried elsewhere.
    ///
    /// # Panics
    /// N10.
    pub fn crawl(&mut self, sight: &Sight<'_>) -> Vec<usize> {
        self.catch_up();
        self.each(sight.told, |course, all| course.crawl(sight, all));
        self.carried()
    }

    /// What was carried elsewhere, and has not been asked for yet.
    fn carried(&mut self) -> Vec<usize> {
        let courses = self.hypotheses.iter_mut();
        courses
            .flat_map(|course| course.carried.drain(..))
            .collect()
    }

    /// An item was asked for.
    pub fn hit(&mut self, number: usize) {
        self.changes.push(Change::Hit(number));
    }

    /// An item was locked, or unlocked.
    pub fn set_locked(&mut self, number: usize, is_locked: bool) {
        self.changes.push(Change::SetLocked(number, is_locked));
    }

    /// An item has another deadline, and stands where it stood.
    pub fn retime(&mut self, number: usize, deadline: Option<u32>) {
        self.changes.push(Change::Retime(number, deadline));
    }

    /// All that is there was flushed, and nothing of it was locked.
    pub fn flush(&mut self) {
        self.changes.push(Change::Flush);
    }

    /// An item was taken out.
    pub fn delete(&mut self, number: usize) {
        self.changes.push(Change::Delete(number));
    }

    /// It is so late now, in ticks.
    pub fn set_now(&mut self, now: u32) {
        self.changes.push(Change::Now(now));
    }

    /// This is all that there is, in order.
    ///
    /// # Panics
    /// N10.
    pub fn end(&mut self, numbers: &[usize]) {
        self.catch_up();
        self.each(&"the end", |course, all| {
            if course.state.numbers() == numbers {
                all.push(course);
            }
        });
    }

    /// What has come about.
    #[must_use]
    pub fn seen(&self) -> Choices {
        self.hypotheses[0].seen
    }

    /// How many hypotheses there were at a time.
    #[must_use]
    pub const fn hypotheses_most(&self) -> usize {
        self.hypotheses_most
    }

    /// Makes the changes, wherever the log has come to.
    fn catch_up(&mut self) {
        let changes = std::mem::take(&mut self.changes);
        let is_idle = self.is_idle;
        self.each(&changes, |course, all| {
            course.change(&changes, is_idle, all);
        });
    }

    /// Puts in the place of each hypothesis those that come of it when `this` is seen.
    fn each(&mut self, this: &impl fmt::Debug, each: impl Fn(Course, &mut Vec<Course>)) {
        let mut all = Vec::new();
        for course in &self.hypotheses {
            each(course.clone(), &mut all);
        }
        assert!(
            !all.is_empty(),
            "N10: {this:?} does not follow, {:?}",
            self.hypotheses[0]
        );
        assert!(
            all.len() <= HYPOTHESES_MAX,
            "{} hypotheses, {:?}",
            all.len(),
            all[0]
        );
        self.hypotheses_most = self.hypotheses_most.max(all.len());
        self.hypotheses = all;
    }
}
