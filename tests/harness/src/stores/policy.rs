//! Which item goes next, said by itself: S3-FIFO over segments, record by record, for records of one size.
//!
//! New items stand in a small queue, those that were asked for in a main one. When room is wanted, one of the two
//! gives up its oldest segment: the small one as long as it has more than a fifth of what both have, and the main one
//! then, or when new items have filled the memory eight times meanwhile. From the small queue an item goes that
//! nobody has asked for, and the others go into the main one. In the main queue an item stays for another round
//! for a hit, if it has more than the fewest that are asked for just now and no more than three quarters of its segment
//! have stayed; that number goes up when nearly all of those were used, and down when less than half were. A locked item
//! that is come across leaves its queue for a place where nothing comes across it again, and is none of those that may
//! stay, nor of those that three quarters are taken of. What went from the small queue and comes again at once is known, and
//! stands in the main queue from the beginning.
//!
//! - N10: what is evicted is what this says, in this order, and counted as active if it was hit since it was last
//!   kept.
//!
//! Nothing is said of what is given up while somebody waits for room, when no more than three quarters of a segment stay in the
//! small queue as well: a store that is asked for one small item at a time has some. How far the store has come is seen when
//! something goes: what it may have come past already must not be hit or locked meanwhile ([`may_be_changed`](Policy::may_be_changed)).

use std::collections::VecDeque;

/// The most hits that an item can have to its credit.
const HITS_MAX: u8 = 3;

/// New items may have one in so many bytes.
const SMALL_SHARE: usize = 5;

/// So often may new items fill the memory before the main queue has its turn all the same.
const FILLS_A_TURN: usize = 8;

/// An item, as the policy sees it.
#[derive(Clone, Copy, Debug)]
struct Item {
    number: usize,
    hits: u8,
    is_locked: bool,
}

/// Whose turn it is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Turn {
    Small,
    Main,
}

/// Segments, the oldest first.
#[derive(Clone, Debug, Default)]
struct Line {
    segments: VecDeque<Vec<Item>>,
    /// The newest segment still takes items.
    is_open: bool,
}

/// The segment that is being emptied.
#[derive(Clone, Debug)]
struct Drain {
    turn: Turn,
    left: VecDeque<Item>,
    kept: usize,
    /// How many items may stay, in quarters of an item.
    kept_max: usize,
}

/// What a log that holds items of one size should evict.
#[derive(Clone, Debug)]
pub struct Policy {
    segment_items: usize,
    small: Line,
    main: Line,
    drain: Option<Drain>,
    /// What was locked when its turn came.
    pinned: Vec<usize>,
    /// How many hits an item must have more than, to stay in the main queue.
    hits_needed: u8,
    /// The lengths of the main queue over the segments that the small one has given up since the main one did.
    main_waits: usize,
    evicted_active: u64,
    /// What went last, if it went from the small queue.
    given_up: Option<usize>,
    seen: Choices,
}

/// What has come about, so that the comparison is about something.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Choices {
    /// Items that went from the small queue.
    pub unasked: u64,
    /// Items that went on into the main one.
    pub promoted: u64,
    /// Items that went another round.
    pub again: u64,
    /// Items that went from the main queue.
    pub from_main: u64,
    /// Segments after which an item needed more hits.
    pub raised: u64,
    /// Locked items that were passed over.
    pub passed: u64,
    /// Items that came again, and were known.
    pub known: u64,
}

impl Line {
    fn push(&mut self, item: Item, segment_items: usize) {
        match self.segments.back_mut() {
            Some(newest) if self.is_open && newest.len() < segment_items => newest.push(item),
            Some(_) | None => {
                self.segments.push_back(vec![item]);
                self.is_open = true;
            }
        }
    }

    fn items(&self) -> usize {
        self.segments.iter().map(Vec::len).sum()
    }

    /// The oldest segment; no more is added to it.
    fn take(&mut self) -> Option<Vec<Item>> {
        let oldest = self.segments.pop_front();
        self.is_open &= !self.segments.is_empty();
        oldest
    }
}

impl Policy {
    /// Of an empty log with so many items a segment.
    #[must_use]
    pub fn new(segment_items: usize) -> Self {
        Self {
            segment_items,
            small: Line::default(),
            main: Line::default(),
            drain: None,
            pinned: Vec::new(),
            hits_needed: 0,
            main_waits: 0,
            evicted_active: 0,
            given_up: None,
            seen: Choices::default(),
        }
    }

    /// An item was stored, behind what went for it; `is_known` if it is what was [given up](Self::given_up) before that.
    pub fn store(&mut self, number: usize, is_known: bool) {
        let item = Item {
            number,
            hits: 0,
            is_locked: false,
        };
        self.given_up = self.given_up.filter(|given_up| *given_up != number);
        let line = if is_known {
            self.seen.known += 1;
            &mut self.main
        } else {
            &mut self.small
        };
        line.push(item, self.segment_items);
    }

    /// What went last, if that was from the small queue.
    #[must_use]
    pub const fn given_up(&self) -> Option<usize> {
        self.given_up
    }

    /// An item was asked for.
    pub fn hit(&mut self, number: usize) {
        self.change(number, |item| item.hits = (item.hits + 1).min(HITS_MAX));
    }

