//! Steps over several shards of items and one lock manager: the work that a step leaves for other keys, a `flush_all`, and
//! what concerns all items or all locks of an owner.
//!
//! - D1: All locks of an owner end in one step of the manager, whatever shards their keys are in. No client sees one of them
//!   free and another one held.
//! - D2: A `flush_all` takes effect in all shards at once.
//! - D3: The items of every shard leave an equal part of the memory of all tables free, as far as 256 KiB of growth. If one
//!   shard cannot, no table grows until a tick finds that all can.

use latchd_protocol::Owner;
use latchd_protocol::command::ScanCursor;
use latchd_protocol::item::Cas;
use latchd_protocol::reply::MemoryRefused;
use latchd_protocol::session::{Open, SessionAction, SessionRefusal, SessionReply, SessionRequest};
use latchd_protocol::stats::{Counters, Stats};
use latchd_protocol::time::{Exptime, Instant};

use super::items::Items;
use super::items::dump_format::Numbers;
use super::limit;
use super::manager::{Cause, DueKey, LockManager};
use super::queues::STALE_MAX;
use crate::limits::Limits;
use crate::sessions::{Asker, EndedSession, SessionDone};
use crate::store::Store;

/// Shards of items and their lock manager, at one moment.
///
/// A transport with several threads locks a shard before the manager, several shards in the order of their numbers, and no
/// shard while it has locked the manager.
pub trait Shards {
    /// Where the items are.
    type Store: Store;

    /// Calls `act` with the manager, and no shard.
    fn manage<R>(&mut self, act: impl FnOnce(&mut LockManager) -> R) -> R;

    /// Calls `act` with one shard after the other.
    fn each(&mut self, act: impl FnMut(&mut Items<Self::Store>));

    /// Calls `act` with all shards together and the manager.
    fn together<R>(
        &mut self,
        act: impl FnOnce(&mut [&mut Items<Self::Store>], &mut LockManager) -> R,
    ) -> R;

    /// A step that updates a key ([`Rules::update_due`](super::Rules::update_due)).
    fn update(&mut self, due: &DueKey);

    /// A step that ends the lock or the share of a key that is over ([`Rules::end_due`](super::Rules::end_due)).
    fn end(&mut self, due: &DueKey);
}

/// Updates keys that are due, at most `each_max` for each cause, in this order:
///
/// 1. Waits that are over end, so that no lock is handed over to a client that has given up.
/// 2. Leases that have expired end, then sessions that are over. Before any hand-over: the bounds of an owner do not count its
///    expired locks (L13), and a lock that expires now is handed over in the same turn.
/// 3. Keys are handed over.
#[cold]
pub fn run_due(shards: &mut impl Shards, each_max: usize) {
    let grants_max = shards.manage(|manager| manager.grants_max());
    let mut stale_max = STALE_MAX;
    for _ in 0..each_max {
        if !shards.manage(|manager| manager.end_lock_wait(&mut stale_max)) {
            break;
        }
        // The next waiter may have the lock now.
        let left = shards.manage(|manager| manager.next_key(Cause::Left, grants_max));
        if let Some(due) = left {
            shards.update(&due);
        }
    }
    shards.manage(|manager| {
        manager.work.charge(STALE_MAX - stale_max);
        manager.end_get_waits(each_max);
    });
    for _ in 0..each_max {
        let Some(due) = shards.manage(LockManager::next_expired) else {
            break;
        };
        shards.end(&due);
    }
    for _ in 0..each_max {
        if !shards.manage(LockManager::end_due_session) {
            break;
        }
    }
    for cause in Cause::ALL {
        for _ in 0..each_max {
            let Some(due) = shards.manage(|manager| manager.next_key(cause, grants_max)) else {
                break;
            };
            shards.update(&due);
        }
    }
}

/// Ends an owner: its locks, its waits and its wins (D1).
pub fn close(shards: &mut impl Shards, owner: Owner) {
    end_owner(shards, |manager| manager.close(owner));
}

/// Opens, resumes or ends a session for a connection, or takes it over. `number` gives the number of a new session, which no
/// owner may have had. The end is one of everything that the session has (D1).
pub fn session(
    shards: &mut impl Shards,
    asker: Asker,
    request: SessionRequest<'_>,
    number: impl FnOnce() -> u64,
) -> SessionDone {
    let SessionRequest { token, action } = request;
    match action {
        SessionAction::Open {
            seconds,
            only_resumes,
        } => {
            update_some(shards);
            let open = Open {
                token,
                ttl_ms: u64::from(seconds) * 1_000,
                only_resumes,
            };
            shards.manage(|manager| manager.open_session(asker, open, number))
        }
        SessionAction::End => {
            match end_owner(shards, |manager| manager.end_session(token, asker)) {
                Ok(EndedSession { owner, lost }) => SessionDone {
                    lost: lost.filter(|lost| lost.conn != asker.conn),
                    ..SessionReply::Ended(owner).into()
                },
                Err(SessionRefusal::NoSession) => SessionReply::NotFound.into(),
                Err(refusal) => SessionReply::Refused(refusal).into(),
            }
        }
    }
}

/// A step that ends an owner. Some of the keys that are due are updated before, so that a lease that has expired is not taken
/// for one that its owner has ended, and some afterwards.
fn end_owner<R>(shards: &mut impl Shards, end: impl FnOnce(&mut LockManager) -> R) -> R {
    let each_max = update_some(shards);
    let ended = shards.manage(end);
    run_due(shards, each_max);
    ended
}

