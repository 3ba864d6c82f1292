//! The loop: the next event, and the checks after each turn.

use std::collections::VecDeque;
use std::num::NonZeroUsize;

use latchd_core::sessions::SessionLimits;
use latchd_core::{ConnId, Instant};
use latchd_harness::random::Random;
use latchd_protocol::key::Key;
use latchd_server::verify::simulated::{Pipe, Wants};
use latchd_server::verify::workers::Workers;

use super::judge::{Expected, Judge};
use super::said::{Said, Verb};
use super::{KEYS_MAX, LATE_MS_MAX, TOKENS_MAX};
use crate::simulation::trace::{Keeps, Trace};
use crate::simulation::{Breach, Plan, Report};

/// The number of workers.
pub(super) const WORKERS: usize = 2;

/// How many events there are between two times at which the server does all that it has to.
const SETTLE_EVERY: u64 = 64;

/// How a client ends its connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Farewell {
    /// The connection is open.
    No,
    /// The client says nothing any more, and the server does not notice.
    Silent,
    /// `quit`
    Quit,
    HalfClosed,
    Reset,
}

/// The connection of a client.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) conn: ConnId,
    pub(super) pipe: Pipe,
    /// Its requests without an answer, except for one that waits.
    pub(super) said: VecDeque<Said>,
    pub(super) farewell: Farewell,
    /// How many bytes the server has read.
    pub(super) read: u64,
}

/// The cause of a client's turn.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Cause {
    Epoll,
    Line,
    EndedWait,
}

/// Clients, server, and the expected state of the server.
#[derive(Debug)]
pub(crate) struct World {
    events_max: u64,
    events: u64,
    commands: u64,
    pub(super) random: Random,
    pub(super) workers: Workers,
    pub(super) clients: Vec<Option<Client>>,
    pub(super) judge: Judge,
    pub(super) keys: Vec<String>,
    pub(super) tokens: usize,
    pub(super) hosts: u64,
    pub(super) now_ms: u64,
    /// How late the clock wakes the next time.
    late_ms: u64,
    digest: u64,
    trace: Trace,
}

impl World {
    pub(crate) fn new(plan: &Plan, keeps: Keeps) -> Self {
        let mut random = Random::new(plan.seed.wrapping_mul(0x9e37_79b9).wrapping_add(11));
        let mut pick = |from: u64, to: u64| {
            usize::try_from(from + random.below(to - from + 1)).expect("a small number")
        };
        let (clients, tokens, keys) = (pick(3, 10), pick(1, TOKENS_MAX), pick(1, KEYS_MAX));
        // Three of four seeds have room for all sessions.
        let least = if pick(0, 3) == 0 { 1 } else { TOKENS_MAX };
        let limits = SessionLimits {
            sessions_max: pick(least, TOKENS_MAX),
            per_address_max: pick(least, TOKENS_MAX),
        };
        let (hosts, now_ms) = (pick(1, 3) as u64, 1 + random.below(1 << 20));
        let threads = NonZeroUsize::new(WORKERS).expect("it is not 0");
        let workers = Workers::new(Instant::from_millis(now_ms), threads, limits);
        // The hash of keys differs in each run. Their shards, their length and the order of their bytes must not.
        let mut names = (0..).map(|number| format!("key{number:04}"));
        let shard_of = |name: &String| workers.shard_of(Key::new(name.as_bytes()).expect("a key"));
        let keys: Vec<String> = (0..keys)
            .map(|key| names.find(|name| shard_of(name) == key % 2))
            .map(|name| name.expect("there is no end of them"))
            .collect();
        Self {
            events_max: plan.events,
            events: 0,
            commands: 0,
            judge: Judge::new(keys.clone(), limits),
            workers,
            clients: (0..clients).map(|_| None).collect(),
            keys,
            tokens,
            hosts,
            now_ms,
            late_ms: 0,
            digest: plan.seed,
            trace: Trace::new(keeps),
            random,
        }
    }

    pub(crate) const fn events(&self) -> u64 {
        self.events
    }

    pub(crate) fn last(&self) -> Vec<String> {
        self.trace.last()
    }

    pub(crate) fn run(&mut self) -> Result<Report, Breach> {
        let mut next_check = SETTLE_EVERY;
        while self.events < self.events_max {
            self.events += 1;
            let client = self.below(self.clients.len());
            self.happen(client)?;
            self.compare()?;
            if self.events >= next_check {
                next_check = self.events + SETTLE_EVERY;
                self.settle()?;
            }
        }
        self.leave()?;
        Ok(Report {
            events: self.events,
            commands: self.commands,
            digest: self.digest,
            sessions: self.judge.tally,
            ..Report::default()
        })
    }

