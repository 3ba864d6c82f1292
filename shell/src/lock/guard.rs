//! The guard of a command: a process that outlives `latchd lock`, and runs while `latchd lock` is stopped.
//!
//! `latchd lock` tells it by lines on a pipe: the command with its group, and each new end of the belief in the locks.
//!
//! - G1: If `latchd lock` ends without a word that the command has ended, the guard kills the command's group. The kernel
//!   kills only the command itself.
//! - G2: If the belief ends and no later end is sent, the guard stops the group. So no command runs beside the next
//!   holder while `latchd lock` is stopped or hangs. If a later end follows, the guard continues the group.
//! - G3: Once `latchd lock` has noticed a loss, it ends the command itself, and the guard stops nothing more.
//!
//! The clock is that of the client: it runs while the machine sleeps.

use std::io::Write;
use std::process::{ChildStdin, ExitCode};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, read};
use rustix::process::{Pid, Signal};
use rustix::stdio::stdin;
use rustix::time::{ClockId, clock_gettime};

use super::inherited;
use super::signalled::{Place, SEND_AGAIN, Signalled};

#[cfg(any(target_os = "linux", target_os = "android"))]
const CLOCK: ClockId = ClockId::Boottime;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const CLOCK: ClockId = ClockId::Monotonic;

/// The longest wait before the clock is read again: a wait does not count the sleep of the machine.
const LOOK_AGAIN_MS: u64 = 1_000;

/// The shortest pause before the end of the belief is sent again.
const TELL_AGAIN: Duration = Duration::from_millis(2);

/// `latchd lock`'s end of the pipe.
pub(super) struct Guard {
    pipe: ChildStdin,
    until_ms: Option<u64>,
}

/// A line on the pipe.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Line {
    /// The command and its group.
    Place(Place),
    /// The end of the belief, in milliseconds of the clock.
    Until(u64),
    /// `latchd lock` has noticed a loss (G3).
    Lost,
    /// The command has ended.
    Ended,
}

impl Guard {
    /// The guard at the other end of a pipe watches this command.
    pub(super) fn of(pipe: ChildStdin, place: Place) -> Self {
        let mut guard = Self {
            pipe,
            until_ms: None,
        };
        guard.tell(Line::Place(place));
        guard
    }

    /// Tells the end of the belief in locks that are believed for `left`. Returns when to call this again: often
    /// enough to tell a late renewal before that end.
    pub(super) fn believe(&mut self, now_ms: u64, left: Duration) -> Duration {
        let until_ms = now_ms.saturating_add(u64::try_from(left.as_millis()).unwrap_or(u64::MAX));
        if self.until_ms != Some(until_ms) {
            self.until_ms = Some(until_ms);
            self.tell(Line::Until(until_ms));
        }
        (left / 2).max(TELL_AGAIN)
    }

    /// A lock is lost, and `latchd lock` ends the command (G3).
    pub(super) fn lose(&mut self) {
        self.tell(Line::Lost);
    }

    /// Ends the guard, after the command has ended.
    pub(super) fn dismiss(mut self) {
        self.tell(Line::Ended);
    }

    fn tell(&mut self, line: Line) {
        // The guard may have ended: the kernel still kills the command with this process.
        let _ = self.pipe.write_all(line.text().as_bytes());
    }
}

impl Line {
    fn text(self) -> String {
        match self {
            Self::Place(place) => {
                format!("command {} {}\n", place.group, place.command)
            }
            Self::Until(ms) => format!("until {ms}\n"),
            Self::Lost => "lost\n".into(),
            Self::Ended => "ended\n".into(),
        }
    }

    fn parse(line: &str) -> Option<Self> {
        Some(match line.split_once(' ') {
            Some(("command", place)) => {
                let (group, command) = place.split_once(' ')?;
                Self::Place(Place {
                    group: Pid::from_raw(group.parse().ok()?)?,
                    command: Pid::from_raw(command.parse().ok()?)?,
                })
            }
            Some(("until", ms)) => Self::Until(ms.parse().ok()?),
            _ if line == "lost" => Self::Lost,
            _ if line == "ended" => Self::Ended,
            _ => return None,
        })
    }
}

/// The state of a guard.
#[derive(Debug, Default)]
struct Watch {
    signalled: Option<Signalled>,
    until_ms: Option<u64>,
    has_stopped: bool,
    has_ended: bool,
}

impl Watch {
    /// Takes a line. Returns the signal for the group.
    fn hear(&mut self, now_ms: u64, line: Line) -> Option<Signal> {
        match line {
            Line::Place(place) => self.signalled = Some(Signalled::new(place)),
            Line::Until(ms) => self.until_ms = Some(ms),
            Line::Lost => self.until_ms = None,
            Line::Ended => self.has_ended = true,
        }
        let goes_on = self.until_ms.is_some_and(|until| now_ms < until);
        (goes_on && std::mem::take(&mut self.has_stopped)).then_some(Signal::CONT)
    }

    /// The effect of time, once all lines are read (G2).
    fn pass_time(&mut self, now_ms: u64) -> Option<Signal> {
        let is_over = self.until_ms.is_some_and(|until| now_ms >= until);
        (is_over && !std::mem::replace(&mut self.has_stopped, is_over)).then_some(Signal::STOP)
    }

