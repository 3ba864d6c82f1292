//! Flags of memcached that are refused: without their function the server would be less protected than its
//! operator expects, or do less than a start script relies on.

/// Flags for functions that latchd does not have.
#[derive(Debug, clap::Args)]
pub(super) struct Refused {
    /// Start scripts disable UDP with port 0, which is accepted.
    #[arg(short = 'U', long, hide = true)]
    udp_port: Option<u16>,
}

impl Refused {
    /// # Errors
    /// A message for the operator: the unsupported function, and the alternative.
    pub(super) fn refuse(&self) -> Result<(), String> {
        let Self { udp_port } = self;
        if udp_port.is_some_and(|port| port != 0) {
            Err("-U: UDP is not supported; remove the option, or set -U 0")
        } else {
            Ok(())
        }
        .map_err(ToOwned::to_owned)
    }
}
