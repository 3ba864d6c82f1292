//! Flags in the environment: `LATCHD_` and the flag's long name, `LATCHD_MEMORY_LIMIT=64`.
//!
//! - An empty variable is ignored, so a container can unset an inherited one.
//! - Kubernetes sets variables for each service whose name begins with `latchd`, such as
//!   `LATCHD_PORT=tcp://10.0.0.1:11211` and `LATCHD_METRICS_SERVICE_HOST`. These are ignored. Only their
//!   complete form is recognized, so a misspelt flag is still an error.
//!
//! Source: Kubernetes `pkg/kubelet/envvars/envvars.go`, `FromServices` and `makeLinkVariables`.

use std::ffi::{OsStr, OsString};

use clap::{Arg, Command};

use super::setting::{Setting, is_setting};

/// The prefix of every variable.
const PREFIX: &str = "LATCHD_";

/// Variables with the prefix that are not flags of a server: passwords, the server of the tasks, and those that
/// latchd sets for its child processes.
const OTHERS: &[&str] = &[
    "LATCHD_AUTHORITY_PASSWORD",
    "LATCHD_DETACHED",
    "LATCHD_LOCK_KEY",
    "LATCHD_LOCK_KEYS",
    "LATCHD_LOCK_NUMBER",
    "LATCHD_LOCK_NUMBERS",
    "LATCHD_PASSWORD",
    "LATCHD_SERVER",
];

/// The flags of an environment, in the order of their names.
///
/// # Errors
/// A message for the operator, if a flag does not exist or its value is wrong.
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
                        "{name} in the environment: no option has this name; unset it, or see \
                         `latchd --help` (--memory-limit is LATCHD_MEMORY_LIMIT)"
                    )
                })?;
            Setting::new(arg, Some(value), format!("{name} in the environment"))
        })
        .collect()
}

fn is_of_others(name: &str, value: &OsStr) -> bool {
    OTHERS.contains(&name) || is_of_service(name, &value.to_string_lossy())
}

/// Whether Kubernetes sets this variable for a service: its address and its ports.
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
    // `_PORT_<number>_<protocol>`, with or without a field.
    name.match_indices("_PORT_").any(|(at, part)| {
        let rest = &name[at + part.len()..];
        let (number, protocol) = rest.split_once('_').unwrap_or((rest, ""));
        let (protocol, field) = protocol.split_once('_').unwrap_or((protocol, ""));
        is_port(number)
            && matches!(protocol, "TCP" | "UDP" | "SCTP")
            && matches!(field, "" | "PROTO" | "PORT" | "ADDR")
    })
}

/// The variable of a flag; a flag without a long name has none.
fn variable(arg: &Arg) -> Option<String> {
    let long = arg.get_long()?;
    Some(format!("{PREFIX}{}", long.replace('-', "_").to_uppercase()))
}
