//! Plants bugs, one at a time, and asks whether the proofs find them.
//!
//! A proof that finds nothing may be one that looks at nothing. Each `model/mutants/*.patch` gets one
//! rule of the core or the shell wrong; its head says what, which model finds it, and after how many steps at the
//! least, or which layer where no model looks. Here each is applied to a copy of the checkout, what finds it is built
//! and asked there, and what it finds is compared with the head. With `--layers` the other layers are asked as well.
//!
//! Before any of them the same is asked of the copy as it is, in which there must be nothing to find: of a model as far as the
//! farthest of its bugs is (all of it is what `latchd-model check` looks at).

mod builds;
mod cargo;
mod copy;
mod drawn;
mod layer;
mod mutant;
mod parallel;
mod program;
mod switched;
mod trial;
mod watch;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use copy::Copy;
use layer::Layer;
use switched::Choice;
use trial::Trial;
use watch::Until;

const USAGE: &str = "usage: latchd-mutants [--builds] [--layers] [--show] [--clean] [--part=I/N] [NAME…]
       latchd-mutants --all | --since COMMIT | --again [LAYER…]
       latchd-mutants --drawn DIFF…

  NAME        the name of a patch in model/mutants, without `.patch`; all of them if none is given
  --builds    first applies each patch that is not asked as well, and fails if the core cannot be built with it
  --layers    asks unit tests, transcripts, properties and simulation as well, and says which find it
  --show      prints the shortest way that the model has found, as a transcript; a layer that finds a bug is heard to its end
              (target/mutants/NAME.LAYER.txt), and not ended at the first test that fails
  --clean     does not ask first whether anything is found without a bug: who calls has asked, and nothing is
  --part=I/N  every Nth of them, from the Ith on: with each I from 1 to N, each is asked once
  --all       asks the layers of every mutant of the core that cargo-mutants lists, in one build; fails for what none finds and
              model/mutants/survivors.txt does not know, and for what that says and is not so
  --since COMMIT  the same of what was changed in the core since a commit
  --again     the same of what nothing has found the last time; asks these of the layers unit, oracles, suite and
              simulation, or all
  --drawn     asks the layers one after the other, and no model, of each DIFF that cargo-mutants has left (mutants.out/diff),
              until one finds it; fails if none does";

#[derive(Debug, Default)]
struct Arguments {
    builds: bool,
    /// The layers that are asked besides the model.
    layers: &'static [Layer],
    show: bool,
    clean: bool,
    part: Option<Part>,
    names: BTreeSet<String>,
}

/// One of several parts of about the same size.
#[derive(Clone, Copy, Debug)]
struct Part {
    /// Counted from 1.
    number: usize,
    of: usize,
}

impl Part {
    fn parse(text: &str) -> Option<Self> {
        let (number, of) = text.split_once('/')?;
        let (number, of) = (number.parse().ok()?, of.parse().ok()?);
        (1..=of).contains(&number).then_some(Self { number, of })
    }

    const fn has(self, place: usize) -> bool {
        place % self.of == self.number - 1
    }
}

