//! The packages with all their mutants in them, as far as they can be built.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::process::Output;

use super::edit::{Left, Number, Rendered};
use super::list::Listed;
use super::plant::planted;
use crate::cargo::{self, Message, Span, messages};
use crate::copy::Copy;
use crate::program::Recipe;

/// A package that mutants are planted in. `.cargo/mutants.toml` names its files.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Planted {
    /// Its name.
    pub(crate) package: &'static str,
    /// The folder of its source.
    pub(crate) folder: &'static str,
}

/// All of them.
pub(crate) const PLANTED: [Planted; 6] = [
    Planted {
        package: "latchd-protocol",
        folder: "core/protocol/src",
    },
    Planted {
        package: "latchd-core",
        folder: "core/src",
    },
    Planted {
        package: "latchd-client-core",
        folder: "core/client/src",
    },
    Planted {
        package: "latchd-cluster",
        folder: "shell/cluster/src",
    },
    Planted {
        package: "latchd-server",
        folder: "shell/server/src",
    },
    Planted {
        package: "latchd-client",
        folder: "shell/client/src",
    },
];

/// The builds that must succeed: the packages, and the server's tests under the scheduler, where other types stand
/// for locks and time.
const CHECKS: [&str; 2] = [
    "check --package=latchd-protocol --package=latchd-core --package=latchd-client-core --package=latchd-cluster --package=latchd-server --package=latchd-client --all-features",
    "check --package=latchd-server --features=scheduled --tests",
];

/// What the packages need to tell whether a value is computed at compile time.
const FEATURES: &str =
    "#![allow(internal_features)]\n#![feature(core_intrinsics, const_eval_select)]\n";

/// The source by which a package knows the mutant that is switched on; the number of all of them
/// comes at its end.
const SWITCH: &str = include_str!("switch.rs.txt");

/// How often mutants that cannot be built are taken out. One error hides others, so it takes a few
/// rounds.
const ROUNDS: usize = 40;

/// A copy of the checkout in which mutants can be switched on.
#[derive(Debug)]
pub(crate) struct Switched<'a> {
    copy: &'a Copy,
    /// The mutants that are not in it.
    pub(crate) left: BTreeMap<Number, Left>,
}

impl<'a> Switched<'a> {
    /// Plants all mutants that can be built.
    ///
    /// # Errors
    /// The core cannot be read or written, or cannot be built although no error lies in a mutant.
    pub(crate) fn of(copy: &'a Copy, mutants: &[Listed]) -> Result<Self, String> {
        let mut switched = Self {
            copy,
            left: BTreeMap::new(),
        };
        let count = format!("\nconst COUNT: usize = {};\n", mutants.len());
        for Planted { folder, .. } in PLANTED {
            let lib = copy.path(folder).join("lib.rs");
            let text = read(&lib)?;
            write(&lib, &format!("{FEATURES}{text}\nmod switch;\n"))?;
            let switch = copy.path(folder).join("switch.rs");
            write(&switch, &format!("{SWITCH}{count}"))?;
        }

        let mut files: BTreeMap<&str, Vec<(Number, &Listed)>> = BTreeMap::new();
        for (number, mutant) in mutants.iter().enumerate() {
            files
                .entry(&mutant.file)
                .or_default()
                .push((number, mutant));
        }
        let mut sources = BTreeMap::new();
        for file in files.keys() {
            sources.insert(*file, read(&copy.path(file))?);
        }
        for _ in 0..ROUNDS {
            let mut rendered = BTreeMap::new();
            for (file, mutants) in &files {
                let text = switched.render(&sources[file], mutants)?;
                write(&copy.path(file), &text.text)?;
                rendered.insert(*file, text);
            }
            let wrong = switched.wrong(&rendered)?;
            if wrong.is_empty() {
                return Ok(switched);
            }
            for (number, left) in wrong {
                switched.left.insert(number, left);
            }
        }
        Err(format!(
            "after {ROUNDS} rounds there are still mutants that do not compile"
        ))
    }

    fn render(&mut self, text: &str, mutants: &[(Number, &Listed)]) -> Result<Rendered, String> {
        let mut mutants = mutants.to_vec();
        mutants.retain(|(number, _)| !self.left.contains_key(number));
        let done = planted(text, &mutants).map_err(|error| format!("syn: {error}"))?;
        for (number, _) in mutants {
            if done.impossible.contains(&number) {
                self.left.insert(number, Left::DoesNotCompile);
            } else if !done.numbers.contains(&number) {
                self.left.insert(number, Left::CannotBeSwitched);
            }
        }
        Ok(Rendered::of(text, done.edits))
    }

    /// The mutants that the compiler complains of, in the last written files.
    fn wrong(
        &self,
        rendered: &BTreeMap<&str, Rendered>,
    ) -> Result<BTreeSet<(Number, Left)>, String> {
        for check in CHECKS {
            let output = self.cargo(check)?;
            if !output.status.success() {
                return Self::blamed(&output, rendered);
            }
        }
        Ok(BTreeSet::new())
    }

    /// The mutants that these messages blame.
    fn blamed(
        output: &Output,
        rendered: &BTreeMap<&str, Rendered>,
    ) -> Result<BTreeSet<(Number, Left)>, String> {
        let mut wrong = BTreeSet::new();
        for error in messages(output)?.filter_map(Message::error) {
            let mut is_ours = false;
            let spans = error.spans.iter().filter(|span| span.is_primary);
            for span in spans.flat_map(Span::with_calls) {
                let text = rendered
                    .iter()
                    .find(|(file, _)| span.file_name.ends_with(**file));
                if let Some(blame) = text.and_then(|(_, text)| text.blame(span.byte_start)) {
                    wrong.extend(blame.mutants.iter().map(|number| (*number, blame.left)));
                    is_ours = true;
                }
            }
            // The closing message about the number of errors has no place.
            if !is_ours && !error.spans.is_empty() {
                return Err(error.rendered.unwrap_or_default());
            }
        }
        if wrong.is_empty() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        Ok(wrong)
    }

    /// A folder of the copy.
    pub(crate) fn folder(&self, name: &str) -> PathBuf {
        self.copy.path(name)
    }

    /// Builds a test program or a program, and says where it is.
    ///
    /// # Errors
    /// It cannot be built.
    pub(crate) fn program(&self, recipe: &Recipe) -> Result<PathBuf, String> {
        cargo::program(&self.cargo(recipe.words)?, recipe.target)
    }

    fn cargo(&self, words: &str) -> Result<Output, String> {
        let settings = ["test.debug=0", "dev.debug=0", "dev.opt-level=1"];
        self.copy
            .cargo(words)
            .args(["--quiet", "--message-format=json"])
            .args(settings.map(|setting| format!("--config=profile.{setting}")))
            // There is no other way to tell whether a value is computed at compile time.
            .env("RUSTC_BOOTSTRAP", "1")
            .env("RUSTFLAGS", "--cap-lints=allow")
            .output()
            .map_err(|error| format!("cargo: {error}"))
    }
}

fn read(path: &PathBuf) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Writes a file that is new: cargo builds the written files.
fn write(path: &PathBuf, text: &str) -> Result<(), String> {
    if fs::read_to_string(path).is_ok_and(|there| there == text) {
        return Ok(());
    }
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}
