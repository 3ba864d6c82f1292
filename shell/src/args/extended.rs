//! `-o`: options without a letter of their own.
//!
//! Each option of memcached is implemented, accepted with one warning
//! ([`is_ignored`]), or refused.

use std::num::NonZeroUsize;
use std::time::Duration;

use latchd_protocol::wire::LockedReply;
use latchd_server::Config;

use super::ignored::is_ignored;
use super::tls::TlsOptions;

/// Applies all options. Returns those about TLS.
///
/// # Errors
/// A message for the operator, if an option does not exist or its value is wrong.
pub(super) fn extend(
    config: &mut Config,
    options: &[String],
    ignored: &mut Vec<String>,
) -> Result<TlsOptions, String> {
    let mut tls = TlsOptions::new();
    for option in options {
        if !tls.take(option, ignored)? {
            apply(config, option, ignored)?;
        }
    }
    Ok(tls)
}

fn apply(config: &mut Config, option: &str, ignored: &mut Vec<String>) -> Result<(), String> {
    let (name, value) = option
        .split_once('=')
        .map_or((option, None), |(n, v)| (n, Some(v)));
    let number = |unit| number(name, value, unit);
    match (name, value) {
        ("idle_timeout", _) => {
            let seconds = number("seconds")?;
            let timeout = Duration::from_secs(u64::from(seconds));
            config.idle_timeout = (seconds > 0).then_some(timeout);
        }
        ("locks_per_conn", _) => config.locks_per_connection_max = size(number("locks")?, 0),
        ("sessions", _) => config.sessions.sessions_max = size(number("sessions")?, 0),
        ("sessions_per_peer", _) => {
            config.sessions.per_address_max = limit(number("sessions")?, 0);
        }
        ("locked_reply", Some("locked")) => config.allowed.locked_reply = LockedReply::Locked,
        ("locked_reply", Some("not_stored")) => {
            config.allowed.locked_reply = LockedReply::NotStored;
        }
        ("locked_reply", _) => {
            return Err("-o locked_reply: expected `locked` or `not_stored`".into());
        }
        ("conns_per_peer", _) => {
            let connections = size(number("connections")?, 0);
            config.connections_per_peer_max = NonZeroUsize::new(connections);
        }
        ("read_buf_mem_limit", _) => {
            config.unfinished_bytes_max = Some(limit(number("megabytes")?, 20));
        }
        ("resp_obj_mem_limit", _) => {
            config.unsent_bytes_max = Some(limit(number("megabytes")?, 20));
        }
        ("watcher_logbuf_size", _) => {
            config.watcher_bytes_max = size(number("kilobytes")?, 10);
        }
        ("", None) => {}
        ("maxconns_fast", _) => config.reject_past_limit = true,
        ("no_maxconns_fast", _) => config.reject_past_limit = false,
        _ if name.starts_with("ext_") => {
            return Err(format!(
                "-o {name}: external storage is not supported; remove this option"
            ));
        }
        _ if is_ignored(name) => ignored.push(format!("-o {name}")),
        _ => {
            return Err(format!(
                "-o {name}: unknown option; see -o in `latchd --help`"
            ));
        }
    }
    Ok(())
}

/// The value of an option.
fn number(name: &str, value: Option<&str>, unit: &str) -> Result<u32, String> {
    value
        .and_then(|value| value.trim().parse().ok())
        .ok_or_else(|| format!("-o {name}: expected a number of {unit}, such as {name}=10"))
}

/// A number of units of 2^`shift`.
fn size(number: u32, shift: u32) -> usize {
    usize::try_from(u64::from(number) << shift).unwrap_or(usize::MAX)
}

/// The same as a limit; 0 is no limit.
fn limit(number: u32, shift: u32) -> usize {
    match size(number, shift) {
        0 => usize::MAX,
        limit => limit,
    }
}
