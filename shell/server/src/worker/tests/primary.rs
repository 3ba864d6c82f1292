//! A member of a cluster: it executes and replies while it is the primary (E2, E3).

use latchd_cluster::{AuthorityOptions, Candidacy, ClusterSettings};

use super::*;
use crate::os::threads::spawn_thread;

/// A server that is the primary for good, with one worker.
fn primary() -> (Bench, Arc<Member>) {
    let authority = AuthorityOptions::new(vec!["http://127.0.0.1:1".parse().unwrap()]);
    let settings = ClusterSettings::new(authority, "shop".into(), "here:1".into());
    let here = "127.0.0.1:1".parse().unwrap();
    let candidacy = Candidacy::new(&settings, &[here], 1, spawn_thread).unwrap();
    let member = Arc::clone(candidacy.member());
    open(&member);
    let bench = Bench::of(1, Some(Arc::clone(&member)), |_| ());
    (bench, member)
}

fn open(member: &Member) {
    let never = Instant::from_millis(u64::MAX);
    member.serving_lease().set(Some(never), None);
}

fn close(member: &Member) {
    member.serving_lease().set(None, None);
}

/// A client is closed if it holds a lock, waits, or has a bound win or a session.
#[test]
fn suspended_server_keeps_idle_clients() {
    let (mut bench, member) = primary();
    let mut clients = [(); 5].map(|()| bench.connect(0));
    let requests = [
        "mg k\r\n",
        "ml k\r\n",
        "ml k w60000\r\n",
        "mg w N30 B v\r\n",
        "mo a-token-of-its-own T60\r\n",
    ];
    for (client, request) in clients.iter_mut().zip(requests) {
        client.say(request);
        bench.quiet();
        client.heard();
    }
    // Its reply is deferred when it is closed.
    clients[1].say("mn\r\n");
    bench.shared.mailbox(0).post(Message::Suspend(7));
    bench.round(0);
    let are_open = clients.each_mut().map(Peer::hear);
    assert_eq!(are_open, [true, false, false, false, false], "E3");
    assert_eq!(clients[1].heard(), "MN\r\n");
    assert_eq!(member.rounds().next(), Some(7));
    drop(clients);
    bench.end();
}

#[test]
fn only_the_primary_serves() {
    let (mut bench, member) = primary();
    let mut client = bench.connect(0);
    let mut ask = |request| {
        client.say(request);
        bench.quiet();
        client.heard()
    };
    let hold = ask("mn H\r\n");
    let hold_ms = hold.strip_prefix("MN H").map(|ms| ms.trim().parse());
    assert!(matches!(hold_ms, Some(Ok(2_u64..))), "{hold}");
    member.set_servers("here:1".into());
    assert!(ask("config get cluster\r\n").contains("here:1"));
    close(&member);
    let refusal = "SERVER_ERROR not primary\r\n";
    assert_eq!(ask("ms k 1\r\nv\r\nmg k v\r\n"), refusal.repeat(2));
    open(&member);
    assert_eq!(ask("mg k v\r\n"), "EN\r\n", "it was not executed");
    drop(client);
    bench.end();
}

/// The term may end between the execution of a request and its reply, which is deferred or not.
#[test]
fn replies_end_with_the_term() {
    for (request, ends_in_turn, reply) in [
        ("ms k 1\r\nv\r\n", false, ""),
        ("ms k 1\r\nv\r\n", true, ""),
        ("ms k 1\r\nv\r\nquit\r\n", false, "HD\r\n"),
        ("ms k 1\r\nv\r\nquit\r\n", true, ""),
    ] {
        let (mut bench, member) = primary();
        let mut client = bench.connect(0);
        bench.quiet();
        client.say(request);
        let (worker, name) = (&mut bench.workers[0], Token::client(0, client.number));
        worker.have_turn(name, FIRST_TURN, |client, turn| {
            if ends_in_turn {
                close(&member);
            }
            client.advance(EventFlags::IN, turn)
        });
        close(&member);
        worker.send_deferred();
        assert!(!client.hear(), "it is closed");
        assert_eq!(client.heard(), reply, "E2");
        bench.end();
    }
}
