//! Which request got which reply, in all sequences that a fuzzer plays.
//!
//! A fuzzer has no end of its own, so the table is written now and then, to the file in
//! `TEST_PAIRS`.

use std::fmt::Write as _;
use std::sync::Mutex;

use latchd_harness::alphabet::Pairs;

/// How many sequences are played between two tables.
const WRITE_EVERY: u64 = 512;

static SEEN: Mutex<Option<Seen>> = Mutex::new(None);

#[derive(Default)]
struct Seen {
    sequences: u64,
    pairs: Box<Pairs>,
}

/// As [`events`](crate::events); the pairs seen are added to those of this process.
///
/// # Panics
/// If the table cannot be written.
pub fn events(input: &[u8]) {
    // A panic here has ended the process.
    let mut seen = SEEN.lock().expect("no panic poisons it");
    let seen = seen.get_or_insert_default();
    crate::play(input, &mut seen.pairs);
    seen.sequences += 1;
    if seen.sequences.is_multiple_of(WRITE_EVERY)
        && let Some(path) = std::env::var_os("TEST_PAIRS")
    {
        std::fs::write(path, table(&seen.pairs)).expect("the table can be written");
    }
}

/// The table, and a last line with the possible pairs that were never seen.
#[must_use]
pub fn table(pairs: &Pairs) -> String {
    let mut table = format!("{pairs}never seen:");
    let mut missing = pairs.missing(|_, _| false).peekable();
    if missing.peek().is_none() {
        table.push_str(" none");
    }
    for (request, reply) in missing {
        write!(table, " {}-{}", request.name(), reply.name())
            .expect("writing to a String cannot fail");
    }
    table.push('\n');
    table
}
