//! Packets. The crate's own encoder puts them together: there is one way to write each.

use latchd_core::command::TtlStep;
use latchd_core::item::Cas;
use latchd_core::time::Exptime;
use latchd_core::wire::binary::extras::EXPTIME_DO_NOT_CREATE;
use latchd_core::wire::binary::{Extras, Opcode, RequestPacket};

use super::super::ask::{Ask, What};
use super::super::names::Names;
use super::{amounts, guard_number, prefix};

/// Which opcode a binary request has.
pub(in super::super) fn opcode(ask: &Ask) -> Opcode {
    let quiet = ask.quiet;
    let either = |loud, silent| if quiet { silent } else { loud };
    match (ask.what, ask.with_key) {
        (What::Get, false) if ask.exptime().is_some() => either(Opcode::Gat, Opcode::GatQ),
        (What::Get, true) if ask.exptime().is_some() => either(Opcode::GatK, Opcode::GatKQ),
        (What::Get, false) => either(Opcode::Get, Opcode::GetQ),
        (What::Get, true) => either(Opcode::GetK, Opcode::GetKQ),
        (What::Touch, _) => Opcode::Touch,
        (What::Set, _) => either(Opcode::Set, Opcode::SetQ),
        (What::Add, _) => either(Opcode::Add, Opcode::AddQ),
        (What::Replace, _) => either(Opcode::Replace, Opcode::ReplaceQ),
        (What::Append, _) => either(Opcode::Append, Opcode::AppendQ),
        (What::Prepend, _) => either(Opcode::Prepend, Opcode::PrependQ),
        (What::ReplaceAndUnlock, _) => either(Opcode::RaU, Opcode::RaUQ),
        (What::Delete, _) => either(Opcode::Delete, Opcode::DeleteQ),
        (What::Increment, _) => either(Opcode::Increment, Opcode::IncrementQ),
        (What::Decrement, _) => either(Opcode::Decrement, Opcode::DecrementQ),
        (What::Lock, _) => either(Opcode::Lock, Opcode::LockQ),
        (What::LockAndGet, false) => either(Opcode::LaG, Opcode::LaGQ),
        (What::LockAndGet, true) => either(Opcode::LaGK, Opcode::LaGKQ),
        (What::Unlock, _) => either(Opcode::Unlock, Opcode::UnlockQ),
        (What::UnlockAll, _) => either(Opcode::UnlockAll, Opcode::UnlockAllQ),
        (What::Flush, _) => either(Opcode::Flush, Opcode::FlushQ),
        (What::Keys, _) => Opcode::Keys,
        (What::Stats | What::StatsReset, _) => Opcode::Stat,
        (What::Version, _) => Opcode::Version,
        (What::Noop, _) => Opcode::Noop,
        (What::Quit, _) => either(Opcode::Quit, Opcode::QuitQ),
        // Well formed, and unknown to a server without authentication.
        (What::Unknown, _) => Opcode::SaslListMechanisms,
        (
            What::MarkStale
            | What::Clear
            | What::ClearAndMarkStale
            | What::Debug
            | What::BadBody
            | What::Nonsense,
            _,
        ) => unreachable!("not in the binary protocol"),
    }
}

/// Appends the packet of a request.
pub(super) fn encode(ask: &Ask, names: &Names, out: &mut Vec<u8>) {
    if ask.what == What::Nonsense {
        out.extend_from_slice(b"get k\r\n");
        return;
    }
    let seconds = |exptime: Option<Exptime>| {
        u32::try_from(exptime.unwrap_or_default().to_wire()).expect("no negative ones in packets")
    };
    let extras = match ask.what {
        What::Touch => Extras::Exptime(seconds(ask.exptime())),
        // A flush says at times that it is for now.
        What::Flush if ask.exptime() == Some(Exptime::Never) && ask.style & 1 == 0 => Extras::None,
        What::Get | What::LockAndGet | What::Flush if ask.exptime().is_some() => {
            Extras::Exptime(seconds(ask.exptime()))
        }
        What::Set | What::Add | What::Replace | What::ReplaceAndUnlock => Extras::Store {
            client_flags: ask.client_flags(),
            exptime: seconds(ask.exptime()),
        },
        What::Increment | What::Decrement => {
            let (delta, initial) = amounts(ask);
            let made = ask.steps().iter().find_map(|step| match step {
                TtlStep::Vivify(exptime) => Some(exptime),
                TtlStep::Touch(_) | TtlStep::Recache(_) => None,
            });
            Extras::Arithmetic {
                delta,
                initial,
                exptime: made.map_or(EXPTIME_DO_NOT_CREATE, |made| seconds(Some(made))),
            }
        }
        _ => Extras::None,
    };
    let key = match ask.what {
        What::UnlockAll
        | What::Flush
        | What::Stats
        | What::Version
        | What::Noop
        | What::Quit
        | What::Unknown => b"",
        What::Keys => prefix(ask, names),
        What::StatsReset => b"reset",
        _ => names.plain(ask.key()),
    };
    let mut value = Vec::new();
    if ask.stores() {
        value.reserve(ask.text.bytes());
        ask.text.write(&mut value);
    }
    RequestPacket {
        opaque: ask.number,
        cas: guard_number(ask.guard()).and_then(Cas::new),
        extras,
        key,
        value: &value,
        ..RequestPacket::new(opcode(ask))
    }
    .encode(out)
    .expect("nothing in it is too long");
}
