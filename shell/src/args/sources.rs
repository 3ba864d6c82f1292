//! The sources of flags: the command line, the environment, and a file.
//!
//! - W1: The nearer source wins: the command line overrides the environment, which overrides the file. A
//!   repeatable flag (`-l`, `-v`) comes from the nearest source alone. For `-o` each source adds its options,
//!   and those of the nearest source come last.
//! - W2: Every flag of a source is checked by itself, so an error names its place.
//! - W3: An unknown name is an error. A misspelt `auth_file` must not start an open server.
//!
//! All sources become words of one command line, so values are parsed in one place. The words of the command line and
//! of the file are split in one place, too ([`words`](super::words)).

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use clap::{ArgAction, ArgMatches, Command, CommandFactory, FromArgMatches};

use super::setting::{self, Setting, matches};
use super::words::{Part, parts};
use super::{Args, environment, file, operands};

/// Reads the flags of this process from all sources.
///
/// # Errors
/// A wrong flag and its place; or a request for help, which the caller prints.
pub(crate) fn read(words: impl IntoIterator<Item = OsString>) -> Result<Args, clap::Error> {
    read_from(words, std::env::vars_os())
}

/// The program's flags. The last of two equal flags wins, as in getopt(3).
#[must_use]
pub fn command() -> Command {
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
    let mut words: Vec<_> = words.into_iter().collect();
    if words.get(1).is_some_and(is_own_name) {
        words.remove(1);
    }
    let task = words.get(1).and_then(|word| word.to_str());
    if task.is_some_and(|task| flags.find_subcommand(task).is_some()) {
        return Args::from_arg_matches(&matches(&flags, words)?);
    }
    let mistake = |why: String| command().error(ErrorKind::ValueValidation, why);
    let line = CommandLine::read(&flags, words).map_err(mistake)?;
    // Help is printed whatever the other sources have.
    let said = matches(&flags, line.words.clone())?;
    let environment = environment::settings(&flags, environment).map_err(mistake)?;
    let path = path(&said, &environment);
    let file = path.map(|path| file::settings(&flags, &path)).transpose();
    let (file, ignored_in_file) = file.map_err(mistake)?.unwrap_or_default();
    let mut all: Vec<_> = line.words.first().cloned().into_iter().collect();
    let by_environment = |id: &str| environment.iter().any(|nearer| nearer.id == id);
    let from_file = file
        .iter()
        .filter(|setting| is_added_to(&setting.id) || !by_environment(&setting.id));
    for setting in from_file.chain(&environment) {
        setting.check(&flags).map_err(mistake)?;
        if is_added_to(&setting.id) || !line.ids.contains(&setting.id) {
            all.extend(setting.words.iter().cloned());
        }
    }
    all.extend(line.words.into_iter().skip(1));
    let mut args = Args::from_arg_matches(&matches(&flags, all)?)?;
    args.warnings.extend(line.warning);
    args.warnings.extend(ignored_in_file);
    Ok(args)
}

/// Whether a first word is the name of a program: containers for memcached run `memcached -m 64`, also where the image
/// names the program itself.
fn is_own_name(word: &OsString) -> bool {
    let name = Path::new(word).file_name();
    name.is_some_and(|name| name == "memcached" || name == "latchd")
}

/// The command line of a server.
struct CommandLine {
    /// Its flags, in the form that the parser reads, after the program's name.
    words: Vec<OsString>,
    /// The ids of its flags.
    ids: Vec<String>,
    /// The warning about its operands.
    warning: Option<String>,
}

impl CommandLine {
    fn read(flags: &Command, words: Vec<OsString>) -> Result<Self, String> {
        let mut words = words.into_iter();
        let mut plain: Vec<_> = words.next().into_iter().collect();
        let (mut ids, mut operands) = (Vec::new(), Vec::new());
        for part in parts(flags, words) {
            match part {
                Part::Flag(arg, value) => {
                    ids.push(arg.get_id().to_string());
                    plain.extend(setting::words(arg, value.as_deref())?);
                }
                Part::Operand(word) => operands.push(word),
                Part::Other(word) => plain.push(word),
            }
        }
        Ok(Self {
            words: plain,
            ids,
            warning: operands::judge(flags, &operands)?,
        })
    }
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

/// Whether the values of several sources are combined (W1).
fn is_added_to(id: &str) -> bool {
    id == "extended"
}
