//! One flag from the environment or from a file.

use std::ffi::{OsStr, OsString};

use clap::{Arg, ArgAction, ArgMatches, Command, FromArgMatches};

use super::{Args, blanks};

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
    /// A flag with its value. For a flag without a value, `value` says how often it applies, possibly 0 times.
    ///
    /// # Errors
    /// A message for the operator, if the value is missing or wrong.
    pub(super) fn new(arg: &Arg, value: Option<&OsStr>, place: String) -> Result<Self, String> {
        let name = name(arg);
        let mut setting = Self {
            id: arg.get_id().to_string(),
            value: value.map(OsStr::to_owned),
            words: Vec::new(),
            place,
        };
        let takes_value = arg.get_action().takes_values();
        let count = value.and_then(OsStr::to_str).and_then(count);
        match (takes_value, value, count) {
            (true, Some(value), _) => {
                let mut word = OsString::from(&name);
                if arg.get_long().is_some() {
                    word.push("=");
                }
                word.push(value);
                setting.words.push(word);
            }
            (true, None, _) => {
                return Err(format!("{}: {name} needs a value", setting.place));
            }
            (false, None, _) => setting.words.push(name.into()),
            (false, Some(_), Some(count)) => {
                let most = if let ArgAction::Count = arg.get_action() {
                    usize::from(u8::MAX)
                } else {
                    1
                };
                setting
                    .words
                    .extend(std::iter::repeat_n(name.into(), count.min(most)));
            }
            (false, Some(value), None) => {
                return Err(format!(
                    "{}: {name} does not take the value '{}'; write 1 or 0, yes or no",
                    setting.place,
                    value.display()
                ));
            }
        }
        Ok(setting)
    }

    /// The same flag `times` times.
    pub(super) fn repeated(mut self, times: usize) -> Self {
        self.words = self
            .words
            .iter()
            .flat_map(|word| std::iter::repeat_n(word.clone(), times))
            .collect();
        self
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

/// Parses the words of a command line.
pub(super) fn matches(
    flags: &Command,
    words: impl IntoIterator<Item = OsString>,
) -> Result<ArgMatches, clap::Error> {
    flags
        .clone()
        .try_get_matches_from(blanks::skip(flags, words))
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

/// The flag as a person writes it, by its long name if it has one.
pub(super) fn name(arg: &Arg) -> String {
    match (arg.get_long(), arg.get_short()) {
        (Some(long), _) => format!("--{long}"),
        (None, Some(short)) => format!("-{short}"),
        (None, None) => arg.get_id().to_string(),
    }
}

/// How often a flag without a value applies.
fn count(text: &str) -> Option<usize> {
    match text {
        "yes" | "true" | "on" => Some(1),
        "no" | "false" | "off" => Some(0),
        number => number.parse().ok(),
    }
}
