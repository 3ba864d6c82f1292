//! The controlling terminal, and the process group in its foreground.
//!
//! Keys such as Ctrl-C send signals only to the foreground group, and only that group can read from the terminal. The
//! command has its own group, so that the loss of a lock can end all its processes. So this process puts the command's
//! group into the foreground whenever it has the terminal itself, as a shell does with its jobs.
//!
//! Source: POSIX.1-2017, 11.1 "General Terminal Interface"; credentials(7).

use std::iter;
use std::os::fd::OwnedFd;

use nix::unistd::{self, getpid, getppid};
use rustix::fs::{Mode, OFlags};
use rustix::process::Pid;
use rustix::termios::{tcgetpgrp, tcsetpgrp};

use super::process_table::{self, group_of, parent_of};
use super::signalled::Place;

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
        let parent = group_of(getppid()).and_then(|group| Pid::from_raw(group.as_raw()));
        if parent.is_some() && tcgetpgrp(&self.0).ok() == parent {
            self.give(own_group());
        }
    }

    /// Gives it to the group of the command, if this process's group has it.
    pub(super) fn lend(&self, place: Place) {
        let own = own_group();
        if own.is_some() && tcgetpgrp(&self.0).ok() == own {
            self.give(place.group_now());
        }
    }

    /// Whether the command has it, in the group that it started in or in one that it leads.
    pub(super) fn is_lent(&self, place: Place) -> bool {
        let owner = tcgetpgrp(&self.0);
        owner == Ok(place.group) || owner == Ok(place.command)
    }

    /// Whether the group of the command, or of one of its descendants, has it. A program with its own job control, such
    /// as another `latchd lock`, passes it on.
    pub(super) fn is_lent_below(&self, place: Place) -> bool {
        let owner = tcgetpgrp(&self.0);
        self.is_lent(place) || owner.is_ok_and(|owner| descends(owner, place.command))
    }

    /// Follows a command that has left the group that it started in, such as timeout(1) and setsid(1). Its new group
    /// gets the terminal. If it has left the session, this process takes the keys for it. Returns whether the terminal
    /// was in the former group.
    pub(super) fn follow(&self, place: Place) -> bool {
        let now = place.group_now();
        let is_behind = tcgetpgrp(&self.0) == Ok(place.group) && now != Some(place.group);
        if is_behind {
            self.give(now.or_else(own_group));
        }
        is_behind
    }

    /// Takes it back from the command, if that has it.
    pub(super) fn take_back(&self, place: Place) {
        if self.is_lent(place) {
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

fn own_group() -> Option<Pid> {
    Pid::from_raw(unistd::getpgrp().as_raw())
}

/// Whether a process of `group` descends from `ancestor`. Without `/proc` the result is `false`.
fn descends(group: Pid, ancestor: Pid) -> bool {
    let (group, ancestor) = (
        unistd::Pid::from_raw(group.as_raw_pid()),
        unistd::Pid::from_raw(ancestor.as_raw_pid()),
    );
    process_table::all()
        .filter(|pid| group_of(*pid) == Some(group))
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
