//! One flag that does not stand on the command line.

use std::ffi::{OsStr, OsString};

use clap::{Arg, ArgAction, ArgMatches, Command, FromArgMatches};

use super::{Args, blanks};

/// A flag, and where it stands.
#[derive(Debug)]
pub(super) struct Setting {
    /// What the parser calls it.
    pub(super) id: String,
    /// What it is given, if it takes something.
    pub(super) value: Option<OsString>,
    /// It as words of a command line.
    pub(super) words: Vec<OsString>,
    /// Where it stands, as a person finds it.
    place: String,
}

impl Setting {
    /// A flag with what it is given; one that takes nothing is given how often it is meant, 0 included.
    ///
    /// # Errors
    /// It is not given what it takes; a sentence for a person.
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
                    "{}: {name} takes no value such as '{}': 1 or 0, yes or no",
                    setting.place,
                    value.display()
                ));
            }
        }
        Ok(setting)
    }

    /// The same flag so many times.
    pub(super) fn repeated(mut self, times: usize) -> Self {
        self.words = self
            .words
            .iter()
            .flat_map(|word| std::iter::repeat_n(word.clone(), times))
            .collect();
        self
    }

    /// Looks at it by itself (W2).
    ///
    /// # Errors
    /// It has a value that it cannot have; a sentence for a person, with its place.
    pub(super) fn check(&self, flags: &Command) -> Result<(), String> {
        let words = std::iter::once("latchd".into()).chain(self.words.iter().cloned());
        let checked = matches(flags, words)
            .and_then(|matches| Args::from_arg_matches(&matches))
            .map_err(|error| first_sentence(&error))
            .and_then(|args| args.check_each());
        checked.map_err(|what| format!("{}: {what}", self.place))
    }
}

/// What the words of a command line say.
pub(super) fn matches(
    flags: &Command,
    words: impl IntoIterator<Item = OsString>,
) -> Result<ArgMatches, clap::Error> {
    flags
        .clone()
        .try_get_matches_from(blanks::skip(flags, words))
}

/// Whether a flag can stand in a source other than the command line: what ends the program at once,
/// or belongs to `latchd lock`, cannot.
pub(super) fn is_setting(arg: &Arg) -> bool {
    let is_wish = matches!(
        arg.get_action(),
        ArgAction::Set | ArgAction::Append | ArgAction::SetTrue | ArgAction::Count
    );
    is_wish && arg.get_id() != "license"
}

/// What the parser says, without how to use the program.
fn first_sentence(error: &clap::Error) -> String {
    let said = error.to_string();
    let said = said.strip_prefix("error: ").unwrap_or(&said);
    said.lines()
        .take_while(|line| !line.is_empty())
        .collect::<Vec<_>>()
        .join("\n")
}

/// How a flag is written: by its long name if it has one.
pub(super) fn name(arg: &Arg) -> String {
    match (arg.get_long(), arg.get_short()) {
        (Some(long), _) => format!("--{long}"),
        (None, Some(short)) => format!("-{short}"),
        (None, None) => arg.get_id().to_string(),
    }
}

/// How often a flag without a value is meant.
fn count(text: &str) -> Option<usize> {
    match text {
        "yes" | "true" | "on" => Some(1),
        "no" | "false" | "off" => Some(0),
        number => number.parse().ok(),
    }
}
