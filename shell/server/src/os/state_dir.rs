//! `--state`: a directory with the id of the process that uses it, so that a fast restart need not wait (E9).
//!
//! - M3: At most one process uses a directory. It locks the file for as long as it lives, and the kernel frees the lock
//!   in every case. So the id in the file that this process wrote is that of a process that has ended.
//! - M6: An id counts only in the file in which it was written. While its process lives, no other file of the machine
//!   has the same device and inode. A file with another inode is a copy, and the start is refused. With another device
//!   or another boot of the kernel, it can be a copy: the id is ignored, and the process waits as a new one.
//!
//! The directory must be on a local disk: the locks of NFS can outlive their process, or end before it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

/// The name of the file.
const FILE: &str = "latchd.id";

/// More than an id, its origin and the line end, in bytes.
const FILE_BYTES_MAX: u64 = 256;

/// A random name of this boot of the kernel. Source: random(4).
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

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
    /// [`io::ErrorKind::ResourceBusy`] if another process has the claim. Otherwise the file cannot be used, or it is a
    /// copy (M6).
    pub(crate) fn claim(directory: &Path, id: u128) -> io::Result<(Self, Option<u128>)> {
        Self::claim_on(fs::read_to_string(BOOT).ok().as_deref(), directory, id)
    }

    /// The same for a process that is known by no id: it leaves a random one.
    ///
    /// # Errors
    /// As [`Self::claim`], or the kernel has no random number.
    pub(crate) fn claim_unnamed(directory: &Path) -> io::Result<Self> {
        let mut id = [0; 16];
        // The kernel fills up to 256 bytes at once.
        getrandom(&mut id, GetRandomFlags::empty())?;
        Self::claim(directory, u128::from_le_bytes(id)).map(|(state, _)| state)
    }

    /// [`Self::claim`] on this boot of the kernel if it is known.
    fn claim_on(
        boot: Option<&str>,
        directory: &Path,
        id: u128,
    ) -> io::Result<(Self, Option<u128>)> {
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
        let origin = Origin::of(&file, boot).map_err(explain)?;
        let predecessor = replace(&mut file, id, &origin).map_err(explain)?;
        Ok((Self { _lock: file }, predecessor))
    }
}

/// The file in which an id is written (M6).
#[derive(Debug, Eq, PartialEq)]
struct Origin {
    inode: u64,
    device: u64,
    /// `None` if the kernel does not tell it.
    boot: Option<String>,
}

impl Origin {
    fn of(file: &File, boot: Option<&str>) -> io::Result<Self> {
        let about = file.metadata()?;
        let boot = boot.map(|boot| boot.trim().to_owned());
        Ok(Self {
            inode: about.ino(),
            device: about.dev(),
            boot,
        })
    }

    /// Parses a line behind its id. An earlier version wrote the id alone.
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_ascii_whitespace();
        Some(Self {
            inode: words.next()?.parse().ok()?,
            device: words.next()?.parse().ok()?,
            boot: words.next().map(str::to_owned),
        })
    }
}

/// Opens the file without waiting for the other end of a pipe.
fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(flags.bits().cast_signed())
        .open(path);
    match file {
        Ok(file) if file.metadata()?.is_file() => Ok(file),
        Ok(_) => Err(io::Error::other(format!(
            "{FILE} is not a regular file; remove it"
        ))),
        Err(error) => Err(io::Error::new(error.kind(), format!("{FILE}: {error}"))),
    }
}

/// Replaces the id in the file, and returns the one that was there, if it counts (M6). If it is cut off in between, the
/// next process finds no id and waits.
fn replace(file: &mut File, id: u128, origin: &Origin) -> io::Result<Option<u128>> {
    let mut bytes = Vec::new();
    (&mut *file).take(FILE_BYTES_MAX).read_to_end(&mut bytes)?;
    let text = str::from_utf8(&bytes).unwrap_or_default();
    let (known, rest) = text.split_once(' ').unwrap_or_default();
    let written_in = Origin::parse(rest);
    if written_in
        .as_ref()
        .is_some_and(|one| one.inode != origin.inode)
    {
        return Err(io::Error::other(format!(
            "{FILE} is a copy, and the process of the original may still serve; remove the file, then this process \
             waits as a new one"
        )));
    }
    let is_same = origin.boot.is_some() && written_in.as_ref() == Some(origin);
    let known = parse(known).filter(|_| is_same);
    file.set_len(0)?;
    file.rewind()?;
    let Origin {
        inode,
        device,
        boot,
    } = origin;
    let boot = boot.as_deref().unwrap_or_default();
    writeln!(file, "{id:032x} {inode} {device} {boot}")?;
    file.sync_all()?;
    Ok(known)
}

