//! The requests of one thread of the load, and the latencies of each kind of request.
//!
//! - A hand-over lasts from before the holder sends its release until a connection that waited has read its grant.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use latchd_load::Workload;
use latchd_load::latencies::Latencies;
use latchd_load::wire::{Ask, Reply, Requests};
use latchd_load::workload::{Fill, GetsSets, Keys, Locks};

use super::attend::Shared;

/// The requests of one thread.
#[derive(Debug)]
pub(super) enum Requested<'a> {
    Fill(Fill),
    Cache(GetsSets),
    Lock(Locks),
    Handover(Handover<'a>),
}

/// The work of one thread.
#[derive(Debug)]
pub(super) struct Work<'a> {
    requested: Requested<'a>,
    /// The requests that may still be sent; releases do not count.
    left: u64,
    answers: u64,
    stop: &'a AtomicBool,
    done: &'a AtomicU64,
    pub(super) figures: Figures,
}

/// The latencies of each kind of request.
#[derive(Debug, Default)]
pub(super) struct Figures {
    /// Gets, or locks.
    pub(super) first: Latencies,
    /// Sets, or releases.
    pub(super) second: Latencies,
    pub(super) handovers: Latencies,
    /// Gets that found nothing.
    pub(super) misses: u64,
}

/// Every connection waits for a key of few, and releases it at once.
#[derive(Debug)]
pub(super) struct Handover<'a> {
    keys: Keys,
    rng: fastrand::Rng,
    /// When each key was released last, in nanoseconds since `epoch`. All threads share it.
    released: &'a [AtomicU64],
    epoch: Instant,
    /// For each connection the key that it holds or waits for, and when it asked.
    asked: Vec<(Option<u32>, u64)>,
}

impl<'a> Work<'a> {
    /// At most `left` requests, on the thread of this number.
    pub(super) fn new(
        requested: Requested<'a>,
        left: u64,
        shared: &'a Shared,
        thread: usize,
    ) -> Self {
        Self {
            requested,
            left,
            answers: 0,
            stop: &shared.stop,
            done: &shared.done[thread],
            figures: Figures::default(),
        }
    }
}

impl Workload for Work<'_> {
    fn next(&mut self, connection: usize) -> Option<Ask> {
        let is_over = self.left == 0 || self.stop.load(Ordering::Relaxed);
        let ask = match &mut self.requested {
            Requested::Fill(fill) => (!is_over).then(|| fill.next(connection))?,
            Requested::Cache(gets_sets) => (!is_over).then(|| gets_sets.next(connection))?,
            Requested::Lock(locks) if is_over => locks.release(connection),
            Requested::Lock(locks) => locks.next(connection),
            Requested::Handover(handover) => handover.next(connection, is_over),
        }?;
        if !matches!(ask, Ask::Unlock(_)) {
            self.left -= 1;
        }
        Some(ask)
    }

    fn judge(&mut self, requests: &Requests, ask: Ask, reply: &Reply<'_>) -> bool {
        // A cache may evict.
        let is_miss = matches!(ask, Ask::Get(_)) && *reply == Reply::Miss;
        is_miss || requests.is_answered(ask, reply)
    }

    fn answered(&mut self, connection: usize, ask: Ask, reply: &Reply<'_>, latency: Duration) {
        self.answers += 1;
        self.done.store(self.answers, Ordering::Relaxed);
        let figures = &mut self.figures;
        match ask {
            Ask::Get(_) | Ask::Lock(_) => figures.first.record(latency, 1),
            Ask::Set(_) | Ask::Unlock(_) => figures.second.record(latency, 1),
        }
        figures.misses += u64::from(*reply == Reply::Miss);
        if let (Requested::Handover(handover), Ask::Lock(key)) = (&self.requested, ask)
            && let Some(handed_over) = handover.handed_over(connection, key)
        {
            figures.handovers.record(handed_over, 1);
        }
    }
}

impl Figures {
    /// Adds those of another thread.
    pub(super) fn add(&mut self, other: &Self) {
        self.first.add(&other.first);
        self.second.add(&other.second);
        self.handovers.add(&other.handovers);
        self.misses += other.misses;
    }
}

impl<'a> Handover<'a> {
    /// For so many connections of one thread, on as many keys as `released` has.
    pub(super) fn new(
        seed: u64,
        released: &'a [AtomicU64],
        epoch: Instant,
        connections: usize,
    ) -> Self {
        let keys = u32::try_from(released.len()).unwrap_or(u32::MAX);
        Self {
            keys: Keys::Evenly(keys),
            rng: fastrand::Rng::with_seed(seed),
            released,
            epoch,
            asked: vec![(None, 0); connections],
        }
    }

    fn next(&mut self, connection: usize, is_over: bool) -> Option<Ask> {
        let now = self.now();
        let (held, asked_at) = &mut self.asked[connection];
        if let Some(key) = held.take() {
            self.released[key as usize].store(now, Ordering::Release);
            return Some(Ask::Unlock(key));
        }
        if is_over {
            return None;
        }
        *asked_at = now;
        let key = self.keys.draw(&mut self.rng);
        Some(Ask::Lock(*held.insert(key)))
    }

    /// The time since the release for which the connection waited; `None` if the key was free when it asked. Nobody
    /// else releases the key before this connection.
    fn handed_over(&self, connection: usize, key: u32) -> Option<Duration> {
        let released_at = self.released[key as usize].load(Ordering::Acquire);
        let (_, asked_at) = self.asked[connection];
        (released_at > asked_at)
            .then(|| Duration::from_nanos(self.now().saturating_sub(released_at)))
    }

    fn now(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}
