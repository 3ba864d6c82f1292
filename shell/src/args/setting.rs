//! One flag from the environment or from a file.

use std::any::TypeId;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command, FromArgMatches};

use super::Args;

/// A flag and its place.
#[derive(Debug)]
pub(super) struct Setting {
    /// The parser's id of the flag.
    pub(super) id: String,
    /// Its value, if it takes one.
    pub(super) value: Option<OsString>,
    /// The flag as words of a command line.
    pub(super) words: Vec<OsString>,
    /// Its place, as a message names it.
    place: String,
}

impl Setting {
    /// A flag with its value, as [`words`] reads it.
    ///
    /// # Errors
    /// A message for the operator, if the value is missing or wrong.
    pub(super) fn new(arg: &Arg, value: Option<&OsStr>, place: String) -> Result<Self, String> {
        let words = words(arg, value).map_err(|why| format!("{place}: {why}"))?;
        Ok(Self {
            id: arg.get_id().to_string(),
            value: value.map(OsStr::to_owned),
            words,
            place,
        })
    }

    /// Checks the flag by itself (W2).
    ///
    /// # Errors
    /// A message for the operator, with the flag's place, if its value is wrong.
    pub(super) fn check(&self, flags: &Command) -> Result<(), String> {
        let words = std::iter::once("latchd".into()).chain(self.words.iter().cloned());
        let checked = matches(flags, words)
            .and_then(|matches| Args::from_arg_matches(&matches))
            .map_err(|error| first_sentence(&error))
            .and_then(|args| args.check_each());
        checked.map_err(|why| format!("{}: {why}", self.place))
    }
}

/// A flag with its value, as words of a command line. For a flag without a value, `value` says how often it applies,
/// possibly 0 times.
///
/// # Errors
/// A message for the operator, if the value is missing or wrong.
pub(super) fn words(arg: &Arg, value: Option<&OsStr>) -> Result<Vec<OsString>, String> {
    let name = name(arg);
    match (takes_value(arg), value) {
        (true, None) => Err(format!("{name} needs a value")),
        (true, Some(value)) => {
            let bytes = value.as_bytes();
            let value = if is_path(arg) {
                bytes.to_vec()
            } else if arg.get_value_delimiter().is_some() {
                list(arg, bytes)
            } else {
                trimmed(bytes).to_vec()
            };
            let word = [name.as_bytes(), b"=", &value].concat();
            Ok(vec![OsString::from_vec(word)])
        }
        (false, None) => Ok(vec![name.into()]),
        (false, Some(value)) => {
            let count = value.to_str().and_then(count).ok_or_else(|| {
                let value = value.display();
                format!("{name} does not take the value '{value}'; write 1 or 0, yes or no")
            })?;
            let most = if let ArgAction::Count = arg.get_action() {
                usize::from(u8::MAX)
            } else {
                1
            };
            Ok(vec![name.into(); count.min(most)])
        }
    }
}

/// Parses the words of a command line.
pub(super) fn matches(
    flags: &Command,
    words: impl IntoIterator<Item = OsString>,
) -> Result<ArgMatches, clap::Error> {
    flags.clone().try_get_matches_from(words)
}

/// Whether a flag is also read from the environment and from a file. Flags that end the program at once, and
/// flags of subcommands, are not.
pub(super) fn is_setting(arg: &Arg) -> bool {
    let is_wish = matches!(
        arg.get_action(),
        ArgAction::Set | ArgAction::Append | ArgAction::SetTrue | ArgAction::Count
    );
    is_wish && arg.get_id() != "license"
}

/// The parser's message, without its usage lines.
fn first_sentence(error: &clap::Error) -> String {
    let said = error.to_string();
    let said = said.strip_prefix("error: ").unwrap_or(&said);
    said.lines()
        .take_while(|line| !line.is_empty())
        .collect::<Vec<_>>()
        .join("\n")
}

/// Whether a flag has a value.
pub(super) fn takes_value(arg: &Arg) -> bool {
    arg.get_action().takes_values()
}

fn is_path(arg: &Arg) -> bool {
    arg.get_value_parser().type_id() == TypeId::of::<PathBuf>()
}

/// A list without empty entries, as memcached's strtok(3) and getsubopt(3) read it. A list of nothing else stays as it is.
fn list(arg: &Arg, value: &[u8]) -> Vec<u8> {
    // memcached's -l takes both.
    let is_end = |byte: &u8| *byte == b',' || *byte == b';' && arg.get_id() == "listen";
    let entries: Vec<_> = value
        .split(is_end)
        .map(<[u8]>::trim_ascii)
        .filter(|entry| !entry.is_empty())
        .collect();
    if entries.is_empty() {
        return value.to_vec();
    }
    entries.join(&b',')
}

/// A value without the blanks around it, unless it consists of blanks.
pub(super) fn trimmed(value: &[u8]) -> &[u8] {
    match value.trim_ascii() {
        b"" => value,
        trimmed => trimmed,
    }
}

/// The flag as a person writes it, by its long name if it has one.
pub(super) fn name(arg: &Arg) -> String {
    match (arg.get_long(), arg.get_short()) {
        (Some(long), _) => format!("--{long}"),
        (None, Some(short)) => format!("-{short}"),
        (None, None) => arg.get_id().to_string(),
    }
}

/// How often a flag without a value applies.
pub(super) fn count(text: &str) -> Option<usize> {
    match text {
        "yes" | "true" | "on" => Some(1),
        "no" | "false" | "off" => Some(0),
        number => number.parse().ok(),
    }
}
