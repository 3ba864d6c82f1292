//! The core beside the oracle: the same events to both, and a comparison of everything visible
//! after each.
//!
//! - T1: both give the same answer.
//! - T2: both have the same items, property by property, seen by a client or not.
//! - T3: the core's own invariants hold ([`Core::check`]), and its memory limit does.
//! - T4: both end the same waits in the same way, list the same waiters, and name the same next
//!   deadline.
//! - T5: the store has each item where the oracle has it, expired items included; counters and
//!   gauges have the expected values.
//! - T6: the tables of locks, waits and wins take the bytes of their entries; entries that are over
//!   may take more, within the bound of the tables.
//!
//! If memory is scarce, the core may evict an item that the oracle keeps, unless it is held or the
//! command just stored it. If the store takes room by the item, the oracle predicts each refusal
//! for want of memory, also after the memory limit has changed. Beside a log the oracle accepts a
//! refusal if the command needs room and is forbidden by nothing else. Then all is as in a server
//! without room, counters included. It does not accept one while so much of the limit is
//! unallocated that there must be room: then the core refuses nothing for want of it and evicts
//! nothing.

mod gauges;
mod gone;
mod idle;

use std::any::Any;
use std::collections::BTreeSet;
use std::iter;

use latchd_core::engine::{Core, Event, Notification};
use latchd_core::store::Store;
use latchd_core::{Instant, Owner};
use latchd_protocol::command::{Command, GlobalCommand, ItemCommand, Keys, TtlSteps};
use latchd_protocol::item::{ItemHeader, WinMark};
use latchd_protocol::key::Key;
use latchd_protocol::reply::{Refusal, Reply};
use latchd_protocol::wait::Notice;

use crate::alphabet::{CLIENTS, ClientNumber, Environment, Input, KEYS, Op, Pairs};

pub use gauges::Sizes;
pub use gone::{is_reset, knows_flushed, there};
use idle::needs_room;

use crate::oracle::{ByItem, Gone, Item, Judged, Oracle, OwnedReply, Waiting};

/// A core and an oracle that have seen the same events.
#[derive(Debug)]
pub struct Lockstep<S> {
    core: Core<S>,
    oracle: Oracle,
    environment: Environment,
    room: Room,
    /// The bytes that may be used: the limit, or, after it was lowered, the use at that moment.
    bytes_max: usize,
    /// How often a log was asked for room that there had to be.
    had_idle: u64,
    before: gone::Before,
    gone: Gone,
    pressed: gone::Pressed,
}

/// Whether there is room for every item.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Room {
    /// There is: the core has no excuse.
    Ample,
    /// There is not, and the size of each item is known: a command is refused if and only if its
    /// item does not fit.
    ByItem(ByItem),
    /// There is not, and items stand in segments of this many bytes: the core's refusals are
    /// accepted, unless there must be room.
    BySegment {
        /// In bytes.
        segment_bytes: usize,
    },
}

/// Where the two part, in words.
pub type Difference = String;

/// The message of a panic.
#[must_use]
pub fn panic_words(panic: &(dyn Any + Send)) -> String {
    let words = panic.downcast_ref::<String>().map(String::as_str);
    let words = words.or_else(|| panic.downcast_ref::<&str>().copied());
    words.unwrap_or("a panic without a word").to_owned()
}

impl<S: Store> Lockstep<S> {
    /// `core`, to which nothing has happened, beside an oracle; every client is connected.
    #[must_use]
    pub fn new(core: Core<S>, room: Room) -> Self {
        let mut oracle = Oracle::new(*core.limits(), core.clock().unix_s_at_start);
        if let Room::ByItem(by_item) = room {
            oracle = oracle.with_room(by_item);
        }
        let bytes_max = core.limits().memory_bytes_max;
        let mut lockstep = Self {
            core,
            oracle,
            environment: Environment::new().within(bytes_max),
            room,
            bytes_max,
            had_idle: 0,
            before: gone::Before::default(),
            gone: Gone::default(),
            pressed: gone::Pressed::default(),
        };
        let mut pairs = Pairs::default();
        for number in 0..CLIENTS {
            let client = ClientNumber::new(u8::try_from(number).expect("a few"));
            let opened = lockstep.step(&Op::Open { client }, &mut pairs);
            opened.expect("nothing has happened yet");
        }
        lockstep
    }

