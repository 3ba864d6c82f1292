//! `/metrics`: what `stats` shows, in Prometheus' text form.
//!
//! - What memcached counts too has the names of its exporter, so that dashboards and alerts go on: nothing
//!   but the address to ask changes for them. What it does not count is `latchd_…`.
//! - Every line comes from one that `stats` shows: the two cannot disagree.
//!
//! Source: Prometheus "Exposition formats", text format 0.0.4; `memcached_exporter` 0.16,
//! `pkg/exporter/exporter.go`, `Collect`.

use std::fmt::{Display, Write};
use std::time::Duration;

use super::snapshot::Snapshot;
use crate::turn_times::{BOUNDS_US, Measured};

/// How a number moves.
#[derive(Clone, Copy)]
enum Kind {
    Counter,
    Gauge,
}
use Kind::{Counter, Gauge};

/// What `stats` calls it, what the exporter calls it, how it moves, and what it is.
const OF_MEMCACHED: &[(&str, &str, Kind, &str)] = &[
    (
        "uptime",
        "uptime_seconds",
        Counter,
        "Seconds since the server started.",
    ),
    ("time", "time_seconds", Gauge, "The server's Unix time."),
    (
        "rusage_user",
        "process_user_cpu_seconds_total",
        Counter,
        "Processor time in its own code.",
    ),
    (
        "rusage_system",
        "process_system_cpu_seconds_total",
        Counter,
        "Processor time in the kernel.",
    ),
    (
        "bytes_read",
        "read_bytes_total",
        Counter,
        "Bytes that came in.",
    ),
    (
        "bytes_written",
        "written_bytes_total",
        Counter,
        "Bytes that went out.",
    ),
    (
        "curr_connections",
        "current_connections",
        Gauge,
        "Connections that are open.",
    ),
    (
        "max_connections",
        "max_connections",
        Gauge,
        "Connections that may be open.",
    ),
    (
        "total_connections",
        "connections_total",
        Counter,
        "Connections that were opened.",
    ),
    (
        "rejected_connections",
        "connections_rejected_total",
        Counter,
        "Connections past -c that were closed.",
    ),
    (
        "conn_yields",
        "connections_yielded_total",
        Counter,
        "Times a connection gave way to the others.",
    ),
    (
        "listen_disabled_num",
        "connections_listener_disabled_total",
        Counter,
        "Times new connections had to wait.",
    ),
    (
        "accepting_conns",
        "accepting_connections",
        Gauge,
        "Whether new connections are accepted.",
    ),
    ("bytes", "current_bytes", Gauge, "Bytes that items take."),
    (
        "limit_maxbytes",
        "limit_bytes",
        Gauge,
        "Bytes that items may take.",
    ),
    (
        "curr_items",
        "current_items",
        Gauge,
        "Items that are stored.",
    ),
    (
        "total_items",
        "items_total",
        Counter,
        "Items that were ever stored.",
    ),
    (
        "evictions",
        "items_evicted_total",
        Counter,
        "Items that were taken out for room.",
    ),
    (
        "reclaimed",
        "items_reclaimed_total",
        Counter,
        "Items that were taken out after their TTL.",
    ),
    (
        "store_too_large",
        "item_too_large_total",
        Counter,
        "Values over -I.",
    ),
    (
        "store_no_memory",
        "item_no_memory_total",
        Counter,
        "Stores for which there was no room.",
    ),
    (
        "total_malloced",
        "malloced_bytes",
        Gauge,
        "Bytes that the store has allocated.",
    ),
    (
        "crawler_items_checked",
        "lru_crawler_items_checked_total",
        Counter,
        "Items that the crawler looked at.",
    ),
    (
        "crawler_reclaimed",
        "lru_crawler_reclaimed_total",
        Counter,
        "Items that the crawler took out.",
    ),
    (
        "direct_reclaims",
        "direct_reclaims_total",
        Counter,
        "Always 0 here.",
    ),
    (
        "lru_crawler_starts",
        "lru_crawler_starts_total",
        Counter,
        "Always 0 here.",
    ),
    (
        "moves_to_cold",
        "lru_crawler_moves_to_cold_total",
        Counter,
        "Always 0 here.",
    ),
    (
        "moves_to_warm",
        "lru_crawler_moves_to_warm_total",
        Counter,
        "Always 0 here.",
    ),
    (
        "moves_within_lru",
        "lru_crawler_moves_within_lru_total",
        Counter,
        "Always 0 here.",
    ),
];

