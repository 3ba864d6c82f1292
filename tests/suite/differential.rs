//! A short comparison with whatever servers are installed, and the proof that a comparison can
//! fail. The long ones are runs of the program `differential`.

use std::io;

use latchd_harness::socket::{ServerProcess, memcached_dialect, on_path};
use latchd_harness::transcript;
use latchd_tests::differential::Dialect;
use latchd_tests::differential::link::{Link, Local, Socket};
use latchd_tests::differential::run::Comparison;
use latchd_tests::differential::session::{Protocol, play, report};

const COMMANDS: u64 = 10_000;

/// A latchd that now and then says something else: `from` becomes `to` in what it answers.
struct Lying {
    local: Local,
    from: &'static [u8],
    to: &'static [u8],
}

impl Link for Lying {
    fn send(&mut self, conn: u32, bytes: &[u8]) -> io::Result<()> {
        self.local.send(conn, bytes)
    }

    fn receive(&mut self, conn: u32, buffer: &mut Vec<u8>) -> io::Result<bool> {
        let before = buffer.len();
        let more = self.local.receive(conn, buffer)?;
        let at = buffer[before..]
            .windows(self.from.len())
            .position(|window| window == self.from);
        if let Some(at) = at {
            let at = before + at;
            buffer.splice(at..at + self.from.len(), self.to.iter().copied());
        }
        Ok(more)
    }

    fn close(&mut self, conn: u32) {
        self.local.close(conn);
    }
}

fn play_a_little(
    theirs: &mut dyn Link,
    ours: &mut dyn Link,
    dialect: Dialect,
    protocol: Protocol,
) -> Comparison {
    play(theirs, ours, dialect, protocol, COMMANDS, 7).expect("both can be reached")
}

#[track_caller]
fn assert_explained(comparison: &Comparison) {
    let report = report(comparison);
    println!("{report}");
    assert!(comparison.unexplained.is_empty(), "{report}");
    assert!(comparison.commands >= COMMANDS, "{report}");
    assert!(comparison.answers > COMMANDS / 2, "{report}");
}

#[test]
fn latchd_answers_as_itself() {
    for dialect in [Dialect::Memcached, Dialect::Yrmcds] {
        for protocol in [Protocol::Text, Protocol::Binary] {
            let comparison = play_a_little(&mut Local::new(), &mut Local::new(), dialect, protocol);
            assert_explained(&comparison);
        }
    }
}

#[test]
fn a_wrong_answer_is_found() {
    let lies: [(&[u8], &[u8]); 6] = [
        (b"STORED\r\n", b"NOT_STORED\r\n"),
        (b" W\r\n", b" Z\r\n"),
        (b"t100 ", b"t102 "),
        (b"hello", b"hullo"),
        (b"HD\r\n", b""),
        (b"EX", b"NF"),
    ];
    // Each of them once in a batch, so a lie that nobody finds is one that an entry explains away.
    for (from, to) in lies {
        let mut ours = Lying {
            local: Local::new(),
            from,
            to,
        };
        let (dialect, protocol) = (Dialect::Memcached, Protocol::Text);
        let comparison = play_a_little(&mut Local::new(), &mut ours, dialect, protocol);
        assert!(
            !comparison.unexplained.is_empty(),
            "nothing is wrong with {}",
            from.escape_ascii()
        );
    }
}

#[test]
fn versions_that_do_not_go_together_are_found() {
    // The second digit of a version goes: two versions become one.
    let mut ours = Lying {
        local: Local::new(),
        from: b" c12",
        to: b" c1",
    };
    let (dialect, protocol) = (Dialect::Memcached, Protocol::Text);
    let comparison = play_a_little(&mut Local::new(), &mut ours, dialect, protocol);
    assert!(!comparison.unexplained.is_empty());
}

#[test]
fn memcached_answers_as_latchd() {
    let Some(program) = on_path("memcached") else {
        println!("left out: memcached is not installed");
        return;
    };
    let dialect = match memcached_dialect(&program).expect("it says its version") {
        transcript::Dialect::Memcached1618 => Dialect::MemcachedBefore1640,
        transcript::Dialect::Latchd
        | transcript::Dialect::Memcached1645
        | transcript::Dialect::Yrmcds => Dialect::Memcached,
    };
    for protocol in [Protocol::Text, Protocol::Binary] {
        let quiet = ["-o", "no_lru_maintainer,no_lru_crawler"];
        let server = ServerProcess::memcached_with(&program, &quiet).expect("it starts");
        let mut theirs = Socket::new(server.address);
        assert_explained(&play_a_little(
            &mut theirs,
            &mut Local::new(),
            dialect,
            protocol,
        ));
    }
}

#[test]
fn yrmcds_answers_as_latchd() {
    let Some(program) = on_path("yrmcdsd") else {
        println!("left out: yrmcds is not installed");
        return;
    };
    for protocol in [Protocol::Text, Protocol::Binary] {
        let server = ServerProcess::yrmcds(&program).expect("it starts");
        let mut theirs = Socket::new(server.address);
        let comparison = play_a_little(&mut theirs, &mut Local::new(), Dialect::Yrmcds, protocol);
        assert_explained(&comparison);
    }
}
