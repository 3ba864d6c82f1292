//! Waits for the command: forwards signals, stops and continues with it, and ends it when a lock is lost.
//!
//! - W1: A command that its terminal has stopped continues only after the server has confirmed the locks. If they are
//!   lost, it never continues. While it is stopped, a lease is not renewed, so an idle command blocks no other client.
//! - W2: If another process stops the command, this process keeps running and holds the locks. If the command, or one
//!   of its descendants, has the terminal, the stop is job control: then a shell waits for this process to stop.
//! - W3: The guard of the command knows an end of the belief in the locks, never a later one than this process. Each
//!   renewal is sent to it before that end, however late it comes.

use std::io;
use std::time::{Duration, Instant};

use async_signal::{Signal, Signals};
use latchd_client::{Loss, Lost};
use rustix::process::{
    Signal as RawSignal, WaitOptions, WaitStatus, getpid, kill_current_process_group, kill_process,
    waitpid,
};
use smol::Timer;
use smol::future::{self, FutureExt};

use super::guard::now_ms;
use super::held::{Held, loss};
use super::helper::Started;
use super::next;
use super::signalled::{Place, Signalled};
use super::terminal::{Terminal, is_orphaned};
use crate::exit;
use crate::output::complain;

/// The time between TERM and KILL after the lock is lost.
const GRACE: Duration = Duration::from_secs(5);

/// The pause before the server is asked again to confirm the locks.
const ASK_AGAIN: Duration = Duration::from_millis(200);

/// The pause before the command is looked at again, whether it has left the group that has the terminal.
const FOLLOW: Duration = Duration::from_millis(200);

/// How the command ended.
pub(super) enum End {
    Code(i32),
    Signal(i32),
    /// A signal of the terminal's keys, which also concerns the parent of this process.
    Key(i32),
}

/// An event to handle.
enum Event {
    Lost(Loss),
    Signal(Signal),
    TimeOut,
    /// The guard is to be sent the end of the belief again (W3).
    Tell,
    /// A signal that was refused is to be sent again.
    SendAgain,
    /// The terminal is to follow the command.
    Follow,
}

/// A command that runs while holding locks.
pub(super) struct Attendance<'a> {
    held: &'a Held,
    end: Lost,
    /// The reason why the locks were lost, if they were.
    lost: Option<Loss>,
    kill_at: Option<Instant>,
    command: Started,
    signalled: Signalled,
    terminal: Option<Terminal>,
    signals: Signals,
    /// Whether the last report of the command says that it is stopped.
    is_stopped: bool,
    /// Expected signals that this process caused itself, once each.
    echoes: Vec<Signal>,
}

impl<'a> Attendance<'a> {
    pub(super) fn new(
        held: &'a Held,
        command: Started,
        terminal: Option<Terminal>,
        signals: Signals,
    ) -> Self {
        Self {
            held,
            end: held.lock.lost(),
            lost: None,
            kill_at: None,
            signalled: Signalled::new(command.place),
            command,
            terminal,
            signals,
            is_stopped: false,
            echoes: Vec::new(),
        }
    }

    /// Waits until the command has ended. Returns how, and why the locks were lost if they were.
    ///
    /// # Errors
    /// The system's, if it does not know the command.
    pub(super) async fn attend(mut self) -> io::Result<(End, Option<Loss>)> {
        loop {
            while let Some(status) = self.status()? {
                self.is_stopped = status.stopped();
                if status.stopped() {
                    self.stopped(status).await;
                } else if !status.continued() {
                    return Ok((self.ended(status), self.lost));
                }
            }
            match self.event().await {
                Event::Signal(signal) if self.is_echo(signal) => {}
                Event::Signal(Signal::Child) | Event::Tell => {}
                Event::Signal(Signal::Cont) => self.go_on().await,
                Event::Signal(signal) => {
                    if let Some(signal) = RawSignal::from_named_raw(signal as i32) {
                        self.signal(signal);
                    }
                }
                Event::SendAgain => self.signalled.send_again(),
                Event::Follow => self.follow(),
                Event::Lost(loss) => self.lose(loss),
                Event::TimeOut => {
                    self.kill_at = None;
                    self.signal(RawSignal::KILL);
                }
            }
        }
    }

    /// The change in the command's state since the last call; `None` is no change.
    fn status(&self) -> io::Result<Option<WaitStatus>> {
        let options = WaitOptions::NOHANG | WaitOptions::UNTRACED | WaitOptions::CONTINUED;
        Ok(waitpid(Some(self.command.place.command), options)?.map(|(_, status)| status))
    }

    async fn event(&mut self) -> Event {
        let (is_lost, kill_at) = (self.lost.is_some(), self.kill_at);
        let tell_after = self.tell_guard();
        let again_after = self.signalled.again_after();
        let follow_after = self.terminal.as_ref().map(|_| FOLLOW);
        let loss = async {
            if is_lost {
                return future::pending().await;
            }
            Event::Lost(loss(&mut self.end).await)
        };
        let signal = async { Event::Signal(next(&mut self.signals).await) };
        let time_out = async {
            match kill_at {
                Some(at) => {
                    Timer::at(at).await;
                    Event::TimeOut
                }
                None => future::pending().await,
            }
        };
        let again = after(again_after, Event::SendAgain);
        let follow = after(follow_after, Event::Follow);
        let tell = after(tell_after, Event::Tell);
        let timers = time_out.or(tell).or(again).or(follow);
        loss.or(signal).or(timers).await
    }

    /// Tells the guard the end of the belief. Returns when to do it again (W3).
    fn tell_guard(&mut self) -> Option<Duration> {
        let guard = self
            .command
            .guard
            .as_mut()
            .filter(|_| self.lost.is_none())?;
        // The clock is read first, so the sum is not too late.
        let now_ms = now_ms();
        Some(guard.believe(now_ms, self.held.lock.remaining()?))
    }

