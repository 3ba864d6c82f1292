//! One bug put to the test: what finds it, and whether that is what its patch says.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use crate::copy::Copy;
use crate::layer::{Asked, Found, Layer, models, search};
use crate::mutant::{Finder, Mutant};
use crate::parallel::{ahead, in_parallel};
use crate::program::Program;
use crate::watch::Until;

/// What is asked, and of what.
#[derive(Debug)]
pub(crate) struct Trial {
    /// Where bugs are planted.
    pub(crate) copy: Copy,
    /// The layers that are asked besides the model.
    pub(crate) layers: &'static [Layer],
    /// How long a layer is heard that has found a bug.
    pub(crate) until: Until,
    /// The folder for what they say.
    pub(crate) logs: PathBuf,
}

/// What was built with a bug.
#[derive(Debug)]
struct Planted {
    /// The models, if one of them is asked.
    models: Option<Program>,
    /// The layers that are asked.
    layers: Vec<Asked>,
}

impl Planted {
    /// Asks the model and the layers.
    ///
    /// # Errors
    /// One of them cannot be run.
    fn ask(&self, mutant: &Mutant, trial: &Trial) -> Result<Outcome, String> {
        let mut found_by = Vec::new();
        for asked in &self.layers {
            if asked.finds(trial.until)? {
                found_by.push(asked.layer);
            }
        }
        let (Some(models), Finder::Model { name, .. }) = (&self.models, &mutant.finder) else {
            return Ok(Outcome {
                found: None,
                is_found: !found_by.is_empty(),
                found_by: Vec::new(),
                asked: &[],
            });
        };
        let found = search(models, name, None)?;
        Ok(Outcome {
            is_found: found.is_some(),
            found,
            found_by,
            asked: trial.layers,
        })
    }
}

/// What the model and the layers have said of a bug.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// What the model has found, if anything.
    pub(crate) found: Option<Found>,
    /// Whether what its patch names finds it.
    is_found: bool,
    /// Which of the layers that were asked have found something.
    found_by: Vec<Layer>,
    /// Those that were asked.
    asked: &'static [Layer],
}

impl Trial {
    /// Asks the model and the layers of the copy as it is: what finds something there finds it with
    /// any bug.
    ///
    /// # Errors
    /// Something is found, or cannot be built or run.
    pub(crate) fn ask_without_bug(&self, finders: &[Finder]) -> Result<(), String> {
        let mut models: BTreeMap<&str, usize> = BTreeMap::new();
        let mut layers = self.layers.to_vec();
        for finder in finders {
            match finder {
                Finder::Model { name, steps } => {
                    let most = models.entry(name).or_default();
                    *most = (*most).max(*steps);
                }
                Finder::Layer(layer) if !layers.contains(layer) => layers.push(*layer),
                Finder::Layer(_) => {}
            }
        }
        let program = self.models("no-bug")?;
        thread::scope(|scope| {
            let built = ahead(scope, layers, |layer| {
                layer.build(&self.copy, self.log("no-bug", layer))
            });
            search_without_bug(&program, &models)?;
            for asked in built {
                let asked = asked?;
                if asked.finds(Until::End)? {
                    let log = self.log("no-bug", asked.layer);
                    let log = log.display();
                    return Err(format!("something is wrong without any bug: {log}"));
                }
            }
            Ok(())
        })
    }

    /// Plants bugs and asks the model and the layers of each; while those are asked, the next is built. Gives `say` what came
    /// of each, and how long that took.
    pub(crate) fn ask_with_each(
        &self,
        mutants: &[Mutant],
        mut say: impl FnMut(&Mutant, Result<Outcome, String>, Duration),
    ) {
        thread::scope(|scope| {
            let built = ahead(scope, mutants, |mutant| {
                let start = Instant::now();
                let planted = self.plant(mutant);
                (mutant, planted, start.elapsed())
            });
            for (mutant, planted, time) in built {
                let start = Instant::now();
                let outcome = planted.and_then(|planted| planted.ask(mutant, self));
                say(mutant, outcome, time + start.elapsed());
            }
        });
    }

