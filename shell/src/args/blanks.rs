//! Skips blanks before a value: a YAML list joins a flag and its value in one word, `"-m 64"`.
//!
//! - memcached reads numbers by atoi(3), which skips blanks, so charts written for it contain such words.
//! - A path in a separate word keeps its blanks, because they may be part of the name.
//! - A value of blanks alone stays as it is. It is refused and does not consume the next word.
//!
//! Source: memcached 1.6.45 `memcached.c`, `main`.

use std::any::TypeId;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use clap::{Arg, Command};

/// The words of a command line, without the blanks around values. The words of a subcommand, such as
/// `latchd lock`, stay as they are.
pub(super) fn skip(
    flags: &Command,
    words: impl IntoIterator<Item = OsString>,
) -> impl Iterator<Item = OsString> {
    let mut words: Vec<_> = words.into_iter().collect();
    let task = words.get(1).and_then(|word| word.to_str());
    if task.is_some_and(|task| flags.find_subcommand(task).is_some()) {
        return words.into_iter();
    }
    // The flag whose value is the next word.
    let mut pending: Option<&Arg> = None;
    for word in words.iter_mut().skip(1) {
        if let Some(arg) = pending.take() {
            if !is_path(arg) {
                trim(word, 0);
            }
        } else if word == "--" {
            break;
        } else if word.as_bytes().starts_with(b"--") {
            pending = skip_in_long(flags, word);
        } else if word.as_bytes().starts_with(b"-") {
            pending = skip_in_short(flags, word);
        }
    }
    words.into_iter()
}

/// Trims `--name=value`. Returns the flag if its value is the next word.
fn skip_in_long<'a>(flags: &'a Command, word: &mut OsString) -> Option<&'a Arg> {
    let text = word.to_str()?;
    let (name, at) = match text.split_once('=') {
        Some((name, _)) => (name, Some(name.len() + 1)),
        None => (text, None),
    };
    let name = name.strip_prefix("--")?;
    let mut known = flags.get_arguments();
    let arg = known.find(|arg| arg.get_long() == Some(name) && takes_value(arg))?;
    let Some(at) = at else {
        return Some(arg);
    };
    if !is_path(arg) {
        trim(word, at);
    }
    None
}

/// Trims `-m 64` in one word, also after other letters. Returns the flag if its value is the next word.
fn skip_in_short<'a>(flags: &'a Command, word: &mut OsString) -> Option<&'a Arg> {
    for (index, letter) in word.as_bytes().iter().enumerate().skip(1) {
        let mut known = flags.get_arguments();
        let arg = known.find(|arg| arg.get_short() == Some(char::from(*letter)))?;
        if takes_value(arg) {
            if index + 1 == word.len() {
                return Some(arg);
            }
            trim(word, index + 1);
            return None;
        }
    }
    None
}

fn takes_value(arg: &Arg) -> bool {
    arg.get_action().takes_values()
}

fn is_path(arg: &Arg) -> bool {
    arg.get_value_parser().type_id() == TypeId::of::<PathBuf>()
}

/// Removes the blanks around the value that begins at `at`, unless it consists of blanks.
fn trim(word: &mut OsString, at: usize) {
    let bytes = word.as_bytes();
    let (front, value) = bytes.split_at(at.min(bytes.len()));
    let trimmed = value.trim_ascii();
    if !trimmed.is_empty() && trimmed.len() < value.len() {
        *word = OsString::from_vec([front, trimmed].concat());
    }
}
