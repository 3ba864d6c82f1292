//! Tests, the mutants that each of them reaches, and whether they find one that is switched on.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Instant;

use super::build::Switched;
use super::edit::Number;
use crate::layer::{
    CLIENT, CLUSTER, CONNECTED, MACHINES, ORACLES, PROTOCOL, SCHEDULED, SERVED, SERVER, SUITE, UNIT,
};
use crate::parallel::in_parallel;
use crate::program::Recipe;
use crate::watch::{Until, Verdict, watch};

/// How many of the fastest tests run one by one, before all others at once.
const ONE_BY_ONE: usize = 4;
/// The number of mutants between two progress messages.
const PROGRESS: usize = 50;
/// Tests that take longer than this, in seconds, run only for mutants that no quick test of any
/// layer finds.
const QUICK: f64 = 3.0;
/// Tests that take more of the processor's time than this, in seconds, are left out.
const LONG: f64 = 60.0;
/// The processor time that a test may take, as a multiple of its time without a mutant, and the
/// seconds that it may take in any case.
const PATIENCE: f64 = 4.0;
const SECONDS: f64 = 3.0;
/// How long it may take, as a multiple of that processor time, and the seconds that it may stand still beyond that.
const BUSY: f64 = 2.0;
const STANDING: f64 = 20.0;
/// The number of mutants asked at a time, as a multiple of the processors: many make a test stand still.
const AT_A_TIME: usize = 4;
/// The memory limit of a test, in KiB. It bounds data: under a limit of the address space the server takes other ways.
const MEMORY: u64 = 4 << 20;

/// A layer of verification: one program with tests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layer {
    /// Its name.
    pub(crate) name: &'static str,
    /// The beginnings of the paths of files that it may come by.
    sees: &'static [&'static str],
    recipe: Recipe,
    /// The tests with these prefixes of their names.
    tests: &'static [&'static str],
    /// The number of sequences that it plays.
    settings: &'static [(&'static str, &'static str)],
    /// Its tests have timeouts of their own, and may fail if all is slow. Each runs alone, and has found a mutant if
    /// it fails twice.
    is_timed: bool,
}

impl Layer {
    /// All of them, in the order in which they run.
    pub(crate) const ALL: [Self; 11] = [
        Self {
            name: "protocol",
            sees: &["core/protocol/"],
            recipe: PROTOCOL,
            tests: &[""],
            settings: &[],
            is_timed: false,
        },
        Self {
            name: "machines",
            sees: &["core/client/", "core/protocol/"],
            recipe: MACHINES,
            tests: &[""],
            settings: &[],
            is_timed: false,
        },
        Self {
            name: "unit",
            sees: &["core/src/", "core/protocol/"],
            recipe: UNIT,
            tests: &[""],
            settings: &[],
            is_timed: false,
        },
        Self {
            name: "cluster",
            sees: &["core/protocol/", "shell/cluster/"],
            recipe: CLUSTER,
            tests: &[""],
            settings: &[],
            is_timed: false,
        },
        Self {
            name: "client",
            sees: &["core/client/", "core/protocol/", "shell/client/"],
            recipe: CLIENT,
            tests: &[""],
            settings: &[],
            is_timed: false,
        },
        Self {
            name: "server",
            sees: &["core/src/", "core/protocol/", "shell/server/"],
            recipe: SERVER,
            tests: &[""],
            settings: &[],
            is_timed: false,
        },
        Self {
            name: "oracles",
            sees: &["core/"],
            recipe: ORACLES,
            tests: &[""],
            settings: &[("TEST_SEQUENCES", "10000"), ("TEST_STORE_SEQUENCES", "4")],
            is_timed: false,
        },
        Self {
            name: "suite",
            sees: &[
                "core/src/",
                "core/protocol/",
                "shell/cluster/",
                "shell/server/",
            ],
            recipe: SUITE,
            // Not those of a server over sockets.
            tests: &["transcripts::the_", "corpus::", "simulation::", "cores::"],
            settings: &[],
            is_timed: false,
        },
        Self {
            name: "scheduler",
            sees: &["shell/server/"],
            recipe: SCHEDULED,
            tests: &["verify::scheduled::"],
            settings: &[("TEST_ORDERS", "200")],
            is_timed: false,
        },
        Self {
            name: "served",
            sees: &["shell/server/"],
            recipe: SERVED,
            tests: &[""],
            settings: &[],
            is_timed: true,
        },
        Self {
            name: "connected",
            sees: &["shell/client/"],
            recipe: CONNECTED,
            // Not the tests of programs, which have processes of their own.
            tests: &[
                "access::",
                "blocking::",
                "cache::",
                "client_",
                "clusters::",
                "faults::",
                "fenced::",
                "lock_faults::",
                "lock_items::",
                "locks::",
                "restart::",
                "reuse::",
                "sessions::",
                "shared_locks::",
                "tokio::",
                "waits::",
            ],
            settings: &[],
            is_timed: true,
        },
    ];
}