/// Of `memcached_commands_total`: what `stats` calls it, command and status.
const COMMANDS: &[(&str, &str, &str)] = &[
    ("get_hits", "get", "hit"),
    ("get_misses", "get", "miss"),
    ("delete_hits", "delete", "hit"),
    ("delete_misses", "delete", "miss"),
    ("incr_hits", "incr", "hit"),
    ("incr_misses", "incr", "miss"),
    ("decr_hits", "decr", "hit"),
    ("decr_misses", "decr", "miss"),
    ("cas_hits", "cas", "hit"),
    ("cas_misses", "cas", "miss"),
    ("cas_badval", "cas", "badval"),
    ("touch_hits", "touch", "hit"),
    ("touch_misses", "touch", "miss"),
    ("cmd_flush", "flush", "hit"),
];

/// What memcached does not have: what `stats` calls it, its name here, how it moves, and what it is.
const OF_LATCHD: &[(&str, &str, Kind, &str)] = &[
    (
        "cmd_lock",
        "lock_requests_total",
        Counter,
        "Locks that were asked for.",
    ),
    (
        "lock_granted",
        "lock_granted_total",
        Counter,
        "Locks that were given.",
    ),
    (
        "lock_contended",
        "lock_contended_total",
        Counter,
        "Locks that somebody had already.",
    ),
    (
        "lock_misses",
        "lock_misses_total",
        Counter,
        "Locks of items that are not there.",
    ),
    (
        "lock_released",
        "lock_released_total",
        Counter,
        "Locks that were given back.",
    ),
    (
        "lock_died",
        "lock_died_total",
        Counter,
        "Locks that ended with their connection.",
    ),
    (
        "lock_refusals",
        "lock_refusals_total",
        Counter,
        "Changes refused because another connection holds the item.",
    ),
    (
        "fence_refusals",
        "fence_refusals_total",
        Counter,
        "Changes refused because the grant that they name is not in force.",
    ),
    (
        "lock_waits",
        "lock_waits_total",
        Counter,
        "Requests that have waited for a lock.",
    ),
    (
        "lock_wait_timeouts",
        "lock_wait_timeouts_total",
        Counter,
        "Requests that have waited for a lock in vain.",
    ),
    (
        "lock_deadlocks",
        "lock_deadlocks_total",
        Counter,
        "Requests refused because they would have waited for themselves.",
    ),
    (
        "lock_waiting",
        "lock_waiting",
        Gauge,
        "Connections that wait for a lock.",
    ),
    ("locks_held", "locks_held", Gauge, "Locks that are held."),
    (
        "lock_holders",
        "lock_holders",
        Gauge,
        "Connections that hold a lock.",
    ),
    (
        "locked_bytes",
        "locked_bytes",
        Gauge,
        "Bytes that locked items take.",
    ),
    (
        "win_sent",
        "win_sent_total",
        Counter,
        "Times a client was told to compute a value (W).",
    ),
    (
        "win_waits",
        "win_waits_total",
        Counter,
        "Times a client was told that another one computes it (Z).",
    ),
    (
        "wins_bound",
        "wins_bound",
        Gauge,
        "Wins that end with their connections.",
    ),
    (
        "win_reopened",
        "win_reopened_total",
        Counter,
        "Wins that were open again since their connections had ended.",
    ),
    (
        "get_waits",
        "get_waits_total",
        Counter,
        "Gets that have waited for a value.",
    ),
    (
        "get_wait_timeouts",
        "get_wait_timeouts_total",
        Counter,
        "Gets that have waited for a value in vain.",
    ),
    (
        "get_waiting",
        "get_waiting",
        Gauge,
        "Gets that wait for a value.",
    ),
    (
        "stale_marks",
        "stale_marks_total",
        Counter,
        "Items that were marked out of date.",
    ),
    (
        "get_expired",
        "get_expired_total",
        Counter,
        "Gets that found an item after its TTL.",
    ),
    (
        "read_buf_oom",
        "requests_no_memory_total",
        Counter,
        "Connections closed for requests that are not whole.",
    ),
    (
        "response_obj_oom",
        "answers_no_memory_total",
        Counter,
        "Connections closed for answers that are not taken.",
    ),
    (
        "auth_cmds",
        "authentications_total",
        Counter,
        "Times a client said who it is.",
    ),
    (
        "auth_errors",
        "authentication_failures_total",
        Counter,
        "Times that was wrong.",
    ),
    ("threads", "threads", Gauge, "Threads that serve clients."),
    (
        "log_dropped",
        "log_dropped_total",
        Counter,
        "Lines of the log that were dropped.",
    ),
];

