//! A snapshot of the server, for the pages of the status port.

use std::cmp::Reverse;
use std::time::Duration;

use latchd_core::times::Times;
use latchd_core::{ConnId, Instant, Owner};
use latchd_protocol::stats::{Report, Stats, StatsLine, StatsTopic};
use serde::{Serialize, Serializer};

use super::process::ProcessUsage;
use crate::cluster::AnswerTimes;
use crate::server_state::ServerState;
use crate::stats::turn_times::Measured;

/// The most locks in a snapshot.
pub(super) const LOCKS_SHOWN_MAX: usize = 1000;

/// One snapshot.
#[derive(Debug)]
pub(super) struct Snapshot {
    /// Counters and gauges.
    pub(super) stats: Stats,
    /// The `stats` lines.
    pub(super) lines: Vec<(String, String)>,
    /// The `stats items` and `stats slabs` lines of the one class, without the class number.
    pub(super) of_class: Vec<(String, String)>,
    /// Some of the locks, if keys may be shown: those with the most waiting clients first, then the oldest.
    pub(super) locks: Vec<LockShown>,
    /// How long the oldest lock with waiting clients has been held; zero without such a lock.
    pub(super) blocking: Duration,
    /// Whether keys may be shown: `-X`.
    pub(super) tells_keys: bool,
    /// The time since the server's start.
    pub(super) uptime: Duration,
    /// The lengths of turns.
    pub(super) turns: Measured,
    /// How long ended locks were held.
    pub(super) hold_times: Times,
    /// How long ended lock waits were.
    pub(super) wait_times: Times,
    /// The answers of the authority to a member of a cluster.
    pub(super) answers: Option<AnswerTimes>,
    /// The process metrics.
    pub(super) process: ProcessUsage,
}

/// A lock and its holders. The fields are those of `/locks.json`, in its order.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub(super) struct LockShown {
    /// The key; bytes outside printable ASCII are written as `\x..`.
    pub(super) key: String,
    /// The holder's connection number, as in the log and in `me … lock=`; that of its session if it is one.
    #[serde(rename = "connection")]
    pub(super) owner: u64,
    /// The holder's address; empty if it has just left, or if its session has no connection.
    pub(super) peer: String,
    /// The metadata in the form of the key, if the lock has some.
    pub(super) metadata: Option<String>,
    /// The fence of the grant. It is text: most JSON readers keep 53 bits of a number.
    pub(super) fence: String,
    /// The time since its acquisition.
    #[serde(rename = "held_s", serialize_with = "seconds")]
    pub(super) held: Duration,
    /// The time since its holder's last request.
    #[serde(rename = "silent_s", serialize_with = "seconds")]
    pub(super) silent: Duration,
    /// Whether the lock is shared; `owner` is then its first holder.
    #[serde(rename = "mode", serialize_with = "mode")]
    pub(super) is_shared: bool,
    /// The number of holders.
    pub(super) holders: usize,
    /// The most holders, if a holder limits them; 1 if the lock is exclusive.
    pub(super) permits: Option<u32>,
    /// The remaining lease, if it has one.
    #[serde(rename = "lease_s", serialize_with = "seconds_left")]
    pub(super) lease: Option<Duration>,
    /// The holder's session, if it is one.
    pub(super) session: Option<HolderSession>,
    /// The number of waiting clients.
    pub(super) waiting: usize,
    /// The first of them.
    #[serde(rename = "waiters")]
    pub(super) first_waiters: Vec<WaiterShown>,
}

/// The session of a holder.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub(super) struct HolderSession {
    /// Its connection, if it has one.
    pub(super) attached: Option<u64>,
    /// How long it lasts if its client is not heard, in whole seconds.
    pub(super) left_s: u64,
}

/// A client that waits for a lock.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub(super) struct WaiterShown {
    /// The connection's number.
    #[serde(rename = "connection")]
    pub(super) conn: u64,
    /// The client's address; empty if it has just left.
    pub(super) peer: String,
    /// Whether it waits for a shared lock.
    #[serde(rename = "mode", serialize_with = "mode")]
    pub(super) is_shared: bool,
}

/// The mode as in `stats locks`.
#[allow(clippy::trivially_copy_pass_by_ref)] // The form of serde.
fn mode<S: Serializer>(is_shared: &bool, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_char(if *is_shared { 's' } else { 'x' })
}

