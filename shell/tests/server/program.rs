//! The program: flags, signals, exit codes.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::certificates::Authority;
use crate::client::TestClient;
use crate::process::{self, Running, pid};
use rustix::process::{Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

/// The program with flags; its output is to be read.
fn latchd(flags: &[&str]) -> Command {
    let mut command = process::latchd(flags);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// The name of the user that runs the tests.
fn me() -> String {
    let output = Command::new("id").arg("-un").output().unwrap();
    text(&output.stdout).trim().to_owned()
}

fn run(flags: &[&str]) -> Output {
    latchd(flags).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn it_serves_until_a_signal_stops_it() {
    for signal in [Signal::TERM, Signal::INT] {
        let latchd = Running::start(&["-l", "127.0.0.1:0", "-t", "2"]);
        let mut client = TestClient::connect(latchd.address());
        assert_eq!(client.ask("mn"), "MN");
        assert_eq!(latchd.end(signal), Some(0));
        assert_eq!(client.line(), "");
    }
}

#[test]
fn a_unix_socket_is_removed_or_replaced() {
    let path: PathBuf = std::env::temp_dir().join(format!("latchd-program-{}", std::process::id()));
    let flags = ["-s", path.to_str().unwrap()];
    let killed = Running::start(&flags);
    let live = run(&flags);
    assert_eq!(live.status.code(), Some(71), "{}", text(&live.stderr));
    assert_eq!(killed.end(Signal::KILL), None);
    assert!(path.exists());
    let latchd = Running::start(&flags);
    assert_eq!(TestClient::connect_unix(&path).ask("mn"), "MN");
    assert_eq!(latchd.end(Signal::TERM), Some(0));
    assert!(!path.exists());
}

/// Types lines into `command`, and returns its output up to a line that is `last`.
fn typed(command: &str, lines: &[&str], last: &str) -> String {
    let ours = PathBuf::from(env!("CARGO_BIN_EXE_latchd"));
    let mut path = ours.parent().unwrap().as_os_str().to_owned();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    let mut child = Command::new("sh")
        .args(["-c", &format!("exec {command}")])
        .env("PATH", path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut keyboard = child.stdin.take().unwrap();
    for line in lines {
        writeln!(keyboard, "{line}").unwrap();
    }
    let mut screen = BufReader::new(child.stdout.take().unwrap());
    let mut shown = String::new();
    while shown.lines().last() != Some(last) {
        assert_ne!(screen.read_line(&mut shown).unwrap(), 0, "{shown}");
    }
    child.kill().unwrap();
    child.wait().unwrap();
    shown
}

/// Without `latchd cli`, as the README has it.
#[test]
fn netcat_does_as_well() {
    let has_netcat = Command::new("nc").arg("-h").output();
    if has_netcat.is_err() {
        eprintln!("there is no nc: what the README says of it is not tried");
        return assert!(std::env::var_os("TEST_REQUIRE_PEERS").is_none());
    }
    let readme = include_str!("../../../README.md");
    let (_, command) = readme.split_once("`nc ").unwrap();
    let (command, _) = command.split_once('`').unwrap();
    let latchd = Running::start(&["-l", "127.0.0.1:0"]);
    let port = latchd.address().port().to_string();
    let command = format!("nc {}", command.replace("11211", &port));
    let lines = ["set job 0 0 4", "idle", "lock job"];
    assert_eq!(typed(&command, &lines, "OK"), "STORED\r\nOK\r\n");
}

#[test]
fn the_banners_commands_work_as_typed() {
    let path = std::env::temp_dir().join(format!("latchd-banner-{}", std::process::id()));
    for flags in [&["-l", "127.0.0.1:0"][..], &["-s", path.to_str().unwrap()]] {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let terminal = File::options().write(true).open(name.to_str().unwrap());
        let mut child = latchd(flags).stderr(terminal.unwrap()).spawn().unwrap();
        let mut screen = BufReader::new(File::from(master));
        let mut banner = String::new();
        while !banner.contains("Ctrl-C to stop") {
            assert_ne!(screen.read_line(&mut banner).unwrap(), 0, "{banner}");
        }
        let (_, hint) = banner.split_once("try `").unwrap();
        let (command, rest) = hint.split_once('`').unwrap();
        let (_, lines) = rest.split_once(": ").unwrap();
        let lines: Vec<_> = lines.lines().next().unwrap().split(" / ").collect();
        assert_eq!(
            typed(command, &lines, "OK"),
            "STORED\r\nVALUE k 0 5\r\nhello\r\nEND\r\nOK\r\n",
            "{banner}"
        );
        let pid = pid(child.id());
        kill_process(pid, Signal::INT).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(0));
        let mut last = String::new();
        while !last.contains("server stopped") {
            assert_ne!(screen.read_line(&mut last).unwrap(), 0, "{last}");
        }
    }
}

#[test]
fn a_port_in_use_exits_with_71() {
    let first = Running::start(&["-l", "127.0.0.1:0"]);
    let taken = first.address().to_string();
    let second = run(&["-l", &taken]);
    assert_eq!(second.status.code(), Some(71));
    let message = text(&second.stderr);
    assert_eq!(message.lines().count(), 1, "{message}");
    assert!(
        message.contains(&taken) && message.contains("-p"),
        "{message}"
    );
}

#[test]
fn a_bad_flag_is_code_2() {
    for flags in [&["--nonsense"][..], &["-p", "70000"], &["-S"], &["-m", "1"]] {
        let output = run(flags);
        assert_eq!(output.status.code(), Some(2), "{flags:?}");
        assert!(text(&output.stderr).contains("error:"), "{flags:?}");
    }
}

#[test]
fn version_and_help_are_told() {
    let version = run(&["-V"]);
    assert_eq!(
        text(&version.stdout),
        concat!("latchd ", env!("CARGO_PKG_VERSION"), "\n")
    );
    let license = run(&["-i"]);
    assert!(license.status.success() && text(&license.stdout).contains("MIT"));
    let help = run(&["-h"]);
    assert!(help.status.success());
    for flag in [
        "-p", "-l", "-s", "-a", "-m", "-M", "-c", "-t", "-I", "-v", "-o", "-h", "-V",
    ] {
        assert!(text(&help.stdout).contains(&format!(" {flag}")), "{flag}");
    }
}

#[test]
fn flags_without_meaning_are_one_warning() {
    let mut child = latchd(&[
        "-l",
        "127.0.0.1:0",
        "-C",
        "-R",
        "20",
        "-U",
        "0",
        "-u",
        &me(),
    ])
    .spawn()
    .unwrap();
    let mut log = BufReader::new(child.stderr.take().unwrap());
    let (mut warning, mut greeting) = (String::new(), String::new());
    log.read_line(&mut warning).unwrap();
    log.read_line(&mut greeting).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(
        warning.contains("WARN") && warning.contains("-C, -R"),
        "{warning}"
    );
    assert!(greeting.contains("listening on"), "{greeting}");
}

#[test]
fn v_shows_connections_vv_requests_and_vvv_locks() {
    for (flag, shown, hidden) in [
        (
            "-M",
            &[][..],
            &["connection", "memory_limit", "session", "login"][..],
        ),
        (
            "-v",
            &[
                "<3 new connection",
                "peer=tcp:127.0.0.1:",
                "set the memory limit to 80 MiB",
                "<3 connection closed",
            ][..],
            &["<2", "lock k", "event=\"lock\""][..],
        ),
        (
            "-vv",
            &[
                "<2 new connection",
                "<2 connection closed",
                "<3 set k 0 0 1\\r\\nx",
                ">3 STORED",
                "<3 lock k",
                ">3 OK",
            ],
            &["event=\"lock\""],
        ),
        (
            "-vvv",
            &[
                "<3 lock k",
                "event=\"lock\" conn=3 key=k",
                "event=\"unlock_all\"",
            ],
            &[],
        ),
    ] {
        let latchd = Running::start(&["-l", "127.0.0.1:0", flag]);
        // A probe of a load balancer.
        drop(TcpStream::connect(latchd.address()).unwrap());
        let mut client = TestClient::connect(latchd.address());
        client.send("set k 0 0 1\r\nx\r\n");
        assert_eq!(client.line(), "STORED");
        assert_eq!(client.ask("lock k"), "OK");
        assert_eq!(client.ask("unlock_all"), "OK");
        assert_eq!(client.ask("cache_memlimit 80"), "OK");
        assert_eq!(client.ask("quit"), "");
        let (code, log) = latchd.end_with_log(Signal::TERM);
        assert_eq!(code, Some(0));
        assert!(shown.iter().all(|text| log.contains(text)), "{flag}: {log}");
        assert!(
            !hidden.iter().any(|text| log.contains(text)),
            "{flag}: {log}"
        );
    }
}

/// A probe sends nothing and is not logged. A failed handshake is no probe.
#[test]
fn v_logs_failed_handshakes_without_requests() {
    let authority = Authority::new();
    let certified = authority.certify("localhost");
    let (chain, key) = (certified.chain.display(), certified.key.display());
    let files = format!("ssl_chain_cert={chain},ssl_key={key}");
    let latchd = Running::start(&["-l", "127.0.0.1:0", "-v", "-Z", "-o", &files]);
    drop(TcpStream::connect(latchd.address()).unwrap());
    let mut plain = TcpStream::connect(latchd.address()).unwrap();
    plain.write_all(b"get a\r\n").unwrap();
    // The server closes, perhaps with a reset.
    let _ = plain.read_to_end(&mut Vec::new());
    let (_, log) = latchd.end_with_log(Signal::TERM);
    assert!(!log.contains("<2"), "{log}");
    for text in ["<3 new connection", "<3 connection closed", "reason=\"TLS"] {
        assert!(log.contains(text), "{text}: {log}");
    }
}

/// Every way to get and to lose a lock.
#[test]
fn vvv_logs_the_life_of_a_lock() {
    let latchd = Running::start(&["-l", "127.0.0.1:0", "-t", "2", "-vvv", "--log", "json"]);
    let connect = || TestClient::connect(latchd.address());
    let [mut holder, mut waiter, mut late] = [connect(), connect(), connect()];
    // Connections are numbered in the order of arrival.
    for client in [&mut holder, &mut waiter, &mut late] {
        assert_eq!(client.ask("mn"), "MN");
    }
    assert_eq!(holder.ask("ml k"), "HD");
    assert!(waiter.ask("ml k").starts_with("LK"));
    assert!(late.ask("ml k w5").starts_with("LK"));
    waiter.send("ml k w60000\r\n");
    let begun = Instant::now();
    while late.stat("lock_waiting") != "1" {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "it does not wait"
        );
    }
    drop(holder);
    assert_eq!(waiter.line(), "HD");
    assert_eq!(waiter.ask("ml lease T0.02"), "HD");
    assert_eq!(late.ask("ml lease w60000"), "HD");
    assert_eq!(late.ask("mu lease"), "HD");
    drop((waiter, late));
    let (code, log) = latchd.end_with_log(Signal::TERM);
    assert_eq!(code, Some(0));
    let at = |conn: u32, event: &str, key: &str| {
        let fields = format!("\"event\":\"{event}\",\"conn\":{conn},\"key\":\"{key}\"");
        let found = log.lines().position(|line| line.contains(&fields));
        found.unwrap_or_else(|| panic!("{fields}: {log}"))
    };
    let steps = [
        at(2, "lock", "k"),
        at(3, "lock_refused", "k"),
        at(4, "lock_wait", "k"),
        at(4, "lock_wait_failed", "k"),
        at(3, "lock_wait", "k"),
        at(2, "holder_closed", "k"),
        at(3, "lock_handover", "k"),
        at(3, "lock", "lease"),
        at(3, "lease_expired", "lease"),
        at(4, "lock_handover", "lease"),
        at(4, "unlock", "lease"),
    ];
    assert!(steps.is_sorted(), "{steps:?}: {log}");
}

#[test]
fn too_few_descriptors_are_said_in_numbers() {
    // The shell lowers its own hard limit, which the program inherits.
    let program = env!("CARGO_BIN_EXE_latchd");
    let script = format!("ulimit -n 100; exec {program} -l 127.0.0.1:0 -c 5000 -t 1");
    let mut child = Command::new("sh")
        .args(["-c", &script])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stderr.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(
        line.contains("WARN") && line.contains("5000") && line.contains("100"),
        "{line}"
    );
}

/// A program that may have few descriptors: some fifteen connections.
fn with_few_descriptors() -> (Child, BufReader<std::process::ChildStdout>, SocketAddr) {
    let program = env!("CARGO_BIN_EXE_latchd");
    let script = format!("ulimit -n 30; exec {program} -l 127.0.0.1:0 -t 1 2>&1");
    let mut child = Command::new("sh")
        .args(["-c", &script])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut log = BufReader::new(child.stdout.take().unwrap());
    let mut greeting = String::new();
    while !greeting.contains("listening on") {
        greeting.clear();
        assert_ne!(log.read_line(&mut greeting).unwrap(), 0);
    }
    let (_, rest) = greeting.split_once("listening on ").unwrap();
    let address = rest.split(';').next().unwrap().parse().unwrap();
    (child, log, address)
}

#[test]
fn connections_wait_when_descriptors_run_out() {
    let (mut child, _log, address) = with_few_descriptors();
    let mut clients: Vec<_> = (0..40).map(|_| TestClient::connect(address)).collect();
    for client in &mut clients {
        client.send("mn\r\n");
    }
    // For each answered client that goes, a waiting one comes in.
    for mut client in clients {
        assert_eq!(client.line(), "MN");
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn descriptor_exhaustion_is_logged_once_a_second() {
    let (mut child, mut log, address) = with_few_descriptors();
    let begun = Instant::now();
    let mut clients: VecDeque<_> = (0..40).map(|_| TestClient::connect(address)).collect();
    for _ in 0..200 {
        let mut first = clients.pop_front().unwrap();
        assert_eq!(first.ask("mn"), "MN");
        clients.push_back(TestClient::connect(address));
    }
    drop(clients);
    child.kill().unwrap();
    child.wait().unwrap();
    let mut rest = String::new();
    log.read_to_string(&mut rest).unwrap();
    let said = rest.matches("cannot accept").count();
    let seconds = usize::try_from(begun.elapsed().as_secs()).unwrap();
    assert!((1..=seconds + 2).contains(&said), "{said} in {seconds} s");
}

#[test]
fn unsaved_items_show_in_the_exit_code() {
    let folder = std::env::temp_dir().join(format!("latchd-program-e-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    let server = Running::start(&["-p", "-1", "-e", folder.join("items").to_str().unwrap()]);
    std::fs::remove_dir_all(&folder).unwrap();
    let (code, log) = server.end_with_log(Signal::TERM);
    assert_eq!(code, Some(74), "{log}");
    assert!(log.contains("cannot save the items"), "{log}");
}

#[test]
fn sighup_opens_the_log_anew_and_ends_nothing() {
    let name = format!("latchd-program-log-{}", std::process::id());
    let path = std::env::temp_dir().join(&name);
    let moved = std::env::temp_dir().join(name + ".1");
    let socket = std::env::temp_dir().join(format!("latchd-program-hup-{}", std::process::id()));
    let mut child = latchd(&["-v", "-s", socket.to_str().unwrap(), "--log-file"])
        .arg(&path)
        .spawn()
        .unwrap();
    while !socket.exists() {
        std::thread::sleep(Duration::from_millis(2));
    }
    let mut client = TestClient::connect_unix(&socket);
    assert_eq!(client.ask("mn"), "MN");
    let pid = pid(child.id());
    std::fs::rename(&path, &moved).unwrap();
    kill_process(pid, Signal::HUP).unwrap();
    while !path.exists() {
        assert_eq!(child.try_wait().unwrap(), None, "it has ended");
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(client.ask("mn"), "MN", "no connection is lost");
    kill_process(pid, Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(!socket.exists());
    let (old, new) = (
        std::fs::read_to_string(&moved).unwrap(),
        std::fs::read_to_string(&path).unwrap(),
    );
    assert!(
        old.contains("listening on") && old.contains("<2 new connection"),
        "{old}"
    );
    assert!(new.contains("<2 connection closed"), "{new}");
    std::fs::remove_file(&path).unwrap();
    std::fs::remove_file(&moved).unwrap();
}
