//! Checks that each patch still applies, and that the code with it compiles.
//!
//! Patches that touch different places are planted together: a few checks are enough for all of
//! them. If a check fails, its patches are halved until each faulty one is found.

use std::fs;

use crate::cargo;
use crate::copy::Copy;
use crate::mutant::Mutant;

/// The check: of the packages that patches change, with all features.
const CHECK: &str = "check -p latchd-core -p latchd-client -p latchd-server --lib --all-features --message-format=json";

/// The outcome.
#[derive(Debug, Default)]
pub(crate) struct Freshness {
    /// A complaint for each patch that does not apply or compile.
    pub(crate) complaints: Vec<String>,
    /// How many times the compiler was run.
    pub(crate) checks: usize,
}

/// Plants each of the patches, as many as fit at a time, and has the compiler check the result.
///
/// # Errors
/// The copy does not compile without any patch; or a patch cannot be read or taken back.
pub(crate) fn judge(copy: &Copy, mutants: &[Mutant]) -> Result<Freshness, String> {
    let mut freshness = Freshness::default();
    let mut waiting = Vec::new();
    for mutant in mutants {
        match copy.with(&[&mutant.patch], || Ok(())) {
            Ok(()) => waiting.push(mutant),
            Err(error) => {
                let complaint = does_not_apply(mutant, &error)?;
                freshness.complaints.push(complaint);
            }
        }
    }
    while !waiting.is_empty() {
        let mut batch = Vec::new();
        let mut next = Vec::new();
        for mutant in waiting {
            match copy.plant(&mutant.patch) {
                Ok(()) => batch.push(mutant),
                // It touches lines that another patch of this batch has changed.
                Err(_) => next.push(mutant),
            }
        }
        let error = freshness.check(copy)?;
        for mutant in batch.iter().rev() {
            copy.take_back(&mutant.patch)?;
        }
        if error.is_some() {
            if let Some(error) = freshness.check(copy)? {
                return Err(format!(
                    "the code does not compile without any patch:\n{error}"
                ));
            }
            freshness.find_wrong(copy, &batch, error)?;
        }
        waiting = next;
    }
    Ok(freshness)
}

impl Freshness {
    /// Runs the compiler on the copy as it is now. Returns its first error, if there is one.
    fn check(&mut self, copy: &Copy) -> Result<Option<String>, String> {
        self.checks += 1;
        let output = copy.cargo(CHECK).output();
        let output = output.map_err(|error| format!("cargo: {error}"))?;
        if output.status.success() {
            return Ok(None);
        }
        cargo::first_error(&output).map(Some)
    }

    /// Finds the patches that do not compile among several that failed together with `error`.
    fn find_wrong(
        &mut self,
        copy: &Copy,
        mutants: &[&Mutant],
        error: Option<String>,
    ) -> Result<(), String> {
        let Some(error) = error else { return Ok(()) };
        if let [mutant] = mutants {
            let complaint = format!("{} applies, but does not compile:\n{error}", mutant.name);
            self.complaints.push(complaint);
            return Ok(());
        }
        // If both halves compile, the patches only exclude each other, and each of them is as it should be.
        let (first, second) = mutants.split_at(mutants.len() / 2);
        for half in [first, second] {
            let patches: Vec<_> = half.iter().map(|mutant| mutant.patch.as_path()).collect();
            let error = copy.with(&patches, || self.check(copy))?;
            self.find_wrong(copy, half, error)?;
        }
        Ok(())
    }
}

/// The complaint of a patch that git refuses with `error`: the file, and the change that does not
/// apply.
fn does_not_apply(mutant: &Mutant, error: &str) -> Result<String, String> {
    let patch = fs::read_to_string(&mutant.patch)
        .map_err(|error| format!("{}: {error}", mutant.patch.display()))?;
    let what = refused(&patch, error).map_or_else(
        || error.to_owned(),
        |(place, hunk)| format!("look at {place}, where this change has no place:\n{hunk}"),
    );
    Ok(format!("{} does not apply: {what}", mutant.name))
}

/// The place, as `FILE:LINE`, and the hunk of a patch that git names in `error`; `None` if it names none.
fn refused<'a>(patch: &'a str, error: &'a str) -> Option<(&'a str, &'a str)> {
    // As in `error: patch failed: core/protocol/src/time.rs:72`.
    let (_, place) = error.split_once("patch failed: ")?;
    let place = place.lines().next()?;
    let (file, line) = place.rsplit_once(':')?;
    let (_, of_file) = patch.split_once(&format!("\n+++ b/{file}\n"))?;
    let start = of_file.find(&format!("@@ -{line},"))?;
    let hunk = &of_file[start..];
    let end = ["\n@@ ", "\ndiff "]
        .iter()
        .filter_map(|next| hunk.find(next))
        .min();
    Some((place, hunk[..end.unwrap_or(hunk.len())].trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_change_is_shown_with_its_place() {
        let patch = "Bug: b\n\ndiff --git a/a.rs b/a.rs\n--- a/a.rs\n+++ b/a.rs\n@@ -7,2 +7,1 @@ fn f\n one\n-two\n\
            @@ -72,2 +71,1 @@ fn g\n-three\n four\ndiff --git a/b.rs b/b.rs\n--- a/b.rs\n+++ b/b.rs\n@@ -72,1 +72,1 @@\n-five\n";
        let refused = |error| refused(patch, error);
        assert_eq!(
            refused("git apply: error: patch failed: a.rs:72\nerror: a.rs: patch does not apply"),
            Some(("a.rs:72", "@@ -72,2 +71,1 @@ fn g\n-three\n four"))
        );
        assert_eq!(
            refused("git apply: error: patch failed: b.rs:72"),
            Some(("b.rs:72", "@@ -72,1 +72,1 @@\n-five"))
        );
        assert_eq!(
            refused("git apply: error: c.rs: No such file or directory"),
            None
        );
    }
}
