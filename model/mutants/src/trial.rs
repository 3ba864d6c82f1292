//! Trials of the planted bugs: each must be found by the finder that its patch names.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use crate::copy::Copy;
use crate::layer::{Asked, Found};
use crate::mutant::{Finder, Mutant};
use crate::parallel::{ahead, in_parallel};
use crate::watch::Until;

/// The copy in which bugs are planted, and how their finders are run.
#[derive(Debug)]
pub(crate) struct Trial {
    pub(crate) copy: Copy,
    /// When a layer that has found a bug is stopped.
    pub(crate) until: Until,
    /// The folder for the output of the layers.
    pub(crate) logs: PathBuf,
}

impl Trial {
    /// Runs the finders of these bugs on the unchanged copy: a finder that fails there would fail
    /// with any bug. A model is searched as far as the farthest of its bugs; `latchd-model check`
    /// searches all of it.
    ///
    /// # Errors
    /// Something is found, or cannot be built or run.
    pub(crate) fn ask_without_bug(&self, mutants: &[Mutant]) -> Result<(), String> {
        let mut finders: Vec<Finder> = Vec::new();
        for Mutant { finder, .. } in mutants {
            let there = finders.iter_mut().find(|one| one.name() == finder.name());
            match (there, finder) {
                (None, _) => finders.push(finder.clone()),
                (Some(Finder::Model { steps: most, .. }), Finder::Model { steps, .. }) => {
                    *most = (*most).max(*steps);
                }
                (Some(_), _) => {}
            }
        }
        let build = |finder: Finder| self.build("no-bug", finder);
        let asked = finders.into_iter().map(build);
        let asked: Vec<_> = asked.collect::<Result<_, _>>()?;
        in_parallel(1, &asked, |_, asked| asked.must_find_nothing())
    }

    /// Plants bugs, one at a time, and runs the finder of each; meanwhile the finder of the next is
    /// built. Gives each outcome to `say`, with its time.
    pub(crate) fn ask_with_each(
        &self,
        mutants: &[Mutant],
        mut say: impl FnMut(&Mutant, Result<Option<Found>, String>, Duration),
    ) {
        thread::scope(|scope| {
            let built = ahead(scope, mutants, |mutant| {
                let start = Instant::now();
                let build = || self.build(&mutant.name, mutant.finder.clone());
                let asked = self.copy.with(&[&mutant.patch], build);
                (mutant, asked, start.elapsed())
            });
            for (mutant, asked, time) in built {
                let start = Instant::now();
                let found = asked.and_then(|asked| asked.finds(self.until));
                say(mutant, found, time + start.elapsed());
            }
        });
    }

    fn build(&self, name: &str, finder: Finder) -> Result<Asked, String> {
        let log = self.logs.join(format!("{name}.{}.txt", finder.name()));
        Asked::build(&self.copy, finder, log)
    }
}

/// The difference between an outcome and the head of the patch; `None` if there is none.
pub(crate) fn complaint(mutant: &Mutant, found: Option<&Found>) -> Option<String> {
    let Mutant { name, finder, .. } = mutant;
    match (found, finder) {
        (None, _) => Some(format!("{name} is not found by {}", finder.name())),
        (
            Some(Found {
                steps: Some(found), ..
            }),
            Finder::Model { name: model, steps },
        ) if found != steps => Some(format!(
            "{name} is found by {model} in {found} steps, and its patch says {steps}"
        )),
        (Some(_), _) => None,
    }
}
