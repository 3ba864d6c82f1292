//! Lines of classic text.

use latchd_protocol::command::{
    Command, Direction, Get, GlobalCommand, Guard, ItemCommand, SetMode, TtlStep,
};
use latchd_protocol::key::Key;

use super::{Style, guard_number, put_exptime, put_number};

/// Appends the line of a command that classic text has words for, and its value. A get asks for
/// `more` keys besides its own.
///
/// # Panics
/// If the value was too large and was dropped, or only meta text has words for the command.
pub fn write(command: &Command<'_>, more: &[Key<'_>], style: &Style, out: &mut Vec<u8>) {
    let mut value = None;
    match command {
        Command::Item(command) => value = put_item(command, more, style, out),
        Command::Global(command) => put_global(command, style, out),
    }
    if style.quiet {
        out.extend_from_slice(b" noreply");
    }
    out.extend_from_slice(b"\r\n");
    if let Some(value) = value {
        out.extend_from_slice(value);
        out.extend_from_slice(b"\r\n");
    }
}

/// Appends all but the end of a line about an item, and returns the value that is to follow.
fn put_item<'a>(
    command: &ItemCommand<'a>,
    more: &[Key<'_>],
    style: &Style,
    out: &mut Vec<u8>,
) -> Option<&'a [u8]> {
    match command {
        ItemCommand::Get(get) => put_get(get, more, style, out),
        ItemCommand::Set(set) => {
            let verb: &[u8] = match set.mode {
                SetMode::Set if set.guard != Guard::None => b"cas",
                SetMode::Set => b"set",
                SetMode::Add => b"add",
                SetMode::Replace => b"replace",
                SetMode::Append { .. } => b"append",
                SetMode::Prepend { .. } => b"prepend",
            };
            put_words(out, &[verb, set.key.as_bytes()]);
            put_numbers(out, &[set.client_flags.into()]);
            put_exptime(out, b" ", set.exptime);
            put_numbers(out, &[set.value.len() as u64]);
            put_numbers(out, guard_number(set.guard).as_slice());
            return Some(set.value.as_bytes());
        }
        ItemCommand::SetTooLarge { .. } => unreachable!("its value is gone"),
        ItemCommand::Delete(delete) => put_words(out, &[b"delete", delete.key.as_bytes()]),
        ItemCommand::Arithmetic(sum) => {
            let verb = match sum.direction {
                Direction::Increment => b"incr",
                Direction::Decrement => b"decr",
            };
            put_words(out, &[verb, sum.key.as_bytes()]);
            put_numbers(out, &[sum.delta]);
        }
        ItemCommand::Acquire(_) | ItemCommand::Release(_) => unreachable!("not in classic text"),
        ItemCommand::Lock { key } => put_words(out, &[b"lock", key.as_bytes()]),
        ItemCommand::Unlock { key } => put_words(out, &[b"unlock", key.as_bytes()]),
    }
    None
}

fn put_global(command: &GlobalCommand<'_>, style: &Style, out: &mut Vec<u8>) {
    match command {
        GlobalCommand::UnlockAll => put_words(out, &[b"unlock_all"]),
        GlobalCommand::FlushAll { at } => {
            put_words(out, &[b"flush_all"]);
            if !style.leaves_out(*at) {
                put_exptime(out, b" ", *at);
            }
        }
        GlobalCommand::Keys(keys) if keys.prefix.is_empty() => put_words(out, &[b"keys"]),
        GlobalCommand::Keys(keys) => put_words(out, &[b"keys", keys.prefix]),
        GlobalCommand::Stats(_) => put_words(out, &[b"stats"]),
        GlobalCommand::StatsReset => put_words(out, &[b"stats", b"reset"]),
    }
}

fn put_get(get: &Get<'_>, more: &[Key<'_>], style: &Style, out: &mut Vec<u8>) {
    let touch = get.steps.iter().find_map(|step| match step {
        TtlStep::Touch(exptime) => Some(exptime),
        TtlStep::Vivify(_) | TtlStep::Recache(_) => None,
    });
    let verb: &[u8] = match (touch, style.with_value, style.with_cas) {
        (None, _, false) => b"get",
        (None, _, true) => b"gets",
        (Some(_), true, false) => b"gat",
        (Some(_), true, true) => b"gats",
        (Some(_), false, _) => b"touch",
    };
    out.extend_from_slice(verb);
    // A get has many keys, and so its exptime before them; a touch has it behind.
    let (before, behind) = if style.with_value {
        (touch, None)
    } else {
        (None, touch)
    };
    if let Some(exptime) = before {
        put_exptime(out, b" ", exptime);
    }
    for key in std::iter::once(&get.key).chain(more) {
        out.push(b' ');
        out.extend_from_slice(key.as_bytes());
    }
    if let Some(exptime) = behind {
        put_exptime(out, b" ", exptime);
    }
}

fn put_words(out: &mut Vec<u8>, words: &[&[u8]]) {
    for (number, word) in words.iter().enumerate() {
        if number > 0 {
            out.push(b' ');
        }
        out.extend_from_slice(word);
    }
}

fn put_numbers(out: &mut Vec<u8>, numbers: &[u64]) {
    for number in numbers {
        out.push(b' ');
        put_number(out, *number);
    }
}
