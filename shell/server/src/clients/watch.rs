//! The watchers (`watch`), and the queues in which log lines reach them.
//!
//! A worker thread writes a line into the queue of each watcher that asked for its topic, and continues. The
//! watcher's own thread sends the queued lines. Without watchers, an event costs one read of an atomic.
//!
//! - H1: A queue holds at most [`watcher_bytes_max`](crate::Config::watcher_bytes_max). A line that does not
//!   fit is dropped and counted; the watcher reads the count (`skipped=`) once its queue has space again.
//! - H2: A watcher is notified once, until it has taken its lines. So no mailbox grows.
//! - H3: A watcher that does not read delays no other client.
//!
//! Source: memcached 1.6.45 `logger.c`.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use latchd_protocol::stats::StatsLine;
use latchd_protocol::watch::{Topic, Topics, Watched};

use crate::clients::budget::Holder;
use crate::stats::connection_stats::line;
use crate::sync::clock;

/// The most watchers at a time. Source: memcached 1.6.45 `logger.c`, `WATCHER_LIMIT`.
const WATCHERS_MAX: usize = 20;

/// All watchers.
#[derive(Debug)]
pub(crate) struct Watch {
    /// The size of one watcher's queue, in bytes.
    queue_bytes_max: usize,
    /// The topics that any watcher asked for.
    wanted: AtomicU8,
    watchers: Mutex<Vec<Arc<Watcher>>>,
    /// The number of the last line.
    lines: AtomicU64,
    sent: AtomicU64,
    skipped: AtomicU64,
    dropped: AtomicU64,
}

/// One watcher.
#[derive(Debug)]
pub(crate) struct Watcher {
    number: u64,
    topics: Topics,
    queue_bytes_max: usize,
    queue: Mutex<Queue>,
    /// It was notified, and has not taken its lines yet (H2).
    is_notified: AtomicBool,
    /// The client to notify; unset until its own thread has registered it.
    holder: OnceLock<Holder>,
}

#[derive(Debug, Default)]
struct Queue {
    bytes: Vec<u8>,
    skipped: u64,
}

impl Watch {
    /// No watchers yet; each may queue at most this many bytes.
    pub(crate) fn new(queue_bytes_max: usize) -> Self {
        Self {
            queue_bytes_max,
            wanted: AtomicU8::default(),
            watchers: Mutex::default(),
            lines: AtomicU64::default(),
            sent: AtomicU64::default(),
            skipped: AtomicU64::default(),
            dropped: AtomicU64::default(),
        }
    }

    /// The topics that any watcher asked for.
    pub(crate) fn wanted(&self) -> Topics {
        Topics::from_bits(self.wanted.load(Ordering::Relaxed))
    }

    /// Adds a watcher, unless there are too many.
    pub(crate) fn add(&self, number: u64, topics: Topics) -> Result<Arc<Watcher>, Watched> {
        let mut watchers = self.watchers();
        if watchers.len() >= WATCHERS_MAX {
            return Err(Watched::TooMany);
        }
        let watcher = Arc::new(Watcher {
            number,
            topics,
            queue_bytes_max: self.queue_bytes_max,
            queue: Mutex::default(),
            is_notified: AtomicBool::new(false),
            holder: OnceLock::new(),
        });
        watchers.push(Arc::clone(&watcher));
        self.note_wanted(&watchers);
        Ok(watcher)
    }

    /// Removes a watcher after its connection has closed.
    pub(crate) fn remove(&self, watcher: &Watcher) {
        let mut watchers = self.watchers();
        watchers.retain(|other| other.number != watcher.number);
        self.note_wanted(&watchers);
    }

    /// Queues a line for all watchers of its topic, except the connection that it is about. Returns the
    /// clients to notify.
    pub(crate) fn tell(&self, topic: Topic, about: u64, text: &str) -> Vec<Holder> {
        let mut news = Vec::new();
        if !self.wanted().contain(topic) {
            return news;
        }
        let gid = self.lines.fetch_add(1, Ordering::Relaxed) + 1;
        let (seconds, micros) = clock::unix_now();
        let line = format!("ts={seconds}.{micros:06} gid={gid} {text}\n");
        for watcher in self.watchers().iter() {
            if watcher.topics.contain(topic) && watcher.number != about {
                if watcher.push(line.as_bytes()) {
                    self.sent.fetch_add(1, Ordering::Relaxed);
                } else {
                    self.skipped.fetch_add(1, Ordering::Relaxed);
                }
                news.extend(watcher.news());
            }
        }
        news
    }

    /// Counts lines that were lost before they reached a queue.
    pub(crate) fn count_dropped(&self, lines: u64) {
        self.dropped.fetch_add(lines, Ordering::Relaxed);
    }

    /// Its lines of `stats`.
    pub(crate) fn stats_lines(&self) -> [StatsLine; 5] {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        [
            line("log_worker_dropped", count(&self.dropped)),
            line("log_worker_written", count(&self.lines)),
            line("log_watcher_skipped", count(&self.skipped)),
            line("log_watcher_sent", count(&self.sent)),
            line("log_watchers", self.watchers().len()),
        ]
    }

    /// `stats reset`.
    pub(crate) fn reset(&self) {
        for counter in [&self.sent, &self.skipped, &self.dropped] {
            counter.store(0, Ordering::Relaxed);
        }
    }

    fn note_wanted(&self, watchers: &[Arc<Watcher>]) {
        let all = watchers.iter().map(|watcher| watcher.topics);
        let wanted = all.fold(Topics::NONE, Topics::and);
        self.wanted.store(wanted.bits(), Ordering::Relaxed);
    }

