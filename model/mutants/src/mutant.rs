//! A planted bug: a patch, and what its head says of it.

use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::layer::Layer;

/// One planted bug.
#[derive(Debug)]
pub(crate) struct Mutant {
    /// Its name: the file's, without `.patch`.
    pub(crate) name: String,
    /// Where the patch is.
    pub(crate) patch: PathBuf,
    /// What is got wrong, in words.
    pub(crate) bug: String,
    /// What finds it.
    pub(crate) finder: Finder,
    /// The layers that do not see it, of those that are asked beside the model.
    pub(crate) missed_by: Vec<Layer>,
    /// The package that is built with it.
    pub(crate) package: &'static str,
}

/// What finds a planted bug.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Finder {
    /// The first of the models, the small ones first, in so many steps: the length of the shortest way there.
    Model { name: String, steps: usize },
    /// A layer, where no model looks: the shell, or what only comes with great numbers.
    Layer(Layer),
}

impl Finder {
    /// Its name.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Model { name, .. } => name,
            Self::Layer(layer) => layer.name(),
        }
    }
}

/// Every planted bug in a folder, by name.
///
/// # Errors
/// The folder or a patch cannot be read, or a head does not say what it must.
pub(crate) fn all(folder: &Path) -> Result<Vec<Mutant>, String> {
    let said = |error: io::Error| format!("{}: {error}", folder.display());
    let mut patches = Vec::new();
    for entry in fs::read_dir(folder).map_err(said)? {
        patches.push(entry.map_err(said)?.path());
    }
    patches.retain(|path| {
        path.extension()
            .is_some_and(|extension| extension == "patch")
    });
    patches.sort();
    patches.into_iter().map(read).collect()
}

fn read(patch: PathBuf) -> Result<Mutant, String> {
    let text = fs::read_to_string(&patch);
    let text = text.map_err(|error| format!("{}: {error}", patch.display()))?;
    let head: Vec<(&str, &str)> = text
        .lines()
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_once(": "))
        .collect();
    let field = |name: &str| {
        let found = head.iter().find(|(field, _)| *field == name);
        found.map(|(_, value)| *value)
    };
    let must = |name: &str| {
        let missing = || format!("{}: its head has no line `{name}: …`", patch.display());
        field(name).ok_or_else(missing)
    };
    let layers = field("Missed by").map_or(Vec::new(), |names| names.split(", ").collect());
    let layer = |name: &str| {
        Layer::named(name).ok_or_else(|| format!("{}: there is no layer {name}", patch.display()))
    };
    let finder = if let Some(name) = field("Found by") {
        Finder::Layer(layer(name)?)
    } else {
        let steps = must("Steps")?;
        Finder::Model {
            name: must("Model")?.to_owned(),
            steps: steps
                .parse()
                .map_err(|_| format!("{}: {steps} is no number of steps", patch.display()))?,
        }
    };
    let is_in_shell = text.lines().any(|line| line.starts_with("+++ b/shell/"));
    Ok(Mutant {
        name: patch
            .file_stem()
            .expect("it has an extension")
            .to_string_lossy()
            .into_owned(),
        bug: must("Bug")?.to_owned(),
        finder,
        package: if is_in_shell { "latchd" } else { "latchd-core" },
        missed_by: layers.into_iter().map(layer).collect::<Result<_, _>>()?,
        patch,
    })
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Said here as well, since it is said in a moment: whoever moves a rule moves its bugs.
    #[test]
    fn every_patch_has_a_head_and_applies() {
        let package = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mutants = all(package).unwrap();
        assert!(!mutants.is_empty());
        for mutant in &mutants {
            let output = Command::new("git")
                .args(["apply", "--check"])
                .arg(&mutant.patch)
                .current_dir(package.join("../.."))
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{}: {said}", mutant.name);
        }
    }
}
