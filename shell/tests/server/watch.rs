//! Watching a server in this process, over real sockets.

use std::time::{Duration, Instant};

use latchd_server::{Server, UnixSocket};

use crate::client::{TestClient, address, start};

fn client(server: &Server) -> TestClient {
    TestClient::connect(address(server))
}

/// A client that watches, from another thread than `others` are served by, or from the same.
fn watching(server: &Server, topics: &str) -> TestClient {
    let mut watcher = client(server);
    assert_eq!(watcher.ask(&format!("watch {topics}")), "OK");
    watcher
}

/// The next line, without its time and number.
fn event(watcher: &mut TestClient) -> String {
    let line = watcher.line();
    let mut words = line.splitn(3, ' ');
    let (time, number) = (words.next().unwrap(), words.next().unwrap());
    assert!(
        time.starts_with("ts=") && number.starts_with("gid="),
        "{line}"
    );
    words.next().unwrap().to_owned()
}

/// The number by which the server knows this client.
fn number(client: &mut TestClient) -> u64 {
    client.send("set me 0 0 1\r\nx\r\nlock me\r\nme me\r\nunlock me\r\n");
    assert_eq!(
        (client.line(), client.line()),
        ("STORED".into(), "OK".into())
    );
    let line = client.line();
    assert_eq!(client.line(), "OK");
    let number = line.split("lock=").nth(1).unwrap();
    let number = number.split(' ').next().unwrap();
    number.parse().unwrap()
}

#[test]
fn watchers_see_the_item_before_each_request() {
    let server = start(|config| config.threads = 2.try_into().unwrap());
    let mut asker = client(&server);
    let cfd = number(&mut asker);
    let mut watcher = watching(&server, "fetchers");
    for (asked, answer, status, size) in [
        ("get n,foo", "END", "not_found", 0),
        ("set n,foo 0 60 3\r\n110", "STORED", "not_found", 0),
        ("set n,foo 0 60 2\r\n10", "STORED", "found", 3),
        ("mg n,foo", "HD", "found", 2),
        ("decr n,foo 1", "9", "found", 2),
        ("delete n,foo", "DELETED", "found", 2),
        ("touch n,foo 1", "NOT_FOUND", "not_found", 0),
    ] {
        assert_eq!(asker.ask(asked), answer, "{asked}");
        let line = format!("status={status} clsid=1 cfd={cfd} size={size}");
        assert_eq!(
            event(&mut watcher),
            format!("type=item_get key=n%2Cfoo {line}"),
            "{asked}"
        );
    }
    asker.send("stats conns\r\n");
    let lines: Vec<_> = std::iter::repeat_with(|| asker.line())
        .take_while(|line| line != "END")
        .collect();
    let watching = lines.iter().filter(|line| line.ends_with("conn_watch"));
    assert_eq!(watching.count(), 1, "{lines:?}");
}

#[test]
fn watchers_see_stores_and_deletes_with_clients() {
    let server = start(|config| config.threads = 2.try_into().unwrap());
    let mut asker = client(&server);
    let cfd = number(&mut asker);
    let mut watcher = watching(&server, "mutations deletions");
    for (asked, answer, line) in [
        (
            "set k 0 60 3\r\nbar",
            "STORED",
            format!("item_store key=k status=stored cmd=set ttl=60 clsid=1 cfd={cfd} size=3"),
        ),
        (
            "add k 0 0 3\r\nbar",
            "NOT_STORED",
            format!("item_store key=k status=not_stored cmd=add ttl=0 clsid=1 cfd={cfd} size=3"),
        ),
        (
            "md k",
            "HD",
            format!("deleted key=k cmd=md clsid=1 cfd={cfd} size=3"),
        ),
        (
            "set k 0 0 1\r\n9",
            "STORED",
            format!("item_store key=k status=stored cmd=set ttl=0 clsid=1 cfd={cfd} size=1"),
        ),
        (
            "incr k 1",
            "10",
            format!("item_store key=k status=stored cmd=incr ttl=0 clsid=1 cfd={cfd} size=2"),
        ),
        (
            "delete k",
            "DELETED",
            format!("deleted key=k cmd=delete clsid=1 cfd={cfd} size=2"),
        ),
    ] {
        assert_eq!(asker.ask(asked), answer, "{asked}");
        assert_eq!(event(&mut watcher), format!("type={line}"));
    }
    assert_eq!(asker.stat("log_watchers"), "1");
    assert_eq!(asker.stat("log_watcher_sent"), "6");
    assert_eq!(asker.stat("log_watcher_skipped"), "0");
}

