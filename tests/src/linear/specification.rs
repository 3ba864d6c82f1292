//! The behaviour of one key, one operation after the other.
//!
//! A second statement of docs/PROTOCOL.md, for a key without TTLs. It shares nothing with the core,
//! and with the oracle only the rules. Versions and fences are numbers that the server chooses: a
//! number that no client was shown is unknown, and is learned from the first answer that shows it.
//!
//! - P1: a version is greater than every version of the key that was shown before, and so is a fence. Only a session is granted
//!   a lock again, under the same fence.
//! - P2: a client has every number that it sends from an answer, its own or another's, which came before.
//!   So a number that is not known yet is not the one that a client sends: the client's is older.

use std::fmt;
use std::sync::Arc;

use latchd_harness::wording::Protocol;

use super::history::{
    ANONYMOUS, Answer, Hit, Marks, Mode, Operation, Record, Store, is_session, shown,
};

/// Everything there is to know of a key.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct State {
    item: Option<Item>,
    lock: Option<Lock>,
    /// The last version that was shown.
    cas_shown: u64,
    /// The last fence that was shown.
    fence_shown: u64,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct Item {
    value: Arc<[u8]>,
    client_flags: u32,
    /// `None` until an answer shows it.
    cas: Option<u64>,
    stale: bool,
    won: bool,
    /// A `flush_all` passed while it was held.
    flush_pending: bool,
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
struct Lock {
    owner: u64,
    /// `None` until an answer shows it, which for most never does.
    fence: Option<u64>,
    /// It stays when its owner deletes the item.
    is_of_key: bool,
}

/// The outcome of an operation, before it is put into the words of a protocol.
enum Outcome {
    Hit(Shown),
    Missing,
    /// The item's version is then that of the state.
    Stored,
    NotStored,
    Exists,
    Deleted,
    Counted(u64),
    Done,
    Granted,
    /// The lock of the state keeps the client out.
    Locked,
    NotLocked {
        is_missing: bool,
    },
    NonNumeric,
}

/// The item as it was before a read.
struct Shown {
    value: Arc<[u8]>,
    client_flags: u32,
    marks: Marks,
}

impl State {
    /// The state after an operation, if its answer is possible. Without an answer, the operation
    /// has its effect all the same.
    #[must_use]
    pub fn after(&self, record: &Record) -> Option<Self> {
        let mut state = self.clone();
        let outcome = state.change(record);
        if let Some(answer) = &record.answer {
            state.agree(record, &outcome, answer)?;
        }
        Some(state)
    }

    fn change(&mut self, record: &Record) -> Outcome {
        let conn = record.conn;
        match &record.operation {
            Operation::Get => self.read(record.protocol == Protocol::Meta),
            Operation::Vivify => {
                if self.item.is_some() {
                    return self.read(true);
                }
                if self.lock.is_some_and(|lock| lock.owner != conn) {
                    return Outcome::Missing;
                }
                let made = fresh(b"", 0);
                self.item = Some(Item { won: true, ..made });
                Outcome::Hit(Shown {
                    value: Arc::from(&b""[..]),
                    client_flags: 0,
                    marks: Marks {
                        won: true,
                        ..Marks::default()
                    },
                })
            }
            Operation::Store(store) => self.store(conn, store),
            Operation::ReplaceAndUnlock(store) => {
                if self.item.is_none() {
                    return Outcome::Missing;
                }
                if !self.is_held_by(conn) {
                    return Outcome::NotLocked { is_missing: false };
                }
                let outcome = self.store(conn, store);
                if let Outcome::Stored = outcome {
                    self.unlock();
                }
                outcome
            }
            Operation::Delete { guard } => {
                if let Some(refusal) = self.refuses(conn, None) {
                    return refusal;
                }
                match &self.item {
                    None => Outcome::Missing,
                    Some(item) if !passes(*guard, item) => Outcome::Exists,
                    Some(_) => {
                        self.item = None;
                        self.lock = self.lock.filter(|lock| lock.is_of_key);
                        Outcome::Deleted
                    }
                }
            }
            Operation::MarkStale { guard } => {
                if let Some(refusal) = self.refuses(conn, None) {
                    return refusal;
                }
                match &mut self.item {
                    None => Outcome::Missing,
                    Some(item) if !passes(*guard, item) => Outcome::Exists,
                    Some(item) => {
                        (item.stale, item.won, item.cas) = (true, false, None);
                        Outcome::Deleted
                    }
                }
            }
            Operation::Count { up, delta } => self.count(conn, *up, *delta),
            Operation::Lock => match (&self.lock, &self.item) {
                (Some(_), _) => Outcome::Locked,
                (None, None) => Outcome::Missing,
                (None, Some(_)) => {
                    self.take(conn, false);
                    Outcome::Done
                }
            },
            Operation::LockAndGet => match (&self.lock, &self.item) {
                (Some(_), _) => Outcome::Locked,
                (None, None) => Outcome::Missing,
                (None, Some(_)) => {
                    self.take(conn, false);
                    self.read(false)
                }
            },
            Operation::Unlock if self.is_held_by(conn) => {
                self.unlock();
                Outcome::Done
            }
            Operation::Unlock => Outcome::NotLocked {
                is_missing: self.item.is_none(),
            },
            // It may not have heard that it has the lock.
            Operation::Acquire if is_session(conn) && self.is_held_by(conn) => Outcome::Granted,
            Operation::Acquire if self.lock.is_some() => Outcome::Locked,
            Operation::Acquire => {
                self.take(conn, true);
                Outcome::Granted
            }
            Operation::Release { fence } => {
                let is_meant = |lock: Lock| {
                    lock.owner == conn && fence.is_none_or(|fence| lock.fence == Some(fence))
                };
                if !self.lock.is_some_and(is_meant) {
                    return Outcome::Missing;
                }
                self.unlock();
                Outcome::Done
            }
            Operation::UnlockAll | Operation::Death => {
                if self.is_held_by(conn) {
                    self.unlock();
                }
                Outcome::Done
            }
            Operation::Flush => {
                if self.lock.is_none() {
                    self.item = None;
                } else if let Some(item) = &mut self.item {
                    item.flush_pending = true;
                }
                Outcome::Done
            }
        }
    }

    fn read(&mut self, recaches: bool) -> Outcome {
        let Some(item) = &mut self.item else {
            return Outcome::Missing;
        };
        let marks = Marks {
            stale: item.stale,
            won: recaches && !item.won && item.stale,
            sent: recaches && item.won,
        };
        item.won |= marks.won;
        Outcome::Hit(Shown {
            value: Arc::clone(&item.value),
            client_flags: item.client_flags,
            marks,
        })
    }

    fn store(&mut self, conn: u64, store: &Store) -> Outcome {
        if let Some(refusal) = self.refuses(conn, store.fence) {
            return refusal;
        }
        let Some(old) = &self.item else {
            return match store.mode {
                Mode::Set | Mode::Replace if store.guard.is_some() => Outcome::Missing,
                Mode::Replace | Mode::Append | Mode::Prepend => Outcome::NotStored,
                Mode::Set | Mode::Add => {
                    self.item = Some(fresh(&store.value, store.client_flags));
                    Outcome::Stored
                }
            };
        };
        if store.mode == Mode::Add {
            return Outcome::NotStored;
        }
        let passes = passes(store.guard, old);
        // The client's version is older than the item's, or it would be the same (P1, P2).
        if !passes && !store.else_stale {
            return Outcome::Exists;
        }
        let item = match store.mode {
            Mode::Set | Mode::Add | Mode::Replace => Item {
                stale: !passes,
                won: !passes && old.won,
                ..fresh(&store.value, store.client_flags)
            },
            Mode::Append => joined(old, &old.value, &store.value),
            Mode::Prepend => joined(old, &store.value, &old.value),
        };
        self.item = Some(item);
        Outcome::Stored
    }

    fn count(&mut self, conn: u64, up: bool, delta: u64) -> Outcome {
        if let Some(refusal) = self.refuses(conn, None) {
            return refusal;
        }
        let Some(item) = &mut self.item else {
            return Outcome::Missing;
        };
        let Some(number) = leading_number(&item.value) else {
            return Outcome::NonNumeric;
        };
        let number = if up {
            number.wrapping_add(delta)
        } else {
            number.saturating_sub(delta)
        };
        let width = item.value.len();
        item.value = Arc::from(format!("{number:<width$}").into_bytes());
        item.cas = None;
        Outcome::Counted(number)
    }

    fn is_held_by(&self, conn: u64) -> bool {
        self.lock.is_some_and(|lock| lock.owner == conn)
    }

    /// The reason why a client may not change the item.
    fn refuses(&self, conn: u64, fence: Option<u64>) -> Option<Outcome> {
        if let Some(fence) = fence {
            let in_force = self.lock.and_then(|lock| lock.fence);
            return (in_force != Some(fence)).then_some(Outcome::Exists);
        }
        let is_free = self.lock.is_none() || self.is_held_by(conn);
        (!is_free).then_some(Outcome::Locked)
    }

    fn take(&mut self, conn: u64, is_of_key: bool) {
        self.lock = Some(Lock {
            owner: conn,
            fence: None,
            is_of_key,
        });
    }

    fn unlock(&mut self) {
        self.lock = None;
        if self.item.as_ref().is_some_and(|item| item.flush_pending) {
            self.item = None;
        }
    }

    /// Whether the answer fits the outcome; the numbers that it shows are known from then on.
    fn agree(&mut self, record: &Record, outcome: &Outcome, answer: &Answer) -> Option<()> {
        let agrees = match (outcome, answer) {
            (Outcome::Hit(shown), Answer::Hit(hit)) => {
                return self.agree_on_item(record, shown, hit);
            }
            (Outcome::Stored, Answer::Stored { cas }) => return self.agree_on_version(*cas),
            (Outcome::Counted(number), Answer::Counted { number: told, cas }) => {
                return (number == told).then(|| self.agree_on_version(*cas))?;
            }
            (Outcome::Granted, Answer::Granted { fence }) => {
                let lock = self.lock.as_mut()?;
                let is_right = match lock.fence {
                    None => *fence > self.fence_shown,
                    Some(known) => *fence == known,
                };
                (lock.fence, self.fence_shown) = (Some(*fence), *fence);
                is_right
            }
            (Outcome::Locked, Answer::Held { by }) => {
                let owner = self.lock?.owner;
                shown(owner) == *by || owner >= ANONYMOUS
            }
            (Outcome::NotLocked { is_missing }, Answer::NotLocked) => {
                !(*is_missing && record.protocol == Protocol::Binary)
            }
            (Outcome::NotLocked { is_missing }, Answer::Missing) => {
                *is_missing && record.protocol == Protocol::Binary
            }
            (Outcome::Missing, Answer::Missing)
            | (Outcome::NotStored, Answer::NotStored)
            | (Outcome::Exists, Answer::Exists)
            | (Outcome::Deleted, Answer::Deleted)
            | (Outcome::Done, Answer::Done)
            | (Outcome::Locked, Answer::Locked)
            | (Outcome::NonNumeric, Answer::NonNumeric) => true,
            _ => false,
        };
        agrees.then_some(())
    }

    fn agree_on_item(&mut self, record: &Record, shown: &Shown, hit: &Hit) -> Option<()> {
        let agrees = *shown.value == *hit.value && shown.client_flags == hit.client_flags;
        let says = record.protocol == Protocol::Meta;
        let marks = says.then_some(shown.marks);
        (agrees && marks == hit.marks).then(|| self.agree_on_version(hit.cas))?
    }

    fn agree_on_version(&mut self, shown: Option<u64>) -> Option<()> {
        let Some(shown) = shown else {
            return Some(());
        };
        let item = self.item.as_mut()?;
        match item.cas {
            Some(known) => (known == shown).then_some(()),
            None if shown > self.cas_shown => {
                (item.cas, self.cas_shown) = (Some(shown), shown);
                Some(())
            }
            None => None,
        }
    }
}

fn fresh(value: &[u8], client_flags: u32) -> Item {
    Item {
        value: Arc::from(value),
        client_flags,
        cas: None,
        stale: false,
        won: false,
        flush_pending: false,
    }
}

fn joined(old: &Item, front: &[u8], back: &[u8]) -> Item {
    Item {
        flush_pending: old.flush_pending,
        ..fresh(&[front, back].concat(), old.client_flags)
    }
}

fn passes(guard: Option<u64>, item: &Item) -> bool {
    guard.is_none_or(|guard| item.cas == Some(guard))
}

/// The number that a value begins with; blanks may stand behind it.
fn leading_number(value: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(value).ok()?;
    text.split_ascii_whitespace().next()?.parse().ok()
}

impl fmt::Display for State {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.item {
            None => formatter.write_str("no item")?,
            Some(item) => {
                let value = item.value.escape_ascii();
                write!(formatter, "\"{value}\" flags {}", item.client_flags)?;
                if let Some(cas) = item.cas {
                    write!(formatter, " cas {cas}")?;
                }
                for (is_set, word) in [
                    (item.stale, " stale"),
                    (item.won, " won"),
                    (item.flush_pending, " flushed"),
                ] {
                    formatter.write_str(if is_set { word } else { "" })?;
                }
            }
        }
        match self.lock {
            None => Ok(()),
            Some(lock) if lock.owner >= ANONYMOUS => {
                write!(formatter, ", held by binary {}", lock.owner - ANONYMOUS)
            }
            Some(lock) => write!(formatter, ", held by text {}", lock.owner),
        }
    }
}
