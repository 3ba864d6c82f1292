//! What a log does next to win room, a step at a time: an item is carried, goes or is looked at, a segment is begun with
//! or done with.

use super::choices::Choices;
use super::line::{Item, SLACK_PARTS, SLACK_PARTS_WORTH, Slack};
use super::state::{Drain, HITS_MAX, Queue, Rule, State};

/// New items may have one in so many bytes.
const SMALL_SHARE: usize = 5;

/// So often may new items fill the memory before the main queue has its turn all the same.
const FILLS_A_TURN: usize = 8;

/// What cannot be seen from outside.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Luck {
    /// A segment more is free for what is carried.
    pub(super) is_free: bool,
    /// Somebody waits for room, or hardly any is left.
    pub(super) is_short: bool,
}

/// What has come of a step.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Stepped {
    /// Nothing that is seen.
    Unseen,
    /// An expired item has gone.
    Reclaimed,
    /// This item has been written once more, elsewhere.
    Carried(usize),
    Evicted(usize),
    /// There was nothing to be done.
    Idle,
    /// What must be carried has no place: nothing is said of what comes of that.
    Stuck,
}

/// Where a segment is: its queue, and how many in it are older.
type At = (Queue, usize);

impl State {
    /// What may be so or so for the next step.
    pub(super) fn lucks(&self) -> &'static [Luck] {
        const GOOD: Luck = Luck {
            is_free: true,
            is_short: false,
        };
        const NONE_FREE: Luck = Luck {
            is_free: false,
            ..GOOD
        };
        const SHORT: Luck = Luck {
            is_short: true,
            ..GOOD
        };
        let Some(drain) = &self.drain else {
            let may_be_short = self.setting.may_be_short && self.sweep.is_none();
            return if may_be_short {
                &[GOOD, SHORT]
            } else {
                &[GOOD]
            };
        };
        match drain.left.front() {
            Some(item) if drain.has_opened && self.would_open(item, drain) => &[GOOD, NONE_FREE],
            Some(_) | None => &[GOOD],
        }
    }

    /// Whether an item would need a segment more, if it is carried.
    fn would_open(&self, item: &Item, drain: &Drain) -> bool {
        let queue = match drain.rule {
            _ if item.is_locked => Queue::Pinned,
            rule if self.in_hand == Some(item.number) => rule.home(),
            Rule::Keep(queue) => queue,
            Rule::Promote | Rule::Again => Queue::Main,
        };
        !self.has_room(queue, item.bytes)
    }

    /// The next step.
    pub(super) fn step(&mut self, luck: Luck, seen: &mut Choices) -> Stepped {
        if let Some(drain) = self.drain.take() {
            return self.drain_on(drain, luck, seen);
        }
        if let Some(sweep) = self.sweep.take() {
            return self.sweep_on(sweep, seen);
        }
        if self.sweep_flushed(seen) || !self.has_swept && self.begin_sweep() {
            return Stepped::Unseen;
        }
        if let Some((queue, segment)) = self.slackest(SLACK_PARTS_WORTH) {
            let rule = match queue {
                Queue::Small | Queue::Main => Rule::Keep(queue),
                Queue::Pinned => Rule::Again,
            };
            seen.slack += 1;
            seen.slack_pinned += u64::from(queue == Queue::Pinned);
            self.begin_drain((queue, segment), rule, true);
            return Stepped::Unseen;
        }
        let Some(queue) = self.turn() else {
            let is_begun = self.begin_sweep();
            return if is_begun {
                Stepped::Unseen
            } else {
                Stepped::Idle
            };
        };
        self.take_turn(queue, luck, seen);
        Stepped::Unseen
    }

    /// The next step of a crawl that has time for all that it may do; `None` if that is done.
    pub(super) fn crawl_on(&mut self, luck: Luck, seen: &mut Choices) -> Option<Stepped> {
        if let Some(sweep) = self.sweep.take() {
            return Some(self.sweep_on(sweep, seen));
        }
        if self.begin_sweep() {
            return Some(Stepped::Unseen);
        }
        match self.drain.take() {
            Some(drain) if matches!(drain.rule, Rule::Keep(_)) => {
                Some(self.drain_on(drain, luck, seen))
            }
            Some(drain) => {
                self.drain = Some(drain);
                None
            }
            None => {
                let (queue, segment) = self.slackest(SLACK_PARTS / 2)?;
                let home = match queue {
                    Queue::Small => Queue::Small,
                    Queue::Main | Queue::Pinned => Queue::Main,
                };
                seen.slack_in_crawl += 1;
                self.begin_drain((queue, segment), Rule::Keep(home), true);
                Some(Stepped::Unseen)
            }
        }
    }

    fn drain_on(&mut self, mut drain: Drain, luck: Luck, seen: &mut Choices) -> Stepped {
        let Some(item) = drain.left.pop_front() else {
            self.end_drain(&drain, seen);
            return Stepped::Unseen;
        };
        self.empty(item, drain, luck, seen)
    }

    /// Whose turn it is to give up its oldest segment.
    fn turn(&self) -> Option<Queue> {
        let (small, main) = (self.small.len(), self.main.len());
        match (small, main) {
            (0, 0) => None,
            (_, 0) => Some(Queue::Small),
            (0, _) => Some(Queue::Main),
            _ => {
                let weight = self.small.weight();
                let is_large = weight * SMALL_SHARE > weight + self.main.weight();
                let is_idle = self.main_waits >= (small + main) * FILLS_A_TURN;
                Some(if is_large && !is_idle {
                    Queue::Small
                } else {
                    Queue::Main
                })
            }
        }
    }

    /// Begins with the oldest segment of a queue that has one.
    fn take_turn(&mut self, queue: Queue, luck: Luck, seen: &mut Choices) {
        self.main_waits = match queue {
            Queue::Small => self.main_waits + self.main.len(),
            Queue::Main | Queue::Pinned => 0,
        };
        if self.line(queue).sealed().is_empty() {
            self.seal(queue);
        }
        let Some(oldest) = self.line(queue).sealed().front() else {
            return;
        };
        if oldest.locked() * 4 > oldest.live() * 3 {
            let segment = self.withdraw(queue, 0);
            let pinned = self.pinned.sealed_mut();
            pinned.push_back(segment);
            let last = pinned.len() - 1;
            pinned[last].slack = None;
            self.settle(Queue::Pinned, last);
            seen.pinned_whole += 1;
        } else if queue == Queue::Small {
            self.begin_drain((queue, 0), Rule::Promote, luck.is_short);
        } else {
            self.begin_drain((queue, 0), Rule::Again, true);
        }
    }

    /// The segment that is slackest, if it is so much at least; and of those the one that has been so for longest.
    fn slackest(&self, parts_min: usize) -> Option<At> {
        let all = Queue::ELSEWHERE.into_iter().flat_map(|queue| {
            let sealed = self.line(queue).sealed().iter().enumerate();
            sealed.filter_map(move |(at, segment)| Some((segment.slack?, (queue, at))))
        });
        let first = |(one, _): &(Slack, At), (other, _): &(Slack, At)| {
            let by_parts = other.parts.cmp(&one.parts);
            by_parts.then(one.before.cmp(&other.before))
        };
        let slackest = all.min_by(first);
        let slackest = slackest.filter(|(slack, _)| slack.parts >= parts_min);
        slackest.map(|(_, at)| at)
    }

    fn begin_drain(&mut self, (queue, segment): At, rule: Rule, is_bounded: bool) {
        let segment = self.withdraw(queue, segment);
        let may_go = segment.live() - segment.locked();
        let due = segment.due;
        self.drain = Some(Drain {
            rule,
            left: segment.into_items(),
            kept: 0,
            may_go,
            is_bounded,
            has_opened: false,
            due,
            is_swept: false,
        });
    }

    /// What becomes of the next item of the segment that is being emptied.
    fn empty(&mut self, item: Item, mut drain: Drain, luck: Luck, seen: &mut Choices) -> Stepped {
        let fits = !drain.is_bounded || (drain.kept + item.bytes) * 4 <= drain.may_go * 3;
        let is_in_hand = self.in_hand == Some(item.number);
        let (queue, hits) = if item.is_locked {
            seen.passed += 1;
            (Some(Queue::Pinned), item.hits)
        } else if is_in_hand {
            (Some(drain.rule.home()), item.hits)
        } else if item.is_past(self.now) {
            self.reclaimed += 1;
            seen.expired_in_drain += 1;
            self.drain = Some(drain);
            return Stepped::Reclaimed;
        } else {
            match drain.rule {
                Rule::Keep(queue) => {
                    seen.carried += 1;
                    (Some(queue), item.hits)
                }
                Rule::Promote => {
                    let stays = item.hits > 0 && fits;
                    seen.promoted += u64::from(stays);
                    seen.crowded += u64::from(item.hits > 0 && !fits);
                    (stays.then_some(Queue::Main), 0)
                }
                Rule::Again => {
                    let stays = item.hits > self.hits_needed && fits;
                    seen.again += u64::from(stays);
                    (stays.then_some(Queue::Main), item.hits.saturating_sub(1))
                }
            }
        };
        let Some(queue) = queue else {
            let is_remembered = drain.rule == Rule::Promote;
            self.drain = Some(drain);
            return self.give_up(&item, is_remembered, seen);
        };
        seen.in_hand += u64::from(is_in_hand);
        let is_for_hits = !item.is_locked && !is_in_hand && !matches!(drain.rule, Rule::Keep(_));
        let Some(place) = self.place(queue, item.bytes, luck, &mut drain) else {
            self.drain = Some(drain);
            return if is_for_hits {
                self.give_up(&item, false, seen)
            } else {
                Stepped::Stuck
            };
        };
        seen.elsewhere += u64::from(place != queue);
        drain.kept += if is_for_hits { item.bytes } else { 0 };
        self.push(place, Item { hits, ..item });
        self.drain = Some(drain);
        Stepped::Carried(item.number)
    }

    /// The queue in which a record finds room.
    fn place(
        &mut self,
        queue: Queue,
        bytes: usize,
        luck: Luck,
        drain: &mut Drain,
    ) -> Option<Queue> {
        if self.has_room(queue, bytes) {
            return Some(queue);
        }
        if luck.is_free {
            drain.has_opened = true;
            self.open(queue);
            return Some(queue);
        }
        let mut others = Queue::ELSEWHERE.into_iter();
        others.find(|other| self.has_room(*other, bytes))
    }

    fn give_up(&mut self, item: &Item, is_remembered: bool, seen: &mut Choices) -> Stepped {
        if is_remembered {
            seen.unasked += 1;
            self.mark(item.number, Some(item.number));
        } else {
            seen.from_main += 1;
        }
        seen.large += u64::from(item.weight > item.bytes);
        self.evicted_active += u64::from(item.hits > 0);
        Stepped::Evicted(item.number)
    }

    /// A segment is empty.
    fn end_drain(&mut self, drain: &Drain, seen: &mut Choices) {
        self.has_swept = false;
        if drain.rule != Rule::Again {
            return;
        }
        // Of the three quarters that may stay, more than seven eighths have, or less than half.
        let (kept, kept_max) = (drain.kept * 4, drain.may_go * 3);
        if kept * 8 > kept_max * 7 {
            self.hits_needed = (self.hits_needed + 1).min(HITS_MAX);
            seen.raised += 1;
        } else if kept * 2 < kept_max {
            self.hits_needed = self.hits_needed.saturating_sub(1);
        }
    }
}