/// The whole text.
pub(super) fn text(snapshot: &Snapshot) -> String {
    let mut out = Lines(String::new());
    out.family("memcached_up", Gauge, "Whether the server answers.");
    out.sample("memcached_up", "", 1);
    out.family(
        "memcached_version",
        Gauge,
        "The version that it answers as.",
    );
    let version = format!("{{version=\"{}\"}}", snapshot.line("version"));
    out.sample("memcached_version", &version, 1);
    out.family("latchd_version", Gauge, "The version of latchd.");
    let version = concat!("{version=\"", env!("CARGO_PKG_VERSION"), "\"}");
    out.sample("latchd_version", version, 1);
    out.lines(snapshot, "memcached_", OF_MEMCACHED);
    let name = "memcached_commands_total";
    out.family(name, Counter, "Requests by command and what came of them.");
    for (shown, command, status) in COMMANDS {
        out.sample(name, &labels(command, status), snapshot.line(shown));
    }
    let counters = &snapshot.stats.counters;
    let cas = counters.cas_hits + counters.cas_misses + counters.cas_badval;
    // A cas is a set as well.
    let sets = counters.cmd_set.saturating_sub(cas);
    out.sample(name, &labels("set", "hit"), sets);
    out.lines(snapshot, "latchd_", OF_LATCHD);
    out.histogram(
        "latchd_turn_seconds",
        "How long it takes to read, answer and send what a client has sent at a time; one in 64 is measured.",
        &snapshot.turns,
    );
    let gauges = &snapshot.stats.gauges;
    counters.each(|shown, value| out.nameless(shown, "_total", Counter, value));
    gauges.each(|shown, value| out.nameless(shown, "", Gauge, value));
    out.0
}

fn labels(command: &str, status: &str) -> String {
    format!("{{command=\"{command}\",status=\"{status}\"}}")
}

/// The text so far.
struct Lines(String);

impl Lines {
    fn family(&mut self, name: &str, kind: Kind, help: &str) {
        let kind = match kind {
            Counter => "counter",
            Gauge => "gauge",
        };
        // A string has no end.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &str, value: impl Display) {
        let _ = writeln!(self.0, "{name}{labels} {value}");
    }

    fn histogram(&mut self, name: &str, help: &str, turns: &Measured) {
        // A string has no end.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} histogram");
        let mut count = 0;
        for (index, turns) in turns.buckets.iter().enumerate() {
            count += turns;
            let bound = BOUNDS_US.get(index).map_or_else(
                || "+Inf".to_owned(),
                |bound| Duration::from_micros(*bound).as_secs_f64().to_string(),
            );
            self.sample(
                &format!("{name}_bucket"),
                &format!("{{le=\"{bound}\"}}"),
                count,
            );
        }
        self.sample(&format!("{name}_sum"), "", turns.sum.as_secs_f64());
        self.sample(&format!("{name}_count"), "", count);
    }