    /// One event: of a client, the network, a worker or the time.
    fn happen(&mut self, client: usize) -> Result<(), Breach> {
        let Some(conn) = self.clients[client].as_ref().map(|it| it.conn) else {
            self.connect(client);
            return Ok(());
        };
        let worker = self.below(WORKERS);
        match self.below(64) {
            0 => return self.part(client),
            1..24 => self.say(client),
            24..44 => {
                if self.workers.wake(conn) {
                    return self.after(conn, Cause::Epoll);
                }
            }
            44..49 => return self.read_mail(worker).map(drop),
            49..54 => {
                if let Some(conn) = self.workers.end_wait(worker) {
                    return self.after(conn, Cause::EndedWait);
                }
            }
            54..60 => {
                if let Some(conn) = self.workers.go_on(worker) {
                    return self.after(conn, Cause::Line);
                }
            }
            _ => {
                let span_ms = match self.below(16) {
                    0 => 300 + self.below(2_500),
                    1 => return self.pass_deadline(),
                    2..4 => self.below(200),
                    _ => self.below(12),
                };
                return self.pass_time(span_ms as u64);
            }
        }
        Ok(())
    }

    /// Time passes to the next deadline, or a little further: the clock wakes late, so that clients may be heard before. The
    /// client of a session whose time is over is heard in half of the cases.
    fn pass_deadline(&mut self) -> Result<(), Breach> {
        let Some(told_ms) = self.workers.deadline().map(Instant::as_millis) else {
            return Ok(());
        };
        self.late_ms = LATE_MS_MAX - 1;
        let late_ms = self.random.below(LATE_MS_MAX);
        self.pass_time((told_ms + late_ms).saturating_sub(self.now_ms))?;
        let now_ms = self.now_ms;
        let sessions = self.judge.sessions();
        let late = (sessions.filter(|(_, it)| it.is_over(now_ms))).find_map(|(_, it)| it.conn);
        if let Some(conn) = late.filter(|_| self.random.below(2) == 0)
            && let Some(client) = self.place_of(conn)
        {
            self.say(client);
            if self.workers.wake(conn) {
                return self.after(conn, Cause::Epoll);
            }
        }
        Ok(())
    }

    /// Time passes; the clock wakes as the server has told it, and up to 9 ms late.
    pub(super) fn pass_time(&mut self, span_ms: u64) -> Result<(), Breach> {
        let until_ms = self.now_ms + span_ms;
        loop {
            let told_ms = self.workers.deadline().map(Instant::as_millis);
            let wait_ms = self.judge.next_wait_ms();
            if let Some(wait_ms) = wait_ms
                && told_ms.is_none_or(|told_ms| told_ms > wait_ms)
            {
                let what = format!("a wait ends at {wait_ms}, and the clock is told {told_ms:?}");
                return broken("G3", what);
            }
            let wakes_ms = told_ms.map(|told_ms| {
                let late_ms = told_ms + self.late_ms;
                // A wait is judged as it ends.
                wait_ms
                    .map_or(late_ms, |wait_ms| late_ms.min(wait_ms.max(told_ms)))
                    .max(self.now_ms)
            });
            match wakes_ms {
                Some(wakes_ms) if wakes_ms <= until_ms => self.set_time(wakes_ms),
                Some(_) | None => {
                    self.set_time(until_ms);
                    return Ok(());
                }
            }
            self.workers.pass();
            if self.below(8) == 0 {
                self.workers.tick();
            }
            self.judge.pass(self.now_ms);
            let now_ms = self.now_ms;
            self.trace
                .note(self.events, || format!("{now_ms} ms: the clock wakes"));
            self.late_ms = self.random.below(LATE_MS_MAX);
            self.compare()?;
        }
    }

    fn set_time(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
        self.workers.set_time(Instant::from_millis(now_ms));
    }

    /// A client has had a turn, if it was there: its requests that were executed, and their replies.
    pub(super) fn after(&mut self, conn: ConnId, cause: Cause) -> Result<(), Breach> {
        let Some(client) = self.place_of(conn) else {
            return Ok(());
        };
        let had_waited = self.judge.waiting(conn).is_some();
        let Some(it) = &mut self.clients[client] else {
            return Ok(());
        };
        let has_read = std::mem::replace(&mut it.read, it.pipe.read()) != it.read;
        let replies = it.pipe.take(usize::MAX);
        let is_driven = has_read || cause != Cause::Epoll;
        if is_driven {
            self.judge.hear(self.now_ms, conn);
        }
        let replies = String::from_utf8(replies).expect("replies here are text");
        for reply in replies.split_terminator("\r\n") {
            self.hear(client, conn, reply)?;
        }
        let look = self.workers.look(conn);
        if look.is_some_and(|look| look.wants == Wants::Lock) {
            let waiting = self.judge.waiting(conn);
            let is_new = waiting.is_none();
            let asks_again = had_waited && !is_new && cause == Cause::EndedWait;
            if is_new || asks_again {
                let said = waiting.or_else(|| self.next_said(client));
                let waits = |expected: &Expected| *expected == Expected::Waits;
                let expected = said.map(|said| self.execute(conn, said, asks_again, waits));
                if expected != Some(Expected::Waits) {
                    let what = format!("{conn} waits after {said:?}, expected is {expected:?}");
                    return broken("N1", what);
                }
            }
        }
        if look.is_none() {
            return self.see_end(client, conn);
        }
        Ok(())
    }

