//! Actions that require root, and dropping root: `-u`, `-k`, `-r`.
//!
//! All of this happens before the first thread and the first socket, so no client ever reaches a process with root
//! rights. As in memcached, ports below 1024 therefore cannot be combined with `-u`.

use std::io;

use nix::errno::Errno;
use nix::unistd::{Uid, User, setgid, setgroups, setuid};
use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, capabilities};

/// Why the program cannot change its user.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The user does not exist. memcached's exit code is 67, `EX_NOUSER`.
    NoUser(String),
    /// The kernel refuses it.
    Denied(String),
}

/// Becomes a user permanently, with only the user's own group. A process that is not root keeps its user: charts
/// give `-u` to containers that run as another user. Returns a warning.
///
/// # Errors
/// The user does not exist, or the kernel refuses the change.
pub(crate) fn become_user(name: &str) -> Result<Option<String>, Refusal> {
    let now = Uid::effective();
    if !now.is_root() {
        return Ok(ignored_user(name));
    }
    let user = User::from_name(name)
        .ok()
        .flatten()
        .ok_or_else(|| Refusal::NoUser(format!("-u {name}: no such user")))?;
    if now == user.uid {
        return Ok(None);
    }
    let denied = |why: &str| Refusal::Denied(format!("-u {name}: {why}"));
    let warning = match setgroups(&[]) {
        Ok(()) => None,
        // As in memcached: a process without this capability has few rights anyway.
        Err(Errno::EPERM) => Some(format!(
            "-u {name}: keeping the groups of root: the process lacks CAP_SETGID"
        )),
        Err(errno) => return Err(denied(errno.desc())),
    };
    setgid(user.gid)
        .and_then(|()| setuid(user.uid))
        .map_err(|errno| denied(errno.desc()))?;
    // Root is dropped only if the process cannot become root again.
    if setuid(Uid::from_raw(0)).is_ok() {
        return Err(denied("the process can still become root again"));
    }
    Ok(warning)
}

/// The warning about `-u NAME` in a process that is not root; `None` if `-u` takes effect.
fn ignored_user(name: &str) -> Option<String> {
    let now = Uid::effective();
    let is_already = || {
        let user = User::from_name(name).ok().flatten();
        user.is_some_and(|user| user.uid == now)
    };
    (!now.is_root() && !is_already()).then(|| {
        format!("ignoring -u {name}: only root can change the user; still running as user {now}")
    })
}

/// Whether the program is root.
pub(crate) fn is_root() -> bool {
    Uid::effective().is_root()
}

/// Raises the limit of locked memory as far as the process may.
pub(crate) fn raise_locked_memory() {
    // `lock_memory` checks the resulting limit.
    let _ = raise(Resource::Memlock);
}

/// Raises a limit as far as the process may.
fn raise(resource: Resource) -> rustix::io::Result<()> {
    let to = |maximum| Rlimit {
        current: maximum,
        maximum,
    };
    setrlimit(resource, to(None)).or_else(|_| setrlimit(resource, to(getrlimit(resource).maximum)))
}

/// The limit of locked memory in bytes, if it is below `needed`. A process that locks all memory gets no more beyond
/// its limit, and ends. `-u` drops all capabilities.
pub(crate) fn too_little_locked(needed: u64, leaves_root: bool) -> Option<u64> {
    let capabilities = capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective);
    let may_raise = capabilities.contains(CapabilitySet::SYS_RESOURCE);
    let needs_no_limit = capabilities.contains(CapabilitySet::IPC_LOCK) && !leaves_root;
    let most = getrlimit(Resource::Memlock).maximum?;
    (most < needed && !may_raise && !needs_no_limit).then_some(most)
}

/// Locks all present and future memory of the process, so it is never swapped out. Runs after `-u`, under the limit
/// of the server's user.
///
/// # Errors
/// A message for the operator, usually because the limit is too low. Nothing is locked then.
pub(crate) fn lock_memory(needed: u64) -> Result<(), String> {
    if let Some(most) = too_little_locked(needed, false) {
        return Err(locks_too_little(needed, most));
    }
    mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE)
        .map_err(|errno| format!("-k: cannot lock memory, it may be swapped out: {errno}"))
}

/// The warning about a limit of locked memory that is too low.
pub(crate) fn locks_too_little(needed: u64, most: u64) -> String {
    format!(
        "-k: cannot lock memory, it may be swapped out: the limit is {} MB, {} MB are needed; raise it with \
         `ulimit -l` or LimitMEMLOCK=, or remove -k",
        most >> 20,
        needed >> 20
    )
}

/// Raises the size limit of core files as far as allowed.
///
/// # Errors
/// The limit is 0 and cannot be raised.
pub(crate) fn allow_core_files() -> io::Result<()> {
    raise(Resource::Core)?;
    match getrlimit(Resource::Core).current {
        Some(0) => Err(io::Error::other(
            "-r: core files are not allowed: the hard limit is 0; raise it with `ulimit -c` or remove -r",
        )),
        Some(_) | None => Ok(()),
    }
}
