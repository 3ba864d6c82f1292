//! All mutants of the core, the election, the server and the client that cargo-mutants lists, in one build, each with a
//! switch.
//!
//! A build a mutant takes seconds, and there are thousands. Here one build has all of them. Tests
//! that never reach a mutant are skipped, and the next layer gets only the mutants that a layer
//! does not find.

mod build;
mod edit;
mod known;
mod list;
mod plant;
mod play;
mod report;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use build::Switched;
use edit::Left;
use known::Known;
use list::Listed;
use play::{Layer, Pace, Stage};
use report::Report;

use crate::copy::{Copy, succeeded};

/// The chosen mutants.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Choice<'a> {
    /// All that cargo-mutants lists.
    All,
    /// Those in the lines that have changed since a commit.
    Since(&'a str),
    /// Those in the files whose paths begin so.
    In(&'a [&'a str]),
    /// The mutants that survived the last time, for these layers; for all if none is named.
    Again(&'a [&'a str]),
}

/// Tests the mutants of the checkout at `root`, one layer after the other until one
/// finds it. Returns a complaint for each that no layer finds and that `survivors.txt` does not
/// explain.
///
/// # Errors
/// cargo-mutants is missing, or something cannot be built or run.
pub(crate) fn complaints(root: &Path, choice: Choice<'_>) -> Result<Vec<String>, String> {
    let asked = match choice {
        Choice::Again(layers) => layers,
        Choice::All | Choice::Since(_) | Choice::In(_) => &[],
    };
    let is_layer = |name: &str| Layer::ALL.iter().any(|layer| layer.name == name);
    if let Some(name) = asked.iter().find(|name| !is_layer(name)) {
        let all = Layer::ALL.map(|layer| layer.name).join(", ");
        return Err(format!("there is no layer {name}: {all}"));
    }
    let folder = &*root.join("target/mutants/switched");
    let copy = &Copy::of(root, folder, folder.join("build"))?;
    let known = Known::read(&copy.path("model/mutants/survivors.txt"))?;
    let log = folder.join("switched.txt");
    let (mutants, names) = chosen(root, copy, choice, &log)?;
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
    let is_asked = |layer: &Layer| asked.is_empty() || asked.contains(&layer.name);
    for layer in Layer::ALL.into_iter().filter(is_asked) {
        let may_see = |number: &usize| layer.may_see(&mutants[*number].file);
        if !report.open.iter().any(may_see) {
            continue;
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
    for (number, left) in &switched.left {
        if *left == Left::CannotBeSwitched {
            println!("not asked, since it cannot be switched: {}", names[*number]);
        }
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

/// The chosen mutants, and their names.
fn chosen(
    root: &Path,
    copy: &Copy,
    choice: Choice<'_>,
    log: &Path,
) -> Result<(Vec<Listed>, Vec<String>), String> {
    let mut mutants = list::listed(&copy.path(""), None)?;
    // Of all of them: which one of several of the same name it is depends on the others.
    let mut names = known::names(&mutants);
    let is_asked: Vec<bool> = match choice {
        Choice::All => vec![true; mutants.len()],
        Choice::Since(commit) => {
            let folders = build::PLANTED.map(|planted| planted.folder);
            let mut diff = Command::new("git");
            diff.args(["diff", commit, "--"]).args(folders);
            let diff = diff.current_dir(root).output();
            let diff = succeeded("git diff", diff)?;
            let path = log.with_file_name("since.diff");
            fs::write(&path, diff).map_err(|error| format!("{}: {error}", path.display()))?;
            let touched = list::listed(&copy.path(""), Some(&path))?;
            let touched: BTreeSet<_> = touched.iter().map(|mutant| &mutant.name).collect();
            let is_touched = |mutant: &Listed| touched.contains(&mutant.name);
            mutants.iter().map(is_touched).collect()
        }
        Choice::In(paths) => {
            let is_in = |mutant: &Listed| paths.iter().any(|path| mutant.file.starts_with(path));
            mutants.iter().map(is_in).collect()
        }
        Choice::Again(_) => {
            let open = report::left_open(log)?;
            names.iter().map(|name| open.contains(name)).collect()
        }
    };
    let mut keep = is_asked.iter();
    mutants.retain(|_| keep.next() == Some(&true));
    let mut keep = is_asked.iter();
    names.retain(|_| keep.next() == Some(&true));
    Ok((mutants, names))
}
