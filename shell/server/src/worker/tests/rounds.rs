//! The clients that have their turns in one round, and those that do not.

use super::*;

/// The bytes of a request that is collected in a buffer of its own.
const LONG: usize = 60_000;

/// On a busy machine a round may take longer than its spans, and the rest has the next round. So one of several tries
/// is enough.
fn happens(is_so: impl Fn() -> bool) {
    assert!((0..100).any(|_| is_so()), "never in 100 tries");
}

/// A set of [`LONG`] bytes, of which the last ones are not sent.
fn begin_long(client: &mut Peer, key: &str) -> Vec<u8> {
    let mut bytes = format!("set {key} 0 0 {LONG}\r\n").into_bytes();
    bytes.resize(bytes.len() + LONG, b'v');
    bytes.extend_from_slice(b"\r\n");
    let rest = bytes.split_off(LONG);
    client.say(bytes);
    rest
}

#[test]
fn ends_share_a_round() {
    happens(|| {
        let mut bench = Bench::new(1, |_| ());
        let [mut one, mut two, mut other] = [(); 3].map(|()| bench.connect(0));
        one.say("ml a\r\n");
        two.say("ml b\r\n");
        bench.quiet();
        other.say("ml a\r\nml b\r\n");
        drop((one, two));
        bench.round(0);
        let is_so = other.heard() == "HD\r\nHD\r\n";
        drop(other);
        bench.end();
        is_so
    });
}

#[test]
fn ended_waits_share_a_round() {
    happens(|| {
        let mut bench = Bench::new(1, |_| ());
        let [mut holder, mut one, mut two] = [(); 3].map(|()| bench.connect(0));
        holder.say("ml a\r\nml b\r\n");
        bench.quiet();
        one.say("ml a w60000\r\n");
        two.say("ml b w60000\r\n");
        bench.quiet();
        holder.say("unlock_all\r\n");
        let mut heard = [String::new(), String::new()];
        while heard.iter().all(String::is_empty) {
            bench.round(0);
            heard = [one.heard(), two.heard()];
        }
        drop((holder, one, two));
        bench.end();
        heard == ["HD\r\n", "HD\r\n"]
    });
}

#[test]
fn long_requests_share_a_round() {
    happens(|| {
        let mut bench = Bench::new(1, |_| ());
        let mut clients = [(); 2].map(|()| bench.connect(0));
        let rests = clients
            .each_mut()
            .map(|client| begin_long(client, &client.number.to_string()));
        bench.quiet();
        for (client, rest) in clients.iter_mut().zip(rests) {
            client.say(rest);
        }
        bench.round(0);
        let heard = clients.each_mut().map(Peer::heard);
        drop(clients);
        bench.end();
        heard == ["STORED\r\n", "STORED\r\n"]
    });
}

/// The rest of a long request comes before another client's request, which is served first (V8).
#[test]
fn long_requests_are_put_behind() {
    let mut bench = Bench::new(1, |_| ());
    let [mut long, mut other] = [(); 2].map(|()| bench.connect(0));
    let rest = begin_long(&mut long, "k");
    bench.quiet();
    long.say(rest);
    other.say("mg k s\r\n");
    bench.round(0);
    assert_eq!(other.heard(), "EN\r\n", "V8");
    bench.quiet();
    assert_eq!(long.heard(), "STORED\r\n");
    other.say("mg k s\r\n");
    bench.quiet();
    assert_eq!(other.heard(), format!("HD s{LONG}\r\n"));
    drop((long, other));
    bench.end();
}

/// Only a client that could ask and holds nothing is idle, and only beyond the limit.
#[test]
fn idle_clients_are_closed() {
    let mut bench = Bench::new(1, |config| {
        config.idle_timeout = Some(Duration::from_secs(10));
    });
    let [mut idle, mut holder, mut waiter, mut watcher] = [(); 4].map(|()| bench.connect(0));
    idle.say("mn\r\n");
    holder.say("ml k\r\n");
    bench.quiet();
    waiter.say("ml k w60000\r\n");
    watcher.say("watch fetchers\r\n");
    bench.quiet();
    let mut are_open = |bench: &mut Bench, ms| {
        bench.pass(ms);
        bench.shared.mailbox(0).post(Message::Sweep);
        bench.quiet();
        [&mut idle, &mut holder, &mut waiter, &mut watcher].map(Peer::hear)
    };
    assert_eq!(are_open(&mut bench, 10_000), [true; 4]);
    assert_eq!(are_open(&mut bench, 1), [false, true, true, true]);
    assert_eq!(bench.stat("idle_kicks"), 1);
    let mut late = bench.connect(0);
    bench.quiet();
    assert_eq!(are_open(&mut bench, 10_000), [false, true, true, true]);
    assert!(
        late.hear(),
        "it has asked nothing, and is not idle for longer"
    );
    assert_eq!(are_open(&mut bench, 1), [false, true, true, true]);
    assert!(!late.hear());
    drop((idle, holder, waiter, watcher));
    bench.end();
}