    fn ended(&mut self, status: WaitStatus) -> End {
        let was_lent = self.has_terminal();
        if let Some(terminal) = &self.terminal {
            terminal.take_back(self.place());
        }
        if self.lost.is_some() {
            // Processes left in the command's group are not protected by the lock either.
            self.signal(RawSignal::KILL);
        }
        let refuses = self.lost.is_some() && self.signalled.again_after().is_some();
        // A guard that is not dismissed goes on killing the processes that refuse it.
        if let Some(guard) = self.command.guard.take().filter(|_| !refuses) {
            guard.dismiss();
        }
        match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => End::Code(code),
            (None, Some(signal)) => {
                let is_key = [RawSignal::INT, RawSignal::QUIT]
                    .iter()
                    .any(|key| key.as_raw() == signal);
                if is_key && was_lent && self.lost.is_none() {
                    // Only the command received the key's signal, because it had the terminal.
                    signal_own_group(signal);
                    return End::Key(signal);
                }
                End::Signal(signal)
            }
            (None, None) => End::Code(i32::from(exit::LOCK_FAILED)),
        }
    }

    /// Handles the stop of the command.
    async fn stopped(&mut self, status: WaitStatus) {
        let by = status.stopping_signal();
        let by_terminal = [RawSignal::TSTP, RawSignal::TTIN, RawSignal::TTOU]
            .iter()
            .any(|signal| Some(signal.as_raw()) == by);
        let place = self.place();
        let has_terminal = self.terminal.as_ref();
        let has_terminal = has_terminal.is_some_and(|terminal| terminal.is_lent_below(place));
        if self.lost.is_some() {
            // The guard may have stopped it at the same moment.
            return self.signal(RawSignal::CONT);
        }
        if !by_terminal && !has_terminal {
            return; // W2
        }
        if is_orphaned() {
            // No process could continue this one. The kernel does not stop an orphaned group either.
            return self.signal(RawSignal::CONT);
        }
        // Other processes of the group must not run while this process is stopped.
        self.signal(RawSignal::STOP);
        if has_terminal {
            // The stop also concerns the other processes of this process's group.
            signal_own_group(RawSignal::TSTP.as_raw());
            self.echoes.push(Signal::Tstp);
        }
        self.echoes.push(Signal::Cont);
        let _ = kill_process(getpid(), RawSignal::STOP);
        // This process continues here.
        if let Some(loss) = self.check().await {
            // W1: the command must not run again, not even to clean up.
            self.lost = Some(loss);
            self.signal(RawSignal::KILL);
        } else {
            self.lend_terminal();
            self.signal(RawSignal::CONT);
        }
    }

    /// Handles CONT, also without a preceding stop.
    async fn go_on(&mut self) {
        if self.lost.is_none()
            && let Some(loss) = self.check().await
        {
            return self.lose(loss);
        }
        self.lend_terminal();
        // If it runs, its terminal may be stopping it right now, and that must not be undone.
        if self.is_stopped {
            self.signal(RawSignal::CONT);
        }
    }

    /// Whether this process caused the signal itself, so it needs no handling.
    fn is_echo(&mut self, signal: Signal) -> bool {
        let place = self.echoes.iter().position(|echo| *echo == signal);
        place.map(|place| self.echoes.swap_remove(place)).is_some()
    }

    /// Waits until the server confirms the locks. Returns the reason if they are lost.
    async fn check(&mut self) -> Option<Loss> {
        let (held, end) = (self.held, &mut self.end);
        let lost = async { Some(loss(end).await) };
        let asked = async {
            // `lost` reports a loss with its reason.
            while held.check().await.is_err() {
                Timer::after(ASK_AGAIN).await;
            }
            None
        };
        lost.or(asked).await
    }

    fn lose(&mut self, loss: Loss) {
        self.lost = Some(loss);
        self.kill_at = Some(Instant::now() + GRACE);
        if let Some(guard) = &mut self.command.guard {
            guard.lose();
        }
        self.signal(RawSignal::TERM);
        if self.signalled.again_after().is_some() {
            complain(&format!(
                "the command runs on although its lock is lost: {loss}"
            ));
        }
        // A stopped process handles no signal but KILL.
        self.signal(RawSignal::CONT);
    }

    /// Sends a signal to the command's processes.
    fn signal(&mut self, signal: RawSignal) {
        self.signalled.send(signal);
    }

    /// Gives the terminal to a command that has left its group, which may be stopped already for lack of it.
    fn follow(&mut self) {
        let place = self.place();
        if self
            .terminal
            .as_ref()
            .is_some_and(|terminal| terminal.follow(place))
        {
            self.signal(RawSignal::CONT);
        }
    }

    fn has_terminal(&self) -> bool {
        let terminal = self.terminal.as_ref();
        terminal.is_some_and(|terminal| terminal.is_lent(self.place()))
    }

    fn lend_terminal(&self) {
        if let Some(terminal) = &self.terminal {
            terminal.lend(self.place());
        }
    }

    const fn place(&self) -> Place {
        self.signalled.place()
    }
}

/// The event, after the time; never without one.
async fn after(span: Option<Duration>, event: Event) -> Event {
    match span {
        Some(span) => {
            Timer::after(span).await;
            event
        }
        None => future::pending().await,
    }
}

/// Sends a signal to this process's own group.
fn signal_own_group(signal: i32) {
    if let Some(signal) = RawSignal::from_named_raw(signal) {
        let _ = kill_current_process_group(signal);
    }
}
