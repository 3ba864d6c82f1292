//! `latchd locks` and `latchd unlock`: the locks of a server, and the release of one by an operator.
//!
//! `latchd unlock` releases the grant that it has shown, by its fence. So a later holder keeps its lock.
//!
//! Exit codes are those of `latchd cli`; 1 if the key is not locked, the lock has changed, or the answer was no.

pub(crate) mod list;
mod view;

use std::ffi::OsString;
use std::io::{self, BufRead, IsTerminal};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use latchd_protocol::key::Key;
use latchd_protocol::wire::meta::{Flag, Verb};

use self::list::{LeaseItem, Lock};
use crate::cli::PeerArgs;
use crate::cli::connection::Connection;
use crate::cli::readable::shown;
use crate::output::{Failure, complain, concluded, print};

/// The text under the options of `latchd locks`.
pub(crate) const LOCKS_HELP: &str = "\
Examples: latchd locks, latchd locks user:, latchd locks --json
A server lists at most 1,000 locks. Of a shared lock, holder and fence are those of the earliest grant.

Exit codes:
   0  success, also without a lock
   2  the server refuses to list locks (-X), or an option is wrong
  69  the server is unreachable, refuses the login, or stopped replying
  71  the system refuses descriptors or threads
  74  the output cannot be written";

/// The text under the options of `latchd unlock`.
pub(crate) const UNLOCK_HELP: &str = "\
Examples: latchd unlock job, latchd unlock --yes job
It releases the lock of any client: of a connection, a session or a lease. Of a shared lock it releases the
earliest share. The client is not notified, so end it first if it may still be at work.

Exit codes:
   0  the lock is released
   1  the key is not locked, the lock has changed, or the answer was no
   2  the server refuses the request, an option is wrong, or there is no terminal and no --yes
  69  the server is unreachable, refuses the login, or stopped replying
  71  the system refuses descriptors or threads
  74  the output cannot be written";

/// The most locks that a server lists.
const LISTED_MAX: usize = 1_000;

/// List the locks of a server: holders, fences, waiters
#[derive(Debug, clap::Args)]
pub(crate) struct LocksArgs {
    #[command(flatten)]
    peer: PeerArgs,
    /// Write one JSON object instead of a table
    #[arg(long)]
    json: bool,
    /// Only keys that begin with PREFIX
    #[arg(value_name = "PREFIX")]
    prefix: Option<OsString>,
}

/// Release the lock of a key, whichever client holds it
#[derive(Debug, clap::Args)]
pub(crate) struct UnlockArgs {
    #[command(flatten)]
    peer: PeerArgs,
    /// Do not ask before the release
    #[arg(short, long)]
    yes: bool,
    /// The key of the lock
    #[arg(value_name = "KEY")]
    key: OsString,
}

/// Runs `latchd locks`. Returns the exit code.
pub(crate) fn run(args: &LocksArgs) -> ExitCode {
    concluded(list(args)).into()
}

/// Runs `latchd unlock`. Returns the exit code.
pub(crate) fn run_unlock(args: &UnlockArgs) -> ExitCode {
    concluded(unlock(args)).into()
}

fn list(args: &LocksArgs) -> Result<(), Failure> {
    let (mut connection, address) = connect(&args.peer)?;
    let named = |failure: Failure| failure.at(&address);
    let mut locks = list::read(&mut connection).map_err(named)?;
    if locks.len() >= LISTED_MAX {
        complain(&format!(
            "{address}: the server lists at most {LISTED_MAX} locks, others may be missing; \
             its status page shows those with the most waiters"
        ));
    }
    if let Some(prefix) = &args.prefix {
        locks.retain(|lock| lock.key.starts_with(prefix.as_bytes()));
    }
    if args.json {
        print(view::json(&locks))
    } else if locks.is_empty() {
        print("no locks\n")
    } else {
        print(view::table(&locks))
    }
}

fn unlock(args: &UnlockArgs) -> Result<(), Failure> {
    let bytes = args.key.as_bytes();
    let key = Key::new(bytes)
        .ok_or_else(|| Failure::usage("a key has 1 to 250 bytes; give another KEY"))?;
    let may_ask = io::stdin().is_terminal() && io::stdout().is_terminal();
    if !args.yes && !may_ask {
        let why = "cannot ask before the release: not at a terminal; add --yes";
        return Err(Failure::usage(why));
    }
    let (mut connection, address) = connect(&args.peer)?;
    let named = |failure: Failure| failure.at(&address);
    let locks = list::read(&mut connection).map_err(named)?;
    let is_whole = locks.len() < LISTED_MAX;
    let lock = locks.into_iter().find(|lock| lock.key == bytes);
    let item = LeaseItem::read(&mut connection, key).map_err(named)?;
    let text = match (&lock, &item) {
        (Some(lock), _) => view::sentence(lock),
        (None, Some(item)) => view::lease_sentence(bytes, item),
        (None, None) => return Err(named(not_listed(bytes, is_whole))),
    };
    print(&text)?;
    if !args.yes && !agreed()? {
        return Err(Failure::no("not released"));
    }
    release(&mut connection, key, lock.as_ref(), item.as_ref()).map_err(named)?;
    print("released\n")
}

/// Opens a connection. Also returns the address of the server.
fn connect(peer: &PeerArgs) -> Result<(Connection, String), Failure> {
    let (client, timeout) = peer.client()?;
    let address = client.address().to_owned();
    let opened = Connection::open(&client, timeout);
    let connection = opened.map_err(|broken| Failure::from(broken).at(&address))?;
    Ok((connection, address))
}

/// Why a key is not among the locks that the server lists.
fn not_listed(key: &[u8], is_whole: bool) -> Failure {
    let key = shown(key);
    if is_whole {
        return Failure::no(format!("{key} is not locked"));
    }
    Failure::usage(format!(
        "{key} is not among the {LISTED_MAX} locks that the server lists; find its fence on the status page \
         and run `latchd cli mu KEY G<fence>`"
    ))
}

/// Asks the operator.
fn agreed() -> Result<bool, Failure> {
    print("release it? [y/N] ")?;
    let mut answer = String::new();
    let read = io::stdin().lock().read_line(&mut answer);
    // Bytes that are no text are no consent.
    let is_yes = read.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes");
    Ok(is_yes)
}

/// Releases the grant of `lock`, with the item of a lease: a client of the library that asks for the lease looks at
/// that item. The item of a shared key cannot be changed.
fn release(
    connection: &mut Connection,
    key: Key<'_>,
    lock: Option<&Lock>,
    item: Option<&LeaseItem>,
) -> Result<(), Failure> {
    let fence = lock.map(|lock| Flag::InGrant(lock.fence));
    let item = item.filter(|_| lock.is_none_or(|lock| !lock.is_shared));
    let (verb, cas, unlocks) = match item {
        Some(item) => (Verb::Delete, Some(Flag::Cas(item.cas)), lock.is_some()),
        None => (Verb::Unlock, None, false),
    };
    let unlocks = unlocks.then_some(Flag::Unlock);
    let flags: Vec<_> = [fence, cas, unlocks].into_iter().flatten().collect();
    let line = list::ask(connection, verb, key, &flags)?;
    match line.as_slice() {
        b"HD" => Ok(()),
        b"EX" | b"NF" => Err(Failure::no(
            "not released: the lock has another holder now, or none",
        )),
        other => Err(Failure::usage(format!("not released: {}", shown(other)))),
    }
}
