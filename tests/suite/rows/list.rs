//! The list of the checks of a document's rows, as people write it.
//!
//!     ## SECTION
//!     | FIRST CELL
//!       CHECK
//!
//! A line of `#` and a blank is a comment, and an empty line means nothing.

use super::check::Check;

/// The entry of a row.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Entry {
    /// The heading above the row.
    pub(super) section: String,
    /// The row's first cell.
    pub(super) cell: String,
    /// The line of the entry, from 1.
    pub(super) line: usize,
    /// The checks of the row, each with its line.
    pub(super) checks: Vec<(usize, Check)>,
}

/// A line that cannot be understood.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Mistake {
    /// Which, from 1.
    pub(super) line: usize,
    /// The mistake, and its remedy.
    pub(super) what: String,
}

/// Reads a list, and all its mistakes.
pub(super) fn parse(text: &str) -> (Vec<Entry>, Vec<Mistake>) {
    let (mut entries, mut mistakes) = (Vec::<Entry>::new(), Vec::new());
    let mut section: Option<&str> = None;
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        let mut mistake = |what: String| {
            mistakes.push(Mistake { line: number, what });
        };
        if let Some(heading) = line.strip_prefix("## ") {
            section = Some(heading);
        } else if line.is_empty() || line == "#" || line.starts_with("# ") {
            // For people.
        } else if let Some(cell) = line.strip_prefix("| ") {
            match section {
                Some(section) => entries.push(Entry {
                    section: section.to_owned(),
                    cell: cell.to_owned(),
                    line: number,
                    checks: Vec::new(),
                }),
                None => mistake("a row stands below its section: ## SECTION".to_owned()),
            }
        } else if let Some(check) = line.strip_prefix("  ") {
            match (Check::parse(check), entries.last_mut()) {
                (Ok(check), Some(entry)) => entry.checks.push((number, check)),
                (Ok(_), None) => {
                    mistake("what checks a row stands below it: | FIRST CELL".to_owned());
                }
                (Err(what), _) => mistake(what),
            }
        } else {
            mistake(format!(
                "\"{line}\" is no section (##), no row (|), no comment (#) and not indented by two blanks"
            ));
        }
    }
    (entries, mistakes)
}