    fn watchers(&self) -> MutexGuard<'_, Vec<Arc<Watcher>>> {
        self.watchers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watcher {
    /// Registers the client to notify; called by its own thread. Returns whether lines are queued already.
    pub(crate) fn register(&self, holder: Holder) -> bool {
        // It is registered once, and does not move.
        let _ = self.holder.set(holder);
        !self.queue().bytes.is_empty()
    }

    /// Takes the queued lines.
    pub(crate) fn take(&self) -> Vec<u8> {
        let mut queue = self.queue();
        self.is_notified.store(false, Ordering::Relaxed);
        std::mem::take(&mut queue.bytes)
    }

    /// Queues the line; returns whether it fits (H1).
    fn push(&self, line: &[u8]) -> bool {
        let mut queue = self.queue();
        let skipped = (queue.skipped > 0).then(|| format!("skipped={}\n", queue.skipped));
        let notice = skipped.unwrap_or_default();
        if queue.bytes.len() + notice.len() + line.len() > self.queue_bytes_max {
            queue.skipped += 1;
            return false;
        }
        queue.skipped = 0;
        queue.bytes.extend_from_slice(notice.as_bytes());
        queue.bytes.extend_from_slice(line);
        true
    }

    /// The client to notify about new lines, if any (H2).
    fn news(&self) -> Option<Holder> {
        let holder = self.holder.get()?;
        (!self.is_notified.swap(true, Ordering::Relaxed)).then_some(*holder)
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUEUE_BYTES_MAX: usize = 4 << 10;
    const HERE: Holder = Holder { worker: 1, name: 9 };

    fn text(watcher: &Watcher) -> String {
        String::from_utf8(watcher.take()).unwrap()
    }

    #[test]
    fn line_reaches_its_watchers_once() {
        let watch = Watch::new(QUEUE_BYTES_MAX);
        assert_eq!(watch.tell(Topic::Locks, 1, "x"), []);
        let locks = watch.add(5, Topics::of(Topic::Locks)).unwrap();
        let other = watch.add(6, Topics::of(Topic::Fetchers)).unwrap();
        assert!(!locks.register(HERE) && !other.register(HERE));
        assert_eq!(watch.tell(Topic::Locks, 1, "type=lock"), [HERE]);
        assert_eq!(watch.tell(Topic::Locks, 1, "type=unlock"), []);
        assert_eq!(watch.tell(Topic::Locks, 5, "of its own"), []);
        let shown = text(&locks);
        let lines: Vec<_> = shown.lines().collect();
        assert!(lines[0].starts_with("ts=") && lines[0].ends_with(" gid=1 type=lock"));
        assert!(lines[1].ends_with(" gid=2 type=unlock"), "{shown}");
        assert_eq!(lines.len(), 2);
        assert_eq!(text(&other), "");
        assert_eq!(watch.tell(Topic::Locks, 1, "type=lock"), [HERE]);
        watch.remove(&locks);
        assert_eq!(watch.wanted(), Topics::of(Topic::Fetchers));
        assert_eq!(watch.tell(Topic::Locks, 1, "type=lock"), []);
    }

    #[test]
    fn dropped_lines_are_counted_and_reported() {
        let watch = Watch::new(QUEUE_BYTES_MAX);
        let watcher = watch.add(5, Topics::of(Topic::Fetchers)).unwrap();
        let long = "x".repeat(QUEUE_BYTES_MAX / 2);
        for _ in 0..5 {
            watch.tell(Topic::Fetchers, 1, &long);
        }
        let queued = text(&watcher);
        assert!(queued.len() <= QUEUE_BYTES_MAX);
        assert_eq!(queued.lines().count(), 1);
        watch.tell(Topic::Fetchers, 1, "type=item_get");
        let queued = text(&watcher);
        assert!(queued.starts_with("skipped=4\nts="), "{queued}");
        let shown = watch.stats_lines();
        let shown: Vec<_> = shown.iter().map(|line| line.value.as_str()).collect();
        assert_eq!(shown, ["0", "6", "4", "2", "1"]);
        watch.count_dropped(3);
        assert_eq!(watch.stats_lines()[0].value, "3");
        watch.reset();
        let shown = watch.stats_lines().map(|line| line.value);
        assert_eq!(shown, ["0", "6", "0", "0", "1"]);
    }

    /// H1, with the line that says how many were dropped.
    #[test]
    fn queue_is_filled_to_its_last_byte() {
        let watch = Watch::new(100);
        let watcher = watch.add(5, Topics::of(Topic::Locks)).unwrap();
        assert!(watcher.push(&[b'x'; 100]) && !watcher.push(b"x"));
        assert_eq!(watcher.take().len(), 100);
        assert!(!watcher.push(&[b'x'; 91]));
        assert!(watcher.push(&[b'x'; 90]) && !watcher.push(b"x"));
        assert!(watcher.take().starts_with(b"skipped=2\nx"));
    }

    #[test]
    fn watchers_are_limited() {
        let watch = Watch::new(QUEUE_BYTES_MAX);
        let all: Vec<_> = (0..WATCHERS_MAX as u64)
            .map(|number| watch.add(number, Topics::of(Topic::Locks)).unwrap())
            .collect();
        let more = watch.add(99, Topics::of(Topic::Locks));
        assert_eq!(more.err(), Some(Watched::TooMany));
        watch.remove(&all[3]);
        assert!(watch.add(99, Topics::of(Topic::Locks)).is_ok());
    }
}
