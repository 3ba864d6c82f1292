//! A process: its election, its driver, and its beginning and end.
//!
//! The driver does the work of `shell/cluster/src/candidate.rs` and of its host: it carries transactions, asks the
//! workers, sets the gate after every step, begins terms, and ends the process.

use std::collections::BTreeMap;

use latchd_cluster::election::{
    self, Answer, Election, End, HEARTBEAT_MS, Id, Moment, News, Term, Timing,
};
use latchd_core::engine::Config;
use latchd_core::{ConnId, Instant, Limits, Server};
use latchd_protocol::fence::Fence;
use latchd_protocol::item::Cas;

use super::clock::Clock;
use super::network::{Down, Peer};
use super::world::{Breach, Event, Judged, World};
use super::{MS, PARTITION_OF, S, WORKERS};

/// The memory of a core, in bytes, and its longest value.
const LIMITS: (usize, usize) = (4 << 20, 1024);

/// The wall clock at the beginning, in milliseconds since 1970.
const UNIX_MS: u64 = 1_700_000_000_000;

/// The time of a process that leaves for its record to say `free`.
const FREE_MAX: u64 = S;

/// A machine of the cluster.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) clock: Clock,
    /// The distance of its wall clock from the right time, in milliseconds; `None` if it shows 1970.
    pub(super) wall_off_ms: Option<u64>,
    pub(super) has_state_dir: bool,
    /// The id in its state directory.
    pub(super) last_id: Option<Id>,
    pub(super) paused_until: u64,
    pub(super) stuck_until: u64,
    pub(super) to_etcd_cut_until: u64,
    pub(super) from_etcd_cut_until: u64,
    pub(super) requests_cut_until: u64,
    pub(super) replies_cut_until: u64,
    pub(super) process: Option<Process>,
}

/// A process that runs.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) id: Id,
    pub(super) election: Election,
    started_at: u64,
    /// Its core and connections, from its term on until it has closed.
    pub(super) server: Option<Server>,
    /// The gate: the first moment at which it must not serve.
    pub(super) serves_until: Option<Instant>,
    /// The latest end of serving that a client was told.
    pub(super) promised: Instant,
    /// A process that leaves promises no later end.
    pub(super) leaves_at: Option<Instant>,
    pub(super) has_closed: bool,
    /// The highest number that it has shown.
    pub(super) numbers: u64,
    pub(super) conns: BTreeMap<ConnId, Conn>,
    pub(super) due_at: u64,
    poll_at: u64,
    watch_at: u64,
    /// When each worker answers the last round that it was asked.
    answers_at: [u64; WORKERS],
}

/// The server's end of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Conn {
    pub(super) peer: Peer,
    /// When its last deferred output is sent.
    pub(super) flush_at: u64,
}

/// An event inside of a process, which waits while the process is paused.
#[derive(Clone, Debug)]
pub(super) enum Internal {
    /// The next action of the election.
    Poll,
    /// The thread that ends the process looks at the clock.
    Watch,
    Answer(u64, Answer),
    /// A worker answers a round, and closes connections first if the round suspends.
    Worker {
        worker: usize,
        round: u64,
        suspends: bool,
    },
    /// The deadline of the server.
    Due,
    /// Deferred output is sent.
    Flush(ConnId, Vec<u8>),
    /// A process that leaves closes.
    Close,
    /// Its promises are over.
    Closed,
    /// The record did not say `free` in time.
    GiveUp,
}

impl Process {
    pub(super) fn is_open(&self, now: Instant) -> bool {
        self.serves_until.is_some_and(|until| now < until)
    }

    /// Whether it holds the partition, by its own clock.
    pub(super) fn holds(&self, now: Instant) -> bool {
        let until = self.election.held_until();
        until.is_some_and(|until| now < until) && !self.has_closed
    }
}

impl World {
    /// A process starts, as a supervisor starts it.
    pub(super) fn start(&mut self, node: usize) -> Judged {
        if self.nodes[node].process.is_some() {
            return Ok(());
        }
        self.started += 1;
        let id = Id(self.started);
        let last_id = self.nodes[node].last_id.replace(id);
        let predecessor = last_id.filter(|_| self.nodes[node].has_state_dir);
        let process = election::Process {
            id,
            address: format!("node{node}:11211"),
            version: "1".into(),
            workers: WORKERS,
        };
        self.note(|| format!("process {} starts on node {node}", id.0));
        self.nodes[node].process = Some(Process {
            id,
            election: Election::new(process, Timing::default(), predecessor),
            started_at: self.now,
            server: None,
            serves_until: None,
            promised: Instant::from_millis(0),
            leaves_at: None,
            has_closed: false,
            numbers: 0,
            conns: BTreeMap::new(),
            due_at: 0,
            poll_at: 0,
            watch_at: 0,
            answers_at: [0; WORKERS],
        });
        self.elect(node)
    }

