//! How long clients may rely on the locks of this process after its end: a record for the next process.
//!
//! The client of a session relies on its locks for the session's time after the server last heard it, and the holder of a
//! lease for its ttl. Neither need notice that the server has ended. So a server outside a cluster records the longest
//! such time, with `--state` in that directory and otherwise beside the file of `-e`. The next process grants no lock for
//! that long. In a cluster the hold bounds every belief (E13 of [`latchd_cluster::election`]).
//!
//! - U1: The record is on the disk before the first reply that relies on it. If it cannot be written, the request is refused.
//! - U2: The record is written at most [`WRITES_MAX`] times in the life of a process: times are rounded up, and it only rises,
//!   but for once when grants are no longer withheld. Then the times of the previous process are over.
//! - U3: A damaged record counts as the longest time, [`LONGEST_S`]. Without a record, no time was granted.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use latchd_protocol::command::{ItemCommand, Set};
use latchd_protocol::item::LEASE_ITEM;
use latchd_protocol::session::SESSION_S_MAX;
use latchd_protocol::time::Exptime;
use rustix::fs::OFlags;

use crate::config::Config;
use crate::os::state_dir::StateDir;
use crate::sync::clock::unix_now;

/// The longest time: that of the longest session. A longer lease counts as this.
const LONGEST_S: u32 = SESSION_S_MAX;

/// Four times between a power of two and the next, the times up to 4 s, and the one write at the end of the previous process's
/// times.
#[cfg(test)]
const WRITES_MAX: usize = 4 * (LONGEST_S.ilog2() as usize - 1) + 4 + 1;

/// The name of the record in the directory of `--state`.
const FILE: &str = "latchd.beliefs";

/// Its suffix beside the file of `-e`.
const SUFFIX: &str = ".beliefs";

/// The time after a failed write in which requests are refused without another one.
const RETRY: Duration = Duration::from_secs(1);

/// More bytes than a record has.
const BYTES_MAX: u64 = 64;

/// The record, and the times that this process has granted.
#[derive(Debug)]
pub(crate) struct Beliefs {
    path: PathBuf,
    /// The longest time that this process has granted, in seconds.
    granted_s: AtomicU32,
    /// The record covers times up to this one, in seconds.
    recorded_s: AtomicU32,
    /// When a write last failed. A thread has this while it writes.
    failed: Mutex<Option<Instant>>,
    /// The claim to the state directory, held until the process ends.
    _state: Option<StateDir>,
}

/// A time could not be recorded.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Unrecorded;

impl Beliefs {
    /// Reads the record that a server outside a cluster has with this configuration, and claims the directory of `--state`. The
    /// caller has the claim to the file of `-e`. Also returns the time for which clients may rely on the locks of the
    /// previous process. `None`: there is no place for a record.
    ///
    /// # Errors
    /// The directory is in use, or the record cannot be read.
    pub(crate) fn open(config: &Config) -> io::Result<Option<(Self, Duration)>> {
        let (state, path) = match (&config.state, &config.memory_file) {
            (Some(directory), _) => {
                let state = StateDir::claim_unnamed(directory)?;
                (Some(state), directory.join(FILE))
            }
            (None, Some(file)) => {
                let mut name = file.as_os_str().to_owned();
                name.push(SUFFIX);
                (None, name.into())
            }
            (None, None) => return Ok(None),
        };
        let explain = |error: io::Error| {
            let shown = path.display();
            io::Error::new(error.kind(), format!("{shown}: {error}"))
        };
        let recorded_s = read(&path).map_err(explain)?.unwrap_or_else(|why| {
            tracing::warn!(
                event = "beliefs_unreadable",
                reason = why,
                "{}: ignoring the record of the longest session and lease: {why}; counting {LONGEST_S} s. To grant locks \
                 sooner, remove the file and restart the server",
                path.display()
            );
            LONGEST_S
        });
        let beliefs = Self {
            path,
            granted_s: AtomicU32::new(0),
            recorded_s: AtomicU32::new(recorded_s),
            failed: Mutex::new(None),
            _state: state,
        };
        Ok(Some((beliefs, Duration::from_secs(recorded_s.into()))))
    }

    /// A client is about to be granted a session or a lease of so many seconds (U1).
    ///
    /// # Errors
    /// It must be refused.
    pub(crate) fn cover(&self, seconds: u32) -> Result<(), Unrecorded> {
        let seconds = rounded(seconds);
        // In this order: `begin_anew` reads them in the other one.
        self.granted_s.fetch_max(seconds, Ordering::SeqCst);
        if self.recorded_s.load(Ordering::SeqCst) >= seconds {
            return Ok(());
        }
        self.raise(seconds)
    }

