//! The mutants that cargo-mutants would make, as it lists them.

use std::path::Path;
use std::process::Command;

use serde::Deserialize;

use super::build::PLANTED;

/// A mutant of cargo-mutants (<https://mutants.rs>): the replaced part, its place, and the
/// replacement.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Listed {
    /// The file, from the root of the checkout.
    pub(crate) file: String,
    /// The function that it is in.
    function: Option<Function>,
    /// The kind of the replaced part.
    pub(crate) genre: Genre,
    /// Its place and its effect, as cargo-mutants prints it.
    pub(crate) name: String,
    /// The replacement; empty if the part is removed.
    pub(crate) replacement: String,
    /// Where that is.
    span: Span,
}

/// The kind of part that a mutant replaces.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq)]
pub(crate) enum Genre {
    /// All that a function does.
    FnValue,
    /// An operator between two expressions.
    BinaryOperator,
    /// An operator before one.
    UnaryOperator,
    /// An arm of a match, which is gone.
    MatchArm,
    /// The guard of an arm.
    MatchArmGuard,
    /// A field that is gone, where a base gives it.
    StructField,
}

#[derive(Clone, Debug, Deserialize)]
struct Function {
    return_type: String,
}

#[derive(Clone, Debug, Deserialize)]
struct Span {
    start: Place,
}

/// A place in a file.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq)]
pub(crate) struct Place {
    /// Counted from 1.
    pub(crate) line: usize,
    /// In characters, counted from 1.
    pub(crate) column: usize,
}

impl Listed {
    /// The start of the replaced part.
    pub(crate) const fn place(&self) -> Place {
        self.span.start
    }

    /// The return type of the function, if only its body names it: a second `return` would be of
    /// another.
    pub(crate) fn hidden_type(&self) -> Option<&str> {
        let function = self
            .function
            .as_ref()
            .filter(|_| self.genre == Genre::FnValue)?;
        let gives = function.return_type.strip_prefix("-> ")?;
        gives.contains("impl ").then_some(gives)
    }
}

/// The mutants in `tree`, in the lines that a diff has touched if there is one.
///
/// # Errors
/// cargo-mutants is missing, or fails.
pub(crate) fn listed(tree: &Path, diff: Option<&Path>) -> Result<Vec<Listed>, String> {
    let mut command = Command::new("cargo");
    command
        .args(["mutants", "--list", "--json"])
        .args(PLANTED.map(|planted| format!("--package={}", planted.package)))
        .current_dir(tree);
    if let Some(diff) = diff {
        command.arg("--in-diff").arg(diff);
    }
    let listing = crate::copy::succeeded("cargo mutants", command.output())
        .map_err(|error| format!("{error} (cargo install --locked cargo-mutants)"))?;
    // For a diff that touches no code it prints nothing.
    if listing.trim().is_empty() {
        return Ok(Vec::new());
    }
    serde_json::from_str(&listing).map_err(|error| format!("cargo mutants --json: {error}"))
}
