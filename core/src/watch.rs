//! `watch`: what happens in a server, told a line at a time to whoever asks for it.
//!
//! Here is what can be asked for ([`Topics`]), and what a command and its reply are in memcached's line
//! form ([`each_line`]). Who watches, and how lines reach them, is the transport's business: a core
//! knows nothing of it, and nothing of it reaches an answer.
//!
//! Source: memcached 1.6.45 `doc/protocol.txt`, "Watchers"; `logger.c`.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write as _;

use crate::command::{
    Command, Direction, GlobalCommand, Guard, ItemCommand, Removal, Set, SetMode,
};
use crate::conn_id::ConnId;
use crate::fence::Fence;
use crate::reply::{Refusal, Reply};
use crate::time::Exptime;

/// What can be watched.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Topic {
    /// Keys that were looked up, whatever for, and whether there was an item.
    Fetchers,
    /// Stores, and what came of them.
    Mutations,
    /// Deletes that removed an item.
    Deletions,
    /// Items that were evicted.
    Evictions,
    /// Connections that came and went.
    Connections,
    /// Locks that were asked for and given back.
    Locks,
}

/// A set of topics.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Topics(u8);

impl Topics {
    /// None of them.
    pub const NONE: Self = Self(0);

    /// This one.
    #[must_use]
    pub const fn of(topic: Topic) -> Self {
        Self(1 << topic as u8)
    }

    /// These and those.
    #[must_use]
    pub const fn and(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// Whether it is one of them.
    #[must_use]
    pub const fn contain(self, topic: Topic) -> bool {
        self.0 & Self::of(topic).0 != 0
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Whether what is told of them holds keys of clients.
    #[must_use]
    pub const fn tell_keys(self) -> bool {
        self.0 & !Self::of(Topic::Connections).0 != 0
    }

    /// As a number, for whoever keeps it in an atomic.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// The topics that [`bits`](Self::bits) has made this number of.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits)
    }

    /// Reads the words behind `watch`: the beginning of one is enough, as in memcached. No words are
    /// gets; what memcached has and is not there to be seen here (`proxyreqs`, say) is nothing.
    pub(crate) fn from_words<'a>(words: impl Iterator<Item = &'a [u8]>) -> Option<Self> {
        const WORDS: &[(&[u8], Topics)] = &[
            (b"rawcmds", Topics::NONE),
            (b"evictions", Topics::of(Topic::Evictions)),
            (b"fetchers", Topics::of(Topic::Fetchers)),
            (b"mutations", Topics::of(Topic::Mutations)),
            (b"sysevents", Topics::NONE),
            (b"connevents", Topics::of(Topic::Connections)),
            (b"proxyreqs", Topics::NONE),
            (b"proxyevents", Topics::NONE),
            (b"proxyuser", Topics::NONE),
            (b"deletions", Topics::of(Topic::Deletions)),
            (b"locks", Topics::of(Topic::Locks)),
        ];
        let mut topics = Self::NONE;
        let mut count = 0;
        for word in words {
            let (_, topic) = WORDS.iter().find(|(name, _)| name.starts_with(word))?;
            topics = topics.and(*topic);
            count += 1;
        }
        Some(if count == 0 {
            Self::of(Topic::Fetchers)
        } else {
            topics
        })
    }
}

/// Whether a connection may watch.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Watched {
    /// It does, and asks for nothing more.
    Yes,
    /// There are as many already as there may be.
    TooMany,
    /// Nobody may.
    No,
}

impl Watched {
    /// What the client is told.
    pub(crate) const fn line(self) -> &'static str {
        match self {
            Self::Yes => "OK",
            Self::TooMany => "WATCHER_TOO_MANY log watcher limit reached",
            Self::No => "CLIENT_ERROR watch commands not allowed",
        }
    }
}

/// Who has asked, when and how: what a line says besides the command.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// Whose command it is.
    pub conn: ConnId,
    /// Whether it was written in the meta protocol.
    pub is_meta: bool,
    /// When, in Unix seconds.
    pub unix_s: u64,
    /// How long the value was that the key had then; `None` if there was no item.
    pub found_bytes: Option<usize>,
}

