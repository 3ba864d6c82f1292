//! How many descriptors a server needs, and whether it may have them.

use std::fs::File;
use std::io;

use latchd_server::Config;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// How many a server of this configuration needs.
pub(crate) fn needed(config: &Config) -> u64 {
    config.connections_max as u64 + config.reserved_descriptors()
}

/// The most that the process may have; `None` is any number.
pub(crate) fn most() -> Option<u64> {
    getrlimit(Resource::Nofile).maximum
}

/// Raises the limit as far as the connections need and the system allows. Returns what is to be said if
/// that is not enough.
pub(crate) fn raise(config: &Config) -> Option<String> {
    let needed = needed(config);
    let limit = getrlimit(Resource::Nofile);
    let soft = limit.current.filter(|soft| *soft < needed)?;
    let raised = limit.maximum.map_or(needed, |hard| needed.min(hard));
    let wanted = Rlimit {
        current: Some(raised),
        maximum: limit.maximum,
    };
    let got = if setrlimit(Resource::Nofile, wanted).is_ok() {
        raised
    } else {
        soft
    };
    (got < needed).then(|| too_few(config, got))
}

/// Whether so many descriptors more can be opened.
///
/// # Errors
/// They cannot; a sentence for a person.
pub(crate) fn check(count: usize) -> Result<(), String> {
    let probes: io::Result<Vec<File>> = (0..count).map(|_| File::open("/dev/null")).collect();
    let too_few = |error| {
        format!("{count} file descriptors are needed: {error}; raise the limit with `ulimit -n`")
    };
    probes.map(drop).map_err(too_few)
}

/// What is to be said of a limit that is too low.
pub(crate) fn too_few(config: &Config, got: u64) -> String {
    format!(
        "{} connections need {} descriptors, and the limit is {got}: raise it with `ulimit -n`, or \
         lower -c",
        config.connections_max,
        needed(config)
    )
}
