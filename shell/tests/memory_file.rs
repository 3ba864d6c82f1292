//! A restart that keeps the cache warm: `-e`. This is a test program of its own: a child process
//! started by another test would hold the lock of a file that was just closed, for a moment.

#![allow(clippy::unwrap_used)]

#[allow(dead_code)] // The tests of the server use the rest.
#[path = "server/client/mod.rs"]
mod client;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use client::{TestClient, address, start};
use latchd_server::{Config, ListenAddress, Server};

/// A folder of the test's own.
fn folder(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("memory-file-{name}"));
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).unwrap();
    path
}

fn with(path: &Path) -> impl Fn(&mut Config) {
    |config: &mut Config| {
        config.memory_file = Some(path.into());
        config.threads = 2.try_into().unwrap();
    }
}

fn client(server: &Server) -> TestClient {
    TestClient::connect(address(server))
}

/// The CAS of an item.
fn cas(client: &mut TestClient, key: &str) -> u64 {
    let line = client.ask(&format!("mg {key} c"));
    line.strip_prefix("HD c").unwrap().parse().unwrap()
}

/// The fence of a grant.
fn fence(line: &str) -> u64 {
    let digits = line.strip_prefix("HD F");
    digits.expect("it is granted").parse().unwrap()
}

#[test]
fn a_file_is_one_servers_at_a_time() {
    let path = folder("two").join("items");
    let first = start(with(&path));
    let second = |path: &Path| {
        let mut config = Config::default();
        config.listen = vec![ListenAddress::loopback(0)];
        with(path)(&mut config);
        Server::start(config)
    };
    let refused = second(&path).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ResourceBusy);
    let said = format!(
        "-e {}: in use by another server; give each server its own file",
        path.display()
    );
    assert_eq!(refused.to_string(), said);
    drop(second(&path.with_extension("other")).unwrap());
    // The first one is not disturbed, and the next one after it has its items.
    assert_eq!(client(&first).ask("set a 0 0 1\r\nx"), "STORED");
    drop(first);
    let third = second(&path).unwrap();
    assert_eq!(client(&third).ask("mg a v"), "VA 1");
}

#[test]
fn a_warm_restart_keeps_items_and_raises_numbers() {
    let path = folder("goes-on").join("items");
    let server = start(with(&path));
    let mut one = client(&server);
    for number in 0..500 {
        assert_eq!(
            one.ask(&format!("set k{number} {number} 0 1\r\nv")),
            "STORED"
        );
    }
    let large = "x".repeat(900_000);
    assert_eq!(
        one.ask(&format!("set large 7 0 900000\r\n{large}")),
        "STORED"
    );
    assert_eq!(one.ask("set expired 0 -1 1\r\nv"), "STORED");
    assert_eq!(one.ask("ms a2V5AGtleQ== 2 b T3600\r\nab"), "HD");
    assert_eq!(one.ask("mg win N600"), "HD W");
    assert_eq!(one.ask("mg win N600"), "HD Z");
    assert_eq!(one.ask("lock k1"), "OK");
    let fence = fence(&one.ask("ml held F"));
    let last_cas = cas(&mut one, "large");
    let chosen = [("time", 1_700_000_000_000), ("last", u64::MAX)];
    for (key, number) in chosen {
        assert_eq!(one.ask(&format!("ms {key} 1 E{number}\r\nv")), "HD");
    }
    server.shutdown();
    assert_eq!(one.rest(), b"", "the connection is closed");
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "items are nobody else's business");

    let server = start(with(&path));
    assert!(!path.exists(), "a file is read once");
    let mut two = client(&server);
    for number in 0..500 {
        two.send(format!("get k{number}\r\n"));
        assert_eq!(two.line(), format!("VALUE k{number} {number} 1"));
        assert_eq!((two.line(), two.line()), ("v".into(), "END".into()));
    }
    two.send("get large\r\n");
    assert_eq!(two.line(), "VALUE large 7 900000");
    assert_eq!((two.line(), two.line()), (large, "END".into()));
    assert_eq!(two.ask("get expired"), "END");
    assert_eq!(two.ask("mg a2V5AGtleQ== b s"), "HD s2");
    assert_eq!(
        two.ask("mg win N600"),
        "HD X W",
        "whoever asks next is to compute it"
    );
    assert_eq!(cas(&mut two, "large"), last_cas);
    assert_eq!(two.stat("locks_held"), "0");
    assert_eq!(two.ask("set new 0 0 1\r\nv"), "STORED");
    let new_cas = cas(&mut two, "new");
    assert!(last_cas < new_cas && new_cas < 1_000_000, "{new_cas}");
    for (key, number) in chosen {
        assert_eq!(cas(&mut two, key), number);
    }
    assert!(self::fence(&two.ask("ml held F")) > fence);
    two.send("stats settings\r\n");
    let shown = format!("STAT memory_file {}", path.display());
    while two.line() != shown {}
    server.shutdown();
    assert!(path.exists());
}

