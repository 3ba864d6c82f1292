//! Packets. The core's own encoder puts them together: there is one way to write each.

use latchd_protocol::command::{
    Arithmetic, Command, Direction, Get, GlobalCommand, Guard, ItemCommand, LockAfter, Set,
    SetMode, TtlStep,
};
use latchd_protocol::item::Cas;
use latchd_protocol::key::Key;
use latchd_protocol::time::Exptime;
use latchd_protocol::wire::binary::extras::EXPTIME_DO_NOT_CREATE;
use latchd_protocol::wire::binary::{Extras, Opcode, RequestPacket};

use super::{Style, guard_number};

/// The packet of a command that the binary protocol has words for; `None` if it has an exptime
/// below 0, which no packet has, or is a value that was too large, and is gone.
#[must_use]
pub fn packet<'a>(command: &Command<'a>, style: &Style) -> Option<RequestPacket<'a>> {
    let quiet = |loud, silent| if style.quiet { silent } else { loud };
    Some(match command {
        Command::Item(command) => match command {
            ItemCommand::Get(get) => get_packet(get, style)?,
            ItemCommand::Set(set) => set_packet(set, style)?,
            ItemCommand::Delete(delete) => RequestPacket {
                cas: version(delete.guard),
                ..about(quiet(Opcode::Delete, Opcode::DeleteQ), delete.key)
            },
            ItemCommand::Arithmetic(sum) => arithmetic_packet(sum, style)?,
            // A value that was dropped, and requests of meta text only.
            ItemCommand::SetTooLarge { .. } | ItemCommand::Acquire(_) | ItemCommand::Release(_) => {
                return None;
            }
            ItemCommand::Lock { key } => about(quiet(Opcode::Lock, Opcode::LockQ), *key),
            ItemCommand::Unlock { key } => about(quiet(Opcode::Unlock, Opcode::UnlockQ), *key),
        },
        Command::Global(command) => match command {
            GlobalCommand::UnlockAll => {
                RequestPacket::new(quiet(Opcode::UnlockAll, Opcode::UnlockAllQ))
            }
            GlobalCommand::FlushAll { at } => RequestPacket {
                extras: if style.leaves_out(*at) {
                    Extras::None
                } else {
                    Extras::Exptime(seconds(*at)?)
                },
                ..RequestPacket::new(quiet(Opcode::Flush, Opcode::FlushQ))
            },
            GlobalCommand::Keys(keys) => RequestPacket {
                key: keys.prefix,
                ..RequestPacket::new(Opcode::Keys)
            },
            GlobalCommand::Stats(_) => RequestPacket::new(Opcode::Stat),
            GlobalCommand::StatsReset => RequestPacket {
                key: b"reset",
                ..RequestPacket::new(Opcode::Stat)
            },
        },
    })
}

const fn about(opcode: Opcode, key: Key<'_>) -> RequestPacket<'_> {
    RequestPacket {
        key: key.as_bytes(),
        ..RequestPacket::new(opcode)
    }
}

fn get_packet<'a>(get: &Get<'a>, style: &Style) -> Option<RequestPacket<'a>> {
    let touch = get.steps.iter().find_map(|step| match step {
        TtlStep::Touch(exptime) => Some(exptime),
        TtlStep::Vivify(_) | TtlStep::Recache(_) => None,
    });
    let family = match (get.lock, touch) {
        (true, _) => [Opcode::LaG, Opcode::LaGQ, Opcode::LaGK, Opcode::LaGKQ],
        (false, None) => [Opcode::Get, Opcode::GetQ, Opcode::GetK, Opcode::GetKQ],
        (false, Some(_)) if style.with_value => {
            [Opcode::Gat, Opcode::GatQ, Opcode::GatK, Opcode::GatKQ]
        }
        (false, Some(_)) => [Opcode::Touch; 4],
    };
    let opcode = family[usize::from(style.quiet) + 2 * usize::from(style.with_key)];
    Some(RequestPacket {
        extras: match touch {
            Some(exptime) => Extras::Exptime(seconds(exptime)?),
            None => Extras::None,
        },
        ..about(opcode, get.key)
    })
}

fn set_packet<'a>(set: &Set<'a>, style: &Style) -> Option<RequestPacket<'a>> {
    let [loud, silent] = match (set.lock, set.mode) {
        (LockAfter::Release, _) => [Opcode::RaU, Opcode::RaUQ],
        (LockAfter::Keep, SetMode::Set) if style.as_replace => [Opcode::Replace, Opcode::ReplaceQ],
        (LockAfter::Keep, SetMode::Set) => [Opcode::Set, Opcode::SetQ],
        (LockAfter::Keep, SetMode::Add) => [Opcode::Add, Opcode::AddQ],
        (LockAfter::Keep, SetMode::Replace) => [Opcode::Replace, Opcode::ReplaceQ],
        (LockAfter::Keep, SetMode::Append { .. }) => [Opcode::Append, Opcode::AppendQ],
        (LockAfter::Keep, SetMode::Prepend { .. }) => [Opcode::Prepend, Opcode::PrependQ],
    };
    let extras = match set.mode {
        SetMode::Append { .. } | SetMode::Prepend { .. } => Extras::None,
        SetMode::Set | SetMode::Add | SetMode::Replace => Extras::Store {
            client_flags: set.client_flags,
            exptime: seconds(set.exptime)?,
        },
    };
    Some(RequestPacket {
        cas: version(set.guard),
        extras,
        value: set.value.as_bytes(),
        ..about(if style.quiet { silent } else { loud }, set.key)
    })
}

fn arithmetic_packet<'a>(sum: &Arithmetic<'a>, style: &Style) -> Option<RequestPacket<'a>> {
    let opcode = match (sum.direction, style.quiet) {
        (Direction::Increment, false) => Opcode::Increment,
        (Direction::Increment, true) => Opcode::IncrementQ,
        (Direction::Decrement, false) => Opcode::Decrement,
        (Direction::Decrement, true) => Opcode::DecrementQ,
    };
    let made = sum.steps.iter().find_map(|step| match step {
        TtlStep::Vivify(exptime) => Some(exptime),
        TtlStep::Touch(_) | TtlStep::Recache(_) => None,
    });
    Some(RequestPacket {
        cas: version(sum.guard),
        extras: Extras::Arithmetic {
            delta: sum.delta,
            initial: sum.initial,
            exptime: match made {
                Some(exptime) => seconds(exptime)?,
                None => EXPTIME_DO_NOT_CREATE,
            },
        },
        ..about(opcode, sum.key)
    })
}

/// The version that a packet asks for; 0 is any.
fn version(guard: Guard) -> Option<Cas> {
    guard_number(guard).and_then(Cas::new)
}

/// The number of an exptime in a packet, which has no sign.
fn seconds(exptime: Exptime) -> Option<u32> {
    u32::try_from(exptime.to_wire()).ok()
}
