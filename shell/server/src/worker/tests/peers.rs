//! The peers of clients: silent, slow and reset ones, and those that watch.

use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;

use rustix::net::sockopt;

use super::*;
use crate::net::dead_peer::silence;

const APPEND: &str = "append large 0 0 1 noreply\r\nv\r\n";

impl Bench {
    /// The state of a client in `stats conns`.
    fn state(&self, client: &Peer) -> String {
        let (lines, _) = self.shared.connection_table.lines(self.now, 0);
        let name = format!("{}:state", client.number);
        let line = lines.into_iter().find(|line| line.name == name);
        line.unwrap().value
    }
}

#[test]
fn silent_peers_are_probed() {
    let mut bench = Bench::new(1, |_| ());
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (socket, _) = listener.accept().unwrap();
    let [stream, ours] = [stream, socket.try_clone().unwrap()].map(OwnedFd::from);
    let mut peer = bench.adopt(0, stream.into(), ours.into());
    let idle = || sockopt::tcp_keepidle(&socket).unwrap();
    let at_first = idle();
    peer.say("mn\r\n");
    bench.quiet();
    let mut silent_ms = 0;
    while idle() == at_first {
        assert!(silent_ms < 30_000, "it is not probed");
        silent_ms += 100;
        bench.pass(100);
        bench.round(0);
    }
    let expected = silence(Duration::from_secs(60));
    assert_eq!(idle(), expected, "A2");
    assert!(silent_ms >= expected.as_secs() * 1_000, "{silent_ms}");
    peer.say("ml k\r\n");
    bench.quiet();
    assert_eq!(idle(), silence(bench.shared.config.dead_peer), "A1");
    drop((peer, socket));
    bench.end();
}

#[test]
fn each_state_of_a_client_is_shown() {
    let mut bench = Bench::new(1, |_| ());
    let mut clients = [(); 6].map(|()| bench.connect(0));
    bench.store(&mut clients[0], "large", 1_000_000);
    bench.store(&mut clients[0], "small", 2_000);
    clients[0].say("ml k\r\n");
    bench.quiet();
    clients[5].say("set k 0 0 1\r\nab\r\nstats\r\n");
    bench.quiet();
    assert!(clients[5].heard().contains("cmd_set 3\r\n"));
    clients[0].say("mn\r\n");
    clients[1].say("mn");
    clients[2].say("ml k w60000\r\n");
    clients[3].say("mg small v\r\n".repeat(1_000));
    clients[4].say(APPEND.repeat(9));
    clients[5].say("watch connevents\r\n");
    bench.round(0);
    let states = clients.each_ref().map(|client| bench.state(client));
    let expected = "conn_read conn_nread conn_waiting conn_mwrite conn_parse_cmd conn_watch";
    assert_eq!(states.join(" "), expected);
    bench.quiet();
    assert_eq!(bench.state(&clients[4]), "conn_read", "all is done");
    drop(clients);
    bench.end();
}

/// The requests of a reset connection are not executed any more: its locks do not wait for them.
#[test]
fn reset_frees_locks_at_once() {
    let mut bench = Bench::new(1, |_| ());
    let [mut holder, mut other] = [(); 2].map(|()| bench.connect(0));
    bench.store(&mut other, "large", 1_000_000);
    holder.say(["ml k\r\n", &APPEND.repeat(9)].concat());
    bench.round(0);
    assert_eq!(bench.state(&holder), "conn_parse_cmd");
    // It has not read its reply, so this is a reset.
    drop(holder);
    other.say("ml k\r\n");
    bench.round(0);
    assert_eq!(other.heard(), "HD\r\n");
    drop(other);
    bench.end();
}

/// V6: its reply comes before the lines that are queued for it in the same round.
#[test]
fn watcher_reads_its_reply_first() {
    let mut bench = Bench::new(1, |_| ());
    let [mut watcher, mut other] = [(); 2].map(|()| bench.connect(0));
    bench.quiet();
    watcher.say("watch fetchers\r\n");
    other.say("mg k\r\n");
    bench.shared.mailbox(0).post(Message::Sweep);
    bench.round(0);
    let heard = watcher.heard();
    let line = heard.strip_prefix("OK\r\n").expect("the reply is first");
    assert!(line.contains("key=k"), "{heard}");
    drop((watcher, other));
    bench.end();
}

/// A watcher that does not read leaves its worker at rest, and loses the order of no lines.
#[test]
fn slow_watcher_reads_lines_in_order() {
    let mut bench = Bench::new(2, |_| ());
    let (mut watcher, mut other) = (bench.connect(0), bench.connect(1));
    watcher.say("watch fetchers\r\n");
    bench.quiet();
    assert_eq!(watcher.heard(), "OK\r\n");
    let mut requests = (1_000..).map(|key| format!("mg {key} q\r\n"));
    let mut heard = String::new();
    for _ in 0..3 {
        for _ in 0..30 {
            other.say(requests.by_ref().take(100).collect::<String>());
            bench.quiet();
        }
        // The worker sees the next line before it sees that there is space again.
        other.say(requests.next().unwrap());
        bench.round(1);
        heard += &watcher.heard();
        bench.quiet();
    }
    heard += &watcher.heard();
    let key = |line: &str| line.split("key=").nth(1)?.split(' ').next()?.parse().ok();
    let read: Vec<u64> = heard.lines().filter_map(key).collect();
    assert!(read.is_sorted() && read.len() > 3_000, "{}", read.len());
    drop((watcher, other));
    bench.end();
}

#[test]
fn watcher_reads_once_that_a_session_is_resumed() {
    let mut bench = Bench::new(1, |_| ());
    let [mut watcher, mut one, mut other] = [(); 3].map(|()| bench.connect(0));
    let open = "mo a-token-of-its-own T60\r\n";
    watcher.say("watch locks\r\n");
    one.say(open);
    bench.quiet();
    drop(one);
    bench.quiet();
    other.say(open.repeat(2));
    bench.quiet();
    let lines = watcher.heard();
    assert_eq!(lines.matches("resume").count(), 1, "{lines}");
    drop((watcher, other));
    bench.end();
}