impl Layer {
    /// Whether it may come by a mutant of this file.
    pub(crate) fn may_see(&self, file: &str) -> bool {
        self.sees.iter().any(|begin| file.starts_with(begin))
    }
}

/// The outcome of a mutant in a layer.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    /// No test reaches it.
    NotReached,
    /// Every test that reaches it passes.
    Missed,
    /// A test fails: its name.
    Found(String),
    /// A test does not end, or takes all memory that there is for it.
    DoesNotEnd(String),
}

impl fmt::Display for Outcome {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotReached => to.write_str("does not come by it"),
            Self::Missed => to.write_str("passes"),
            Self::Found(test) => write!(to, "finds it: {test}"),
            Self::DoesNotEnd(test) => write!(to, "does not end: {test}"),
        }
    }
}

impl Outcome {
    /// Whether the layer has found it.
    pub(crate) const fn is_found(&self) -> bool {
        matches!(self, Self::Found(_) | Self::DoesNotEnd(_))
    }
}

/// A layer that was built, with the measurements of its tests.
#[derive(Debug)]
pub(crate) struct Stage {
    layer: Layer,
    program: PathBuf,
    folder: PathBuf,
    tests: Vec<Test>,
}

#[derive(Debug)]
struct Test {
    name: String,
    seconds: f64,
    reaches: Vec<Number>,
}

/// The chosen tests.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Pace {
    /// Those that take a second at most.
    Quick,
    /// Those that take longer.
    Slow,
}

impl Test {
    fn pace(&self) -> Pace {
        if self.seconds > QUICK {
            Pace::Slow
        } else {
            Pace::Quick
        }
    }
}

impl Stage {
    /// Builds a layer and plays it once without any mutant, each test alone.
    ///
    /// # Errors
    /// It cannot be built, or a test fails.
    pub(crate) fn of(layer: Layer, switched: &Switched<'_>, logs: &Path) -> Result<Self, String> {
        let program = switched.program(&layer.recipe)?;
        let mut stage = Self {
            layer,
            program,
            folder: switched.folder(layer.recipe.folder),
            tests: Vec::new(),
        };
        let names = stage.names()?;
        let measured = Mutex::new(Vec::new());
        in_parallel(1, &names, |place, name| {
            let trace = logs.join(format!("{}.{place}.trace", layer.name));
            let _ = fs::remove_file(&trace);
            let start = Instant::now();
            let mut command = stage.command(&[name], LONG);
            command
                .env("SWITCHED_ON", "trace")
                .env("SWITCHED_REACHED", &trace);
            let mut verdict = judge(&mut command)?;
            if let Verdict::Failed(_) = verdict {
                // Its limits may be too short on a busy machine.
                verdict = judge(&mut command)?;
            }
            match verdict {
                Verdict::Passed => {}
                Verdict::Killed => {
                    println!("left out, since it takes too long: {name}");
                    return Ok(());
                }
                Verdict::Failed(_) if layer.is_timed => {
                    println!("left out, since it fails without any mutant: {name}");
                    return Ok(());
                }
                Verdict::Failed(_) => return Err(format!("{name} fails without any mutant")),
            }
            let seconds = start.elapsed().as_secs_f64();
            let trace = fs::read_to_string(&trace).unwrap_or_default();
            let reaches = trace.lines().filter_map(|line| line.parse().ok()).collect();
            let name = name.clone();
            let test = Test {
                name,
                seconds,
                reaches,
            };
            measured.lock().expect("no panic poisons it").push(test);
            Ok(())
        })?;
        stage.tests = measured.into_inner().expect("no panic poisons it");
        stage
            .tests
            .sort_by(|one, other| one.seconds.total_cmp(&other.seconds));
        Ok(stage)
    }

