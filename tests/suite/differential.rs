//! A short comparison with all installed servers, and the proof that a comparison can fail. The
//! long ones are runs of the program `differential`.

use std::io;
use std::path::Path;
use std::time::Duration;

use latchd_harness::memory::MemoryPeer;
use latchd_harness::peer::{Patience, Peer, Received};
use latchd_harness::socket::{memcached_dialect, on_path};
use latchd_harness::transcript::{Dialect, End};
use latchd_tests::differential::run::Comparison;
use latchd_tests::differential::session::{PATIENCE, Protocol, play, report, start};

use super::transcripts;

const COMMANDS: u64 = 10_000;

/// A latchd that gives wrong answers now and then: `from` becomes `to` in its answers.
struct Lying {
    honest: MemoryPeer,
    from: &'static [u8],
    to: &'static [u8],
}

impl Peer for Lying {
    fn send(&mut self, conn: char, bytes: &[u8]) -> io::Result<()> {
        self.honest.send(conn, bytes)
    }

    fn receive(
        &mut self,
        conn: char,
        buffer: &mut Vec<u8>,
        patience: Patience,
    ) -> io::Result<Received> {
        let before = buffer.len();
        let received = self.honest.receive(conn, buffer, patience)?;
        let at = buffer[before..]
            .windows(self.from.len())
            .position(|window| window == self.from);
        if let Some(at) = at {
            let at = before + at;
            buffer.splice(at..at + self.from.len(), self.to.iter().copied());
        }
        Ok(received)
    }

    fn end(&mut self, conn: char, how: End) -> io::Result<()> {
        self.honest.end(conn, how)
    }

    fn wait(&mut self, span: Duration) {
        self.honest.wait(span);
    }

    fn owns_time(&self) -> bool {
        self.honest.owns_time()
    }
}

fn play_a_little(
    theirs: &mut dyn Peer,
    ours: &mut dyn Peer,
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

/// The server of an embedder and the shipped one, with its threads and shards: all replies are the same, times included.
#[test]
fn embedded_server_answers_as_the_shipped_one() {
    for dialect in [Dialect::Memcached1645, Dialect::Yrmcds] {
        for protocol in [Protocol::Text, Protocol::Binary] {
            let shipped = transcripts::Latchd::start().expect("it starts");
            let comparison = play_a_little(
                &mut shipped.with_due(PATIENCE),
                &mut MemoryPeer::on_real_clock(),
                dialect,
                protocol,
            );
            assert_explained(&comparison);
            // The shipped store may round the size of an item.
            let differing = comparison.explained.keys();
            let others: Vec<_> = differing.filter(|id| **id != "item-size").collect();
            assert!(others.is_empty(), "{others:?}");
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
    // Each of them occurs once in a batch, so a lie that is not found is one that an entry explains
    // away.
    for (from, to) in lies {
        let mut ours = Lying {
            honest: MemoryPeer::on_real_clock(),
            from,
            to,
        };
        let (dialect, protocol) = (Dialect::Memcached1645, Protocol::Text);
        let comparison = play_a_little(
            &mut MemoryPeer::on_real_clock(),
            &mut ours,
            dialect,
            protocol,
        );
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
        honest: MemoryPeer::on_real_clock(),
        from: b" c12",
        to: b" c1",
    };
    let (dialect, protocol) = (Dialect::Memcached1645, Protocol::Text);
    let comparison = play_a_little(
        &mut MemoryPeer::on_real_clock(),
        &mut ours,
        dialect,
        protocol,
    );
    assert!(!comparison.unexplained.is_empty());
}

/// Compares with a live server in both protocols.
fn compare_with(program: &Path, dialect: Dialect) {
    for protocol in [Protocol::Text, Protocol::Binary] {
        let mut theirs = start(program, dialect).expect("it starts");
        let mut ours = MemoryPeer::on_real_clock();
        assert_explained(&play_a_little(&mut theirs, &mut ours, dialect, protocol));
    }
}

#[test]
fn memcached_answers_as_latchd() {
    let Some(program) = on_path("memcached") else {
        println!("left out: memcached is not installed");
        return;
    };
    let dialect = memcached_dialect(&program).expect("it says its version");
    compare_with(&program, dialect);
}

#[test]
fn yrmcds_answers_as_latchd() {
    let Some(program) = on_path("yrmcdsd") else {
        println!("left out: yrmcds is not installed");
        return;
    };
    compare_with(&program, Dialect::Yrmcds);
}
