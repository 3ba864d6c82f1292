//! Sends the same random requests to latchd and to a live server, and compares every answer.

use std::path::PathBuf;
use std::process::ExitCode;

use latchd_tests::differential::link::{Link, Local, Socket};
use latchd_tests::differential::probes;
use latchd_tests::differential::binary::{BinaryWire,BinaryStream,Packet,last_words};
use latchd_tests::differential::reply::TextWire;
use latchd_tests::differential::run::{Run, Tally};
use latchd_tests::differential::text::TextStream;
use latchd_tests::differential::{Dialect, Request, allow};
use latchd_tests::socket::{Server, on_path};

fn main() -> ExitCode {
    let program = PathBuf::from(
        std::env::args()
            .nth(1)
            .unwrap_or("/usr/bin/memcached".into()),
    );
    let commands: u64 = std::env::args()
        .nth(2)
        .map_or(200_000, |n| n.parse().expect("a number"));
    let server = Server::memcached_with(&program, &["-o", "no_lru_maintainer,no_lru_crawler"])
        .expect("it starts");
    let dialect = if program.starts_with("/usr") {
        Dialect::MemcachedBefore1640
    } else {
        Dialect::Memcached
    };
    let mut theirs = Socket::new(server.address);
    let mut ours = Local::new();
    let wire = TextWire { dialect };
    let mut stream = TextStream::new(1, dialect);
    let mut run = Run::new(&mut theirs, &mut ours, &wire, dialect);
    run.tally.patience = std::env::args().nth(3).map_or(5, |n| n.parse().unwrap());
    while run.tally.commands < commands && !run.tally.is_hopeless() {
        let batch = stream.batch(&run.book, 40);
        run.exchange(0, batch).expect("works");
    }
    let protocol = std::env::args().nth(4).unwrap_or_default();
    if protocol == "binary" {
        let wire = BinaryWire;
        let mut ours = Local::new();
        let mut stream = BinaryStream::new(1);
        let mut theirs = Socket::new(server.address);
        let mut run = Run::new(&mut theirs, &mut ours, &wire, dialect);
        run.tally.patience = std::env::args().nth(3).map_or(5, |n| n.parse().unwrap());
        run.exchange(0, vec![Packet::new(8).draft(None).done()]).unwrap();
        while run.tally.commands < commands && !run.tally.is_hopeless() {
            let batch = stream.batch(&run.book, 40);
            run.exchange(0, batch).expect("works");
        }
        for request in last_words() { run.exchange_last(&request).unwrap(); }
        println!("{} commands, {} answers", run.tally.commands, run.tally.answers);
        for (id, n) in &run.tally.explained { println!("{id} {n}"); }
        for u in &run.tally.unexplained { println!("UNEXPLAINED {u}\n"); }
        return ExitCode::SUCCESS
    }
    for line in probes::LAST_WORDS {
        run.exchange_last(&Request::new(*line)).unwrap();
    }
    run.exchange_last(&Request::new(probes::endless_line()))
        .unwrap();
    println!(
        "{} commands, {} answers",
        run.tally.commands, run.tally.answers
    );
    for (id, n) in &run.tally.explained {
        println!("{id} {n}");
    }
    for u in &run.tally.unexplained {
        println!("UNEXPLAINED {u}\n");
    }
    ExitCode::SUCCESS
}
