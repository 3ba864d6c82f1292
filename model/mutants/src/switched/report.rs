//! The verdict on each mutant, and the mutants without one.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::build::Switched;
use super::edit::{Left, Number};
use super::play::{Outcome, Pace, Stage};

/// The verdict on a mutant that no layer has found; it is tested again.
const MISSED: &str = "missed";

/// The verdict on each mutant.
#[derive(Debug)]
pub(crate) struct Report<'a> {
    names: &'a [String],
    left: &'a BTreeMap<Number, Left>,
    outcomes: BTreeMap<Number, Vec<(&'static str, Outcome)>>,
    /// The mutants that no layer has found.
    pub(crate) open: Vec<Number>,
    log: PathBuf,
}

impl<'a> Report<'a> {
    /// An empty report, which is to be written to `log`.
    pub(crate) fn new(names: &'a [String], switched: &'a Switched<'_>, log: PathBuf) -> Self {
        let left = &switched.left;
        let all = 0..names.len();
        Self {
            names,
            left,
            outcomes: BTreeMap::new(),
            open: all.filter(|number| !left.contains_key(number)).collect(),
            log,
        }
    }

    /// Has a layer test the remaining mutants, takes out those that it finds, and writes the
    /// report.
    ///
    /// # Errors
    /// A test cannot be run, or the log not be written.
    pub(crate) fn play(&mut self, stage: &Stage, pace: Pace) -> Result<(), String> {
        let start = Instant::now();
        let outcomes = stage.play(&self.open, pace)?;
        self.open.retain(|number| !outcomes[number].is_found());
        println!(
            "{} {pace:?}: {} of {} found, {:.0} s",
            stage.name(),
            outcomes.len() - self.open.len(),
            outcomes.len(),
            start.elapsed().as_secs_f64()
        );
        for (number, outcome) in outcomes {
            let said = self.outcomes.entry(number).or_default();
            said.push((stage.name(), outcome));
        }
        let text = self.text();
        fs::write(&self.log, text).map_err(|error| format!("{}: {error}", self.log.display()))
    }

    /// The sums of all verdicts.
    pub(crate) fn sum(&self) -> String {
        let left = |left| self.left.values().filter(|why| **why == left).count();
        format!(
            "{} found, {} missed, {} do not compile, {} cannot be switched",
            self.outcomes.len() - self.open.len(),
            self.open.len(),
            left(Left::DoesNotCompile),
            left(Left::CannotBeSwitched),
        )
    }

    /// A line for each: the verdict, the name, and the outcome in each layer.
    fn text(&self) -> String {
        let mut text = String::new();
        for (number, name) in self.names.iter().enumerate() {
            let outcomes = self.outcomes.get(&number).map_or(&[][..], Vec::as_slice);
            let verdict = match self.left.get(&number) {
                Some(Left::DoesNotCompile) => "does not compile",
                Some(Left::CannotBeSwitched) => "cannot be switched",
                None if outcomes.iter().any(|(_, outcome)| outcome.is_found()) => "found",
                None => MISSED,
            };
            write!(text, "{verdict}\t{name}\t").expect("writing to a String cannot fail");
            for (layer, outcome) in outcomes {
                write!(text, "{layer} {outcome}; ").expect("writing to a String cannot fail");
            }
            text.push('\n');
        }
        text
    }
}

/// The names of the mutants that survived the last time.
///
/// # Errors
/// The written report cannot be read.
pub(crate) fn left_open(log: &Path) -> Result<BTreeSet<String>, String> {
    let text = fs::read_to_string(log).map_err(|error| format!("{}: {error}", log.display()))?;
    let lines = text
        .lines()
        .map(|line| line.split('\t').collect::<Vec<_>>());
    let open = lines.filter_map(|fields| match fields[..] {
        [MISSED, name, _] => Some(name.to_owned()),
        _ => None,
    });
    Ok(open.collect())
}
