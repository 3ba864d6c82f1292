//! The help of each command: its form, its effect and its replies.
//!
//! Source: docs/PROTOCOL.md, which has every case.

use std::fmt::Write as _;

/// The help, in paragraphs: the title of a group in one line, or a command. The first line of a command is its form,
/// the second its effect; then follow its replies. Lines have at most 100 columns.
const TEXT: &str = include_str!("commands.txt");

/// Behind the help of a command with this argument.
const EXPTIME: &str = "  EXPTIME: 0 is never; 1 to 2592000 are seconds from now; larger is a Unix time; negative is at
  once.\n";
const VALUE: &str = "  VALUE is the rest of the line. Quote a number; \\n, \\r, \\t, \\\", \\\\ and \\xNN in quotes are bytes. A
  bare number is a length, as in the protocol: the value is the next line.\n";

fn paragraphs() -> impl Iterator<Item = &'static str> {
    TEXT.trim_end().split("\n\n")
}

/// The commands: the form of each, and the lines below.
fn commands() -> impl Iterator<Item = (&'static str, &'static str)> {
    paragraphs().filter_map(|paragraph| paragraph.split_once('\n'))
}

/// The first word of a form.
fn word(form: &str) -> &str {
    form.split(' ').next().unwrap_or_default()
}

/// The first words of all commands.
pub(super) fn words() -> impl Iterator<Item = &'static str> {
    commands().map(|(form, _)| word(form))
}

/// The help of a command, or of all commands if `topic` is empty. `None` if the command is unknown.
pub(super) fn help(topic: &str) -> Option<String> {
    if topic.is_empty() {
        return Some(all());
    }
    let (form, more) = commands().find(|(form, _)| word(form) == topic)?;
    let mut text = format!("{form}\n{more}\n");
    if form.contains("EXPTIME VALUE") {
        text.push_str(VALUE);
    }
    if form.contains("EXPTIME") {
        text.push_str(EXPTIME);
    }
    Some(text)
}

/// The way out of a refusal of a command.
pub(super) fn advice(verb: &str, reply: &str) -> String {
    let is_about_form = reply == "ERROR" || reply.starts_with("CLIENT_ERROR");
    match commands().find(|(form, _)| word(form) == verb) {
        _ if !is_about_form => String::new(),
        Some((form, _)) => format!("; usage: {form}"),
        None => "; unknown command, `latchd cli help` lists the commands".to_owned(),
    }
}

fn all() -> String {
    let mut text = String::new();
    for paragraph in paragraphs() {
        let mut lines = paragraph.lines();
        let first = lines.next().unwrap_or_default();
        // Writing to a string cannot fail.
        let _ = match lines.next() {
            Some(effect) => writeln!(text, "  {first:<36}{}", effect.trim_start()),
            None => writeln!(text, "{first}"),
        };
    }
    text.push_str(
        "`help COMMAND` shows more. Ctrl-D or `quit` leaves, and releases every lock acquired here.\n\
         A line that begins with a blank, such as a password, is not kept in the history.\n",
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_has_its_help() {
        let list = help("").unwrap();
        for word in words() {
            assert!(list.contains(&format!("\n  {word} ")), "{word}");
            let text = help(word).unwrap();
            assert!(text.starts_with(word) && text.lines().count() > 2);
            assert!(
                text.lines().all(|line| line.chars().count() <= 100),
                "{text}"
            );
        }
        assert_eq!(help("nonsense"), None);
    }

    /// The page about the protocol has a row for each command that this server has.
    #[test]
    fn every_command_of_the_protocol_has_help() {
        let page = include_str!("../../../docs/PROTOCOL.md");
        for word in [
            "get",
            "gets",
            "gat",
            "gats",
            "set",
            "add",
            "replace",
            "append",
            "prepend",
            "cas",
            "delete",
            "incr",
            "decr",
            "touch",
            "flush_all",
            "version",
            "verbosity",
            "stats",
            "shutdown",
            "mg",
            "ms",
            "md",
            "ma",
            "me",
            "mn",
            "ml",
            "mu",
            "lock",
            "unlock",
            "unlock_all",
            "keys",
            "watch",
            "lru_crawler",
        ] {
            assert!(page.contains(word), "{word}");
            assert!(help(word).is_some(), "{word}");
        }
    }
}
