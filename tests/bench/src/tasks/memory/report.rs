//! The measurements of memory, as tables and plots.

use std::fmt;

use latchd_load::table::{Table, mib};
use latchd_load::wire::item::KEY_BYTES;
use serde::Serialize;

use super::{CHURN_BYTES, CHURN_TIMES, LOCKED_CHURN_BYTES, THREADS, VALUE_BYTES};
use crate::figures::plot::{Bar, Chart, Group};

/// Of all servers.
#[derive(Debug, Default, Serialize)]
pub(crate) struct MemoryReport {
    pub(super) items: u32,
    pub(super) servers: Vec<Memory>,
}

/// Of one server.
#[derive(Debug, Serialize)]
pub(super) struct Memory {
    pub(super) label: String,
    pub(super) per_item: Vec<PerItem>,
    pub(super) churn: Vec<Churn>,
    /// The same with a third of the items locked, on a server with locks of items.
    pub(super) locked_churn: Vec<Churn>,
    pub(super) idle: Vec<Idle>,
    pub(super) connection: PerConnection,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct PerItem {
    pub(super) value_bytes: usize,
    /// Beyond key and value.
    pub(super) overhead_bytes: f64,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Churn {
    pub(super) threads: usize,
    pub(super) limit_mib: u64,
    pub(super) idle_bytes: u64,
    pub(super) end_bytes: u64,
    pub(super) peak_bytes: u64,
    /// The memory of the process at the end, divided by its limit plus its memory at rest.
    pub(super) ratio: f64,
    pub(super) sets: u64,
    pub(super) refused: u64,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Idle {
    pub(super) threads: usize,
    pub(super) rss_bytes: u64,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct PerConnection {
    pub(super) connections: u64,
    pub(super) before_use_bytes: f64,
    pub(super) after_use_bytes: f64,
}

impl MemoryReport {
    /// Items, churn and connections.
    pub(crate) fn charts(&self) -> Vec<Chart> {
        let chart = |title: String, groups| Chart {
            title,
            series: self.servers.iter().map(|s| s.label.clone()).collect(),
            groups,
            ..Chart::default()
        };
        let group = |label: String, value: &dyn Fn(&Memory) -> f64| Group {
            label,
            bars: (self.servers.iter())
                .map(|server| Some(Bar::exactly(value(server))))
                .collect(),
        };
        let items = VALUE_BYTES.iter().enumerate().map(|(index, bytes)| {
            group(format!("values of {bytes} B"), &|s| {
                s.per_item[index].overhead_bytes
            })
        });
        let churn = THREADS.iter().enumerate().map(|(index, threads)| {
            group(format!("threads: {threads}"), &|s| s.churn[index].ratio)
        });
        let connections = [
            group("before use".into(), &|s| s.connection.before_use_bytes),
            group("after use".into(), &|s| s.connection.after_use_bytes),
        ];
        let per_item = "Memory: bytes an item beyond key and value (less is better)";
        let after = "Memory after churn of sizes, against limit and rest (1 is what was allowed)";
        let each = "Memory: bytes a silent connection (less is better)";
        vec![
            chart(per_item.into(), items.collect()),
            Chart {
                top: Some(3.0),
                reference: Some(1.0),
                ..chart(after.into(), churn.collect())
            },
            chart(each.into(), connections.into()),
        ]
    }
}

impl fmt::Display for MemoryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "memory an item: bytes beyond key ({KEY_BYTES} B) and value, {} items, 1 thread",
            self.items
        )?;
        let heading = VALUE_BYTES.map(|bytes| format!("{bytes} B"));
        let mut table = Table::new(std::iter::once("").chain(heading.iter().map(String::as_str)));
        for server in &self.servers {
            let cells = server
                .per_item
                .iter()
                .map(|p| format!("{:.1}", p.overhead_bytes));
            table.row(std::iter::once(server.label.clone()).chain(cells));
        }
        writeln!(f, "{table}")?;

        writeln!(
            f,
            "memory after churn: values of {CHURN_BYTES:?} B in turn, each to {CHURN_TIMES} times the limit; with a third \
             locked, values of {LOCKED_CHURN_BYTES:?} B, while the locks are held"
        )?;
        let mut table = Table::new([
            "",
            "locked",
            "threads",
            "limit MiB",
            "at rest",
            "at the end",
            "peak",
            "end/allowed",
            "sets",
            "refused",
        ]);
        for server in &self.servers {
            let rows = server.churn.iter().map(|churn| ("none", churn));
            let locked = server.locked_churn.iter().map(|churn| ("a third", churn));
            for (share, churn) in rows.chain(locked) {
                table.row([
                    server.label.clone(),
                    share.to_owned(),
                    churn.threads.to_string(),
                    churn.limit_mib.to_string(),
                    mib(churn.idle_bytes),
                    mib(churn.end_bytes),
                    mib(churn.peak_bytes),
                    format!("{:.3}", churn.ratio),
                    churn.sets.to_string(),
                    churn.refused.to_string(),
                ]);
            }
        }
        writeln!(f, "{table}")?;

        writeln!(f, "memory at rest (MiB) and a connection (bytes)")?;
        let rest = THREADS.map(|threads| format!("at rest, -t {threads}"));
        let mut table = Table::new(
            std::iter::once("")
                .chain(rest.iter().map(String::as_str))
                .chain(["connections", "each before use", "each after use"]),
        );
        for server in &self.servers {
            let rest = server.idle.iter().map(|idle| mib(idle.rss_bytes));
            let PerConnection {
                connections,
                before_use_bytes,
                after_use_bytes,
            } = server.connection;
            table.row(std::iter::once(server.label.clone()).chain(rest).chain([
                connections.to_string(),
                format!("{before_use_bytes:.0}"),
                format!("{after_use_bytes:.0}"),
            ]));
        }
        write!(f, "{table}")
    }
}
