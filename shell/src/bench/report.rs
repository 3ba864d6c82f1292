//! The figures of a measurement, as a table with a histogram or as JSON.

use std::fmt;
use std::time::Duration;

use latchd_load::latencies::Latencies;
use latchd_load::table::{Table, grouped};
use serde::Serialize;

use super::work::Figures;
use super::{BenchArgs, Kind, name};

/// From this share on, the load's own processor may be the limit.
const BUSY: f64 = 0.9;

/// The widest bar of a histogram, in characters.
const BAR: u64 = 40;

/// The measurements of one phase.
pub(super) struct Measured {
    pub(super) figures: Figures,
    /// The latencies of all requests.
    pub(super) all: Latencies,
    pub(super) elapsed: Duration,
    /// The largest share of the time for which a thread of the load had a processor.
    pub(super) busy: f64,
}

/// The content of `--json`.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    server: String,
    workload: String,
    protocol: String,
    clients: u32,
    threads: u32,
    pipeline: u32,
    keys: u32,
    /// Of the workload cache.
    #[serde(flatten)]
    items: Option<Items>,
    seconds: f64,
    interrupted: bool,
    load_busy: f64,
    operations: Vec<Row>,
}

/// The items of the workload cache.
#[derive(Debug, Serialize)]
struct Items {
    distribution: String,
    value_bytes: u32,
    gets_percent: u8,
    /// Gets that found nothing.
    misses: u64,
}

/// One kind of operation.
#[derive(Debug, Serialize)]
struct Row {
    name: &'static str,
    count: u64,
    per_second: f64,
    p50_us: f64,
    p90_us: f64,
    p99_us: f64,
    p99_9_us: f64,
    max_us: f64,
    histogram: Vec<Step>,
}

/// A step of a histogram.
#[derive(Debug, Serialize)]
struct Step {
    up_to_us: u64,
    count: u64,
}

impl Report {
    pub(super) fn new(
        args: &BenchArgs,
        address: &str,
        measured: &Measured,
        is_interrupted: bool,
    ) -> Self {
        let Figures {
            first,
            second,
            handovers,
            misses,
        } = &measured.figures;
        let rows = match args.workload {
            Kind::Cache => vec![("get", first), ("set", second), ("all", &measured.all)],
            Kind::Lock => vec![("lock", first), ("unlock", second), ("all", &measured.all)],
            Kind::Handover => vec![
                ("lock", first),
                ("unlock", second),
                ("hand-over", handovers),
            ],
        };
        let seconds = measured.elapsed.as_secs_f64();
        let rows = rows
            .into_iter()
            .filter(|(_, latencies)| latencies.count() > 0);
        Self {
            server: address.to_owned(),
            workload: name(&args.workload),
            protocol: name(&args.protocol),
            clients: args.clients,
            threads: args.threads.min(args.clients),
            pipeline: args.pipeline,
            keys: args.keys(),
            items: (args.workload == Kind::Cache).then(|| Items {
                distribution: name(&args.distribution),
                value_bytes: args.value_size,
                gets_percent: args.gets,
                misses: *misses,
            }),
            seconds,
            interrupted: is_interrupted,
            load_busy: measured.busy,
            operations: rows
                .map(|(name, latencies)| Row::new(name, latencies, seconds))
                .collect(),
        }
    }

    /// The report as JSON, with a line end.
    pub(super) fn json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("each key of a report is a text");
        text.push('\n');
        text
    }

    /// The notes below the table.
    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let misses = self.items.as_ref().map_or(0, |items| items.misses);
        if misses > 0 {
            notes.push(format!(
                "{} gets found nothing: the server has evicted or does not have their keys",
                grouped(misses as f64)
            ));
        }
        if self.load_busy > BUSY {
            notes.push(format!(
                "a thread of the load was busy for {:.0} % of the time and may be the limit; raise --threads if \
                 processors are free",
                self.load_busy * 100.0
            ));
        }
        if self.interrupted {
            notes.push("interrupted".into());
        }
        notes
    }
}

impl Row {
    fn new(name: &'static str, latencies: &Latencies, seconds: f64) -> Self {
        let step = |(up_to_us, count)| Step { up_to_us, count };
        Self {
            name,
            count: latencies.count(),
            per_second: latencies.count() as f64 / seconds,
            p50_us: latencies.quantile_us(0.5),
            p90_us: latencies.quantile_us(0.9),
            p99_us: latencies.quantile_us(0.99),
            p99_9_us: latencies.quantile_us(0.999),
            max_us: latencies.quantile_us(1.0),
            histogram: latencies.steps().into_iter().map(step).collect(),
        }
    }

    /// The steps, each with a bar.
    fn bars(&self) -> Table {
        let mut table = Table::new(["up to µs", "count", "share", ""]);
        let most = self.histogram.iter().map(|step| step.count).max();
        let most = most.unwrap_or(1);
        for step in &self.histogram {
            // At least one character for a step with answers.
            let length = (u128::from(step.count) * u128::from(BAR)).div_ceil(u128::from(most));
            let bar: String = (0..BAR)
                .map(|at| if u128::from(at) < length { '#' } else { ' ' })
                .collect();
            table.row([
                grouped(step.up_to_us as f64),
                grouped(step.count as f64),
                format!("{:.2} %", step.count as f64 * 100.0 / self.count as f64),
                bar,
            ]);
        }
        table
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counted = |count: u32, name: &str| {
            let plural = if count == 1 { "" } else { "s" };
            format!("{} {name}{plural}", grouped(f64::from(count)))
        };
        write!(
            f,
            "{}: {}, {} protocol, {:.1} s; {}, {}, {} at a time; {}",
            self.server,
            self.workload,
            self.protocol,
            self.seconds,
            counted(self.clients, "client"),
            counted(self.threads, "thread"),
            counted(self.pipeline, "request"),
            counted(self.keys, "key"),
        )?;
        if let Some(items) = &self.items {
            let Items {
                distribution,
                value_bytes,
                gets_percent,
                ..
            } = items;
            write!(
                f,
                " ({distribution}), {gets_percent} % gets, {value_bytes}-byte values"
            )?;
        }
        writeln!(f, "\n")?;
        let heading = [
            "",
            "count",
            "op/s",
            "p50 µs",
            "p90 µs",
            "p99 µs",
            "p99.9 µs",
            "max µs",
        ];
        let mut table = Table::new(heading);
        for row in &self.operations {
            table.row([
                row.name.to_owned(),
                grouped(row.count as f64),
                grouped(row.per_second),
                microseconds(row.p50_us),
                microseconds(row.p90_us),
                microseconds(row.p99_us),
                microseconds(row.p99_9_us),
                microseconds(row.max_us),
            ]);
        }
        write!(f, "{table}")?;
        // All requests, or the hand-overs.
        if let Some(row) = self.operations.last() {
            writeln!(f, "\nlatency of {}:", row.name)?;
            write!(f, "{}", row.bars())?;
        }
        for note in self.notes() {
            writeln!(f, "\nnote: {note}")?;
        }
        Ok(())
    }
}

/// A time with about three digits.
fn microseconds(us: f64) -> String {
    if us < 99.95 {
        format!("{us:.1}")
    } else {
        grouped(us)
    }
}
