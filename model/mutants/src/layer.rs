//! The programs that look for a bug: the models, and the other layers of verification.

use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;

use crate::copy::Copy;
use crate::mutant::Finder;
use crate::program::{Program, Recipe};
use crate::watch::{Until, Verdict, watch};

/// The unit tests of the core.
pub(crate) const UNIT: Recipe = Recipe {
    words: "test -p latchd-core --all-features --lib --no-run",
    target: "latchd_core",
    folder: "core",
};
/// The unit tests of the protocol.
pub(crate) const PROTOCOL: Recipe = Recipe {
    words: "test -p latchd-protocol --lib --no-run",
    target: "latchd_protocol",
    folder: "core/protocol",
};
/// The unit tests of the client's machines.
pub(crate) const MACHINES: Recipe = Recipe {
    words: "test -p latchd-client-core --lib --no-run",
    target: "latchd_client_core",
    folder: "core/client",
};
/// The unit tests of the part in a cluster, the election's among them.
pub(crate) const CLUSTER: Recipe = Recipe {
    words: "test -p latchd-cluster --all-features --lib --no-run",
    target: "latchd_cluster",
    folder: "shell/cluster",
};
/// The core and its stores, compared with oracles.
pub(crate) const ORACLES: Recipe = Recipe {
    words: "test -p latchd-harness --test oracles --no-run",
    target: "oracles",
    folder: "tests/harness",
};
/// Transcripts, corpus, small simulations and the tests of documents.
pub(crate) const SUITE: Recipe = Recipe {
    words: "test -p latchd-tests --test suite --no-run",
    target: "suite",
    folder: "tests",
};
/// The unit tests of the client library.
pub(crate) const CLIENT: Recipe = Recipe {
    words: "test -p latchd-client --lib --no-run",
    target: "latchd_client",
    folder: "shell/client",
};
/// The unit tests of the server library, its workers among them.
pub(crate) const SERVER: Recipe = Recipe {
    words: "test -p latchd-server --features verify --lib --no-run",
    target: "latchd_server",
    folder: "shell/server",
};
/// The server and its program, over sockets.
pub(crate) const SERVED: Recipe = Recipe {
    words: "test -p latchd --test server --no-run",
    target: "server",
    folder: "shell",
};
/// The client library on servers, over sockets.
pub(crate) const CONNECTED: Recipe = Recipe {
    words: "test -p latchd --test client --no-run",
    target: "client",
    folder: "shell",
};
/// Many clients on a hostile network.
const SIMULATE: Recipe = Recipe {
    words: "build -p latchd-tests --bin simulate",
    target: "simulate",
    folder: "tests",
};
/// The threads of the server, one order of events after the other.
pub(crate) const SCHEDULED: Recipe = Recipe {
    words: "test -p latchd-server --features scheduled --lib --no-run",
    target: "latchd_server",
    folder: "shell/server",
};
const MODELS: Recipe = Recipe {
    words: "build -p latchd-model",
    target: "latchd-model",
    folder: "",
};

/// A layer of verification besides the models.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Layer {
    /// The unit tests of the core.
    Unit,
    /// The unit tests of the client's machines.
    Machines,
    /// Random sequences, compared with the oracle.
    Properties,
    /// Stores beside lists of their expected items.
    Stores,
    /// Many clients on a hostile network.
    Simulation,
    /// The threads of the server, one order of events after the other.
    Scheduler,
    /// The unit tests of the server library.
    Server,
    /// The unit tests of the client library.
    Client,
    /// Several cores beside one.
    Cores,
}

impl Layer {
    /// Its name, its recipe, and the arguments of its program, which fails if it finds something.
    const fn way(self) -> (&'static str, Recipe, &'static [&'static str]) {
        match self {
            Self::Unit => ("unit", UNIT, &[]),
            Self::Machines => ("machines", MACHINES, &[]),
            Self::Properties => ("properties", ORACLES, &["properties::"]),
            Self::Stores => ("stores", ORACLES, &["stores::"]),
            Self::Simulation => {
                let words = &["--seeds", "16", "--events", "3200000"];
                ("simulation", SIMULATE, words)
            }
            Self::Scheduler => ("scheduler", SCHEDULED, &["scheduled::"]),
            Self::Server => ("server", SERVER, &[]),
            Self::Client => ("client", CLIENT, &[]),
            Self::Cores => ("cores", SUITE, &["cores::"]),
        }
    }

    /// Its name.
    pub(crate) const fn name(self) -> &'static str {
        self.way().0
    }

