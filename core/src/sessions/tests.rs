//! The table: takeovers and users.

use super::*;

const TTL_MS: u64 = 1_000;

fn asker(conn: u64, user: Option<u128>) -> Asker {
    Asker {
        conn: ConnId::from_number(conn),
        user,
        address: 0,
        attached: None,
    }
}

fn open(sessions: &mut Sessions, at_ms: u64, asker: Asker) -> Opening {
    let token = Token::new(b"0123456789abcdef").unwrap();
    let open = Open {
        token,
        ttl_ms: TTL_MS,
        only_resumes: false,
    };
    let now = Instant::from_millis(at_ms);
    let opening = sessions.open(now, asker, open, || (Owner::of_session(9), ()));
    sessions.check();
    opening
}

/// S5, S8: whatever the order of its last request and of its end is, the connection that takes over gets the session.
#[test]
fn a_connection_that_has_lost_does_not_take_the_session_back() {
    let mut sessions = Sessions::new(SessionLimits::default(), [1, 2]);
    let (owner, [a, b]) = (Owner::of_session(9), [1, 2].map(|conn| asker(conn, None)));
    assert_eq!(open(&mut sessions, 0, a).reply, SessionReply::Opened(owner));
    let taken = Opening {
        reply: SessionReply::Waits,
        owner: Some(owner),
        closes: Some(a.conn),
    };
    assert_eq!(open(&mut sessions, 100, b), taken);
    let lost = open(&mut sessions, 900, a);
    assert_eq!((lost.reply, lost.closes), (SessionReply::Waits, None));
    assert_eq!(
        sessions.get(owner).unwrap().heard_at,
        Instant::from_millis(100)
    );
    assert_eq!(sessions.detach(owner, a.conn), Some(b.conn));
    assert_eq!(
        open(&mut sessions, 900, b).reply,
        SessionReply::Resumed(owner)
    );
}

#[test]
fn a_session_belongs_to_the_user_that_opened_it() {
    let mut sessions = Sessions::new(SessionLimits::default(), [1, 2]);
    let token = Token::new(b"0123456789abcdef").unwrap();
    open(&mut sessions, 0, asker(1, Some(7)));
    let refused = SessionReply::Refused(SessionRefusal::OtherUser);
    for other in [None, Some(8)] {
        let other = asker(2, other);
        assert_eq!(open(&mut sessions, 900, other).reply, refused);
        let found = sessions.find(token, other).map(|it| it.owner);
        assert_eq!(found, Err(SessionRefusal::OtherUser));
        let ended = sessions.end(token, other).map(|it| it.owner);
        assert_eq!(ended, Err(SessionRefusal::OtherUser));
    }
    // None of them has renewed it.
    let at = Instant::from_millis(TTL_MS);
    assert!(sessions.end_due(at, |_| None).is_some());
    assert_eq!(alloc::format!("{token:?}"), "Token(…)", "S7");
}