    /// Plants a bug and has built what is asked of it.
    ///
    /// # Errors
    /// The patch does not apply, or something cannot be built.
    fn plant(&self, mutant: &Mutant) -> Result<Planted, String> {
        let build = |layer: &Layer| layer.build(&self.copy, self.log(&mutant.name, *layer));
        self.copy.with(&[&mutant.patch], || match &mutant.finder {
            Finder::Layer(layer) => Ok(Planted {
                models: None,
                layers: vec![build(layer)?],
            }),
            Finder::Model { .. } => Ok(Planted {
                layers: self.layers.iter().map(build).collect::<Result<_, _>>()?,
                models: Some(self.models(&mutant.name)?),
            }),
        })
    }

    /// The models, built from the copy, as it is now.
    fn models(&self, name: &str) -> Result<Program, String> {
        models(&self.copy, self.logs.join(format!("{name}.model")))
    }

    fn log(&self, name: &str, layer: Layer) -> PathBuf {
        self.logs.join(format!("{name}.{}.txt", layer.name()))
    }

    /// The head of the table.
    pub(crate) fn head(&self) -> String {
        let mut line = format!(
            "{:26} {:17} {:>5} {:6} {:>7}",
            "mutant", "model", "steps", "breaks", "seconds"
        );
        for layer in self.layers {
            write!(line, " {:11}", layer.name()).expect("a String takes what is written to it");
        }
        line.trim_end().to_owned()
    }
}

/// Searches models without any bug, each for as many steps as the farthest of its bugs takes to be found: what is found no
/// nearer is not taken for a bug. As many at a time as there are processors: a search has one thread.
fn search_without_bug(program: &Program, steps: &BTreeMap<&str, usize>) -> Result<(), String> {
    let steps: Vec<_> = steps.iter().collect();
    in_parallel(&steps, |_, (name, steps)| {
        match search(program, name, Some(**steps))? {
            Some(Found { invariant, .. }) => {
                Err(format!("{name} breaks {invariant} without any bug"))
            }
            None => Ok(()),
        }
    })
}

impl Outcome {
    /// The line of the table.
    pub(crate) fn line(&self, mutant: &Mutant, time: Duration) -> String {
        let (steps, invariant) = match &self.found {
            Some(found) => (found.steps.to_string(), found.invariant.as_str()),
            None if self.is_found => ("found".to_owned(), ""),
            None => ("none".to_owned(), ""),
        };
        let mut line = format!(
            "{:26} {:17} {steps:>5} {invariant:6} {:>7.1}",
            mutant.name,
            mutant.finder.name(),
            time.as_secs_f64()
        );
        for layer in self.asked {
            let found = if self.found_by.contains(layer) {
                "yes"
            } else {
                ""
            };
            write!(line, " {found:11}").expect("a String takes what is written to it");
        }
        line.trim_end().to_owned()
    }

    /// What is not as the patch says, one complaint a line; empty if all is.
    pub(crate) fn complaints(&self, mutant: &Mutant) -> Vec<String> {
        let Mutant { name, finder, .. } = mutant;
        let mut complaints = Vec::new();
        if !self.is_found {
            complaints.push(format!("{name} is not found by {}", finder.name()));
        }
        if let (Some(found), Finder::Model { name: model, steps }) = (&self.found, finder)
            && found.steps != *steps
        {
            complaints.push(format!(
                "{name} is found by {model} in {} steps, and its patch says {steps}",
                found.steps
            ));
        }
        for layer in self.asked {
            let (is_found, is_missed) = (
                self.found_by.contains(layer),
                mutant.missed_by.contains(layer),
            );
            if is_found == is_missed {
                let verb = if is_found { "found" } else { "missed" };
                complaints.push(format!(
                    "{name} is {verb} by {}, and its patch says otherwise",
                    layer.name()
                ));
            }
        }
        complaints
    }
}