    /// How often the oracle was asked for room, and the fates of items.
    #[must_use]
    pub const fn judged(&self) -> Judged {
        let mut judged = self.oracle.judged();
        judged.gone.add(&self.gone);
        judged
    }

    /// How often a log was asked for room while so much was idle that it had to have it.
    #[must_use]
    pub const fn had_idle(&self) -> u64 {
        self.had_idle
    }

    /// Plays a sequence. Pairs of requests and replies are noted in `pairs`.
    ///
    /// # Errors
    /// Where the core and the oracle part.
    pub fn play<'a>(
        &mut self,
        ops: impl IntoIterator<Item = &'a Op>,
        pairs: &mut Pairs,
    ) -> Result<(), Difference> {
        ops.into_iter().try_for_each(|op| self.step(op, pairs))
    }

    /// Plays one operation.
    ///
    /// # Errors
    /// As [`play`](Self::play).
    pub fn step(&mut self, op: &Op, pairs: &mut Pairs) -> Result<(), Difference> {
        let asked = self.environment.asked(op);
        let Some(input) = self.environment.enact(op) else {
            return Ok(());
        };
        self.pressed.note(op);
        let now = self.environment.clock().now;
        let has_idle = needs_room(&input) && self.has_idle();
        let limit_before = self.core.limits().memory_bytes_max;
        let has_dead_locks = matches!(input, Input::Memory { .. }) && self.has_dead_locks();
        let evicted_before = self.oracle.judged().evicted;
        let tables_before = self.core.lock_memory_bytes();
        let reply = input.enter(&mut self.core, now);
        let shown = gauges::shown(reply.as_ref());
        if let (Some(asked), Some(reply)) = (&asked, &reply) {
            pairs.note(asked, reply);
            self.environment.learn(asked, reply);
        }
        let answer = match (input, reply) {
            (
                Input::Command(conn, Command::Global(GlobalCommand::Keys(keys))),
                Some(Reply::Keys(page)),
            ) => {
                let first = page.items.iter().map(|item| item.key.to_vec()).collect();
                let next = page.next;
                Some(all_pages(&mut self.core, now, conn, keys, first, next)?)
            }
            (Input::Command(_, command), Some(reply)) => {
                Some(OwnedReply::of(&reply, steps(&command).len()))
            }
            (_, reply) => reply.map(|reply| OwnedReply::of(&reply, 0)),
        };
        if matches!(op, Op::Tick | Op::Due) {
            // One event does a bounded part of the work that is due. A transport comes again at once.
            while (self.core.next_deadline()).is_some_and(|deadline| deadline <= now) {
                self.core.handle(now, Event::Due);
            }
        }
        let has_no_place = answer == Some(OwnedReply::Refused(Refusal::TooManyLocks));
        self.oracle.see_tables(tables_before, has_no_place);
        let lack = match (self.room, &answer) {
            (
                Room::BySegment { .. },
                Some(OwnedReply::Refused(lack @ (Refusal::OutOfMemory | Refusal::TooManyLocks))),
            ) if !has_idle || self.may_be_too_long(&input) => Some(*lack),
            _ => None,
        };
        let expected = match lack {
            Some(lack) => self
                .oracle
                .enter_without_room(now.as_millis(), &input, lack),
            None => self.oracle.enter(now.as_millis(), &input),
        };
        if answer != expected {
            return Err(format!("expected {expected:?}\n     got {answer:?}"));
        }
        self.compare_notices(pairs)?;
        self.compare_items(&input)?;
        self.compare_tables()?;
        self.compare_gauges(shown)?;
        self.had_idle += u64::from(has_idle);
        if has_idle && self.oracle.judged().evicted > evicted_before {
            return Err("something was evicted, and there was room".into());
        }
        let used = self.core.store().usage().held_bytes;
        let limit = self.core.limits().memory_bytes_max;
        if limit != limit_before && !matches!(input, Input::Memory { bytes } if bytes == limit) {
            return Err(format!(
                "the limit is {limit} bytes, which no input has set"
            ));
        }
        if let Input::Memory { bytes } = input
            && bytes == limit
        {
            self.bytes_max = limit.max(used);
        }
        if has_dead_locks && limit == limit_before {
            // Items that they have pinned are in the way until they are taken out.
            self.oracle.keep_limit(limit);
        }
        let due = self.oracle.memory_bytes_max();
        if matches!(self.room, Room::ByItem(_)) && limit != due {
            return Err(format!("the limit is {limit} bytes, and should be {due}"));
        }
        if used > self.bytes_max {
            let limit = self.bytes_max;
            return Err(format!("{used} bytes are used, and {limit} may be"));
        }
        self.core.check();
        Ok(())
    }

    /// T6.
    fn compare_tables(&self) -> Result<(), Difference> {
        let (due, told) = (self.oracle.tables_bytes(), self.core.lock_memory_bytes());
        let max = self.core.limits().lock_table_bytes_max;
        let has_all_wins = self.core.bound_wins().len() == self.oracle.bound_win_count();
        let is_settled = self.core.locks().is_settled() && has_all_wins;
        if told > max || told < due || is_settled && told != due {
            return Err(format!(
                "tables: expected {due} bytes of {max}\n         got {told}, settled: {is_settled}"
            ));
        }
        Ok(())
    }

    /// Whether an item still looks held although its lock is over (L9).
    fn has_dead_locks(&self) -> bool {
        let (store, locks) = (self.core.store(), self.core.locks());
        KEYS.iter().any(|bytes| {
            let key = Key::new(bytes).expect("a legal key");
            let found = store.find(key).ok();
            found.is_some_and(|slot| store.header(slot).locked && locks.owner(key).is_none())
        })
    }

    /// Whether an item that is not held may be evicted for want of room.
    fn evicts(&self) -> bool {
        self.room != Room::Ample && self.core.limits().evict
    }

    /// T4, and tells the clients.
    fn compare_notices(&mut self, pairs: &mut Pairs) -> Result<(), Difference> {
        let by_conn = |notice: &Notice| notice.owner;
        let mut due = self.oracle.take_notices();
        due.sort_by_key(by_conn);
        let mut told: Vec<Notice> =
            iter::from_fn(|| self.core.poll().and_then(Notification::wait_over)).collect();
        // A transport passes no notice on to a connection that has ended.
        told.retain(|notice| self.oracle.is_open(notice.owner));
        told.sort_by_key(by_conn);
        if told != due {
            return Err(format!("notices: expected {due:?}\n         got {told:?}"));
        }
        for notice in told {
            pairs.note_outcome(notice.outcome);
            self.environment.settle(notice);
        }
        for bytes in KEYS {
            let key = Key::new(bytes).expect("a legal key");
            let queue = self.core.waits().queue(key).map(|(conn, waiter)| Waiting {
                conn,
                key: bytes.to_vec(),
                mode: waiter.mode,
                until_ms: waiter.until.as_millis(),
                lease: waiter.lease,
                needs_item: waiter.needs_item,
                metadata: self.core.waits().metadata(conn).map(Into::into),
            });
            let queue: Vec<Waiting> = queue.collect();
            let due: Vec<Waiting> = self.oracle.queue(bytes).cloned().collect();
            if queue != due {
                return Err(format!("queue: expected {due:?}\n         got {queue:?}"));
            }
            let gets = self.core.win_waits().queue(key);
            let gets: Vec<_> = gets
                .map(|(conn, waiter)| (conn, waiter.until.as_millis()))
                .collect();
            let due = self.oracle.gets(bytes);
            let due: Vec<_> = due
                .map(|getting| (getting.conn, getting.until_ms))
                .collect();
            if gets != due {
                return Err(format!("gets: expected {due:?}\n         got {gets:?}"));
            }
        }
        let next = self.core.next_deadline().map(Instant::as_millis);
        let due = self.oracle.next_deadline_ms();
        if next != due && !self.core.win_waits().is_on_round() {
            return Err(format!("deadline: expected {due:?}\n         got {next:?}"));
        }
        Ok(())
    }

    /// T2, after `input`.
    fn compare_items(&mut self, input: &Input<'_>) -> Result<(), Difference> {
        let just_kept = input.command().and_then(Command::key);
        let mut evicted = Vec::new();
        for (bytes, item) in self.oracle.items() {
            let key = Key::new(bytes).expect("it was made from a key");
            let holder = self.oracle.holder(bytes);
            let may_be_gone = self.evicts() && holder.is_none();
            match self.core.peek(key) {
                Some((header, value))
                    if is_same(&header, value, item)
                        && header.locked == holder.is_some()
                        && self.core.locks().owner(key) == holder => {}
                None if may_be_gone && just_kept != Some(key) => evicted.push(bytes.to_vec()),
                there => {
                    let key = String::from_utf8_lossy(bytes);
                    return Err(format!(
                        "item {key}: expected {item:?} held by {holder:?}\n         got {there:?}"
                    ));
                }
            }
        }
        self.compare_gone(input, &evicted)?;
        for bytes in KEYS {
            let key = Key::new(bytes).expect("a legal key");
            let locks = self.core.locks();
            let held = locks.holders_of(key).map(|(owner, _)| {
                let held = locks.held_as(key, owner);
                held.expect("it holds it")
            });
            let held: Vec<_> = held
                .map(|held| {
                    (
                        (held.owner, held.mode),
                        held.fence.number(),
                        held.has_item,
                        held.lease_until.map(Instant::as_millis),
                        held.is_unacknowledged,
                        locks.metadata(held.fence),
                    )
                })
                .collect();
            let has_item = self.oracle.visible(bytes).is_some();
            let due = self.oracle.locks_of(bytes).iter();
            let due: Vec<_> = due
                .map(|lock| {
                    (
                        (lock.owner, lock.mode),
                        lock.fence,
                        has_item,
                        lock.lease_until_ms,
                        lock.is_unheard,
                        lock.metadata.as_deref(),
                    )
                })
                .collect();
            if held != due {
                let key = String::from_utf8_lossy(bytes);
                return Err(format!(
                    "lock of {key}: expected {due:?}\n         got {held:?}"
                ));
            }
            if let (false, Some(there)) = (has_item, self.core.peek(key)) {
                let key = String::from_utf8_lossy(bytes);
                return Err(format!("item {key}: expected none\n         got {there:?}"));
            }
        }
        Ok(())
    }
}

