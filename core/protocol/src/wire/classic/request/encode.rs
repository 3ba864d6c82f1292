//! Requests of the classic text protocol, written by a client.

use alloc::vec::Vec;

use crate::command::{
    Arithmetic, Command, Delete, Direction, Get, GlobalCommand, Guard, ItemCommand, Keys,
    OnMissing, ScanCursor, Set, SetMode, TtlStep,
};
use crate::key::{Key, KeyForm};
use crate::stats::StatsTopic;
use crate::time::Exptime;
use crate::wire::classic::ClassicEnvelope;
use crate::wire::classic::request::CLUSTER;
use crate::wire::scan::is_plain;
use crate::wire::status_line::{put_line, put_number};

/// The classic protocol cannot express this command or envelope.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Inexpressible;

/// Appends `config get cluster`.
pub fn encode_cluster(out: &mut Vec<u8>) {
    out.extend_from_slice(CLUSTER);
    out.extend_from_slice(b"\r\n");
}

/// Appends the request that decodes to `command` and `envelope`.
///
/// # Errors
/// [`Inexpressible`] if there is none: the key has blanks or control bytes, an exptime is past 32 bits, or only
/// a meta or binary command can do this. Nothing is appended then.
pub fn encode(
    command: &Command<'_>,
    envelope: ClassicEnvelope,
    out: &mut Vec<u8>,
) -> Result<(), Inexpressible> {
    let start = out.len();
    let written = put_request(command, envelope, out);
    if written.is_none() {
        out.truncate(start);
    }
    written.ok_or(Inexpressible)
}

fn put_request(command: &Command<'_>, envelope: ClassicEnvelope, out: &mut Vec<u8>) -> Option<()> {
    let noreply = match (command, envelope) {
        (
            Command::Item(ItemCommand::Get(get)),
            ClassicEnvelope::Get {
                with_cas,
                last: true,
            },
        ) => {
            let touch = touch_of(get).ok()?;
            put_get(with_cas, touch, get.key, out)?;
            false
        }
        (Command::Item(ItemCommand::Get(get)), ClassicEnvelope::Touch { noreply }) => {
            put_verb("touch", get.key, out)?;
            put_exptime(touch_of(get).ok()??, out)?;
            noreply
        }
        (Command::Item(ItemCommand::Set(set)), ClassicEnvelope::Change { noreply }) => {
            put_store(set, noreply, out)?;
            return Some(());
        }
        (Command::Item(ItemCommand::Delete(delete)), ClassicEnvelope::Change { noreply }) => {
            (*delete == Delete::new(delete.key)).then_some(())?;
            put_verb("delete", delete.key, out)?;
            noreply
        }
        (Command::Item(ItemCommand::Arithmetic(sum)), ClassicEnvelope::Arithmetic { noreply }) => {
            (*sum == Arithmetic::new(sum.key, sum.direction, sum.delta)).then_some(())?;
            let verb = match sum.direction {
                Direction::Increment => "incr",
                Direction::Decrement => "decr",
            };
            put_verb(verb, sum.key, out)?;
            out.push(b' ');
            put_number(out, sum.delta);
            noreply
        }
        (Command::Item(ItemCommand::Lock { key }), ClassicEnvelope::Change { noreply: false }) => {
            put_verb("lock", *key, out)?;
            false
        }
        (
            Command::Item(ItemCommand::Unlock { key }),
            ClassicEnvelope::Change { noreply: false },
        ) => {
            put_verb("unlock", *key, out)?;
            false
        }
        (Command::Global(GlobalCommand::UnlockAll), ClassicEnvelope::Change { noreply: false }) => {
            out.extend_from_slice(b"unlock_all");
            false
        }
        (Command::Global(GlobalCommand::FlushAll { at }), ClassicEnvelope::Change { noreply }) => {
            out.extend_from_slice(b"flush_all");
            put_exptime(*at, out)?;
            noreply
        }
        (Command::Global(GlobalCommand::Keys(Keys { prefix, cursor })), ClassicEnvelope::Keys) => {
            (*cursor == ScanCursor::default()).then_some(())?;
            out.extend_from_slice(b"keys");
            if !prefix.is_empty() {
                put_word(prefix, out)?;
            }
            false
        }
        (Command::Global(GlobalCommand::Stats(topic)), ClassicEnvelope::Stats(shown))
            if *topic == shown
                && topic
                    .on_page(ScanCursor::default())
                    .is_none_or(|first| first == shown) =>
        {
            out.extend_from_slice(match topic {
                StatsTopic::General => b"stats",
                StatsTopic::Settings => b"stats settings",
                StatsTopic::Items => b"stats items",
                StatsTopic::Slabs => b"stats slabs",
                StatsTopic::Sizes => b"stats sizes",
                StatsTopic::Extstore => b"stats extstore",
                StatsTopic::Cluster => b"stats cluster",
                StatsTopic::Conns(_) => b"stats conns",
                StatsTopic::Sessions(_) => b"stats sessions",
                StatsTopic::Locks(_) => b"stats locks",
                StatsTopic::Detail(_) => b"stats detail dump",
                StatsTopic::DetailOn => b"stats detail on",
                StatsTopic::DetailOff => b"stats detail off",
            });
            false
        }
        (Command::Global(GlobalCommand::StatsReset), ClassicEnvelope::StatsReset) => {
            out.extend_from_slice(b"stats reset");
            false
        }
        _ => return None,
    };
    put_line(out, if noreply { " noreply" } else { "" });
    Some(())
}

