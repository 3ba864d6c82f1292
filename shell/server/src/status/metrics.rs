//! `/metrics`: the `stats` lines, in Prometheus' text format.
//!
//! - Metrics that memcached has too have the names of its exporter, so dashboards and alerts need only a new
//!   address. The others are named `latchd_…`.
//! - Every metric but histograms, ages and `process_…` comes from a `stats` line, so the two cannot disagree.
//!
//! Source: Prometheus "Exposition formats", text format 0.0.4; `memcached_exporter` 0.16,
//! `pkg/exporter/exporter.go`, `Collect`.

use std::fmt::{Display, Write};
use std::time::Duration;

use latchd_core::times::TIME_BOUNDS_MS;

use self::families::Kind::{self, Counter, Gauge};
use self::families::{
    CLASS_COMMANDS, COMMANDS, LRU_HITS, OF_CLASS, OF_LATCHD, OF_MEMCACHED, OF_PROCESS,
};
use super::process::ProcessUsage;
use super::snapshot::Snapshot;
use crate::cluster::AnswerTimes;
use crate::stats::turn_times::BOUNDS_US;

mod families;

/// The whole text.
pub(super) fn text(snapshot: &Snapshot) -> String {
    let mut out = Lines(String::new());
    out.family("memcached_up", Gauge, "1 if the server responds.");
    out.sample("memcached_up", "", 1);
    out.family("memcached_version", Gauge, "Version reported to clients.");
    let version = format!("{{version=\"{}\"}}", snapshot.line("version"));
    out.sample("memcached_version", &version, 1);
    out.family("latchd_version", Gauge, "Version of latchd.");
    let version = concat!("{version=\"", env!("CARGO_PKG_VERSION"), "\"}");
    out.sample("latchd_version", version, 1);
    out.lines(snapshot, "memcached_", OF_MEMCACHED);
    let name = "memcached_commands_total";
    out.family(name, Counter, "Requests by command and result.");
    for (shown, command, status) in COMMANDS {
        out.sample(name, &labels(command, status), snapshot.line(shown));
    }
    let counters = &snapshot.stats.counters;
    let cas = counters.cas_hits + counters.cas_misses + counters.cas_badval;
    // A cas is a set as well.
    let sets = counters.cmd_set.saturating_sub(cas);
    out.sample(name, &labels("set", "hit"), sets);
    out.lines(snapshot, "latchd_", OF_LATCHD);
    member(&mut out, snapshot);
    class(&mut out, snapshot);
    process(&mut out, &snapshot.process);
    let turns = &snapshot.turns;
    out.histogram(
        "latchd_turn_seconds",
        "Time to read, execute and answer one batch of a client's requests; one in 64 is measured.",
        &BOUNDS_US.map(Duration::from_micros),
        &turns.buckets,
        turns.sum,
    );
    let bounds = TIME_BOUNDS_MS.map(Duration::from_millis);
    for (name, help, times) in [
        (
            "latchd_lock_wait_seconds",
            "Time that lock requests waited until they got the lock or gave up.",
            &snapshot.wait_times,
        ),
        (
            "latchd_lock_hold_seconds",
            "Time that ended locks were held; each holder of a shared lock counts.",
            &snapshot.hold_times,
        ),
    ] {
        let sum = Duration::from_millis(times.sum_ms);
        out.histogram(name, help, &bounds, &times.counts, sum);
    }
    let name = "latchd_lock_blocking_seconds";
    let help =
        "Longest time that a lock with waiting clients has been held; 0 without such a lock.";
    out.family(name, Gauge, help);
    out.sample(name, "", snapshot.blocking.as_secs_f64());
    let gauges = &snapshot.stats.gauges;
    counters.each(|shown, help, value| out.nameless(shown, "_total", (Counter, help), value));
    gauges.each(|shown, help, value| out.nameless(shown, "", (Gauge, help), value));
    out.0
}

