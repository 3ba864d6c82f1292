//! The [`Step`] of a request: a command for the core, or a response that needs no core.
//!
//! The rules of the header's CAS and of the exptimes are memcached's:
//!
//! - With a CAS, Set, Add and Replace are all the same compare-and-swap (1.6.45 `proto_bin.c`,
//!   `process_bin_update`).
//! - An exptime is unsigned, so none is negative: from 2^31 on it is a date after 2038 (`proto_bin.c`, `ntohl`
//!   into a `time_t`).

use super::StatusPacket;
use super::extras::{EXPTIME_DO_NOT_CREATE, Extras};
use super::header::Status;
use super::opcode::Verb;
use super::request::RequestPacket;
use super::topic::stats_topic;
use crate::command::{
    Arithmetic, Command, Delete, Direction, Get, GlobalCommand, Guard, ItemCommand, LockAfter,
    OnMissing, ScanCursor, Set, SetMode, TtlStep, TtlSteps,
};
use crate::item::Cas;
use crate::key::Key;
use crate::time::Exptime;
use crate::wire::local::LocalResponse;
use crate::wire::step::{Cursor, Operation, Step};
use crate::wire::{Envelope, VERSION};

/// The step of a request in a packet of `packet_bytes` bytes. `None` if its extras or key do not fit its
/// opcode; `request.rs` never lets such a packet through.
///
/// For Keys, and lists of Stat, `cursor` selects the next page, and is advanced.
#[must_use]
pub fn lower<'a>(
    request: &RequestPacket<'a>,
    packet_bytes: usize,
    cursor: &mut Cursor,
) -> Option<Step<'a>> {
    let &RequestPacket {
        opcode,
        opaque,
        cas,
        extras,
        key,
        value: _,
    } = request;
    let guard = guard_of(cas);
    let success = StatusPacket::success(opcode.byte(), opaque);
    let error = |status| StatusPacket::error(opcode.byte(), opaque, status);
    let send = |packet| {
        Operation::Send {
            response: LocalResponse::Packet(packet),
            unstored: None,
        }
        .consuming(packet_bytes)
    };
    let envelope = Envelope::Binary(request.envelope());
    let command = match opcode.verb() {
        Verb::Get => Command::from(Get::new(Key::new(key)?)),
        Verb::Touch | Verb::Gat => Command::from(Get {
            steps: touch(extras)?,
            ..Get::new(Key::new(key)?)
        }),
        Verb::LockAndGet => lock_and_get(key, extras)?,
        Verb::Set | Verb::Add | Verb::Replace | Verb::ReplaceAndUnlock => store(request)?,
        Verb::Append => extend(request, |missing| SetMode::Append { missing })?,
        Verb::Prepend => extend(request, |missing| SetMode::Prepend { missing })?,
        Verb::Delete => Command::from(Delete {
            guard,
            ..Delete::new(Key::new(key)?)
        }),
        Verb::Increment => arithmetic(key, Direction::Increment, extras, guard)?,
        Verb::Decrement => arithmetic(key, Direction::Decrement, extras, guard)?,
        Verb::Flush => flush(extras)?,
        Verb::Lock => Command::Item(ItemCommand::Lock {
            key: Key::new(key)?,
        }),
        Verb::Unlock => Command::Item(ItemCommand::Unlock {
            key: Key::new(key)?,
        }),
        Verb::UnlockAll => Command::Global(GlobalCommand::UnlockAll),
        Verb::Keys => return Some(cursor.list(key, |_| envelope, packet_bytes)),
        Verb::Stat => match stat(key) {
            Some(GlobalCommand::Stats(topic)) if topic.on_page(ScanCursor::default()).is_some() => {
                let on_page = |at| topic.on_page(at).unwrap_or(topic);
                return Some(cursor.stats(on_page, |_| envelope, packet_bytes));
            }
            Some(command) => Command::Global(command),
            None => return Some(send(error(Status::NOT_FOUND))),
        },
        Verb::Noop | Verb::Verbosity => return Some(send(success)),
        Verb::Version => {
            return Some(send(StatusPacket {
                body: VERSION,
                ..success
            }));
        }
        Verb::Quit => {
            let response = if opcode.is_quiet() {
                LocalResponse::Farewell
            } else {
                LocalResponse::Packet(success)
            };
            return Some(Operation::Close { response }.consuming(0));
        }
        // Refused before they are decoded; this is the same response.
        Verb::SaslListMechanisms | Verb::SaslAuth | Verb::SaslStep => {
            return Some(send(error(Status::UNKNOWN_COMMAND)));
        }
    };
    Some(Operation::Execute { command, envelope }.consuming(packet_bytes))
}

