//! Several leases against a server of a few lines.

extern crate std;

use alloc::string::String;

use super::*;
use crate::Session;

const fn at(ms: u64) -> Instant {
    Instant::from_millis(ms)
}

fn leases(keys: &[&str], terms: &Terms) -> Leases {
    let keys: Vec<Key<'_>> = keys
        .iter()
        .map(|key| Key::new(key.as_bytes()).unwrap())
        .collect();
    let value = TokenValue::new(Token::new(b"me").unwrap(), b"").unwrap();
    let mut leases = Leases::new(&keys, &value, terms).unwrap();
    leases.connected(at(0));
    leases
}

fn terms() -> Terms {
    Terms {
        watchdog: false,
        ..Terms::new(Duration::from_secs(3)).unwrap()
    }
}

/// Plays until it waits; `serve` answers its requests. Returns all its actions.
fn play(leases: &mut Leases, ms: u64, serve: impl Fn(&str) -> &'static str) -> Vec<String> {
    let mut done = Vec::new();
    loop {
        let mut session = Session::new();
        match leases.poll(at(ms)) {
            Action::Send(request) => {
                let mut out = Vec::new();
                session.send(&request, &mut out).unwrap();
                let line = String::from_utf8(out).unwrap();
                let line = line.lines().next().unwrap();
                done.push(line.into());
                let answer = serve(line);
                if answer.is_empty() {
                    continue;
                }
                let received = session.receive(answer.as_bytes()).unwrap().unwrap();
                leases.reply(at(ms), &received.answer);
            }
            Action::Tell(news) => done.push(std::format!("{news:?}")),
            Action::Wait { until } => {
                assert!(
                    until.is_none_or(|until| until > at(ms)),
                    "it waits for the past"
                );
                return done;
            }
            Action::Connect { .. } => {
                done.push("connect".into());
                return done;
            }
            Action::Disconnect => {
                done.push("disconnect".into());
                return done;
            }
        }
    }
}

#[test]
fn all_are_obtained_in_order_and_given_back_in_reverse() {
    let mut both = leases(&["b", "a"], &terms());
    both.obtain(at(0));
    assert_eq!(
        play(&mut both, 0, |_| "HD c5\r\n"),
        [
            "ms a 2 ME F1818583411 T5 c",
            "ms b 2 ME F1818583411 T5 c",
            "Obtained"
        ]
    );
    assert!(both.is_held(at(0)));
    both.release(at(1));
    assert_eq!(
        play(&mut both, 1, |_| "HD\r\n"),
        ["md b C5", "md a C5", "Released"]
    );
    assert!(both.is_idle());
}

#[test]
fn one_refused_key_releases_the_others() {
    let mut three = leases(&["a", "b", "c"], &terms());
    three.obtain(at(0));
    let serve = |line: &str| match line.split(' ').take(2).last() {
        Some("c") => "NS c0\r\n",
        _ if line.starts_with("md") => "HD\r\n",
        _ => "HD c5\r\n",
    };
    assert_eq!(
        play(&mut three, 0, serve),
        [
            "ms a 2 ME F1818583411 T5 c",
            "ms b 2 ME F1818583411 T5 c",
            "ms c 2 ME F1818583411 T5 c",
            "md b C5",
            "md a C5",
            "NotObtained(Held)"
        ]
    );
    assert!(!three.is_held(at(0)) && three.is_idle());
}

#[test]
fn unanswered_obtain_is_reported_before_cleanup() {
    let mut one = leases(&["a"], &terms());
    one.obtain(at(0));
    assert_eq!(play(&mut one, 0, |_| ""), ["ms a 2 ME F1818583411 T5 c"]);
    assert_eq!(play(&mut one, 3_100, |_| ""), [""; 0]);
    assert_eq!(play(&mut one, 3_100 + 250, |_| ""), ["Failed(NoAnswer)"]);
    assert!(!one.is_idle());
    let mut session = Session::new();
    let noop = crate::Flags::of([]);
    let key = Key::new(b"a").unwrap();
    let get = AnyRequest::meta(latchd_protocol::wire::meta::Verb::Get, key, noop);
    session.send(&get, &mut Vec::new()).unwrap();
    let late = session.receive(b"HD c5\r\n").unwrap().unwrap();
    one.reply(at(3_400), &late.answer);
    assert_eq!(play(&mut one, 3_400, |_| "HD\r\n"), ["md a C5"]);
    assert!(one.is_idle());
}

