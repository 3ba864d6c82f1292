//! `--state`: a directory with the id of the process that uses it, so that a fast restart need not wait (E9).
//!
//! - M3: At most one process uses a directory. It locks the file for as long as it lives, and the kernel frees the lock
//!   in every case. So the id that the next process finds is that of a process that has ended.
//!
//! The directory must be on a local disk: the locks of NFS can outlive their process, or end before it.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use latchd_core::election::Id;
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

/// The name of the file.
const FILE: &str = "latchd.id";

/// More than an id and its line end, in bytes.
const ID_BYTES_MAX: u64 = 64;

/// The claim of this process to a state directory.
#[derive(Debug)]
pub(crate) struct StateDir {
    /// The lock lasts as long as this file is open.
    _lock: File,
}

impl StateDir {
    /// Claims a directory, and leaves `id` in it. Returns the id of the process that used it before, if it is known.
    ///
    /// # Errors
    /// [`io::ErrorKind::ResourceBusy`] if another process has the claim. Otherwise the file cannot be used.
    pub(crate) fn claim(directory: &Path, id: Id) -> io::Result<(Self, Option<Id>)> {
        let explain = |error: io::Error| {
            let directory = directory.display();
            io::Error::new(error.kind(), format!("--state {directory}: {error}"))
        };
        let mut file = open(&directory.join(FILE)).map_err(explain)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                let busy = "in use by another process; give each process its own directory";
                return Err(explain(io::Error::new(io::ErrorKind::ResourceBusy, busy)));
            }
            Err(errno) => return Err(explain(errno.into())),
        }
        let predecessor = replace(&mut file, id).map_err(explain)?;
        Ok((Self { _lock: file }, predecessor))
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
        .open(path)
}

/// Replaces the id in the file, and returns the one that was there. If it is cut off in between, the next process finds
/// no id and waits.
fn replace(file: &mut File, id: Id) -> io::Result<Option<Id>> {
    let mut text = Vec::new();
    (&mut *file).take(ID_BYTES_MAX).read_to_end(&mut text)?;
    let known = std::str::from_utf8(&text).ok();
    let known = known.and_then(|text| Id::parse(text.trim_end()));
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{id}")?;
    file.sync_all()?;
    Ok(known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_process_finds_the_former_id() {
        let directory = std::env::temp_dir().join(format!("latchd-state-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let (first, found) = StateDir::claim(&directory, Id(7)).unwrap();
        assert_eq!(found, None);
        let error = StateDir::claim(&directory, Id(8)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ResourceBusy);
        assert!(error.to_string().contains("in use by another process"));
        drop(first);
        let (second, found) = StateDir::claim(&directory, Id(9)).unwrap();
        assert_eq!(
            found,
            Some(Id(7)),
            "a process that was refused leaves no id"
        );
        drop(second);
        std::fs::write(directory.join(FILE), "no id").unwrap();
        let (_, found) = StateDir::claim(&directory, Id(10)).unwrap();
        assert_eq!(found, None);
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn missing_directory_is_named() {
        let error = StateDir::claim(Path::new("/nonexistent/latchd"), Id(1)).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("--state /nonexistent/latchd: ")
        );
    }
}