#[test]
fn a_damaged_file_is_refused_and_kept() {
    let path = folder("damaged").join("items");
    let server = start(with(&path));
    let mut one = client(&server);
    for number in 0..100 {
        assert_eq!(one.ask(&format!("set k{number} 0 0 1\r\nv")), "STORED");
    }
    server.shutdown();
    let mut bytes = fs::read(&path).unwrap();
    let last = bytes.len() - 30;
    bytes[last] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let server = start(with(&path));
    assert_eq!(client(&server).stat("curr_items"), "0");
    assert_eq!(fs::read(&path).unwrap(), bytes);
    server.shutdown();
    assert_ne!(
        fs::read(&path).unwrap(),
        bytes,
        "the end of that server is in it now"
    );
}

#[test]
fn an_unwritable_path_fails_at_start() {
    let mut config = Config::default();
    config.listen = vec![ListenAddress::loopback(0)];
    config.memory_file = Some(folder("nowhere").join("missing/items"));
    let error = Server::start(config).unwrap_err().to_string();
    assert!(
        error.starts_with("-e ") && error.contains("missing/items"),
        "{error}"
    );
}

#[test]
fn items_that_do_not_fit_are_left_out() {
    let path = folder("smaller").join("items");
    let server = start(with(&path));
    let mut one = client(&server);
    let large = "x".repeat(800_000);
    assert_eq!(
        one.ask(&format!("set large 0 0 800000\r\n{large}")),
        "STORED"
    );
    assert_eq!(one.ask("set small 0 0 1\r\nv"), "STORED");
    server.shutdown();
    let server = start(|config| {
        with(&path)(config);
        config.memory_bytes_max = 8 << 20;
        config.value_bytes_max = 64 << 10;
    });
    let mut two = client(&server);
    assert_eq!(two.ask("get large"), "END");
    assert_eq!(two.ask("mg small"), "HD");
}

/// The machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// A session, and the item of a lease.
const ASKED: [&str; 2] = [
    "mo 0123456789abcdef T1",
    "ms lease 5 ME F1818583411 T1\r\ntoken",
];

/// A place for the record of sessions and leases, and the file in it.
type Place = (fn(&Path, &mut Config), &'static str);

const PLACES: [Place; 2] = [
    (
        |folder, config| config.memory_file = Some(folder.join("items")),
        "items.beliefs",
    ),
    (
        |folder, config| config.state = Some(folder.into()),
        "latchd.beliefs",
    ),
];

/// The clients of the server before may believe for a second, also after its orderly end.
#[test]
fn restarted_server_withholds_locks() {
    for ((place, file), asked) in PLACES
        .into_iter()
        .flat_map(|it| ASKED.map(|asked| (it, asked)))
    {
        let folder = folder("withholds");
        let start = || start(|config| place(&folder, config));
        let server = start();
        let mut one = client(&server);
        assert_eq!(
            one.stat("locks_withheld_s"),
            "0",
            "there was no server before"
        );
        assert!(one.ask(asked).starts_with("HD"), "{asked}");
        // Of the session there is none, and `-e` keeps items.
        one.ask("delete lease");
        server.shutdown();

        let server = start();
        let mut two = client(&server);
        let left = two.stat("locks_withheld_s");
        assert!(left == "1" || left == "2", "{asked}: {left} s");
        assert_eq!(two.ask("ml k"), "LK h0 a0 n0", "{asked}");
        assert_eq!(two.ask("lock k"), "LOCKED");
        assert_eq!(two.ask("set k 0 0 1\r\nx"), "STORED");
        assert_eq!(two.ask("ml k w600000"), "HD");
        assert_eq!(two.ask("lock j"), "NOT_FOUND");
        // Its own times are of no session and no lease.
        let record = folder.join(file);
        let begun = Instant::now();
        while fs::read_to_string(&record).unwrap() != "format 1\nlongest_s 0\n" {
            assert!(begun.elapsed() < PATIENCE, "the record does not begin anew");
            two.ask("mn");
        }
        assert_eq!(two.stat("locks_withheld_s"), "0");
        server.shutdown();
        assert_eq!(client(&start()).ask("ml k"), "HD");
    }
}

#[test]
fn session_without_a_record_is_refused() {
    let refused = "SERVER_ERROR cannot record the time on disk; see the server's log";
    for (place, _) in PLACES {
        let folder = folder("unrecorded");
        let server = start(|config| place(&folder, config));
        fs::remove_dir_all(&folder).unwrap();
        let mut one = client(&server);
        for asked in ASKED {
            assert_eq!(one.ask(asked), refused);
        }
        assert_eq!(one.ask("set k 0 0 1\r\nx"), "STORED");
        assert_eq!(one.ask("ml k"), "HD");
    }
}
