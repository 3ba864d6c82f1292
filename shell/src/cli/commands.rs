//! The help of each command: its form, its effect and its replies.
//!
//! Source: docs/PROTOCOL.md, which has every case.

use std::fmt::Write as _;

/// The help of a command.
pub(super) struct Command {
    /// Its first word.
    pub(super) word: &'static str,
    /// The words behind it.
    form: &'static str,
    /// Its effect, in one line.
    about: &'static str,
    /// Its replies and further notes.
    more: &'static str,
    group: Group,
}

/// The groups of commands.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Group {
    Items,
    Meta,
    Locks,
    Server,
}

impl Group {
    const ALL: [Self; 4] = [Self::Items, Self::Meta, Self::Locks, Self::Server];

    const fn title(self) -> &'static str {
        match self {
            Self::Items => "items",
            Self::Meta => "items, by meta commands (flags are single letters, some with a token)",
            Self::Locks => "locks",
            Self::Server => "the server",
        }
    }
}

const EXPTIME: &str = "EXPTIME: 0 is never; 1 to 2592000 are seconds from now; larger is a Unix time; negative is at once.";
const VALUE: &str = "VALUE is the rest of the line. Quote a number; \\n, \\r, \\t, \\\", \\\\ and \\xNN in quotes are \
                     bytes. A bare number is a length, as in the protocol: the value is the next line.";

/// All commands, in the order in which they are listed.
pub(super) const COMMANDS: &[Command] = &[
    item(
        "get",
        "KEY...",
        "read items",
        "VALUE KEY FLAGS BYTES and the value for each item found, then END.",
    ),
    item(
        "gets",
        "KEY...",
        "read items and their versions (cas)",
        "As get, with the version after BYTES.",
    ),
    item(
        "gat",
        "EXPTIME KEY...",
        "read items and set their exptime",
        "As get.",
    ),
    item(
        "gats",
        "EXPTIME KEY...",
        "read items and versions, and set their exptime",
        "As gets.",
    ),
    item(
        "set",
        "KEY FLAGS EXPTIME VALUE",
        "store an item",
        "STORED; LOCKED if another connection holds its lock. FLAGS is any number up to 4294967295, stored with the value.",
    ),
    item(
        "add",
        "KEY FLAGS EXPTIME VALUE",
        "store an item if the key is absent",
        "STORED, NOT_STORED.",
    ),
    item(
        "replace",
        "KEY FLAGS EXPTIME VALUE",
        "store an item if the key is present",
        "STORED, NOT_STORED.",
    ),
    item(
        "append",
        "KEY FLAGS EXPTIME VALUE",
        "append to the stored value",
        "STORED, NOT_STORED. FLAGS and EXPTIME are not looked at.",
    ),
    item(
        "prepend",
        "KEY FLAGS EXPTIME VALUE",
        "prepend to the stored value",
        "STORED, NOT_STORED. FLAGS and EXPTIME are not looked at.",
    ),
    item(
        "cas",
        "KEY FLAGS EXPTIME VALUE CAS",
        "store an item if its version is still CAS",
        "STORED, EXISTS (the version differs), NOT_FOUND. CAS is the last number in the reply to gets.",
    ),
    item("delete", "KEY", "remove an item", "DELETED, NOT_FOUND."),
    item(
        "incr",
        "KEY NUMBER",
        "increase a number",
        "The new number, NOT_FOUND. It wraps at 2^64.",
    ),
    item(
        "decr",
        "KEY NUMBER",
        "decrease a number",
        "The new number, NOT_FOUND. It stops at 0.",
    ),
    item(
        "touch",
        "KEY EXPTIME",
        "set the exptime of an item",
        "TOUCHED, NOT_FOUND.",
    ),
    meta(
        "mg",
        "KEY FLAG...",
        "read an item",
        "VA BYTES and the value with v, HD without, EN if the item is missing. Return flags: s size, t ttl, c version, f flags, l last access, h fetched before, k key, O<opaque>. T<exptime> sets the exptime. N<exptime> (item missing) and R<seconds> (less ttl left) let one client win and recache the item: W you won, Z another client has won, X the item is stale. b: the key is base64. q: no EN.",
    ),
    meta(
        "ms",
        "KEY VALUE FLAG...",
        "store an item",
        "HD, NS not stored, EX other version, NF missing, LK locked. T<exptime>, F<flags>. C<version> compares; I stores a stale item if that version is older. M<mode>: S set, E add, A append, P prepend, R replace. VALUE is one word, or quoted; a bare number is a length, as in the protocol. G<fence> stores only while that lock is held; U also releases it.",
    ),
    meta(
        "md",
        "KEY FLAG...",
        "remove an item, or mark it stale",
        "HD, NF, EX, LK. C<version> compares. I marks the item stale instead, T<exptime> sets its exptime. x removes only the value.",
    ),
    meta(
        "ma",
        "KEY FLAG...",
        "increase or decrease a number",
        "HD, or VA and the number with v; NF. D<delta>. MD or M- decreases. N<exptime> creates a missing item with J<initial>. C<version> compares.",
    ),
    meta(
        "me",
        "KEY",
        "show the metadata of an item",
        "ME KEY and name=value pairs, or EN.",
    ),
    meta(
        "mn",
        "",
        "do nothing",
        "MN, after the replies to all earlier requests.",
    ),
    lock(
        "lock",
        "KEY",
        "lock an item until it is unlocked or this connection ends",
        "OK, LOCKED, NOT_FOUND. Leaving this prompt releases the lock.",
    ),
    lock(
        "unlock",
        "KEY",
        "release a lock",
        "OK, or CLIENT_ERROR if this connection does not hold it.",
    ),
    lock(
        "unlock_all",
        "",
        "release all locks of this connection",
        "OK.",
    ),
    lock(
        "ml",
        "KEY FLAG...",
        "lock a key, with or without an item",
        "HD, with F the fencing token F<n>. LK h<connection> a<seconds> n<waiters> if another connection holds it. NF with x if the item is missing. w<ms> waits for the lock in order of arrival, one hour at most; LK ... d: waiting would be a deadlock. T<seconds> makes the lock a lease; repeating the command renews it. v and the other flags read the item as mg does.",
    ),
    lock(
        "mu",
        "KEY FLAG...",
        "release the lock of a key",
        "HD, NF. F<fence>: only if the lock has this fencing token.",
    ),
    server(
        "keys",
        "[PREFIX]",
        "list keys",
        "VALUE KEY for each, then END. The list is not a snapshot. latchd and yrmcds have this command.",
    ),
    server(
        "stats",
        "[TOPIC]",
        "show statistics",
        "STAT NAME VALUE for each, then END. Topics: settings, items, slabs, sizes, conns, locks (holders and waiters), detail on, detail dump, cachedump CLASS LIMIT. reset sets the counters to 0.",
    ),
    server(
        "flush_all",
        "[DELAY]",
        "remove all items, now or in DELAY seconds",
        "OK.",
    ),
    server(
        "version",
        "",
        "show the server's version",
        "VERSION and the version.",
    ),
    server("verbosity", "LEVEL", "set how much the server logs", "OK."),
    server(
        "watch",
        "TOPIC...",
        "show the server's events until Ctrl-C",
        "OK and a line for each event. Not every server has this command.",
    ),
    server(
        "lru_crawler",
        "metadump all",
        "dump the metadata of all items",
        "key=... for each, then END. mgdump all: mg KEY for each, then EN. Other forms tune memcached.",
    ),
    server(
        "shutdown",
        "[graceful]",
        "stop the server",
        "No reply, or SERVER_ERROR if the server does not allow it (-A).",
    ),
];