    /// An event waits for a paused process: a plan for this moment is one for a later moment.
    pub(super) fn put_off(&mut self, node: usize, id: Id, what: Internal, at: u64) {
        let now = self.now;
        if let Some(process) = self.nodes[node].process.as_mut().filter(|one| one.id == id) {
            match what {
                Internal::Poll if process.poll_at == now => process.poll_at = at,
                Internal::Watch if process.watch_at == now => process.watch_at = at,
                Internal::Poll
                | Internal::Watch
                | Internal::Answer(..)
                | Internal::Worker { .. }
                | Internal::Due
                | Internal::Flush(..)
                | Internal::Close
                | Internal::Closed
                | Internal::GiveUp => {}
            }
        }
        self.push_process(node, id, at, what);
    }

    /// An event inside of a process.
    pub(super) fn happen_inside(&mut self, node: usize, id: Id, what: Internal) -> Judged {
        let now = self.nodes[node].clock.at(self.now);
        let now_us = self.now;
        let stuck_until = self.nodes[node].stuck_until;
        let Some(process) = self.nodes[node].process.as_mut() else {
            return Ok(());
        };
        if process.id != id {
            return Ok(());
        }
        match what {
            Internal::Poll if process.poll_at != now_us => Ok(()),
            Internal::Poll => self.elect(node),
            Internal::Watch if process.watch_at != now_us => Ok(()),
            Internal::Watch => {
                process.watch_at = 0;
                match process.election.ends_at() {
                    Some(at) if now >= at => self.over(node, End::Stuck),
                    Some(_) | None => {
                        self.watch(node);
                        Ok(())
                    }
                }
            }
            Internal::Answer(number, answer) => {
                process.election.answer(now, number, answer);
                self.elect(node)
            }
            Internal::Worker { worker: 0, .. } if stuck_until > now_us => {
                self.push_process(node, id, stuck_until, what);
                Ok(())
            }
            Internal::Worker {
                worker,
                round,
                suspends,
            } => {
                if suspends {
                    self.suspend(node, worker)?;
                }
                if let Some(process) = self.nodes[node].process.as_mut() {
                    process.election.worker_answered(worker, round);
                }
                self.elect(node)
            }
            Internal::Due => self.pass_time(node),
            Internal::Flush(conn, bytes) => self.send(node, conn, bytes),
            Internal::Close => {
                self.close(node);
                Ok(())
            }
            Internal::Closed => {
                process.has_closed = true;
                process.election.closed();
                let at = now_us + FREE_MAX;
                self.push_process(node, id, at, Internal::GiveUp);
                self.elect(node)
            }
            Internal::GiveUp => self.over(node, End::Left),
        }
    }

    /// Does what the election says, until it waits.
    pub(super) fn elect(&mut self, node: usize) -> Judged {
        loop {
            let (now, unix_ms) = (self.nodes[node].clock.at(self.now), self.unix_ms(node));
            let Some(process) = self.nodes[node].process.as_mut() else {
                return Ok(());
            };
            let (id, numbers) = (process.id, process.numbers);
            let moment = Moment {
                now,
                unix_ms,
                numbers,
            };
            let action = process.election.poll(moment);
            process.serves_until = process.election.serves_until();
            self.watch(node);
            match action {
                election::Action::Send {
                    number,
                    transaction,
                } => self.send_to_etcd(node, id, number, &transaction),
                election::Action::AskWorkers { round } => self.ask_workers(node, round, false),
                election::Action::Tell(News::Over(end)) => return self.over(node, end),
                election::Action::Tell(news) => self.follow(node, &news)?,
                election::Action::Wait { until } => {
                    if let Some(until) = until {
                        let at = self.nodes[node].clock.us_at(until).max(self.now + 1);
                        self.push_poll(node, at);
                    }
                    return Ok(());
                }
            }
        }
    }

    fn push_poll(&mut self, node: usize, at: u64) {
        if let Some(process) = self.nodes[node].process.as_mut()
            && process.poll_at != at
        {
            process.poll_at = at;
            let id = process.id;
            self.push_process(node, id, at, Internal::Poll);
        }
    }

    /// The thread that ends the process sleeps until the end of the hold.
    fn watch(&mut self, node: usize) {
        let clock = self.nodes[node].clock;
        if let Some(process) = self.nodes[node].process.as_mut()
            && let Some(at) = process.election.ends_at()
        {
            let at = clock.us_at(at).max(self.now + 1);
            if process.watch_at != at {
                process.watch_at = at;
                let id = process.id;
                self.push_process(node, id, at, Internal::Watch);
            }
        }
    }

    pub(super) fn unix_ms(&self, node: usize) -> u64 {
        let off = self.nodes[node].wall_off_ms;
        off.map_or(1, |off| UNIX_MS + self.now / MS + off)
    }

