//! The rules of the cluster: X1 to X3, X5 and X6. X4 stands with the clients of items.

use latchd_cluster::election::{End, WAIT_MS};

use super::world::{Breach, Judged, World};
use super::{MS, PARTITION_OF, PARTITIONS};

/// The time in which a partition is served again: T + 1 s on the slowest clock, in microseconds (X5).
const SERVED_WITHIN: u64 = (WAIT_MS + 1000) * MS * 100 / 95;

impl World {
    /// At most one process holds a partition (X1).
    pub(super) fn judge_holders(&self) -> Judged {
        let mut holders = [None; PARTITIONS];
        for (node, one) in self.nodes.iter().enumerate() {
            let now = one.clock.at(self.now);
            let Some(process) = one.process.as_ref().filter(|process| process.holds(now)) else {
                continue;
            };
            if let Some(other) = holders[PARTITION_OF[node]].replace(process.id.0) {
                let what = format!("processes {other} and {} hold a partition", process.id.0);
                return Err(Breach::new("X1", what));
            }
        }
        Ok(())
    }

    /// A process does what only a primary may do (X1, X2).
    pub(super) fn judge_step(&self, node: usize, step: &str) -> Judged {
        let Some(process) = self.nodes[node].process.as_ref() else {
            return Ok(());
        };
        let (id, partition) = (process.id, PARTITION_OF[node]);
        for (other, one) in self.nodes.iter().enumerate() {
            if other == node || PARTITION_OF[other] != partition {
                continue;
            }
            let now = one.clock.at(self.now);
            let holder = one.process.as_ref().filter(|process| process.holds(now));
            if let Some(holder) = holder {
                let what = format!("process {} {step}, and process {} holds", id.0, holder.id.0);
                return Err(Breach::new("X1", what));
            }
        }
        for (number, client) in self.clients.iter().enumerate() {
            if client.partition == partition
                && let Some(belief) = client.believes(self.now)
                && belief.process != id
            {
                let what = format!(
                    "process {} {step}, and client {number} believes in lock{} of process {}",
                    id.0, belief.key, belief.process.0
                );
                return Err(Breach::new("X2", what));
            }
        }
        Ok(())
    }

    /// A client has obtained a lock (X2, X3).
    pub(super) fn judge_grant(&mut self, client: usize, lock: (usize, u64), fence: u64) -> Judged {
        let (partition, key) = lock;
        for (number, other) in self.clients.iter().enumerate() {
            if number != client
                && other.partition == partition
                && let Some(belief) = other.believes(self.now)
                && belief.key == key
            {
                let what = format!("clients {number} and {client} believe in lock{key}");
                return Err(Breach::new("X2", what));
            }
        }
        let last = self.fences.insert(lock, fence).unwrap_or(0);
        Breach::unless(fence > last, "X3", || {
            format!("the fence of lock{key} falls from {last} to {fence}")
        })
    }

    /// A process is suspended (X6).
    pub(super) fn judge_suspension(&self, node: usize) -> Judged {
        Breach::unless(!self.outage.is_short(), "X6", || {
            format!("node {node} is suspended by a short outage")
        })
    }

    /// A term ends (X6).
    pub(super) fn judge_end(&self, node: usize, end: End) -> Judged {
        let is_alone = self.outage.is_short() || self.outage.is_long();
        Breach::unless(!is_alone || end == End::Left, "X6", || {
            format!("node {node} is over by an outage")
        })
    }

    /// When each partition must be served.
    pub(super) const fn served_at(&self) -> u64 {
        self.last_fault + SERVED_WITHIN
    }

    /// Each partition is served (X5).
    pub(super) fn judge_service(&mut self) -> Judged {
        for partition in 0..PARTITIONS {
            let nodes = self.nodes.iter().enumerate();
            let mut nodes = nodes.filter(|(node, _)| PARTITION_OF[*node] == partition);
            let serves = nodes.any(|(_, one)| {
                let now = one.clock.at(self.now);
                one.process.as_ref().is_some_and(|one| one.is_open(now))
            });
            Breach::unless(serves, "X5", || {
                let since = (self.now - self.last_fault) / MS;
                format!("partition {partition} is not served {since} ms after the last fault")
            })?;
        }
        self.tally.served += 1;
        Ok(())
    }
}
