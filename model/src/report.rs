//! What a check tells: the table, what is wrong, and what was not seen.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::explore::Explored;
use crate::invariants::{Invariant, Witness};
use crate::search::{Found, Offence};
use crate::setup::{Counts, Room, Setup};
use crate::transcript;

/// What the check of one model has come to.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What was found.
    pub found: Found,
    /// The witnesses that must be seen and were not.
    pub missing: Vec<Witness>,
}

impl Outcome {
    /// Whether everything holds, everything was seen, and there was as much of it as is pinned.
    #[must_use]
    pub fn is_good(&self, setup: &Setup) -> bool {
        !self.found.is_wrong && self.missing.is_empty() && self.found.counts == setup.pinned
    }
}

/// The table's head.
#[must_use]
pub fn head() -> String {
    format!(
        "{:20} {:>3}×{:<2} {:>6} {:>8} {:>6} {:>9} {:>12} {:>6} {:>8} {:>11} {:>10}",
        "model",
        "cli",
        "key",
        "shards",
        "room",
        "verbs",
        "states",
        "transitions",
        "depth",
        "seconds",
        "invariants",
        "witnesses"
    )
}

/// One line of the table.
#[must_use]
pub fn line(setup: &Setup, outcome: &Outcome) -> String {
    let Outcome { found, missing } = outcome;
    let room = match setup.room {
        Room::Ample => "ample".to_owned(),
        Room::Items(1) => "1 item".to_owned(),
        Room::Items(items) => format!("{items} items"),
    };
    let claimed = Invariant::ALL
        .iter()
        .filter(|one| one.is_claimed(setup))
        .count();
    let due = Witness::ALL.iter().filter(|one| one.is_due(setup)).count();
    let Counts {
        states,
        transitions,
    } = found.counts;
    format!(
        "{:20} {:>3}×{:<3} {:>6} {:>8} {:>6} {:>9} {:>12} {:>6} {:>8.1} {:>11} {:>10}",
        setup.name,
        setup.clients,
        setup.keys,
        setup.shards,
        room,
        setup.verbs().count(),
        states,
        transitions,
        found.depth,
        found.time.as_secs_f64(),
        claimed,
        format!("{}/{due}", due - missing.len()),
    )
}

/// What is not as it must be, one complaint a line; empty if all is well.
#[must_use]
pub fn complaints(setup: &Setup, outcome: &Outcome) -> String {
    let mut text = String::new();
    let mut complain = |words: String| {
        writeln!(text, "  {}: {words}", setup.name).expect("a String takes what is written to it");
    };
    if outcome.found.is_wrong {
        complain("an invariant does not hold".to_owned());
    }
    for witness in &outcome.missing {
        let invariant = witness.invariant();
        complain(format!(
            "never seen, so {invariant} may be about nothing: {}",
            witness.words()
        ));
    }
    let (found, pinned) = (outcome.found.counts, setup.pinned);
    if !outcome.found.is_wrong && found != pinned {
        complain(format!(
            "{} states and {} transitions, and pinned are {} and {}: if the model or the rules have \
             changed on purpose, pin the new numbers",
            found.states, found.transitions, pinned.states, pinned.transitions
        ));
    }
    text
}

/// The verbs, invariants and witnesses of a model, at length.
#[must_use]
pub fn details(setup: &Setup) -> String {
    let mut text = format!("{}: {}\n", setup.name, setup.about);
    let verbs: BTreeSet<String> = setup.verbs().map(|verb| verb.to_string()).collect();
    let verbs: Vec<String> = verbs.into_iter().collect();
    let mut add = |line: &str| {
        writeln!(text, "{line}").expect("a String takes what is written to it");
    };
    add(&format!("  alphabet: {}", verbs.join(" ")));
    for invariant in Invariant::ALL.iter().filter(|one| one.is_claimed(setup)) {
        add(&format!("  always {}", invariant.title()));
        let witnesses = Witness::ALL
            .iter()
            .filter(|one| one.invariant() == *invariant);
        for witness in witnesses.filter(|one| one.is_due(setup)) {
            add(&format!("    sometimes {}", witness.words()));
        }
    }
    text
}

/// The shortest way to what is wrong, as a transcript.
#[must_use]
pub fn offence(model: &Explored, offence: &Offence) -> String {
    let Offence { steps, fault } = offence;
    let title = format!("{} is broken after {} steps", fault.invariant, steps.len());
    let end = format!("{}\n{}", fault.invariant.title(), fault.what);
    transcript::write(model, steps, &title, &end)
}
