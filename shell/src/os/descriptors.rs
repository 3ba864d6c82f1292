//! The number of descriptors that a server needs, and their limit.

use std::fs::File;
use std::io;

use latchd_server::Config;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The number of descriptors that a server of this configuration needs.
pub(crate) fn needed(config: &Config) -> u64 {
    config.connections_max as u64 + config.reserved_descriptors()
}

/// The hard limit; `None` is no limit.
pub(crate) fn most() -> Option<u64> {
    getrlimit(Resource::Nofile).maximum
}

/// Raises the limit as far as the connections need and the system allows. Returns a warning if that is not enough.
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

/// Checks that `count` more descriptors can be opened.
///
/// # Errors
/// A message for the user, if they cannot.
pub(crate) fn check(count: usize) -> Result<(), String> {
    let probes: io::Result<Vec<File>> = (0..count).map(|_| File::open("/dev/null")).collect();
    let too_few = |error| {
        format!("cannot open {count} file descriptors: {error}; raise the limit with `ulimit -n`")
    };
    probes.map(drop).map_err(too_few)
}

/// The warning about a limit that is too low.
pub(crate) fn too_few(config: &Config, got: u64) -> String {
    format!(
        "{} connections need {} descriptors, but the limit is {got}; raise it with `ulimit -n` or \
         lower -c",
        config.connections_max,
        needed(config)
    )
}