fn put_get(with_cas: bool, touch: Option<Exptime>, key: Key<'_>, out: &mut Vec<u8>) -> Option<()> {
    match (touch, with_cas) {
        (None, false) => return put_verb("get", key, out),
        (None, true) => return put_verb("gets", key, out),
        (Some(_), false) => out.extend_from_slice(b"gat"),
        (Some(_), true) => out.extend_from_slice(b"gats"),
    }
    put_exptime(touch?, out)?;
    put_word(key.as_bytes(), out)
}

/// The exptime of a get that does nothing but touch; an error if it does more.
fn touch_of(get: &Get<'_>) -> Result<Option<Exptime>, Inexpressible> {
    let plain = Get {
        steps: get.steps,
        ..Get::new(get.key)
    };
    let mut steps = get.steps.iter();
    match (*get == plain, steps.next(), steps.next()) {
        (true, None, None) => Ok(None),
        (true, Some(TtlStep::Touch(exptime)), None) => Ok(Some(exptime)),
        _ => Err(Inexpressible),
    }
}

fn put_store(set: &Set<'_>, noreply: bool, out: &mut Vec<u8>) -> Option<()> {
    let Set {
        key,
        key_form,
        value,
        client_flags,
        exptime,
        mode,
        guard,
        ..
    } = *set;
    let plain = Set {
        client_flags,
        exptime,
        mode,
        guard,
        ..Set::new(key, &value)
    };
    (*set == plain && key_form == KeyForm::Plain).then_some(())?;
    let (verb, cas) = match (mode, guard) {
        (SetMode::Set, Guard::None) => ("set", None),
        (SetMode::Set, Guard::Match(cas)) => ("cas", Some(cas.number())),
        (SetMode::Set, Guard::Never) => ("cas", Some(0)),
        (SetMode::Add, Guard::None) => ("add", None),
        (SetMode::Replace, Guard::None) => ("replace", None),
        (
            SetMode::Append {
                missing: OnMissing::Refuse,
            },
            Guard::None,
        ) => ("append", None),
        (
            SetMode::Prepend {
                missing: OnMissing::Refuse,
            },
            Guard::None,
        ) => ("prepend", None),
        _ => return None,
    };
    put_verb(verb, key, out)?;
    out.push(b' ');
    put_number(out, client_flags);
    out.push(b' ');
    put_number(out, exptime.to_wire());
    out.push(b' ');
    put_number(out, value.len());
    if let Some(cas) = cas {
        out.push(b' ');
        put_number(out, cas);
    }
    put_line(out, if noreply { " noreply" } else { "" });
    out.extend_from_slice(&value);
    out.extend_from_slice(b"\r\n");
    Some(())
}

fn put_verb(verb: &str, key: Key<'_>, out: &mut Vec<u8>) -> Option<()> {
    out.extend_from_slice(verb.as_bytes());
    put_word(key.as_bytes(), out)
}

fn put_word(word: &[u8], out: &mut Vec<u8>) -> Option<()> {
    is_plain(word).then_some(())?;
    out.push(b' ');
    out.extend_from_slice(word);
    Some(())
}

fn put_exptime(exptime: Exptime, out: &mut Vec<u8>) -> Option<()> {
    let seconds = i32::try_from(exptime.to_wire()).ok()?;
    out.push(b' ');
    put_number(out, seconds);
    Some(())
}
