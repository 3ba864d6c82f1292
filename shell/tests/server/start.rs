//! The start: words of other command lines.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

const LATCHD: &str = env!("CARGO_BIN_EXE_latchd");

/// Starts a server, and ends it once it listens. Returns its log until then.
fn log_until_it_listens(command: &mut Command) -> String {
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap());
    let mut log = String::new();
    while !log.contains("listening on") {
        assert_ne!(lines.read_line(&mut log).unwrap(), 0, "{log}");
    }
    child.kill().unwrap();
    child.wait().unwrap();
    log
}

#[test]
fn words_of_a_unit_are_ignored() {
    let line = "memcached -l 127.0.0.1:0 -v >> /var/log/memcached.log 2>&1";
    let log = log_until_it_listens(Command::new(LATCHD).args(line.split(' ')));
    let warnings = log.matches("ignoring").count();
    assert_eq!(warnings, 1, "{log}");
    assert!(
        log.contains("WARN ignoring '>>', '/var/log/memcached.log', '2>&1': no shell reads"),
        "{log}"
    );
}
