//! The copy that bugs are planted in. The checkout itself is only read.
//!
//! An unchanged file is not written again, so cargo builds only the files that a patch has touched
//! and their dependents.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{fs, io};

/// A copy of the checkout, and a folder to build it in.
#[derive(Debug)]
pub(crate) struct Copy {
    tree: PathBuf,
    build: PathBuf,
}

impl Copy {
    /// Copies all files that git tracks or would add in the checkout at `root` into `folder`;
    /// `build` is the folder for build output. Files of an earlier copy are brought up to date.
    ///
    /// # Errors
    /// Files cannot be listed, read or written.
    pub(crate) fn of(root: &Path, folder: &Path, build: PathBuf) -> Result<Self, String> {
        let listing = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others"])
            .arg("--exclude-standard")
            .current_dir(root)
            .output();
        let listing = succeeded("git", listing)?;
        let names: BTreeSet<PathBuf> = listing
            .split_terminator('\0')
            .map(PathBuf::from)
            // A file that is deleted and not committed is still listed.
            .filter(|name| root.join(name).is_file())
            .collect();
        let copy = Self {
            tree: folder.join("tree"),
            build,
        };
        fs::create_dir_all(&copy.tree)
            .and_then(|()| copy.remove_others(&copy.tree, &names))
            .and_then(|()| names.iter().try_for_each(|name| copy.bring(root, name)))
            .map_err(|error| format!("{}: {error}", copy.tree.display()))?;
        Ok(copy)
    }

    /// Removes the files under `folder` that do not belong there.
    fn remove_others(&self, folder: &Path, names: &BTreeSet<PathBuf>) -> io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let name = path.strip_prefix(&self.tree).expect("it is in the tree");
            if path.is_dir() {
                self.remove_others(&path, names)?;
            } else if !names.contains(name) {
                fs::remove_file(&path)?;
            }
        }
        Ok(())
    }

    fn bring(&self, root: &Path, name: &Path) -> io::Result<()> {
        let content = fs::read(root.join(name))?;
        let path = self.tree.join(name);
        if fs::read(&path).is_ok_and(|there| there == content) {
            return Ok(());
        }
        fs::create_dir_all(path.parent().expect("it is in the tree"))?;
        fs::write(path, content)
    }

    /// The place of a file of the checkout in the copy.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.tree.join(name)
    }

    /// Applies patches, does something with the result, and undoes them.
    ///
    /// # Errors
    /// One of them does not apply: then none is planted. Or the action fails.
    pub(crate) fn with<T>(
        &self,
        patches: &[&Path],
        act: impl FnOnce() -> Result<T, String>,
    ) -> Result<T, String> {
        self.apply(&[], patches)?;
        let outcome = act();
        self.apply(&["--reverse"], patches)?;
        outcome
    }

    /// Applies one patch to the copy as it is now.
    ///
    /// # Errors
    /// It does not apply: then nothing is changed.
    pub(crate) fn plant(&self, patch: &Path) -> Result<(), String> {
        self.apply(&[], &[patch])
    }

    /// Undoes [`Copy::plant`]. Of several patches the last is undone first.
    ///
    /// # Errors
    /// The file is missing.
    pub(crate) fn take_back(&self, patch: &Path) -> Result<(), String> {
        self.apply(&["--reverse"], &[patch])
    }

    fn apply(&self, options: &[&str], patches: &[&Path]) -> Result<(), String> {
        let applied = Command::new("git")
            .arg("apply")
            .args(options)
            .args(patches)
            .current_dir(&self.tree)
            // Otherwise git takes the copy for a folder of the checkout, and skips files that are
            // not in it.
            .env(
                "GIT_CEILING_DIRECTORIES",
                self.tree.parent().unwrap_or(&self.tree),
            )
            .output();
        succeeded("git apply", applied).map(drop)
    }

    /// The cargo command with these arguments, in the copy.
    pub(crate) fn cargo(&self, words: &str) -> Command {
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
        command
            .args(words.split_whitespace())
            .current_dir(&self.tree)
            .env("CARGO_TARGET_DIR", &self.build)
            // Each patch changes a few lines, and the rest need not be compiled again.
            .env("CARGO_INCREMENTAL", "1");
        command
    }
}

/// The output of a program, if all went well.
///
/// # Errors
/// The program is missing, or failed: its message.
pub(crate) fn succeeded(program: &str, output: io::Result<Output>) -> Result<String, String> {
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let words = String::from_utf8_lossy(&output.stderr);
    Err(format!("{program}: {}", words.trim_end()))
}