/// Whether the core and the oracle have the same item, apart from its lock.
#[must_use]
pub fn is_same(header: &ItemHeader, value: &[u8], item: &Item) -> bool {
    let ItemHeader {
        cas,
        deadline,
        last_access,
        client_flags,
        key_form,
        fetched,
        stale,
        win,
        locked: _,
    } = *header;
    let quarter_ms = latchd_protocol::time::TICK_MS;
    value == item.value
        && cas.number() == item.cas
        && deadline.map(|at| u64::from(at.tick().count()) * quarter_ms) == item.gone_at_ms
        && u64::from(last_access.count()) == item.accessed_ms / quarter_ms
        && client_flags == item.client_flags
        && key_form == item.key_form
        && fetched == item.fetched
        && stale == item.stale
        && (win == WinMark::Sent) == item.won
        && (win == WinMark::Open) == item.open
}

/// Every page of a listing: pages promise no order and no moment, and nothing happens between them
/// here.
fn all_pages<S: Store>(
    core: &mut Core<S>,
    now: Instant,
    conn: Owner,
    keys: Keys<'_>,
    mut all: BTreeSet<Vec<u8>>,
    mut next: Option<latchd_protocol::command::ScanCursor>,
) -> Result<OwnedReply, Difference> {
    let mut pages = 1;
    while let Some(cursor) = next {
        pages += 1;
        if pages > 1_000 {
            return Err("a listing of a few keys has no end".into());
        }
        let command = Command::Global(GlobalCommand::Keys(Keys { cursor, ..keys }));
        let reply = core.execute(now, conn, &command);
        let Reply::Keys(page) = &reply else {
            return Err(format!("a page of keys is {reply:?}"));
        };
        all.extend(page.items.iter().map(|item| item.key.to_vec()));
        next = page.next;
    }
    Ok(OwnedReply::Keys(all))
}

/// The TTL steps that a command takes and its reply shows.
#[must_use]
pub const fn steps<'a>(command: &'a Command<'_>) -> &'a TtlSteps {
    match command {
        Command::Item(ItemCommand::Get(get)) => &get.steps,
        Command::Item(ItemCommand::Arithmetic(arithmetic)) => &arithmetic.steps,
        Command::Item(
            ItemCommand::Set(_)
            | ItemCommand::SetTooLarge { .. }
            | ItemCommand::Delete(_)
            | ItemCommand::Acquire(_)
            | ItemCommand::Release(_)
            | ItemCommand::Lock { .. }
            | ItemCommand::Unlock { .. },
        )
        | Command::Global(_) => &TtlSteps::NONE,
    }
}
