//! A command as a client writes it: in text where text has words for it, and as a packet.
//!
//! The inverse of what a server's decoders do, for whoever starts from a command: a model's way as
//! a transcript, and the test that the alphabet asks for nothing that no client can ask for.
//!
//! - W1: what is written is understood as the command it was written from.
//!
//! Source: docs/PROTOCOL.md.

use latchd_core::command::{
    Arithmetic, Command, Delete, Direction, Get, GlobalCommand, Guard, ItemCommand, Keys,
    LockAfter, NewCas, OnMissing, Removal, ScanCursor, Set, SetMode, TtlStep, TtlSteps,
};
use latchd_core::item::Cas;
use latchd_core::key::{Key, KeyForm};
use latchd_core::stats::StatsTopic;
use latchd_core::time::Exptime;
use latchd_core::wire::binary::extras::EXPTIME_DO_NOT_CREATE;
use latchd_core::wire::binary::{Extras, Opcode, RequestPacket};
use latchd_core::wire::classic::ClassicEnvelope;
use latchd_core::wire::classic::request::encode as encode_classic;
use latchd_core::wire::meta::request::MetaRequest as Line;
use latchd_core::wire::meta::{Flag, Verb};

/// The command in text, in classic text where that has words for it; `None` if neither has.
/// A value that is too large has one byte more than `value_bytes_max`.
#[must_use]
pub fn text(command: &Command<'_>, value_bytes_max: usize) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    if let Command::Item(ItemCommand::SetTooLarge { key }) = command {
        let value = vec![b'x'; value_bytes_max + 1];
        let set = Command::from(Set::new(*key, &value));
        encode_classic(&set, envelope(&set), &mut out).ok()?;
    } else if encode_classic(command, envelope(command), &mut out).is_err() {
        meta(command, &mut out)?;
    }
    Some(out)
}

/// How a classic command wants to be answered: with all there is to tell.
fn envelope(command: &Command<'_>) -> ClassicEnvelope {
    match command {
        Command::Item(ItemCommand::Get(get)) if get.steps.is_empty() => ClassicEnvelope::Get {
            with_cas: true,
            last: true,
        },
        Command::Item(ItemCommand::Get(_)) => ClassicEnvelope::Touch { noreply: false },
        Command::Item(ItemCommand::Arithmetic(_)) => ClassicEnvelope::Arithmetic { noreply: false },
        Command::Global(GlobalCommand::Keys(_)) => ClassicEnvelope::Keys,
        Command::Global(GlobalCommand::Stats(topic)) => ClassicEnvelope::Stats(*topic),
        Command::Global(GlobalCommand::StatsReset) => ClassicEnvelope::StatsReset,
        Command::Item(
            ItemCommand::Set(_)
            | ItemCommand::SetTooLarge { .. }
            | ItemCommand::Delete(_)
            | ItemCommand::Lock { .. }
            | ItemCommand::Unlock { .. },
        )
        | Command::Global(GlobalCommand::UnlockAll | GlobalCommand::FlushAll { .. }) => {
            ClassicEnvelope::Change { noreply: false }
        }
    }
}

fn meta(command: &Command<'_>, out: &mut Vec<u8>) -> Option<()> {
    let mut value: &[u8] = b"";
    let mut flags = Vec::new();
    let (verb, key, key_form, new_cas) = match command {
        Command::Item(ItemCommand::Get(get)) => {
            let verb = get_flags(get, &mut flags)?;
            (verb, get.key, get.key_form, get.new_cas)
        }
        Command::Item(ItemCommand::Set(set)) => {
            value = set.value;
            set_flags(set, &mut flags)?;
            (Verb::Set, set.key, set.key_form, set.new_cas)
        }
        Command::Item(ItemCommand::Delete(delete)) => {
            delete_flags(delete, &mut flags)?;
            (Verb::Delete, delete.key, delete.key_form, delete.new_cas)
        }
        Command::Item(ItemCommand::Arithmetic(sum)) => {
            arithmetic_flags(sum, &mut flags)?;
            (Verb::Arithmetic, sum.key, sum.key_form, sum.new_cas)
        }
        Command::Item(
            ItemCommand::SetTooLarge { .. } | ItemCommand::Lock { .. } | ItemCommand::Unlock { .. },
        )
        | Command::Global(_) => return None,
    };
    if let NewCas::Is(cas) = new_cas {
        flags.push(Flag::NewCas(cas.number()));
    }
    if key_form == KeyForm::Binary {
        // `me` looks for it in the first place.
        flags.insert(0, Flag::BinaryKey);
    }
    let line = Line {
        verb,
        key,
        flags: &flags,
        value,
    };
    line.encode(out);
    Some(())
}