    /// How long to wait for the next line, in milliseconds; `None` means for ever.
    fn patience_ms(&self, now_ms: u64) -> Option<u64> {
        let is_refused = self.signalled.as_ref().and_then(Signalled::again_after);
        if is_refused.is_some() {
            return Some(LOOK_AGAIN_MS);
        }
        let until_ms = self.until_ms.filter(|_| !self.has_stopped)?;
        Some(until_ms.saturating_sub(now_ms).min(LOOK_AGAIN_MS))
    }

    /// The effect of the end of `latchd lock` (G1).
    fn end(&self) -> Option<Signal> {
        (!self.has_ended).then_some(Signal::KILL)
    }

    fn signal(&mut self, signal: Option<Signal>) {
        if let (Some(signalled), Some(signal)) = (&mut self.signalled, signal) {
            signalled.send(signal);
        }
    }

    /// Sends a refused signal again. Returns whether it is refused still.
    fn signal_again(&mut self) -> bool {
        self.signalled.as_mut().is_some_and(|signalled| {
            signalled.send_again();
            signalled.again_after().is_some()
        })
    }
}

/// The current moment, in milliseconds.
pub(super) fn now_ms() -> u64 {
    let time = clock_gettime(CLOCK);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    let ms = u64::try_from(time.tv_nsec).unwrap_or_default() / 1_000_000;
    seconds.saturating_mul(1_000).saturating_add(ms)
}

/// Watches the command that standard input names, until that ends.
pub(super) fn be_guard() -> ExitCode {
    // A report reaches the terminal from the background too.
    let _ = inherited::block_ttou();
    let (mut watch, mut unread) = (Watch::default(), Vec::new());
    // A read error means that the parent has ended too.
    while let Ok(true) = receive(watch.patience_ms(now_ms()), &mut unread) {
        while let Some(end) = unread.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = unread.drain(..=end).collect();
            let line = str::from_utf8(&line).unwrap_or_default();
            if let Some(line) = Line::parse(line.trim_end()) {
                let signal = watch.hear(now_ms(), line);
                watch.signal(signal);
            }
        }
        let signal = watch.pass_time(now_ms());
        watch.signal(signal);
        watch.signal_again();
    }
    watch.signal(watch.end());
    while watch.signal_again() {
        thread::sleep(SEND_AGAIN);
    }
    ExitCode::SUCCESS
}

/// Waits for bytes, and appends those that have come; none if the time is over. `false` at the end.
fn receive(patience_ms: Option<u64>, unread: &mut Vec<u8>) -> rustix::io::Result<bool> {
    let timeout = patience_ms.map(|ms| Timespec {
        tv_sec: (ms / 1_000).cast_signed(),
        tv_nsec: (ms % 1_000 * 1_000_000).cast_signed(),
    });
    let pipe = stdin();
    match poll(&mut [PollFd::new(&pipe, PollFlags::IN)], timeout.as_ref()) {
        Ok(0) | Err(Errno::INTR) => return Ok(true),
        Ok(_) => {}
        Err(errno) => return Err(errno),
    }
    let mut chunk = [0; 256];
    let length = read(pipe, &mut chunk)?;
    unread.extend_from_slice(&chunk[..length]);
    Ok(length > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_written() {
        let place = Place {
            group: Pid::INIT,
            command: Pid::INIT,
        };
        for line in [
            Line::Place(place),
            Line::Until(u64::MAX),
            Line::Lost,
            Line::Ended,
        ] {
            assert_eq!(Line::parse(line.text().trim_end()), Some(line));
        }
        for line in [
            "",
            "command",
            "command 1",
            "command 1 0",
            "until x",
            "lost 1",
        ] {
            assert_eq!(Line::parse(line), None, "{line}");
        }
    }

    #[test]
    fn group_stops_with_the_belief() {
        let mut watch = Watch::default();
        assert_eq!(watch.patience_ms(0), None, "a bound lock has no end");
        assert_eq!(watch.pass_time(u64::MAX), None);
        assert_eq!(watch.hear(0, Line::Until(100)), None);
        assert_eq!(watch.patience_ms(0), Some(100));
        assert_eq!(watch.pass_time(99), None);
        assert_eq!(watch.pass_time(100), Some(Signal::STOP), "G2");
        assert_eq!((watch.pass_time(101), watch.patience_ms(101)), (None, None));
        assert_eq!(watch.hear(110, Line::Until(110)), None, "it is over, too");
        assert_eq!(watch.hear(120, Line::Until(200)), Some(Signal::CONT), "G2");
        assert_eq!(watch.pass_time(120), None);
        assert_eq!(watch.end(), Some(Signal::KILL), "G1");
    }

    #[test]
    fn late_renewal_comes_before_the_stop() {
        let mut watch = Watch::default();
        watch.hear(0, Line::Until(100));
        // The line and the end of the belief have come together.
        assert_eq!(watch.hear(100, Line::Until(5_000)), None);
        assert_eq!(watch.pass_time(100), None);
        assert_eq!(watch.patience_ms(100), Some(LOOK_AGAIN_MS));
    }

    #[test]
    fn noticed_loss_is_left_to_the_parent() {
        let mut watch = Watch::default();
        watch.hear(0, Line::Until(100));
        assert_eq!(watch.hear(100, Line::Lost), None);
        assert_eq!(watch.pass_time(200), None, "G3");
        watch.hear(200, Line::Ended);
        assert_eq!(watch.end(), None);
    }
}
