//! Flags in a file, one per line, as in Debian's `/etc/memcached.conf`.
//!
//! - A line is a short or long flag as on the command line. The rest of the line is its value, including
//!   blanks: `-m 64`, `-vv`, `--log-file /var/log/a b`, `--memory-limit=64`.
//! - `#` at the beginning of a word begins a comment.
//! - Debian's `logfile PATH` is `--log-file`.
//!
//! Source: Debian `start-memcached` and `systemd-memcached-wrapper`.

use std::ffi::OsStr;
use std::path::Path;

use clap::{Arg, Command};

use super::setting::{Setting, is_setting};

/// The flags of a file, in the order of its lines.
///
/// # Errors
/// A message for the operator, with the line, if the file cannot be read or a line is wrong.
pub(super) fn settings(flags: &Command, path: &Path) -> Result<Vec<Setting>, String> {
    let path_shown = path.display();
    let text = std::fs::read_to_string(path)
        .map_err(|error| format!("--config: cannot read {path_shown}: {error}"))?;
    (1..)
        .zip(text.lines())
        .map(|(number, line)| (number, without_comment(line).trim()))
        .filter(|(_, line)| !line.is_empty())
        .map(|(number, line)| setting(flags, line, format!("{path_shown}:{number}")))
        .collect()
}

/// A line without its comment, which begins with `#` at the beginning of a word.
fn without_comment(line: &str) -> &str {
    let mut follows_blank = true;
    for (at, letter) in line.char_indices() {
        if letter == '#' && follows_blank {
            return &line[..at];
        }
        follows_blank = letter.is_whitespace();
    }
    line
}

/// Reads a line.
fn setting(flags: &Command, line: &str, place: String) -> Result<Setting, String> {
    let (first, rest) = match line.split_once(char::is_whitespace) {
        Some((first, rest)) => (first, Some(rest.trim_start())),
        None => (line, None),
    };
    let unknown = |place: &str| {
        format!(
            "{place}: unknown option '{first}'; see `latchd --help`, and write one option per line"
        )
    };
    if first == "logfile" {
        let arg = find(flags, |arg| arg.get_long() == Some("log-file"));
        let arg = arg.ok_or_else(|| unknown(&place))?;
        return Setting::new(arg, rest.map(OsStr::new), place);
    }
    if let Some(long) = first.strip_prefix("--") {
        let (long, value) = match long.split_once('=') {
            Some((long, _)) => (long, line.split_once('=').map(|(_, value)| value)),
            None => (long, rest),
        };
        let arg = find(flags, |arg| arg.get_long() == Some(long));
        let arg = arg.ok_or_else(|| unknown(&place))?;
        return Setting::new(arg, value.map(OsStr::new), place);
    }
    let mut letters = first.strip_prefix('-').unwrap_or_default().chars();
    let short = letters.next().ok_or_else(|| unknown(&place))?;
    let arg = find(flags, |arg| arg.get_short() == Some(short)).ok_or_else(|| unknown(&place))?;
    let cluster = letters.as_str();
    if arg.get_action().takes_values() {
        // `-m64`, or `-m 64`.
        let value = if cluster.is_empty() {
            rest
        } else {
            line.get(2..)
        };
        return Setting::new(arg, value.map(OsStr::new), place);
    }
    if cluster.chars().any(|letter| letter != short) {
        return Err(format!(
            "{place}: '{first}' is more than one option; write one per line"
        ));
    }
    let times = 1 + cluster.len();
    let setting = Setting::new(arg, rest.map(OsStr::new), place)?;
    Ok(setting.repeated(times))
}

fn find(flags: &Command, is_it: impl Fn(&Arg) -> bool) -> Option<&Arg> {
    flags
        .get_arguments()
        .find(|arg| is_setting(arg) && arg.get_id() != "config" && is_it(arg))
}
