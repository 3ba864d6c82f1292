//! Operations as bytes, and answers as they are read.

use latchd_harness::wording::{self, Protocol, Style};
use latchd_protocol::command::{
    Acquire, Arithmetic, Command, Delete, Direction, Get, GlobalCommand, Guard, ItemCommand,
    LockAfter, OnMissing, Release, ReleaseOf, Removal, Set, SetMode, TtlStep, TtlSteps,
};
use latchd_protocol::fence::Fence;
use latchd_protocol::item::Cas;
use latchd_protocol::key::Key;
use latchd_protocol::time::Exptime;
use latchd_protocol::wire::binary::reply::{ResponsePacket, decode as decode_packet};
use latchd_protocol::wire::binary::{RequestPacket, Status};
use latchd_protocol::wire::classic::reply::ClassicResponse as Classic;
use latchd_protocol::wire::meta::reply::{Code, MetaResponse as Meta};

use super::history::{Answer, Hit, Marks, Mode, Operation, Store};

/// The longest body that a server may send.
const BODY_BYTES_MAX: usize = 1 << 20;

/// A request on its way.
#[derive(Clone, Debug)]
pub(super) struct Ask<'a> {
    pub(super) operation: &'a Operation,
    pub(super) protocol: Protocol,
    /// Empty for a request about all keys.
    pub(super) key: &'a [u8],
    /// Its number on its connection, which comes back where the protocol has room for it.
    pub(super) opaque: u32,
}

/// The reason why bytes are no answer.
pub(super) type Unfit = &'static str;

/// Appends the request to `out`. If the version can be left out, `with_cas` asks for it.
pub(super) fn encode(ask: &Ask<'_>, with_cas: bool, out: &mut Vec<u8>) {
    let style = Style {
        with_cas,
        with_value: matches!(
            ask.operation,
            Operation::Get | Operation::Vivify | Operation::Count { .. } | Operation::LockAndGet
        ),
        with_client_flags: matches!(ask.operation, Operation::Get | Operation::Vivify),
        opaque: Some(ask.opaque),
        ..Style::default()
    };
    let command = command(ask);
    match ask.protocol {
        Protocol::Classic => wording::classic(&command, &[], &style, out),
        Protocol::Meta => match &command {
            Command::Item(command) => wording::meta(command, &style, out),
            Command::Global(_) => unreachable!("classic text is to say that"),
        },
        Protocol::Binary => {
            let packet = wording::packet(&command, &style).expect("it is said in text otherwise");
            let packet = RequestPacket {
                opaque: ask.opaque,
                ..packet
            };
            packet.encode(out).expect("keys and values are short");
        }
    }
}

fn command<'a>(ask: &Ask<'a>) -> Command<'a> {
    if *ask.operation == Operation::UnlockAll {
        return Command::Global(GlobalCommand::UnlockAll);
    }
    if *ask.operation == Operation::Flush {
        return Command::Global(GlobalCommand::FlushAll { at: Exptime::Never });
    }
    let key = Key::new(ask.key).expect("keys are short and not empty");
    match ask.operation {
        Operation::Get => Command::from(Get {
            recaches: ask.protocol == Protocol::Meta,
            ..Get::new(key)
        }),
        Operation::Vivify => Command::from(Get {
            recaches: true,
            steps: TtlSteps::one(TtlStep::Vivify(Exptime::Never)),
            ..Get::new(key)
        }),
        Operation::LockAndGet => Command::from(Get {
            lock: true,
            ..Get::new(key)
        }),
        Operation::Store(store) => Command::from(set(key, store)),
        Operation::ReplaceAndUnlock(store) => Command::from(Set {
            lock: LockAfter::Release,
            ..set(key, store)
        }),
        Operation::Delete { guard } => Command::from(Delete {
            guard: matching(*guard),
            ..Delete::new(key)
        }),
        Operation::MarkStale { guard } => Command::from(Delete {
            guard: matching(*guard),
            removal: Removal::MarkStale { exptime: None },
            ..Delete::new(key)
        }),
        Operation::Count { up, delta } => {
            let direction = if *up {
                Direction::Increment
            } else {
                Direction::Decrement
            };
            Command::from(Arithmetic::new(key, direction, *delta))
        }
        Operation::Lock => Command::Item(ItemCommand::Lock { key }),
        Operation::Unlock => Command::Item(ItemCommand::Unlock { key }),
        Operation::Acquire => Command::Item(ItemCommand::Acquire(Acquire::new(key))),
        Operation::Release { fence } => Command::Item(ItemCommand::Release(Release {
            of: fence
                .and_then(Fence::new)
                .map_or(ReleaseOf::Own, ReleaseOf::OwnGrant),
            ..Release::new(key)
        })),
        Operation::UnlockAll | Operation::Flush | Operation::Death => {
            unreachable!("not about one key, or no request")
        }
    }
}

