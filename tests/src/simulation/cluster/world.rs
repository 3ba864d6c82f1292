//! The loop: the next event in the order of time, and the rules after it.

use std::collections::BTreeMap;

use latchd_cluster::election::Id;
use latchd_harness::random::Random;

use super::cache::{Cache, Numbers};
use super::clock::Clock;
use super::etcd::Copy;
use super::faults::{Fault, Outage, Records};
use super::locker::Locker;
use super::network::{Down, Link, Peer, Up};
use super::process::{Internal, Node};
use super::{CLIENTS, LOCKS, MS, PARTITION_OF, PARTITIONS, S};
use crate::simulation::tally::Cluster;
use crate::simulation::trace::{Keeps, Trace};
use crate::simulation::{Plan, Report};

pub(super) use crate::simulation::Breach;

/// The outcome of a step.
pub(super) type Judged = Result<(), Breach>;

/// The longest time in which the threads of a process that was paused go on, each at its moment, in microseconds.
const WAKING: u64 = 3 * MS;

/// An event.
#[derive(Clone, Debug)]
pub(super) enum Event {
    Start(usize),
    Inside { node: usize, id: Id, what: Internal },
    Etcd(Copy),
    Up { node: usize, peer: Peer, up: Up },
    Down { peer: Peer, down: Down },
    Wake { client: usize, turn: u64 },
    Fault(Fault),
    BeginEpisode,
    EndEpisode,
    Judge,
}

/// A client.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) partition: usize,
    pub(super) clock: Clock,
    pub(super) next_node: usize,
    /// Until then its network is silent, and breaks no connection.
    pub(super) cut_until: u64,
    pub(super) link: Option<Link>,
    /// How many connections it has had.
    pub(super) links: u64,
    /// The number of its next wake-up.
    turn: u64,
    pub(super) kind: Kind,
}

#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there are forty")]
pub(super) enum Kind {
    Cache(Cache),
    Locker(Locker),
}

/// Machines, etcd, clients, and all that is on the way between them.
#[derive(Debug)]
pub(in crate::simulation) struct World {
    events_max: u64,
    events: u64,
    digest: u64,
    trace: Trace,
    pub(super) tally: Cluster,
    pub(super) random: Random,
    /// Microseconds since the beginning.
    pub(super) now: u64,
    queue: BTreeMap<(u64, u64), Event>,
    pushed: u64,
    pub(super) etcd: Records,
    /// The records at the beginning of the episode.
    pub(super) snapshots: Records,
    /// Whether records are deleted and restored. Then no wall clock is far off.
    pub(super) deletes: bool,
    pub(super) away_until: u64,
    pub(super) outage: Outage,
    pub(super) is_rough: bool,
    pub(super) last_fault: u64,
    pub(super) nodes: Vec<Node>,
    /// How many processes there were.
    pub(super) started: u128,
    /// Those of items first.
    pub(super) clients: Vec<Client>,
    /// The last fence of each lock that a client has heard.
    pub(super) fences: BTreeMap<(usize, u64), u64>,
    /// The numbers of each key that each process has shown.
    pub(super) items: BTreeMap<(Id, usize), Numbers>,
    /// The last CAS number of each key.
    pub(super) cas: [u64; CLIENTS],
}

impl World {
    pub(in crate::simulation) fn new(plan: &Plan, keeps: Keeps) -> Self {
        let mut random = Random::new(plan.seed.wrapping_mul(0x9e37_79b9).wrapping_add(3));
        let deletes = random.chance(1, 2);
        let nodes = PARTITION_OF.map(|_| draw_node(&mut random, deletes));
        let clients = (0..2 * CLIENTS).map(|number| draw_client(&mut random, number));
        let clients = clients.collect();
        let mut world = Self {
            events_max: plan.events,
            events: 0,
            digest: plan.seed,
            trace: Trace::new(keeps),
            tally: Cluster::default(),
            random,
            now: 0,
            queue: BTreeMap::new(),
            pushed: 0,
            etcd: Records::default(),
            snapshots: Records::default(),
            deletes,
            away_until: 0,
            outage: Outage::None,
            is_rough: false,
            last_fault: 0,
            nodes: nodes.into(),
            started: 0,
            clients,
            fences: BTreeMap::new(),
            items: BTreeMap::new(),
            cas: [0; CLIENTS],
        };
        for node in 0..PARTITION_OF.len() {
            let at = world.random.below(S);
            world.push(at, Event::Start(node));
        }
        for client in 0..2 * CLIENTS {
            world.wake(client, S);
        }
        world.push(S, Event::EndEpisode);
        world
    }

    pub(in crate::simulation) const fn events(&self) -> u64 {
        self.events
    }

    pub(in crate::simulation) fn last(&self) -> Vec<String> {
        self.trace.last()
    }