#[test]
fn watchers_see_locks_until_they_end() {
    let server = start(|config| config.threads = 2.try_into().unwrap());
    let (mut one, mut two) = (client(&server), client(&server));
    let (first, second) = (number(&mut one), number(&mut two));
    let mut watcher = watching(&server, "locks");
    assert_eq!(one.ask("lock me"), "OK");
    assert_eq!(
        event(&mut watcher),
        format!("type=lock key=me status=granted cfd={first}")
    );
    assert_eq!(two.ask("lock me"), "LOCKED");
    assert_eq!(
        event(&mut watcher),
        format!("type=lock key=me status=contended cfd={second}")
    );
    assert_eq!(one.ask("unlock me"), "OK");
    assert_eq!(
        event(&mut watcher),
        format!("type=unlock key=me status=released cfd={first}")
    );
    assert_eq!(two.ask("ml free"), "HD");
    let line = event(&mut watcher);
    let granted = format!("type=lock key=free status=granted cfd={second} fence=");
    assert!(line.starts_with(&granted), "{line}");
    let fence = line.split("fence=").nth(1).unwrap().to_owned();
    assert!(one.ask("ml free").starts_with("LK "));
    assert_eq!(
        event(&mut watcher),
        format!("type=lock key=free status=contended cfd={first} fence={fence}")
    );
    assert_eq!(one.ask("mu free"), "NF");
    assert_eq!(
        event(&mut watcher),
        format!("type=unlock key=free status=not_found cfd={first}")
    );
    drop(two);
    assert_eq!(
        event(&mut watcher),
        format!("type=unlock_all reason=closed cfd={second}")
    );
}

#[test]
fn closed_connections_are_shown_with_a_reason() {
    let server = start(|_| {});
    let mut watcher = watching(&server, "connevents");
    for (last, reason) in [
        (&b"quit\r\n"[..], "normal"),
        (b"GET / HTTP/1.1\r\n", "error"),
        (b"", "normal"),
    ] {
        let mut client = client(&server);
        let port = client.socket().local_addr().unwrap().port();
        let came = event(&mut watcher);
        let new = format!("type=conn_new rip=127.0.0.1 rport={port} transport=tcp cfd=");
        let cfd = came.strip_prefix(&new).unwrap_or_else(|| panic!("{came}"));
        client.send(last);
        drop(client);
        assert_eq!(
            event(&mut watcher),
            format!(
                "type=conn_close rip=127.0.0.1 rport={port} transport=tcp reason={reason} cfd={cfd}"
            )
        );
    }
}

#[test]
fn watchers_see_unix_and_idle_clients() {
    let path = std::env::temp_dir().join(format!("latchd-watched-{}", std::process::id()));
    let server = start(|config| {
        config.idle_timeout = Some(Duration::from_secs(1));
        config.unix_socket = Some(UnixSocket {
            path: path.clone(),
            mode: 0o600,
        });
    });
    let mut watcher = watching(&server, "connevents");
    let mut local = TestClient::connect_unix(&path);
    assert_eq!(local.ask("mn"), "MN");
    let came = event(&mut watcher);
    let endpoint = "rip=unix rport=0 transport=local";
    let new = format!("type=conn_new {endpoint} cfd=");
    let cfd = came.strip_prefix(&new).unwrap_or_else(|| panic!("{came}"));
    assert_eq!(
        event(&mut watcher),
        format!("type=conn_close {endpoint} reason=idle_timeout cfd={cfd}")
    );
}