/// Writes the times of a member of a cluster.
fn member(out: &mut Lines, snapshot: &Snapshot) {
    if let Ok(hold_ms) = snapshot.line("cluster_hold_ms").parse() {
        let name = "latchd_cluster_hold_seconds";
        let help = "Time that the server may serve without an answer of etcd.";
        out.family(name, Gauge, help);
        out.sample(name, "", Duration::from_millis(hold_ms).as_secs_f64());
    }
    if let Some(answers) = &snapshot.answers {
        out.histogram(
            "latchd_cluster_answer_seconds",
            "Time until etcd answered a request.",
            &AnswerTimes::BOUNDS_MS.map(Duration::from_millis),
            answers.buckets(),
            answers.sum(),
        );
    }
}

/// Writes the exporter's metrics of slab classes: none until the store has memory.
fn class(out: &mut Lines, snapshot: &Snapshot) {
    let name = "memcached_malloced_bytes";
    out.family(name, Gauge, "Bytes allocated for items.");
    let held_bytes = snapshot.stats.gauges.held_bytes;
    out.sample(name, "", held_bytes);
    if held_bytes == 0 {
        return;
    }
    let slab = "{slab=\"1\"}";
    for (shown, name, kind, help) in OF_CLASS {
        let value = snapshot.of_class(shown);
        if !value.is_empty() {
            let name = format!("memcached_slab_{name}");
            out.family(&name, *kind, help);
            out.sample(&name, slab, value);
        }
    }
    if !snapshot.of_class("hits_to_cold").is_empty() {
        let name = "memcached_slab_lru_hits_total";
        out.family(name, Counter, "Gets that found an item.");
        for (shown, lru) in LRU_HITS {
            let labels = format!("{{slab=\"1\",lru=\"{lru}\"}}");
            out.sample(name, &labels, snapshot.of_class(shown));
        }
    }
    let name = "memcached_slab_commands_total";
    out.family(name, Counter, "Requests by command and result.");
    let labels = |command: &str, status: &str| {
        format!("{{slab=\"1\",command=\"{command}\",status=\"{status}\"}}")
    };
    for (shown, command, status) in CLASS_COMMANDS {
        out.sample(name, &labels(command, status), snapshot.of_class(shown));
    }
    let counters = &snapshot.stats.counters;
    let cas = counters.cas_hits + counters.cas_badval;
    out.sample(
        name,
        &labels("set", "hit"),
        counters.cmd_set.saturating_sub(cas),
    );
}

/// Writes the process metrics that the kernel reports.
fn process(out: &mut Lines, usage: &ProcessUsage) {
    let ProcessUsage {
        cpu_seconds,
        started_unix_s,
        resident_bytes,
        virtual_bytes,
        threads,
        open_descriptors,
        descriptors_max,
    } = usage;
    let values = [
        cpu_seconds.map(shown),
        started_unix_s.map(shown),
        resident_bytes.map(shown),
        virtual_bytes.map(shown),
        threads.map(shown),
        open_descriptors.map(shown),
        descriptors_max.map(shown),
    ];
    for ((name, kind, help), value) in OF_PROCESS.into_iter().zip(values) {
        if let Some(value) = value {
            let name = format!("process_{name}");
            out.family(&name, kind, help);
            out.sample(&name, "", value);
        }
    }
}

fn shown(value: impl Display) -> String {
    value.to_string()
}

fn labels(command: &str, status: &str) -> String {
    format!("{{command=\"{command}\",status=\"{status}\"}}")
}

/// The text written so far.
struct Lines(String);

impl Lines {
    fn family(&mut self, name: &str, kind: Kind, help: &str) {
        let kind = match kind {
            Counter => "counter",
            Gauge => "gauge",
        };
        // Writing to a string never fails.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &str, value: impl Display) {
        let _ = writeln!(self.0, "{name}{labels} {value}");
    }

