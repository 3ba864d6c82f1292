//! A program built from the copy, and moved away from its build folder: while it runs, the next may
//! be built there.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::cargo;
use crate::copy::Copy;

/// The profile: release, but quick to build again.
const PROFILE: [&str; 6] = [
    "inherits='release'",
    "opt-level=1",
    "lto='off'",
    "codegen-units=16",
    "debug=0",
    "incremental=true",
];

/// How a program is built.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recipe {
    /// The arguments of cargo.
    pub(crate) words: &'static str,
    /// The name of the target that it builds.
    pub(crate) target: &'static str,
    /// The folder of the copy that it runs in.
    pub(crate) folder: &'static str,
}

/// A program that was built. Its file is deleted with this value.
#[derive(Debug)]
pub(crate) struct Program {
    path: PathBuf,
    folder: PathBuf,
}

impl Program {
    /// Builds one, and moves it to `path`.
    ///
    /// # Errors
    /// It cannot be built, or not be moved there.
    pub(crate) fn build(copy: &Copy, recipe: &Recipe, path: PathBuf) -> Result<Self, String> {
        let settings = PROFILE.map(|setting| format!("--config=profile.mutants.{setting}"));
        let mut command = copy.cargo(recipe.words);
        command
            .args(["--quiet", "--profile=mutants", "--message-format=json"])
            .args(settings);
        let output = command
            .output()
            .map_err(|error| format!("cargo: {error}"))?;
        let built = cargo::program(&output, recipe.target)?;
        fs::copy(built, &path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Self {
            path,
            folder: copy.path(recipe.folder),
        })
    }

    /// The command that runs it.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.path);
        command.args(words).current_dir(&self.folder);
        command
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // If it stays, the next program of its name is written over it.
        let _ = fs::remove_file(&self.path);
    }
}
