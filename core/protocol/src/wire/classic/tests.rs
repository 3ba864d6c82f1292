//! Requests and responses of the classic protocol read back as they were written.

extern crate std;

use std::vec::Vec;
use std::{format, vec};

use quickcheck::{Arbitrary, Gen, quickcheck};

use super::ClassicEnvelope;
use super::reply::ClassicResponse;
use super::request::{Inexpressible, decode, encode};
use crate::command::{
    Arithmetic, Command, Delete, Direction, Get, GlobalCommand, Guard, ItemCommand, Keys, NewCas,
    OnMissing, ScanCursor, Set, SetMode, TtlStep, TtlSteps,
};
use crate::item::Cas;
use crate::key::{Key, KeyForm};
use crate::output::Output;
use crate::reply::{Refusal, Reply, Stored};
use crate::stats::StatsTopic;
use crate::time::Exptime;
use crate::watch::{Topic, Topics};
use crate::wire::line::Line;
use crate::wire::{Cursor, Envelope, Malformed, Operation, Step, WireLimits};

/// The numbers and bytes of a request, for all forms.
#[derive(Clone, Debug)]
struct Draft {
    shape: u8,
    key: Vec<u8>,
    value: Vec<u8>,
    client_flags: u32,
    exptime: i32,
    number: u64,
    noreply: bool,
    with_cas: bool,
}

impl Arbitrary for Draft {
    fn arbitrary(g: &mut Gen) -> Self {
        let word = Vec::<u8>::arbitrary(g);
        let key: Vec<u8> = word
            .into_iter()
            .take(250)
            .map(|byte| byte % 94 + 33)
            .collect();
        Self {
            shape: u8::arbitrary(g),
            key: if key.is_empty() { vec![b'k'] } else { key },
            value: Arbitrary::arbitrary(g),
            client_flags: Arbitrary::arbitrary(g),
            exptime: Arbitrary::arbitrary(g),
            number: Arbitrary::arbitrary(g),
            noreply: Arbitrary::arbitrary(g),
            with_cas: Arbitrary::arbitrary(g),
        }
    }
}

impl Draft {
    fn request(&self) -> (Command<'_>, ClassicEnvelope) {
        let key = Key::new(&self.key).unwrap();
        let exptime = Exptime::from_wire(i64::from(self.exptime));
        let Self {
            noreply, with_cas, ..
        } = *self;
        let touch = TtlSteps::one(TtlStep::Touch(exptime));
        let change = ClassicEnvelope::Change { noreply };
        let loud = ClassicEnvelope::Change { noreply: false };
        let set = |mode, guard| {
            let client_flags = self.client_flags;
            Command::from(Set {
                client_flags,
                exptime,
                mode,
                guard,
                ..Set::new(key, &self.value)
            })
        };
        let cas = Cas::new(self.number).map_or(Guard::Never, Guard::Match);
        let sum = |direction| Command::from(Arithmetic::new(key, direction, self.number));
        let topic = |topic| {
            (
                Command::Global(GlobalCommand::Stats(topic)),
                ClassicEnvelope::Stats(topic),
            )
        };
        match self.shape % 30 {
            1 => (
                Command::from(Get {
                    steps: touch,
                    ..Get::new(key)
                }),
                ClassicEnvelope::Get {
                    with_cas,
                    last: true,
                },
            ),
            2 => (
                Command::from(Get {
                    steps: touch,
                    ..Get::new(key)
                }),
                ClassicEnvelope::Touch { noreply },
            ),
            3 => (set(SetMode::Set, Guard::None), change),
            4 => (set(SetMode::Set, cas), change),
            5 => (set(SetMode::Add, Guard::None), change),
            6 => (set(SetMode::Replace, Guard::None), change),
            7 => (
                set(
                    SetMode::Append {
                        missing: OnMissing::Refuse,
                    },
                    Guard::None,
                ),
                change,
            ),
            8 => (
                set(
                    SetMode::Prepend {
                        missing: OnMissing::Refuse,
                    },
                    Guard::None,
                ),
                change,
            ),
            9 => (Command::from(Delete::new(key)), change),
            10 => (
                sum(Direction::Increment),
                ClassicEnvelope::Arithmetic { noreply },
            ),
            11 => (
                sum(Direction::Decrement),
                ClassicEnvelope::Arithmetic { noreply },
            ),
            12 => (Command::Item(ItemCommand::Lock { key }), loud),
            13 => (Command::Item(ItemCommand::Unlock { key }), loud),
            14 => (Command::Global(GlobalCommand::UnlockAll), loud),
            15 => (
                Command::Global(GlobalCommand::FlushAll { at: exptime }),
                change,
            ),
            16 => (
                Command::Global(GlobalCommand::Keys(Keys {
                    prefix: &self.key,
                    cursor: ScanCursor::default(),
                })),
                ClassicEnvelope::Keys,
            ),
            17 => (
                Command::Global(GlobalCommand::Keys(Keys {
                    prefix: b"",
                    cursor: ScanCursor::default(),
                })),
                ClassicEnvelope::Keys,
            ),
            18 => topic(StatsTopic::General),
            19 => topic(StatsTopic::Settings),
            20 => topic(StatsTopic::Items),
            21 => topic(StatsTopic::Slabs),
            22 => topic(StatsTopic::Sizes),
            23 => topic(StatsTopic::Conns(ScanCursor::default())),
            24 => topic(StatsTopic::Locks(ScanCursor::default())),
            25 => topic(StatsTopic::Detail(ScanCursor::default())),
            26 => topic(StatsTopic::DetailOn),
            27 => topic(StatsTopic::DetailOff),
            28 => (
                Command::Global(GlobalCommand::StatsReset),
                ClassicEnvelope::StatsReset,
            ),
            _ => (
                Command::from(Get::new(key)),
                ClassicEnvelope::Get {
                    with_cas,
                    last: true,
                },
            ),
        }
    }

