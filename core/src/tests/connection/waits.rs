//! A request that waits: its reply has the requested form and comes in its turn, and no later request overtakes
//! it.

use latchd_protocol::command::{Acquire, ItemCommand, Release, Set};
use latchd_protocol::key::Key;

use super::*;

const HOLDER: Owner = Owner::from_number(1);
const WAITER: Owner = Owner::from_number(2);

/// A core with a held key `k`, and a connection that may wait for it.
struct Waiting {
    core: Core,
    connection: Connection,
    input: Vec<u8>,
    now_ms: u64,
}

impl Waiting {
    fn new() -> Self {
        let limits = Limits::new(1 << 20, VALUE_BYTES_MAX);
        let mut core = Core::new(Config::new(limits, 0));
        for conn in [HOLDER, WAITER] {
            core.handle(Instant::default(), Event::Opened(conn));
        }
        let mut limits = WireLimits::new(VALUE_BYTES_MAX);
        limits.waits = true;
        let mut waiting = Self {
            core,
            connection: Connection::new(limits),
            input: Vec::new(),
            now_ms: 0,
        };
        waiting.holder(ItemCommand::Acquire(Acquire::new(key())));
        waiting
    }

    fn now(&self) -> Instant {
        Instant::from_millis(self.now_ms)
    }

    /// Executes a command of the holder, and passes any notice to the waiter.
    fn holder<'a>(&mut self, command: impl Into<Command<'a>>) {
        self.core.execute(self.now(), HOLDER, &command.into());
        self.core.check();
        while let Some(notice) = self.core.poll().and_then(Notification::wait_over) {
            assert_eq!(notice.owner, WAITER);
            assert!(self.connection.end_wait(notice.outcome));
            assert!(!self.connection.end_wait(notice.outcome), "it knows");
        }
    }

    fn gives_back(&mut self) {
        self.holder(ItemCommand::Release(Release::new(key())));
    }

    fn drive(&mut self, bytes: &[u8], out_bytes_max: usize) -> (String, Progress) {
        self.input.extend_from_slice(bytes);
        let mut out = Output::new();
        let mut core = At::new(&mut self.core, Instant::from_millis(self.now_ms), WAITER);
        let (consumed, progress) =
            self.connection
                .drive(&self.input, &mut core, &mut out, out_bytes_max);
        self.input.drain(..consumed);
        self.core.check();
        let out = String::from_utf8(out.into()).expect("these tests speak text");
        (out, progress)
    }

    fn says(&mut self, bytes: &[u8]) -> (String, Progress) {
        self.drive(bytes, usize::MAX)
    }

    /// Waits with this request, with other requests before and behind it.
    fn waits(&mut self, request: &str) {
        let script = format!("mn\r\n{request}\r\nmn\r\n");
        let before = self.says(script.as_bytes());
        assert_eq!(before, (String::from("MN\r\n"), Progress::Waiting));
    }

    /// The replies after its wait is over: to the waiting request, and to the requests behind it.
    fn hears(&mut self, answer: &str) {
        let (sent, progress) = self.says(b"");
        assert_eq!(sent, format!("{answer}MN\r\n"));
        assert_eq!(progress, Progress::NeedsInput { at_least: 1 });
        assert!(self.input.is_empty());
    }
}

fn key() -> Key<'static> {
    Key::new(b"k").unwrap()
}

#[test]
fn impossible_grant_is_refused_late() {
    let mut waiting = Waiting::new();
    waiting.waits("ml k w9 Oid");
    let mut limits = *waiting.core.limits();
    limits.locks_per_connection_max = 0;
    waiting
        .core
        .handle(Instant::default(), Event::Limits(limits));
    waiting.gives_back();
    waiting.hears("SERVER_ERROR too many locks\r\n");
}

#[test]
fn nothing_behind_a_wait_is_looked_at() {
    let mut waiting = Waiting::new();
    waiting.waits("ml k w9");
    // Not even a request that could be refused at once, or would end the connection.
    let behind = b"nonsense\r\nset a 0 0 1\r\n";
    assert_eq!(waiting.says(behind), (String::new(), Progress::Waiting));
    assert_eq!(
        waiting.says(b"1\r\nquit\r\n"),
        (String::new(), Progress::Waiting)
    );
    waiting.gives_back();
    let (sent, progress) = waiting.says(b"");
    assert_eq!(sent, "HD\r\nMN\r\nERROR\r\nSTORED\r\n");
    assert_eq!(progress, Progress::Close);
}

#[test]
fn a_late_answer_waits_for_room() {
    let mut waiting = Waiting::new();
    waiting.holder(Set::new(key(), b"hello"));
    assert_eq!(
        waiting.drive(b"mn\r\nml k v w9\r\nmn\r\n", 5),
        (String::from("MN\r\n"), Progress::Waiting)
    );
    waiting.gives_back();
    let mut full = Output::new();
    full.extend_from_slice(b"not sent");
    let mut core = At::new(&mut waiting.core, Instant::default(), WAITER);
    let (consumed, progress) = waiting
        .connection
        .drive(&waiting.input, &mut core, &mut full, 5);
    assert_eq!((consumed, progress), (0, Progress::OutputFull));
    // Once the output has space, replies come one at a time as usual.
    assert_eq!(
        waiting.drive(b"", 5),
        (String::from("VA 5\r\nhello\r\n"), Progress::OutputFull)
    );
    assert_eq!(waiting.says(b"").0, "MN\r\n");
}

/// The connection tells a driver of single steps that there was no reply.
#[test]
fn a_driver_of_its_own_keeps_the_request() {
    let mut waiting = Waiting::new();
    let request = b"ml k w9 Oid\r\n";
    let mut key_buffer = KeyBuffer::new();
    let mut out = Output::new();
    let Step {
        operation: Operation::Execute {
            command, envelope, ..
        },
        ..
    } = waiting.connection.next(request, &mut key_buffer)
    else {
        panic!("it is whole");
    };
    let reply = waiting.core.execute(Instant::default(), WAITER, &command);
    waiting.connection.reply(&envelope, &reply, &mut out);
    assert!(out.is_empty() && waiting.connection.is_waiting());
    drop(reply);
    waiting.gives_back();
    assert_eq!(waiting.says(request).0, "HD Oid\r\n");
}
