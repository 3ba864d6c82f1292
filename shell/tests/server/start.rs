//! The start: words of other command lines, sockets of other processes, and what the system refuses.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

/// A user of no other process, so the limit of processes counts this one alone.
const UNUSED_USER: u32 = 64_123;

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

/// A program that an unused user can run, with its limit of processes.
struct Copy(PathBuf);

impl Copy {
    fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::SeqCst);
        let name = format!("latchd-start-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::copy(LATCHD, &path).unwrap();
        Self(path)
    }

    fn with_processes(&self, most: u32, flags: &str) -> Command {
        let mut command = Command::new("prlimit");
        command.arg(format!("--nproc={most}")).arg(&self.0);
        command.args(flags.split(' ')).stdout(Stdio::null());
        // Root has no limit.
        if rustix::process::geteuid().is_root() {
            command.uid(UNUSED_USER).gid(UNUSED_USER);
        }
        command
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn few_processes_name_thread_and_limit() {
    let copy = Copy::new();
    let flags = "-l 127.0.0.1:0 -t 2 --status 127.0.0.1:0";
    for most in 1..=7 {
        let said = refusal(&mut copy.with_processes(most, flags));
        assert!(
            said.contains("cannot start the thread ")
                && said.contains("raise the limit of processes: TasksMax= or LimitNPROC="),
            "{most}: {said}"
        );
    }
    // The daemon is a process, and has the same threads.
    for most in 1..=3 {
        let said = refusal(&mut copy.with_processes(most, "-d -l 127.0.0.1:0"));
        assert!(said.contains("raise the limit of processes"), "{said}");
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

#[test]
fn a_privileged_port_has_a_way_out() {
    let first = std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start").unwrap();
    if first.trim() == "0" {
        return eprintln!("every port is for every user here");
    }
    let copy = Copy::new();
    let mut command = copy.with_processes(1000, "-l 127.0.0.1:1");
    let said = refusal(&mut command);
    let expected = "cannot listen on 127.0.0.1:1: Permission denied (os error 13): ports below 1024 require root";
    assert!(said.contains(expected), "{said}");
    assert!(said.contains("choose a port from 1024 up"), "{said}");
}
