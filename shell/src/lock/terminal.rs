//! The terminal from which we were started, and whose it is.
//!
//! Keys that end or stop something reach the process group that has the terminal, and no other group
//! may read from it. The command has a group of its own, so that a loss can end all that it has
//! started; so it is lent the terminal whenever we have it, as a shell does with its jobs.
//!
//! Source: POSIX.1-2017, 11.1 "General Terminal Interface"; credentials(7).

use std::fs;
use std::os::fd::OwnedFd;

use nix::sys::signal::{SigSet, Signal};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, getpgid, getpgrp, getpid, getppid, getsid};
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
        let parent = getpgid(getppid()).ok();
        if parent.is_some() && tcgetpgrp(&self.0).ok() == parent {
            // A terminal that has hung up is of no use to anybody.
            let _ = tcsetpgrp(&self.0, getpgrp());
        }
    }

    /// Lets `group` have it, if it is ours to give.
    pub(super) fn lend(&self, group: Pid) {
        if tcgetpgrp(&self.0) == Ok(getpgrp()) {
            let _ = tcsetpgrp(&self.0, group);
        }
    }

    /// Whether `group` has it.
    pub(super) fn is_lent(&self, group: Pid) -> bool {
        tcgetpgrp(&self.0) == Ok(group)
    }

    /// Takes it back from `group`, if that has it.
    pub(super) fn take_back(&self, group: Pid) {
        if self.is_lent(group) {
            let _ = tcsetpgrp(&self.0, getpgrp());
        }
    }
}

/// Lets this process take the terminal back from the command: who does not have it would be stopped
/// for that otherwise (TTOU). Only for threads that are started from now on and this one; programs that
/// are started are as they always are.
pub(super) fn let_the_background_write() {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGTTOU);
    // If that is not possible, we are stopped, and whoever goes on with us helps.
    let _ = signals.thread_block();
}

/// Whether nobody would let us go on if we were stopped: our process group is an orphaned one.
///
/// Source: POSIX.1-2017, 3.264 "Orphaned Process Group".
pub(super) fn is_orphaned() -> bool {
    let session = getsid(None).ok();
    let mut pid = getpid();
    while let Some(parent) = parent_of(pid) {
        if getsid(Some(parent)).ok() != session {
            return true;
        }
        if getpgid(Some(parent)).ok() != Some(getpgrp()) {
            return false;
        }
        pid = parent;
    }
    true
}

/// Field 4 of proc(5) `stat`, counted from behind the name, which may hold blanks.
fn parent_of(pid: Pid) -> Option<Pid> {
    let path = format!("/proc/{}/stat", pid.as_raw_nonzero());
    let stat = fs::read_to_string(path).ok()?;
    let field = stat.rsplit(") ").next()?.split(' ').nth(1)?;
    Pid::from_raw(field.parse().ok()?)
}
