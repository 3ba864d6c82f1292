//! The flags of a member of a cluster.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use latchd_cluster::{CheckKeys, ClusterSettings};

use super::{AuthorityFlags, CLUSTER};

/// The part of a server in a cluster.
#[derive(Debug, clap::Args)]
pub(crate) struct ClusterFlags {
    #[command(flatten)]
    authority: AuthorityFlags,
    /// Serve this partition of the cluster, or stand by for it
    #[arg(long, value_name = "HOST:PORT", help_heading = CLUSTER)]
    partition: Option<String>,
    /// Tell clients and other machines this address [default: that of -l]
    #[arg(long, value_name = "HOST:PORT", help_heading = CLUSTER)]
    advertise: Option<String>,
    /// Refuse commands for keys of other partitions: those for locks, all, or none [default: locks]
    #[arg(long, value_name = "COMMANDS", hide_possible_values = true, help_heading = CLUSTER,
        value_parser = PossibleValuesParser::new(["locks", "all", "none"]))]
    check_keys: Option<String>,
    /// Keep records for the next process in DIR, so that it grants no lock twice
    #[arg(long, value_name = "DIR", help_heading = CLUSTER)]
    pub(crate) state: Option<PathBuf>,
}

impl ClusterFlags {
    /// The settings; `None` outside a cluster.
    ///
    /// # Errors
    /// A message for the operator, if an option is wrong or missing.
    pub(crate) fn settings(self) -> Result<Option<ClusterSettings>, String> {
        // The options may be of several sources, so the parser of one source cannot tell this.
        if let (None, Some(flag)) = (&self.partition, self.of_a_partition()) {
            return Err(format!(
                "{flag}: there is no partition; add --partition HOST:PORT"
            ));
        }
        let (authority, cluster, partition) = match (self.authority.options()?, self.partition) {
            (None, None) => return Ok(None),
            (None, Some(_)) => {
                return Err("--partition: there is no authority; add --authority URL".into());
            }
            (Some(_), None) => {
                return Err("--authority: there is no partition; add --partition HOST:PORT".into());
            }
            (Some((authority, cluster)), Some(partition)) => (authority, cluster, partition),
        };
        let mut settings = ClusterSettings::new(authority, cluster, partition);
        settings.advertise = self.advertise;
        settings.check_keys = match self.check_keys.as_deref() {
            Some("all") => CheckKeys::All,
            Some("none") => CheckKeys::None,
            Some(_) | None => CheckKeys::Locks,
        };
        settings.state = self.state;
        Ok(Some(settings))
    }

    /// A flag that is given and needs `--partition`.
    fn of_a_partition(&self) -> Option<&'static str> {
        let given = [
            ("--advertise", self.advertise.is_some()),
            ("--check-keys", self.check_keys.is_some()),
        ];
        let flag = given.into_iter().find(|(_, is_given)| *is_given);
        flag.map(|(name, _)| name)
    }
}
