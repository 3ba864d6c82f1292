//! What the server is like now, looked at as seldom as will do (U1).

use std::time::{Duration, Instant};

use crate::turn_times::Measured;

use latchd_core::stats::{Report, Stats, StatsLine, StatsTopic};

use super::history::History;
use super::{locks, metrics, page};
use crate::shared::Shared;

/// How long a look is good for. A look takes each shard for some microseconds.
const FRESH: Duration = Duration::from_millis(250);

/// How many locks are told of.
pub(super) const LOCKS_SHOWN_MAX: usize = 1000;

/// One look.
#[derive(Debug)]
pub(super) struct Snapshot {
    /// Counters and gauges.
    pub(super) stats: Stats,
    /// What `stats` shows, as it shows it.
    pub(super) lines: Vec<(String, String)>,
    /// Some of the locks, if keys may be told.
    pub(super) locks: Vec<LockShown>,
    /// Whether keys may be told: `-X`.
    pub(super) tells_keys: bool,
    /// How long the server has run.
    pub(super) uptime: Duration,
    /// How long turns take.
    pub(super) turns: Measured,
}

/// A lock and who has it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct LockShown {
    /// The key, what is not a letter of ASCII written as `\x..`.
    pub(super) key: String,
    /// The connection's number, as in the log and in `me … lock=`.
    pub(super) owner: u64,
    /// Others may hold it, too: then this is the first who does.
    pub(super) is_shared: bool,
    /// How many hold it.
    pub(super) holders: usize,
    /// Where it comes from; empty if it has just gone.
    pub(super) peer: String,
    /// The number of the grant.
    pub(super) fence: u64,
    /// How long it has been held.
    pub(super) held: Duration,
    /// How long ago its owner's last request was.
    pub(super) silent: Duration,
}

impl Snapshot {
    fn take(shared: &Shared) -> Self {
        let now = shared.clock.now();
        let (stats, keys) = shared.shards.look(now, LOCKS_SHOWN_MAX);
        let transport = shared.stats_lines(StatsTopic::General);
        let mut lines = Vec::new();
        report(&stats, &transport).each(StatsTopic::General, |name, value| {
            lines.push((name.to_owned(), value.to_owned()));
        });
        let tells_keys = shared.config.allowed.listing;
        let mut locks: Vec<_> = keys
            .into_iter()
            .filter(|_| tells_keys)
            .map(|(key, holding, holders)| {
                let owner = holding.owner.number();
                let (peer, silent) = shared.roster.find(owner, now).unwrap_or_default();
                let held_ms = now.as_millis().saturating_sub(holding.since.as_millis());
                LockShown {
                    key: key.escape_ascii().to_string(),
                    owner,
                    is_shared: holding.mode.is_shared(),
                    holders,
                    peer,
                    fence: holding.fence.number(),
                    held: Duration::from_millis(held_ms),
                    silent,
                }
            })
            .collect();
        // What has been held for longest is what is most likely stuck.
        locks.sort_by(|one, other| {
            let order = other.held.cmp(&one.held);
            order.then_with(|| (one.owner, &one.key).cmp(&(other.owner, &other.key)))
        });
        Self {
            stats,
            lines,
            locks,
            tells_keys,
            uptime: shared.clock.uptime(),
            turns: shared.connection_stats.turn_times(),
        }
    }

    /// What `stats` shows under a name; empty if it does not.
    pub(super) fn line(&self, name: &str) -> &str {
        let found = self.lines.iter().find(|(shown, _)| shown == name);
        found.map_or("", |(_, value)| value)
    }
}

fn report<'a>(stats: &'a Stats, lines: &'a [StatsLine]) -> Report<'a> {
    Report { stats, lines }
}

/// The last look, and what was counted in the last minutes.
#[derive(Debug)]
pub(super) struct Watch {
    taken: Instant,
    last: Snapshot,
    history: History,
}

impl Watch {
    pub(super) fn new(shared: &Shared) -> Self {
        let mut watch = Self {
            taken: Instant::now(),
            last: Snapshot::take(shared),
            history: History::default(),
        };
        watch.sample(shared);
        watch
    }

    /// Notes what is counted now, for the rates of the last minutes.
    pub(super) fn sample(&mut self, shared: &Shared) {
        let at_ms = shared.clock.now().as_millis();
        let stats = self.look(shared).stats;
        self.history.note(at_ms, &stats);
    }

    /// `/metrics`.
    pub(super) fn metrics(&mut self, shared: &Shared) -> String {
        metrics::text(self.look(shared))
    }

    /// `/locks.json`.
    pub(super) fn locks(&mut self, shared: &Shared) -> String {
        locks::json(self.look(shared))
    }

    /// `/`.
    pub(super) fn page(&mut self, shared: &Shared) -> String {
        self.look(shared);
        page::html(&self.last, &self.history)
    }

    fn look(&mut self, shared: &Shared) -> &Snapshot {
        if self.taken.elapsed() >= FRESH {
            self.last = Snapshot::take(shared);
            self.taken = Instant::now();
        }
        &self.last
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A look at a server with these locks.
    pub(crate) fn snapshot(locks: Vec<LockShown>) -> Snapshot {
        let mut stats = Stats::default();
        stats.gauges.locks_held = locks.len() as u64;
        stats.gauges.limit_maxbytes = 64 << 20;
        stats.counters.get_hits = 3;
        stats.counters.cmd_set = 9;
        stats.counters.cas_hits = 2;
        let mut lines = vec![
            ("version".to_owned(), "1.6.45".to_owned()),
            ("rusage_user".to_owned(), "1.000042".to_owned()),
            ("max_connections".to_owned(), "1024".to_owned()),
        ];
        report(&stats, &[]).each(StatsTopic::General, |name, value| {
            lines.push((name.to_owned(), value.to_owned()));
        });
        Snapshot {
            stats,
            lines,
            locks,
            tells_keys: true,
            uptime: Duration::from_secs(3_725),
            turns: Measured {
                buckets: [0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2],
                sum: Duration::from_micros(250_100),
            },
        }
    }

    /// A lock of this key.
    pub(crate) fn lock(key: &str) -> LockShown {
        LockShown {
            key: key.to_owned(),
            owner: 7,
            is_shared: false,
            holders: 1,
            peer: "tcp:127.0.0.1:4711".to_owned(),
            fence: 1 << 60,
            held: Duration::from_secs(3_601),
            silent: Duration::from_secs(61),
        }
    }
}