#[test]
fn expiry_during_obtain_fails_all() {
    let patient = Terms {
        deadline: Some(Duration::from_secs(60)),
        retry: crate::Retry::linear(Duration::from_secs(4)),
        ..terms()
    };
    let mut both = leases(&["a", "b"], &patient);
    both.obtain(at(0));
    let serve = |line: &str| match line.split(' ').take(2).last() {
        Some("a") => "HD c5\r\n",
        _ => "NS c0\r\n",
    };
    play(&mut both, 0, serve);
    assert_eq!(
        play(&mut both, 3_000, |_| "NF\r\n"),
        ["md a C5", "NotObtained(Deadline)"]
    );
}

#[test]
fn refresh_and_loss_concern_all_keys() {
    let mut both = leases(&["a", "b"], &terms());
    both.obtain(at(0));
    play(&mut both, 0, |_| "HD c5\r\n");
    both.refresh(at(1_000), Duration::from_secs(10)).unwrap();
    assert_eq!(
        play(&mut both, 1_000, |_| "HD c6\r\n"),
        [
            "ms a 2 C5 F1818583411 T12 c",
            "ms b 2 C5 F1818583411 T12 c",
            "Refreshed"
        ]
    );
    assert_eq!(both.deadline(), Some(at(11_000)));
    both.refresh(at(2_000), Duration::from_secs(10)).unwrap();
    let serve = |line: &str| match line.split(' ').take(2).last() {
        Some("a") => "HD c7\r\n",
        _ if line.starts_with("mg") => "EN\r\n",
        _ => "NF\r\n",
    };
    let done = play(&mut both, 2_000, serve);
    assert_eq!(done.last().unwrap(), "Lost(Taken)");
    assert!(!both.is_held(at(2_000)));
    assert_eq!(both.deadline(), None);
    // The other is still on the server, and is removed.
    both.release(at(2_001));
    assert_eq!(play(&mut both, 2_001, |_| "HD\r\n"), ["md a C7", "NotHeld"]);
}

#[test]
fn keys_must_be_there_and_differ() {
    let value = TokenValue::new(Token::new(b"me").unwrap(), b"").unwrap();
    let key = Key::new(b"a").unwrap();
    assert_eq!(Leases::new(&[], &value, &terms()), Err(TermsError::Keys));
    assert_eq!(
        Leases::new(&[key, key], &value, &terms()),
        Err(TermsError::Keys)
    );
}

#[test]
fn loss_during_release_is_no_answer() {
    let terms = Terms {
        on_disconnect: crate::OnDisconnect::Lost,
        ..terms()
    };
    let mut both = leases(&["a", "b"], &terms);
    both.obtain(at(0));
    play(&mut both, 0, |_| "HD c5\r\n");
    // Each has its loss to report, and is released before the caller asks for that.
    both.disconnected(at(1));
    both.release(at(2));
    both.connected(at(3));
    let serve = |line: &str| match line {
        _ if line.starts_with("mg") => "VA 2 c5 t3\r\nme\r\n",
        _ => "HD\r\n",
    };
    assert_eq!(
        play(&mut both, 3, serve),
        ["mg b v c t", "md b C5", "mg a v c t", "md a C5", "Released"]
    );
    assert!(both.is_idle());
}

#[test]
fn unnoticed_end_is_reported_on_call() {
    let asks: [fn(&mut Leases); 2] = [
        |both| both.refresh(at(9_000), Duration::from_secs(1)).unwrap(),
        |both| both.measure(at(9_000)),
    ];
    for ask in asks {
        let mut both = leases(&["a", "b"], &terms());
        both.obtain(at(0));
        play(&mut both, 0, |_| "HD c7\r\n");
        assert!(both.is_held(at(0)));
        ask(&mut both);
        assert_eq!(play(&mut both, 9_000, |_| ""), ["Lost(Expired)"]);
        ask(&mut both);
        assert_eq!(play(&mut both, 9_000, |_| ""), ["NotHeld"]);
    }
}

#[test]
fn calls_during_release_report_not_held() {
    let mut both = leases(&["a", "b"], &terms());
    both.obtain(at(0));
    play(&mut both, 0, |_| "HD c7\r\n");
    // Their time is over as well, which was not noticed yet.
    both.release(at(9_000));
    both.measure(at(9_000));
    let done = play(&mut both, 9_000, |_| "HD\r\n");
    assert_eq!(done, ["NotHeld", "md b C7", "md a C7", "Released"]);
}

