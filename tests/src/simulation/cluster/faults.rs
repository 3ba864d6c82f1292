//! The episodes of a run, and the faults of rough ones.

use latchd_cluster::election::{HEARTBEAT_MS, HOLD_MS, MARGIN_MS, RETRY_MS};
use latchd_cluster::verify::Register;

use super::world::{Event, Judged, World};
use super::{CLIENTS, MS, PARTITION_OF, PARTITIONS, S};

/// The longest outage of etcd that nothing shows, on the fastest clock, in microseconds: a heartbeat may be lost at the
/// beginning, and is sent again once its answer has not come. The rest is for the way to etcd.
const SHORT_MAX: u64 = (HOLD_MS - MARGIN_MS - HEARTBEAT_MS - RETRY_MS - 20) * MS * 100 / 105;

/// The length of an outage after which no process holds any more, in microseconds.
const OUTLASTS_HOLDS: u64 = HOLD_MS * MS * 100 / 95;

/// The time after which the holds that are in force begin to end, on the fastest clock, in microseconds.
const HOLDS_END: u64 = (HOLD_MS - MARGIN_MS - HEARTBEAT_MS) * MS * 100 / 105;

/// Something that goes wrong. Times are the ends, in microseconds.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fault {
    Kill(usize),
    Leave(usize),
    Pause(usize, u64),
    Stick(usize, u64),
    CutToEtcd(usize, u64),
    CutFromEtcd(usize, u64),
    CutClients(usize, u64),
    /// Replies wait, and requests arrive.
    CutReplies(usize, u64),
    CutClient(usize, u64),
    Away(u64),
    Delete(usize),
    /// The record is what it was at the beginning of the episode.
    Restore(usize),
}

/// An outage of etcd with no other fault.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Outage {
    None,
    Short,
    Long,
}

impl Outage {
    pub(super) const fn is_short(self) -> bool {
        matches!(self, Self::Short)
    }

    pub(super) const fn is_long(self) -> bool {
        matches!(self, Self::Long)
    }
}

impl World {
    /// Begins the next episode.
    pub(super) fn begin_episode(&mut self) {
        match self.random.below(6) {
            0 => {
                let at = self.now + S / 2 + self.random.below(SHORT_MAX - S / 2);
                self.outage = Outage::Short;
                self.away_until = at;
                self.tally.short += 1;
                self.note(|| "etcd is away for a short time".into());
                self.push(at + S, Event::EndEpisode);
            }
            1 => {
                let at = self.now + 4 * S + self.random.below(6 * S);
                self.outage = Outage::Long;
                self.away_until = at;
                self.tally.long += 1;
                // Less those that are replaced.
                self.tally.outlasted += PARTITIONS as u64;
                self.note(|| "etcd is away for a long time".into());
                self.push(at + S, Event::EndEpisode);
            }
            _ => self.begin_rough(),
        }
    }

    fn begin_rough(&mut self) {
        self.is_rough = true;
        self.tally.rough += 1;
        self.snapshots = self.etcd.clone();
        let length = 3 * S + self.random.below(10 * S);
        let end = self.now + length;
        for _ in 0..=self.random.below(7) {
            let at = self.now + self.random.below(length);
            let fault = self.draw_fault(at, end);
            self.push(at, Event::Fault(fault));
        }
        self.note(|| format!("{} ms of faults begin", length / MS));
        self.push(end, Event::EndEpisode);
    }

    fn draw_fault(&mut self, at: u64, end: u64) -> Fault {
        let partition = self.random.below(PARTITIONS as u64);
        let partition = usize::try_from(partition).expect("it is small");
        let node = self.draw_node(partition);
        let mut until = |most: u64| (at + 50 * MS + self.random.below(most)).min(end);
        let (short, long, replies) = (until(5 * S), until(9 * S), until(S));
        match self.random.below(20) {
            0..4 => Fault::Kill(node),
            4..7 => {
                self.cut_some(at, end);
                Fault::Leave(node)
            }
            7..11 => Fault::Pause(node, long),
            11 => Fault::Stick(node, short),
            12 | 13 => {
                // Some networks break for clients, too.
                self.push(at, Event::Fault(Fault::CutReplies(node, replies)));
                Fault::CutToEtcd(node, short)
            }
            14 => Fault::CutFromEtcd(node, short),
            15 | 16 => Fault::CutClients(node, short),
            17 if self.deletes => Fault::Delete(partition),
            17..19 if self.deletes && long > at + OUTLASTS_HOLDS => {
                self.push(long - 1, Event::Fault(Fault::Restore(partition)));
                Fault::Away(long)
            }
            _ if self.random.chance(1, 2) => Fault::Away(long),
            _ => {
                self.cut_some(at, end);
                let over = at + HOLDS_END + self.random.below(S);
                Fault::Away(over.min(end))
            }
        }
    }

