//! `latchd bench`: load on latchd and memcached, over each kind of connection, and its failures.

use std::fmt::Debug;
use std::fs;
use std::process::{Child, Command, Output, Stdio};
use std::str::FromStr;

use latchd_server::UnixSocket;
use rustix::process::{Pid, Signal, kill_process};

use crate::certificates::Authority;
use crate::support::terminal::Terminal;
use crate::support::{Proxy, Started, eventually, free_port};

fn bench(address: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_latchd"));
    command
        .args(["bench", "-s", address])
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// The figures of a load that succeeds.
fn measured(address: &str, arguments: &[&str]) -> String {
    let output = bench(address, arguments).output().unwrap();
    let (code, said, complaint) = outcome(&output);
    assert_eq!((code, complaint.as_str()), (Some(0), ""), "{arguments:?}");
    said
}

fn outcome(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

/// The number of a member of a JSON object, the first with this name.
fn number<T>(json: &str, name: &str) -> T
where
    T: FromStr,
    T::Err: Debug,
{
    let (_, rest) = json.split_once(&format!("\"{name}\": ")).unwrap();
    let end = rest.find([',', '\n']).unwrap();
    rest[..end].parse().unwrap()
}

/// The part of the JSON about one kind of operation.
fn operation<'a>(json: &'a str, name: &str) -> &'a str {
    let (_, rest) = json.split_once(&format!("\"name\": \"{name}\"")).unwrap();
    rest
}

/// Waits until the server has executed a thousand requests of this statistic.
fn until_busy(server: &Started, statistic: &str) {
    eventually(|| {
        let stats = server.ask("stats\r\n", "END\r\n");
        let (_, count) = stats.split_once(&format!("STAT {statistic} "))?;
        let count: u64 = count.lines().next()?.parse().ok()?;
        (count >= 1_000).then_some(())
    });
}

/// A load without an end.
fn endless(address: &str, more: &[&str]) -> Child {
    let arguments = [&["-d", "3600", "-c", "4", "-k", "100"], more].concat();
    bench(address, &arguments).spawn().unwrap()
}

fn interrupt(child: &Child) {
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
}

#[test]
fn gets_and_sets_are_counted_on_every_server() {
    let common = ["-n", "2001", "-c", "7", "-t", "2", "-k", "500", "--json"];
    for server in Started::all() {
        for more in [
            &["-B", "meta", "-P", "5"][..],
            &["-B", "text", "--value-size", "8"],
            &["-B", "binary", "--distribution", "zipf", "--gets", "0"],
        ] {
            let json = measured(&server.address(), &[&common, more].concat());
            let case = format!("{} {more:?}: {json}", server.name());
            assert_eq!(
                number::<u64>(operation(&json, "all"), "count"),
                2001,
                "{case}"
            );
            assert_eq!(number::<u64>(&json, "misses"), 0, "{case}");
            assert!(
                number::<u64>(operation(&json, "set"), "count") > 100,
                "{case}"
            );
            assert!(
                number::<f64>(operation(&json, "all"), "max_us") > 0.0,
                "{case}"
            );
            assert!(json.contains("\"interrupted\": false"), "{case}");
        }
        let items = server.ask("stats\r\n", "END\r\n");
        assert!(items.contains("STAT curr_items 500\r\n"), "{items}");
    }
}

#[test]
fn a_table_shows_rates_and_a_histogram() {
    let server = Started::latchd();
    let arguments = ["-n", "1000", "-c", "3", "-k", "10", "--no-fill"];
    let table = measured(
        &server.address(),
        &[&arguments[..], &["--gets", "100"]].concat(),
    );
    let heading = table.lines().nth(2).unwrap();
    let columns = [
        "count",
        "op/s",
        "p50 µs",
        "p90 µs",
        "p99 µs",
        "p99.9 µs",
        "max µs",
    ];
    assert_eq!(
        heading
            .split("  ")
            .map(str::trim)
            .filter(|c| !c.is_empty())
            .collect::<Vec<_>>(),
        columns
    );
    assert!(
        table.contains("3 clients, 1 thread, 1 request at a time; 10 keys"),
        "{table}"
    );
    assert!(table.contains("\n  get  1,000"), "{table}");
    assert!(!table.contains("\n  set"), "nothing was set: {table}");
    assert!(table.contains("\nlatency of all:\n  up to µs"), "{table}");
    assert!(table.contains("1,000 gets found nothing"), "{table}");
}

