//! One hypothesis: how a log may have come to what was seen of it.

use std::fmt;

use super::change::Change;
use super::choices::Choices;
use super::line::Line;
use super::state::{State, Wanted};
use super::step::Stepped;
use super::{New, Sight};

/// So many steps are more than a log takes for one call.
const STEPS_MAX: usize = 10_000;

/// A hypothesis.
#[derive(Clone)]
pub(super) struct Course {
    pub(super) state: State,
    pub(super) seen: Choices,
    /// What was carried in the call that is looked at.
    pub(super) carried: Vec<usize>,
}

impl fmt::Debug for Course {
    /// What is under way, and what is next: not all that is there.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let State {
            small,
            main,
            pinned,
            drain,
            sweep,
            ..
        } = &self.state;
        let oldest = |line: &Line| line.segments().next().cloned();
        formatter
            .debug_struct("Course")
            .field("drain", drain)
            .field("sweep", sweep)
            .field("small", &(small.len(), small.weight(), oldest(small)))
            .field("main", &(main.len(), main.weight(), oldest(main)))
            .field("pinned", &pinned.len())
            .finish_non_exhaustive()
    }
}

impl Course {
    pub(super) fn new(state: State) -> Self {
        Self {
            state,
            seen: Choices::default(),
            carried: Vec::new(),
        }
    }

    /// Somebody wants to store an item.
    pub(super) fn want(&mut self, new: &New) {
        self.seen.known += u64::from(self.state.remembers(new.number));
        self.state.want(new);
    }

    /// Somebody wants to write an item anew. Whether it is there.
    pub(super) fn want_over(&mut self, new: &New) -> bool {
        self.state.want_over(new)
    }

    /// Where it may be after these changes, at whichever step they met it. What it comes to all the same by going on
    /// afterwards is left out. If it `is_idle` it has not gone on.
    pub(super) fn change(self, changes: &[Change], is_idle: bool, all: &mut Vec<Self>) {
        let mut left = vec![(self, Vec::new())];
        let mut steps = 0;
        while let Some((course, reached)) = left.pop() {
            steps += 1;
            assert!(steps < STEPS_MAX, "it goes on and on");
            let mut later = course.clone();
            let mut after = Vec::new();
            // An item that is changed is there.
            let mut make = |change| later.state.change(change, &mut later.seen);
            if changes.iter().all(&mut make) {
                after = later.unseen().map(|after| after.state).collect();
                if !reached.contains(&later.state) {
                    later.add_to(all);
                }
            }
            if !is_idle {
                left.extend(course.unseen().map(|next| (next, after.clone())));
            }
        }
    }

    /// Where it may be when this item has just been evicted; or, if it is none, when all has happened that was seen.
    pub(super) fn follow(self, sight: &Sight<'_>, evicted: Option<usize>, all: &mut Vec<Self>) {
        let told = sight.told;
        let mut level = vec![self];
        for _ in 0..STEPS_MAX {
            let mut left = Vec::new();
            for course in level {
                let mut is_last = evicted.is_none();
                for (mut next, stepped) in course.sights() {
                    match stepped {
                        Stepped::Evicted(number) if evicted == Some(number) => next.add_to(all),
                        Stepped::Reclaimed if next.state.reclaimed <= told.reclaimed => {
                            next.add_to(&mut left);
                        }
                        Stepped::Carried(number) => {
                            let has_moved = (sight.has_moved)(number);
                            // What moves twice may be where it was; and whether it has, once more, is not seen. So it is
                            // of what is written anew behind that.
                            let is_again = course.carried.contains(&number)
                                || course.state.in_hand == Some(number);
                            if has_moved || is_again || evicted.is_some() {
                                is_last &= !has_moved || is_again;
                                next.carried.push(number);
                                next.add_to(&mut left);
                            }
                        }
                        Stepped::Evicted(_)
                        | Stepped::Reclaimed
                        | Stepped::Unseen
                        | Stepped::Idle
                        | Stepped::Stuck => {}
                    }
                }
                let is_counted = course.state.reclaimed == told.reclaimed
                    && course.state.evicted_active == told.evicted_active;
                let is_elsewhere = course.carried.iter().all(|number| {
                    let times = course.carried.iter().filter(|other| *other == number);
                    (sight.has_moved)(*number) || times.count() > 1
                });
                if is_last && is_counted && is_elsewhere {
                    course.add_to(all);
                }
            }
            if left.is_empty() {
                return;
            }
            level = left;
        }
        panic!("it goes on and on");
    }