    fn response(&self) -> ClassicResponse<'_> {
        let key = &self.key[..];
        match self.shape % 19 {
            0 | 1 => ClassicResponse::Value {
                key,
                client_flags: self.client_flags,
                value: &self.value,
                cas: if self.with_cas {
                    Cas::new(self.number)
                } else {
                    None
                },
            },
            2 => ClassicResponse::Key {
                word: key,
                key_form: if self.with_cas {
                    KeyForm::Binary
                } else {
                    KeyForm::Plain
                },
            },
            3 => ClassicResponse::Stat {
                name: key,
                value: key,
            },
            4 => ClassicResponse::End,
            5 => ClassicResponse::Stored,
            6 => ClassicResponse::NotStored,
            7 => ClassicResponse::Exists,
            8 => ClassicResponse::NotFound,
            9 => ClassicResponse::Deleted,
            10 => ClassicResponse::Touched,
            11 => ClassicResponse::Ok,
            12 => ClassicResponse::Locked,
            13 => ClassicResponse::Reset,
            14 => ClassicResponse::Number(self.number),
            15 => ClassicResponse::Version(key),
            16 if self.with_cas => ClassicResponse::Error(key),
            16 => ClassicResponse::Error(b""),
            17 => ClassicResponse::ClientError(key),
            _ => ClassicResponse::ServerError(b"out of memory storing object"),
        }
    }
}

fn decoded(bytes: &[u8]) -> Step<'_> {
    let line_bytes = bytes.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    let line = Line::new(bytes, line_bytes).unwrap();
    decode(line, &WireLimits::default(), &mut Cursor::Start)
}

quickcheck! {
    fn a_request_that_is_written_reads_back(draft: Draft) -> bool {
        let (command, envelope) = draft.request();
        let mut bytes = Vec::new();
        encode(&command, envelope, &mut bytes).unwrap();
        // A listing stays in the input until its last page.
        let is_listing = match command {
            Command::Global(GlobalCommand::Keys(_)) => true,
            Command::Global(GlobalCommand::Stats(topic)) => topic.on_page(ScanCursor::default()).is_some(),
            Command::Item(_) | Command::Global(_) => false,
        };
        let consumed = if is_listing { 0 } else { bytes.len() };
        let envelope = Envelope::Classic(envelope);
        decoded(&bytes) == Operation::Execute { command, envelope }.consuming(consumed)
    }

    /// Also byte by byte: it is incomplete until all of it has arrived.
    fn a_response_that_is_written_reads_back(draft: Draft) -> bool {
        let response = draft.response();
        let mut bytes = Vec::new();
        response.encode(&mut bytes);
        let whole = ClassicResponse::decode(&bytes) == Ok(Some((response, bytes.len())));
        whole && (0..bytes.len()).all(|cut| ClassicResponse::decode(&bytes[..cut]) == Ok(None))
    }

    fn any_bytes_are_a_response_or_not(bytes: Vec<u8>) -> bool {
        match ClassicResponse::decode(&bytes) {
            Ok(Some((_, consumed))) => consumed <= bytes.len(),
            Ok(None) | Err(Malformed) => true,
        }
    }
}