fn set<'a>(key: Key<'a>, store: &'a Store) -> Set<'a> {
    let missing = OnMissing::Refuse;
    Set {
        client_flags: store.client_flags,
        mode: match store.mode {
            Mode::Set => SetMode::Set,
            Mode::Add => SetMode::Add,
            Mode::Replace => SetMode::Replace,
            Mode::Append => SetMode::Append { missing },
            Mode::Prepend => SetMode::Prepend { missing },
        },
        guard: match store.guard.and_then(Cas::new) {
            Some(cas) if store.else_stale => Guard::MatchElseStale(cas),
            Some(cas) => Guard::Match(cas),
            None => Guard::None,
        },
        fence: store.fence.and_then(Fence::new),
        ..Set::new(key, &store.value)
    }
}

fn matching(guard: Option<u64>) -> Guard {
    guard.and_then(Cas::new).map_or(Guard::None, Guard::Match)
}

/// The answer at the front of `bytes`, and its length; `None` if it is incomplete.
///
/// # Errors
/// It is no answer to such a request.
pub(super) fn decode(ask: &Ask<'_>, bytes: &[u8]) -> Result<Option<(Answer, usize)>, Unfit> {
    match ask.protocol {
        Protocol::Classic => classic(ask, bytes),
        Protocol::Meta => meta(ask, bytes),
        Protocol::Binary => binary(ask, bytes),
    }
}

fn classic(ask: &Ask<'_>, bytes: &[u8]) -> Result<Option<(Answer, usize)>, Unfit> {
    let read = |bytes| Classic::decode(bytes).map_err(|_| "bytes that are no answer in text");
    let Some((response, taken)) = read(bytes)? else {
        return Ok(None);
    };
    let answer = match response {
        Classic::Value {
            key,
            client_flags,
            value,
            cas,
        } => {
            if key != ask.key || *ask.operation != Operation::Get {
                return Err("an item that was not asked for");
            }
            let Some((end, more)) = read(&bytes[taken..])? else {
                return Ok(None);
            };
            if end != Classic::End {
                return Err("two items for one key");
            }
            let hit = Hit {
                value: value.into(),
                client_flags,
                cas: cas.map(Cas::number),
                marks: None,
            };
            return Ok(Some((Answer::Hit(hit), taken + more)));
        }
        Classic::End if *ask.operation == Operation::Get => Answer::Missing,
        Classic::Stored => Answer::Stored { cas: None },
        Classic::NotStored => Answer::NotStored,
        Classic::Exists => Answer::Exists,
        Classic::NotFound => Answer::Missing,
        Classic::Deleted => Answer::Deleted,
        Classic::Ok => Answer::Done,
        Classic::Locked => Answer::Locked,
        Classic::Number(number) => Answer::Counted { number, cas: None },
        Classic::ClientError(b"object is not locked or not found") => Answer::NotLocked,
        Classic::ClientError(b"cannot increment or decrement non-numeric value") => {
            Answer::NonNumeric
        }
        Classic::End
        | Classic::Key { .. }
        | Classic::Stat { .. }
        | Classic::Cluster(_)
        | Classic::Touched
        | Classic::Reset
        | Classic::Version(_)
        | Classic::Error(_)
        | Classic::ClientError(_)
        | Classic::ServerError(_) => return Err("no answer to such a request"),
    };
    Ok(Some((answer, taken)))
}

