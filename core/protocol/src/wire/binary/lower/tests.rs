//! The command of each request.

use alloc::vec::Vec;

use super::*;
use crate::command::{Keys, ScanCursor};
use crate::reply::{KeysPage, Reply};
use crate::stats::StatsTopic;
use crate::wire::binary::Opcode;
use crate::wire::binary::testing::AnyRequest;
use quickcheck::quickcheck;

const STORE: Extras = Extras::Store {
    client_flags: 7,
    exptime: 60,
};

/// The length of the packets that these requests come from.
const PACKET_BYTES: usize = 100;

/// The step of a request that needs no core.
#[allow(clippy::unnecessary_wraps)]
fn sent(packet: StatusPacket) -> Option<Step<'static>> {
    Some(
        Operation::Send {
            response: LocalResponse::Packet(packet),
            unstored: None,
        }
        .consuming(PACKET_BYTES),
    )
}

fn key() -> Key<'static> {
    Key::new(b"k").unwrap()
}

fn with_key(opcode: Opcode, extras: Extras) -> RequestPacket<'static> {
    RequestPacket {
        key: b"k",
        extras,
        ..RequestPacket::new(opcode)
    }
}

fn command<'a>(request: &RequestPacket<'a>) -> Command<'a> {
    match lower(request, PACKET_BYTES, &mut Cursor::Start) {
        Some(Step {
            consumed,
            operation: Operation::Execute { command, envelope },
        }) => {
            assert_eq!(consumed, PACKET_BYTES);
            assert_eq!(envelope, Envelope::Binary(request.envelope()));
            command
        }
        other => panic!("no command: {other:?}"),
    }
}

#[test]
fn the_loud_and_the_quiet_ask_the_same_of_the_core() {
    for (loud, quiet, extras) in [
        (Opcode::GetK, Opcode::GetQ, Extras::None),
        (Opcode::Set, Opcode::SetQ, STORE),
        (Opcode::Gat, Opcode::GatKQ, Extras::Exptime(9)),
        (Opcode::LaG, Opcode::LaGKQ, Extras::None),
        (Opcode::Unlock, Opcode::UnlockQ, Extras::None),
    ] {
        assert_eq!(
            command(&with_key(loud, extras)),
            command(&with_key(quiet, extras))
        );
    }
}

#[test]
fn with_a_cas_set_add_and_replace_are_one() {
    let cas = Cas::new(5);
    let expected = Command::from(Set {
        client_flags: 7,
        exptime: Exptime::In { seconds: 60 },
        guard: Guard::Match(cas.unwrap()),
        ..Set::new(key(), b"")
    });
    for opcode in [Opcode::Set, Opcode::Add, Opcode::ReplaceQ] {
        assert_eq!(
            command(&RequestPacket {
                cas,
                ..with_key(opcode, STORE)
            }),
            expected
        );
    }
}

#[test]
fn without_a_cas_add_and_replace_have_their_condition() {
    let set = Set {
        client_flags: 7,
        exptime: Exptime::In { seconds: 60 },
        ..Set::new(key(), b"")
    };
    for (opcode, mode) in [
        (Opcode::Set, SetMode::Set),
        (Opcode::Add, SetMode::Add),
        (Opcode::Replace, SetMode::Replace),
    ] {
        assert_eq!(
            command(&with_key(opcode, STORE)),
            Command::from(Set { mode, ..set })
        );
    }
}

#[test]
fn replace_and_unlock_keeps_its_condition_with_a_cas() {
    let cas = Cas::new(5);
    let Command::Item(ItemCommand::Set(set)) = command(&RequestPacket {
        cas,
        ..with_key(Opcode::RaU, STORE)
    }) else {
        panic!("not a set")
    };
    assert_eq!(set.mode, SetMode::Replace);
    assert_eq!(set.lock, LockAfter::Release);
    assert_eq!(set.guard, Guard::Match(cas.unwrap()));
}

#[test]
fn arithmetic_makes_a_number_unless_told_not_to() {
    for (exptime, steps) in [
        (0, TtlSteps::one(TtlStep::Vivify(Exptime::Never))),
        (
            30,
            TtlSteps::one(TtlStep::Vivify(Exptime::In { seconds: 30 })),
        ),
        (
            0xffff_fffe,
            TtlSteps::one(TtlStep::Vivify(Exptime::At {
                unix_s: 0xffff_fffe,
            })),
        ),
        (EXPTIME_DO_NOT_CREATE, TtlSteps::NONE),
    ] {
        let extras = Extras::Arithmetic {
            delta: 2,
            initial: 10,
            exptime,
        };
        let expected = Arithmetic {
            initial: 10,
            steps,
            ..Arithmetic::new(key(), Direction::Decrement, 2)
        };
        assert_eq!(
            command(&with_key(Opcode::DecrementQ, extras)),
            Command::Item(ItemCommand::Arithmetic(expected))
        );
    }
}

#[test]
fn an_exptime_is_never_negative() {
    assert_eq!(
        exptime_of(u32::MAX),
        Exptime::At {
            unix_s: 4_294_967_295
        }
    );
    assert_eq!(
        exptime_of(1 << 31),
        Exptime::At {
            unix_s: 2_147_483_648
        }
    );
    assert_eq!(exptime_of(2_592_000), Exptime::In { seconds: 2_592_000 });
}

