//! Clients that hold locks: the machines of the client library, with the connection and the time that they ask for.

use std::time::Duration;

use latchd_client_core::{
    Action, Bound, BoundNews, BoundTerms, Failure, Machine, MissingItem, Retry, Session,
};
use latchd_cluster::election::Id;
use latchd_core::Instant;
use latchd_protocol::fence::Fence;
use latchd_protocol::key::Key;
use latchd_protocol::time::Exptime;

use super::network::{Down, Up};
use super::world::{Breach, Client, Judged, Kind, World};
use super::{LOCKS, MS, S};

/// The longest time for an answer.
const REPLY_TIMEOUT: Duration = Duration::from_secs(1);

/// The longest time to wait for a lock.
const DEADLINE: Duration = Duration::from_secs(2);

/// A client that holds a lock now and then.
#[derive(Debug)]
pub(super) struct Locker {
    key: u64,
    bound: Bound,
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
        let mut terms = BoundTerms::default();
        terms.retry = Retry::linear(Duration::from_millis(20));
        terms.deadline = Some(DEADLINE);
        terms.missing = MissingItem::Create(Exptime::Never);
        terms.reply_timeout = REPLY_TIMEOUT;
        terms.seed = seed;
        let name = format!("lock{key}");
        Self {
            key,
            bound: Bound::new(Key::new(name.as_bytes()).expect("a legal key"), terms),
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
                locker.bound.connected(now);
            }
            Down::Refused | Down::Closed => locker.bound.disconnected(now),
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
                    locker.bound.reply(now, &received.answer);
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
                locker.bound.obtain(now);
            }
            if locker.releases_at.take_if(|at| *at <= now_us).is_some() {
                // The holder has ended its work.
                locker.belief = None;
                locker.bound.release();
            }
            let until = match locker.bound.poll(now) {
                Action::Connect { until } => {
                    if !has_link {
                        self.connect(client);
                    }
                    until
                }
                Action::Send(request) => {
                    let mut out = Vec::new();
                    let sent = locker.session.send(&request, &mut out);
                    sent.expect("B3: one request is unanswered at a time");
                    self.send_up(client, Up::Bytes(out));
                    continue;
                }
                Action::Disconnect => {
                    locker.bound.disconnected(now);
                    self.hang_up(client);
                    continue;
                }
                Action::Tell(news) => {
                    self.note_news(client, &news)?;
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
        let deadline = locker.bound.deadline();
        if !locker.bound.is_held() {
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

    fn is_idle(&mut self, client: usize) -> bool {
        let locker = self.clients[client].locker();
        locker.is_some_and(|locker| locker.obtains_at.is_some())
    }

    fn note_news(&mut self, client: usize, news: &BoundNews) -> Judged {
        if !matches!(news, BoundNews::Failed(Failure::Disconnected)) {
            self.note(|| format!("client {client}: {news:?}"));
        }
        match news {
            BoundNews::Obtained => return self.obtained(client),
            BoundNews::Read(_)
            | BoundNews::Written
            | BoundNews::Checked
            | BoundNews::Refreshed
            | BoundNews::Undone(_)
            | BoundNews::SessionEnded => return Ok(()),
            // It follows the loss of a lock whose release was under way.
            BoundNews::NotHeld if self.is_idle(client) => return Ok(()),
            BoundNews::NotHeld => {
                let what = format!("client {client} has lost its lock on an open connection");
                return Err(Breach::new("X2", what));
            }
            BoundNews::Failed(_) => self.clients[client].next_node += 1,
            BoundNews::Lost(_) => self.tally.lost_locks += 1,
            BoundNews::NotObtained(_) | BoundNews::Released => {}
        }
        let at = self.now + 20 * MS + self.random.below(150 * MS);
        let other = self
            .random
            .chance(1, 3)
            .then(|| (self.random.below(LOCKS), self.random.next()));
        let is_failed = matches!(news, BoundNews::Failed(_));
        if is_failed || other.is_some() {
            self.hang_up(client);
        }
        let now = self.clients[client].clock.at(self.now);
        let Some(locker) = self.clients[client].locker() else {
            return Ok(());
        };
        (locker.belief, locker.releases_at) = (None, None);
        if let Some((key, seed)) = other {
            *locker = Locker::new(key, seed, at);
        } else {
            locker.obtains_at = Some(at);
            if is_failed {
                locker.bound.disconnected(now);
            }
        }
        Ok(())
    }

    /// The client has a lock (X2, X3).
    fn obtained(&mut self, client: usize) -> Judged {
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
        let deadline = locker.bound.deadline();
        locker.belief = Some(Belief {
            key: locker.key,
            process,
            until: deadline.map_or(u64::MAX, |at| clock.us_at(at)),
        });
        locker.releases_at = Some(now + hold);
        let (key, fence) = (locker.key, locker.bound.fence());
        self.tally.grants += 1;
        self.judge_grant(client, (partition, key), fence.map_or(0, Fence::number))
    }
}