    /// The same for a command that may make or renew the item of a lease.
    ///
    /// # Errors
    /// It must be refused.
    #[inline]
    pub(crate) fn cover_lease(&self, command: &ItemCommand<'_>) -> Result<(), Unrecorded> {
        if let ItemCommand::Set(set) = command
            && set.client_flags == LEASE_ITEM
        {
            return self.cover_set(set);
        }
        Ok(())
    }

    #[cold]
    fn cover_set(&self, set: &Set<'_>) -> Result<(), Unrecorded> {
        let seconds = match set.exptime {
            Exptime::Never => LONGEST_S,
            Exptime::Past => 0,
            Exptime::In { seconds } => seconds,
            Exptime::At { unix_s } => {
                let seconds = unix_s.saturating_sub(unix_now().0);
                u32::try_from(seconds).unwrap_or(LONGEST_S)
            }
        };
        self.cover(seconds)
    }

    #[cold]
    fn raise(&self, seconds: u32) -> Result<(), Unrecorded> {
        let mut failed = self.writing();
        if self.recorded_s.load(Ordering::SeqCst) >= seconds {
            return Ok(());
        }
        if failed.is_some_and(|at| at.elapsed() < RETRY) {
            return Err(Unrecorded);
        }
        match write(&self.path, seconds) {
            Ok(()) => {
                *failed = None;
                self.recorded_s.store(seconds, Ordering::SeqCst);
                Ok(())
            }
            Err(error) => {
                self.warn(&error);
                *failed = Some(Instant::now());
                Err(Unrecorded)
            }
        }
    }

    /// The times of the previous process are over: the record has only those that this process has granted.
    pub(crate) fn begin_anew(&self) {
        let _writing = self.writing();
        let before = self.recorded_s.swap(0, Ordering::SeqCst);
        // A time that is not read here finds the record at 0, and waits for this thread.
        let granted_s = self.granted_s.load(Ordering::SeqCst);
        let recorded_s = match write(&self.path, granted_s) {
            Ok(()) => granted_s,
            Err(error) => {
                self.warn(&error);
                before
            }
        };
        self.recorded_s.store(recorded_s, Ordering::SeqCst);
    }

    fn writing(&self) -> MutexGuard<'_, Option<Instant>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn warn(&self, error: &io::Error) {
        tracing::warn!(
            event = "beliefs_unwritten",
            reason = error.to_string(),
            "{}: cannot record the longest session and lease, refusing longer ones: {error}",
            self.path.display()
        );
    }
}

/// A time rounded up, by less than a quarter (U2).
fn rounded(seconds: u32) -> u32 {
    let seconds = seconds.clamp(1, LONGEST_S);
    let step = 1 << seconds.ilog2().saturating_sub(2);
    seconds.next_multiple_of(step).min(LONGEST_S)
}

/// The time in the record, in seconds; 0 without a record. `Ok(Err(_))`: the record is damaged.
fn read(path: &Path) -> io::Result<Result<u32, &'static str>> {
    let opened = OpenOptions::new()
        .read(true)
        // A FIFO must not stop the start.
        .custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed())
        .open(path);
    let file = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Ok(0)),
        Err(error) => return Err(error),
    };
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut text = Vec::new();
    file.take(BYTES_MAX).read_to_end(&mut text)?;
    Ok(parse(&text))
}

fn parse(text: &[u8]) -> Result<u32, &'static str> {
    let text = std::str::from_utf8(text).map_err(|_| "it is damaged")?;
    let (format, rest) = text.split_once('\n').ok_or("it is damaged")?;
    if format.starts_with("format ") && format != "format 1" {
        return Err("it is of another version");
    }
    let seconds = rest
        .strip_suffix('\n')
        .and_then(|line| line.strip_prefix("longest_s "))
        .filter(|_| format == "format 1")
        .and_then(|number| number.parse().ok())
        .filter(|seconds| *seconds <= LONGEST_S);
    seconds.ok_or("it is damaged")
}