/// Updates as many keys that are due as with each command. Returns that number.
fn update_some(shards: &mut impl Shards) -> usize {
    let (each_max, has_due) =
        shards.manage(|manager| (manager.limits.locks_settled_max, manager.has_due()));
    if has_due {
        run_due(shards, each_max);
    }
    each_max
}

/// Releases all locks of an owner (D1), which is asked for when the manager is locked.
pub fn unlock_all(shards: &mut impl Shards, owner: impl FnOnce() -> Option<Owner>) {
    let due_max = shards.manage(|manager| manager.unlock_all(owner()?));
    if let Some(each_max) = due_max {
        run_due(shards, each_max);
    }
}

/// A `flush_all`: now, or at its time.
pub fn flush_all(shards: &mut impl Shards, at: Exptime) {
    let is_now = shards.together(|all, manager| {
        manager.counters.cmd_flush += 1;
        // Some shards may be ahead of the request by the time of other threads.
        let clocks = all.iter().map(|items| items.clock);
        let clock = clocks.min_by_key(|clock| clock.now);
        let clock = clock.expect("there are shards");
        let delay_ms = clock.delay_ms(at);
        let flush_at = clock.now.as_millis().saturating_add(delay_ms);
        for items in &mut *all {
            items.flush_at = Some(Instant::from_millis(flush_at));
        }
        delay_ms == 0
    });
    if is_now {
        flush_due(shards);
    }
}

/// Lets a `flush_all` that is due in one shard take effect in all of them (D2), unless another thread was faster.
#[cold]
pub fn flush_due(shards: &mut impl Shards) {
    let due_max = shards.together(|all, manager| {
        let is_due = |items: &&mut Items<_>| items.is_flush_due(items.clock.now);
        if !all.iter().any(is_due) {
            return None;
        }
        for items in all {
            items.flush();
        }
        manager.flush();
        manager.due_after_end()
    });
    if let Some(each_max) = due_max {
        run_due(shards, each_max);
    }
}

/// The statistics of all shards, one after the other: the counters of a busy server never stand still.
pub fn stats(shards: &mut impl Shards) -> Stats {
    let mut sum = shards.manage(|manager| manager.stats());
    shards.each(|items| sum.add(&items.stats()));
    sum
}

/// `stats reset`.
pub fn reset_stats(shards: &mut impl Shards) {
    shards.manage(|manager| {
        manager.counters = Counters::default();
        manager.locks.table.forget_times();
        manager.sessions.reset_counters();
    });
    shards.each(|items| {
        items.counters = Counters::default();
        items.detail.forget();
    });
}

/// `stats detail on` and `off`.
pub fn turn_detail(shards: &mut impl Shards, is_on: bool) {
    shards.together(|all, _| {
        for items in all {
            items.detail.turn(is_on);
        }
    });
}

/// Goes on above the numbers of an earlier run. To come before the first command.
pub fn resume(shards: &mut impl Shards, numbers: Numbers) {
    shards.manage(|manager| manager.locks.resume(numbers.fence));
    shards.each(|items| items.resume(numbers.cas));
}

/// The numbers above which the next run must begin.
pub fn numbers(shards: &mut impl Shards) -> Numbers {
    let mut numbers = Numbers {
        cas: Cas::FIRST,
        fence: shards.manage(|manager| manager.locks.next_fence),
    };
    shards.each(|items| numbers.cas = numbers.cas.max(items.next_cas));
    numbers
}

/// The bits of a [`ScanCursor`] that belong to one shard; the bits above them are the number of the shard.
const CURSOR_BITS: u32 = 56;

/// The shard of a place in a list over all shards, and the place in it.
#[must_use]
pub fn shard_at(cursor: ScanCursor) -> (usize, ScanCursor) {
    let shard = usize::try_from(cursor.0 >> CURSOR_BITS).unwrap_or(usize::MAX);
    (shard, ScanCursor(cursor.0 & ((1 << CURSOR_BITS) - 1)))
}

/// The place in a list over `count` shards that follows a page of one shard: `next` is its next place there, if there is one.
///
/// # Panics
/// The place is beyond 2^56.
#[must_use]
pub fn after_page(shard: usize, next: Option<ScanCursor>, count: usize) -> Option<ScanCursor> {
    let (shard, at) = match next {
        Some(at) => (shard, at),
        None => (shard + 1, ScanCursor::default()),
    };
    assert!(at.0 < 1 << CURSOR_BITS, "a store counts its slots");
    (shard < count).then_some(ScanCursor(((shard as u64) << CURSOR_BITS) | at.0))
}

/// Time has passed: looks for expired items and for lost wins, a bounded number.
pub fn tick(shards: &mut impl Shards) {
    let each_max = shards.manage(|manager| {
        manager.tick();
        manager.limits.crawl_items_max
    });
    run_due(shards, each_max);
    // The tables may have become smaller: then this gives memory back.
    spread_tables(shards);
    shards.each(Items::crawl);
}

/// Has every shard, one after the other, leave its part of the memory of all tables free (D3).
pub fn spread_tables(shards: &mut impl Shards) {
    let part = shards.manage(LockManager::begin_spread);
    let mut is_full = false;
    shards.each(|items| is_full |= items.set_aside(None, part).is_err());
    shards.manage(|manager| manager.end_spread(is_full));
}

/// Sets the bounds of all shards together, unless they are refused.
///
/// # Errors
/// Why. Nothing has changed then.
pub fn set_limits(shards: &mut impl Shards, limits: &Limits) -> Result<(), MemoryRefused> {
    shards.together(|all, manager| {
        limit::judge(all, manager, limits)?;
        let share = limits.share(all.len());
        for items in all {
            items.set_limits(&share);
        }
        manager.set_limits(limits);
        Ok(())
    })
}
