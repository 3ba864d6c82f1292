//! What looks for a bug: the model, and the layers of proof beside it, each a program built from the copy.

use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;

use crate::copy::Copy;
use crate::program::{Program, Recipe};
use crate::watch::{Until, Verdict, watch};

/// A layer of proof beside the model.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Layer {
    /// The unit tests of the core.
    Unit,
    /// The transcripts, played against the core in memory.
    Transcripts,
    /// Random sequences, compared with the oracle.
    Properties,
    /// Many clients on a network that does its worst.
    Simulation,
    /// Stores beside lists of what should be in them.
    Stores,
    /// The threads of the server, one order of events after the other.
    Scheduler,
}

impl Layer {
    /// Those that are asked beside the model, the fastest first.
    pub(crate) const BESIDE: [Self; 4] = [
        Self::Unit,
        Self::Transcripts,
        Self::Properties,
        Self::Simulation,
    ];

    /// Its name.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Unit => "unit",
            Self::Transcripts => "transcripts",
            Self::Properties => "properties",
            Self::Simulation => "simulation",
            Self::Stores => "stores",
            Self::Scheduler => "scheduler",
        }
    }

    /// The layer with this name; `None` if there is none.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let others = [Self::Stores, Self::Scheduler];
        let mut all = Self::BESIDE.into_iter().chain(others);
        all.find(|layer| layer.name() == name)
    }

    /// How it is built, and the words that it is asked with. It fails if something is wrong.
    const fn way(self) -> (Recipe, &'static [&'static str]) {
        const SUITE: Recipe = Recipe {
            words: "test -p latchd-tests --test suite --no-run",
            target: "suite",
            folder: "tests",
        };
        const ORACLES: Recipe = Recipe {
            words: "test -p latchd-harness --test oracles --no-run",
            target: "oracles",
            folder: "tests/harness",
        };
        match self {
            Self::Unit => (
                Recipe {
                    words: "test -p latchd-core --all-features --lib --no-run",
                    target: "latchd_core",
                    folder: "core",
                },
                &[],
            ),
            Self::Transcripts => (SUITE, &["the_core_answers_as_the_transcripts_say"]),
            Self::Properties => (ORACLES, &["properties::"]),
            Self::Simulation => (
                Recipe {
                    words: "build -p latchd-tests --bin simulate",
                    target: "simulate",
                    folder: "",
                },
                &["--seeds", "16", "--events", "3200000"],
            ),
            Self::Stores => (ORACLES, &["stores::"]),
            Self::Scheduler => (
                Recipe {
                    words: "test -p latchd --no-default-features --features server,scheduled --lib --no-run",
                    target: "latchd",
                    folder: "shell",
                },
                &["scheduled::"],
            ),
        }
    }

    /// Has it built from the copy, as it is now. What it will say goes to `log`.
    ///
    /// # Errors
    /// It cannot be built.
    pub(crate) fn build(self, copy: &Copy, log: PathBuf) -> Result<Asked, String> {
        let program = Program::build(copy, &self.way().0, log.with_extension(""))?;
        Ok(Asked {
            layer: self,
            program,
            log,
        })
    }
}

/// A layer that was built.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) layer: Layer,
    program: Program,
    log: PathBuf,
}

impl Asked {
    /// Whether it finds that something is wrong with what it was built from.
    ///
    /// # Errors
    /// It cannot be run, or what it says not be written.
    pub(crate) fn finds(&self, until: Until) -> Result<bool, String> {
        let failed = |error| format!("{}: {error}", self.log.display());
        let mut log = File::create(&self.log).map_err(failed)?;
        let mut command = self.program.command(self.layer.way().1);
        command.stderr(log.try_clone().map_err(failed)?);
        let verdict = watch(&mut command, until, |line| {
            log.write_all(&[line, b"\n"].concat())
        })?;
        Ok(verdict != Verdict::Passed)
    }
}

/// What a model has found.
#[derive(Debug)]
pub(crate) struct Found {
    /// The length of the shortest way there.
    pub(crate) steps: usize,
    /// The invariant that does not hold at its end.
    pub(crate) invariant: String,
    /// The way, as a transcript.
    pub(crate) transcript: String,
}

/// The models, built from the copy, as it is now.
///
/// # Errors
/// They cannot be built.
pub(crate) fn models(copy: &Copy, path: PathBuf) -> Result<Program, String> {
    let recipe = Recipe {
        words: "build -p latchd-model",
        target: "latchd-model",
        folder: "",
    };
    Program::build(copy, &recipe, path)
}

/// What a model finds wrong with what it was built from, within so many steps if that is said; `None` if nothing is.
///
/// # Errors
/// It cannot be run, or does not say what it should.
pub(crate) fn search(
    models: &Program,
    model: &str,
    steps_max: Option<usize>,
) -> Result<Option<Found>, String> {
    let steps_max = steps_max.map(|steps| steps.to_string());
    let mut words = vec!["search", model];
    if let Some(steps_max) = &steps_max {
        words.extend(["--steps", steps_max]);
    }
    let output = models.run(&words)?;
    if output.status.success() {
        return Ok(None);
    }
    let said = String::from_utf8_lossy(&output.stdout);
    let found = said.split_once('\n').and_then(|(verdict, transcript)| {
        // As in `locks-2x1: 5 steps break E2`.
        let (steps, invariant) = verdict
            .strip_prefix(model)?
            .strip_prefix(": ")?
            .split_once(" steps break ")?;
        Some(Found {
            steps: steps.parse().ok()?,
            invariant: invariant.to_owned(),
            transcript: transcript.to_owned(),
        })
    });
    let words = String::from_utf8_lossy(&output.stderr);
    found.map(Some).ok_or_else(|| format!("{said}{words}"))
}
