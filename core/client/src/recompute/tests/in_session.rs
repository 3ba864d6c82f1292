//! A win in a session.

use super::*;
use crate::{Feature, SessionTerms};

const OPEN: &str = "mo abababababababababababababababab00000000 T30\r\n";
const RESUME: &str = "mo abababababababababababababababab00000000 T30 x\r\n";
const END: &str = "mo abababababababababababababababab00000000 T0\r\n";
const READ: &str = "mg k v c N30 R5 B\r\n";
const WON: &str = "VA 0 c7 W\r\n\r\n";
const BUSY: &str = "VA 0 c7 Z\r\n\r\n";

fn in_session() -> RecomputeTerms {
    RecomputeTerms {
        session: Some(SessionTerms::new([0xab; 16], Duration::from_secs(30)).unwrap()),
        deadline: Some(Duration::from_secs(20)),
        ..terms()
    }
}

/// A win of session 9, at 0.
fn won() -> Recompute {
    let mut read = on_latchd(in_session());
    assert_eq!(exchange(&mut read, 0, "HD n9 N\r\n"), OPEN);
    let (sent, news) = play(&mut read, 0, WON);
    assert_eq!(
        (&*sent, news),
        (READ, Some(RecomputeNews::Compute { old: None }))
    );
    read
}

fn break_at(read: &mut Recompute, ms: u64) {
    read.disconnected(at(ms));
    assert!(matches!(read.poll(at(ms)), Action::Connect { .. }));
    read.connected(at(ms));
}

#[test]
fn a_win_survives_a_break() {
    let mut read = won();
    let until = Some(at(10_000));
    assert_eq!(read.poll(at(9_999)), Action::Wait { until });
    assert_eq!(exchange(&mut read, 10_000, "HD n9 R\r\n"), RESUME);
    break_at(&mut read, 12_000);
    assert_eq!(exchange(&mut read, 12_000, "HD n9 R\r\n"), RESUME);
    // The value is there while a sign of life is under way.
    assert!(matches!(read.poll(at(22_000)), Action::Send(_)));
    read.computed(at(22_001), b"new");
    assert!(matches!(read.poll(at(22_001)), Action::Wait { .. }));
    let resumed = SessionResponse::Resumed(Owner::of_session(9));
    read.reply(at(22_002), &AnyResponse::Session(resumed));
    let (sent, news) = play(&mut read, 22_002, "HD\r\n");
    assert_eq!(sent, "ms k 3 C7 T60\r\nnew\r\n");
    assert_eq!(news, Some(RecomputeNews::Stored));
    // The next read on the connection is in the same session.
    let kept = read.kept();
    let mut next = Recompute::new(Key::new(b"k").unwrap(), in_session());
    next.resume(at(23_000), kept);
    next.read(at(23_000));
    assert_eq!(exchange(&mut next, 23_000, "VA 2 c8\r\nhi\r\n"), READ);
    // One with another time tells the server.
    let kept = next.kept();
    let mut short = in_session();
    short.session = Some(SessionTerms::new([1; 16], Duration::from_secs(5)).unwrap());
    let mut next = Recompute::new(Key::new(b"k").unwrap(), short);
    next.resume(at(23_000), kept);
    next.read(at(23_000));
    let sent = exchange(&mut next, 23_000, "HD n9 R\r\n");
    assert_eq!(sent, OPEN.replace("T30", "T5"));
}

#[test]
fn lost_replies_are_asked_for_again() {
    let mut read = on_latchd(in_session());
    exchange(&mut read, 0, "HD n9 N\r\n");
    assert!(matches!(read.poll(at(0)), Action::Send(_)));
    break_at(&mut read, 2_000);
    // For a while the server cannot be reached.
    read.disconnected(at(2_000));
    assert!(matches!(read.poll(at(2_000)), Action::Wait { .. }));
    assert!(matches!(read.poll(at(2_400)), Action::Connect { .. }));
    read.connected(at(2_400));
    assert_eq!(exchange(&mut read, 2_400, "HD n9 R\r\n"), OPEN);
    let (_, news) = play(&mut read, 2_400, WON);
    assert_eq!(news, Some(RecomputeNews::Compute { old: None }));
    // The reply to a store.
    read.computed(at(2_500), b"new");
    assert!(matches!(read.poll(at(2_500)), Action::Send(_)));
    break_at(&mut read, 4_000);
    assert_eq!(exchange(&mut read, 4_000, "HD n9 R\r\n"), RESUME);
    let (sent, news) = play(&mut read, 4_000, "HD\r\n");
    assert_eq!(sent, "ms k 3 C7 T60\r\nnew\r\n");
    assert_eq!(news, Some(RecomputeNews::Stored));
}

