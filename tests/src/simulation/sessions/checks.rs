//! The checks: after each event, when the server has done all that it has to, and when all have gone.

use latchd_server::verify::simulated::Wants;
use latchd_server::verify::workers::Left;

use super::LATE_MS_MAX;
use super::world::{Cause, Farewell, WORKERS, World, broken};
use crate::simulation::Breach;

/// More rounds than it takes to do all that there is to do.
const ROUNDS_MAX: usize = 1_000;

impl World {
    /// Compares the sessions of the server with the expected ones (S1, S2, S8).
    pub(super) fn compare(&mut self) -> Result<(), Breach> {
        for token in self.judge.over(self.now_ms) {
            // Any thread may have ended it that has done something else, before the clock wakes.
            let owner = self.judge.sessions().find(|(it, _)| *it == token);
            if owner.is_some_and(|(_, it)| self.workers.session(it.owner).is_none()) {
                self.judge.end_if_over(self.now_ms, token);
                self.judge.take_notices(self.now_ms);
            }
        }
        let owners: Vec<_> = self
            .judge
            .sessions()
            .map(|(it, of)| (it, of.owner))
            .collect();
        for (token, owner) in owners {
            if let Some(seen) = self.workers.session(owner) {
                self.judge
                    .adopt(self.now_ms, token, seen.left_ms, LATE_MS_MAX);
            }
        }
        for (token, session) in self.judge.sessions() {
            let Some(seen) = self.workers.session(session.owner) else {
                let what = format!("session {token} has ended at {}: {session:?}", self.now_ms);
                return broken("S2", what);
            };
            let ends_ms = if session.waits() {
                self.now_ms + seen.left_ms
            } else {
                session.ends_ms()
            };
            if self.now_ms > ends_ms + LATE_MS_MAX {
                let what = format!("session {token} is there at {}: {session:?}", self.now_ms);
                return broken("S8", what);
            }
            if seen.left_ms != ends_ms.saturating_sub(self.now_ms) || seen.conn != session.conn {
                let what = format!(
                    "session {token} is {seen:?} at {}: {session:?}",
                    self.now_ms
                );
                return broken("S1, S2", what);
            }
        }
        Ok(())
    }

    /// The server does all that it has to; then no connection is left that it should have closed or told.
    pub(super) fn settle(&mut self) -> Result<(), Breach> {
        for round in 0.. {
            let mut is_over = true;
            for worker in 0..WORKERS {
                is_over &= !self.read_mail(worker)?;
                while let Some(conn) = self.workers.end_wait(worker) {
                    is_over = false;
                    self.after(conn, Cause::EndedWait)?;
                }
                while let Some(conn) = self.workers.go_on(worker) {
                    is_over = false;
                    self.after(conn, Cause::Line)?;
                }
            }
            if is_over {
                break;
            }
            if round == ROUNDS_MAX {
                return broken("N1", "it does not come to an end".to_owned());
            }
        }
        for it in self.clients.iter().flatten() {
            let conn = it.conn;
            let look = self.workers.look(conn);
            let waits = look.is_some_and(|look| look.wants == Wants::Lock);
            if self.judge.is_doomed(conn) {
                return broken("S5", format!("{conn} has lost its session, and is open"));
            }
            if waits != self.judge.still_waits(conn) {
                let said = self.judge.waiting(conn);
                return broken("N1", format!("{conn} waits: {waits}, with {said:?}"));
            }
        }
        let left = self.workers.check();
        let sessions = self.judge.sessions().count();
        if left.sessions != sessions {
            let what = format!("there are {}, expected are {sessions}", left.sessions);
            return broken("S2", what);
        }
        Ok(())
    }

    /// All clients go, and all sessions end (S6).
    pub(super) fn leave(&mut self) -> Result<(), Breach> {
        for client in 0..self.clients.len() {
            let Some(it) = &mut self.clients[client] else {
                continue;
            };
            it.farewell = Farewell::Reset;
            it.pipe.reset();
            let conn = it.conn;
            if self.workers.wake(conn) {
                self.after(conn, Cause::Epoll)?;
            }
        }
        self.settle()?;
        while let Some(ends_ms) = self.judge.sessions().map(|(_, it)| it.ends_ms()).max() {
            let span_ms = (ends_ms + LATE_MS_MAX + 1).saturating_sub(self.now_ms);
            self.pass_time(span_ms)?;
        }
        self.settle()?;
        self.workers.tick();
        let left = self.workers.check();
        if left != Left::default() {
            return broken("S6", format!("{left:?}"));
        }
        Ok(())
    }
}
