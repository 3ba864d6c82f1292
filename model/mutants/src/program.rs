//! A program built from the copy, and taken away from where it was built: while it runs, the next may be built there.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use crate::cargo;
use crate::copy::Copy;

/// How a program is built.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recipe {
    /// What cargo is told.
    pub(crate) words: &'static str,
    /// The name of what it builds.
    pub(crate) target: &'static str,
    /// The folder of the copy that it runs in.
    pub(crate) folder: &'static str,
}

/// A program that was built. Its file goes when this does.
#[derive(Debug)]
pub(crate) struct Program {
    path: PathBuf,
    folder: PathBuf,
}

impl Program {
    /// Builds one, and takes it to `path`.
    ///
    /// # Errors
    /// It cannot be built, or not be taken there.
    pub(crate) fn build(copy: &Copy, recipe: &Recipe, path: PathBuf) -> Result<Self, String> {
        let words = format!("{} --message-format=json", recipe.words);
        let output = copy
            .cargo(&words)
            .map_err(|error| format!("cargo: {error}"))?;
        let built = cargo::program(&output, recipe.target)?;
        fs::copy(built, &path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Self {
            path,
            folder: copy.path(recipe.folder),
        })
    }

    /// What runs it.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.path);
        command.args(words).current_dir(&self.folder);
        command
    }

    /// Runs it to its end.
    ///
    /// # Errors
    /// It cannot be run.
    pub(crate) fn run(&self, words: &[&str]) -> Result<Output, String> {
        let output = self.command(words).output();
        output.map_err(|error| format!("{}: {error}", self.path.display()))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // What is left of it is written over by the next of its name.
        let _ = fs::remove_file(&self.path);
    }
}