#[test]
fn held_leases_report_their_state() {
    let mut both = leases(&["b", "a"], &terms());
    assert!(both.keys().eq([b"a".as_slice(), b"b"]));
    assert_eq!(both.token(), Some(&Token::new(b"me").unwrap()));
    assert_eq!((both.deadline(), both.number(0)), (None, None));
    both.obtain(at(0));
    let serve = |line: &str| {
        if line.starts_with("ms a") {
            "HD c5\r\n"
        } else {
            "HD c6\r\n"
        }
    };
    play(&mut both, 0, serve);
    let numbers = [0, 1, 2].map(|place| both.number(place).map(Cas::number));
    assert_eq!(numbers, [Some(5), Some(6), None]);
    assert_eq!(both.deadline(), Some(at(3_000)));
    assert!(both.is_held(at(2_999)) && !both.is_held(at(3_000)));
    both.disconnected(at(1));
    assert!(both.is_in_doubt() && !both.is_held(at(1)));
    assert_eq!(
        both.deadline(),
        Some(at(3_000)),
        "they are not lost for that"
    );
    both.release(at(2));
    assert_eq!(both.deadline(), None);
}

#[test]
fn one_failure_fails_the_call_for_all() {
    let mut both = leases(&["a", "b"], &terms());
    both.obtain(at(0));
    play(&mut both, 0, |_| "HD c7\r\n");
    let busy = |line: &str| match line.split(' ').nth(1) {
        Some("a") => "SERVER_ERROR busy\r\n",
        _ if line.starts_with("mg") => "VA 2 c8 t3\r\nme\r\n",
        _ => "HD c8\r\n",
    };
    let undone = "Undone(Refused(\"SERVER_ERROR busy\"))";
    both.refresh(at(1), Duration::from_secs(9)).unwrap();
    assert_eq!(
        play(&mut both, 1, busy),
        [
            "ms a 2 C7 F1818583411 T11 c",
            "mg a v c t",
            "ms b 2 C7 F1818583411 T11 c",
            undone
        ]
    );
    both.measure(at(1));
    assert_eq!(
        play(&mut both, 1, busy),
        ["mg a v c t", "mg b v c t", undone]
    );
    // A failed refresh does not make the next one fail.
    both.refresh(at(1), Duration::from_secs(9)).unwrap();
    let done = play(&mut both, 1, |_| "HD c8\r\n");
    assert_eq!(
        done,
        [
            "ms a 2 C7 F1818583411 T11 c",
            "ms b 2 C8 F1818583411 T11 c",
            "Refreshed"
        ]
    );
}

#[test]
fn shortest_lease_decides_for_all() {
    let mut three = leases(&["a", "b", "c"], &terms());
    three.obtain(at(0));
    play(&mut three, 0, |_| "HD c7\r\n");
    let serve = |line: &str| match line.split(' ').nth(1) {
        Some("b") => "VA 2 c7 t2\r\nme\r\n",
        _ => "VA 2 c7 t4\r\nme\r\n",
    };
    for _ in 0..2 {
        three.measure(at(1));
        let done = play(&mut three, 1, serve);
        assert_eq!(
            done,
            ["mg a v c t", "mg b v c t", "mg c v c t", "Lasts(2s)"]
        );
    }
}

#[test]
fn missing_lease_means_no_deadline() {
    let mut both = leases(&["a", "b"], &terms());
    both.obtain(at(0));
    play(&mut both, 0, |_| "HD c5\r\n");
    assert_eq!(both.deadline(), Some(at(3_000)));
    both.refresh(at(100), Duration::from_secs(3)).unwrap();
    let mut say = |answer: &str| {
        let Action::Send(request) = both.poll(at(100)) else {
            panic!("it asks");
        };
        let mut session = Session::new();
        session.send(&request, &mut Vec::new()).unwrap();
        let received = session.receive(answer.as_bytes()).unwrap().unwrap();
        both.reply(at(100), &received.answer);
    };
    say("HD c6\r\n");
    say("NF\r\n");
    // It asks for the item's token; there is no item.
    say("EN\r\n");
    assert_eq!((both.deadline(), both.is_held(at(100))), (None, false));
    let lost = LeaseNews::Lost(Loss::Taken);
    assert_eq!(both.poll(at(100)), Action::Tell(lost));
}

/// A lease on a server that is asked for its hold, and its connection.
fn confirmed() -> Leases {
    let mut lease = leases(&["a"], &terms());
    lease.confirm();
    lease.connected(at(0));
    lease
}

const ADD: &str = "ms a 2 ME F1818583411 T5 c";

