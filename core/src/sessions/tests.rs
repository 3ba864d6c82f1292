//! The table: takeovers, users, ends, bounds and counters.

use super::*;

const TTL_MS: u64 = 1_000;
const TOKEN: &[u8] = &[b'0'; 16];
const OWNER: Owner = Owner::of_session(b'0' as u64);

fn asker(conn: u64, user: Option<u128>) -> Asker {
    Asker {
        conn: ConnId::from_number(conn),
        user,
        address: 0,
        attached: None,
    }
}

fn open(sessions: &mut Sessions, at_ms: u64, asker: Asker) -> Opening {
    open_for(TTL_MS, sessions, at_ms, asker)
}

fn open_for(ttl_ms: u64, sessions: &mut Sessions, at_ms: u64, asker: Asker) -> Opening {
    open_other(b'0', ttl_ms, sessions, at_ms, asker)
}

/// Opens the session with this digit as its token and its number.
fn open_other(
    digit: u8,
    ttl_ms: u64,
    sessions: &mut Sessions,
    at_ms: u64,
    asker: Asker,
) -> Opening {
    let token = [digit; 16];
    let open = Open {
        token: Token::new(&token).unwrap(),
        ttl_ms,
        only_resumes: false,
    };
    let now = Instant::from_millis(at_ms);
    let opening = sessions.open(now, asker, open, || (Owner::of_session(digit.into()), ()));
    sessions.check();
    opening
}

/// S5, S8: whatever the order of its last request and of its end is, the connection that takes over gets the session.
#[test]
fn a_connection_that_has_lost_does_not_take_the_session_back() {
    let mut sessions = Sessions::new(SessionLimits::default(), [1, 2]);
    let (owner, [a, b]) = (OWNER, [1, 2].map(|conn| asker(conn, None)));
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
    let token = Token::new(TOKEN).unwrap();
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

/// S5: only the close of its own connections changes a session.
#[test]
fn a_session_moves_when_its_connection_closes() {
    let mut sessions = Sessions::new(SessionLimits::default(), [1, 2]);
    let [a, b, c] = [1, 2, 3].map(|conn| asker(conn, None));
    let (from, to) = (a.conn, Some(b.conn));
    let attached = |sessions: &Sessions| sessions.get(OWNER).unwrap().attached;
    open(&mut sessions, 0, a);
    assert_eq!(sessions.detach(OWNER, b.conn), None);
    assert_eq!(attached(&sessions), Attached::To(from));
    open(&mut sessions, 0, b);
    assert_eq!(sessions.detach(OWNER, c.conn), None);
    assert_eq!(attached(&sessions), Attached::Moving { from, to });
    assert_eq!(sessions.detach(OWNER, b.conn), None);
    assert_eq!(attached(&sessions), Attached::Moving { from, to: None });
    assert_eq!(open(&mut sessions, 0, c).closes, None);
    assert_eq!(open(&mut sessions, 0, b).closes, Some(c.conn));
    let ended = sessions.end(Token::new(TOKEN).unwrap(), c).unwrap();
    assert_eq!((ended.attached, ended.taker), (Some(from), to));
    open(&mut sessions, 0, a);
    sessions.detach(OWNER, a.conn);
    assert_eq!(attached(&sessions), Attached::No);
}

/// S8: the table asks at the earliest end that was ever agreed, and at none that has moved.
#[test]
fn a_session_ends_at_the_time_of_its_last_request() {
    let mut sessions = Sessions::new(SessionLimits::default(), [1, 2]);
    let (a, at) = (asker(1, None), Instant::from_millis);
    for (ttl_ms, next) in [(1_000, 1_000), (3_000, 1_000), (1_000, 1_000), (500, 500)] {
        open_for(ttl_ms, &mut sessions, 0, a);
        assert_eq!(sessions.next_deadline(), Some(at(next)));
    }
    open_for(2_000, &mut sessions, 100, a);
    assert!(sessions.end_due(at(2_099), |_| None).is_none());
    assert_eq!(sessions.next_deadline(), Some(at(2_100)));
    assert!(sessions.end_due(at(2_100), |_| Some(at(101))).is_none());
    let ended = sessions.end_due(at(2_101), |_| Some(at(99))).unwrap();
    assert_eq!((ended.owner, ended.attached), (OWNER, Some(a.conn)));
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
            .map(|session| session.owner.number())
            .collect::<alloc::vec::Vec<_>>()
    };
    assert_eq!(behind(&sessions, b'1'), [u64::from(b'2'), u64::from(b'4')]);
    assert_eq!((sessions.len(), sessions.is_empty()), (3, false));
    for _ in 0..2 {
        sessions.end_due(Instant::from_millis(TTL_MS), |_| None);
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
        sessions.detach(OWNER, a.conn);
        sessions.detach(OWNER, b.conn);
        open(&mut sessions, 0, a);
        assert!(sessions.end(token, a).is_ok());
        open(&mut sessions, 0, a);
        sessions.end_due(Instant::from_millis(TTL_MS), |_| None);
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
