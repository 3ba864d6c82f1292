//! The sources of flags: the command line, the environment, and a file.
//!
//! - W1: The nearer source wins: the command line overrides the environment, which overrides the file. A
//!   repeatable flag (`-l`, `-v`) comes from the nearest source alone. For `-o` each source adds its options,
//!   and those of the nearest source come last.
//! - W2: Every flag of a source is checked by itself, so an error names its place.
//! - W3: An unknown name is an error. A misspelt `auth_file` must not start an open server.
//!
//! All sources become words of one command line, so values are parsed in one place. Blanks around a value are
//! skipped there ([`blanks`](super::blanks)).

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgAction, ArgMatches, Command, CommandFactory, FromArgMatches};

use super::setting::{Setting, matches};
use super::{Args, environment, file};

/// Reads the flags of this process from all sources.
///
/// # Errors
/// A wrong flag and its place; or a request for help, which the caller prints.
pub(crate) fn read(words: impl IntoIterator<Item = OsString>) -> Result<Args, clap::Error> {
    read_from(words, std::env::vars_os())
}

/// The program's flags. The last of two equal flags wins, as in getopt(3).
pub(crate) fn command() -> Command {
    Args::command().mut_args(|arg| {
        if !matches!(arg.get_action(), ArgAction::Set | ArgAction::SetTrue) {
            return arg;
        }
        let itself = arg.get_id().clone();
        arg.overrides_with(itself)
    })
}

pub(super) fn read_from(
    words: impl IntoIterator<Item = OsString>,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Args, clap::Error> {
    let mut flags = command();
    flags.build();
    let words: Vec<_> = words.into_iter().collect();
    let said = matches(&flags, words.clone())?;
    if said.subcommand_name().is_some() {
        return Args::from_arg_matches(&said);
    }
    let mistake = |why: String| command().error(ErrorKind::ValueValidation, why);
    let environment = environment::settings(&flags, environment).map_err(mistake)?;
    let path = path(&said, &environment);
    let file = match path {
        Some(path) => file::settings(&flags, &path).map_err(mistake)?,
        None => Vec::new(),
    };
    let mut all: Vec<_> = words.first().cloned().into_iter().collect();
    let by_environment = |id: &str| environment.iter().any(|nearer| nearer.id == id);
    let from_file = file
        .iter()
        .filter(|setting| is_added_to(&setting.id) || !by_environment(&setting.id));
    for setting in from_file.chain(&environment) {
        setting.check(&flags).map_err(mistake)?;
        if is_added_to(&setting.id) || !is_said(&said, &setting.id) {
            all.extend(setting.words.iter().cloned());
        }
    }
    all.extend(words.into_iter().skip(1));
    Args::from_arg_matches(&matches(&flags, all)?)
}

/// The file to read, if any.
fn path(said: &ArgMatches, environment: &[Setting]) -> Option<PathBuf> {
    let by_environment = environment
        .iter()
        .find(|setting| setting.id == "config")
        .and_then(|setting| setting.value.clone().map(PathBuf::from));
    said.get_one::<PathBuf>("config")
        .cloned()
        .or(by_environment)
}

/// Whether the command line has this flag.
fn is_said(said: &ArgMatches, id: &str) -> bool {
    said.value_source(id) == Some(ValueSource::CommandLine)
}

/// Whether the values of several sources are combined (W1).
fn is_added_to(id: &str) -> bool {
    id == "extended"
}
