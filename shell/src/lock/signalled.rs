//! The processes that signals for the command reach.
//!
//! - S1: The command is not the leader of its group, so it can begin a session or a group of its own. Its signals
//!   then reach the command, and its new group.
//! - S2: If a process refuses a signal, because it has gained rights, the refusal is reported at once. The signal is
//!   sent to this process again until it has taken effect.
//!
//! The number of a group belongs to its leader until that is reaped, which `latchd lock` never does. So no signal reaches
//! another group with a reused number.

use std::time::Duration;

use nix::unistd::{Pid as NixPid, getsid};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, getuid, kill_process, kill_process_group, test_kill_process};

use super::process_table;
use crate::output::complain;

/// The pause before a refused signal is sent again (S2).
pub(super) const SEND_AGAIN: Duration = Duration::from_secs(1);

/// The command, and the group that it started in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Place {
    pub(super) group: Pid,
    pub(super) command: Pid,
}

/// A refused signal, and the processes that refuse it.
#[derive(Debug)]
struct Refused {
    signal: Signal,
    by: Vec<Pid>,
}

/// The way of signals to a command.
#[derive(Debug)]
pub(super) struct Signalled {
    place: Place,
    refused: Option<Refused>,
}

impl Place {
    /// The group that the command is in now. `None` if it began a session of its own, or is reaped.
    pub(super) fn group_now(self) -> Option<Pid> {
        let command = NixPid::from_raw(self.command.as_raw_pid());
        let is_ours = getsid(Some(command)).is_ok_and(|session| Ok(session) == getsid(None));
        let group = process_table::group_of(command).filter(|_| is_ours)?;
        Pid::from_raw(group.as_raw())
    }

    /// Sends a signal (S1). Processes may have ended already.
    fn send(self, signal: Signal) {
        let _ = kill_process_group(self.group, signal);
        let command = NixPid::from_raw(self.command.as_raw_pid());
        let now = process_table::group_of(command).map(NixPid::as_raw);
        if now == Some(self.group.as_raw_pid()) {
            return;
        }
        // Processes of the command's own group can outlive it.
        let _ = kill_process_group(self.command, signal);
        if now.is_some_and(|now| now != self.command.as_raw_pid()) {
            let _ = kill_process(self.command, signal);
        }
    }

    /// The running processes that [`send`](Self::send) reaches.
    fn processes(self) -> impl Iterator<Item = Pid> {
        let places = [self.group, self.command].map(Pid::as_raw_pid);
        let is_reached = move |pid: &NixPid| {
            let group = process_table::group_of(*pid).map(NixPid::as_raw);
            pid.as_raw() == self.command.as_raw_pid()
                || group.is_some_and(|group| places.contains(&group))
        };
        let reached = process_table::all().filter(is_reached);
        let running = reached.filter(|pid| !process_table::has_ended(*pid));
        running.filter_map(|pid| Pid::from_raw(pid.as_raw()))
    }

    /// The processes that refuse signals of this one.
    fn refusing(self) -> Vec<Pid> {
        let refuses = |pid: &Pid| test_kill_process(*pid) == Err(Errno::PERM);
        self.processes().filter(refuses).collect()
    }
}

impl Signalled {
    pub(super) const fn new(place: Place) -> Self {
        Self {
            place,
            refused: None,
        }
    }

    pub(super) const fn place(&self) -> Place {
        self.place
    }

    /// Sends a signal to all processes. Reports those that refuse it (S2).
    pub(super) fn send(&mut self, signal: Signal) {
        self.place.send(signal);
        if signal == Signal::CONT {
            // The kernel lets each process of a session continue the others.
            self.refused
                .take_if(|refused| refused.signal == Signal::STOP);
            return;
        }
        let by = self.place.refusing();
        self.refused = (!by.is_empty()).then_some(Refused { signal, by });
        if let Some(refused) = &self.refused {
            refused.report();
        }
    }

    /// Sends a refused signal again to the processes that refused it.
    pub(super) fn send_again(&mut self) {
        let Some(refused) = &mut self.refused else {
            return;
        };
        // The number of a process that has ended may belong to another one: only those of the command are asked.
        let running: Vec<Pid> = self.place.processes().collect();
        let signal = refused.signal;
        refused
            .by
            .retain(|pid| running.contains(pid) && kill_process(*pid, signal) == Err(Errno::PERM));
        self.refused.take_if(|refused| refused.by.is_empty());
    }

    /// When to call [`send_again`](Self::send_again).
    pub(super) fn again_after(&self) -> Option<Duration> {
        self.refused.as_ref().map(|_| SEND_AGAIN)
    }
}

impl Refused {
    fn report(&self) {
        let name = name(self.signal);
        let list: Vec<String> = self.by.iter().map(Pid::to_string).collect();
        let (list, user) = (list.join(", "), getuid().as_raw());
        complain(&format!(
            "cannot send {name} to process {list}: it has gained rights that user {user} lacks; trying again every \
             second until it ends, or send the signal with these rights"
        ));
    }
}

/// The name of a signal, such as `TERM`.
fn name(signal: Signal) -> String {
    let named = nix::sys::signal::Signal::try_from(signal.as_raw()).ok();
    let name = named.map(|signal| signal.as_str().trim_start_matches("SIG"));
    name.map_or_else(|| signal.as_raw().to_string(), str::to_owned)
}
