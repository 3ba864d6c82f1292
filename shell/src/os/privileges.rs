//! What only root may do, and how the program stops being root: `-u`, `-k`, `-r`.
//!
//! All of it comes before the first thread and the first socket, so that nothing that a client reaches
//! has ever been root. As in memcached, ports below 1024 are therefore not to be had together with `-u`.

use std::io;

use nix::errno::Errno;
use nix::unistd::{Uid, User, setgid, setgroups, setuid};
use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, capabilities};

/// Why the program may not be who it is to be.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// There is no such user. memcached's exit code is 67, `EX_NOUSER`.
    NoUser(String),
    /// The kernel does not let it.
    Denied(String),
}

/// What `-u NAME` comes to for a process that is not root; `None` if it does what it says.
pub(crate) fn ignored_user(name: &str) -> Option<String> {
    let now = Uid::effective();
    let is_already = || {
        let user = User::from_name(name).ok().flatten();
        user.is_some_and(|user| user.uid == now)
    };
    (!now.is_root() && !is_already()).then(|| {
        format!("-u {name} is ignored: only root can become another user, and this is user {now}")
    })
}

/// Becomes a user, for good, with no group but its own. A process that is not root stays what it is: charts
/// give `-u` to containers that run as another user. Returns what is worth a warning.
///
/// # Errors
/// There is no such user, or the kernel does not let root become it.
pub(crate) fn become_user(name: &str) -> Result<Option<String>, Refusal> {
    let now = Uid::effective();
    if !now.is_root() {
        return Ok(ignored_user(name));
    }
    let user = User::from_name(name)
        .ok()
        .flatten()
        .ok_or_else(|| Refusal::NoUser(format!("-u {name}: there is no such user")))?;
    if now == user.uid {
        return Ok(None);
    }
    let denied = |why: &str| Refusal::Denied(format!("-u {name}: {why}"));
    let warning = match setgroups(&[]) {
        Ok(()) => None,
        // As in memcached: a process without that capability has few rights already.
        Err(Errno::EPERM) => Some(format!(
            "-u {name}: the groups of root stay: the process lacks CAP_SETGID"
        )),
        Err(errno) => return Err(denied(errno.desc())),
    };
    setgid(user.gid)
        .and_then(|()| setuid(user.uid))
        .map_err(|errno| denied(errno.desc()))?;
    // Who could take it back has not given it up.
    if setuid(Uid::from_raw(0)).is_ok() {
        return Err(denied("it could become root again"));
    }
    Ok(warning)
}

/// Whether the program is root.
pub(crate) fn is_root() -> bool {
    Uid::effective().is_root()
}

/// Raises the limit of locked memory as far as the process may.
pub(crate) fn raise_locked_memory() {
    let unlimited = Rlimit {
        current: None,
        maximum: None,
    };
    if setrlimit(Resource::Memlock, unlimited).is_err() {
        let maximum = getrlimit(Resource::Memlock).maximum;
        let most = Rlimit {
            current: maximum,
            maximum,
        };
        // What there is then is looked at before memory is locked.
        let _ = setrlimit(Resource::Memlock, most);
    }
}

/// What of the memory that a server needs may be locked, in bytes, if that is too little: past its limit a
/// process that has locked its memory gets none, and ends. `-u` leaves no capability.
pub(crate) fn too_little_locked(needed: u64, leaves_root: bool) -> Option<u64> {
    let capabilities = capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective);
    let may_raise = capabilities.contains(CapabilitySet::SYS_RESOURCE);
    let needs_no_limit = capabilities.contains(CapabilitySet::IPC_LOCK) && !leaves_root;
    let most = getrlimit(Resource::Memlock).maximum?;
    (most < needed && !may_raise && !needs_no_limit).then_some(most)
}

/// Keeps all memory of the program, present and to come, from being swapped out. After `-u`: then the limit
/// is that of the server's user.
///
/// # Errors
/// A sentence for a person: the limit is too low, most of all. Nothing is locked then.
pub(crate) fn lock_memory(needed: u64) -> Result<(), String> {
    if let Some(most) = too_little_locked(needed, false) {
        return Err(locks_too_little(needed, most));
    }
    mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE)
        .map_err(|errno| format!("-k: memory may be swapped out: {errno}"))
}

/// What is to be said of a limit of locked memory that is too low.
pub(crate) fn locks_too_little(needed: u64, most: u64) -> String {
    format!(
        "-k: memory may be swapped out: {} MB may be locked, and {} are needed; raise it with `ulimit -l` \
         or LimitMEMLOCK=, or leave -k out",
        most >> 20,
        needed >> 20
    )
}

/// Lets the program leave a core file that is as large as may be.
///
/// # Errors
/// It may leave none at all.
pub(crate) fn allow_core_files() -> io::Result<()> {
    let unlimited = Rlimit {
        current: None,
        maximum: None,
    };
    if setrlimit(Resource::Core, unlimited).is_err() {
        let maximum = getrlimit(Resource::Core).maximum;
        let most = Rlimit {
            current: maximum,
            maximum,
        };
        setrlimit(Resource::Core, most)?;
    }
    match getrlimit(Resource::Core).current {
        Some(0) => Err(io::Error::other("-r: no core files are allowed here")),
        Some(_) | None => Ok(()),
    }
}