/// Replaces the record. When this returns, it is on the disk; if it fails, the former one is.
fn write(path: &Path, seconds: u32) -> io::Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&new)?;
    file.write_all(format!("format 1\nlongest_s {seconds}\n").as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder of its own, and the path of a record in it.
    fn folder(name: &str) -> (PathBuf, Config) {
        let folder = format!("latchd-beliefs-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let state = Some(folder.clone());
        let config = Config {
            state,
            ..Config::default()
        };
        (folder, config)
    }

    fn seconds(config: &Config) -> (Beliefs, u64) {
        let (beliefs, left) = Beliefs::open(config).unwrap().unwrap();
        (beliefs, left.as_secs())
    }

    #[test]
    fn next_process_finds_the_longest_time() {
        let (folder, config) = folder("longest");
        let (first, left) = seconds(&config);
        assert_eq!(left, 0, "there was no process before");
        assert!(!folder.join(FILE).exists());
        for ttl in [3, 9, 5] {
            first.cover(ttl).unwrap();
        }
        let busy = Beliefs::open(&config).unwrap_err();
        assert_eq!(busy.kind(), io::ErrorKind::ResourceBusy);
        drop(first);
        let (second, left) = seconds(&config);
        assert_eq!(left, 10);
        second.cover(2).unwrap();
        drop(second);
        let (third, left) = seconds(&config);
        assert_eq!(left, 10, "the process between has not waited for it");
        third.cover(2).unwrap();
        third.begin_anew();
        third.cover(1).unwrap();
        drop(third);
        assert_eq!(seconds(&config).1, 2);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn record_is_beside_the_memory_file() {
        let (folder, config) = folder("beside");
        let config = Config {
            memory_file: Some(folder.join("items")),
            state: None,
            ..config
        };
        seconds(&config).0.cover(7).unwrap();
        assert_eq!(seconds(&config).1, 7);
        assert!(folder.join("items.beliefs").exists());
        assert!(Beliefs::open(&Config::default()).unwrap().is_none());
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn damaged_record_counts_as_the_longest_time() {
        let (folder, config) = folder("damaged");
        for text in [
            "",
            "format 1\nlongest_s 5",
            "format 1\nlongest_s 3601\n",
            "format 2\nlongest_s 5\n",
            "longest_s 5\n",
            "\u{fffd}",
        ] {
            fs::write(folder.join(FILE), text).unwrap();
            assert_eq!(seconds(&config).1, u64::from(LONGEST_S), "{text:?}");
        }
        fs::write(folder.join(FILE), "format 1\nlongest_s 3600\n").unwrap();
        assert_eq!(seconds(&config).1, 3600);
        fs::remove_file(folder.join(FILE)).unwrap();
        fs::create_dir(folder.join(FILE)).unwrap();
        let error = Beliefs::open(&config).unwrap_err().to_string();
        assert!(error.contains("not a regular file"), "{error}");
        fs::remove_dir_all(folder).unwrap();
    }

    /// As on a full disk: the record cannot be replaced.
    #[test]
    fn time_without_a_record_is_refused() {
        let (folder, config) = folder("full");
        let (beliefs, _) = seconds(&config);
        beliefs.cover(4).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(beliefs.cover(5), Err(Unrecorded));
        assert_eq!(beliefs.cover(4), Ok(()));
        fs::create_dir_all(&folder).unwrap();
        assert_eq!(beliefs.cover(5), Err(Unrecorded), "too soon");
        *beliefs.writing() = None;
        assert_eq!(beliefs.cover(5), Ok(()));
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn times_are_rounded_up_by_less_than_a_quarter() {
        let all: std::collections::BTreeSet<_> = (0..=LONGEST_S + 1).map(rounded).collect();
        assert!(all.len() < WRITES_MAX, "U2: {}", all.len());
        for seconds in 1..=LONGEST_S {
            let rounded = rounded(seconds);
            assert!(rounded >= seconds && 4 * rounded < 5 * seconds, "{seconds}");
        }
        assert_eq!([0, 4, 5, 9, 17].map(rounded), [1, 4, 5, 10, 20]);
        assert_eq!(rounded(u32::MAX), LONGEST_S);
    }

    #[test]
    fn leases_of_every_exptime_are_covered() {
        let (folder, config) = folder("leases");
        let (beliefs, _) = seconds(&config);
        let key = latchd_protocol::key::Key::new(b"k").unwrap();
        let cover = |client_flags, exptime| {
            let set = Set {
                client_flags,
                exptime,
                ..Set::new(key, b"token")
            };
            beliefs.cover_lease(&ItemCommand::Set(set)).unwrap();
            beliefs.recorded_s.load(Ordering::SeqCst)
        };
        assert_eq!(cover(0, Exptime::Never), 0);
        assert_eq!(cover(LEASE_ITEM, Exptime::In { seconds: 5 }), 5);
        let unix_s = unix_now().0 + 100;
        assert_eq!(cover(LEASE_ITEM, Exptime::At { unix_s }), rounded(100));
        assert_eq!(cover(LEASE_ITEM, Exptime::Never), LONGEST_S);
        fs::remove_dir_all(folder).unwrap();
    }
}
