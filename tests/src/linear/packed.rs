//! Histories as bytes: one process records them, and another judges them.
//!
//! Numbers are written seven bits a byte, the low ones first; an optional field is preceded by a
//! byte that says whether it is there. Both ends are the same program, so nothing says which form
//! this is.

use latchd_harness::wording::Protocol;

use super::history::{Answer, Hit, Marks, Mode, NEVER, Operation, Record, Store};
use super::one_step::Look;

/// Bytes that say nothing, or that end too early.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Nonsense;

/// Appends a record to `out`: 15 to 40 bytes, most of them.
pub fn encode(record: &Record, out: &mut Vec<u8>) {
    number(record.conn, out);
    number(record.lane, out);
    number(record.place, out);
    maybe(record.key.map(|key| key as u64), out);
    out.push(match record.protocol {
        Protocol::Classic => 0,
        Protocol::Meta => 1,
        Protocol::Binary => 2,
    });
    number(record.invoked, out);
    // Nothing is answered before it is asked.
    let took = record.answered.wrapping_sub(record.invoked);
    maybe((record.answered != NEVER).then_some(took), out);
    operation(&record.operation, out);
    answer(record.answer.as_ref(), out);
}

/// Takes a record from the front of `bytes`.
///
/// # Errors
/// There is none.
pub fn decode(bytes: &mut &[u8]) -> Result<Record, Nonsense> {
    let conn = take_number(bytes)?;
    let lane = take_number(bytes)?;
    let place = take_number(bytes)?;
    let key = take_maybe(bytes)?;
    let protocol = match take_byte(bytes)? {
        0 => Protocol::Classic,
        1 => Protocol::Meta,
        2 => Protocol::Binary,
        _ => return Err(Nonsense),
    };
    let invoked = take_number(bytes)?;
    let took = take_maybe(bytes)?;
    Ok(Record {
        conn,
        lane,
        place,
        key: key.map(usize::try_from).transpose().map_err(|_| Nonsense)?,
        protocol,
        invoked,
        answered: took.map_or(NEVER, |took| invoked.wrapping_add(took)),
        operation: take_operation(bytes)?,
        answer: take_answer(bytes)?,
    })
}

/// Appends a look to `out`.
pub fn encode_look(look: &Look, out: &mut Vec<u8>) {
    out.push(u8::from(look.is_done));
    encode(&look.record, out);
}

/// Takes a look from the front of `bytes`.
///
/// # Errors
/// There is none.
pub fn decode_look(bytes: &mut &[u8]) -> Result<Look, Nonsense> {
    let is_done = take_bool(bytes)?;
    let record = decode(bytes)?;
    Ok(Look { record, is_done })
}

fn operation(operation: &Operation, out: &mut Vec<u8>) {
    let kind = match operation {
        Operation::Get => 0,
        Operation::Vivify => 1,
        Operation::Store(_) => 2,
        Operation::ReplaceAndUnlock(_) => 3,
        Operation::Delete { .. } => 4,
        Operation::MarkStale { .. } => 5,
        Operation::Count { .. } => 6,
        Operation::Lock => 7,
        Operation::LockAndGet => 8,
        Operation::Unlock => 9,
        Operation::Acquire => 10,
        Operation::Release { .. } => 11,
        Operation::UnlockAll => 12,
        Operation::Flush => 13,
        Operation::Death => 14,
    };
    out.push(kind);
    match operation {
        Operation::Store(what) | Operation::ReplaceAndUnlock(what) => store(what, out),
        Operation::Delete { guard: it }
        | Operation::MarkStale { guard: it }
        | Operation::Release { fence: it } => maybe(*it, out),
        Operation::Count { up, delta } => {
            out.push(u8::from(*up));
            number(*delta, out);
        }
        Operation::Get
        | Operation::Vivify
        | Operation::Lock
        | Operation::LockAndGet
        | Operation::Unlock
        | Operation::Acquire
        | Operation::UnlockAll
        | Operation::Flush
        | Operation::Death => {}
    }
}

fn take_operation(bytes: &mut &[u8]) -> Result<Operation, Nonsense> {
    Ok(match take_byte(bytes)? {
        0 => Operation::Get,
        1 => Operation::Vivify,
        2 => Operation::Store(take_store(bytes)?),
        3 => Operation::ReplaceAndUnlock(take_store(bytes)?),
        4 => Operation::Delete {
            guard: take_maybe(bytes)?,
        },
        5 => Operation::MarkStale {
            guard: take_maybe(bytes)?,
        },
        6 => Operation::Count {
            up: take_bool(bytes)?,
            delta: take_number(bytes)?,
        },
        7 => Operation::Lock,
        8 => Operation::LockAndGet,
        9 => Operation::Unlock,
        10 => Operation::Acquire,
        11 => Operation::Release {
            fence: take_maybe(bytes)?,
        },
        12 => Operation::UnlockAll,
        13 => Operation::Flush,
        14 => Operation::Death,
        _ => return Err(Nonsense),
    })
}

fn store(store: &Store, out: &mut Vec<u8>) {
    out.push(match store.mode {
        Mode::Set => 0,
        Mode::Add => 1,
        Mode::Replace => 2,
        Mode::Append => 3,
        Mode::Prepend => 4,
    });
    text(&store.value, out);
    number(store.client_flags.into(), out);
    maybe(store.guard, out);
    out.push(u8::from(store.else_stale));
    maybe(store.fence, out);
}