fn meta(ask: &Ask<'_>, bytes: &[u8]) -> Result<Option<(Answer, usize)>, Unfit> {
    let (response, taken) = match Meta::decode(bytes) {
        Ok(Some(decoded)) => decoded,
        Ok(None) => return Ok(None),
        // An error line has no code.
        Err(_) => {
            return match classic(ask, bytes)? {
                Some((Answer::NonNumeric, taken)) => Ok(Some((Answer::NonNumeric, taken))),
                None => Ok(None),
                Some(_) => Err("a classic answer to a meta command"),
            };
        }
    };
    let number = |letter| response.flag(letter).and_then(number);
    if number(b'O') != Some(ask.opaque.into()) {
        return Err("the answer to another request");
    }
    let reads = matches!(ask.operation, Operation::Get | Operation::Vivify);
    // A store that was refused shows version 0.
    let cas = number(b'c').filter(|cas| *cas != 0);
    let answer = match response.code {
        Code::Value if reads => Answer::Hit(Hit {
            value: response.value.into(),
            client_flags: number(b'f')
                .and_then(|flags| u32::try_from(flags).ok())
                .ok_or("an item without client flags")?,
            cas,
            marks: Some(Marks {
                stale: response.flag(b'X').is_some(),
                won: response.flag(b'W').is_some(),
                sent: response.flag(b'Z').is_some(),
            }),
        }),
        Code::Value => Answer::Counted {
            number: self::number(response.value).ok_or("a number that is none")?,
            cas,
        },
        Code::Done => match ask.operation {
            Operation::Store(_) => Answer::Stored { cas },
            Operation::Delete { .. } | Operation::MarkStale { .. } => Answer::Deleted,
            Operation::Acquire => Answer::Granted {
                fence: number(b'F').ok_or("a grant without a fence")?,
            },
            Operation::Release { .. } => Answer::Done,
            Operation::Get
            | Operation::Vivify
            | Operation::ReplaceAndUnlock(_)
            | Operation::Count { .. }
            | Operation::Lock
            | Operation::LockAndGet
            | Operation::Unlock
            | Operation::UnlockAll
            | Operation::Flush
            | Operation::Death => return Err("success without what was asked for"),
        },
        Code::Miss | Code::NotFound => Answer::Missing,
        Code::NotStored => Answer::NotStored,
        Code::Exists => Answer::Exists,
        Code::Locked if *ask.operation == Operation::Acquire => Answer::Held {
            by: number(b'h').ok_or("a lock without a holder")?,
        },
        Code::Locked => Answer::Locked,
        Code::Debug | Code::Noop => return Err("no answer to such a request"),
    };
    Ok(Some((answer, taken)))
}

fn binary(ask: &Ask<'_>, bytes: &[u8]) -> Result<Option<(Answer, usize)>, Unfit> {
    let Some((packet, taken)) =
        decode_packet(bytes, BODY_BYTES_MAX).map_err(|_| "bytes that are no packet of a server")?
    else {
        return Ok(None);
    };
    if packet.opaque != ask.opaque {
        return Err("the answer to another request");
    }
    let is = |mode| matches!(ask.operation, Operation::Store(store) if store.guard.is_none() && store.mode == mode);
    let answer = match packet.status {
        Status::SUCCESS => success(ask, &packet)?,
        Status::NOT_FOUND if is(Mode::Replace) => Answer::NotStored,
        Status::NOT_FOUND => Answer::Missing,
        Status::EXISTS if is(Mode::Add) => Answer::NotStored,
        Status::EXISTS => Answer::Exists,
        Status::NOT_STORED => Answer::NotStored,
        Status::NON_NUMERIC => Answer::NonNumeric,
        Status::LOCKED => Answer::Locked,
        Status::NOT_LOCKED => Answer::NotLocked,
        _ => return Err("a status that no request of these brings about"),
    };
    Ok(Some((answer, taken)))
}

fn success(ask: &Ask<'_>, packet: &ResponsePacket<'_>) -> Result<Answer, Unfit> {
    let cas = packet.cas.map(Cas::number);
    Ok(match ask.operation {
        Operation::Get | Operation::LockAndGet => Answer::Hit(Hit {
            value: packet.value.into(),
            client_flags: packet
                .client_flags()
                .ok_or("an item without client flags")?,
            cas: Some(cas.ok_or("an item without a version")?),
            marks: None,
        }),
        Operation::Store(_) | Operation::ReplaceAndUnlock(_) => Answer::Stored {
            cas: Some(cas.ok_or("an item without a version")?),
        },
        Operation::Delete { .. } => Answer::Deleted,
        Operation::Count { .. } => Answer::Counted {
            number: packet.number().ok_or("a number that is none")?,
            cas,
        },
        Operation::Lock | Operation::Unlock | Operation::UnlockAll | Operation::Flush => {
            Answer::Done
        }
        Operation::Vivify
        | Operation::MarkStale { .. }
        | Operation::Acquire
        | Operation::Release { .. }
        | Operation::Death => return Err("no such packet was sent"),
    })
}

fn number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}
