//! `corpus`: completes the corpus of the fuzz target `events`. For each possible pair of a request
//! and a reply that no input of the corpus meets, it draws an input that does, and saves it.
//!
//! Run it again when the alphabet has changed (`tests/harness/src/alphabet/`): the tests fail then.

use std::path::Path;
use std::{fs, io};

use latchd_fuzz::play;
use latchd_harness::alphabet::Pairs;
use latchd_harness::random::Random;

/// The length of an input: a hundred ops.
const INPUT_BYTES: usize = 600;

/// Far more inputs than it takes.
const INPUTS_MAX: u64 = 10_000_000;

fn main() -> io::Result<()> {
    let corpus = Path::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../fuzz/corpus/events"
    ));
    let mut seen = Pairs::default();
    for input in fs::read_dir(corpus)? {
        play(&fs::read(input?.path())?, &mut seen);
    }
    let missing = |seen: &Pairs| seen.missing(|_, _| false).count();
    let mut left = missing(&seen);
    println!("{left} pairs are not seen by the corpus");
    for seed in 0..INPUTS_MAX {
        if left == 0 {
            return Ok(());
        }
        let mut input = [0; INPUT_BYTES];
        Random::new(seed).fill(&mut input);
        let mut with = seen.clone();
        play(&input, &mut with);
        if missing(&with) < left {
            seen = with;
            left = missing(&seen);
            fs::write(corpus.join(format!("pairs-{seed}")), input)?;
            println!("input {seed} is added: {left} are left");
        }
    }
    Err(io::Error::other("no input sees what is left"))
}