/// An item that was evicted.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Evicted {
    /// Its key.
    pub key: Vec<u8>,
    /// Whether anybody had fetched it.
    pub fetched: bool,
    /// In how many seconds it would have expired; `None` is never.
    pub ttl_s: Option<u32>,
    /// For how long nobody had asked for it, in seconds.
    pub idle_s: u32,
    /// The length of its value.
    pub value_bytes: usize,
}

impl Evicted {
    /// Its line.
    #[must_use]
    pub fn line(&self) -> String {
        let mut line = keyed("eviction", &self.key);
        let ttl = self.ttl_s.map_or(-1, i64::from);
        put(
            &mut line,
            format_args!(
                " fetch={} ttl={ttl} la={} clsid=1 size={}",
                if self.fetched { "yes" } else { "no" },
                self.idle_s,
                self.value_bytes
            ),
        );
        line
    }
}

/// Tells the lines of `command` and its `reply` that belong to `wanted`, without time, number and line
/// end.
pub fn each_line(
    wanted: Topics,
    asked: Asked,
    command: &Command<'_>,
    reply: &Reply<'_>,
    tell: &mut dyn FnMut(Topic, String),
) {
    let mut tell = |topic, line: &dyn Fn() -> Option<String>| {
        if wanted.contain(topic)
            && let Some(line) = line()
        {
            tell(topic, line);
        }
    };
    match command {
        Command::Item(command) => {
            let key = command.key().as_bytes();
            tell(Topic::Fetchers, &|| looked_up(command, reply, asked));
            match command {
                ItemCommand::Set(set) => tell(Topic::Mutations, &|| {
                    let size = set.value.len();
                    stored(key, name_of(set), set.exptime, size, reply, asked)
                }),
                ItemCommand::SetTooLarge { .. } => tell(Topic::Mutations, &|| {
                    stored(key, "set", Exptime::Never, 0, reply, asked)
                }),
                ItemCommand::Arithmetic(sum) => tell(Topic::Mutations, &|| {
                    let name = match sum.direction {
                        Direction::Increment => "incr",
                        Direction::Decrement => "decr",
                    };
                    stored(key, name, Exptime::Never, 0, reply, asked)
                }),
                ItemCommand::Delete(delete) => tell(Topic::Deletions, &|| {
                    let is_gone =
                        matches!(reply, Reply::Deleted) && delete.removal == Removal::Remove;
                    let mut line = keyed("deleted", key);
                    let name = if asked.is_meta { "md" } else { "delete" };
                    put(
                        &mut line,
                        format_args!(
                            " cmd={name} clsid=1 cfd={} size={}",
                            asked.conn.number(),
                            asked.found_bytes.unwrap_or(0)
                        ),
                    );
                    is_gone.then_some(line)
                }),
                ItemCommand::Get(_)
                | ItemCommand::Acquire(_)
                | ItemCommand::Release(_)
                | ItemCommand::Lock { .. }
                | ItemCommand::Unlock { .. } => {}
            }
            tell(Topic::Locks, &|| locked(command, reply, asked));
        }
        Command::Global(GlobalCommand::UnlockAll) => {
            tell(Topic::Locks, &|| Some(all_unlocked("asked", asked.conn)));
        }
        Command::Global(
            GlobalCommand::FlushAll { .. }
            | GlobalCommand::Keys(_)
            | GlobalCommand::Stats(_)
            | GlobalCommand::StatsReset,
        ) => {}
    }
}

/// The line for all locks of a connection that are given back at once, and why.
#[must_use]
pub fn all_unlocked(reason: &str, conn: ConnId) -> String {
    let mut line = String::from("type=unlock_all");
    put(
        &mut line,
        format_args!(" reason={reason} cfd={}", conn.number()),
    );
    line
}

