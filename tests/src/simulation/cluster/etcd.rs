//! etcd: a record for each partition, and the ways to and from it.
//!
//! A transaction goes to two members at once. In a rough episode each copy, and each answer, is lost, late or doubled
//! now and then. A copy that arrives while etcd is away is lost, or executed when etcd is back.

use latchd_cluster::election::{Answer, Id, Transaction};

use super::process::Internal;
use super::world::{Event, World};
use super::{MS, PARTITION_OF, S};

/// The members that get each transaction.
const MEMBERS: usize = 2;

/// The longest delay of a late transaction or answer, in microseconds.
const LATE: u64 = 3 * S / 2;

/// A copy of a transaction.
#[derive(Clone, Debug)]
pub(super) struct Copy {
    pub(super) node: usize,
    id: Id,
    number: u64,
    transaction: Transaction,
    is_late: bool,
}

impl World {
    /// Sends a transaction to the members.
    pub(super) fn send_to_etcd(
        &mut self,
        node: usize,
        id: Id,
        number: u64,
        transaction: &Transaction,
    ) {
        for _ in 0..MEMBERS {
            let copy = Copy {
                node,
                id,
                number,
                transaction: transaction.clone(),
                is_late: false,
            };
            let is_cut = self.nodes[node].to_etcd_cut_until > self.now;
            if is_cut || self.is_rough && self.random.chance(1, 5) {
                let open = self.nodes[node].to_etcd_cut_until;
                self.lose_or_delay(copy, open);
            } else {
                let at = self.now + self.way_to_etcd();
                self.push(at, Event::Etcd(copy));
            }
        }
    }

    /// A copy arrives.
    pub(super) fn arrive_at_etcd(&mut self, copy: Copy) {
        if self.away_until > self.now {
            let open = self.away_until;
            return self.lose_or_delay(copy, open);
        }
        if copy.is_late {
            self.tally.late += 1;
        }
        let register = &mut self.etcd[PARTITION_OF[copy.node]];
        let Ok(answer) = copy.transaction.perform(register, "");
        if let Answer::Swapped { revision } = answer {
            let node = copy.node;
            self.note(|| format!("etcd: revision {revision} by process of node {node}"));
        }
        let is_lost = self.nodes[copy.node].from_etcd_cut_until > self.now
            || self.is_rough && self.random.chance(1, 8);
        if is_lost {
            return;
        }
        let mut copies = 1;
        let mut at = self.now + self.way_to_etcd();
        if self.is_rough {
            copies += u64::from(self.random.chance(1, 10));
            if self.random.chance(1, 8) {
                at += self.random.below(LATE);
                self.last_fault = self.last_fault.max(at);
            }
        }
        for later in 0..copies {
            let what = Internal::Answer(copy.number, answer.clone());
            self.push_process(copy.node, copy.id, at + later * 20 * MS, what);
        }
    }

    /// A copy is lost, or arrives late, once the way is open.
    fn lose_or_delay(&mut self, copy: Copy, open: u64) {
        if !self.is_rough || !self.random.chance(1, 3) {
            return;
        }
        let at = open.max(self.now) + 1 + self.random.below(LATE);
        self.last_fault = self.last_fault.max(at);
        let is_late = true;
        self.push(at, Event::Etcd(Copy { is_late, ..copy }));
    }

    fn way_to_etcd(&mut self) -> u64 {
        let most = if self.is_rough { 60 * MS } else { 4 * MS };
        MS / 5 + self.random.below(most)
    }
}
