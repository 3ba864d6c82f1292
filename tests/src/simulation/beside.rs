//! The oracle beside the core: each reply is compared. If memory is scarce, evictions and refusals
//! that the oracle cannot know are followed.
//!
//! When a log evicts or has no room depends on how records lie in its segments. So the core is
//! asked first:
//!
//! - Evicted and expired items are searched for whenever the core's counters of them have moved
//!   ([`super::follow`]). There must be as many as it counts. Whether they were fetched and had an
//!   exptime must be as it counts, too; they are not held, and no evicted one is the requested one.
//!   If nothing may be evicted, or there is room for all, nothing is evicted.
//! - When `stats` is requested, it shows the number of items that the oracle has, expired ones
//!   included, and their bytes.
//! - A refusal for want of room is accepted if the request needs room: then the answer, and all
//!   effects of the request, must be those of a server without room. A request that needs none, or
//!   is forbidden by another rule, gets no such refusal.
//! - A page of a listing shows only present items; if nothing happens between the pages, they show
//!   all items.
//!
//! Not judged: which item is evicted, and whether a refusal could have been avoided. The tests of
//! the stores show that, and those of the engine beside the reference store, which takes room by
//! the item.

use std::collections::BTreeSet;
use std::iter;

use latchd_core::engine::{Core, Notification};
use latchd_core::store::Store;
use latchd_core::{Instant, Limits, Owner};
use latchd_harness::alphabet::{Input, UNIX_S_AT_START};
use latchd_harness::lockstep::{Sizes, is_same, steps};
use latchd_harness::oracle::{Oracle, OwnedReply};
use latchd_protocol::command::{Command, GlobalCommand, ScanCursor};
use latchd_protocol::key::Key;
use latchd_protocol::reply::{Refusal, Reply};
use latchd_protocol::wait::Notice;

use super::Breach;
use super::follow::{Follow, compare_sizes};

/// An oracle, and the counts of the comparison with the core.
#[derive(Debug)]
pub(super) struct Beside {
    oracle: Oracle,
    /// There is not room for all.
    is_scarce: bool,
    /// It searches for items that are gone; among many items that takes too long.
    follows: bool,
    evicts: bool,
    /// How many inputs there were.
    inputs: u64,
    /// The pages that came last, if nothing has happened since.
    listing: Option<Listing>,
    /// Commands that were judged.
    judged: u64,
    follow: Follow,
}

/// The first pages of a listing.
#[derive(Debug)]
struct Listing {
    conn: Owner,
    /// Which input asked for the last of them.
    input: u64,
    shown: BTreeSet<Vec<u8>>,
}

/// The core's answer.
#[derive(Debug)]
pub(super) struct Answer {
    reply: OwnedReply,
    /// It is a page of a listing, and not the last.
    has_more: bool,
    /// The sizes that it shows, if it shows all gauges.
    shown: Option<Sizes>,
}

impl Answer {
    pub(super) fn of(command: &Command<'_>, reply: &Reply<'_>) -> Self {
        Self {
            reply: OwnedReply::of(reply, steps(command).len()),
            has_more: matches!(reply, Reply::Keys(page) if page.next.is_some()),
            shown: Sizes::shown(reply),
        }
    }

    /// The kind of room that was missing, for an item or for a lock, if the answer says so.
    const fn lack(&self) -> Option<Refusal> {
        match self.reply {
            OwnedReply::Refused(lack @ (Refusal::OutOfMemory | Refusal::TooManyLocks)) => {
                Some(lack)
            }
            _ => None,
        }
    }
}

/// The cases judged beside a core.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Judged {
    /// Commands.
    pub(super) all: u64,
    /// Items that were evicted, and were found to be gone.
    pub(super) followed: u64,
    /// Items that were reclaimed.
    pub(super) reclaimed: u64,
    /// Refusals for want of room.
    pub(super) believed: u64,
}

impl Beside {
    pub(super) fn new(limits: Limits, is_scarce: bool, follows: bool) -> Self {
        Self {
            oracle: Oracle::new(limits, UNIX_S_AT_START),
            is_scarce,
            follows,
            evicts: is_scarce && limits.evict,
            inputs: 0,
            listing: None,
            judged: 0,
            follow: Follow::default(),
        }
    }

    /// Whether there is not room for all.
    pub(super) const fn is_scarce(&self) -> bool {
        self.is_scarce
    }

    /// Whether it searches for items that are gone.
    pub(super) const fn follows(&self) -> bool {
        self.follows
    }

    pub(super) const fn judged(&self) -> Judged {
        let judged = self.oracle.judged();
        Judged {
            all: self.judged,
            followed: judged.evicted,
            reclaimed: judged.gone.reclaimed,
            believed: judged.told_full,
        }
    }

