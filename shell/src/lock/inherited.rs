//! The signal mask and the ignored signals that this process was started with.
//!
//! - I1: The command starts with the mask and the ignored signals that this process inherited. SIGPIPE is the
//!   exception: Rust's runtime ignores it before `main` and keeps no record, so the command gets its default.
//! - I2: This process ignores a signal only if it inherited that, and never CHLD and CONT. A parent that
//!   blocks or ignores CHLD would otherwise hide the end of the command.

use std::fs;
use std::io;

use async_signal::{Signal, Signals};
use nix::sys::signal::{SigSet, Signal as NixSignal};

/// Signals that end the wait for the lock, and that the command gets once it runs.
const FORWARDED: [Signal; 6] = [
    Signal::Int,
    Signal::Term,
    Signal::Hup,
    Signal::Quit,
    Signal::Usr1,
    Signal::Usr2,
];

/// Signals that concern this process alone until there is a command.
const OF_THE_COMMAND: [Signal; 3] = [Signal::Tstp, Signal::Cont, Signal::Child];

/// The inherited mask and ignored signals.
pub(super) struct Inherited {
    mask: SigSet,
    /// A bit for each ignored signal, from bit 0 on.
    ignored: u64,
}

impl Inherited {
    /// Records the mask of this thread, and blocks TTOU. Otherwise a process in the background could not take the
    /// terminal back. Must be called before another thread starts.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn record() -> io::Result<Self> {
        let mask = SigSet::thread_get_mask()?;
        block_ttou()?;
        Ok(Self {
            mask,
            ignored: ignored_signals(),
        })
    }

    /// Starts to receive the signals that end the wait for the lock.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn receive(&self) -> io::Result<Signals> {
        let heeded = FORWARDED
            .into_iter()
            .filter(|signal| !self.is_ignored(*signal));
        let signals = Signals::new(heeded)?;
        unblock(FORWARDED)?;
        Ok(signals)
    }

    /// Also receives the signals about the command. The command must have started, because a new program inherits
    /// the ignored signals of its parent (I1).
    ///
    /// # Errors
    /// The system's.
    pub(super) fn receive_for_command(&self, signals: &mut Signals) -> io::Result<()> {
        let heeded = OF_THE_COMMAND
            .into_iter()
            .filter(|signal| *signal != Signal::Tstp || !self.is_ignored(*signal));
        signals.add_signals(heeded)?;
        unblock(OF_THE_COMMAND)
    }

    /// Whether the end of a child is unreported until [`receive_for_command`](Self::receive_for_command).
    pub(super) const fn hides_children(&self) -> bool {
        self.is_ignored(Signal::Child)
    }

    /// Runs `start` with the inherited mask, for programs that it starts (I1).
    ///
    /// # Errors
    /// The system's, and those of `start`.
    pub(super) fn with_mask<T>(&self, start: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let ours = SigSet::thread_get_mask()?;
        self.mask.thread_set_mask()?;
        let started = start();
        ours.thread_set_mask()?;
        started
    }

    const fn is_ignored(&self, signal: Signal) -> bool {
        self.ignored & (1 << (signal as u32 - 1)) != 0
    }
}

/// Lets this thread take the terminal back from the command. Otherwise the kernel stops a background process that
/// tries to (TTOU).
///
/// # Errors
/// The system's.
pub(super) fn block_ttou() -> io::Result<()> {
    let mut signals = SigSet::empty();
    signals.add(NixSignal::SIGTTOU);
    Ok(signals.thread_block()?)
}

/// Delivers `signals` to this thread, independently of its inherited mask (I2).
fn unblock(signals: impl IntoIterator<Item = Signal>) -> io::Result<()> {
    let numbers = signals.into_iter().map(|signal| signal as i32);
    let set: SigSet = numbers
        .filter_map(|number| NixSignal::try_from(number).ok())
        .collect();
    Ok(set.thread_unblock()?)
}

/// The signals that this process ignores. Source: proc(5), `SigIgn`. Where there is no such file, none.
fn ignored_signals() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}
