//! `-e`: items survive a restart in a file.
//!
//! - Q1: A file is read once and removed before the first client is served. If a server ends without writing
//!   a file, the next one starts empty, and never with items of an earlier run.
//! - Q2: A file is complete, or it is not read ([`saved`](crate::saved)). It is written under another name,
//!   and renamed once it is on the disk.
//! - Q4: At most one server uses a path, from before the file is read until after it is written. The server
//!   locks the file beside it ([`Claim`]); the lock ends with the process in every case. A member of a cluster claims its
//!   path for a term, so all members on one machine may share a path.
//! - Q5: A file of a member of a cluster is read only by the term that follows its writer's (E12). A server outside a
//!   cluster does not read it, and a member reads no other file.
//! - Q3: The end of a server waits at most [`SAVING_MAX`] for the file. After that, it abandons the file.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use latchd_core::engine::{Numbers, Restored};
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

use crate::os::replaced::may_replace;
use crate::saved::{Head, Writer, read, verify};
use crate::shards::Shards;
use crate::sync::clock::Clock;

/// The most time that writing may take.
const SAVING_MAX: Duration = Duration::from_secs(60);

/// The bytes read from the file, or written to it, at a time.
const BUFFER_BYTES: usize = 256 << 10;

/// A complete file of items that is still to be read.
#[derive(Debug)]
pub(crate) struct MemoryFile {
    file: File,
    path: PathBuf,
    value_bytes_max: usize,
    /// The numbers that its server had assigned.
    pub(crate) numbers: Numbers,
    /// The member of a cluster that wrote it, and its term.
    pub(crate) writer: Option<(u128, u64)>,
}

/// The claim of one server to a path (Q4).
#[derive(Debug)]
pub(crate) struct Claim {
    /// The lock lasts as long as this file is open.
    _lock: File,
}

impl Claim {
    /// Claims a path. The lock file stays when the lock ends. If it were removed, two servers could each lock
    /// a file of that name.
    ///
    /// # Errors
    /// [`io::ErrorKind::ResourceBusy`] if another server has the claim. Otherwise the lock file cannot be
    /// opened, or no file could be written at the path.
    pub(crate) fn to(path: &Path) -> io::Result<Self> {
        let named = in_words(path);
        may_replace(path).map_err(&named)?;
        // The open of a FIFO would wait for its other end.
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let lock = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(flags.bits().cast_signed())
            .open(beside(path, ".lock"))
            .map_err(&named)?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { _lock: lock }),
            Err(Errno::WOULDBLOCK) => {
                let busy = "in use by another server; give each server its own file";
                Err(named(io::Error::new(io::ErrorKind::ResourceBusy, busy)))
            }
            Err(error) => Err(named(error.into())),
        }
    }
}

/// Checks that a server may write a file at a path.
///
/// # Errors
/// It may not.
pub(crate) fn check(path: &Path) -> io::Result<()> {
    may_replace(path).map_err(in_words(path))
}

/// Adds the file's path to an error.
fn in_words(path: &Path) -> impl Fn(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("-e {}: {error}", path.display()))
}