#[test]
fn no_lock_stays_held_after_the_load() {
    let server = Started::latchd();
    for arguments in [
        &["lock", "-n", "501", "-P", "3", "-k", "20"][..],
        &["lock", "-n", "501", "-B", "text"],
        &["lock", "-n", "501", "-B", "binary"],
        &["handover", "-n", "501", "-k", "2"],
    ] {
        let more = ["-c", "8", "-t", "2", "--json"];
        let json = measured(&server.address(), &[arguments, &more].concat());
        for name in ["lock", "unlock"] {
            let count: u64 = number(operation(&json, name), "count");
            assert_eq!(count, 501, "{arguments:?} {name}: {json}");
        }
        let stats = server.ask("stats\r\n", "END\r\n");
        assert!(stats.contains("STAT locks_held 0\r\n"), "{stats}");
    }
}

/// Eight clients want one key, so nearly each lock is handed over by the one before.
#[test]
fn handovers_of_a_contended_lock_are_measured() {
    let server = Started::latchd();
    let arguments = ["handover", "-n", "400", "-c", "8", "-t", "2", "--json"];
    let json = measured(&server.address(), &arguments);
    let handed_over = operation(&json, "hand-over");
    assert!(number::<u64>(handed_over, "count") > 100, "{json}");
    assert!(number::<f64>(handed_over, "p50_us") > 0.0, "{json}");
    // From the release of the one before, a lock cannot take longer than from its request.
    let waited: f64 = number(operation(&json, "lock"), "max_us");
    assert!(
        number::<f64>(handed_over, "max_us") <= waited * 1.01,
        "{json}"
    );
}

#[test]
fn unix_sockets_and_tls_carry_the_load() {
    let path = std::env::temp_dir().join(format!("latchd-bench-{}.sock", std::process::id()));
    let server = Started::latchd_with(0, |config| {
        config.unix_socket = Some(UnixSocket {
            path: path.clone(),
            mode: 0o700,
        });
    });
    let arguments = ["-n", "3000", "-c", "5", "-P", "9", "-k", "100", "--json"];
    let json = measured(path.to_str().unwrap(), &arguments);
    assert_eq!(
        number::<u64>(operation(&json, "all"), "count"),
        3000,
        "{json}"
    );
    drop(server);
    let authority = Authority::new();
    let server = Started::latchd_with(0, |config| authority.secure(config));
    let trusted = authority.certificate();
    let tls = ["--tls", "--tls-ca", trusted.to_str().unwrap()];
    // Many records under way in each direction, and batches that no socket accepts at once.
    for size in ["100", "100000"] {
        let sized = [
            &arguments[..],
            &tls,
            &["--value-size", size, "--gets", "50"],
        ]
        .concat();
        let json = measured(&server.address(), &sized);
        assert_eq!(
            number::<u64>(operation(&json, "all"), "count"),
            3000,
            "{json}"
        );
    }
    let (code, _, complaint) = outcome(&bench(&server.address(), &[]).output().unwrap());
    assert_eq!(code, Some(69), "{complaint}");
    assert!(complaint.contains("requires TLS"), "{complaint}");
}

#[test]
fn sigint_ends_the_load_with_its_figures() {
    for (workload, name, statistic) in [
        ("cache", "get", "cmd_get"),
        ("lock", "lock", "cmd_lock"),
        ("handover", "lock", "cmd_lock"),
    ] {
        let server = Started::latchd();
        let child = endless(&server.address(), &["--no-fill", workload]);
        until_busy(&server, statistic);
        interrupt(&child);
        let (code, said, complaint) = outcome(&child.wait_with_output().unwrap());
        assert_eq!((code, complaint.as_str()), (Some(0), ""), "{workload}");
        assert!(said.contains(&format!("\n  {name} ")), "{said}");
        assert!(said.contains("note: interrupted\n"), "{said}");
        let stats = server.ask("stats\r\n", "END\r\n");
        assert!(stats.contains("STAT locks_held 0\r\n"), "{stats}");
    }
}

#[test]
fn a_lost_connection_is_reported_without_figures() {
    let server = Started::latchd();
    let proxy = Proxy::start(server.address());
    let child = endless(&proxy.address(), &[]);
    until_busy(&server, "cmd_get");
    proxy.cut();
    let (code, said, complaint) = outcome(&child.wait_with_output().unwrap());
    assert_eq!((code, said.as_str()), (Some(69), ""), "{complaint}");
    let start = format!("latchd: {}: cache, after ", proxy.address());
    assert!(complaint.starts_with(&start), "{complaint}");
    assert!(complaint.contains("closed the connection"), "{complaint}");
}

