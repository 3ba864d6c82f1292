//! What fuzzing has found interesting stays checked: each target's corpus, replayed.

use std::fs;
use std::path::Path;

#[test]
fn the_corpus_breaks_nothing() {
    let corpus = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/corpus"));
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
