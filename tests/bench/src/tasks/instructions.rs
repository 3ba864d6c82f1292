//! Instructions an operation, counted by valgrind's callgrind: a figure that noise does not move.
//!
//! The server runs twice, the second time with twice as many operations; the difference is theirs
//! alone, since starting, filling and ending cost the same both times. Only instructions of the
//! program count, not the kernel's.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use latchd_load::filling::fill;
use latchd_load::table::{Table, grouped};
use latchd_load::wire::Requests;
use latchd_load::workload::GetsSets;
use latchd_load::{Load, Meter, Stop};
use serde::Serialize;

use crate::progress::Progress;
use crate::server::Server;
use crate::server::cores::Cores;
use crate::server::peer::{Allowance, Peer};
use crate::tasks::speed::rows::{Row, SPEED, Shape};

/// The rows of `speed` with counted instructions.
const ROWS: [&str; 2] = ["b", "c100"];
/// The same order of keys, always.
const SEED: u64 = 12;
/// How far a figure may be from the committed one, in either direction: one that is better is to be
/// committed, or the next that is worse again would pass.
const TOLERANCE: f64 = 0.05;

/// Of all servers.
#[derive(Debug, Serialize)]
pub(crate) struct InstructionsReport {
    operations: u64,
    counts: Vec<Instructions>,
}

#[derive(Debug, Serialize)]
struct Instructions {
    label: String,
    row: &'static str,
    /// The instructions of the shorter run.
    once: u64,
    /// Of the run with twice as many.
    twice: u64,
    per_operation: f64,
    #[serde(skip)]
    is_ours: bool,
}

/// How many steps a run has.
pub(crate) fn steps(peers: &[Peer]) -> usize {
    rows()
        .map(|row| 2 * peers.iter().filter(|peer| row.admits(peer)).count())
        .sum()
}

/// How many descriptors a program may open under valgrind, which keeps some for itself.
///
/// memcached sets its limit to `-c`, and valgrind lets it set only the present one.
///
/// # Errors
/// There is no valgrind, or it does not start.
pub(crate) fn descriptors() -> Result<usize> {
    let output = Command::new("valgrind")
        .args(["-q", "--tool=none", "sh", "-c", "ulimit -Hn"])
        .output()
        .context("valgrind cannot be started")?;
    let said = String::from_utf8_lossy(&output.stdout);
    said.trim()
        .parse()
        .with_context(|| format!("valgrind does not start: {}", said.trim()))
}

/// Counts for `operations` operations of each row; `descriptors` as above.
///
/// # Errors
/// A server does not start, gives a wrong answer, or does not end as it should.
pub(crate) fn run(
    peers: &[Peer],
    operations: u64,
    descriptors: usize,
    cores: &Cores,
    progress: &mut Progress,
) -> Result<InstructionsReport> {
    let allowance = Allowance {
        connections: descriptors,
        ..Allowance::default()
    };
    let mut counts = Vec::new();
    for row in rows() {
        for (place, peer) in peers.iter().enumerate() {
            if !row.admits(peer) {
                continue;
            }
            let mut count = |operations: u64| {
                let label = &peer.label;
                progress.step(&format!(
                    "instructions, {}, {label}, {operations}",
                    row.name
                ));
                count(row, peer, operations, allowance, cores).with_context(|| label.clone())
            };
            let (once, twice) = (count(operations)?, count(2 * operations)?);
            counts.push(Instructions {
                label: peer.label.clone(),
                row: row.name,
                once,
                twice,
                per_operation: twice.saturating_sub(once) as f64 / operations as f64,
                is_ours: place == 0,
            });
        }
    }
    Ok(InstructionsReport { operations, counts })
}

fn rows() -> impl Iterator<Item = &'static Row> {
    SPEED.iter().filter(|row| ROWS.contains(&row.name))
}