    fn next_said(&mut self, client: usize) -> Option<Said> {
        self.clients[client].as_mut()?.said.pop_front()
    }

    /// A request is executed, which `is_it` compares with the server. A session whose time is over ends with this or another
    /// request, or when the clock wakes.
    fn execute(
        &mut self,
        conn: ConnId,
        said: Said,
        again: bool,
        is_it: impl Fn(&Expected) -> bool,
    ) -> Expected {
        self.events += 1;
        self.commands += 1;
        let is_due = !self.judge.over(self.now_ms).is_empty();
        let before = is_due.then(|| self.judge.clone());
        let mut expected = self.judge.execute(self.now_ms, conn, said, again);
        if let Some(before) = before.filter(|_| !is_it(&expected)) {
            self.judge = before;
            self.judge.pass(self.now_ms);
            expected = self.judge.execute(self.now_ms, conn, said, again);
        }
        let now_ms = self.now_ms;
        self.trace.note(self.events, || {
            format!("{now_ms} ms: {conn} says {said:?}: {expected:?}")
        });
        self.judge.take_notices(self.now_ms);
        expected
    }

    /// A client gets this reply.
    fn hear(&mut self, client: usize, conn: ConnId, reply: &str) -> Result<(), Breach> {
        self.note(reply.as_bytes());
        let waiting = self.judge.waiting(conn);
        let again = waiting.is_some();
        let Some(said) = waiting.or_else(|| self.next_said(client)) else {
            return broken("N1", format!("{conn} has asked nothing, and reads {reply}"));
        };
        let is_ok = matches!(
            said,
            Said::Ask {
                verb: Verb::UnlockAll,
                ..
            }
        ) && reply == "OK";
        let read = Expected::Line(reply.to_owned());
        let is_it = |expected: &Expected| *expected == read || is_ok;
        let expected = self.execute(conn, said, again, is_it);
        if !is_it(&expected) {
            let what = format!("{conn} says {said:?} and reads {reply}, expected is {expected:?}");
            return broken("N1", what);
        }
        Ok(())
    }

    /// The server has closed a connection.
    fn see_end(&mut self, client: usize, conn: ConnId) -> Result<(), Breach> {
        let Some(it) = self.clients[client].take() else {
            return Ok(());
        };
        self.note(b"closed");
        let farewell = it.farewell;
        let now_ms = self.now_ms;
        self.trace.note(self.events, || {
            format!("{now_ms} ms: {conn} is closed, after {farewell:?}")
        });
        let is_answered = match it.said.front() {
            None => true,
            Some(said) => *said == Said::Quit,
        };
        let is_waiting = self.judge.waiting(conn).is_some();
        let is_meant = match it.farewell {
            Farewell::Reset => true,
            Farewell::HalfClosed | Farewell::Quit => is_answered || is_waiting,
            Farewell::No | Farewell::Silent => false,
        };
        if !it.pipe.is_closed() || !is_meant && !self.judge.is_doomed(conn) {
            let what = format!(
                "{conn} is closed for nothing, with {:?} unanswered",
                it.said
            );
            return broken("N1", what);
        }
        self.judge.close(self.now_ms, conn);
        self.judge.take_notices(self.now_ms);
        Ok(())
    }

    /// A worker reads its mailbox. Returns whether it has closed a connection.
    pub(super) fn read_mail(&mut self, worker: usize) -> Result<bool, Breach> {
        let closed = self.workers.read_mail(worker);
        for conn in &closed {
            if let Some(client) = self.place_of(*conn) {
                self.see_end(client, *conn)?;
            }
        }
        Ok(!closed.is_empty())
    }

    pub(super) fn place_of(&self, conn: ConnId) -> Option<usize> {
        let is_it = |it: &Option<Client>| it.as_ref().is_some_and(|it| it.conn == conn);
        self.clients.iter().position(is_it)
    }

    fn note(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut whole = [0; 8];
            whole[..chunk.len()].copy_from_slice(chunk);
            self.digest = (self.digest ^ u64::from_le_bytes(whole))
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .rotate_left(29);
        }
    }

    pub(super) fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.random.below(bound as u64)).expect("below a usize")
    }
}

pub(super) fn broken<T>(rule: &'static str, what: String) -> Result<T, Breach> {
    Err(Breach { rule, what })
}
