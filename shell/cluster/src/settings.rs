//! The settings of a member of a cluster: `--authority`, `--cluster`, `--partition`.

use std::path::PathBuf;

use crate::election::{RingRecord, partition_key};
use latchd_protocol::address::HostPort;

use crate::etcd::AuthorityOptions;
use crate::partitions::CheckKeys;

/// The part of a server in a cluster: it serves a partition while it is the partition's primary, and stands by
/// otherwise. The process ends with exit code 75 when its term is over, at any moment and without unwinding: its
/// supervisor restarts it as a standby.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct ClusterSettings {
    /// The etcd that has the records of the cluster. `--authority`.
    pub authority: AuthorityOptions,
    /// The name of the cluster: 1 to 64 letters, digits, `-`, `_` and `.`. `--cluster`.
    pub cluster: String,
    /// The partition to serve, as the ring names it: `HOST:PORT`. `--partition`.
    pub partition: String,
    /// The address under which clients and the other machines reach this process: `HOST:PORT`. `None`: that of the
    /// first listener, or the machine's address towards the authority if the listener has every address. `--advertise`.
    pub advertise: Option<String>,
    /// The commands that are refused for a key of another partition. `--check-keys`.
    pub check_keys: CheckKeys,
    /// A directory of this process alone, on a local disk. With it, a process that is restarted at once serves at once.
    /// `--state`.
    pub state: Option<PathBuf>,
}

impl ClusterSettings {
    /// A member without `--advertise` and `--state`.
    #[must_use]
    pub fn new(authority: AuthorityOptions, cluster: String, partition: String) -> Self {
        Self {
            authority,
            cluster,
            partition,
            advertise: None,
            check_keys: CheckKeys::default(),
            state: None,
        }
    }

    /// Checks the settings by themselves.
    ///
    /// # Errors
    /// A message for the operator.
    pub fn check(&self) -> Result<(), String> {
        self.authority.check()?;
        let Self {
            cluster, partition, ..
        } = self;
        if partition_key(cluster, "a:1").is_none() {
            return Err(format!(
                "--cluster {cluster}: not a name; use 1 to 64 letters, digits, `-`, `_` and `.`"
            ));
        }
        if partition_key(cluster, partition).is_none() {
            return Err(format!(
                "--partition {partition}: not HOST:PORT; write it as in `latchd cluster init`"
            ));
        }
        if let Some(advertise) = &self.advertise
            && !HostPort::parse(advertise, 0).is_ok_and(|address| address.port > 0)
        {
            return Err(format!("--advertise {advertise}: expected HOST:PORT"));
        }
        Ok(())
    }

    /// Reads the value of the ring's record, and checks that it has the partition. `None`: there is no record.
    ///
    /// # Errors
    /// A message for the operator.
    pub fn ring(&self, value: Option<&str>) -> Result<RingRecord, String> {
        let Self {
            cluster, partition, ..
        } = self;
        let value = value.ok_or_else(|| {
            format!("the authority has no cluster {cluster}; run `latchd cluster init` first")
        })?;
        let ring = RingRecord::parse(value)
            .map_err(|error| format!("the ring of cluster {cluster} is not usable: {error}"))?;
        let names: Vec<_> = ring.partitions().iter().map(|one| &*one.name).collect();
        if !names.contains(&&**partition) {
            let names = names.join(", ");
            return Err(format!(
                "--partition {partition}: not a partition of {cluster}; its ring is {names}"
            ));
        }
        Ok(ring)
    }
}