/// The line of a key that was looked up, as memcached has one for a store, a delete or a sum as well.
/// Nobody is told of the look-up of a lock: what is locked need not be there.
fn looked_up(command: &ItemCommand<'_>, reply: &Reply<'_>, asked: Asked) -> Option<String> {
    let is_told = match command {
        // One that waits is told when it is answered.
        ItemCommand::Get(_) => !matches!(reply, Reply::Waits),
        ItemCommand::Set(_) | ItemCommand::Delete(_) | ItemCommand::Arithmetic(_) => true,
        ItemCommand::SetTooLarge { .. }
        | ItemCommand::Acquire(_)
        | ItemCommand::Release(_)
        | ItemCommand::Lock { .. }
        | ItemCommand::Unlock { .. } => false,
    };
    let status = match (command, reply, asked.found_bytes) {
        (ItemCommand::Get(_), Reply::Refused(_), _) => "locked",
        (_, _, Some(_)) => "found",
        (_, _, None) => "not_found",
    };
    let mut line = keyed("item_get", command.key().as_bytes());
    put(
        &mut line,
        format_args!(
            " status={status} clsid=1 cfd={} size={}",
            asked.conn.number(),
            asked.found_bytes.unwrap_or(0)
        ),
    );
    is_told.then_some(line)
}

const fn name_of(set: &Set<'_>) -> &'static str {
    match (set.mode, set.guard) {
        (SetMode::Set, Guard::None) => "set",
        (SetMode::Add, _) => "add",
        (SetMode::Append { .. }, _) => "append",
        (SetMode::Prepend { .. }, _) => "prepend",
        (SetMode::Replace, Guard::None) => "replace",
        (
            SetMode::Set | SetMode::Replace,
            Guard::Match(_) | Guard::MatchElseStale(_) | Guard::Never,
        ) => "cas",
    }
}

fn stored(
    key: &[u8],
    name: &str,
    exptime: Exptime,
    size: usize,
    reply: &Reply<'_>,
    asked: Asked,
) -> Option<String> {
    let (status, size) = match reply {
        Reply::Stored(_) => ("stored", size),
        Reply::Number(number) => {
            let digits = number.value.checked_ilog10().unwrap_or(0) as usize + 1;
            ("stored", digits)
        }
        Reply::NotStored => ("not_stored", size),
        Reply::Exists => ("exists", size),
        Reply::NotFound => ("not_found", size),
        Reply::Refused(refusal) => (refused(*refusal), size),
        Reply::Hit(_)
        | Reply::Miss
        | Reply::Deleted
        | Reply::Locked
        | Reply::Granted(_)
        | Reply::Contended(_)
        | Reply::WouldDeadlock(_)
        | Reply::Waits
        | Reply::Unlocked
        | Reply::Ok
        | Reply::Keys(_)
        | Reply::Stats(_) => return None,
    };
    let ttl_s = match exptime {
        Exptime::Never | Exptime::Past => 0,
        Exptime::In { seconds } => u64::from(seconds),
        Exptime::At { unix_s } => unix_s.saturating_sub(asked.unix_s),
    };
    let mut line = keyed("item_store", key);
    put(
        &mut line,
        format_args!(
            " status={status} cmd={name} ttl={ttl_s} clsid=1 cfd={} size={size}",
            asked.conn.number()
        ),
    );
    Some(line)
}

const fn refused(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::Locked => "locked",
        Refusal::NotLocked | Refusal::NotLockedNotFound => "not_locked",
        Refusal::TooManyLocks => "too_many_locks",
        Refusal::ConnectionClosed => "closed",
        Refusal::TooLarge => "too_large",
        Refusal::OutOfMemory => "no_memory",
        Refusal::NonNumeric => "non_numeric",
    }
}