fn get_flags(get: &Get<'_>, flags: &mut Vec<Flag<'_>>) -> Option<Verb> {
    let Get {
        key,
        key_form,
        steps,
        bump,
        known_cas,
        new_cas: _,
        recaches,
        lock,
    } = *get;
    let debug = Get {
        bump: false,
        key_form,
        ..Get::new(key)
    };
    if *get == debug {
        return Some(Verb::Debug);
    }
    (recaches && !lock).then_some(())?;
    flags.extend([Flag::ShowCas, Flag::Value]);
    put_steps(steps, flags);
    flags.extend(known_cas.map(|cas| Flag::Cas(cas.number())));
    flags.extend((!bump).then_some(Flag::NoBump));
    Some(Verb::Get)
}

fn set_flags(set: &Set<'_>, flags: &mut Vec<Flag<'_>>) -> Option<()> {
    let Set {
        key: _,
        key_form: _,
        value: _,
        client_flags,
        exptime,
        mode,
        guard,
        new_cas: _,
        lock,
    } = *set;
    (lock == LockAfter::Keep).then_some(())?;
    // A guarded one of these is something else.
    let is_free = guard == Guard::None;
    let (letter, missing) = match mode {
        SetMode::Set => (None, OnMissing::Refuse),
        SetMode::Add if is_free => (Some(b'E'), OnMissing::Refuse),
        SetMode::Replace if is_free => (Some(b'R'), OnMissing::Refuse),
        SetMode::Add | SetMode::Replace => return None,
        SetMode::Append { missing } => (Some(b'A'), missing),
        SetMode::Prepend { missing } => (Some(b'P'), missing),
    };
    put_guard(guard, flags);
    flags.extend(letter.map(Flag::Mode));
    match missing {
        OnMissing::Create => flags.push(Flag::Vivify(exptime)),
        OnMissing::Refuse => put_exptime(exptime, flags),
    }
    put_client_flags(client_flags, flags);
    Some(())
}

fn delete_flags(delete: &Delete<'_>, flags: &mut Vec<Flag<'_>>) -> Option<()> {
    if let Guard::MatchElseStale(_) = delete.guard {
        return None;
    }
    put_guard(delete.guard, flags);
    match delete.removal {
        Removal::Remove => {}
        Removal::MarkStale { exptime } => {
            flags.push(Flag::Invalidate);
            flags.extend(exptime.map(Flag::Touch));
        }
        Removal::Clear {
            exptime,
            client_flags,
        } => {
            flags.push(Flag::Clear);
            put_exptime(exptime, flags);
            put_client_flags(client_flags, flags);
        }
        Removal::ClearAndMarkStale {
            exptime,
            client_flags,
        } => {
            flags.extend([Flag::Clear, Flag::Invalidate]);
            put_exptime(exptime, flags);
            put_client_flags(client_flags, flags);
        }
    }
    Some(())
}

fn arithmetic_flags(sum: &Arithmetic<'_>, flags: &mut Vec<Flag<'_>>) -> Option<()> {
    match sum.guard {
        Guard::None | Guard::Match(_) => put_guard(sum.guard, flags),
        Guard::MatchElseStale(_) | Guard::Never => return None,
    }
    flags.extend([Flag::ShowCas, Flag::Value]);
    put_steps(sum.steps, flags);
    flags.push(Flag::Initial(sum.initial));
    flags.push(Flag::Delta(sum.delta));
    flags.extend(match sum.direction {
        Direction::Increment => None,
        Direction::Decrement => Some(Flag::Mode(b'D')),
    });
    Some(())
}

