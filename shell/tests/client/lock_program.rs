//! `latchd lock`: exit codes, the command's environment, signals, and the death of either side.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::ffi::OsStrExt;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::support::{Started, eventually};
use rustix::process::{Pid, Signal, getuid, kill_process};

/// `latchd lock` with these arguments.
fn lock(server: &Started, arguments: &[&str]) -> Command {
    // If the tests run in the background, Ctrl-C is ignored, and the program would inherit that.
    let mut command = Command::new("env");
    command
        .args(["--default-signal=INT", env!("CARGO_BIN_EXE_latchd")])
        .args(["lock", "--server", &server.address()])
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn output(server: &Started, arguments: &[&str]) -> Output {
    lock(server, arguments).output().unwrap()
}

fn code(server: &Started, arguments: &[&str]) -> Option<i32> {
    output(server, arguments).status.code()
}

/// The ways to lock that this server has.
fn ways(server: &Started) -> Vec<Vec<&'static str>> {
    match server {
        Started::Latchd(..) => vec![vec![], vec!["--ttl", "2"], vec!["--session", "2"]],
        Started::Memcached(..) => vec![vec!["--ttl", "2"]],
    }
}

fn with<'a>(way: &[&'a str], more: &[&'a str]) -> Vec<&'a str> {
    [way, more].concat()
}

/// A running `latchd lock`, with a command that has said that it runs.
struct Holder(Child);

impl Holder {
    fn start(server: &Started, way: &[&str], script: &str) -> Self {
        Self::run(server, way, &format!("echo held; {script}"))
    }

    /// As [`start`](Self::start), with a script that prints the start line itself.
    fn run(server: &Started, way: &[&str], script: &str) -> Self {
        let arguments = with(way, &["k", "--", "sh", "-c", script]);
        let mut child = lock(server, &arguments).spawn().unwrap();
        let mut said = [0; 5];
        child
            .stdout
            .as_mut()
            .unwrap()
            .read_exact(&mut said)
            .unwrap();
        assert_eq!(&said, b"held\n");
        Self(child)
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.0.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Waits for its end. Returns its exit code, and the output of it and its command.
    fn end(mut self) -> (Option<i32>, String) {
        let mut said = String::new();
        let mut stdout = self.0.stdout.take().unwrap();
        stdout.read_to_string(&mut said).unwrap();
        let mut stderr = self.0.stderr.take().unwrap();
        stderr.read_to_string(&mut said).unwrap();
        (self.0.wait().unwrap().code(), said)
    }
}

#[test]
fn the_commands_code_is_ours() {
    for server in Started::all() {
        for way in ways(&server) {
            for (script, expected) in [("true", 0), ("exit 7", 7), ("kill -9 $$", 137)] {
                let arguments = with(&way, &["k", "--", "sh", "-c", script]);
                assert_eq!(code(&server, &arguments), Some(expected), "{script}");
            }
            let missing = with(&way, &["k", "--", "/no/such/command"]);
            assert_eq!(code(&server, &missing), Some(127));
            let directory = with(&way, &["k", "--", "/"]);
            assert_eq!(code(&server, &directory), Some(126));
            // Afterwards the lock is free.
            let free = with(&way, &["-n", "k", "--", "true"]);
            assert_eq!(code(&server, &free), Some(0));
        }
    }
}

#[test]
fn the_command_sees_key_number_input_and_arguments() {
    for server in Started::all() {
        for way in ways(&server) {
            let mut numbers = Vec::new();
            for _ in 0..2 {
                let script = "cat; echo \"$1 $LATCHD_LOCK_KEY $LATCHD_LOCK_NUMBER\"";
                let arguments = with(&way, &["k", "--", "sh", "-c", script, "sh", "a  b"]);
                let mut child = lock(&server, &arguments)
                    .env("LATCHD_LOCK_NUMBER", "18446744073709551615")
                    .stdin(Stdio::piped())
                    .spawn()
                    .unwrap();
                child.stdin.take().unwrap().write_all(b"in ").unwrap();
                let said = child.wait_with_output().unwrap().stdout;
                let said = String::from_utf8(said).unwrap();
                let number = said.strip_prefix("in a  b k ").unwrap().trim();
                numbers.push(number.parse::<u64>().ok());
            }
            // memcached numbers no grants.
            let is_fenced = matches!(server, Started::Latchd(..));
            assert_eq!(numbers[0].is_some(), is_fenced, "{way:?}: {numbers:?}");
            assert!(!is_fenced || numbers[0] < numbers[1], "{numbers:?}");
        }
    }
}

#[test]
fn a_held_lock_is_waited_for_or_not() {
    for server in Started::all() {
        for way in ways(&server) {
            let holder = Holder::start(&server, &way, "sleep 100");
            let now = with(&way, &["-n", "k", "--", "true"]);
            assert_eq!(code(&server, &now), Some(1));
            let other_code = with(&way, &["-n", "-E", "99", "k", "--", "true"]);
            assert_eq!(code(&server, &other_code), Some(99));
            let asked = Instant::now();
            let soon = with(&way, &["-w", "0.3", "k", "--", "true"]);
            assert_eq!(code(&server, &soon), Some(1));
            assert!(asked.elapsed() >= Duration::from_millis(290));

            let arguments = with(&way, &["-w", "20", "k", "--", "true"]);
            let waiter = lock(&server, &arguments).spawn().unwrap();
            holder.signal(Signal::TERM);
            assert_eq!(holder.end().0, Some(143));
            assert!(waiter.wait_with_output().unwrap().status.success());
        }
    }
}

#[test]
fn a_signal_ends_the_wait() {
    let server = Started::latchd();
    let holder = Holder::start(&server, &[], "sleep 100");
    let waiter = lock(&server, &["k", "--", "true"]).spawn().unwrap();
    let waiter = Holder(waiter);
    // It has installed its handlers before it connects.
    eventually(|| {
        server
            .ask("stats locks\r\n", "END\r\n")
            .contains(",waiting=1,")
            .then_some(())
    });
    waiter.signal(Signal::INT);
    assert_eq!(waiter.end().0, Some(130));
    holder.signal(Signal::KILL);
}

#[test]
fn signals_reach_the_whole_group() {
    let server = Started::latchd();
    let script = "trap 'echo usr1' USR1; (trap 'echo child; exit' USR1; echo held; \
                  while :; do sleep 0.1; done) & wait; wait";
    let holder = Holder::run(&server, &[], script);
    holder.signal(Signal::USR1);
    let (code, said) = holder.end();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("usr1") && said.contains("child"), "{said}");
}

#[test]
fn a_holder_that_is_killed_is_no_holder() {
    for server in Started::all() {
        for way in ways(&server) {
            let holder = Holder::start(&server, &way, "exec sleep 3");
            let killed = Instant::now();
            holder.signal(Signal::KILL);
            let next = with(&way, &["k", "--", "true"]);
            assert_eq!(code(&server, &next), Some(0));
            let took = killed.elapsed();
            println!("{} {way:?}: free {took:.1?} after kill -9", server.name());
            // At once, or after the ttl and the server's margin.
            let bound = if way.is_empty() { 1 } else { 6 };
            assert!(took < Duration::from_secs(bound), "{took:?}");
            holder.end();
        }
    }
}

#[test]
fn a_paused_holder_past_its_lease_is_stopped() {
    for server in Started::all() {
        let holder = Holder::start(&server, &["--ttl", "1"], "exec sleep 100");
        holder.signal(Signal::STOP);
        let next = Holder::start(&server, &["--ttl", "1"], "exec sleep 100");
        holder.signal(Signal::CONT);
        let (code, said) = holder.end();
        assert_eq!(code, Some(125), "{said}");
        assert!(said.contains("lost the lock"), "{said}");
        // The next one has not been disturbed.
        next.signal(Signal::TERM);
        assert_eq!(next.end().0, Some(143));
    }
}

#[test]
fn a_command_that_does_not_stop_is_killed() {
    let server = Started::latchd();
    let port = server.port();
    let script = "trap '' TERM; echo held; while :; do sleep 0.1; done";
    let holder = Holder::run(&server, &[], script);
    // Some of the server's end comes after its connections'.
    let lost = Instant::now();
    drop(server);
    let (code, said) = holder.end();
    let took = lost.elapsed();
    assert_eq!(code, Some(125), "{said}");
    assert!(
        took >= Duration::from_secs(5) && took < Duration::from_secs(10),
        "{took:?}"
    );
    drop(Started::latchd_at(port));
}

#[test]
fn a_server_that_goes_takes_the_command_with_it() {
    for server in Started::all() {
        for way in ways(&server) {
            let server = match &server {
                Started::Latchd(..) => Started::latchd(),
                Started::Memcached(..) => Started::memcached().unwrap(),
            };
            // A lease has until its ttl to be asked after, and there is no answer.
            let why = if way.is_empty() {
                "the connection broke"
            } else {
                "its ttl ran out"
            };
            let holder = Holder::start(&server, &way, "exec sleep 100");
            drop(server);
            let (code, said) = holder.end();
            assert_eq!(code, Some(125), "{said}");
            assert!(said.contains(why), "{said}");
        }
    }
}

#[test]
fn metadata_is_there_to_be_read() {
    for server in Started::all() {
        for way in ways(&server) {
            let way = with(&way, &["--metadata", "build 7"]);
            let holder = Holder::start(&server, &way, "exec sleep 100");
            if matches!(server, Started::Latchd(..)) {
                let shown = server.ask("stats locks\r\n", "END\r\n");
                assert!(shown.contains(",metadata=build%207"), "{shown}");
            } else {
                assert!(server.ask("mg k v\r\n", "build 7\r\n").starts_with("VA "));
            }
            holder.signal(Signal::TERM);
            holder.end();
        }
    }
}

#[test]
fn several_keys_are_had_all_or_none() {
    for server in Started::all() {
        for way in ways(&server) {
            let script = "echo \"$LATCHD_LOCK_KEY\"; echo \"$LATCHD_LOCK_KEYS\"; \
                          echo \"${LATCHD_LOCK_NUMBERS-none}\" | wc -l";
            let all = with(&way, &["c", "a", "b", "--", "sh", "-c", script]);
            let said = output(&server, &all).stdout;
            let numbers = if matches!(server, Started::Latchd(..)) {
                3
            } else {
                1
            };
            let expected = format!("a\na\nb\nc\n{numbers}\n");
            assert_eq!(String::from_utf8(said).unwrap(), expected);

            let held = with(&way, &["b", "--", "sh", "-c", "echo held; sleep 100"]);
            let mut held = lock(&server, &held).spawn().unwrap();
            held.stdout
                .as_mut()
                .unwrap()
                .read_exact(&mut [0; 5])
                .unwrap();
            let held = Holder(held);
            for wait in [&["-n"][..], &["-w", "0.3"]] {
                let all = with(&with(&way, wait), &["a", "b", "c", "--", "true"]);
                assert_eq!(code(&server, &all), Some(1));
            }
            for key in ["a", "c"] {
                let one = with(&way, &["-n", key, "--", "true"]);
                assert_eq!(code(&server, &one), Some(0), "{key} is free");
            }
            held.signal(Signal::TERM);
            held.end();
        }
    }
}

#[test]
fn keys_are_any_bytes_and_taken_once() {
    let server = Started::latchd();
    let path = std::env::temp_dir().join(format!("latchd-{}-keys", std::process::id()));
    let from = path.to_str().unwrap();
    let said = |way: &[&str], arguments: &[&[u8]], listed: &[u8]| {
        std::fs::write(&path, listed).unwrap();
        let script = "printf '<%s>' \"${LATCHD_LOCK_KEYS-unset}\"";
        let mut command = lock(&server, way);
        command.args(arguments.iter().map(|argument| OsStr::from_bytes(argument)));
        command.args(["--", "sh", "-c", script]);
        // Keys of an outer lock are no keys of this one.
        let output = command.env("LATCHD_LOCK_KEYS", "outer").output().unwrap();
        assert!(output.status.success(), "{output:?}");
        (output.stdout, String::from_utf8(output.stderr).unwrap())
    };
    for way in ways(&server) {
        for (arguments, listed, expected) in [
            (&[&b"caf\xe9"[..]][..], &b""[..], &b"<caf\xe9>"[..]),
            (&[b"b c", b"a\t", b"b c", b"\x01"], b"", b"<\x01\na\t\nb c>"),
            (&[b"--", b"-x", b"--y"], b"", b"<--y\n-x>"),
            (
                &[b"--keys-from", from.as_bytes(), b"a"],
                b"-z\na\n",
                b"<-z\na>",
            ),
        ] {
            assert_eq!(said(&way, arguments, listed).0, expected);
        }
        let (keys, complaint) = said(&way, &[b"a\nb"], b"");
        assert_eq!(keys, b"<unset>");
        assert!(complaint.contains("are not set"), "{complaint}");
    }
    // More than a variable can hold.
    let many: Vec<_> = (100..700)
        .map(|number| number.to_string().repeat(80))
        .collect();
    let many = many.join("\n");
    let (keys, complaint) = said(&["--ttl", "9", "--keys-from", from], &[], many.as_bytes());
    assert_eq!(keys, b"<unset>");
    assert!(complaint.contains("are not set"), "{complaint}");
    for (listed, says) in [(&b"a\n\nb"[..], "line 2 is empty"), (b"a\0b", "zero byte")] {
        std::fs::write(&path, listed).unwrap();
        let refused = output(&server, &["--keys-from", from, "--", "true"]);
        assert_eq!(refused.status.code(), Some(125));
        assert!(String::from_utf8(refused.stderr).unwrap().contains(says));
    }
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn missing_system_features_fail_before_locking() {
    let run = |shell: &mut Command, script: &str| {
        let command = shell
            .args(["-c", script])
            .env("LATCHD_SERVER", "127.0.0.1:1");
        let output = command.output().unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    let latchd = env!("CARGO_BIN_EXE_latchd");
    for (task, expected) in [("lock k -- true", 125), ("cli mn", 71)] {
        let script = format!("ulimit -n 6; exec {latchd} {task}");
        let (code, said) = run(&mut Command::new("sh"), &script);
        assert_eq!(code, Some(expected), "{said}");
        assert!(said.contains("raise the limit"), "{said}");
    }
    let mut namespace = Command::new("unshare");
    namespace.args(["--user", "--map-root-user", "--mount", "sh"]);
    let script = format!("mount -t tmpfs none /proc || exit 3; exec {latchd} lock k -- true");
    let (code, said) = run(&mut namespace, &script);
    if said.contains("unshare:") || code == Some(3) {
        return eprintln!("not tried, for lack of namespaces: {said}");
    }
    assert_eq!(code, Some(125));
    assert!(said.contains("requires a mounted /proc"), "{said}");
}

/// Libraries that cannot start a thread panic, and the program would hang.
#[test]
fn few_processes_are_one_error_line() {
    let server = Started::latchd();
    // The limit does not concern root. This user has no processes.
    let user = "setpriv --reuid=60123 --regid=60123 --clear-groups";
    let user = if getuid().is_root() { user } else { "env" };
    let latchd = format!("{} ", env!("CARGO_BIN_EXE_latchd"));
    for task in [
        "lock k -- true",
        "lock --ttl 5 k -- true",
        "lock --inherit k -- true",
        "cli get k",
        "bench -t 4",
    ] {
        for processes in 1..=2 {
            let limited =
                format!("exec timeout -k 1 20 {user} prlimit --nproc={processes} {latchd} {task}");
            let begun = Instant::now();
            let output = Command::new("sh")
                .args(["-c", &limited])
                .env("LATCHD_SERVER", server.address())
                .output()
                .unwrap();
            let said = String::from_utf8(output.stderr).unwrap();
            let expected = if task.starts_with("lock") { 125 } else { 71 };
            assert_eq!(output.status.code(), Some(expected), "{task}: {said}");
            assert!(said.contains("raise the limit of processes"), "{said}");
            assert_eq!(said.lines().count(), 1, "{said}");
            assert!(begun.elapsed() < Duration::from_secs(5));
        }
    }
    let mut namespace = Command::new("unshare");
    namespace.args(["--user", "--map-root-user", "--pid", latchd.trim_end()]);
    let command = ["lock", "-s", &server.address(), "k", "--", "true"];
    let output = namespace.args(command).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    if said.contains("unshare:") {
        return eprintln!("not tried, for lack of namespaces: {said}");
    }
    assert_eq!(output.status.code(), Some(125), "{said}");
    assert!(said.contains("unshare --fork"), "{said}");
}

#[test]
fn closed_standard_errors_keep_the_code() {
    let server = Started::latchd();
    let latchd = format!("{} lock -s", env!("CARGO_BIN_EXE_latchd"));
    let (lock, nobody) = (
        format!("{latchd} {}", server.address()),
        format!("{latchd} 127.0.0.1:1"),
    );
    for (line, expected) in [
        (format!("{lock} k -- {lock} -n -E 99 k -- true"), 99),
        (format!("{lock} k -- /no/such/command"), 127),
        (format!("{lock} k -- /"), 126),
        (format!("{lock} \"a\nb\" -- true"), 0),
        (format!("{lock} --no-such-flag"), 125),
        (format!("{nobody} k -- true"), 125),
    ] {
        for closed in ["2>/dev/full", "2>&-"] {
            let script = format!("{line} {closed}");
            let status = Command::new("sh").args(["-c", &script]).status().unwrap();
            assert_eq!(status.code(), Some(expected), "{script}");
        }
    }
}

#[test]
fn a_server_that_is_down_is_waited_for() {
    for way in [&[][..], &["--ttl", "5"]] {
        let down = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = down.local_addr().unwrap();
        let mut waiting = Command::new(env!("CARGO_BIN_EXE_latchd"))
            .args(["lock", "-s", &address.to_string(), "-w", "60"])
            .args(way)
            .args(["k", "--", "true"])
            .spawn()
            .unwrap();
        // It has asked, and is not answered.
        drop(down.accept().unwrap());
        drop(down);
        let _server = Started::latchd_at(address.port());
        assert!(waiting.wait().unwrap().success());
    }
}

#[test]
fn help_tells_the_exit_codes() {
    let mut help = Command::new(env!("CARGO_BIN_EXE_latchd"));
    let help = help.args(["lock", "--help"]).output().unwrap();
    assert!(help.status.success());
    let said = String::from_utf8(help.stdout).unwrap();
    for code in ["125", "126", "127", "-E"] {
        assert!(said.contains(code), "{said}");
    }
}

#[test]
fn metadata_destroys_nothing() {
    let server = Started::latchd();
    server.ask("set k 7 0 5\r\nhello\r\n", "\r\n");
    let output = output(&server, &["--metadata", "build 7", "k", "--", "true"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let item = server.ask("mg k v f t\r\n", "hello\r\n");
    assert_eq!(item, "VA 5 f7 t-1\r\nhello\r\n");
    assert_eq!(
        code(&server, &["-n", "k", "--", "true"]),
        Some(0),
        "it is free"
    );
    let item = server.ask("mg k v f t\r\n", "hello\r\n");
    assert_eq!(item, "VA 5 f7 t-1\r\nhello\r\n");
}

#[test]
fn a_killed_holder_frees_its_lock() {
    let server = Started::latchd();
    let way = ["--metadata", "build 7"];
    let holder = Holder::start(&server, &way, "exec sleep 3");
    holder.signal(Signal::KILL);
    let killed = Instant::now();
    let next = with(&way, &["k", "--", "true"]);
    assert_eq!(code(&server, &next), Some(0));
    assert!(killed.elapsed() < Duration::from_secs(2));
    assert_eq!(server.ask("mg k\r\n", "\r\n"), "EN\r\n");
    holder.end();
}

#[test]
fn hanging_or_full_servers_are_not_holders() {
    let full = Started::latchd_with(0, |config| config.connections_max = 1);
    let _first = std::net::TcpStream::connect(full.address()).unwrap();
    assert!(full.ask("", "\r\n").contains("Too many"));
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = silent.local_addr().unwrap().to_string();
    for way in [&[][..], &["--ttl", "5"]] {
        let full = output(&full, &with(way, &["-n", "k", "--", "true"]));
        assert_eq!(full.status.code(), Some(125));
        let said = String::from_utf8(full.stderr).unwrap();
        assert!(said.contains("Too many open connections"), "{said}");
        assert!(!said.contains("--ttl"), "{said}");
        // Each gives up by its own time, long before the five seconds that a connection may take.
        for wait in [&["-w", "0.3"][..], &["-n"]] {
            let begun = Instant::now();
            let mut command = Command::new(env!("CARGO_BIN_EXE_latchd"));
            command.args(["lock", "--server", &silent]).args(way);
            let output = command
                .args(wait)
                .args(["k", "--", "true"])
                .output()
                .unwrap();
            let took = begun.elapsed();
            assert_eq!(output.status.code(), Some(125), "{way:?} {wait:?}");
            let said = String::from_utf8(output.stderr).unwrap();
            assert!(said.contains(&silent), "{said}");
            assert!(took < Duration::from_secs(4), "{took:?}");
        }
    }
}

#[test]
fn an_impossible_request_is_one_error_line() {
    let server = Started::latchd();
    for (arguments, expected) in [
        (&["--ttl", "0.005", "k", "--", "true"][..], 125),
        // As timeout(1): 2 may be the command's.
        (&["k"], 125),
        (&["--", "true"], 125),
        (&["--", "k", "--"], 125),
        (&["--keys-from", "/no/such/file", "--", "true"], 125),
        (&["-n", "-w", "1", "k", "--", "true"], 125),
        (&["-w", "x", "k", "--", "true"], 125),
        (&["-w", "-1", "k", "--", "true"], 125),
        (&["--ttl", "-1", "k", "--", "true"], 125),
        (&["-E", "-1", "k", "--", "true"], 125),
        (&["", "--", "true"], 125),
        (&["--no-such-flag", "k", "--", "true"], 125),
        (&["--inherit", "--ttl", "5", "k", "--", "true"], 125),
    ] {
        let output = output(&server, arguments);
        assert_eq!(output.status.code(), Some(expected), "{arguments:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!said.is_empty() && !said.contains("latchd: : "), "{said}");
        assert!(!said.contains("to pass '-1' as a value"), "{said}");
    }
    let mut nobody = Command::new(env!("CARGO_BIN_EXE_latchd"));
    nobody.args(["lock", "--server", "127.0.0.1:1", "k", "--", "true"]);
    assert_eq!(nobody.output().unwrap().status.code(), Some(125));
    if let Some(memcached) = Started::memcached() {
        let output = output(&memcached, &["k", "--", "true"]);
        assert_eq!(output.status.code(), Some(125));
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("add --ttl"), "{said}");
    }
}
