//! `latchd locks` and `latchd unlock`: an operator sees the locks of a server and releases one.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Output, Stdio};

use latchd_client::blocking::Client;
use latchd_client::{ClientOptions, LockOptions};

use crate::support::terminal::Terminal;
use crate::support::{DUE, Started};

/// `latchd` with these arguments, for this server.
fn program(task: &str, address: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_latchd"));
    command.args([task, "-s", address]).args(arguments);
    command
}

/// The exit code, the output and the error output, without input.
fn outcome(mut command: Command) -> (Option<i32>, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = command.stdin(Stdio::null()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

fn locks(server: &Started, arguments: &[&str]) -> (Option<i32>, String, String) {
    outcome(program("locks", &server.address(), arguments))
}

fn unlock(server: &Started, arguments: &[&str]) -> (Option<i32>, String, String) {
    outcome(program("unlock", &server.address(), arguments))
}

/// A client that keeps its connection.
struct Holder(TcpStream);

impl Holder {
    fn new(server: &Started) -> Self {
        let socket = TcpStream::connect(server.address()).unwrap();
        socket.set_read_timeout(Some(DUE)).unwrap();
        Self(socket)
    }

    /// Sends a line, and returns the line that answers it.
    fn ask(&mut self, line: &str) -> String {
        self.0.write_all(format!("{line}\r\n").as_bytes()).unwrap();
        let mut answer = String::new();
        let mut byte = [0];
        while !answer.ends_with("\r\n") {
            self.0.read_exact(&mut byte).unwrap();
            answer.push(char::from(byte[0]));
        }
        answer.trim_end().to_owned()
    }

    /// The fence of a lock that it acquires.
    fn lock(&mut self, line: &str) -> String {
        let answer = self.ask(line);
        let fence = answer.strip_prefix("HD F");
        fence.unwrap_or_else(|| panic!("{answer}")).to_owned()
    }
}

#[test]
fn locks_are_listed_with_their_holders() {
    let server = Started::latchd();
    assert_eq!(
        locks(&server, &[]),
        (Some(0), "no locks\n".into(), String::new())
    );
    let (mut a, mut b) = (Holder::new(&server), Holder::new(&server));
    let session = a.ask("mo 0123456789abcdef T30");
    let session = session.split([' ', 'n']).nth(2).unwrap().to_owned();
    let fence = a.lock("ml job T60 F Mcm93IDc=");
    let shared = b.lock("ml pool S F");
    a.ask("ml pool S");
    // "a é", which needs base64.
    b.lock("ml YSDDqQ== b F");
    let (code, table, complaint) = locks(&server, &[]);
    assert_eq!((code, complaint.as_str()), (Some(0), ""));
    let lines: Vec<Vec<_>> = table
        .lines()
        .map(|line| {
            line.split("  ")
                .map(str::trim)
                .filter(|cell| !cell.is_empty())
                .collect()
        })
        .collect();
    let peer = a.0.local_addr().unwrap().to_string();
    let holder = format!("session {session}");
    assert_eq!(
        lines[0],
        [
            "KEY", "KIND", "HOLDER", "ADDRESS", "HELD", "LEASE", "WAITING", "FENCE", "METADATA"
        ]
    );
    assert_eq!(lines[1][..2], ["a é", "exclusive"]);
    assert_eq!(
        lines[2],
        [
            "job",
            "exclusive",
            &holder,
            &peer,
            "0 s",
            "60 s left",
            "0",
            &fence,
            "row 7"
        ]
    );
    assert_eq!(
        (lines[3][0], lines[3][1], lines[3][7]),
        ("pool", "shared by 2", &*shared)
    );
    assert_eq!(lines.len(), 4, "{table}");

    let (code, json, _) = locks(&server, &["--json", "jo"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(code, Some(0));
    assert_eq!(json["locks"].as_array().unwrap().len(), 1);
    let job = &json["locks"][0];
    assert_eq!((&job["key"], &job["fence"]), (&"job".into(), &fence.into()));
    assert_eq!(job["metadata"], "row 7");
    assert_eq!(job["session"].to_string(), session);
    assert!(job["connection"].is_null(), "{job}");
}

#[test]
fn unlock_releases_any_kind_of_lock() {
    let server = Started::latchd();
    let mut holder = Holder::new(&server);
    holder.ask("mo 0123456789abcdef T30");
    let mut other = Holder::new(&server);
    assert_eq!(other.ask("set stored 0 0 1\r\n1"), "STORED");
    for (line, key) in [
        ("lock stored", "stored"),
        ("ml plain", "plain"),
        ("ml leased T600", "leased"),
    ] {
        for who in [&mut other, &mut holder] {
            who.ask(line);
            let (code, said, complaint) = unlock(&server, &["--yes", key]);
            assert_eq!((code, complaint.as_str()), (Some(0), ""), "{line}");
            assert!(
                said.ends_with("released\n") && said.contains("fence"),
                "{said}"
            );
            assert_eq!(who.ask(&format!("mu {key}")), "NF");
        }
    }
    // No item is left behind.
    assert_eq!(other.ask("mg plain"), "EN");
    let (code, _, complaint) = unlock(&server, &["--yes", "plain"]);
    assert_eq!(code, Some(1));
    assert!(complaint.contains("plain is not locked"), "{complaint}");
}

#[test]
fn unlock_ends_locks_of_the_library() {
    let server = Started::latchd();
    let client = Client::new(&server.address(), ClientOptions::new()).unwrap();
    let obtain = |keys: &[&str]| {
        let options = LockOptions::new();
        client.lock_many(keys, &options)
    };
    for (keys, said) in [
        (&["k"][..], "held by session"),
        (&["k", "l"], "held by session"),
    ] {
        let lease = obtain(keys).unwrap();
        let (code, output, complaint) = unlock(&server, &["--yes", "k"]);
        assert_eq!((code, complaint.as_str()), (Some(0), ""));
        assert!(output.contains(said), "{output}");
        // Another client has the lease at once.
        obtain(&["k"]).unwrap().release().unwrap();
        drop(lease);
    }
}

#[test]
fn unlock_of_shares_releases_the_earliest() {
    let server = Started::latchd();
    let (mut a, mut b) = (Holder::new(&server), Holder::new(&server));
    a.ask("ml pool S");
    b.ask("ml pool S");
    let (code, said, _) = unlock(&server, &["-y", "pool"]);
    assert_eq!(code, Some(0));
    assert!(said.contains("1 more hold it"), "{said}");
    assert_eq!(
        (a.ask("mu pool"), b.ask("mu pool")),
        ("NF".into(), "HD".into())
    );
}

#[test]
fn unlock_asks_at_a_terminal_only() {
    let server = Started::latchd();
    let mut holder = Holder::new(&server);
    holder.lock("ml job F");
    let (code, said, complaint) = unlock(&server, &["job"]);
    assert_eq!((code, said.as_str()), (Some(2), ""));
    assert!(complaint.contains("--yes"), "{complaint}");
    for (answer, code, result) in [
        ("n\r", 1, "not released"),
        ("\r", 1, "not released"),
        ("y\r", 0, "released"),
    ] {
        let mut terminal = Terminal::start(&mut program("unlock", &server.address(), &["job"]));
        terminal.expect("job: held by connection ");
        terminal.expect("release it? [y/N] ");
        terminal.press(answer);
        terminal.expect(result);
        assert_eq!(terminal.end(), Some(code));
    }
    assert_eq!(holder.ask("mu job"), "NF");
}

#[test]
fn unlock_spares_a_new_holder() {
    let server = Started::latchd();
    let (mut a, mut b) = (Holder::new(&server), Holder::new(&server));
    a.lock("ml job F");
    let mut terminal = Terminal::start(&mut program("unlock", &server.address(), &["job"]));
    terminal.expect("[y/N] ");
    a.ask("mu job");
    b.lock("ml job F");
    terminal.press("y\r");
    terminal.expect("another holder now, or none");
    assert_eq!(terminal.end(), Some(1));
    assert_eq!(b.ask("mu job"), "HD");
}

#[test]
fn password_user_releases_by_fence() {
    let passwords = std::env::temp_dir().join(format!("latchd-unlock-{}", std::process::id()));
    fs::write(&passwords, "fred:secret\nann:other\n").unwrap();
    let server = Started::latchd_with(0, |config| config.auth_file = Some(passwords.clone()));
    let mut fred = Holder::new(&server);
    assert_eq!(fred.ask("set x 0 0 11\r\nfred secret"), "STORED");
    fred.lock("ml job F");
    // A session of one user, released by another.
    let mut second = Holder::new(&server);
    assert_eq!(second.ask("set x 0 0 11\r\nfred secret"), "STORED");
    second.ask("mo 0123456789abcdef T30");
    second.lock("ml leased T60 F");
    for key in ["job", "leased"] {
        let (code, _, complaint) = unlock(&server, &["--yes", key]);
        assert_eq!(code, Some(2), "{complaint}");
        assert!(complaint.contains("--user"), "{complaint}");
        let mut command = program("unlock", &server.address(), &["--user", "ann", "-y", key]);
        command.env("LATCHD_PASSWORD", "other");
        let (code, said, complaint) = outcome(command);
        assert_eq!((code, complaint.as_str()), (Some(0), ""), "{said}");
    }
    fs::remove_file(passwords).unwrap();
}

#[test]
fn servers_without_lists_are_reported() {
    let mut servers = vec![Started::latchd_with(0, |config| {
        config.allowed.listing = false;
    })];
    servers.extend(Started::memcached());
    for server in servers {
        for (code, said, complaint) in [locks(&server, &[]), unlock(&server, &["-y", "k"])] {
            assert_eq!((code, said.as_str()), (Some(2), ""));
            assert!(complaint.contains("cannot list the locks"), "{complaint}");
        }
    }
    let (code, _, complaint) = outcome(program("locks", "127.0.0.1:1", &[]));
    assert_eq!(code, Some(69));
    assert!(complaint.contains("127.0.0.1:1: "), "{complaint}");
}
