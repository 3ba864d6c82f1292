//! The core under a transport of its own: a pipe in memory, with a clock that is moved by hand.
//!
//! Run it with `cargo run -p latchd-core --example embed`.

use latchd_core::connection::Progress;
use latchd_core::engine::Config;
use latchd_core::wire::WireLimits;
use latchd_core::{ConnId, Connection, Core, Event, Instant};

/// One client at its end of a pipe.
struct Pipe {
    id: ConnId,
    connection: Connection,
    /// What has arrived and is not a whole request yet.
    input: Vec<u8>,
}

impl Pipe {
    fn open(core: &mut Core, number: u64, now: Instant) -> Self {
        let id = ConnId::from_number(number);
        core.handle(now, Event::Opened(id));
        Self {
            id,
            connection: Connection::new(WireLimits::default()),
            input: Vec::new(),
        }
    }

    /// Delivers some bytes, cut anywhere, and returns what the server sends.
    fn send(&mut self, core: &mut Core, now: Instant, bytes: &str) -> String {
        self.input.extend_from_slice(bytes.as_bytes());
        let mut out = Vec::new();
        let mut executor = core.at(now, self.id);
        let (consumed, progress) =
            self.connection
                .drive(&self.input, &mut executor, &mut out, usize::MAX);
        self.input.drain(..consumed);
        if progress == Progress::Close {
            core.handle(now, Event::Closed(self.id));
        }
        String::from_utf8(out).expect("this example speaks text")
    }
}

fn main() {
    let mut now = Instant::from_millis(0);
    let mut core = Core::new(Config::default());
    let mut alice = Pipe::open(&mut core, 1, now);
    let mut bob = Pipe::open(&mut core, 2, now);

    // A request may come in pieces.
    assert_eq!(alice.send(&mut core, now, "set job 0 60 4\r\nid"), "");
    assert_eq!(
        alice.send(&mut core, now, "le\r\nlock job\r\n"),
        "STORED\r\nOK\r\n"
    );

    // While alice holds the lock, bob can read and not write, and the item does not expire.
    now = Instant::from_millis(100_000);
    assert_eq!(
        bob.send(&mut core, now, "get job\r\n"),
        "VALUE job 0 4\r\nidle\r\nEND\r\n"
    );
    assert_eq!(
        bob.send(&mut core, now, "set job 0 0 4\r\nbusy\r\n"),
        "LOCKED\r\n"
    );

    // The lock dies with its connection, and what it held off happens now.
    assert_eq!(alice.send(&mut core, now, "quit\r\n"), "");
    assert_eq!(
        bob.send(&mut core, now, "get job\r\nlock job\r\n"),
        "END\r\nNOT_FOUND\r\n"
    );

    // Of all the clients that miss, exactly one wins the right to fill the item.
    assert_eq!(
        bob.send(&mut core, now, "mg job v N30\r\n"),
        "VA 0 W\r\n\r\n"
    );
    assert_eq!(
        bob.send(&mut core, now, "mg job v N30\r\n"),
        "VA 0 Z\r\n\r\n"
    );
    println!("everything as it should be");
}
