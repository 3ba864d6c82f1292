//! The models that take seconds, and what must hold of the models themselves. The large ones run by
//! `cargo run --release -p latchd-model -- check`.

use latchd_model::report::{Outcome, complaints};
use latchd_model::{Explored, Setup, all, search};

/// The models of up to this many pinned transitions are small.
const SMALL: usize = 100_000;

fn small() -> impl Iterator<Item = &'static Setup> {
    all().filter(|setup| setup.pinned.transitions <= SMALL)
}

#[test]
fn in_small_models_everything_holds_and_everything_is_seen() {
    assert!(small().count() >= 4);
    for setup in small() {
        let model = Explored::new(setup.clone());
        let found = search::exhaust(&model, 2, |_| {});
        let outcome = Outcome {
            found,
            missing: model.missing(),
        };
        assert!(outcome.is_good(setup), "{}", complaints(setup, &outcome));
    }
}

#[test]
fn a_check_fails_for_a_count_that_differs_and_for_what_was_not_seen() {
    let setup = all().next().expect("there are models");
    let model = Explored::new(setup.clone());
    let unseen = model.missing();
    let found = search::exhaust(&model, 1, |_| {});
    let mut outcome = Outcome {
        found,
        missing: model.missing(),
    };
    assert!(outcome.is_good(setup));
    outcome.missing = unseen;
    assert!(!outcome.missing.is_empty() && !outcome.is_good(setup));
    outcome.missing.clear();
    outcome.found.counts.transitions += 1;
    assert!(!outcome.is_good(setup) && complaints(setup, &outcome).contains("pinned"));
}

#[test]
fn two_searches_find_the_same_states() {
    for setup in small() {
        let states = search::shortest_offence(&Explored::new(setup.clone()), usize::MAX);
        assert_eq!(
            states.map_err(|offence| offence.fault),
            Ok(setup.pinned.states),
            "{}",
            setup.name
        );
    }
}

#[test]
fn worlds_that_are_taken_for_the_same_lead_to_the_same() {
    for setup in small().filter(|setup| setup.pinned.transitions <= SMALL / 4) {
        let compared = search::twins_of(&Explored::new(setup.clone()), usize::MAX);
        let is_good = compared.is_ok_and(|compared| compared.is_all && compared.pairs > 0);
        assert!(is_good, "{}", setup.name);
    }
}

#[test]
fn names_tell_the_models_apart() {
    for (number, setup) in all().enumerate() {
        assert!(
            all().skip(number + 1).all(|other| other.name != setup.name),
            "{}",
            setup.name
        );
    }
}
