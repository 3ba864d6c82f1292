//! Words that are neither options nor tasks.
//!
//! memcached ignores them. A unit or a role may end a command line in `>> /var/log/memcached.log 2>&1` though no shell
//! reads it. They are ignored with one warning. A task behind options, or a misspelt one, is an error.

use std::ffi::OsString;

use clap::Command;
use strsim::osa_distance;

/// The warning about operands, if there are any.
///
/// # Errors
/// A message for the operator, if one of them is a task or resembles one.
pub(super) fn judge(flags: &Command, operands: &[OsString]) -> Result<Option<String>, String> {
    let shown: Vec<_> = operands
        .iter()
        .map(|word| word.to_string_lossy().escape_debug().to_string())
        .collect();
    let tasks: Vec<_> = flags.get_subcommands().map(Command::get_name).collect();
    let is_redirection = |word: &str| word.contains(['<', '>']);
    let mut before = "";
    for word in &shown {
        // The next word is the file.
        let is_target = before.ends_with(['<', '>']);
        before = word;
        if is_target || is_redirection(word) {
            continue;
        }
        if let Some(task) = tasks.iter().find(|task| is_near(word, task)) {
            return Err(format!(
                "no option or task '{word}' at this place; write `latchd {task}` first, or remove the word"
            ));
        }
    }
    if shown.is_empty() {
        return Ok(None);
    }
    let advice = if shown.iter().any(|word| is_redirection(word)) {
        "no shell reads this line; log to a file with --log-file PATH".to_owned()
    } else {
        format!("no such task; the tasks are {}", tasks.join(", "))
    };
    Ok(Some(format!("ignoring {}: {advice}", quoted(&shown))))
}

/// Words in quotes, with commas between.
pub(super) fn quoted(words: &[String]) -> String {
    format!("'{}'", words.join("', '"))
}

/// Whether a word is a name or a misspelt one.
pub(super) fn is_near(word: &str, name: &str) -> bool {
    let most = if name.len() > 4 { 2 } else { 1 };
    osa_distance(word, name) <= most
}