fn guard_of(cas: Option<Cas>) -> Guard {
    cas.map_or(Guard::None, Guard::Match)
}

fn lock_and_get(key: &[u8], extras: Extras) -> Option<Command<'_>> {
    let steps = if extras == Extras::None {
        TtlSteps::NONE
    } else {
        touch(extras)?
    };
    Some(Command::from(Get {
        steps,
        lock: true,
        ..Get::new(Key::new(key)?)
    }))
}

/// Set, Add and Replace, which are one with a CAS, and Replace and Unlock.
fn store<'a>(request: &RequestPacket<'a>) -> Option<Command<'a>> {
    let Extras::Store {
        client_flags,
        exptime,
    } = request.extras
    else {
        return None;
    };
    let (mode, lock) = match (request.opcode.verb(), request.cas) {
        (Verb::ReplaceAndUnlock, _) => (SetMode::Replace, LockAfter::Release),
        (Verb::Add, None) => (SetMode::Add, LockAfter::Keep),
        (Verb::Replace, None) => (SetMode::Replace, LockAfter::Keep),
        (_, _) => (SetMode::Set, LockAfter::Keep),
    };
    Some(Command::from(Set {
        client_flags,
        exptime: exptime_of(exptime),
        guard: guard_of(request.cas),
        mode,
        lock,
        ..Set::new(Key::new(request.key)?, request.value)
    }))
}

/// Append and Prepend, which make no item.
fn extend<'a>(
    request: &RequestPacket<'a>,
    mode: impl Fn(OnMissing) -> SetMode,
) -> Option<Command<'a>> {
    Some(Command::from(Set {
        mode: mode(OnMissing::Refuse),
        guard: guard_of(request.cas),
        ..Set::new(Key::new(request.key)?, request.value)
    }))
}

fn flush(extras: Extras) -> Option<Command<'static>> {
    let at = match extras {
        Extras::None => Exptime::Never,
        Extras::Exptime(exptime) => exptime_of(exptime),
        Extras::Store { .. } | Extras::Arithmetic { .. } | Extras::Level(_) => return None,
    };
    Some(Command::Global(GlobalCommand::FlushAll { at }))
}

/// An exptime of the wire, which has no sign here.
fn exptime_of(number: u32) -> Exptime {
    Exptime::from_wire(i64::from(number))
}

fn touch(extras: Extras) -> Option<TtlSteps> {
    let Extras::Exptime(exptime) = extras else {
        return None;
    };
    Some(TtlSteps::one(TtlStep::Touch(exptime_of(exptime))))
}

fn arithmetic(
    key: &[u8],
    direction: Direction,
    extras: Extras,
    guard: Guard,
) -> Option<Command<'_>> {
    let Extras::Arithmetic {
        delta,
        initial,
        exptime,
    } = extras
    else {
        return None;
    };
    let steps = if exptime == EXPTIME_DO_NOT_CREATE {
        TtlSteps::NONE
    } else {
        TtlSteps::one(TtlStep::Vivify(exptime_of(exptime)))
    };
    let plain = Arithmetic::new(Key::new(key)?, direction, delta);
    Some(Command::from(Arithmetic {
        initial,
        steps,
        guard,
        ..plain
    }))
}

fn stat(topic: &[u8]) -> Option<GlobalCommand<'_>> {
    if topic.starts_with(b"reset") {
        Some(GlobalCommand::StatsReset)
    } else {
        stats_topic(topic).map(GlobalCommand::Stats)
    }
}

#[cfg(test)]
mod tests;