#[test]
fn a_win_ends_with_its_session() {
    // The value is stored all the same, if the server is the same.
    let mut read = won();
    break_at(&mut read, 12_000);
    assert_eq!(exchange(&mut read, 12_000, "NF\r\n"), RESUME);
    assert_eq!(read.poll(at(12_000)), Action::Wait { until: None });
    read.computed(at(13_000), b"new");
    assert_eq!(exchange(&mut read, 13_000, "END\r\n"), "stats\r\n");
    assert_eq!(
        read.poll(at(13_000)),
        Action::Tell(RecomputeNews::Superseded)
    );
    assert!(!read.kept().is_attached());
    // There is nothing to give back.
    let mut read = won();
    break_at(&mut read, 12_000);
    exchange(&mut read, 12_000, "NF\r\n");
    read.give_back(at(13_000));
    assert_eq!(read.poll(at(13_000)), Action::Tell(RecomputeNews::GaveBack));
    // In a session that lives, there is.
    let mut read = won();
    read.disconnected(at(12_000));
    read.give_back(at(12_000));
    assert!(matches!(read.poll(at(12_000)), Action::Connect { .. }));
    read.connected(at(12_000));
    assert_eq!(exchange(&mut read, 12_000, "HD n9 R\r\n"), RESUME);
    let (sent, news) = play(&mut read, 12_000, "HD\r\n");
    assert_eq!(
        (&*sent, news),
        ("md k C7\r\n", Some(RecomputeNews::GaveBack))
    );
}

#[test]
fn an_unwanted_win_ends_with_the_session() {
    // A reader that waits hears nothing on its connection.
    let mut read = on_latchd(in_session());
    exchange(&mut read, 0, "HD n9 N\r\n");
    exchange(&mut read, 0, BUSY);
    assert!(matches!(read.poll(at(0)), Action::Send(_)));
    read.abandon(at(2_000));
    assert_eq!(read.poll(at(2_000)), Action::Disconnect);
    break_at(&mut read, 2_000);
    assert_eq!(exchange(&mut read, 2_000, "HD\r\n"), END);
    assert!(read.is_idle());
    // A reader whose reply was lost may have won.
    let mut read = on_latchd(in_session());
    exchange(&mut read, 0, "HD n9 N\r\n");
    assert!(matches!(read.poll(at(0)), Action::Send(_)));
    read.disconnected(at(2_000));
    read.abandon(at(2_000));
    assert!(!read.is_idle());
    assert!(matches!(read.poll(at(2_000)), Action::Connect { .. }));
    // It is given up when the server has ended the session.
    read.disconnected(at(2_000));
    assert_eq!(read.poll(at(32_000)), Action::Tell(RecomputeNews::GaveBack));
    assert!(read.is_idle());
    // A win that is told late is given back, and the session is kept.
    let mut read = on_latchd(in_session());
    exchange(&mut read, 0, "HD n9 N\r\n");
    assert!(matches!(read.poll(at(0)), Action::Send(_)));
    read.abandon(at(1));
    let won = latchd_protocol::wire::meta::reply::MetaResponse::decode(WON.as_bytes());
    read.reply(at(2), &AnyResponse::Meta(won.unwrap().unwrap().0));
    assert_eq!(exchange(&mut read, 2, "HD\r\n"), "md k C7\r\n");
    assert!(read.is_idle() && read.kept().is_attached());
}

#[test]
fn servers_without_sessions_are_refused() {
    let mut read = on_latchd(in_session());
    let (_, news) = play(&mut read, 0, "ERROR\r\n");
    let unsupported = Failure::Unsupported(Feature::Sessions);
    assert_eq!(news, Some(RecomputeNews::Failed(unsupported)));
    assert!(read.is_idle());
    // A server that is down fails at once.
    let mut read = Recompute::new(Key::new(b"k").unwrap(), in_session());
    read.read(at(0));
    assert!(matches!(read.poll(at(0)), Action::Connect { .. }));
    read.disconnected(at(0));
    let failed = RecomputeNews::Failed(Failure::Disconnected);
    assert_eq!(read.poll(at(0)), Action::Tell(failed));
    assert!(read.is_idle());
}
