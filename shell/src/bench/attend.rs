//! Attends to threads of the load: ends them in time or at a signal, and shows how far they are.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use async_signal::{Signal, Signals};
use latchd_load::table::grouped;
use smol::Timer;
use smol::channel::Receiver;
use smol::future::FutureExt;
use smol::stream::StreamExt;

/// The time between two progress lines.
const STEP: Duration = Duration::from_millis(250);

/// The signals that end the load, and the progress line.
pub(super) struct Attendant {
    signals: Signals,
    /// Standard error is a terminal: only there is a progress line.
    at_terminal: bool,
    /// A signal has come.
    pub(super) is_interrupted: bool,
}

/// What threads of the load and their attendant share.
#[derive(Debug)]
pub(super) struct Shared {
    /// No thread sends another request, except to release locks.
    pub(super) stop: AtomicBool,
    /// The answers of each thread so far.
    pub(super) done: Box<[AtomicU64]>,
}

enum Event {
    Ended,
    Tick,
    Signal,
}

impl Shared {
    pub(super) fn new(threads: usize) -> Self {
        Self {
            stop: AtomicBool::new(false),
            done: (0..threads).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// The answers of all threads so far.
    pub(super) fn answers(&self) -> u64 {
        let each = self.done.iter();
        each.map(|done| done.load(Ordering::Relaxed)).sum()
    }
}

impl Attendant {
    /// From now on SIGINT and SIGTERM end the load and not the process.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            signals: Signals::new([Signal::Int, Signal::Term])?,
            at_terminal: io::stderr().is_terminal(),
            is_interrupted: false,
        })
    }

    /// Attends until no thread has a sender of `ended`. A second signal ends the process.
    pub(super) fn attend(
        &mut self,
        name: &str,
        shared: &Shared,
        ended: &Receiver<()>,
        time: Option<Duration>,
    ) {
        let started = Instant::now();
        let deadline = time.and_then(|time| started.checked_add(time));
        let (mut next, mut before) = (started + STEP, 0);
        loop {
            let wake = deadline.filter(|_| !shared.stop.load(Ordering::Relaxed));
            match self.event(ended, wake.map_or(next, |deadline| deadline.min(next))) {
                Event::Ended => break,
                Event::Signal if self.is_interrupted => {
                    self.clear();
                    std::process::exit(super::EXIT_INTERRUPTED.into());
                }
                Event::Signal => {
                    self.is_interrupted = true;
                    shared.stop.store(true, Ordering::Relaxed);
                }
                Event::Tick => {}
            }
            let now = Instant::now();
            if deadline.is_some_and(|deadline| now >= deadline) {
                shared.stop.store(true, Ordering::Relaxed);
            }
            if now >= next {
                let answers = shared.answers();
                let elapsed = (now - next + STEP).as_secs_f64();
                let rate = (answers - before) as f64 / elapsed;
                self.show(name, rate, started.elapsed(), time);
                (next, before) = (now + STEP, answers);
            }
        }
        self.clear();
    }

    /// Waits for the next event, until `wake` at the latest.
    fn event(&mut self, ended: &Receiver<()>, wake: Instant) -> Event {
        let ended = async {
            // Nothing is sent: this ends with the last sender.
            let _ = ended.recv().await;
            Event::Ended
        };
        let signals = &mut self.signals;
        let signal = async {
            signals.next().await;
            Event::Signal
        };
        let tick = async {
            Timer::at(wake).await;
            Event::Tick
        };
        smol::block_on(ended.or(signal).or(tick))
    }

    fn show(&self, name: &str, rate: f64, elapsed: Duration, time: Option<Duration>) {
        if !self.at_terminal {
            return;
        }
        let of = time.map_or_else(String::new, |time| format!(" of {:.0}", time.as_secs_f64()));
        let line = format!(
            "\r\x1b[2K{name}: {} op/s, {:.1}{of} s",
            grouped(rate),
            elapsed.as_secs_f64()
        );
        // Failing to show progress does not end the load.
        let _ = io::stderr().write_all(line.as_bytes());
    }

    /// Removes the progress line.
    fn clear(&self) {
        if self.at_terminal {
            let _ = io::stderr().write_all(b"\r\x1b[2K");
        }
    }
}
