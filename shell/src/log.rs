//! The log: lines that a thread of its own writes, so that nobody who serves waits for a pipe or a
//! disk.
//!
//! - G1: handing over a line never waits. While [`LINES_MAX`] wait to be written, one more is dropped.
//! - G2: what cannot be written is dropped. A log that is full, or closed, ends nothing.
//! - G3: what is dropped is counted, and said as soon as something can be written again.

mod form;

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use latchd_server::may_replace;
use rustix::process::geteuid;

pub(crate) use self::form::{Form, JsonEvents};

/// How many lines may wait to be written. A line is a few hundred bytes.
const LINES_MAX: usize = 4096;

/// How long the end of the server waits until its last lines are in a file: a busy disk may take seconds for one.
const LAST_LINES_IN_FILE: Duration = Duration::from_secs(5);

/// The same for standard error, which may be a pipe without a reader, and for the reason of a failed assertion: other
/// threads go on meanwhile.
const LAST_LINES: Duration = Duration::from_millis(500);

/// How long a daemon waits, at its start, for a reader of its first lines.
const FIRST_LINES: Duration = Duration::from_secs(5);

/// How often a message is tried again that must be heard.
const RETRY: Duration = Duration::from_millis(5);

/// Where lines are handed over. Copies hand over to the same log.
#[derive(Clone, Debug)]
pub(crate) struct Log {
    messages: SyncSender<Message>,
    dropped: Arc<AtomicU64>,
    form: Form,
    /// How long the end of the server waits for it.
    patience: Duration,
}

/// What the thread is told.
#[derive(Debug)]
enum Message {
    Line(Vec<u8>),
    Reopen,
    /// Say so when everything before is written.
    Flush(SyncSender<()>),
}

/// Where lines go.
#[derive(Debug)]
pub(crate) enum Target {
    StandardError,
    File { path: PathBuf, file: File },
}

impl Log {
    /// Logs to `target`, in this form what the log says itself.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub(crate) fn start(target: Target, form: Form) -> io::Result<Self> {
        let (messages, incoming) = sync_channel(LINES_MAX);
        let dropped = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&dropped);
        let patience = match target {
            Target::StandardError => LAST_LINES,
            Target::File { .. } => LAST_LINES_IN_FILE,
        };
        thread::Builder::new()
            .name("latchd-log".into())
            .spawn(move || write_on(target, form, &incoming, &counter))?;
        Ok(Self {
            messages,
            dropped,
            form,
            patience,
        })
    }

    /// How many lines were dropped (G3).
    pub(crate) fn dropped(&self) -> &Arc<AtomicU64> {
        &self.dropped
    }

    /// Hands over a line, its end included (G1).
    pub(crate) fn say(&self, line: impl Into<Vec<u8>>) {
        if self.messages.try_send(Message::Line(line.into())).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Hands over what is said past `tracing` (G1), in the log's form.
    pub(crate) fn tell(&self, level: &str, message: &str) {
        self.say(self.form.line(level, message));
    }

    /// Opens the file anew, for whoever has moved it away.
    pub(crate) fn reopen(&self) {
        self.insist(Message::Reopen, Instant::now() + self.patience);
    }

    /// Waits until what a start has said is written: a daemon closes standard error behind it.
    pub(crate) fn flush_start(&self) {
        self.flush_within(FIRST_LINES);
    }

    /// Waits until all lines that were handed over are written, but not for long: the server has ended.
    pub(crate) fn flush(&self) {
        self.flush_within(self.patience);
    }

    /// The same for the reason of a failed assertion.
    pub(crate) fn flush_reason(&self) {
        self.flush_within(LAST_LINES);
    }

    fn flush_within(&self, within: Duration) {
        let deadline = Instant::now() + within;
        let (tell, told) = sync_channel(1);
        if self.insist(Message::Flush(tell), deadline) {
            // Nothing depends on it: what is not written by now is lost.
            let _ = told.recv_timeout(deadline.saturating_duration_since(Instant::now()));
        }
    }

    /// Waits for room, since the message must not be dropped. Returns whether there was any in time.
    fn insist(&self, mut message: Message, deadline: Instant) -> bool {
        loop {
            match self.messages.try_send(message) {
                Ok(()) => return true,
                Err(TrySendError::Full(unsent)) if Instant::now() < deadline => {
                    message = unsent;
                    thread::sleep(RETRY);
                }
                Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => return false,
            }
        }
    }
}