    /// The layer with this name; `None` if there is none.
    pub(crate) fn named(name: &str) -> Option<Self> {
        use Layer::{
            Client, Cores, Machines, Properties, Scheduler, Server, Simulation, Stores, Unit,
        };
        let all = [
            Unit, Machines, Properties, Stores, Simulation, Scheduler, Server, Client, Cores,
        ];
        all.into_iter().find(|layer| layer.name() == name)
    }
}

/// A violation.
#[derive(Debug)]
pub(crate) struct Found {
    /// The length of the shortest way there, if a model has found it.
    pub(crate) steps: Option<usize>,
    /// The invariant that does not hold at its end, or the test that fails, if that was said.
    pub(crate) breaks: String,
    /// The way, as a transcript.
    pub(crate) transcript: String,
}

/// A program that looks for bugs, built from the copy.
#[derive(Debug)]
pub(crate) struct Asked {
    program: Program,
    finder: Finder,
    log: PathBuf,
}

impl Asked {
    /// Builds it from the copy. The output of a layer goes to `log`.
    ///
    /// # Errors
    /// It cannot be built.
    pub(crate) fn build(copy: &Copy, finder: Finder, log: PathBuf) -> Result<Self, String> {
        let recipe = match finder {
            Finder::Model { .. } => MODELS,
            Finder::Layer(layer) => layer.way().1,
        };
        Ok(Self {
            program: Program::build(copy, &recipe, log.with_extension(""))?,
            finder,
            log,
        })
    }

    /// Runs it. Returns the violation that it finds, if there is one.
    ///
    /// # Errors
    /// It cannot be run, or its output not be read or written.
    pub(crate) fn finds(&self, until: Until) -> Result<Option<Found>, String> {
        match &self.finder {
            Finder::Model { name, .. } => search(&self.program, name, None),
            Finder::Layer(layer) => self.run(*layer, until),
        }
    }

    /// Runs it on a copy without a bug.
    ///
    /// # Errors
    /// It finds something, or cannot be run.
    pub(crate) fn must_find_nothing(&self) -> Result<(), String> {
        let found = match &self.finder {
            // A fault beyond the farthest bug could not be taken for one.
            Finder::Model { name, steps } => search(&self.program, name, Some(*steps))?,
            Finder::Layer(layer) => self.run(*layer, Until::End)?,
        };
        let name = self.finder.name();
        found.map_or(Ok(()), |found| {
            let (breaks, log) = (found.breaks, self.log.display());
            Err(format!("{name} fails without any bug: {breaks} ({log})"))
        })
    }

    fn run(&self, layer: Layer, until: Until) -> Result<Option<Found>, String> {
        let failed = |error| format!("{}: {error}", self.log.display());
        let mut log = File::create(&self.log).map_err(failed)?;
        let mut command = self.program.command(layer.way().2);
        command.stderr(log.try_clone().map_err(failed)?);
        let verdict = watch(&mut command, until, |line| {
            log.write_all(&[line, b"\n"].concat())
        })?;
        let breaks = match verdict {
            Verdict::Passed => return Ok(None),
            Verdict::Failed(test) => test.unwrap_or_default(),
            Verdict::Killed => "does not end".to_owned(),
        };
        Ok(Some(Found {
            steps: None,
            breaks,
            transcript: String::new(),
        }))
    }
}

/// Searches a model for the shortest way to a violation, at most `steps_max` long.
///
/// # Errors
/// It cannot be run, or its output is not that of `latchd-model search`.
fn search(
    models: &Program,
    model: &str,
    steps_max: Option<usize>,
) -> Result<Option<Found>, String> {
    let steps_max = steps_max.map(|steps| steps.to_string());
    let mut words = vec!["search", model];
    if let Some(steps_max) = &steps_max {
        words.extend(["--steps", steps_max]);
    }
    let output = models.command(&words).output();
    let output = output.map_err(|error| format!("latchd-model: {error}"))?;
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
            steps: Some(steps.parse().ok()?),
            breaks: invariant.to_owned(),
            transcript: transcript.to_owned(),
        })
    });
    let words = String::from_utf8_lossy(&output.stderr);
    found.map(Some).ok_or_else(|| format!("{said}{words}"))
}
