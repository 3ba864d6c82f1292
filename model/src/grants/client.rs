//! A client, and the bytes on the way to and from it.

use std::time::Duration;

use latchd_client_core::{Grants, LockId, OwnerTerms, Session, SessionTerms};
use latchd_core::ConnId;
use latchd_protocol::fence::Fence;

use super::{Bounds, STEP_MS};

/// The shortest time of a session.
const TTL: Duration = Duration::from_secs(1);

/// A lock as its client knows it, from the request until the machine has forgotten it, and its fate.
#[derive(Clone, Debug, Default, Hash)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(super) struct Lock {
    pub(super) id: Option<LockId>,
    /// The client was told that it has the lock, and of no end.
    pub(super) is_told: bool,
    /// The grant that it was told of.
    pub(super) fence: Option<Fence>,
    /// It has released or dropped the lock.
    pub(super) is_releasing: bool,
    /// It held the lock when it did.
    pub(super) was_granted: bool,
    /// It has sent a request to release on this connection.
    pub(super) has_asked: bool,
    /// Such a request was lost with its connection, or the reply to it was.
    pub(super) is_unanswered: bool,
    /// The server has executed that request.
    pub(super) has_released: bool,
    /// Others have ended the lock, and its client was not told.
    pub(super) is_revoked: bool,
    /// When the client began to wait.
    pub(super) waits_since: Option<u64>,
    /// A connection broke before the client had the lock.
    pub(super) is_retry: bool,
    /// The client believed when its connection broke.
    pub(super) is_resuming: bool,
}

/// A client, and the bytes on the way to and from it.
#[derive(Clone, Debug)]
pub(super) struct Client {
    pub(super) machine: Grants,
    pub(super) lock: Lock,
    /// The obtains that it may still begin.
    pub(super) obtains_left: u8,
    /// Its end of the wire. The machine knows the unanswered requests, too.
    pub(super) wire: Session,
    /// The token of its session, as it was last sent. The machine knows it, too.
    pub(super) token: Vec<u8>,
    pub(super) conn: Option<ConnId>,
    pub(super) up: Vec<u8>,
    pub(super) down: Vec<u8>,
    /// The server has closed the connection.
    pub(super) is_closed: bool,
    /// The client has not heard that, and never will.
    pub(super) is_cut: bool,
}

impl Client {
    pub(super) fn new(bounds: &Bounds, place: u8) -> Self {
        Self {
            machine: Grants::new(OwnerTerms {
                session: bounds
                    .in_session
                    .then(|| SessionTerms::new([place; 16], TTL).expect("a second is enough")),
                heartbeat: Duration::from_millis(STEP_MS),
                reply_timeout: Duration::from_millis(STEP_MS),
                seed: place.into(),
            }),
            lock: Lock::default(),
            obtains_left: bounds.obtains,
            wire: Session::new(),
            token: Vec::new(),
            conn: None,
            up: Vec::new(),
            down: Vec::new(),
            is_closed: false,
            is_cut: false,
        }
    }

    /// Whether something is on the way to the server.
    pub(super) const fn has_sent(&self) -> bool {
        !self.up.is_empty()
    }

    /// Whether something is on the way to it.
    pub(super) fn has_news(&self) -> bool {
        !self.down.is_empty() || self.is_closed && !self.is_cut
    }
}
