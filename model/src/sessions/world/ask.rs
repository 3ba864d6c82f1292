//! The requests of a connection, each with its due reply and its effect on the expected state.

use latchd_core::engine::OwnerUsage;
use latchd_core::server::conn_executor::ConnExecutor;
use latchd_core::{ConnId, Owner};
use latchd_protocol::command::{Acquire, Command, ItemCommand, Release, Wait};
use latchd_protocol::execute::Execute as _;
use latchd_protocol::reply::{Refusal, Reply};
use latchd_protocol::session::{SessionAction, SessionRefusal, SessionReply, SessionRequest};

use super::super::{MANY, TTL_S, Witness};
use super::{Known, Lock, Who, World, key_of, token_of};
use crate::frame::{Judged, must};

/// A user that has opened no session.
const STRANGER: Option<u128> = Some(1);

/// A reply, as far as it says anything here.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Got {
    Granted(u64),
    Contended,
    Deadlock,
    Waits,
    Released,
    NotFound,
    Lost,
    Other,
}

fn got(reply: &Reply<'_>) -> Got {
    match reply {
        Reply::Granted(granted) => Got::Granted(granted.fence.number()),
        Reply::Contended(_) => Got::Contended,
        Reply::WouldDeadlock(_) => Got::Deadlock,
        Reply::Waits => Got::Waits,
        Reply::Unlocked => Got::Released,
        Reply::NotFound => Got::NotFound,
        Reply::Refused(Refusal::ConnectionClosed) => Got::Lost,
        Reply::Hit(_)
        | Reply::Miss
        | Reply::Stored(_)
        | Reply::NotStored
        | Reply::Exists
        | Reply::Deleted
        | Reply::Number(_)
        | Reply::Locked
        | Reply::Withheld { .. }
        | Reply::Ok
        | Reply::Keys(_)
        | Reply::Stats(_)
        | Reply::Refused(_)
        | Reply::KeyOf(_) => Got::Other,
    }
}

fn release(key: usize) -> Command<'static> {
    ItemCommand::Release(Release::new(key_of(key))).into()
}

fn acquire(key: usize, wait: Wait) -> Command<'static> {
    let acquire = Acquire {
        wait,
        ..Acquire::new(key_of(key))
    };
    ItemCommand::Acquire(acquire).into()
}

impl World {
    /// Whether another connection has the session in which this one believes, or it has ended (S5).
    fn has_lost(&self, conn: usize) -> bool {
        self.conns[conn].session.is_some() && self.attached_to(conn).is_none()
    }

    /// `mo`.
    pub(super) fn open(&mut self, conn: usize, token: usize, only_resumes: bool) -> Judged {
        let request = SessionRequest {
            token: token_of(token),
            action: SessionAction::Open {
                seconds: TTL_S,
                only_resumes,
            },
        };
        let has_lost = self.has_lost(conn);
        let believed = self.conns[conn].session;
        let reply = self.executor(conn, |executor| executor.session(request));
        let attached = self.attached_to(conn);
        let holds = |lock: &Lock| lock.holder == Some(Who::Conn(conn));
        let is_believed = self.known[token].is_some_and(|known| believed == Some(known.owner));
        let due = if believed.is_some() && !is_believed {
            SessionReply::Refused(SessionRefusal::Attached)
        } else if has_lost {
            SessionReply::Refused(SessionRefusal::Lost)
        } else if attached.is_none() && self.locks.iter().any(holds) {
            SessionReply::Refused(SessionRefusal::Holds)
        } else if let Some(known) = &mut self.known[token] {
            let had = known.attached.replace(conn);
            known.heard_ms = self.now_ms;
            if let Some(had) = had.filter(|had| *had != conn) {
                self.seen.add(Witness::TakenOver);
                let is_doomed = self.conns[had].is_doomed;
                must(is_doomed, "S5: a connection that has lost is not closed")?;
            }
            SessionReply::Resumed(known.owner)
        } else if only_resumes {
            SessionReply::NotFound
        } else {
            let owner = Owner::of_session(self.numbers);
            if self.has_ended[token] {
                self.seen.add(Witness::OpenedAgain);
            }
            let is_empty = self.core.held(owner) == OwnerUsage::default();
            must(is_empty, "S3: a new session holds something")?;
            self.known[token] = Some(Known {
                owner,
                attached: Some(conn),
                heard_ms: self.now_ms,
            });
            SessionReply::Opened(owner)
        };
        let word = if only_resumes { "mo x" } else { "mo" };
        self.seen.add(Witness::of_pair(word, reply)?);
        same(reply, due, "S3, S5")
    }