fn take_store(bytes: &mut &[u8]) -> Result<Store, Nonsense> {
    Ok(Store {
        mode: match take_byte(bytes)? {
            0 => Mode::Set,
            1 => Mode::Add,
            2 => Mode::Replace,
            3 => Mode::Append,
            4 => Mode::Prepend,
            _ => return Err(Nonsense),
        },
        value: take_text(bytes)?,
        client_flags: take_number(bytes)?.try_into().map_err(|_| Nonsense)?,
        guard: take_maybe(bytes)?,
        else_stale: take_bool(bytes)?,
        fence: take_maybe(bytes)?,
    })
}

fn answer(answer: Option<&Answer>, out: &mut Vec<u8>) {
    let kind = match answer {
        None => 0,
        Some(Answer::Hit(_)) => 1,
        Some(Answer::Missing) => 2,
        Some(Answer::Stored { .. }) => 3,
        Some(Answer::NotStored) => 4,
        Some(Answer::Exists) => 5,
        Some(Answer::Deleted) => 6,
        Some(Answer::Counted { .. }) => 7,
        Some(Answer::Done) => 8,
        Some(Answer::Granted { .. }) => 9,
        Some(Answer::Locked) => 10,
        Some(Answer::Held { .. }) => 11,
        Some(Answer::NotLocked) => 12,
        Some(Answer::NonNumeric) => 13,
    };
    out.push(kind);
    match answer {
        Some(Answer::Hit(hit)) => {
            text(&hit.value, out);
            number(hit.client_flags.into(), out);
            maybe(hit.cas, out);
            let marks = hit.marks.map(|marks| {
                u64::from(marks.stale) | u64::from(marks.won) << 1 | u64::from(marks.sent) << 2
            });
            maybe(marks, out);
        }
        Some(Answer::Stored { cas }) => maybe(*cas, out),
        Some(Answer::Counted { number: told, cas }) => {
            number(*told, out);
            maybe(*cas, out);
        }
        Some(Answer::Granted { fence: told } | Answer::Held { by: told }) => number(*told, out),
        None
        | Some(
            Answer::Missing
            | Answer::NotStored
            | Answer::Exists
            | Answer::Deleted
            | Answer::Done
            | Answer::Locked
            | Answer::NotLocked
            | Answer::NonNumeric,
        ) => {}
    }
}

fn take_answer(bytes: &mut &[u8]) -> Result<Option<Answer>, Nonsense> {
    Ok(Some(match take_byte(bytes)? {
        0 => return Ok(None),
        1 => Answer::Hit(take_hit(bytes)?),
        2 => Answer::Missing,
        3 => Answer::Stored {
            cas: take_maybe(bytes)?,
        },
        4 => Answer::NotStored,
        5 => Answer::Exists,
        6 => Answer::Deleted,
        7 => Answer::Counted {
            number: take_number(bytes)?,
            cas: take_maybe(bytes)?,
        },
        8 => Answer::Done,
        9 => Answer::Granted {
            fence: take_number(bytes)?,
        },
        10 => Answer::Locked,
        11 => Answer::Held {
            by: take_number(bytes)?,
        },
        12 => Answer::NotLocked,
        13 => Answer::NonNumeric,
        _ => return Err(Nonsense),
    }))
}

fn take_hit(bytes: &mut &[u8]) -> Result<Hit, Nonsense> {
    Ok(Hit {
        value: take_text(bytes)?,
        client_flags: take_number(bytes)?.try_into().map_err(|_| Nonsense)?,
        cas: take_maybe(bytes)?,
        marks: take_maybe(bytes)?.map(|marks| Marks {
            stale: marks & 1 != 0,
            won: marks & 2 != 0,
            sent: marks & 4 != 0,
        }),
    })
}

fn number(mut number: u64, out: &mut Vec<u8>) {
    while number > 0x7f {
        out.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    out.push(number.to_le_bytes()[0]);
}

fn take_number(bytes: &mut &[u8]) -> Result<u64, Nonsense> {
    let mut number = 0;
    // Ten times seven bits are more than there are.
    for shift in (0..64).step_by(7) {
        let byte = take_byte(bytes)?;
        number |= u64::from(byte & 0x7f) << shift;
        if byte <= 0x7f {
            return Ok(number);
        }
    }
    Err(Nonsense)
}

fn maybe(what: Option<u64>, out: &mut Vec<u8>) {
    out.push(u8::from(what.is_some()));
    if let Some(what) = what {
        number(what, out);
    }
}

fn take_maybe(bytes: &mut &[u8]) -> Result<Option<u64>, Nonsense> {
    Ok(if take_bool(bytes)? {
        Some(take_number(bytes)?)
    } else {
        None
    })
}

fn text(text: &[u8], out: &mut Vec<u8>) {
    number(text.len() as u64, out);
    out.extend_from_slice(text);
}

fn take_text(bytes: &mut &[u8]) -> Result<Box<[u8]>, Nonsense> {
    let length = take_number(bytes)?.try_into().map_err(|_| Nonsense)?;
    let (text, rest) = bytes.split_at_checked(length).ok_or(Nonsense)?;
    *bytes = rest;
    Ok(text.into())
}

fn take_bool(bytes: &mut &[u8]) -> Result<bool, Nonsense> {
    Ok(take_byte(bytes)? != 0)
}

fn take_byte(bytes: &mut &[u8]) -> Result<u8, Nonsense> {
    let (byte, rest) = bytes.split_first().ok_or(Nonsense)?;
    *bytes = rest;
    Ok(*byte)
}
