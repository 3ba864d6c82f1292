//! Clients that hold locks: the machines of the client library, with the connection and the time that they ask for.

use std::time::Duration;

use latchd_client_core::{
    Action, Failure, Grants, LockId, LockMachine, LockNews, LockTerms, Machine, OwnerTerms, Session,
};
use latchd_cluster::election::Id;
use latchd_core::Instant;
use latchd_protocol::fence::Fence;
use latchd_protocol::key::Key;

use super::network::{Down, Up};
use super::world::{Breach, Client, Judged, Kind, World};
use super::{LOCKS, MS, S};

/// The longest time for an answer.
const REPLY_TIMEOUT: Duration = Duration::from_secs(1);

/// How often a lock is confirmed.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// The longest time to wait for a lock.
const DEADLINE: Duration = Duration::from_secs(2);

/// A client that holds a lock now and then.
#[derive(Debug)]
pub(super) struct Locker {
    key: u64,
    grants: Grants,
    /// The lock that it wants, holds or releases.
    lock: Option<LockId>,
    session: Session,
    input: Vec<u8>,
    obtains_at: Option<u64>,
    releases_at: Option<u64>,
    belief: Option<Belief>,
}

/// A belief in a lock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Belief {
    pub(super) key: u64,
    pub(super) process: Id,
    /// The first microsecond without it, unless the client learns more.
    until: u64,
}

impl Locker {
    pub(super) fn new(key: u64, seed: u64, obtains_at: u64) -> Self {
        let terms = OwnerTerms {
            session: None,
            heartbeat: HEARTBEAT,
            reply_timeout: REPLY_TIMEOUT,
            seed,
        };
        Self {
            key,
            grants: Grants::new(terms),
            lock: None,
            session: Session::new(),
            input: Vec::new(),
            obtains_at: Some(obtains_at),
            releases_at: None,
            belief: None,
        }
    }
}

impl Client {
    /// The belief of the client in a lock.
    pub(super) fn believes(&self, now: u64) -> Option<Belief> {
        let Kind::Locker(locker) = &self.kind else {
            return None;
        };
        locker.belief.filter(|belief| now < belief.until)
    }

    fn locker(&mut self) -> Option<&mut Locker> {
        match &mut self.kind {
            Kind::Locker(locker) => Some(locker),
            Kind::Cache(_) => None,
        }
    }
}

impl World {
    /// A locker hears something, and goes on.
    pub(super) fn tell_locker(&mut self, client: usize, down: Down) -> Judged {
        let now = self.clients[client].clock.at(self.now);
        let Some(locker) = self.clients[client].locker() else {
            return Ok(());
        };
        match down {
            Down::Opened(_) => {
                locker.session = Session::new();
                locker.input.clear();
                locker.grants.connected(now);
            }
            Down::Refused | Down::Closed => locker.grants.disconnected(now),
            Down::Bytes(bytes) => {
                let mut input = std::mem::take(&mut locker.input);
                input.extend_from_slice(&bytes);
                let mut read = 0;
                loop {
                    let received = locker.session.receive(&input[read..]);
                    let received = received.map_err(|error| {
                        let text = input[read..].escape_ascii();
                        Breach::new("N1", format!("client {client} got \"{text}\": {error:?}"))
                    })?;
                    let Some(received) = received else {
                        break;
                    };
                    locker.grants.reply(now, &received.answer);
                    read += received.consumed;
                }
                locker.input = input.split_off(read);
            }
        }
        self.drive_locker(client)
    }

    /// Does what the machine asks for, until it waits.
    pub(super) fn drive_locker(&mut self, client: usize) -> Judged {
        let clock = self.clients[client].clock;
        let (now_us, now) = (self.now, clock.at(self.now));
        loop {
            let has_link = self.clients[client].link.is_some();
            let Some(locker) = self.clients[client].locker() else {
                return Ok(());
            };
            if locker.obtains_at.take_if(|at| *at <= now_us).is_some() {
                let name = format!("lock{}", locker.key);
                let key = Key::new(name.as_bytes()).expect("a legal key");
                let terms = LockTerms::new();
                locker.lock = Some(locker.grants.acquire(now, key, terms, Some(DEADLINE)));
            }
            if locker.releases_at.take_if(|at| *at <= now_us).is_some() {
                // The holder has ended its work.
                locker.belief = None;
                if let Some(id) = locker.lock {
                    locker.grants.release(now, id);
                }
            }
            let until = match locker.grants.poll(now) {
                Action::Connect { until } => {
                    if !has_link {
                        self.connect(client);
                    }
                    until
                }
                Action::Send(request) => {
                    let mut out = Vec::new();
                    let sent = locker.session.send(&request, &mut out);
                    sent.expect("few requests are unanswered at a time");
                    self.send_up(client, Up::Bytes(out));
                    continue;
                }
                Action::Disconnect => {
                    locker.grants.disconnected(now);
                    self.hang_up(client);
                    continue;
                }
                Action::Tell((id, news)) => {
                    self.note_news(client, id, &news)?;
                    continue;
                }
                Action::Wait { until } => until,
            };
            self.rest_locker(client, until);
            return Ok(());
        }
    }