    /// Writes a histogram: the count of each bucket; the last one holds the values beyond all bounds.
    fn histogram(
        &mut self,
        name: &str,
        help: &str,
        bounds: &[Duration],
        buckets: &[u64],
        sum: Duration,
    ) {
        // Writing to a string never fails.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} histogram");
        let mut count = 0;
        for (index, bucket) in buckets.iter().enumerate() {
            count += bucket;
            let bound = bounds.get(index).map_or_else(
                || "+Inf".to_owned(),
                |bound| bound.as_secs_f64().to_string(),
            );
            self.sample(
                &format!("{name}_bucket"),
                &format!("{{le=\"{bound}\"}}"),
                count,
            );
        }
        self.sample(&format!("{name}_sum"), "", sum.as_secs_f64());
        self.sample(&format!("{name}_count"), "", count);
    }

    /// Writes a line that no table has, under its name in `stats`.
    fn nameless(&mut self, shown: &str, ending: &str, (kind, help): (Kind, &str), value: u64) {
        let mut tables = OF_MEMCACHED.iter().chain(OF_LATCHD);
        let is_command = COMMANDS.iter().any(|(of, ..)| *of == shown);
        if is_command || tables.any(|(of, ..)| *of == shown) {
            return;
        }
        let name = format!("latchd_{shown}{ending}");
        self.family(&name, kind, help);
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

    use latchd_protocol::stats::Stats;

    use super::super::snapshot::tests::snapshot;
    use super::*;

    #[test]
    fn every_core_counter_is_a_metric() {
        let text = text(&snapshot(Vec::new()));
        let Stats { counters, gauges } = Stats::default();
        let tables = OF_MEMCACHED.iter().chain(OF_LATCHD);
        let named: Vec<_> = tables.map(|(shown, name, ..)| (*shown, *name)).collect();
        let expect_metric = |own: String, shown: &str| {
            let known = named.iter().find(|(of, _)| *of == shown);
            let name = known.map_or(own, |(_, name)| format!("_{name} "));
            let is_command = COMMANDS.iter().any(|(of, ..)| *of == shown);
            assert!(is_command || text.contains(&name), "{shown}");
        };
        counters.each(|shown, _, _| expect_metric(format!("latchd_{shown}_total "), shown));
        gauges.each(|shown, _, _| expect_metric(format!("latchd_{shown} "), shown));
    }

    #[test]
    fn prometheus_can_read_the_text() {
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
            "latchd_lock_blocking_seconds 61.5",
            "latchd_turn_seconds_bucket{le=\"0.00001\"} 0",
            "latchd_turn_seconds_bucket{le=\"0.000025\"} 5",
            "latchd_turn_seconds_bucket{le=\"0.1\"} 6",
            "latchd_turn_seconds_bucket{le=\"+Inf\"} 8",
            "latchd_turn_seconds_sum 0.2501",
            "latchd_turn_seconds_count 8",
            "latchd_lock_wait_seconds_bucket{le=\"0.001\"} 1",
            "latchd_lock_hold_seconds_bucket{le=\"0.005\"} 1",
            "latchd_lock_hold_seconds_bucket{le=\"0.1\"} 2",
            "latchd_lock_hold_seconds_bucket{le=\"86400\"} 2",
            "latchd_lock_hold_seconds_bucket{le=\"+Inf\"} 3",
            "latchd_lock_hold_seconds_sum 90000.073",
            "memcached_slab_current_items{slab=\"1\"} 1",
            "memcached_slab_chunk_size_bytes{slab=\"1\"} 1",
            "memcached_slab_lru_hits_total{slab=\"1\",lru=\"cold\"} 3",
            "memcached_slab_commands_total{slab=\"1\",command=\"get\",status=\"hit\"} 3",
            "memcached_slab_commands_total{slab=\"1\",command=\"set\",status=\"hit\"} 7",
            "process_cpu_seconds_total 1.5",
            "process_start_time_seconds 1700000000.25",
            "process_resident_memory_bytes 8388608",
            "process_open_fds 42",
            "process_max_fds 1024",
        ] {
            assert!(text.lines().any(|shown| shown == line), "{line}\n{text}");
        }
    }
}