    /// `mo … T0`.
    pub(super) fn end(&mut self, conn: usize, token: usize) -> Judged {
        let request = SessionRequest {
            token: token_of(token),
            action: SessionAction::End,
        };
        let (has_lost, believed) = (self.has_lost(conn), self.conns[conn].session);
        let reply = self.executor(conn, |executor| executor.session(request));
        let due = match self.known[token] {
            None => SessionReply::NotFound,
            Some(known) if believed.is_some_and(|own| own != known.owner) => {
                SessionReply::Refused(SessionRefusal::Attached)
            }
            Some(_) if has_lost => SessionReply::Refused(SessionRefusal::Lost),
            Some(known) => {
                self.forget(token);
                if let Some(other) = known.attached.filter(|other| *other != conn) {
                    let is_doomed = self.conns[other].is_doomed;
                    must(
                        is_doomed,
                        "S5: a connection without its session is not closed",
                    )?;
                }
                SessionReply::Ended(known.owner)
            }
        };
        self.seen.add(Witness::of_pair("mo T0", reply)?);
        same(reply, due, "S3")
    }

    /// Another user tries everything.
    pub(super) fn stranger(&mut self, token: usize) -> Judged {
        let (now, id) = (self.now(), ConnId::from_number(u64::MAX >> 1));
        let (core, numbers) = (&mut self.core, &mut self.numbers);
        let mut executor = ConnExecutor::new(core, numbers, now, (id, STRANGER), None);
        let token = token_of(token);
        let refused = SessionReply::Refused(SessionRefusal::OtherUser);
        for (seconds, only_resumes) in [(TTL_S, false), (TTL_S, true)] {
            let action = SessionAction::Open {
                seconds,
                only_resumes,
            };
            same(
                executor.session(SessionRequest { token, action }),
                refused,
                "S7",
            )?;
        }
        let action = SessionAction::End;
        same(
            executor.session(SessionRequest { token, action }),
            refused,
            "S7",
        )?;
        let done = executor.execute_as(token, &release(0), &mut |_| {});
        must(done == Err(SessionRefusal::OtherUser), "S7: is let in")?;
        self.seen.add(Witness::OtherUser);
        Ok(())
    }

    /// Asks for a key as the connection, as its session, or as the session of this token (`j`). Returns as whom, and the
    /// reply; `None` if it is refused as it must.
    fn ask(
        &mut self,
        conn: usize,
        token: Option<usize>,
        command: &Command<'_>,
    ) -> Result<Option<(Who, Got)>, String> {
        let own = self.attached_to(conn);
        let (has_lost, believed) = (self.has_lost(conn), self.conns[conn].session);
        let mut seen = None;
        let mut answer = |reply: &Reply<'_>| seen = Some(got(reply));
        let Some(token) = token else {
            self.executor(conn, |executor| executor.execute(command, &mut answer));
            let who = own.map_or(Who::Conn(conn), Who::Session);
            return self.unless_lost(has_lost, seen.map(|got| (who, got)));
        };
        let done = self.executor(conn, |executor| {
            executor.execute_as(token_of(token), command, &mut answer)
        });
        let due = match self.known[token] {
            None => Err(SessionRefusal::NoSession),
            Some(known) if believed.is_some_and(|own| own != known.owner) => {
                Err(SessionRefusal::Attached)
            }
            Some(_) if has_lost => Err(SessionRefusal::Lost),
            Some(_) => Ok(()),
        };
        self.seen.add(Witness::of_token(done)?);
        same(done, due, "S3")?;
        if due.is_ok() {
            self.hear(token);
        }
        Ok(seen.map(|got| (Who::Session(token), got)))
    }

