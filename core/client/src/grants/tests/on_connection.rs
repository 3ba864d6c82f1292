//! Locks that end with their connection.

use super::*;

#[test]
fn a_lock_is_two_requests() {
    let (mut grants, id) = held(on_connection(), LockTerms::new());
    assert_eq!(grants.fence(id), Fence::new(7));
    let belief = grants.belief(id).unwrap();
    assert_eq!((belief.until, belief.is_certain), (None, true));
    assert_eq!(grants.common_deadline(), None);
    grants.release(at(5), id);
    assert_eq!(grants.belief(id), None, "from the moment of the call");
    assert_eq!(play(&mut grants, 5, &["HD"]), ["mu k F7", "0 Released"]);
    grants.close();
    assert!(grants.is_over());
}

#[test]
fn many_locks_share_the_connection() {
    let mut grants = on_connection();
    for name in ["a", "b", "c"] {
        grants.acquire(at(0), key(name), LockTerms::new(), None);
    }
    assert_eq!(
        play(&mut grants, 0, &["HD F1", "LK h4 a2 n1", "HD F3"]),
        [
            "ml a F H f m",
            "ml b F H f m",
            "ml c F H f m",
            "0 Obtained",
            "1 Held(LockState { holder: Some(4), held_for: Some(2s), fence: None, waiting: Some(1), left: None, \
             token: None, metadata: None, is_shared: false })",
            "2 Obtained"
        ]
    );
}

#[test]
fn shares_name_their_limit() {
    let mut grants = on_connection();
    let mode = latchd_protocol::command::Mode::Shared {
        max_sharers: core::num::NonZeroU32::new(3),
    };
    let terms = LockTerms {
        mode,
        ..LockTerms::new()
    };
    let id = grants.acquire(at(0), key("k"), terms, None);
    assert_eq!(
        play(&mut grants, 0, &["HD F7"]),
        ["ml k F H S3 f m", "0 Obtained"]
    );
    grants.check(at(1), id);
    assert_eq!(
        play(&mut grants, 1, &["HD F7"]),
        ["ml k F H S3 T-1", "0 Confirmed(None)"]
    );
}

#[test]
fn each_heartbeat_confirms_the_grant() {
    let (mut grants, _) = held(on_connection(), LockTerms::new());
    assert_eq!(wakes(&mut grants, 4_999), Some(5_000));
    let ask = "ml k F H T-1";
    assert_eq!(play(&mut grants, 5_000, &["HD F7"]), [ask]);
    assert_eq!(wakes(&mut grants, 9_999), Some(10_000));
    // An operator has released it meanwhile.
    assert_eq!(play(&mut grants, 10_000, &["NF"]), [ask, "0 Lost(Taken)"]);
    let (mut grants, _) = held(on_connection(), LockTerms::new());
    let locked = "LK h5 a0 n0";
    assert_eq!(play(&mut grants, 5_000, &[locked]), [ask, "0 Lost(Taken)"]);
}

#[test]
fn a_silent_server_costs_the_lock() {
    let (mut grants, _) = held(on_connection(), LockTerms::new());
    assert_eq!(play(&mut grants, 5_000, &[]), ["ml k F H T-1"]);
    assert_eq!(wakes(&mut grants, 9_999), Some(10_000));
    assert_eq!(play(&mut grants, 10_000, &[]), ["disconnect"]);
    grants.disconnected(at(10_000));
    assert_eq!(play(&mut grants, 10_000, &[]), ["0 Lost(Disconnected)"]);
    assert_eq!(wakes(&mut grants, 10_000), None);
}

#[test]
fn a_broken_connection_repeats_a_request_once() {
    let mut grants = on_connection();
    grants.acquire(at(0), key("k"), LockTerms::new(), None);
    assert_eq!(play(&mut grants, 0, &[]), ["ml k F H f m"]);
    grants.disconnected(at(1));
    assert_eq!(play(&mut grants, 1, &[]), ["connect"]);
    grants.connected(at(2));
    assert_eq!(play(&mut grants, 2, &[]), ["ml k F H f m"]);
    grants.disconnected(at(3));
    assert_eq!(play(&mut grants, 3, &[]), ["0 Failed(Disconnected)"]);
    // A server that cannot be reached is an error at the first try.
    let mut grants = Grants::new(owner(None));
    grants.acquire(at(0), key("k"), LockTerms::new(), None);
    assert_eq!(play(&mut grants, 0, &[]), ["connect"]);
    grants.disconnected(at(1));
    assert_eq!(play(&mut grants, 1, &[]), ["0 Failed(Disconnected)"]);
}