/// Reads an id of 32 hexadecimal digits in lower case.
fn parse(text: &str) -> Option<u128> {
    let id = u128::from_str_radix(text, 16).ok()?;
    (format!("{id:032x}") == text).then_some(id)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;
    use std::path::PathBuf;

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    /// A directory of a test, which is removed with the value.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let name = format!("latchd-state-{name}-{}", std::process::id());
            let directory = std::env::temp_dir().join(name);
            fs::create_dir_all(&directory).unwrap();
            Self(directory)
        }

        /// The id that a process finds on a boot.
        fn found(&self, boot: &str, id: u128) -> io::Result<Option<u128>> {
            StateDir::claim_on(Some(boot), &self.0, id).map(|(_, found)| found)
        }

        fn file(&self) -> PathBuf {
            self.0.join(FILE)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    #[test]
    fn next_process_finds_the_former_id() {
        let directory = Scratch::new("next");
        let (first, found) = StateDir::claim(&directory.0, 7).unwrap();
        assert_eq!(found, None);
        let error = StateDir::claim(&directory.0, 8).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ResourceBusy);
        assert!(error.to_string().contains("in use by another process"));
        drop(first);
        let (second, found) = StateDir::claim(&directory.0, 9).unwrap();
        assert_eq!(found, Some(7), "a process that was refused leaves no id");
        drop(second);
        for damaged in ["no id", "", "no id 1", "\u{e9}"] {
            fs::write(directory.file(), damaged).unwrap();
            let (_, found) = StateDir::claim(&directory.0, 10).unwrap();
            assert_eq!(found, None);
        }
        // An earlier version wrote no origin.
        fs::write(directory.file(), format!("{:032x}\n", 11)).unwrap();
        assert_eq!(directory.found("boot", 12).unwrap(), None);
        assert_eq!(directory.found("boot", 13).unwrap(), Some(12));
    }

    #[test]
    fn a_copied_file_is_refused() {
        let (original, copy) = (Scratch::new("original"), Scratch::new("copy"));
        assert_eq!(original.found("boot", 1).unwrap(), None);
        fs::copy(original.file(), copy.file()).unwrap();
        let written = fs::read(copy.file()).unwrap();
        for boot in ["boot", "boot", "of another machine"] {
            let error = copy.found(boot, 2).unwrap_err().to_string();
            assert!(error.contains("latchd.id is a copy, and"), "{error}");
            assert_eq!(fs::read(copy.file()).unwrap(), written);
        }
        fs::remove_file(copy.file()).unwrap();
        assert_eq!(copy.found("boot", 3).unwrap(), None);
        assert_eq!(copy.found("boot", 4).unwrap(), Some(3));
        // A file that replaces the original is not the file that its process has locked.
        let (living, _) = StateDir::claim(&original.0, 5).unwrap();
        let beside = original.0.join("beside");
        fs::copy(original.file(), &beside).unwrap();
        fs::rename(beside, original.file()).unwrap();
        let error = StateDir::claim(&original.0, 6).unwrap_err().to_string();
        assert!(error.contains("latchd.id is a copy, and"), "{error}");
        drop(living);
    }

    #[test]
    fn possible_copies_wait_as_new_processes() {
        let directory = Scratch::new("boots");
        let unknown = || StateDir::claim_on(None, &directory.0, 9).unwrap().1;
        assert_eq!(directory.found("first", 1).unwrap(), None);
        assert_eq!(directory.found("second", 2).unwrap(), None, "another boot");
        assert_eq!(directory.found("second", 3).unwrap(), Some(2));
        assert_eq!((unknown(), unknown()), (None, None));
        assert_eq!(directory.found("second", 4).unwrap(), None);
        // A volume that was cloned as a whole.
        let file = File::open(directory.file()).unwrap();
        let mut origin = Origin::of(&file, Some("second")).unwrap();
        origin.device += 1;
        let mut file = File::options()
            .write(true)
            .read(true)
            .open(directory.file())
            .unwrap();
        replace(&mut file, 5, &origin).unwrap();
        assert_eq!(
            directory.found("second", 6).unwrap(),
            None,
            "another device"
        );
        assert_eq!(directory.found("second", 7).unwrap(), Some(6));
    }

    #[test]
    fn only_a_regular_file_is_read() {
        let directory = Scratch::new("regular");
        let refused = |why: &str| {
            let error = StateDir::claim(&directory.0, 1).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        };
        mknodat(
            CWD,
            directory.file(),
            FileType::Fifo,
            Mode::RUSR | Mode::WUSR,
            0,
        )
        .unwrap();
        refused("latchd.id is not a regular file; remove it");
        fs::remove_file(directory.file()).unwrap();
        for target in [FILE, "/dev/zero"] {
            symlink(target, directory.file()).unwrap();
            refused("latchd.id: Too many levels of symbolic links");
            fs::remove_file(directory.file()).unwrap();
        }
        let _socket = UnixListener::bind(directory.file()).unwrap();
        refused("latchd.id: No such device or address");
        fs::remove_file(directory.file()).unwrap();
        fs::create_dir(directory.file()).unwrap();
        refused("latchd.id: Is a directory");
    }

    #[test]
    fn missing_directory_is_named() {
        let error = StateDir::claim(Path::new("/nonexistent/latchd"), 1).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("--state /nonexistent/latchd: ")
        );
    }
}