#[test]
fn a_request_is_the_line_a_person_would_type() {
    let key = Key::new(b"k").unwrap();
    let line = |command, envelope| {
        let mut bytes = Vec::new();
        encode(&command, envelope, &mut bytes).unwrap();
        bytes
    };
    let change = ClassicEnvelope::Change { noreply: false };
    let guard = Guard::Match(Cas::new(9).unwrap());
    let set = Set {
        client_flags: 5,
        guard,
        ..Set::new(key, b"abc")
    };
    assert_eq!(
        line(Command::Item(ItemCommand::Set(set)), change),
        b"cas k 5 0 3 9\r\nabc\r\n"
    );
    let never = Set {
        guard: Guard::Never,
        ..set
    };
    assert_eq!(
        line(Command::Item(ItemCommand::Set(never)), change),
        b"cas k 5 0 3 0\r\nabc\r\n"
    );
    let steps = TtlSteps::one(TtlStep::Touch(Exptime::In { seconds: 30 }));
    let get = Command::from(Get {
        steps,
        ..Get::new(key)
    });
    let envelope = ClassicEnvelope::Get {
        with_cas: true,
        last: true,
    };
    assert_eq!(line(get, envelope), b"gats 30 k\r\n");
    assert_eq!(
        line(get, ClassicEnvelope::Touch { noreply: true }),
        b"touch k 30 noreply\r\n"
    );
    assert_eq!(
        line(Command::Item(ItemCommand::Lock { key }), change),
        b"lock k\r\n"
    );
}

#[test]
fn inexpressible_requests_are_not_written() {
    let mut bytes = b"before".to_vec();
    let mut refused = |command, envelope| {
        assert_eq!(
            encode(&command, envelope, &mut bytes),
            Err(Inexpressible),
            "{command:?}"
        );
        assert_eq!(bytes, b"before");
    };
    let key = Key::new(b"k").unwrap();
    let change = ClassicEnvelope::Change { noreply: false };
    let get = ClassicEnvelope::Get {
        with_cas: false,
        last: true,
    };
    for odd in ["a b", "a\r", "a\nb", "\0", "\t"] {
        refused(
            Command::from(Get::new(Key::new(odd.as_bytes()).unwrap())),
            get,
        );
    }
    let is = NewCas::Is(Cas::new(1).unwrap());
    refused(
        Command::from(Set {
            new_cas: is,
            ..Set::new(key, b"")
        }),
        change,
    );
    let key_form = KeyForm::Binary;
    refused(
        Command::from(Set {
            key_form,
            ..Set::new(key, b"")
        }),
        change,
    );
    refused(
        Command::from(Get {
            recaches: true,
            ..Get::new(key)
        }),
        get,
    );
    let at = Exptime::At { unix_s: 1 << 31 };
    refused(Command::Global(GlobalCommand::FlushAll { at }), change);
    refused(
        Command::Item(ItemCommand::Lock { key }),
        ClassicEnvelope::Change { noreply: true },
    );
    refused(Command::Item(ItemCommand::Lock { key }), get);
    // The reply would be taken for another request's.
    refused(
        Command::Global(GlobalCommand::Stats(StatsTopic::Items)),
        ClassicEnvelope::Stats(StatsTopic::Slabs),
    );
}

#[test]
fn a_reply_of_no_server_is_malformed() {
    for bytes in [
        "HELLO\r\n",
        "\r\n",
        "VALUE k x 1\r\nx\r\n",
        "VALUE k 0 1\r\nxyz",
        "-1\r\n",
    ] {
        assert_eq!(
            ClassicResponse::decode(bytes.as_bytes()),
            Err(Malformed),
            "{bytes:?}"
        );
    }
    assert_eq!(ClassicResponse::decode(&[b'1'; 5000]), Err(Malformed));
}

