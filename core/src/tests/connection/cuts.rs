//! Any cut of the input, any bound of the output and any yield of the executor.

use quickcheck::{Arbitrary, Gen, quickcheck};

use super::*;

/// Requests, whole and broken, in any order.
#[derive(Clone, Debug)]
pub(super) struct Script(pub(super) Vec<u8>);

impl Arbitrary for Script {
    fn arbitrary(g: &mut Gen) -> Self {
        const PIECES: &[&[u8]] = &[
            b"get a\r\n",
            b"get a b  c\r\n",
            b"gets a ab\r\n",
            b"gat 100 a b\r\n",
            b"gats -1 a\r\n",
            b"set a 0 0 3\r\nabc\r\n",
            b"set b 7 0 0\r\n\r\n",
            b"set a 0 0 1 noreply\r\n5\r\n",
            b"add c 1 10 2\r\n10\r\n",
            b"append a 0 0 1\r\nx\r\n",
            b"cas a 0 0 1 3\r\ny\r\n",
            b"set a 0 0 3\r\nabcdef\r\n",
            b"set a x 0 5\r\nmn\r\n!\r\n",
            b"set a 0 0 5000\r\n",
            b"delete a\r\n",
            b"delete a 5\r\n",
            b"incr c 7\r\n",
            b"decr c 5\r\n",
            b"touch a 9\r\n",
            b"lock a\r\n",
            b"unlock a\r\n",
            b"unlock_all\r\n",
            b"keys\r\n",
            b"keys a\r\n",
            b"flush_all\r\n",
            b"stats items\r\n",
            b"version\r\n",
            b"mn\r\n",
            b"mn H\r\n",
            b"ml a F H\r\n",
            b"config get cluster\r\n",
            b"mg a v t c k\r\n",
            b"mg b v N30 R20 t q O1\r\n",
            b"mg YQ== b k v\r\n",
            b"ms a 2 T30 c s\r\nhi\r\n",
            b"ms c 1 MA N0 I\r\nx\r\n",
            b"ms a 2 y\r\nhi\r\n",
            b"md a I T5\r\n",
            b"md a x\r\n",
            b"ma c N0 J5 v\r\n",
            b"ma c MD t k q\r\n",
            b"me a\r\n",
            b"me YQ== b\r\n",
            b"\r\n",
            b"foo\r\n",
            b"get ",
            b"set a 0 0 ",
            b"10\r\n",
            b"\n",
            b"abcdefghij",
            b" ",
            b"\x80",
            b"quit\r\n",
        ];
        let mut bytes = Vec::new();
        for _ in 0..usize::arbitrary(g) % 30 {
            if u8::arbitrary(g) % 16 == 0 {
                bytes.extend(Vec::<u8>::arbitrary(g));
            } else {
                bytes.extend_from_slice(g.choose(PIECES).unwrap());
            }
        }
        Self(bytes)
    }

    fn shrink(&self) -> std::boxed::Box<dyn Iterator<Item = Self>> {
        std::boxed::Box::new(self.0.shrink().map(Self))
    }
}

/// An executor that lets a connection take `steps_max` steps at a time.
struct Impatient<E> {
    executor: E,
    steps_left: usize,
}

impl<E: Execute> Execute for Impatient<E> {
    fn execute(&mut self, command: &Command<'_>, answer: &mut impl FnMut(&Reply<'_>)) {
        self.executor.execute(command, answer);
    }

    fn limit_memory(&mut self, bytes: usize) -> Result<(), MemoryRefused> {
        self.executor.limit_memory(bytes)
    }

    fn goes_on(&mut self) -> bool {
        self.steps_left = self.steps_left.saturating_sub(1);
        self.steps_left > 0
    }
}

