//! Plants bugs, one at a time, and checks that verification finds them.
//!
//! A proof that finds nothing may look at nothing. Each `model/mutants/*.patch` makes one mistake
//! in the core or the shell. Its head names the bug and its finder: a model, with the number of
//! steps, or a layer. Each patch is applied to a copy of the checkout. Its finder is built and run
//! there, and must find it as the head says. Before that the same finders run on the unchanged
//! copy, and must find nothing.
//!
//! `switched` does the same for the changes that cargo-mutants lists of the core, the election, the server and the client.

mod cargo;
mod copy;
mod fresh;
mod layer;
mod mutant;
mod parallel;
mod program;
mod switched;
mod trial;
mod watch;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use copy::Copy;
use mutant::Mutant;
use switched::Choice;
use trial::Trial;
use watch::Until;

const USAGE: &str = "usage: latchd-mutants [--show] [NAME…]
       latchd-mutants --fresh
       latchd-mutants --all | --since COMMIT | --in PATH… | --again [LAYER…]

  NAME            plant model/mutants/NAME.patch, or each of these, and ask its finder [default: all patches]
  --show          print the shortest way that the model has found, as a transcript; a layer runs to its end
                  (target/mutants/NAME.LAYER.txt) and not to the first test that fails
  --fresh         only check that each patch applies and that the code with it compiles, many patches at a time
  --all           ask the layers of every mutant that cargo-mutants lists (.cargo/mutants.toml), in one build; fail for each that
                  none finds and model/mutants/survivors.txt does not explain, and for each name there that is found or gone
  --since COMMIT  the same for the lines that have changed since COMMIT
  --in PATH…      the same for the files whose paths begin so, such as shell/server/src/worker
  --again         the same for what nothing has found the last time, by these of the layers unit, cluster, client, server, oracles,
                  suite, scheduler, served and connected [default: all]";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let complaints = match &words[..] {
        ["--fresh"] => judge_freshness(),
        ["--all"] => switched::complaints(root(), Choice::All),
        ["--again", layers @ ..] => switched::complaints(root(), Choice::Again(layers)),
        ["--in", paths @ ..] if !paths.is_empty() => {
            switched::complaints(root(), Choice::In(paths))
        }
        ["--since", commit] => switched::complaints(root(), Choice::Since(commit)),
        ["--show", names @ ..] | [names @ .., "--show"] if names_only(names) => {
            ask_of_patches(names, Until::End)
        }
        names if names_only(names) => ask_of_patches(names, Until::Failure),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match complaints {
        Ok(complaints) if complaints.is_empty() => ExitCode::SUCCESS,
        Ok(complaints) => {
            println!("\n{}", complaints.join("\n"));
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn names_only(words: &[&str]) -> bool {
    words.iter().all(|word| !word.starts_with('-'))
}

/// The root of the checkout.
fn root() -> &'static Path {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.ancestors().nth(2).expect("it is model/mutants")
}

/// The folder that the checkout is built in.
fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// Checks that each patch applies and compiles. Returns a complaint for each that does not.
///
/// # Errors
/// The checkout itself does not compile.
fn judge_freshness() -> Result<Vec<String>, String> {
    let start = Instant::now();
    // The dependencies of the checkout are already compiled there.
    let copy = Copy::of(root(), &root().join("target/mutants/fresh"), target())?;
    let mutants = mutant::all(&copy.path("model/mutants"))?;
    let fresh::Freshness { complaints, checks } = fresh::judge(&copy, &mutants)?;
    println!(
        "{} of {} patches apply and compile; {checks} checks, {:.1} s",
        mutants.len() - complaints.len(),
        mutants.len(),
        start.elapsed().as_secs_f64()
    );
    Ok(complaints)
}

/// Plants the patches of these names, or all of them. Returns a complaint for each that is not
/// found as its head says.
///
/// # Errors
/// A finder fails without any bug, or cannot be built; or a name is not that of a patch.
fn ask_of_patches(names: &[&str], until: Until) -> Result<Vec<String>, String> {
    let folder = root().join("target/mutants");
    let copy = Copy::of(root(), &folder, folder.join("build"))?;
    // The copy's own, so that a change of the checkout does not change the tests.
    let mut mutants = mutant::all(&copy.path("model/mutants"))?;
    let is_there = |name: &&&str| mutants.iter().any(|mutant| mutant.name == **name);
    if let Some(name) = names.iter().find(|name| !is_there(name)) {
        return Err(format!("there is no model/mutants/{name}.patch"));
    }
    mutants.retain(|mutant| names.is_empty() || names.contains(&&*mutant.name));
    let trial = Trial {
        copy,
        until,
        logs: folder,
    };
    let start = Instant::now();
    trial.ask_without_bug(&mutants)?;
    println!(
        "without any bug nothing is found; this took {:.1} s, the first build included\n",
        start.elapsed().as_secs_f64()
    );
    println!(
        "{:32} {:20} {:>5} {:>7} breaks",
        "patch", "found by", "steps", "seconds"
    );
    let mut complaints = Vec::new();
    trial.ask_with_each(&mutants, |mutant, found, time| {
        let Mutant {
            name, bug, finder, ..
        } = mutant;
        let found = match found {
            Ok(found) => found,
            Err(error) => {
                println!("{name:32} FAILED");
                complaints.push(format!("{name}: {error}"));
                return;
            }
        };
        let steps = found.as_ref().and_then(|found| found.steps);
        let steps = steps.map_or_else(String::new, |steps| steps.to_string());
        let breaks = found.as_ref().map_or("nothing", |found| &found.breaks);
        let seconds = time.as_secs_f64();
        println!(
            "{name:32} {:20} {steps:>5} {seconds:>7.1} {breaks}",
            finder.name()
        );
        complaints.extend(trial::complaint(mutant, found.as_ref()));
        if let Some(found) = found.filter(|_| until == Until::End) {
            println!("\n# {bug}\n{}", found.transcript);
        }
    });
    println!(
        "\n{} patches, {} complaints, {:.1} s",
        mutants.len(),
        complaints.len(),
        start.elapsed().as_secs_f64()
    );
    Ok(complaints)
}
