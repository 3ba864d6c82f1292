//! Whether each patch is still one that can be made: that it applies, and that what comes of it builds.
//!
//! Patches that touch different files are built together, which takes a sixth of the time. What builds
//! together builds by itself, since no patch defines what another one needs; where a round does not
//! build, each of it is built alone, and that says which it is.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::copy::Copy;
use crate::mutant::Mutant;

/// What is said of those that cannot be built.
///
/// # Errors
/// A patch cannot be read, or could not be taken back.
pub(crate) fn complaints(copy: &Copy, mutants: &[Mutant]) -> Result<Vec<String>, String> {
    let mut complaints = Vec::new();
    for round in rounds(mutants)? {
        if builds(copy, &round).is_ok() {
            continue;
        }
        for mutant in round {
            if let Err(error) = builds(copy, &[mutant]) {
                complaints.push(format!("{} does not build: {error}", mutant.name));
            }
        }
    }
    Ok(complaints)
}

fn builds(copy: &Copy, round: &[&Mutant]) -> Result<(), String> {
    let patches: Vec<&Path> = round.iter().map(|mutant| mutant.patch.as_path()).collect();
    let mut words = "check".to_owned();
    for package in round
        .iter()
        .map(|mutant| mutant.package)
        .collect::<BTreeSet<_>>()
    {
        words = format!("{words} -p {package}");
    }
    copy.with(&patches, || copy.build(&words))
}

/// The patches, in as few rounds as there are patches of the file that most of them touch, about.
fn rounds(mutants: &[Mutant]) -> Result<Vec<Vec<&Mutant>>, String> {
    let mut rounds: Vec<(BTreeSet<String>, Vec<&Mutant>)> = Vec::new();
    for mutant in mutants {
        let touched = touched(&mutant.patch)?;
        let place = rounds
            .iter_mut()
            .find(|(taken, _)| taken.is_disjoint(&touched));
        if let Some((taken, round)) = place {
            taken.extend(touched);
            round.push(mutant);
        } else {
            rounds.push((touched, vec![mutant]));
        }
    }
    Ok(rounds.into_iter().map(|(_, round)| round).collect())
}

/// The files that a patch changes.
fn touched(patch: &Path) -> Result<BTreeSet<String>, String> {
    let text = fs::read_to_string(patch);
    let text = text.map_err(|error| format!("{}: {error}", patch.display()))?;
    let files = text.lines().filter_map(|line| line.strip_prefix("+++ b/"));
    Ok(files.map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_touches_no_file_twice_and_each_patch_has_one() {
        let mutants = crate::mutant::all(Path::new(env!("CARGO_MANIFEST_DIR"))).unwrap();
        let rounds = rounds(&mutants).unwrap();
        assert_eq!(rounds.iter().map(Vec::len).sum::<usize>(), mutants.len());
        assert!(rounds.len() * 3 < mutants.len());
        for round in rounds {
            let files: Vec<_> = (round.iter())
                .flat_map(|mutant| touched(&mutant.patch).unwrap())
                .collect();
            let different: BTreeSet<_> = files.iter().collect();
            assert_eq!(files.len(), different.len(), "{files:?}");
        }
    }
}
