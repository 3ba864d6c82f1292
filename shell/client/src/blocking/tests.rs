//! Every call of the client has a blocking form.

/// Types with calls: the name, and the source of its calls.
const TYPES: &[(&str, &str)] = &[
    ("Client", include_str!("../client.rs")),
    ("Client", include_str!("../cache.rs")),
    ("InGrant", include_str!("../fenced.rs")),
    ("Lock", include_str!("../lock.rs")),
];

const BLOCKING: &str = include_str!("../blocking.rs");

/// What a blocking lock has from the other one, or in its own form.
const OF_LOCK: &[(&str, &str)] = &[("lost", "wait_lost")];

/// The lines of the `impl` blocks of a type.
fn lines<'a>(source: &'a str, of: &str) -> Vec<&'a str> {
    let heads = [format!("impl {of} {{"), format!("impl {of}<'_> {{")];
    let mut is_inside = false;
    let mut lines = Vec::new();
    for line in source.lines() {
        if heads.iter().any(|head| line == head) {
            is_inside = true;
        } else if line == "}" {
            is_inside = false;
        } else if is_inside {
            lines.push(line.trim_start());
        }
    }
    lines
}

/// A public function's name, and whether it waits.
fn function(line: &str) -> Option<(&str, bool)> {
    let mut words = line.split(['(', '<', ' ']);
    if words.next() != Some("pub") {
        return None;
    }
    let mut waits = false;
    let mut words = words.skip_while(|word| {
        waits |= *word == "async";
        ["const", "async"].contains(word)
    });
    if words.next() != Some("fn") {
        return None;
    }
    let name = words.next()?;
    drop(words);
    Some((name, waits))
}

/// The name of a function, or of a line of the macro.
fn name(line: &str) -> Option<&str> {
    function(line).map(|(name, _)| name).or_else(|| {
        let is_call = line.contains(") -> ") && line.ends_with(';');
        line.split('(').next().filter(|_| is_call)
    })
}

#[test]
fn every_call_is_there_without_futures() {
    let mut count = 0;
    for (of, with) in TYPES {
        let there: Vec<_> = lines(BLOCKING, of).into_iter().filter_map(name).collect();
        for (call, waits) in lines(with, of).into_iter().filter_map(function) {
            let own = OF_LOCK.iter().find(|(other, _)| *other == call);
            let wanted = own.map_or(call, |(_, own)| own);
            // A blocking lock is a lock, so it has the calls that do not wait.
            let has_it = there.contains(&wanted) || *of == "Lock" && !waits && own.is_none();
            assert!(has_it, "{of}::{call} is not among {there:?}");
            count += 1;
        }
    }
    assert!(count > 45, "only {count} calls were found");
}
