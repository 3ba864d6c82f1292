//! Findings of fuzzing stay checked: each target's corpus, replayed.

use std::fs;
use std::path::Path;

use latchd_harness::alphabet::Pairs;

const CORPUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/corpus");

#[test]
fn the_corpus_breaks_nothing() {
    let corpus = Path::new(CORPUS);
    for (name, property) in latchd_fuzz::PROPERTIES {
        let inputs = fs::read_dir(corpus.join(name)).unwrap_or_else(|error| {
            panic!("target {name} has no corpus: {error}");
        });
        let mut replayed = 0;
        for input in inputs {
            property(&fs::read(input.unwrap().path()).unwrap());
            replayed += 1;
        }
        assert!(replayed >= 10, "target {name} has a corpus of {replayed}");
    }
}

/// Every run of the fuzzer begins with the corpus, so it sees every pair of a request and a reply.
/// If this fails, `cargo run -p latchd-tests --example corpus` adds the missing pairs.
#[test]
fn the_corpus_sees_every_pair() {
    let mut seen = Pairs::default();
    let inputs = fs::read_dir(Path::new(CORPUS).join("events")).expect("it has a corpus");
    for input in inputs {
        latchd_fuzz::play(&fs::read(input.unwrap().path()).unwrap(), &mut seen);
    }
    let table = latchd_fuzz::tally::table(&seen);
    assert!(table.ends_with("\nnever seen: none\n"), "{table}");
}

/// The table of a fuzzer names the missing pairs, and CI looks for the line that says that none is
/// missing.
#[test]
fn a_table_lists_missing_pairs() {
    let table = latchd_fuzz::tally::table(&Pairs::default());
    let last = table.lines().last();
    assert!(last.is_some_and(|line| line.starts_with("never seen: Get-Hit Get-HitStale ")));
}
