//! `latchd cli`: one command, lines through a pipe, and a person at a prompt.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Instant;

use crate::support::terminal::Terminal;
use crate::support::{DUE, Started, eventually};

/// `latchd cli` with these arguments, and a home folder without files.
fn cli(address: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_latchd"));
    command
        .args(["cli", "-s", address])
        .args(arguments)
        .env("XDG_STATE_HOME", "/dev/null")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// The outcome of one command: the exit code, the answer, and the error output.
fn one(server: &Started, arguments: &[&str]) -> (Option<i32>, String, String) {
    outcome(&cli(&server.address(), arguments).output().unwrap())
}

fn outcome(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

/// The output for this standard input.
fn piped(address: &str, arguments: &[&str], input: &[u8]) -> Output {
    let mut child = cli(address, arguments)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    // It may end before it has read all.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

fn temporary(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("latchd-cli-{name}-{}", std::process::id()))
}

#[test]
fn unwritten_results_are_code_74() {
    let server = Started::latchd();
    let latchd = env!("CARGO_BIN_EXE_latchd");
    let cli = format!("cli -s {}", server.address());
    for task in [
        format!("{cli} version"),
        format!("{cli} help"),
        format!("bench -n 1 --keys 1 -c 1 -s {}", server.address()),
        format!("check -p {}", crate::port::free_port()),
        "cluster status --help".to_owned(),
        "lock --help".to_owned(),
        "--version".to_owned(),
        "-h".to_owned(),
        "-i".to_owned(),
    ] {
        let script = format!("exec {latchd} {task} >/dev/full");
        let output = Command::new("sh").args(["-c", &script]).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(74), "{task}: {said}");
        assert!(said.contains("cannot write to standard output"), "{said}");
        // A reader that stops early is no failure.
        let script = format!("{latchd} {task} | :");
        let output = Command::new("sh").args(["-c", &script]).output().unwrap();
        assert!(output.stderr.is_empty(), "{task}: {output:?}");
    }
    // All lines but the first have no reader, and are not sent.
    let script =
        format!("printf 'version\\nversion\\nset late 0 0 x\\n' | {latchd} {cli} >/dev/full");
    let status = Command::new("sh").args(["-c", &script]).status().unwrap();
    assert_eq!(status.code(), Some(74));
    assert_eq!(server.ask("get late\r\n", "END\r\n"), "END\r\n");
}

#[test]
fn one_command_is_answered_and_its_code_says_how() {
    for server in Started::all() {
        for (arguments, code, answer) in [
            (&["get", "k"][..], 1, "END\r\n"),
            (&["set", "k", "0", "60", "hello", "world"], 0, "STORED\r\n"),
            (&["get", "k"], 0, "VALUE k 0 11\r\nhello world\r\nEND\r\n"),
            (&["set k 7 60 \"5\""], 0, "STORED\r\n"),
            (&["get k"], 0, "VALUE k 7 1\r\n5\r\nEND\r\n"),
            (&["incr", "k", "3"], 0, "8\r\n"),
            (&["add", "k", "0", "0", "x"], 1, "NOT_STORED\r\n"),
            (&["mg", "k", "v", "f"], 0, "VA 1 f7\r\n8\r\n"),
            (&["mg", "k"], 0, "HD\r\n"),
            (&["mg", "none", "v"], 1, "EN\r\n"),
            (&["ms", "k", "hello world", "T60"], 0, "HD\r\n"),
            (&["md", "k", "q"], 0, ""),
            (&["delete", "k"], 1, "NOT_FOUND\r\n"),
            (&["touch", "k", "-1"], 1, "NOT_FOUND\r\n"),
            (&["mn"], 0, "MN\r\n"),
        ] {
            let (seen, said, complaint) = one(&server, arguments);
            let case = format!("{} {arguments:?}", server.name());
            assert_eq!((seen, said.as_str()), (Some(code), answer), "{case}");
            assert_eq!(complaint, "", "{case}");
        }
        let (code, statistics, _) = one(&server, &["stats"]);
        assert_eq!(code, Some(0));
        assert!(statistics.contains("STAT pid ") && statistics.ends_with("\r\nEND\r\n"));
        assert_eq!(one(&server, &["set", "dumped", "0", "0", "x"]).0, Some(0));
        // memcached 1.6.18 knows no mgdump.
        let dumps = [
            ("metadump", "key=dumped ", "END\r\n"),
            ("mgdump", "mg dumped", "EN\r\n"),
        ];
        let known = if server.name() == "latchd" { 2 } else { 1 };
        for (dump, line, end) in dumps.into_iter().take(known) {
            // A memcached with a busy crawler says so.
            let said = eventually(|| {
                let (code, said, _) = one(&server, &["lru_crawler", dump, "all"]);
                (code == Some(0)).then_some(said)
            });
            assert!(said.contains(line) && said.ends_with(end), "{said}");
        }
    }
}

#[test]
fn errors_name_the_server() {
    for server in Started::all() {
        let address = server.address();
        let (code, said, complaint) = one(&server, &["gte", "x"]);
        assert_eq!((code, said.as_str()), (Some(2), ""));
        let advice = "unknown command, `latchd cli help` lists the commands";
        assert_eq!(complaint, format!("latchd: {address}: ERROR; {advice}\n"));
        let (code, said, complaint) = one(&server, &["incr", "k", "many"]);
        assert_eq!((code, said.as_str()), (Some(2), ""));
        assert!(complaint.contains(&address) && complaint.contains("numeric delta"));
        assert!(
            complaint.ends_with("; usage: incr KEY NUMBER\n"),
            "{complaint}"
        );
        // It may be answered by nothing.
        assert_ne!(one(&server, &["noreply"]).0, Some(69));
        // The server can also be named in the environment.
        let mut named = Command::new(env!("CARGO_BIN_EXE_latchd"));
        let named = named
            .args(["cli", "version"])
            .env("LATCHD_SERVER", &address);
        assert_eq!(outcome(&named.output().unwrap()).0, Some(0));
        // Nothing is sent of this.
        let (code, said, complaint) = one(&server, &["get", "k\r\nflush_all"]);
        assert_eq!((code, said.as_str()), (Some(2), ""));
        assert!(complaint.contains("line end"), "{complaint}");
    }
    // The port has no listener: it is bound, and never more than that.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap().to_string();
    drop(free);
    let (code, _, complaint) = outcome(&cli(&address, &["get", "k"]).output().unwrap());
    assert_eq!(code, Some(69));
    assert!(
        complaint.contains(&address) && complaint.contains("refused"),
        "{complaint}"
    );
}

#[test]
fn a_silent_server_times_out() {
    let path = temporary("silent");
    let _silent = UnixListener::bind(&path).unwrap();
    let begun = Instant::now();
    let address = path.to_str().unwrap();
    let output = cli(address, &["--timeout", "0.2", "get", "k"]).output();
    let (code, _, complaint) = outcome(&output.unwrap());
    assert_eq!(code, Some(69));
    assert!(
        complaint.contains(address) && complaint.contains("0.2 s"),
        "{complaint}"
    );
    assert!(begun.elapsed() < DUE);
    fs::remove_file(path).unwrap();
}

#[test]
fn piped_lines_run_in_order() {
    for server in Started::all() {
        let input = b"set a 0 60 5\r\nhello\r\nset b 0 60 hello world\nset c 0 60 2\n\r\n\r\n\
                      get a b c\n\ndelete none noreply\nmg a v q\nms none 1 MR q\nx\nnonsense\nmn\nquit\nget a\n";
        let output = piped(&server.address(), &[], input);
        let (code, said, complaint) = outcome(&output);
        assert_eq!(
            said,
            "STORED\r\nSTORED\r\nSTORED\r\nVALUE a 0 5\r\nhello\r\nVALUE b 0 11\r\nhello world\r\n\
             VALUE c 0 2\r\n\r\n\r\nEND\r\nVA 5\r\nhello\r\nNS\r\nERROR\r\nMN\r\n",
            "{}",
            server.name()
        );
        // The server's refusal stands among the answers.
        assert_eq!((code, complaint.as_str()), (Some(2), ""));
    }
}

#[test]
fn a_value_has_any_bytes() {
    for server in Started::all() {
        let address = server.address();
        let value: Vec<u8> = (0..=255).cycle().take(100_000).collect();
        let stored = piped(&address, &["set", "k", "0", "60", "-"], &value);
        assert_eq!(outcome(&stored).1, "STORED\r\n");
        let read = cli(&address, &["get", "k"]).output().unwrap();
        let expected = [b"VALUE k 0 100000\r\n", &value[..], b"\r\nEND\r\n"].concat();
        assert!(read.stdout == expected, "{}", server.name());
        let mut input = b"set k 0 60 100000\n".to_vec();
        input.extend_from_slice(&value);
        input.extend_from_slice(b"\nget k\n");
        let both = piped(&address, &[], &input);
        assert!(both.stdout == [b"STORED\r\n", &expected[..]].concat());
    }
}

#[test]
fn readable_is_escaped_and_cut() {
    for server in Started::all() {
        let line = r#"set k 0 60 "a\n\x1b[2J\\ é""#;
        assert_eq!(one(&server, &[line]).0, Some(0));
        let (_, said, _) = one(&server, &["--readable", "get", "k"]);
        assert_eq!(said, "VALUE k 0 10\na\\n\\x1b[2J\\\\ é\nEND\n");
        let long = "é".repeat(2_000);
        assert_eq!(one(&server, &["set", "k", "0", "60", &long]).0, Some(0));
        let (_, said, _) = one(&server, &["--readable", "mg", "k", "v"]);
        let shown = "é".repeat(1_024);
        assert_eq!(
            said,
            format!("VA 4000\n{shown}… 1952 of 4000 bytes not shown\n")
        );
    }
}

#[test]
fn nothing_follows_a_value_of_wrong_length() {
    let server = Started::latchd();
    let input = b"set k 0 60 2\nflush_all\nset k 0 60 x\n";
    let (code, said, complaint) = outcome(&piped(&server.address(), &[], input));
    assert_eq!((code, said.as_str()), (Some(2), ""));
    assert!(complaint.contains("line 1: "), "{complaint}");
    assert_eq!(server.ask("get k\r\n", "END\r\n"), "END\r\n");
}

#[test]
fn names_and_locks_of_latchd_are_known() {
    let server = Started::latchd();
    let input = b"set a 0 0 x\nset b 0 0 x\nkeys\nlock a\nlock a\nml c F T5\nunlock_all\n";
    let (code, said, _) = outcome(&piped(&server.address(), &[], input));
    assert_eq!(code, Some(1));
    let (names, locks) = said.split_once("END\r\n").unwrap();
    assert!(
        names.contains("VALUE a\r\n") && names.contains("VALUE b\r\n"),
        "{names}"
    );
    assert!(locks.starts_with("OK\r\nLOCKED\r\nHD F"), "{locks}");
    assert!(locks.ends_with("\r\nOK\r\n"), "{locks}");
}

#[test]
fn help_needs_no_server() {
    let output = cli("/no/such/socket", &["help", "set"]).output().unwrap();
    let (code, said, _) = outcome(&output);
    assert_eq!(code, Some(0));
    assert!(said.starts_with("set KEY FLAGS EXPTIME VALUE\n"), "{said}");
    let output = cli("/no/such/socket", &["help", "nonsense"]).output();
    assert_eq!(outcome(&output.unwrap()).0, Some(2));
}

/// Every form that `help` shows is one that a server understands.
#[test]
fn every_command_of_help_works() {
    let server = Started::latchd();
    let list = one(&server, &["help"]).1;
    let forms: Vec<_> = list
        .lines()
        .filter_map(|line| line.strip_prefix("  "))
        .map(|line| line.split("  ").next().unwrap())
        .filter(|form| {
            !["watch", "lru_crawler", "shutdown"]
                .iter()
                .any(|word| form.starts_with(word))
        })
        .collect();
    assert!(forms.len() > 25, "{list}");
    for form in forms {
        let line = form
            .replace(" [PREFIX]", "")
            .replace(" [TOPIC]", "")
            .replace("[DELAY]", "100")
            .replace("FLAG...", "q")
            .replace("KEY...", "k")
            .replace("KEY", "k")
            .replace("EXPTIME", "60")
            .replace("FLAGS", "0")
            .replace("NUMBER", "1")
            .replace("LEVEL", "1")
            .replace("CAS", "17")
            .replace("VALUE", "5 apples");
        let (_, said, complaint) = one(&server, &[&line]);
        let refused = complaint.contains(": ERROR") || complaint.contains("format");
        assert!(!refused, "{line}: {said}{complaint}");
    }
}

/// A prompt in a terminal of its own.
fn prompt(address: &str, state: &str) -> Terminal {
    let mut terminal = Terminal::start(
        // If the tests run in the background, Ctrl-C is ignored by them and by their children.
        Command::new("env")
            .args(["--default-signal=INT", "setsid", "--ctty"])
            .args([env!("CARGO_BIN_EXE_latchd"), "cli", "-s", address])
            .env("XDG_STATE_HOME", state)
            .env("TERM", "xterm"),
    );
    // The prompt shows whether the server is there.
    terminal.expect(concat!(
        "latchd ",
        env!("CARGO_PKG_VERSION"),
        ", which replies as memcached "
    ));
    terminal.expect(&format!("{address}> "));
    terminal
}

/// Types a line, and waits for its answer and the next prompt.
fn ask(terminal: &mut Terminal, line: &str, answer: &str) {
    terminal.press(&format!("{line}\r"));
    terminal.expect(answer);
    terminal.expect("> ");
}

/// Leaves by Ctrl-D, and returns the exit code.
fn leave(mut terminal: Terminal) -> Option<i32> {
    terminal.press("\x04");
    terminal.end()
}

#[test]
fn at_the_prompt_lines_are_edited_answered_and_kept() {
    let server = Started::latchd();
    let state = temporary("state");
    let mut terminal = prompt(&server.address(), state.to_str().unwrap());
    ask(&mut terminal, "set k 0 60 hello world", "STORED");
    // Back over the last two letters.
    ask(
        &mut terminal,
        "get kxx\x7f\x7f",
        "VALUE k 0 11\r\nhello world\r\nEND",
    );
    // The line before the last one again.
    ask(&mut terminal, "\x1b[A\x1b[A", "STORED");
    // The beginning of a command, and Tab.
    ask(
        &mut terminal,
        "help repl\t",
        "replace KEY FLAGS EXPTIME VALUE",
    );
    ask(&mut terminal, "nonsense", "ERROR");
    ask(&mut terminal, "cas k", "ERROR");
    ask(&mut terminal, "cas k 0 0 hello", "cas needs a version");
    // The protocol's own form, once too long.
    terminal.press("set k 0 60 5\r");
    terminal.expect("5 bytes> ");
    ask(&mut terminal, "abcdef", "has 6 bytes");
    terminal.press("set k 0 60 4\r");
    terminal.expect("4 bytes> ");
    terminal.press("a\r");
    terminal.expect("1 bytes> ");
    ask(&mut terminal, "b", "STORED");
    ask(&mut terminal, "get k", "a\\r\\nb");
    ask(&mut terminal, " set k 0 60 secret", "STORED");
    terminal.press("given up\x03");
    terminal.expect("given up\r\n");
    terminal.expect("> ");
    // Two lines that are pasted are two commands.
    ask(&mut terminal, "get pasted\rmn", "END");
    terminal.expect("MN");
    terminal.expect("> ");
    assert_eq!(leave(terminal), Some(0));

    let file = state.join("latchd/cli_history");
    let mode = fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let kept = fs::read_to_string(&file).unwrap();
    assert!(
        kept.starts_with("set k 0 60 hello world\nget k\n"),
        "{kept}"
    );
    assert!(
        !kept.contains("secret") && !kept.contains("given up"),
        "{kept}"
    );

    // And the next time they are there.
    let mut terminal = prompt(&server.address(), state.to_str().unwrap());
    ask(&mut terminal, "\x1b[A\x1b[A\x1b[A", "secret");
    assert_eq!(leave(terminal), Some(0));
    fs::remove_dir_all(state).unwrap();
}

#[test]
fn a_prompt_outlives_its_server_and_says_so() {
    let server = Started::latchd();
    let address = server.address();
    let successor = server.successor();
    let mut terminal = prompt(&address, "/dev/null");
    ask(&mut terminal, "set k 0 60 x", "STORED");
    ask(&mut terminal, "lock k", "OK");
    drop(server);
    ask(&mut terminal, "get k", "locks are released");
    ask(&mut terminal, "get k", "refused");
    let server = successor();
    ask(&mut terminal, "get k", "END");
    assert_eq!(leave(terminal), Some(0));
    drop(server);
}

#[test]
fn locks_end_with_the_prompt() {
    let server = Started::latchd();
    let mut terminal = prompt(&server.address(), "/dev/null");
    ask(&mut terminal, "set k 0 60 x", "STORED");
    ask(&mut terminal, "lock k", "OK");
    let (code, said, _) = one(&server, &["lock", "k"]);
    assert_eq!((code, said.as_str()), (Some(1), "LOCKED\r\n"));
    assert_eq!(leave(terminal), Some(0));
    eventually(|| (one(&server, &["lock", "k"]).0 == Some(0)).then_some(()));
}

#[test]
fn lock_waits_may_outlast_the_reply_timeout() {
    let server = Started::latchd();
    let holder = |holds: &str| {
        let mut terminal = prompt(&server.address(), "/dev/null");
        ask(&mut terminal, holds, "HD");
        terminal
    };
    let waits = |wait: &str| {
        let arguments = ["--timeout", "0.2", "ml", "k", wait];
        cli(&server.address(), &arguments).spawn().unwrap()
    };
    let mut first = holder("ml k");
    let vain = waits("w1000").wait_with_output().unwrap();
    let (code, said, complaint) = outcome(&vain);
    assert!(said.starts_with("LK h"), "{said}{complaint}");
    assert_eq!(code, Some(1));

    let waiting = waits("w60000");
    eventually(|| {
        server
            .ask("stats locks\r\n", "END\r\n")
            .contains("waiting=1")
            .then_some(())
    });
    // Longer than an answer may take.
    std::thread::sleep(std::time::Duration::from_millis(500));
    ask(&mut first, "mu k", "HD");
    let (code, said, complaint) = outcome(&waiting.wait_with_output().unwrap());
    assert_eq!((code, said.as_str()), (Some(0), "HD\r\n"), "{complaint}");
    assert_eq!(leave(first), Some(0));
}

#[test]
fn ctrl_c_ends_a_wait_at_the_prompt() {
    let server = Started::latchd();
    let mut holder = prompt(&server.address(), "/dev/null");
    ask(&mut holder, "ml k", "HD");
    let mut waiter = prompt(&server.address(), "/dev/null");
    waiter.press("ml k w3600000\r");
    let waiting = |count: &str| {
        let wanted = format!("waiting={count}");
        eventually(|| {
            server
                .ask("stats locks\r\n", "END\r\n")
                .contains(&wanted)
                .then_some(())
        });
    };
    waiting("1");
    waiter.press("\x03");
    // Its place in the queue goes with it.
    waiting("0");
    drop(waiter);
    ask(&mut holder, "help ml", "w<ms>");
    assert_eq!(leave(holder), Some(0));
}