    /// Notes the belief, and the next moment at which something is due.
    fn rest_locker(&mut self, client: usize, until: Option<Instant>) {
        let one = &mut self.clients[client];
        let clock = one.clock;
        let Some(locker) = one.locker() else {
            return;
        };
        let deadline = locker.grants.common_deadline();
        if locker
            .lock
            .and_then(|id| locker.grants.belief(id))
            .is_none()
        {
            locker.belief = None;
        } else if let Some(belief) = &mut locker.belief {
            belief.until = deadline.map_or(u64::MAX, |at| clock.us_at(at));
        }
        let dues = [
            until.map(|at| clock.us_at(at)),
            locker.obtains_at,
            locker.releases_at,
        ];
        if let Some(at) = dues.into_iter().flatten().min() {
            self.wake(client, at);
        }
    }

    fn note_news(&mut self, client: usize, id: LockId, news: &LockNews) -> Judged {
        if !matches!(news, LockNews::Failed(Failure::Disconnected)) {
            self.note(|| format!("client {client}: {news:?}"));
        }
        // News of a lock that is lost already.
        if self.clients[client]
            .locker()
            .is_none_or(|locker| locker.lock != Some(id))
        {
            return Ok(());
        }
        match news {
            LockNews::Obtained => return self.obtained(client, id),
            LockNews::Confirmed(_) | LockNews::Undone(_) => return Ok(()),
            LockNews::NotHeld => {
                let what = format!("client {client} has lost its lock on an open connection");
                return Err(Breach::new("X2", what));
            }
            LockNews::Failed(_) => self.clients[client].next_node += 1,
            LockNews::Lost(_) => self.tally.lost_locks += 1,
            LockNews::Held(_)
            | LockNews::Obstructed(_)
            | LockNews::HasValue
            | LockNews::Released => {}
        }
        let at = self.now + 20 * MS + self.random.below(150 * MS);
        let other = self
            .random
            .chance(1, 3)
            .then(|| (self.random.below(LOCKS), self.random.next()));
        // What the server may still have of it ends with its connection.
        let is_over = matches!(news, LockNews::Failed(_) | LockNews::Lost(_));
        if is_over || other.is_some() {
            self.hang_up(client);
        }
        let Some(locker) = self.clients[client].locker() else {
            return Ok(());
        };
        (locker.belief, locker.releases_at, locker.lock) = (None, None, None);
        if let Some((key, seed)) = other {
            *locker = Locker::new(key, seed, at);
        } else if is_over {
            *locker = Locker::new(locker.key, at, at);
        } else {
            locker.obtains_at = Some(at);
        }
        Ok(())
    }

    /// The client has a lock (X2, X3).
    fn obtained(&mut self, client: usize, id: LockId) -> Judged {
        let hold = match self.random.below(8) {
            0 => S + self.random.below(5 * S),
            _ => 5 * MS + self.random.below(80 * MS),
        };
        let now = self.now;
        let one = &mut self.clients[client];
        let clock = one.clock;
        let link = one.link.as_ref();
        let link = link.and_then(|link| link.process);
        let process = link.expect("an answer has come over the connection");
        let partition = one.partition;
        let Some(locker) = one.locker() else {
            return Ok(());
        };
        let deadline = locker.grants.common_deadline();
        locker.belief = Some(Belief {
            key: locker.key,
            process,
            until: deadline.map_or(u64::MAX, |at| clock.us_at(at)),
        });
        locker.releases_at = Some(now + hold);
        let (key, fence) = (locker.key, locker.grants.fence(id));
        self.tally.grants += 1;
        self.judge_grant(client, (partition, key), fence.map_or(0, Fence::number))
    }
}