    /// What no table has: it is told all the same, by the name that `stats` shows.
    fn nameless(&mut self, shown: &str, ending: &str, kind: Kind, value: u64) {
        let mut tables = OF_MEMCACHED.iter().chain(OF_LATCHD);
        let is_command = COMMANDS.iter().any(|(of, ..)| *of == shown);
        if is_command || tables.any(|(of, ..)| *of == shown) {
            return;
        }
        let name = format!("latchd_{shown}{ending}");
        self.family(&name, kind, "As `stats` shows it.");
        self.sample(&name, "", value);
    }

    fn lines(&mut self, snapshot: &Snapshot, prefix: &str, of: &[(&str, &str, Kind, &str)]) {
        for (shown, name, kind, help) in of {
            let name = format!("{prefix}{name}");
            let value = snapshot.line(shown);
            if !value.is_empty() {
                self.family(&name, *kind, help);
                self.sample(&name, "", value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use latchd_core::stats::Stats;

    use super::super::snapshot::tests::snapshot;
    use super::*;

    #[test]
    fn whatever_the_core_counts_is_told() {
        let text = text(&snapshot(Vec::new()));
        let Stats { counters, gauges } = Stats::default();
        let tables = OF_MEMCACHED.iter().chain(OF_LATCHD);
        let named: Vec<_> = tables.map(|(shown, name, ..)| (*shown, *name)).collect();
        let is_told = |own: String, shown: &str| {
            let known = named.iter().find(|(of, _)| *of == shown);
            let name = known.map_or(own, |(_, name)| format!("_{name} "));
            let is_command = COMMANDS.iter().any(|(of, ..)| *of == shown);
            assert!(is_command || text.contains(&name), "{shown}");
        };
        counters.each(|shown, _| is_told(format!("latchd_{shown}_total "), shown));
        gauges.each(|shown, _| is_told(format!("latchd_{shown} "), shown));
    }

    #[test]
    fn it_is_what_prometheus_reads() {
        let text = text(&snapshot(Vec::new()));
        let mut families = BTreeSet::new();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').unwrap();
                assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
                assert!(families.insert(name.to_owned()), "{name} is there twice");
            } else if !line.starts_with("# HELP ") {
                let (sample, value) = line.rsplit_once(' ').unwrap();
                let name = sample.split('{').next().unwrap();
                let family = ["_bucket", "_sum", "_count"].iter().find_map(|part| {
                    let family = name.strip_suffix(part)?;
                    families.contains(family).then_some(family)
                });
                assert!(families.contains(family.unwrap_or(name)), "{line}");
                assert!(value.parse::<f64>().is_ok(), "{line}");
            }
        }
        for line in [
            "memcached_up 1",
            "memcached_version{version=\"1.6.45\"} 1",
            "memcached_process_user_cpu_seconds_total 1.000042",
            "memcached_limit_bytes 67108864",
            "memcached_commands_total{command=\"get\",status=\"hit\"} 3",
            "memcached_commands_total{command=\"set\",status=\"hit\"} 7",
            "latchd_locks_held 0",
            "latchd_turn_seconds_bucket{le=\"0.00001\"} 0",
            "latchd_turn_seconds_bucket{le=\"0.000025\"} 5",
            "latchd_turn_seconds_bucket{le=\"0.1\"} 6",
            "latchd_turn_seconds_bucket{le=\"+Inf\"} 8",
            "latchd_turn_seconds_sum 0.2501",
            "latchd_turn_seconds_count 8",
        ] {
            assert!(text.lines().any(|shown| shown == line), "{line}\n{text}");
        }
    }
}
