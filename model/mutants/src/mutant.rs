//! A planted bug: a patch and its head.

use std::fs;
use std::path::{Path, PathBuf};

use crate::layer::Layer;

/// One planted bug.
#[derive(Debug)]
pub(crate) struct Mutant {
    /// Its name: the file's, without `.patch`.
    pub(crate) name: String,
    /// Where the patch is.
    pub(crate) patch: PathBuf,
    /// The mistake, in words.
    pub(crate) bug: String,
    /// Its finder.
    pub(crate) finder: Finder,
}

/// The finder of a planted bug.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Finder {
    /// The first model that finds it, the small ones first, and the length of the shortest way
    /// there.
    Model { name: String, steps: usize },
    /// A layer, where no model looks.
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
/// The folder or a patch cannot be read, or a head is incomplete.
pub(crate) fn all(folder: &Path) -> Result<Vec<Mutant>, String> {
    let entries = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let mut patches: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|kind| kind == "patch"))
        .collect();
    patches.sort();
    if patches.is_empty() {
        return Err(format!("{}: there are no patches", folder.display()));
    }
    let read = |patch: PathBuf| {
        let text = fs::read_to_string(&patch).map_err(|error| error.to_string());
        let mutant = text.and_then(|text| parse(patch.clone(), &text));
        mutant.map_err(|error| format!("{}: {error}", patch.display()))
    };
    patches.into_iter().map(read).collect()
}

fn parse(patch: PathBuf, text: &str) -> Result<Mutant, String> {
    let head = text.lines().take_while(|line| !line.is_empty());
    let head: Vec<(&str, &str)> = head.filter_map(|line| line.split_once(": ")).collect();
    let field = |name: &str| {
        let mut fields = head.iter();
        let found = fields.find(|(field, _)| *field == name);
        found
            .map(|(_, value)| *value)
            .ok_or_else(|| format!("its head has no line `{name}: …`"))
    };
    let finder = match field("Found by") {
        Ok(name) => Finder::Layer(Layer::named(name).ok_or_else(|| format!("no layer {name}"))?),
        Err(_) => Finder::Model {
            name: field("Model")?.to_owned(),
            steps: (field("Steps")?.parse()).map_err(|_| "its steps are no number".to_owned())?,
        },
    };
    let name = patch.file_stem().expect("it has an extension");
    Ok(Mutant {
        name: name.to_string_lossy().into_owned(),
        bug: field("Bug")?.to_owned(),
        finder,
        patch,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_names_the_bug_and_its_finder() {
        let parse = |text| parse(PathBuf::from("a/b.patch"), text);
        let found =
            parse("Bug: b: c\nModel: locks-2x1\nSteps: 4\n\ndiff\nFound by: unit\n").unwrap();
        assert_eq!((&*found.name, &*found.bug), ("b", "b: c"));
        assert_eq!(
            (found.finder.name(), &found.finder),
            (
                "locks-2x1",
                &Finder::Model {
                    name: "locks-2x1".to_owned(),
                    steps: 4
                }
            )
        );
        let found = parse("Bug: b\nFound by: scheduler\n\n").unwrap();
        assert_eq!(found.finder, Finder::Layer(Layer::Scheduler));
        for wrong in [
            "",
            "Bug: b\n",
            "Bug: b\nModel: m\n",
            "Bug: b\nModel: m\nSteps: few\n",
            "Bug: b\nFound by: luck\n",
            "Found by: unit\n",
            "\nBug: b\nFound by: unit\n",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
