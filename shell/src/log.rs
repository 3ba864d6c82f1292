//! The log: a separate thread writes its lines, so a slow pipe or disk delays no client.
//!
//! - G1: Queueing a line never waits. If [`LINES_MAX`] lines are queued, a further line is dropped.
//! - G2: A line that cannot be written is dropped. A full or closed log does not stop the server.
//! - G3: Dropped lines are counted. The count is logged as soon as a line can be written again.

mod form;

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use latchd_server::{may_replace, spawn_thread};
use rustix::process::geteuid;

pub(crate) use self::form::{Form, JsonEvents};

/// The largest number of queued lines. A line has a few hundred bytes.
const LINES_MAX: usize = 4096;

/// The longest wait at shutdown for the last lines to reach a file. A busy disk may take seconds.
const LAST_LINES_IN_FILE: Duration = Duration::from_secs(5);

/// The same for standard error, which may be a pipe without a reader, and for the reason of a failed assertion, while
/// other threads still run.
const LAST_LINES: Duration = Duration::from_millis(500);

/// The longest wait of a starting daemon for a reader of its first lines.
const FIRST_LINES: Duration = Duration::from_secs(5);

/// The pause before another attempt to queue a message that must not be dropped.
const RETRY: Duration = Duration::from_millis(5);

/// The queue of the log. Clones share one log.
#[derive(Clone, Debug)]
pub(crate) struct Log {
    messages: SyncSender<Message>,
    dropped: Arc<AtomicU64>,
    form: Form,
    /// The longest wait for the log at shutdown.
    patience: Duration,
}

/// A message to the log's thread.
#[derive(Debug)]
enum Message {
    Line(Vec<u8>),
    Reopen,
    /// Confirm that everything before is written.
    Flush(SyncSender<()>),
}

/// The destination of the lines.
#[derive(Debug)]
pub(crate) enum Target {
    StandardError,
    File { path: PathBuf, file: File },
}

impl Log {
    /// Starts a log to `target`. `form` is the format of the log's own lines.
    ///
    /// # Errors
    /// The system's, if no thread can be started.
    pub(crate) fn start(target: Target, form: Form) -> io::Result<Self> {
        let (messages, incoming) = sync_channel(LINES_MAX);
        let dropped = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&dropped);
        let patience = match target {
            Target::StandardError => LAST_LINES,
            Target::File { .. } => LAST_LINES_IN_FILE,
        };
        spawn_thread("latchd-log", move || {
            write_on(target, form, &incoming, &counter);
        })?;
        Ok(Self {
            messages,
            dropped,
            form,
            patience,
        })
    }

    /// The number of dropped lines (G3).
    pub(crate) fn dropped(&self) -> &Arc<AtomicU64> {
        &self.dropped
    }

    /// Queues a line that includes its line end (G1).
    pub(crate) fn say(&self, line: impl Into<Vec<u8>>) {
        if self.messages.try_send(Message::Line(line.into())).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Queues a message that bypasses `tracing`, in the log's format (G1).
    pub(crate) fn tell(&self, level: &str, message: &str) {
        self.say(self.form.line(level, message));
    }

    /// Reopens the file after a rotation.
    pub(crate) fn reopen(&self) {
        self.insist(Message::Reopen, Instant::now() + self.patience);
    }

    /// Waits until the lines of the start are written, before a daemon closes standard error.
    pub(crate) fn flush_start(&self) {
        self.flush_within(FIRST_LINES);
    }

    /// Waits until all queued lines are written, at most for the log's patience.
    pub(crate) fn flush(&self) {
        self.flush_within(self.patience);
    }

    /// The same for the reason of a failed assertion.
    pub(crate) fn flush_reason(&self) {
        self.flush_within(LAST_LINES);
    }

    fn flush_within(&self, within: Duration) {
        let deadline = Instant::now() + within;
        let (sender, written) = sync_channel(1);
        if self.insist(Message::Flush(sender), deadline) {
            // Lines that are not written by the deadline are lost.
            let _ = written.recv_timeout(deadline.saturating_duration_since(Instant::now()));
        }
    }

    /// Waits for space in the queue, because the message must not be dropped. Returns whether there was any in time.
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

/// `tracing_subscriber` writes one line per call.
impl Write for Log {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.say(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Checks whether SIGHUP can reopen the log after a rotation, as the current user. Root may have opened it before.
///
/// # Errors
/// A message for the operator.
pub(crate) fn may_reopen(path: &Path) -> Result<(), String> {
    // Only regular files are rotated.
    let is_rotated = std::fs::metadata(path).map_or(true, |file| file.is_file());
    let Err(no_new_file) = may_replace(path) else {
        return Ok(());
    };
    if !is_rotated {
        return Ok(());
    }
    let (shown, user) = (path.display(), geteuid().as_raw());
    let advice = match OpenOptions::new().append(true).open(path) {
        Ok(_) => "let logrotate create it (`create`)",
        Err(_) => "chown it to that user, and let logrotate create it for that user (`create`)",
    };
    Err(format!(
        "--log-file {shown}: user {user} cannot create the file ({no_new_file}), so SIGHUP cannot reopen the \
         log after a rotation; {advice}"
    ))
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

/// Writes lines until all copies of the log are dropped.
fn write_on(mut target: Target, form: Form, incoming: &Receiver<Message>, dropped: &AtomicU64) {
    let mut reported = 0;
    for message in incoming {
        match message {
            Message::Line(line) => {
                if target.write(&line).is_err() {
                    dropped.fetch_add(1, Ordering::Relaxed);
                    continue;
                }
                let now = dropped.load(Ordering::Relaxed);
                let news = format!("latchd: {} log lines were dropped", now - reported);
                let news = form.line("WARN", &news);
                if now > reported && target.write(news.as_bytes()).is_ok() {
                    reported = now;
                }
            }
            Message::Reopen => target.reopen(form),
            // The requester may have given up.
            Message::Flush(sender) => drop(sender.try_send(())),
        }
    }
}

impl Target {
    /// Opens a file, or standard error. The process opens the file before it drops root, as a start script does.
    ///
    /// # Errors
    /// The system's, if the file cannot be opened.
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

    /// Reopens the file. If that fails, the old file stays in use.
    fn reopen(&mut self, form: Form) {
        if let Self::File { path, file } = self {
            match open(path) {
                Ok(new) => *file = new,
                Err(error) => {
                    let line = format!(
                        "latchd: cannot reopen {}, keeping the old file: {error}",
                        path.display()
                    );
                    // The old file is the only place for this message.
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
    fn queued_lines_are_written_before_the_end() {
        let path = temporary_path("end");
        let log = start(&path);
        log.say("one\n");
        log.say("two\n");
        log.flush();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "one\ntwo\n");
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_rotated_file_is_reopened() {
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
    fn unwritable_lines_are_counted_without_waiting() {
        let log = start(Path::new("/dev/full"));
        for _ in 0..10 * LINES_MAX {
            log.say("a line for nobody\n");
        }
        log.flush();
        assert_eq!(log.dropped().load(Ordering::Relaxed), 10 * LINES_MAX as u64);
    }
}