#[test]
fn a_release_on_a_broken_connection_is_not_certain() {
    let (mut grants, id) = held(on_connection(), LockTerms::new());
    grants.release(at(1), id);
    play(&mut grants, 1, &[]);
    grants.disconnected(at(2));
    assert_eq!(
        play(&mut grants, 2, &[]),
        ["0 Lost(Disconnected)", "0 NotHeld"]
    );
    grants.release(at(3), id);
    assert_eq!(play(&mut grants, 3, &[]), ["0 NotHeld"]);
}

#[test]
fn a_refused_confirmation_is_repeated_after_pauses_that_grow() {
    let (mut grants, _) = held(on_connection(), LockTerms::new());
    let mut now = 5_000;
    let mut pauses = Vec::new();
    for _ in 0..6 {
        let done = play(&mut grants, now, &["SERVER_ERROR no"]);
        assert_eq!(done, ["ml k F H T-1"]);
        let next = wakes(&mut grants, now).unwrap();
        pauses.push(next - now);
        now = next;
    }
    assert_eq!(pauses, [100, 200, 400, 800, 1_000, 1_000]);
}

#[test]
fn an_abandoned_request_is_released_behind_its_answer() {
    let mut grants = on_connection();
    let id = grants.acquire(at(0), key("k"), LockTerms::new(), None);
    assert_eq!(play(&mut grants, 0, &[]), ["ml k F H f m"]);
    grants.abandon(at(1), id);
    assert_eq!(play(&mut grants, 1, &[]), [""; 0]);
    assert_eq!(hear(&mut grants, 2, "ml", "HD F7"), ["mu k F7"]);
    assert_eq!(hear(&mut grants, 3, "mu", "HD"), ["0 Released"]);
    let id = grants.acquire(at(4), key("k"), LockTerms::new(), None);
    play(&mut grants, 4, &[]);
    grants.abandon(at(5), id);
    assert_eq!(hear(&mut grants, 6, "ml", "LK h1 a1 n1"), ["1 NotHeld"]);
}

#[test]
fn an_abandoned_wait_closes_the_connection() {
    let mut grants = on_connection();
    let id = grants.acquire(at(0), key("k"), LockTerms::new(), Some(ms(60_000)));
    assert_eq!(play(&mut grants, 0, &[]), ["ml k F H f m w60000"]);
    assert_eq!(wakes(&mut grants, 1), Some(65_000));
    grants.abandon(at(2), id);
    assert_eq!(play(&mut grants, 2, &[]), ["disconnect"]);
    grants.disconnected(at(2));
    assert_eq!(play(&mut grants, 2, &[]), ["0 NotHeld"]);
}

#[test]
fn a_time_of_its_own_is_renewed_at_a_third() {
    let (mut grants, id) = held(on_connection(), leased(ms(600), true, None));
    assert_eq!(grants.belief(id).unwrap().until, Some(at(600)));
    assert_eq!(wakes(&mut grants, 199), Some(200));
    // 1% and 10 ms more than is believed.
    assert_eq!(play(&mut grants, 200, &["HD F7"]), ["ml k F H T0.616"]);
    assert_eq!(grants.belief(id).unwrap().until, Some(at(800)));
    assert_eq!(play(&mut grants, 400, &[]), ["ml k F H T0.616"]);
    assert_eq!(
        play(&mut grants, 800, &[]),
        ["0 Lost(Expired)"],
        "the answer is late"
    );
    assert_eq!(hear(&mut grants, 801, "ml", "HD F7"), ["mu k F7"]);
}

