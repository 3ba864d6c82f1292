//! What looks for a bug: the model, and the layers of proof beside it, each as commands in the copy.

use std::path::Path;
use std::{fs, io};

use crate::copy::Copy;

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

    /// How cargo builds it and how it runs it. It fails if something is wrong.
    const fn commands(self) -> (&'static str, &'static str) {
        match self {
            Self::Unit => (
                "test -p latchd-core --all-features --lib --no-run",
                "test -p latchd-core --all-features --lib",
            ),
            Self::Transcripts => (
                "test -p latchd-tests --test suite --no-run",
                "test -p latchd-tests --test suite the_core_answers_as_the_transcripts_say",
            ),
            Self::Properties => (
                "test -p latchd-tests --test suite --no-run",
                "test -p latchd-tests --test suite properties::",
            ),
            Self::Simulation => (
                "build -p latchd-tests --bin simulate",
                "run -p latchd-tests --bin simulate -- --seeds 16 --events 3200000",
            ),
            Self::Stores => (
                "test -p latchd-tests --test suite --no-run",
                "test -p latchd-tests --test suite stores::",
            ),
            Self::Scheduler => (
                "test -p latchd --features scheduled --lib --no-run",
                "test -p latchd --features scheduled --lib scheduled::",
            ),
        }
    }

    /// Whether it finds that something is wrong with the copy. What it says of it goes to `log`.
    ///
    /// # Errors
    /// It cannot be built, or not be run.
    pub(crate) fn finds(self, copy: &Copy, log: &Path) -> Result<bool, String> {
        let (build, run) = self.commands();
        copy.build(build)?;
        let failed = |error: io::Error| format!("{}: {error}", self.name());
        let output = copy.cargo(run).map_err(failed)?;
        fs::write(log, [output.stdout, output.stderr].concat()).map_err(failed)?;
        Ok(!output.status.success())
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

/// What a model finds wrong with the copy, within so many steps if that is said; `None` if nothing is.
///
/// # Errors
/// The model cannot be built or run, or does not say what it should.
pub(crate) fn search(
    copy: &Copy,
    model: &str,
    steps_max: Option<usize>,
) -> Result<Option<Found>, String> {
    copy.build("build -p latchd-model")?;
    let steps_max = steps_max.map_or_else(String::new, |steps| format!(" --steps {steps}"));
    let output = copy
        .cargo(&format!("run -p latchd-model -- search {model}{steps_max}"))
        .map_err(|error| format!("cargo: {error}"))?;
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