/// The replies of a new server to `bytes`, which arrive in pieces of the given lengths. The output is bounded
/// to `out_bytes_max` at a time, and `steps_max` steps are taken at a time.
fn converse(bytes: &[u8], pieces: &[u8], out_bytes_max: usize, steps_max: usize) -> Vec<u8> {
    let mut bench = Bench::new(1, false);
    let Client {
        conn,
        connection,
        input,
        ..
    } = &mut bench.clients[0];
    let (mut all, mut rest) = (Vec::new(), bytes);
    let mut pieces = pieces.iter().cycle();
    while !rest.is_empty() {
        let piece = pieces
            .next()
            .map_or(rest.len(), |piece| usize::from(*piece) + 1);
        let (arrived, later) = rest.split_at(piece.min(rest.len()));
        input.extend_from_slice(arrived);
        rest = later;
        loop {
            let mut out = Output::new();
            let mut core = Impatient {
                executor: At::new(&mut bench.core, Instant::default(), *conn),
                steps_left: steps_max,
            };
            let (consumed, progress) = connection.drive(input, &mut core, &mut out, out_bytes_max);
            input.drain(..consumed);
            all.append(&mut Vec::from(out));
            match progress {
                Progress::NeedsInput { at_least } => {
                    assert!(at_least > input.len(), "waits for what has arrived");
                    break;
                }
                Progress::OutputFull => {}
                Progress::Yielded => assert_eq!(core.steps_left, 0, "it yields unasked"),
                Progress::Waiting => panic!("nothing waits here"),
                Progress::Close => return all,
            }
        }
    }
    all
}

/// Other connections have their turn if work is left to do, and not if the connection waits for its peer.
#[test]
fn stopped_connection_yields_if_input_remains() {
    let mut bench = Bench::new(1, false);
    let Client {
        conn, connection, ..
    } = &mut bench.clients[0];
    let mut turn = |input: &[u8], steps_left| {
        let mut core = Impatient {
            executor: At::new(&mut bench.core, Instant::default(), *conn),
            steps_left,
        };
        connection.drive(input, &mut core, &mut Output::new(), usize::MAX)
    };
    assert_eq!(turn(b"mn\r\nmn\r\nmn\r\n", 2), (8, Progress::Yielded));
    let reads_on = Progress::NeedsInput { at_least: 1 };
    assert_eq!(turn(b"mn\r\n", 1), (4, reads_on));
    assert_eq!(turn(b"mn\r\nmn\r\n", 3), (8, reads_on));
}

quickcheck! {
    /// However the network cuts the bytes, and however small the output, the replies are the same.
    fn cuts_do_not_matter(script: Script, pieces: Vec<u8>) -> bool {
        let whole = converse(&script.0, &[], usize::MAX, usize::MAX);
        converse(&script.0, &pieces, usize::MAX, usize::MAX) == whole
            && converse(&script.0, &[0], 1, usize::MAX) == whole
    }

    /// W4: Wherever the executor yields, the replies are the same.
    fn yielding_does_not_matter(script: Script, pieces: Vec<u8>, steps_max: u8) -> bool {
        let whole = converse(&script.0, &[], usize::MAX, usize::MAX);
        converse(&script.0, &[], usize::MAX, 1) == whole
            && converse(&script.0, &pieces, 7, usize::from(steps_max)) == whole
    }

    /// No bytes panic, and every step makes progress, except in a request of several parts.
    fn any_bytes_are_dealt_with(bytes: Vec<u8>) -> bool {
        let mut connection = Connection::new(WireLimits::new(VALUE_BYTES_MAX));
        let mut key_buffer = KeyBuffer::new();
        let mut rest = &bytes[..];
        let mut idle = 0;
        loop {
            let Step { consumed, operation } = connection.next(rest, &mut key_buffer);
            match operation {
                Operation::Incomplete { at_least } => return at_least > rest.len(),
                Operation::Close { .. } | Operation::ShutDown => return true,
                Operation::Watch { .. } => {}
                Operation::Execute { command, envelope } => {
                    if let Command::Global(GlobalCommand::Keys(_)) = command {
                        connection.reply(&envelope, &Reply::Ok, &mut Output::new());
                    }
                }
                Operation::Send { .. }
                | Operation::ExecuteAs { .. }
                | Operation::Session { .. }
                | Operation::Skip
                | Operation::Hold
                | Operation::Cluster
                | Operation::ReadCertificates { .. }
                | Operation::LimitMemory { .. }
                | Operation::Authenticate { .. } => assert!(consumed > 0),
            }
            idle = if consumed == 0 { idle + 1 } else { 0 };
            assert!(idle <= bytes.len(), "no progress");
            rest = &rest[consumed..];
        }
    }
}
