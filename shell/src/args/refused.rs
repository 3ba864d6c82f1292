//! Flags of memcached that are refused: without them the server would be less guarded than whoever
//! starts it believes, or do less than the script around it relies on.

/// Flags that ask for what latchd does not have.
#[derive(Debug, clap::Args)]
pub(super) struct Refused {
    /// Port 0 is how a start script says "no UDP", and there is none.
    #[arg(short = 'U', long, hide = true)]
    udp_port: Option<u16>,
}

impl Refused {
    /// # Errors
    /// What is asked for and not to be had, and what to do instead.
    pub(super) fn refuse(&self) -> Result<(), String> {
        let Self { udp_port } = self;
        if udp_port.is_some_and(|port| port != 0) {
            Err("-U: there is no UDP; leave it out, or say -U 0")
        } else {
            Ok(())
        }
        .map_err(ToOwned::to_owned)
    }
}