fn seconds<S: Serializer>(span: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u64(span.as_secs())
}

/// The remaining time in whole seconds, as in `stats locks`.
#[allow(clippy::ref_option)] // The form of serde.
fn seconds_left<S: Serializer>(span: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
    span.map(|span| span.as_millis().div_ceil(1000))
        .serialize(to)
}

impl Snapshot {
    pub(super) fn take(shared: &ServerState) -> Self {
        let now = shared.clock.now();
        let seen = shared.shards.look(now, LOCKS_SHOWN_MAX);
        let stats = seen.stats;
        let since =
            |then: Instant| Duration::from_millis(now.as_millis().saturating_sub(then.as_millis()));
        let transport = shared.stats_lines(StatsTopic::General);
        let mut lines = Vec::new();
        report(&stats, &transport).each(StatsTopic::General, |name, value| {
            lines.push((name.to_owned(), value.to_owned()));
        });
        let of_class = of_class(&stats);
        let tells_keys = shared.config.allowed.listing;
        let mut locks: Vec<_> = seen
            .locks
            .into_iter()
            .filter(|_| tells_keys)
            .map(|lock| {
                let holding = lock.holding;
                let owner = holding.owner.number();
                let (peer, silent, session) = found(shared, holding.owner, now);
                let lease = holding.lease_until.map(|until| {
                    let left_ms = until.as_millis().saturating_sub(now.as_millis());
                    Duration::from_millis(left_ms)
                });
                let waiters = lock.first_waiters.into_iter();
                let first_waiters = waiters.map(|(owner, is_shared)| {
                    let (peer, ..) = found(shared, owner, now);
                    WaiterShown {
                        conn: owner.number(),
                        peer,
                        is_shared,
                    }
                });
                LockShown {
                    lease,
                    waiting: lock.waiting,
                    first_waiters: first_waiters.collect(),
                    key: readable(&lock.key),
                    owner,
                    is_shared: holding.mode.is_shared(),
                    holders: lock.holders,
                    session,
                    permits: (lock.permits < u32::MAX).then_some(lock.permits),
                    peer,
                    metadata: lock.metadata.as_deref().map(readable),
                    fence: holding.fence.number().to_string(),
                    held: since(holding.since),
                    silent,
                }
            })
            .collect();
        // A lock that delays many clients comes first; among these, the one held longest may be stuck.
        locks.sort_by(|one, other| {
            let place = |lock: &LockShown| (Reverse(lock.waiting), Reverse(lock.held), lock.owner);
            let order = place(one).cmp(&place(other));
            order.then_with(|| one.key.cmp(&other.key))
        });
        Self {
            stats,
            lines,
            of_class,
            locks,
            blocking: seen.blocking_since.map_or(Duration::ZERO, since),
            tells_keys,
            uptime: shared.clock.uptime(),
            turns: shared.connection_stats.turn_times(),
            hold_times: seen.hold_times,
            wait_times: shared.waiters.lock_times(),
            answers: shared.member.as_ref().map(|member| member.answers()),
            process: ProcessUsage::now(),
        }
    }

    /// The value of a `stats` line; empty if there is none.
    pub(super) fn line(&self, name: &str) -> &str {
        value(&self.lines, name)
    }

    /// The value of a `stats items` or `stats slabs` line of the one class; empty if there is none.
    pub(super) fn of_class(&self, name: &str) -> &str {
        value(&self.of_class, name)
    }
}

/// The address of an owner, the time since its last request, and its session.
fn found(
    shared: &ServerState,
    owner: Owner,
    now: Instant,
) -> (String, Duration, Option<HolderSession>) {
    let mut conn = Some(owner.number());
    let mut session = None;
    if owner.is_session()
        && let Some(shown) = shared.shards.session_shown(now, owner)
    {
        conn = shown.conn.map(ConnId::number);
        session = Some(HolderSession {
            attached: conn,
            left_s: shown.left_ms.div_ceil(1000),
        });
    }
    let found = conn.and_then(|conn| shared.connection_table.find(conn, now));
    let (peer, silent) = found.unwrap_or_default();
    (peer, silent, session)
}

fn value<'a>(lines: &'a [(String, String)], name: &str) -> &'a str {
    let found = lines.iter().find(|(shown, _)| shown == name);
    found.map_or("", |(_, value)| value)
}