/// The line of what a command has done to the lock of its key, if anything.
fn locked(command: &ItemCommand<'_>, reply: &Reply<'_>, asked: Asked) -> Option<String> {
    let takes = match command {
        ItemCommand::Acquire(_) | ItemCommand::Lock { .. } => true,
        ItemCommand::Get(get) => get.lock,
        ItemCommand::Release(_)
        | ItemCommand::Unlock { .. }
        | ItemCommand::Set(_)
        | ItemCommand::SetTooLarge { .. }
        | ItemCommand::Delete(_)
        | ItemCommand::Arithmetic(_) => false,
    };
    let gives = matches!(
        command,
        ItemCommand::Release(_) | ItemCommand::Unlock { .. }
    );
    if !takes && !gives {
        return None;
    }
    let (status, fence): (_, Option<Fence>) = match reply {
        Reply::Granted(granted) => ("granted", Some(granted.fence)),
        Reply::Locked => ("granted", None),
        Reply::Hit(hit) => ("granted", hit.lock.map(|lock| lock.fence)),
        Reply::Contended(lock) => ("contended", Some(lock.fence)),
        Reply::WouldDeadlock(lock) => ("deadlock", Some(lock.fence)),
        Reply::Refused(Refusal::Locked) => ("contended", None),
        Reply::Refused(refusal) => (refused(*refusal), None),
        Reply::Miss | Reply::NotFound => ("not_found", None),
        Reply::Unlocked => ("released", None),
        Reply::Stored(_)
        | Reply::NotStored
        | Reply::Exists
        | Reply::Deleted
        | Reply::Number(_)
        | Reply::Ok
        | Reply::Keys(_)
        | Reply::Stats(_)
        // It has not happened yet.
        | Reply::Waits => return None,
    };
    let mut line = keyed(
        if takes { "lock" } else { "unlock" },
        command.key().as_bytes(),
    );
    put(
        &mut line,
        format_args!(" status={status} cfd={}", asked.conn.number()),
    );
    if let Some(fence) = fence {
        put(&mut line, format_args!(" fence={}", fence.number()));
    }
    Some(line)
}

/// The beginning of a line about a key, which is written as in a URL.
fn keyed(kind: &str, key: &[u8]) -> String {
    let mut line = String::with_capacity(key.len() + 80);
    put(&mut line, format_args!("type={kind} key="));
    for &byte in key {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            line.push(char::from(byte));
        } else {
            put(&mut line, format_args!("%{byte:02X}"));
        }
    }
    line
}

