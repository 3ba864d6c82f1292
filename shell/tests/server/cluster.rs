//! `latchd cluster init` and `latchd cluster status`, against a real etcd and without one.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use latchd_cluster::election::{Authority, Id, PartitionRecord, State, partition_key};
use latchd_cluster::{AuthorityOptions, Etcd, InTurn};

use crate::etcd_process::EtcdProcess;
use crate::port::free_port;

/// The exit code, the output and the messages of `latchd cluster` with these words.
fn cluster(words: &[&str], environment: &[(&str, &str)]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_latchd"))
        .arg("cluster")
        .args(words)
        // It does not count: requests go to etcd itself.
        .env("http_proxy", "http://127.0.0.1:1")
        .env("ALL_PROXY", "http://127.0.0.1:1")
        .envs(environment.iter().copied())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (
        output.status.code(),
        text(output.stdout),
        text(output.stderr),
    )
}

fn authority(etcd: &EtcdProcess) -> InTurn {
    let options = AuthorityOptions::new(vec![etcd.url().parse().unwrap()]);
    Etcd::new(&options).unwrap().in_turn()
}

/// A primary that sends heartbeats until it is dropped.
struct Primary {
    stop: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Primary {
    /// Claims the partition, and returns after the first heartbeat.
    fn start(etcd: &EtcdProcess, partition: &str, state: State) -> Self {
        let mut authority = authority(etcd);
        let key = partition_key("shop", partition).unwrap();
        let mut record = PartitionRecord {
            term: 3,
            id: Id(7),
            beat: 0,
            state,
            address: "10.0.0.1:11211".into(),
            floor: 1,
            version: "1.2.3".into(),
        };
        let mut beat = move || {
            record.beat += 1;
            let found = authority.read(&key).unwrap();
            authority
                .swap(&key, found.as_ref(), &record.to_json())
                .unwrap();
        };
        beat();
        let stop = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            while !is_over.load(Ordering::SeqCst) {
                beat();
                thread::sleep(Duration::from_millis(100));
            }
        });
        Self {
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Primary {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.take().unwrap().join().unwrap();
    }
}

#[test]
fn a_ring_is_written_once() {
    let Some(etcd) = EtcdProcess::start(&[]) else {
        return;
    };
    let url = etcd.url();
    let environment = [("LATCHD_AUTHORITY", &*url), ("LATCHD_CLUSTER", "shop")];
    let (code, _, said) = cluster(&["status"], &environment);
    assert_eq!(code, Some(69));
    assert_eq!(
        said,
        "latchd: there is no cluster shop; run `latchd cluster init`\n"
    );

    let names = ["cache-a:11211", "cache-b:11211=3"];
    let words = [
        &["init", "--authority", &url, "--cluster", "shop"],
        &names[..],
    ]
    .concat();
    let (code, shown, said) = cluster(&words, &[]);
    assert_eq!((code, said.as_str()), (Some(0), ""), "{shown}");
    let ring = "cache-a:11211, cache-b:11211=3 (hold 3600 ms, wait 4000 ms)";
    let first = format!("created cluster shop: {ring}\n");
    assert!(shown.starts_with(&first), "{shown}");
    let written = authority(&etcd).read("/latchd/shop/ring").unwrap();
    let (code, shown, said) = cluster(&["init", "cache-c:1"], &environment);
    assert_eq!((code, shown.as_str()), (Some(1), ""));
    assert_eq!(
        said,
        format!("latchd: cluster shop exists already, unchanged: {ring}\n")
    );
    assert_eq!(authority(&etcd).read("/latchd/shop/ring").unwrap(), written);
    // Clusters do not know each other.
    let words = [
        "init",
        "--cluster",
        "other",
        "--hold",
        "1200",
        "--wait",
        "1400",
        "c:1",
    ];
    let (code, shown, _) = cluster(&words, &environment);
    assert_eq!(code, Some(0));
    assert!(
        shown.starts_with("created cluster other: c:1 (hold 1200 ms, wait 1400 ms)\n"),
        "{shown}"
    );
}

#[test]
fn the_status_shows_each_primary() {
    let Some(etcd) = EtcdProcess::start(&[]) else {
        return;
    };
    let url = etcd.url();
    let environment = [("LATCHD_AUTHORITY", &*url), ("LATCHD_CLUSTER", "shop")];
    let (a, b) = ("cache-a:11211", "cache-b:11211");
    assert_eq!(cluster(&["init", a, b], &environment).0, Some(0));
    let serving = Primary::start(&etcd, a, State::Serving);
    let (code, shown, said) = cluster(&["status"], &environment);
    assert_eq!(code, Some(1), "{shown}");
    assert_eq!(said, "latchd: no primary: cache-b:11211\n");
    let lines: Vec<Vec<_>> = shown
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(
        lines[1][..4],
        [a, "serving", "10.0.0.1:11211", "3"],
        "{shown}"
    );
    assert_eq!(
        lines[2],
        [b, "unclaimed", "-", "-", "-", "-", "-"],
        "{shown}"
    );

    let leaving = Primary::start(&etcd, b, State::Leaving);
    let (code, shown, said) = cluster(&["status", "--json"], &environment);
    assert_eq!((code, said.as_str()), (Some(0), ""), "{shown}");
    assert!(
        shown.starts_with("{\"cluster\":\"shop\",\"id\":\""),
        "{shown}"
    );
    assert!(
        shown.contains("\"name\":\"cache-b:11211\",\"weight\":1,\"state\":\"leaving\""),
        "{shown}"
    );

    drop((serving, leaving));
    let newer = authority(&etcd)
        .read("/latchd/shop/partition/cache-b:11211")
        .unwrap();
    let mut authority = authority(&etcd);
    let key = partition_key("shop", b).unwrap();
    authority
        .swap(&key, newer.as_ref(), "{\"format\":2}")
        .unwrap();
    let (code, shown, said) = cluster(&["status"], &environment);
    assert_eq!(code, Some(1), "{shown}");
    assert_eq!(said, "latchd: no primary: cache-a:11211, cache-b:11211\n");
    assert!(shown.contains("  silent  "), "{shown}");
    assert!(
        shown.contains("cache-b:11211 in cluster shop is not usable: format 2"),
        "{shown}"
    );
    // A ring of a newer version.
    authority
        .swap("/latchd/new/ring", None, "{\"format\":2}")
        .unwrap();
    for words in [
        &["status", "--cluster", "new"][..],
        &["init", "--cluster", "new", "c:1"],
    ] {
        let (code, _, said) = cluster(words, &environment);
        assert_eq!(code, Some(69), "{words:?}");
        assert!(
            said.contains("the ring of cluster new is not usable: format 2"),
            "{said}"
        );
    }
}

#[test]
fn a_wrong_option_is_named() {
    let to = ["--authority", "http://127.0.0.1:1", "--cluster", "shop"];
    for (words, part) in [
        (
            &["init", "a:1"][..],
            "add --authority URL and --cluster NAME",
        ),
        (
            &["init", "--cluster", "shop", "a:1"],
            "--cluster: there is no authority",
        ),
        (
            &["status", "--authority", "http://a"],
            "--authority: there is no name; add --cluster NAME",
        ),
        (
            &["status", "--authority", "etcd:2379", "--cluster", "shop"],
            "`etcd:2379`: no scheme",
        ),
        (
            &["status", "--authority", "http://a/v3", "--cluster", "shop"],
            "a path, a query or a fragment",
        ),
        (
            &[
                "status",
                "--authority",
                "http://a,http://a:2379",
                "--cluster",
                "shop",
            ],
            "named twice",
        ),
        (
            &["status", "--authority", "http://a", "--cluster", "a/b"],
            "expected a name of 1 to 64 letters",
        ),
        (
            &[
                "status",
                "--authority",
                "http://a",
                "--cluster",
                "s",
                "--authority-ca",
                "x",
            ],
            "no endpoint uses TLS",
        ),
        (
            &[
                "status",
                "--authority",
                "http://a",
                "--cluster",
                "s",
                "--authority-user",
                "x",
            ],
            "set LATCHD_AUTHORITY_PASSWORD",
        ),
        (
            &[
                "status",
                "--authority",
                "http://a",
                "--cluster",
                "s",
                "--authority-password-file",
                "x",
            ],
            "there is no user",
        ),
        (&["init", "a:1", "b"], "expected HOST:PORT"),
        (&["init", "a:1", "A:1"], "A:1 is named twice"),
        (
            &["init", "--hold", "3600", "--wait", "3600", "a:1"],
            "--wait 3600 is too short for --hold 3600; use at least 3980",
        ),
        (
            &["init", "--hold", "1000", "a:1"],
            "latchd: --hold 1000 is out of range; use 1200 to 600000",
        ),
        (
            &["init", "--wait", "700000", "a:1"],
            "latchd: --wait 700000 is out of range; use at most 600000",
        ),
        (&["init"], "<PARTITION>"),
        (&[], "Usage: latchd cluster"),
    ] {
        let (code, shown, said) = cluster(words, &[]);
        assert_eq!((code, shown.as_str()), (Some(2), ""), "{words:?}: {said}");
        assert!(said.contains(part), "{words:?}: {said}");
    }
    let many: Vec<_> = (0..257).map(|at| format!("a{at}:1")).collect();
    let many: Vec<_> = many.iter().map(String::as_str).collect();
    let (code, _, said) = cluster(&[&["init"], &to[..], &many].concat(), &[]);
    assert_eq!(code, Some(2));
    assert!(said.contains("257 partitions; name at most 256"), "{said}");
    let (code, _, said) = cluster(
        &["status"],
        &[("LATCHD_AUTHORITY", "http://"), ("LATCHD_CLUSTER", "s")],
    );
    assert_eq!(code, Some(2));
    assert!(said.contains("LATCHD_AUTHORITY: `http://`"), "{said}");
}

#[test]
fn an_etcd_that_is_not_there_is_named() {
    let urls = [free_port(), free_port()].map(|port| format!("http://127.0.0.1:{port}"));
    let list = urls.join(",");
    let flags = ["--authority", &*list, "--cluster", "shop"];
    for words in [&["status"][..], &["init", "a:1"]] {
        let (code, shown, said) = cluster(&[words, &flags].concat(), &[]);
        assert_eq!((code, shown.as_str()), (Some(69), ""), "{said}");
        for url in &urls {
            let part = format!("{url}: unreachable: connection refused");
            assert!(said.contains(&part), "{said}");
        }
        assert!(!said.contains("may have been written"), "{said}");
    }
    let flags = [
        "--authority",
        "https://127.0.0.1:1",
        "--cluster",
        "s",
        "--authority-ca",
        "/none",
    ];
    let (code, _, said) = cluster(&[&["status"], &flags[..]].concat(), &[]);
    assert_eq!(code, Some(71));
    assert!(said.contains("/none: No such file"), "{said}");
}

#[test]
fn the_password_comes_from_a_file_or_the_environment() {
    let Some(etcd) = EtcdProcess::start(&[]) else {
        return;
    };
    etcd.add_users();
    let url = etcd.url();
    let file = std::env::temp_dir().join(format!("latchd-etcd-password-{}", std::process::id()));
    let file_text = file.to_str().unwrap();
    std::fs::write(&file, "secret\r\nanother line\n").unwrap();
    let user = ["--authority-user", "latchd"];
    let with = |words: &[&str], password: &[(&str, &str)]| {
        let place = [("LATCHD_AUTHORITY", &*url), ("LATCHD_CLUSTER", "shop")];
        cluster(words, &[&place, password].concat())
    };
    let (code, _, said) = with(&["init", "a:1"], &[]);
    assert_eq!(code, Some(69));
    assert!(
        said.contains("authentication: etcdserver: user name is empty; set --authority-user"),
        "{said}"
    );
    let words = [
        &["init", "a:1", "--authority-password-file", file_text][..],
        &user,
    ]
    .concat();
    assert_eq!(with(&words, &[]).0, Some(0));
    std::fs::remove_file(&file).unwrap();
    let (code, _, said) = with(&words, &[]);
    assert_eq!(code, Some(2));
    assert!(
        said.contains("--authority-password-file: cannot read"),
        "{said}"
    );
    let words = [&["status"][..], &user].concat();
    let variable = |password| [("LATCHD_AUTHORITY_PASSWORD", password)];
    assert_eq!(with(&words, &variable("secret")).0, Some(1));
    let (code, _, said) = with(&words, &variable("wrong"));
    assert_eq!(code, Some(69));
    assert!(
        said.contains("authentication: etcdserver: authentication failed"),
        "{said}"
    );
}
