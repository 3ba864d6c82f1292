//! Waits for the command: passes signals on, stops and goes on with it, and ends it when a lock is lost.
//!
//! - W1: a command that its terminal has stopped goes on only once the server has said that the locks
//!   are still ours, and never again if they are not. Until then a lease is not renewed, so nobody is
//!   kept out by a command that does nothing.
//! - W2: a command that another process has stopped is that one's business: we go on, and keep the locks. If the
//!   command, or a process below it, has the terminal, this is job control all the same: a shell waits for us.

use std::io;
use std::time::{Duration, Instant};

use async_signal::{Signal, Signals};
use latchd_client::Loss;
use rustix::process::{
    Pid, Signal as RawSignal, WaitOptions, WaitStatus, getpid, kill_current_process_group,
    kill_process, kill_process_group, waitpid,
};
use smol::Timer;
use smol::future::{self, FutureExt};

use super::held::{Held, Losses};
use super::helper::Started;
use super::next;
use super::terminal::{Terminal, is_orphaned};

/// How long the command may take to stop once the lock is lost.
const GRACE: Duration = Duration::from_secs(5);

/// How long to wait before a server that did not answer is asked again whether the locks are ours.
const ASK_AGAIN: Duration = Duration::from_millis(200);

/// How the command has ended.
pub(super) enum End {
    Code(i32),
    Signal(i32),
    /// By a signal of the terminal's keys, which is also meant for whoever has started us.
    Key(i32),
}

/// What there is to attend to.
enum Event {
    Lost(Loss),
    Signal(Signal),
    TimeOut,
}

/// A command that runs under locks.
pub(super) struct Attendance<'a> {
    held: &'a Held,
    losses: Losses,
    /// Why the locks are not held any more.
    lost: Option<Loss>,
    kill_at: Option<Instant>,
    command: Started,
    terminal: Option<Terminal>,
    signals: Signals,
    /// Whether the command is stopped, as far as we have been told.
    is_stopped: bool,
    /// Signals that come of what we did ourselves, once each.
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
            losses: held.losses(),
            lost: None,
            kill_at: None,
            command,
            terminal,
            signals,
            is_stopped: false,
            echoes: Vec::new(),
        }
    }

    /// Waits until the command has ended; says how, and why the locks were lost if they were.
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
                Event::Signal(Signal::Child) => {}
                Event::Signal(Signal::Cont) => self.go_on().await,
                Event::Signal(signal) => {
                    if let Some(signal) = RawSignal::from_named_raw(signal as i32) {
                        self.signal(signal);
                    }
                }
                Event::Lost(loss) => self.lose(loss),
                Event::TimeOut => {
                    self.kill_at = None;
                    self.signal(RawSignal::KILL);
                }
            }
        }
    }

    /// What has become of the command since the last time; `None` is nothing.
    fn status(&self) -> io::Result<Option<WaitStatus>> {
        let options = WaitOptions::NOHANG | WaitOptions::UNTRACED | WaitOptions::CONTINUED;
        Ok(waitpid(Some(self.command.pid), options)?.map(|(_, status)| status))
    }

    async fn event(&mut self) -> Event {
        let (is_lost, kill_at) = (self.lost.is_some(), self.kill_at);
        let loss = async {
            if is_lost {
                return future::pending().await;
            }
            Event::Lost(self.losses.first().await)
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
        loss.or(signal).or(time_out).await
    }

    fn ended(&mut self, status: WaitStatus) -> End {
        let was_lent = self.has_terminal();
        if let Some(terminal) = &self.terminal {
            terminal.take_back(self.command.pid);
        }
        if self.lost.is_some() {
            // What the command has left behind in its group is not protected either.
            self.signal(RawSignal::KILL);
        }
        self.command.dismiss_guard();
        match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => End::Code(code),
            (None, Some(signal)) => {
                let is_key = [RawSignal::INT, RawSignal::QUIT]
                    .iter()
                    .any(|key| key.as_raw() == signal);
                if is_key && was_lent && self.lost.is_none() {
                    // The terminal has told the command alone, because we had lent it to it.
                    signal_own_group(signal);
                    return End::Key(signal);
                }
                End::Signal(signal)
            }
            (None, None) => End::Code(i32::from(super::EXIT_FAILED)),
        }
    }

    /// The command was stopped.
    async fn stopped(&mut self, status: WaitStatus) {
        let by = status.stopping_signal();
        let by_terminal = [RawSignal::TSTP, RawSignal::TTIN, RawSignal::TTOU]
            .iter()
            .any(|signal| Some(signal.as_raw()) == by);
        let has_terminal = self.terminal.as_ref();
        let has_terminal =
            has_terminal.is_some_and(|terminal| terminal.is_lent_below(self.command.pid));
        if !by_terminal && !has_terminal || self.lost.is_some() {
            return; // W2
        }
        if is_orphaned() {
            // Nobody could make us go on. The kernel stops nobody in our place either.
            return self.signal(RawSignal::CONT);
        }
        // Whoever in the group has not heard of it must not run while we do not.
        self.signal(RawSignal::STOP);
        if has_terminal {
            // It is meant for whoever was started with us, too.
            signal_own_group(RawSignal::TSTP.as_raw());
            self.echoes.push(Signal::Tstp);
        }
        self.echoes.push(Signal::Cont);
        let _ = kill_process(getpid(), RawSignal::STOP);
        // Here we go on.
        if let Some(loss) = self.check().await {
            // W1: it does not run once more, not even to clear up.
            self.lost = Some(loss);
            self.signal(RawSignal::KILL);
        } else {
            self.lend_terminal();
            self.signal(RawSignal::CONT);
        }
    }

    /// We were made to go on, by somebody who had stopped us or not.
    async fn go_on(&mut self) {
        if self.lost.is_none()
            && let Some(loss) = self.check().await
        {
            return self.lose(loss);
        }
        self.lend_terminal();
        // One that runs may have been stopped by its terminal just now, which is not to be undone.
        if self.is_stopped {
            self.signal(RawSignal::CONT);
        }
    }

    /// Whether this signal comes of what we did ourselves, and is nothing to attend to.
    fn is_echo(&mut self, signal: Signal) -> bool {
        let place = self.echoes.iter().position(|echo| *echo == signal);
        place.map(|place| self.echoes.swap_remove(place)).is_some()
    }

    /// Waits until the server has said that the locks are ours, or they are lost: why, then.
    async fn check(&mut self) -> Option<Loss> {
        let (held, losses) = (self.held, &mut self.losses);
        let lost = async { Some(losses.first().await) };
        let asked = async {
            // A loss is told of by the other one, which knows why.
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
        self.signal(RawSignal::TERM);
        // A stopped process hears nothing but KILL.
        self.signal(RawSignal::CONT);
    }

    /// Tells the command and all that it has started, if they are in its group still.
    fn signal(&self, signal: RawSignal) {
        // Who has ended already needs no signal.
        let _ = kill_process_group(self.command.pid, signal);
    }

    fn has_terminal(&self) -> bool {
        let group: Pid = self.command.pid;
        self.terminal
            .as_ref()
            .is_some_and(|terminal| terminal.is_lent(group))
    }

    fn lend_terminal(&self) {
        if let Some(terminal) = &self.terminal {
            terminal.lend(self.command.pid);
        }
    }
}

/// Tells whoever was started together with us, and us.
fn signal_own_group(signal: i32) {
    if let Some(signal) = RawSignal::from_named_raw(signal) {
        let _ = kill_current_process_group(signal);
    }
}
