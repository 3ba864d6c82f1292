//! The expected state beside that of the table and of the core, and the view of both.

use latchd_core::sessions::Asker;
use latchd_core::{ConnId, Owner};

use super::super::{CONNS, MANY, STEP_MS, TTL_MS};
use super::{Known, Who, World, key_of, token_of};
use crate::frame::{Judged, must};

impl World {
    /// Compares the expected state with that of the table and of the core.
    pub(super) fn judge(&self) -> Judged {
        self.core.check();
        let sessions = self.core.manager().sessions();
        for token in 0..MANY {
            let asker = Asker {
                conn: ConnId::from_number(0),
                route: [0; 2],
                user: None,
                address: 0,
                attached: None,
            };
            let found = sessions.find(token_of(token), asker).ok();
            let Some((known, session)) = self.known[token].zip(found) else {
                must(
                    self.known[token].is_none() && found.is_none(),
                    "S8: a session ends too early or too late",
                )?;
                continue;
            };
            must(
                session.owner() == known.owner,
                "S3: a session has another owner",
            )?;
            let attached = known.attached.map(|conn| self.id(conn));
            let is_it = session.attachment().conn() == attached;
            must(is_it, "S1, S5: another connection is attached")?;
            let waits = known
                .attached
                .is_some_and(|conn| self.conns[conn].parked.is_some());
            must(session.waits == waits, "S8: a client does not wait")?;
            let due_ms = known.heard_ms + TTL_MS;
            let told = sessions.next_deadline();
            let is_told = told.is_some_and(|at| at.as_millis() <= due_ms);
            must(is_told, "S8: the end of a session is not on time")?;
        }
        for conn in 0..CONNS {
            let expected = self.attached_to(conn).map(Who::Session);
            let expected = expected.and_then(|who| self.owner(who));
            let has = self.conns[conn].session;
            must(
                has == expected || expected.is_none() && self.conns[conn].is_doomed,
                "S1: a connection executes for another owner",
            )?;
        }
        for (key, lock) in self.locks.iter().enumerate() {
            let holders: Vec<Owner> = self
                .core
                .locks()
                .holders_of(key_of(key))
                .map(|(owner, _)| owner)
                .collect();
            let expected = lock.holder.and_then(|who| self.owner(who));
            must(
                holders.into_iter().eq(expected),
                "S2: a lock has another holder",
            )?;
            let line = lock.line.iter();
            let line = line.map(|(who, until_ms)| (self.owner(*who), *until_ms));
            let queue = self.core.waits().queue(key_of(key));
            let queue = queue.map(|(owner, waiter)| (Some(owner), waiter.until.as_millis()));
            must(queue.eq(line), "S2, Q8: a queue has other places")?;
        }
        for (conn, one) in self.conns.iter().enumerate() {
            if let Some(key) = one.parked.filter(|_| !one.is_doomed) {
                let who = self.attached_to(conn).map_or(Who::Conn(conn), Who::Session);
                let waits = self.locks[key]
                    .line
                    .iter()
                    .any(|(waiter, _)| *waiter == who);
                must(waits, "Q10: a notice is lost")?;
            }
        }
        Ok(())
    }

    /// Everything that matters to later steps and to their judgement. What is equal by [`judge`](Self::judge) is there once.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "places and tokens are a few"
    )]
    pub(in crate::sessions) fn view(&self) -> Vec<u8> {
        let left = |ms: u64| u8::try_from((ms + 8 * STEP_MS).saturating_sub(self.now_ms) / STEP_MS);
        let left = |ms| left(ms).unwrap_or(u8::MAX);
        let place = |conn: Option<usize>| conn.map_or(9, |conn| conn as u8);
        let who = |who: Option<Who>| match who {
            None => 9,
            Some(Who::Conn(conn)) => conn as u8,
            Some(Who::Session(token)) => 4 + token as u8,
        };
        let mut view = Vec::with_capacity(48);
        for conn in &self.conns {
            let of = |owner: Owner| {
                let is_it = |known: &Option<Known>| known.is_some_and(|it| it.owner == owner);
                self.known.iter().position(is_it).map_or(8, |it| it as u8)
            };
            view.extend([
                u8::from(conn.id.is_some()) + 2 * u8::from(conn.is_doomed),
                conn.session.map_or(0, |owner| 10 + of(owner)),
                conn.parked.map_or(0, |key| 1 + key as u8),
            ]);
        }
        for (token, known) in self.known.iter().enumerate() {
            view.push(u8::from(self.has_ended[token]));
            if let Some(known) = known {
                let session = self.core.manager().sessions().get(known.owner);
                let times = session.map(|session| [session.ends_at(), session.due_at()]);
                view.extend([place(known.attached), left(known.heard_ms)]);
                view.extend(times.into_iter().flatten().map(|at| left(at.as_millis())));
            } else {
                view.push(u8::MAX);
            }
        }
        for (key, lock) in self.locks.iter().enumerate() {
            let holding = self.core.locks().in_force(key_of(key));
            let (is_told, is_unacknowledged) = holding.map_or((false, false), |holding| {
                let is_told = holding.fence.number() == lock.fence;
                (is_told, holding.is_unacknowledged)
            });
            let facts = [lock.is_unseen, is_told, is_unacknowledged];
            view.push(who(lock.holder));
            view.extend(facts.map(u8::from));
            let line = lock.line.iter();
            view.extend(line.flat_map(|(waiter, until)| [who(Some(*waiter)), left(*until)]));
            view.push(u8::MAX);
        }
        view
    }
}
