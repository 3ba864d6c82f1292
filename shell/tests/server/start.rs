//! The start: words of other command lines, sockets of other processes, and what the system refuses.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
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

/// Runs a start that fails. Returns its message.
fn refusal(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(71), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    said
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

/// As `sd_listen_fds` does. Descriptor 3 may be the socket of another program.
#[test]
fn sockets_of_another_process_are_ignored() {
    let other = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = other.local_addr().unwrap();
    for variables in ["", "LISTEN_PID=1", "LISTEN_PID=x"] {
        let line =
            format!("exec 3<&0 0</dev/null; {variables} LISTEN_FDS=1 exec \"$0\" -l 127.0.0.1:0");
        let mut command = Command::new("sh");
        let socket = OwnedFd::from(other.try_clone().unwrap());
        let command = command.args(["-c", &line, LATCHD]).stdin(socket);
        let log = log_until_it_listens(command);
        assert!(
            log.contains("WARN ignoring LISTEN_FDS: LISTEN_PID"),
            "{log}"
        );
        assert!(!log.contains(&address.to_string()), "{log}");
    }
}

#[test]
fn a_refused_place_has_a_way_out() {
    for (flags, said) in [
        (
            "-l 192.0.2.1:0",
            "no such address; choose one of its own with -l, or all with -l '*'",
        ),
        (
            "--status 192.0.2.1:0 -l 127.0.0.1:0",
            "--status: cannot listen on 192.0.2.1:0: the machine has no such address; choose",
        ),
        (
            "-Y /nowhere/users -l 127.0.0.1:0",
            "-Y /nowhere/users: No such file or directory (os error 2); create it, or name another path",
        ),
        ("-e /nowhere/items -l 127.0.0.1:0", "; create it, or name"),
        ("-s /nowhere/socket", "; create it, or name"),
        ("--log-file /nowhere/log", "; create it, or name"),
    ] {
        let message = refusal(Command::new(LATCHD).args(flags.split(' ')));
        assert!(message.contains(said), "{flags}: {message}");
    }
}
