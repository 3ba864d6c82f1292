//! Flags in the environment: `LATCHD_` and the flag's long name, `LATCHD_MEMORY_LIMIT=64`.
//!
//! - An empty variable says nothing: that is how a variable is taken back in a container.
//! - What Kubernetes sets for a service whose name begins with `latchd` is about other servers, and nobody's
//!   wish: `LATCHD_PORT=tcp://10.0.0.1:11211`, `LATCHD_METRICS_SERVICE_HOST`. It is told from flags by the
//!   whole of its form, so that a misspelt flag is none of it.
//!
//! Source: Kubernetes `pkg/kubelet/envvars/envvars.go`, `FromServices` and `makeLinkVariables`.

use std::ffi::{OsStr, OsString};

use clap::{Arg, Command};

use super::setting::{Setting, is_setting};

/// What such a variable begins with.
const PREFIX: &str = "LATCHD_";

/// What begins so and is no flag: what latchd tells the processes that it starts, and what its tests are
/// told.
const OTHERS: &[&str] = &[
    "LATCHD_CLIENTS_DIR",
    "LATCHD_DETACHED",
    "LATCHD_ITEMS",
    "LATCHD_LOCK_KEY",
    "LATCHD_LOCK_KEYS",
    "LATCHD_LOCK_NUMBER",
    "LATCHD_LOCK_NUMBERS",
    "LATCHD_ORDERS",
    "LATCHD_PAIRS",
    "LATCHD_PASSWORD",
    "LATCHD_REQUIRE_PEERS",
    "LATCHD_SEED",
    "LATCHD_SERVER",
    "LATCHD_SEQUENCES",
    "LATCHD_STORE_SEQUENCES",
    "LATCHD_STRESS_SECS",
];

/// What begins so, is no flag and has a rest of its own.
const OTHERS_PREFIX: &str = "LATCHD_TEST_";

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
    is_of_service(name, &value.to_string_lossy())
        || name.starts_with(OTHERS_PREFIX)
        || OTHERS.contains(&name)
}

/// Whether a variable is one of those that Kubernetes sets for a service: where it is, and its ports.
fn is_of_service(name: &str, value: &str) -> bool {
    let is_port = |text: &str| text.parse::<u16>().is_ok();
    if name.ends_with("_SERVICE_HOST") {
        return true;
    }
    if let Some((_, port_name)) = name.split_once("_SERVICE_PORT") {
        return is_port(value) && (port_name.is_empty() || port_name.starts_with('_'));
    }
    if name.ends_with("_PORT") && value.contains("://") {
        return true;
    }
    // `_PORT_<number>_<protocol>`, and what that comes to.
    name.match_indices("_PORT_").any(|(at, part)| {
        let rest = &name[at + part.len()..];
        let (number, protocol) = rest.split_once('_').unwrap_or((rest, ""));
        let (protocol, field) = protocol.split_once('_').unwrap_or((protocol, ""));
        is_port(number)
            && matches!(protocol, "TCP" | "UDP" | "SCTP")
            && matches!(field, "" | "PROTO" | "PORT" | "ADDR")
    })
}

/// What the variable of a flag is called; a flag without a long name has none.
fn variable(arg: &Arg) -> Option<String> {
    let long = arg.get_long()?;
    Some(format!("{PREFIX}{}", long.replace('-', "_").to_uppercase()))
}
