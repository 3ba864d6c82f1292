//! Attacks: one client, or a fault of the environment, against a server that serves others too.
//!
//! Each attack is a function of a [`Stage`], on which it starts servers, and returns an
//! [`Outcome`]. Where memcached can be attacked in the same way, it is attacked for comparison: the
//! table shows its row, and no limit holds for it.
//!
//! Each attack looks for a way to make a server stall, grow or end. The limits that each must keep
//! are in docs/LIMITS.md.

pub mod attacks;
pub mod client;
pub mod outcome;
pub mod target;
pub mod watch;

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use attacks::{ATTACKS, QUIET};
pub use outcome::{Outcome, Quiet};
pub use target::Kind;

use client::Client;
use outcome::Memory;
use target::{Start, Target};
use watch::Seen;

/// The sizes of everything, and the programs.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The latchd program.
    pub latchd: PathBuf,
    /// The memcached program, if it is to be compared.
    pub peer: Option<PathBuf>,
    /// The program that holds a lock in another process or network: this one, with `--hold`.
    pub holder: PathBuf,
    /// Items in a large store.
    pub items: usize,
    /// Locks of a large holder.
    pub locks: usize,
    /// The span of an attack that has no end of its own.
    pub span: Duration,
}

/// An attack.
#[derive(Clone, Copy, Debug)]
pub struct Attack {
    /// Its name on the command line.
    pub name: &'static str,
    /// A description in a few words.
    pub about: &'static str,
    /// Whether memcached can be attacked in the same way.
    pub has_peer: bool,
    /// Attacks. An error of [`io::ErrorKind::Unsupported`] says that this machine does not allow it.
    pub play: fn(&Stage<'_>) -> io::Result<Outcome>,
}

/// The place of an attack.
#[derive(Debug)]
pub struct Stage<'a> {
    /// The sizes.
    pub setting: &'a Setting,
    /// The server under attack.
    pub kind: Kind,
    /// The address of an idle latchd, whose client shows the delays of the machine.
    pub idle: SocketAddr,
}

/// Flags of a server with room for a large store and as many connections as an attack may want. One
/// holder may have an eighth of the memory: 256 MB for half a million locks.
const LARGE: &[&str] = &["-m", "2048", "-t", "4", "-c", "4096"];

/// Further flags for latchd: one client may hold as many locks as an attack wants.
const MANY_LOCKS: &[&str] = &["-o", "locks_per_conn=1000000"];

impl Stage<'_> {
    /// The program to start.
    ///
    /// # Errors
    /// This machine has none of this kind.
    pub fn program(&self) -> io::Result<&Path> {
        match self.kind {
            Kind::Latchd => Ok(&self.setting.latchd),
            Kind::Memcached => self.setting.peer.as_deref().ok_or_else(|| {
                io::Error::new(io::ErrorKind::Unsupported, "there is no memcached here")
            }),
        }
    }

    /// Starts a server.
    ///
    /// # Errors
    /// As [`Target::start`].
    pub fn start(&self, start: &Start<'_>) -> io::Result<Target> {
        Target::start(self.kind, self.program()?, start)
    }

    /// Starts a server and stores [`Setting::items`] small items in it: `k0`, `k1` and so on.
    ///
    /// # Errors
    /// As [`Target::start`], or it does not store.
    pub fn start_large(&self) -> io::Result<Target> {
        let flags = match self.kind {
            Kind::Latchd => [LARGE, MANY_LOCKS].concat(),
            Kind::Memcached => LARGE.to_vec(),
        };
        let target = self.start(&Start::new(&flags))?;
        fill(&target, self.setting.items)?;
        Ok(target)
    }

    /// Lets innocent clients of the server at `address` work while `attack` runs.
    ///
    /// # Errors
    /// As [`watch::watch`].
    pub fn watch<R>(
        &self,
        address: SocketAddr,
        attack: impl FnOnce() -> io::Result<R>,
    ) -> io::Result<(Seen, R)> {
        watch::watch(address, self.idle, attack)
    }

    /// Notes the peak memory of the server, in a row that is not about memory.
    ///
    /// # Errors
    /// It has ended.
    pub fn note_memory(&self, target: &Target, outcome: &mut Outcome) -> io::Result<()> {
        outcome.memory = Some(Memory {
            peak_mib: target.peak_mib()?,
            max_mib: None,
        });
        Ok(())
    }

    /// Judges the peak memory of the server.
    ///
    /// # Errors
    /// It has ended.
    pub fn limit_memory(
        &self,
        target: &Target,
        outcome: &mut Outcome,
        max_mib: u64,
    ) -> io::Result<()> {
        outcome.memory = Some(Memory {
            peak_mib: target.peak_mib()?,
            max_mib: Some(max_mib),
        });
        Ok(())
    }
}

/// Stores `items` small items: `k0`, `k1` and so on.
fn fill(target: &Target, items: usize) -> io::Result<()> {
    let stored = Client::connect(target.address)?.pipeline(items, "STORED", |index, bytes| {
        bytes.extend_from_slice(format!("set k{index} 0 0 8\r\nvalue678\r\n").as_bytes());
    })?;
    if stored < items {
        return Err(io::Error::other(format!(
            "only {stored} of {items} are stored"
        )));
    }
    Ok(())
}

/// A client that holds the locks of `k0` to `k{locks - 1}`.
fn hold(target: &Target, locks: usize) -> io::Result<Client> {
    let mut holder = Client::connect(target.address)?;
    let held = holder.pipeline(locks, "OK", |index, bytes| {
        bytes.extend_from_slice(format!("lock k{index}\r\n").as_bytes());
    })?;
    if held < locks {
        return Err(io::Error::other(format!("only {held} of {locks} are held")));
    }
    Ok(holder)
}
