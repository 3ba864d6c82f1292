//! Locks of a server that shows its hold.

use super::*;

#[test]
fn one_question_bounds_all_beliefs() {
    let mut grants = on_connection();
    grants.acquire(at(0), key("a"), LockTerms::new(), None);
    grants.acquire(at(0), key("b"), LockTerms::new(), None);
    play(&mut grants, 0, &["HD F1 H4000", "HD F2 H4000"]);
    assert_eq!(grants.common_deadline(), Some(at(4_000)));
    assert_eq!(play(&mut grants, 1_000, &["MN H4000"]), ["mn H"]);
    assert_eq!(grants.common_deadline(), Some(at(5_000)));
    assert_eq!(play(&mut grants, 2_000, &[]), ["mn H"]);
    assert_eq!(
        play(&mut grants, 5_000, &[]),
        ["0 Lost(Unconfirmed)", "1 Lost(Unconfirmed)", "disconnect"]
    );
}

#[test]
fn a_grant_after_a_long_wait_is_confirmed() {
    let mut grants = on_connection();
    grants.acquire(at(0), key("k"), LockTerms::new(), Some(ms(9_000)));
    play(&mut grants, 0, &[]);
    assert_eq!(
        hear(&mut grants, 6_000, "ml", "HD F7 H4000"),
        ["ml k F H T-1"]
    );
    assert_eq!(
        hear(&mut grants, 6_002, "ml", "HD F7 H4000"),
        ["0 Obtained"]
    );
    // A server that cannot say that it is primary grants nothing.
    let mut late = on_connection();
    late.acquire(at(0), key("k"), LockTerms::new(), Some(ms(9_000)));
    play(&mut late, 0, &[]);
    hear(&mut late, 6_000, "ml", "HD F7 H4000");
    assert_eq!(hear(&mut late, 6_002, "ml", "HD F7 H0"), ["mu k F7"]);
    assert_eq!(hear(&mut late, 6_003, "mu", "HD"), ["0 Failed(NoAnswer)"]);
}

#[test]
fn a_server_that_is_not_primary_is_left() {
    let mut grants = on_connection();
    grants.acquire(at(0), key("k"), LockTerms::new(), None);
    assert_eq!(
        play(&mut grants, 0, &["SERVER_ERROR not primary"]),
        [
            "ml k F H f m",
            "0 Failed(Refused(\"SERVER_ERROR not primary\"))",
            "disconnect"
        ]
    );
}