#[test]
fn hold_bounds_the_belief() {
    let mut lease = confirmed();
    lease.obtain(at(0));
    let serve = |line: &str| match line {
        "mn H" => "MN H600\r\n",
        _ => "HD c5\r\n",
    };
    assert_eq!(play(&mut lease, 0, serve), [ADD, "mn H", "Obtained"]);
    assert_eq!(lease.deadline(), Some(at(600)), "U1");
    let until = Some(at(200));
    assert_eq!(lease.poll(at(199)), Action::Wait { until });
    assert_eq!(play(&mut lease, 200, serve), ["mn H"], "U3");
    assert_eq!(lease.deadline(), Some(at(800)));
    // The server is paused, or another one serves.
    assert_eq!(play(&mut lease, 400, |_| ""), ["mn H"]);
    let until = Some(at(800));
    assert_eq!(lease.poll(at(799)), Action::Wait { until });
    assert!(lease.is_held(at(799)) && !lease.is_held(at(800)));
    assert_eq!(play(&mut lease, 800, |_| ""), ["Lost(Unconfirmed)"]);
    assert_eq!(lease.deadline(), None);
}

#[test]
fn server_without_hold_is_asked_once() {
    for answer in ["MN\r\n", "ERROR\r\n"] {
        let mut lease = confirmed();
        lease.obtain(at(0));
        let serve = |line: &str| if line == "mn H" { answer } else { "HD c5\r\n" };
        assert_eq!(play(&mut lease, 0, serve), [ADD, "mn H", "Obtained"]);
        assert_eq!(lease.deadline(), Some(at(3_000)));
        assert_eq!(play(&mut lease, 2_000, serve), [""; 0]);
        // Another server may be behind the next connection.
        lease.disconnected(at(2_000));
        assert_eq!(play(&mut lease, 2_000, serve), ["connect"]);
        lease.connected(at(2_000));
        let serve = |line: &str| match line {
            "mn H" => "MN H600\r\n",
            _ if line.starts_with("mg") => "VA 2 c6 t3\r\nme\r\n",
            _ => "HD c7\r\n",
        };
        let asked = play(&mut lease, 2_000, serve);
        assert_eq!(asked[..2], ["mg a v c t", "mn H"], "U2");
        assert_eq!(lease.deadline(), Some(at(2_600)));
    }
}

#[test]
fn server_that_lacks_holds_is_not_asked() {
    let mut lease = confirmed();
    lease.hold_support(HoldSupport::Lacks);
    lease.obtain(at(0));
    assert_eq!(play(&mut lease, 0, |_| "HD c5\r\n"), [ADD, "Obtained"]);
    assert_eq!(lease.deadline(), Some(at(3_000)), "U4");
    // A member of a cluster is behind the next connection.
    lease.disconnected(at(1_000));
    assert_eq!(play(&mut lease, 1_000, |_| ""), ["connect"]);
    lease.connected(at(1_000));
    lease.hold_support(HoldSupport::Shows);
    let serve = |line: &str| match line {
        "mn H" => "MN H600\r\n",
        _ if line.starts_with("mg") => "VA 2 c6 t3\r\nme\r\n",
        _ => "HD c7\r\n",
    };
    let asked = play(&mut lease, 1_000, serve);
    assert_eq!(asked[..2], ["mg a v c t", "mn H"], "U2");
    assert_eq!(lease.deadline(), Some(at(1_600)), "U1");
    // A server without holds follows: the last hold still bounds the belief.
    lease.disconnected(at(1_100));
    assert_eq!(play(&mut lease, 1_100, |_| ""), ["connect"]);
    lease.connected(at(1_100));
    lease.hold_support(HoldSupport::Lacks);
    let asked = play(&mut lease, 1_100, |_| "");
    assert_eq!(asked, ["mg a v c t", "mn H"]);
    assert_eq!(lease.deadline(), Some(at(1_600)), "U1");
}

#[test]
fn question_of_another_user_is_awaited() {
    for (support, asked) in [
        (HoldSupport::Lacks, &["Obtained"][..]),
        (HoldSupport::Shows, &["mn H"]),
        (HoldSupport::Unknown, &["mn H"]),
    ] {
        let mut lease = confirmed();
        lease.hold_support(HoldSupport::Asked);
        lease.obtain(at(0));
        assert_eq!(play(&mut lease, 0, |_| ""), [ADD], "U4");
        lease.hold_support(support);
        let mut session = Session::new();
        let change = AnyRequest::meta(
            latchd_protocol::wire::meta::Verb::Set,
            Key::new(b"a").unwrap(),
            crate::Flags::of([]),
        );
        session.expect(&change).unwrap();
        let received = session.receive(b"HD c5\r\n").unwrap().unwrap();
        lease.reply(at(10), &received.answer);
        assert_eq!(play(&mut lease, 10, |_| ""), asked, "{support:?}");
        let is_obtained = support == HoldSupport::Lacks;
        assert_eq!(lease.is_held(at(10)), is_obtained, "U2");
    }
}

