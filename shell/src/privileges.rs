//! What only root may do, and how the program stops being root: `-u`, `-k`, `-r`.
//!
//! All of it comes before the first thread and the first socket, so that nothing that a client reaches
//! has ever been root. As in memcached, ports below 1024 are therefore not to be had together with `-u`.

use std::io;

use nix::unistd::{Uid, User, setgid, setgroups, setuid};
use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Why the program may not be who it is to be.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// There is no such user. memcached's exit code is 67, `EX_NOUSER`.
    NoUser(String),
    /// The kernel does not let it.
    Denied(String),
}

/// Becomes a user, for good, with no group but its own. Whoever is that user already stays it.
///
/// # Errors
/// There is no such user, or only root could become it.
pub(crate) fn become_user(name: &str) -> Result<(), Refusal> {
    let user = User::from_name(name)
        .ok()
        .flatten()
        .ok_or_else(|| Refusal::NoUser(format!("-u {name}: there is no such user")))?;
    let now = Uid::effective();
    if now == user.uid {
        return Ok(());
    }
    let denied = |why: &str| Refusal::Denied(format!("-u {name}: {why}"));
    if !now.is_root() {
        return Err(denied("only root can become another user"));
    }
    setgroups(&[])
        .and_then(|()| setgid(user.gid))
        .and_then(|()| setuid(user.uid))
        .map_err(|errno| denied(errno.desc()))?;
    // Who could take it back has not given it up.
    if setuid(Uid::from_raw(0)).is_ok() {
        return Err(denied("it could become root again"));
    }
    Ok(())
}

/// Whether the program is root.
pub(crate) fn is_root() -> bool {
    Uid::effective().is_root()
}

/// Keeps all memory of the program, present and to come, from being swapped out.
///
/// # Errors
/// The kernel's: its limit is too low, most of all.
pub(crate) fn lock_memory() -> io::Result<()> {
    let unlimited = Rlimit {
        current: None,
        maximum: None,
    };
    // Only root may, and has to: what comes after `-u` counts against the limit.
    let _ = setrlimit(Resource::Memlock, unlimited);
    mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE)?;
    Ok(())
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
