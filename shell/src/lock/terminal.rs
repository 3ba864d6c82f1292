//! The terminal from which we were started, and whose it is.
//!
//! Keys that end or stop something reach the process group that has the terminal, and no other group
//! may read from it. The command has a group of its own, so that a loss can end all that it has
//! started; so it is lent the terminal whenever we have it, as a shell does with its jobs.
//!
//! Source: POSIX.1-2017, 11.1 "General Terminal Interface"; credentials(7).

use std::fs;
use std::iter;
use std::os::fd::OwnedFd;

use nix::unistd::{self, getpid, getppid};
use rustix::fs::{Mode, OFlags};
use rustix::process::Pid;
use rustix::termios::{tcgetpgrp, tcsetpgrp};

/// The controlling terminal.
pub(super) struct Terminal(OwnedFd);

impl Terminal {
    /// `None` if there is none, as under a daemon.
    pub(super) fn open() -> Option<Self> {
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let tty = rustix::fs::open("/dev/tty", flags, Mode::empty()).ok()?;
        Some(Self(tty))
    }

    /// Takes it from our parent's group, if that has it.
    pub(super) fn take_over(&self) {
        let parent = group_of(getppid());
        if parent.is_some() && tcgetpgrp(&self.0).ok() == parent {
            self.give(own_group());
        }
    }

    /// Lets `group` have it, if it is ours to give.
    pub(super) fn lend(&self, group: Pid) {
        let own = own_group();
        if own.is_some() && tcgetpgrp(&self.0).ok() == own {
            self.give(Some(group));
        }
    }

    /// Whether `group` has it.
    pub(super) fn is_lent(&self, group: Pid) -> bool {
        tcgetpgrp(&self.0) == Ok(group)
    }

    /// Whether the group of `command`, or of a process that it has started, has it. A program with job control of
    /// its own, such as another `latchd lock`, lends it on.
    pub(super) fn is_lent_below(&self, command: Pid) -> bool {
        let Ok(owner) = tcgetpgrp(&self.0) else {
            return false;
        };
        owner == command || descends(owner, command)
    }

    /// Takes it back from `group`, if that has it.
    pub(super) fn take_back(&self, group: Pid) {
        if self.is_lent(group) {
            self.give(own_group());
        }
    }

    fn give(&self, group: Option<Pid>) {
        if let Some(group) = group {
            // A terminal that has hung up is of no use to anybody.
            let _ = tcsetpgrp(&self.0, group);
        }
    }
}

/// The group of a process; `None` if it is not of this namespace (its number is 0 then), as that of
/// a container's first process may be.
///
/// Source: `pid_namespaces(7)`.
fn group_of(pid: unistd::Pid) -> Option<Pid> {
    Pid::from_raw(unistd::getpgid(Some(pid)).ok()?.as_raw())
}

fn own_group() -> Option<Pid> {
    Pid::from_raw(unistd::getpgrp().as_raw())
}

/// Whether a process of `group` descends from `ancestor`. Where there is no `/proc`, no process does.
fn descends(group: Pid, ancestor: Pid) -> bool {
    let (group, ancestor) = (
        unistd::Pid::from_raw(group.as_raw_pid()),
        unistd::Pid::from_raw(ancestor.as_raw_pid()),
    );
    let Ok(processes) = fs::read_dir("/proc") else {
        return false;
    };
    let pids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.map(unistd::Pid::from_raw)
        .filter(|pid| unistd::getpgid(Some(*pid)) == Ok(group))
        .any(|pid| iter::successors(Some(pid), |pid| parent_of(*pid)).any(|pid| pid == ancestor))
}

/// Whether nobody would let us go on if we were stopped: our process group is an orphaned one.
///
/// Source: POSIX.1-2017, 3.264 "Orphaned Process Group".
pub(super) fn is_orphaned() -> bool {
    let session = unistd::getsid(None);
    let mut pid = getpid();
    while let Some(parent) = parent_of(pid) {
        if unistd::getsid(Some(parent)) != session {
            return true;
        }
        if unistd::getpgid(Some(parent)) != Ok(unistd::getpgrp()) {
            return false;
        }
        pid = parent;
    }
    true
}

/// Field 4 of proc(5) `stat`, counted from behind the name, which may hold blanks. It is 0 where the
/// parent is not of this namespace.
fn parent_of(pid: unistd::Pid) -> Option<unistd::Pid> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let field = stat.rsplit(") ").next()?.split(' ').nth(1)?;
    let parent: i32 = field.parse().ok()?;
    (parent > 0).then(|| unistd::Pid::from_raw(parent))
}
