//! The two moments of a hold, which every thread reads without a lock: the end of serving, and the end of the process.
//!
//! - M1: A worker reads the serving lease when a client's turn begins, and again before it sends the replies of that turn, now or
//!   deferred (E2). It needs no thread to end it: the moment passes.
//! - M2: At the end of the hold a thread that takes no lock ends the process, unless the election has heard more (E3).
//! - M4: A client that was promised a time believes in its locks even if it cannot be reached, but by no clock longer than
//!   until the end of serving that was known at the promise (E13). So a process that leaves serves until the latest such
//!   end, promises nothing beyond, and says `free` only then.
//!
//! Source of E1 to E13: [`crate::election`].

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use latchd_protocol::Instant;
use rustix::process::{Signal, getpid, kill_process};
use rustix::time::{ClockId, clock_gettime};

use crate::host::SpawnThread;

/// The longest sleep of the thread that ends the process, so that it sees a hold that has begun meanwhile.
const WATCH: Duration = Duration::from_millis(50);

/// The value of a moment that does not come.
const NEVER: u64 = u64::MAX;

/// The current time of `CLOCK_BOOTTIME`, which also counts while the machine sleeps.
pub(crate) fn boot_time() -> Instant {
    let now = clock_gettime(ClockId::Boottime);
    let (seconds, nanoseconds) = (now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs());
    Instant::from_millis(seconds * 1000 + nanoseconds / 1_000_000)
}

/// The moments of a hold, in milliseconds of `CLOCK_BOOTTIME`.
#[derive(Debug)]
pub struct ServingLease {
    /// The first moment at which the process must not serve; 0 if it does not serve.
    serves_until: AtomicU64,
    /// The moment at which the process must have ended; [`NEVER`] without a hold.
    ends_at: AtomicU64,
    /// The latest end of serving at a promise to a client.
    promised: AtomicU64,
    /// The end of serving of a process that leaves; [`NEVER`] for any other.
    leaves_at: AtomicU64,
}

impl ServingLease {
    /// A serving lease that has not begun.
    pub(crate) const fn new() -> Self {
        Self {
            serves_until: AtomicU64::new(0),
            ends_at: AtomicU64::new(NEVER),
            promised: AtomicU64::new(0),
            leaves_at: AtomicU64::new(NEVER),
        }
    }

    /// Sets both moments. `None`: the process does not serve, or need not end.
    pub fn set(&self, serves_until: Option<Instant>, ends_at: Option<Instant>) {
        let end = ends_at.map_or(NEVER, Instant::as_millis);
        let until = serves_until.map_or(0, Instant::as_millis);
        self.ends_at.store(end, Ordering::SeqCst);
        self.serves_until.store(until, Ordering::SeqCst);
    }

    /// Whether the process may serve at this moment.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        boot_time().as_millis() < self.serves_until.load(Ordering::SeqCst)
    }

    /// The time for which no other process can serve, as far as is known: zero if the serving lease is over.
    pub(crate) fn left(&self) -> Duration {
        left_until(self.serves_until.load(Ordering::SeqCst))
    }

    /// The same, for a promise to a client: the partition is not free before (M4).
    pub(crate) fn promise(&self) -> Duration {
        let until = self.serves_until.load(Ordering::SeqCst);
        let until = until.min(self.leaves_at.load(Ordering::SeqCst));
        self.promised.fetch_max(until, Ordering::SeqCst);
        // A process that has decided to leave meanwhile may not have counted it.
        left_until(until.min(self.leaves_at.load(Ordering::SeqCst)))
    }

    /// The process leaves: no client is promised anything beyond the latest end of a promise so far, or beyond `notice`
    /// from now. Returns the time until then.
    pub(crate) fn leave(&self, notice: Duration) -> Duration {
        let notice_ms = u64::try_from(notice.as_millis()).unwrap_or(NEVER);
        let at = boot_time().as_millis().saturating_add(notice_ms);
        let at = at.max(self.promised.load(Ordering::SeqCst));
        self.leaves_at.store(at, Ordering::SeqCst);
        left_until(at)
    }

    /// The time until every client that relies on the hold has stopped to do so.
    pub(crate) fn until_promised(&self) -> Duration {
        left_until(self.promised.load(Ordering::SeqCst))
    }

    /// The time until the process must have ended; `None` without a hold.
    fn until_end(&self) -> Option<Duration> {
        let at = self.ends_at.load(Ordering::SeqCst);
        (at != NEVER).then(|| left_until(at))
    }

    /// Starts the thread that ends the process at the end of a hold (M2). It ends with the last other user of the serving lease.
    ///
    /// # Errors
    /// The kernel's, if it starts no thread.
    pub(crate) fn watch_end(self: &Arc<Self>, spawn_thread: SpawnThread) -> io::Result<()> {
        let serving_lease = Arc::clone(self);
        let watch = move || {
            while Arc::strong_count(&serving_lease) > 1 {
                match serving_lease.until_end() {
                    Some(Duration::ZERO) => end_process(),
                    left => thread::sleep(left.map_or(WATCH, |left| left.min(WATCH))),
                }
            }
        };
        spawn_thread("latchd-end", Box::new(watch))?;
        Ok(())
    }
}

/// The time until a moment.
fn left_until(at: u64) -> Duration {
    Duration::from_millis(at.saturating_sub(boot_time().as_millis()))
}

/// Ends the process at once: nothing is saved, and no lock is taken. No other thread can delay a KILL.
fn end_process() -> ! {
    let _ = kill_process(getpid(), Signal::KILL);
    loop {
        thread::park();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ends_without_a_thread() {
        let serving_lease = ServingLease::new();
        assert!(!serving_lease.is_open());
        let now = boot_time().as_millis();
        serving_lease.set(Some(Instant::from_millis(now + 60_000)), None);
        assert!(serving_lease.is_open());
        assert!(serving_lease.left() > Duration::from_secs(50));
        serving_lease.set(Some(Instant::from_millis(now)), None);
        assert!(!serving_lease.is_open());
        assert_eq!(serving_lease.left(), Duration::ZERO);
    }

    #[test]
    fn leaving_process_promises_no_later_end() {
        let serving_lease = ServingLease::new();
        let now = boot_time().as_millis();
        serving_lease.set(Some(Instant::from_millis(now + 60_000)), None);
        assert_eq!(serving_lease.until_promised(), Duration::ZERO);
        let left = serving_lease.leave(Duration::from_secs(20));
        assert!(serving_lease.promise() <= left);
        serving_lease.set(Some(Instant::from_millis(now + 90_000)), None);
        assert!(serving_lease.promise() <= left);

        let serving_lease = ServingLease::new();
        serving_lease.set(Some(Instant::from_millis(now + 60_000)), None);
        let promised = serving_lease.promise();
        let left = serving_lease.leave(Duration::from_secs(20));
        assert!(left > Duration::from_secs(50) && left <= promised);
        assert!(serving_lease.until_promised() <= left);
    }

    #[test]
    fn end_is_known_only_within_a_hold() {
        let serving_lease = ServingLease::new();
        assert_eq!(serving_lease.until_end(), None);
        let later = Instant::from_millis(boot_time().as_millis() + 60_000);
        serving_lease.set(None, Some(later));
        assert!(serving_lease.until_end().is_some_and(|left| left > WATCH));
        serving_lease.set(None, Some(Instant::from_millis(1)));
        assert_eq!(serving_lease.until_end(), Some(Duration::ZERO));
    }
}
