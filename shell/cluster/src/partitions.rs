//! The ring of the cluster: the partition of a key, and the servers that clients learn of.
//!
//! - M5: A command for a key of another partition is refused if the check covers it. A lock in the wrong partition would
//!   exclude nobody, so by default the check covers locks, waits and bound wins.

use crate::election::RingRecord;
use latchd_protocol::address::HostPort;
use latchd_protocol::command::Command;
use latchd_protocol::ring::Ring;
use latchd_protocol::wire::cluster::{ClusterConfig, ClusterServer};

/// The commands whose keys are checked. `--check-keys`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum CheckKeys {
    /// Commands for locks, waits and bound wins.
    #[default]
    Locks,
    /// All commands for one key.
    All,
    /// None.
    None,
}

/// The primary of a partition, as its record names it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Primary {
    pub(crate) term: u64,
    pub(crate) address: String,
}

/// The partitions of the cluster, and the one of this process.
#[derive(Debug)]
pub(crate) struct Partitions {
    record: RingRecord,
    /// The authority's revision of the record.
    revision: u64,
    ring: Ring,
    own: usize,
    checks: CheckKeys,
}

impl Partitions {
    /// The partitions of a ring; `None` if `own` is none of them.
    pub(crate) fn new(
        record: RingRecord,
        revision: u64,
        own: &str,
        checks: CheckKeys,
    ) -> Option<Self> {
        let own = record.partitions().iter().position(|one| one.name == own)?;
        Some(Self {
            ring: record.ring(),
            own,
            checks: if record.partitions().len() == 1 {
                CheckKeys::None
            } else {
                checks
            },
            record,
            revision,
        })
    }

    /// The name of the partition that has the key of this command, if the check covers it and it is another one (M5).
    #[inline]
    pub(crate) fn other(&self, command: &Command<'_>) -> Option<&str> {
        let is_checked = match self.checks {
            CheckKeys::None => false,
            CheckKeys::All => true,
            CheckKeys::Locks => command.concerns_locks(),
        };
        let key = command.key().filter(|_| is_checked)?;
        let place = self.ring.place(key.as_bytes());
        let partition = self.record.partitions().get(place)?;
        (place != self.own).then_some(&*partition.name)
    }

    /// Names and weights, in the order of the ring.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&str, u32)> {
        self.record
            .partitions()
            .iter()
            .map(|one| (&*one.name, one.weight))
    }

    /// The text of `config get cluster`: the host of each partition's name, and the address of its primary. A partition
    /// whose primary is unknown has the address of its name.
    ///
    /// The version depends on the records alone, so all processes show the same one. Each new primary adds 1.
    pub(crate) fn config(&self, primaries: &[Option<Primary>]) -> String {
        let terms = primaries.iter().flatten().map(|primary| primary.term);
        let version = terms.fold(self.revision, u64::saturating_add);
        // Records whose names or addresses have another form are refused, so no server is left out.
        let servers = self.all().enumerate().filter_map(|(place, (name, _))| {
            let primary = primaries.get(place).and_then(Option::as_ref);
            let address = primary.map_or(name, |one| &one.address);
            let (name, address) = (HostPort::parse(name, 0), HostPort::parse(address, 0).ok()?);
            Some(ClusterServer {
                name: name.ok()?.host,
                ip: address.host,
                port: address.port,
            })
        });
        let servers = servers.collect();
        ClusterConfig { version, servers }.encode()
    }
}

#[cfg(test)]
mod tests {
    use crate::election::{Id, Partition, Timing};
    use latchd_protocol::command::{Acquire, Get, ItemCommand};
    use latchd_protocol::key::Key;

    use super::*;

    fn partitions(names: &[&str], checks: CheckKeys) -> Partitions {
        let partition = |name: &&str| Partition {
            name: (*name).to_owned(),
            weight: 1,
        };
        let all = names.iter().map(partition).collect();
        let record = RingRecord::new(Id(1), all, Timing::default()).unwrap();
        Partitions::new(record, 7, names[0], checks).unwrap()
    }

    #[test]
    fn locks_of_other_partitions_are_named() {
        let names = ["cache-a:11211", "cache-b:11211"];
        // `user:8` belongs to the second one (the example of the ring).
        let key = Key::new(b"user:8").unwrap();
        let lock = Command::Item(ItemCommand::Acquire(Acquire::new(key)));
        let get = Command::Item(ItemCommand::Get(Get::new(key)));
        let bound = Get {
            bound_to_owner: true,
            ..Get::new(key)
        };
        let bound = Command::Item(ItemCommand::Get(bound));
        let other = |checks, command| partitions(&names, checks).other(command).map(str::to_owned);
        let second = Some(names[1].to_owned());
        assert_eq!(other(CheckKeys::Locks, &lock), second);
        assert_eq!(other(CheckKeys::Locks, &bound), second);
        assert_eq!(other(CheckKeys::Locks, &get), None);
        assert_eq!(other(CheckKeys::All, &get), second);
        assert_eq!(other(CheckKeys::None, &lock), None);
        let reversed = partitions(&[names[1], names[0]], CheckKeys::All);
        assert_eq!(reversed.other(&lock), None, "the first one is its own");
        assert_eq!(partitions(&names[..1], CheckKeys::All).other(&lock), None);
    }

    #[test]
    fn clients_learn_the_primaries() {
        let all = partitions(&["cache-a:11211", "[fe80::1]:11211"], CheckKeys::Locks);
        let primary = |term, address: &str| {
            let address = address.to_owned();
            Some(Primary { term, address })
        };
        for (primaries, text) in [
            (
                [None, None],
                "7\ncache-a|cache-a|11211 fe80::1|fe80::1|11211\n",
            ),
            (
                [primary(3, "10.0.0.7:11300"), None],
                "10\ncache-a|10.0.0.7|11300 fe80::1|fe80::1|11211\n",
            ),
            (
                [primary(3, "10.0.0.7:11300"), primary(1, "[fe80::7]:11311")],
                "11\ncache-a|10.0.0.7|11300 fe80::1|fe80::7|11311\n",
            ),
        ] {
            assert_eq!(all.config(&primaries), text);
        }
    }
}
