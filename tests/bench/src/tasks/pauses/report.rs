//! The measurements of pauses, as tables and plots.

use std::fmt;

use latchd_load::latencies::Percentiles;
use latchd_load::table::Table;
use latchd_load::wire::item::KEY_BYTES;
use serde::Serialize;

use super::PHASES;
use crate::figures::plot::{Bar, Chart, Group};
use crate::load::innocent::VALUE_BYTES;

/// Of all servers.
#[derive(Debug, Serialize)]
pub(crate) struct PausesReport {
    pub(super) items: u32,
    pub(super) servers: Vec<Pauses>,
}

#[derive(Debug, Serialize)]
pub(super) struct Pauses {
    pub(super) label: String,
    /// One a phase.
    pub(super) phases: Vec<Phase>,
}

/// The delays of the innocent client.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Phase {
    pub(super) name: &'static str,
    pub(super) seconds: f64,
    pub(super) gets: Percentiles,
    pub(super) sets: Percentiles,
    /// The longest time for which the client itself was not running.
    pub(super) stood_us: f64,
    /// How much of the time the server or the load was ready and had no processor.
    pub(super) waited: f64,
    /// Further remarks.
    pub(super) note: String,
}

impl PausesReport {
    pub(crate) fn charts(&self) -> Vec<Chart> {
        let chart = |what: &str, part: fn(&Phase) -> Percentiles| {
            let group = |index: usize| Group {
                label: PHASES[index].to_owned(),
                bars: (self.servers.iter())
                    .map(|server| {
                        let seen = part(&server.phases[index]);
                        Some(Bar::up_to(seen.p99_99_us, seen.max_us))
                    })
                    .collect(),
            };
            Chart {
                title: format!(
                    "Pauses: {what}, µs at the 99.99th percentile and at most (less is better)"
                ),
                is_logarithmic: true,
                series: self.servers.iter().map(|s| s.label.clone()).collect(),
                groups: (0..PHASES.len()).map(group).collect(),
                ..Chart::default()
            }
        };
        vec![chart("get", |p| p.gets), chart("set", |p| p.sets)]
    }
}

impl fmt::Display for PausesReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "pauses: µs that one client waits for a get and a set, and for which it stood still itself; {} items of \
             {KEY_BYTES} + {VALUE_BYTES} B, 1 thread",
            self.items
        )?;
        let mut table = Table::new([
            "", "get p50", "p99.9", "p99.99", "most", "set p50", "p99.9", "p99.99", "most",
            "stood", "waited %", "",
        ]);
        for (index, name) in PHASES.iter().enumerate() {
            for server in &self.servers {
                let phase = &server.phases[index];
                let mut cells = vec![format!("{name}, {}", server.label)];
                for seen in [phase.gets, phase.sets] {
                    cells.extend(
                        [seen.p50_us, seen.p99_9_us, seen.p99_99_us, seen.max_us]
                            .map(|us| format!("{us:.0}")),
                    );
                }
                cells.push(format!("{:.0}", phase.stood_us));
                cells.push(format!("{:.1}", phase.waited * 100.0));
                cells.push(phase.note.clone());
                table.row(cells);
            }
        }
        write!(f, "{table}")
    }
}
