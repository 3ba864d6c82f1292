//! Every call of the client has a blocking form.

/// Types with calls: the name, the source of its calls, and the source of the blocking ones.
const TYPES: &[(&str, &str, &str)] = &[
    ("Client", include_str!("../server.rs"), BLOCKING),
    ("Client", include_str!("../cache.rs"), BLOCKING),
    ("Client", include_str!("../fenced.rs"), FENCED),
    ("InGrant<'_>", include_str!("../fenced.rs"), FENCED),
    ("Lock", include_str!("../lock.rs"), LOCKS),
    ("BoundLock", include_str!("../bound.rs"), LOCKS),
    ("Cluster", include_str!("../cluster.rs"), CLUSTER),
];

const BLOCKING: &str = include_str!("../blocking.rs");
const LOCKS: &str = include_str!("locks.rs");
const FENCED: &str = include_str!("fenced.rs");
const CLUSTER: &str = include_str!("cluster.rs");

/// The calls that [`Lock::as_async`](super::Lock::as_async) and its like provide, since they never wait.
const AS_ASYNC: &[&str] = &[
    "key",
    "keys",
    "token",
    "metadata",
    "number",
    "numbers",
    "fence",
    "remaining",
    "watch",
];

/// The public functions in the `impl` blocks of a type, in source order.
fn functions(source: &str, of: &str) -> Vec<String> {
    let begins = format!("impl {of} {{");
    let mut names = Vec::new();
    let mut is_inside = false;
    for line in source.lines() {
        if line == begins {
            is_inside = true;
        } else if line == "}" {
            is_inside = false;
        }
        let mut words = line.trim_start().split(['(', '<', ' ']);
        if is_inside && words.next() == Some("pub") {
            let mut words = words.skip_while(|word| ["const", "async"].contains(word));
            if words.next() == Some("fn") {
                names.extend(words.next().map(ToOwned::to_owned));
            }
        }
    }
    names
}

#[test]
fn every_call_is_there_without_futures() {
    let mut count = 0;
    for (of, with, without) in TYPES {
        let there = functions(without, of);
        for name in functions(with, of) {
            let has_it =
                there.contains(&name) || of.ends_with("Lock") && AS_ASYNC.contains(&&*name);
            assert!(has_it, "{of}::{name} is not among {there:?}");
            count += 1;
        }
    }
    assert!(count > 50, "only {count} calls were found");
}