    /// The layer's name.
    pub(crate) const fn name(&self) -> &'static str {
        self.layer.name
    }

    /// How many tests it has, and how many seconds they take one after the other.
    pub(crate) fn size(&self) -> (usize, f64) {
        (
            self.tests.len(),
            self.tests.iter().map(|test| test.seconds).sum(),
        )
    }

    fn names(&self) -> Result<Vec<String>, String> {
        let listing = Command::new(&self.program)
            .args(["--list", "--format=terse"])
            .output();
        let listing = crate::copy::succeeded(self.layer.name, listing)?;
        let names = listing
            .lines()
            .filter_map(|line| line.strip_suffix(": test"));
        let names =
            names.filter(|name| (self.layer.tests.iter()).any(|start| name.starts_with(start)));
        Ok(names.map(str::to_owned).collect())
    }

    /// The command for some of the tests, with a limit in seconds of processor time.
    fn command(&self, names: &[&String], seconds: f64) -> Command {
        let mut command = Command::new("sh");
        let script = format!(
            "ulimit -t {seconds:.0}; ulimit -d {MEMORY}; exec timeout -s KILL {:.0} \"$@\"",
            seconds * BUSY + STANDING,
        );
        command.args(["-c", &script, "sh"]).arg(&self.program);
        command
            .args(["--exact", "--test-threads=1"])
            .args(names)
            .current_dir(&self.folder)
            .envs(self.layer.settings.iter().copied());
        command
    }

    /// Runs the tests that reach a mutant, until one finds it.
    ///
    /// # Errors
    /// A test cannot be run.
    fn ask(&self, number: Number, pace: Pace) -> Result<Outcome, String> {
        let tests = self.tests.iter().filter(|test| test.pace() == pace);
        let reach: Vec<&Test> = tests
            .filter(|test| test.reaches.contains(&number))
            .collect();
        if reach.is_empty() {
            return Ok(Outcome::NotReached);
        }
        let alone = if self.layer.is_timed {
            reach.len()
        } else {
            reach.len().min(ONE_BY_ONE)
        };
        let (first, rest) = reach.split_at(alone);
        let groups = first.iter().map(|test| vec![*test]).chain([rest.to_vec()]);
        for group in groups.filter(|group| !group.is_empty()) {
            let seconds: f64 = group.iter().map(|test| test.seconds).sum();
            let names: Vec<_> = group.iter().map(|test| &test.name).collect();
            let mut command = self.command(&names, seconds * PATIENCE + SECONDS);
            command.env("SWITCHED_ON", number.to_string());
            let mut verdict = judge(&mut command)?;
            if self.layer.is_timed && verdict != Verdict::Passed {
                verdict = judge(&mut command)?;
            }
            let name = || match &names[..] {
                [name] => (*name).clone(),
                names => format!("one of {} tests", names.len()),
            };
            match verdict {
                Verdict::Passed => {}
                Verdict::Failed(test) => return Ok(Outcome::Found(test.unwrap_or_else(name))),
                Verdict::Killed => return Ok(Outcome::DoesNotEnd(name())),
            }
        }
        Ok(Outcome::Missed)
    }

    /// Finds out for each of these mutants whether the layer finds it.
    ///
    /// # Errors
    /// A test cannot be run.
    pub(crate) fn play(
        &self,
        numbers: &[Number],
        pace: Pace,
    ) -> Result<BTreeMap<Number, Outcome>, String> {
        let outcomes = Mutex::new(BTreeMap::new());
        in_parallel(AT_A_TIME, numbers, |_, number| {
            let outcome = self.ask(*number, pace)?;
            let mut outcomes = outcomes.lock().expect("no panic poisons it");
            outcomes.insert(*number, outcome);
            if outcomes.len() % PROGRESS == 0 {
                eprintln!(
                    "{}: {} of {}",
                    self.layer.name,
                    outcomes.len(),
                    numbers.len()
                );
            }
            Ok(())
        })?;
        Ok(outcomes.into_inner().expect("no panic poisons it"))
    }
}

/// Runs tests until one fails, and ignores the rest of their output.
fn judge(command: &mut Command) -> Result<Verdict, String> {
    watch(command.stderr(Stdio::null()), Until::Failure, |_| Ok(()))
}