/// Each call is one line: that is how `tracing_subscriber` writes.
impl Write for Log {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.say(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Whether SIGHUP will be able to open the log's file after a rotation, for the user that the process is now:
/// root may have opened it before.
///
/// # Errors
/// A sentence for a person.
pub(crate) fn may_reopen(path: &Path) -> Result<(), String> {
    // What is no file, such as a terminal, is not rotated.
    let is_rotated = std::fs::metadata(path).map_or(true, |file| file.is_file());
    let Err(no_new_file) = may_replace(path) else {
        return Ok(());
    };
    if !is_rotated {
        return Ok(());
    }
    let (shown, user) = (path.display(), geteuid().as_raw());
    let advice = match OpenOptions::new().append(true).open(path) {
        Ok(_) => "have the rotation make it (`create` of logrotate)",
        Err(_) => "chown it to that user, and have the rotation do so too (`create` of logrotate)",
    };
    Err(format!(
        "--log-file {shown}: user {user} cannot make a new file there ({no_new_file}), so that SIGHUP cannot \
         open the log after a rotation: {advice}"
    ))
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

/// Writes until nobody can hand anything over any more.
fn write_on(mut target: Target, form: Form, incoming: &Receiver<Message>, dropped: &AtomicU64) {
    let mut told = 0;
    for message in incoming {
        match message {
            Message::Line(line) => {
                if target.write(&line).is_err() {
                    dropped.fetch_add(1, Ordering::Relaxed);
                    continue;
                }
                let now = dropped.load(Ordering::Relaxed);
                let news = format!("latchd: {} lines of this log were dropped", now - told);
                let news = form.line("WARN", &news);
                if now > told && target.write(news.as_bytes()).is_ok() {
                    told = now;
                }
            }
            Message::Reopen => target.reopen(form),
            // Whoever asked may have given up.
            Message::Flush(tell) => drop(tell.try_send(())),
        }
    }
}

impl Target {
    /// A file, or standard error. Root opens it before it is root no more, as a start script does.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub(crate) fn open(path: Option<&Path>) -> io::Result<Self> {
        Ok(match path {
            None => Self::StandardError,
            Some(path) => Self::File {
                path: path.to_owned(),
                file: open(path)?,
            },
        })
    }

    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        match self {
            Self::StandardError => io::stderr().write_all(line),
            Self::File { file, .. } => file.write_all(line),
        }
    }

    /// If the file cannot be opened anew, the one that is open goes on.
    fn reopen(&mut self, form: Form) {
        if let Self::File { path, file } = self {
            match open(path) {
                Ok(new) => *file = new,
                Err(error) => {
                    let line = format!("latchd: cannot open {} anew: {error}", path.display());
                    // There is nowhere else to say it.
                    let _ = file.write_all(form.line("WARN", &line).as_bytes());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn temporary_path(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("latchd-log-{}-{name}", std::process::id()))
    }

    fn start(path: &Path) -> Log {
        Log::start(Target::open(Some(path)).unwrap(), Form::Text).unwrap()
    }

    #[test]
    fn what_was_said_is_written_before_the_end() {
        let path = temporary_path("end");
        let log = start(&path);
        log.say("one\n");
        log.say("two\n");
        log.flush();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "one\ntwo\n");
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_file_that_was_moved_away_is_opened_anew() {
        let (path, moved) = (temporary_path("moved"), temporary_path("moved.1"));
        let log = start(&path);
        log.say("old\n");
        log.flush();
        std::fs::rename(&path, &moved).unwrap();
        log.reopen();
        log.say("new\n");
        log.flush();
        assert_eq!(std::fs::read_to_string(&moved).unwrap(), "old\n");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new\n");
        std::fs::remove_file(&path).unwrap();
        std::fs::remove_file(&moved).unwrap();
    }

    #[test]
    fn what_cannot_be_written_is_counted_and_waits_for_nothing() {
        let log = start(Path::new("/dev/full"));
        for _ in 0..10 * LINES_MAX {
            log.say("a line for nobody\n");
        }
        log.flush();
        assert_eq!(log.dropped().load(Ordering::Relaxed), 10 * LINES_MAX as u64);
    }
}
