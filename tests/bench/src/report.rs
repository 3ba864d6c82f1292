//! All measurements, and their machine.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::figures::plot::{self, Chart};
use crate::tasks::hits::HitsReport;
use crate::tasks::instructions::InstructionsReport;
use crate::tasks::memory::report::MemoryReport;
use crate::tasks::pauses::report::PausesReport;
use crate::tasks::speed::standing::Standings;
use crate::tasks::speed::standing::report::charts;

/// The content of `--json`.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Report {
    pub(crate) machine: Machine,
    /// The command line.
    pub(crate) command: Vec<String>,
    /// Notes that a reader must know beside the figures.
    pub(crate) notes: Vec<String>,
    pub(crate) speed: Vec<Standings>,
    pub(crate) locks: Vec<Standings>,
    pub(crate) memory: Option<MemoryReport>,
    pub(crate) hits: Option<HitsReport>,
    pub(crate) pauses: Option<PausesReport>,
    pub(crate) instructions: Option<InstructionsReport>,
}

/// Where it was measured.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Machine {
    pub(crate) processor: String,
    pub(crate) processors: usize,
    pub(crate) kernel: String,
    /// Of the last minute, before the first measurement.
    pub(crate) load_average: f64,
}

impl Machine {
    /// This one; facts that it does not tell are left empty.
    pub(crate) fn here() -> Self {
        let read = |file: &str| fs::read_to_string(file).unwrap_or_default();
        Self {
            processor: parse_processor(&read("/proc/cpuinfo")).unwrap_or_default(),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            load_average: parse_load(&read("/proc/loadavg")).unwrap_or_default(),
        }
    }
}

impl Report {
    /// Everything, for programs.
    pub(crate) fn write_json(&self, file: &Path) -> Result<()> {
        let mut text = serde_json::to_string_pretty(self)?;
        text.push('\n');
        fs::write(file, text).with_context(|| file.display().to_string())
    }

    /// Everything that can be seen at a glance.
    pub(crate) fn write_svg(&self, file: &Path) -> Result<()> {
        plot::write(&self.charts(), file)
    }

    fn charts(&self) -> Vec<Chart> {
        let mut all = Vec::new();
        for (title, rows) in [("Speed", &self.speed), ("Locks", &self.locks)] {
            if !rows.is_empty() {
                all.extend(charts(title, rows));
            }
        }
        all.extend(self.memory.iter().flat_map(MemoryReport::charts));
        all.extend(self.hits.iter().flat_map(HitsReport::charts));
        all.extend(self.pauses.iter().flat_map(PausesReport::charts));
        all
    }
}

/// The first `model name` of /proc/cpuinfo.
fn parse_processor(text: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    line.split_once(':').map(|(_, name)| name.trim().to_owned())
}

/// The first number of /proc/loadavg.
fn parse_load(text: &str) -> Option<f64> {
    text.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_describes_the_machine() {
        let text = "processor\t: 0\nmodel name\t: A Processor @ 2 GHz\nmodel name\t: B\n";
        assert_eq!(
            parse_processor(text).as_deref(),
            Some("A Processor @ 2 GHz")
        );
        assert_eq!(parse_processor(""), None);
        assert_eq!(parse_load("0.52 0.58 0.59 1/467 28089\n"), Some(0.52));
        assert_eq!(parse_load(""), None);
    }
}