    /// An item was locked, and stays so.
    pub fn lock(&mut self, number: usize) {
        self.change(number, |item| item.is_locked = true);
    }

    fn change(&mut self, number: usize, change: impl Fn(&mut Item)) {
        let lines = [&mut self.small, &mut self.main];
        lines
            .into_iter()
            .flat_map(|line| line.segments.iter_mut().flatten())
            .filter(|item| item.number == number)
            .for_each(change);
    }

    /// Whether the store cannot have come to an item yet: neither its segment nor one before it may be the next.
    #[must_use]
    pub fn may_be_changed(&self, number: usize) -> bool {
        let behind = |line: &Line| {
            let mut later = line.segments.iter().skip(2).flatten();
            later.any(|item| item.number == number)
        };
        behind(&self.small) || behind(&self.main)
    }

    /// Something has gone.
    ///
    /// # Panics
    /// N10.
    pub fn evict(&mut self, number: usize) {
        let next = self.next();
        assert_eq!(next, Some(number), "N10: {:?}", self.drain);
    }

    /// Everything that should be there.
    #[must_use]
    pub fn items(&self) -> Vec<usize> {
        let lines = [&self.small, &self.main];
        let queued = lines
            .into_iter()
            .flat_map(|line| line.segments.iter().flatten());
        let left = self.drain.iter().flat_map(|drain| &drain.left);
        let in_line = queued.chain(left).map(|item| item.number);
        let mut all: Vec<_> = in_line.chain(self.pinned.iter().copied()).collect();
        all.sort_unstable();
        all
    }

    /// How many of what went were hit since they were last kept.
    #[must_use]
    pub const fn evicted_active(&self) -> u64 {
        self.evicted_active
    }

    /// What has come about.
    #[must_use]
    pub const fn seen(&self) -> Choices {
        self.seen
    }

    fn turn(&self) -> Option<Turn> {
        let (small, main) = (self.small.segments.len(), self.main.segments.len());
        match (small, main) {
            (0, 0) => None,
            (_, 0) => Some(Turn::Small),
            (0, _) => Some(Turn::Main),
            _ => {
                let all = self.small.items() + self.main.items();
                let is_large = self.small.items() * SMALL_SHARE > all;
                let is_idle = self.main_waits >= (small + main) * FILLS_A_TURN;
                Some(if is_large && !is_idle {
                    Turn::Small
                } else {
                    Turn::Main
                })
            }
        }
    }

    /// Begins to empty a segment.
    fn begin(&mut self, turn: Turn) {
        let line = match turn {
            Turn::Small => {
                self.main_waits += self.main.segments.len();
                &mut self.small
            }
            Turn::Main => {
                self.main_waits = 0;
                &mut self.main
            }
        };
        let left: VecDeque<Item> = line.take().unwrap_or_default().into();
        let locked = left.iter().filter(|item| item.is_locked).count();
        assert!(
            locked * 4 <= left.len() * 3,
            "such a segment is pinned whole"
        );
        let kept_max = match turn {
            Turn::Small => usize::MAX,
            Turn::Main => (left.len() - locked) * 3,
        };
        self.drain = Some(Drain {
            turn,
            left,
            kept: 0,
            kept_max,
        });
    }

    /// Goes on to the next item that goes.
    fn next(&mut self) -> Option<usize> {
        loop {
            let Some(mut drain) = self.drain.take() else {
                let turn = self.turn()?;
                self.begin(turn);
                continue;
            };
            let Some(item) = drain.left.pop_front() else {
                self.end(&drain);
                continue;
            };
            if item.is_locked {
                self.drain = Some(drain);
                self.pinned.push(item.number);
                self.seen.passed += 1;
                continue;
            }
            let has_room = (drain.kept + 1).saturating_mul(4) <= drain.kept_max;
            let stays = match drain.turn {
                Turn::Small => (item.hits > 0 && has_room).then_some(0),
                Turn::Main => (item.hits > self.hits_needed && has_room).then(|| item.hits - 1),
            };
            let turn = drain.turn;
            drain.kept += usize::from(stays.is_some());
            self.drain = Some(drain);
            if let Some(hits) = stays {
                self.main.push(Item { hits, ..item }, self.segment_items);
                *match turn {
                    Turn::Small => &mut self.seen.promoted,
                    Turn::Main => &mut self.seen.again,
                } += 1;
                continue;
            }
            *match turn {
                Turn::Small => &mut self.seen.unasked,
                Turn::Main => &mut self.seen.from_main,
            } += 1;
            self.evicted_active += u64::from(item.hits > 0);
            self.given_up = (turn == Turn::Small).then_some(item.number);
            return Some(item.number);
        }
    }

    /// A segment is empty.
    fn end(&mut self, drain: &Drain) {
        if drain.turn == Turn::Small {
            return;
        }
        let kept = drain.kept * 4;
        if kept * 8 > drain.kept_max * 7 {
            self.hits_needed = (self.hits_needed + 1).min(HITS_MAX);
            self.seen.raised += 1;
        } else if kept * 2 < drain.kept_max {
            self.hits_needed = self.hits_needed.saturating_sub(1);
        }
    }
}
