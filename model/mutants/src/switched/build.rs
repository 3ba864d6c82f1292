//! The core with all its mutants in it, as far as they can be built.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::process::Output;

use super::edit::{Left, Number, Rendered};
use super::list::Listed;
use super::plant::planted;
use crate::cargo::{self, Message, messages};
use crate::copy::Copy;
use crate::program::Recipe;

/// The source by which the core knows the mutant that is switched on; the number of all of them
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
        let lib = copy.path("core/src/lib.rs");
        let text = read(&lib)?;
        let text = text.replacen(
            "#![no_std]",
            "#![no_std]\n#![allow(internal_features)]\n#![feature(core_intrinsics, const_eval_select)]",
            1,
        );
        write(&lib, &(text + "\nmod switch;\n"))?;
        let count = format!("\nconst COUNT: usize = {};\n", mutants.len());
        write(
            &copy.path("core/src/switch.rs"),
            &format!("{SWITCH}{count}"),
        )?;

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
        let output = self.cargo("check --package=latchd-core --all-features")?;
        if output.status.success() {
            return Ok(BTreeSet::new());
        }
        let mut wrong = BTreeSet::new();
        for error in messages(&output)?.filter_map(Message::error) {
            let mut is_ours = false;
            for span in error.spans.iter().filter(|span| span.is_primary) {
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