    /// The reply, if the connection has not lost its session; otherwise it must be refused (S5).
    fn unless_lost(
        &mut self,
        has_lost: bool,
        seen: Option<(Who, Got)>,
    ) -> Result<Option<(Who, Got)>, String> {
        if !has_lost {
            return Ok(seen);
        }
        let is_refused = seen.is_some_and(|(_, got)| got == Got::Lost);
        must(is_refused, "S5: a connection that has lost is served")?;
        self.seen.add(Witness::LoserLocks);
        Ok(None)
    }

    pub(super) fn lock(
        &mut self,
        conn: usize,
        token: Option<usize>,
        key: usize,
        wait: Wait,
    ) -> Judged {
        let Some((who, got)) = self.ask(conn, token, &acquire(key, wait))? else {
            return Ok(());
        };
        let until_ms = match wait {
            Wait::UpTo { ms } => Some(self.now_ms + ms + 1),
            Wait::No => None,
        };
        let is_session = matches!(who, Who::Session(_));
        let holder = self.locks[key].holder;
        let is_vain = self.would_deadlock(who, key);
        let fence = self.core.locks().in_force(key_of(key));
        let fence = fence.map_or(0, |holding| holding.fence.number());
        let due = if holder.is_none() {
            must(fence > self.locks[key].fence, "L12: a fence is not greater")?;
            self.locks[key].holder = Some(who);
            Got::Granted(fence)
        } else if holder == Some(who) && (is_session || got == Got::Granted(fence)) {
            if self.locks[key].is_unseen {
                self.seen.add(Witness::FoundByRetry);
            } else if is_session && token.is_none() {
                self.seen.add(Witness::Survives);
            }
            let is_same = self.locks[key].fence == fence || self.locks[key].is_unseen;
            must(
                is_same || !is_session,
                "S2: a lock has another fence when asked again",
            )
            .or_else(|_| must(until_ms.is_none(), "S2: another fence"))?;
            Got::Granted(fence)
        } else if until_ms.is_none() {
            Got::Contended
        } else if is_vain {
            Got::Deadlock
        } else {
            Got::Waits
        };
        if let Got::Granted(fence) = got {
            self.locks[key].fence = fence;
            self.locks[key].is_unseen = false;
        }
        if let (Got::Waits, Some(until_ms)) = (got, until_ms) {
            let line = &mut self.locks[key].line;
            let place = line.iter().position(|(waiter, _)| *waiter == who);
            if let Some(place) = place {
                line[place].1 = until_ms;
                if place + 1 < line.len() {
                    self.seen.add(Witness::KeepsPlace);
                }
            } else {
                self.leave_places(who);
                self.locks[key].line.push((who, until_ms));
            }
            self.conns[conn].parked = Some(key);
        }
        same(got, due, "S2, Q9")
    }

    /// Whether a chain of waits leads from the holder of a key back to `who`.
    fn would_deadlock(&self, who: Who, key: usize) -> bool {
        let mut key = key;
        for _ in 0..=MANY {
            let Some(holder) = self.locks[key].holder else {
                return false;
            };
            if holder == who {
                return true;
            }
            let waits_in = |lock: &Lock| lock.line.iter().any(|(waiter, _)| *waiter == holder);
            let Some(next) = self.locks.iter().position(waits_in) else {
                return false;
            };
            key = next;
        }
        false
    }

    pub(super) fn unlock(&mut self, conn: usize, token: Option<usize>, key: usize) -> Judged {
        let Some((who, got)) = self.ask(conn, token, &release(key))? else {
            return Ok(());
        };
        let is_holder = self.locks[key].holder == Some(who);
        must(
            is_holder == (got == Got::Released),
            "S2: a release is not of the holder",
        )?;
        if is_holder {
            let other = token.and_then(|token| self.known[token]?.attached);
            if other.is_some_and(|other| other != conn) {
                self.seen.add(Witness::ByProxy);
            }
            self.hand_over(key);
        }
        Ok(())
    }
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "a reference would be written at each call"
)]
fn same<T: PartialEq + std::fmt::Debug>(got: T, due: T, rule: &str) -> Judged {
    if got == due {
        Ok(())
    } else {
        Err(format!("{rule}: the reply is {got:?}, and {due:?} is due"))
    }
}
