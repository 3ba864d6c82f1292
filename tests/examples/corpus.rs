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
    let mut known = Vec::new();
    for input in fs::read_dir(corpus)? {
        let input = fs::read(input?.path())?;
        play(&input, &mut seen);
        known.push(input);
    }
    let missing = |seen: &Pairs| seen.missing(|_, _| false).count();
    let mut left = missing(&seen);
    println!("{left} pairs are not seen by the corpus");
    for seed in 0..INPUTS_MAX {
        if left == 0 {
            return Ok(());
        }
        let mut random = Random::new(seed);
        let mut input = vec![0; INPUT_BYTES];
        random.fill(&mut input);
        // Every other input is a known one with a few other bytes: rare pairs are near those that met them.
        if seed % 2 == 1 {
            let other = std::mem::take(&mut input);
            input.clone_from(random.choose(&known));
            for (place, byte) in (0..8).zip(&other) {
                let place = usize::from(other[2 * place]) << 8 | usize::from(other[2 * place + 1]);
                let place = place % input.len().max(1);
                input[place..].iter_mut().take(1).for_each(|it| *it = *byte);
            }
        }
        let mut with = seen.clone();
        play(&input, &mut with);
        if missing(&with) < left {
            seen = with;
            left = missing(&seen);
            fs::write(corpus.join(format!("pairs-{seed}")), &input)?;
            println!("input {seed} is added: {left} are left");
        }
    }
    Err(io::Error::other("no input sees what is left"))
}
