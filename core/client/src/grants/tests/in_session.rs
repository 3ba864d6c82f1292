//! Locks in a session.

use super::*;

/// Breaks its connection, and opens another one as soon as it wants that.
fn break_at(grants: &mut Grants, ms: u64) {
    grants.disconnected(at(ms));
    assert_eq!(play(grants, ms, &[]), ["connect"]);
    grants.connected(at(ms));
}

#[test]
fn a_session_is_opened_pinged_and_ended() {
    let mut grants = in_session();
    let id = grants.acquire(at(0), key("k"), LockTerms::new(), None);
    assert_eq!(
        play(&mut grants, 5, &["HD n9 N", "HD F7"]),
        [OPEN, "ml k F H f m", "0 Obtained"]
    );
    // T is 30 s, less 1% and 10 ms, from the moment at which the request was sent.
    assert_eq!(grants.common_deadline(), Some(at(29_695)));
    assert_eq!(play(&mut grants, 5_005, &["HD F7"]), ["ml k F H T-1"]);
    assert_eq!(
        play(&mut grants, 10_005, &["HD n9 R", "HD F7"]),
        [RESUME, "ml k F H T-1"]
    );
    assert_eq!(grants.common_deadline(), Some(at(39_695)));
    grants.release(at(14_000), id);
    assert_eq!(
        play(&mut grants, 14_000, &["HD"]),
        ["mu k F7", "0 Released"]
    );
    // It stays for the next lock, and is ended when there was none for its time.
    let id = grants.acquire(at(14_001), key("k"), LockTerms::new(), None);
    assert_eq!(
        play(&mut grants, 14_001, &["HD F8"]),
        ["ml k F H f m", "1 Obtained"]
    );
    grants.release(at(14_002), id);
    play(&mut grants, 14_002, &["HD"]);
    assert_eq!(play(&mut grants, 20_005, &["HD n9 R"]), [OPEN]);
    assert_eq!(play(&mut grants, 30_005, &["HD n9 R"]), [OPEN]);
    assert_eq!(play(&mut grants, 40_005, &["HD n9 R"]), [OPEN]);
    assert_eq!(wakes(&mut grants, 40_006), Some(44_002));
    assert_eq!(play(&mut grants, 44_002, &["HD"]), [END]);
    assert_eq!(wakes(&mut grants, 44_003), None);
    // The next session has another token (H6).
    grants.acquire(at(50_000), key("k"), LockTerms::new(), None);
    let next = OPEN.replace("00000000 ", "00000001 ");
    assert_eq!(play(&mut grants, 50_000, &[]), [next]);
}

#[test]
fn a_closed_machine_ends_its_session() {
    let (mut grants, id) = held(in_session(), LockTerms::new());
    grants.abandon(at(1), id);
    grants.close();
    assert!(!grants.is_over());
    assert_eq!(
        play(&mut grants, 1, &["HD", "HD"]),
        ["mu k F7", "0 Released", END]
    );
    assert!(grants.is_over());
}

#[test]
fn a_resumed_session_has_the_same_grants() {
    let (mut grants, id) = held(in_session(), LockTerms::new());
    break_at(&mut grants, 20_000);
    assert!(grants.belief(id).is_some(), "the session has time");
    assert_eq!(
        play(&mut grants, 20_000, &["HD n9 R", "HD F7"]),
        [RESUME, "ml k F H T-1"]
    );
    assert!(grants.belief(id).is_some());
    break_at(&mut grants, 22_000);
    assert_eq!(
        play(&mut grants, 22_000, &["HD n9 R", "NF"]),
        [RESUME, "ml k F H T-1", "0 Lost(Taken)"]
    );
}

#[test]
fn an_ended_session_costs_all_locks() {
    for answer in ["NF", "HD n10 R"] {
        let (mut grants, _) = held(in_session(), LockTerms::new());
        let other = grants.acquire(at(1), key("other"), LockTerms::new(), None);
        play(&mut grants, 1, &["HD F8"]);
        break_at(&mut grants, 20_000);
        grants.release(at(20_000), other);
        assert_eq!(
            play(&mut grants, 20_000, &[answer]),
            [
                RESUME,
                "0 Lost(Taken)",
                "1 Lost(Taken)",
                "1 NotHeld",
                "disconnect"
            ]
        );
    }
}

#[test]
fn belief_ends_before_the_session() {
    let (mut grants, _) = held(in_session(), LockTerms::new());
    grants.disconnected(at(20_000));
    assert_eq!(play(&mut grants, 20_000, &[]), ["connect"]);
    assert_eq!(play(&mut grants, 29_689, &[]), ["connect"]);
    assert_eq!(
        play(&mut grants, 29_690, &[]),
        ["0 Lost(Expired)", "connect"]
    );
    // The session is ended for the next holder, if it lives still.
    grants.connected(at(29_700));
    assert_eq!(play(&mut grants, 29_700, &["HD"]), [END, "0 NotHeld"]);
}

#[test]
fn a_session_that_is_out_of_reach_ends_by_itself() {
    let (mut grants, _) = held(in_session(), LockTerms::new());
    grants.disconnected(at(20_000));
    assert_eq!(
        play(&mut grants, 29_690, &[]),
        ["0 Lost(Expired)", "connect"]
    );
    assert_eq!(play(&mut grants, 50_000, &[]), ["0 NotHeld"]);
    assert_eq!(wakes(&mut grants, 50_000), None);
}

