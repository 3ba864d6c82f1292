//! The lock of the key beside the item (C7).

use super::*;

fn placed() -> Lease {
    let terms = Terms {
        queues: true,
        retry: Retry::linear(Duration::from_secs(1)),
        watchdog: true,
        ..terms()
    };
    let mut lease = lease(terms);
    lease.obtain(at(0));
    assert_eq!(step(&mut lease, 0), "ms k 2 ME F1818583411 T5 c\r\nme\r\n");
    assert_eq!(step(&mut lease, 0), "ml k F T6.000\r\n");
    lease
}

/// Plays one request and the server's answer to it.
fn expect(lease: &mut Lease, ms: u64, request: &str, answer: &str) {
    assert_eq!(step(lease, ms).replace("\r\n", " ").trim(), request);
    say(lease, ms, answer);
}

#[test]
fn place_comes_and_goes_with_the_item() {
    let mut lease = placed();
    say(&mut lease, 10, "HD c7\r\n");
    assert_eq!(step(&mut lease, 10), "Tell(Obtained)");
    // Nothing is sent before its answer, which is behind the answer to the add.
    lease.release(at(10));
    assert!(step(&mut lease, 10).starts_with("wait"));
    say(&mut lease, 10, "HD F5\r\n");
    expect(&mut lease, 10, "md k C7 G5 U", "HD\r\n");
    assert_eq!(step(&mut lease, 10), "Tell(Released)");
    assert!(!lease.owes_place());
}

#[test]
fn place_is_renewed_and_outlives_its_connection() {
    let mut lease = placed();
    say(&mut lease, 0, "HD c7\r\n");
    say(&mut lease, 0, "HD F5\r\n");
    assert_eq!(step(&mut lease, 0), "Tell(Obtained)");
    expect(
        &mut lease,
        1_000,
        "ms k 2 C7 F1818583411 T5 c G5 me",
        "HD c8\r\n",
    );
    expect(&mut lease, 1_000, "ml k F T6.000", "HD F5\r\n");
    lease.disconnected(at(1_500));
    lease.connected(at(1_500));
    // The server may still keep the old connection open, with its lock.
    expect(&mut lease, 1_500, "mg k v c t", MINE);
    expect(
        &mut lease,
        1_500,
        "ms k 2 C9 F1818583411 T5 c G5 me",
        "EX\r\n",
    );
    // It does not: the token decides, and the place is requested anew.
    expect(&mut lease, 1_500, "mu k F5", "NF\r\n");
    expect(&mut lease, 1_500, "mg k v c t", MINE);
    expect(
        &mut lease,
        1_500,
        "ms k 2 C9 F1818583411 T5 c me",
        "HD c10\r\n",
    );
    expect(&mut lease, 1_500, "ml k F T6.000", "HD F6\r\n");
    assert!(lease.is_held(at(4_499)));
    lease.detach();
    expect(&mut lease, 1_600, "mu k F6", "HD\r\n");
    assert_eq!(step(&mut lease, 1_600), "Tell(Detached)");
}

#[test]
fn held_lease_is_waited_for_in_the_queue() {
    // Locked by its holder; and held by a client without a place, so the key is released at once.
    for (place, leave) in [("LK h2 a0 n0\r\n", None), ("HD F4\r\n", Some("mu k F4"))] {
        let mut lease = placed();
        say(&mut lease, 0, "NS c0\r\n");
        say(&mut lease, 0, place);
        if let Some(request) = leave {
            expect(&mut lease, 0, request, "HD\r\n");
        }
        assert_eq!(step(&mut lease, 0), "Tell(Queues)");
        lease.granted(at(900), Fence::new(6));
        expect(
            &mut lease,
            900,
            "ms k 2 ME F1818583411 T5 c G6 me",
            "HD c9\r\n",
        );
        assert_eq!(step(&mut lease, 900), "Tell(Obtained)");
        assert_eq!(lease.deadline(), Some(at(3_900)));
    }
}

#[test]
fn server_without_a_queue_is_asked_again() {
    let mut lease = placed();
    say(&mut lease, 0, "NS c0\r\n");
    say(&mut lease, 0, "ERROR\r\n");
    assert_eq!(step(&mut lease, 0), "wait 1000");
    expect(
        &mut lease,
        1_000,
        "ms k 2 ME F1818583411 T5 c me",
        "HD c9\r\n",
    );
    assert_eq!(step(&mut lease, 1_000), "Tell(Obtained)");
    assert!(lease.lacks_queue());
}

#[test]
fn lost_lease_leaves_its_place() {
    let mut lease = placed();
    say(&mut lease, 0, "HD c7\r\n");
    say(&mut lease, 0, "HD F5\r\n");
    assert_eq!(step(&mut lease, 0), "Tell(Obtained)");
    assert_eq!(step(&mut lease, 3_000), "Tell(Lost(Expired))");
    expect(&mut lease, 3_000, "mu k F5", "HD\r\n");
    // Its keeper gets the news, and ends.
    assert_eq!(step(&mut lease, 3_000), "Tell(NotHeld)");
    assert!(!lease.owes_place());
}
