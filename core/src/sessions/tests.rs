//! The table: takeovers, users, ends, bounds and counters.

use super::*;

const TTL_MS: u64 = 1_000;

/// The end of a session that was opened at 0 and is not heard.
const END: Instant = Instant::from_millis(TTL_MS + 1);

const TOKEN: &[u8] = &[b'0'; 16];
const OWNER: Owner = Owner::of_session(b'0' as u64);

fn asker(conn: u64, user: Option<u128>) -> Asker {
    Asker {
        conn: ConnId::from_number(conn),
        route: [conn, 7],
        user,
        address: 0,
        attached: None,
    }
}

fn open(sessions: &mut Sessions, at_ms: u64, asker: Asker) -> SessionDone {
    open_for(TTL_MS, sessions, at_ms, asker)
}

fn open_for(ttl_ms: u64, sessions: &mut Sessions, at_ms: u64, asker: Asker) -> SessionDone {
    open_other(b'0', ttl_ms, sessions, at_ms, asker)
}

/// Opens the session with this digit as its token and its number.
fn open_other(
    digit: u8,
    ttl_ms: u64,
    sessions: &mut Sessions,
    at_ms: u64,
    asker: Asker,
) -> SessionDone {
    let token = [digit; 16];
    let open = Open {
        token: Token::new(&token).unwrap(),
        ttl_ms,
        only_resumes: false,
    };
    let now = Instant::from_millis(at_ms);
    let opening = sessions.open(now, asker, open, || digit.into());
    sessions.check();
    opening
}

fn lost(asker: Asker) -> Lost {
    let Asker { conn, route, .. } = asker;
    Lost { conn, route }
}

fn attached(sessions: &Sessions) -> Option<ConnId> {
    sessions.get(OWNER).unwrap().attachment().conn()
}

/// S5: in one step. The connection that has lost takes nothing back and renews nothing, and its end changes nothing.
#[test]
fn a_connection_that_has_lost_does_not_take_the_session_back() {
    let mut sessions = Sessions::new(SessionLimits::default(), [1, 2]);
    let [a, b, c] = [1, 2, 3].map(|conn| asker(conn, None));
    let mine = open(&mut sessions, 0, a);
    assert_eq!((mine.reply, mine.lost), (SessionReply::Opened(OWNER), None));
    let mine = mine.attachment.unwrap();
    assert!(mine.has(a.conn) && mine.owner() == OWNER);
    let taken = open(&mut sessions, 100, b);
    assert_eq!(taken.reply, SessionReply::Resumed(OWNER));
    assert_eq!(taken.lost, Some(lost(a)));
    assert!(!mine.has(a.conn) && mine.has(b.conn));
    let again = Asker {
        attached: Some(OWNER),
        ..a
    };
    let refused = open(&mut sessions, 900, again);
    assert_eq!(refused.reply, SessionReply::Refused(SessionRefusal::Lost));
    assert_eq!(mine.heard_at(), Instant::from_millis(100));
    for former in [a, c] {
        sessions.detach(Instant::from_millis(900), OWNER, former.conn);
        assert_eq!(attached(&sessions), Some(b.conn));
    }
    assert_eq!(open(&mut sessions, 900, c).lost, Some(lost(b)));
    sessions.detach(Instant::from_millis(900), OWNER, c.conn);
    assert_eq!((attached(&sessions), sessions.attached()), (None, 0));
    assert_eq!(open(&mut sessions, 900, a).lost, None);
    let ended = sessions.end(Token::new(TOKEN).unwrap(), b).unwrap();
    assert_eq!((ended.owner, ended.lost), (OWNER, Some(lost(a))));
    assert_eq!(mine.conn(), None, "nobody executes in it any more");
}

/// S8: it is heard until the end of its wait, also if that is the end of its connection.
#[test]
fn a_client_that_waits_is_heard_until_its_wait_ends() {
    let mut sessions = Sessions::new(SessionLimits::default(), [1, 2]);
    let (a, at) = (asker(1, None), Instant::from_millis);
    open(&mut sessions, 0, a);
    sessions.begin_wait(OWNER);
    assert_eq!(sessions.end_due(at(5_000)), None);
    sessions.end_wait(at(5_500), OWNER);
    sessions.end_wait(at(5_900), OWNER);
    assert_eq!(sessions.end_due(at(6_500)), None);
    sessions.begin_wait(OWNER);
    sessions.detach(at(6_500), OWNER, a.conn);
    sessions.check();
    let token = Token::new(TOKEN).unwrap();
    assert_eq!(sessions.end_over(at(7_500), token), None);
    let ended = sessions.end_over(at(7_501), token).unwrap();
    assert_eq!((ended.owner, ended.lost), (OWNER, None));
    assert_eq!(sessions.counters().expired, 1);
}

/// A copy shares nothing with the connections of the original.
#[test]
fn a_copied_session_has_an_attachment_of_its_own() {
    let mut sessions = Sessions::new(SessionLimits::default(), [1, 2]);
    let (a, b) = (asker(1, None), asker(2, None));
    open(&mut sessions, 0, a);
    let mut copy = sessions.clone();
    copy.check();
    open(&mut copy, 300, b);
    assert_eq!(
        (attached(&sessions), attached(&copy)),
        (Some(a.conn), Some(b.conn))
    );
    let heard = sessions.get(OWNER).unwrap().attachment().heard_at();
    assert_eq!(heard, Instant::from_millis(0));
}