#[test]
fn a_lost_reply_is_asked_for_again() {
    let mut grants = in_session();
    let id = grants.acquire(at(0), key("k"), LockTerms::new(), None);
    play(&mut grants, 0, &["HD n9 N"]);
    break_at(&mut grants, 2_000);
    // The session may be new: the lock is not held.
    assert_eq!(
        play(&mut grants, 2_000, &["HD n9 R", "HD F7"]),
        [OPEN, "ml k F H f m", "0 Obtained"]
    );
    grants.release(at(3_000), id);
    assert_eq!(play(&mut grants, 3_000, &[]), ["mu k F7"]);
    break_at(&mut grants, 4_000);
    assert_eq!(
        play(&mut grants, 4_000, &["HD n9 R", "NF"]),
        [RESUME, "mu k F7", "0 Released"]
    );
}

#[test]
fn a_release_is_tried_until_it_succeeds() {
    let (mut grants, id) = held(in_session(), LockTerms::new());
    grants.release(at(1), id);
    let done = play(&mut grants, 1, &["SERVER_ERROR busy"]);
    assert_eq!(
        done,
        ["mu k F7", "0 Failed(Refused(\"SERVER_ERROR busy\"))"]
    );
    grants.release(at(2), id);
    assert_eq!(play(&mut grants, 2, &["HD"]), ["mu k F7", "0 Released"]);
}

#[test]
fn a_wait_is_alone_and_continues_after_a_break() {
    let mut grants = in_session();
    let id = grants.acquire(at(0), key("k"), LockTerms::new(), Some(ms(60_000)));
    assert_eq!(
        play(&mut grants, 0, &["HD n9 N"]),
        [OPEN, "ml k F H f m w60000"]
    );
    // The wait is the sign of life.
    assert_eq!(wakes(&mut grants, 15_000), Some(65_000));
    break_at(&mut grants, 20_000);
    assert_eq!(
        play(&mut grants, 20_000, &["HD n9 R"]),
        [OPEN, "ml k F H f m w40000"]
    );
    // The session is not believed any more, though the server has heard it: it is asked first.
    assert_eq!(
        hear(&mut grants, 55_000, "ml", "HD F7"),
        [OPEN, "ml k F H T-1"]
    );
    assert_eq!(hear(&mut grants, 55_001, "mo", "HD n9 R"), [""; 0]);
    assert_eq!(hear(&mut grants, 55_002, "ml", "HD F7"), ["0 Obtained"]);
    assert_eq!(grants.fence(id), Fence::new(7));
}

#[test]
fn an_abandoned_wait_ends_its_session() {
    let mut grants = in_session();
    let id = grants.acquire(at(0), key("k"), LockTerms::new(), Some(ms(60_000)));
    play(&mut grants, 0, &["HD n9 N"]);
    grants.abandon(at(1_000), id);
    assert_eq!(play(&mut grants, 1_000, &[]), ["disconnect"]);
    break_at(&mut grants, 1_000);
    assert_eq!(play(&mut grants, 1_000, &["HD"]), [END, "0 NotHeld"]);
}

#[test]
fn an_adopted_lock_is_confirmed_by_its_session() {
    let adopted = || LockTerms {
        is_adopted: true,
        ..LockTerms::new()
    };
    let mut grants = in_session();
    let id = grants.acquire(at(0), key("k"), adopted(), None);
    assert_eq!(
        play(&mut grants, 0, &["HD n9 R", "HD F7"]),
        [RESUME, "ml k F H T-1", "0 Obtained"]
    );
    assert_eq!(grants.fence(id), Fence::new(7));
    let mut late = in_session();
    late.acquire(at(0), key("k"), adopted(), None);
    assert_eq!(
        play(&mut late, 0, &["NF"]),
        [RESUME, "0 NotHeld", "disconnect"]
    );
    let mut taken = in_session();
    taken.acquire(at(0), key("k"), adopted(), None);
    assert_eq!(
        play(&mut taken, 0, &["HD n9 R", "NF"]),
        [RESUME, "ml k F H T-1", "0 NotHeld"]
    );
}

#[test]
fn a_forgotten_lock_leaves_its_session() {
    let (mut grants, id) = held(in_session(), LockTerms::new());
    grants.forget(id);
    grants.close();
    assert!(grants.is_over());
    assert_eq!(play(&mut grants, 1, &[]), [""; 0]);
}

#[test]
fn a_server_without_sessions_is_named() {
    let mut grants = in_session();
    grants.acquire(at(0), key("k"), LockTerms::new(), None);
    assert_eq!(
        play(&mut grants, 0, &["ERROR"]),
        [OPEN, "0 Failed(Unsupported(Sessions))"]
    );
}

#[test]
fn a_second_break_gives_a_wait_back() {
    let mut grants = in_session();
    let wait = Some(Duration::from_secs(60));
    grants.acquire(at(0), key("k"), LockTerms::new(), wait);
    play(&mut grants, 0, &["HD n9 N"]);
    break_at(&mut grants, 1_000);
    assert_eq!(
        play(&mut grants, 1_000, &["HD n9 R"]),
        [OPEN, "ml k F H f m w59000"]
    );
    // The session is not believed any more, and may have been granted the lock.
    grants.disconnected(at(40_000));
    assert_eq!(
        play(&mut grants, 40_000, &[]),
        ["0 Failed(Disconnected)", "connect"]
    );
    grants.connected(at(40_000));
    assert_eq!(
        play(&mut grants, 40_000, &["HD n9 R", "HD"]),
        [RESUME, "mu k", "0 Released"]
    );
}

#[test]
fn a_lost_confirmation_is_no_lost_release() {
    let (mut grants, id) = held(in_session(), LockTerms::new());
    assert_eq!(play(&mut grants, 5_000, &[]), ["ml k F H T-1"]);
    grants.release(at(5_000), id);
    break_at(&mut grants, 5_001);
    // No release was sent before: the lock was lost earlier.
    assert_eq!(
        play(&mut grants, 5_001, &["HD n9 R", "NF"]),
        [RESUME, "mu k F7", "0 NotHeld"]
    );
}
