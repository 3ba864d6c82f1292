//! Replaces the part in an election in builds without the feature `cluster`: uninhabited types.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;

use crate::cluster::Member;
use crate::config::Config;
use crate::net::listen::Address;
use crate::server_state::ServerState;
use crate::sync::channel::Sender;

/// No server that may stand.
#[derive(Debug)]
pub(crate) struct Candidacy(Infallible);

impl Candidacy {
    /// No server is a member of a cluster.
    #[expect(clippy::unnecessary_wraps, reason = "with the feature it can fail")]
    pub(crate) const fn new(_: &Config, _: &[Address]) -> io::Result<Option<Self>> {
        Ok(None)
    }

    pub(crate) fn member(&self) -> &Arc<Member> {
        match self.0 {}
    }

    pub(crate) fn stand(self, _: &Arc<ServerState>, _: Sender<()>) -> io::Result<Standing> {
        match self.0 {}
    }
}

/// No server that stands.
#[derive(Debug)]
pub(crate) struct Standing(Infallible);

impl Standing {
    pub(crate) fn reload(&self) -> io::Result<()> {
        match self.0 {}
    }

    pub(crate) fn leave(&self) {
        match self.0 {}
    }

    pub(crate) fn ended(&self) -> Option<(u128, u64)> {
        match self.0 {}
    }

    pub(crate) fn close(self) {
        match self.0 {}
    }
}