const fn command(
    group: Group,
    word: &'static str,
    form: &'static str,
    about: &'static str,
    more: &'static str,
) -> Command {
    Command {
        word,
        form,
        about,
        more,
        group,
    }
}

const fn item(
    word: &'static str,
    form: &'static str,
    about: &'static str,
    more: &'static str,
) -> Command {
    command(Group::Items, word, form, about, more)
}

const fn meta(
    word: &'static str,
    form: &'static str,
    about: &'static str,
    more: &'static str,
) -> Command {
    command(Group::Meta, word, form, about, more)
}

const fn lock(
    word: &'static str,
    form: &'static str,
    about: &'static str,
    more: &'static str,
) -> Command {
    command(Group::Locks, word, form, about, more)
}

const fn server(
    word: &'static str,
    form: &'static str,
    about: &'static str,
    more: &'static str,
) -> Command {
    command(Group::Server, word, form, about, more)
}

/// The help of a command, or of all commands if `topic` is empty. `None` if the command is unknown.
pub(super) fn help(topic: &str) -> Option<String> {
    if topic.is_empty() {
        return Some(all());
    }
    let command = COMMANDS.iter().find(|command| command.word == topic)?;
    let mut text = format!("{} {}\n  {}\n", command.word, command.form, command.about);
    for note in [command.more, VALUE, EXPTIME] {
        let concerns = match note {
            VALUE => command.form.contains("EXPTIME VALUE"),
            EXPTIME => command.form.contains("EXPTIME"),
            _ => true,
        };
        if concerns {
            put_wrapped(note, &mut text);
        }
    }
    Some(text)
}

/// The way out of a refusal of a command.
pub(super) fn advice(word: &[u8], reply: &str) -> String {
    let known = COMMANDS
        .iter()
        .find(|command| command.word.as_bytes() == word);
    let is_about_form = reply == "ERROR" || reply.starts_with("CLIENT_ERROR");
    match known {
        _ if !is_about_form => String::new(),
        Some(command) => format!("; usage: {} {}", command.word, command.form),
        None => "; unknown command, `latchd cli help` lists the commands".to_owned(),
    }
}

fn all() -> String {
    let mut text = String::new();
    for group in Group::ALL {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}:", group.title());
        for command in COMMANDS.iter().filter(|command| command.group == group) {
            let form = format!("{} {}", command.word, command.form);
            let _ = writeln!(text, "  {form:<36}{}", command.about);
        }
    }
    text.push_str(
        "`help COMMAND` shows more. Ctrl-D or `quit` leaves, and releases every lock acquired here.\n\
         A line that begins with a blank, such as a password, is not kept in the history.\n",
    );
    text
}

/// Breaks a text into lines of at most 100 columns, indented by two.
fn put_wrapped(note: &str, text: &mut String) {
    let mut column = 0;
    for word in note.split(' ') {
        let length = word.chars().count();
        if column > 0 && column + 1 + length > 100 {
            text.push('\n');
            column = 0;
        }
        text.push_str(if column == 0 { "  " } else { " " });
        column += length + if column == 0 { 2 } else { 1 };
        text.push_str(word);
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_has_its_help() {
        let list = help("").unwrap();
        for command in COMMANDS {
            assert!(
                list.contains(&format!("\n  {} ", command.word)),
                "{}",
                command.word
            );
            let text = help(command.word).unwrap();
            assert!(text.starts_with(command.word) && text.lines().count() > 2);
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