#[test]
fn server_that_is_not_primary_is_asked_again() {
    let mut lease = confirmed();
    lease.obtain(at(0));
    let serve = |line: &str| match line {
        "mn H" => "SERVER_ERROR not primary\r\n",
        _ => "HD c5\r\n",
    };
    assert_eq!(play(&mut lease, 0, serve), [ADD, "mn H", "Obtained"]);
    assert_eq!(play(&mut lease, 999, serve), [""; 0]);
    assert_eq!(play(&mut lease, 1_000, serve), ["mn H"]);
}

#[test]
fn lease_is_not_obtained_after_the_hold() {
    let mut lease = confirmed();
    lease.obtain(at(0));
    assert_eq!(play(&mut lease, 0, |_| ""), [ADD, "mn H"]);
    let mut session = Session::new();
    let mut say = |lease: &mut Leases, request: &AnyRequest<'_>, answer: &str| {
        session.expect(request).unwrap();
        let received = session.receive(answer.as_bytes()).unwrap().unwrap();
        lease.reply(at(400), &received.answer);
    };
    let add = AnyRequest::meta(
        latchd_protocol::wire::meta::Verb::Set,
        Key::new(b"a").unwrap(),
        crate::Flags::of([]),
    );
    say(&mut lease, &add, "HD c5\r\n");
    assert_eq!(play(&mut lease, 400, |_| ""), [""; 0], "U2");
    assert!(!lease.is_held(at(400)));
    say(&mut lease, &AnyRequest::Hold, "MN H300\r\n");
    let serve = |line: &str| match line {
        "mn H" => "",
        _ => "HD\r\n",
    };
    let done = play(&mut lease, 400, serve);
    assert_eq!(done, ["md a C5", "Failed(NoAnswer)"], "U1, U2");
    assert!(!lease.is_held(at(400)));
}

/// A primary that leaves shows no hold. Another client has held the key before.
#[test]
fn grant_without_hold_is_given_back() {
    let patient = Terms {
        deadline: Some(Duration::from_secs(60)),
        retry: crate::Retry::linear(Duration::from_secs(1)),
        ..terms()
    };
    let mut lease = leases(&["a"], &patient);
    lease.confirm();
    lease.obtain(at(0));
    let serve = |line: &str| if line == "mn H" { "" } else { "NS\r\n" };
    assert_eq!(play(&mut lease, 0, serve)[0], ADD);
    lease.disconnected(at(500));
    assert_eq!(play(&mut lease, 1_000, serve), ["connect"]);
    lease.connected(at(1_000));
    let serve = |line: &str| match line {
        "mn H" => "MN H0\r\n",
        _ => "HD c5\r\n",
    };
    let done = play(&mut lease, 1_000, serve);
    assert_eq!(done[..2], [ADD, "mn H"]);
    assert_eq!(done[2..], ["md a C5", "Failed(NoAnswer)"], "U2");
}

#[test]
fn obtain_without_an_answer_about_the_hold_fails() {
    let mut lease = confirmed();
    lease.obtain(at(0));
    let serve = |line: &str| match line {
        "mn H" => "",
        _ => "HD c5\r\n",
    };
    assert_eq!(play(&mut lease, 0, serve), [ADD, "mn H"]);
    let until = Some(at(3_000));
    // The lease itself runs out first: its obtain may take as long as its ttl.
    assert_eq!(lease.poll(at(1)), Action::Wait { until });
    let done = play(&mut lease, 3_000, |_| "");
    assert_eq!(done, ["md a C5"]);
    let done = play(&mut lease, 3_000 + 250, |_| "");
    assert_eq!(done, ["Failed(NoAnswer)"]);
}

#[test]
fn refused_connection_is_the_answer_to_the_lease() {
    let mut lease = confirmed();
    lease.obtain(at(0));
    let serve = |line: &str| match line {
        "mn H" => "",
        _ => "ERROR Too many open connections\r\n",
    };
    let done = play(&mut lease, 0, serve);
    assert_eq!(done[..2], [ADD, "mn H"]);
    assert!(done[2].starts_with("Failed(Refused("), "{done:?}");
}
