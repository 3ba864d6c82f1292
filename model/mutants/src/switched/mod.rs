//! All mutants of the core that cargo-mutants lists, in one build, each with a switch.
//!
//! A build a mutant takes seconds, and there are thousands. Here one build has all of them, the tests that never come by a
//! mutant are not asked, and what a layer does not find is asked of the next.

mod build;
mod edit;
mod known;
mod list;
mod plant;
mod play;
mod report;

use std::path::Path;
use std::time::Instant;

use build::Switched;
use known::Known;
use play::{Layer, Pace, Stage};
use report::Report;

use crate::copy::Copy;

/// Which of the mutants are asked of.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Choice<'a> {
    /// All that cargo-mutants lists.
    All,
    /// Those in the lines that a diff has touched.
    InDiff(&'a Path),
    /// Those that nothing has found the last time, of these layers; of all if none is named.
    Again(&'a [String]),
}

/// Asks the layers of mutants, one layer after the other until one finds it. Returns what is said of those that none finds and
/// of which `survivors.txt` does not say why.
///
/// # Errors
/// cargo-mutants is not there, or something cannot be built or run.
pub(crate) fn complaints(
    copy: &Copy,
    folder: &Path,
    choice: Choice<'_>,
) -> Result<Vec<String>, String> {
    let known = Known::read(&copy.path("model/mutants/survivors.txt"))?;
    let log = folder.join("switched.txt");
    let diff = match choice {
        Choice::InDiff(diff) => Some(diff),
        Choice::All | Choice::Again(_) => None,
    };
    let mut mutants = list::listed(&copy.path(""), diff)?;
    let mut names = known::names(&mutants);
    if let Choice::Again(_) = choice {
        let open = report::left_open(&log)?;
        let mut keep = names.iter().map(|name| open.contains(name));
        mutants.retain(|_| keep.next().unwrap_or_default());
        names.retain(|name| open.contains(name));
    }
    println!("{} mutants", mutants.len());
    if mutants.is_empty() {
        return Ok(Vec::new());
    }
    let start = Instant::now();
    let switched = Switched::of(copy, &mutants)?;
    println!(
        "{} of them are in one build, {:.0} s",
        mutants.len() - switched.left.len(),
        start.elapsed().as_secs_f64()
    );
    let mut report = Report::new(&names, &switched, log);
    let mut stages = Vec::new();
    let asked = match choice {
        Choice::Again(layers) => layers,
        Choice::All | Choice::InDiff(_) => &[],
    };
    let is_asked = |layer: &Layer| asked.is_empty() || asked.iter().any(|name| name == layer.name);
    for layer in Layer::ALL.into_iter().filter(is_asked) {
        if report.open.is_empty() {
            break;
        }
        let start = Instant::now();
        let stage = Stage::of(layer, &switched, folder)?;
        let (tests, seconds) = stage.size();
        println!(
            "{}: {tests} tests, {seconds:.1} s; built and measured in {:.0} s",
            layer.name,
            start.elapsed().as_secs_f64()
        );
        report.play(&stage, Pace::Quick)?;
        stages.push(stage);
    }
    for stage in &stages {
        report.play(stage, Pace::Slow)?;
    }
    println!("{}", report.sum());
    let unknown = known.unknown(&names, &report.open).into_iter();
    let mut complaints: Vec<_> = unknown
        .map(|name| format!("found by nothing: {name}"))
        .collect();
    if let Choice::All = choice {
        let outdated = known.outdated(&names, &report.open).into_iter();
        complaints.extend(
            outdated.map(|name| format!("in survivors.txt, but found or no longer there: {name}")),
        );
    }
    Ok(complaints)
}