fn put_steps(steps: TtlSteps, flags: &mut Vec<Flag<'_>>) {
    flags.extend(steps.iter().map(|step| match step {
        TtlStep::Touch(exptime) => Flag::Touch(exptime),
        TtlStep::Vivify(exptime) => Flag::Vivify(exptime),
        TtlStep::Recache(exptime) => Flag::Recache(exptime),
    }));
}

fn put_guard(guard: Guard, flags: &mut Vec<Flag<'_>>) {
    match guard {
        Guard::None => {}
        Guard::Match(cas) => flags.push(Flag::Cas(cas.number())),
        Guard::MatchElseStale(cas) => flags.extend([Flag::Cas(cas.number()), Flag::Invalidate]),
        Guard::Never => flags.push(Flag::Cas(0)),
    }
}

fn put_exptime(exptime: Exptime, flags: &mut Vec<Flag<'_>>) {
    flags.extend((exptime != Exptime::Never).then_some(Flag::Touch(exptime)));
}

fn put_client_flags(client_flags: u32, flags: &mut Vec<Flag<'_>>) {
    flags.extend((client_flags != 0).then_some(Flag::ClientFlags(client_flags)));
}

/// The command as a packet; `None` if the binary protocol has none for it, or if its value would be
/// too large.
#[must_use]
pub fn packet<'a>(command: &Command<'a>) -> Option<RequestPacket<'a>> {
    Some(match command {
        Command::Item(ItemCommand::Get(get)) => packet_get(get)?,
        Command::Item(ItemCommand::Set(set)) => packet_set(set)?,
        Command::Item(ItemCommand::Delete(delete)) => {
            let plain = Delete {
                guard: delete.guard,
                ..Delete::new(delete.key)
            };
            (*delete == plain).then_some(())?;
            RequestPacket {
                cas: version(delete.guard).ok()?,
                ..about(Opcode::Delete, delete.key)
            }
        }
        Command::Item(ItemCommand::Arithmetic(sum)) => packet_arithmetic(sum)?,
        Command::Item(ItemCommand::Lock { key }) => about(Opcode::Lock, *key),
        Command::Item(ItemCommand::Unlock { key }) => about(Opcode::Unlock, *key),
        Command::Global(GlobalCommand::UnlockAll) => RequestPacket::new(Opcode::UnlockAll),
        Command::Global(GlobalCommand::FlushAll { at: Exptime::Never }) => {
            RequestPacket::new(Opcode::Flush)
        }
        Command::Global(GlobalCommand::FlushAll { at }) => RequestPacket {
            extras: Extras::Exptime(seconds(*at)?),
            ..RequestPacket::new(Opcode::Flush)
        },
        Command::Global(GlobalCommand::Keys(Keys { prefix, cursor })) => {
            (*cursor == ScanCursor::default()).then_some(())?;
            RequestPacket {
                key: prefix,
                ..RequestPacket::new(Opcode::Keys)
            }
        }
        Command::Global(GlobalCommand::Stats(StatsTopic::General)) => {
            RequestPacket::new(Opcode::Stat)
        }
        Command::Global(GlobalCommand::StatsReset) => RequestPacket {
            key: b"reset",
            ..RequestPacket::new(Opcode::Stat)
        },
        Command::Item(ItemCommand::SetTooLarge { .. })
        | Command::Global(GlobalCommand::Stats(_)) => return None,
    })
}