fn parse(words: impl Iterator<Item = String>) -> Option<Arguments> {
    let mut arguments = Arguments::default();
    for word in words {
        match word.as_str() {
            "--builds" => arguments.builds = true,
            "--layers" => arguments.layers = &Layer::BESIDE,
            "--show" => arguments.show = true,
            "--clean" => arguments.clean = true,
            option if option.starts_with('-') => {
                arguments.part = Some(Part::parse(option.strip_prefix("--part=")?)?);
            }
            _ => {
                arguments.names.insert(word);
            }
        }
    }
    Some(arguments)
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let complaints = match words.split_first() {
        Some((option, diffs)) if option == "--drawn" && !diffs.is_empty() => ask_of_drawn(diffs),
        Some((option, [])) if option == "--all" => ask_of_listed(Listed::All),
        Some((option, layers)) if option == "--again" => ask_of_listed(Listed::Again(layers)),
        Some((option, [commit])) if option == "--since" => ask_of_listed(Listed::Since(commit)),
        _ => {
            let Some(arguments) = parse(words.into_iter()) else {
                eprintln!("{USAGE}");
                return ExitCode::from(2);
            };
            run(&arguments)
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

/// Which of the mutants that cargo-mutants lists.
#[derive(Clone, Copy, Debug)]
enum Listed<'a> {
    All,
    /// What nothing has found the last time, of these layers; of all if none is named.
    Again(&'a [String]),
    /// In what was changed since a commit.
    Since(&'a str),
}

/// The root of the checkout.
fn root() -> &'static Path {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.ancestors().nth(2).expect("it is model/mutants")
}

/// Copies the checkout. Returns that, and the folder for what is said.
fn checkout() -> Result<(Copy, PathBuf), String> {
    let root = root();
    let folder = root.join("target/mutants");
    Ok((Copy::of(root, &folder)?, folder))
}

/// Asks the layers of mutants that cargo-mutants lists. Returns what is said of those that none of them finds.
fn ask_of_listed(choice: Listed<'_>) -> Result<Vec<String>, String> {
    let root = root();
    let folder = root.join("target/mutants/switched");
    let copy = Copy::of(root, &folder)?;
    let diff = folder.join("since.diff");
    let choice = match choice {
        Listed::All => Choice::All,
        Listed::Again(layers) => Choice::Again(layers),
        Listed::Since(commit) => {
            let words = ["diff", commit, "--", "core/src"];
            let said = Command::new("git").args(words).current_dir(root).output();
            let said = copy::succeeded("git diff", said)?;
            fs::write(&diff, said).map_err(|error| format!("{}: {error}", diff.display()))?;
            Choice::InDiff(&diff)
        }
    };
    switched::complaints(&copy, &folder, choice)
}

/// Asks the layers of what cargo-mutants has left. Returns what is said of those that none of them finds.
fn ask_of_drawn(diffs: &[String]) -> Result<Vec<String>, String> {
    let (copy, folder) = checkout()?;
    let diffs: Vec<&Path> = diffs.iter().map(Path::new).collect();
    drawn::complaints(&copy, &folder, &diffs)
}

/// Puts the bugs to the test. Returns what is not as the patches say.
///
/// # Errors
/// None of them could be put to the test.
fn run(arguments: &Arguments) -> Result<Vec<String>, String> {
    let (copy, folder) = checkout()?;
    // The copy's own, so that whoever goes on working does not change what is asked.
    let mutants = mutant::all(&copy.path("model/mutants"))?;
    let is_there = |name: &&String| mutants.iter().any(|mutant| mutant.name == **name);
    if let Some(name) = arguments.names.iter().find(|name| !is_there(name)) {
        return Err(format!("there is no model/mutants/{name}.patch"));
    }
    let mut place = 0..;
    let (mutants, others): (Vec<_>, Vec<_>) = mutants.into_iter().partition(|mutant| {
        let is_named = arguments.names.is_empty() || arguments.names.contains(&mutant.name);
        let is_of = |part: Part| place.next().is_some_and(|place| part.has(place));
        is_named && arguments.part.is_none_or(is_of)
    });
    let mut complaints = Vec::new();
    if arguments.builds {
        let start = Instant::now();
        complaints = builds::complaints(&copy, &others)?;
        println!(
            "{} of {} others can be built; this took {:.1} s",
            others.len() - complaints.len(),
            others.len(),
            start.elapsed().as_secs_f64()
        );
    }
    let trial = Trial {
        copy,
        layers: arguments.layers,
        until: if arguments.show {
            Until::End
        } else {
            Until::Failure
        },
        logs: folder,
    };

    let start = Instant::now();
    if !arguments.clean {
        let finders: Vec<_> = mutants.iter().map(|mutant| mutant.finder.clone()).collect();
        trial.ask_without_bug(&finders)?;
        println!(
            "without any bug nothing is found; this took {:.1} s, the first build included\n",
            start.elapsed().as_secs_f64()
        );
    }
    println!("{}", trial.head());
    trial.ask_with_each(&mutants, |mutant, outcome, time| match outcome {
        Ok(outcome) => {
            println!("{}", outcome.line(mutant, time));
            complaints.extend(outcome.complaints(mutant));
            if let Some(found) = outcome.found.filter(|_| arguments.show) {
                println!("\n# {}\n{}", mutant.bug, found.transcript);
            }
        }
        Err(error) => {
            println!("{:26} FAILED", mutant.name);
            complaints.push(format!("{}: {error}", mutant.name));
        }
    });
    println!(
        "\n{} mutants, {} complaints, {:.1} s",
        mutants.len(),
        complaints.len(),
        start.elapsed().as_secs_f64()
    );
    Ok(complaints)
}
