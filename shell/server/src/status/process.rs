//! The process metrics, by the names that every Prometheus client library uses.
//!
//! Metrics that the kernel does not report are left out.
//!
//! Source: Prometheus "Writing client libraries", "Process metrics"; proc(5).

use rustix::process::{Resource, getrlimit};

/// One sample.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct ProcessUsage {
    pub(super) cpu_seconds: Option<f64>,
    pub(super) started_unix_s: Option<f64>,
    pub(super) resident_bytes: Option<u64>,
    pub(super) virtual_bytes: Option<u64>,
    pub(super) threads: Option<u64>,
    pub(super) open_descriptors: Option<u64>,
    pub(super) descriptors_max: Option<u64>,
}

impl ProcessUsage {
    pub(super) fn now() -> Self {
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let boot = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        let descriptors = std::fs::read_dir("/proc/self/fd");
        Self {
            // The opened folder is itself one of them.
            open_descriptors: descriptors
                .ok()
                .map(|folder| (folder.count() as u64).saturating_sub(1)),
            descriptors_max: getrlimit(Resource::Nofile).current,
            ..Self::read(
                &stat,
                &boot,
                rustix::param::clock_ticks_per_second(),
                rustix::param::page_size() as u64,
            )
        }
    }

    /// Reads `/proc/self/stat` and `/proc/stat`.
    // A number of ticks is far below 2^53.
    #[allow(clippy::cast_precision_loss)]
    fn read(stat: &str, boot: &str, ticks_per_s: u64, page_bytes: u64) -> Self {
        // From the third field on: the name before them may hold blanks.
        let fields = stat.rsplit(") ").next().unwrap_or_default();
        let fields: Vec<_> = fields.split_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        let seconds = |ticks: u64| ticks as f64 / ticks_per_s.max(1) as f64;
        let booted = boot.lines().find_map(|line| line.strip_prefix("btime "));
        let booted = booted.and_then(|text| text.trim().parse::<u64>().ok());
        let cpu = field(14).zip(field(15));
        Self {
            cpu_seconds: cpu.map(|(user, system)| seconds(user + system)),
            threads: field(20),
            started_unix_s: booted
                .zip(field(22))
                .map(|(booted, ticks)| booted as f64 + seconds(ticks)),
            virtual_bytes: field(23),
            resident_bytes: field(24).map(|pages| pages.saturating_mul(page_bytes)),
            open_descriptors: None,
            descriptors_max: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_blanks_moves_no_field() {
        let stat = "1 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20 0 7 0 1000 4096 3 0";
        let usage = ProcessUsage::read(stat, "cpu 1\nbtime 1000\n", 100, 4096);
        assert_eq!(usage.cpu_seconds, Some(2.0));
        assert_eq!(usage.threads, Some(7));
        assert_eq!(usage.started_unix_s, Some(1010.0));
        assert_eq!(usage.virtual_bytes, Some(4096));
        assert_eq!(usage.resident_bytes, Some(12_288));
        assert_eq!(
            ProcessUsage::read("", "", 100, 4096),
            ProcessUsage::default()
        );
    }

    #[test]
    fn this_process_takes_something() {
        let usage = ProcessUsage::now();
        assert!(usage.resident_bytes.is_some_and(|bytes| bytes > 0));
        assert!(usage.open_descriptors.is_some_and(|count| count > 0));
        assert!(usage.started_unix_s.is_some_and(|at| at > 1_000_000_000.0));
    }
}
