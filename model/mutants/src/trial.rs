//! One bug put to the test: what finds it, and whether that is what its patch says.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use crate::copy::Copy;
use crate::layer::{Found, Layer, search};
use crate::mutant::{Finder, Mutant};

/// What is asked, and of what.
#[derive(Debug)]
pub(crate) struct Trial {
    /// Where bugs are planted.
    pub(crate) copy: Copy,
    /// The layers that are asked besides the model.
    pub(crate) layers: &'static [Layer],
    /// The folder for what they say.
    pub(crate) logs: PathBuf,
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
        self.search_without_bug(&models)?;
        for layer in &layers {
            if layer.finds(&self.copy, &self.log("no-bug", *layer))? {
                let log = self.log("no-bug", *layer);
                return Err(format!(
                    "something is wrong without any bug: {}",
                    log.display()
                ));
            }
        }
        Ok(())
    }

    /// Searches models of the copy as it is, each for as many steps as the farthest of its bugs takes to be found: what is
    /// found no nearer is not taken for a bug. As many at a time as there are processors: a search has one thread.
    fn search_without_bug(&self, models: &BTreeMap<&str, usize>) -> Result<(), String> {
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        let left = Mutex::new(models.iter());
        let search_all = || {
            let next = || left.lock().expect("nobody panics with it").next();
            while let Some((name, steps)) = next() {
                if let Some(Found { invariant, .. }) = search(&self.copy, name, Some(*steps))? {
                    return Err(format!("{name} breaks {invariant} without any bug"));
                }
            }
            Ok(())
        };
        thread::scope(|scope| {
            let searches: Vec<_> = (0..processors).map(|_| scope.spawn(search_all)).collect();
            let mut searches = searches.into_iter();
            searches.try_for_each(|search| search.join().expect("it says what is wrong"))
        })
    }

    /// Plants a bug and asks the model and the layers.
    ///
    /// # Errors
    /// The patch does not apply, or something cannot be built or run.
    pub(crate) fn ask_with(&self, mutant: &Mutant) -> Result<Outcome, String> {
        self.copy.with(&[&mutant.patch], || {
            let model = match &mutant.finder {
                Finder::Model { name, .. } => name,
                Finder::Layer(layer) => {
                    let log = self.log(&mutant.name, *layer);
                    return Ok(Outcome {
                        found: None,
                        is_found: layer.finds(&self.copy, &log)?,
                        found_by: Vec::new(),
                        asked: &[],
                    });
                }
            };
            let mut found_by = Vec::new();
            for layer in self.layers {
                if layer.finds(&self.copy, &self.log(&mutant.name, *layer))? {
                    found_by.push(*layer);
                }
            }
            let found = search(&self.copy, model, None)?;
            Ok(Outcome {
                is_found: found.is_some(),
                found,
                found_by,
                asked: self.layers,
            })
        })
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
