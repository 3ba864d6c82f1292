//! The keys of `latchd lock`: from the command line, or from a file.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use super::LockArgs;

/// The longest list of keys that is read from a file, in bytes: 4,000 of the longest keys.
const LIST_BYTES_MAX: u64 = 1 << 20;

/// The largest number of keys in a message.
const NAMES_MAX: usize = 8;

/// The path that means standard input.
const STANDARD_INPUT: &str = "-";

/// The separator between keys and the command.
const SEPARATOR: &str = "--";

/// The keys and the command of a command line.
pub(super) struct Job {
    /// The keys in byte order, without duplicates.
    pub(super) keys: Vec<Vec<u8>>,
    /// The program and its arguments.
    pub(super) command: Vec<OsString>,
}

impl Job {
    /// Collects the keys, and reads the file of `--keys-from`. Keys that begin with `-` are written between two
    /// separators: `latchd lock -- KEY... -- COMMAND`.
    ///
    /// # Errors
    /// A message for the user.
    pub(super) fn of(args: &LockArgs) -> Result<Self, String> {
        let mut command = args.command.clone();
        let mut keys = args.keys.clone();
        if keys.is_empty()
            && args.keys_from.is_none()
            && let Some(place) = command.iter().position(|word| word == SEPARATOR)
        {
            let behind = command.split_off(place);
            keys = std::mem::replace(&mut command, behind);
            command.remove(0);
        }
        let mut keys: Vec<_> = keys.into_iter().map(OsString::into_vec).collect();
        if let Some(path) = &args.keys_from {
            let listed = listed(path);
            keys.extend(listed.map_err(|error| {
                format!("--keys-from: cannot read {}: {error}", path.display())
            })?);
        }
        if keys.iter().any(Vec::is_empty) {
            return Err("a key is empty; give 1 to 250 bytes for each".into());
        }
        // All clients use this order, so two that want the same keys never wait for each other.
        keys.sort_unstable();
        keys.dedup();
        if keys.is_empty() {
            return Err("no key given; usage: latchd lock KEY... -- COMMAND".into());
        }
        if command.is_empty() {
            return Err("no command given; usage: latchd lock KEY... -- COMMAND".into());
        }
        Ok(Self { keys, command })
    }

    /// The keys for a message, at most [`NAMES_MAX`] of them.
    pub(super) fn names(&self) -> String {
        let shown = self.keys.iter().take(NAMES_MAX);
        let mut names: Vec<_> = shown.map(|key| key.escape_ascii().to_string()).collect();
        if self.keys.len() > NAMES_MAX {
            names.push(format!("and {} more", self.keys.len() - NAMES_MAX));
        }
        names.join(" ")
    }
}

/// The lines of a file. All bytes except the line end belong to a key.
fn listed(path: &Path) -> io::Result<Vec<Vec<u8>>> {
    let mut text = Vec::new();
    let source: Box<dyn Read> = if path.as_os_str().as_bytes() == STANDARD_INPUT.as_bytes() {
        Box::new(io::stdin().lock())
    } else {
        Box::new(File::open(path)?)
    };
    source.take(LIST_BYTES_MAX + 1).read_to_end(&mut text)?;
    if text.len() as u64 > LIST_BYTES_MAX {
        return Err(io::Error::other("the list of keys exceeds 1 MiB"));
    }
    let text = text.strip_suffix(b"\n").unwrap_or(&text);
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let lines = text.split(|byte| *byte == b'\n');
    lines
        .zip(1..)
        .map(|(line, number)| match line {
            b"" => Err(io::Error::other(format!("line {number} is empty"))),
            line if line.contains(&0) => Err(io::Error::other(format!(
                "line {number} contains a zero byte, which variables cannot hold"
            ))),
            line => Ok(line.to_vec()),
        })
        .collect()
}