/// A count is no line: the next line is about the next event.
#[test]
fn watchers_see_no_line_for_an_expired_lease() {
    let server = start(|_| {});
    let mut client = client(&server);
    let cfd = number(&mut client);
    let mut watcher = watching(&server, "locks");
    assert_eq!(client.ask("ml job T0.01"), "HD");
    assert!(event(&mut watcher).starts_with("type=lock key=job status=granted "));
    let started = Instant::now();
    while client.stat("lock_expired") == "0" {
        assert!(started.elapsed() < Duration::from_secs(10), "it ends");
    }
    assert_eq!(client.ask("mu job"), "NF");
    assert_eq!(
        event(&mut watcher),
        format!("type=unlock key=job status=not_found cfd={cfd}")
    );
}

#[test]
fn watchers_see_evictions() {
    let server = start(|config| {
        config.memory_bytes_max = 2 << 20;
        config.value_bytes_max = 64 << 10;
    });
    let mut watcher = watching(&server, "evictions");
    // The store learns within a tick that a client watches.
    let mut client = client(&server);
    for number in 0..400 {
        client.send(format!(
            "set k{number} 0 0 10000\r\n{}\r\n",
            "x".repeat(10_000)
        ));
        assert_eq!(client.line(), "STORED");
    }
    let line = event(&mut watcher);
    assert!(line.starts_with("type=eviction key=k"), "{line}");
    assert!(
        line.ends_with(" fetch=no ttl=-1 la=0 clsid=1 size=10000"),
        "{line}"
    );
}

/// The server does not wait for a watcher that does not read: it misses lines, and gets their
/// number.
#[test]
fn an_unread_watcher_delays_no_client() {
    let server = start(|_| {});
    let mut watcher = watching(&server, "fetchers");
    let mut client = client(&server);
    let key = "k".repeat(240);
    let gets = format!("get {key}\r\n").repeat(100);
    let started = Instant::now();
    while client.stat("log_watcher_skipped") == "0" {
        client.send(&gets);
        (0..100).for_each(|_| assert_eq!(client.line(), "END"));
        assert!(
            started.elapsed() < Duration::from_secs(60),
            "it takes them all"
        );
    }
    let skipped = loop {
        let line = watcher.line();
        if let Some(count) = line.strip_prefix("skipped=") {
            break count.parse::<u64>().unwrap();
        }
        assert!(line.contains(" type=item_get key=kkkk"), "{line}");
        // The next line that fits says how many were skipped.
        assert_eq!(client.ask("get one"), "END");
    };
    assert!(skipped > 0);
    assert!(watcher.line().contains(" type=item_get "));
}

#[test]
fn a_watchers_requests_are_ignored() {
    let server = start(|config| config.idle_timeout = Some(Duration::from_secs(1)));
    let mut watcher = watching(&server, "mutations");
    watcher.send("set k 0 0 1\r\nx\r\nquit\r\n");
    let mut client = client(&server);
    assert_eq!(client.ask("get k"), "END");
    assert_eq!(client.ask("set seen 0 0 1\r\nx"), "STORED");
    assert!(event(&mut watcher).starts_with("type=item_store key=seen "));
    drop(watcher);
    let started = Instant::now();
    while client.stat("log_watchers") != "0" {
        assert!(started.elapsed() < Duration::from_secs(10), "it is closed");
    }
}

#[test]
fn watching_is_refused_where_keys_are_hidden() {
    let server = start(|config| config.allowed.listing = false);
    let refused = "CLIENT_ERROR watch commands not allowed";
    for topics in ["", "fetchers", "locks connevents", "evictions"] {
        assert_eq!(client(&server).ask(&format!("watch {topics}")), refused);
    }
    assert_eq!(client(&server).ask("watch nonsense"), "ERROR");
    assert_eq!(client(&server).ask("watch connevents"), "OK");
    let server = start(|config| config.allowed.watching = false);
    assert_eq!(client(&server).ask("watch connevents"), refused);
    let server = start(|_| {});
    let _all: Vec<_> = (0..20).map(|_| watching(&server, "locks")).collect();
    assert_eq!(
        client(&server).ask("watch"),
        "WATCHER_TOO_MANY log watcher limit reached"
    );
}
