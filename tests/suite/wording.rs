//! The alphabet, as clients write it.

use arbitrary::{Arbitrary as _, Unstructured};
use latchd_harness::alphabet::{Environment, RequestKind, SmallRequest, VALUE_BYTES_MAX};
use latchd_harness::random::Random;
use latchd_harness::wording;
use latchd_protocol::command::{Command, GlobalCommand, ItemCommand};
use latchd_protocol::connection::{Connection, KeyBuffer, Operation, Step, WireLimits};

/// How many requests are drawn: every kind comes up thousands of times.
const REQUESTS: usize = 200_000;

/// Reads the request as a server does; the command must be `meant`.
fn assert_understood(bytes: &[u8], meant: &Command<'_>) {
    let mut limits = WireLimits::new(VALUE_BYTES_MAX);
    limits.waits = true;
    let mut connection = Connection::new(limits);
    let mut key_buffer = KeyBuffer::new();
    let step = connection.next(bytes, &mut key_buffer);
    let text = bytes.escape_ascii();
    let Step {
        consumed,
        operation: Operation::Execute { command, .. },
    } = step
    else {
        panic!("{text} is to ask for {meant:?}, and is {step:?}");
    };
    assert_eq!(command, *meant, "{text}");
    // A value that is too large is passed over unseen; a listing stands there until its last page.
    let is_whole = !matches!(
        meant,
        Command::Item(ItemCommand::SetTooLarge { .. }) | Command::Global(GlobalCommand::Keys(_))
    );
    assert!(consumed == bytes.len() || !is_whole, "{text}");
}

/// W1 and A3: a client can ask for every request of the alphabet on a wire, and is understood.
#[test]
fn the_alphabet_can_be_asked_and_is_understood() {
    let mut random = Random::new(1);
    let environment = Environment::new();
    let (mut in_text, mut in_packets) = (0, 0);
    for _ in 0..REQUESTS {
        let mut bytes = [0; 48];
        random.fill(&mut bytes);
        let request =
            SmallRequest::arbitrary(&mut Unstructured::new(&bytes)).expect("bytes enough");
        let meant = request.lower(&environment);
        let text = wording::text(&request, &environment, VALUE_BYTES_MAX);
        let packet = wording::binary(&request, &environment);
        if let Some(text) = &text {
            assert_understood(text, &meant);
            in_text += 1;
        }
        if let Some(packet) = packet {
            let mut bytes = Vec::new();
            packet
                .encode(&mut bytes)
                .expect("nothing in it is too long");
            assert_understood(&bytes, &meant);
            in_packets += 1;
        }
        if text.is_none() && packet.is_none() {
            assert_eq!(
                RequestKind::of(&request),
                RequestKind::ReplaceCas,
                "{request:?} cannot be asked"
            );
        }
    }
    assert!(in_text > REQUESTS / 2 && in_packets > REQUESTS / 10);
}