impl MemoryFile {
    /// Opens the file if it exists and is complete; otherwise logs its defect.
    ///
    /// # Errors
    /// The server could not write a file at this path when it ends.
    pub(crate) fn open(path: &Path, value_bytes_max: usize) -> io::Result<Option<Self>> {
        let in_words = in_words(path);
        drop(create(path).map_err(&in_words)?);
        fs::remove_file(beside(path, NEW)).map_err(&in_words)?;
        let mut file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(in_words(error)),
        };
        let verified = verify(
            BufReader::with_capacity(BUFFER_BYTES, &file),
            value_bytes_max,
        );
        match verified {
            Ok(Head { numbers, writer }) => {
                file.rewind().map_err(&in_words)?;
                Ok(Some(Self {
                    file,
                    path: path.into(),
                    value_bytes_max,
                    numbers,
                    writer,
                }))
            }
            Err(damage) => {
                tracing::warn!(
                    event = "items_refused",
                    reason = damage.to_string(),
                    "-e {}: ignoring the file, starting empty: {damage}",
                    path.display()
                );
                Ok(None)
            }
        }
    }

    /// Restores the items of a server outside a cluster, and goes on above its numbers.
    ///
    /// # Errors
    /// As [`restore`](Self::restore).
    pub(crate) fn restore_alone(self, shards: &Shards, clock: &Clock) -> io::Result<()> {
        if self.writer.is_some() {
            self.discard("a member of a cluster wrote it");
            return Ok(());
        }
        shards.resume(self.numbers);
        self.restore(shards, clock)
    }

    /// Removes the file unread, and logs the reason.
    pub(crate) fn discard(self, why: &str) {
        let path = self.path.display();
        tracing::warn!(
            event = "items_refused",
            reason = why,
            "-e {path}: ignoring the file, starting empty: {why}"
        );
        // If it stays, the next term does not read it either (Q5).
        let _ = fs::remove_file(&self.path);
    }

    /// Stores all items in the shards, and removes the file (Q1).
    ///
    /// # Errors
    /// The file has changed since it was opened, or cannot be read or removed.
    pub(crate) fn restore(self, shards: &Shards, clock: &Clock) -> io::Result<()> {
        let path = self.path.display();
        let input = BufReader::with_capacity(BUFFER_BYTES, &self.file);
        let (mut kept, mut expired, mut refused) = (0_u64, 0_u64, 0_u64);
        let (_, too_large) = read(input, self.value_bytes_max, &mut |item| match shards
            .restore(clock.now(), item)
        {
            Restored::Kept => kept += 1,
            Restored::Expired => expired += 1,
            Restored::Refused => refused += 1,
        })
        .map_err(|damage| io::Error::other(format!("-e {path}: {damage}")))?;
        fs::remove_file(&self.path)
            .map_err(|error| io::Error::new(error.kind(), format!("-e {path}: {error}")))?;
        refused += too_large;
        tracing::info!(
            event = "items_read",
            "-e {path}: {kept} items restored, {expired} expired, {refused} did not fit"
        );
        Ok(())
    }
}

/// Writes every item to the file, and logs the result. Says whether that succeeded; the server ends all the same.
/// `writer` is the member of a cluster, and its term.
pub(crate) fn save(
    path: &Path,
    shards: &Shards,
    clock: &Clock,
    writer: Option<(u128, u64)>,
) -> bool {
    let shown = path.display();
    match write(path, shards, clock, writer) {
        Ok((items, bytes)) => {
            tracing::info!(
                event = "items_written",
                items,
                bytes,
                "-e {shown}: {items} items saved, {bytes} bytes"
            );
            true
        }
        Err(error) => {
            tracing::error!(
                event = "items_lost",
                reason = error.to_string(),
                "-e {shown}: cannot save the items, the next start is empty: {error}"
            );
            // An incomplete file is of no use; it may be absent.
            let _ = fs::remove_file(beside(path, NEW));
            false
        }
    }
}

fn write(
    path: &Path,
    shards: &Shards,
    clock: &Clock,
    writer: Option<(u128, u64)>,
) -> io::Result<(u64, u64)> {
    let until = Instant::now() + SAVING_MAX;
    let file = BufWriter::with_capacity(BUFFER_BYTES, create(path)?);
    let numbers = shards.numbers(clock.now());
    let mut writer = Writer::new(file, Head { numbers, writer })?;
    shards.save(clock.now(), &mut |item| {
        if Instant::now() > until {
            let limit = SAVING_MAX.as_secs();
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("not finished within {limit} s"),
            ));
        }
        writer.push(item)
    })?;
    let (mut file, items) = writer.finish()?;
    file.flush()?;
    let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
    file.sync_all()?;
    let bytes = file.metadata()?.len();
    fs::rename(beside(path, NEW), path)?;
    if let Some(folder) = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
    {
        File::open(folder)?.sync_all()?;
    }
    Ok((items, bytes))
}

/// Creates the new file, readable by its owner only: it holds all items.
fn create(path: &Path) -> io::Result<File> {
    let beside = beside(path, NEW);
    // A file left by a killed server is of no use, and its permissions may be too wide.
    match fs::remove_file(&beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(beside)
}

/// The suffix of an incomplete file.
const NEW: &str = ".new";

/// A path in the same folder, with this suffix.
fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    #[test]
    fn lock_file_that_is_a_pipe_is_refused() {
        let path = std::env::temp_dir().join(format!("latchd-claim-{}", std::process::id()));
        let lock = beside(&path, ".lock");
        mknodat(CWD, &lock, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let error = Claim::to(&path).unwrap_err().to_string();
        fs::remove_file(lock).unwrap();
        assert!(error.contains("No such device or address"), "{error}");
    }
}
