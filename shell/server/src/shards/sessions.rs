//! The sessions, which the lock manager has: requests about them, and their statistics.
//!
//! - N1: A connection that has lost its session executes nothing in it: each request asks its attachment once it has locked all
//!   that it uses, and only a thread that has locked the manager changes it.
//! - N2: Requests renew a session without the manager: they note the time in the attachment.

use latchd_core::engine::shards::{self, Shards as _};
use latchd_core::sessions::{Asker, Session, SessionCounters, SessionDone};
use latchd_core::{ConnId, Instant, Owner};
use latchd_protocol::command::ScanCursor;
use latchd_protocol::session::{SessionRefusal, SessionReply, SessionRequest, Token};
use latchd_protocol::stats::StatsLine;

use super::{ShardSession, Shards, StatsPage};
use crate::stats::connection_stats::line;

/// The number of sessions on one page of `stats sessions`.
const SESSIONS_PER_PAGE: usize = 64;

/// A session, as `stats sessions` and the status port show it.
#[derive(Clone, Debug)]
pub(crate) struct SessionShown {
    pub(crate) owner: Owner,
    /// The attached connection.
    pub(crate) conn: Option<ConnId>,
    pub(crate) ttl_ms: u64,
    /// How long it lasts if its client is not heard.
    pub(crate) left_ms: u64,
    pub(crate) age_ms: u64,
}

impl Shards {
    /// Opens, resumes or ends a session for a connection, or takes it over.
    pub(crate) fn session(
        &self,
        now: Instant,
        session: &mut ShardSession,
        asker: Asker,
        request: SessionRequest<'_>,
        number: impl FnOnce() -> u64,
    ) -> SessionReply {
        let mut all = self.at(now);
        let SessionDone {
            reply,
            attachment,
            lost,
        } = shards::session(&mut all, asker, request, number);
        match reply {
            SessionReply::Opened(_) | SessionReply::Resumed(_) => {
                if session.attachment.is_none() {
                    if session.is_open {
                        shards::close(&mut all, session.owner);
                    }
                    session.attach(attachment);
                }
            }
            SessionReply::Ended(owner) => {
                self.waiters.leave(owner);
                if session.attachment.is_some() {
                    session.attach(None);
                }
            }
            SessionReply::NotFound | SessionReply::Refused(_) => {}
        }
        self.waiters.close(lost);
        reply
    }

    /// The session with this token, for a request in it (`j`), which is heard.
    ///
    /// # Errors
    /// As [`Sessions::find`](latchd_core::sessions::Sessions::find).
    pub(crate) fn find_session(
        &self,
        now: Instant,
        token: Token<'_>,
        asker: Asker,
    ) -> Result<Owner, SessionRefusal> {
        self.at(now)
            .manage(|manager| manager.find_session(token, asker).map(Session::owner))
    }

    /// A name as the sessions compare it.
    pub(crate) fn hash_name(&self, now: Instant, name: &[u8]) -> u128 {
        self.at(now).manage(|manager| manager.sessions().hash(name))
    }

    /// The lines of `stats` about sessions.
    pub(crate) fn session_counts(&self, now: Instant) -> [StatsLine; 8] {
        self.at(now).manage(|manager| {
            let sessions = manager.sessions();
            let SessionCounters {
                opened,
                resumed,
                expired,
                ended,
                missed,
                refused,
            } = sessions.counters();
            [
                line("sessions", sessions.len()),
                line("sessions_attached", sessions.attached()),
                line("sessions_opened", opened),
                line("sessions_resumed", resumed),
                line("sessions_expired", expired),
                line("sessions_ended", ended),
                line("session_misses", missed),
                line("session_refusals", refused),
            ]
        })
    }

    /// The session that this owner is; `None` if it has ended.
    pub(crate) fn session_shown(&self, now: Instant, owner: Owner) -> Option<SessionShown> {
        self.at(now).manage(|manager| {
            let session = manager.sessions().get(owner)?;
            let (at_ms, now_ms) = (session.opened_at.as_millis(), now.as_millis());
            let left_ms = if session.waits {
                session.ttl_ms
            } else {
                session.ends_at().as_millis().saturating_sub(now_ms)
            };
            Some(SessionShown {
                owner,
                conn: session.attachment().conn(),
                ttl_ms: session.ttl_ms,
                left_ms,
                age_ms: now_ms.saturating_sub(at_ms),
            })
        })
    }

    /// A page of `stats sessions`: the sessions behind the one with this number.
    pub(crate) fn session_lines(&self, now: Instant, behind: ScanCursor) -> StatsPage {
        let owners: Vec<_> = self.at(now).manage(|manager| {
            let behind = manager.sessions().behind(Owner::of_session(behind.0));
            let page = behind.take(SESSIONS_PER_PAGE);
            page.map(Session::owner).collect()
        });
        let next = owners.last().filter(|_| owners.len() == SESSIONS_PER_PAGE);
        let next = next.map(|owner| ScanCursor(owner.number()));
        let shown = owners
            .into_iter()
            .filter_map(|owner| self.session_shown(now, owner));
        let mut lines = Vec::with_capacity(4 * SESSIONS_PER_PAGE);
        for session in shown {
            let mut show = |name, value: u64| {
                lines.push(StatsLine {
                    name: format!("{}:{name}", session.owner).into(),
                    value: value.to_string(),
                });
            };
            show("conn", session.conn.map_or(0, ConnId::number));
            show("secs", session.ttl_ms / 1_000);
            show("secs_left", session.left_ms.div_ceil(1_000));
            show("age", session.age_ms / 1_000);
        }
        (lines, next)
    }
}