#[test]
fn every_refusal_has_its_line() {
    let shown = |envelope, refusal| {
        let mut out = Output::new();
        super::reply::encode(envelope, &Reply::Refused(refusal), &mut out);
        std::string::String::from_utf8(out.into()).unwrap()
    };
    let change = ClassicEnvelope::Change { noreply: false };
    for (refusal, line) in [
        (Refusal::Locked, "LOCKED"),
        (
            Refusal::NotLocked,
            "CLIENT_ERROR object is not locked or not found",
        ),
        (
            Refusal::NotLockedNotFound,
            "CLIENT_ERROR object is not locked or not found",
        ),
        (Refusal::TooManyLocks, "SERVER_ERROR too many locks"),
        (
            Refusal::ConnectionClosed,
            "SERVER_ERROR connection is closed",
        ),
        (Refusal::TooLarge, "SERVER_ERROR object too large for cache"),
        (
            Refusal::OutOfMemory,
            "SERVER_ERROR out of memory storing object",
        ),
        (
            Refusal::NonNumeric,
            "CLIENT_ERROR cannot increment or decrement non-numeric value",
        ),
        (
            Refusal::Unrecorded,
            "SERVER_ERROR cannot record the time on disk; see the server's log",
        ),
    ] {
        assert_eq!(shown(change, refusal), format!("{line}\r\n"));
        assert_eq!(
            shown(ClassicEnvelope::Change { noreply: true }, refusal),
            ""
        );
    }
    let sum = ClassicEnvelope::Arithmetic { noreply: false };
    assert_eq!(
        shown(sum, Refusal::OutOfMemory),
        "SERVER_ERROR out of memory\r\n"
    );
}

#[test]
fn mismatched_replies_are_errors() {
    let mut out = Output::new();
    super::reply::encode(
        ClassicEnvelope::Touch { noreply: false },
        &Reply::Miss,
        &mut out,
    );
    super::reply::encode(
        ClassicEnvelope::Change { noreply: false },
        &Reply::Miss,
        &mut out,
    );
    assert_eq!(
        Vec::from(core::mem::take(&mut out)),
        b"NOT_FOUND\r\nSERVER_ERROR the reply does not fit the request\r\n"
    );
    let stored = Stored {
        cas: Cas::new(1).unwrap(),
        size: 0,
    };
    super::reply::encode(ClassicEnvelope::Keys, &Reply::Stored(stored), &mut out);
    assert_eq!(Vec::from(out), b"STORED\r\n");
}

/// A client without access to keys may not watch topics that show keys. If it may do neither, the error about
/// watching comes first.
#[test]
fn watching_keys_needs_listing() {
    let watched = |words: &str, watching, listing| {
        let mut limits = WireLimits::default();
        (limits.allowed.watching, limits.allowed.listing) = (watching, listing);
        let bytes = format!("watch{words}\r\n").into_bytes();
        let line = Line::new(&bytes, bytes.len()).unwrap();
        let step = decode(line, &limits, &mut Cursor::Start);
        if let Step {
            consumed,
            operation: Operation::Watch { topics },
        } = step
        {
            assert_eq!(consumed, bytes.len());
            return Ok(topics);
        }
        let Step {
            operation: Operation::Send { response, .. },
            ..
        } = step
        else {
            panic!("{step:?}")
        };
        Err(format!("{response:?}"))
    };
    let fetchers = Ok(Topics::of(Topic::Fetchers));
    assert_eq!(watched("", true, true), fetchers);
    let connections = Ok(Topics::of(Topic::Connections));
    assert_eq!(watched(" connevents", true, false), connections);
    let not_allowed = watched("", false, true).unwrap_err();
    assert!(not_allowed.contains("watch commands not allowed"));
    for words in ["", " connevents locks", " mutations"] {
        assert_eq!(
            watched(words, true, false),
            Err(not_allowed.clone()),
            "{words}"
        );
    }
    assert_eq!(watched(" connevents", false, false), Err(not_allowed));
    assert!(
        watched(" nonsense", true, true)
            .unwrap_err()
            .contains("ERROR")
    );
}
