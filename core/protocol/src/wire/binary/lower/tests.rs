//! The command of each request.

use super::*;
use crate::command::ScanCursor;
use crate::stats::StatsTopic;
use crate::wire::binary::Opcode;
use crate::wire::binary::testing::AnyRequest;
use quickcheck::quickcheck;

/// The length of the packets that these requests come from.
const PACKET_BYTES: usize = 100;

/// Until its last page, the packet of a list stays in the input.
#[test]
fn topics_with_pages_consume_nothing_yet() {
    for (key, bytes) in [
        (&b""[..], PACKET_BYTES),
        (b"items", PACKET_BYTES),
        (b"locks", 0),
        (b"detail dump", 0),
    ] {
        let request = RequestPacket {
            key,
            ..RequestPacket::new(Opcode::Stat)
        };
        let Some(Step {
            consumed,
            operation: Operation::Execute { .. },
        }) = lower(&request, PACKET_BYTES, &mut Cursor::Start)
        else {
            panic!("it is a command");
        };
        assert_eq!(consumed, bytes, "{}", key.escape_ascii());
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
