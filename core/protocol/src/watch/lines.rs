//! The lines of a command and its reply, in memcached's form.

use alloc::string::String;
use core::fmt::Write as _;

use super::{Asked, Topic, Topics};
use crate::command::{
    Command, Direction, GlobalCommand, Guard, ItemCommand, Removal, Set, SetMode,
};
use crate::conn_id::ConnId;
use crate::fence::Fence;
use crate::owner::Owner;
use crate::reply::{Refusal, Reply};
use crate::time::Exptime;
use crate::uri::UriEncoded;

/// Passes on the lines of `command` and its `reply` that belong to `wanted`, without time, number and line end.
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

/// The line for the release of all locks of a connection at once, with the reason.
#[must_use]
pub fn all_unlocked(reason: &str, conn: ConnId) -> String {
    let mut line = String::from("type=unlock_all");
    put(
        &mut line,
        format_args!(" reason={reason} cfd={}", conn.number()),
    );
    line
}

/// The line for an event of a session: `open`, `resume`, `detach`, `end` or `expire`; and the connection that it is
/// about.
#[must_use]
pub fn of_session(event: &str, session: Owner, conn: Option<ConnId>) -> String {
    let mut line = String::from("type=session");
    put(&mut line, format_args!(" event={event} session={session}"));
    if let Some(conn) = conn {
        put(&mut line, format_args!(" cfd={}", conn.number()));
    }
    line
}

/// The line of a key that was looked up; as in memcached, a store, a delete and an arithmetic have one too. The
/// look-up of a lock has none: a locked item need not exist.
fn looked_up(command: &ItemCommand<'_>, reply: &Reply<'_>, asked: Asked) -> Option<String> {
    let is_told = match command {
        // A get that waits has its line when it is answered.
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
        Reply::KeyOf(_) => (OTHER_PARTITION, size),
        Reply::Hit(_)
        | Reply::Miss
        | Reply::Deleted
        | Reply::Locked
        | Reply::Granted(_)
        | Reply::Contended(_)
        | Reply::WouldDeadlock(_)
        | Reply::Withheld { .. }
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

/// The status for a key of another partition.
const OTHER_PARTITION: &str = "other_partition";

const fn refused(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::Locked => "locked",
        Refusal::NotLocked | Refusal::NotLockedNotFound => "not_locked",
        Refusal::TooManyLocks => "too_many_locks",
        Refusal::ConnectionClosed => "closed",
        Refusal::TooLarge => "too_large",
        Refusal::OutOfMemory => "no_memory",
        Refusal::NonNumeric => "non_numeric",
        Refusal::Unrecorded => "unrecorded",
    }
}

/// The line of a command's effect on the lock of its key, if any.
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
        Reply::Withheld { .. } | Reply::Refused(Refusal::Locked) => ("contended", None),
        Reply::Refused(refusal) => (refused(*refusal), None),
        Reply::KeyOf(_) => (OTHER_PARTITION, None),
        Reply::Miss | Reply::NotFound => ("not_found", None),
        Reply::Unlocked => ("released", None),
        // Of a release by its fence: the grant is over.
        Reply::Exists => ("not_locked", None),
        Reply::Stored(_)
        | Reply::NotStored
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
    if let Some(session) = asked.session {
        put(&mut line, format_args!(" session={session}"));
    }
    Some(line)
}

/// The beginning of a line about a key, which is written as in a URL.
pub(super) fn keyed(kind: &str, key: &[u8]) -> String {
    let mut line = String::with_capacity(key.len() + 80);
    put(
        &mut line,
        format_args!("type={kind} key={}", UriEncoded(key)),
    );
    line
}

/// Nothing fails that writes to a string.
pub(super) fn put(line: &mut String, text: core::fmt::Arguments<'_>) {
    let _ = line.write_fmt(text);
}
