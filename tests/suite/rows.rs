//! Every row of the tables of docs/PROTOCOL.md, docs/OPERATIONS.md, docs/LIMITS.md and docs/CLIENT.md is a claim,
//! and a list names the checks of each: scenarios, tests, allowed differences, attacks.
//!
//! - A row without an entry fails, and so does an entry without a row: each new row needs its
//!   checks.
//! - The checks of an entry exist: a scenario of that title, a test of that name.
//! - That a check covers every part of its row is for people to judge. An unchecked part is named
//!   there, with its reason, and counted here.
//!
//! The lists are `rows/protocol.txt`, `rows/operations.txt`, `rows/limits.txt` and `rows/client.txt`; the head of the first has their
//! form.

mod check;
mod document;
mod list;
mod tests;

use std::path::Path;

use check::{Check, Files};
use document::Row;
use list::Entry;

/// A text and where it was read.
#[derive(Clone, Copy, Debug)]
struct Named<'a> {
    name: &'a str,
    text: &'a str,
}

/// The result of comparing a document with its list.
#[derive(Debug, Default)]
struct Report {
    /// How many rows the document has.
    rows: usize,
    /// Unchecked rows, with the reason.
    unchecked: Vec<String>,
    /// Unchecked parts of rows, with the reason.
    partly: Vec<String>,
    /// The mistakes, and their remedies.
    faults: Vec<String>,
}

/// Compares a document with the list of the checks of its rows.
fn compare(document: Named<'_>, list: Named<'_>, files: &impl Files) -> Report {
    let rows = document::rows(document.text);
    let (entries, mistakes) = list::parse(list.text);
    let mut report = Report {
        rows: rows.len(),
        ..Report::default()
    };
    for mistake in mistakes {
        let place = format!("{}:{}", list.name, mistake.line);
        report.faults.push(format!("{place}: {}", mistake.what));
    }
    // A cell may stand in a section several times: its rows are those of its entries, in order.
    let mut left: Vec<Option<&Entry>> = entries.iter().map(Some).collect();
    for row in &rows {
        let is_its = |entry: &Entry| (&entry.section, &entry.cell) == (&row.section, &row.cell);
        let its = left
            .iter_mut()
            .find(|entry| entry.is_some_and(is_its))
            .and_then(Option::take);
        match its {
            Some(entry) => judge(row, entry, document.name, list.name, files, &mut report),
            None => report
                .faults
                .push(without_entry(row, document.name, list.name)),
        }
    }
    for entry in left.into_iter().flatten() {
        report.faults.push(format!(
            "{}:{}: \"{}\" has no row \"{}\" any more: take the entry out, or write the first cell as it \
             is in {} now, and see that what is named here still checks it",
            list.name, entry.line, entry.section, entry.cell, document.name
        ));
    }
    report
}

fn without_entry(row: &Row, document: &str, list: &str) -> String {
    format!(
        "{document}:{}: nothing is said to check this row: write a scenario or a test for every part of \
         it, and into {list}\n    ## {}\n    | {}\n      transcripts/FILE.txt: TITLE, or FILE.rs: TEST",
        row.line, row.section, row.cell
    )
}

fn judge(
    row: &Row,
    entry: &Entry,
    document: &str,
    list: &str,
    files: &impl Files,
    report: &mut Report,
) {
    if entry.checks.is_empty() {
        report.faults.push(format!(
            "{list}:{}: nothing stands below \"{}\": say what checks it",
            entry.line, entry.cell
        ));
    }
    let nothing = |check: &(usize, Check)| matches!(check.1, Check::Nothing { .. });
    if entry.checks.len() > 1 && entry.checks.iter().any(nothing) {
        report.faults.push(format!(
            "{list}:{}: \"nothing\" stands beside what checks \"{}\": say \"but not\" and which part",
            entry.line, entry.cell
        ));
    }
    let but_not = |check: &(usize, Check)| matches!(check.1, Check::ButNot { .. });
    if !entry.checks.is_empty() && entry.checks.iter().all(but_not) {
        report.faults.push(format!(
            "{list}:{}: nothing is left that checks \"{}\": say \"nothing\"",
            entry.line, entry.cell
        ));
    }
    for (line, check) in &entry.checks {
        let place = format!("{document}:{}", row.line);
        match check {
            Check::Nothing { reason } => report.unchecked.push(format!("{place}: {reason}")),
            Check::ButNot { what } => report.partly.push(format!("{place}: {what}")),
            Check::Scenario { .. }
            | Check::Test { .. }
            | Check::Difference { .. }
            | Check::Attack { .. } => {
                if let Some(fault) = check::fault(check, files) {
                    report.faults.push(format!("{list}:{line}: {fault}"));
                }
            }
        }
    }
}

/// The checkout.
struct Checkout;

impl Files for Checkout {
    fn read(&self, path: &str) -> Option<String> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent()?;
        std::fs::read_to_string(root.join(path)).ok()
    }
}

/// Fails with all mistakes of one document and its list.
fn every_row_is_checked(document: &str, list: &str) {
    let read = |path: &str| {
        Checkout
            .read(path)
            .unwrap_or_else(|| panic!("{path} can be read"))
    };
    let (document_text, list_text) = (read(document), read(list));
    let report = compare(
        Named {
            name: document,
            text: &document_text,
        },
        Named {
            name: list,
            text: &list_text,
        },
        &Checkout,
    );
    println!(
        "{document}: {} rows, of {} nothing is checked, of {} a part is not",
        report.rows,
        report.unchecked.len(),
        report.partly.len()
    );
    for left_out in report.unchecked.iter().chain(&report.partly) {
        println!("  {left_out}");
    }
    assert!(
        report.faults.is_empty(),
        "{document} and {list} do not go together:\n{}\n",
        report.faults.join("\n")
    );
    assert!(report.rows > 0, "{document} has no tables");
}

#[test]
fn every_row_of_the_protocol_is_checked() {
    every_row_is_checked("docs/PROTOCOL.md", "tests/suite/rows/protocol.txt");
}

#[test]
fn every_row_for_operators_is_checked() {
    every_row_is_checked("docs/OPERATIONS.md", "tests/suite/rows/operations.txt");
}

#[test]
fn every_limit_is_checked() {
    every_row_is_checked("docs/LIMITS.md", "tests/suite/rows/limits.txt");
}

#[test]
fn every_row_for_users_of_the_client_is_checked() {
    every_row_is_checked("docs/CLIENT.md", "tests/suite/rows/client.txt");
}
