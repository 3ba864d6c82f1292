//! Bugs that cargo-mutants has drawn and that the core's own tests have missed: whether a layer behind them finds them.

use std::fs;
use std::path::Path;

use crate::copy::Copy;
use crate::layer::Layer;
use crate::watch::Until;

/// The layers that are asked, in this order, until one finds it.
const CASCADE: [Layer; 5] = [
    Layer::Unit,
    Layer::Transcripts,
    Layer::Stores,
    Layer::Properties,
    Layer::Simulation,
];

/// Asks of each of these diffs of cargo-mutants which layer finds it. Returns what is said of those that none finds.
///
/// # Errors
/// A diff cannot be read, does not apply, or something cannot be built or run.
pub(crate) fn complaints(
    copy: &Copy,
    folder: &Path,
    diffs: &[&Path],
) -> Result<Vec<String>, String> {
    let mut complaints = Vec::new();
    for diff in diffs {
        let said = |error| format!("{}: {error}", diff.display());
        let text = fs::read_to_string(diff).map_err(said)?;
        let (name, patch) =
            as_patch(&text).ok_or_else(|| format!("{} is no diff", diff.display()))?;
        let planted = folder.join("drawn.patch");
        fs::write(&planted, patch).map_err(said)?;
        let finder = copy.with(&[&planted], || {
            for layer in CASCADE {
                let log = folder.join(format!("drawn.{}.txt", layer.name()));
                if layer.build(copy, log)?.finds(Until::Failure)? {
                    return Ok(Some(layer));
                }
            }
            Ok(None)
        })?;
        match finder {
            Some(layer) => println!("found by {}: {name}", layer.name()),
            None => complaints.push(format!("found by nothing: {name}")),
        }
    }
    Ok(complaints)
}

/// The name of a mutant, and what git can apply: where git names the file again, cargo-mutants says what it has done.
fn as_patch(diff: &str) -> Option<(String, String)> {
    let (from, rest) = diff.split_once('\n')?;
    let (to, hunks) = rest.split_once('\n')?;
    let file = from.strip_prefix("--- ")?;
    let name = format!("{file}: {}", to.strip_prefix("+++ ")?);
    Some((name, format!("--- a/{file}\n+++ b/{file}\n{hunks}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_diff_of_cargo_mutants_becomes_one_of_git() {
        let diff = "--- core/src/time.rs\n+++ replace < with > in before\n@@ -1,1 +1,1 @@\n-a < b\n+a > b\n";
        let (name, patch) = as_patch(diff).unwrap();
        assert_eq!(name, "core/src/time.rs: replace < with > in before");
        assert_eq!(
            patch,
            "--- a/core/src/time.rs\n+++ b/core/src/time.rs\n@@ -1,1 +1,1 @@\n-a < b\n+a > b\n"
        );
        assert_eq!(as_patch("nothing\nof the kind\n"), None);
    }
}
