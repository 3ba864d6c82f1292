//! The clients that have their turns in one round, and those that do not.

use super::*;

/// The bytes of a request that is collected in a buffer of its own.
const LONG: usize = 60_000;

/// Whether this is so in most of many tries. On a busy machine a round may take longer than its spans, and the rest has
/// the next round.
fn happens(is_so: impl Fn(&mut Bench) -> bool) {
    let is_so = |_: &usize| {
        let mut bench = Bench::new(1, idle_after_10_s);
        let is_so = is_so(&mut bench);
        bench.end();
        is_so
    };
    let times = (0..50).filter(is_so).count();
    assert!(times > 25, "{times} times in 50 tries");
}

fn idle_after_10_s(config: &mut Config) {
    config.idle_timeout = Some(Duration::from_secs(10));
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
    happens(|bench| {
        let [mut one, mut two, mut other] = [(); 3].map(|()| bench.connect(0));
        one.say("ml a\r\n");
        two.say("ml b\r\n");
        bench.quiet();
        other.say("ml a\r\nml b\r\n");
        drop((one, two));
        bench.round(0);
        other.heard() == "HD\r\nHD\r\n"
    });
}

#[test]
fn ended_waits_share_a_round() {
    happens(|bench| {
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
        heard == ["HD\r\n", "HD\r\n"]
    });
}

#[test]
fn long_requests_share_a_round() {
    happens(|bench| {
        let mut clients = [(); 2].map(|()| bench.connect(0));
        let rests = clients
            .each_mut()
            .map(|client| begin_long(client, &client.number.to_string()));
        bench.quiet();
        for (client, rest) in clients.iter_mut().zip(rests) {
            client.say(rest);
        }
        bench.round(0);
        clients.each_mut().map(Peer::heard) == ["STORED\r\n", "STORED\r\n"]
    });
}

#[test]
fn idle_clients_share_a_round() {
    happens(|bench| {
        let mut clients = [(); 3].map(|()| bench.connect(0));
        bench.quiet();
        bench.pass(10_001);
        bench.shared.mailbox(0).post(Message::Sweep);
        bench.round(0);
        clients.each_mut().map(Peer::hear) == [false; 3]
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
    let (event, worker) = (bench.events(0)[0], &mut bench.workers[0]);
    assert!(worker.is_put_behind(event) && worker.is_put_behind(event));
    // It stands in the queue once.
    worker.check();
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

/// Only a client that could ask and holds nothing is idle, and only beyond the limit. A request keeps it from being idle
/// even if it is quiet or wrong, but not before it is complete.
#[test]
fn idle_clients_are_closed() {
    let mut bench = Bench::new(1, idle_after_10_s);
    let mut clients = [(); 7].map(|()| bench.connect(0));
    let mut are_open = |bench: &mut Bench, requests: &[&str], ms| {
        for (client, request) in clients.iter_mut().zip(requests) {
            client.say(request);
            bench.quiet();
        }
        bench.pass(ms);
        bench.shared.mailbox(0).post(Message::Sweep);
        bench.quiet();
        clients.each_mut().map(|client| u8::from(client.hear()))
    };
    let first = [
        "mn\r\n",
        "ml k\r\n",
        "ml k w60000\r\n",
        "watch fetchers\r\n",
    ];
    assert_eq!(are_open(&mut bench, &first, 5_000), [1; 7]);
    let later = ["", "", "", "", "mg k q\r\n", "nonsense\r\n", "mn"];
    assert_eq!(are_open(&mut bench, &later, 5_000), [1; 7]);
    assert_eq!(are_open(&mut bench, &[], 1), [0, 1, 1, 1, 1, 1, 0]);
    assert_eq!(bench.stat("idle_kicks"), 2);
    assert_eq!(are_open(&mut bench, &[], 4_999), [0, 1, 1, 1, 1, 1, 0]);
    assert_eq!(are_open(&mut bench, &[], 1), [0, 1, 1, 1, 0, 0, 0]);
    drop(clients);
    bench.end();
}

/// The small replies of one round are sent together, those of a client in one turn.
#[test]
fn replies_wait_for_the_end_of_the_round() {
    for verbosity in [0, 2] {
        let mut bench = Bench::new(1, |config| config.verbosity = verbosity);
        let mut clients = [(); 3].map(|()| bench.connect(0));
        bench.quiet();
        for client in &mut clients {
            client.say("mg k\r\nmg k\r\nmg k\r\n");
        }
        for event in bench.events(0) {
            bench.workers[0].wake(event);
            assert_eq!(clients.each_mut().map(Peer::heard), [""; 3]);
        }
        bench.workers[0].send_deferred();
        let expected = "EN\r\nEN\r\nEN\r\n";
        assert_eq!(clients.each_mut().map(Peer::heard), [expected; 3]);
        drop(clients);
        bench.end();
    }
}

#[test]
fn worker_sleeps_until_its_next_probes() {
    let mut bench = Bench::new(1, |_| ());
    let client = bench.connect(0);
    bench.quiet();
    let left_ms = bench.workers[0].rounds.until_next_ms(bench.now);
    let patience = |bench: &mut Bench, ms| {
        bench.pass(ms);
        bench.round(0);
        let Timespec { tv_sec, tv_nsec } = bench.workers[0].patience()?;
        Some((tv_sec, tv_nsec))
    };
    assert_eq!(patience(&mut bench, left_ms - 1_000), Some((1, 0)));
    assert_eq!(patience(&mut bench, 1), Some((0, 999_000_000)));
    drop(client);
    assert_eq!(patience(&mut bench, 1), None, "it has no client");
    bench.end();
}