    /// Where it may be when a crawl has done all that it may do.
    pub(super) fn crawl(self, sight: &Sight<'_>, all: &mut Vec<Self>) {
        // It may have gone on by itself before.
        let mut left = vec![self];
        let mut next = 0;
        while let Some(course) = left.get(next) {
            let unseen: Vec<_> = course.unseen().collect();
            for course in unseen {
                course.add_to(&mut left);
            }
            next += 1;
            assert!(next < STEPS_MAX, "it goes on and on");
        }
        for course in left {
            course.crawl_at_once(sight, all);
        }
    }

    /// Where it may be when the crawl is all that it has done.
    fn crawl_at_once(self, sight: &Sight<'_>, all: &mut Vec<Self>) {
        let told = sight.told;
        let mut left = vec![self];
        let mut steps = 0;
        while let Some(course) = left.pop() {
            steps += 1;
            assert!(steps < STEPS_MAX, "it goes on and on");
            // Nobody waits for a crawl.
            for luck in course.state.lucks().iter().filter(|luck| !luck.is_short) {
                let mut next = course.clone();
                let stepped = next.state.crawl_on(*luck, &mut next.seen);
                match stepped {
                    None => {
                        let numbers = next.state.numbers();
                        let is_as_seen = numbers.iter().all(|number| {
                            (sight.has_moved)(*number) == next.carried.contains(number)
                        });
                        if is_as_seen && next.state.reclaimed == told.reclaimed {
                            next.add_to(all);
                        }
                    }
                    Some(Stepped::Carried(number)) => {
                        if (sight.has_moved)(number) {
                            next.carried.push(number);
                            next.add_to(&mut left);
                        }
                    }
                    Some(Stepped::Reclaimed | Stepped::Unseen) => next.add_to(&mut left),
                    Some(Stepped::Evicted(_) | Stepped::Idle | Stepped::Stuck) => {}
                }
            }
        }
    }

    /// What may be seen next, and where it is then.
    fn sights(&self) -> Vec<(Self, Stepped)> {
        let mut sights = Vec::new();
        let mut left = vec![self.clone()];
        let mut steps = 0;
        while let Some(course) = left.pop() {
            steps += 1;
            assert!(steps < STEPS_MAX, "it goes on and on");
            for (next, stepped) in course.next() {
                if stepped == Stepped::Unseen {
                    left.push(next);
                } else {
                    sights.push((next, stepped));
                }
            }
        }
        sights
    }

    /// Where it may be a step later of which nothing is seen.
    fn unseen(&self) -> impl Iterator<Item = Self> {
        let next = self.next();
        next.filter_map(|(next, stepped)| (stepped == Stepped::Unseen).then_some(next))
    }

    /// Where it may be a step later.
    fn next(&self) -> impl Iterator<Item = (Self, Stepped)> {
        let lacks = self
            .state
            .wanted
            .filter(|wanted| !wanted.is_opened && !self.state.has_room(wanted.queue, wanted.bytes));
        // A segment that is wanted may be opened before all has gone that goes for what it is wanted for.
        let early = lacks.map(|wanted| {
            let mut course = self.clone();
            course.state.open_for(wanted);
            let is_opened = true;
            course.state.wanted = Some(Wanted {
                is_opened,
                ..wanted
            });
            (course, Stepped::Unseen)
        });
        let steps = self.state.lucks().iter().map(|luck| {
            let mut course = self.clone();
            let stepped = course.state.step(*luck, &mut course.seen);
            (course, stepped)
        });
        steps.chain(early)
    }

    fn add_to(self, all: &mut Vec<Self>) {
        let is_same = |other: &Self| other.state == self.state && other.carried == self.carried;
        if !all.iter().any(is_same) {
            all.push(self);
        }
    }
}