const fn about(opcode: Opcode, key: Key<'_>) -> RequestPacket<'_> {
    RequestPacket {
        key: key.as_bytes(),
        ..RequestPacket::new(opcode)
    }
}

fn packet_get<'a>(get: &Get<'a>) -> Option<RequestPacket<'a>> {
    let plain = Get {
        steps: get.steps,
        lock: get.lock,
        ..Get::new(get.key)
    };
    let mut steps = get.steps.iter();
    let extras = match (steps.next(), steps.next()) {
        (None, _) => Extras::None,
        (Some(TtlStep::Touch(exptime)), None) => Extras::Exptime(seconds(exptime)?),
        (Some(_), _) => return None,
    };
    (*get == plain).then_some(())?;
    let opcode = match (get.lock, extras) {
        (true, _) => Opcode::LaG,
        (false, Extras::None) => Opcode::Get,
        (false, _) => Opcode::Touch,
    };
    Some(RequestPacket {
        extras,
        ..about(opcode, get.key)
    })
}

fn packet_set<'a>(set: &Set<'a>) -> Option<RequestPacket<'a>> {
    let Set {
        key,
        key_form,
        value,
        client_flags,
        exptime,
        mode,
        guard,
        new_cas,
        lock,
    } = *set;
    (key_form == KeyForm::Plain && new_cas == NewCas::Next).then_some(())?;
    let is_free = guard == Guard::None;
    let opcode = match (lock, mode) {
        (LockAfter::Release, SetMode::Replace) if !value.is_empty() => Opcode::RaU,
        (LockAfter::Keep, SetMode::Set) => Opcode::Set,
        (LockAfter::Keep, SetMode::Add) if is_free => Opcode::Add,
        (LockAfter::Keep, SetMode::Replace) if is_free => Opcode::Replace,
        (
            LockAfter::Keep,
            SetMode::Append {
                missing: OnMissing::Refuse,
            },
        ) => Opcode::Append,
        (
            LockAfter::Keep,
            SetMode::Prepend {
                missing: OnMissing::Refuse,
            },
        ) => Opcode::Prepend,
        (LockAfter::Release | LockAfter::Keep, _) => return None,
    };
    let extras = match mode {
        SetMode::Append { .. } | SetMode::Prepend { .. } => {
            (client_flags == 0 && exptime == Exptime::Never).then_some(())?;
            Extras::None
        }
        SetMode::Set | SetMode::Add | SetMode::Replace => Extras::Store {
            client_flags,
            exptime: seconds(exptime)?,
        },
    };
    Some(RequestPacket {
        cas: version(guard).ok()?,
        extras,
        value,
        ..about(opcode, key)
    })
}

fn packet_arithmetic<'a>(sum: &Arithmetic<'a>) -> Option<RequestPacket<'a>> {
    let plain = Arithmetic {
        initial: sum.initial,
        steps: sum.steps,
        guard: sum.guard,
        ..Arithmetic::new(sum.key, sum.direction, sum.delta)
    };
    (*sum == plain).then_some(())?;
    let mut steps = sum.steps.iter();
    let exptime = match (steps.next(), steps.next()) {
        (None, _) => EXPTIME_DO_NOT_CREATE,
        (Some(TtlStep::Vivify(exptime)), None) => seconds(exptime)?,
        (Some(_), _) => return None,
    };
    let opcode = match sum.direction {
        Direction::Increment => Opcode::Increment,
        Direction::Decrement => Opcode::Decrement,
    };
    Some(RequestPacket {
        cas: version(sum.guard).ok()?,
        extras: Extras::Arithmetic {
            delta: sum.delta,
            initial: sum.initial,
            exptime,
        },
        ..about(opcode, sum.key)
    })
}

/// A packet cannot ask so for a version.
struct Inexpressible;

/// The version that a packet asks for; `None` is any.
const fn version(guard: Guard) -> Result<Option<Cas>, Inexpressible> {
    match guard {
        Guard::None => Ok(None),
        Guard::Match(cas) => Ok(Some(cas)),
        Guard::MatchElseStale(_) | Guard::Never => Err(Inexpressible),
    }
}

/// The number of an exptime in a packet, which has no sign.
fn seconds(exptime: Exptime) -> Option<u32> {
    u32::try_from(exptime.to_wire()).ok()
}