#[test]
fn a_session_belongs_to_the_user_that_opened_it() {
    let mut sessions = Sessions::new(SessionLimits::default(), [1, 2]);
    let token = Token::new(TOKEN).unwrap();
    open(&mut sessions, 0, asker(1, Some(7)));
    let refused = SessionReply::Refused(SessionRefusal::OtherUser);
    for other in [None, Some(8)] {
        let other = asker(2, other);
        assert_eq!(open(&mut sessions, 900, other).reply, refused);
        let found = sessions.find(token, other).map(Session::owner);
        assert_eq!(found, Err(SessionRefusal::OtherUser));
        let ended = sessions.end(token, other).map(|it| it.owner);
        assert_eq!(ended, Err(SessionRefusal::OtherUser));
    }
    // None of them has renewed it.
    assert!(sessions.end_due(Instant::from_millis(TTL_MS)).is_none());
    assert!(sessions.end_due(END).is_some());
    assert_eq!(alloc::format!("{token:?}"), "Token(…)", "S7");
}

/// S8: the table asks at the earliest end that was ever agreed, and at none that has moved.
#[test]
fn a_session_ends_at_the_time_of_its_last_request() {
    let mut sessions = Sessions::new(SessionLimits::default(), [1, 2]);
    let (a, at) = (asker(1, None), Instant::from_millis);
    for (ttl_ms, next) in [(1_000, 1_001), (3_000, 1_001), (1_000, 1_001), (500, 501)] {
        open_for(ttl_ms, &mut sessions, 0, a);
        assert_eq!(sessions.next_deadline(), Some(at(next)));
    }
    open_for(2_000, &mut sessions, 100, a);
    assert!(sessions.end_due(at(2_100)).is_none());
    assert_eq!(sessions.next_deadline(), Some(at(2_101)));
    let attachment = sessions.get(OWNER).unwrap().attachment();
    attachment.note_heard(at(101));
    attachment.note_heard(at(99));
    assert!(sessions.end_due(at(2_101)).is_none());
    let ended = sessions.end_due(at(2_102)).unwrap();
    assert_eq!((ended.owner, ended.lost), (OWNER, Some(lost(a))));
    assert!(sessions.is_empty() && sessions.next_deadline().is_none());
}

/// S6. An address has its share again when one of its sessions has ended.
#[test]
fn sessions_are_bounded_in_all_and_for_each_address() {
    let limits = SessionLimits {
        sessions_max: 3,
        per_address_max: 2,
    };
    let mut sessions = Sessions::new(limits, [1, 2]);
    let too_many = SessionReply::Refused(SessionRefusal::TooMany);
    let mut try_open = |digit: u8, address: u128| {
        let asker = Asker {
            address,
            ..asker(digit.into(), None)
        };
        let reply = open_other(digit, TTL_MS, &mut sessions, 0, asker).reply;
        if reply != too_many {
            assert_eq!(reply, SessionReply::Opened(Owner::of_session(digit.into())));
        }
        reply != too_many
    };
    let opened = [(b'1', 1), (b'2', 1), (b'3', 1), (b'4', 2), (b'5', 3)];
    let opened = opened.map(|(digit, address)| try_open(digit, address));
    assert_eq!(opened, [true, true, false, true, false]);
    let behind = |sessions: &Sessions, digit: u8| {
        let behind = sessions.behind(Owner::of_session(digit.into()));
        behind
            .map(|session| session.owner().number())
            .collect::<alloc::vec::Vec<_>>()
    };
    assert_eq!(behind(&sessions, b'1'), [u64::from(b'2'), u64::from(b'4')]);
    assert_eq!((sessions.len(), sessions.is_empty()), (3, false));
    for _ in 0..2 {
        sessions.end_due(END);
    }
    assert_eq!(behind(&sessions, 0), [u64::from(b'4')]);
    let mut off = Sessions::new(
        SessionLimits {
            sessions_max: 0,
            ..limits
        },
        [1, 2],
    );
    let refused = open(&mut off, 0, asker(1, None)).reply;
    assert_eq!(refused, SessionReply::Refused(SessionRefusal::Off));
}

#[test]
fn each_request_is_counted() {
    let limits = SessionLimits {
        sessions_max: 1,
        per_address_max: 1,
    };
    let mut sessions = Sessions::new(limits, [1, 2]);
    let token = Token::new(TOKEN).unwrap();
    let [a, b, other_user] = [(1, None), (2, None), (3, Some(7))];
    let [a, b, other_user] = [a, b, other_user].map(|(conn, user)| asker(conn, user));
    let in_another = Asker {
        attached: Some(Owner::of_session(7)),
        ..b
    };
    let resumes = Open {
        token,
        ttl_ms: TTL_MS,
        only_resumes: true,
    };
    for round in 1..=2 {
        let now = Instant::from_millis(0);
        let missed = sessions.open(now, a, resumes, || unreachable!());
        assert_eq!(missed.reply, SessionReply::NotFound);
        assert!(sessions.end(token, a).is_err());
        open(&mut sessions, 0, a);
        open_other(b'1', TTL_MS, &mut sessions, 0, b);
        for refused in [in_another, other_user] {
            open(&mut sessions, 0, refused);
        }
        assert!(sessions.end(token, other_user).is_err());
        // Its own connection resumes nothing.
        open(&mut sessions, 0, a);
        open(&mut sessions, 0, b);
        sessions.detach(now, OWNER, b.conn);
        open(&mut sessions, 0, a);
        assert!(sessions.end(token, a).is_ok());
        open(&mut sessions, 0, a);
        sessions.end_due(END);
        let counted = SessionCounters {
            opened: 2 * round,
            resumed: 2 * round,
            expired: round,
            ended: round,
            missed: 2 * round,
            refused: 4 * round,
        };
        assert_eq!(sessions.counters(), counted);
    }
    sessions.reset_counters();
    assert_eq!(sessions.counters(), SessionCounters::default());
}
