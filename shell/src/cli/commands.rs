//! What there is to say about each command: its form, what it does, what it is answered.
//!
//! Source: docs/PROTOCOL.md, which has every case.

use std::fmt::Write as _;

/// A command, for a person.
pub(super) struct Command {
    /// Its first word.
    pub(super) word: &'static str,
    /// The words behind it.
    form: &'static str,
    /// What it does, in one line.
    about: &'static str,
    /// What it is answered, and what else is worth knowing.
    more: &'static str,
    group: Group,
}

/// What commands stand together for.
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

const EXPTIME: &str =
    "EXPTIME: 0 never, up to 2592000 seconds from now, above that Unix time, negative at once.";
const VALUE: &str = "VALUE is the rest of the line, or in quotes (\\n, \\r, \\t, \\\", \\\\, \\xNN) if it is a \
                     number; a bare number is its length, as in the protocol, and the value is the next line.";

/// All commands, in the order in which they are listed.
pub(super) const COMMANDS: &[Command] = &[
    item(
        "get",
        "KEY...",
        "read items",
        "VALUE KEY FLAGS BYTES and the value for each that is there, then END.",
    ),
    item(
        "gets",
        "KEY...",
        "read items and their versions (cas)",
        "As get, with the version behind BYTES.",
    ),
    item(
        "gat",
        "EXPTIME KEY...",
        "read items and give them an exptime",
        "As get.",
    ),
    item(
        "gats",
        "EXPTIME KEY...",
        "read items and versions, and give them an exptime",
        "As gets.",
    ),
    item(
        "set",
        "KEY FLAGS EXPTIME VALUE",
        "store",
        "STORED; LOCKED if another connection holds it. FLAGS is any number up to 4294967295, kept beside the value.",
    ),
    item(
        "add",
        "KEY FLAGS EXPTIME VALUE",
        "store if it is not there",
        "STORED, NOT_STORED.",
    ),
    item(
        "replace",
        "KEY FLAGS EXPTIME VALUE",
        "store if it is there",
        "STORED, NOT_STORED.",
    ),
    item(
        "append",
        "KEY FLAGS EXPTIME VALUE",
        "put behind what is there",
        "STORED, NOT_STORED. FLAGS and EXPTIME are not looked at.",
    ),
    item(
        "prepend",
        "KEY FLAGS EXPTIME VALUE",
        "put before what is there",
        "STORED, NOT_STORED. FLAGS and EXPTIME are not looked at.",
    ),
    item(
        "cas",
        "KEY FLAGS EXPTIME VALUE CAS",
        "store if the version is still this one",
        "STORED, EXISTS (it has another version), NOT_FOUND. CAS is the last number that gets shows.",
    ),
    item("delete", "KEY", "remove", "DELETED, NOT_FOUND."),
    item(
        "incr",
        "KEY NUMBER",
        "add to a number",
        "The new number, NOT_FOUND. It wraps at 2^64.",
    ),
    item(
        "decr",
        "KEY NUMBER",
        "take from a number",
        "The new number, NOT_FOUND. It stops at 0.",
    ),
    item(
        "touch",
        "KEY EXPTIME",
        "give an exptime",
        "TOUCHED, NOT_FOUND.",
    ),
    meta(
        "mg",
        "KEY FLAG...",
        "read",
        "VA BYTES and the value with v, HD without, EN if it is missing. Shown: s size, t ttl, c version, f flags, l last access, h fetched before, k key, O<opaque>. T<exptime> touches; N<exptime> makes what is missing and R<seconds> what ends soon yours to compute: W you won, Z another has, X it is stale. b: the key is base64; q: no EN.",
    ),
    meta(
        "ms",
        "KEY VALUE FLAG...",
        "store",
        "HD, NS not stored, EX another version, NF missing, LK locked. T<exptime>, F<flags>, C<version> to compare, I stale if older, M and a mode: S set, E add, A append, P prepend, R replace. VALUE is one word, or in quotes; a number is its length, as in the protocol. G<fence> and U: in the right of a lock, and giving it back.",
    ),
    meta(
        "md",
        "KEY FLAG...",
        "remove, or mark stale",
        "HD, NF, EX, LK. C<version> to compare; I marks it stale instead, with T<exptime>; x removes the value alone.",
    ),
    meta(
        "ma",
        "KEY FLAG...",
        "count",
        "HD, or VA and the number with v; NF. D<delta>, MD or M- down, N<exptime> makes it with J<initial>, C<version> to compare.",
    ),
    meta(
        "me",
        "KEY",
        "what is known of an item",
        "ME KEY and name=value pairs, or EN.",
    ),
    meta(
        "mn",
        "",
        "nothing",
        "MN: whatever was asked before is done.",
    ),
    lock(
        "lock",
        "KEY",
        "lock an item until it is unlocked or this connection ends",
        "OK, LOCKED, NOT_FOUND. It ends with this prompt.",
    ),
    lock(
        "unlock",
        "KEY",
        "give a lock back",
        "OK, or CLIENT_ERROR if it is not yours.",
    ),
    lock(
        "unlock_all",
        "",
        "give every lock of this connection back",
        "OK.",
    ),
    lock(
        "ml",
        "KEY FLAG...",
        "lock a key, whether there is an item or not",
        "HD (with F its fence number: F<n>), LK h<connection> a<seconds> n<waiting> if somebody holds it, NF with x if nothing is there. w<ms> waits for it, an hour at most, in order of arrival; LK ... d would be a deadlock. T<seconds> makes it a lease, and asked again renews it; v and the others look at the item as mg does.",
    ),
    lock(
        "mu",
        "KEY FLAG...",
        "give the lock of a key back",
        "HD, NF. F<fence>: only if it is that grant.",
    ),
    server(
        "keys",
        "[PREFIX]",
        "names of keys",
        "VALUE KEY for each, then END. No snapshot; latchd and yrmcds have it.",
    ),
    server(
        "stats",
        "[TOPIC]",
        "what is counted",
        "STAT NAME VALUE for each, then END. Topics: settings, items, slabs, sizes, conns, locks (who holds what), detail on, detail dump, cachedump CLASS LIMIT; reset begins anew.",
    ),
    server(
        "flush_all",
        "[DELAY]",
        "make all items go, now or in DELAY seconds",
        "OK.",
    ),
    server(
        "version",
        "",
        "the server's version",
        "VERSION and its words.",
    ),
    server("verbosity", "LEVEL", "how much the server logs", "OK."),
    server(
        "watch",
        "TOPIC...",
        "what the server logs, until Ctrl-C",
        "OK and a line for each event, where the server has it.",
    ),
    server(
        "lru_crawler",
        "metadump all",
        "a line for each item",
        "key=... for each, then END; mgdump all: mg KEY for each, then EN. Other forms tune memcached.",
    ),
    server(
        "shutdown",
        "[graceful]",
        "end the server",
        "Nothing, or SERVER_ERROR where it is not allowed (-A).",
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

/// What is said about a command, or about all of them if `topic` is empty; `None` if there is none such.
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

fn all() -> String {
    let mut text = String::new();
    for group in Group::ALL {
        // A string has no end.
        let _ = writeln!(text, "{}:", group.title());
        for command in COMMANDS.iter().filter(|command| command.group == group) {
            let form = format!("{} {}", command.word, command.form);
            let _ = writeln!(text, "  {form:<36}{}", command.about);
        }
    }
    text.push_str(
        "`help COMMAND` says more. Ctrl-D or `quit` leaves, and frees every lock that was taken here.\n\
         A line that begins with a blank is not kept in the history: a password, say.\n",
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
