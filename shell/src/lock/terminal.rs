//! The controlling terminal, and the process group in its foreground.
//!
//! Keys such as Ctrl-C send signals only to the foreground group, and only that group can read from the terminal. The
//! command has its own group, so that the loss of a lock can end all its processes. So this process puts the command's
//! group into the foreground whenever it has the terminal itself, as a shell does with its jobs.
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

    /// Takes it from the parent's group, if that has it.
    pub(super) fn take_over(&self) {
        let parent = group_of(getppid());
        if parent.is_some() && tcgetpgrp(&self.0).ok() == parent {
            self.give(own_group());
        }
    }

    /// Gives it to `group`, if this process's group has it.
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

    /// Whether the group of `command`, or of one of its descendants, has it. A program with its own job control, such as
    /// another `latchd lock`, passes it on.
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
            // The terminal may have hung up.
            let _ = tcsetpgrp(&self.0, group);
        }
    }
}

/// The group of a process. `None` if the group is outside this namespace (its number is 0), as that of a container's
/// first process may be.
///
/// Source: `pid_namespaces(7)`.
fn group_of(pid: unistd::Pid) -> Option<Pid> {
    Pid::from_raw(unistd::getpgid(Some(pid)).ok()?.as_raw())
}

fn own_group() -> Option<Pid> {
    Pid::from_raw(unistd::getpgrp().as_raw())
}

/// Whether a process of `group` descends from `ancestor`. Without `/proc` the result is `false`.
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

/// Whether this process group is orphaned: no process would continue it after a stop.
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

/// Field 4 of proc(5) `stat`, counted from behind the name, which may contain blanks. It is 0 if the parent is outside
/// this namespace.
fn parent_of(pid: unistd::Pid) -> Option<unistd::Pid> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let field = stat.rsplit(") ").next()?.split(' ').nth(1)?;
    let parent: i32 = field.parse().ok()?;
    (parent > 0).then(|| unistd::Pid::from_raw(parent))
}
