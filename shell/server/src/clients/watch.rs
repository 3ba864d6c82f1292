//! Who watches what happens, and how the lines reach them.
//!
//! A thread that serves writes a line into the queue of each watcher that asked for it, and goes on;
//! the watcher's own thread sends what is there. What happens while nobody watches costs one look at a
//! number.
//!
//! - H1: a queue holds at most [`watcher_bytes_max`](crate::Config::watcher_bytes_max). What does not fit is dropped and counted, and the
//!   watcher is told how much that was (`skipped=`) once it has room again.
//! - H2: a watcher is told once that there is news, until it has taken it: so nobody's mail grows.
//! - H3: a watcher that cannot read holds up nobody.
//!
//! Source: memcached 1.6.45 `logger.c`.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use latchd_core::stats::StatsLine;
use latchd_core::watch::{Topic, Topics, Watched};

use crate::clients::budget::Holder;
use crate::stats::connection_stats::line;
use crate::sync::clock;

/// How many may watch at a time. Source: memcached 1.6.45 `logger.c`, `WATCHER_LIMIT`.
const WATCHERS_MAX: usize = 20;

/// Everybody who watches.
#[derive(Debug)]
pub(crate) struct Watch {
    /// What may wait for one of them.
    queue_bytes_max: usize,
    /// What anybody asks for.
    wanted: AtomicU8,
    watchers: Mutex<Vec<Arc<Watcher>>>,
    /// The number of the last line.
    lines: AtomicU64,
    sent: AtomicU64,
    skipped: AtomicU64,
    dropped: AtomicU64,
}

/// One who watches.
#[derive(Debug)]
pub(crate) struct Watcher {
    number: u64,
    topics: Topics,
    queue_bytes_max: usize,
    queue: Mutex<Queue>,
    /// It has been told that there is news, and has not come for it (H2).
    is_told: AtomicBool,
    /// Where it is to be told; nowhere until its own thread has said so.
    holder: OnceLock<Holder>,
}

#[derive(Debug, Default)]
struct Queue {
    bytes: Vec<u8>,
    skipped: u64,
}

impl Watch {
    /// Nobody yet; so many bytes may wait for each.
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

    /// What anybody asks for.
    pub(crate) fn wanted(&self) -> Topics {
        Topics::from_bits(self.wanted.load(Ordering::Relaxed))
    }

    /// A connection watches from now on, if there is room for one more.
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
            is_told: AtomicBool::new(false),
            holder: OnceLock::new(),
        });
        watchers.push(Arc::clone(&watcher));
        self.note_wanted(&watchers);
        Ok(watcher)
    }

    /// A connection has gone that watched.
    pub(crate) fn remove(&self, watcher: &Watcher) {
        let mut watchers = self.watchers();
        watchers.retain(|other| other.number != watcher.number);
        self.note_wanted(&watchers);
    }

    /// Tells a line to whoever asks for its topic, but not to the one whom it is about. Returns who is
    /// to be told that there is news.
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

    /// Notes lines that were lost before anybody could be told.
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
    /// Its own thread, which waits for news now, says where it is to be told of it. Returns whether there
    /// is some already.
    pub(crate) fn settle(&self, holder: Holder) -> bool {
        // It is settled once, and stays where it is.
        let _ = self.holder.set(holder);
        !self.queue().bytes.is_empty()
    }

    /// Takes what is there.
    pub(crate) fn take(&self) -> Vec<u8> {
        let mut queue = self.queue();
        self.is_told.store(false, Ordering::Relaxed);
        std::mem::take(&mut queue.bytes)
    }

    /// Whether the line has found room (H1).
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

    /// Whom to tell that there is news (H2).
    fn news(&self) -> Option<Holder> {
        let holder = self.holder.get()?;
        (!self.is_told.swap(true, Ordering::Relaxed)).then_some(*holder)
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
    fn a_line_reaches_those_who_asked_for_it_and_news_is_told_once() {
        let watch = Watch::new(QUEUE_BYTES_MAX);
        assert_eq!(watch.tell(Topic::Locks, 1, "x"), []);
        let locks = watch.add(5, Topics::of(Topic::Locks)).unwrap();
        let other = watch.add(6, Topics::of(Topic::Fetchers)).unwrap();
        assert!(!locks.settle(HERE) && !other.settle(HERE));
        assert_eq!(watch.tell(Topic::Locks, 1, "type=lock"), [HERE]);
        assert_eq!(watch.tell(Topic::Locks, 1, "type=unlock"), []);
        assert_eq!(watch.tell(Topic::Locks, 5, "of its own"), []);
        let told = text(&locks);
        let lines: Vec<_> = told.lines().collect();
        assert!(lines[0].starts_with("ts=") && lines[0].ends_with(" gid=1 type=lock"));
        assert!(lines[1].ends_with(" gid=2 type=unlock"), "{told}");
        assert_eq!(lines.len(), 2);
        assert_eq!(text(&other), "");
        assert_eq!(watch.tell(Topic::Locks, 1, "type=lock"), [HERE]);
        watch.remove(&locks);
        assert_eq!(watch.wanted(), Topics::of(Topic::Fetchers));
        assert_eq!(watch.tell(Topic::Locks, 1, "type=lock"), []);
    }

    #[test]
    fn what_has_no_room_is_counted_and_said_when_there_is_some() {
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
    }

    #[test]
    fn there_is_room_for_so_many() {
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
