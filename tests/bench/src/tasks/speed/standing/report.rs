//! The rows of a speed run, as tables and plots.

use std::fmt;

use latchd_load::table::{Table, grouped, mib};

use super::{Against, Standing, Standings, Whose};
use crate::figures::plot::{Bar, Chart, Group};
use crate::figures::statistics::Spread;

/// The highest ratio that is plotted: one that is far beyond all others would hide them.
const TOP: f64 = 3.0;

/// Two charts of all rows: operations and processor time, against the one to beat.
pub(crate) fn charts(title: &str, rows: &[Standings]) -> Vec<Chart> {
    let all = || rows.iter().flat_map(|row| &row.servers);
    let mut series: Vec<String> = Vec::new();
    for standing in all() {
        if !series.contains(&standing.label) {
            series.push(standing.label.clone());
        }
    }
    let to_beat = if all().any(|standing| standing.whose == Whose::Memcached) {
        "the faster memcached"
    } else {
        "the fastest of the others"
    };
    let chart = |what: &str, which: &str, part: fn(&Against) -> Spread| Chart {
        title: format!("{title}: {what} against {to_beat} ({which} is better)"),
        top: Some(TOP),
        reference: Some(1.0),
        series: series.clone(),
        groups: rows.iter().map(|row| row.group(&series, part)).collect(),
        ..Chart::default()
    };
    vec![
        chart("operations a second", "more", |a| a.operations),
        chart("processor time an operation", "less", |a| a.cpu),
    ]
}

impl Standings {
    /// The ratios of a chart's group: one bar a server that is in the row.
    fn group(&self, series: &[String], part: fn(&Against) -> Spread) -> Group {
        let bar = |label: &String| {
            let standing = self.servers.iter().find(|s| s.label == *label)?;
            Some(
                standing
                    .against
                    .as_ref()
                    .map_or(Bar::exactly(1.0), |a| Bar::of(part(a))),
            )
        };
        Group {
            label: self.row.to_owned(),
            bars: series.iter().map(bar).collect(),
        }
    }
}

impl fmt::Display for Standings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            row,
            about,
            dialect,
            value_bytes,
            keys,
            cores,
            ..
        } = self;
        let keys = grouped(f64::from(*keys));
        writeln!(
            f,
            "{row}: {about}; {dialect}, values of {value_bytes} B, {keys} keys; {cores}"
        )?;
        let mut table = Table::new([
            "",
            "op/s",
            "against",
            "CPU µs/op",
            "against",
            "p50 µs",
            "against",
            "p99 µs",
            "p99.9 µs",
            "calls/op",
            "server %",
            "load %",
            "load µs/op",
            "RSS MiB",
            "waited %",
            "others %",
        ]);
        for standing in &self.servers {
            table.row(standing.cells());
        }
        write!(f, "{table}")?;
        for pair in &self.locks_against_gets {
            writeln!(
                f,
                "  {}: a lock or unlock against a get: operations {}, processor time {}",
                pair.label,
                ratio(pair.operations),
                ratio(pair.cpu)
            )?;
        }
        let ours = self.servers.iter().find(|s| s.whose == Whose::Ours);
        if let (Some(aim), Some(against)) = (self.aim, ours.and_then(|ours| ours.against)) {
            let verdict = if against.operations.median >= aim {
                "met"
            } else {
                "missed"
            };
            let median = against.operations.median;
            writeln!(
                f,
                "  aim: at least {aim:.2} times the operations; {median:.2}: {verdict}"
            )?;
        }
        if self.servers.iter().any(Standing::is_disturbed) {
            writeln!(
                f,
                "  disturbed: others worked, or the load had to wait for its processor"
            )?;
        }
        Ok(())
    }
}

fn ratio(spread: Spread) -> String {
    let Spread { median, min, max } = spread;
    format!("{median:.2} ({min:.2} to {max:.2})")
}

impl Standing {
    fn cells(&self) -> Vec<String> {
        let percent = |share: Spread| format!("{:.0}", share.median * 100.0);
        let against = |part: fn(&Against) -> Spread| match &self.against {
            Some(against) => ratio(part(against)),
            None => "-".to_owned(),
        };
        let waited = self.server_waited.median.max(self.load_waited.median);
        let calls = self.syscalls_per_operation;
        vec![
            self.label.clone(),
            grouped(self.operations_per_second.median),
            against(|against| against.operations),
            format!("{:.3}", self.cpu_us_per_operation.median),
            against(|against| against.cpu),
            format!("{:.1}", self.p50_us.median),
            against(|against| against.p50),
            format!("{:.1}", self.p99_us.median),
            format!("{:.1}", self.p99_9_us.median),
            calls.map_or("?".to_owned(), |calls| format!("{calls:.3}")),
            percent(self.server_busy),
            percent(self.load_busy),
            format!("{:.3}", self.load_cpu_us_per_operation.median),
            mib(self.rss_bytes),
            format!("{:.1}", waited * 100.0),
            format!("{:.1}", self.others_busy.median * 100.0),
        ]
    }
}