#[test]
fn a_changed_value_is_reported_as_a_wrong_reply() {
    let server = Started::latchd();
    let child = endless(&server.address(), &["--gets", "100"]);
    until_busy(&server, "cmd_get");
    let key = "latchd:bench:item:number00000000";
    server.ask(&format!("set {key} 0 0 3\r\nabc\r\n"), "STORED\r\n");
    let (code, said, complaint) = outcome(&child.wait_with_output().unwrap());
    assert_eq!((code, said.as_str()), (Some(69), ""), "{complaint}");
    assert!(
        complaint.contains("was answered VA 3\\r\\nabc"),
        "{complaint}"
    );
}

#[test]
fn a_server_without_locks_is_named() {
    let Some(server) = Started::memcached() else {
        return;
    };
    for (arguments, words) in [
        (
            &["lock"][..],
            "it replied `ERROR`; use latchd or, with -B text, yrmcds",
        ),
        (
            &["lock", "-B", "text"],
            "it replied `ERROR`; use latchd or yrmcds",
        ),
        (&["handover"], "it replied `ERROR`; use latchd\n"),
    ] {
        let (code, said, complaint) =
            outcome(&bench(&server.address(), arguments).output().unwrap());
        assert_eq!((code, said.as_str()), (Some(2), ""), "{arguments:?}");
        assert!(complaint.contains("has no such locks"), "{complaint}");
        assert!(complaint.contains(words), "{arguments:?}: {complaint}");
    }
}

#[test]
fn full_servers_are_reported_with_advice() {
    let server = Started::latchd_with(0, |config| config.connections_max = 20);
    let (code, said, complaint) =
        outcome(&bench(&server.address(), &["-c", "50"]).output().unwrap());
    assert_eq!((code, said.as_str()), (Some(69), ""), "{complaint}");
    let advice = "Too many open connections\\r\\n; raise -c of the server, or lower --clients";
    assert!(complaint.contains(advice), "{complaint}");
}

#[test]
fn an_unreachable_server_is_code_69() {
    let nowhere = format!("127.0.0.1:{}", free_port());
    let (code, said, complaint) = outcome(&bench(&nowhere, &[]).output().unwrap());
    assert_eq!((code, said.as_str()), (Some(69), ""), "{complaint}");
    assert!(
        complaint.starts_with(&format!("latchd: {nowhere}: ")),
        "{complaint}"
    );
    let path = std::env::temp_dir().join("latchd-bench-nowhere.sock");
    assert!(!fs::exists(&path).unwrap());
    let output = bench(path.to_str().unwrap(), &[]).output().unwrap();
    assert_eq!(output.status.code(), Some(69));
}

#[test]
fn contradicting_options_are_refused() {
    for arguments in [
        &["handover", "-B", "text"][..],
        &["handover", "-P", "2"],
        &["lock", "-k", "10", "-c", "11"],
        &["lock", "--distribution", "zipf"],
        &["-k", "10000001", "--distribution", "zipf"],
        &["-c", "1000", "-P", "100", "--value-size", "1000000"],
        &["--value-size", "7"],
        &["--gets", "101"],
        &["-c", "0"],
    ] {
        let output = bench("127.0.0.1:1", arguments).output().unwrap();
        let (code, _, complaint) = outcome(&output);
        assert_eq!(code, Some(2), "{arguments:?}: {complaint}");
        assert!(!complaint.is_empty());
    }
}

#[test]
fn a_terminal_shows_the_progress() {
    let server = Started::latchd();
    let mut terminal = Terminal::start(
        // If the tests run in the background, Ctrl-C is ignored by them and by their children.
        Command::new("env")
            .args(["--default-signal=INT", "setsid", "--ctty"])
            .args([
                env!("CARGO_BIN_EXE_latchd"),
                "bench",
                "-s",
                &server.address(),
            ])
            .args(["-d", "3600", "-c", "2", "-k", "10"]),
    );
    terminal.expect("cache: ");
    terminal.expect(" op/s, ");
    terminal.expect(" of 3600 s");
    terminal.press("\x03");
    terminal.expect("note: interrupted");
    assert_eq!(terminal.end(), Some(0));
}