    pub(in crate::simulation) fn run(&mut self) -> Result<Report, Breach> {
        while self.events < self.events_max {
            let next = self.queue.pop_first();
            let ((at, _), event) = next.expect("an episode has an end, and calm has one");
            self.now = at;
            let Some(event) = self.unless_paused(event) else {
                continue;
            };
            self.events += 1;
            self.digest_number(at);
            self.happen(event)?;
            self.judge_holders()?;
        }
        self.tally.seconds += self.now / S;
        Ok(Report {
            events: self.events,
            digest: self.digest,
            cluster: self.tally,
            ..Report::default()
        })
    }

    fn happen(&mut self, event: Event) -> Judged {
        match event {
            Event::Start(node) => self.start(node),
            Event::Inside { node, id, what } => self.happen_inside(node, id, what),
            Event::Etcd(copy) => {
                self.arrive_at_etcd(copy);
                Ok(())
            }
            Event::Up { node, peer, up } => self.arrive_at_process(node, peer, up),
            Event::Down { peer, down } => self.arrive_at_client(peer, down),
            Event::Wake { client, turn } if self.clients[client].turn == turn => {
                if let Kind::Locker(_) = self.clients[client].kind {
                    return self.drive_locker(client);
                }
                self.drive_cache(client);
                Ok(())
            }
            Event::Wake { .. } => Ok(()),
            Event::Fault(fault) => self.break_down(fault),
            Event::BeginEpisode => {
                self.begin_episode();
                Ok(())
            }
            Event::EndEpisode => {
                self.end_episode();
                Ok(())
            }
            Event::Judge => self.end_calm(),
        }
    }

    /// A client hears something.
    pub(super) fn hear(&mut self, client: usize, down: Down) -> Judged {
        match self.clients[client].kind {
            Kind::Locker(_) => self.tell_locker(client, down),
            Kind::Cache(_) => self.tell_cache(client, down),
        }
    }

    /// The event, unless its process is paused: then it comes when the process goes on. Its threads go on in any order,
    /// and each socket keeps the order of its bytes.
    fn unless_paused(&mut self, event: Event) -> Option<Event> {
        let (node, is_ordered) = match &event {
            Event::Inside { node, what, .. } => (*node, matches!(what, Internal::Flush(..))),
            Event::Up { node, .. } => (*node, true),
            Event::Start(_)
            | Event::Etcd(_)
            | Event::Down { .. }
            | Event::Wake { .. }
            | Event::Fault(_)
            | Event::BeginEpisode
            | Event::EndEpisode
            | Event::Judge => return Some(event),
        };
        let until = self.nodes[node].paused_until;
        if until <= self.now {
            return Some(event);
        }
        let wakes_at = if is_ordered {
            until
        } else {
            until + self.random.below(WAKING)
        };
        match event {
            Event::Inside { id, what, .. } => self.put_off(node, id, what, wakes_at),
            other => self.push(wakes_at, other),
        }
        None
    }

    pub(super) fn push(&mut self, at: u64, event: Event) {
        self.pushed += 1;
        self.queue.insert((at.max(self.now), self.pushed), event);
    }

    pub(super) fn push_process(&mut self, node: usize, id: Id, at: u64, what: Internal) {
        self.push(at, Event::Inside { node, id, what });
    }

    /// Wakes a client at a moment, instead of an earlier plan to do so.
    pub(super) fn wake(&mut self, client: usize, at: u64) {
        let at = at.max(self.now + 1);
        self.clients[client].turn += 1;
        let turn = self.clients[client].turn;
        self.push(at, Event::Wake { client, turn });
    }

    pub(super) fn note(&mut self, line: impl FnOnce() -> String) {
        let now = self.now;
        self.trace
            .note(self.events, || format!("{:>9} ms  {}", now / MS, line()));
    }

    fn digest_number(&mut self, number: u64) {
        self.digest = (self.digest ^ number)
            .wrapping_mul(0x0100_0000_01b3)
            .rotate_left(5);
    }

    pub(super) fn digest_bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.digest_number(u64::from(*byte));
        }
    }
}

fn draw_node(random: &mut Random, deletes: bool) -> Node {
    let wall_off_ms = if deletes {
        Some(random.below(500))
    } else {
        let off = [None, Some(random.below(1 << 40)), Some(0)];
        *random.choose(&off)
    };
    Node {
        clock: Clock::draw(random),
        wall_off_ms,
        has_state_dir: random.chance(1, 2),
        last_id: None,
        paused_until: 0,
        stuck_until: 0,
        to_etcd_cut_until: 0,
        from_etcd_cut_until: 0,
        requests_cut_until: 0,
        replies_cut_until: 0,
        process: None,
    }
}

fn draw_client(random: &mut Random, number: usize) -> Client {
    let kind = if number < CLIENTS {
        Kind::Cache(Cache::default())
    } else {
        let (key, seed) = (random.below(LOCKS), random.next());
        Kind::Locker(Locker::new(key, seed, S + random.below(S)))
    };
    Client {
        partition: number % PARTITIONS,
        clock: Clock::draw(random),
        next_node: 0,
        cut_until: 0,
        link: None,
        links: 0,
        turn: 0,
        kind,
    }
}