#[test]
fn a_manual_lock_is_confirmed_and_not_renewed() {
    let (mut grants, id) = held(on_connection(), leased(ms(20_000), false, None));
    assert_eq!(play(&mut grants, 5_000, &["HD F7"]), ["ml k F H T15.160"]);
    assert_eq!(grants.belief(id).unwrap().until, Some(at(20_000)));
    grants.refresh(at(6_000), id, ms(30_000));
    assert_eq!(
        play(&mut grants, 6_000, &["HD F7"]),
        ["ml k F H T30.310", "0 Confirmed(None)"]
    );
    assert_eq!(grants.belief(id).unwrap().until, Some(at(36_000)));
    assert_eq!(
        play(&mut grants, 36_000, &[]),
        ["0 Lost(Expired)", "mu k F7"]
    );
}

#[test]
fn a_shorter_time_counts_from_its_request() {
    let terms = leased(Duration::from_secs(10), true, None);
    let (mut grants, id) = held(on_connection(), terms);
    grants.refresh(at(100), id, Duration::from_secs(1));
    assert_eq!(play(&mut grants, 100, &[]), ["ml k F H T1.020"]);
    assert_eq!(grants.belief(id).unwrap().until, Some(at(1_100)));
}

#[test]
fn a_refused_refresh_changes_nothing() {
    let (mut grants, id) = held(on_connection(), leased(ms(900), true, None));
    grants.refresh(at(100), id, Duration::from_secs(1 << 40));
    let done = play(
        &mut grants,
        100,
        &["CLIENT_ERROR bad token in command line format"],
    );
    assert!(done[1].starts_with("0 Undone(Refused"), "{done:?}");
    assert_eq!(play(&mut grants, 200, &["HD F7"]), ["ml k F H T0.919"]);
    assert_eq!(grants.belief(id).unwrap().until, Some(at(1_100)));
}

#[test]
fn the_longest_hold_ends_a_lock() {
    let (mut grants, id) = held(on_connection(), leased(ms(12_000), false, Some(ms(12_000))));
    assert_eq!(play(&mut grants, 5_000, &["HD F7"]), ["ml k F H T7.080"]);
    assert_eq!(grants.belief(id).unwrap().until, Some(at(12_000)));
    play(&mut grants, 10_000, &["HD F7"]);
    assert_eq!(
        play(&mut grants, 12_000, &["HD"]),
        ["0 Lost(HeldTooLong)", "mu k F7", "0 Released"]
    );
    // Renewals stop there, too.
    let (mut grants, id) = held(on_connection(), leased(ms(600), true, Some(ms(1_000))));
    play(&mut grants, 200, &["HD F7"]);
    play(&mut grants, 400, &["HD F7"]);
    assert_eq!(play(&mut grants, 600, &["HD F7"]), ["ml k F H T0.414"]);
    assert_eq!(grants.belief(id).unwrap().until, Some(at(1_000)));
}

#[test]
fn a_late_grant_is_confirmed_before_belief() {
    let mut grants = on_connection();
    let terms = leased(ms(500), true, None);
    grants.acquire(at(0), key("k"), terms, Some(ms(9_000)));
    assert_eq!(play(&mut grants, 0, &[]), ["ml k F H f m T0.515 w9000"]);
    assert_eq!(hear(&mut grants, 700, "ml", "HD F7"), ["ml k F H T0.515"]);
    assert_eq!(hear(&mut grants, 710, "ml", "HD F7"), ["0 Obtained"]);
}

#[test]
fn another_grant_at_a_renewal_is_a_loss() {
    let (mut grants, _) = held(on_connection(), leased(ms(600), true, None));
    assert_eq!(
        play(&mut grants, 200, &["HD F9", "HD"]),
        ["ml k F H T0.616", "0 Lost(Taken)", "mu k F9", "0 Released"]
    );
}

#[test]
fn confirmations_of_many_locks_keep_a_pace() {
    let mut grants = on_connection();
    for number in 0..8_000 {
        grants.acquire(
            at(0),
            key(&std::format!("k{number}")),
            LockTerms::new(),
            None,
        );
    }
    let mut answers = Vec::new();
    answers.resize(8_000, "HD F7");
    play(&mut grants, 0, &answers);
    assert_eq!(wakes(&mut grants, 1), Some(8_000));
}
