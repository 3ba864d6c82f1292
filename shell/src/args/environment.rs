//! Flags in the environment: `LATCHD_` and the flag's long name, `LATCHD_MEMORY_LIMIT=64`.
//!
//! - An empty variable says nothing: that is how a variable is taken back in a container.
//! - What Kubernetes sets for a service of the name `latchd` is about other servers, and nobody's wish:
//!   `LATCHD_PORT=tcp://10.0.0.1:11211`, `LATCHD_SERVICE_HOST`.

use std::ffi::{OsStr, OsString};

use clap::{Arg, Command};

use super::setting::Setting;
use super::sources::is_setting;

/// What such a variable begins with.
const PREFIX: &str = "LATCHD_";

/// What begins so and is no flag: what latchd tells the processes that it starts, and what its tests are
/// told.
const OTHERS: &[&str] = &[
    "LATCHD_CLIENTS_DIR",
    "LATCHD_DETACHED",
    "LATCHD_LOCK_KEY",
    "LATCHD_LOCK_KEYS",
    "LATCHD_LOCK_NUMBER",
    "LATCHD_LOCK_NUMBERS",
    "LATCHD_PAIRS",
    "LATCHD_PASSWORD",
    "LATCHD_REQUIRE_PEERS",
    "LATCHD_SEED",
    "LATCHD_SEQUENCES",
    "LATCHD_STORE_SEQUENCES",
    "LATCHD_STRESS_SECS",
];

/// What begins so, is no flag and has a rest of its own.
const OTHERS_PREFIXES: &[&str] = &["LATCHD_PORT_", "LATCHD_SERVICE_", "LATCHD_TEST_"];

/// The flags of an environment, in the order of their names.
///
/// # Errors
/// There is no such flag, or it is not given what it takes; a sentence for a person.
pub(super) fn settings(
    flags: &Command,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Vec<Setting>, String> {
    let mut variables: Vec<_> = environment
        .into_iter()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
        .filter(|(name, value)| name.starts_with(PREFIX) && !value.is_empty())
        .filter(|(name, value)| !is_of_others(name, value))
        .collect();
    variables.sort();
    variables
        .iter()
        .map(|(name, value)| {
            let arg = flags
                .get_arguments()
                .find(|arg| is_setting(arg) && variable(arg).as_deref() == Some(name))
                .ok_or_else(|| {
                    format!(
                        "{name} in the environment: no flag has that name; unset it, or see \
                         `latchd --help`: --memory-limit is LATCHD_MEMORY_LIMIT"
                    )
                })?;
            Setting::new(arg, Some(value), format!("{name} in the environment"))
        })
        .collect()
}

fn is_of_others(name: &str, value: &OsStr) -> bool {
    let is_service = name == "LATCHD_PORT" && value.to_string_lossy().contains("://");
    let is_prefixed = OTHERS_PREFIXES
        .iter()
        .any(|prefix| name.starts_with(prefix));
    is_service || is_prefixed || OTHERS.contains(&name)
}

/// What the variable of a flag is called; a flag without a long name has none.
fn variable(arg: &Arg) -> Option<String> {
    let long = arg.get_long()?;
    Some(format!("{PREFIX}{}", long.replace('-', "_").to_uppercase()))
}
