//! Flags in a file, as in Debian's `/etc/memcached.conf`.
//!
//! - A line that begins with `-` has flags as on the command line, in the words of a shell: `-m 64`, `-m "64" -vv`,
//!   `--log-file '/var/log/a b'`. A flag without a value may have a number, yes or no behind it.
//! - `#` at the beginning of a word begins a comment.
//! - Debian's `logfile PATH` is `--log-file`.
//! - Debian's scripts skip every other line, and lines that begin with `-h`. They are ignored with one warning. So are
//!   operands. A line that begins with the name of a flag, or a misspelt one, is an error.
//!
//! Source: Debian `start-memcached` and `systemd-memcached-wrapper`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use clap::{Arg, Command};

use super::operands::{is_near, quoted};
use super::setting::{Setting, count, is_setting, takes_value};
use super::words::{Part, parts};

/// What editors on Windows put in front of UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The flags of a file, in the order of its lines, and a warning about ignored words.
///
/// # Errors
/// A message for the operator, with the line, if the file cannot be read or a line is wrong.
pub(super) fn settings(
    flags: &Command,
    path: &Path,
) -> Result<(Vec<Setting>, Option<String>), String> {
    let shown = path.display();
    let text =
        std::fs::read(path).map_err(|error| format!("--config: cannot read {shown}: {error}"))?;
    let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&text);
    let mut lines = Lines {
        flags,
        settings: Vec::new(),
        ignored: Vec::new(),
    };
    for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n')) {
        let place = format!("{shown}:{number}");
        lines.read(line.trim_ascii(), &place)?;
    }
    let warning = (!lines.ignored.is_empty()).then(|| {
        let ignored = quoted(&lines.ignored);
        format!("ignoring {ignored} in {shown}: not options; see `latchd --help`")
    });
    Ok((lines.settings, warning))
}

/// The lines so far.
struct Lines<'a> {
    flags: &'a Command,
    settings: Vec<Setting>,
    /// The first words of ignored lines, and operands.
    ignored: Vec<String>,
}

impl Lines<'_> {
    /// Reads a line without the blanks around it.
    fn read(&mut self, line: &[u8], place: &str) -> Result<(), String> {
        match line {
            [] | [b'#', ..] => {}
            [b'-', b'h', ..] => self.ignored.push(first_word(line)),
            [b'-', ..] => self.read_flags(line, place)?,
            _ => self.read_other(line, place)?,
        }
        Ok(())
    }

    fn read_flags(&mut self, line: &[u8], place: &str) -> Result<(), String> {
        let mut parts = parts(self.flags, words(line, place)?)
            .into_iter()
            .peekable();
        while let Some(part) = parts.next() {
            match part {
                Part::Flag(arg, value) if arg.get_id() != "config" => {
                    let behind = || match parts.next_if(|next| is_count(arg, next)) {
                        Some(Part::Operand(word)) => Some(word),
                        Some(Part::Flag(..) | Part::Other(_)) | None => None,
                    };
                    let value = value.or_else(behind);
                    self.settings
                        .push(Setting::new(arg, value.as_deref(), place.to_owned())?);
                }
                Part::Flag(arg, _) => {
                    let name = arg.get_id();
                    return Err(format!(
                        "{place}: unknown option '--{name}' in a file; remove it"
                    ));
                }
                Part::Other(word) => {
                    let word = word.display();
                    return Err(format!(
                        "{place}: unknown option '{word}'; see `latchd --help`"
                    ));
                }
                Part::Operand(word) => self.ignored.push(word.to_string_lossy().into_owned()),
            }
        }
        Ok(())
    }

    /// Reads a line that begins with no flag.
    fn read_other(&mut self, line: &[u8], place: &str) -> Result<(), String> {
        let first = first_word(line);
        if first == "logfile" {
            let path = words(line, place)?.split_off(1).join(OsStr::new(" "));
            if path.is_empty() {
                self.ignored.push(first);
                return Ok(());
            }
            let arg = self.setting(|long| long == "log-file");
            let setting = arg.map(|arg| Setting::new(arg, Some(&path), place.to_owned()));
            self.settings.extend(setting.transpose()?);
            return Ok(());
        }
        let name = first.split(['=', ':']).next().unwrap_or_default();
        let name = name.replace('_', "-").to_lowercase();
        if let Some(arg) = self.setting(|long| is_near(&name, long)) {
            return Err(format!(
                "{place}: unknown option '{first}'; write --{}",
                arg.get_long().unwrap_or_default()
            ));
        }
        self.ignored.push(first);
        Ok(())
    }

    /// A setting by its long name.
    fn setting(&self, is_it: impl Fn(&str) -> bool) -> Option<&Arg> {
        let mut known = self.flags.get_arguments();
        known.find(|arg| is_setting(arg) && arg.get_long().is_some_and(&is_it))
    }
}

/// Whether a part says how often a flag without a value applies.
fn is_count(arg: &Arg, part: &Part<'_>) -> bool {
    let Part::Operand(word) = part else {
        return false;
    };
    !takes_value(arg) && word.to_str().and_then(count).is_some()
}

/// The words of a line, as a shell reads them.
fn words(line: &[u8], place: &str) -> Result<Vec<OsString>, String> {
    let words = shlex::bytes::split(line).ok_or_else(|| {
        format!("{place}: a quote is not closed; close it, or write \\ before it")
    })?;
    Ok(words.into_iter().map(OsString::from_vec).collect())
}

/// The first word of a line, for a message.
fn first_word(line: &[u8]) -> String {
    let mut words = line.split(u8::is_ascii_whitespace);
    String::from_utf8_lossy(words.next().unwrap_or_default()).into_owned()
}