    /// Cuts some lockers off from before the holds end that are in force at a moment, until after that. The promise alone
    /// ends their belief.
    fn cut_some(&mut self, at: u64, end: u64) {
        for client in CLIENTS..2 * CLIENTS {
            if self.random.chance(1, 2) {
                let at = at + self.random.below(HOLDS_END);
                let until = (at + S + self.random.below(3 * S)).min(end);
                self.push(at, Event::Fault(Fault::CutClient(client, until)));
            }
        }
    }

    /// A process of a partition: its primary, or any.
    fn draw_node(&mut self, partition: usize) -> usize {
        let nodes = (0..self.nodes.len()).filter(|node| PARTITION_OF[*node] == partition);
        let nodes: Vec<_> = nodes.collect();
        let primary = nodes.iter().copied().find(|node| {
            let process = self.nodes[*node].process.as_ref();
            process.is_some_and(|process| process.server.is_some())
        });
        match primary {
            Some(node) if self.random.chance(2, 3) => node,
            Some(_) | None => *self.random.choose(&nodes),
        }
    }

    /// A fault happens.
    pub(super) fn break_down(&mut self, fault: Fault) -> Judged {
        self.note(|| format!("{fault:?}"));
        match fault {
            Fault::Kill(node) => {
                let delay = 100 * MS + self.random.below(S);
                self.end_process(node, delay);
            }
            Fault::Leave(node) if self.nodes[node].paused_until > self.now => {}
            Fault::Leave(node) => return self.leave(node),
            // Events are put off until then: an end that came nearer would let others pass them.
            Fault::Pause(node, until) => {
                let node = &mut self.nodes[node];
                node.paused_until = node.paused_until.max(until);
            }
            Fault::Stick(node, until) => {
                let node = &mut self.nodes[node];
                node.stuck_until = node.stuck_until.max(until);
            }
            Fault::CutToEtcd(node, until) => self.nodes[node].to_etcd_cut_until = until,
            Fault::CutFromEtcd(node, until) => self.nodes[node].from_etcd_cut_until = until,
            Fault::CutClients(node, until) => {
                self.nodes[node].requests_cut_until = until;
                self.nodes[node].replies_cut_until = until;
            }
            Fault::CutReplies(node, until) => self.nodes[node].replies_cut_until = until,
            Fault::CutClient(client, until) => {
                let one = &mut self.clients[client];
                one.cut_until = one.cut_until.max(until);
            }
            Fault::Away(until) => self.away_until = self.away_until.max(until),
            Fault::Delete(partition) => {
                self.tally.deleted += 1;
                self.etcd[partition].found = None;
            }
            Fault::Restore(partition) => {
                self.tally.restored += 1;
                self.etcd[partition] = self.snapshots[partition].clone();
            }
        }
        Ok(())
    }

    /// The faults are over. What they have delayed may still come.
    pub(super) fn end_episode(&mut self) {
        self.is_rough = false;
        self.last_fault = self.last_fault.max(self.now);
        self.note(|| "calm begins".into());
        let at = self.served_at();
        self.push(at, Event::Judge);
    }

    /// The partitions must be served now, unless something has gone wrong meanwhile.
    pub(super) fn end_calm(&mut self) -> Judged {
        if self.served_at() > self.now {
            let at = self.served_at();
            self.push(at, Event::Judge);
            return Ok(());
        }
        self.judge_service()?;
        self.outage = Outage::None;
        let at = self.now + self.random.below(S);
        self.push(at, Event::BeginEpisode);
        Ok(())
    }
}

/// The records of all partitions.
pub(super) type Records = [Register; PARTITIONS];