/// Nothing fails that writes to a string.
fn put(line: &mut String, text: core::fmt::Arguments<'_>) {
    let _ = line.write_fmt(text);
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    use crate::command::{Arithmetic, Delete, Get, OnMissing};
    use crate::item::Cas;
    use crate::key::Key;
    use crate::reply::{LockSeen, Number, Stored, TtlTrace};

    const ALL: Topics = Topics(u8::MAX);

    /// What is told besides look-ups, of a key that was not there.
    fn lines(
        wanted: Topics,
        command: impl Into<Command<'static>>,
        reply: &Reply<'_>,
    ) -> Vec<String> {
        let mut lines = lines_of(None, wanted, command, reply);
        lines.retain(|line| !line.starts_with("type=item_get"));
        lines
    }

    fn lines_of(
        found_bytes: Option<usize>,
        wanted: Topics,
        command: impl Into<Command<'static>>,
        reply: &Reply<'_>,
    ) -> Vec<String> {
        let asked = Asked {
            conn: ConnId::from_number(7),
            is_meta: false,
            unix_s: 1_700_000_000,
            found_bytes,
        };
        let mut lines = Vec::new();
        each_line(wanted, asked, &command.into(), reply, &mut |_, line| {
            lines.push(line);
        });
        lines
    }

    fn key() -> Key<'static> {
        Key::new(b"n,foo").unwrap()
    }

    #[test]
    fn words_are_topics_and_their_beginnings_are_enough() {
        let topics = |words: &[&'static str]| {
            Topics::from_words(words.iter().map(|word| word.as_bytes())).map(Topics::bits)
        };
        let of = |topic| Topics::of(topic);
        assert_eq!(topics(&[]), Some(of(Topic::Fetchers).bits()));
        let both = of(Topic::Mutations).and(of(Topic::Evictions));
        assert_eq!(topics(&["mutations", "ev"]), Some(both.bits()));
        assert_eq!(topics(&["proxyreqs", "sysevents"]), Some(0));
        assert_eq!(topics(&["locks", "nonsense"]), None);
        assert!(!of(Topic::Connections).tell_keys() && both.tell_keys());
    }

    #[test]
    fn whatever_looks_a_key_up_is_told_with_what_was_there() {
        let missed = "type=item_get key=n%2Cfoo status=not_found clsid=1 cfd=7 size=0";
        let found = "type=item_get key=n%2Cfoo status=found clsid=1 cfd=7 size=5";
        let fetchers = Topics::of(Topic::Fetchers);
        for command in [
            ItemCommand::Get(Get::new(key())),
            ItemCommand::Set(Set::new(key(), b"bar")),
            ItemCommand::Delete(Delete::new(key())),
            ItemCommand::Arithmetic(Arithmetic::new(key(), Direction::Increment, 1)),
        ] {
            let told = |there| lines_of(there, fetchers, command, &Reply::NotFound);
            assert_eq!(
                (told(None), told(Some(5))),
                (vec![missed.into()], vec![found.into()])
            );
        }
        let lock = ItemCommand::Lock { key: key() };
        assert_eq!(lines_of(None, fetchers, lock, &Reply::Locked), [""; 0]);
    }

    #[test]
    fn a_store_has_memcacheds_line() {
        let stored = Reply::Stored(Stored {
            cas: Cas::FIRST,
            size: 3,
        });
        for (exptime, ttl) in [
            (Exptime::Never, 0),
            (Exptime::In { seconds: 60 }, 60),
            (
                Exptime::At {
                    unix_s: 1_700_000_009,
                },
                9,
            ),
        ] {
            let set = Set {
                exptime,
                ..Set::new(key(), b"bar")
            };
            assert_eq!(
                lines(ALL, set, &stored),
                [alloc::format!(
                    "type=item_store key=n%2Cfoo status=stored cmd=set ttl={ttl} clsid=1 cfd=7 size=3"
                )]
            );
        }
        let cas = Set {
            guard: Guard::Never,
            ..Set::new(key(), b"")
        };
        let line = "type=item_store key=n%2Cfoo status=exists cmd=cas ttl=0 clsid=1 cfd=7 size=0";
        assert_eq!(lines(ALL, cas, &Reply::Exists), [line]);
        let number = Reply::Number(Number {
            value: 100,
            cas: Cas::FIRST,
            ttl: TtlTrace::default(),
        });
        let line = "type=item_store key=n%2Cfoo status=stored cmd=incr ttl=0 clsid=1 cfd=7 size=3";
        let incr = Arithmetic::new(key(), Direction::Increment, 1);
        assert_eq!(lines(ALL, incr, &number), [line]);
    }

    #[test]
    fn each_kind_of_store_has_its_name() {
        let stored = Reply::Stored(Stored {
            cas: Cas::FIRST,
            size: 1,
        });
        let missing = OnMissing::Refuse;
        for (mode, guard, name) in [
            (SetMode::Set, Guard::None, "set"),
            (SetMode::Add, Guard::None, "add"),
            (SetMode::Replace, Guard::None, "replace"),
            (SetMode::Append { missing }, Guard::None, "append"),
            (SetMode::Prepend { missing }, Guard::None, "prepend"),
            (SetMode::Set, Guard::Match(Cas::FIRST), "cas"),
        ] {
            let set = Set {
                mode,
                guard,
                ..Set::new(key(), b"x")
            };
            let line = alloc::format!("status=stored cmd={name} ttl=0 clsid=1 cfd=7 size=1");
            let line = alloc::format!("type=item_store key=n%2Cfoo {line}");
            assert_eq!(lines(ALL, set, &stored), [line]);
        }
        let number = Reply::Number(Number {
            value: 0,
            cas: Cas::FIRST,
            ttl: TtlTrace::default(),
        });
        let line = "type=item_store key=n%2Cfoo status=stored cmd=decr ttl=0 clsid=1 cfd=7 size=1";
        let decr = Arithmetic::new(key(), Direction::Decrement, 1);
        assert_eq!(lines(ALL, decr, &number), [line]);
    }

    #[test]
    fn each_answer_has_its_status() {
        for (reply, status) in [
            (Reply::NotStored, "not_stored"),
            (Reply::Exists, "exists"),
            (Reply::NotFound, "not_found"),
            (Reply::Refused(Refusal::TooLarge), "too_large"),
            (Reply::Refused(Refusal::OutOfMemory), "no_memory"),
            (Reply::Refused(Refusal::Locked), "locked"),
        ] {
            let line = alloc::format!("status={status} cmd=set ttl=0 clsid=1 cfd=7 size=1");
            let line = alloc::format!("type=item_store key=n%2Cfoo {line}");
            assert_eq!(lines(ALL, Set::new(key(), b"x"), &reply), [line]);
        }
        let get = Get {
            lock: true,
            ..Get::new(key())
        };
        let held = Reply::Refused(Refusal::Locked);
        let fetchers = Topics::of(Topic::Fetchers);
        let line = "type=item_get key=n%2Cfoo status=locked clsid=1 cfd=7 size=3";
        assert_eq!(lines_of(Some(3), fetchers, get, &held), [line]);
        let lock = ItemCommand::Lock { key: key() };
        let unlock = ItemCommand::Unlock { key: key() };
        let fence = Fence::new(9).unwrap();
        let seen = LockSeen {
            holder: ConnId::from_number(3),
            fence,
            held_s: 0,
            is_shared: false,
            waiting: 0,
        };
        for (command, reply, said) in [
            (lock, Reply::NotFound, "lock status=not_found"),
            (
                lock,
                Reply::Refused(Refusal::TooManyLocks),
                "lock status=too_many_locks",
            ),
            (lock, Reply::WouldDeadlock(seen), "lock status=deadlock"),
            (
                unlock,
                Reply::Refused(Refusal::NotLocked),
                "unlock status=not_locked",
            ),
            (
                unlock,
                Reply::Refused(Refusal::NotLockedNotFound),
                "unlock status=not_locked",
            ),
            (unlock, Reply::NotFound, "unlock status=not_found"),
        ] {
            let (what, status) = said.split_once(' ').unwrap();
            let fence = if status.ends_with("deadlock") {
                " fence=9"
            } else {
                ""
            };
            let line = alloc::format!("type={what} key=n%2Cfoo {status} cfd=7{fence}");
            assert_eq!(lines(ALL, command, &reply), [line]);
        }
    }

    #[test]
    fn a_delete_is_told_if_it_removed_something() {
        let delete = Delete::new(key());
        let line = "type=deleted key=n%2Cfoo cmd=delete clsid=1 cfd=7 size=5";
        let deletions = Topics::of(Topic::Deletions);
        assert_eq!(
            lines_of(Some(5), deletions, delete, &Reply::Deleted),
            [line]
        );
        assert_eq!(lines(ALL, delete, &Reply::NotFound), [""; 0]);
        let stale = Delete {
            removal: Removal::MarkStale { exptime: None },
            ..delete
        };
        assert_eq!(lines(ALL, stale, &Reply::Deleted), [""; 0]);
    }

    #[test]
    fn a_lock_is_told_with_what_came_of_it() {
        let lock = ItemCommand::Lock { key: key() };
        let line = "type=lock key=n%2Cfoo status=granted cfd=7";
        assert_eq!(lines(ALL, lock, &Reply::Locked), [line]);
        let line = "type=lock key=n%2Cfoo status=contended cfd=7";
        let held = Reply::Refused(Refusal::Locked);
        assert_eq!(lines(ALL, lock, &held), [line]);
        let unlock = ItemCommand::Unlock { key: key() };
        let line = "type=unlock key=n%2Cfoo status=released cfd=7";
        assert_eq!(lines(ALL, unlock, &Reply::Unlocked), [line]);
        let line = "type=unlock_all reason=asked cfd=7";
        assert_eq!(
            lines(ALL, GlobalCommand::UnlockAll, &Reply::Unlocked),
            [line]
        );
    }

    #[test]
    fn what_is_not_watched_is_not_told() {
        let locks = Topics::of(Topic::Locks);
        assert_eq!(lines(locks, Get::new(key()), &Reply::Miss), [""; 0]);
        let fetchers = Topics::of(Topic::Fetchers);
        let held = Get {
            lock: true,
            ..Get::new(key())
        };
        assert_eq!(lines_of(None, fetchers, held, &Reply::Miss).len(), 1);
        assert_eq!(
            lines_of(None, locks.and(fetchers), held, &Reply::Miss).len(),
            2
        );
    }
}