    fn ask_workers(&mut self, node: usize, round: u64, suspends: bool) {
        let most = if self.is_rough { 60 * MS } else { 3 * MS };
        for worker in 0..WORKERS {
            let at = self.now + self.random.below(most);
            let Some(process) = self.nodes[node].process.as_mut() else {
                return;
            };
            let at = at.max(process.answers_at[worker]);
            process.answers_at[worker] = at;
            let (id, what) = (
                process.id,
                Internal::Worker {
                    worker,
                    round,
                    suspends,
                },
            );
            self.push_process(node, id, at, what);
        }
    }

    /// Does what a change of the role needs.
    fn follow(&mut self, node: usize, news: &News) -> Judged {
        self.note(|| format!("node {node}: {news:?}"));
        match news {
            News::Stands(_) | News::Over(_) => Ok(()),
            News::Unreadable(error) => Err(Breach::new(
                "R1",
                format!("a record cannot be read: {error}"),
            )),
            News::Serves(term) => {
                self.begin_term(node, term);
                self.pass_time(node)
            }
            News::Suspended { round } => {
                self.tally.suspended += 1;
                self.ask_workers(node, *round, true);
                self.judge_suspension(node)
            }
            News::Resumed => {
                self.tally.resumed += 1;
                Ok(())
            }
        }
    }

    /// A new core, with numbers above all earlier ones.
    fn begin_term(&mut self, node: usize, term: &Term) {
        self.tally.terms += 1;
        self.tally.free += u64::from(term.inherits.is_some());
        let unix_s = self.unix_ms(node) / 1000;
        let limits = Limits::new(LIMITS.0, LIMITS.1);
        let mut config = Config::new(limits, unix_s);
        config.fence_first = term.first.max(Fence::FIRST);
        config.cas_first = Cas::new(term.first.number()).unwrap_or(Cas::FIRST);
        if let Some(process) = self.nodes[node].process.as_mut() {
            process.server = Some(Server::new(config));
            // Without the lock of the state directory, it would have waited for T.
            let is_early = self.now - process.started_at < 3 * S && term.inherits.is_none();
            self.tally.at_once += u64::from(is_early);
        }
    }

    /// The process ends, and the supervisor starts another one.
    pub(super) fn over(&mut self, node: usize, end: End) -> Judged {
        self.note(|| format!("node {node} is over: {end:?}"));
        match end {
            End::Lost => self.tally.lost_terms += 1,
            End::Stuck => self.tally.stuck += 1,
            End::Left => self.tally.left += 1,
        }
        let delay = 100 * MS + self.random.below(S);
        self.end_process(node, delay);
        self.judge_end(node, end)
    }

    /// The process of a node ends at once, and the next one starts after a delay.
    pub(super) fn end_process(&mut self, node: usize, delay: u64) {
        let Some(process) = self.nodes[node].process.take() else {
            return;
        };
        for conn in process.conns.values() {
            self.reset(conn.peer);
        }
        self.nodes[node].paused_until = 0;
        self.nodes[node].stuck_until = 0;
        let at = self.now + delay;
        if self.is_rough || !self.has_process(PARTITION_OF[node]) {
            self.last_fault = self.last_fault.max(at);
        }
        self.push(at, Event::Start(node));
    }

    fn has_process(&self, partition: usize) -> bool {
        let mut nodes = (0..self.nodes.len()).filter(|node| PARTITION_OF[*node] == partition);
        nodes.any(|node| self.nodes[node].process.is_some())
    }

    /// SIGTERM: the record says `leaving`, and clients are promised nothing beyond the end.
    pub(super) fn leave(&mut self, node: usize) -> Judged {
        let clock = self.nodes[node].clock;
        let now = clock.at(self.now);
        let Some(process) = self.nodes[node].process.as_mut() else {
            return Ok(());
        };
        process.election.leave();
        if process.server.is_some() && process.leaves_at.is_none() {
            let at = Instant::from_millis(now.as_millis() + HEARTBEAT_MS).max(process.promised);
            process.leaves_at = Some(at);
            let (id, at) = (process.id, clock.us_at(at).max(self.now));
            self.push_process(node, id, at, Internal::Close);
        }
        self.elect(node)
    }

    /// A process that leaves closes its connections, which frees their locks.
    fn close(&mut self, node: usize) {
        let clock = self.nodes[node].clock;
        let Some(process) = self.nodes[node].process.as_mut() else {
            return;
        };
        process.server = None;
        let conns = std::mem::take(&mut process.conns);
        let (id, at) = (process.id, clock.us_at(process.promised).max(self.now));
        for conn in conns.values() {
            self.send_down(node, conn.peer, Down::Closed);
        }
        self.push_process(node, id, at, Internal::Closed);
    }
}
