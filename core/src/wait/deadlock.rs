//! Whether a connection that waits would wait for itself, by way of others.
//!
//! Who waits for a lock can have it once enough of its holders have given it back, and once those who stand in
//! line before it have had it. A holder can give back as long as it does not wait itself, or if it can have what it
//! waits for. So a wait is in vain if, whatever is given back by those who do not wait, it is never answered.
//!
//! - Q9: a wait is refused as a deadlock if and only if it would be in vain.
//!
//! It is enough to ask that of a wait before it begins: no other becomes vain by one that is not, nor by a lock that
//! is granted, since whoever is granted one does not wait.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use crate::command::Wait;
use crate::key::Key;
use crate::owner::Owner;

/// What comes of asking whether a wait would be in vain.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Chain {
    /// It would not: whoever asks may wait.
    Ends,
    /// It would, since it would come back to whoever asks: a deadlock.
    Closes,
    /// It takes more to tell than one looks at.
    TooLong,
}

impl Chain {
    /// What becomes of a request that is ready to wait: what the core that has the key is to be told.
    #[must_use]
    pub const fn judge(self, wait: Wait) -> Wait {
        match (self, wait) {
            (Self::Ends, _) | (_, Wait::No) => wait,
            (Self::Closes, _) => Wait::WouldDeadlock,
            (Self::TooLong, _) => Wait::TooLong,
        }
    }
}

/// What a connection waits for, or would.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Sought<'a> {
    /// Whose lock.
    pub key: Key<'a>,
    /// Among how many it can be had: the least that it, or anybody who waits before it, has asked for. 1 is for
    /// itself alone.
    pub among: u32,
}

/// Whether `conn`, if it waited for what is `sought`, would do so in vain (Q9); and how many grants were looked at to find
/// out, which is the work that it took.
///
/// `grants_of` tells of each holder of a key, and among how many it holds it, 1 being alone, and `None` for a grant that is
/// over; `sought_by` says what a connection waits for; `looks_max` is how many grants are looked at
/// ([`wait_chain_max`](crate::Limits::wait_chain_max)). Over several cores, both are to be asked of all of them at one
/// moment: [`LockTable::grants_of`](crate::engine::LockTable::grants_of),
/// [`Core::sought_by`](crate::engine::Core::sought_by).
pub fn would_deadlock<'a, H>(
    conn: Owner,
    sought: Sought<'a>,
    looks_max: usize,
    grants_of: impl Fn(Key<'a>) -> H,
    sought_by: impl Fn(Owner) -> Option<Sought<'a>>,
) -> (Chain, usize)
where
    H: Iterator<Item = Option<(Owner, u32)>>,
{
    let mut looks_left = looks_max;
    let chain = search(conn, sought, &mut looks_left, grants_of, sought_by);
    (chain, looks_max - looks_left)
}

fn search<'a, H>(
    conn: Owner,
    sought: Sought<'a>,
    looks_left: &mut usize,
    grants_of: impl Fn(Key<'a>) -> H,
    sought_by: impl Fn(Owner) -> Option<Sought<'a>>,
) -> Chain
where
    H: Iterator<Item = Option<(Owner, u32)>>,
{
    // A search in depth. On the way are those on whose waits that of `conn` depends just now: that one of them can have
    // what it waits for is not shown by itself.
    let mut way = Vec::new();
    let mut on_way = BTreeSet::from([conn]);
    // Those of whom it is known.
    let mut can = BTreeSet::new();
    let mut next = Some((conn, sought));
    loop {
        if let Some((waiter, sought)) = next.take() {
            let Some(place) = Place::new(waiter, sought, looks_left, &grants_of) else {
                return Chain::TooLong;
            };
            if way.is_empty() && place.holders.iter().any(|(holder, _)| *holder == conn) {
                // One connection holds a key once.
                return Chain::Closes;
            }
            way.push(place);
        }
        let Some(place) = way.last_mut() else {
            return Chain::Ends;
        };
        let Some(is_answered) = place.is_answered() else {
            let (holder, among) = place.holders[place.looked_at];
            place.looked_at += 1;
            if can.contains(&holder) {
                place.goes();
            } else if on_way.contains(&holder) {
                place.stays(among);
            } else if let Some(sought) = sought_by(holder) {
                on_way.insert(holder);
                next = Some((holder, sought));
            } else {
                place.goes();
            }
            continue;
        };
        let waiter = place.waiter;
        way.pop();
        on_way.remove(&waiter);
        if is_answered {
            can.insert(waiter);
        }
        match way.last_mut() {
            None if is_answered => return Chain::Ends,
            None => return Chain::Closes,
            Some(before) if is_answered => before.goes(),
            Some(before) => before.stays(before.last_among()),
        }
    }
}

/// One who waits, and what has been found out of the holders of what it waits for.
struct Place {
    waiter: Owner,
    holders: Vec<(Owner, u32)>,
    /// How many of them.
    looked_at: usize,
    /// How many of them can give the lock back.
    going: usize,
    /// How many of them cannot, as far as is known on this way.
    staying: u32,
    /// Among how many they can hold it, and whoever waits here: the least.
    among: u32,
    /// The same, if none of the holders goes.
    among_all: u32,
}

impl Place {
    /// `None` if there are more grants than `looks_left`, which it takes them from.
    fn new<'a, H>(
        waiter: Owner,
        sought: Sought<'a>,
        looks_left: &mut usize,
        grants_of: &impl Fn(Key<'a>) -> H,
    ) -> Option<Self>
    where
        H: Iterator<Item = Option<(Owner, u32)>>,
    {
        let mut looks = 0;
        let grants = grants_of(sought.key).take(looks_left.saturating_add(1));
        let holders: Vec<_> = grants.inspect(|_| looks += 1).flatten().collect();
        let left = looks_left.checked_sub(looks);
        *looks_left = left.unwrap_or(0);
        left?;
        let among_all = holders.iter().map(|(_, among)| *among);
        Some(Self {
            waiter,
            looked_at: 0,
            going: 0,
            staying: 0,
            among: sought.among,
            among_all: among_all.fold(sought.among, u32::min),
            holders,
        })
    }

    /// Whether who waits here can have it, as soon as that is known: if fewer stay than each of them, and it, can
    /// be among.
    fn is_answered(&self) -> Option<bool> {
        let may_stay = u32::try_from(self.holders.len() - self.going).unwrap_or(u32::MAX);
        if self.staying >= self.among {
            Some(false)
        } else if may_stay < self.among_all || self.looked_at == self.holders.len() {
            Some(true)
        } else {
            None
        }
    }

    const fn goes(&mut self) {
        self.going += 1;
    }

    fn stays(&mut self, among: u32) {
        self.staying += 1;
        self.among = self.among.min(among);
    }

    /// Of the holder that was looked at last.
    fn last_among(&self) -> u32 {
        self.holders[self.looked_at - 1].1
    }
}

#[cfg(test)]
mod tests;
