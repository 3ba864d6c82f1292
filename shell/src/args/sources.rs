//! Where flags come from: the command line, the environment, and a file.
//!
//! - W1: the nearer source counts: the command line before the environment before the file. What may be
//!   said several times (`-l`, `-v`) is the nearest source's alone; of `-o` each source adds its options,
//!   and the nearest one's come last.
//! - W2: every flag of a source is looked at by itself, so that a mistake is said with its place.
//! - W3: a name that nobody knows is a mistake. A misspelt `auth_file` must not start an open server.
//!
//! All sources become words of one command line, so that a value is read in one place. Blanks around it are
//! skipped there ([`blanks`](super::blanks)).

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgAction, ArgMatches, Command, CommandFactory, FromArgMatches};

use super::setting::{Setting, matches};
use super::{Args, environment, file};

/// Reads the flags of this process, wherever they come from.
///
/// # Errors
/// What is wrong, and where; or a request for help, which is answered by printing it.
pub(crate) fn read(words: impl IntoIterator<Item = OsString>) -> Result<Args, clap::Error> {
    read_from(words, std::env::vars_os())
}

/// The program's flags. One that is said twice counts as it was said last, as in getopt(3).
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
    let mistake = |what: String| command().error(ErrorKind::ValueValidation, what);
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

/// Which file is to be read, if any.
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

/// Whether what several sources say of it counts together (W1).
fn is_added_to(id: &str) -> bool {
    id == "extended"
}