/// Instructions of one server from its start to its end.
fn count(
    row: &Row,
    peer: &Peer,
    operations: u64,
    allowance: Allowance,
    cores: &Cores,
) -> Result<u64> {
    let Shape::Open {
        connections, depth, ..
    } = row.shape
    else {
        unreachable!("the rows above keep their connections");
    };
    let file = |folder: &Path| folder.join("callgrind.out");
    let wrapper = |folder: &Path| {
        vec![
            "valgrind".to_owned(),
            "--tool=callgrind".to_owned(),
            format!("--callgrind-out-file={}", file(folder).display()),
        ]
    };
    let mut server = Server::start_under(wrapper, peer, allowance, cores)?;
    let requests = Requests::new(row.dialect, row.value_bytes, 0);
    fill(server.address, &requests, row.keys)?;
    let mut load = Load::open(server.address, connections, depth)?;
    let mut meter = Meter::new();
    let mut asks = GetsSets::new(SEED, row.keys);
    load.run(&requests, &mut asks, Stop::Requests(operations), &mut meter)?;
    ensure!(
        meter.operations == operations,
        "all were asked and answered"
    );
    drop(load);
    server.end()?;
    let file = file(server.folder());
    let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    parse_totals(&text).context("callgrind has not counted")
}

/// Finds `totals: <instructions>`, or `summary:` where the former is missing.
fn parse_totals(text: &str) -> Option<u64> {
    let find = |name: &str| text.lines().rev().find_map(|line| line.strip_prefix(name));
    let numbers = find("totals:").or_else(|| find("summary:"))?;
    numbers.split_ascii_whitespace().next()?.parse().ok()
}

impl InstructionsReport {
    /// Compares latchd's figures with committed ones.
    ///
    /// # Errors
    /// One is missing, or too far away, in either direction.
    pub(crate) fn gate(&self, file: &Path) -> Result<()> {
        let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
        let committed = serde_json::from_str(&text).with_context(|| file.display().to_string())?;
        self.compare(&committed)
    }

    fn compare(&self, committed: &BTreeMap<String, f64>) -> Result<()> {
        for count in self.counts.iter().filter(|count| count.is_ours) {
            let Instructions {
                row, per_operation, ..
            } = count;
            let committed = committed
                .get(*row)
                .with_context(|| format!("there is no committed figure for {row}"))?;
            let ratio = per_operation / committed;
            ensure!(
                ratio <= 1.0 + TOLERANCE,
                "{row}: {per_operation:.0} instructions an operation, {committed:.0} were \
                 committed: find what costs more, or commit the new figure and say why"
            );
            ensure!(
                ratio >= 1.0 - TOLERANCE,
                "{row}: {per_operation:.0} instructions an operation, {committed:.0} were \
                 committed: better, so commit the new figure"
            );
        }
        Ok(())
    }
}

impl fmt::Display for InstructionsReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "instructions of the program an operation (callgrind, difference of {} and {} operations)",
            grouped(2.0 * self.operations as f64),
            grouped(self.operations as f64)
        )?;
        let mut table = Table::new(["", "row", "instructions/op"]);
        for count in &self.counts {
            table.row([
                count.label.clone(),
                count.row.to_owned(),
                grouped(count.per_operation),
            ]);
        }
        write!(f, "{table}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_found_at_the_end() {
        let text = "version: 1\nevents: Ir\nsummary: 7\nfn=(1)\n1 5\ntotals: 123456\n";
        assert_eq!(parse_totals(text), Some(123_456));
        assert_eq!(parse_totals("events: Ir\nsummary: 7\n"), Some(7));
        assert_eq!(parse_totals("events: Ir\n"), None);
    }

    fn report(per_operation: f64) -> InstructionsReport {
        let ours = Instructions {
            label: "latchd".into(),
            row: "b",
            once: 0,
            twice: 0,
            per_operation,
            is_ours: true,
        };
        InstructionsReport {
            operations: 1,
            counts: vec![ours],
        }
    }

    #[test]
    fn the_gate_is_closed_in_both_directions() {
        let committed = BTreeMap::from([("b".to_owned(), 2_000.0)]);
        assert!(report(2_090.0).compare(&committed).is_ok());
        assert!(report(1_910.0).compare(&committed).is_ok());
        let worse = report(2_110.0).compare(&committed).expect_err("worse");
        assert!(worse.to_string().contains("costs more"), "{worse}");
        let better = report(1_890.0).compare(&committed).expect_err("better");
        assert!(better.to_string().contains("better"), "{better}");
        let missing = report(2_000.0).compare(&BTreeMap::new()).expect_err("none");
        assert!(
            missing.to_string().contains("no committed figure"),
            "{missing}"
        );
    }

    #[test]
    fn a_gate_never_looks_at_peers() {
        let mut report = report(2_000.0);
        report.counts[0].is_ours = false;
        assert!(report.compare(&BTreeMap::new()).is_ok());
    }
}