#[test]
fn lock_and_get_touches_only_with_extras() {
    let get = Get {
        lock: true,
        ..Get::new(key())
    };
    assert_eq!(
        command(&with_key(Opcode::LaG, Extras::None)),
        Command::Item(ItemCommand::Get(get))
    );
    assert_eq!(
        command(&with_key(Opcode::LaGK, Extras::Exptime(0))),
        Command::from(Get {
            steps: TtlSteps::one(TtlStep::Touch(Exptime::Never)),
            ..get
        })
    );
}

#[test]
fn stat_knows_its_topics() {
    let topic = |key| {
        lower(
            &RequestPacket {
                key,
                ..RequestPacket::new(Opcode::Stat)
            },
            PACKET_BYTES,
            &mut Cursor::Start,
        )
    };
    let envelope = |key| {
        Envelope::Binary(
            RequestPacket {
                key,
                ..RequestPacket::new(Opcode::Stat)
            }
            .envelope(),
        )
    };
    let is = |key, command| {
        Some(
            Operation::Execute {
                command,
                envelope: envelope(key),
            }
            .consuming(PACKET_BYTES),
        )
    };
    assert_eq!(
        topic(b""),
        is(
            b"",
            Command::Global(GlobalCommand::Stats(StatsTopic::General))
        )
    );
    assert_eq!(
        topic(b"reset"),
        is(b"reset", Command::Global(GlobalCommand::StatsReset))
    );
    assert_eq!(
        topic(b"items"),
        is(
            b"items",
            Command::Global(GlobalCommand::Stats(StatsTopic::Items))
        )
    );
    assert_eq!(
        topic(b"resets"),
        is(b"resets", Command::Global(GlobalCommand::StatsReset))
    );
    assert_eq!(
        topic(b"resets"),
        is(b"resets", Command::Global(GlobalCommand::StatsReset))
    );
    let not_found = StatusPacket::error(Opcode::Stat.byte(), 0, Status::NOT_FOUND);
    for unknown in [&b"foo"[..], b"conns", b"rese", b"detail", b"itemsx"] {
        assert_eq!(topic(unknown), sent(not_found));
    }
}

#[test]
fn requests_without_core_are_answered() {
    let step = |opcode| {
        lower(
            &RequestPacket::new(opcode),
            PACKET_BYTES,
            &mut Cursor::Start,
        )
    };
    let noop = StatusPacket::success(Opcode::Noop.byte(), 0);
    assert_eq!(step(Opcode::Noop), sent(noop));
    let version = StatusPacket {
        body: VERSION,
        ..StatusPacket::success(Opcode::Version.byte(), 0)
    };
    assert_eq!(step(Opcode::Version), sent(version));
    let quit = LocalResponse::Packet(StatusPacket::success(Opcode::Quit.byte(), 0));
    assert_eq!(
        step(Opcode::Quit),
        Some(Operation::Close { response: quit }.consuming(0))
    );
    let silent = LocalResponse::Farewell;
    assert_eq!(
        step(Opcode::QuitQ),
        Some(Operation::Close { response: silent }.consuming(0))
    );
}

/// A listing is read page by page; its packet stays in the input until the last page.
#[test]
fn keys_are_as_many_steps_as_there_are_pages() {
    let request = with_key(Opcode::Keys, Extras::None);
    let mut cursor = Cursor::Start;
    let seventh = ScanCursor(7);
    for (page, next) in [(ScanCursor::default(), Some(seventh)), (seventh, None)] {
        let keys = Keys {
            prefix: b"k",
            cursor: page,
        };
        let expected = Operation::Execute {
            command: Command::Global(GlobalCommand::Keys(keys)),
            envelope: Envelope::Binary(request.envelope()),
        }
        .consuming(0);
        assert_eq!(lower(&request, PACKET_BYTES, &mut cursor), Some(expected));
        let page = KeysPage {
            items: Vec::new(),
            next,
        };
        cursor.turn_page(&Reply::Keys(page), |page| (0, page.next.is_none()));
    }
    let consumed = PACKET_BYTES;
    let end = Operation::Skip.consuming(consumed);
    assert_eq!(lower(&request, PACKET_BYTES, &mut cursor), Some(end));
    assert_eq!(cursor, Cursor::Start);
}

quickcheck! {
    /// Every decoded request has a meaning.
    fn a_well_formed_request_can_be_lowered(any: AnyRequest) -> bool {
        lower(&any.request(), PACKET_BYTES, &mut Cursor::Start).is_some()
    }
}

#[test]
fn topics_of_stat_are_those_of_text_but_for_connections() {
    let topics = [
        (&b""[..], Some(StatsTopic::General)),
        (b"items", Some(StatsTopic::Items)),
        (b"slabs", Some(StatsTopic::Slabs)),
        (b"sizes", Some(StatsTopic::Sizes)),
        (b"locks", Some(StatsTopic::Locks(ScanCursor::default()))),
        (b"detail on", Some(StatsTopic::DetailOn)),
        (b"detail off", Some(StatsTopic::DetailOff)),
        (
            b"detail dump",
            Some(StatsTopic::Detail(ScanCursor::default())),
        ),
        (b"settings", Some(StatsTopic::Settings)),
        (b"settings2", Some(StatsTopic::Settings)),
        (b"conns", None),
        (b"detail", None),
        (b"item", None),
    ];
    for (topic, is) in topics {
        assert_eq!(stats_topic(topic), is, "{}", topic.escape_ascii());
    }
}
