//! `-o`: options without a letter of their own.
//!
//! Each option of memcached is implemented, accepted with one warning
//! ([`is_ignored`]), or refused.

use std::num::NonZeroUsize;
use std::time::Duration;

use latchd_protocol::wire::LockedReply;
use latchd_server::Config;

use super::ignored::is_ignored;

/// Applies one option.
///
/// # Errors
/// A message for the operator, if the option does not exist or its value is wrong.
pub(super) fn extend(
    config: &mut Config,
    option: &str,
    ignored: &mut Vec<String>,
) -> Result<(), String> {
    let (name, value) = option
        .split_once('=')
        .map_or((option, None), |(n, v)| (n, Some(v)));
    match (name, value) {
        ("idle_timeout", value) => {
            let seconds = number(name, value, "seconds")?;
            let timeout = Duration::from_secs(u64::from(seconds));
            config.idle_timeout = (seconds > 0).then_some(timeout);
        }
        ("locks_per_conn", value) => {
            let locks = number(name, value, "locks")?;
            config.locks_per_connection_max = usize::try_from(locks).unwrap_or(usize::MAX);
        }
        ("sessions", value) => {
            let sessions = number(name, value, "sessions")?;
            config.sessions.sessions_max = usize::try_from(sessions).unwrap_or(usize::MAX);
        }
        ("sessions_per_peer", value) => {
            let sessions = number(name, value, "sessions")?;
            config.sessions.per_address_max = match usize::try_from(sessions) {
                Ok(sessions @ 1..) => sessions,
                Ok(0) | Err(_) => usize::MAX,
            };
        }
        ("locked_reply", value) => {
            config.allowed.locked_reply = match value {
                Some("locked") => LockedReply::Locked,
                Some("not_stored") => LockedReply::NotStored,
                Some(_) | None => {
                    return Err("-o locked_reply: expected `locked` or `not_stored`".into());
                }
            };
        }
        ("conns_per_peer", value) => {
            let connections = number(name, value, "connections")?;
            let connections = usize::try_from(connections).unwrap_or(usize::MAX);
            config.connections_per_peer_max = NonZeroUsize::new(connections);
        }
        ("read_buf_mem_limit", value) => {
            config.unfinished_bytes_max = Some(megabytes(number(name, value, "megabytes")?));
        }
        ("resp_obj_mem_limit", value) => {
            config.unsent_bytes_max = Some(megabytes(number(name, value, "megabytes")?));
        }
        ("watcher_logbuf_size", value) => {
            let kilobytes = number(name, value, "kilobytes")?;
            config.watcher_bytes_max =
                usize::try_from(u64::from(kilobytes) << 10).unwrap_or(usize::MAX);
        }
        ("", None) => {}
        ("maxconns_fast", _) => config.reject_past_limit = true,
        ("no_maxconns_fast", _) => config.reject_past_limit = false,
        _ => {
            if name.starts_with("ext_") {
                return Err(format!(
                    "-o {name}: external storage is not supported; remove this option"
                ));
            }
            if !is_ignored(name) {
                return Err(format!(
                    "-o {name}: unknown option; see -o in `latchd --help`"
                ));
            }
            ignored.push(format!("-o {name}"));
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

/// A limit in bytes; 0 is no limit.
fn megabytes(number: u32) -> usize {
    match number {
        0 => usize::MAX,
        number => usize::try_from(u64::from(number) << 20).unwrap_or(usize::MAX),
    }
}
