//! Locks with an item, which exclude clients that lock by `add`.

use super::*;

const ADD: &str = "ms k 2 ME F1818583411 T12 me";

fn with_item() -> LockTerms {
    let token = Token::new(b"me").unwrap();
    LockTerms {
        item: Some(LockItem {
            value: TokenValue::new(token, b""),
            ttl: ms(10_000),
            own_token: false,
        }),
        ..LockTerms::new()
    }
}

#[test]
fn an_item_is_made_renewed_and_removed() {
    let mut grants = on_connection();
    let id = grants.acquire(at(0), key("k"), with_item(), None);
    assert_eq!(
        play(&mut grants, 0, &["HD F7", "HD"]),
        ["ml k F H f m t v", ADD, "0 Obtained"]
    );
    assert_eq!(play(&mut grants, 3_334, &["HD"]), ["mg k T12"]);
    assert_eq!(play(&mut grants, 5_000, &["HD F7"]), ["ml k F H T-1"]);
    // It has expired while the client was stopped.
    assert_eq!(play(&mut grants, 6_668, &["EN", "HD"]), ["mg k T12", ADD]);
    grants.release(at(7_000), id);
    assert_eq!(
        play(&mut grants, 7_000, &["HD"]),
        ["md k U G7", "0 Released"]
    );
}

#[test]
fn an_item_that_has_gone_does_not_end_the_lock() {
    let mut grants = on_connection();
    let id = grants.acquire(at(0), key("k"), with_item(), None);
    play(&mut grants, 0, &["HD F7", "HD"]);
    grants.release(at(1), id);
    assert_eq!(
        play(&mut grants, 1, &["NF", "HD"]),
        ["md k U G7", "mu k F7", "0 Released"]
    );
}

#[test]
fn an_item_of_another_client_is_in_the_way() {
    let mut grants = on_connection();
    grants.acquire(at(0), key("k"), with_item(), None);
    let done = play(
        &mut grants,
        0,
        &["VA 10 F7 f1818583411 t5|other blah", "HD"],
    );
    assert_eq!(done[..2], ["ml k F H f m t v", "mu k F7"]);
    assert!(done[2].starts_with("0 Obstructed(LockState"), "{done:?}");
    // A recipe without our client flags shows a time.
    grants.acquire(at(1), key("k"), with_item(), None);
    let done = play(&mut grants, 1, &["VA 1 F8 f0 t5|1", "HD"]);
    assert!(done[2].starts_with("1 Obstructed(LockState"), "{done:?}");
    // Without a time it is no lock.
    grants.acquire(at(2), key("k"), with_item(), None);
    let done = play(&mut grants, 2, &["VA 4 F9 f0 t-1|idle", "HD"]);
    assert_eq!(done[2], "2 HasValue");
    // A lock without an item waits for the end of a recipe's one, and for no other.
    grants.acquire(at(3), key("k"), LockTerms::new(), None);
    let done = play(&mut grants, 3, &["HD F10 f1818583411", "HD"]);
    assert!(done[2].starts_with("3 Obstructed(LockState"), "{done:?}");
    grants.acquire(at(4), key("k"), LockTerms::new(), None);
    let done = play(&mut grants, 4, &["HD F11 f0"]);
    assert_eq!(done[1], "4 Obtained");
}

#[test]
fn a_chosen_token_finds_its_own_item() {
    let mut terms = with_item();
    if let Some(item) = &mut terms.item {
        item.own_token = true;
    }
    let mut grants = on_connection();
    let id = grants.acquire(at(0), key("k"), terms, None);
    let done = play(&mut grants, 0, &["VA 2 F7 f1818583411 t5|me", "HD"]);
    assert_eq!(done, ["ml k F H f m t v", "0 Obtained", "mg k T12"]);
    grants.release(at(1), id);
    assert_eq!(play(&mut grants, 1, &["HD"]), ["md k U G7", "0 Released"]);
}

#[test]
fn an_item_that_cannot_be_stored_fails_the_lock() {
    let mut grants = on_connection();
    grants.acquire(at(0), key("k"), with_item(), None);
    let full = "SERVER_ERROR out of memory storing object";
    let done = play(&mut grants, 0, &["HD F7", full, "HD"]);
    assert_eq!(done[2], "mu k F7");
    assert!(done[3].starts_with("0 Failed(Refused"), "{done:?}");
}
