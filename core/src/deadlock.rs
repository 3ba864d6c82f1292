//! Whether a connection that waits would wait for itself, by way of others.
//!
//! A waiter gets a lock once enough of its holders have released it, and once the earlier waiters have had it.
//! A holder can release a lock if it does not wait itself, or if it can get the lock that it waits for. So a
//! wait is in vain if it is never answered, even after all connections that do not wait have released their
//! locks.
//!
//! - Q9: A wait is refused as a deadlock if and only if it would be in vain.
//!
//! It is enough to check a wait before it begins. A later wait makes an earlier one vain only if it is vain
//! itself. A granted lock makes none vain, since its holder does not wait.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use latchd_protocol::Owner;
use latchd_protocol::key::Key;

/// The result of the search for a deadlock.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Deadlock {
    /// No deadlock: the requester may wait.
    No,
    /// A deadlock: the chain of waits leads back to the requester.
    Yes,
    /// The search reached its limit.
    TooLong,
}

/// The lock that a connection waits for, or would.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) struct WaitTarget<'a> {
    /// The key.
    pub(crate) key: Key<'a>,
    /// The most holders it can be shared among: the least bound of this request and of all earlier waiters. 1
    /// means exclusive.
    pub(crate) max_sharers: u32,
}

/// Whether a wait of `owner` for the lock `target` would be in vain (Q9). Also returns the number of grants that
/// it looked at, which is the work it took.
///
/// `grants_of` returns each holder of a key with its bound of sharers: 1 for an exclusive lock, `None` for a
/// grant that is over. `target_of` returns the lock that a connection waits for. `looks_max` is the most grants
/// to look at ([`wait_chain_max`](crate::Limits::wait_chain_max)).
pub(crate) fn would_deadlock<'a, H>(
    owner: Owner,
    target: WaitTarget<'a>,
    looks_max: usize,
    grants_of: impl Fn(Key<'a>) -> H,
    target_of: impl Fn(Owner) -> Option<WaitTarget<'a>>,
) -> (Deadlock, usize)
where
    H: Iterator<Item = Option<(Owner, u32)>>,
{
    let mut looks_left = looks_max;
    let chain = search(owner, target, &mut looks_left, grants_of, target_of);
    (chain, looks_max - looks_left)
}

fn search<'a, H>(
    owner: Owner,
    target: WaitTarget<'a>,
    looks_left: &mut usize,
    grants_of: impl Fn(Key<'a>) -> H,
    target_of: impl Fn(Owner) -> Option<WaitTarget<'a>>,
) -> Deadlock
where
    H: Iterator<Item = Option<(Owner, u32)>>,
{
    // A depth-first search. The path has the connections on which the wait of `owner` depends just now. Reaching
    // one of them again does not show that it can get its lock.
    let mut way = Vec::new();
    let mut on_way = BTreeSet::from([owner]);
    // The connections that are known to get their locks.
    let mut can = BTreeSet::new();
    let mut next = Some((owner, target));
    loop {
        if let Some((waiter, target)) = next.take() {
            let Some(place) = Waiting::new(waiter, target, looks_left, &grants_of) else {
                return Deadlock::TooLong;
            };
            if way.is_empty() && place.holders.iter().any(|(holder, _)| *holder == owner) {
                // A connection holds a key only once.
                return Deadlock::Yes;
            }
            way.push(place);
        }
        let Some(place) = way.last_mut() else {
            return Deadlock::No;
        };
        let Some(is_answered) = place.is_answered() else {
            let (holder, max_sharers) = place.holders[place.looked_at];
            place.looked_at += 1;
            if can.contains(&holder) {
                place.goes();
            } else if on_way.contains(&holder) {
                place.stays(max_sharers);
            } else if let Some(target) = target_of(holder) {
                on_way.insert(holder);
                next = Some((holder, target));
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
            None if is_answered => return Deadlock::No,
            None => return Deadlock::Yes,
            Some(before) if is_answered => before.goes(),
            Some(before) => before.stays(before.last_among()),
        }
    }
}

/// A waiting connection, and the known facts about the holders of the lock that it waits for.
struct Waiting {
    waiter: Owner,
    holders: Vec<(Owner, u32)>,
    /// Holders that were looked at.
    looked_at: usize,
    /// Holders that can release the lock.
    going: usize,
    /// Holders that cannot, as far as this path shows.
    staying: u32,
    /// The least bound of sharers of these holders and of the waiting connection.
    max_sharers: u32,
    /// The same, if none of the holders releases.
    max_sharers_all: u32,
}

impl Waiting {
    /// `None` if there are more grants than `looks_left`, which is reduced by them.
    fn new<'a, H>(
        waiter: Owner,
        target: WaitTarget<'a>,
        looks_left: &mut usize,
        grants_of: &impl Fn(Key<'a>) -> H,
    ) -> Option<Self>
    where
        H: Iterator<Item = Option<(Owner, u32)>>,
    {
        let mut looks = 0;
        let grants = grants_of(target.key).take(looks_left.saturating_add(1));
        let holders: Vec<_> = grants.inspect(|_| looks += 1).flatten().collect();
        let left = looks_left.checked_sub(looks);
        *looks_left = left.unwrap_or(0);
        left?;
        let max_sharers_all = holders.iter().map(|(_, max_sharers)| *max_sharers);
        Some(Self {
            waiter,
            looked_at: 0,
            going: 0,
            staying: 0,
            max_sharers: target.max_sharers,
            max_sharers_all: max_sharers_all.fold(target.max_sharers, u32::min),
            holders,
        })
    }

    /// Whether the waiting connection can get the lock, as soon as that is known. It can if the holders that
    /// stay are fewer than the bound of each of them, and than its own.
    fn is_answered(&self) -> Option<bool> {
        let may_stay = u32::try_from(self.holders.len() - self.going).unwrap_or(u32::MAX);
        if self.staying >= self.max_sharers {
            Some(false)
        } else if may_stay < self.max_sharers_all || self.looked_at == self.holders.len() {
            Some(true)
        } else {
            None
        }
    }

    const fn goes(&mut self) {
        self.going += 1;
    }

    fn stays(&mut self, max_sharers: u32) {
        self.staying += 1;
        self.max_sharers = self.max_sharers.min(max_sharers);
    }

    /// The bound of the last holder that was looked at.
    fn last_among(&self) -> u32 {
        self.holders[self.looked_at - 1].1
    }
}

#[cfg(test)]
mod tests;