    /// Compares the effect of an input on `core`, and its answer if it is a command, with the
    /// oracle's.
    ///
    /// # Errors
    /// The difference.
    pub(super) fn compare<S: Store>(
        &mut self,
        core: &Core<S>,
        now_ms: u64,
        input: &Input<'_>,
        answer: Option<&Answer>,
    ) -> Result<(), Breach> {
        self.inputs += 1;
        let lack = answer.filter(|_| self.is_scarce).and_then(Answer::lack);
        let expected = match lack {
            Some(lack) => self.oracle.enter_without_room(now_ms, input, lack),
            None => self.oracle.enter(now_ms, input),
        };
        if let (Input::Command(conn, command), Some(answer)) = (input, answer) {
            self.judged += 1;
            if !self.is_answer(*conn, command, answer, expected.as_ref()) {
                let Answer { reply, .. } = answer;
                return broken(format!(
                    "{command:?}: the oracle expected {expected:?}, the core answered {reply:?}"
                ));
            }
        }
        if !self.follows {
            return Ok(());
        }
        let Self { oracle, .. } = self;
        let followed = self.follow.compare(core, oracle, input, self.evicts);
        followed.or_else(broken)?;
        if let Some(shown) = answer.and_then(|answer| answer.shown) {
            compare_sizes(core, oracle, shown).or_else(broken)?;
        }
        Ok(())
    }

    fn is_answer(
        &mut self,
        conn: Owner,
        command: &Command<'_>,
        answer: &Answer,
        expected: Option<&OwnedReply>,
    ) -> bool {
        match (command, &answer.reply, expected) {
            (
                Command::Global(GlobalCommand::Keys(keys)),
                OwnedReply::Keys(page),
                Some(OwnedReply::Keys(all)),
            ) => {
                let is_first = keys.cursor == ScanCursor::default();
                self.is_page(conn, (is_first, !answer.has_more), page, all)
            }
            (_, reply, expected) => Some(reply) == expected,
        }
    }

    /// Whether a page, the first or the last or both or neither, shows the expected ones of all
    /// items.
    fn is_page(
        &mut self,
        conn: Owner,
        (is_first, is_last): (bool, bool),
        page: &BTreeSet<Vec<u8>>,
        all: &BTreeSet<Vec<u8>>,
    ) -> bool {
        let input = self.inputs;
        let before = self.listing.take();
        let is_next = |before: &Listing| before.conn == conn && before.input + 1 == input;
        let before = match before.filter(is_next) {
            _ if is_first => Some(BTreeSet::new()),
            before => before.map(|before| before.shown),
        };
        let is_right = page.is_subset(all);
        let Some(mut shown) = before else {
            return is_right;
        };
        shown.extend(page.iter().cloned());
        if is_last {
            return is_right && all.is_subset(&shown);
        }
        self.listing = Some(Listing { conn, input, shown });
        is_right
    }

    /// Takes the notices of `core` about ended waits, and compares them with the oracle's; likewise
    /// the next deadline.
    ///
    /// # Errors
    /// The difference.
    pub(super) fn take_notices<S: Store>(
        &mut self,
        core: &mut Core<S>,
    ) -> Result<Vec<Notice>, Breach> {
        let mut told: Vec<Notice> =
            iter::from_fn(|| core.poll().and_then(Notification::wait_over)).collect();
        told.retain(|notice| self.oracle.is_open(notice.owner));
        let by_conn = |mut notices: Vec<Notice>| {
            notices.sort_by_key(|notice| notice.owner);
            notices
        };
        let due = by_conn(self.oracle.take_notices());
        let in_order = by_conn(told.clone());
        if in_order != due {
            return broken(format!("told are {in_order:?}, and should be {due:?}"));
        }
        let next = core.next_deadline().map(Instant::as_millis);
        let due = self.oracle.next_deadline_ms();
        if next != due {
            return broken(format!(
                "the next moment is {next:?} ms, and should be {due:?}"
            ));
        }
        Ok(told)
    }

    /// Compares every item of either side with the other side's, for all keys.
    ///
    /// # Errors
    /// The first difference.
    pub(super) fn compare_items<'a, S: Store>(
        &self,
        core: &Core<S>,
        keys: impl Iterator<Item = Key<'a>>,
    ) -> Result<(), Breach> {
        for key in keys {
            let (there, due) = (core.peek(key), self.oracle.visible(key.as_bytes()));
            let are_same = match (&there, due) {
                (Some((header, value)), Some(item)) => is_same(header, value, item),
                (None, None) => true,
                (Some(_), None) | (None, Some(_)) => false,
            };
            let (owner, holder) = (core.locks().owner(key), self.oracle.holder(key.as_bytes()));
            if !are_same || owner != holder {
                return broken(format!(
                    "{key:?}: the oracle has {due:?}, held by {holder:?}, the core {there:?}, held by {owner:?}"
                ));
            }
        }
        Ok(())
    }
}

fn broken<T>(what: String) -> Result<T, Breach> {
    let rule = "the oracle's word";
    Err(Breach { rule, what })
}