/// A key or metadata as text for a person: UTF-8 as it is. A backslash, an invisible character or a byte that is no UTF-8 is escaped as
/// in Rust, so that the bytes can be read back.
pub(super) fn readable(key: &[u8]) -> String {
    let mut text = String::new();
    for chunk in key.utf8_chunks() {
        // Quotes need no escape.
        for part in chunk.valid().split_inclusive(['"', '\'']) {
            let plain = part.trim_end_matches(['"', '\'']);
            text.extend(plain.escape_debug());
            text.push_str(&part[plain.len()..]);
        }
        text.extend(chunk.invalid().escape_ascii().map(char::from));
    }
    text
}

fn of_class(stats: &Stats) -> Vec<(String, String)> {
    let mut lines = Vec::new();
    for (topic, class) in [(StatsTopic::Items, "items:1:"), (StatsTopic::Slabs, "1:")] {
        report(stats, &[]).each(topic, |name, value| {
            if let Some(name) = name.strip_prefix(class) {
                lines.push((name.to_owned(), value.to_owned()));
            }
        });
    }
    lines
}

fn report<'a>(stats: &'a Stats, lines: &'a [StatsLine]) -> Report<'a> {
    Report {
        stats,
        lines,
        next: None,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    #[test]
    fn utf8_keys_are_text() {
        for (key, text) in [
            (&b"caf\xc3\xa9:e\xcc\x81"[..], "caf\u{e9}:e\u{301}"),
            ("鍵🔒'\"".as_bytes(), "鍵🔒'\""),
            (b"''\"\\'x", "''\"\\\\'x"),
            // An override of the direction hides how a key reads.
            ("a\u{202e}b".as_bytes(), "a\\u{202e}b"),
            (b"\x01\xff\xc3(", "\\u{1}\\xff\\xc3("),
        ] {
            assert_eq!(readable(key), text);
        }
    }

    /// A snapshot of a server with these locks.
    pub(crate) fn snapshot(locks: Vec<LockShown>) -> Snapshot {
        let mut stats = Stats::default();
        stats.gauges.locks_held = locks.len() as u64;
        stats.gauges.limit_maxbytes = 64 << 20;
        stats.gauges.held_bytes = 1 << 20;
        stats.counters.get_hits = 3;
        stats.counters.cmd_set = 9;
        stats.counters.cas_hits = 2;
        stats.gauges.curr_items = 1;
        let mut lines = vec![
            ("version".to_owned(), "1.6.45".to_owned()),
            ("rusage_user".to_owned(), "1.000042".to_owned()),
            ("max_connections".to_owned(), "1024".to_owned()),
        ];
        report(&stats, &[]).each(StatsTopic::General, |name, value| {
            lines.push((name.to_owned(), value.to_owned()));
        });
        Snapshot {
            of_class: of_class(&stats),
            stats,
            lines,
            locks,
            blocking: Duration::from_millis(61_500),
            tells_keys: true,
            uptime: Duration::from_secs(3_725),
            turns: Measured {
                buckets: [0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2],
                sum: Duration::from_micros(250_100),
            },
            hold_times: times(&[3, 70, 90_000_000]),
            wait_times: times(&[1]),
            answers: None,
            process: ProcessUsage {
                resident_bytes: Some(8 << 20),
                virtual_bytes: Some(100 << 20),
                open_descriptors: Some(42),
                descriptors_max: Some(1024),
                threads: Some(6),
                cpu_seconds: Some(1.5),
                started_unix_s: Some(1_700_000_000.25),
            },
        }
    }

    fn times(spans_ms: &[u64]) -> Times {
        let mut times = Times::default();
        for ms in spans_ms {
            times.note(*ms);
        }
        times
    }

    /// A lock of this key.
    pub(crate) fn lock(key: &str) -> LockShown {
        LockShown {
            key: key.to_owned(),
            owner: 7,
            is_shared: false,
            holders: 1,
            session: None,
            permits: Some(1),
            peer: "tcp:127.0.0.1:4711".to_owned(),
            metadata: None,
            fence: "1152921504606846976".to_owned(),
            held: Duration::from_secs(3_601),
            silent: Duration::from_secs(61),
            lease: None,
            waiting: 0,
            first_waiters: Vec::new(),
        }
    }
}
